/*
 * test_reference.c - the reference device against values worked out by hand and the rules of
 * device.h. Its gradients: test_reference_gradients.c.
 */
#include "reference_bench.h"

static void expect_values(double *owned, const double *expected, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        if (!(fabs(owned[k] - expected[k]) <= 1e-12))
            fail_msg("element %zu is %.15g, not %.15g", k, owned[k], expected[k]);
    }
    free(owned);
}
#define EXPECT_VALUES(owned, ...)                       \
    expect_values(owned, (const double[]){__VA_ARGS__}, \
                  sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static void set_tensor(struct bench *bench, const char *name, const double *values)
{
    for (uint32_t t = 0; t < bench->graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &bench->graph->tensors[t];
        if (strcmp(tensor->name, name) != 0)
            continue;
        for (uint64_t k = 0; k < tensor->n_elements; k++)
            set(bench, bench->weights, tensor->offset + k, values[k]);
        return;
    }
    fail_msg("no tensor '%s'", name);
}
#define SET_TENSOR(bench, name, ...) set_tensor(bench, name, (const double[]){__VA_ARGS__})

NET(dropout)
{
    return g->dropout(b, "op", x, 0.3);
}

NET(dense)
{
    return g->dense(b, "fc", x, 5, false);
}

/* ----------------------------------------------------------------------------- values by hand */

static struct bench *open_bare(middle *build, struct dpb_shape input, uint32_t n, uint32_t nclass,
                               const float *samples)
{
    const struct net net = {"bare", build, input, true};
    struct bench *bench = open_bench(&net, n, nclass, false);
    memcpy(bench->samples, samples, n * dpb_shape_elements(input) * sizeof *samples);
    return bench;
}

static const float one_to_nine[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

NET(hand_conv)
{
    x = g->conv(b, "conv", x,
                CONV(.channels = 1, .kernel_h = 2, .padding = DPB_PAD_VALID, .bias = true));
    return g->dense(b, "fc", x, 2, true);
}

TEST(test_convolution_by_hand)
{
    struct bench *bench = open_bare(hand_conv, (struct dpb_shape){1, 3, 3}, 1, 2, one_to_nine);
    SET_TENSOR(bench, "conv.weight", 1, 2, 3, 4);
    SET_TENSOR(bench, "conv.bias", 0.5);
    SET_TENSOR(bench, "fc.weight", 0.01, 0, 0, 0, 0, 0, 0, -0.01);
    SET_TENSOR(bench, "fc.bias", 0, 0.4);
    assert_int_equal(forward(bench), DPB_OK);
    EXPECT_VALUES(activation_of(bench, 1), 37.5, 47.5, 67.5, 77.5);
    EXPECT_VALUES(activation_of(bench, 2), 0.375, -0.375);
    expect_near(bench->outcome.loss, log(1 + exp(-0.75)), 1e-12);
    assert_int_equal(bench->outcome.correct, 1);
    assert_int_equal(backward(bench), DPB_OK);
    const double p = 1 / (1 + exp(0.75)); /* of the wrong class */
    EXPECT_VALUES(gradient_of(bench, 2), -p, p);
    EXPECT_VALUES(gradient_of(bench, 1), -0.01 * p, 0, 0, -0.01 * p);
    uint64_t weight = bench->graph->tensors[bench->graph->nodes[1].weight].offset;
    const double expected[4] = {1 + 5, 2 + 6, 4 + 8, 5 + 9};
    for (int k = 0; k < 4; k++)
        expect_near(get(bench, bench->gradients, weight + (uint64_t)k), -0.01 * p * expected[k],
                    1e-12);
    close_bench(bench);
}

NET(hand_pools)
{
    uint32_t copy = g->conv(b, "copy", x, CONV(.channels = 1, .kernel_h = 1));
    uint32_t max = g->max_pool(
        b, "max", copy, POOL(.kernel = 2, .stride = 2, .padding = DPB_PAD_EXPLICIT, .before = 1));
    uint32_t mean = g->mean_pool(
        b, "mean", copy, POOL(.kernel = 2, .stride = 2, .padding = DPB_PAD_EXPLICIT, .before = 1));
    x = g->concat(b, "both", (const uint32_t[]){max, mean}, 2);
    return g->dense(b, "fc", x, 2, false);
}

TEST(test_pools_leave_padding_out)
{
    struct bench *bench = open_bare(hand_pools, (struct dpb_shape){1, 3, 3}, 1, 2, one_to_nine);
    SET_TENSOR(bench, "copy.weight", -1);
    assert_int_equal(forward(bench), DPB_OK);
    EXPECT_VALUES(activation_of(bench, node_called(bench, "max")), -1, -2, -4, -5);
    EXPECT_VALUES(activation_of(bench, node_called(bench, "mean")), -1, -2.5, -5.5, -7);
    close_bench(bench);
}

NET(hand_tie)
{
    x = g->conv(b, "copy", x, CONV(.channels = 1, .kernel_h = 1));
    x = g->max_pool(b, "max", x, POOL(.kernel = 2, .stride = 1, .padding = DPB_PAD_VALID));
    return g->dense(b, "fc", x, 2, false);
}

TEST(test_first_maximum_gets_the_gradient)
{
    const float samples[] = {0, 3, 3, 3};
    struct bench *bench = open_bare(hand_tie, (struct dpb_shape){1, 2, 2}, 1, 2, samples);
    SET_TENSOR(bench, "copy.weight", 1);
    SET_TENSOR(bench, "fc.weight", 1, 1 + log(3) / 3); /* logits 3 and 3 + log 3 */
    assert_int_equal(forward(bench), DPB_OK);
    assert_int_equal(backward(bench), DPB_OK);
    EXPECT_VALUES(gradient_of(bench, 1), 0, 0.75 * log(3) / 3, 0, 0);
    close_bench(bench);
}

/* Output (i, c, h, w) of a convolution or pool from its definition: every element of the window is
 * looked at, and left out where it lies in the padding. */
static double from_definition(const struct bench *bench, uint32_t index, const double *x,
                              uint32_t i, uint32_t c, uint32_t h, uint32_t w)
{
    const struct dpb_node *node = &bench->graph->nodes[index];
    const struct dpb_window *window = &node->window;
    struct dpb_shape in = bench->graph->nodes[node->inputs[0]].shape;
    bool conv = node->op == DPB_OP_CONV;
    double sum = conv && node->bias != DPB_NONE
                     ? get(bench, bench->weights, bench->graph->tensors[node->bias].offset + c)
                     : 0;
    double count = 0, largest = -INFINITY;
    uint32_t n_inputs = conv ? in.c / node->groups : in.c;
    uint32_t first = conv ? c * node->groups / node->shape.c * n_inputs : 0;
    for (uint32_t k = 0; k < n_inputs * window->kernel_h * window->kernel_w; k++) {
        uint32_t kw = k % window->kernel_w, kh = k / window->kernel_w % window->kernel_h;
        uint32_t channel = first + k / window->kernel_w / window->kernel_h;
        int64_t row = (int64_t)h * window->stride_h + kh - window->pad_top;
        int64_t column = (int64_t)w * window->stride_w + kw - window->pad_left;
        if (row < 0 || row >= in.h || column < 0 || column >= in.w || (!conv && channel != c))
            continue;
        double value = x[((i * in.c + channel) * in.h + row) * in.w + column], weight = 1;
        if (conv)
            weight = get(bench, bench->weights,
                         bench->graph->tensors[node->weight].offset +
                             c * n_inputs * window->kernel_h * window->kernel_w + k);
        sum += weight * value;
        count++;
        largest = fmax(largest, value);
    }
    if (conv)
        return sum;
    return node->op == DPB_OP_MAX_POOL ? largest : sum / count;
}

NET(windows)
{
    x = g->conv(b, "after", x,
                CONV(.channels = 2, .kernel_h = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT,
                     .after = 2, .bias = true));
    x = g->conv(b, "same", x, CONV(.channels = 3, .kernel_h = 2, .kernel_w = 5));
    x = g->max_pool(b, "max", x, POOL(.kernel = 3, .stride = 2));
    x = g->conv(b, "before", x,
                CONV(.channels = 2, .kernel_h = 4, .stride = 3, .padding = DPB_PAD_EXPLICIT,
                     .before = 3, .after = 1));
    x = g->conv(b, "each", x, CONV(.channels = 6, .kernel_h = 3, .groups = 2));
    x = g->conv(b, "groups", x, CONV(.channels = 9, .kernel_h = 2, .groups = 3, .bias = true));
    x = g->mean_pool(b, "mean", x, POOL(.kernel = 2, .stride = 1));
    return x;
}

TEST(test_windows_follow_their_definition)
{
    const struct net net = {"windows", windows, {2, 13, 16}, false};
    struct bench *bench = open_bench(&net, 2, 4, false);
    assert_int_equal(forward(bench), DPB_OK);
    for (uint32_t index = 1; index <= node_called(bench, "mean"); index++) {
        const struct dpb_node *node = &bench->graph->nodes[index];
        double *x = activation_of(bench, node->inputs[0]), *y = activation_of(bench, index);
        for (uint32_t k = 0; k < elements_of(bench, index); k++) {
            uint32_t w = k % node->shape.w, h = k / node->shape.w % node->shape.h;
            uint32_t c = k / (node->shape.w * node->shape.h) % node->shape.c;
            uint32_t i = k / (uint32_t)dpb_shape_elements(node->shape);
            expect_near(y[k], from_definition(bench, index, x, i, c, h, w), 1e-12);
        }
        free(x);
        free(y);
    }
    close_bench(bench);
}

NET(hand_lrn)
{
    const struct dpb_lrn_args args = {.radius = 1, .k = 2, .alpha = 0.5, .beta = 1};
    x = g->lrn(b, "lrn", x, &args);
    return g->dense(b, "fc", x, 2, false);
}

TEST(test_lrn_by_hand)
{
    struct bench *bench = open_bare(hand_lrn, (struct dpb_shape){3, 1, 1}, 1, 2, one_to_nine);
    assert_int_equal(forward(bench), DPB_OK);
    EXPECT_VALUES(activation_of(bench, 1), 1 / 4.5, 2.0 / 9, 3 / 8.5);
    close_bench(bench);
}

NET(hand_norm)
{
    return g->batch_norm(b, "bn", x, NORM(.epsilon = 0.5));
}

TEST(test_batch_norm_by_hand)
{
    /* 4 samples of two channels; channel 0 has mean 3, variance 3.5, channel 1 is constant. */
    const float samples[] = {1, 2, 2, 2, 3, 2, 6, 2};
    struct bench *bench = open_bare(hand_norm, (struct dpb_shape){2, 1, 1}, 4, 2, samples);
    SET_TENSOR(bench, "bn.weight", 2, 3);
    SET_TENSOR(bench, "bn.bias", 0.25, -1);
    assert_int_equal(forward(bench), DPB_OK);
    EXPECT_VALUES(activation_of(bench, 1), -1.75, -1, -0.75, -1, 0.25, -1, 3.25, -1);
    const struct dpb_node *bn = &bench->graph->nodes[1];
    const double *mean = (double *)bench->statistics + bench->graph->states[bn->mean].offset;
    const double *variance =
        (double *)bench->statistics + bench->graph->states[bn->variance].offset;
    expect_near(mean[0], 3, 1e-12);
    expect_near(mean[1], 2, 1e-12);
    expect_near(variance[0], 14.0 / 3, 1e-12);
    expect_near(variance[1], 0, 1e-12);

    /* Evaluation: running mean 1 and variance 3.5 in both channels. */
    for (uint32_t c = 0; c < 2; c++) {
        ((double *)bench->state)[bench->graph->states[bn->mean].offset + c] = 1;
        ((double *)bench->state)[bench->graph->states[bn->variance].offset + c] = 3.5;
    }
    bench->pass.training = false;
    assert_int_equal(forward(bench), DPB_OK);
    EXPECT_VALUES(activation_of(bench, 1), 0.25, 0.5, 1.25, 0.5, 2.25, 0.5, 5.25, 0.5);
    expect_near(mean[0], 3, 1e-12); /* untouched */
    close_bench(bench);
}

TEST(test_batch_norm_of_one_value)
{
    const float samples[] = {5, -3};
    struct bench *bench = open_bare(hand_norm, (struct dpb_shape){2, 1, 1}, 1, 2, samples);
    SET_TENSOR(bench, "bn.bias", 0.25, -1);
    assert_int_equal(forward(bench), DPB_OK);
    EXPECT_VALUES(activation_of(bench, 1), 0.25, -1);
    const struct dpb_node *bn = &bench->graph->nodes[1];
    uint64_t variance = bench->graph->states[bn->variance].offset;
    expect_near(((double *)bench->statistics)[variance], 0, 0);
    close_bench(bench);
}

NET(hand_shortcut)
{
    x = g->shortcut(b, "op", x, 2, 2);
    return g->dense(b, "fc", x, 2, false);
}

TEST(test_shortcut_by_hand)
{
    struct bench *bench = open_bare(hand_shortcut, (struct dpb_shape){1, 3, 3}, 1, 2, one_to_nine);
    assert_int_equal(forward(bench), DPB_OK);
    EXPECT_VALUES(activation_of(bench, 1), 1, 3, 7, 9, 0, 0, 0, 0);
    close_bench(bench);
}

TEST(test_dropout_follows_the_mask)
{
    const struct net net = {"dropout", dropout, ODD, false};
    struct bench *bench = open_bench(&net, 3, 4, false);
    assert_int_equal(forward(bench), DPB_OK);
    uint32_t op = node_called(bench, "op");
    uint32_t elements = (uint32_t)dpb_shape_elements(bench->graph->nodes[op].shape);
    double *in = activation_of(bench, op - 1), *out = activation_of(bench, op);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < bench->n; i++) {
        for (uint32_t e = 0; e < elements; e++) {
            bool keeps = dpb_dropout_keeps(SEED, STEP, FIRST_SAMPLE + i, op, e, 0.3);
            double expected = keeps ? in[i * elements + e] / 0.7 : 0;
            expect_near(out[i * elements + e], expected, 1e-12);
            kept += keeps;
        }
    }
    assert_in_range(kept, 3 * elements * 6 / 10, 3 * elements * 8 / 10);
    free(out);
    bench->pass.training = false;
    assert_int_equal(forward(bench), DPB_OK);
    expect_values(activation_of(bench, op), in, bench->n * (size_t)elements);
    free(in);
    close_bench(bench);
}

/* ----------------------------------------------------------------------------- device.h's rules */

/* The same pixels in each format; 2 channels of 1 x 3, scaled and moved. */
TEST(test_sample_formats)
{
    const uint8_t chw[] = {10, 20, 30, 40, 50, 255}, hwc[] = {10, 40, 20, 50, 30, 255};
    float chw_real[6], hwc_real[6];
    for (int k = 0; k < 6; k++) {
        chw_real[k] = chw[k];
        hwc_real[k] = hwc[k];
    }
    const struct {
        dpb_dtype type;
        dpb_sample_order order;
        const void *samples;
    } formats[] = {{DPB_UINT8, DPB_CHW, chw},
                   {DPB_UINT8, DPB_HWC, hwc},
                   {DPB_FP32, DPB_CHW, chw_real},
                   {DPB_FP32, DPB_HWC, hwc_real}};
    for (size_t k = 0; k < sizeof formats / sizeof *formats; k++) {
        const struct net net = {"formats", dense, {2, 1, 3}, false};
        struct bench *bench = open_bench(&net, 1, 4, false);
        bench->format.type = formats[k].type;
        bench->format.order = formats[k].order;
        bench->format.scale[0] = 0.5f;
        bench->format.scale[1] = 0.25f;
        bench->format.offset[0] = -1;
        bench->format.offset[1] = 2;
        bench->batch.samples = formats[k].samples;
        assert_int_equal(forward(bench), DPB_OK);
        EXPECT_VALUES(activation_of(bench, 0), 4, 9, 14, 12, 14.5, 65.75);
        close_bench(bench);
    }
}

NET(logits_only)
{
    return g->dense(b, "fc", x, 3, true);
}

TEST(test_only_valid_samples_count)
{
    const float samples[] = {1, 2, 3, NAN};
    struct bench *bench = open_bare(logits_only, (struct dpb_shape){1, 1, 1}, 4, 3, samples);
    SET_TENSOR(bench, "fc.weight", 1, 1, -1);
    SET_TENSOR(bench, "fc.bias", 0, 0, 0);
    memcpy(bench->labels, (const int32_t[]){0, 1, 0, 0}, 4 * sizeof(int32_t));
    bench->pass.training = false;
    bench->pass.valid = 3;
    assert_int_equal(forward(bench), DPB_OK);
    double loss = 0;
    for (int i = 0; i < 3; i++)
        loss += log(2 + exp(-2.0 * samples[i])) / 3;
    expect_near(bench->outcome.loss, loss, 1e-12);
    /* Logits 0 and 1 are equal: the first is the answer. */
    assert_int_equal(bench->outcome.correct, 2);
    bench->pass.valid = 1;
    assert_int_equal(forward(bench), DPB_OK);
    expect_near(bench->outcome.loss, log(2 + exp(-2)), 1e-12);
    assert_int_equal(bench->outcome.correct, 1);
    close_bench(bench);
}

TEST(test_fp32_is_fp64_rounded)
{
    struct bench *single = open_bench(&whole, 3, 4, true), *exact = open_bench(&whole, 3, 4, false);
    /* The same weights to the last bit. */
    for (uint64_t k = 0; k < exact->graph->n_elements; k++)
        set(exact, exact->weights, k, get(single, single->weights, k));
    struct bench *const both[] = {single, exact};
    for (int k = 0; k < 2; k++) {
        assert_int_equal(forward(both[k]), DPB_OK);
        assert_int_equal(backward(both[k]), DPB_OK);
    }
    expect_near(single->outcome.loss, exact->outcome.loss, 1e-6);
    assert_true(single->outcome.loss != exact->outcome.loss);
    for (uint64_t k = 0; k < exact->graph->n_elements; k++)
        expect_near(get(single, single->gradients, k), get(exact, exact->gradients, k), 2e-6);
    for (uint64_t k = 0; k < exact->graph->n_state_elements; k++)
        expect_near(get(single, single->statistics, k), get(exact, exact->statistics, k), 2e-6);
    for (uint32_t i = 0; i < single->graph->n_nodes; i++) {
        double *values = activation_of(single, i);
        for (uint64_t k = 0; k < elements_of(single, i); k++)
            assert_true(values[k] == (float)values[k]);
        free(values);
    }
    close_bench(single);
    close_bench(exact);
}

TEST(test_frontiers_follow_the_arena)
{
    struct bench *bench = open_bench(&whole, 2, 4, false);
    const struct dpb_graph *graph = bench->graph;
    assert_int_equal(forward(bench), DPB_OK);
    assert_int_equal(bench->n_final, 0);
    assert_int_equal(bench->n_progress, graph->n_nodes);
    assert_int_equal(backward(bench), DPB_OK);
    assert_int_equal(bench->n_progress, graph->n_nodes - 1);
    uint32_t calls = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        bool last = t + 1 == graph->n_tensors;
        if (!last && graph->tensors[t + 1].node == graph->tensors[t].node)
            continue;
        assert_int_equal(bench->frontier[calls++],
                         last ? graph->n_elements : graph->tensors[t + 1].offset);
    }
    assert_int_equal(bench->n_final, calls);
    close_bench(bench);
}

