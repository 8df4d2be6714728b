/*
 * host.h - what core does for a plugin: one table of functions, handed to dpb_plugin_entry().
 *
 * A beginner needs `fail`, `now_ns` and `alloc`.
 *
 * The table lives as long as the process. Plugins never link to core. Unless a line says otherwise
 * a function may be called from any thread, does not block and does not allocate.
 */
#ifndef DPBENCH_HOST_H
#define DPBENCH_HOST_H

#include "codec.h"
#include "comm.h"
#include "connect.h"
#include "graph.h"
#include "queue.h"
#include "status.h"
#include "types.h"

struct pollfd; /* poll.h */

/* A span of a bucket's way, for host->span(). */
typedef enum dpb_phase {
    DPB_PHASE_WAIT_PEER, /* nothing can be done because a peer is late */
    DPB_PHASE_TRANSFER,  /* bytes move, or others work for this rank */
    DPB_PHASE_REDUCE,    /* summing */
    DPB_PHASE_UPDATE,    /* the optimizer; reported by core itself */
    DPB_PHASES
} dpb_phase;

#if defined(__GNUC__)
#define DPB_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define DPB_PRINTF(text, first)
#endif

typedef enum dpb_log_level {
    DPB_LOG_ERROR,
    DPB_LOG_WARNING,
    DPB_LOG_INFO,
    DPB_LOG_DEBUG
} dpb_log_level;

/* ---- vec: arithmetic on ranges of host memory, in any element type but uint8 --------------- */

/* Sums of bf16 and fp16 are made in fp32 and rounded once, sums of fp32 in fp32, in the order of
 * the sources; so equal inputs give equal bits on every rank. Pointers need the alignment of their
 * type only. */
struct dpb_vec_ops {
    /* dst[0 .. n_dst)[i] = sources[0][i] + ... + sources[k - 1][i]. Each dst may be one of the
     * sources. Blocks are written from the first cache: memory is read and written once. */
    void (*sum)(dpb_dtype type, void *const *dst, uint32_t n_dst, const void *const *sources,
                uint32_t k, uint64_t n);
    /* y[i] = a * x[i] + b * y[i]. x may be y; else no overlap. Also with b = 0 a NaN or infinity in
     * y gives NaN. */
    void (*axpby)(dpb_dtype type, double a, const void *x, double b, void *y, uint64_t n);
    /* From or to fp64 or fp32, round to nearest even; equal types copy. No overlap. */
    void (*cast)(dpb_dtype to, void *dst, dpb_dtype from, const void *src, uint64_t n);
    void (*copy)(dpb_dtype type, void *dst, const void *src, uint64_t n);
};

/* ---- optimizer: the update of any range, on any side (worker, server, shard) --------------- */

/*
 * Core makes it after `plan`, with state for the rank's owned ranges only. `update` applies one
 * step to the elements [range.begin, range.end), which lie within owned ranges; `weights` and
 * `gradients` point at the element range.begin. Weight decay follows the tensors of the layout.
 * Disjoint ranges may be updated by several threads at once.
 *
 * On host memory the update is done on return, `queue` may be NULL, and its time is reported as
 * phase UPDATE and taken out of the communicator's. In a device's memory all of `range` is one
 * piece of work of `queue`; the strategy reports its time if it can tell.
 */
