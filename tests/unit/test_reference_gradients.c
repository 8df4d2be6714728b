/*
 * test_reference_gradients.c - gradients of the reference device against finite differences of its
 * own loss, for every element of every tensor in a net around each op; and the sums of magnitudes
 * that rounding errors of other devices are measured by.
 */
#include "reference_bench.h"

#include "plugins/devices/reference/ops.h"

NET(conv_strided)
{
    return g->conv(b, "op", x,
                   CONV(.channels = 2, .kernel_h = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT,
                        .before = 0, .after = 1, .bias = true));
}

NET(conv_padded_before)
{
    return g->conv(b, "op", x,
                   CONV(.channels = 2, .kernel_h = 3, .stride = 3, .padding = DPB_PAD_EXPLICIT,
                        .before = 2, .after = 0));
}

NET(conv_rows_and_columns)
{
    x = g->conv(b, "row", x, CONV(.channels = 2, .kernel_h = 1, .kernel_w = 7));
    return g->conv(b, "column", x, CONV(.channels = 2, .kernel_h = 7, .kernel_w = 1, .stride = 2));
}

NET(conv_valid)
{
    x = g->conv(b, "even", x, CONV(.channels = 2, .kernel_h = 4));
    return g->conv(b, "op", x, CONV(.channels = 4, .kernel_h = 3, .padding = DPB_PAD_VALID));
}

NET(conv_pointwise_strided)
{
    return g->conv(b, "op", x, CONV(.channels = 4, .kernel_h = 1, .stride = 2, .bias = true));
}

NET(conv_grouped)
{
    x = g->conv(b, "wider", x, CONV(.channels = 6, .kernel_h = 3, .groups = 2, .bias = true));
    return g->conv(b, "narrower", x,
                   CONV(.channels = 3, .kernel_h = 3, .stride = 2, .groups = 3,
                        .padding = DPB_PAD_EXPLICIT, .before = 0, .after = 1));
}

NET(conv_depthwise)
{
    x = g->conv(b, "op", x, CONV(.channels = 4, .kernel_h = 3, .stride = 2, .groups = 4));
    return g->conv(b, "twice", x, CONV(.channels = 8, .kernel_h = 2, .groups = 4, .bias = true));
}

NET(dense)
{
    x = g->dense(b, "first", x, 6, true);
    return g->dense(b, "second", x, 5, false);
}

NET(batch_norm)
{
    return g->batch_norm(b, "op", x, NORM(0));
}

NET(batch_norm_no_gamma)
{
    x = g->batch_norm(b, "op", x, NORM(.no_gamma = true, .epsilon = 1e-3));
    x = g->dense(b, "fc", x, 4, false);
    return g->batch_norm(b, "features", x, NORM(.epsilon = 0.1));
}

NET(relu)
{
    return g->relu(b, "op", x);
}

NET(max_pool)
{
    x = g->max_pool(b, "same", x, POOL(.kernel = 3, .stride = 2));
    return g->max_pool(b, "overlapping", x, POOL(.kernel = 2, .stride = 1));
}

NET(max_pool_padded)
{
    x = g->max_pool(
        b, "both", x,
        POOL(.kernel = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT, .before = 1, .after = 1));
    return g->max_pool(b, "after", x,
                       POOL(.kernel = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT, .after = 1));
}

NET(mean_pool)
{
    x = g->mean_pool(b, "same", x, POOL(.kernel = 3, .stride = 1));
    x = g->mean_pool(b, "before", x,
                     POOL(.kernel = 3, .stride = 2, .padding = DPB_PAD_EXPLICIT, .before = 2));
    return x;
}

NET(mean_pool_valid)
{
    x = g->mean_pool(b, "valid", x, POOL(.kernel = 2, .stride = 2, .padding = DPB_PAD_VALID));
    return g->global_mean(b, "global", x);
}

NET(add)
{
    uint32_t y = g->conv(b, "branch", x, CONV(.channels = 4, .kernel_h = 3));
    x = g->add(b, "sum", x, y);
    return g->add(b, "double", x, x);
}

NET(concat)
{
    uint32_t y = g->conv(b, "branch", x, CONV(.channels = 2, .kernel_h = 1));
    uint32_t z = g->relu(b, "relu", y);
    return g->concat(b, "op", (const uint32_t[]){y, x, z, x}, 4);
}

