/*
 * exchange.h - what comm nccl has given a queue for a step, and how far the GPU is with it.
 *
 * Times are the GPU's, by events around each launch's work. They become times of the host by an
 * event that `begin` records into a second, idle queue: the GPU passes it after the host has
 * enqueued it, by what a record takes to get there (microseconds; not measured), so all spans of a
 * step stand too early by that. Their lengths are as exact as cudaEventElapsedTime, 0.5 us. From
 * the wait for a late peer the transfer cannot be told apart: both are inside NCCL's kernel. A
 * step's spans are reported when its last event has been seen, at the latest in the next step's
 * `end`: the next forward is behind that event. Of a graph launches record them, and a step's are
 * read before the next launch.
 */
#ifndef DPB_PLUGINS_COMM_NCCL_EXCHANGE_H
#define DPB_PLUGINS_COMM_NCCL_EXCHANGE_H

#include "lib/nccl/communicator.h"
#include "lib/strategy.h"

/* Neighbouring buckets that are reduced and updated together, with shards always one; its events,
 * in their order. Without shards nothing is gathered. */
enum mark { BEGUN, REDUCED, UPDATED, GATHERED, MARKS };

struct launch {
    uint64_t first, n;
    struct dpb_event *marks[MARKS];
};

/* What the queue is given for an exchange. */
struct work {
    struct launch *launches; /* room for one for each bucket */
    uint64_t n_launches;
    struct dpb_event *done;
};

/* One step's exchange; two of them take turns. */
struct exchange {
    struct dpb_step step;
    int64_t origin_ns;
    struct dpb_event *origin;
    struct work own;
    const struct work *work; /* its own, or what was captured */
    uint64_t n_through;      /* launches whose last event was seen, from the first */
    int64_t waiting_ns;      /* since when for the next of them; 0: nobody waits */
    bool ended, reported;
};

struct nccl {
    struct strategy strategy; /* args, arenas */
    struct nccl_options options;
    const struct dpb_queue_ops *queues;
    struct communicator communicator;
    struct dpb_queue *queue, *idle;
    struct exchange exchanges[2];
    uint64_t n_exchanges;
    uint64_t held, n_held;   /* buckets that are not launched yet: first, how many */
    struct dpb_event *event; /* behind which they are final */
    dpb_status status;
    bool captures;                /* as it was planned */
    bool capturing;               /* now */
    struct dpb_capture capture;   /* drop NULL: nothing was captured */
    struct work captured;         /* its events are recorded by launches... */
    struct dpb_event *in_capture; /* ... but for this: behind all of it, where it is captured */
};

/* The elements of a launch; those of them that this rank updates; and a wait for what `purpose`
 * says, for messages. */
struct dpb_range launch_range(const struct nccl *nccl, const struct launch *launch);
struct dpb_range launch_owned(const struct nccl *nccl, const struct launch *launch);
struct dpb_wait launch_wait(const struct nccl *nccl, const struct exchange *exchange,
                            const struct launch *launch, const char *purpose);

/* Room and events for all buckets, after `bind` of the strategy. close: also of what was not
 * opened, or not as a whole. */
dpb_status work_open(const struct nccl *nccl, struct work *work);
void work_close(const struct nccl *nccl, struct work *work);
dpb_status exchange_open(const struct nccl *nccl, struct exchange *exchange);
void exchange_close(const struct nccl *nccl, struct exchange *exchange);

/* Moves on over the launches that are through; after the last reports the spans of all. */
dpb_status exchange_look(const struct nccl *nccl, struct exchange *exchange);
/* Whether the first launch that is not through may go on being waited for. */
dpb_status exchange_watch(const struct nccl *nccl, struct exchange *exchange);
/* Blocks until all of it is through, as it was before this step's forward. Its events may be
 * recorded anew behind this. */
dpb_status exchange_settle(const struct nccl *nccl, struct exchange *exchange);
/* Nothing of it is on the GPU any more. */
bool exchange_is_through(const struct nccl *nccl, const struct exchange *exchange);

#endif
