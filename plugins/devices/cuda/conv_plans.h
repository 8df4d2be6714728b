/*
 * conv_plans.h - convolutions in cuDNN's graph API: descriptors and the plain graphs
 * (conv_graphs.c), and the plans that cuDNN has for a graph (conv_plans.c).
 */
#ifndef DPB_CUDA_CONV_PLANS_H
#define DPB_CUDA_CONV_PLANS_H

#include "products.h"

/* Of tensors. */
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
    UID_JOINED, /* from here on: stored nowhere */
    UID_CENTERED,
    UID_NORMAL,
    UID_PRODUCT
};

/* Bytes. Core's own weights, where they are not packed, lie so as well (DPB_TENSOR_ALIGN). */
enum { PLAN_ALIGN = 16 };

struct making;

/* How the plans of a call are made. */
struct conv_kind {
    const char *name; /* in keys */
    cudnnBackendDescriptor_t (*graph)(struct making *m);
    bool compiles;  /* kernels may be compiled when a plan is made, which takes seconds */
    uint32_t most;  /* plans that are timed */
    int else_taken; /* where nothing is known: the first, 0; or SEPARATE */
    bool adds;      /* the result to what its place holds */
};

/* The making of a node's plans. Once a call has failed nothing more is done until `status` is
 * cleared. */
struct making {
    const struct program *p;
    const struct dpb_node *node;
    const struct conv_kind *kind;
    struct conv_plans *plans;
    cudnnHandle_t cudnn; /* the device's, or a compiling thread's own */
    cudnnStatus_t status;
    bool unexpected; /* plans->why is of a call that did not just say that it has nothing */
    int n_seen;      /* engines' configurations that would do */
    uint32_t most;   /* plans */
};

/* ---- conv_graphs.c --------------------------------------------------------------------------- */

void cuda_making_note(struct making *m, cudnnStatus_t status, const char *call);
/* NULL where there is none. It goes with the plans. */
cudnnBackendDescriptor_t cuda_desc_make(struct making *m, cudnnBackendDescriptorType_t type);
void cuda_desc_set(struct making *m, cudnnBackendDescriptor_t desc,
                   cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t n,
                   const void *values);
void cuda_desc_set_one(struct making *m, cudnnBackendDescriptor_t desc,
                       cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other);
void cuda_desc_finalise(struct making *m, cudnnBackendDescriptor_t desc, const char *what);
/* Packed, in the program's layout; not `stored`: a value on its way between operations. */
cudnnBackendDescriptor_t cuda_graph_tensor(struct making *m, enum uid uid, cudnnDataType_t type,
                                           struct grid grid, int64_t align, bool stored);
/* The operation of the call, whose result is `to`; NULL: a tensor that is stored. */
cudnnBackendDescriptor_t cuda_graph_conv(struct making *m, enum conv_call call,
                                         cudnnBackendDescriptor_t to);
cudnnBackendDescriptor_t cuda_graph_of(struct making *m, int64_t n,
                                       const cudnnBackendDescriptor_t *ops);
/* Of the calls alone; and of CONV_DATA that adds its result to what the place holds. */
extern const struct conv_kind cuda_conv_kinds[CONV_CALLS], cuda_conv_adding;

/* ---- conv_plans.c ---------------------------------------------------------------------------- */

/* The plans of a node's call, @borrowed from the program: those of another node of equal shapes, or
 * as device.tuning and its file want them. There may be none. Without `found`: kernels have to be
 * compiled first. */
dpb_status cuda_plans_begin(struct program *p, const struct dpb_node *node,
                            const struct conv_kind *kind, struct conv_plans **plans);
/* On any thread, with a handle that no other thread uses: compiles, and leaves texts. */
void cuda_plans_write(const struct program *p, struct conv_plans *plans, cudnnHandle_t cudnn);
/* On the program's thread: makes the plans of these texts, by the device's handle. */
void cuda_plans_remake(const struct program *p, struct conv_plans *plans);
/* By the plan that is taken. Tensors by enum uid. */
dpb_status cuda_plans_run(const struct program *p, const struct dpb_node *node,
                          const struct conv_plans *plans, int64_t n, const int64_t uids[],
                          const void *const pointers[]);

/* ---- conv_compile.c -------------------------------------------------------------------------- */

/* Compiles on as many threads as the rank has cores what the program's plans lack. All threads are
 * joined on return. Plans do not depend on the number of threads. */
dpb_status cuda_plans_compile(struct program *p);
/* As cuda_plans_begin, with all that has to be compiled. */
dpb_status cuda_plans_find(struct program *p, const struct dpb_node *node,
                           const struct conv_kind *kind, struct conv_plans **plans);

#endif
