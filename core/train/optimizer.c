/* optimizer.c - SGD and Adagrad on ranges of the arena: see optimizer.h. */
#include "train/optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "graph/graph.h"
#include "train/account.h"

struct dpb_optimizer {
    const struct dpb_graph *graph;
    struct dpb_optimizer_settings settings;
    dpb_dtype weight_type, gradient_type;
    struct dpb_range *owned;
    uint64_t *state_at; /* where the state of each owned range begins, in elements */
    uint64_t n_owned, n_state;
    struct dpb_mapping state; /* momentum or sum of squares; zero bytes: none needed */
    uint64_t *not_finite;
};

const char *dpb_optimizer_state_name(const struct dpb_optimizer_settings *settings)
{
    if (settings->kind == DPB_ADAGRAD)
        return "sum";
    return settings->momentum != 0.0 ? "momentum_buffer" : NULL;
}

dpb_status dpb_optimizer_create(const struct dpb_optimizer_args *args,
                                struct dpb_optimizer **optimizer)
{
    if (args->n_owned == 0) {
        *optimizer = NULL;
        return DPB_OK;
    }
    struct dpb_optimizer *made = calloc(1, sizeof *made);
    size_t ranges = (size_t)args->n_owned;
    if (made) {
        made->owned = malloc(ranges * sizeof *made->owned);
        made->state_at = malloc(ranges * sizeof *made->state_at);
    }
    if (!made || !made->owned || !made->state_at) {
        dpb_optimizer_destroy(made);
        return dpb_fail(DPB_NO_MEMORY, "no memory for the optimizer's %zu ranges", ranges);
    }
    made->graph = args->graph;
    made->settings = *args->settings;
    made->weight_type = args->weight_type;
    made->gradient_type = args->gradient_type;
    made->n_owned = args->n_owned;
    made->not_finite = args->not_finite;
    memcpy(made->owned, args->owned, ranges * sizeof *made->owned);
    for (uint64_t i = 0; i < made->n_owned; i++) {
        made->state_at[i] = made->n_state;
        made->n_state += made->owned[i].end - made->owned[i].begin;
    }
    if (dpb_optimizer_state_name(&made->settings)) {
        size_t bytes = (size_t)made->n_state * dpb_dtype_size(made->weight_type);
        dpb_status status = dpb_mapping_create("optimizer", bytes, &made->state);
        if (status != DPB_OK) {
            dpb_optimizer_destroy(made);
            return status;
        }
    }
    *optimizer = made;
    return DPB_OK;
}

void dpb_optimizer_destroy(struct dpb_optimizer *optimizer)
{
    if (!optimizer)
        return;
    dpb_mapping_destroy(&optimizer->state);
    free(optimizer->owned);
    free(optimizer->state_at);
    free(optimizer);
}

struct dpb_mapping dpb_optimizer_mapping(const struct dpb_optimizer *optimizer)
{
    return optimizer ? optimizer->state : (struct dpb_mapping){.fd = -1};
}

void dpb_optimizer_load(struct dpb_optimizer *optimizer, const void *arena)
{
    size_t element = dpb_dtype_size(optimizer->weight_type);
    char *state = optimizer->state.memory;
    for (uint64_t i = 0; state && i < optimizer->n_owned; i++) {
        const struct dpb_range *owned = &optimizer->owned[i];
        memcpy(state + optimizer->state_at[i] * element,
               (const char *)arena + owned->begin * element, (owned->end - owned->begin) * element);
    }
}

static void reset(struct dpb_optimizer *optimizer)
{
    if (optimizer->state.memory)
        memset(optimizer->state.memory, 0, optimizer->state.bytes);
}

/* ---- the rules, once for each weight type -------------------------------------------------- */

struct rule {
    double rate, scale, decay, momentum, epsilon;
};

#define DEFINE_RULES(real, root)                                                                   \
    static void plain_##real(const struct rule *rule, real *restrict w, const real *restrict g,    \
                             uint64_t n)                                                           \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        for (uint64_t i = 0; i < n; i++)                                                           \
            w[i] -= rate * (scale * g[i] + decay * w[i]);                                          \
    }                                                                                              \
                                                                                                   \
    static void momentum_##real(const struct rule *rule, real *restrict w, const real *restrict g, \
                                real *restrict v, uint64_t n)                                      \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real momentum = (real)rule->momentum;                                                \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            v[i] = momentum * v[i] + (scale * g[i] + decay * w[i]);                                \
            w[i] -= rate * v[i];                                                                   \
        }                                                                                          \
    }                                                                                              \
                                                                                                   \
    static void nesterov_##real(const struct rule *rule, real *restrict w, const real *restrict g, \
                                real *restrict v, uint64_t n)                                      \
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
    static void adagrad_##real(const struct rule *rule, real *restrict w, const real *restrict g,  \
                               real *restrict s, uint64_t n)                                       \
    {                                                                                              \
        const real rate = (real)rule->rate, scale = (real)rule->scale, decay = (real)rule->decay;  \
        const real epsilon = (real)rule->epsilon;                                                  \
        for (uint64_t i = 0; i < n; i++) {                                                         \
            real whole = scale * g[i] + decay * w[i];                                              \
            s[i] += whole * whole;                                                                 \
            w[i] -= rate * whole / (root(s[i]) + epsilon);                                         \
        }                                                                                          \
    }

