/* needs: cuda stand-in */
/*
 * test_cuda.c - the cuda device without a GPU: on a CUDA for tests (tests/cuda), which runs its
 * kernels on the processor and does what streams were given in any order that events allow. Ops and
 * models against the reference, indices, layouts, capture, pieces of gradients, and which GPU.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cuda_options.h"
#include "cuda_sides.h"
#include "lib/grouped.h"
#include "lib/opcheck.h"

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
    check_subject(&sides, ALL);
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

/* ---- grids --------------------------------------------------------------------------------- */

/* Batch-norms of ResNet-50 at batch 256 in packs of 8 channels, on 132 multiprocessors that run 3
 * or 6 blocks each: four waves at most, and the last is nearly full. */
TEST(test_passes_fill_a_gpu)
{
    static const uint32_t shapes[][2] = {{112, 64}, {56, 64},   {56, 256}, {28, 128}, {28, 512},
                                         {14, 256}, {14, 1024}, {7, 512},  {7, 2048}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        for (uint32_t resident = 3; resident <= 6; resident += 3) {
            const uint32_t wave = 132 * resident, groups = shapes[i][1] / 8 / 8;
            const uint64_t rows = UINT64_C(256) * shapes[i][0] * shapes[i][0];
            const uint64_t slab = cuda_slab_rows(rows, groups, 4 * wave, 128);
            const uint64_t blocks = (rows + slab - 1) / slab * groups;
            const uint64_t waves = (blocks + wave - 1) / wave;
            assert_in_range(waves, 1, 4);
            if ((double)blocks < 0.94 * (double)(waves * wave))
                fail_msg("%ux%ux%u: %llu blocks in waves of %u", shapes[i][0], shapes[i][0],
                         shapes[i][1], (unsigned long long)blocks, wave);
        }
    }
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

/* The bits of a pass of one layout: of the first convolution the result, and the gradient by the
 * weights. */
struct pass_bits {
    double *first;
    float *gradient;
    size_t n_first, n_gradient;
};

static struct pass_bits pass_in(const struct subject *subject, dpb_precision precision, int layout,
                                uint32_t wanted_channels)
{
    struct dpb_session s;
    struct pass_bits bits;
    uint32_t first = 1;
    untuned.layout = layout;
    session_open(subject, precision, true, &s);
    const struct program *p = s.program;
    const struct dpb_shape samples = s.graph->nodes[0].shape;
    assert_true(p->nodes[0].activation->bytes ==
                (double)(s.batch.n * samples.h * samples.w * wanted_channels) *
                    (double)cuda_type_size(p->type));
    while (!p->nodes[first].activation) /* behind it there is a ReLU */
        first++;
    bits.n_first = s.batch.n * dpb_shape_elements(s.graph->nodes[first].shape);
    const struct dpb_tensor *weight = &s.graph->tensors[s.graph->nodes[1].weight];
    bits.n_gradient = weight->n_elements;
    bits.first = allocate(bits.n_first, sizeof *bits.first);
    bits.gradient = allocate(bits.n_gradient, sizeof *bits.gradient);
    session_forward(&s);
    session_backward(&s);
    expect_ok(s.ops->inspect(s.program, first, bits.first, NULL));
    for (size_t i = 0; i < bits.n_gradient; i++)
        bits.gradient[i] = (float)dpb_session_value(&s, s.gradients, weight->offset + i);
    session_close(&s);
    untuned.layout = LAYOUT_NHWC;
    return bits;
}

/* Samples in 16 bits have 8 channels in NHWC. The further ones change no bit: in NCHW there are
 * none, and both are added up in the same order here. */
TEST(test_samples_of_8_channels)
{
    static const struct {
        struct subject subject;
        uint32_t channels;
    } rows[] = {{{"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL}, 1},
                {{"alexnet_cifar10", NULL, 0, 2, DPB_FP32, DPB_HWC, NULL}, 3}};
    for (int i = 0; i < 2; i++) {
        const struct subject *subject = &rows[i].subject;
        struct pass_bits padded = pass_in(subject, DPB_PRECISION_BF16, LAYOUT_NHWC, 8);
        struct pass_bits plain =
            pass_in(subject, DPB_PRECISION_BF16, LAYOUT_NCHW, rows[i].channels);
        assert_memory_equal(padded.first, plain.first, plain.n_first * sizeof *plain.first);
        assert_memory_equal(padded.gradient, plain.gradient,
                            plain.n_gradient * sizeof *plain.gradient);
        free(padded.first);
        free(padded.gradient);
        free(plain.first);
        free(plain.gradient);
    }
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

/* Max pools that take the batch-norm and the ReLU before them: packs whose windows lap over each
 * other and the border, and single channels. Programs for inspection keep them apart, so REPEAT
 * holds both ways to the same bits. */
static dpb_status build_pooled(const void *options, const struct dpb_graph_ops *g,
                               struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct dpb_batch_norm_args bn = {0};
    const struct dpb_pool_args stem = {
        .kernel = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT, .before = 1, .after = 1};
    (void)options;
    uint32_t x =
        g->conv(b, "conv1", g->input(b), &(struct dpb_conv_args){.channels = 16, .kernel_h = 3});
    x = g->max_pool(b, "pool1", g->relu(b, "relu1", g->batch_norm(b, "bn1", x, &bn)), &stem);
    x = g->conv(b, "conv2", x, &(struct dpb_conv_args){.channels = 5, .kernel_h = 3});
    x = g->relu(b, "relu2", g->batch_norm(b, "bn2", x, &bn));
    x = g->max_pool(b, "pool2", x, &(struct dpb_pool_args){.kernel = 3, .stride = 1});
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

static void describe_pooled(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {3, 13, 12}, .nclass = 10, .batch = 4};
}

/* An evaluation's loss, of a program for inspection and of one that is not. */
static void expect_same_evaluation(const struct subject *subject, dpb_precision precision)
{
    struct dpb_session s;
    session_open(subject, precision, true, &s);
    void *const inspected = s.program;
    const struct dpb_compile_args args = compile_args_of(&s);
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    s.pass.training = false;
    session_forward(&s);
    const double loss = s.outcome.loss;
    expect_ok(s.ops->compile(s.device, &args, &memory, &s.program));
    s.outcome.loss = 0.0;
    session_forward(&s);
    assert_true(s.outcome.loss == loss);
    s.ops->release(s.program);
    s.program = inspected;
    session_close(&s);
}

TEST(test_pooled)
{
    static const struct dpb_model_ops ops = {.describe = describe_pooled, .build = build_pooled};
    static const struct dpb_plugin model = {.name = "pooled", .ops = &ops};
    const struct subject subject = {"pooled", NULL, 0, 4, DPB_FP32, DPB_CHW, &model};
    for (dpb_precision i = DPB_PRECISION_FP32; i < DPB_PRECISIONS; i++) {
        if (i == DPB_PRECISION_FP64)
            continue;
        check_in(i, &subject, ALL);
        expect_same_evaluation(&subject, i);
    }
}

/* Mean pools of packs, whose windows lap over each other and the border; concats, and frames of
 * zeros around a convolution's input. In 16 bits both are copied by words of 16, 8 and 4 bytes, and
 * by elements where the number of channels is odd. */
static dpb_status build_words(const void *options, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    static const uint32_t channels[] = {8, 4, 2, 5};
    static const char *const names[][2] = {
        {"conv2", "concat1"}, {"conv3", "concat2"}, {"conv4", "concat3"}, {"conv5", "concat4"}};
    const struct dpb_pool_args pool = {
        .kernel = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT, .before = 1, .after = 1};
    (void)options;
    uint32_t x =
        g->conv(b, "conv1", g->input(b), &(struct dpb_conv_args){.channels = 16, .kernel_h = 3});
    x = g->mean_pool(b, "pool1", x, &(struct dpb_pool_args){.kernel = 3, .stride = 1});
    x = g->mean_pool(b, "pool2", x, &pool);
    for (int i = 0; i < 4; i++) {
        const struct dpb_conv_args conv = {
            .channels = channels[i], .kernel_h = 2, .padding = DPB_PAD_EXPLICIT, .before = 1};
        x = g->concat(b, names[i][1], (const uint32_t[]){x, g->conv(b, names[i][0], x, &conv)}, 2);
    }
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

TEST(test_words)
{
    static const struct dpb_model_ops ops = {.describe = describe_pooled, .build = build_words};
    static const struct dpb_plugin model = {.name = "words", .ops = &ops};
    check_subject(&(struct subject){"words", NULL, 0, 4, DPB_FP32, DPB_CHW, &model}, OPS);
}

/* ---- pieces -------------------------------------------------------------------------------- */

struct finals {
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
    struct finals first = {.n = 0};
    for (int pass = 0; pass < 4; pass++) {
        struct finals finals = {.n = 0};
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

TEST_MAIN(setup, teardown)
