/*
 * overfeat.c - OverFeat's fast model for ImageNet. The last pool needs images of 71x71 or more.
 *
 * Sermanet, Eigen, Zhang, Mathieu, Fergus, LeCun: OverFeat: integrated recognition, localization
 * and detection using convolutional networks. ICLR 2014.
 */
#include "layers.h"

MODEL_INFO(describe, .input = {3, 231, 231}, .nclass = 1000, .batch = 32)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct net net = {g, b, "", NULL};
    uint32_t x = g->input(b);                                     /* 3 x 231 x 231 */
    x = conv_relu_window(&net, "1", x, 96, 11, 4, DPB_PAD_VALID); /* 96 x 56 x 56 */
    x = max_pool(&net, "1", x, 2, 2, DPB_PAD_VALID);              /* 96 x 28 x 28 */
    x = conv_relu_window(&net, "2", x, 256, 5, 1, DPB_PAD_VALID); /* 256 x 24 x 24 */
    x = max_pool(&net, "2", x, 2, 2, DPB_PAD_VALID);              /* 256 x 12 x 12 */
    x = conv_relu(&net, "3", x, 512, 3);
    x = conv_relu(&net, "4", x, 1024, 3);
    x = conv_relu(&net, "5", x, 1024, 3);
    x = max_pool(&net, "5", x, 2, 2, DPB_PAD_VALID); /* 1024 x 6 x 6 */
    x = hidden(&net, "1", x, 3072, 0.5);
    x = hidden(&net, "2", x, 4096, 0.5);
    classify(&net, "3", x, nclass);
    return DPB_OK;
}

MODEL(overfeat, describe, build,
      .summary = "OverFeat (fast) for ImageNet: 5 convolutions, 3 wide dense layers")

MODELS(overfeat)
