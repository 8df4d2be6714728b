/*
 * cuda_block.h - a model whose convolutions may add up a batch-norm's sums, in all ways, and the
 * cuda device's options. For one program's only file.
 */
#ifndef DPB_TESTS_UNIT_CUDA_BLOCK_H
#define DPB_TESTS_UNIT_CUDA_BLOCK_H

#include <stdlib.h>

#include "lib/command.h"
#include "lib/session.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "plugins/devices/cuda/products.h"

static char cache[64]; /* a directory for the tuning's file */
static struct options options;

static void set_options(int fusion, const char *tuning)
{
    options = (struct options){
        .ids = "", .tuning = tuning, .graphs = 1, .fusion = fusion, .workspace = UINT64_C(1) << 30};
    session_options(&options);
}

/* ---- the model: convolutions with statistics by all ways that there are ---------------------- */

/* Channels fill 16 bytes but for the samples', whose convolution has a bias. */
static dpb_status build_block(const void *unused, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)unused;
    const struct dpb_conv_args stem = {.channels = 8, .kernel_h = 3, .bias = true};
    const struct dpb_conv_args wide = {.channels = 16, .kernel_h = 3};
    const struct dpb_conv_args point = {.channels = 16, .kernel_h = 1};
    const struct dpb_conv_args down = {.channels = 8, .kernel_h = 5, .stride = 2}; /* pads 1, 2 */
    /* Not fused forward. Of stride 1: with 2 cuDNN 9.19 has no plan for the gradient. */
    const struct dpb_conv_args last = {.channels = 8, .kernel_h = 3, .bias = true};
    const struct dpb_batch_norm_args bn = {0};
    uint32_t x = g->relu(b, "relu0", g->conv(b, "stem", g->input(b), &stem)); /* 8 x 10 x 10 */
    uint32_t left =
        g->relu(b, "relu1", g->batch_norm(b, "bn1", g->conv(b, "conv1", x, &wide), &bn));
    /* Between the gradient that leaves sums and what takes them there is another branch. */
    uint32_t right = g->batch_norm(b, "bn3", g->conv(b, "conv3", x, &point), &bn);
    left = g->batch_norm(b, "bn2", g->conv(b, "conv2", left, &wide), &bn);
    x = g->relu(b, "relu2", g->add(b, "add", left, right));
    /* Gradients that join: with a shortcut's, and with that of another convolution. */
    left = g->batch_norm(b, "bn6", g->conv(b, "conv6", x, &point), &bn);
    x = g->relu(b, "relu4", g->add(b, "add2", left, x));
    left = g->batch_norm(b, "bn7", g->conv(b, "conv7", x, &wide), &bn);
    right = g->batch_norm(b, "bn8", g->conv(b, "conv8", x, &point), &bn);
    x = g->relu(b, "relu5", g->add(b, "add3", left, right));
    x = g->batch_norm(b, "bn4", g->conv(b, "conv4", x, &down), &bn); /* 8 x 5 x 5 */
    x = g->relu(b, "relu3", x);
    x = g->batch_norm(b, "bn5", g->conv(b, "conv5", x, &last), &bn);
    g->softmax_loss(b, "loss", g->dense(b, "fc", g->global_mean(b, "mean", x), nclass, true));
    return DPB_OK;
}

static void describe_block(const void *unused, struct dpb_model_info *info)
{
    (void)unused;
    *info = (struct dpb_model_info){.input = {3, 10, 10}, .nclass = 10, .batch = 4};
}

static const struct dpb_model_ops block_ops = {.describe = describe_block, .build = build_block};
static const struct dpb_plugin block_model = {.name = "block", .ops = &block_ops};
static const struct subject block = {"block", NULL, 0, 4, DPB_FP32, DPB_CHW, &block_model};
/* So many that results of 16 x 10 x 10 are worth planning for. */
static const struct subject many = {"block", NULL, 0, 84, DPB_FP32, DPB_CHW, &block_model};

/* Bytes of workspace: one algorithm a call, and two plans. */
enum { FEW_PLANS = 60000 };

static inline int setup(void **unused)
{
    (void)unused;
    temporary_directory(cache);
    setenv("XDG_CACHE_HOME", cache, 1);
    return 0;
}

static inline int teardown(void **unused)
{
    (void)unused;
    remove_directory(cache);
    return 0;
}

#endif