/* What a communicator relies on: the gradients before the frontier are there when it is called. */
static dpb_status spoil_what_is_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct bench *bench = context;
    uint64_t begin = bench->n_final ? bench->frontier[bench->n_final - 1] : 0;
    DPB_TRY(on_final(context, frontier, event));
    const struct dpb_tensor *tensor =
        &bench->graph->tensors[dpb_graph_tensor_at(bench->graph, begin)];
    for (uint64_t k = 0; k < tensor->n_elements; k++)
        assert_true(get(bench, bench->gradients, tensor->offset + k) != GAP);
    for (uint64_t k = begin; k < frontier; k++) {
        set(bench, bench->gradients, k, 1e30);
        set(bench, bench->weights, k, 1e30);
    }
    return DPB_OK;
}

TEST(test_final_means_final)
{
    struct bench *bench = open_bench(&whole, 2, 4, false);
    assert_int_equal(forward(bench), DPB_OK);
    assert_int_equal(backward(bench), DPB_OK);
    double *expected = gradient_of(bench, 1);
    for (uint64_t k = 0; k < bench->graph->n_elements; k++)
        set(bench, bench->gradients, k, GAP);
    bench->hooks.final = spoil_what_is_final;
    assert_int_equal(backward(bench), DPB_OK);
    expect_values(gradient_of(bench, 1), expected, elements_of(bench, 1));
    for (uint64_t k = 0; k < bench->graph->n_elements; k++)
        assert_true(get(bench, bench->gradients, k) == 1e30);
    free(expected);
    close_bench(bench);
}

