/*
 * queue.h - memory of a device and work on it: what a device plugin with memory of its own offers
 * to core, and core to strategies. Core offers the same for the host.
 *
 * For devices with memory of their own, and strategies on them. A first plugin does not need
 * this header.
 *
 * Work is given to queues. A queue does its work in order. Several queues work at the same time
 * where the hardware can. No function here blocks unless its line says so. A queue of the host does
 * its work before the call returns.
 *
 * `record` ties an event of the host (host->event) to a queue. The host can poll it or wait for it,
 * and another queue can wait for it.
 *
 * With device cuda a struct dpb_queue * is a cudaStream_t, which a strategy may hand to a library
 * of CUDA's. A function that takes a queue makes the queue's GPU current on the calling thread.
 *
 * Functions fail by host->fail, naming the call. Each queue is used by one thread at a time.
 */
#ifndef DPBENCH_QUEUE_H
#define DPBENCH_QUEUE_H

#include "codec.h"
#include "norms.h"
#include "status.h"
#include "types.h"

struct dpb_event; /* host.h */
struct dpb_queue; /* the device's */

/* Another process of this machine maps memory by this handle, which may be sent as bytes. */
enum { DPB_HANDLE_BYTES = 128 };
struct dpb_memory_handle {
    uint8_t bytes[DPB_HANDLE_BYTES];
};

typedef enum dpb_update_kind {
    DPB_UPDATE_PLAIN, /* w -= rate * (scale * g + decay * w) */
    DPB_UPDATE_MOMENTUM,
    DPB_UPDATE_NESTEROV,
    DPB_UPDATE_ADAGRAD,
    DPB_UPDATE_ADAM,
    DPB_UPDATE_RMSPROP
} dpb_update_kind;

/* The part of an update that changes from step to step, in device memory. */
struct dpb_update_words {
    double rate, scale;
    double correction, second_correction; /* ADAM */
};

/* One step of the optimizer on n elements, by the rules of optim/optimizer.h, in the arithmetic of
 * the weights' type. Pointers are into the device's memory. The structs themselves are read before
 * the call returns. A device with memory of its own has fp32 weights and gradients of fp32,
 * bf16 or fp16. */
struct dpb_update {
    dpb_update_kind kind;
    double rate, scale, decay, momentum, epsilon;
    /* ADAM: momentum is beta1; the corrections are 1 - beta^t of the t-th update. RMSPROP: beta2 is
     * the decay of the mean square. */
    double beta2, correction, second_correction;
    bool decoupled; /* ADAM: decay is no part of g, but w -= rate * decay * w */
    const struct dpb_update_words *words; /* read when the work is done, in place of rate, scale
                                             and corrections; NULL: those hold */
    /* On a device: read when the work is done, in place of rate, scale and decay; NULL: those
     * hold. */
    const struct dpb_factors *factors;
    uint64_t n, first; /* `first`: the arena element that the pointers point at */
    /* Arena elements with decay: rising, disjoint. */
    const struct dpb_range *decays;
    uint64_t n_decays;
    dpb_dtype weight_type, gradient_type;
    /* In weight_type. state: velocity, sum of squares, first moment, or RMSPROP's mean square;
     * PLAIN does not read it. second: ADAM's second moment, RMSPROP's velocity. */
    void *weights, *state, *second;
    const void *gradients;
    /* Set to the arena element + 1 of the lowest new weight that is infinite or NaN, unless it
     * holds a lower one already; 0 holds none. NULL: not looked for. */
    uint64_t *not_finite;
};

/* Norms of whole tensors, on a device; all pointers are into its memory. `step`: of the update,
 * with weights, gradients, state and second as they lie at the arenas' and the state's begin. The
 * squares are of the gradients; with `way` of what this step of ADAM would move the weights by at a
 * rate of 1, of pieces that decay. */
struct dpb_norms {
    struct dpb_norm_rule rule;
    struct dpb_update step;
    const struct dpb_norm_piece *pieces; /* rising */
    const uint32_t *first_pieces;        /* of each tensor; behind the last: n_pieces */
    uint32_t n_pieces, n_tensors;
    struct dpb_squares *sums;    /* room for an entry of each piece */
    struct dpb_factors *factors; /* by tensor */
    bool way, weights;           /* weights: the squares of those that decay, too */
};

struct dpb_queue_ops {
    /* The queues' kind: "cuda" (a queue is a cudaStream_t), "host". */
    const char *runtime;

    /* ---- memory of the device ---- */

    /* Zeroed; @owned until release. `shared`: other processes may map it; never set on the host,
     * where core shares memory itself. `name` is for messages. */
    dpb_status (*allocate)(void *device, const char *name, uint64_t bytes, bool shared,
                           void **memory);
    void (*release)(void *device, void *memory); /* accepts NULL; waits for no queue */
    dpb_status (*describe)(void *device, void *memory, struct dpb_memory_handle *handle);
    /* Maps memory that another process described, perhaps on another device. `copy` may always use
     * it, arithmetic only where *direct is set; otherwise copies between the devices go through the
     * host. A process must not map memory that it described itself. @owned until unmap, which must
     * come before the owner's release. describe, map and unmap are NULL on the host. */
    dpb_status (*map)(void *device, const struct dpb_memory_handle *handle, void **memory,
                      bool *direct);
    void (*unmap)(void *device, void *memory); /* accepts NULL */
    /* Host memory that the device itself can copy from and to. @owned until unpin, which accepts
     * NULL. */
    dpb_status (*pin)(void *device, uint64_t bytes, void **memory);
    void (*unpin)(void *device, void *memory);

