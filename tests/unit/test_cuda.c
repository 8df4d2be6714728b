/* needs: cuda stand-in */
/*
 * test_cuda.c - the cuda device without a GPU: on a CUDA for tests (tests/cuda), which runs its
 * kernels on the processor and does what streams were given in any order that events allow. Ops and
 * models against the reference, capture, pieces of gradients, the plan of its memory, tuning, and
 * what is refused.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/command.h"
#include "lib/grouped.h"
#include "lib/opcheck.h"
#include "lib/test.h"
#include "plugins/devices/cuda/plan.h"
#include "plugins/devices/cuda/products.h"

static char cache[64]; /* a directory for the tuning's file */
static struct options untuned;

/* Trying algorithms takes long where a processor does it. */
static struct options defaults(void)
{
    return (struct options){.ids = "", .tuning = "no", .graphs = 1, .workspace = UINT64_C(1) << 30};
}

/* ---- models -------------------------------------------------------------------------------- */

/* What models repeat, an evaluation and a pass again, the smallest show in all precisions. */
TEST(test_models)
{
    const struct subject alexnet = {"alexnet_cifar10", NULL, 0, 2, DPB_FP32, DPB_CHW, NULL};
    const struct subject densenet = {"densenet40_k12", NULL, 8, 2, DPB_UINT8, DPB_CHW, NULL};
    check_subject(&(struct subject){"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL}, ALL);
    check_subject(&(struct subject){"tiny_bn", NULL, 0, 4, DPB_UINT8, DPB_HWC, NULL}, ALL);
    check_subject(&alexnet, OPS);
    check_in(DPB_PRECISION_FP32, &alexnet, LOSS | REPEAT | EVALUATION);
    check_subject(&(struct subject){"resnet20", NULL, 16, 3, DPB_UINT8, DPB_HWC, NULL},
                  ALL - EVALUATION);
    check_in(DPB_PRECISION_FP32, &densenet, OPS);
    check_in(DPB_PRECISION_BF16, &densenet, OPS);
    check_subject(&(struct subject){"grouped", NULL, 0, 5, DPB_FP32, DPB_HWC, &grouped_model}, OPS);
}

/* tf32 is not fp32 by another name: where weights have more than 10 bits, sums differ. */
TEST(test_tf32_differs)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    const dpb_precision precisions[] = {DPB_PRECISION_FP32, DPB_PRECISION_TF32};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        struct dpb_session s;
        session_open(&subject, precisions[i], true, &s);
        session_forward(&s);
        loss[i] = s.outcome.loss;
        session_close(&s);
    }
    assert_true(loss[0] != loss[1]);
}

/* Gradients that fp16 cannot hold show, and only in the pass that they are of. */
TEST(test_fp16_overflow)
{
    const struct subject subject = {"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    const double scales[] = {256, 1e7, 256, 256, 1e7, 256};
    struct dpb_session s;
    bool finite;
    session_open(&subject, DPB_PRECISION_FP16, true, &s);
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++) {
        s.pass.loss_scale = scales[i];
        session_forward(&s);
        session_backward(&s);
        expect_ok(s.ops->finite(s.program, &finite));
        assert_int_equal(finite, scales[i] < 1e6);
        bool is = true;
        for (uint64_t k = 0; k < s.graph->n_elements; k++)
            is = is && isfinite(dpb_session_value(&s, s.gradients, k));
        assert_int_equal(finite, is);
    }
    session_close(&s);
}

TEST(test_without_graphs)
{
    untuned.graphs = 0;
    check_in(DPB_PRECISION_FP32, &(struct subject){"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL},
             ALL);
    untuned.graphs = 1;
}

/* ---- indices -------------------------------------------------------------------------------- */

static void expect_quotients(uint32_t by)
{
    const struct divisor divisor = cuda_divisor(by);
    const uint32_t most = DIVISOR_MOST - 1, last = most / by * by; /* largest multiple */
    const uint32_t wanted[] = {
        0,        1,        by - 1,   by,           by + 1, 2 * by - 1, last,    last - 1,     most,
        most - 1, most / 2, most / 3, most / 7 * 3, 12345,  987654321,  1 << 30, (1 << 30) - 1};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        const uint32_t n = wanted[i] & most;
        if (cuda_quotient(n, divisor) != n / by)
            fail_msg("%u / %u = %u, not %u", n, by, n / by, cuda_quotient(n, divisor));
    }
}

