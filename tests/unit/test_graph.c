/*
 * test_graph.c - the graph builder and every model plugin: counts, shapes, layout, initial values,
 * and what is refused.
 *
 * Models are loaded from $DPB_BUILD/plugins (default: build/plugins).
 */
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "dpbench/plugin.h"
#include "graph/graph.h"

/* --------------------------------------------------------------------------------------- models */

/* The plugin `name` of model_FILE.so; the test fails when it is not there. */
static const struct dpb_plugin *load_model(const char *file, const char *name)
{
    static const struct dpb_host host = {
        .struct_size = sizeof host, .abi_major = DPB_ABI_MAJOR, .abi_minor = DPB_ABI_MINOR};
    const char *build = getenv("DPB_BUILD");
    char path[512];
    snprintf(path, sizeof path, "%s/plugins/model_%s.so", build ? build : "build", file);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!object)
        fail_msg("%s", dlerror());
    const struct dpb_plugin *(*entry)(const struct dpb_host *);
    void *symbol = dlsym(object, "dpb_plugin_entry");
    assert_non_null(symbol);
    memcpy(&entry, &symbol, sizeof entry);
    for (const struct dpb_plugin *plugin = entry(&host); plugin; plugin = plugin->next) {
        assert_true(plugin->magic == DPB_PLUGIN_MAGIC);
        assert_int_equal(plugin->kind, DPB_PLUGIN_MODEL);
        if (strcmp(plugin->name, name) == 0)
            return plugin;
    }
    fail_msg("%s: has no plugin '%s'", path, name);
    return NULL;
}

/* Options with one choice made; NULL: zeros. */
struct options {
    _Alignas(16) char bytes[64];
};

static struct options choose(const struct dpb_plugin *plugin, const char *name, const char *choice)
{
    struct options options = {{0}};
    assert_true(plugin->options_size <= sizeof options.bytes);
    for (const struct dpb_option *row = plugin->options; name && row && row->name; row++) {
        for (int i = 0; strcmp(row->name, name) == 0 && row->choices[i]; i++) {
            if (strcmp(row->choices[i], choice) == 0) {
                memcpy(options.bytes + row->offset, &i, sizeof i);
                return options;
            }
        }
    }
    assert_null(name);
    return options;
}

static struct dpb_graph *build_as(const struct dpb_plugin *plugin, const char *version,
                                  struct dpb_shape input, uint32_t nclass)
{
    struct options options = choose(plugin, version ? "version" : NULL, version);
    struct dpb_graph *graph = NULL;
    dpb_status status =
        dpb_graph_build(plugin->name, plugin->ops, options.bytes, input, nclass, &graph);
    if (status != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    return graph;
}

static struct dpb_graph *build(const char *file, const char *name, const char *version,
                               uint32_t nclass)
{
    const struct dpb_plugin *plugin = load_model(file, name);
    struct options options = choose(plugin, NULL, NULL);
    struct dpb_model_info info;
    ((const struct dpb_model_ops *)plugin->ops)->describe(options.bytes, &info);
    return build_as(plugin, version, info.input, nclass);
}

static const struct dpb_node *node_of(const struct dpb_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        if (strcmp(graph->nodes[i].name, name) == 0)
            return &graph->nodes[i];
    }
    fail_msg("%s has no node '%s'", graph->name, name);
    return NULL;
}

static const struct dpb_tensor *tensor_of(const struct dpb_graph *graph, const char *name)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        if (strcmp(graph->tensors[i].name, name) == 0)
            return &graph->tensors[i];
    }
    fail_msg("%s has no tensor '%s'", graph->name, name);
    return NULL;
}

/* --------------------------------------------------------------------------------------- counts */

static void test_parameters(void **unused)
{
    static const struct {
        const char *file, *name, *version;
        uint32_t nclass;
        uint64_t parameters;
    } rows[] = {
        {"lenet", "lenet", NULL, 1001, 2171753},
        {"lenet", "lenet", NULL, 10, 1663370},
        {"alexnet_cifar10", "alexnet_cifar10", NULL, 11, 1756619},
        {"mlp", "mlp", NULL, 10, 20922378},
        {"alexnet", "alexnet", NULL, 1001, 61842345},
        {"vgg", "vgg11", NULL, 1001, 132867433},
        {"vgg", "vgg16", NULL, 1001, 138361641},
        {"vgg", "vgg19", NULL, 1001, 143671337},
        {"vgg", "vgg16", NULL, 1000, 138357544}, /* torchvision's */
        {"googlenet", "googlenet", NULL, 1001, 6999577},
        {"inception3", "inception3", NULL, 1001, 23819401},
        {"overfeat", "overfeat", NULL, 1001, 145924969},
        {"densenet", "densenet40_k12", NULL, 10, 1019722},
        {"densenet", "densenet100_k12", NULL, 10, 6979642},
        {"densenet", "densenet100_k24", NULL, 10, 27249082},
        {"cifar_cnn", "cifar_cnn", NULL, 10, 1250858},
        {"resnet_cifar", "resnet20", NULL, 11, 269787},
        {"resnet_cifar", "resnet32", NULL, 11, 464219},
        {"resnet_cifar", "resnet44", NULL, 11, 658651},
        {"resnet_cifar", "resnet56", NULL, 11, 853083},
        {"resnet_cifar", "resnet110", NULL, 11, 1728027},
        {"resnet", "resnet50", "v1", 1001, 25559081},
        {"resnet", "resnet50", "v1.5", 1001, 25559081},
        {"resnet", "resnet50", "v2", 1001, 25551529},
        {"resnet", "resnet50", "v1.5", 1000, 25557032}, /* torchvision's */
        {"resnet", "resnet101", "v1", 1001, 44551209},
        {"resnet", "resnet101", "v1.5", 1001, 44551209},
        {"resnet", "resnet152", "v1.5", 1001, 60194857},
        {"tiny", "tiny_dense", NULL, 5, 243 * 13 + 13 + 13 * 7 + 7 + 7 * 5 + 5},
        {"tiny", "tiny_bn", NULL, 5, 3 * 9 * 5 + 2 * 5 + 5 * 9 * 9 + 2 * 9 + 9 * 5 + 5},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_graph *graph =
            build(rows[i].file, rows[i].name, rows[i].version, rows[i].nclass);
        if (graph->n_parameters != rows[i].parameters)
            fail_msg("%s %s: %llu parameters", rows[i].name, rows[i].version ? rows[i].version : "",
                     (unsigned long long)graph->n_parameters);
        dpb_graph_destroy(graph);
    }
    struct dpb_graph *colour =
        build_as(load_model("lenet", "lenet"), NULL, (struct dpb_shape){3, 28, 28}, 1001);
    assert_int_equal(colour->n_parameters, 2173353);
    dpb_graph_destroy(colour);
}

