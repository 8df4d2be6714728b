/* needs: cuda stand-in */
/*
 * test_cuda_queues.c - what the cuda device does with arenas in its memory (dpbench/queue.h): sums,
 * casts and updates are the host's bit for bit; events order queues; another process maps memory,
 * whether or not the two GPUs are peers. On a CUDA for tests, or on a GPU (lib/stand_in.h).
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/update.h"
#include "base/vec.h"
#include "dpbench/plugin.h"
#include "dpbench/random.h"
#include "lib/cuda_queue.h"
#include "lib/session.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "optim/optimizer.h"

enum { N = 30011, SOURCES = 5, SEED_VALUES = 5 };

static struct cuda_queue opened;
static const struct dpb_queue_ops *ops;
static void *device;
static struct dpb_queue *queue;

static void open_device(uint32_t index)
{
    cuda_queue_open(index, &opened);
    ops = opened.arenas.ops;
    device = opened.arenas.device;
    queue = opened.queue;
}

/* ---- arrays -------------------------------------------------------------------------------- */

/* Values of many magnitudes and both signs, zeros among them. */
static float value(uint32_t which, uint64_t i)
{
    struct dpb_random4 r = dpb_random(SEED_VALUES, DPB_STREAM_SYNTHETIC, which, (uint32_t)i, 0, 0);
    float mantissa = (float)((double)(int32_t)r.v[0] * 0x1p-31);
    if (r.v[1] % 37 == 0)
        return r.v[2] % 2 == 0 ? 0.0f : -0.0f;
    return ldexpf(mantissa, (int)(r.v[1] % 40) - 20);
}

static void fill(dpb_dtype type, uint32_t which, void *array)
{
    for (uint64_t i = 0; i < N; i++) {
        const float next = value(which, i);
        dpb_vec.cast(type, (char *)array + i * dpb_dtype_size(type), DPB_FP32, &next, 1);
    }
}

/* On the device, `ahead` elements into an allocation: with one, at no vector's alignment. */
static void *upload_behind(size_t ahead, dpb_dtype type, const void *array, void **allocation)
{
    size_t size = dpb_dtype_size(type);
    expect_ok(ops->allocate(device, "an array", (N + ahead) * size, false, allocation));
    void *at = (char *)*allocation + ahead * size;
    expect_ok(ops->copy(queue, at, array, N * size));
    return at;
}

static void *upload(dpb_dtype type, const void *array, void **allocation)
{
    return upload_behind(1, type, array, allocation);
}

/* Which NaN a GPU makes of a sum that is none is its own; the CUDA for tests makes the host's. */
static bool both_nan(dpb_dtype type, const void *a, const void *b)
{
    float x, y;
    if (!on_gpu())
        return false;
    dpb_vec.cast(DPB_FP32, &x, type, a, 1);
    dpb_vec.cast(DPB_FP32, &y, type, b, 1);
    return isnan(x) && isnan(y);
}

static void expect_same(dpb_dtype type, const void *found_, const void *wanted_, uint64_t n,
                        const char *what)
{
    const char *found = found_, *wanted = wanted_;
    const size_t size = dpb_dtype_size(type);
    for (size_t i = 0; i < n * size; i += size)
        if (memcmp(found + i, wanted + i, size) != 0 && !both_nan(type, found + i, wanted + i))
            fail_msg("%s in %s: element %zu differs from the host's", what, dpb_dtype_name(type),
                     i / size);
}

static void expect_equal(dpb_dtype type, const void *on_device, const void *wanted,
                         const char *what)
{
    const size_t size = dpb_dtype_size(type);
    char *found = allocate(N, size);
    expect_ok(ops->copy(queue, found, on_device, N * size));
    expect_same(type, found, wanted, N, what);
    free(found);
}

/* ---- sums and casts ------------------------------------------------------------------------ */

static const dpb_dtype types[] = {DPB_FP32, DPB_BF16, DPB_FP16};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* k sources into the one of them that is `into`, and with none a new array. */
static void check_sum(size_t ahead, dpb_dtype type, uint32_t k, uint32_t into)
{
    void *host[SOURCES], *allocations[SOURCES], *sources[SOURCES];
    const void *from[DPB_SUM_SOURCES], *host_from[DPB_SUM_SOURCES];
    for (uint32_t i = 0; i < SOURCES; i++) {
        host[i] = allocate(N, dpb_dtype_size(type));
        fill(type, i, host[i]);
        sources[i] = upload_behind(ahead, type, host[i], &allocations[i]);
    }
    for (uint32_t i = 0; i < k; i++) {
        from[i] = sources[i % SOURCES];
        host_from[i] = host[i % SOURCES];
    }
    expect_ok(ops->sum(queue, type, sources[into], from, k, N));
    dpb_vec.sum(type, &host[into], 1, host_from, k, N);
    expect_equal(type, sources[into], host[into], "a sum");
    for (uint32_t i = 0; i < SOURCES; i++) {
        free(host[i]);
        ops->release(device, allocations[i]);
    }
}

