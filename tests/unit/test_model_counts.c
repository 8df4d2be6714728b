/*
 * test_model_counts.c - parameters and multiply-accumulates of every network.
 *
 * Parameters are the published counts, at the number of classes that each is published with.
 * Multiply-accumulates are sums made by hand from the papers' layers: output pixels x output
 * channels x kernel x input channels, every size written down here and none taken from core. They
 * see what parameters do not: strides and padding.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model.h"
#include "lib/test.h"

/* A convolution with a bias or without has the same number; a dense layer is one of a pixel. */
static uint64_t conv(uint64_t size, uint64_t out, uint64_t kernel, uint64_t in)
{
    return size * size * out * kernel * kernel * in;
}

/* ---- chains -------------------------------------------------------------------------------- */

/* A network's sum by its number of classes and what else tells it from its siblings. */
typedef uint64_t macs_by_hand(uint64_t nclass, uint64_t a, uint64_t b);

static uint64_t lenet_macs(uint64_t nclass, uint64_t channels, uint64_t b)
{
    (void)b;
    return conv(28, 32, 5, channels) + conv(14, 64, 5, 32) + 512 * (7 * 7 * 64) + nclass * 512;
}

static uint64_t alexnet_cifar10_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(32, 64, 5, 3) + conv(16, 64, 5, 64) + 384 * (8 * 8 * 64) + 192 * 384 + nclass * 192;
}

static uint64_t mlp_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return 4096 * 1000 + 4096 * 4096 + nclass * 4096;
}

static uint64_t alexnet_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(55, 64, 11, 3) + conv(27, 192, 5, 64) + conv(13, 384, 3, 192) +
           conv(13, 384, 3, 384) + conv(13, 256, 3, 384) + 4096 * (6 * 6 * 256) + 4096 * 4096 +
           nclass * 4096;
}

static uint64_t overfeat_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(56, 96, 11, 3) + conv(24, 256, 5, 96) + conv(12, 512, 3, 256) +
           conv(12, 1024, 3, 512) + conv(12, 1024, 3, 1024) + 3072 * (6 * 6 * 1024) + 4096 * 3072 +
           nclass * 4096;
}

static uint64_t cifar_cnn_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(32, 32, 3, 3) + conv(30, 32, 3, 32) + conv(15, 64, 3, 32) + conv(13, 64, 3, 64) +
           512 * (6 * 6 * 64) + nclass * 512;
}

/* `early` and `late`: how many convolutions follow a group's first, in the first two groups and in
 * the last two; the third has as many as the last two. */
static uint64_t vgg_macs(uint64_t nclass, uint64_t early, uint64_t late)
{
    uint64_t first = conv(224, 64, 3, 3) + conv(112, 128, 3, 64) + conv(56, 256, 3, 128) +
                     conv(28, 512, 3, 256) + conv(14, 512, 3, 512);
    uint64_t others_early = conv(224, 64, 3, 64) + conv(112, 128, 3, 128);
    uint64_t others_late = conv(56, 256, 3, 256) + conv(28, 512, 3, 512) + conv(14, 512, 3, 512);
    return first + early * others_early + late * others_late + 4096 * (7 * 7 * 512) + 4096 * 4096 +
           nclass * 4096;
}

static uint64_t vgg_cifar_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(32, 64, 3, 3) + conv(32, 64, 3, 64) + conv(16, 128, 3, 64) + conv(16, 128, 3, 128) +
           conv(8, 256, 3, 128) + 2 * conv(8, 256, 3, 256) + conv(4, 512, 3, 256) +
           2 * conv(4, 512, 3, 512) + 3 * conv(2, 512, 3, 512) + 512 * 512 + nclass * 512;
}

/* ---- blocks -------------------------------------------------------------------------------- */

/* Stages of n basic blocks; the first convolution of the second and third halves the image. */
static uint64_t resnet_cifar_macs(uint64_t nclass, uint64_t depth, uint64_t b)
{
    (void)b;
    uint64_t n = (depth - 2) / 6;
    return conv(32, 16, 3, 3) + 2 * n * conv(32, 16, 3, 16) + conv(16, 32, 3, 16) +
           (2 * n - 1) * conv(16, 32, 3, 32) + conv(8, 64, 3, 32) +
           (2 * n - 1) * conv(8, 64, 3, 64) + nclass * 64;
}