static void test_macs_of_small_models(void **unused)
{
    (void)unused;
    struct dpb_graph *lenet = build("lenet", "lenet", NULL, 10);
    assert_int_equal(lenet->macs, 28 * 28 * 32 * (5 * 5 * 1) + 14 * 14 * 64 * (5 * 5 * 32) +
                                      512 * (7 * 7 * 64) + 10 * 512);
    dpb_graph_destroy(lenet);

    struct dpb_graph *alexnet = build("alexnet_cifar10", "alexnet_cifar10", NULL, 11);
    assert_int_equal(alexnet->macs, 32 * 32 * 64 * (5 * 5 * 3) + 16 * 16 * 64 * (5 * 5 * 64) +
                                        384 * (8 * 8 * 64) + 192 * 384 + 11 * 192);
    dpb_graph_destroy(alexnet);

    struct dpb_graph *mlp = build("mlp", "mlp", NULL, 10);
    assert_int_equal(mlp->macs, 4096 * 1000 + 4096 * 4096 + 10 * 4096);
    dpb_graph_destroy(mlp);

    struct dpb_graph *resnet20 = build("resnet_cifar", "resnet20", NULL, 11);
    uint64_t stem = 32 * 32 * 16 * (3 * 3 * 3);
    uint64_t stage1 = 6 * (32 * 32 * 16 * (3 * 3 * 16));
    uint64_t stage2 = 16 * 16 * 32 * (3 * 3 * 16) + 5 * (16 * 16 * 32 * (3 * 3 * 32));
    uint64_t stage3 = 8 * 8 * 64 * (3 * 3 * 32) + 5 * (8 * 8 * 64 * (3 * 3 * 64));
    assert_int_equal(resnet20->macs, stem + stage1 + stage2 + stage3 + 11 * 64);
    dpb_graph_destroy(resnet20);
}

/* A stage's first block (1x1, 3x3, 1x1, projection), then the others. `before` is the number of
 * pixels where the first 1x1 convolution computes. */
static uint64_t stage_macs(uint64_t before, uint64_t pixels, uint64_t in, uint64_t width,
                           uint64_t n_blocks)
{
    uint64_t out = 4 * width;
    uint64_t first = before * in * width + pixels * (9 * width * width + width * out + in * out);
    uint64_t other = pixels * (out * width + 9 * width * width + width * out);
    return first + (n_blocks - 1) * other;
}

static void test_macs_of_resnet50(void **unused)
{
    (void)unused;
    uint64_t common = 112 * 112 * 64 * (7 * 7 * 3) + stage_macs(56 * 56, 56 * 56, 64, 64, 3) +
                      UINT64_C(1001) * 2048;
    uint64_t v1 = common + stage_macs(28 * 28, 28 * 28, 256, 128, 4) +
                  stage_macs(14 * 14, 14 * 14, 512, 256, 6) +
                  stage_macs(7 * 7, 7 * 7, 1024, 512, 3);
    uint64_t v1_5 = common + stage_macs(56 * 56, 28 * 28, 256, 128, 4) +
                    stage_macs(28 * 28, 14 * 14, 512, 256, 6) +
                    stage_macs(14 * 14, 7 * 7, 1024, 512, 3);
    assert_int_equal((v1 + 500000) / 1000000, 3858);
    assert_int_equal((v1_5 + 500000) / 1000000, 4089);

    struct dpb_graph *graph = build("resnet", "resnet50", "v1", 1001);
    assert_int_equal(graph->macs, v1);
    dpb_graph_destroy(graph);
    graph = build("resnet", "resnet50", "v1.5", 1001);
    assert_int_equal(graph->macs, v1_5);
    dpb_graph_destroy(graph);
    graph = build("resnet", "resnet50", "v2", 1001);
    assert_int_equal(graph->macs, v1);
    dpb_graph_destroy(graph);
}

static void assert_macs(const char *file, const char *name, uint32_t nclass, uint64_t macs)
{
    struct dpb_graph *graph = build(file, name, NULL, nclass);
    if (graph->macs != macs)
        fail_msg("%s: %llu multiply-accumulates, by hand %llu", name,
                 (unsigned long long)graph->macs, (unsigned long long)macs);
    dpb_graph_destroy(graph);
}