TEST(test_sums)
{
    for (size_t i = 0; i < 2 * N_TYPES; i++) {
        check_sum(i % 2, types[i / 2], 0, 0);
        check_sum(i % 2, types[i / 2], 1, 0);
        check_sum(i % 2, types[i / 2], 1, 2);
        check_sum(i % 2, types[i / 2], 2, 1);
        check_sum(i % 2, types[i / 2], 3, 4);
        check_sum(i % 2, types[i / 2], 5, 3);
        check_sum(i % 2, types[i / 2], DPB_SUM_SOURCES, 0);
    }
    const void *none[DPB_SUM_SOURCES + 1] = {NULL};
    dpb_first_error_clear();
    assert_int_equal(ops->sum(queue, DPB_FP32, NULL, none, DPB_SUM_SOURCES + 1, N),
                     DPB_UNSUPPORTED);
    assert_int_equal(ops->sum(queue, DPB_FP64, NULL, none, 2, N), DPB_UNSUPPORTED);
    dpb_first_error_clear();
}

static void check_scaled_sum(size_t ahead, dpb_dtype type)
{
    void *x = allocate(N, dpb_dtype_size(type)), *y = allocate(N, dpb_dtype_size(type));
    void *x_at, *y_at;
    fill(type, 1, x);
    fill(type, 2, y);
    void *x_device = upload_behind(ahead, type, x, &x_at),
         *y_device = upload_behind(ahead, type, y, &y_at);
    expect_ok(ops->axpby(queue, type, 0.3, x_device, -1.7, y_device, N));
    dpb_vec.axpby(type, 0.3, x, -1.7, y, N);
    expect_equal(type, y_device, y, "a x + b y");
    ops->release(device, x_at);
    ops->release(device, y_at);
    free(x);
    free(y);
}

TEST(test_scaled_sums)
{
    for (size_t i = 0; i < 2 * N_TYPES; i++)
        check_scaled_sum(i % 2, types[i / 2]);
}

static void check_cast(size_t ahead, dpb_dtype from, dpb_dtype to)
{
    void *source = allocate(N, dpb_dtype_size(from)), *target = allocate(N, dpb_dtype_size(to));
    void *source_at, *target_at;
    fill(from, 3, source);
    if (from == DPB_FP32)
        memcpy(source, (float[]){INFINITY, -INFINITY, NAN, 3.4e38f}, 4 * sizeof(float));
    void *source_device = upload_behind(ahead, from, source, &source_at);
    void *target_device = upload_behind(ahead, to, target, &target_at);
    expect_ok(ops->cast(queue, to, target_device, from, source_device, N));
    dpb_vec.cast(to, target, from, source, N);
    expect_equal(to, target_device, target, "a cast");
    ops->release(device, source_at);
    ops->release(device, target_at);
    free(source);
    free(target);
}

TEST(test_casts)
{
    for (size_t i = 0; i < 2 * N_TYPES; i++) {
        check_cast(i % 2, types[i / 2], types[i / 2]);
        check_cast(i % 2, types[i / 2], DPB_FP32);
        check_cast(i % 2, DPB_FP32, types[i / 2]);
    }
    dpb_first_error_clear();
    assert_int_equal(ops->cast(queue, DPB_BF16, NULL, DPB_FP16, NULL, 0), DPB_UNSUPPORTED);
    dpb_first_error_clear();
}

/* ---- the optimizer ------------------------------------------------------------------------- */

/* Tensors of odd sizes with gaps behind them; two neighbours with decay, and one at the end. */
static const struct dpb_tensor tensors[] = {{.n_elements = 5, .offset = 0, .decays = true},
                                            {.n_elements = 777, .offset = 16, .decays = true},
                                            {.n_elements = 9000, .offset = 800},
                                            {.n_elements = 3, .offset = 9808, .decays = true},
                                            {.n_elements = 20, .offset = 9824},
                                            {.n_elements = 20000, .offset = 9856, .decays = true}};
static const struct dpb_graph graph = {
    .n_tensors = sizeof tensors / sizeof tensors[0], .tensors = tensors, .n_elements = N};

