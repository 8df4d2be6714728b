/*
 * test_optimizer.c - the update rules against their formulas in double, on ranges of every kind.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/random.h"
#include "lib/test.h"
#include "optim/optimizer.h"

enum { ELEMENTS = 5008, STEPS = 20, MAX_RANGES = 16, PLAIN_STEP = 2 };

/* Tensors of odd sizes with gaps behind them; every other one decays. */
static const struct dpb_tensor tensors[] = {
    {.n_elements = 1, .offset = 0, .decays = true},
    {.n_elements = 33, .offset = 16, .decays = false},
    {.n_elements = 4000, .offset = 64, .decays = true},
    {.n_elements = 16, .offset = 4064, .decays = false},
    {.n_elements = 917, .offset = 4080, .decays = true},
};
enum { TENSORS = sizeof tensors / sizeof tensors[0] };
static const struct dpb_graph graph = {
    .n_tensors = TENSORS, .tensors = tensors, .n_elements = ELEMENTS};

/* What a rank owns: all, packed slices across tensors' borders, neighbours that touch. */
struct ownership {
    const char *name;
    uint64_t n;
    struct dpb_range ranges[MAX_RANGES];
};
static const struct ownership ownerships[] = {
    {"all", 1, {{0, ELEMENTS}}},
    {"slices", 4, {{3, 40}, {100, 1201}, {3000, 4075}, {5000, ELEMENTS}}},
    {"neighbours", 3, {{10, 70}, {70, 2500}, {2500, 4500}}},
    {"one element", 1, {{4063, 4064}}},
    {"all in parts", 3, {{0, 70}, {70, 2500}, {2500, ELEMENTS}}},
};
enum { OWNERSHIPS = sizeof ownerships / sizeof ownerships[0] };

struct rule_case {
    const char *name;
    dpb_dtype weights, gradients;
    struct dpb_optimizer_settings settings;
    double tolerance; /* relative to the magnitudes that are added up */
};
static const struct rule_case rules[] = {
    {"sgd, fp64", DPB_FP64, DPB_FP64, {.kind = DPB_SGD}, 1e-14},
    {"sgd with decay, fp64", DPB_FP64, DPB_FP64, {.kind = DPB_SGD, .weight_decay = 0.1}, 1e-14},
    {"momentum, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1},
     1e-14},
    {"nesterov, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
     1e-14},
    {"adagrad, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_ADAGRAD, .weight_decay = 0.1, .epsilon = 1e-3},
     1e-14},
    {"sgd, fp32", DPB_FP32, DPB_FP32, {.kind = DPB_SGD, .weight_decay = 0.1}, 2e-6},
    {"momentum, fp32",
     DPB_FP32,
     DPB_FP32,
     {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1},
     2e-6},
    {"nesterov, bf16 gradients",
     DPB_FP32,
     DPB_BF16,
     {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true},
     2e-6},
    {"adagrad, bf16 gradients", DPB_FP32, DPB_BF16, {.kind = DPB_ADAGRAD, .epsilon = 1e-10}, 2e-6},
    {"adam, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_ADAM, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1, .epsilon = 1e-8},
     1e-14},
    {"adam without its means, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_ADAM, .epsilon = 1e-3},
     1e-14},
    {"adamw, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_ADAMW,
      .beta1 = 0.8,
      .beta2 = 0.9,
      .weight_decay = 0.1,
      .epsilon = 1e-8,
      .decoupled_decay = true},
     1e-14},
    {"rmsprop, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_RMSPROP, .momentum = 0.9, .rms_decay = 0.8, .weight_decay = 0.1, .epsilon = 1e-3},
     1e-14},
    {"rmsprop without momentum, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_RMSPROP, .rms_decay = 0.9, .epsilon = 1.0},
     1e-14},
    {"clipped rmsprop, bf16 gradients",
     DPB_FP32,
     DPB_BF16,
     {.kind = DPB_RMSPROP, .momentum = 0.9, .rms_decay = 0.9, .epsilon = 1.0, .clip_norm = 9.0},
     2e-6},
    {"clipped sgd, fp64", DPB_FP64, DPB_FP64, {.kind = DPB_SGD, .clip_norm = 9.0}, 1e-14},
    {"seldom clipped nesterov, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .clip_norm = 17.5},
     1e-14},
    {"clipped adam, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_ADAM, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .clip_norm = 9.0},
     1e-14},
    {"lars, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_LARS, .momentum = 0.9, .weight_decay = 0.1, .trust = 0.02},
     1e-14},
    {"lars without momentum and decay, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_LARS, .trust = 0.02},
     1e-14},
    {"clipped lars, bf16 gradients",
     DPB_FP32,
     DPB_BF16,
     {.kind = DPB_LARS, .momentum = 0.9, .weight_decay = 0.1, .trust = 0.02, .clip_norm = 9.0},
     2e-6},
    {"lamb, fp64",
     DPB_FP64,
     DPB_FP64,
     {.kind = DPB_LAMB,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .weight_decay = 0.1,
      .epsilon = 1e-6,
      .decoupled_decay = true},
     1e-14},
    {"clipped lamb without decay, bf16 gradients",
     DPB_FP32,
     DPB_BF16,
     {.kind = DPB_LAMB,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .epsilon = 1e-6,
      .decoupled_decay = true,
      .clip_norm = 9.0},
     2e-6},
    {"sgd, fp16 gradients", DPB_FP32, DPB_FP16, {.kind = DPB_SGD, .weight_decay = 0.1}, 2e-6},
    {"adam, bf16 gradients",
     DPB_FP32,
     DPB_BF16,
     {.kind = DPB_ADAM, .beta1 = 0.9, .beta2 = 0.999, .weight_decay = 0.1, .epsilon = 1e-8},
     2e-6},
};
enum { RULES = sizeof rules / sizeof rules[0] };