/* A stage's first block (1x1, 3x3, 1x1, projection), then the others. `before` is the image where
 * the first 1x1 convolution computes. */
static uint64_t stage_macs(uint64_t before, uint64_t size, uint64_t in, uint64_t width,
                           uint64_t n_blocks)
{
    uint64_t out = 4 * width;
    uint64_t first = conv(before, width, 1, in) + conv(size, width, 3, width) +
                     conv(size, out, 1, width) + conv(size, out, 1, in);
    uint64_t other =
        conv(size, width, 1, out) + conv(size, width, 3, width) + conv(size, out, 1, width);
    return first + (n_blocks - 1) * other;
}

enum { STRIDE_IN_3X3 = 1 };

static uint64_t resnet_macs(uint64_t nclass, uint64_t depth, uint64_t stride_in_3x3)
{
    uint64_t second = depth == 152 ? 8 : 4;
    uint64_t third = depth == 152 ? 36 : depth == 101 ? 23 : 6;
    uint64_t early = stride_in_3x3 ? 2 : 1; /* the 1x1 sees an image of twice the size */
    return conv(112, 64, 7, 3) + stage_macs(56, 56, 64, 64, 3) +
           stage_macs(early * 28, 28, 256, 128, second) +
           stage_macs(early * 14, 14, 512, 256, third) + stage_macs(early * 7, 7, 1024, 512, 3) +
           nclass * 2048;
}

/* The same of ResNeXt: 32 groups in the 3x3 convolutions, half as many channels at the end. */
static uint64_t resnext_stage_macs(uint64_t before, uint64_t size, uint64_t in, uint64_t width,
                                   uint64_t n_blocks)
{
    uint64_t out = 2 * width;
    uint64_t first = conv(before, width, 1, in) + conv(size, width, 3, width / 32) +
                     conv(size, out, 1, width) + conv(size, out, 1, in);
    uint64_t other =
        conv(size, width, 1, out) + conv(size, width, 3, width / 32) + conv(size, out, 1, width);
    return first + (n_blocks - 1) * other;
}

static uint64_t resnext50_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(112, 64, 7, 3) + resnext_stage_macs(56, 56, 64, 128, 3) +
           resnext_stage_macs(56, 28, 256, 256, 4) + resnext_stage_macs(28, 14, 512, 512, 6) +
           resnext_stage_macs(14, 7, 1024, 1024, 3) + nclass * 2048;
}

/* A depthwise convolution, of which an output channel reads one of the input's, and a 1x1. */
static uint64_t separable_macs(uint64_t size, uint64_t in, uint64_t out)
{
    return conv(size, in, 3, 1) + conv(size, out, 1, in);
}

static uint64_t mobilenet_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(112, 32, 3, 3) + separable_macs(112, 32, 64) + separable_macs(56, 64, 128) +
           separable_macs(56, 128, 128) + separable_macs(28, 128, 256) +
           separable_macs(28, 256, 256) + separable_macs(14, 256, 512) +
           5 * separable_macs(14, 512, 512) + separable_macs(7, 512, 1024) +
           separable_macs(7, 1024, 1024) + nclass * 1024;
}

/* A dense block: layer i reads `in` + i x growth channels. */
static uint64_t dense_block_macs(uint64_t size, uint64_t in, uint64_t n_layers, uint64_t growth)
{
    uint64_t macs = 0;
    for (uint64_t i = 0; i < n_layers; i++)
        macs += conv(size, growth, 3, in + i * growth);
    return macs;
}

static uint64_t densenet_macs(uint64_t nclass, uint64_t depth, uint64_t growth)
{
    uint64_t n = (depth - 4) / 3;
    uint64_t c1 = 16 + n * growth, c2 = c1 + n * growth, c3 = c2 + n * growth;
    return conv(32, 16, 3, 3) + dense_block_macs(32, 16, n, growth) +
           dense_block_macs(16, c1, n, growth) + dense_block_macs(8, c2, n, growth) +
           conv(32, c1, 1, c1) + conv(16, c2, 1, c2) + /* transitions, before their pools */
           nclass * c3;
}