static const struct rule_case {
    const char *name;
    dpb_dtype gradients;
    struct dpb_optimizer_settings settings;
} rules[] = {
    {"sgd", DPB_FP32, {.kind = DPB_SGD}},
    {"sgd with decay", DPB_BF16, {.kind = DPB_SGD, .weight_decay = 0.1}},
    {"momentum", DPB_FP32, {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1}},
    {"nesterov",
     DPB_BF16,
     {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true}},
    {"adagrad", DPB_FP32, {.kind = DPB_ADAGRAD, .weight_decay = 0.1, .epsilon = 1e-3}},
    {"sgd, fp16", DPB_FP16, {.kind = DPB_SGD, .weight_decay = 0.1}},
    {"adagrad, bf16", DPB_BF16, {.kind = DPB_ADAGRAD, .epsilon = 1e-10}},
    {"adam",
     DPB_FP32,
     {.kind = DPB_ADAM, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1, .epsilon = 1e-8}},
    {"rmsprop",
     DPB_FP32,
     {.kind = DPB_RMSPROP,
      .momentum = 0.9,
      .rms_decay = 0.8,
      .weight_decay = 0.1,
      .epsilon = 1e-3}},
    {"rmsprop, bf16", DPB_BF16, {.kind = DPB_RMSPROP, .rms_decay = 0.9, .epsilon = 1}},
    {"adamw, bf16",
     DPB_BF16,
     {.kind = DPB_ADAMW,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .weight_decay = 0.1,
      .epsilon = 1e-8,
      .decoupled_decay = true}},
};

/* What this rank owns: two pieces, with a hole; and the ranges that it updates, which cut tensors.
 * At no vector's alignment; and at one, with and without a rest behind the last vector. */
static const struct cut {
    size_t ahead; /* of upload_behind */
    struct dpb_range owned[2], pieces[4];
} cuts[] = {
    {1, {{3, 11000}, {12001, N}}, {{3, 17}, {17, 9809}, {9809, 11000}, {12001, N}}},
    {0, {{0, 11008}, {12000, 30008}}, {{0, 16}, {16, 9803}, {9803, 11008}, {12000, 30008}}},
};

static struct dpb_optimizer *make_optimizer(const struct rule_case *rule, const struct cut *cut,
                                            bool on_device, uint64_t *not_finite)
{
    struct dpb_optimizer *made = NULL;
    const struct dpb_optimizer_args args = {.graph = &graph,
                                            .settings = &rule->settings,
                                            .weight_type = DPB_FP32,
                                            .gradient_type = rule->gradients,
                                            .owned = cut->owned,
                                            .n_owned = 2,
                                            .device = on_device ? &opened.arenas : NULL,
                                            .queue = queue,
                                            .saved = true,
                                            .not_finite = not_finite};
    expect_ok(dpb_optimizer_create(&args, &made));
    return made;
}

/* Several steps of which one is plain, and one has its rate and scale in device memory, as in a
 * captured graph. */
static void check_rule(const struct rule_case *rule, const struct cut *cut)
{
    const struct dpb_range *const pieces = cut->pieces;
    uint64_t unused = 0;
    size_t size = dpb_dtype_size(rule->gradients);
    struct dpb_optimizer *host = make_optimizer(rule, cut, false, &unused);
    struct dpb_optimizer *there = make_optimizer(rule, cut, true, &unused);
    char *weights = allocate(N, sizeof(float)), *gradients = allocate(N, size);
    void *weights_at, *gradients_at;
    fill(DPB_FP32, 10, weights);
    if (rule->settings.kind == DPB_SGD) { /* whose sums of squares are positive */
        expect_ok(dpb_optimizer_load(host, weights, 7));
        expect_ok(dpb_optimizer_load(there, weights, 7));
    }
    char *weights_device = upload_behind(cut->ahead, DPB_FP32, weights, &weights_at);
    for (uint32_t n = 0; n < 4; n++) {
        const struct dpb_step step = {.step = n,
                                      .learning_rate = 0.1 / (n + 1),
                                      .scale = 0.25,
                                      .seal = dpb_step_seal(n, n == 2)};
        fill(rule->gradients, 20 + n, gradients);
        char *gradients_device =
            upload_behind(cut->ahead, rule->gradients, gradients, &gradients_at);
        const bool words = n == 3;
        if (words) {
            dpb_optimizers.replay(there, &step);
            expect_ok(dpb_optimizers.capture(there, queue));
        }
        for (size_t i = 0; i < sizeof cut->pieces / sizeof pieces[0]; i++) {
            uint64_t at = pieces[i].begin;
            expect_ok(dpb_optimizers.update(host, NULL, pieces[i], weights + at * sizeof(float),
                                            gradients + at * size, 0, &step));
            expect_ok(dpb_optimizers.update(there, queue, pieces[i],
                                            weights_device + at * sizeof(float),
                                            gradients_device + at * size, 0, words ? NULL : &step));
        }
        expect_equal(DPB_FP32, weights_device, weights, rule->name);
        ops->release(device, gradients_at);
    }
    expect_ok(dpb_optimizer_fetch(there));
    struct dpb_mapping wanted = dpb_optimizer_mapping(host), found = dpb_optimizer_mapping(there);
    assert_int_equal(wanted.bytes, found.bytes);
    if (wanted.bytes > 0)
        expect_same(DPB_FP32, found.memory, wanted.memory, wanted.bytes / sizeof(float), "state");
    dpb_optimizer_destroy(host);
    dpb_optimizer_destroy(there);
    ops->release(device, weights_at);
    free(weights);
    free(gradients);
}