/* ---- the oracle ---------------------------------------------------------------------------- */

/* All of the arena, in double; state by arena element, not packed. */
static struct {
    double weights[ELEMENTS], state[ELEMENTS], second[ELEMENTS], magnitude[ELEMENTS];
    int updates[ELEMENTS];
    double clip, local[TENSORS]; /* of the step */
} oracle;

static const struct dpb_tensor *tensor_of(uint64_t i)
{
    for (int t = TENSORS - 1; t > 0; t--)
        if (i >= tensors[t].offset)
            return &tensors[t];
    return &tensors[0];
}

static bool in_gap(uint64_t i)
{
    return i >= tensor_of(i)->offset + tensor_of(i)->n_elements;
}

/* Algorithm 1 of Kingma and Ba; decoupled decay after Algorithm 2 of Loshchilov and Hutter. `terms`
 * is the magnitude of the terms of g: where they cancel, their rounding is divided by little. */
static double adam_change(const struct dpb_optimizer_settings *settings, uint64_t i, double g,
                          double decay, double terms)
{
    double *m = &oracle.state[i], *v = &oracle.second[i], b1 = settings->beta1,
           b2 = settings->beta2;
    const double apart = settings->decoupled_decay ? decay * oracle.weights[i] : 0.0;
    const int t = ++oracle.updates[i];
    g -= apart;
    *m = b1 * *m + (1 - b1) * g;
    *v = b2 * *v + (1 - b2) * g * g;
    const double m_hat = *m / (1 - pow(b1, t)), v_hat = *v / (1 - pow(b2, t));
    oracle.magnitude[i] += terms / (sqrt(v_hat) + settings->epsilon);
    return apart + m_hat / (sqrt(v_hat) + settings->epsilon);
}

