/* needs: cuda stand-in */
/*
 * test_cuda_layouts.c - the cuda device in NCHW, held to the reference op by op: on a CUDA for
 * tests, or with DPB_TEST_DEVICE=cuda on a GPU. NHWC is what all other tests of the device are in.
 */
#include <stdlib.h>

#include "cuda_sides.h"
#include "lib/grouped.h"
#include "lib/opcheck.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "plugins/devices/cuda/device.h"

/* Every op, odd padding, several groups, samples in both orders; in each precision. */
TEST(test_every_op)
{
    check_subject(&(struct subject){"tiny", NULL, 0, 4, DPB_UINT8, DPB_HWC, NULL}, ALL);
    check_subject(&(struct subject){"tiny_bn", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL}, ALL);
    check_subject(&(struct subject){"grouped", NULL, 0, 5, DPB_FP32, DPB_HWC, &grouped_model}, OPS);
    check_subject(&sides, ALL);
}

/* Sums over more pixels than one block adds up: 11 x 28 x 28. */
TEST(test_many_pixels)
{
    check_in(DPB_PRECISION_FP32, &(struct subject){"lenet", NULL, 0, 11, DPB_UINT8, DPB_CHW, NULL},
             OPS | LOSS);
}

/* One pixel is the same in both layouts; the pools' larger results are not, nor is a frame of zeros
 * around it. */
static dpb_status build_grown(const void *unused, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct dpb_pool_args pool = {
        .kernel = 2, .stride = 1, .padding = DPB_PAD_EXPLICIT, .before = 1, .after = 1};
    const struct dpb_conv_args framed = {.channels = 16, .kernel_h = 2}; /* pads 0, 1 */
    (void)unused;
    uint32_t x = g->global_mean(b, "mean1", sides_conv(g, b, "conv1", g->input(b), 16));
    x = g->conv(b, "conv2", x, &framed);
    x = g->global_mean(b, "mean2", g->mean_pool(b, "pool1", x, &pool));
    x = g->max_pool(b, "pool2", x, &pool);
    g->softmax_loss(b, "loss", g->dense(b, "fc", x, nclass, true));
    return DPB_OK;
}

TEST(test_one_pixel)
{
    static const struct dpb_model_ops ops = {.describe = describe_sides, .build = build_grown};
    static const struct dpb_plugin model = {.name = "grown", .ops = &ops};
    check_subject(&(struct subject){"grown", NULL, 0, 4, DPB_FP32, DPB_CHW, &model}, OPS);
}

/* On the processor these take too long. */
CASE(test_models)
{
    check_subject(&(struct subject){"alexnet_cifar10", NULL, 0, 2, DPB_FP32, DPB_CHW, NULL}, OPS);
    check_subject(&(struct subject){"resnet20", NULL, 16, 3, DPB_UINT8, DPB_HWC, NULL}, OPS);
    check_subject(&(struct subject){"densenet40_k12", NULL, 8, 2, DPB_UINT8, DPB_CHW, NULL}, OPS);
}

static int setup(void **unused)
{
    static const struct options options = {.ids = "",
                                           .tuning = "no",
                                           .graphs = 1,
                                           .workspace = UINT64_C(1) << 30,
                                           .layout = LAYOUT_NCHW};
    (void)unused;
    if (!on_gpu())
        setenv("DPB_TEST_DEVICE", "cuda_stand_in", 1);
    session_options(&options);
    return 0;
}

int main(void)
{
    if (on_gpu())
        add_case(test_models, NULL, "models");
    return test_main(setup, NULL);
}
