/*
 * conv_plans.h - convolutions in cuDNN's graph API: descriptors and the plain graphs
 * (conv_graphs.c), and cuDNN's plans for a graph (conv_plans.c).
 */
#ifndef DPB_CUDA_CONV_PLANS_H
#define DPB_CUDA_CONV_PLANS_H

#include "products.h"

/* Numbers of a graph's tensors. */
enum uid {
    UID_X = 1,
    UID_W,
    UID_Y,
    UID_DX,
    UID_DW,
    UID_DY,
    UID_SUM,
    UID_PRODUCTS, /* forward: the squares */
    UID_DZ,
    UID_MEAN,
    UID_INVERSE,
    UID_SHORTCUT,
    UID_JOINED, /* from here on not stored */
    UID_CENTERED,
    UID_NORMAL,
    UID_PRODUCT
};

/* Bytes. Core's own weights, if not packed, have this alignment, too (DPB_TENSOR_ALIGN). */
enum { PLAN_ALIGN = 16 };

struct making;

/* How plans for a call are made. */
struct conv_kind {
    const char *name; /* in keys */
    cudnnBackendDescriptor_t (*graph)(struct making *m);
    bool compiles; /* making a plan may compile kernels, which takes seconds */
    uint32_t most; /* plans that are timed */
    int untuned;   /* taken until the call is tuned: the first, 0; or SEPARATE */
    bool adds;     /* its result to the content of its place */
};

/* The making of a node's plans. After a failed call, calls do nothing until `status` is cleared. */
struct making {
    const struct program *p;
    const struct dpb_node *node;
    const struct conv_kind *kind;
    struct conv_plans *plans;
    cudnnHandle_t cudnn; /* the device's, or a compiling thread's own */
    cudnnStatus_t status;
    bool unexpected; /* plans->why is a failure other than "not supported" */
    int n_seen;      /* suitable configurations of engines */
    uint32_t most;   /* plans */
};

/* ---- conv_graphs.c --------------------------------------------------------------------------- */

void cuda_making_note(struct making *m, cudnnStatus_t status, const char *call);
/* NULL: none could be made. Is destroyed with the plans. */
cudnnBackendDescriptor_t cuda_desc_make(struct making *m, cudnnBackendDescriptorType_t type);
void cuda_desc_set(struct making *m, cudnnBackendDescriptor_t desc,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                   const void *values);
void cuda_desc_set_one(struct making *m, cudnnBackendDescriptor_t desc,
                       cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other);
void cuda_desc_finalise(struct making *m, cudnnBackendDescriptor_t desc, const char *what);
/* Packed, in the program's layout. `stored` false: a value that passes between operations only. */
cudnnBackendDescriptor_t cuda_graph_tensor(struct making *m, enum uid uid, cudnnDataType_t type,
                                           struct grid grid, int64_t align, bool stored);
/* A stored one of activations' or weights' type. */
cudnnBackendDescriptor_t cuda_graph_stored(struct making *m, enum uid uid, struct grid grid);
/* The operation of the call. Its result is `to`; NULL: a stored tensor. */
cudnnBackendDescriptor_t cuda_graph_conv(struct making *m, enum conv_call call,
                                         cudnnBackendDescriptor_t to);
cudnnBackendDescriptor_t cuda_graph_of(struct making *m, int64_t n,
                                       const cudnnBackendDescriptor_t *ops);
/* For the calls alone; and for CONV_DATA that adds its result to the content of its place. */
extern const struct conv_kind cuda_conv_kinds[CONV_CALLS], cuda_conv_adding;

/* ---- conv_plans.c ---------------------------------------------------------------------------- */

/* Returns the plans of a node's call, @borrowed from the program: another node's with equal shapes,
 * or plans as device.tuning and its file want them. There may be none. If `found` is false, compile
 * kernels first. */
dpb_status cuda_plans_begin(struct program *p, const struct dpb_node *node,
                            const struct conv_kind *kind, struct conv_plans **plans);
/* Compiles, and leaves texts. On any thread, with a handle that no other thread uses. */
void cuda_plans_write(const struct program *p, struct conv_plans *plans, cudnnHandle_t cudnn);
/* Makes plans from these texts, with the device's handle. On the program's thread. */
void cuda_plans_remake(const struct program *p, struct conv_plans *plans);
/* Enqueues the plan that is taken. Tensors by enum uid. */
dpb_status cuda_plans_run(const struct program *p, const struct dpb_node *node,
                          const struct conv_plans *plans, int64_t n, const int64_t uids[],
                          const void *const pointers[]);

/* ---- conv_compile.c -------------------------------------------------------------------------- */

/* Compiles all kernels that the program's plans lack, on as many threads as the rank has cores.
 * Joins all threads before it returns. Plans do not depend on the number of threads. */
dpb_status cuda_plans_compile(struct program *p);
/* As cuda_plans_begin; also compiles all kernels that the plans lack. */
dpb_status cuda_plans_find(struct program *p, const struct dpb_node *node,
                           const struct conv_kind *kind, struct conv_plans **plans);

#endif
