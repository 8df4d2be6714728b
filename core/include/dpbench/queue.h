/*
 * queue.h - arenas in a device's own memory, and work on them: what a device plugin whose memory is
 * not the host's offers to core and, through struct dpb_arenas, to strategies.
 *
 * Work is given to queues. A queue does what it is given in order, several do it at the same time
 * where the hardware can, and nothing here waits for work to be done unless its line says so.
 * Things that happen in a queue are events of the host (host->event): what `record` makes can be
 * polled, waited for by the host, and waited for by another queue.
 *
 * With device cuda a struct dpb_queue * is a cudaStream_t: a strategy that uses a library of CUDA's
 * may hand it to that. Functions that are given a queue make its GPU that of the calling thread.
 *
 * Functions fail by host->fail, naming the call. Each queue is used by one thread at a time.
 */
#ifndef DPBENCH_QUEUE_H
#define DPBENCH_QUEUE_H

#include "status.h"
#include "types.h"

struct dpb_event; /* host.h */
struct dpb_queue; /* the device's */

/* By which another process of this machine opens memory; it may be sent as bytes. */
enum { DPB_HANDLE_BYTES = 128 };
struct dpb_memory_handle {
    uint8_t bytes[DPB_HANDLE_BYTES];
};

typedef enum dpb_update_kind {
    DPB_UPDATE_PLAIN, /* w -= rate * (scale * g + decay * w) */
    DPB_UPDATE_MOMENTUM,
    DPB_UPDATE_NESTEROV,
    DPB_UPDATE_ADAGRAD
} dpb_update_kind;

/* In device memory: what changes from step to step. */
struct dpb_update_words {
    float rate, scale;
};

/* One step of the optimizer on n elements, fp32, by the rules of train/optimizer.h. Pointers are
 * into device memory, the structs themselves are read before the call returns. */
struct dpb_update {
    dpb_update_kind kind;
    double rate, scale, decay, momentum, epsilon;
    const struct dpb_update_words *words; /* read when the work is done, in place of rate and
                                             scale; NULL: those are */
    uint64_t n, first; /* `first`: the arena element that the pointers point at */
    /* Arena elements with decay: rising, disjoint; device memory, too. */
    const struct dpb_range *decays;
    uint64_t n_decays;
    float *weights;
    const void *gradients; /* of gradient_type: fp32 or bf16 */
    dpb_dtype gradient_type;
    float *state; /* velocity or sum of squares; not read by PLAIN */
    /* Raised to the lowest arena element + 1 whose new weight is infinite or NaN, where it is 0 or
     * more than that; NULL: not looked for. */
    uint64_t *not_finite;
};

struct dpb_queue_ops {
    /* What a queue is to libraries beside this one: "cuda", a cudaStream_t. */
    const char *runtime;

    /* ---- memory of the device ---- */

    /* Zeroed; @owned until release. `shared`: other processes may map it. `name` is for
     * messages. */
    dpb_status (*allocate)(void *device, const char *name, uint64_t bytes, bool shared,
                           void **memory);
    void (*release)(void *device, void *memory); /* accepts NULL; waits for no queue */
    dpb_status (*describe)(void *device, void *memory, struct dpb_memory_handle *handle);
    /* Memory that another process described, perhaps on another device: for `copy` always; for
     * arithmetic where *direct is set (else copies between the devices go by way of the host).
     * Describing memory and mapping it in one process is refused. @owned until unmap, which must
     * come before its owner releases it. */
    dpb_status (*map)(void *device, const struct dpb_memory_handle *handle, void **memory,
                      bool *direct);
    void (*unmap)(void *device, void *memory); /* accepts NULL */
    /* Memory of the host that the device copies from and to by itself. @owned until unpin, which
     * accepts NULL. */
    dpb_status (*pin)(void *device, uint64_t bytes, void **memory);
    void (*unpin)(void *device, void *memory);

    /* ---- queues ---- */

    dpb_status (*open)(void *device, struct dpb_queue **queue);
    /* Accepts NULL; waits for nothing: what is not done yet may still be. Its memory is drained
     * first. */
    void (*close)(struct dpb_queue *queue);
    dpb_status (*drain)(struct dpb_queue *queue); /* blocks until all that it was given is done */
    /* `event`, made by new_event, fires when all that the queue was given until now is done. It may
     * be recorded again once it has fired; one that never was recorded has fired. */
    dpb_status (*new_event)(void *device,
                            struct dpb_event **event); /* @owned: host->event->destroy */
    dpb_status (*record)(struct dpb_queue *queue, struct dpb_event *event);
    /* What the queue is given from now on begins when `event` has fired as it was last recorded. Of
     * an event that is the host's own: DPB_USAGE unless it has fired. */
    dpb_status (*await)(struct dpb_queue *queue, struct dpb_event *event);
    /* As `record`; but of a queue that is being captured (struct dpb_capture) it is the launches of
     * the graph that record `event`, anew each, for the host and for what is not of the graph. What
     * is captured is ordered by `record` and `await`: an event recorded there is of no use
     * elsewhere, and a queue that waits for one is captured, too, until the capture ends. */
    dpb_status (*stamp)(struct dpb_queue *queue, struct dpb_event *event);
    /* Time of the device from one event's last record to another's, both fired. Events need
     * new_event's. */
    dpb_status (*elapsed)(const struct dpb_event *from, const struct dpb_event *to, int64_t *ns);

    /* ---- work ---- */

    /* Either side may be memory of this device, mapped, pinned, or any of the host's: then the call
     * returns once that has been read or written. */
    dpb_status (*copy)(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes);
    dpb_status (*clear)(struct dpb_queue *queue, void *dst, uint64_t bytes);
    /* As host->vec, bit for bit: the sum of k sources in their order, of bf16 in fp32 and rounded
     * once. dst may be a source. fp32 and bf16. k <= DPB_SUM_SOURCES. */
    dpb_status (*sum)(struct dpb_queue *queue, dpb_dtype type, void *dst,
                      const void *const *sources, uint32_t k, uint64_t n);
    dpb_status (*axpby)(struct dpb_queue *queue, dpb_dtype type, double a, const void *x, double b,
                        void *y, uint64_t n);
    dpb_status (*cast)(struct dpb_queue *queue, dpb_dtype to, void *dst, dpb_dtype from,
                       const void *src, uint64_t n);
    dpb_status (*update)(struct dpb_queue *queue, const struct dpb_update *update);
};

enum { DPB_SUM_SOURCES = 64 };

/* Work that queues were given between the begin and the end of a capture is not done but kept in a
 * graph, which the device launches as a whole, as often as it likes. While it is captured nothing
 * may be looked at or waited for, and of memory that is copied from only what is pinned or the
 * device's is read by every launch. */
struct dpb_capture {
    void *context;
    /* Destroys the graph, for good, done or not: whoever gave it work of a library's calls this
     * before he closes or aborts what that work is of. Does not wait. Twice is harmless. */
    void (*drop)(void *context);
};

/* A device with memory of its own, as core gives it to a strategy. */
struct dpb_device_arenas {
    const struct dpb_queue_ops *ops;
    void *device; /* the first argument of those that want it */
    /* Why an exchange cannot be captured with the device's backward (dpb_comm_ops.capture), for
     * messages: "device.graphs = no"; NULL: it can. */
    const char *no_capture;
};

#endif