TEST(test_rules)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++)
            check_rule(&rules[i], &cuts[k]);
}

/* ---- norms --------------------------------------------------------------------------------- */

static const struct rule_case norm_rules[] = {
    {"clipped nesterov",
     DPB_FP32,
     {.kind = DPB_SGD, .momentum = 0.9, .weight_decay = 0.1, .nesterov = true, .clip_norm = 9.0}},
    {"clipped rmsprop, bf16",
     DPB_BF16,
     {.kind = DPB_RMSPROP, .momentum = 0.9, .rms_decay = 0.9, .epsilon = 1.0, .clip_norm = 9.0}},
    {"lars, fp16",
     DPB_FP16,
     {.kind = DPB_LARS, .momentum = 0.9, .weight_decay = 0.1, .trust = 0.02}},
    {"clipped lars",
     DPB_FP32,
     {.kind = DPB_LARS, .weight_decay = 0.1, .trust = 0.02, .clip_norm = 9.0}},
    {"clipped lamb, bf16",
     DPB_BF16,
     {.kind = DPB_LAMB,
      .beta1 = 0.9,
      .beta2 = 0.99,
      .weight_decay = 0.1,
      .epsilon = 1e-6,
      .decoupled_decay = true,
      .clip_norm = 9.0}},
};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

/* This rank owns all; or a part, and a second owner the rest. Neighbours cut a tensor. */
static const struct dpb_range all_owned[] = {{0, 12000}, {12000, N}},
                              part_owned[] = {{3, 11000}, {12001, N}};

/* A side's arenas, and its optimizer. */
struct norm_side {
    struct dpb_optimizer *optimizer;
    struct dpb_queue *queue; /* NULL: the host */
    char *weights, *gradients;
    struct dpb_squares *all; /* two owners' */
    void *allocations[3];
};

static void open_side(const struct rule_case *rule, bool part, bool on_device, const float *weights,
                      struct norm_side *side)
{
    const struct dpb_squares others[N_TENSORS] = {{1.5, 2.5}, {0.0, 0.0}, {1e-3, 7.0}};
    struct dpb_squares all[2 * N_TENSORS] = {{0}};
    memcpy(all + N_TENSORS, others, sizeof others);
    *side = (struct norm_side){.queue = on_device ? queue : NULL};
    side->weights = allocate(N, sizeof *weights);
    side->gradients = allocate(N, sizeof(float));
    side->all = allocate(2 * N_TENSORS, sizeof *side->all);
    memcpy(side->weights, weights, N * sizeof *weights);
    memcpy(side->all, all, sizeof all);
    if (on_device) {
        void *const here[] = {side->weights, side->gradients, side->all};
        const uint64_t bytes[] = {N * sizeof(float), N * sizeof(float), sizeof all};
        for (int i = 0; i < 3; i++) {
            expect_ok(ops->allocate(device, "an array", bytes[i], false, &side->allocations[i]));
            expect_ok(ops->copy(queue, side->allocations[i], here[i], bytes[i]));
            free(here[i]);
        }
        side->weights = side->allocations[0];
        side->gradients = side->allocations[1];
        side->all = side->allocations[2];
    }
    const struct dpb_optimizer_args args = {.graph = &graph,
                                            .settings = &rule->settings,
                                            .weight_type = DPB_FP32,
                                            .gradient_type = rule->gradients,
                                            .owned = part ? part_owned : all_owned,
                                            .n_owned = 2,
                                            .weights = side->weights,
                                            .gradients = side->gradients,
                                            .sharded = part,
                                            .device = on_device ? &opened.arenas : NULL,
                                            .queue = queue,
                                            .saved = true};
    expect_ok(dpb_optimizer_create(&args, &side->optimizer));
}

static void close_side(struct norm_side *side)
{
    dpb_optimizer_destroy(side->optimizer);
    for (int i = 0; i < 3 && side->queue; i++)
        ops->release(device, side->allocations[i]);
    if (side->queue)
        return;
    free(side->weights);
    free(side->gradients);
    free(side->all);
}