    /* ---- queues ---- */

    dpb_status (*open)(void *device, struct dpb_queue **queue);
    /* Accepts NULL. Blocks until all work is done or has failed: memory that the work uses may be
     * released or unmapped next. */
    void (*close)(struct dpb_queue *queue);
    dpb_status (*drain)(struct dpb_queue *queue); /* blocks until all of its work is done */
    /* `event`, made by new_event, fires when the work given to the queue so far is done. It may be
     * recorded again once it has fired. An event that was never recorded counts as fired. */
    dpb_status (*new_event)(void *device,
                            struct dpb_event **event); /* @owned: host->event->destroy */
    dpb_status (*record)(struct dpb_queue *queue, struct dpb_event *event);
    /* Work given from now on begins when `event` has fired for its last record. An event that the
     * host signals must have fired already: DPB_USAGE. */
    dpb_status (*await)(struct dpb_queue *queue, struct dpb_event *event);
    /* As `record`. On a queue that is being captured (capture.h) each launch of the graph
     * records `event`, so the host and queues outside the graph can wait for it. Within a capture
     * order work by `record` and `await`: an event recorded there has no meaning outside. A queue
     * that waits for one is captured, too, until the capture ends. */
    dpb_status (*stamp)(struct dpb_queue *queue, struct dpb_event *event);
    /* The device's time from the last record of one event to that of another. Both have fired and
     * come from new_event. */
    dpb_status (*elapsed)(const struct dpb_event *from, const struct dpb_event *to, int64_t *ns);

    /* ---- work ---- */

    /* Either side may be memory of this device, mapped, pinned, or any other memory of the host. In
     * the last case the call returns once that memory has been read or written. */
    dpb_status (*copy)(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes);
    dpb_status (*clear)(struct dpb_queue *queue, void *dst, uint64_t bytes);
    /* dst = the sum of k sources in their order, bit for bit that of host->vec. dst may be a
     * source. A device: fp32, bf16 and fp16, k <= DPB_SUM_SOURCES; the host: every type, any k. */
    dpb_status (*sum)(struct dpb_queue *queue, dpb_dtype type, void *dst,
                      const void *const *sources, uint32_t k, uint64_t n);
    dpb_status (*axpby)(struct dpb_queue *queue, dpb_dtype type, double a, const void *x, double b,
                        void *y, uint64_t n); /* as host->vec */
    dpb_status (*cast)(struct dpb_queue *queue, dpb_dtype to, void *dst, dpb_dtype from,
                       const void *src, uint64_t n);
    dpb_status (*update)(struct dpb_queue *queue, const struct dpb_update *update);
    /* own[tensor] = the sums of squares of this rank's pieces; changes nothing else. NULL on the
     * host, and on a device without norms, as is `factors`. */
    dpb_status (*squares)(struct dpb_queue *queue, const struct dpb_norms *norms,
                          struct dpb_squares *own);
    /* norms->factors by the entries of all n owners, those of one behind the other's. Of LAMB first
     * without `way`, then with it. */
    dpb_status (*factors)(struct dpb_queue *queue, const struct dpb_norms *norms,
                          const struct dpb_squares *all, uint32_t n);

    /* ---- codecs: all NULL on the host, whose strategies call the codec's own hooks, and on a
     * device without kernels for any. Same bits as those hooks, in memory of the device. ---- */

    /* Bytes of `room`, which `encode` works in, for parts of up to n elements. UINT64_MAX: the
     * device has no kernels for the codec. Called without `open`, too. */
    uint64_t (*coding_bytes)(const struct dpb_codec *codec, uint64_t n);
    /* *bytes of the message are known when the call returns; the same on all workers. */
    dpb_status (*encode)(struct dpb_queue *queue, const struct dpb_codec *codec,
                         const struct dpb_codec_part *part, const float *gradients, float *residual,
                         void *message, void *room, uint64_t *bytes);
    /* The message has the bytes that `encode` returned. *refused, in pinned memory, becomes
     * part->rank + 1 if it holds what the codec's own hook refuses; `sum` is undefined then. */
    dpb_status (*decode)(struct dpb_queue *queue, const struct dpb_codec *codec,
                         const struct dpb_codec_part *part, const void *message, float *sum,
                         uint32_t *refused);
    /* For codecs with this hook. part->state is memory of the device, too. */
    dpb_status (*finish)(struct dpb_queue *queue, const struct dpb_codec *codec,
                         const struct dpb_codec_part *part, const float *sum, float *gradients,
                         float *residual);
};

enum { DPB_SUM_SOURCES = 64 };

/* A device as core gives it to a strategy: the worker's, or the host. */
struct dpb_device_arenas {
    const struct dpb_queue_ops *ops;
    void *device; /* the first argument of the functions that take one; NULL for the host */
    /* Why an exchange cannot be captured with the device's backward (dpb_comm_ops.capture), for
     * messages: "device.graphs = no"; NULL: it can. */
    const char *no_capture;
};

#endif