/* Networks that are one chain: output pixels x output channels x (kernel x input channels). */
static void test_macs_of_chains(void **unused)
{
    (void)unused;
    assert_macs("alexnet", "alexnet", 1001,
                55 * 55 * 64 * (11 * 11 * 3) + 27 * 27 * 192 * (5 * 5 * 64) +
                    13 * 13 * 384 * (3 * 3 * 192) + 13 * 13 * 384 * (3 * 3 * 384) +
                    13 * 13 * 256 * (3 * 3 * 384) + 4096 * (6 * 6 * 256) + 4096 * 4096 +
                    1001 * 4096);
    assert_macs("overfeat", "overfeat", 1001,
                UINT64_C(56) * 56 * 96 * (11 * 11 * 3) + 24 * 24 * 256 * (5 * 5 * 96) +
                    12 * 12 * 512 * (3 * 3 * 256) + 12 * 12 * 1024 * (3 * 3 * 512) +
                    12 * 12 * 1024 * (3 * 3 * 1024) + 3072 * (6 * 6 * 1024) + 4096 * 3072 +
                    1001 * 4096);
    assert_macs("cifar_cnn", "cifar_cnn", 10,
                32 * 32 * 32 * (3 * 3 * 3) + 30 * 30 * 32 * (3 * 3 * 32) +
                    15 * 15 * 64 * (3 * 3 * 32) + 13 * 13 * 64 * (3 * 3 * 64) + 512 * (6 * 6 * 64) +
                    10 * 512);
    uint64_t first = UINT64_C(224) * 224 * 64 * (3 * 3 * 3) + 112 * 112 * 128 * (3 * 3 * 64) +
                     56 * 56 * 256 * (3 * 3 * 128) + 28 * 28 * 512 * (3 * 3 * 256) +
                     14 * 14 * 512 * (3 * 3 * 512); /* the first of each group */
    uint64_t square64 = UINT64_C(224) * 224 * 64 * (3 * 3 * 64);
    uint64_t square128 = UINT64_C(112) * 112 * 128 * (3 * 3 * 128);
    uint64_t square256 = UINT64_C(56) * 56 * 256 * (3 * 3 * 256);
    uint64_t square512 = UINT64_C(28) * 28 * 512 * (3 * 3 * 512);
    uint64_t last512 = UINT64_C(14) * 14 * 512 * (3 * 3 * 512);
    uint64_t dense = 4096 * (7 * 7 * 512) + 4096 * 4096 + 1001 * 4096;
    assert_macs("vgg", "vgg11", 1001, first + square256 + square512 + last512 + dense);
    assert_macs("vgg", "vgg16", 1001,
                first + square64 + square128 + 2 * (square256 + square512 + last512) + dense);
    assert_macs("vgg", "vgg19", 1001,
                first + square64 + square128 + 3 * (square256 + square512 + last512) + dense);
}

/* A dense block: layer i reads `in` + i x growth channels. */
static uint64_t dense_block_macs(uint64_t pixels, uint64_t in, uint64_t n_layers, uint64_t growth)
{
    return pixels * growth * 3 * 3 * (n_layers * in + growth * (n_layers * (n_layers - 1) / 2));
}

static uint64_t densenet_macs(uint64_t n_layers, uint64_t growth)
{
    uint64_t c1 = 16 + n_layers * growth, c2 = c1 + n_layers * growth, c3 = c2 + n_layers * growth;
    uint64_t stem = 32 * 32 * 16 * (3 * 3 * 3);
    uint64_t transitions = 32 * 32 * c1 * c1 + 16 * 16 * c2 * c2; /* before their pools */
    return stem + dense_block_macs(32 * 32, 16, n_layers, growth) +
           dense_block_macs(16 * 16, c1, n_layers, growth) +
           dense_block_macs(8 * 8, c2, n_layers, growth) + transitions + 10 * c3;
}

static void test_macs_of_densenet(void **unused)
{
    (void)unused;
    assert_macs("densenet", "densenet40_k12", 10, densenet_macs(12, 12));
    assert_macs("densenet", "densenet100_k12", 10, densenet_macs(32, 12));
    assert_macs("densenet", "densenet100_k24", 10, densenet_macs(32, 24));
}

/* Multiply-accumulates a pixel of a GoogLeNet block: everything in it is of stride 1. */
static uint64_t inception_macs(uint64_t in, uint64_t c1, uint64_t reduce3, uint64_t c3,
                               uint64_t reduce5, uint64_t c5, uint64_t pool)
{
    return in * (c1 + reduce3 + reduce5 + pool) + 3 * 3 * reduce3 * c3 + 5 * 5 * reduce5 * c5;
}

