/* needs: cuda cells */
/*
 * test_cudnn_plans.c - the plans that the cuda device has cuDNN make for an H200, and how they are
 * kept.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "cudnn_gpu.h"

/* As cuDNN writes it down; @owned. */
static char *text_of(cudnnBackendDescriptor_t plan, size_t *bytes)
{
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    int64_t n = 0;
    assert_int_equal(cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, 0, &n, NULL), 0);
    char *text = allocate((size_t)n + 1, 1);
    assert_int_equal(cudnnBackendGetAttribute(plan, name, CUDNN_TYPE_CHAR, n, &n, text), 0);
    *bytes = (size_t)n;
    return text;
}

/* Its notes say nothing that a program of the precision may not have. */
static void expect_engine(const struct conv_plan *plan, dpb_precision precision)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t config, engine;
    int64_t n = 0;
    assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config), 0);
    assert_int_equal(cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine), 0);
    assert_int_equal(cudnnBackendGetAttribute(plan->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &config),
                     0);
    assert_int_equal(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine),
                     0);
    assert_int_equal(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                              CUDNN_TYPE_NUMERICAL_NOTE,
                                              CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes),
                     0);
    for (int64_t i = 0; i < n; i++) {
        assert_int_not_equal(notes[i], CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
        if (precision == DPB_PRECISION_FP32)
            assert_int_not_equal(notes[i], CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    }
    cudnnBackendDestroyDescriptor(engine);
    cudnnBackendDestroyDescriptor(config);
}

/* Both sums are asked to be deterministic and have a workspace, without which they would be added
 * up by atomic additions, in any order. */
static void expect_deterministic(const struct conv_plan *plan)
{
    size_t bytes;
    int n_asked = 0;
    char *text = text_of(plan->plan, &bytes);
    for (const char *at = text; (at = strstr(at, "\"isDeterministic\":true")); at++)
        n_asked++;
    assert_int_equal(n_asked, 2);
    assert_null(strstr(text, "\"isDeterministic\":false"));
    assert_true(plan->workspace > 0);
    free(text);
    expect_engine(plan, DPB_PRECISION_TF32);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static const struct dpb_node *last_conv(const struct dpb_graph *graph)
{
    const struct dpb_node *node = &graph->nodes[graph->n_nodes - 1];
    while (node->op != DPB_OP_CONV)
        node--;
    return node;
}

/* Convolutions alone have plans that are compiled already: none is compiled here. In fp32 they do
 * without tensor cores; NCHW. */
TEST(test_alone)
{
    static const struct {
        dpb_precision precision;
        int layout;
    } rows[] = {{DPB_PRECISION_BF16, LAYOUT_NHWC}, {DPB_PRECISION_FP32, LAYOUT_NCHW}};
    struct dpb_graph *graph = resnet50();
    const struct device before = device;
    if (!gpu)
        skip();
    for (int i = 0; i < 2; i++) {
        struct program p;
        bool adds = false;
        device.options.layout = rows[i].layout;
        device.options.fusion = FUSION_OFF;
        open_program(graph, rows[i].precision, &p);
        struct conv_plans *const *conv = open_conv(&p, last_conv(graph));
        expect_ok(cuda_conv_open_data(&p, last_conv(graph), &adds));
        for (int call = 0; call < CONV_CALLS; call++) {
            const struct conv_plan *plan = conv[call]->plans;
            size_t bytes;
            assert_int_equal(conv[call]->n, 1);
            char *text = text_of(plan->plan, &bytes);
            assert_true(bytes < 10000); /* a kernel is larger */
            free(text);
            expect_engine(plan, rows[i].precision);
        }
        close_program(&p);
    }
    device = before;
    dpb_graph_destroy(graph);
}

/* Behind the stem's max pool the first block's two convolutions add their gradients up: the one
 * that comes last in backward has plans that add. */
TEST(test_adding)
{
    static const dpb_precision precisions[] = {DPB_PRECISION_BF16, DPB_PRECISION_FP16,
                                               DPB_PRECISION_TF32};
    struct dpb_graph *graph = resnet50();
    const struct dpb_node *pool = graph->nodes;
    char tuning[128];
    const struct device before = device;
    if (!gpu)
        skip();
    snprintf(tuning, sizeof tuning, "%s/adding", directory);
    device.options.tuning = tuning;
    device.options.fusion = FUSION_OFF;
    while (pool->op != DPB_OP_MAX_POOL)
        pool++;
    for (int i = 0; i < 3; i++) {
        struct program p;
        bool adds = true;
        open_program(graph, precisions[i], &p);
        const struct dpb_node *node = cuda_first_reader(&p, pool);
        expect_ok(cuda_conv_open_data(&p, node, &adds));
        assert_true(adds);
        const struct conv_plans *plans = cuda_plan(&p, node)->conv[CONV_DATA];
        assert_true(plans->n > 1);
        assert_non_null(strstr(plans->key, "\tdata added to another "));
        expect_engine(&plans->plans[0], precisions[i]);
        size_t bytes;
        char *text = text_of(plans->plans[0].plan, &bytes);
        assert_non_null(strstr(text, "\"beta\":1.0"));
        free(text);
        print_message("'%s' in %s: %u plans that add, workspace %zu\n", node->name,
                      dpb_precision_name(precisions[i]), plans->n, plans->plans[0].workspace);
        close_program(&p);
    }
    device = before;
    dpb_graph_destroy(graph);
}

/* Every convolution of ResNet-50 has plans with sums, the first one for its samples' padded
 * channels. In make check four of 23 shapes. */
TEST(test_plans)
{
    struct dpb_graph *graph = resnet50();
    struct program p;
    const int most = getenv("DPB_ALL_CELLS") ? 23 : 4;
    int n = 0;
    if (!gpu)
        skip();
    open_program(graph, DPB_PRECISION_BF16, &p);
    counts = true;
    for (uint32_t i = 0; i < graph->n_nodes && n < most; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        if (node->op != DPB_OP_CONV || !is_first(graph, node))
            continue;
        n_made = 0;
        assert_int_equal(cuda_fused_open(&p, node), DPB_UNSUPPORTED);
        dpb_first_error_clear();
        assert_true(n_made > 0);
        n++;
    }
    counts = false;
    assert_int_equal(n, most);
    close_program(&p);
    dpb_graph_destroy(graph);
}

/* Convolutions whose gradient by the input may be of that form: the first node of each shape; how
 * many there are. */
static uint32_t masked_nodes(const struct program *p, enum fused_form form, uint32_t found[],
                             uint32_t *n_all)
{
    uint32_t n = 0;
    *n_all = 0;
    for (uint32_t i = 1; i < p->graph->n_nodes; i++) {
        const struct dpb_node *node = &p->graph->nodes[i];
        bool seen = false;
        if (node->op != DPB_OP_CONV || !cuda_masked_norm(p, node) ||
            cuda_fused_form(p, node, FUSED_DATA) != form)
            continue;
        ++*n_all;
        for (uint32_t k = 0; k < n; k++)
            seen = seen || same_shapes(p->graph, node, &p->graph->nodes[found[k]]);
        if (!seen)
            found[n++] = i;
    }
    return n;
}

/* Opens the gradient by the input, with the sums of the batch-norm before. */
static void expect_masked(struct program *p, const struct dpb_node *node)
{
    dpb_first_error_clear();
    const dpb_status status = cuda_masked_open(p, node);
    if (node->window.stride_h > 1 && (status != DPB_OK || cudnnGetVersion() == 91900)) {
        assert_int_equal(status, DPB_UNSUPPORTED);
        assert_non_null(strstr(dpb_first_error(NULL), "(128 to 128 channels, 3x3, bf16) by "));
        return;
    }
    if (status != DPB_OK)
        fail_msg("%s", dpb_first_error(NULL));
    const struct conv_plans *fused = cuda_plan(p, node)->fused[FUSED_DATA];
    assert_non_null(fused);
    assert_ptr_equal(cuda_plan(p, cuda_masked_norm(p, node))->fused[FUSED_DATA], fused);
    print_message("'%s': %u, workspace %zu\n", node->name, fused->n, fused->plans[0].workspace);
    assert_int_equal(fused->n, 1);
    expect_deterministic(&fused->plans[0]);
    assert_true(p->scratch_bytes >= fused->plans[0].workspace);
}

/* Gradients by the input with sums, in bf16. A kernel takes seconds to compile: of the shapes
 * behind a batch-norm's ReLU these are a 3x3 and one of stride 2, for which 9.19 has none, and one
 * behind a block. With DPB_ALL_CELLS (make check-long) also a 1x1, the last, and all behind a
 * block. */
TEST(test_masked)
{
    static const struct {
        enum fused_form form;
        uint32_t n_shapes, n_all, tried[7];
        size_t n_tried, n_long;
    } rows[] = {{FUSED_SUMS, 11, 32, {0, 2, 1, 10}, 2, 4},
                {FUSED_JOINED, 7, 15, {6, 0, 1, 2, 3, 4, 5}, 1, 7}};
    struct dpb_graph *graph = resnet50();
    if (!gpu)
        skip();
    for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++) {
        struct program p;
        uint32_t nodes[64], n_all;
        open_program(graph, DPB_PRECISION_BF16, &p);
        assert_int_equal(masked_nodes(&p, rows[k].form, nodes, &n_all), rows[k].n_shapes);
        assert_int_equal(n_all, rows[k].n_all);
        for (size_t i = 0; i < (getenv("DPB_ALL_CELLS") ? rows[k].n_long : rows[k].n_tried); i++)
            expect_masked(&p, &graph->nodes[nodes[rows[k].tried[i]]]);
        close_program(&p);
    }
    dpb_graph_destroy(graph);
}

/* Forward in types that are multiplied as fp32 is stored: all kernels are for tensor cores, which
 * fp32 may not have. */
TEST(test_fp32)
{
    static const dpb_precision precisions[] = {DPB_PRECISION_TF32, DPB_PRECISION_FP32};
    struct dpb_graph *graph = resnet50();
    if (!gpu)
        skip();
    for (int i = 0; i < 2; i++) {
        struct program p;
        open_program(graph, precisions[i], &p);
        dpb_first_error_clear();
        const dpb_status status = cuda_fused_open(&p, last_conv(graph));
        if (status != DPB_OK)
            print_message("%s\n", dpb_first_error(NULL));
        assert_int_equal(status, i == 0 ? DPB_OK : DPB_UNSUPPORTED);
        if (status == DPB_OK)
            expect_deterministic(&cuda_plan(&p, last_conv(graph))->fused[FUSED_FORWARD]->plans[0]);
        dpb_first_error_clear();
        close_program(&p);
    }
    dpb_graph_destroy(graph);
}

/* ---- plans that are kept ------------------------------------------------------------------- */

static const struct device *keeping(struct device *copy, const char *tuning)
{
    *copy = device;
    copy->options.tuning = tuning;
    return copy;
}

/* As cuDNN writes the only plan of the last convolution; @owned. NULL: there is none. `key`: by
 * what it is kept. */
static char *plan_of_last(const struct device *by, const struct dpb_graph *graph, size_t *bytes,
                          char key[TUNING_KEY_BYTES])
{
    const struct dpb_node *node = last_conv(graph);
    struct program p;
    n_made = n_remade = 0;
    open_program(graph, DPB_PRECISION_BF16, &p);
    p.device = by;
    char *text = NULL;
    const dpb_status status = cuda_fused_open(&p, node);
    memcpy(key, p.plans->key, sizeof p.plans->key);
    assert_int_equal(status, p.plans->n == 1 ? DPB_OK : DPB_UNSUPPORTED);
    if (status == DPB_OK) {
        expect_deterministic(&p.plans->plans[0]);
        text = text_of(p.plans->plans[0].plan, bytes);
    }
    dpb_first_error_clear();
    close_program(&p);
    return text;
}

static bool refused(const char *why)
{
    const char *code, *text;
    bool found = false;
    for (size_t i = 0; dpb_warning_at(i, &code, &text); i++)
        found = found || (strcmp(code, "plan_refused") == 0 && strstr(text, why));
    dpb_warnings_clear();
    return found;
}

/* A plan in bf16 is compiled once, and is the same when it was remade. One that cuDNN does not take
 * is made anew. */
TEST(test_kept)
{
    struct dpb_graph *graph = resnet50();
    char tuning[128], key[TUNING_KEY_BYTES], line[TUNING_KEY_BYTES + 8];
    size_t bytes, again;
    struct device by;
    if (!gpu)
        skip();
    snprintf(tuning, sizeof tuning, "%s/kept", directory);
    char *first = plan_of_last(keeping(&by, "no"), graph, &bytes, key);
    assert_int_equal(n_made, 1);
    write_file(tuning, line, (size_t)snprintf(line, sizeof line, "%s\t0\n", key));
    cuda_plan_file_write(keeping(&by, tuning), key, 0, first, bytes);
    char *second = plan_of_last(&by, graph, &again, key);
    assert_int_equal(n_made, 0);
    assert_int_equal(n_remade, 1);
    assert_int_equal(again, bytes);
    assert_memory_equal(first, second, bytes);
    free(second);
    dpb_warnings_clear();
    first[bytes / 2] = '"';
    cuda_plan_file_write(&by, key, 0, first, bytes);
    counts = true;
    assert_null(plan_of_last(&by, graph, &again, key));
    counts = false;
    assert_true(refused("is not taken by cuDNN"));
    assert_true(n_made > 0);
    free(first);
    dpb_graph_destroy(graph);
}

/* The plan's file in the directory. */
static void only_file(const char *in, char path[512])
{
    DIR *opened = opendir(in);
    assert_non_null(opened);
    path[0] = 0;
    for (struct dirent *entry; (entry = readdir(opened));)
        if (entry->d_name[0] != '.' && !strstr(entry->d_name, "-other"))
            snprintf(path, 512, "%s/%s", in, entry->d_name);
    closedir(opened);
    assert_true(path[0]);
}

static void flip_last(const char *path)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, -1, SEEK_END), 0);
    fputc('N', file);
    fclose(file);
}