/* tensorflow.org, tf.compat.v1.train.RMSPropOptimizer, not centered: mean square from 1. */
static double rmsprop_change(const struct dpb_optimizer_settings *settings, uint64_t i, double g,
                             double rate)
{
    double *mean_square = &oracle.state[i], *mom = &oracle.second[i];
    *mean_square = settings->rms_decay * *mean_square + (1 - settings->rms_decay) * g * g;
    *mom = settings->momentum * *mom + rate * g / sqrt(*mean_square + settings->epsilon);
    return *mom;
}

static void oracle_update(const struct dpb_optimizer_settings *settings, uint64_t i,
                          double gradient, const struct dpb_step *step)
{
    double *w = &oracle.weights[i], *state = &oracle.state[i], change;
    const bool plain = step->seal == dpb_step_seal(step->step, true);
    const bool lars = settings->kind == DPB_LARS && !plain;
    const bool rmsprop = settings->kind == DPB_RMSPROP && !plain;
    const bool lamb = settings->kind == DPB_LAMB && !plain;
    double decay = tensor_of(i)->decays && !plain ? settings->weight_decay : 0.0;
    double g = step->scale * (plain ? 1.0 : oracle.clip) * gradient;
    const double terms = fabs(g) + fabs(decay * *w);
    g += decay * *w;
    if (lars)
        g *= step->learning_rate * oracle.local[tensor_of(i) - tensors];
    if (plain || ((lars || settings->kind == DPB_SGD) && settings->momentum == 0.0)) {
        change = g;
    } else if (dpb_optimizer_has_moments(settings)) {
        change = adam_change(settings, i, g, decay, terms);
    } else if (rmsprop) {
        change = rmsprop_change(settings, i, g, step->learning_rate);
    } else if (settings->kind == DPB_ADAGRAD) {
        *state += g * g;
        change = in_gap(i) ? 0.0 : g / (sqrt(*state) + settings->epsilon);
    } else {
        *state = settings->momentum * *state + g;
        change = settings->nesterov ? g + settings->momentum * *state : *state;
    }
    if (lamb)
        change *= oracle.local[tensor_of(i) - tensors];
    *w -= (lars || rmsprop ? 1.0 : step->learning_rate) * change;
    oracle.magnitude[i] += fabs(*w) + fabs(change);
}

/* ---- runs ---------------------------------------------------------------------------------- */

static union {
    double fp64[ELEMENTS];
    float fp32[ELEMENTS];
    uint16_t halves[ELEMENTS];
    char bytes[ELEMENTS * sizeof(double)];
} weights, gradients;

static uint32_t drawn;

static double draw_normal(void)
{
    struct dpb_random4 r = dpb_random(3, DPB_STREAM_SYNTHETIC, drawn++, 0, 0, 0);
    double normal[2];
    dpb_random_normal(r.v[0], r.v[1], normal);
    return normal[0];
}

static double get(dpb_dtype type, const void *arena, uint64_t i)
{
    double value;
    dpb_vec.cast(DPB_FP64, &value, type, (const char *)arena + i * dpb_dtype_size(type), 1);
    return value;
}

/* Normal values in the tensors, zeros in the gaps; the oracle's copy is what the type holds. */
static void fill(dpb_dtype type, void *arena)
{
    static double values[ELEMENTS];
    for (uint64_t i = 0; i < ELEMENTS; i++)
        values[i] = in_gap(i) ? 0.0 : draw_normal();
    dpb_vec.cast(type, arena, DPB_FP64, values, ELEMENTS);
}

/* You et al. 2020, Algorithm 2, with phi(x) = x: what Adam would do next, and its norm. */
static double lamb_ratio(const struct rule_case *rule, int t, double w_norm, double scale)
{
    const struct dpb_optimizer_settings *settings = &rule->settings;
    long double squares = 0;
    for (uint64_t i = tensors[t].offset; i < tensors[t].offset + tensors[t].n_elements; i++) {
        const double m = oracle.state[i], v = oracle.second[i], magnitude = oracle.magnitude[i];
        const double decay = settings->weight_decay;
        const double g = scale * oracle.clip * get(rule->gradients, gradients.bytes, i);
        const double r = adam_change(settings, i, g + decay * oracle.weights[i], decay, 0.0);
        squares += (long double)r * r;
        oracle.state[i] = m;
        oracle.second[i] = v;
        oracle.magnitude[i] = magnitude;
        oracle.updates[i]--;
    }
    return tensors[t].decays && w_norm > 0 && squares > 0 ? w_norm / (double)sqrtl(squares) : 1.0;
}

