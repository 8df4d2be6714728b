/*
 * update.c - SGD, Adagrad, Adam and RMSProp in host memory, the arithmetic in the weights' type.
 *
 * An update is done in pieces that stay in the first cache: gradients of another type than the
 * weights' pass through a buffer, and new weights are looked at while they are there. The rules are
 * compiled for several instruction sets, which all give the same bits (vec.c).
 */
#include "base/update.h"

#include <math.h>
#include <string.h>

#include "base/vec.h"

/* A rule's input beside its arrays: an update's numbers, with the decay of this piece. */
struct rule {
    dpb_update_kind kind;
    double rate, scale, decay, momentum, epsilon;
    double beta2, correction, second_correction;
    bool decoupled;
    double kept; /* ADAM: times the old weight; 0 with a rate of -1: the way down is left */
};

/* ---- the rules, once for each weight type -------------------------------------------------- */

#define DEFINE_RULES(real, root)                                                                   \
    DPB_CLONES static void plain_##real(const struct rule *rule, real *restrict w,                 \
                                        const real *restrict g, uint64_t n)                        \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        for (uint64_t i = 0; i < n; i++)                                                           \
            w[i] -= rate * (scale * g[i] + decay * w[i]);                                          \
    }                                                                                              \
                                                                                                   \
    DPB_CLONES static void momentum_##real(const struct rule *rule, real *restrict w,              \
                                           const real *restrict g, real *restrict v, uint64_t n)   \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real momentum = (real)rule->momentum;                                                \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            v[i] = momentum * v[i] + (scale * g[i] + decay * w[i]);                                \
            w[i] -= rate * v[i];                                                                   \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    DPB_CLONES static void nesterov_##real(const struct rule *rule, real *restrict w,              \
                                           const real *restrict g, real *restrict v, uint64_t n)   \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real momentum = (real)rule->momentum;                                                \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            real whole = scale * g[i] + decay * w[i];                                              \
            v[i] = momentum * v[i] + whole;                                                        \
            w[i] -= rate * (whole + momentum * v[i]);                                              \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    DPB_CLONES static void adagrad_##real(const struct rule *rule, real *restrict w,               \
                                          const real *restrict g, real *restrict s, uint64_t n)    \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real epsilon = (real)rule->epsilon;                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            real whole = scale * g[i] + decay * w[i];                                              \
            s[i] += whole * whole;                                                                 \
            w[i] -= rate * whole / (root(s[i]) + epsilon);                                         \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    DPB_CLONES static void adam_##real(const struct rule *rule, real *restrict w,                  \
                                       const real *restrict g, real *restrict m, real *restrict v, \
                                       uint64_t n)                                                 \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real added = rule->decoupled ? 0 : decay, apart = rule->decoupled ? decay : 0;       \
        const real beta1 = (real)rule->momentum, beta2 = (real)rule->beta2;                        \
        const real new1 = (real)(1.0 - rule->momentum), new2 = (real)(1.0 - rule->beta2);          \
        const real first = (real)rule->correction, second = (real)rule->second_correction;         \
        const real epsilon = (real)rule->epsilon, kept = (real)rule->kept;                         \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const real whole = scale * g[i] + added * w[i];                                        \
            m[i] = beta1 * m[i] + new1 * whole;                                                    \
            v[i] = beta2 * v[i] + new2 * whole * whole;                                            \
            w[i] = kept * w[i] -                                                                   \
                   rate * (m[i] / first / (root(v[i] / second) + epsilon) + apart * w[i]);         \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    DPB_CLONES static void rmsprop_##real(const struct rule *rule, real *restrict w,               \
                                          const real *restrict g, real *restrict s,                \
                                          real *restrict v, uint64_t n)                            \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real momentum = (real)rule->momentum, epsilon = (real)rule->epsilon;                 \
        const real kept = (real)rule->beta2, new_share = (real)(1.0 - rule->beta2);                \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            const real whole = scale * g[i] + decay * w[i];                                        \
            s[i] = kept * s[i] + new_share * whole * whole;                                        \
            v[i] = momentum * v[i] + rate * whole / root(s[i] + epsilon);                          \
            w[i] -= v[i];                                                                          \
        }                                                                                          \
    }

DEFINE_RULES(float, sqrtf)
DEFINE_RULES(double, sqrt)

#define RULE(kind, name, ...)                                                                  \
    case kind:                                                                                 \
        fp64 ? name##_double(rule, w, g, __VA_ARGS__) : name##_float(rule, w, g, __VA_ARGS__); \
        break

/* n elements of one decay flag whose gradients are in the weights' type. */
static void apply(const struct rule *rule, bool fp64, void *w, const void *g, void *state,
                  void *second, uint64_t n)
{
    switch (rule->kind) {
        RULE(DPB_UPDATE_PLAIN, plain, n);
        RULE(DPB_UPDATE_MOMENTUM, momentum, state, n);
        RULE(DPB_UPDATE_NESTEROV, nesterov, state, n);
        RULE(DPB_UPDATE_ADAGRAD, adagrad, state, n);
        RULE(DPB_UPDATE_ADAM, adam, state, second, n);
        RULE(DPB_UPDATE_RMSPROP, rmsprop, state, second, n);
    }
}

