/*
 * session.h - a network compiled on a device, with arenas, a batch, and hooks that hold the device
 * to the promises of device.h. Serves `dpbench conform` and the tests of dpbench's own devices.
 *
 * Functions fail with DPB_VERIFICATION and the network's name if the device breaks a promise, and
 * pass on the device's own status if a hook fails. One thread uses a session.
 */
#ifndef DPB_CONFORM_SESSION_H
#define DPB_CONFORM_SESSION_H

#include "dpbench/device.h"
#include "graph/graph.h"

enum { DPB_SESSION_SEED = 7, DPB_SESSION_STEP = 3, DPB_SESSION_FIRST_SAMPLE = 5 };

struct dpb_session_args {
    const struct dpb_device_ops *ops;
    const void *options;     /* the device's; @borrowed until close */
    struct dpb_graph *graph; /* @owned by the session if open succeeds */
    uint32_t batch;
    dpb_dtype type; /* of the samples */
    dpb_sample_order order;
    dpb_precision precision;
    bool training;
    bool plain;        /* without inspect, as core compiles */
    bool node_by_node; /* DPB_DEVICE_NODE_BY_NODE */
    /* The device rounds a convolution's weight gradients once; a contraction's sum before its
     * bias is added. Both widen the bounds in bf16 and fp16. */
    bool rounds_weights, rounds_sums;
};

struct dpb_session {
    const struct dpb_device_ops *ops;
    void *device, *program;
    struct dpb_graph *graph;
    dpb_precision precision;
    bool node_by_node, rounds_weights, rounds_sums;
    struct dpb_sample_format format;
    struct dpb_batch batch;
    struct dpb_pass pass;
    struct dpb_hooks hooks;
    /* fp64 under DPB_PRECISION_FP64, else fp32. */
    void *weights, *gradients, *state, *statistics;
    struct dpb_outcome outcome;
    uint64_t frontier; /* announced by backward so far */
    void *at_frontier; /* the gradients at that time */
    bool spoil;        /* overwrite weights that backward has released */
    const void *kept;  /* with spoil: the weights; those of the node entered last alone are there */
    uint64_t n_progress;
};

/* Compiles the network on two threads, with inspect unless `plain`. Weights are initial, but no
 * bias is 0 and no gamma 1: zeros and ones would hide an omission. */
dpb_status dpb_session_open(const struct dpb_session_args *args, struct dpb_session *session);
void dpb_session_close(struct dpb_session *session);

/* One pass by session->pass. Outcome and gradients stay in the session. Backward starts with NaN in
 * every gradient. It fails if the device leaves a gradient unassigned, or changes a gradient after
 * announcing that it is final. */
dpb_status dpb_session_forward(struct dpb_session *session);
dpb_status dpb_session_backward(struct dpb_session *session);

struct dpb_device_memory dpb_session_memory(const struct dpb_session *session);
/* The type of the arenas, and element i of one. */
dpb_dtype dpb_session_type(const struct dpb_session *session);
double dpb_session_value(const struct dpb_session *session, const void *arena, uint64_t i);
void dpb_session_set(const struct dpb_session *session, void *arena, uint64_t i, double value);

/* Zeroed, aligned to a cache line, with a line behind it; NULL with a message. @owned: free(). */
void *dpb_session_allocate(uint64_t n, size_t size);

#endif
