/*
 * resnet.c - ResNet-50, 101 and 152 for ImageNet, in three versions, and ResNeXt-50 (32x4d).
 *
 *   v1    as published: a stage's first block strides in its first 1x1 convolution
 *   v1.5  strides in the 3x3 convolution instead, as PyTorch and most published results do
 *   v2    pre-activation: batch-norm and ReLU come before the convolutions, strides as in v1
 *
 * He, Zhang, Ren, Sun: Deep residual learning for image recognition. CVPR 2016.
 * He, Zhang, Ren, Sun: Identity mappings in deep residual networks. ECCV 2016.
 *
 * ResNeXt is v1.5 with twice the channels inside a block, whose 3x3 convolution has 32 groups.
 *
 * Xie, Girshick, Dollar, Tu, He: Aggregated residual transformations for deep neural networks.
 * CVPR 2017.
 */
#include "residual.h"

enum version { V1, V1_5, V2 };

struct options {
    int version;
    bool zero_gamma;
};

static const struct dpb_host *host;

static const char *const versions[] = {"v1", "v1.5", "v2", NULL};

static const struct dpb_option option_table[] = {
    {.name = "version",
     .type = DPB_OPT_CHOICE,
     .def = "v1.5",
     .choices = versions,
     .offset = offsetof(struct options, version),
     .help = "v1 strides in the first 1x1 convolution of a stage, v1.5 in the 3x3; v2 is "
             "pre-activation."},
    ZERO_GAMMA_ROW,
    {.name = NULL},
};

/* The differences between these networks. */
struct network {
    enum version version;
    int n_blocks[4]; /* of each stage */
    uint32_t width;  /* channels inside the first stage's blocks; twice as many in the next */
    uint32_t groups; /* of the 3x3 convolutions */
    bool zero_gamma;
};

struct block {
    enum version version;
    bool first;          /* of its stage: the shortcut is a projection */
    uint32_t width, out; /* channels inside and at the end */
    uint32_t stride, groups;
};

static uint32_t bottleneck(const struct net *net, const char *prefix, uint32_t x,
                           struct block block)
{
    uint32_t stride_1x1 = block.version == V1 ? block.stride : 1;
    uint32_t y = conv_bn_relu(net, prefix, 1, x, block.width, 1, stride_1x1);
    y = grouped_conv_bn_relu(net, prefix, 2, y, block.width, 3, block.stride / stride_1x1,
                             block.groups);
    y = last_conv_bn(net, prefix, 3, y, block.out, 1, 1);
    if (block.first) {
        x = conv(net, layer_name(prefix, "downsample.", 0), x, block.out, 1, block.stride);
        x = batch_norm(net, layer_name(prefix, "downsample.", 1), x);
    }
    x = add(net, layer_name(prefix, "add", 1), x, y);
    return relu(net, layer_name(prefix, "relu", 3), x);
}

static uint32_t bottleneck_v2(const struct net *net, const char *prefix, uint32_t x,
                              struct block block)
{
    uint32_t y = batch_norm(net, layer_name(prefix, "bn", 0), x);
    y = relu(net, layer_name(prefix, "relu", 0), y);
    if (block.first)
        x = conv(net, layer_name(prefix, "downsample.", 0), y, block.out, 1, block.stride);
    y = conv_bn_relu(net, prefix, 1, y, block.width, 1, block.stride);
    y = conv_bn_relu(net, prefix, 2, y, block.width, 3, 1);
    y = conv(net, layer_name(prefix, "conv", 3), y, block.out, 1, 1);
    return add(net, layer_name(prefix, "add", 1), x, y);
}

/* Number: 0 to 3. */
static uint32_t stage(const struct net *net, int number, const struct network *network, uint32_t x)
{
    for (int i = 0; i < network->n_blocks[number]; i++) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layer%d.%d.", number + 1, i);
        struct block block = {.version = network->version,
                              .first = i == 0,
                              .width = network->width << number,
                              .out = 256u << number,
                              .stride = number > 0 && i == 0 ? 2 : 1,
                              .groups = network->groups};
        x = network->version == V2 ? bottleneck_v2(net, prefix, x, block)
                                   : bottleneck(net, prefix, x, block);
    }
    return x;
}

static dpb_status build(const struct network *network, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct net net = {g, b, DPB_PAD_EXPLICIT, network->zero_gamma, false};
    const struct dpb_pool_args pool = {
        .kernel = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT, .before = 1, .after = 1};

    if (network->zero_gamma && network->version == V2)
        return host->fail(DPB_UNSUPPORTED,
                          "model.zero_gamma = yes is for versions v1 and v1.5: a block of v2 ends "
                          "with a convolution, not with a batch-norm; leave one of them out");
    uint32_t x = g->input(b);                   /* 3 x 224 x 224 */
    x = conv_bn_relu(&net, "", 1, x, 64, 7, 2); /* 64 x 112 x 112 */
    x = g->max_pool(b, "maxpool", x, &pool);    /* 64 x 56 x 56 */
    x = stage(&net, 0, network, x);             /* 256 x 56 x 56 */
    x = stage(&net, 1, network, x);             /* 512 x 28 x 28 */
    x = stage(&net, 2, network, x);             /* 1024 x 14 x 14 */
    x = stage(&net, 3, network, x);             /* 2048 x 7 x 7 */
    if (network->version == V2) {
        x = batch_norm(&net, layer_name("", "bn", 5), x);
        x = relu(&net, layer_name("", "relu", 5), x);
    }
    classify(&net, x, nclass);
    return DPB_OK;
}

#define RESNET(DEPTH, BATCH, N1, N2, N3, N4, NEXT)                                        \
    MODEL_INFO(describe_##DEPTH, .input = {3, 224, 224}, .nclass = 1000, .batch = BATCH)  \
    static dpb_status build_##DEPTH(const void *options, const struct dpb_graph_ops *g,   \
                                    struct dpb_graph_builder *b, uint32_t nclass)         \
    {                                                                                     \
        const struct options *o = options;                                                \
        const struct network network = {                                                  \
            (enum version)o->version, {N1, N2, N3, N4}, 64, 1, o->zero_gamma};            \
        return build(&network, g, b, nclass);                                             \
    }                                                                                     \
    MODEL(resnet##DEPTH, describe_##DEPTH, build_##DEPTH,                                 \
          .summary = "ResNet-" #DEPTH " for ImageNet: bottleneck blocks; v1, v1.5 or v2", \
          .options = option_table, .options_size = sizeof(struct options), .next = NEXT)

static const struct dpb_option resnext_table[] = {
    ZERO_GAMMA_ROW,
    {.name = NULL},
};

MODEL_INFO(describe_resnext, .input = {3, 224, 224}, .nclass = 1000, .batch = 32)

static dpb_status build_resnext50(const void *options, const struct dpb_graph_ops *g,
                                  struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct options *o = options;
    const struct network network = {V1_5, {3, 4, 6, 3}, 128, 32, o->zero_gamma};
    return build(&network, g, b, nclass);
}

MODEL(resnext50_32x4d, describe_resnext, build_resnext50,
      .summary = "ResNeXt-50 for ImageNet: bottleneck blocks of 32 groups of 4 channels",
      .options = resnext_table, .options_size = sizeof(struct options))

RESNET(152, 32, 3, 8, 36, 3, &resnext50_32x4d)
RESNET(101, 32, 3, 4, 23, 3, &resnet152)
RESNET(50, 64, 3, 4, 6, 3, &resnet101)

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &resnet50;
}
