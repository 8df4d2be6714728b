/* needs: cuda */
/*
 * test_cudnn_table.c - prints the table of docs/devices-cuda.md: the plans that cuDNN has for an
 * H200, for all convolutions of four networks.
 */
#include "unit/cudnn_gpu.h"

/* The plans of a call of all shapes of a network. */
struct range {
    uint32_t n, least, most;
    size_t first, largest; /* bytes of workspace: of the first plans, and of all */
};

static void add_range(struct range *range, const struct conv_plans *plans)
{
    range->least = range->n++ == 0 || plans->n < range->least ? plans->n : range->least;
    range->most = plans->n > range->most ? plans->n : range->most;
    for (uint32_t i = 0; i < plans->n; i++) {
        const size_t bytes = plans->plans[i].workspace;
        range->largest = bytes > range->largest ? bytes : range->largest;
        range->first = i == 0 && bytes > range->first ? bytes : range->first;
    }
}

/* Whether there are plans with sums; none is made. */
static bool has_sums(struct program *p, const struct dpb_node *node,
                     dpb_status (*open)(struct program *p, const struct dpb_node *node))
{
    counts = true;
    n_made = 0;
    expect_ok(open(p, node));
    counts = false;
    return n_made > 0;
}

/* A line of the table of docs/devices-cuda.md. */
static void print_row(const struct dpb_graph *graph, const char *name, dpb_precision precision,
                      uint32_t batch)
{
    const double mib = 1 << 20;
    struct range ranges[CONV_CALLS] = {{0}};
    int n_sums = 0, n_norms = 0, n_masked = 0, n_relus = 0;
    struct program p;
    open_batch(graph, precision, batch, &p);
    n_random = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        if (node->op != DPB_OP_CONV || !is_first(graph, node))
            continue;
        struct conv_plans *const *conv = open_conv(&p, node);
        bool adds = false;
        if (node->inputs[0] != 0)
            expect_ok(cuda_conv_open_data(&p, node, &adds));
        for (int call = 0; call < CONV_CALLS; call++)
            if (conv[call])
                add_range(&ranges[call], conv[call]);
    }
    const int n_left_out = n_random;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        if (node->op != DPB_OP_CONV || !is_first(graph, node))
            continue;
        if (graph->nodes[i + 1].op == DPB_OP_BATCH_NORM && ++n_norms)
            n_sums += has_sums(&p, node, cuda_fused_open);
        if (cuda_masked_norm(&p, node) && node->window.stride_h == 1 && ++n_relus)
            n_masked += has_sums(&p, node, cuda_masked_open);
    }
    print_message("| %s | %s | %u | %u", name, dpb_precision_name(precision), batch, ranges[0].n);
    for (int call = 0; call < CONV_CALLS; call++)
        print_message(" | %u to %u, %.1f, %.0f", ranges[call].least, ranges[call].most,
                      (double)ranges[call].first / mib, (double)ranges[call].largest / mib);
    print_message(" | %d | %d of %d | %d of %d |\n", n_left_out, n_sums, n_norms, n_masked,
                  n_relus);
    for (int call = 0; call < CONV_CALLS; call++)
        assert_true(ranges[call].least > 0);
    close_program(&p);
}

/* All convolutions of four networks have plans that are compiled already and deterministic. */
TEST(test_table)
{
    static const char *const names[] = {"alexnet", "resnet50", "vgg16", "inception3"};
    static const dpb_precision precisions[] = {DPB_PRECISION_BF16, DPB_PRECISION_FP16};
    char tuning[128];
    const struct device before = device;
    if (!gpu)
        skip();
    snprintf(tuning, sizeof tuning, "%s/table", directory);
    device.options.tuning = tuning;
    device.options.fusion = FUSION_AUTO;
    for (int i = 0; i < 4; i++) {
        const struct dpb_plugin *model = model_find(names[i]);
        struct dpb_graph *graph =
            i == 1 ? resnet50() : model_graph(model, NULL, model_info(model).input, 1000);
        for (int cell = 0; cell < 4; cell++)
            print_row(graph, names[i], precisions[cell / 2], cell % 2 ? 32 : 256);
        dpb_graph_destroy(graph);
    }
    device = before;
}

/* For `make gpu-plans`: compiles what `device.fusion = auto` times of ResNet-50 in bf16 at 256, and
 * keeps it beside the file that PLANS names. */
TEST(test_keep)
{
    struct dpb_graph *graph = resnet50();
    const struct device before = device;
    struct program p;
    if (!gpu || !getenv("PLANS"))
        skip();
    device.options.tuning = getenv("PLANS");
    device.options.fusion = FUSION_AUTO;
    device.threads = (uint32_t)sysconf(_SC_NPROCESSORS_ONLN);
    open_program(graph, DPB_PRECISION_BF16, &p);
    expect_ok(cuda_fused_compile(&p));
    close_program(&p);
    device = before;
    dpb_graph_destroy(graph);
}

int main(int argc, char **argv)
{
    (void)argc;
    start_with_driver(argv);
    return test_main(setup, teardown);
}
