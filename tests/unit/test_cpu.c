/* needs: cpu */
/*
 * test_cpu.c - the cpu device's ops, one by one, in small networks that have them all; forward
 * alone, ties, and what is refused. The models: test_cpu_models.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conform/networks.h"
#include "lib/grouped.h"
#include "lib/opcheck.h"
#include "lib/test.h"

static const struct dpb_plugin odd = {.name = "odd", .ops = &dpb_network_odd};

TEST(test_tiny)
{
    check_subject(&(struct subject){"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL}, ALL);
    check_subject(&(struct subject){"tiny_dense", NULL, 0, 3, DPB_FP32, DPB_HWC, NULL}, ALL);
    check_subject(&(struct subject){"tiny_bn", NULL, 0, 4, DPB_UINT8, DPB_HWC, NULL}, ALL);
    /* 165,888 values a channel: summed in fp32 alone they would be off by more than is allowed. */
    check_in(DPB_PRECISION_FP32,
             &(struct subject){"tiny_bn", NULL, 144, 8, DPB_UINT8, DPB_CHW, NULL}, OPS);
}

TEST(test_odd)
{
    struct subject subject = {"odd", NULL, 0, 5, DPB_FP32, DPB_HWC, &odd};
    check_subject(&subject, ALL);
    subject.batch = 1; /* batch-norm of one value a channel, too */
    check_subject(&subject, OPS);
}

static const struct dpb_plugin branches = {.name = "branches", .ops = &dpb_network_branches};

TEST(test_branches)
{
    check_subject(&(struct subject){"branches", NULL, 0, 4, DPB_FP32, DPB_HWC, &branches}, ALL);
}

/* VGG's first layer: sums of 802,816 terms, which most have one sign. */
static dpb_status build_large(const void *options, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args conv = {.channels = 17, .kernel_h = 3, .bias = true};
    uint32_t x = g->relu(b, "relu", g->conv(b, "conv", g->input(b), &conv));
    x = g->global_mean(b, "mean", x);
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

static void describe_large(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {3, 224, 224}, .nclass = 10, .batch = 16};
}

static const struct dpb_model_ops large_ops = {.describe = describe_large, .build = build_large};
static const struct dpb_plugin large = {.name = "large", .ops = &large_ops};

static const struct dpb_plugin uneven = {.name = "uneven", .ops = &dpb_network_uneven};

TEST(test_large_images)
{
    check_subject(&(struct subject){"uneven", NULL, 0, 4, DPB_FP32, DPB_HWC, &uneven},
                  OPS | REPEAT);
    check_in(DPB_PRECISION_FP32,
             &(struct subject){"large", NULL, 0, 16, DPB_UINT8, DPB_CHW, &large}, OPS);
}

/* Convolutions 1x1 of few channels, whose stride divides the image. */
static dpb_status build_sparse(const void *options, const struct dpb_graph_ops *g,
                               struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args few = {.channels = 5, .kernel_h = 1, .stride = 2};
    const struct dpb_conv_args more = {.channels = 11, .kernel_h = 1, .stride = 3, .bias = true};
    uint32_t x = g->conv(b, "conv2", g->conv(b, "conv1", g->input(b), &few), &more);
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

static void describe_sparse(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {3, 12, 18}, .nclass = 10, .batch = 5};
}

static const struct dpb_model_ops sparse_ops = {.describe = describe_sparse, .build = build_sparse};
static const struct dpb_plugin sparse = {.name = "sparse", .ops = &sparse_ops};

TEST(test_few_pixels_of_few_channels)
{
    check_subject(&(struct subject){"sparse", NULL, 0, 5, DPB_FP32, DPB_HWC, &sparse},
                  OPS | REPEAT);
}

/* Convolutions with a stride, of one group and of several, whose windows are wider than the image:
 * some of their weights meet padding alone. */
static dpb_status build_narrow(const void *options, const struct dpb_graph_ops *g,
                               struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_conv_args first = {.channels = 12, .kernel_h = 1};
    const struct dpb_conv_args dense = {.channels = 7, .kernel_h = 4, .stride = 2};
    const struct dpb_conv_args grouped = {.channels = 8, .kernel_h = 5, .stride = 3, .groups = 2};
    const struct dpb_conv_args depthwise = {
        .channels = 12, .kernel_h = 4, .stride = 3, .groups = 12};
    const uint32_t x = g->conv(b, "first", g->input(b), &first);
    const uint32_t parts[] = {g->dense(b, "fc1", g->conv(b, "dense", x, &dense), 33, true),
                              g->dense(b, "fc2", g->conv(b, "grouped", x, &grouped), 33, true),
                              g->dense(b, "fc3", g->conv(b, "depthwise", x, &depthwise), 33, true)};
    g->softmax_loss(b, "loss", g->dense(b, "fc", g->concat(b, "concat", parts, 3), nclass, true));
    return DPB_OK;
}

