/*
 * device_strategy.h - common parts of strategies that enqueue their work (queue.h): inboxes into
 * which workers push gradients, sums of gradients, and buckets whose enqueued work is not finished.
 * Workers share signals in the host's memory.
 *
 * Every bucket has owners: workers on whose device a share of it is summed. A worker copies its
 * gradients of the share into a slot of the owner's inbox, which is in the owner's device memory.
 * The owner sums slots and its own gradients there, in the order of the ranks. The strategy decides
 * whether owners then give the sum or new weights. No kernel touches another device's memory; only
 * `copy` does. It copies from device to device, or through the host if devices cannot reach each
 * other.
 *
 * Stages enqueue work, and a bucket lands when the device has finished its work (pipeline.h). Waits
 * for a device only poll.
 *
 * If the device is the host, the strategy works in place. Owners read gradients in the arenas, so
 * there is no inbox. Work is finished as soon as it is enqueued. So signals are raised at once,
 * stages work piece by piece, and a wait for a peer sleeps.
 */
#ifndef DPB_PLUGINS_LIB_DEVICE_STRATEGY_H
#define DPB_PLUGINS_LIB_DEVICE_STRATEGY_H

#include "strategy.h"

enum { DPB_DEVICE_IN_FLIGHT = 8 /* buckets of one flight at most */ };

/* Kinds of work, by the number in struct dpb_stage_flight. A strategy with a scheme of its own
 * shares the first and names the others itself. */
enum {
    DPB_DEVICE_UPDATES, /* after the sum, if owners give weights; else after the pull */
    DPB_DEVICE_PUSHES,  /* gradients to the owners, by `out` */
    DPB_DEVICE_SUMS,    /* by `here` */
    DPB_DEVICE_PULLS,   /* sums or new weights from the owners, by `back` */
    DPB_DEVICE_FLIGHTS = 5
};

struct dpb_device_lane {
    struct dpb_queue *queue;
    int64_t idle_since_ns; /* when its earlier work was seen to be finished */
};

/* One kind of work: the buckets for which it is enqueued, in order. */
struct dpb_device_flight {
    struct dpb_device_lane *lane;
    struct dpb_event *events[DPB_DEVICE_IN_FLIGHT]; /* by bucket, in turn */
    int64_t began_ns[DPB_DEVICE_IN_FLIGHT];
    bool empty[DPB_DEVICE_IN_FLIGHT]; /* there was nothing to do, or it was done at once */
    enum dpb_signal_kind raises;      /* when a bucket has landed; DPB_N_SIGNALS: none */
    uint64_t begun, landed;           /* buckets of this exchange */
};

/* How a strategy divides buckets, and how large its inboxes are. */
struct dpb_device_scheme {
    /* The elements of the bucket of `length` elements that worker `owner` sums; may be empty. */
    struct dpb_range (*share)(const struct dpb_comm_args *args, uint32_t owner, uint64_t bucket,
                              uint64_t length);
    uint64_t every;   /* an owner has a share of one in so many buckets, in turn */
    uint64_t n_slots; /* shares from each worker that fit into an inbox */
    /* True: others copy an owner's new weights. False: they copy the sum, and all update. */
    bool gives_weights;
};

struct dpb_device_strategy {
    struct dpb_strategy base; /* first */
    const struct dpb_queue_ops *ops;
    void *device;
    /* The device is the host: owners sum gradients in the arenas; enqueued work is finished. */
    bool in_place;
    struct dpb_device_scheme scheme;
    uint64_t slot_bytes;
    const void **sources; /* of a sum, by worker */
    struct dpb_device_lane out, here, back;
    struct dpb_device_flight flights[DPB_DEVICE_FLIGHTS];
    /* NULL; or called for a bucket that has landed, before its signal: how long the work took. */
    void (*landed)(struct dpb_device_strategy *comm, uint32_t flight, uint64_t bucket, int64_t ns);
    dpb_status status; /* the first failure of enqueued work; no more is enqueued then */
    /* The wait under way: for which bucket and purpose, since when, and how often it has polled. */
    uint64_t awaited_bucket;
    uint32_t awaited_peer;
    const char *awaited;
    uint32_t awaited_count; /* the peer's, of a signal */
    int64_t waiting_ns;
    uint32_t looks, nap_us;
};

/* ---- hooks --------------------------------------------------------------------------------- */

/* For the hook `needs`: the strategy's arenas are the device's. */
dpb_status dpb_device_strategy_needs(const void *options, struct dpb_comm_needs *needs);
/* `open` of a strategy whose struct begins with a struct dpb_device_strategy. Refuses more
 * workers than one sum of the device takes. */
dpb_status dpb_device_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                    size_t bytes, void **comm);
/* Bytes of device memory that this worker's inbox takes. */
uint64_t dpb_device_strategy_inbox(const struct dpb_device_scheme *scheme,
                                   const struct dpb_comm_args *args,
                                   const struct dpb_layout *layout, uint64_t bucket_elements);
/* The part of `plan` that is the same: signals, inboxes. The scheme is set. */
void dpb_device_strategy_plan(struct dpb_device_strategy *comm, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want);
/* `bind`, with the flight of each stage, or NULL; reports in the result the way of copies. */
dpb_status dpb_device_strategy_bind(struct dpb_device_strategy *comm,
                                    const struct dpb_arenas *arenas, const struct dpb_stage *stages,
                                    const struct dpb_stage_flight *const *flights,
                                    uint32_t n_stages);
dpb_status dpb_device_strategy_begin(void *comm, const struct dpb_step *step);
dpb_status dpb_device_strategy_progress(void *comm, int64_t budget_ns);
void dpb_device_strategy_close(void *comm); /* accepts NULL */

