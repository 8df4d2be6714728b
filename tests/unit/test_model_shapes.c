/*
 * test_model_shapes.c - every network's shapes, strides, padding and rates, layer by layer where it
 * matters. Counts: test_model_counts.c.
 */
#include <stdio.h>
#include <string.h>

#include "lib/model.h"
#include "lib/own.h"
#include "lib/test.h"

/* A node's property, as the rows below write it. */
static void describe(const struct dpb_node *node, const char *what, char is[64])
{
    const struct dpb_window *w = &node->window;
    const bool even = w->pad_top == w->pad_left && w->pad_bottom == w->pad_right;
    if (strcmp(what, "shape") == 0)
        snprintf(is, 64, "%ux%ux%u", node->shape.c, node->shape.h, node->shape.w);
    else if (strcmp(what, "pad") == 0 && even)
        snprintf(is, 64, "%u %u", w->pad_top, w->pad_bottom);
    else if (strncmp(what, "pad", 3) == 0)
        snprintf(is, 64, "%u %u %u %u", w->pad_top, w->pad_left, w->pad_bottom, w->pad_right);
    else if (strcmp(what, "kernel") == 0)
        snprintf(is, 64, "%ux%u", w->kernel_h, w->kernel_w);
    else if (strcmp(what, "stride") == 0)
        snprintf(is, 64, "%u", w->stride_h);
    else if (strcmp(what, "groups") == 0)
        snprintf(is, 64, "%u", node->groups);
    else if (strcmp(what, "radius") == 0)
        snprintf(is, 64, "%u", node->lrn_radius);
    else if (strcmp(what, "rate") == 0)
        snprintf(is, 64, "%.15g", node->rate);
    else if (strcmp(what, "epsilon") == 0)
        snprintf(is, 64, "%.15g", node->epsilon);
    else if (strcmp(what, "keeps") == 0)
        snprintf(is, 64, "%.15g", node->keep_average);
    else if (strcmp(what, "bias") == 0)
        snprintf(is, 64, "%s", node->bias == DPB_NONE ? "no" : "yes");
    else if (strcmp(what, "gamma") == 0)
        snprintf(is, 64, "%s", node->weight == DPB_NONE ? "no" : "yes");
    else if (strcmp(what, "mean") == 0)
        snprintf(is, 64, "%s", node->op == DPB_OP_MEAN_POOL ? "yes" : "no");
    else
        fail_msg("a node has no '%s'", what);
}

/* Of a square image, where the model's own is not meant. Of nodes: NODE PROPERTY VALUE, ...
 * `pad` is before and after, in both directions; `pads` is top, left, bottom, right. */