TEST(test_errors_of_hooks_end_the_pass)
{
    struct bench *bench = open_bench(&whole, 2, 4, false);
    bench->fail_progress = 3;
    assert_int_equal(forward(bench), DPB_PEER);
    assert_int_equal(bench->n_progress, 3);
    bench->fail_progress = 0;
    assert_int_equal(forward(bench), DPB_OK);
    bench->fail_final = 2;
    assert_int_equal(backward(bench), DPB_PEER);
    assert_int_equal(bench->n_final, 2);
    bench->fail_final = 0;
    bench->fail_progress = 4;
    assert_int_equal(backward(bench), DPB_PEER);
    assert_int_equal(bench->n_progress, 4);
    close_bench(bench);
}

TEST(test_gradients_are_assigned_and_gaps_left)
{
    struct bench *bench = open_bench(&whole, 2, 4, false);
    const struct dpb_graph *graph = bench->graph;
    size_t bytes = graph->n_elements * sizeof(double);
    double *first = malloc(bytes);
    assert_int_equal(forward(bench), DPB_OK);
    assert_int_equal(backward(bench), DPB_OK);
    memcpy(first, bench->gradients, bytes);
    bench->labels[0]++; /* the batch may be gone by now */
    assert_int_equal(backward(bench), DPB_OK);
    assert_memory_equal(first, bench->gradients, bytes);
    uint64_t gaps = graph->n_elements;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        for (uint64_t k = 0; k < tensor->n_elements; k++)
            first[tensor->offset + k] = 0;
        gaps -= tensor->n_elements;
    }
    for (uint64_t k = 0; k < graph->n_elements; k++) {
        if (first[k] == GAP)
            gaps--;
    }
    assert_int_equal(gaps, 0);
    free(first);
    close_bench(bench);
}