/* As tf_cnn_benchmarks has it: transitions, before their pools, give twice the growth rate. */
static uint64_t densenet_tf_macs(uint64_t nclass, uint64_t depth, uint64_t growth)
{
    uint64_t n = (depth - 4) / 3, c1 = 16 + n * growth, kept = 2 * growth, c2 = kept + n * growth;
    return conv(32, 16, 3, 3) + dense_block_macs(32, 16, n, growth) + conv(32, kept, 1, c1) +
           dense_block_macs(16, kept, n, growth) + conv(16, kept, 1, c2) +
           dense_block_macs(8, kept, n, growth) + nclass * c2;
}

/* Multiply-accumulates a pixel of a GoogLeNet block: everything in it is of stride 1. */
static uint64_t inception_macs(uint64_t in, uint64_t c1, uint64_t reduce3, uint64_t c3,
                               uint64_t reduce5, uint64_t c5, uint64_t pool)
{
    return in * (c1 + reduce3 + reduce5 + pool) + 3 * 3 * reduce3 * c3 + 5 * 5 * reduce5 * c5;
}

static uint64_t googlenet_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    uint64_t stem = conv(112, 64, 7, 3) + conv(56, 64, 1, 64) + conv(56, 192, 3, 64);
    uint64_t blocks28 = inception_macs(192, 64, 96, 128, 16, 32, 32) +
                        inception_macs(256, 128, 128, 192, 32, 96, 64);
    uint64_t blocks14 = inception_macs(480, 192, 96, 208, 16, 48, 64) +
                        inception_macs(512, 160, 112, 224, 24, 64, 64) +
                        inception_macs(512, 128, 128, 256, 24, 64, 64) +
                        inception_macs(512, 112, 144, 288, 32, 64, 64) +
                        inception_macs(528, 256, 160, 320, 32, 128, 128);
    uint64_t blocks7 = inception_macs(832, 256, 160, 320, 32, 128, 128) +
                       inception_macs(832, 384, 192, 384, 48, 128, 128);
    return stem + 28 * 28 * blocks28 + 14 * 14 * blocks14 + 7 * 7 * blocks7 + nclass * 1024;
}

/* Blocks of Inception v3, a pixel. */
static uint64_t inception_a_macs(uint64_t in, uint64_t pool)
{
    return in * (64 + 48 + 64 + pool) + 5 * 5 * 48 * 64 + 3 * 3 * (64 * 96 + 96 * 96);
}

static uint64_t inception_b_macs(uint64_t width)
{
    uint64_t single = 7 * width * width + 7 * width * 192;
    uint64_t twice = 3 * 7 * width * width + 7 * width * 192;
    return 768 * (192 + width + width + 192) + single + twice;
}

static uint64_t inception_c_macs(uint64_t in)
{
    return in * (320 + 384 + 448 + 192) + 2 * 3 * 384 * 384 + 3 * 3 * 448 * 384 + 2 * 3 * 384 * 384;
}

static uint64_t inception3_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    uint64_t stem = conv(149, 32, 3, 3) + conv(147, 32, 3, 32) + conv(147, 64, 3, 32) +
                    conv(73, 80, 1, 64) + conv(71, 192, 3, 80);
    uint64_t blocks35 =
        inception_a_macs(192, 32) + inception_a_macs(256, 64) + inception_a_macs(288, 64);
    uint64_t reduction35 =
        conv(35, 64, 1, 288) + conv(35, 96, 3, 64) + conv(17, 384, 3, 288) + conv(17, 96, 3, 96);
    uint64_t blocks17 = inception_b_macs(128) + 2 * inception_b_macs(160) + inception_b_macs(192);
    uint64_t reduction17 = UINT64_C(17) * 17 * (768 * 192 * 2 + 2 * 7 * 192 * 192) +
                           conv(8, 320, 3, 192) + conv(8, 192, 3, 192);
    uint64_t blocks8 = inception_c_macs(1280) + inception_c_macs(2048);
    return stem + 35 * 35 * blocks35 + reduction35 + 17 * 17 * blocks17 + reduction17 +
           8 * 8 * blocks8 + nclass * 2048;
}

