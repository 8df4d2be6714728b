/*
 * exchange.h - the work that comm nccl has enqueued for a step, and the GPU's progress.
 *
 * Events around each launch's work give the GPU's times. An event that `begin` records into a
 * second, idle queue ties them to the host's clock. The GPU passes this event after the host has
 * enqueued it, later by the time that a record takes to reach it (microseconds; not measured). So
 * all spans of a step stand too early by this time. Their lengths are as exact as
 * cudaEventElapsedTime, 0.5 us. A transfer cannot be told from the wait for a late peer: both are
 * inside NCCL's kernel. A step's spans are reported when its last event has fired, at the latest in
 * the next step's `end`: the next forward is behind this event. A graph's launches record its
 * events; a step's are read before the next launch.
 */
#ifndef DPB_PLUGINS_COMM_NCCL_EXCHANGE_H
#define DPB_PLUGINS_COMM_NCCL_EXCHANGE_H

#include "lib/nccl/communicator.h"
#include "lib/strategy/strategy.h"

/* Neighbouring buckets that are reduced and updated together (with shards always one bucket), and
 * its events, in order. GATHERED is for shards only. */
enum mark { BEGUN, REDUCED, UPDATED, GATHERED, MARKS };

struct launch {
    uint64_t first, n;
    struct dpb_event *marks[MARKS];
};

/* The work that is enqueued for an exchange. */
struct work {
    struct launch *launches; /* room for a launch of each bucket */
    uint64_t n_launches;
    struct dpb_event *done;
};

/* One step's exchange; two of them take turns. */
struct exchange {
    struct dpb_step step;
    int64_t origin_ns;
    struct dpb_event *origin;
    struct work own;
    const struct work *work; /* `own`, or nccl.captured */
    uint64_t n_through;      /* from the first: launches whose last event has fired */
    int64_t waiting_ns;      /* since when for the next launch; 0: no wait */
    bool ended, reported;
};

struct nccl {
    struct strategy strategy; /* args, arenas */
    bool sharded;
    struct nccl_options options;
    const struct dpb_queue_ops *queues;
    struct communicator communicator;
    struct dpb_queue *queue, *idle;
    struct exchange exchanges[2];
    uint64_t n_exchanges;
    uint64_t held, n_held;   /* buckets that are not launched yet: first, number */
    struct dpb_event *event; /* behind it these buckets are final */
    dpb_status status;
    bool captures;                /* as it was planned */
    bool capturing;               /* now */
    struct dpb_capture capture;   /* drop NULL: nothing was captured */
    struct work captured;         /* a graph's launches record its events... */
    struct dpb_event *in_capture; /* ... except this one: behind all captured work */
};

/* A launch's elements; the part that this rank updates; a wait with `purpose`, for messages. */
struct dpb_range launch_range(const struct nccl *nccl, const struct launch *launch);
struct dpb_range launch_owned(const struct nccl *nccl, const struct launch *launch);
struct dpb_wait launch_wait(const struct nccl *nccl, const struct exchange *exchange,
                            const struct launch *launch, const char *purpose);

/* Allocates launches and events for all buckets, after `bind` of the strategy. close accepts work
 * that was not opened, or only in part. */
dpb_status work_open(const struct nccl *nccl, struct work *work);
void work_close(const struct nccl *nccl, struct work *work);
dpb_status exchange_open(const struct nccl *nccl, struct exchange *exchange);
void exchange_close(const struct nccl *nccl, struct exchange *exchange);

/* Counts the launches that are through; after the last one, reports all spans. */
dpb_status exchange_look(const struct nccl *nccl, struct exchange *exchange);
/* Fails if the first launch that is not through has passed its deadline or NCCL has failed. */
dpb_status exchange_watch(const struct nccl *nccl, struct exchange *exchange);
/* Blocks until the exchange is through, as it was before this step's forward. Then its events may
 * be recorded again. */
dpb_status exchange_settle(const struct nccl *nccl, struct exchange *exchange);
/* Returns whether the GPU has finished the exchange. */
bool exchange_is_through(const struct nccl *nccl, const struct exchange *exchange);

#endif