/* Files that do not fit are refused, and only these. */
TEST(test_files)
{
    static char large[PLAN_FILE_MOST];
    char tuning[128], plans[160], path[512], other[600];
    size_t bytes;
    struct device by;
    snprintf(tuning, sizeof tuning, "%s/files", directory);
    snprintf(plans, sizeof plans, "%s.plans", tuning);
    keeping(&by, tuning);
    dpb_warnings_clear();
    assert_null(cuda_plan_file_read(&by, "key", 1, &bytes));
    cuda_plan_file_write(&by, "key", 1, "text\nof a plan", 14);
    only_file(plans, path);
    for (int what = 0; what < 8; what++) {
        static const char *const why[] = {
            NULL,         "is damaged", "is damaged",     "may be written by another user",
            "is no file", "is damaged", "cannot be read", "is too large"};
        unlink(path);
        rmdir(path);
        cuda_plan_file_write(&by, "key", 1, "text\nof a plan", 14);
        snprintf(other, sizeof other, "%s-other", path);
        if (what == 1)
            assert_int_equal(truncate(path, 40), 0);
        if (what == 2)
            flip_last(path);
        if (what == 3)
            assert_int_equal(chmod(path, 0620), 0);
        if (what == 4 || what == 6)
            assert_int_equal(rename(path, other), 0);
        if (what == 4)
            assert_int_equal(mkfifo(path, 0600), 0);
        if (what == 5)
            write_file(path, "", 0);
        if (what == 6)
            assert_int_equal(symlink(other, path), 0);
        if (what == 7)
            assert_int_equal(truncate(path, PLAN_FILE_MOST + 1), 0);
        char *text = cuda_plan_file_read(&by, "key", 1, &bytes);
        if (what == 0)
            assert_memory_equal(text, "text\nof a plan", 15);
        else
            assert_null(text);
        free(text);
        assert_int_equal(refused(why[what] ? why[what] : ""), what > 0);
        if (what > 0) { /* it is gone: the next that looks for it has nothing to warn of */
            assert_null(cuda_plan_file_read(&by, "key", 1, &bytes));
            assert_false(refused(""));
        }
    }
    /* Another's file by this name: of a key with the same hash. */
    cuda_plan_file_write(&by, "other", 1, "text", 4);
    unlink(path);
    only_file(plans, other);
    assert_int_equal(rename(other, path), 0);
    assert_null(cuda_plan_file_read(&by, "key", 1, &bytes));
    assert_true(refused("is damaged"));
    cuda_plan_file_write(&by, "large", 0, large, sizeof large); /* and a head */
    assert_null(cuda_plan_file_read(&by, "large", 0, &bytes));
}

int main(int argc, char **argv)
{
    (void)argc;
    start_with_driver(argv);
    return test_main(setup, teardown);
}
