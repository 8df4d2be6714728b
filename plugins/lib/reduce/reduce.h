/*
 * reduce.h - a strategy that is one function of a bucket, which sums all workers' gradients of the
 * bucket. Everything else is here: open, plan, begin, ready, progress, end, the transport (memory
 * that the workers of one machine share; on several machines TCP), the update, the books, the
 * checkpoint.
 *
 * Start here for a strategy of your own that sums and updates: one function is enough.
 *
 * The function is called once a step for each bucket, when the own gradients are final. It fills
 * bucket->message, calls dpb_reduce_gather or dpb_reduce_sum with another function, and returns.
 * The other function is called when the messages of all workers are here. It leaves the sum of all
 * workers' gradients in bucket->gradients, or begins the next exchange in the same way:
 *
 *     static dpb_status take(struct dpb_reduce_bucket *bucket)
 *     {
 *         memcpy(bucket->gradients, bucket->message, bucket->n * sizeof(float));
 *         return DPB_OK;
 *     }
 *
 *     static dpb_status exact(struct dpb_reduce_bucket *bucket)
 *     {
 *         memcpy(bucket->message, bucket->gradients, bucket->n * sizeof(float));
 *         return dpb_reduce_sum(bucket, bucket->n, take);
 *     }
 *
 * All workers must leave the same bits, so they take the messages in the order of the ranks. All
 * workers exchange equally often. A function never waits. Any thread may call a function, one at a
 * time. Other buckets are exchanged, and backward runs, between two functions of a bucket.
 *
 * A function that sends only a part of its gradients adds the rest to bucket->residual: core proves
 * by the books (dpbench/contract.h) that sums and residuals together have each gradient once.
 *
 * Bytes moved per step and rank: the other workers' messages, read from their memory. On several
 * machines a ring over TCP carries the messages (gather.h): each rank sends all messages but one.
 * Sums and bits are the same.
 */
#ifndef DPB_PLUGINS_LIB_REDUCE_H
#define DPB_PLUGINS_LIB_REDUCE_H

#include "dpbench/plugin.h"

/* One worker's message. Another process may write to it: load a value once, then check it. */
struct dpb_reduce_message {
    const void *content; /* aligned to a cache line */
    uint64_t bytes;      /* at most dpb_reduce_strategy.message_bytes */
};

struct dpb_reduce_bucket {
    const struct dpb_host *host;
    const void *options;       /* the plugin's */
    uint64_t step;             /* from 1 since weights were loaded; a checkpoint has the number */
    uint64_t number, first, n; /* of the bucket; its elements [first, first + n) of the arena */
    uint32_t rank, n_workers;
    float *gradients; /* n: first the own, in the end the sum over all workers */
    float *residual;  /* n, of this worker; zeros after weights were loaded; NULL: none wanted */
    float *state;     /* likewise, dpb_reduce_strategy.state_elements */
    void *message;    /* room for the own next message; after a dpb_reduce_sum it holds the sums */
    /* The messages that a dpb_reduce_gather brought, by rank; valid until the function returns. */
    const struct dpb_reduce_message *messages;
};

typedef dpb_status (*dpb_reduce_function)(struct dpb_reduce_bucket *bucket);

/* Sends the first `bytes` of bucket->message to all workers. Return its status. */
dpb_status dpb_reduce_gather(struct dpb_reduce_bucket *bucket, uint64_t bytes,
                             dpb_reduce_function then);
/* The same for n floats, the same number on all workers. `then` finds their sums in
 * bucket->message, made in fp32 in the order of the ranks. */
dpb_status dpb_reduce_sum(struct dpb_reduce_bucket *bucket, uint64_t n, dpb_reduce_function then);

struct dpb_reduce_strategy {
    dpb_reduce_function reduce;
    /* Bytes of the longest message of a bucket of n elements. NULL: n floats and a cache line. */
    uint64_t (*message_bytes)(const void *options, uint64_t n);
    bool residual;
    /* Elements of state for a bucket of n elements; NULL: none. */
    uint64_t (*state_elements)(const void *options, uint64_t n);
    /* Steps by which gradients are late: a function leaves in bucket->gradients the sum of the step
     * `late` steps before, which it has kept in the state. The first `late` steps update nothing.
     * Not with a residual. */
    uint32_t late;
    /* As in struct dpb_contract: roundings between a gradient and the weights, beside those of the
     * sum and the residual. A rounding to bf16 counts as 1 << 16 roundings to fp32. With 0 and
     * without a residual, sums of small integers must be exact. */
    uint32_t roundings;
};

/* ---- the plugin ---------------------------------------------------------------------------- */

extern const struct dpb_comm_ops dpb_reduce_ops;
const struct dpb_plugin *dpb_reduce_entry(const struct dpb_host *host,
                                          const struct dpb_plugin *plugin,
                                          const struct dpb_reduce_strategy *strategy);

/* Defines a whole plugin of the struct dpb_reduce_strategy STRATEGY. Members of struct dpb_plugin
 * follow: .name, .version, .summary; .options and .options_size if there are options. The library
 * adds the options of TCP (tcp_connect.h): comm.streams, comm.interface, comm.port. */
#define DPB_REDUCE_PLUGIN(STRATEGY, ...)                                      \
    static const struct dpb_plugin reduce_plugin = {                          \
        DPB_PLUGIN_HEAD(COMM, dpb_reduce_ops),                                \
        .capabilities = DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE, __VA_ARGS__}; \
    const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)   \
    {                                                                         \
        return dpb_reduce_entry(given, &reduce_plugin, &(STRATEGY));          \
    }                                                                         \
    extern const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)

#endif
