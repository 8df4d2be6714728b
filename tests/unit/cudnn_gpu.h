/*
 * cudnn_gpu.h - what the cuda device asks of cuDNN's graph API (conv_plans.c), asked of the real
 * library without a GPU: cuDNN plans for a GPU that is described to it. For one program's only
 * file.
 *
 * The device names the GPU by its handle, which cannot be made here: a wrapped
 * cudnnBackendSetAttribute puts the description in its place. Kernels with sums are compiled when a
 * plan is made, for which cuDNN wants to load a driver, but no GPU: where there is none the test
 * starts itself anew with one of tests/fakes, whose cuInit finds no GPU.
 */
#ifndef DPB_TESTS_UNIT_CUDNN_GPU_H
#define DPB_TESTS_UNIT_CUDNN_GPU_H

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/command.h"
#include "lib/model.h"
#include "lib/plugin.h"
#include "lib/session.h"
#include "lib/test.h"
#include "plugins/devices/cuda/plan.h"
#include "plugins/devices/cuda/plan_file.h"
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
static char directory[64];          /* for what is kept */
static atomic_int n_made, n_remade; /* plans of a configuration, and of what was kept */
static bool counts;                 /* no plan is made: a kernel takes seconds to compile */
static atomic_int n_random;   /* configurations whose engine says that it is not deterministic */
static atomic_uint n_handles; /* of threads that compile */

/* Threads that compile have handles of their own, behind which nobody looks, and a GPU. */
cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle);
cudaError_t __wrap_cudaSetDevice(int id);

cudnnStatus_t __wrap_cudnnCreate(cudnnHandle_t *handle)
{
    *handle = (cudnnHandle_t)((uintptr_t)HANDLE + ++n_handles);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t __wrap_cudnnDestroy(cudnnHandle_t handle)
{
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}

cudaError_t __wrap_cudaSetDevice(int id)
{
    (void)id;
    return cudaSuccess;
}

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
        assert_in_range((uintptr_t) * (cudnnHandle_t const *)values, (uintptr_t)HANDLE,
                        (uintptr_t)HANDLE + n_handles);
    }
    n_made += name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
    n_remade += name == CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return __real_cudnnBackendSetAttribute(desc, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
    if (counts && name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        return CUDNN_STATUS_NOT_SUPPORTED;
    const cudnnStatus_t status = __real_cudnnBackendSetAttribute(desc, name, type, n, values);
    if (name != CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH || status != CUDNN_STATUS_SUCCESS)
        return status;
    return __real_cudnnBackendSetAttribute(desc, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
}

cudnnStatus_t __real_cudnnBackendGetAttribute(cudnnBackendDescriptor_t const,
                                              cudnnBackendAttributeName_t,
                                              cudnnBackendAttributeType_t, int64_t, int64_t *,
                                              void *);
cudnnStatus_t __wrap_cudnnBackendGetAttribute(cudnnBackendDescriptor_t const,
                                              cudnnBackendAttributeName_t,
                                              cudnnBackendAttributeType_t, int64_t, int64_t *,
                                              void *);

cudnnStatus_t __wrap_cudnnBackendGetAttribute(cudnnBackendDescriptor_t const desc,
                                              cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t most,
                                              int64_t *n, void *values)
{
    const cudnnStatus_t status = __real_cudnnBackendGetAttribute(desc, name, type, most, n, values);
    const cudnnBackendNumericalNote_t *notes = values;
    for (int64_t i = 0; name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && i < *n && i < most; i++)
        n_random += notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return status;
}

/* ---- a program that is planned as far as that ------------------------------------------------ */

static struct device device = {
    .name = "NVIDIA H200",
    .options = {.tuning = "no", .fusion = FUSION_ON, .workspace = UINT64_C(1) << 30},
    .cudnn = HANDLE};

static inline void open_batch(const struct dpb_graph *graph, dpb_precision precision,
                              uint32_t batch, struct program *p)
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

static inline void open_program(const struct dpb_graph *graph, dpb_precision precision,
                                struct program *p)
{
    open_batch(graph, precision, 256, p);
}

/* A convolution's plans but for its gradient by the input; @borrowed from the program. */
static inline struct conv_plans *const *open_conv(struct program *p, const struct dpb_node *node)
{
    expect_ok(cuda_conv_open(p, node, CONV_FORWARD));
    expect_ok(cuda_conv_open(p, node, CONV_WEIGHTS));
    return cuda_plan(p, node)->conv;
}

static inline void close_program(struct program *p)
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

static inline struct dpb_graph *resnet50(void)
{
    const struct dpb_plugin *model = model_find("resnet50");
    return model_graph(model, "v1.5", model_info(model).input, 1000);
}

static inline bool same_shapes(const struct dpb_graph *graph, const struct dpb_node *a,
                               const struct dpb_node *b)
{
    return memcmp(&a->window, &b->window, sizeof a->window) == 0 &&
           memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 &&
           memcmp(&graph->nodes[a->inputs[0]].shape, &graph->nodes[b->inputs[0]].shape,
                  sizeof a->shape) == 0;
}

static inline bool is_first(const struct dpb_graph *graph, const struct dpb_node *node)
{
    for (const struct dpb_node *other = graph->nodes; other < node; other++)
        if (other->op == DPB_OP_CONV && same_shapes(graph, other, node))
            return false;
    return true;
}

static inline int setup(void **unused)
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

static inline int teardown(void **unused)
{
    (void)unused;
    remove_directory(directory);
    return 0;
}

/* The loader reads LD_LIBRARY_PATH when a process starts. */
static inline void start_with_driver(char **argv)
{
    const char *build = getenv("DPB_BUILD"), *there = getenv("LD_LIBRARY_PATH");
    char path[8192];
    if (getenv("FAKE_CUDA_INIT") || dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
        return;
    snprintf(path, sizeof path, "%s/tests/fakes/cuda%s%s", build ? build : "build",
             there ? ":" : "", there ? there : "");
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("FAKE_CUDA_INIT", "100", 1); /* CUDA_ERROR_NO_DEVICE */
    execv("/proc/self/exe", argv);
    perror("execv");
}

#endif