/* Norms of the weights and of the mean gradient. */
static void oracle_norms(const struct rule_case *rule, double scale)
{
    const struct dpb_optimizer_settings *settings = &rule->settings;
    long double w[TENSORS] = {0}, g[TENSORS] = {0}, all = 0;
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        const double gradient = scale * get(rule->gradients, gradients.bytes, i);
        w[tensor_of(i) - tensors] += (long double)oracle.weights[i] * oracle.weights[i];
        g[tensor_of(i) - tensors] += (long double)gradient * gradient;
        all += (long double)gradient * gradient;
    }
    oracle.clip = settings->clip_norm > 0
                      ? fmin(1.0, settings->clip_norm / ((double)sqrtl(all) + 1e-6))
                      : 1.0;
    for (int t = 0; t < TENSORS; t++) {
        const double w_norm = (double)sqrtl(w[t]), g_norm = oracle.clip * (double)sqrtl(g[t]);
        oracle.local[t] =
            tensors[t].decays && w_norm > 0 && g_norm > 0
                ? settings->trust * w_norm / (g_norm + settings->weight_decay * w_norm)
                : 1.0;
        if (settings->kind == DPB_LAMB)
            oracle.local[t] = lamb_ratio(rule, t, w_norm, scale);
    }
}

/* An owned range, in pieces of random sizes; each tensor's border falls into some of them. */
static void update_range(struct dpb_optimizer *optimizer, const struct rule_case *rule,
                         struct dpb_range range, const struct dpb_step *step)
{
    while (range.begin < range.end) {
        uint64_t n = 1 + dpb_random(3, DPB_STREAM_SHUFFLE, drawn++, 0, 0, 0).v[0] % 1500;
        uint64_t end = n < range.end - range.begin ? range.begin + n : range.end;
        dpb_optimizers.update(optimizer, NULL, (struct dpb_range){range.begin, end},
                              weights.bytes + range.begin * dpb_dtype_size(rule->weights),
                              gradients.bytes + range.begin * dpb_dtype_size(rule->gradients), 0,
                              step);
        range.begin = end;
    }
}

static bool is_owned(const struct ownership *owned, uint64_t element)
{
    for (uint64_t r = 0; r < owned->n; r++)
        if (owned->ranges[r].begin <= element && element < owned->ranges[r].end)
            return true;
    return false;
}

/* Where this rank owns a part: beside its sums of squares those of another rank with the rest. */
static void exchange_squares(struct dpb_optimizer *optimizer, const struct rule_case *rule,
                             const struct ownership *owned, const struct dpb_step *step)
{
    struct dpb_squares all[2 * TENSORS] = {{0}};
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        struct dpb_squares *rest = &all[TENSORS + (tensor_of(i) - tensors)];
        const double g = get(rule->gradients, gradients.bytes, i),
                     w = get(rule->weights, weights.bytes, i);
        if (in_gap(i) || is_owned(owned, i))
            continue;
        rest->gradients += g * g;
        rest->weights += rule->settings.kind == DPB_LARS && tensor_of(i)->decays ? w * w : 0.0;
    }
    bool more = false;
    assert_int_equal(dpb_optimizers.squares(optimizer, NULL, step, NULL, 2, all, &more), DPB_OK);
    assert_true(more);
    assert_int_equal(dpb_optimizers.squares(optimizer, NULL, step, all, 2, all, &more), DPB_OK);
    assert_false(more);
}