static const struct {
    const char *model, *version;
    uint32_t nclass, image;
    const char *facts;
} rows[] = {
    {"lenet", NULL, 10, 0,
     "input shape 1x28x28, pool2 shape 64x7x7, loss shape 1x1x1, conv1 pad 2 2, pool1 pad 0 0"},
    {"alexnet_cifar10", NULL, 10, 0, "pool2 shape 64x8x8, pool1 pad 0 1, lrn1 radius 4"},
    {"resnet20", NULL, 10, 0,
     "layer2.0.shortcut1 shape 32x16x16, layer3.2.relu2 shape 64x8x8, layer2.0.conv1 pad 0 1"},
    {"resnet50", "v1.5", 1000, 0,
     "maxpool shape 64x56x56, layer4.2.relu3 shape 2048x7x7, conv1 pad 3 3, maxpool pad 1 1, "
     "layer2.0.conv2 pad 1 1, layer2.0.conv1 stride 1, layer2.0.conv2 stride 2, bn1 epsilon "
     "1e-05, bn1 keeps 0.9"},
    {"resnet50", "v1", 1000, 0, "layer2.0.conv1 stride 2, layer2.0.conv2 stride 1"},
    {"resnext50_32x4d", NULL, 1000, 0,
     "layer1.0.conv2 shape 128x56x56, layer1.2.relu3 shape 256x56x56, layer4.2.relu3 shape "
     "2048x7x7, layer4.0.conv1 groups 1, layer4.0.conv2 groups 32, layer4.0.conv2 stride 2, "
     "layer4.0.downsample.0 groups 1, layer2.0.conv2 pad 1 1"},
    {"mobilenet_v1", NULL, 1000, 0,
     "conv1 shape 32x112x112, block2.conv1 shape 64x56x56, block2.relu2 shape 128x56x56, "
     "block13.relu2 shape 1024x7x7, block12.conv1 groups 512, block12.conv1 stride 2, "
     "block12.conv2 groups 1, block1.conv1 pad 1 1, block12.conv1 pad 0 1"},
    {"alexnet", NULL, 1000, 0,
     "conv1 shape 64x55x55, pool1 shape 64x27x27, pool2 shape 192x13x13, pool5 shape 256x6x6, "
     "conv1 pad 0 0, conv2 pad 2 2, pool5 pad 0 0, dropout_fc2 rate 0.5"},
    {"overfeat", NULL, 1000, 0,
     "conv1 shape 96x56x56, conv2 shape 256x24x24, pool5 shape 1024x6x6, conv2 pad 0 0, conv3 "
     "pad 1 1"},
    {"vgg11", NULL, 1000, 0,
     "pool1 shape 64x112x112, pool4 shape 512x14x14, pool5 shape 512x7x7, conv5_2 pad 1 1, "
     "dropout_fc1 rate 0.5"},
    {"vgg11", NULL, 10, 32, "pool5 shape 512x1x1"},
    {"vgg16_cifar", NULL, 100, 0,
     "pool1 shape 64x16x16, pool4 shape 512x2x2, bn_fc1 shape 512x1x1, dropout1_1 rate 0.3, "
     "dropout5_2 rate 0.4, dropout_fc1 rate 0.5, bn5_3 epsilon 0.001"},
    {"cifar_cnn", NULL, 10, 0,
     "conv1 shape 32x32x32, dropout2 shape 32x15x15, dropout4 shape 64x6x6, conv3 pad 1 1, "
     "conv4 pad 0 0, dropout2 rate 0.25, dropout4 rate 0.25, dropout_fc1 rate 0.5"},
    {"googlenet", NULL, 1000, 0,
     "pool2 shape 192x28x28, inception3a.concat shape 256x28x28, inception3b.concat shape "
     "480x28x28, pool3 shape 480x14x14, inception4e.concat shape 832x14x14, pool4 shape "
     "832x7x7, inception5b.concat shape 1024x7x7, conv1 pad 2 3, pool1 pad 0 1, "
     "inception3a.pool pad 1 1, dropout rate 0.4"},
    {"inception3", NULL, 1000, 0,
     "conv2b shape 64x147x147, pool5a shape 192x35x35, mixed5b.concat shape 256x35x35, "
     "mixed5d.concat shape 288x35x35, mixed6a.concat shape 768x17x17, mixed6e.concat shape "
     "768x17x17, mixed7a.concat shape 1280x8x8, mixed7b.concat shape 2048x8x8, mixed7c.concat "
     "shape 2048x8x8, conv1a pad 0 0, conv2b pad 1 1, mixed5b.pool pad 1 1, mixed6a.conv3x3 "
     "pad 0 0, bn1a epsilon 0.001, dropout rate 0.2, mixed6b.conv7x7_2 kernel 1x7, "
     "mixed6b.conv7x7_2 pads 0 3 0 3, mixed6b.conv7x7dbl_2 kernel 7x1, bn1a gamma no, "
     "mixed7c.pool mean yes"},
    {"densenet40_k12", NULL, 10, 0,
     "block1.concat12 shape 160x32x32, transition.pool1 shape 160x16x16, block2.concat12 shape "
     "304x16x16, block3.concat12 shape 448x8x8, relu1 shape 448x8x8, block3.conv12 bias no, "
     "block1.conv1 pad 1 1"},
    {"densenet100_k24", "tf", 10, 0,
     "block1.concat32 shape 784x32x32, transition.relu_conv1 shape 48x32x32, transition.pool1 "
     "shape 48x16x16, block3.concat32 shape 816x8x8, block3.conv32 bias yes"},
    {"gpt2", NULL, 50257, 0,
     "tokens shape 768x1x1024, block1.qkv shape 2304x1x1024, block12.add2 shape 768x1x1024, head "
     "shape 50257x1x1024, loss shape 1x1x1024, norm epsilon 1e-05"},
    {"vit_s16", NULL, 1000, 0,
     "patches shape 384x14x14, class shape 384x1x197, block1.qkv shape 1152x1x197, "
     "block12.attention shape 384x1x197, block12.fc1 shape 1536x1x197, first shape 384x1x1, "
     "patches pad 0 0, norm epsilon 1e-06"},
    {"vit_b32", NULL, 10, 384, "patches shape 768x12x12, class shape 768x1x145"},
};

TEST(test_nodes)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct dpb_plugin *model = model_find(rows[i].model);
        struct dpb_shape input = model_info(model).input;
        if (rows[i].image > 0)
            input.h = input.w = rows[i].image;
        const struct dpb_graph *graph =
            own_graph(model_graph(model, rows[i].version, input, rows[i].nclass));
        char facts[1024], *rest = strcpy(facts, rows[i].facts);
        for (char *fact = strsep(&rest, ","); fact; fact = strsep(&rest, ",")) {
            char node[64], what[16], is[64];
            int value = 0;
            assert_int_equal(sscanf(fact, "%63s %15s %n", node, what, &value), 2);
            describe(graph_node(graph, node), what, is);
            if (strcmp(is, fact + value) != 0)
                fail_msg("%s: %s, not %s", graph->name, fact, is);
        }
    }
}

/* With model.zero_gamma the last batch-norm of each residual block begins at zero, no other. */
static void check_zero_gamma(const char *name, const char *last, uint32_t n_blocks)
{
    const struct dpb_plugin *model = model_find(name);
    union {
        char bytes[64];
        double aligned;
    } options = {{0}};
    struct dpb_graph *graph = NULL;
    const struct dpb_option *row = model->options;
    uint32_t n_zero = 0;
    while (row->name && strcmp(row->name, "zero_gamma") != 0)
        row++;
    assert_non_null(row->name);
    *(bool *)(options.bytes + row->offset) = true;
    assert_int_equal(
        dpb_graph_build(name, model->ops, &options, model_info(model).input, 10, &graph), DPB_OK);
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct dpb_tensor *tensor = &graph->tensors[i];
        const bool gamma = graph->nodes[tensor->node].op == DPB_OP_BATCH_NORM &&
                           strstr(tensor->name, ".weight") != NULL;
        const bool is_last = gamma && strstr(tensor->name, last) && strstr(tensor->name, "layer");
        if (gamma)
            assert_true(tensor->init_value == (is_last ? 0.0 : 1.0));
        n_zero += is_last;
    }
    assert_int_equal(n_zero, n_blocks);
    dpb_graph_destroy(graph);
}

TEST(test_zero_gamma)
{
    check_zero_gamma("resnet20", ".bn2.", 9);
    check_zero_gamma("resnet50", ".bn3.", 16);
    check_zero_gamma("resnext50_32x4d", ".bn3.", 16);
}

TEST_MAIN(NULL, NULL)