NET(dropout)
{
    return g->dropout(b, "op", x, 0.3);
}

NET(lrn)
{
    const struct dpb_lrn_args args = {.radius = 1, .k = 1.5, .alpha = 0.3, .beta = 0.75};
    return g->lrn(b, "op", x, &args);
}

NET(shortcut)
{
    x = g->shortcut(b, "op", x, 6, 2);
    return g->shortcut(b, "identity", x, 6, 1);
}

NET(layer_norm)
{
    return g->layer_norm(b, "op", x, 1e-3);
}

NET(gelu)
{
    return g->gelu(b, "tanh", g->gelu(b, "erf", x, false), true);
}

static uint32_t attend(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x,
                       bool causal)
{
    x = g->prepend(b, "token", x);
    x = g->conv(b, "qkv", x, CONV(.channels = 12, .kernel_h = 1, .bias = true));
    return g->attention(b, "op", x, &(struct dpb_attention_args){.heads = 2, .causal = causal});
}

NET(attention)
{
    return attend(g, b, x, false);
}

NET(attention_causal)
{
    return attend(g, b, x, true);
}

NET(positions)
{
    x = g->positions(b, "pixels", x, &(struct dpb_positions_args){.rows = 0});
    return g->positions(b, "op", g->prepend(b, "token", x),
                        &(struct dpb_positions_args){.rows = 40});
}

/* Odd sizes, not square. */
#define ODD     \
    {           \
        2, 5, 7 \
    }
static const struct net nets[] = {
    {"conv_strided", conv_strided, ODD, false},
    {"conv_padded_before", conv_padded_before, ODD, false},
    {"conv_rows_and_columns", conv_rows_and_columns, ODD, false},
    {"conv_valid", conv_valid, ODD, false},
    {"conv_pointwise_strided", conv_pointwise_strided, ODD, false},
    {"conv_grouped", conv_grouped, ODD, false},
    {"conv_depthwise", conv_depthwise, ODD, false},
    {"dense", dense, ODD, false},
    {"batch_norm", batch_norm, ODD, false},
    {"batch_norm_no_gamma", batch_norm_no_gamma, ODD, false},
    {"relu", relu, ODD, false},
    {"max_pool", max_pool, ODD, false},
    {"max_pool_padded", max_pool_padded, ODD, false},
    {"mean_pool", mean_pool, ODD, false},
    {"mean_pool_valid", mean_pool_valid, ODD, false},
    {"add", add, ODD, false},
    {"concat", concat, ODD, false},
    {"dropout", dropout, ODD, false},
    {"lrn", lrn, ODD, false},
    {"shortcut", shortcut, ODD, false},
    {"layer_norm", layer_norm, ODD, false},
    {"gelu", gelu, ODD, false},
    {"attention", attention, ODD, false},
    {"attention_causal", attention_causal, ODD, false},
    {"positions", positions, ODD, false},
    {"everything", everything, ODD, false},
};
enum { N_NETS = sizeof nets / sizeof *nets };

/* ---------------------------------------------------------------------------- finite difference */

static double loss_with(struct bench *bench, uint64_t element, double weight)
{
    double before = get(bench, bench->weights, element);
    set(bench, bench->weights, element, weight);
    assert_int_equal(forward(bench), DPB_OK);
    set(bench, bench->weights, element, before);
    return bench->outcome.loss;
}

/* Five-point stencil: the error of the formula is of order h^4, that of rounding 1e-16 / h. */
static double difference(struct bench *bench, uint64_t element)
{
    const double h = 1e-4, w = get(bench, bench->weights, element);
    double near = loss_with(bench, element, w + h) - loss_with(bench, element, w - h);
    double far = loss_with(bench, element, w + 2 * h) - loss_with(bench, element, w - 2 * h);
    return (8 * near - far) / (12 * h);
}

static void check_tensor(struct bench *bench, const struct net *net,
                         const struct dpb_tensor *tensor)
{
    double largest = 0;
    for (uint64_t k = 0; k < tensor->n_elements; k++)
        largest = fmax(largest, fabs(get(bench, bench->gradients, tensor->offset + k)));
    /* What batch-norm subtracts again has no gradient: hold it to an absolute bound. */
    double allowed = 1e-7 * fmax(largest, 1e-3);
    for (uint64_t k = 0; k < tensor->n_elements; k++) {
        double gradient = get(bench, bench->gradients, tensor->offset + k);
        double expected = difference(bench, tensor->offset + k);
        if (!(fabs(gradient - expected) <= allowed))
            fail_msg("net %s: %s[%llu]: gradient %.12g, finite difference %.12g", net->name,
                     tensor->name, (unsigned long long)k, gradient, expected);
    }
}