static void step_once(struct dpb_optimizer *optimizer, const struct rule_case *rule,
                      const struct ownership *owned, uint64_t number)
{
    const struct dpb_step step = {.step = number,
                                  .learning_rate = 0.1 / (double)(number + 1),
                                  .scale = 0.25,
                                  .seal = dpb_step_seal(number, number == PLAIN_STEP)};
    fill(rule->gradients, gradients.bytes);
    for (uint64_t i = 0; i < ELEMENTS; i++) /* none in one tensor, and none at all */
        if (number == STEPS / 2 || (uint64_t)(tensor_of(i) - tensors) == number % TENSORS)
            memset(gradients.bytes + i * dpb_dtype_size(rule->gradients), 0,
                   dpb_dtype_size(rule->gradients));
    oracle_norms(rule, step.scale);
    for (uint64_t r = 0; r < owned->n; r++)
        for (uint64_t i = owned->ranges[r].begin; i < owned->ranges[r].end; i++)
            oracle_update(&rule->settings, i, get(rule->gradients, gradients.bytes, i), &step);
    if (dpb_optimizer_needs_norms(&rule->settings) && rule->settings.kind != DPB_LAMB)
        exchange_squares(optimizer, rule, owned, &step);
    /* Neighbours as one range, as a bucket that lies across them would be. */
    if (owned->ranges[0].end == owned->ranges[1].begin && owned->n > 1)
        update_range(optimizer, rule,
                     (struct dpb_range){owned->ranges[0].begin, owned->ranges[owned->n - 1].end},
                     &step);
    else
        for (uint64_t r = owned->n; r-- > 0;)
            update_range(optimizer, rule, owned->ranges[r], &step);
}

static void check_weights(const struct rule_case *rule, const struct ownership *owned)
{
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        double is = get(rule->weights, weights.bytes, i);
        double bound = in_gap(i) ? 0.0 : rule->tolerance * oracle.magnitude[i];
        if (!(fabs(is - oracle.weights[i]) <= bound))
            fail_msg("%s, owning %s: weight %llu is %.17g, not %.17g (within %.3g)", rule->name,
                     owned->name, (unsigned long long)i, is, oracle.weights[i], bound);
    }
}

static struct dpb_optimizer *make(const struct rule_case *rule, const struct ownership *owned)
{
    struct dpb_optimizer *optimizer;
    const struct dpb_optimizer_args args = {.graph = &graph,
                                            .settings = &rule->settings,
                                            .weight_type = rule->weights,
                                            .gradient_type = rule->gradients,
                                            .owned = owned->ranges,
                                            .n_owned = owned->n,
                                            .weights = weights.bytes,
                                            .gradients = gradients.bytes,
                                            .sharded = true};
    assert_int_equal(dpb_optimizer_create(&args, &optimizer), DPB_OK);
    assert_non_null(optimizer);
    return optimizer;
}

/* From new weights, all steps, by draws from `first_draw` on; elements that are not owned stay as
 * they are, bit for bit. */
static void run_steps(struct dpb_optimizer *optimizer, const struct rule_case *rule,
                      const struct ownership *owned, uint32_t first_draw)
{
    memset(&oracle, 0, sizeof oracle);
    for (uint64_t i = 0; i < ELEMENTS && rule->settings.kind == DPB_RMSPROP; i++)
        oracle.state[i] = 1.0;
    drawn = first_draw;
    fill(rule->weights, weights.bytes);
    memset(weights.bytes + tensors[0].offset, 0, dpb_dtype_size(rule->weights));
    for (uint64_t i = 0; i < ELEMENTS; i++)
        oracle.weights[i] = get(rule->weights, weights.bytes, i);
    for (uint64_t step = 0; step < STEPS; step++) {
        step_once(optimizer, rule, owned, step);
        check_weights(rule, owned);
    }
}

/* ---- tests --------------------------------------------------------------------------------- */

