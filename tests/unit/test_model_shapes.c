/*
 * test_model_shapes.c - every network's shapes, strides, padding and rates, layer by layer where it
 * matters. Counts: test_model_counts.c.
 */
#include <string.h>

#include "lib/model.h"
#include "lib/own.h"
#include "lib/test.h"

static void assert_shape(const struct dpb_graph *graph, const char *name, uint32_t c, uint32_t h,
                         uint32_t w)
{
    struct dpb_shape shape = graph_node(graph, name)->shape;
    if (shape.c != c || shape.h != h || shape.w != w)
        fail_msg("%s: %s is %ux%ux%u", graph->name, name, shape.c, shape.h, shape.w);
}

static void assert_padding(const struct dpb_graph *graph, const char *name, uint32_t before,
                           uint32_t after)
{
    struct dpb_window window = graph_node(graph, name)->window;
    if (window.pad_top != before || window.pad_left != before || window.pad_bottom != after ||
        window.pad_right != after)
        fail_msg("%s: %s is padded (%u,%u) and (%u,%u)", graph->name, name, window.pad_top,
                 window.pad_bottom, window.pad_left, window.pad_right);
}

TEST(test_shapes)
{
    struct dpb_graph *lenet = model_build("lenet", NULL, 10);
    assert_shape(lenet, "input", 1, 28, 28);
    assert_shape(lenet, "pool2", 64, 7, 7);
    assert_shape(lenet, "loss", 1, 1, 1);
    assert_padding(lenet, "conv1", 2, 2);
    assert_padding(lenet, "pool1", 0, 0);

    struct dpb_graph *alexnet = model_build("alexnet_cifar10", NULL, 10);
    assert_shape(alexnet, "pool2", 64, 8, 8);
    assert_padding(alexnet, "pool1", 0, 1);
    assert_int_equal(graph_node(alexnet, "lrn1")->lrn_radius, 4);

    struct dpb_graph *resnet20 = model_build("resnet20", NULL, 10);
    assert_shape(resnet20, "layer2.0.shortcut1", 32, 16, 16);
    assert_shape(resnet20, "layer3.2.relu2", 64, 8, 8);
    assert_padding(resnet20, "layer2.0.conv1", 0, 1);

    struct dpb_graph *resnet50 = model_build("resnet50", "v1.5", 1000);
    assert_shape(resnet50, "maxpool", 64, 56, 56);
    assert_shape(resnet50, "layer4.2.relu3", 2048, 7, 7);
    assert_padding(resnet50, "conv1", 3, 3);
    assert_padding(resnet50, "maxpool", 1, 1);
    assert_padding(resnet50, "layer2.0.conv2", 1, 1);
    assert_int_equal(graph_node(resnet50, "layer2.0.conv1")->window.stride_h, 1);
    assert_int_equal(graph_node(resnet50, "layer2.0.conv2")->window.stride_h, 2);
    assert_true(graph_node(resnet50, "bn1")->epsilon == 1e-5);
    assert_true(graph_node(resnet50, "bn1")->keep_average == 0.9);

    resnet50 = model_build("resnet50", "v1", 1000);
    assert_int_equal(graph_node(resnet50, "layer2.0.conv1")->window.stride_h, 2);
    assert_int_equal(graph_node(resnet50, "layer2.0.conv2")->window.stride_h, 1);
}