/* `step` NULL: as in a capture. */
static void norm_step(const struct rule_case *rule, bool part, struct norm_side *side,
                      const struct dpb_step *step)
{
    static const struct dpb_range halves[] = {{0, 9811}, {9811, N}};
    const struct dpb_range *const ranges = part ? part_owned : halves;
    const struct dpb_squares *all = NULL;
    bool more = part;
    for (; more; all = side->all)
        expect_ok(
            dpb_optimizers.squares(side->optimizer, side->queue, step, all, 2, side->all, &more));
    for (int i = 2; i-- > 0;)
        expect_ok(dpb_optimizers.update(
            side->optimizer, side->queue, ranges[i],
            side->weights + ranges[i].begin * sizeof(float),
            side->gradients + ranges[i].begin * dpb_dtype_size(rule->gradients), 0, step));
}

/* Several steps: one is plain, one has a tensor without gradients, and two are as in a captured
 * graph. */
static void check_norms(const struct rule_case *rule, bool part)
{
    struct norm_side host, there;
    float *weights = allocate(N, sizeof *weights);
    fill(DPB_FP32, 10, weights);
    open_side(rule, part, false, weights, &host);
    open_side(rule, part, true, weights, &there);
    for (uint32_t n = 0; n < 5; n++) {
        const struct dpb_step step = {.step = n,
                                      .learning_rate = 0.1 / (n + 1),
                                      .scale = 0.25,
                                      .seal = dpb_step_seal(n, n == 2)};
        const size_t size = dpb_dtype_size(rule->gradients);
        fill(rule->gradients, 20 + n, host.gradients);
        if (n == 1)
            memset(host.gradients + tensors[1].offset * size, 0, tensors[1].n_elements * size);
        expect_ok(ops->copy(queue, there.gradients, host.gradients, N * size));
        norm_step(rule, part, &host, &step);
        if (n >= 3) {
            dpb_optimizers.replay(there.optimizer, &step);
            expect_ok(dpb_optimizers.capture(there.optimizer, queue));
        }
        norm_step(rule, part, &there, n >= 3 ? NULL : &step);
        expect_equal(DPB_FP32, there.weights, host.weights, rule->name);
    }
    expect_ok(dpb_optimizer_fetch(there.optimizer));
    const struct dpb_mapping wanted = dpb_optimizer_mapping(host.optimizer),
                             found = dpb_optimizer_mapping(there.optimizer);
    expect_same(DPB_FP32, found.memory, wanted.memory, wanted.bytes / sizeof(float), "state");
    close_side(&host);
    close_side(&there);
    free(weights);
}

TEST(test_norms)
{
    for (size_t i = 0; i < sizeof norm_rules / sizeof norm_rules[0]; i++)
        for (int part = 0; part < 2; part++)
            check_norms(&norm_rules[i], part);
}

/* Decay that begins and ends within a vector, behind it, and in the next element. */
TEST(test_decays)
{
    static const struct dpb_range ranges[] = {{101, 103}, {103, 104}, {107, 109}, {115, 122}};
    float weights[24], gradients[24];
    void *weights_at, *gradients_at, *ranges_at;
    for (uint32_t i = 0; i < 24; i++) {
        weights[i] = value(1, i);
        gradients[i] = value(2, i);
    }
    struct dpb_update update = {.rate = 0.1,
                                .scale = 1.0,
                                .decay = 0.5,
                                .n = 24,
                                .first = 100,
                                .decays = ranges,
                                .n_decays = 4,
                                .weight_type = DPB_FP32,
                                .gradient_type = DPB_FP32,
                                .weights = weights,
                                .gradients = gradients};
    expect_ok(ops->allocate(device, "weights", sizeof weights, false, &weights_at));
    expect_ok(ops->allocate(device, "gradients", sizeof gradients, false, &gradients_at));
    expect_ok(ops->allocate(device, "ranges", sizeof ranges, false, &ranges_at));
    expect_ok(ops->copy(queue, weights_at, weights, sizeof weights));
    expect_ok(ops->copy(queue, gradients_at, gradients, sizeof gradients));
    expect_ok(ops->copy(queue, ranges_at, ranges, sizeof ranges));
    dpb_update_apply(&update);
    update.weights = weights_at;
    update.gradients = gradients_at;
    update.decays = ranges_at;
    expect_ok(ops->update(queue, &update));
    expect_ok(ops->copy(queue, gradients, weights_at, sizeof gradients));
    expect_ok(ops->drain(queue));
    expect_same(DPB_FP32, gradients, weights, 24, "an update");
    ops->release(device, weights_at);
    ops->release(device, gradients_at);
    ops->release(device, ranges_at);
}