/* Of multiples and their neighbours, where a multiplier that is too small or too large shows. */
TEST(test_divisors)
{
    for (uint32_t by = 1; by < 100000; by++)
        expect_quotients(by);
    for (uint32_t by = 1; by <= DIVISOR_MOST / 2; by *= 2) {
        expect_quotients(by);
        expect_quotients(by + 1);
        expect_quotients(2 * by - 1);
    }
    expect_quotients(DIVISOR_MOST);
    const struct divisor of_3 = cuda_divisor(3);
    for (uint32_t n = 0; n < 1000000; n++)
        assert_int_equal(cuda_quotient(n, of_3), n / 3);
}

/* Kernels by indices of 64 bits, which arrays of more than 2^31 elements would have. */
TEST(test_long_indices)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    setenv("DPB_STAND_IN_LONG", "1", 1);
    for (int layout = LAYOUT_NHWC; layout <= LAYOUT_NCHW; layout++) {
        untuned.layout = layout;
        check_subject(&subject, OPS);
    }
    untuned.layout = LAYOUT_NHWC;
    unsetenv("DPB_STAND_IN_LONG");
}

/* ---- layouts ------------------------------------------------------------------------------- */

/* Whether the samples lie in device memory in the order in which `inspect` shows them, NCHW. */
static bool lies_in_nchw(struct dpb_session *s, const struct program *p)
{
    const size_t n = s->batch.n * dpb_shape_elements(s->graph->nodes[0].shape);
    double *shown = allocate(n, sizeof *shown);
    const float *lies = p->nodes[0].activation->data;
    bool same = true;
    session_forward(s);
    expect_ok(s->ops->inspect(s->program, 0, shown, NULL));
    for (size_t i = 0; i < n; i++)
        same = same && shown[i] == (double)lies[i];
    free(shown);
    return same;
}

/* In NCHW activations lie so, and weights are core's own: nothing is packed in fp32. What is
 * computed then is test_cuda_layouts'. */
TEST(test_layout)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_HWC, NULL};
    for (int layout = LAYOUT_NHWC; layout <= LAYOUT_NCHW; layout++) {
        struct dpb_session s;
        untuned.layout = layout;
        session_open(&subject, DPB_PRECISION_FP32, true, &s);
        const struct program *p = s.program;
        assert_int_equal(lies_in_nchw(&s, p), layout == LAYOUT_NCHW);
        assert_int_equal(p->n_packings > 0, layout == LAYOUT_NHWC);
        session_close(&s);
    }
    untuned.layout = LAYOUT_NHWC;
}

/* A first layer that is part of a group has no step of its own left when its turn comes. */
static dpb_status build_first(const void *options, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    uint32_t x = g->batch_norm(b, "norm", g->input(b), &(struct dpb_batch_norm_args){0});
    x = g->max_pool(b, "pool", g->relu(b, "relu", x), &(struct dpb_pool_args){.kernel = 2});
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

static void describe_first(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {3, 8, 8}, .nclass = 10, .batch = 4};
}

TEST(test_first_layer_in_a_group)
{
    static const struct dpb_model_ops ops = {.describe = describe_first, .build = build_first};
    static const struct dpb_plugin model = {.name = "first", .ops = &ops};
    check_subject(&(struct subject){"first", NULL, 0, 4, DPB_FP32, DPB_CHW, &model}, ALL);
}

/* ---- pieces -------------------------------------------------------------------------------- */