static void check_rule(const struct rule_case *rule, uint32_t first_draw)
{
    for (size_t o = 0; o < OWNERSHIPS; o++) {
        if (rule->settings.kind == DPB_LAMB && !strstr(ownerships[o].name, "all"))
            continue; /* the norms are of all state */
        struct dpb_optimizer *optimizer = make(rule, &ownerships[o]);
        run_steps(optimizer, rule, &ownerships[o], first_draw);
        dpb_optimizer_destroy(optimizer);
    }
}

static void test_rule(void **state)
{
    check_rule(*state, 0);
}

/* These draws have a first gradient that decay takes away, but for about an epsilon. */
TEST(test_gradient_and_decay_cancel)
{
    const struct rule_case *adam_bf16 = &rules[RULES - 1];
    assert_string_equal(adam_bf16->name, "adam, bf16 gradients");
    check_rule(adam_bf16, 12000036);
}

/* A mapping by name in /proc/self/maps; its bytes, 0: none. */
static size_t mapped_bytes(const char *name)
{
    char line[512];
    size_t begin, end, sum = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        if (strstr(line, name) && sscanf(line, "%zx-%zx", &begin, &end) == 2)
            sum += end - begin;
    fclose(maps);
    return sum;
}

/* State exists for what is owned, where the rule has one, and nowhere else. */
TEST(test_state_is_for_the_owned)
{
    static const struct ownership large = {"large", 1, {{0, 1 << 20}}};
    struct rule_case rule = rules[0];
    struct dpb_optimizer *optimizer;
    const struct dpb_optimizer_args nothing = {.graph = &graph, .settings = &rule.settings};
    assert_int_equal(dpb_optimizer_create(&nothing, &optimizer), DPB_OK);
    assert_null(optimizer);
    dpb_optimizer_destroy(NULL);

    optimizer = make(&rule, &large);
    assert_int_equal(mapped_bytes("dpbench-optimizer"), 0); /* plain sgd */
    dpb_optimizer_destroy(optimizer);
    rule.settings.momentum = 0.9;
    optimizer = make(&rule, &large);
    assert_in_range(mapped_bytes("dpbench-optimizer"), 8 << 20, 10 << 20);
    dpb_optimizer_destroy(optimizer);
    assert_int_equal(mapped_bytes("dpbench-optimizer"), 0);
}

/* The smallest epsilon that the options take keeps gaps, where 0 is divided by it, at zero. */
TEST(test_smallest_epsilon)
{
    const struct dpb_option *row = NULL;
    for (size_t s = 0; s < dpb_settings_n_sections; s++)
        for (const struct dpb_option *one = dpb_settings_sections[s].rows; one->name; one++)
            if (strcmp(one->name, "epsilon") == 0)
                row = one;
    assert_non_null(row);
    for (size_t i = 0; i < RULES; i++) {
        struct rule_case rule = rules[i];
        if (rule.settings.kind == DPB_SGD)
            continue;
        rule.settings.epsilon = row->min;
        struct dpb_optimizer *optimizer = make(&rule, &ownerships[0]);
        run_steps(optimizer, &rule, &ownerships[0], 0);
        dpb_optimizer_destroy(optimizer);
    }
}

/* State that is loaded goes on from its update, in all ranges. */
TEST(test_adam_goes_on)
{
    static double arenas[2][ELEMENTS];
    const struct rule_case rule = {"adam that goes on",
                                   DPB_FP64,
                                   DPB_FP64,
                                   {.kind = DPB_ADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-8},
                                   1e-14};
    const struct ownership *owned = &ownerships[1];
    struct dpb_optimizer *optimizer = make(&rule, owned);
    run_steps(optimizer, &rule, owned, 0);
    dpb_optimizer_destroy(optimizer);
    for (uint64_t i = 0; i < ELEMENTS; i++) {
        arenas[0][i] = oracle.state[i];
        arenas[1][i] = oracle.second[i];
    }
    optimizer = make(&rule, owned);
    assert_int_equal(dpb_optimizer_load(optimizer, arenas, STEPS - 1), DPB_OK); /* one was plain */
    for (uint64_t step = STEPS; step < STEPS + 3; step++) {
        step_once(optimizer, &rule, owned, step);
        check_weights(&rule, owned);
    }
    dpb_optimizer_destroy(optimizer);
}

