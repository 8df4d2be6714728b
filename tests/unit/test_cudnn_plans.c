/*
 * test_cudnn_plans.c - what the cuda device asks of cuDNN's graph API (conv_graph.c), asked of the
 * real library without a GPU: cuDNN plans for a GPU that is described to it. So its attributes,
 * types and layouts are what cuDNN takes, and there are plans.
 *
 * The device names the GPU by its handle, which cannot be made here: a wrapped
 * cudnnBackendSetAttribute puts the description in its place. Plans whose kernels are compiled when
 * they are made want a driver besides; of fp16 on compute capability 9.0 cuDNN brings kernels that
 * are compiled already.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "lib/model.h"
#include "lib/plugin.h"
#include "lib/session.h"
#include "plugins/devices/cuda/cuda.h"

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
    if (name != CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH || status != CUDNN_STATUS_SUCCESS)
        return status;
    return __real_cudnnBackendSetAttribute(desc, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
}

/* ---- a program that is planned as far as that ------------------------------------------------ */

static struct device device = {
    .name = "NVIDIA H200",
    .options = {.tuning = "no", .fusion = FUSION_ON, .workspace = UINT64_C(1) << 30},
    .cudnn = HANDLE};

static void open_program(const struct dpb_graph *graph, dpb_precision precision, struct program *p)
{
    struct dpb_group *groups = allocate(graph->n_nodes, sizeof *groups);
    *p = (struct program){.device = &device, .graph = graph};
    p->args = (struct dpb_compile_args){
        .graph = graph, .batch = 256, .precision = precision, .training = true};
    p->type = precision == DPB_PRECISION_BF16   ? TYPE_BF16
              : precision == DPB_PRECISION_FP16 ? TYPE_FP16
                                                : TYPE_FP32;
    p->nodes = allocate(graph->n_nodes, sizeof *p->nodes);
    dpb_groups_find(graph, NULL, 0, groups);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        const struct dpb_window *w = &node->window;
        p->nodes[i].group = groups[i];
        if (node->op != DPB_OP_CONV)
            continue;
        const struct grid in = cuda_grid(p, cuda_input(p, node, 0)->shape);
        struct conv *conv = p->nodes[i].conv = allocate(1, sizeof *conv);
        conv->frame = (struct frame){in, in, w->pad_top, w->pad_left};
        if (w->pad_top != w->pad_bottom || w->pad_left != w->pad_right) {
            conv->frame.outer.h += w->pad_top + w->pad_bottom;
            conv->frame.outer.w += w->pad_left + w->pad_right;
        }
        expect_ok(cuda_pack_weights_of(p, node));
    }
    free(groups);
}

static void close_program(struct program *p)
{
    for (uint32_t i = 0; i < p->graph->n_nodes; i++)
        free(p->nodes[i].conv);
    while (p->tensors) {
        struct tensor *next = p->tensors->next;
        free(p->tensors);
        p->tensors = next;
    }
    cuda_fused_close(p->fused);
    free(p->nodes);
}

static struct dpb_graph *resnet50(void)
{
    const struct dpb_plugin *model = model_find("resnet50");
    return model_graph(model, "v1.5", model_info(model).input, 1000);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Every convolution of ResNet-50 but the first, of three channels, has plans in fp16. */
static void test_plans(void **unused)
{
    (void)unused;
    struct dpb_graph *graph = resnet50();
    struct program p;
    int n = 0, n_fused = 0;
    if (!gpu)
        skip();
    open_program(graph, DPB_PRECISION_FP16, &p);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        if (node->op != DPB_OP_CONV)
            continue;
        n++;
        dpb_first_error_clear();
        if (cuda_fused_open(&p, node) != DPB_OK) {
            print_message("%s\n", dpb_first_error(NULL));
            continue;
        }
        const struct fused *fused = p.nodes[i].fused;
        assert_non_null(fused);
        assert_in_range(fused->n, 1, FUSED_CHOICES);
        assert_true(p.nodes[i].sums->place.bytes >= 2 * node->shape.c * sizeof(float));
        for (uint32_t k = 0; k < fused->n; k++)
            assert_true(p.scratch.place.bytes >= fused->plans[k].workspace);
        n_fused++;
    }
    dpb_first_error_clear();
    print_message("%d of %d\n", n_fused, n);
    assert_int_equal(n, 53);
    assert_true(n_fused >= 52);
    close_program(&p);
    dpb_graph_destroy(graph);
}

/* Kernels that are compiled want a driver: that is all that is wrong, with either graph of bf16. */
static void test_without_driver(void **unused)
{
    (void)unused;
    static const dpb_precision precisions[] = {DPB_PRECISION_BF16, DPB_PRECISION_TF32,
                                               DPB_PRECISION_FP32};
    struct dpb_graph *graph = resnet50();
    if (!gpu)
        skip();
    for (int i = 0; i < 3; i++) {
        struct program p;
        uint32_t conv = graph->n_nodes - 1;
        while (graph->nodes[conv].op != DPB_OP_CONV)
            conv--;
        open_program(graph, precisions[i], &p);
        dpb_first_error_clear();
        if (cuda_fused_open(&p, &graph->nodes[conv]) != DPB_OK) {
            print_message("%s\n", dpb_first_error(NULL));
            if (!strstr(dpb_first_error(NULL), "it offered none") &&
                !strstr(dpb_first_error(NULL), "NOT_SUPPORTED"))
                fail_msg("%s", dpb_first_error(NULL));
        }
        dpb_first_error_clear();
        close_program(&p);
    }
    dpb_graph_destroy(graph);
}

static int setup(void **unused)
{
    (void)unused;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_without_driver),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