/* Twelve blocks of transformers and their patches: each position has qkv, projection and two dense
 * layers of four times the width; each pair of positions has a product with a key and one with a
 * value. */
static uint64_t vit_macs(uint64_t nclass, uint64_t width, uint64_t patch)
{
    const uint64_t side = 224 / patch, length = side * side + 1;
    const uint64_t block = length * 12 * width * width + 2 * length * length * width;
    return conv(side, width, patch, 3) + 12 * block + nclass * width;
}

/* The same of causal ones: a position sees itself and those before it, and has a classifier. */
static uint64_t gpt_macs(uint64_t nclass, uint64_t width, uint64_t layers)
{
    const uint64_t length = 1024, pairs = length * (length + 1) / 2;
    return layers * (length * 12 * width * width + 2 * pairs * width) + length * width * nclass;
}

static uint64_t gpt_tiny_macs(uint64_t nclass, uint64_t width, uint64_t length)
{
    const uint64_t pairs = length * (length + 1) / 2;
    return 4 * (length * 12 * width * width + 2 * pairs * width) + length * width * nclass;
}

/* ---- for tests ----------------------------------------------------------------------------- */

static uint64_t tiny_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(9, 5, 4, 3) + conv(3, 7, 3, 5) + 3 * 3 * 3 * (3 * 1 * 7) + 11 * (3 * 3 * 10) +
           nclass * 11;
}

static uint64_t tiny_dense_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return 13 * (9 * 9 * 3) + 7 * 13 + nclass * 7;
}

static uint64_t tiny_bn_macs(uint64_t nclass, uint64_t a, uint64_t b)
{
    (void)a, (void)b;
    return conv(9, 5, 3, 3) + conv(5, 9, 3, 5) + nclass * 9;
}

/* ---- the table ----------------------------------------------------------------------------- */

/* ResNet v2 has a batch-norm on a block's input instead of the last one, and none on the
 * projection: in a stage's first block that is one of `in` channels instead of two of 4 x width; in
 * the others it is the same. And one more at the end. */
enum { V1_LESS_V2 = 2 * (2 * 4 * (64 + 128 + 256 + 512) - (64 + 256 + 512 + 1024) - 2048) };

/* tf_cnn_benchmarks' count has the number of the step, and the running moments of each batch-norm:
 * of so many channels in all blocks, transitions and at the end. */
enum {
    TF40_NORMS = (12 * 16 + 66 * 12) + 160 + 2 * (12 * 24 + 66 * 12 + 168),
    TF100_NORMS = (32 * 16 + 496 * 12) + 400 + 2 * (32 * 24 + 496 * 12 + 408)
};

struct counts {
    const char *name, *version; /* `version`: or `form` */
    uint32_t nclass;
    uint64_t parameters;
    macs_by_hand *macs;
    uint64_t a, b;
};