static void check_gradients(const struct net *net, double smoothing)
{
    struct bench *bench = open_bench(net, 3, 4, false);
    dpb_graph_smooth_labels(bench->graph, smoothing);
    assert_int_equal(forward(bench), DPB_OK);
    assert_int_equal(backward(bench), DPB_OK);
    for (uint32_t t = 0; t < bench->graph->n_tensors; t++)
        check_tensor(bench, net, &bench->graph->tensors[t]);
    close_bench(bench);
}

TEST(test_gradients_are_finite_differences)
{
    for (size_t i = 0; i < N_NETS; i++)
        check_gradients(&nets[i], 0);
    check_gradients(&nets[N_NETS - 1], 0.3);
}

/* - sum of q log p over the classes, where q is 1 - smoothing for the label plus smoothing /
 * classes for each class, and p the softmax [Szegedy et al. 2016, section 7]. */
static double smoothed_loss(const struct bench *bench, double smoothing)
{
    const uint32_t classes = bench->graph->nclass;
    double *logits = activation_of(bench, bench->graph->n_nodes - 2), total = 0;
    for (uint32_t i = 0; i < bench->n; i++) {
        double sum = 0;
        for (uint32_t k = 0; k < classes; k++)
            sum += exp(logits[i * classes + k]);
        for (uint32_t k = 0; k < classes; k++) {
            double q = (k == (uint32_t)bench->labels[i] ? 1 - smoothing : 0) + smoothing / classes;
            total -= q * log(exp(logits[i * classes + k]) / sum);
        }
    }
    free(logits);
    return total / bench->n;
}

TEST(test_loss_of_smoothed_labels)
{
    static const double smoothings[] = {0, 0.1, 0.5, 1};
    for (size_t i = 0; i < sizeof smoothings / sizeof *smoothings; i++) {
        struct bench *bench = open_bench(&nets[N_NETS - 1], 3, 4, false);
        dpb_graph_smooth_labels(bench->graph, smoothings[i]);
        assert_int_equal(forward(bench), DPB_OK);
        expect_near(bench->outcome.loss, smoothed_loss(bench, smoothings[i]), 1e-12);
        bench->pass.training = false;
        assert_int_equal(forward(bench), DPB_OK);
        expect_near(bench->outcome.loss, smoothed_loss(bench, smoothings[i]), 1e-12);
        close_bench(bench);
    }
}

/* ----------------------------------------------------------------------------------- magnitudes */

enum { MAX_NODES = 24, MAX_NODE_INPUTS = 4, MAX_TENSOR = 2048, MAX_CHANNELS = 16 };

/* What the device computed, and the magnitudes of the gradients: sums over a node's consumers. */
struct record {
    const struct bench *bench;
    double *y[MAX_NODES], *dy[MAX_NODES], *magnitude[MAX_NODES];
};

static void expect_bound(const double *magnitude, const double *value, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++)
        assert_true(magnitude[k] >= fabs(value[k]) * (1 - 1e-12));
}

static bool all_positive(const double *values, uint64_t n)
{
    for (uint64_t k = 0; k < n; k++) {
        if (values[k] < 0)
            return false;
    }
    return true;
}

static void check_forward(const struct record *record, struct ref_call *call, bool positive)
{
    uint64_t n = elements_of(record->bench, call->index);
    const double *value = record->y[call->index];
    call->y = calloc(n, sizeof(double));
    ref_forward_magnitude(call);
    expect_bound(call->y, value, n);
    for (uint32_t k = 0; k < call->node->n_inputs; k++)
        positive =
            positive && all_positive(call->x[k], elements_of(record->bench, call->node->inputs[k]));
    const dpb_op op = call->node->op;
    bool exceeds = op == DPB_OP_BATCH_NORM || op == DPB_OP_SOFTMAX_LOSS ||
                   op == DPB_OP_LAYER_NORM || op == DPB_OP_ATTENTION;
    for (uint64_t k = 0; positive && !exceeds && k < n; k++)
        expect_near(call->y[k], value[k], 1e-12 * (1 + value[k]));
    free(call->y);
}

