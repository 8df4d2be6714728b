/*
 * device.h - the cuda device that is open: its options, its GPU, and failures of calls to CUDA.
 *
 * Functions that return dpb_status have written the message unless they return DPB_OK.
 */
#ifndef DPB_CUDA_DEVICE_H
#define DPB_CUDA_DEVICE_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "dpbench/plugin.h"

/* The layout of activations, their gradients, and cuDNN's weights. */
enum layout { LAYOUT_NHWC, LAYOUT_NCHW };

/* Whether CUDA's Multi-Process Service may, has to, or must not serve the GPU. */
enum mps { MPS_AUTO, MPS_REQUIRE, MPS_NO };

struct options {
    const char *ids;
    const char *tuning;
    int graphs;
    uint64_t workspace;
    int layout;
    int mps; /* enum mps */
};

/* Memory of another process, and the GPU that has mapped it. */
struct mapping {
    void *memory;
    int id;
    struct mapping *next;
};

struct device {
    int id;
    char name[64], pci[32];
    uint64_t seed;
    struct options options;
    cudaStream_t stream, copies;
    cudaEvent_t behind; /* recorded behind each launch of a backward captured with the exchange */
    struct mapping *mappings; /* queues.c */
    cudnnHandle_t cudnn;
    cublasLtHandle_t blas;
};

struct program;

extern const struct dpb_host *cuda_host;

/* ---- errors.c: failures of calls ------------------------------------------------------------- */

/* Returns DPB_OK; or fails with the message that `call`, up to its arguments, has failed for `node`
 * (NULL: none), with the node's shapes and the free device memory. p may be NULL. */
dpb_status cuda_check(const struct program *p, const struct dpb_node *node, const char *call,
                      cudaError_t code);
dpb_status cuda_check_cudnn(const struct program *p, const struct dpb_node *node, const char *call,
                            cudnnStatus_t code);
dpb_status cuda_check_blas(const struct program *p, const struct dpb_node *node, const char *call,
                           cublasStatus_t code);
/* CUDA_CALL(cudaSetDevice(id)): the status of a call of no node. CUDA_TRY returns a failure. */
#define CUDA_CALL(call) cuda_check(NULL, NULL, #call, call)
#define CUDA_TRY(call) DPB_TRY(CUDA_CALL(call))
/* *fits: false, without a message, if the GPU has no room for so much. */
dpb_status cuda_allocate(size_t bytes, void **memory, bool *fits);
dpb_status cuda_no_memory(void); /* of the host's */
/* Fails with the message that the arena does not fit, and names a size that would. */
dpb_status cuda_too_large(const struct program *p, size_t free_bytes);

#endif