static const struct counts table[] = {
    {"lenet", NULL, 1001, 2171753, lenet_macs, 1, 0},
    {"lenet", NULL, 10, 1663370, lenet_macs, 1, 0},
    {"alexnet_cifar10", NULL, 11, 1756619, alexnet_cifar10_macs, 0, 0},
    {"mlp", NULL, 10, 20922378, mlp_macs, 0, 0},
    {"alexnet", NULL, 1001, 61842345, alexnet_macs, 0, 0},
    {"vgg11", NULL, 1001, 132867433, vgg_macs, 0, 1},
    {"vgg16", NULL, 1001, 138361641, vgg_macs, 1, 2},
    {"vgg19", NULL, 1001, 143671337, vgg_macs, 1, 3},
    {"vgg16", NULL, 1000, 138357544, vgg_macs, 1, 2},           /* torchvision's */
    {"vgg16_cifar", NULL, 100, 15038116, vgg_cifar_macs, 0, 0}, /* 57.37 MB: Crossbow's */
    {"googlenet", NULL, 1001, 6999577, googlenet_macs, 0, 0},
    {"inception3", NULL, 1001, 23819401, inception3_macs, 0, 0},
    {"overfeat", NULL, 1001, 145924969, overfeat_macs, 0, 0},
    {"densenet40_k12", NULL, 10, 1019722, densenet_macs, 40, 12},
    {"densenet100_k12", NULL, 10, 6979642, densenet_macs, 100, 12},
    {"densenet100_k24", NULL, 10, 27249082, densenet_macs, 100, 24},
    {"densenet40_k12", "tf", 11, 364772 - 2 * TF40_NORMS - 1, densenet_tf_macs, 40, 12},
    {"densenet100_k12", "tf", 11, 2259652 - 2 * TF100_NORMS - 1, densenet_tf_macs, 100, 12},
    {"cifar_cnn", NULL, 10, 1250858, cifar_cnn_macs, 0, 0},
    {"resnet20", NULL, 11, 269787, resnet_cifar_macs, 20, 0},
    {"resnet32", NULL, 11, 464219, resnet_cifar_macs, 32, 0},
    {"resnet44", NULL, 11, 658651, resnet_cifar_macs, 44, 0},
    {"resnet56", NULL, 11, 853083, resnet_cifar_macs, 56, 0},
    {"resnet110", NULL, 11, 1728027, resnet_cifar_macs, 110, 0},
    {"resnet50", "v1", 1001, 25559081, resnet_macs, 50, 0},
    {"resnet50", "v1.5", 1001, 25559081, resnet_macs, 50, STRIDE_IN_3X3},
    {"resnet50", NULL, 1001, 25559081, resnet_macs, 50, STRIDE_IN_3X3}, /* v1.5 is the default */
    {"resnet50", "v2", 1001, 25551529, resnet_macs, 50, 0},
    {"resnet50", "v1.5", 1000, 25557032, resnet_macs, 50, STRIDE_IN_3X3}, /* torchvision's */
    {"resnet101", "v1", 1001, 44551209, resnet_macs, 101, 0},
    {"resnet101", "v1.5", 1001, 44551209, resnet_macs, 101, STRIDE_IN_3X3},
    {"resnet101", "v2", 1001, 44551209 - V1_LESS_V2, resnet_macs, 101, 0},
    {"resnet152", "v1", 1001, 60194857, resnet_macs, 152, 0},
    {"resnet152", "v1.5", 1001, 60194857, resnet_macs, 152, STRIDE_IN_3X3},
    {"resnet152", "v2", 1001, 60194857 - V1_LESS_V2, resnet_macs, 152, 0},
    {"resnext50_32x4d", NULL, 1000, 25028904, resnext50_macs, 0, 0}, /* torchvision's */
    {"mobilenet_v1", NULL, 1000, 4231976, mobilenet_macs, 0, 0},     /* Keras' trainable ones */
    {"vit", NULL, 1000, 5717416, vit_macs, 192, 16},                 /* as vit_ti16 */
    {"vit_ti16", NULL, 1000, 5717416, vit_macs, 192, 16},
    {"vit_s16", NULL, 1000, 22050664, vit_macs, 384, 16},
    {"vit_b16", NULL, 1000, 86567656, vit_macs, 768, 16}, /* torchvision's */
    {"vit_b32", NULL, 1000, 88224232, vit_macs, 768, 32}, /* torchvision's */
    {"gpt", NULL, 50257, 124439808, gpt_macs, 768, 12},   /* as gpt2 */
    {"gpt2", NULL, 50257, 124439808, gpt_macs, 768, 12},
    {"gpt2_medium", NULL, 50257, 354823168, gpt_macs, 1024, 24},
    {"gpt2_large", NULL, 50257, 774030080, gpt_macs, 1280, 36},
    {"gpt2_xl", NULL, 50257, 1557611200, gpt_macs, 1600, 48},
    {"gpt_tiny", NULL, 256, 834304, gpt_tiny_macs, 128, 64},
    {"tiny", NULL, 5, 245 + 315 + 14 + 63 + 3 + 990 + 60, tiny_macs, 0, 0},
    {"tiny_dense", NULL, 5, 243 * 13 + 13 + 13 * 7 + 7 + 7 * 5 + 5, tiny_dense_macs, 0, 0},
    {"tiny_bn", NULL, 5, 3 * 9 * 5 + 2 * 5 + 5 * 9 * 9 + 2 * 9 + 9 * 5 + 5, tiny_bn_macs, 0, 0},
};
enum { N_ROWS = sizeof table / sizeof table[0] };