static uint64_t bad_of(uint64_t at, double value)
{
    uint64_t found = 0;
    const struct dpb_step step = {
        .learning_rate = 0.1, .scale = 1.0, .seal = dpb_step_seal(0, true)};
    const struct dpb_optimizer_args args = {.graph = &graph,
                                            .settings = &rules[5].settings,
                                            .weight_type = DPB_FP32,
                                            .gradient_type = DPB_FP32,
                                            .owned = ownerships[0].ranges,
                                            .n_owned = 1,
                                            .not_finite = &found};
    struct dpb_optimizer *optimizer;
    float *w = own_memory(calloc(ELEMENTS, sizeof *w), free),
          *g = own_memory(calloc(ELEMENTS, sizeof *g), free);
    assert_true(w && g && dpb_optimizer_create(&args, &optimizer) == DPB_OK);
    /* Two more behind it: the first counts. */
    for (uint64_t i = at; i < at + 3 && i < ELEMENTS; i++)
        g[i] = (float)value;
    dpb_optimizers.update(optimizer, NULL, (struct dpb_range){7, ELEMENTS}, w + 7, g + 7, 0, &step);
    uint64_t first = found;
    memset(g, 0, ELEMENTS * sizeof *g);
    g[8] = NAN;
    dpb_optimizers.update(optimizer, NULL, (struct dpb_range){7, ELEMENTS}, w + 7, g + 7, 0, &step);
    assert_int_equal(found, first && first < 9 ? first : 9); /* the lowest */
    dpb_optimizer_destroy(optimizer);
    return first;
}

/* An update of what this rank does not own is refused, and changes nothing. */
TEST(test_not_owned)
{
    static const struct dpb_range owned[] = {{8, 12}, {12, 20}},
                                  good[] = {{8, 20}, {9, 13}, {8, 8}},
                                  bad[] = {{7, 9}, {19, 21}, {0, 4}, {30, 20}, {8, 1 << 20}};
    const struct dpb_optimizer_settings sgd = {.kind = DPB_SGD, .momentum = 0.9};
    const struct dpb_step step = {.learning_rate = 1.0, .scale = 1.0};
    float model[32] = {0}, slope[32], zeros[32] = {0};
    struct dpb_optimizer *optimizer = NULL;
    for (size_t i = 0; i < 32; i++)
        slope[i] = 1;
    const struct dpb_optimizer_args args = {.graph = &graph,
                                            .settings = &sgd,
                                            .weight_type = DPB_FP32,
                                            .gradient_type = DPB_FP32,
                                            .owned = owned,
                                            .n_owned = 2};
    assert_int_equal(dpb_optimizer_create(&args, &optimizer), DPB_OK);
    for (size_t i = 0; i < 3; i++)
        dpb_optimizers.update(optimizer, NULL, good[i], model, slope, 0, &step);
    assert_int_equal(dpb_optimizer_refused(), DPB_OK);
    memset(model, 0, sizeof model);
    for (size_t i = 0; i < 6; i++) {
        dpb_first_error_clear();
        dpb_optimizers.update(i < 5 ? optimizer : NULL, NULL, i < 5 ? bad[i] : good[0], model,
                              slope, 0, &step);
        assert_int_equal(dpb_optimizer_refused(), DPB_FAILED);
        assert_non_null(strstr(dpb_first_error(NULL), i < 5 ? "not all of them" : "owns none"));
        assert_memory_equal(model, zeros, sizeof model);
    }
    dpb_first_error_clear();
    dpb_optimizer_destroy(optimizer);
}

static void expect_refused(dpb_status status, const char *says)
{
    assert_int_equal(status, DPB_FAILED);
    if (!strstr(dpb_first_error(NULL), says))
        fail_msg("'%s' does not say '%s'", dpb_first_error(NULL), says);
    dpb_first_error_clear();
}