struct finals {
    const struct dpb_session *session;
    uint64_t frontier[64];
    size_t n;
};

static dpb_status note_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct finals *finals = context;
    assert_null(event);
    assert_true(finals->n < 64);
    finals->frontier[finals->n++] = frontier;
    return DPB_OK;
}

static dpb_status no_progress(void *context)
{
    (void)context;
    return DPB_OK;
}

/* Gradients come in several pieces of at least 1 MiB, which end where tensors begin; and the same
 * of every pass. */
TEST(test_pieces)
{
    const struct subject subject = {"alexnet_cifar10", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    struct finals first = {.session = &s};
    for (int pass = 0; pass < 4; pass++) {
        struct finals finals = {.session = &s};
        const struct dpb_hooks hooks = {
            .context = &finals, .final = note_final, .progress = no_progress};
        expect_ok(s.ops->forward(s.program, &s.pass, &s.batch, &hooks, &s.outcome));
        expect_ok(s.ops->backward(s.program, &s.pass, &hooks));
        assert_in_range(finals.n, 2, 16);
        uint64_t begin = 0;
        for (size_t i = 0; i < finals.n; i++) {
            bool last = i + 1 == finals.n, starts = last;
            assert_true(last || finals.frontier[i] - begin >= (1 << 18));
            for (uint32_t t = 0; t < s.graph->n_tensors; t++)
                starts = starts || s.graph->tensors[t].offset == finals.frontier[i];
            assert_true(starts);
            begin = finals.frontier[i];
        }
        assert_true(begin == s.graph->n_elements);
        if (pass == 0)
            first = finals;
        assert_memory_equal(first.frontier, finals.frontier, sizeof first.frontier);
    }
    session_close(&s);
}

/* A strategy that fails ends the pass with its status, and the program can be given back. */
static dpb_status refuse_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    (void)context;
    (void)frontier;
    (void)event;
    return DPB_PEER;
}