static void describe_narrow(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {3, 17, 1}, .nclass = 10, .batch = 3};
}

static const struct dpb_model_ops narrow_ops = {.describe = describe_narrow, .build = build_narrow};
static const struct dpb_plugin narrow = {.name = "narrow", .ops = &narrow_ops};

TEST(test_windows_wider_than_the_image)
{
    check_subject(&(struct subject){"narrow", NULL, 0, 3, DPB_FP32, DPB_HWC, &narrow},
                  OPS | REPEAT);
}

/* Exponents of LRN that models do not have, and a window wider than the channels. */
static dpb_status build_exponents(const void *options, const struct dpb_graph_ops *g,
                                  struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_lrn_args one = {.radius = 3, .k = 1.0, .alpha = 0.1, .beta = 1.0};
    const struct dpb_lrn_args other = {.radius = 1, .k = 2.0, .alpha = 0.1, .beta = 0.6};
    uint32_t x = g->batch_norm(b, "norm", g->input(b), &(struct dpb_batch_norm_args){0});
    x = g->lrn(b, "lrn2", g->lrn(b, "lrn1", x, &one), &other);
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

static const struct dpb_model_ops exponents_ops = {.describe = describe_sparse,
                                                   .build = build_exponents};
static const struct dpb_plugin exponents = {.name = "exponents", .ops = &exponents_ops};

TEST(test_lrn_exponents)
{
    check_subject(&(struct subject){"exponents", NULL, 0, 5, DPB_FP32, DPB_HWC, &exponents}, OPS);
}

static const struct dpb_plugin pairs = {.name = "pairs", .ops = &dpb_network_pairs};

TEST(test_pairs_of_pixels)
{
    struct subject subject = {"pairs", NULL, 0, 5, DPB_FP32, DPB_HWC, &pairs};
    check_in(DPB_PRECISION_BF16, &subject, OPS | REPEAT);
    subject.batch = 1;
    check_in(DPB_PRECISION_BF16, &subject, OPS);
}

TEST(test_groups)
{
    struct subject subject = {"grouped", NULL, 0, 5, DPB_FP32, DPB_HWC, &grouped_model};
    check_subject(&subject, ALL);
    subject.batch = 1;
    subject.image = 129; /* sums over many pixels */
    check_subject(&subject, OPS);
}

/* A program compiled without training: less memory, the same numbers, and no backward. */
TEST(test_forward_only)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, false, &s);
    session_forward(&s);
    check_ops(&s);
    check_loss(&s);
    struct dpb_compile_args args = {
        .graph = s.graph, .batch = 4, .precision = DPB_PRECISION_FP32, .format = &s.format};
    uint64_t without = s.ops->memory_needed(NULL, &args);
    args.training = true;
    assert_true(s.ops->memory_needed(NULL, &args) > without);
    assert_int_equal(s.ops->backward(s.program, &s.pass, &s.hooks), DPB_USAGE);
    session_close(&s);
}

/* Of equal logits the first is the prediction, as everywhere. */
TEST(test_ties)
{
    const struct subject subject = {"tiny_dense", NULL, 0, 5, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, false, &s);
    memset(s.weights, 0, s.graph->n_elements * sizeof(float));
    uint32_t first = 0;
    for (uint32_t i = 0; i < s.batch.n; i++)
        first += s.batch.labels[i] == 0;
    assert_true(first > 0);
    session_forward(&s);
    assert_int_equal(s.outcome.correct, first);
    uint32_t first_five = 0;
    for (uint32_t i = 0; i < s.batch.n; i++)
        first_five += s.batch.labels[i] < 5;
    assert_true(first_five > first && first_five < s.batch.n);
    assert_int_equal(s.outcome.in_top5, first_five);
    assert_true(fabs(s.outcome.loss - log(s.graph->nclass)) < 1e-6);
    session_close(&s);
}

TEST(test_refusals)
{
    const struct subject subject = {"lenet", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    struct dpb_compile_args args = {
        .graph = s.graph, .batch = 2, .precision = DPB_PRECISION_FP64, .format = &s.format};
    void *program = NULL;
    dpb_first_error_clear();
    assert_int_equal(s.ops->compile(s.device, &args, &memory, &program), DPB_UNSUPPORTED);
    assert_non_null(strstr(dpb_first_error(NULL), "reference"));
    args.precision = DPB_PRECISION_FP32;
    struct dpb_sample_format other = s.format;
    other.shape.h++;
    args.format = &other;
    assert_int_equal(s.ops->compile(s.device, &args, &memory, &program), DPB_USAGE);
    assert_null(program);
    s.ops->release(NULL);
    s.ops->close(NULL);
    session_close(&s);
}

int main(void)
{
    /* Tests share the cores with others: threads that spin for one another would wait for long. */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    return test_main(NULL, NULL);
}