/* The lowest of the elements that an update has spoilt; nothing is waited for until it is asked. */
static void check_not_finite(const struct cut *cut)
{
    const struct dpb_range *const owned = cut->owned;
    uint64_t found = 0;
    struct dpb_event *done = NULL;
    struct dpb_optimizer *optimizer = make_optimizer(&rules[2], cut, true, &found);
    float *weights = allocate(N, sizeof(float)), *gradients = allocate(N, sizeof(float));
    void *weights_at, *gradients_at;
    const struct dpb_step step = {.learning_rate = 1.0, .scale = 1.0};
    gradients[25000] = INFINITY;
    gradients[14007] = NAN;
    gradients[29000] = -INFINITY;
    float *on_device = upload_behind(cut->ahead, DPB_FP32, weights, &weights_at);
    float *gradients_device = upload_behind(cut->ahead, DPB_FP32, gradients, &gradients_at);
    expect_ok(ops->new_event(device, &done));
    expect_ok(dpb_optimizers.update(optimizer, queue, owned[0], on_device + owned[0].begin,
                                    gradients_device + owned[0].begin, 0, &step));
    expect_ok(dpb_optimizer_find(optimizer));
    assert_true(found == 0);
    expect_ok(dpb_optimizers.update(optimizer, queue, owned[1], on_device + owned[1].begin,
                                    gradients_device + owned[1].begin, 0, &step));
    expect_ok(ops->record(queue, done));
    expect_ok(dpb_optimizer_watch(optimizer, done));
    expect_ok(dpb_optimizer_find(optimizer));
    assert_true(found == 14007 + 1);
    dpb_events.destroy(done);
    dpb_optimizer_destroy(optimizer);
    ops->release(device, weights_at);
    ops->release(device, gradients_at);
    free(weights);
    free(gradients);
}

TEST(test_not_finite)
{
    for (size_t k = 0; k < sizeof cuts / sizeof cuts[0]; k++)
        check_not_finite(&cuts[k]);
}

/* ---- queues and events --------------------------------------------------------------------- */

/* Two queues hand two arrays to and fro: each reads what the other has written before it. */
TEST(test_order)
{
    enum { TURNS = 16 };
    const struct dpb_wait wait = {.purpose = "the queues"};
    struct dpb_queue *queues[2] = {queue, NULL};
    struct dpb_event *events[TURNS];
    float *ones = allocate(N, sizeof(float)), *arrays[2], got[2];
    void *allocations[2];
    int64_t ns = -1;
    for (size_t i = 0; i < N; i++)
        ones[i] = 1.0f;
    for (int i = 0; i < 2; i++)
        arrays[i] = upload(DPB_FP32, ones, &allocations[i]);
    expect_ok(ops->drain(queue));
    expect_ok(ops->open(device, &queues[1]));
    for (int turn = 0; turn < TURNS; turn++) {
        int own = turn % 2;
        expect_ok(ops->new_event(device, &events[turn]));
        assert_true(dpb_events.poll(events[turn])); /* never recorded */
        if (turn > 0)
            expect_ok(ops->await(queues[own], events[turn - 1]));
        expect_ok(ops->axpby(queues[own], DPB_FP32, 1.0, arrays[own], 1.0, arrays[!own], N));
        expect_ok(ops->record(queues[own], events[turn]));
    }
    expect_ok(dpb_events.wait(events[TURNS - 1], &wait));
    expect_ok(ops->elapsed(events[0], events[TURNS - 1], &ns));
    assert_true(ns > 0 && ns < INT64_C(60000000000));
    for (int i = 0; i < 2; i++)
        expect_ok(ops->copy(queue, &got[i], arrays[i] + N - 1, sizeof got[i]));
    assert_true(got[0] == 2584.0f && got[1] == 1597.0f); /* Fibonacci's numbers */
    for (int turn = 0; turn < TURNS; turn++)
        dpb_events.destroy(events[turn]);
    ops->close(queues[1]);
    for (int i = 0; i < 2; i++)
        ops->release(device, allocations[i]);
    free(ones);
}

/* CUDA's functions as the plugin has them: the stand-in's, or NVIDIA's. */
struct cuda_graphs {
    cudaError_t (*begin)(cudaStream_t, enum cudaStreamCaptureMode);
    cudaError_t (*end)(cudaStream_t, cudaGraph_t *);
    cudaError_t (*instantiate)(cudaGraphExec_t *, cudaGraph_t, unsigned long long);
    cudaError_t (*launch)(cudaGraphExec_t, cudaStream_t);
    cudaError_t (*destroy)(cudaGraph_t);
    cudaError_t (*destroy_exec)(cudaGraphExec_t);
    cudaError_t (*new_event)(cudaEvent_t *, unsigned);
    cudaError_t (*record)(cudaEvent_t, cudaStream_t, unsigned);
    cudaError_t (*await)(cudaStream_t, cudaEvent_t, unsigned);
    cudaError_t (*destroy_event)(cudaEvent_t);
};

