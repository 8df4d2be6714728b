/*
 * device_strategy.h - what strategies share whose work is queues' (queue.h): inboxes into which
 * workers push gradients, their sum, and the buckets whose work a device has been given and has not
 * done yet. Workers share signals in the host's memory.
 *
 * Every bucket has owners: workers on whose device a share of it is summed. A worker copies its
 * gradients of the share into a slot of the owner's inbox, which is in the owner's device memory.
 * The owner sums slots and its own gradients there, in the order of the ranks. What the others get
 * from the owner afterwards is the strategy's matter. Of another device's memory only `copy` is
 * asked, which goes from device to device, or, where devices cannot reach each other, through the
 * host.
 *
 * Work on a bucket is two stages of the pipeline. One gives the work to a queue, the other is due
 * when the work is done. Nothing waits for a device but by looking.
 *
 * Where the device is the host, the strategy works in place. Owners read gradients where they are,
 * so there is no inbox. A queue's work is done when it is given, so signals are raised at once,
 * stages go on piece by piece, and a wait for a peer sleeps.
 */
#ifndef DPB_PLUGINS_LIB_DEVICE_STRATEGY_H
#define DPB_PLUGINS_LIB_DEVICE_STRATEGY_H

#include "lib/strategy.h"

enum { DEVICE_IN_FLIGHT = 8 /* buckets that one kind of work may be under way for */ };

struct device_lane {
    struct dpb_queue *queue;
    int64_t free_ns; /* when what it was given before was last seen to be done */
};

/* One kind of work: the buckets that it was given to a queue for, in order. */
struct device_flight {
    struct device_lane *lane;
    struct dpb_event *events[DEVICE_IN_FLIGHT]; /* by bucket, in turn */
    int64_t began_ns[DEVICE_IN_FLIGHT];
    bool empty[DEVICE_IN_FLIGHT]; /* there was nothing to do, or it was done at once */
    enum signal_kind raises;      /* when a bucket has landed; N_SIGNALS: none */
    uint64_t begun, landed;       /* buckets of this exchange */
};

/* How a strategy divides buckets, and how large its inboxes are. */
struct device_scheme {
    /* Elements of the bucket, which has `length`, that are summed by worker `owner`; may be
     * empty. */
    struct dpb_range (*share)(const struct dpb_comm_args *args, uint32_t owner, uint64_t bucket,
                              uint64_t length);
    uint64_t every;   /* an owner has a share of one in so many buckets, in turn */
    uint64_t n_slots; /* an inbox takes as many shares from each worker */
    /* What the others copy from an owner: its new weights, or else the sum, by which all update. */
    bool gives_weights;
};

struct device_strategy {
    struct strategy base; /* first */
    const struct dpb_queue_ops *ops;
    void *device;
    /* The device is the host: owners sum gradients where they are, and work is done when given. */
    bool in_place;
    struct device_scheme scheme;
    uint64_t slot_bytes;
    const void **sources; /* of a sum, by worker */
    struct device_lane out, here, back;
    /* Gradients to the owners (by `out`), sums (`here`), what comes back from the owners (`back`),
     * updates (behind the sum, where owners give weights; else behind what comes back). */
    struct device_flight pushes, sums, pulls, updates;
    dpb_status status; /* of what was given to a queue; then nothing more is */
    /* The wait under way: for which bucket and purpose, since when, and how often it has looked. */
    uint64_t awaited_bucket;
    uint32_t awaited_peer;
    const char *awaited;
    int64_t waiting_ns;
    uint32_t looks, nap_us;
};

/* ---- hooks --------------------------------------------------------------------------------- */

/* `open` of a strategy whose struct begins with a struct device_strategy. Refuses more
 * workers than one sum of the device takes. */
dpb_status device_strategy_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                                size_t bytes, void **comm);
/* Bytes of device memory that this worker's inbox takes. */
uint64_t device_strategy_inbox(const struct device_scheme *scheme, const struct dpb_comm_args *args,
                               const struct dpb_layout *layout, uint64_t bucket_elements);
/* The part of `plan` that is the same: signals, inboxes. The scheme is set. */
void device_strategy_plan(struct device_strategy *comm, const struct dpb_layout *layout,
                          struct dpb_comm_plan *want);
/* `bind`; says in the result by which way copies go. */
dpb_status device_strategy_bind(struct device_strategy *comm, const struct dpb_arenas *arenas,
                                const struct stage *stages, uint32_t n_stages);
dpb_status device_strategy_begin(void *comm, const struct dpb_step *step);
dpb_status device_strategy_progress(void *comm, int64_t budget_ns);
void device_strategy_close(void *comm); /* accepts NULL */

/* ---- for strategies with a scheme of their own ---------------------------------------------- */

/* Makes the events of a flight on that lane; a flight that never was opened may be closed. */
dpb_status device_flight_open(struct device_strategy *comm, struct device_lane *lane,
                              struct device_flight *flight);