DEFINE_RULES(float, sqrtf)
DEFINE_RULES(double, sqrt)

/* n elements of one decay flag whose gradients are already in the weights' type. */
static void apply(const struct dpb_optimizer *optimizer, const struct rule *rule, bool plain,
                  void *w, const void *g, void *state, uint64_t n)
{
    bool fp64 = optimizer->weight_type == DPB_FP64;
    if (plain || !state)
        fp64 ? plain_double(rule, w, g, n) : plain_float(rule, w, g, n);
    else if (optimizer->settings.kind == DPB_ADAGRAD)
        fp64 ? adagrad_double(rule, w, g, state, n) : adagrad_float(rule, w, g, state, n);
    else if (optimizer->settings.nesterov)
        fp64 ? nesterov_double(rule, w, g, state, n) : nesterov_float(rule, w, g, state, n);
    else
        fp64 ? momentum_double(rule, w, g, state, n) : momentum_float(rule, w, g, state, n);
}

/* A device may swallow a NaN (max(0, NaN) is 0): then no loss would ever show what is wrong. */
static void look_at(const struct dpb_optimizer *optimizer, const char *w, uint64_t element,
                    uint64_t n)
{
    size_t size = dpb_dtype_size(optimizer->weight_type);
    uint64_t none = 0;
    if (dpb_vec.finite(optimizer->weight_type, w, n))
        return;
    while (dpb_vec.finite(optimizer->weight_type, w, 1)) {
        w += size;
        element++;
    }
    __atomic_compare_exchange_n(optimizer->not_finite, &none, element + 1, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
}

/* Elements from `element` of the arena on, of one decay flag. In pieces that stay in cache: gradients
 * of another type than the weights' pass through a buffer, new weights are looked at. */
static void apply_pieces(const struct dpb_optimizer *optimizer, const struct rule *rule, bool plain,
                         char *w, const char *g, char *state, uint64_t element, uint64_t n)
{
    enum { PIECE = 1024 };
    double buffer[PIECE];
    dpb_dtype type = optimizer->weight_type, g_type = optimizer->gradient_type;
    size_t w_size = dpb_dtype_size(type), g_size = dpb_dtype_size(g_type);
    bool looks =
        optimizer->not_finite && __atomic_load_n(optimizer->not_finite, __ATOMIC_RELAXED) == 0;
    for (uint64_t at = 0; at < n; at += PIECE) {
        uint64_t piece = n - at < PIECE ? n - at : PIECE;
        const void *gradients = g + at * g_size;
        char *weights = w + at * w_size;
        if (type != g_type) {
            dpb_vec.cast(type, buffer, g_type, gradients, piece);
            gradients = buffer;
        }
        apply(optimizer, rule, plain, weights, gradients, state ? state + at * w_size : NULL,
              piece);
        if (looks)
            look_at(optimizer, weights, element + at, piece);
    }
}

/* The state of arena element `at`, which lies in an owned range; NULL where the rule has none. */
static char *state_of(const struct dpb_optimizer *optimizer, uint64_t at)
{
    if (!optimizer->state.memory)
        return NULL;
    uint64_t low = 0, high = optimizer->n_owned;
    while (high - low > 1) {
        uint64_t middle = (low + high) / 2;
        if (optimizer->owned[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    uint64_t element = optimizer->state_at[low] + (at - optimizer->owned[low].begin);
    return (char *)optimizer->state.memory + element * dpb_dtype_size(optimizer->weight_type);
}

/* Tensor by tensor, because decay is a tensor's matter; the gaps behind them hold zeros and stay
 * so. A range lies within one owned range or within several that are adjacent in the state too. */
static void update(struct dpb_optimizer *optimizer, struct dpb_range range, void *weights,
                   const void *gradients, uint64_t bucket, const struct dpb_step *step)
{
    const struct dpb_graph *graph = optimizer->graph;
    int64_t began_ns = dpb_now_ns();
    struct rule rule = {.rate = step->learning_rate,
                        .scale = step->scale,
                        .momentum = optimizer->settings.momentum,
                        .epsilon = optimizer->settings.epsilon};
    size_t w_size = dpb_dtype_size(optimizer->weight_type);
    size_t g_size = dpb_dtype_size(optimizer->gradient_type);
    uint64_t at = range.begin;
    for (uint32_t t = dpb_graph_tensor_at(graph, at); at < range.end; t++) {
        uint64_t next = t + 1 < graph->n_tensors ? graph->tensors[t + 1].offset : graph->n_elements;
        uint64_t end = next < range.end ? next : range.end;
        bool decays = graph->tensors[t].decays && !step->plain;
        rule.decay = decays ? optimizer->settings.weight_decay : 0.0;
        apply_pieces(optimizer, &rule, step->plain, (char *)weights + (at - range.begin) * w_size,
                     (const char *)gradients + (at - range.begin) * g_size, state_of(optimizer, at),
                     at, end - at);
        at = end;
    }
    dpb_account_span(bucket, DPB_PHASE_UPDATE, began_ns, dpb_now_ns());
}

const struct dpb_optimizer_ops dpb_optimizers = {.update = update, .reset = reset};