struct dpb_optimizer_ops {
    dpb_status (*update)(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                         struct dpb_range range, void *weights, const void *gradients,
                         uint64_t bucket, const struct dpb_step *step);
    /* With dpb_comm_args.whole, on a rank that owns a part of the elements: once the sums of all
     * own ranges lie in its gradient arena, and before it updates any of them. First with `all`
     * NULL: writes the sums of squares of the own ranges, one entry for each tensor of the layout.
     * After that with the entries of all n owners, one owner's behind the other's in the same order
     * on all. With *more it writes those of one more round; else updates may begin, and each
     * applies at once. `own` may lie in `all`. Own weights stay unchanged until the last round.
     *
     * In a device's memory `all` and `own` are there, too, and are read and written by work of
     * `queue`; `step` NULL: within a capture. *more is known at once. */
    dpb_status (*squares)(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                          const struct dpb_step *step, const struct dpb_squares *all, uint32_t n,
                          struct dpb_squares *own, bool *more);
    /* Array `array` of the optimizer's state, of an owned element and of those behind it in its
     * owned range, in the weights' type and where the weights lie; NULL: it has no such array
     * (args->optimizer_states). For replicas that differ: a checkpoint keeps the state of one
     * worker, unless the hook `state` names that of each. */
    void *(*state)(struct dpb_optimizer *optimizer, uint64_t element, uint32_t array);
    /* For a capture: on its queue, before `update` with `step` NULL. The launch then updates by the
     * step that `replay` was given before it. */
    dpb_status (*capture)(struct dpb_optimizer *optimizer, struct dpb_queue *queue);
    /* Before a launch, when the work of the last launch is done. */
    void (*replay)(struct dpb_optimizer *optimizer, const struct dpb_step *step);
};

/* ---- flag: a counter in shared memory that one rank raises and others wait for ------------- */

/* Lies in shared (or private) memory that started as zeros; a cache line, so that flags of
 * different writers never share one. Touch it only through the functions. Values compare modulo
 * 2^32: `a` has reached `b` if (int32_t)(a - b) >= 0. */
struct dpb_flag {
    uint32_t value, waiters;
    uint8_t unused[DPB_CACHE_LINE - 8];
};

/* The purpose of a wait, for the message when its deadline passes. */
struct dpb_wait {
    int64_t timeout_ns; /* 0: run.timeout_s; DPB_FOREVER: none (idle servers) */
    uint64_t step, bucket, bytes;
    uint32_t peer;       /* rank waited for */
    const char *purpose; /* "gradients of the peer" */
};

struct dpb_flag_ops {
    /* A reader that sees the value sees everything written before. One writer a flag. Wakes
     * waiters. */
    void (*set)(struct dpb_flag *flag, uint32_t value);
    uint32_t (*get)(const struct dpb_flag *flag);
    bool (*reached)(const struct dpb_flag *flag, uint32_t value);
    /* Blocks: spins for a moment where the core is its own, then sleeps. Returns DPB_TIMEOUT with
     * the message, or DPB_PEER when the job is ending. */
    dpb_status (*wait)(struct dpb_flag *flag, uint32_t value, const struct dpb_wait *what);
};

/* ---- event: something that happens once in a step ------------------------------------------ */

/* For device plugins: how core asks an event of theirs. */
struct dpb_event_source {
    dpb_status (*poll)(void *native, bool *fired);
    void (*destroy)(void *native);
};

struct dpb_event_ops {
    struct dpb_event *(*create)(void);        /* not fired; NULL: out of memory (message written) */
    void (*destroy)(struct dpb_event *event); /* accepts NULL */
    void (*reset)(struct dpb_event *event);   /* not fired again: in `begin`, for the next `done` */
    void (*signal)(struct dpb_event *event);
    /* Also true where a device's event has failed: the next work fails, and `wait` says so. */
    bool (*poll)(struct dpb_event *event);
    /* Blocks; timeout_ns as in struct dpb_wait. */
    dpb_status (*wait)(struct dpb_event *event, const struct dpb_wait *what);
    /* An event that the device's queues make fire; neither reset nor signalled by
     * the host. `native` is @owned by the event. NULL: out of memory (message written, native
     * destroyed). */
    struct dpb_event *(*adopt)(const struct dpb_event_source *source, void *native);
    /* The device's event of an adopted event with this source; else NULL. */
    void *(*native)(const struct dpb_event *event, const struct dpb_event_source *source);
};

/* ---- store: key and value between the ranks of a job, for setting up, not for steps -------- */