static void expect_counts(const struct dpb_graph *graph, const struct counts *row)
{
    uint64_t macs = row->macs(row->nclass, row->a, row->b);
    if (graph->n_parameters != row->parameters || graph->macs != macs)
        fail_msg("%s %s of %u classes: %llu parameters and %llu multiply-accumulates; "
                 "published and by hand: %llu and %llu",
                 row->name, row->version ? row->version : "", row->nclass,
                 (unsigned long long)graph->n_parameters, (unsigned long long)graph->macs,
                 (unsigned long long)row->parameters, (unsigned long long)macs);
}

TEST(test_counts)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        struct dpb_graph *graph = model_build(table[i].name, table[i].version, table[i].nclass);
        expect_counts(graph, &table[i]);
    }
}

TEST(test_colour)
{
    static const struct counts row = {"lenet", NULL, 1001, 2173353, lenet_macs, 3, 0};
    struct dpb_graph *graph =
        model_graph(model_find("lenet"), NULL, (struct dpb_shape){3, 28, 28}, 1001);
    expect_counts(graph, &row);
    dpb_graph_destroy(graph);
}

/* ResNet-50: 3.858 and 4.089 G; of their papers, ResNeXt-50: 4.2 G, MobileNet: 569 M. */
TEST(test_published_macs)
{
    assert_int_equal((resnet_macs(1001, 50, 0) + 500000) / 1000000, 3858);
    assert_int_equal((resnet_macs(1001, 50, STRIDE_IN_3X3) + 500000) / 1000000, 4089);
    assert_int_equal((resnext50_macs(1000, 0, 0) + 50000000) / 100000000, 42);
    assert_int_equal((mobilenet_macs(1000, 0, 0) + 500000) / 1000000, 569);
}

/* "12,273,152" */
static const char *grouped(uint64_t value, char text[32])
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)value), at = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = '\0';
    return text;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        fail_msg("%s: cannot be read; tests run from the top of the tree", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

/* The table of docs/models.md, word by word. */
TEST(test_documented)
{
    char *text = own_memory(read_text("docs/models.md"), free);
    for (size_t m = 0; model_at(m); m++) {
        char line[256], parameters[32], macs[32];
        const struct dpb_plugin *model = model_at(m);
        struct dpb_model_info info = model_info(model);
        if (strncmp(model->name, "tiny", 4) == 0)
            continue;
        struct dpb_graph *graph = model_build(model->name, NULL, info.nclass);
        const bool versioned = model->options && strcmp(model->options->name, "version") == 0;
        snprintf(line, sizeof line, "\n| %s%s | %ux%ux%u | %u | %u | %s | %s |\n", model->name,
                 versioned ? " (v1.5)" : "", info.input.c, info.input.h, info.input.w, info.nclass,
                 info.batch, grouped(graph->n_parameters, parameters), grouped(graph->macs, macs));
        if (!strstr(text, line))
            fail_msg("docs/models.md: its table has no line%s", line);
    }
}

/* A new model needs a row. */
TEST(test_every_model_is_in_the_table)
{
    for (size_t m = 0; model_at(m); m++) {
        bool found = false;
        for (size_t i = 0; i < N_ROWS; i++)
            found |= strcmp(table[i].name, model_at(m)->name) == 0;
        if (!found)
            fail_msg("model '%s' is counted by no row of this test's table", model_at(m)->name);
    }
}

TEST_MAIN(NULL, NULL)