static void test_macs_of_googlenet(void **unused)
{
    (void)unused;
    uint64_t stem =
        UINT64_C(112) * 112 * 64 * (7 * 7 * 3) + 56 * 56 * 64 * 64 + 56 * 56 * 192 * (3 * 3 * 64);
    uint64_t blocks28 = inception_macs(192, 64, 96, 128, 16, 32, 32) +
                        inception_macs(256, 128, 128, 192, 32, 96, 64);
    uint64_t blocks14 = inception_macs(480, 192, 96, 208, 16, 48, 64) +
                        inception_macs(512, 160, 112, 224, 24, 64, 64) +
                        inception_macs(512, 128, 128, 256, 24, 64, 64) +
                        inception_macs(512, 112, 144, 288, 32, 64, 64) +
                        inception_macs(528, 256, 160, 320, 32, 128, 128);
    uint64_t blocks7 = inception_macs(832, 256, 160, 320, 32, 128, 128) +
                       inception_macs(832, 384, 192, 384, 48, 128, 128);
    assert_macs("googlenet", "googlenet", 1001,
                stem + 28 * 28 * blocks28 + 14 * 14 * blocks14 + 7 * 7 * blocks7 + 1001 * 1024);
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

static void test_macs_of_inception3(void **unused)
{
    (void)unused;
    uint64_t stem = 149 * 149 * 32 * (3 * 3 * 3) + UINT64_C(147) * 147 * 32 * (3 * 3 * 32) +
                    UINT64_C(147) * 147 * 64 * (3 * 3 * 32) + 73 * 73 * 80 * 64 +
                    UINT64_C(71) * 71 * 192 * (3 * 3 * 80);
    uint64_t blocks35 =
        inception_a_macs(192, 32) + inception_a_macs(256, 64) + inception_a_macs(288, 64);
    uint64_t reduction35 = 35 * 35 * (288 * 64 + 64 * 96 * (3 * 3)) +
                           UINT64_C(17) * 17 * (3 * 3) * (288 * 384 + 96 * 96);
    uint64_t blocks17 = inception_b_macs(128) + 2 * inception_b_macs(160) + inception_b_macs(192);
    uint64_t reduction17 = UINT64_C(17) * 17 * (768 * 192 * 2 + 2 * 7 * 192 * 192) +
                           8 * 8 * (3 * 3) * (192 * 320 + 192 * 192);
    uint64_t blocks8 = inception_c_macs(1280) + inception_c_macs(2048);
    assert_macs("inception3", "inception3", 1001,
                stem + 35 * 35 * blocks35 + reduction35 + 17 * 17 * blocks17 + reduction17 +
                    8 * 8 * blocks8 + 1001 * 2048);
}

/* --------------------------------------------------------------------------------------- shapes */

static void assert_shape(const struct dpb_graph *graph, const char *name, uint32_t c, uint32_t h,
                         uint32_t w)
{
    struct dpb_shape shape = node_of(graph, name)->shape;
    if (shape.c != c || shape.h != h || shape.w != w)
        fail_msg("%s: %s is %ux%ux%u", graph->name, name, shape.c, shape.h, shape.w);
}

static void assert_padding(const struct dpb_graph *graph, const char *name, uint32_t before,
                           uint32_t after)
{
    struct dpb_window window = node_of(graph, name)->window;
    if (window.pad_top != before || window.pad_left != before || window.pad_bottom != after ||
        window.pad_right != after)
        fail_msg("%s: %s is padded (%u,%u) and (%u,%u)", graph->name, name, window.pad_top,
                 window.pad_bottom, window.pad_left, window.pad_right);
}

static void test_shapes(void **unused)
{
    (void)unused;
    struct dpb_graph *lenet = build("lenet", "lenet", NULL, 10);
    assert_shape(lenet, "input", 1, 28, 28);
    assert_shape(lenet, "pool2", 64, 7, 7);
    assert_shape(lenet, "loss", 1, 1, 1);
    assert_padding(lenet, "conv1", 2, 2);
    assert_padding(lenet, "pool1", 0, 0);
    dpb_graph_destroy(lenet);

    struct dpb_graph *alexnet = build("alexnet_cifar10", "alexnet_cifar10", NULL, 10);
    assert_shape(alexnet, "pool2", 64, 8, 8);
    assert_padding(alexnet, "pool1", 0, 1);
    assert_int_equal(node_of(alexnet, "lrn1")->lrn_radius, 4);
    dpb_graph_destroy(alexnet);

    struct dpb_graph *resnet20 = build("resnet_cifar", "resnet20", NULL, 10);
    assert_shape(resnet20, "layer2.0.shortcut1", 32, 16, 16);
    assert_shape(resnet20, "layer3.2.relu2", 64, 8, 8);
    assert_padding(resnet20, "layer2.0.conv1", 0, 1);
    dpb_graph_destroy(resnet20);

    struct dpb_graph *resnet50 = build("resnet", "resnet50", "v1.5", 1000);
    assert_shape(resnet50, "maxpool", 64, 56, 56);
    assert_shape(resnet50, "layer4.2.relu3", 2048, 7, 7);
    assert_padding(resnet50, "conv1", 3, 3);
    assert_padding(resnet50, "maxpool", 1, 1);
    assert_padding(resnet50, "layer2.0.conv2", 1, 1);
    assert_int_equal(node_of(resnet50, "layer2.0.conv1")->window.stride_h, 1);
    assert_int_equal(node_of(resnet50, "layer2.0.conv2")->window.stride_h, 2);
    assert_true(node_of(resnet50, "bn1")->epsilon == 1e-5);
    assert_true(node_of(resnet50, "bn1")->keep_average == 0.9);
    dpb_graph_destroy(resnet50);

    resnet50 = build("resnet", "resnet50", "v1", 1000);
    assert_int_equal(node_of(resnet50, "layer2.0.conv1")->window.stride_h, 2);
    assert_int_equal(node_of(resnet50, "layer2.0.conv2")->window.stride_h, 1);
    dpb_graph_destroy(resnet50);
}

static void test_shapes_of_chains(void **unused)
{
    (void)unused;
    struct dpb_graph *alexnet = build("alexnet", "alexnet", NULL, 1000);
    assert_shape(alexnet, "conv1", 64, 55, 55);
    assert_shape(alexnet, "pool1", 64, 27, 27);
    assert_shape(alexnet, "pool2", 192, 13, 13);
    assert_shape(alexnet, "pool5", 256, 6, 6);
    assert_padding(alexnet, "conv1", 0, 0);
    assert_padding(alexnet, "conv2", 2, 2);
    assert_padding(alexnet, "pool5", 0, 0);
    assert_true(node_of(alexnet, "dropout_fc2")->rate == 0.5);
    dpb_graph_destroy(alexnet);

    struct dpb_graph *overfeat = build("overfeat", "overfeat", NULL, 1000);
    assert_shape(overfeat, "conv1", 96, 56, 56);
    assert_shape(overfeat, "conv2", 256, 24, 24);
    assert_shape(overfeat, "pool5", 1024, 6, 6);
    assert_padding(overfeat, "conv2", 0, 0);
    assert_padding(overfeat, "conv3", 1, 1);
    dpb_graph_destroy(overfeat);

    struct dpb_graph *vgg11 = build("vgg", "vgg11", NULL, 1000);
    assert_shape(vgg11, "pool1", 64, 112, 112);
    assert_shape(vgg11, "pool4", 512, 14, 14);
    assert_shape(vgg11, "pool5", 512, 7, 7);
    assert_padding(vgg11, "conv5_2", 1, 1);
    assert_true(node_of(vgg11, "dropout_fc1")->rate == 0.5);
    dpb_graph_destroy(vgg11);
    const struct dpb_shape small = {3, 32, 32};
    vgg11 = build_as(load_model("vgg", "vgg11"), NULL, small, 10);
    assert_shape(vgg11, "pool5", 512, 1, 1);
    dpb_graph_destroy(vgg11);

    struct dpb_graph *cifar_cnn = build("cifar_cnn", "cifar_cnn", NULL, 10);
    assert_shape(cifar_cnn, "conv1", 32, 32, 32);
    assert_shape(cifar_cnn, "dropout2", 32, 15, 15);
    assert_shape(cifar_cnn, "dropout4", 64, 6, 6);
    assert_padding(cifar_cnn, "conv3", 1, 1);
    assert_padding(cifar_cnn, "conv4", 0, 0);
    assert_true(node_of(cifar_cnn, "dropout2")->rate == 0.25);
    assert_true(node_of(cifar_cnn, "dropout4")->rate == 0.25);
    assert_true(node_of(cifar_cnn, "dropout_fc1")->rate == 0.5);
    dpb_graph_destroy(cifar_cnn);
}

static void test_shapes_of_blocks(void **unused)
{
    (void)unused;
    struct dpb_graph *googlenet = build("googlenet", "googlenet", NULL, 1000);
    assert_shape(googlenet, "pool2", 192, 28, 28);
    assert_shape(googlenet, "inception3a.concat", 256, 28, 28);
    assert_shape(googlenet, "inception3b.concat", 480, 28, 28);
    assert_shape(googlenet, "pool3", 480, 14, 14);
    assert_shape(googlenet, "inception4e.concat", 832, 14, 14);
    assert_shape(googlenet, "pool4", 832, 7, 7);
    assert_shape(googlenet, "inception5b.concat", 1024, 7, 7);
    assert_padding(googlenet, "conv1", 2, 3);
    assert_padding(googlenet, "pool1", 0, 1);
    assert_padding(googlenet, "inception3a.pool", 1, 1);
    assert_true(node_of(googlenet, "dropout")->rate == 0.4);
    dpb_graph_destroy(googlenet);

    struct dpb_graph *inception3 = build("inception3", "inception3", NULL, 1000);
    assert_shape(inception3, "conv2b", 64, 147, 147);
    assert_shape(inception3, "pool5a", 192, 35, 35);
    assert_shape(inception3, "mixed5b.concat", 256, 35, 35);
    assert_shape(inception3, "mixed5d.concat", 288, 35, 35);
    assert_shape(inception3, "mixed6a.concat", 768, 17, 17);
    assert_shape(inception3, "mixed6e.concat", 768, 17, 17);
    assert_shape(inception3, "mixed7a.concat", 1280, 8, 8);
    assert_shape(inception3, "mixed7b.concat", 2048, 8, 8);
    assert_shape(inception3, "mixed7c.concat", 2048, 8, 8);
    assert_padding(inception3, "conv1a", 0, 0);
    assert_padding(inception3, "conv2b", 1, 1);
    assert_padding(inception3, "mixed5b.pool", 1, 1);
    assert_padding(inception3, "mixed6a.conv3x3", 0, 0);
    assert_int_equal(node_of(inception3, "mixed7c.pool")->op, DPB_OP_MEAN_POOL);
    const struct dpb_window *window = &node_of(inception3, "mixed6b.conv7x7_2")->window;
    assert_true(window->kernel_h == 1 && window->kernel_w == 7);
    assert_true(window->pad_top == 0 && window->pad_left == 3 && window->pad_right == 3);
    window = &node_of(inception3, "mixed6b.conv7x7dbl_2")->window;
    assert_true(window->kernel_h == 7 && window->kernel_w == 1);
    assert_true(node_of(inception3, "bn1a")->epsilon == 1e-3);
    assert_true(node_of(inception3, "bn1a")->weight == DPB_NONE);
    assert_true(node_of(inception3, "dropout")->rate == 0.2);
    dpb_graph_destroy(inception3);

    struct dpb_graph *densenet = build("densenet", "densenet40_k12", NULL, 10);
    assert_shape(densenet, "block1.concat12", 160, 32, 32);
    assert_shape(densenet, "transition.pool1", 160, 16, 16);
    assert_shape(densenet, "block2.concat12", 304, 16, 16);
    assert_shape(densenet, "block3.concat12", 448, 8, 8);
    assert_shape(densenet, "relu1", 448, 8, 8);
    assert_int_equal(node_of(densenet, "block3.conv12")->bias, DPB_NONE);
    assert_padding(densenet, "block1.conv1", 1, 1);
    dpb_graph_destroy(densenet);
}

static void test_tiny_has_every_op(void **unused)
{
    (void)unused;
    struct dpb_graph *graph = build("tiny", "tiny", NULL, 5);
    bool seen[DPB_OPS] = {false};
    bool bias[2] = {false}, gamma[2] = {false}, dense_bias[2] = {false};
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        seen[node->op] = true;
        if (node->op == DPB_OP_CONV)
            bias[node->bias != DPB_NONE] = true;
        if (node->op == DPB_OP_DENSE)
            dense_bias[node->bias != DPB_NONE] = true;
        if (node->op == DPB_OP_BATCH_NORM)
            gamma[node->weight != DPB_NONE] = true;
    }
    for (int op = 0; op < DPB_OPS; op++)
        assert_true(seen[op]);
    assert_true(bias[0] && bias[1] && gamma[0] && gamma[1] && dense_bias[0] && dense_bias[1]);
    assert_true(graph->n_parameters <= 2000);
    dpb_graph_destroy(graph);
}