/* Norms are of the arenas at the end of a step: an update from other memory, of all weights twice,
 * or of some is refused. */
TEST(test_norms_refuse)
{
    const struct dpb_optimizer_settings clipped = {.kind = DPB_SGD, .clip_norm = 1.0};
    const struct dpb_range all = {0, ELEMENTS}, first = {0, 8}, none = {ELEMENTS, ELEMENTS};
    const struct dpb_step steps[] = {{.learning_rate = 1.0, .scale = 1.0},
                                     {.step = 1, .learning_rate = 1.0, .scale = 1.0}};
    float *w = own_memory(calloc(ELEMENTS, sizeof *w), free),
          *g = own_memory(calloc(ELEMENTS, sizeof *g), free);
    struct dpb_optimizer *optimizer = NULL;
    assert_true(w && g);
    const struct dpb_optimizer_args args = {.graph = &graph,
                                            .settings = &clipped,
                                            .weight_type = DPB_FP32,
                                            .gradient_type = DPB_FP32,
                                            .owned = &all,
                                            .n_owned = 1,
                                            .weights = w,
                                            .gradients = g};
    assert_int_equal(dpb_optimizer_create(&args, &optimizer), DPB_OK);
    dpb_first_error_clear();
    expect_refused(dpb_optimizers.update(optimizer, NULL, first, w, w, 0, &steps[0]),
                   "elements 0 to 8 from other memory");
    expect_refused(dpb_optimizers.update(optimizer, NULL, first, g, g, 0, &steps[0]),
                   "elements 0 to 8 from other memory");
    g[0] = 0.5f;
    assert_int_equal(dpb_optimizers.update(optimizer, NULL, all, w, g, 0, &steps[0]), DPB_OK);
    /* A bucket's empty share behind the last one is no second update. */
    assert_int_equal(dpb_optimizers.update(optimizer, NULL, none, w, g, 0, &steps[0]), DPB_OK);
    assert_true(w[0] == -0.5f);
    g[0] = 0.0f;
    expect_refused(dpb_optimizers.update(optimizer, NULL, first, w, g, 0, &steps[0]),
                   "updates 5016 of 5008 elements");
    dpb_optimizer_destroy(optimizer);
    assert_int_equal(dpb_optimizer_create(&args, &optimizer), DPB_OK);
    assert_int_equal(dpb_optimizers.update(optimizer, NULL, first, w, g, 0, &steps[0]), DPB_OK);
    expect_refused(dpb_optimizers.update(optimizer, NULL, all, w, g, 0, &steps[1]),
                   "updates 8 of 5008 elements");
    dpb_optimizer_destroy(optimizer);
    struct dpb_optimizer_args part = args;
    part.owned = &first;
    expect_refused(dpb_optimizer_create(&part, &optimizer), "owns 8 of 5008 elements");
    part.sharded = true;
    assert_int_equal(dpb_optimizer_create(&part, &optimizer), DPB_OK);
    expect_refused(dpb_optimizers.update(optimizer, NULL, first, w, g, 0, &steps[0]),
                   "behind the sums of squares of all owners");
    dpb_optimizer_destroy(optimizer);
}

/* The first element of the arena that is no number afterwards, wherever it lies, is named. */
TEST(test_not_finite)
{
    static const uint64_t places[] = {7, 33, 64, 1087, 1088, 1089, 4063, 4096, ELEMENTS - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_int_equal(bad_of(places[i], NAN), places[i] + 1);
        assert_int_equal(bad_of(places[i], INFINITY), places[i] + 1);
        assert_int_equal(bad_of(places[i], 3e38), 0); /* large is not infinite */
    }
}

int main(void)
{
    for (size_t i = 0; i < RULES; i++)
        add_case(test_rule, &rules[i], "%s", rules[i].name);
    return test_main(NULL, NULL);
}