/* ------------------------------------------------------------------------------------- refusals */

static void expect_refusal(dpb_status status, dpb_status expected, const char *word)
{
    assert_int_equal(status, expected);
    dpb_status first;
    const char *message = dpb_first_error(&first);
    if (!strstr(message, word))
        fail_msg("'%s' does not name '%s'", message, word);
    dpb_first_error_clear();
}

TEST(test_refusals)
{
    struct bench *bench = open_bench(&whole, 2, 4, false);
    const struct dpb_device_memory memory = {
        .weights = bench->weights, .gradients = NULL, .state = bench->state, .statistics = NULL};
    struct dpb_compile_args args = compile_args(bench, false);
    void *program = NULL;
    dpb_first_error_clear();

    args.precision = DPB_PRECISION_BF16;
    expect_refusal(device_ops->compile(bench->device, &args, &memory, &program), DPB_UNSUPPORTED,
                   "bf16");
    args.precision = DPB_PRECISION_FP64;
    struct dpb_sample_format format = bench->format;
    args.format = &format;
    format.type = DPB_BF16;
    expect_refusal(device_ops->compile(bench->device, &args, &memory, &program), DPB_UNSUPPORTED,
                   "bf16");
    format.type = DPB_FP32;
    format.shape.h++;
    expect_refusal(device_ops->compile(bench->device, &args, &memory, &program), DPB_USAGE,
                   "2x6x7");
    assert_null(program);

    double gradient[256];
    expect_refusal(device_ops->inspect(bench->program, 0, NULL, gradient), DPB_UNSUPPORTED,
                   "input");
    device_ops->release(NULL);
    close_bench(bench);
}