/* 'same' against its definition on every small size: ceil(in / stride) windows that fit, the first
 * and the last of which see a pixel, and an even split with the odd one after. */
static uint32_t same_kernel, same_stride;

static dpb_status build_same(const void *options, const struct dpb_graph_ops *g,
                             struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    const struct dpb_pool_args args = {.kernel = same_kernel, .stride = same_stride};
    uint32_t x = g->max_pool(b, "pool", g->input(b), &args);
    x = g->dense(b, "fc", x, nclass, false);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static void test_same_padding(void **unused)
{
    static const struct dpb_model_ops model = {.build = build_same};
    (void)unused;
    for (uint32_t in = 1; in <= 12; in++) {
        for (same_kernel = 1; same_kernel <= 6; same_kernel++) {
            for (same_stride = 1; same_stride <= 6; same_stride++) {
                struct dpb_graph *graph;
                struct dpb_shape shape = {1, in, in};
                assert_int_equal(dpb_graph_build("same", &model, NULL, shape, 2, &graph), DPB_OK);
                const struct dpb_node *pool = node_of(graph, "pool");
                uint32_t before = pool->window.pad_top, after = pool->window.pad_bottom;
                uint32_t out = (in + same_stride - 1) / same_stride;
                assert_int_equal(pool->shape.h, out);
                assert_true(after == before || after == before + 1);
                assert_true(before < same_kernel && after < same_kernel);
                uint32_t covered = (out - 1) * same_stride + same_kernel;
                assert_int_equal(before + after, covered > in ? covered - in : 0);
                dpb_graph_destroy(graph);
            }
        }
    }
}

/* --------------------------------------------------------------------------------------- layout */

static void check_tensors(const struct dpb_graph *graph)
{
    uint64_t end = 0, parameters = 0;
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct dpb_tensor *tensor = &graph->tensors[i];
        const struct dpb_node *node = &graph->nodes[tensor->node];
        assert_int_equal(tensor->offset % DPB_TENSOR_ALIGN, 0);
        assert_int_equal(tensor->offset,
                         (end + DPB_TENSOR_ALIGN - 1) / DPB_TENSOR_ALIGN * DPB_TENSOR_ALIGN);
        end = tensor->offset + tensor->n_elements;
        parameters += tensor->n_elements;

        bool weight = node->weight == i;
        assert_true(weight || node->bias == i);
        if (i > 0) {
            const struct dpb_tensor *before = &graph->tensors[i - 1];
            bool same_node = before->node == tensor->node;
            assert_true(before->node > tensor->node || (same_node && !weight));
        }
        uint64_t product = 1;
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            product *= tensor->dims[k];
        assert_int_equal(tensor->n_elements, product);
        assert_true(tensor->decays == (tensor->n_dims > 1));

        char name[128];
        snprintf(name, sizeof name, "%s.%s", node->name, weight ? "weight" : "bias");
        assert_string_equal(tensor->name, name);

        uint64_t next = i + 1 < graph->n_tensors ? graph->tensors[i + 1].offset : graph->n_elements;
        assert_int_equal(dpb_graph_tensor_at(graph, tensor->offset), i);
        assert_int_equal(dpb_graph_tensor_at(graph, next - 1), i); /* last element, or the gap */
    }
    assert_int_equal(graph->n_parameters, parameters);
    assert_int_equal(graph->n_elements,
                     (end + DPB_TENSOR_ALIGN - 1) / DPB_TENSOR_ALIGN * DPB_TENSOR_ALIGN);
}