static struct cuda_graphs find_graphs(void)
{
    static const char *const names[] = {"cudaStreamBeginCapture",   "cudaStreamEndCapture",
                                        "cudaGraphInstantiate",     "cudaGraphLaunch",
                                        "cudaGraphDestroy",         "cudaGraphExecDestroy",
                                        "cudaEventCreateWithFlags", "cudaEventRecordWithFlags",
                                        "cudaStreamWaitEvent",      "cudaEventDestroy"};
    struct cuda_graphs found;
    Dl_info plugin;
    void *functions[sizeof names / sizeof names[0]];
    assert_int_not_equal(dladdr(*(void *const *)&ops->copy, &plugin), 0);
    void *library = dlopen(plugin.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        functions[i] = dlsym(library, names[i]);
        assert_non_null(functions[i]);
    }
    dlclose(library);
    memcpy(&found, functions, sizeof found);
    return found;
}

/* Returns how many of LAUNCHES launches of a graph have a result that another queue reads. The
 * other queue `waits` for the event that each launch records behind its last work. On a GPU 50 ms
 * of other work come before the result. */
enum { LAUNCHES = 8 };
static int results_seen(const struct cuda_graphs *cuda, bool waits)
{
    enum { FILLS = 1024 };
    const uint64_t room_bytes = on_gpu() ? UINT64_C(256) << 20 : 64;
    const int fills = on_gpu() ? FILLS : 4;
    struct dpb_queue *reader = NULL;
    void *room = NULL, *result = NULL, *given = NULL, *got = NULL;
    cudaGraph_t made = NULL;
    cudaGraphExec_t exec = NULL;
    cudaEvent_t event = NULL;
    int seen = 0;
    expect_ok(ops->open(device, &reader));
    expect_ok(ops->allocate(device, "room", room_bytes, false, &room));
    expect_ok(ops->allocate(device, "a result", sizeof(int), false, &result));
    expect_ok(ops->pin(device, sizeof(int), &given));
    expect_ok(ops->pin(device, sizeof(int), &got));
    const cudaStream_t stream = (cudaStream_t)queue;
    assert_int_equal(cuda->new_event(&event, cudaEventDisableTiming), 0);
    assert_int_equal(cuda->begin(stream, cudaStreamCaptureModeThreadLocal), 0);
    for (int i = 0; i < fills; i++)
        expect_ok(ops->clear(queue, room, room_bytes));
    expect_ok(ops->copy(queue, result, given, sizeof(int)));
    assert_int_equal(cuda->record(event, stream, cudaEventRecordExternal), 0);
    assert_int_equal(cuda->end(stream, &made), 0);
    assert_int_equal(cuda->instantiate(&exec, made, 0), 0);
    for (int launch = 1; launch <= LAUNCHES; launch++) {
        *(int *)given = launch;
        assert_int_equal(cuda->launch(exec, stream), 0);
        if (waits)
            assert_int_equal(cuda->await((cudaStream_t)reader, event, 0), 0);
        expect_ok(ops->copy(reader, got, result, sizeof(int)));
        expect_ok(ops->drain(reader));
        seen += *(const int *)got == launch;
        expect_ok(ops->drain(queue));
    }
    cuda->destroy_exec(exec);
    cuda->destroy(made);
    cuda->destroy_event(event);
    ops->close(reader);
    ops->unpin(device, got);
    ops->unpin(device, given);
    ops->release(device, result);
    ops->release(device, room);
    return seen;
}

/* Each launch of a graph records its event anew, and a queue outside that waits for it waits for
 * this launch: CUDA allows it, and would say nothing if that were wrong. A queue that does not wait
 * reads an old result at least once. */
TEST(test_event_of_a_graph)
{
    const struct cuda_graphs cuda = find_graphs();
    assert_int_equal(results_seen(&cuda, true), LAUNCHES);
    assert_in_range(results_seen(&cuda, false), 0, LAUNCHES - 1);
}

/* A queue that is closed with work under way does all of it first: the memory goes next. */
TEST(test_closed_with_work)
{
    struct dpb_queue *closed = NULL;
    void *made = NULL, *pinned = NULL;
    expect_ok(ops->allocate(device, "an array", N, false, &made));
    expect_ok(ops->pin(device, N, &pinned));
    unsigned char *bytes = pinned;
    bytes[N - 1] = 1;
    expect_ok(ops->open(device, &closed));
    expect_ok(ops->copy(closed, pinned, made, N));
    ops->close(closed);
    assert_int_equal(bytes[N - 1], 0);
    ops->unpin(device, pinned);
    ops->release(device, made);
}

TEST(test_events_of_the_host)
{
    struct dpb_event *own = dpb_events.create();
    dpb_first_error_clear();
    assert_int_equal(ops->record(queue, own), DPB_USAGE);
    assert_int_equal(ops->await(queue, own), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "an event that it has not made"));
    dpb_first_error_clear();
    dpb_events.signal(own);
    expect_ok(ops->await(queue, own));
    dpb_events.destroy(own);
}