/* A program compiled to evaluate, without inspection before and with inspection after. */
TEST(test_program_refuses)
{
    struct bench *bench = open_bench(&whole, 2, 4, false);
    const uint32_t nodes = bench->graph->n_nodes;
    void *trained = bench->program;
    const struct dpb_device_memory memory = {.weights = bench->weights, .state = bench->state};
    struct dpb_compile_args args = compile_args(bench, false);
    double values[256];
    dpb_first_error_clear();
    args.inspect = false;
    assert_int_equal(device_ops->compile(bench->device, &args, &memory, &bench->program), DPB_OK);
    expect_refusal(forward(bench), DPB_USAGE, "forward only");
    bench->pass.training = false;
    bench->pass.valid = 3;
    expect_refusal(forward(bench), DPB_USAGE, "3 valid samples in a batch of 2");
    bench->pass.valid = 2;
    assert_int_equal(forward(bench), DPB_OK);
    expect_refusal(device_ops->inspect(bench->program, 1, values, NULL), DPB_UNSUPPORTED,
                   "without inspection");
    device_ops->release(bench->program);
    args.inspect = true;
    assert_int_equal(device_ops->compile(bench->device, &args, &memory, &bench->program), DPB_OK);
    assert_int_equal(forward(bench), DPB_OK);
    expect_refusal(device_ops->inspect(bench->program, 1, NULL, values), DPB_UNSUPPORTED,
                   "evaluate");
    expect_refusal(device_ops->inspect(bench->program, nodes, values, NULL), DPB_USAGE, "no node");
    device_ops->release(bench->program);
    bench->program = trained;
    close_bench(bench);
}

TEST(test_plugin_says_what_it_is)
{
    assert_string_equal(plugin->name, "reference");
    assert_int_equal(plugin->kind, DPB_PLUGIN_DEVICE);
    assert_int_equal(plugin->capabilities,
                     DPB_DEVICE_FP64 | DPB_DEVICE_FP32 | DPB_DEVICE_NODE_BY_NODE);
    struct bench *bench = open_bench(&whole, 2, 4, false);
    struct dpb_compile_args training = compile_args(bench, true), forward_only = training;
    forward_only.training = false;
    uint64_t more = device_ops->memory_needed(NULL, &training);
    uint64_t less = device_ops->memory_needed(NULL, &forward_only);
    assert_true(less > 0 && more > less && more < 2 * less);
    close_bench(bench);
}

TEST_MAIN(load_plugin, NULL)