static void check_states(const struct dpb_graph *graph)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < graph->n_states; i++) {
        const struct dpb_state *state = &graph->states[i];
        const struct dpb_node *node = &graph->nodes[state->node];
        bool mean = node->mean == i;
        assert_true(mean || node->variance == i);
        assert_int_equal(state->offset,
                         (end + DPB_TENSOR_ALIGN - 1) / DPB_TENSOR_ALIGN * DPB_TENSOR_ALIGN);
        assert_int_equal(state->n_elements, node->shape.c);
        assert_true(i == 0 || graph->states[i - 1].node <= state->node);
        assert_true(state->keep_average == node->keep_average);
        char name[128];
        snprintf(name, sizeof name, "%s.%s", node->name, mean ? "running_mean" : "running_var");
        assert_string_equal(state->name, name);
        end = state->offset + state->n_elements;
    }
    assert_int_equal(graph->n_state_elements % DPB_TENSOR_ALIGN, 0);
    assert_true(graph->n_state_elements >= end && graph->n_state_elements < end + DPB_TENSOR_ALIGN);
}

static void test_layout(void **unused)
{
    static const char *const models[][2] = {{"tiny", "tiny"},
                                            {"tiny", "tiny_dense"},
                                            {"tiny", "tiny_bn"},
                                            {"lenet", "lenet"},
                                            {"resnet_cifar", "resnet20"},
                                            {"resnet", "resnet50"},
                                            {"vgg", "vgg19"},
                                            {"googlenet", "googlenet"},
                                            {"inception3", "inception3"},
                                            {"densenet", "densenet100_k24"},
                                            {"cifar_cnn", "cifar_cnn"}};
    (void)unused;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct dpb_graph *graph = build(models[i][0], models[i][1], NULL, 7);
        check_tensors(graph);
        check_states(graph);
        dpb_graph_destroy(graph);
    }
    struct dpb_graph *lenet = build("lenet", "lenet", NULL, 10);
    assert_string_equal(lenet->tensors[0].name, "fc2.weight");
    assert_string_equal(lenet->tensors[1].name, "fc2.bias");
    assert_string_equal(lenet->tensors[7].name, "conv1.bias");
    dpb_graph_destroy(lenet);
}

static void test_hash(void **unused)
{
    (void)unused;
    const struct dpb_plugin *lenet = load_model("lenet", "lenet");
    const struct dpb_plugin *resnet50 = load_model("resnet", "resnet50");
    const struct dpb_shape digit = {1, 28, 28}, larger = {1, 29, 29}, image = {3, 224, 224};
    struct dpb_graph *graphs[] = {
        build_as(lenet, NULL, digit, 10),        build_as(lenet, NULL, digit, 11),
        build_as(lenet, NULL, larger, 10),       build_as(resnet50, "v1", image, 1000),
        build_as(resnet50, "v1.5", image, 1000), build_as(resnet50, "v2", image, 1000),
    };
    struct dpb_graph *again = build_as(lenet, NULL, digit, 10);
    assert_true(dpb_graph_hash(graphs[0]) == dpb_graph_hash(again));
    dpb_graph_destroy(again);
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        for (size_t k = 0; k < i; k++)
            assert_true(dpb_graph_hash(graphs[i]) != dpb_graph_hash(graphs[k]));
    }
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++)
        dpb_graph_destroy(graphs[i]);
    dpb_graph_destroy(NULL);
}

/* -------------------------------------------------------------------------------- initial values
 */