TEST(test_strategy_fails)
{
    const struct subject subject = {"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct dpb_hooks hooks = {.final = refuse_final, .progress = no_progress};
    expect_ok(s.ops->forward(s.program, &s.pass, &s.batch, &hooks, &s.outcome));
    assert_int_equal(s.ops->backward(s.program, &s.pass, &hooks), DPB_PEER);
    session_close(&s);
}

/* ---- memory -------------------------------------------------------------------------------- */

/* Places of a few hundred things with lives drawn at random: those that meet lie apart, and sharing
 * saves something. */
TEST(test_places)
{
    enum { N = 300, STEPS = 100 };
    static struct dpb_place places[N];
    struct dpb_place *list = NULL;
    size_t arena = 0, all = 0;
    srand(1);
    for (size_t i = 0; i < N; i++) {
        size_t first = (size_t)rand() % STEPS;
        dpb_place_add(&list, &places[i], 256 * (1 + (size_t)rand() % 50) - (size_t)rand() % 256,
                      256);
        assert_int_equal(places[i].bytes % 256, 0);
        places[i].kept = i % 50 == 0;
        if (i != 7) { /* which nobody uses */
            dpb_place_use(&places[i], first);
            dpb_place_use(&places[i], first + (size_t)rand() % 20);
        }
        all += places[i].bytes;
    }
    assert_true(dpb_places_plan(list, false, &arena));
    assert_true(arena < all / 2);
    for (size_t i = 0; i < N; i++) {
        assert_true(places[i].offset + places[i].bytes <= arena);
        for (size_t k = 0; k < i; k++) {
            const struct dpb_place *a = &places[i], *b = &places[k];
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            assert_true(apart || !dpb_places_meet(a, b));
        }
    }
    assert_true(places[7].kept);
}

/* Out of memory ends cleanly, with the numbers and the batch that would fit; which fits. */
TEST(test_too_large)
{
    const struct subject subject = {"resnet20", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct dpb_device_memory memory = {.weights = s.weights,
                                             .gradients = s.gradients,
                                             .state = s.state,
                                             .statistics = s.statistics};
    struct dpb_compile_args args = {.graph = s.graph,
                                    .batch = 256,
                                    .precision = DPB_PRECISION_FP32,
                                    .training = true,
                                    .format = &s.format};
    void *program = NULL;
    unsigned fits = 0;
    setenv("DPB_STAND_IN_MB", "200", 1);
    dpb_first_error_clear();
    assert_int_equal(s.ops->compile(s.device, &args, &memory, &program), DPB_NO_MEMORY);
    const char *says = strstr(dpb_first_error(NULL), "run.batch = 256 takes");
    assert_non_null(says);
    says = strstr(says + 1, "run.batch = ");
    assert_non_null(says);
    assert_int_equal(sscanf(says, "run.batch = %u would fit", &fits), 1);
    assert_in_range(fits, 8, 255);
    args.batch = fits;
    expect_ok(s.ops->compile(s.device, &args, &memory, &program));
    unsetenv("DPB_STAND_IN_MB");
    s.ops->release(program);
    session_close(&s);
}

/* ---- a pool of samples on the device --------------------------------------------------------- */

enum { POOLED = 6 };

/* What the CUDA for tests has counted so far. */
static uint64_t counted(const char *what)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/cuda/libstand_in.so", build_directory());
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        fail_msg("%s", dlerror());
    const uint64_t *count = dlsym(library, what);
    assert_non_null(count);
    uint64_t now = *count;
    dlclose(library);
    return now;
}

/* Bytes that have gone up. */
static uint64_t uploaded(void)
{
    return counted("stand_in_uploaded");
}

/* Passes copy nothing from or to pageable memory, which the host would have to wait for; more than
 * one piece of samples arrives. */
TEST(test_pinned)
{
    const struct subject subjects[] = {{"lenet", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL},
                                       {"tiny_dense", NULL, 0, 4400, DPB_FP32, DPB_CHW, NULL}};
    for (int i = 0; i < 2; i++) {
        struct dpb_session s;
        session_open(&subjects[i], DPB_PRECISION_FP32, true, &s);
        const size_t bytes = s.batch.n * dpb_sample_bytes(&s.format);
        assert_true((bytes > 4 << 20) == (i == 1));
        const uint64_t before = counted("stand_in_pageable");
        for (int pass = 0; pass < 3; pass++) {
            session_forward(&s);
            session_backward(&s);
        }
        assert_true(counted("stand_in_pageable") == before);
        const struct program *p = s.program;
        assert_memory_equal(p->samples->data, s.batch.samples, bytes);
        session_close(&s);
    }
}

/* The batch that the session has, of samples with these numbers. */
static void gather(struct dpb_session *s, const struct dpb_sample_pool *pool,
                   const uint32_t *numbers)
{
    const size_t bytes = dpb_sample_bytes(&s->format);
    for (uint32_t i = 0; i < s->batch.n; i++) {
        memcpy((char *)(uintptr_t)s->batch.samples + i * bytes,
               (const char *)pool->samples + numbers[i] * bytes, bytes);
        ((int32_t *)(uintptr_t)s->batch.labels)[i] = pool->labels[numbers[i]];
    }
}

/* A training step on the pool's samples gives the bits of one on the same samples from the host,
 * but no sample goes up for it; evaluations still bring their own. */
static void check_pool(dpb_sample_order order)
{
    static const uint32_t numbers[3][4] = {{5, 0, 3, 3}, {1, 2, 4, 0}, {2, 2, 2, 5}};
    const struct subject all = {"lenet", NULL, 0, POOLED, DPB_UINT8, order, NULL};
    const struct subject some = {"lenet", NULL, 0, 4, DPB_UINT8, order, NULL};
    struct dpb_session source, s;
    session_open(&all, DPB_PRECISION_FP32, true, &source);
    session_open(&some, DPB_PRECISION_FP32, true, &s);
    const struct dpb_sample_pool pool = {source.batch.samples, source.batch.labels, POOLED};
    const struct dpb_compile_args args = {.graph = s.graph,
                                          .batch = 4,
                                          .precision = DPB_PRECISION_FP32,
                                          .training = true,
                                          .format = &s.format,
                                          .pool = pool};
    const struct dpb_device_memory memory = {.weights = s.weights,
                                             .gradients = s.gradients,
                                             .state = s.state,
                                             .statistics = s.statistics};
    const size_t gradient_bytes = s.graph->n_elements * sizeof(float);
    float *gradients = allocate(s.graph->n_elements, sizeof(float));
    void *hosted = s.program, *pooled;
    expect_ok(s.ops->compile(s.device, &args, &memory, &pooled));
    for (int pass = 0; pass < 3; pass++) {
        gather(&s, &pool, numbers[pass]);
        session_forward(&s);
        session_backward(&s);
        memcpy(gradients, s.gradients, gradient_bytes);
        const struct dpb_outcome outcome = s.outcome;
        const struct dpb_batch batch = s.batch;
        const uint64_t before = uploaded();
        s.program = pooled;
        s.batch.samples = NULL;
        s.batch.numbers = numbers[pass];
        session_forward(&s);
        session_backward(&s);
        if (!s.pass.weights_changed)
            assert_true(uploaded() - before < dpb_sample_bytes(&s.format));
        assert_memory_equal(&outcome, &s.outcome, sizeof outcome);
        assert_memory_equal(gradients, s.gradients, gradient_bytes);
        s.program = hosted;
        s.batch = batch;
        s.pass.weights_changed = false;
    }
    s.program = pooled;
    dpb_first_error_clear();
    assert_int_equal(s.ops->forward(pooled, &s.pass, &s.batch, &s.hooks, &s.outcome), DPB_USAGE);
    dpb_first_error_clear();
    s.pass.training = false;
    const uint64_t before = uploaded();
    session_forward(&s);
    assert_true(uploaded() - before >= 4 * dpb_sample_bytes(&s.format));
    s.ops->release(pooled);
    s.program = hosted;
    free(gradients);
    session_close(&s);
    session_close(&source);
}

TEST(test_pool)
{
    check_pool(DPB_CHW);
    check_pool(DPB_HWC);
}

/* ---- run.profile --------------------------------------------------------------------------- */

/* A pass is the same, bit for bit, with an account and without one. */
static void expect_same_pass(struct dpb_session *s, void *counted)
{
    const size_t bytes = s->graph->n_elements * sizeof(float);
    void *plain = s->program, *gradients = allocate(s->graph->n_elements, sizeof(float));
    session_forward(s);
    session_backward(s);
    memcpy(gradients, s->gradients, bytes);
    const struct dpb_outcome outcome = s->outcome;
    s->program = counted;
    session_forward(s);
    session_backward(s);
    s->program = plain;
    assert_memory_equal(&outcome, &s->outcome, sizeof outcome);
    assert_memory_equal(gradients, s->gradients, bytes);
    free(gradients);
}

/* What a row says of a convolution forward: all that it reads and writes, and what it adds up. */
static void expect_convolution(const struct dpb_session *s, const struct dpb_profile_row *row)
{
    const struct dpb_node *node = &s->graph->nodes[row->node];
    const struct dpb_shape in = s->graph->nodes[node->inputs[0]].shape;
    const size_t type = s->precision == DPB_PRECISION_FP32 ? 4 : 2;
    const uint64_t elements =
        s->batch.n * (dpb_shape_elements(in) + dpb_shape_elements(node->shape)) +
        s->graph->tensors[node->weight].n_elements;
    assert_true(row->bytes == (double)(elements * type * row->calls));
    assert_true(row->flops == 2.0 * (double)node->macs * s->batch.n * (double)row->calls);
}

static void check_rows(const struct dpb_session *s, const struct dpb_profile *profile,
                       uint64_t passes, int64_t elapsed_ns)
{
    double flops = 0, want = 0;
    int64_t sum_ns = 0;
    bool backward = false;
    unsigned n_convolutions = 0;
    for (uint64_t i = 0; i < profile->n_rows; i++) {
        const struct dpb_profile_row *row = &profile->rows[i];
        assert_true(row->node < s->graph->n_nodes && row->calls == passes);
        assert_true(row->ns >= 0 && row->bytes > 0 && row->what[0] && row->op[0]);
        assert_true(row->backward || !backward); /* forward's come first */
        backward = row->backward;
        sum_ns += row->ns;
        flops += row->flops;
        if (strcmp(row->op, "convolution") == 0 && strcmp(row->what, "forward") == 0) {
            expect_convolution(s, row);
            n_convolutions++;
        }
    }
    assert_true(backward && n_convolutions > 0);
    assert_true(sum_ns > 0 && sum_ns <= elapsed_ns);
    /* Forward, by weights and by data; the first convolution needs no gradient by its input. */
    for (uint32_t i = 0; i < s->graph->n_nodes; i++) {
        const struct dpb_node *node = &s->graph->nodes[i];
        int times = node->n_inputs > 0 && node->inputs[0] == 0 ? 2 : 3;
        want += 2.0 * (double)node->macs * s->batch.n * times * (double)passes;
    }
    assert_true(flops == want);
}

/* Where there is no memory to measure them in they are not known, which is no error. */
static void expect_no_limits(const struct dpb_session *s)
{
    struct dpb_profile profile;
    setenv("DPB_STAND_IN_MB", "1", 1);
    expect_ok(s->ops->profile(s->program, &profile));
    unsetenv("DPB_STAND_IN_MB");
    assert_true(profile.n_rows > 0 && profile.limits.copy_bytes_per_s == 0 &&
                profile.limits.read_bytes_per_s == 0 && profile.limits.fp32_flops_per_s == 0 &&
                profile.limits.bf16_flops_per_s == 0);
}

static void check_account(dpb_precision precision)
{
    enum { PASSES = 3 };
    const struct subject subject = {"tiny_bn", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    const bool fp32 = precision == DPB_PRECISION_FP32;
    struct dpb_session s;
    struct dpb_profile profile;
    session_open(&subject, precision, true, &s);
    assert_int_equal(s.ops->profile(s.program, &profile), DPB_USAGE);
    dpb_first_error_clear();
    void *counted = session_compile_with_account(&s);
    for (int i = 0; i < 3; i++)
        expect_same_pass(&s, counted);
    void *plain = s.program;
    s.program = counted;
    expect_ok(s.ops->profile(s.program, NULL));
    int64_t began_ns = dpb_now_ns();
    for (int i = 0; i < PASSES; i++) {
        session_forward(&s);
        session_backward(&s);
    }
    expect_ok(s.ops->drain(s.program));
    int64_t elapsed_ns = dpb_now_ns() - began_ns;
    expect_ok(s.ops->profile(s.program, &profile));
    check_rows(&s, &profile, PASSES, elapsed_ns);
    assert_true((profile.limits.fp32_flops_per_s > 0) == fp32);
    assert_true((profile.limits.bf16_flops_per_s > 0) == !fp32);
    assert_true(profile.limits.copy_bytes_per_s > 0 && profile.limits.read_bytes_per_s > 0);
    assert_non_null(strstr(profile.how, "no CUDA graph"));
    expect_no_limits(&s);
    s.ops->release(counted);
    s.program = plain;
    session_close(&s);
}

TEST(test_account)
{
    check_account(DPB_PRECISION_FP32);
    check_account(DPB_PRECISION_BF16);
}

/* ---- tuning -------------------------------------------------------------------------------- */

static off_t bytes_of(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? about.st_size : -1;
}

static void tune(const struct subject *subject)
{
    struct dpb_session s;
    session_open(subject, DPB_PRECISION_FP32, true, &s);
    session_close(&s);
}

/* What was tried once stands in the file and is not tried again; another batch is another key, and
 * so is another layout; damage is no harm. What is taken from trials or from the file computes. */
TEST(test_tuning)
{
    char path[128];
    snprintf(path, sizeof path, "%s/own", cache);
    static struct options options; /* a test that fails leaves it to the others */
    options = defaults();
    options.tuning = path;
    session_options(&options);
    struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    const off_t first = bytes_of(path);
    assert_true(first > 0);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    assert_int_equal(bytes_of(path), first);
    subject.batch = 5;
    tune(&subject);
    assert_int_equal(bytes_of(path), 2 * first);
    write_file(path, "stand-in\t1\tforward\nx\t\t\t", 22);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    assert_int_equal(bytes_of(path), 22 + first);
    options.tuning = "no";
    tune(&subject);
    assert_int_equal(bytes_of(path), 22 + first);
    options.tuning = path;
    options.layout = LAYOUT_NCHW;
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    const off_t both = bytes_of(path);
    assert_true(both > 22 + first); /* products know of no layout */
    tune(&subject);
    assert_int_equal(bytes_of(path), both);
    session_options(&untuned);
}

/* Lines of the file, and how many of them have the key of another: GPU, cuDNN, call and shapes. */
static size_t count_lines(const char *path, size_t *repeated)
{
    enum { MOST = 256, BYTES = 256 };
    static char lines[MOST][BYTES];
    size_t n = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    *repeated = 0;
    while (n < MOST && fgets(lines[n], BYTES, file)) {
        *strrchr(lines[n], '\t') = '\0';
        *strrchr(lines[n], '\t') = '\0';
        bool again = false;
        for (size_t i = 0; i < n; i++)
            again = again || strcmp(lines[i], lines[n]) == 0;
        *repeated += again;
        n++;
    }
    fclose(file);
    return n;
}

/* 19 convolutions have 6 shapes: each is tried once. */
TEST(test_equal_shapes)
{
    char path[128];
    snprintf(path, sizeof path, "%s/shapes", cache);
    static struct options options;
    options = defaults();
    options.tuning = path;
    session_options(&options);
    const struct subject subject = {"resnet20", NULL, 8, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    size_t repeated;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    session_close(&s);
    assert_true(count_lines(path, &repeated) > 6);
    assert_int_equal(repeated, 0);
    session_options(&untuned);
}

/* Opens a session with that file for tuning; every product has so many choices and has taken the
 * one of that rank. */
static void expect_products(const char *path, uint32_t n, int rank)
{
    const struct subject subject = {"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    static struct options options;
    struct dpb_session s;
    unsigned products = 0;
    options = defaults();
    options.tuning = path;
    options.workspace = 2000; /* few algorithms of convolutions to try */
    session_options(&options);
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct program *p = s.program;
    for (uint32_t i = 0; i < s.graph->n_nodes; i++) {
        for (int k = 0; k < 3; k++) {
            const struct gemm *gemm = p->nodes[i].gemm[k];
            if (!gemm)
                continue;
            assert_int_equal(gemm->n, n);
            assert_int_equal(gemm->choices[gemm->taken].rank, rank);
            products++;
        }
    }
    assert_int_equal(products, 6);
    session_close(&s);
    session_options(&untuned);
}

/* Of what cuBLASLt offers and can be had the fastest is taken, and the file's the next time;
 * untuned the first. */
TEST(test_products)
{
    char path[128];
    snprintf(path, sizeof path, "%s/products", cache);
    setenv("DPB_STAND_IN_SLOW", "product", 1);
    expect_products(path, 4, 3);
    unsetenv("DPB_STAND_IN_SLOW");
    const off_t bytes = bytes_of(path);
    expect_products(path, 4, 3);
    assert_int_equal(bytes_of(path), bytes);
    expect_products("no", 1, 0);
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    static struct options options;
    options = defaults();
    options.tuning = path;
    session_options(&options);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    session_options(&untuned);
}

/* Two processes that begin at once to tune on one GPU: what one has tried the other takes. */
TEST(test_shared_gpu)
{
    const struct subject subject = {"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    static struct options options;
    char path[128];
    int go[2], status;
    size_t repeated;
    struct dpb_session s;
    snprintf(path, sizeof path, "%s/shared", cache);
    options = defaults();
    options.tuning = path;
    session_options(&options);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        char byte;
        bool told = read(go[0], &byte, 1) == 1;
        session_open(&subject, DPB_PRECISION_FP32, true, &s);
        session_close(&s);
        _exit(told ? 0 : 1);
    }
    assert_int_equal(write(go[1], "", 1), 1);
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    session_close(&s);
    session_options(&untuned);
    close(go[0]);
    close(go[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(count_lines(path, &repeated) > 10);
    assert_int_equal(repeated, 0);
}

/* An algorithm that wants more than it may have is not taken; where none is left, that is said. */
TEST(test_workspace)
{
    const struct subject subject = {"lenet", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    static struct options options;
    struct dpb_session s;
    options = defaults();
    options.workspace = 2000;
    session_options(&options);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    options.workspace = 1;
    session_options(&untuned);
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    const struct dpb_device_memory memory = {.weights = s.weights,
                                             .gradients = s.gradients,
                                             .state = s.state,
                                             .statistics = s.statistics};
    const struct dpb_compile_args args = {.graph = s.graph,
                                          .batch = 4,
                                          .precision = DPB_PRECISION_FP32,
                                          .training = true,
                                          .format = &s.format};
    void *device, *program = NULL;
    expect_ok(s.ops->open(&options, &device_args, &device));
    dpb_first_error_clear();
    assert_int_equal(s.ops->compile(device, &args, &memory, &program), DPB_UNSUPPORTED);
    assert_non_null(strstr(dpb_first_error(NULL), "device.workspace"));
    assert_non_null(strstr(dpb_first_error(NULL), "'conv1'"));
    s.ops->close(device);
    session_close(&s);
}

/* ---- which GPU ----------------------------------------------------------------------------- */

static void expect_open(const struct dpb_session *s, const char *ids, uint32_t index,
                        dpb_status status, const char *words)
{
    struct options options = defaults();
    const struct dpb_device_args args = {.threads = 1, .index = index};
    void *device = NULL;
    options.ids = ids;
    dpb_first_error_clear();
    if (s->ops->open(&options, &args, &device) != status)
        fail_msg("device.ids = '%s', worker %u: %s", ids, index, dpb_first_error(NULL));
    if (!strstr(dpb_first_error(NULL), words))
        fail_msg("device.ids = '%s', worker %u says: %s", ids, index, dpb_first_error(NULL));
    s->ops->close(device);
}

TEST(test_ids)
{
    const struct subject subject = {"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    expect_open(&s, "", 1, DPB_OK, "");
    expect_open(&s, "", 2, DPB_USAGE, "would have GPU 2, but there are 2");
    expect_open(&s, "1,0", 1, DPB_OK, "");
    expect_open(&s, "1,1", 1, DPB_OK, "");
    expect_open(&s, "1", 1, DPB_USAGE, "no GPU for place 1");
    expect_open(&s, "0,5", 1, DPB_USAGE, "would have GPU 5");
    expect_open(&s, "0,", 1, DPB_USAGE, "no list");
    expect_open(&s, "0;1", 0, DPB_USAGE, "no list");
    expect_open(&s, "-1", 0, DPB_USAGE, "no list");
    dpb_first_error_clear();
    session_close(&s);
}

/* ---- setup --------------------------------------------------------------------------------- */

static int setup(void **unused)
{
    (void)unused;
    temporary_directory(cache);
    untuned = defaults();
    session_options(&untuned);
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("DPB_TEST_DEVICE", "cuda_stand_in", 1);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    remove_directory(cache);
    return 0;
}

TEST_MAIN(setup, teardown)