/* A device may swallow a NaN (max(0, NaN) is 0). Then no loss would ever show the fault. */
static void look_at(const struct dpb_update *update, const char *w, uint64_t element, uint64_t n)
{
    const size_t size = dpb_dtype_size(update->weight_type);
    uint64_t found = __atomic_load_n(update->not_finite, __ATOMIC_RELAXED);
    if (dpb_vec_finite(update->weight_type, w, n))
        return;
    while (dpb_vec_finite(update->weight_type, w, 1)) {
        w += size;
        element++;
    }
    while ((found == 0 || found > element + 1) &&
           !__atomic_compare_exchange_n(update->not_finite, &found, element + 1, false,
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

enum { PIECE = 1024 };

/* Elements of an update from `at` on; gradients in the weights' type. */
struct piece {
    char *weights, *state, *second;
    const void *gradients;
    uint64_t n;
};

/* `buffer`: for gradients of another type. */
static struct piece piece_at(const struct dpb_update *update, uint64_t at, uint64_t end,
                             double buffer[PIECE])
{
    const dpb_dtype type = update->weight_type, g_type = update->gradient_type;
    const size_t w_size = dpb_dtype_size(type);
    struct piece piece = {.weights = (char *)update->weights + at * w_size,
                          .state = update->state ? (char *)update->state + at * w_size : NULL,
                          .second = update->second ? (char *)update->second + at * w_size : NULL,
                          .gradients =
                              (const char *)update->gradients + at * dpb_dtype_size(g_type),
                          .n = end - at < PIECE ? end - at : PIECE};
    if (type != g_type) {
        dpb_vec.cast(type, buffer, g_type, piece.gradients, piece.n);
        piece.gradients = buffer;
    }
    return piece;
}

/* Elements [begin, end) of the update, all of them with rule->decay. */
static void apply_pieces(const struct dpb_update *update, const struct rule *rule, uint64_t begin,
                         uint64_t end)
{
    double buffer[PIECE];
    for (uint64_t at = begin; at < end; at += PIECE) {
        const struct piece piece = piece_at(update, at, end, buffer);
        apply(rule, update->weight_type == DPB_FP64, piece.weights, piece.gradients, piece.state,
              piece.second, piece.n);
        if (update->not_finite)
            look_at(update, piece.weights, update->first + at, piece.n);
    }
}

static struct rule rule_of(const struct dpb_update *update)
{
    const struct dpb_update_words *words = update->words;
    return (struct rule){.kind = update->kind,
                         .rate = words ? words->rate : update->rate,
                         .scale = words ? words->scale : update->scale,
                         .decay = update->decay,
                         .momentum = update->momentum,
                         .epsilon = update->epsilon,
                         .beta2 = update->beta2,
                         .correction = words ? words->correction : update->correction,
                         .second_correction =
                             words ? words->second_correction : update->second_correction,
                         .decoupled = update->decoupled,
                         .kept = 1.0};
}

double dpb_update_squares(const struct dpb_update *update)
{
    const bool fp64 = update->weight_type == DPB_FP64;
    const size_t size = dpb_dtype_size(update->weight_type);
    double buffer[PIECE], way[PIECE], state[PIECE], second[PIECE];
    struct dpb_vec_tree sum = {.n = 0};
    struct rule rule = rule_of(update);
    rule.kept = 0.0;
    rule.rate = -1.0;
    for (uint64_t at = 0; at < update->n; at += PIECE) {
        const struct piece piece = piece_at(update, at, update->n, buffer);
        memcpy(way, piece.weights, piece.n * size);
        memcpy(state, piece.state, piece.n * size);
        memcpy(second, piece.second, piece.n * size);
        apply(&rule, fp64, way, piece.gradients, state, second, piece.n);
        dpb_vec_tree_add(&sum, dpb_vec_squares(update->weight_type, way, piece.n));
    }
    return dpb_vec_tree_total(&sum);
}

void dpb_update_apply(const struct dpb_update *update)
{
    struct rule rule = rule_of(update);
    uint64_t at = 0;
    for (uint64_t i = 0; at < update->n; i++) {
        const bool any = i < update->n_decays;
        const uint64_t last = update->first + update->n;
        uint64_t begin = any && update->decays[i].begin < last ? update->decays[i].begin : last;
        uint64_t end = any && update->decays[i].end < last ? update->decays[i].end : last;
        begin = begin > update->first ? begin - update->first : 0;
        end -= update->first;
        rule.decay = 0.0;
        apply_pieces(update, &rule, at, begin);
        rule.decay = update->decay;
        apply_pieces(update, &rule, begin, end);
        at = end;
    }
}