void device_flight_close(const struct device_strategy *comm, struct device_flight *flight);
/* The event behind the bucket's work: its lane has been given all of it (device_begun). */
struct dpb_event *device_flight_event(const struct device_flight *flight, uint64_t bucket);
/* Of what was given to a queue: the first failure is kept in comm->status. */
void device_keep(struct device_strategy *comm, dpb_status status);
/* Looks for a while, no longer than it may, for what `purpose` says of the bucket's work on this
 * rank's device. */
dpb_status device_wait_landing(struct device_strategy *comm, uint64_t bucket, const char *purpose);

/* ---- for stages ---------------------------------------------------------------------------- */

/* The share of a bucket that worker `owner` sums, and whether there is one. */
struct dpb_range device_share(const struct device_strategy *comm, uint32_t owner, uint64_t bucket);
bool device_owns(const struct device_strategy *comm, uint32_t owner, uint64_t bucket);
/* The first worker that has not raised `kind` for the bucket (`owners`: of those that own some of
 * it); UINT32_MAX: all have. */
uint32_t device_missing(const struct device_strategy *comm, enum signal_kind kind, bool owners,
                        uint64_t bucket);

/* Whether work for one more bucket may be given to the flight. */
bool device_has_room(const struct device_strategy *comm, const struct device_flight *flight);
/* All that the bucket needs was given to the flight's queue; `empty`: that is nothing. */
void device_begun(struct device_strategy *comm, struct device_flight *flight, uint64_t bucket,
                  bool empty);
/* Whether it is done. */
bool device_is_done(const struct device_strategy *comm, const struct device_flight *flight,
                    uint64_t bucket);
/* It is, and this rank has seen it: makes room, reports the time as `phase`, raises the flight's
 * signal. If it failed, the failure is kept in comm->status and no signal is raised. */
void device_landed(struct device_strategy *comm, struct device_flight *flight, uint64_t bucket,
                   dpb_phase phase);

/* The elements of the bucket to work on next, from *at on; moves *at behind them. On a device all
 * of them. On the host as many as fit into a cache, so that a stage ends in time. */
struct dpb_range device_piece(const struct device_strategy *comm, uint64_t length, uint64_t *at);

/* Work on a piece, given to a flight's queue. The last piece begins the bucket's flight. A failure
 * is kept in comm->status. */
/* Sums the own share of the piece into the own gradients. */
void device_sum(struct device_strategy *comm, uint64_t bucket, struct dpb_range piece);
/* Updates the own share of the piece, where owners give weights; else all of it. */
void device_update(struct device_strategy *comm, struct device_flight *flight, uint64_t bucket,
                   struct dpb_range piece);
/* Copies what owners give of the piece into the own arena. */
void device_pull(struct device_strategy *comm, uint64_t bucket, struct dpb_range piece);

/* ---- stages and parts of stages that all have ---------------------------------------------- */

/* The first two stages: own gradients into the owners' inboxes. In place they are left out. */
bool device_push_due(void *comm, uint64_t bucket);
void device_push(void *comm, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns);
dpb_status device_push_wait(void *comm, uint64_t bucket);
bool device_pushed_due(void *comm, uint64_t bucket);
void device_pushed(void *comm, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns);
dpb_status device_pushed_wait(void *comm, uint64_t bucket);
/* An owner's sum, when all have handed over their gradients, and its end. */
bool device_sum_due(void *comm, uint64_t bucket);
dpb_status device_sum_wait(void *comm, uint64_t bucket);
bool device_summed_due(void *comm, uint64_t bucket);
void device_summed(void *comm, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns);
dpb_status device_summed_wait(void *comm, uint64_t bucket);
/* Copies from the owners, when all have raised REDUCED, and their end. */
bool device_pull_due(void *comm, uint64_t bucket);
dpb_status device_pull_wait(void *comm, uint64_t bucket);
bool device_pulled_due(void *comm, uint64_t bucket);
void device_pulled(void *comm, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns);
dpb_status device_pulled_wait(void *comm, uint64_t bucket);
/* The end of an update. */
bool device_updated_due(void *comm, uint64_t bucket);
void device_updated(void *comm, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns);
dpb_status device_updated_wait(void *comm, uint64_t bucket);

/* For stages of a strategy's own: looks for a while, no longer than it may, for `peer`, which has
 * not done what `purpose` says. */
dpb_status device_wait(struct device_strategy *comm, uint64_t bucket, uint32_t peer, dpb_dtype type,
                       const char *purpose);
/* The same for a signal of the peer's, on which a host sleeps. */
dpb_status device_wait_signal(struct device_strategy *comm, enum signal_kind kind, uint32_t peer,
                              uint64_t bucket, dpb_dtype type, const char *purpose);

#endif