TEST(test_shapes_of_groups)
{
    struct dpb_graph *resnext50 = model_build("resnext50_32x4d", NULL, 1000);
    assert_shape(resnext50, "layer1.0.conv2", 128, 56, 56);
    assert_shape(resnext50, "layer1.2.relu3", 256, 56, 56);
    assert_shape(resnext50, "layer4.2.relu3", 2048, 7, 7);
    assert_int_equal(graph_node(resnext50, "layer4.0.conv1")->groups, 1);
    assert_int_equal(graph_node(resnext50, "layer4.0.conv2")->groups, 32);
    assert_int_equal(graph_node(resnext50, "layer4.0.conv2")->window.stride_h, 2);
    assert_int_equal(graph_node(resnext50, "layer4.0.downsample.0")->groups, 1);
    assert_padding(resnext50, "layer2.0.conv2", 1, 1);

    struct dpb_graph *mobilenet = model_build("mobilenet_v1", NULL, 1000);
    assert_shape(mobilenet, "conv1", 32, 112, 112);
    assert_shape(mobilenet, "block2.conv1", 64, 56, 56);
    assert_shape(mobilenet, "block2.relu2", 128, 56, 56);
    assert_shape(mobilenet, "block13.relu2", 1024, 7, 7);
    assert_int_equal(graph_node(mobilenet, "block12.conv1")->groups, 512);
    assert_int_equal(graph_node(mobilenet, "block12.conv1")->window.stride_h, 2);
    assert_int_equal(graph_node(mobilenet, "block12.conv2")->groups, 1);
    assert_padding(mobilenet, "block1.conv1", 1, 1);
    assert_padding(mobilenet, "block12.conv1", 0, 1);
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

TEST(test_shapes_of_chains)
{
    struct dpb_graph *alexnet = model_build("alexnet", NULL, 1000);
    assert_shape(alexnet, "conv1", 64, 55, 55);
    assert_shape(alexnet, "pool1", 64, 27, 27);
    assert_shape(alexnet, "pool2", 192, 13, 13);
    assert_shape(alexnet, "pool5", 256, 6, 6);
    assert_padding(alexnet, "conv1", 0, 0);
    assert_padding(alexnet, "conv2", 2, 2);
    assert_padding(alexnet, "pool5", 0, 0);
    assert_true(graph_node(alexnet, "dropout_fc2")->rate == 0.5);

    struct dpb_graph *overfeat = model_build("overfeat", NULL, 1000);
    assert_shape(overfeat, "conv1", 96, 56, 56);
    assert_shape(overfeat, "conv2", 256, 24, 24);
    assert_shape(overfeat, "pool5", 1024, 6, 6);
    assert_padding(overfeat, "conv2", 0, 0);
    assert_padding(overfeat, "conv3", 1, 1);

    struct dpb_graph *vgg11 = model_build("vgg11", NULL, 1000);
    assert_shape(vgg11, "pool1", 64, 112, 112);
    assert_shape(vgg11, "pool4", 512, 14, 14);
    assert_shape(vgg11, "pool5", 512, 7, 7);
    assert_padding(vgg11, "conv5_2", 1, 1);
    assert_true(graph_node(vgg11, "dropout_fc1")->rate == 0.5);
    const struct dpb_shape small = {3, 32, 32};
    vgg11 = own_graph(model_graph(model_find("vgg11"), NULL, small, 10));
    assert_shape(vgg11, "pool5", 512, 1, 1);

    struct dpb_graph *vgg16_cifar = model_build("vgg16_cifar", NULL, 100);
    assert_shape(vgg16_cifar, "pool1", 64, 16, 16);
    assert_shape(vgg16_cifar, "pool4", 512, 2, 2);
    assert_shape(vgg16_cifar, "bn_fc1", 512, 1, 1);
    assert_true(graph_node(vgg16_cifar, "dropout1_1")->rate == 0.3);
    assert_true(graph_node(vgg16_cifar, "dropout5_2")->rate == 0.4);
    assert_true(graph_node(vgg16_cifar, "dropout_fc1")->rate == 0.5);
    assert_true(graph_node(vgg16_cifar, "bn5_3")->epsilon == 1e-3);

    struct dpb_graph *cifar_cnn = model_build("cifar_cnn", NULL, 10);
    assert_shape(cifar_cnn, "conv1", 32, 32, 32);
    assert_shape(cifar_cnn, "dropout2", 32, 15, 15);
    assert_shape(cifar_cnn, "dropout4", 64, 6, 6);
    assert_padding(cifar_cnn, "conv3", 1, 1);
    assert_padding(cifar_cnn, "conv4", 0, 0);
    assert_true(graph_node(cifar_cnn, "dropout2")->rate == 0.25);
    assert_true(graph_node(cifar_cnn, "dropout4")->rate == 0.25);
    assert_true(graph_node(cifar_cnn, "dropout_fc1")->rate == 0.5);
}

TEST(test_shapes_of_blocks)
{
    struct dpb_graph *googlenet = model_build("googlenet", NULL, 1000);
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
    assert_true(graph_node(googlenet, "dropout")->rate == 0.4);

    struct dpb_graph *inception3 = model_build("inception3", NULL, 1000);
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
    assert_int_equal(graph_node(inception3, "mixed7c.pool")->op, DPB_OP_MEAN_POOL);
    const struct dpb_window *window = &graph_node(inception3, "mixed6b.conv7x7_2")->window;
    assert_true(window->kernel_h == 1 && window->kernel_w == 7);
    assert_true(window->pad_top == 0 && window->pad_left == 3 && window->pad_right == 3);
    window = &graph_node(inception3, "mixed6b.conv7x7dbl_2")->window;
    assert_true(window->kernel_h == 7 && window->kernel_w == 1);
    assert_true(graph_node(inception3, "bn1a")->epsilon == 1e-3);
    assert_true(graph_node(inception3, "bn1a")->weight == DPB_NONE);
    assert_true(graph_node(inception3, "dropout")->rate == 0.2);

    struct dpb_graph *densenet = model_build("densenet40_k12", NULL, 10);
    assert_shape(densenet, "block1.concat12", 160, 32, 32);
    assert_shape(densenet, "transition.pool1", 160, 16, 16);
    assert_shape(densenet, "block2.concat12", 304, 16, 16);
    assert_shape(densenet, "block3.concat12", 448, 8, 8);
    assert_shape(densenet, "relu1", 448, 8, 8);
    assert_int_equal(graph_node(densenet, "block3.conv12")->bias, DPB_NONE);
    assert_padding(densenet, "block1.conv1", 1, 1);
    densenet = model_build("densenet100_k24", "tf", 10);
    assert_shape(densenet, "block1.concat32", 784, 32, 32);
    assert_shape(densenet, "transition.relu_conv1", 48, 32, 32);
    assert_shape(densenet, "transition.pool1", 48, 16, 16);
    assert_shape(densenet, "block3.concat32", 816, 8, 8);
    assert_int_not_equal(graph_node(densenet, "block3.conv32")->bias, DPB_NONE);
}

TEST_MAIN(NULL, NULL)