/* The hooks that strategies with a scheme have in common, for their tables of ops. */
#define DPB_DEVICE_STRATEGY_HOOKS                                                               \
    .load = dpb_strategy_load, .begin = dpb_device_strategy_begin, .ready = dpb_strategy_ready, \
    .progress = dpb_device_strategy_progress, .end = dpb_strategy_end,                          \
    .publish = dpb_strategy_publish, .close = dpb_device_strategy_close

/* ---- for strategies with a scheme of their own ---------------------------------------------- */

/* Opens the three lanes. */
dpb_status dpb_device_lanes_open(struct dpb_device_strategy *comm);
/* Assigns this kind of work to the lane. The flight raises the signal when a bucket has landed
 * (DPB_N_SIGNALS: none). */
dpb_status dpb_device_flight_open(struct dpb_device_strategy *comm, uint32_t flight,
                                  struct dpb_device_lane *lane, enum dpb_signal_kind raises);
/* Closes lanes and flights, including those that never were opened. */
void dpb_device_flights_close(struct dpb_device_strategy *comm);
/* Reports in the result, if the device is not the host, the way of this worker's copies to and from
 * other owners. Without a scheme all workers are owners. */
void dpb_device_report_ways(const struct dpb_device_strategy *comm);
/* Whether all begun flights have landed. */
bool dpb_device_all_landed(const struct dpb_device_strategy *comm);
/* The event behind the bucket's work, all of which is enqueued (dpb_device_begun). */
struct dpb_event *dpb_device_flight_event(const struct dpb_device_strategy *comm, uint32_t flight,
                                          uint64_t bucket);
/* Keeps the first failure of enqueueing in comm->status. */
void dpb_device_keep(struct dpb_device_strategy *comm, dpb_status status);
/* For a strategy whose struct begins with a struct dpb_device_strategy. A bucket that lands makes
 * room, reports the time of the work and raises the flight's signal. If the work has failed, the
 * failure is kept in comm->status and no signal is raised. */
extern const struct dpb_stage_flight_ops dpb_device_flight_ops;

/* ---- for stages ---------------------------------------------------------------------------- */

/* Whether worker `owner` sums a share of the bucket. */
bool dpb_device_owns(const struct dpb_device_strategy *comm, uint32_t owner, uint64_t bucket);
/* The first worker that has not raised `kind` for the bucket (`owners`: only owners of a part of
 * the bucket count); UINT32_MAX: all have. */
uint32_t dpb_device_missing(const struct dpb_device_strategy *comm, enum dpb_signal_kind kind,
                            bool owners, uint64_t bucket);

/* Whether the flight has room for one more bucket. */
bool dpb_device_has_room(const struct dpb_device_strategy *comm, uint32_t flight);
/* All work for the bucket was enqueued on the flight's queue; `empty`: there is no work. */
void dpb_device_begun(struct dpb_device_strategy *comm, uint32_t flight, uint64_t bucket,
                      bool empty);

/* The elements of the bucket to work on next, from turn->at on; moves turn->at behind them. On a
 * device: all elements. On the host: as many as fit into a cache, so that a stage ends in time. */
struct dpb_range dpb_device_piece(const struct dpb_device_strategy *comm,
                                  struct dpb_stage_turn *turn);

/* Work on a piece, enqueued on a flight's queue. The last piece begins the bucket's flight. A
 * failure is kept in comm->status. */
/* Sums the own share of the piece into the own gradients. */
void dpb_device_sum(struct dpb_device_strategy *comm, uint64_t bucket, struct dpb_range piece);
/* Updates the own share of the piece if owners give weights; else the whole piece. */
void dpb_device_update(struct dpb_device_strategy *comm, uint64_t bucket, struct dpb_range piece);
/* Copies the owners' sums or weights of the piece into the own arena. */
void dpb_device_pull(struct dpb_device_strategy *comm, uint64_t bucket, struct dpb_range piece);

/* ---- stages and parts of stages that all have ---------------------------------------------- */

/* The first stage: copies own gradients into the owners' inboxes. In place there is no such
 * stage. */
bool dpb_device_push_due(void *comm, uint64_t bucket);
void dpb_device_push(void *comm, uint64_t bucket, struct dpb_stage_turn *turn);
dpb_status dpb_device_push_wait(void *comm, uint64_t bucket);
/* An owner's sum, when all have handed over their gradients. */
bool dpb_device_sum_due(void *comm, uint64_t bucket);
dpb_status dpb_device_sum_wait(void *comm, uint64_t bucket);
/* Copies from the owners, when all have raised REDUCED. */
bool dpb_device_pull_due(void *comm, uint64_t bucket);
dpb_status dpb_device_pull_wait(void *comm, uint64_t bucket);
extern const struct dpb_stage_flight dpb_device_pushed, dpb_device_summed, dpb_device_pulled,
    dpb_device_updated;

/* For stages of a strategy's own: polls for a while, at most until the deadline. `peer` has not
 * done its part; `purpose` names that part in messages. */
dpb_status dpb_device_wait(struct dpb_device_strategy *comm, uint64_t bucket, uint32_t peer,
                           dpb_dtype type, const char *purpose);
/* The same for a signal of the peer's. If the device is the host, the wait sleeps. The deadline
 * begins anew whenever the peer goes on. UINT32_MAX: no peer is missing any more, and nothing is
 * waited for. */
dpb_status dpb_device_wait_signal(struct dpb_device_strategy *comm, enum dpb_signal_kind kind,
                                  uint32_t peer, uint64_t bucket, dpb_dtype type,
                                  const char *purpose);

#endif