/* As core's does for which there is no memory. */
static struct dpb_event *adopt_none(const struct dpb_event_source *source, void *native)
{
    source->destroy(native);
    return NULL;
}

TEST(test_no_memory_for_an_event)
{
    struct dpb_event_ops full = dpb_events;
    struct dpb_event *event = NULL;
    full.adopt = adopt_none;
    opened.host->event = &full;
    const dpb_status status = ops->new_event(device, &event);
    opened.host->event = &dpb_events;
    assert_int_equal(status, DPB_NO_MEMORY);
    assert_null(event);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* New memory is zero, pinned memory is copied to when the queue gets there, and what does not fit
 * is named. */
TEST(test_memory)
{
    void *made = NULL, *huge = NULL, *pinned = NULL;
    uint64_t *words;
    expect_ok(ops->allocate(device, "an array", 8 * sizeof *words, true, &made));
    expect_ok(ops->pin(device, 8 * sizeof *words, &pinned));
    words = pinned;
    memset(words, 1, 8 * sizeof *words);
    expect_ok(ops->copy(queue, words, made, 8 * sizeof *words));
    expect_ok(ops->drain(queue));
    for (int i = 0; i < 8; i++)
        assert_true(words[i] == 0);
    dpb_first_error_clear();
    assert_int_equal(ops->allocate(device, "weights", UINT64_C(1) << 46, false, &huge),
                     DPB_NO_MEMORY);
    assert_non_null(strstr(dpb_first_error(NULL), "weights take 70368744 MB of device memory"));
    dpb_first_error_clear();
    ops->release(device, huge);
    ops->release(device, made);
    ops->release(device, NULL);
    ops->unpin(device, pinned);
    ops->unpin(device, NULL);
}

/* The other process: reads what the first has written, writes back twice of it, by copies alone. 0,
 * or which line has failed. */
static int other_process(const char *hex, const char *gpu, const char *expect_direct)
{
    struct dpb_memory_handle handle;
    float here[16];
    void *mapped = NULL;
    bool direct = false;
    for (size_t i = 0; i < DPB_HANDLE_BYTES; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return 1;
        handle.bytes[i] = (uint8_t)byte;
    }
    open_device((uint32_t)atoi(gpu));
    if (ops->map(device, &handle, &mapped, &direct) != DPB_OK || direct != (*expect_direct == '1'))
        return 2;
    if (ops->copy(queue, here, mapped, sizeof here) != DPB_OK)
        return 3;
    for (int i = 0; i < 16; i++) {
        if (here[i] != (float)(i + 1))
            return 4;
        here[i] *= 2.0f;
    }
    if (ops->copy(queue, mapped, here, sizeof here) != DPB_OK || ops->drain(queue) != DPB_OK)
        return 5;
    ops->unmap(device, mapped);
    ops->unmap(device, NULL);
    cuda_queue_close(&opened);
    return 0;
}

static void check_mapping(const char *gpu, const char *direct)
{
    struct dpb_memory_handle handle;
    char hex[2 * DPB_HANDLE_BYTES + 1];
    float values[16];
    void *made = NULL, *own = NULL;
    bool unused;
    for (int i = 0; i < 16; i++)
        values[i] = (float)(i + 1);
    expect_ok(ops->allocate(device, "an array", sizeof values, true, &made));
    expect_ok(ops->copy(queue, made, values, sizeof values));
    expect_ok(ops->drain(queue));
    expect_ok(ops->describe(device, made, &handle));
    dpb_first_error_clear();
    assert_int_not_equal(ops->map(device, &handle, &own, &unused), DPB_OK); /* its own */
    dpb_first_error_clear();
    for (size_t i = 0; i < DPB_HANDLE_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", handle.bytes[i]);
    pid_t child = fork();
    if (child == 0) {
        execl("/proc/self/exe", "test_cuda_queues", hex, gpu, direct, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the other process, on GPU %s: status %d", gpu, status);
    expect_ok(ops->copy(queue, values, made, sizeof values));
    for (int i = 0; i < 16; i++)
        assert_true(values[i] == 2.0f * (float)(i + 1));
    ops->release(device, made);
}

TEST(test_mapped)
{
    check_mapping("0", "1"); /* on the same GPU */
    if (on_gpu())
        return; /* what others there are is not known */
    check_mapping("1", "1");
    setenv("DPB_STAND_IN_PEERS", "0", 1);
    check_mapping("0", "1");
    check_mapping("1", "0");
    unsetenv("DPB_STAND_IN_PEERS");
}

/* ---- setup --------------------------------------------------------------------------------- */

static int setup(void **state)
{
    (void)state;
    open_device(0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cuda_queue_close(&opened);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4)
        return other_process(argv[1], argv[2], argv[3]);
    return test_main(setup, teardown);
}
