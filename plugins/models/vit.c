/*
 * vit.c - vision transformers: an image's patches are a sequence, a learned token stands before
 * them, and what the blocks make of that token is classified.
 *
 * Dosovitskiy et al.: An image is worth 16x16 words. ICLR 2021 (B/16, B/32). Touvron et al.:
 * Training data-efficient image transformers. ICML 2021 (Ti/16, S/16).
 */
#include "transformer.h"

struct options {
    int64_t patch, layers, heads, width;
};

static const struct dpb_option option_table[] = {
    COUNT_ROW(patch, "16", 1024, "pixels of a patch's side."),
    COUNT_ROW(layers, "12", 512, "blocks."),
    COUNT_ROW(heads, "3", 512, "of attention; they divide the width."),
    COUNT_ROW(width, "192", 16384, "channels of a position."),
    {.name = NULL},
};

MODEL_INFO(describe, .input = {3, 224, 224}, .nclass = 1000, .batch = 64)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct options *of = options;
    const double stddev = 0.02;
    const struct net net = {.g = g,
                            .b = b,
                            .width = (uint32_t)of->width,
                            .heads = (uint32_t)of->heads,
                            .epsilon = 1e-6,
                            .stddev = stddev,
                            .residual_stddev = stddev};
    const struct dpb_initial normal = {DPB_INITIAL_NORMAL, stddev};
    const struct dpb_conv_args patches = {.channels = net.width,
                                          .kernel_h = (uint32_t)of->patch,
                                          .stride = (uint32_t)of->patch,
                                          .padding = DPB_PAD_VALID,
                                          .bias = true};
    uint32_t x = g->initial(b, g->conv(b, "patches", g->input(b), &patches), &normal, NULL);
    x = g->prepend(b, "class", x);
    x = g->positions(b, "positions", x, &(struct dpb_positions_args){.init_stddev = stddev});
    for (uint32_t i = 1; i <= (uint32_t)of->layers; i++)
        x = block(&net, i, x);
    x = g->layer_norm(b, "norm", x, net.epsilon);
    x = g->shortcut(b, "first", x, net.width, g->shape(b, x).w); /* the class token's position */
    x = g->initial(b, g->dense(b, "head", x, nclass, true), &normal, NULL);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

#define VIT(NAME, PATCH, HEADS, WIDTH, TITLE, NEXT)                                    \
    static dpb_status build_##NAME(const void *options, const struct dpb_graph_ops *g, \
                                   struct dpb_graph_builder *b, uint32_t nclass)       \
    {                                                                                  \
        const struct options of = {                                                    \
            .patch = (PATCH), .layers = 12, .heads = (HEADS), .width = (WIDTH)};       \
        (void)options;                                                                 \
        return build(&of, g, b, nclass);                                               \
    }                                                                                  \
    MODEL(NAME, describe, build_##NAME, .summary = TITLE, .next = NEXT)

VIT(vit_b32, 32, 12, 768, "ViT-B/32 for ImageNet: 12 blocks of width 768, patches of 32x32", NULL)
VIT(vit_b16, 16, 12, 768, "ViT-B/16 for ImageNet: 12 blocks of width 768, patches of 16x16",
    &vit_b32)
VIT(vit_s16, 16, 6, 384, "ViT-S/16 for ImageNet: 12 blocks of width 384", &vit_b16)
VIT(vit_ti16, 16, 3, 192, "ViT-Ti/16 for ImageNet: 12 blocks of width 192", &vit_s16)
MODEL(vit, describe, build, .summary = "a vision transformer of any size", .options = option_table,
      .options_size = sizeof(struct options), .next = &vit_ti16)

MODELS(vit)