static void check_node(const struct record *record, uint32_t index, bool positive)
{
    const struct bench *bench = record->bench;
    const struct dpb_graph *graph = bench->graph;
    const struct dpb_node *node = &graph->nodes[index];
    struct dpb_shape in[MAX_NODE_INPUTS];
    const double *x[MAX_NODE_INPUTS];
    double *dx[MAX_NODE_INPUTS], mean[MAX_CHANNELS], variance[MAX_CHANNELS];
    double dweight[MAX_TENSOR], dbias[MAX_TENSOR];
    assert_true(node->n_inputs <= MAX_NODE_INPUTS && node->shape.c <= MAX_CHANNELS);
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        in[k] = graph->nodes[node->inputs[k]].shape;
        x[k] = record->y[node->inputs[k]];
        dx[k] = record->magnitude[node->inputs[k]];
    }
    struct ref_call call = {.node = node, .index = index, .n = bench->n, .training = true};
    call.in = in;
    call.x = x;
    call.dx = dx;
    call.dy = record->dy[index];
    call.dweight = dweight;
    call.dbias = node->bias == DPB_NONE ? NULL : dbias;
    call.mean = mean;
    call.variance = variance;
    call.batch = &bench->batch;
    call.seed = SEED;
    call.step = STEP;
    call.first_sample = FIRST_SAMPLE;
    const double *weights = bench->weights, *gradients = bench->gradients;
    if (node->weight != DPB_NONE) {
        call.weight = weights + graph->tensors[node->weight].offset;
        call.n_weights = graph->tensors[node->weight].n_elements;
    }
    if (node->bias != DPB_NONE)
        call.bias = weights + graph->tensors[node->bias].offset;
    check_forward(record, &call, positive);
    ref_backward_magnitude(&call);
    if (node->weight != DPB_NONE)
        expect_bound(dweight, gradients + graph->tensors[node->weight].offset,
                     graph->tensors[node->weight].n_elements);
    if (node->bias != DPB_NONE)
        expect_bound(dbias, gradients + graph->tensors[node->bias].offset,
                     graph->tensors[node->bias].n_elements);
}

/* Every sum of magnitudes bounds the sum, and is the sum where no term is negative. */
static void check_magnitudes(struct bench *bench, bool positive)
{
    struct record record = {.bench = bench};
    uint32_t n_nodes = bench->graph->n_nodes;
    assert_true(n_nodes <= MAX_NODES);
    for (uint32_t t = 0; t < bench->graph->n_tensors; t++)
        assert_true(bench->graph->tensors[t].n_elements <= MAX_TENSOR);
    assert_int_equal(forward(bench), DPB_OK);
    assert_int_equal(backward(bench), DPB_OK);
    for (uint32_t i = 0; i < n_nodes; i++) {
        record.y[i] = activation_of(bench, i);
        record.dy[i] = i ? gradient_of(bench, i) : NULL;
        record.magnitude[i] = i ? calloc(elements_of(bench, i), sizeof(double)) : NULL;
    }
    for (uint32_t i = n_nodes; i-- > 1;)
        check_node(&record, i, positive);
    for (uint32_t i = 1; i + 1 < n_nodes; i++)
        expect_bound(record.magnitude[i], record.dy[i], elements_of(bench, i));
    for (uint32_t i = 0; i < n_nodes; i++) {
        free(record.y[i]);
        free(record.dy[i]);
        free(record.magnitude[i]);
    }
}

TEST(test_magnitudes_bound_the_values)
{
    for (size_t i = 0; i < N_NETS; i++) {
        struct bench *bench = open_bench(&nets[i], 3, 4, false);
        dpb_graph_smooth_labels(bench->graph, i % 2 ? 0.3 : 0);
        check_magnitudes(bench, false);
        for (uint64_t k = 0; k < bench->graph->n_elements; k++)
            set(bench, bench->weights, k, fabs(get(bench, bench->weights, k)));
        for (uint64_t k = 0; k < elements_of(bench, 0); k++)
            bench->samples[k] = fabsf(bench->samples[k]);
        check_magnitudes(bench, true);
        close_bench(bench);
    }
}

TEST_MAIN(load_plugin, NULL)