struct dpb_store_ops {
    /* Keys are job-wide; a second put of a key is an error. Both block. */
    dpb_status (*put)(const char *key, const void *value, size_t bytes);
    /* Waits until the key is there. *bytes: capacity in, length out; too long is an error. */
    dpb_status (*get)(const char *key, void *value, size_t *bytes, int64_t timeout_ns);
};

/* ---- the table ----------------------------------------------------------------------------- */

struct dpb_host {
    uint32_t struct_size;
    uint32_t abi; /* DPB_ABI */

    /* Writes the message of an error, once, where it is detected: what, where (file and line, rank,
     * step), and what to do about it. Returns `status`. The first of a process is kept: the job's
     * cause. Not on the hot path. */
    dpb_status (*fail)(dpb_status status, const char *format, ...) DPB_PRINTF(2, 3);
    /* A warning that stays beside the result: warnings[].{code,text}. `code` is a snake_case
     * word. */
    void (*warn)(const char *code, const char *format, ...) DPB_PRINTF(2, 3);
    void (*log)(dpb_log_level level, const char *format, ...) DPB_PRINTF(2, 3);

    int64_t (*now_ns)(void); /* CLOCK_MONOTONIC: comparable between processes of a machine */

    /* Zeroed, aligned to a cache line, large ones in huge pages where the system has them. NULL:
     * out of memory (message written). Release with the same size. */
    void *(*alloc)(size_t bytes);
    void (*release)(void *memory, size_t bytes); /* accepts NULL */

    /* Reports a span of communication of the current step into a preallocated ring. */
    void (*span)(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns);
    /* Payload bytes that this rank sent, or read out of another rank's memory. */
    void (*count_bytes)(uint64_t bytes);
    /* A server has applied this worker's gradients of the current step after `age` other updates of
     * the weights that they were computed from; DPB_DROPPED: it never will. Workers; once a server
     * and step. */
    void (*age)(uint64_t age);
    /* Adds to the current step's account of the codec. */
    void (*coding)(const struct dpb_coding *coding);
    /* Notes this rank's next action for the status page, which is shown if the rank hangs or
     * dies. */
    void (*note)(const char *phase, uint64_t bucket, uint32_t peer);

    const struct dpb_vec_ops *vec;
    const struct dpb_optimizer_ops *optimizer;
    const struct dpb_flag_ops *flag;
    const struct dpb_event_ops *event;
    const struct dpb_store_ops *store;

    /* Collective over the ranks that connect; blocks up to run.timeout_s. A connection without the
     * job's secret is logged and dropped. No socket is left when this fails. */
    dpb_status (*connect)(const struct dpb_connect_args *args);

    /* Blocks as flag->wait does, until poll(2) finds one of the descriptors ready and fills in
     * revents. waited_ns: NULL; or for a wait in turns, between which the caller looks at something
     * else. The deadline then counts *waited_ns, 0 before the first turn, to which each turn adds.
     * A turn ends after 50 ms at the latest, also when nothing is ready. */
    dpb_status (*poll)(struct pollfd *fds, uint32_t n, const struct dpb_wait *what,
                       int64_t *waited_ns);

    /* For callers that must poll. Returns DPB_OK until the deadline passes or the job ends, then
     * DPB_TIMEOUT or DPB_PEER, as flag->wait. The deadline counts from *begin_ns, which the first
     * call finds 0 and sets. From 200 ms on, each call sleeps for 20 us. */
    dpb_status (*patience)(const struct dpb_wait *what, int64_t *begin_ns);

    /* Reports what this rank chose where an option leaves something open: an interface, a device.
     * The result keeps the value as ranks[].comm.NAME, and the table shows it. `name` is a
     * snake_case word of up to 23 bytes, the value has up to 103. A second report of a name
     * replaces the first. A rank keeps 8; a value that does not fit is left out, with a warning.
     * For setting up, by one thread. */
    void (*report)(const char *name, const char *format, ...) DPB_PRINTF(2, 3);

    /* Machines of the job, as its ranks lie: a strategy may hand other places to its libraries. */
    uint32_t (*n_machines)(void);
};

#endif