static double *initial_weights(const struct dpb_graph *graph, uint64_t seed)
{
    double *weights = malloc(graph->n_elements * sizeof *weights);
    assert_non_null(weights);
    dpb_graph_initialise(graph, seed, DPB_FP64, weights);
    return weights;
}

/* Mean within 5 and standard deviation within 5 of their own standard deviations. */
static void assert_normal(const struct dpb_graph *graph, const double *weights, const char *name,
                          double stddev)
{
    const struct dpb_tensor *tensor = tensor_of(graph, name);
    double n = (double)tensor->n_elements, sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < tensor->n_elements; i++)
        sum += weights[tensor->offset + i];
    for (uint64_t i = 0; i < tensor->n_elements; i++) {
        double difference = weights[tensor->offset + i] - sum / n;
        squares += difference * difference;
    }
    if (fabs(sum / n) > 5.0 * stddev / sqrt(n))
        fail_msg("%s: mean %g", name, sum / n);
    if (fabs(sqrt(squares / (n - 1.0)) / stddev - 1.0) > 5.0 / sqrt(2.0 * n))
        fail_msg("%s: standard deviation %g, not %g", name, sqrt(squares / (n - 1.0)), stddev);
}

static void assert_constant(const struct dpb_graph *graph, const double *weights, const char *name,
                            double value)
{
    const struct dpb_tensor *tensor = tensor_of(graph, name);
    for (uint64_t i = 0; i < tensor->n_elements; i++)
        assert_true(weights[tensor->offset + i] == value);
}

static void test_initial_values(void **unused)
{
    (void)unused;
    struct dpb_graph *lenet = build("lenet", "lenet", NULL, 100);
    double *weights = initial_weights(lenet, 1);
    assert_normal(lenet, weights, "conv1.weight", sqrt(2.0 / (5 * 5 * 1)));
    assert_normal(lenet, weights, "conv2.weight", sqrt(2.0 / (5 * 5 * 32)));
    assert_normal(lenet, weights, "fc1.weight", sqrt(2.0 / (7 * 7 * 64)));
    assert_normal(lenet, weights, "fc2.weight", sqrt(1.0 / 512));
    assert_constant(lenet, weights, "conv1.bias", 0.0);
    assert_constant(lenet, weights, "fc2.bias", 0.0);
    free(weights);
    dpb_graph_destroy(lenet);

    struct dpb_graph *resnet20 = build("resnet_cifar", "resnet20", NULL, 10);
    weights = initial_weights(resnet20, 2);
    assert_normal(resnet20, weights, "layer3.2.conv2.weight", sqrt(2.0 / (3 * 3 * 64)));
    assert_normal(resnet20, weights, "fc.weight", sqrt(1.0 / 64));
    assert_constant(resnet20, weights, "layer3.2.bn2.weight", 1.0);
    assert_constant(resnet20, weights, "layer3.2.bn2.bias", 0.0);
    free(weights);
    dpb_graph_destroy(resnet20);
}

static void test_initial_values_by_type_and_seed(void **unused)
{
    (void)unused;
    struct dpb_graph *graph = build("tiny", "tiny", NULL, 5);
    double *weights = initial_weights(graph, 3), *others = initial_weights(graph, 4);
    float *rounded = malloc(graph->n_elements * sizeof *rounded);
    assert_non_null(rounded);
    memset(rounded, 0xff, graph->n_elements * sizeof *rounded);
    dpb_graph_initialise(graph, 3, DPB_FP32, rounded);
    uint64_t n_equal = 0, n_zero = 0;
    for (uint64_t i = 0; i < graph->n_elements; i++) {
        assert_true(rounded[i] == (float)weights[i]);
        n_equal += weights[i] == others[i];
        n_zero += weights[i] == 0.0;
    }
    /* Gaps and what is constant: biases (5 + 5), gamma (7), beta (7 + 3). */
    uint64_t gaps = graph->n_elements - graph->n_parameters;
    assert_int_equal(n_equal, gaps + 10 + 7 + 10);
    assert_int_equal(n_zero, gaps + 10 + 10);
    free(weights);
    free(others);
    free(rounded);

    double *state = malloc(graph->n_state_elements * sizeof *state);
    assert_non_null(state);
    dpb_graph_initialise_state(graph, DPB_FP64, state);
    for (uint32_t i = 0; i < graph->n_states; i++) {
        const struct dpb_state *one = &graph->states[i];
        double expected = graph->nodes[one->node].variance == i ? 1.0 : 0.0;
        for (uint64_t k = 0; k < one->n_elements; k++)
            assert_true(state[one->offset + k] == expected);
    }
    free(state);
    dpb_graph_destroy(graph);
}

/* --------------------------------------------------------------------------------------- errors */

/* The mistakes: each function adds nodes to what `build_wrong` goes on with. */
typedef uint32_t mistake(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x);

static mistake *current_mistake;

