/* needs: cuda cells */
/*
 * test_cudnn_plans.c - what the cuda device asks of cuDNN's graph API (conv.c), asked of the real
 * library without a GPU: cuDNN plans for an H200 that is described to it. The device names the GPU
 * by its handle, which cannot be made here: a wrapped cudnnBackendSetAttribute puts the description
 * in its place.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/command.h"
#include "lib/model.h"
#include "lib/plugin.h"
#include "lib/session.h"
#include "lib/test.h"
#include "plugins/devices/cuda/plan.h"
#include "plugins/devices/cuda/products.h"

/* An H200, as cuDNN writes one down (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION). */
static const char h200[] =
    "{\"deviceName\":\"NVIDIA H200\",\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"totalGlobalMem\":150000000000,"
    "\"l2CacheSize\":62914560,\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1}";

#define HANDLE ((cudnnHandle_t)(uintptr_t)4096) /* nobody looks behind it */

static cudnnBackendDescriptor_t gpu;
static int n_fallbacks;    /* heuristics that were asked for engines of the fallback */
static char directory[64]; /* for the tuning's file */

cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                              cudnnBackendAttributeType_t, int64_t, const void *);
cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                                              cudnnBackendAttributeType_t, int64_t, const void *);

cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t desc,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t n,
                                              const void *values)
{
    const bool of_handle =
        name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE || name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE;
    if (of_handle) {
        assert_int_equal(type, CUDNN_TYPE_HANDLE);
        assert_int_equal(n, 1);
        assert_ptr_equal(*(cudnnHandle_t const *)values, HANDLE);
    }
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return __real_cudnnBackendSetAttribute(desc, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
    const cudnnStatus_t status = __real_cudnnBackendSetAttribute(desc, name, type, n, values);
    n_fallbacks += name == CUDNN_ATTR_ENGINEHEUR_MODE &&
                   *(const cudnnBackendHeurMode_t *)values == CUDNN_HEUR_MODE_FALLBACK;
    if (name != CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH || status != CUDNN_STATUS_SUCCESS)
        return status;
    return __real_cudnnBackendSetAttribute(desc, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
}

/* ---- a program that is planned as far as that ------------------------------------------------ */

static struct device device = {.name = "NVIDIA H200",
                               .options = {.tuning = "no", .workspace = UINT64_C(1) << 30},
                               .cudnn = HANDLE};

static void open_batch(const struct dpb_graph *graph, dpb_precision precision, uint32_t batch,
                       struct program *p)
{
    *p = (struct program){.device = &device, .graph = graph};
    p->args = (struct dpb_compile_args){
        .graph = graph, .batch = batch, .precision = precision, .training = true};
    p->type = precision == DPB_PRECISION_BF16   ? TYPE_BF16
              : precision == DPB_PRECISION_FP16 ? TYPE_FP16
                                                : TYPE_FP32;
    p->nodes = allocate(graph->n_nodes, sizeof *p->nodes);
    p->groups = dpb_groups_find(graph, false);
    assert_non_null(p->groups);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        p->nodes[i].group = &p->groups[i];
        if (node->op != DPB_OP_CONV)
            continue;
        expect_ok(cuda_pack_weights_of(p, node));
    }
}

static void open_program(const struct dpb_graph *graph, dpb_precision precision, struct program *p)
{
    open_batch(graph, precision, 256, p);
}

/* A convolution's plans but for its gradient by the input; @borrowed from the program. */
static struct conv_plans *const *open_conv(struct program *p, const struct dpb_node *node)
{
    expect_ok(cuda_conv_open(p, node, CONV_FORWARD));
    expect_ok(cuda_conv_open(p, node, CONV_WEIGHTS));
    return cuda_plan(p, node)->conv;
}

static void close_program(struct program *p)
{
    while (p->tensors) {
        struct tensor *next = p->tensors->next;
        free(p->tensors);
        p->tensors = next;
    }
    cuda_plans_close(p->plans);
    free(p->groups);
    free(p->nodes);
}

static struct dpb_graph *resnet50(void)
{
    const struct dpb_plugin *model = model_find("resnet50");
    return model_graph(model, "v1.5", model_info(model).input, 1000);
}

static int setup(void **unused)
{
    (void)unused;
    temporary_directory(directory);
    cuda_host = &plugin_host;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &gpu) !=
            CUDNN_STATUS_SUCCESS ||
        __real_cudnnBackendSetAttribute(gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, sizeof h200,
                                        h200) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendFinalize(gpu) != CUDNN_STATUS_SUCCESS) {
        print_message("cuDNN %zu does not take that description of a GPU\n", cudnnGetVersion());
        gpu = NULL;
    }
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    remove_directory(directory);
    return 0;
}

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

/* All calls of a network's convolutions. */
static void open_all(struct program *p)
{
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        const struct dpb_node *node = &p->graph->nodes[i];
        bool adds = false;
        if (node->op != DPB_OP_CONV)
            continue;
        open_conv(p, node);
        if (node->inputs[0] != 0)
            expect_ok(cuda_conv_open_data(p, node, &adds));
    }
}

/* All of them have plans. */
static void expect_plans(const struct dpb_graph *graph, dpb_precision precision, uint32_t batch)
{
    struct program p;
    open_batch(graph, precision, batch, &p);
    open_all(&p);
    for (const struct conv_plans *plans = p.plans; plans; plans = plans->next) {
        assert_int_equal(plans->n, 1);
        expect_engine(&plans->plans[0], precision);
    }
    close_program(&p);
}

/* What tuning loads and runs for ResNet-50 in bf16: of each of 68 calls 12 plans of heuristic A.
 * Some 2,500 took more than 45 s on an H200, 18 ms each: 816 take 15 s. */
TEST(test_candidates)
{
    struct dpb_graph *graph = resnet50();
    const struct device before = device;
    char tuning[128];
    struct program p;
    unsigned calls = 0, plans = 0;
    if (!gpu)
        skip();
    snprintf(tuning, sizeof tuning, "%s/candidates", directory);
    device.options.tuning = tuning;
    n_fallbacks = 0;
    open_batch(graph, DPB_PRECISION_BF16, 256, &p);
    open_all(&p);
    for (const struct conv_plans *call = p.plans; call; call = call->next, calls++) {
        assert_in_range(call->n, 2, 12);
        plans += call->n;
    }
    print_message("%u calls have %u plans to try\n", calls, plans);
    assert_in_range(calls, 60, 70);
    assert_int_equal(n_fallbacks, 0);
    close_program(&p);
    device = before;
    dpb_graph_destroy(graph);
}

/* By default ResNet-50 alone; with DPB_ALL_CELLS (make check-long) more networks and batches. */
TEST(test_networks)
{
    static const char *const names[] = {"resnet50", "alexnet", "vgg16", "inception3"};
    const bool all = getenv("DPB_ALL_CELLS");
    if (!gpu)
        skip();
    for (int i = 0; i < (all ? 4 : 1); i++) {
        const struct dpb_plugin *model = model_find(names[i]);
        struct dpb_graph *graph =
            i == 0 ? resnet50() : model_graph(model, NULL, model_info(model).input, 1000);
        expect_plans(graph, DPB_PRECISION_BF16, 256);
        if (all) {
            expect_plans(graph, DPB_PRECISION_BF16, 32);
            expect_plans(graph, DPB_PRECISION_FP16, 256);
            expect_plans(graph, DPB_PRECISION_FP16, 32);
        }
        dpb_graph_destroy(graph);
    }
}

TEST_MAIN(setup, teardown)