static dpb_status build_wrong(const void *options, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    uint32_t x = current_mistake(g, b, g->input(b));
    x = g->relu(b, "after", x);
    x = g->dense(b, "fc", x, nclass, true);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

static uint32_t window_too_large(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                 uint32_t x)
{
    return g->max_pool(b, "big", x, &(struct dpb_pool_args){.kernel = 8, .padding = DPB_PAD_VALID});
}

static uint32_t kernel_of_zero(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                               uint32_t x)
{
    return g->conv(b, "empty", x, &(struct dpb_conv_args){.channels = 3});
}

static uint32_t no_channels(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    return g->conv(b, "none", x, &(struct dpb_conv_args){.kernel_h = 3});
}

static uint32_t padding_alone(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->mean_pool(
        b, "padded", x,
        &(struct dpb_pool_args){.kernel = 2, .padding = DPB_PAD_EXPLICIT, .after = 2});
}

static uint32_t padding_unused(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                               uint32_t x)
{
    return g->mean_pool(b, "unused", x, &(struct dpb_pool_args){.kernel = 2, .before = 1});
}

static uint32_t name_twice(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    return g->relu(b, "twin", g->relu(b, "twin", x));
}

static uint32_t name_of_nothing(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                uint32_t x)
{
    return g->relu(b, "a name", x);
}

static uint32_t concat_of_heights(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                  uint32_t x)
{
    uint32_t y = g->shortcut(b, "half", x, 3, 2);
    return g->concat(b, "joined", (const uint32_t[]){x, y}, 2);
}

static uint32_t concat_of_one(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->concat(b, "alone", &x, 1);
}

static uint32_t add_of_shapes(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->add(b, "sum", x, g->shortcut(b, "wide", x, 4, 1));
}

static uint32_t shortcut_to_fewer(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                  uint32_t x)
{
    return g->shortcut(b, "narrow", x, 2, 1);
}

static uint32_t rate_of_one(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    return g->dropout(b, "drop", x, 1.0);
}

static uint32_t tensor_too_large(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                 uint32_t x)
{
    return g->dense(b, "huge", x, UINT32_MAX, false);
}

static uint32_t input_unknown(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                              uint32_t x)
{
    return g->relu(b, "astray", x + 1);
}

static uint32_t node_unread(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x)
{
    g->relu(b, "dangling", x);
    return x;
}

static uint32_t loss_too_early(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                               uint32_t x)
{
    return g->softmax_loss(b, "first_loss", g->dense(b, "first_fc", x, 5, true));
}

static uint32_t loss_of_wrong_classes(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                                      uint32_t x)
{
    return g->softmax_loss(b, "wrong_loss", g->dense(b, "six", x, 6, true));
}

/* The message names the node and the reason, the first mistake counts, nothing leaks. */
static void test_mistakes(void **unused)
{
    static const struct {
        mistake *mistake;
        const char *node, *reason;
    } rows[] = {
        {window_too_large, "'big'", "8x8 window does not fit into 7x7"},
        {kernel_of_zero, "'empty'", "kernel"},
        {no_channels, "'none'", "no elements"},
        {padding_alone, "'padded'", "padding (0,2)"},
        {padding_unused, "'unused'", "padding (1,0)"},
        {name_twice, "'twin'", "used twice"},
        {name_of_nothing, "'a name'", "letters"},
        {concat_of_heights, "'joined'", "'input' of 7x7 pixels and 'half' of 4x4"},
        {concat_of_one, "'alone'", "joins 1 nodes"},
        {add_of_shapes, "'sum'", "'input' of 3x7x7 and 'wide' of 4x7x7"},
        {shortcut_to_fewer, "'narrow'", "makes 2 channels of 3"},
        {rate_of_one, "'drop'", "rate 1"},
        {tensor_too_large, "'huge'", "2^32"},
        {input_unknown, "'astray'", "not a node"},
        {node_unread, "'dangling'", "no other node uses it"},
        {loss_too_early, "'after'", "after the loss"},
        {loss_of_wrong_classes, "'wrong_loss'", "'six' of 6x1x1 for 5 classes"},
    };
    static const struct dpb_model_ops model = {.build = build_wrong};
    (void)unused;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_graph *graph = NULL;
        current_mistake = rows[i].mistake;
        dpb_first_error_clear();
        dpb_status status =
            dpb_graph_build("wrong", &model, NULL, (struct dpb_shape){3, 7, 7}, 5, &graph);
        const char *message = dpb_first_error(NULL);
        if (status != DPB_USAGE || graph || !strstr(message, "model 'wrong'") ||
            !strstr(message, rows[i].node) || !strstr(message, rows[i].reason))
            fail_msg("expected node %s: %s; got: %s", rows[i].node, rows[i].reason, message);
    }
    dpb_first_error_clear();
}

static dpb_status build_without_loss(const void *options, const struct dpb_graph_ops *g,
                                     struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    g->dense(b, "fc", g->input(b), nclass, true);
    return DPB_OK;
}

static dpb_status build_without_weights(const void *options, const struct dpb_graph_ops *g,
                                        struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    (void)nclass;
    g->softmax_loss(b, "loss", g->global_mean(b, "mean", g->input(b)));
    return DPB_OK;
}

static dpb_status build_failing(const void *options, const struct dpb_graph_ops *g,
                                struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)options;
    (void)nclass;
    g->relu(b, "relu", g->input(b));
    return DPB_UNSUPPORTED; /* a real model has written its message by now */
}

static void test_unfinished_models(void **unused)
{
    static const struct dpb_model_ops without_loss = {.build = build_without_loss};
    static const struct dpb_model_ops without_weights = {.build = build_without_weights};
    static const struct dpb_model_ops failing = {.build = build_failing};
    const struct dpb_shape image = {3, 7, 7}, flat = {3, 0, 7}, deep = {5, 7, 7};
    struct dpb_graph *graph = NULL;
    (void)unused;
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &without_loss, NULL, image, 5, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "has no loss"));
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &without_weights, NULL, image, 3, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "nothing to train"));
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &failing, NULL, image, 3, &graph), DPB_UNSUPPORTED);
    assert_string_equal(dpb_first_error(NULL), "");
    assert_int_equal(dpb_graph_build("m", &without_loss, NULL, flat, 5, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "'input'"));
    dpb_first_error_clear();
    assert_int_equal(dpb_graph_build("m", &without_loss, NULL, deep, 5, &graph), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "1 to 4 channels, not 5"));
    dpb_first_error_clear();
    assert_null(graph);
}

int main(void)
{
    dpb_log_set_hooks(&(struct dpb_log_hooks){.silent = true});
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_macs_of_small_models),
        cmocka_unit_test(test_macs_of_resnet50),
        cmocka_unit_test(test_macs_of_chains),
        cmocka_unit_test(test_macs_of_densenet),
        cmocka_unit_test(test_macs_of_googlenet),
        cmocka_unit_test(test_macs_of_inception3),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_shapes_of_chains),
        cmocka_unit_test(test_shapes_of_blocks),
        cmocka_unit_test(test_tiny_has_every_op),
        cmocka_unit_test(test_same_padding),
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_initial_values_by_type_and_seed),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_unfinished_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
