/*
 * signals.h - the progress of ranks that share memory, which each rank shows to the others. A rank
 * has a page with one counter for each kind of event, and the last time of the event by bucket.
 *
 * Buckets are counted over all steps (modulo 2^32): bucket b of the n-th exchange has the count
 * n * n_buckets + b + 1. Each rank raises the counters of its own page only.
 */
#ifndef DPB_PLUGINS_LIB_SIGNALS_H
#define DPB_PLUGINS_LIB_SIGNALS_H

#include "doorbell.h"

enum signal_kind {
    SIGNAL_READY,    /* the rank's gradients of the bucket are final */
    SIGNAL_REDUCED,  /* its share of the bucket is summed (and updated, if it owns weights) */
    SIGNAL_TAKEN,    /* it has read all it needs from the others */
    SIGNAL_GATHERED, /* its share of the sum over all machines is in all arenas of its machine */
    SIGNAL_PUSHED,   /* its gradients are in the memory where the bucket's owners sum them */
    SIGNAL_ANSWERED, /* with a codec of two rounds: its message of the second round is there */
    N_SIGNALS
};

struct signal_page {
    struct dpb_flag flags[N_SIGNALS];
    struct bell_page bell; /* of a rank that may wait for the network */
    int64_t times_ns[];    /* [kind * n_buckets + bucket] */
};

struct signals {
    const struct dpb_host *host;
    uint32_t rank;
    uint64_t n_buckets, exchange;     /* the exchange under way, from 0 */
    struct signal_page *const *pages; /* by rank; at the start of each rank's scratch */
    struct doorbell *doorbell;        /* rung with every signal; NULL: no rank waits in poll */
    /* NULL; or, if "ranks" count the workers of a machine, each one's rank in the job. */
    const uint32_t *ranks;
};

/* A set of neighbouring ranks. */
struct rank_set {
    uint32_t first, n;
};

/* The rank in the job. */
static inline uint32_t signals_rank(const struct signals *signals, uint32_t rank)
{
    return signals->ranks ? signals->ranks[rank] : rank;
}

size_t signals_bytes(uint64_t n_buckets);

/* Collective over the ranks of a machine that see each other's signals. Whatever a rank may wait
 * for rings its doorbell: *doorbell, @owned (doorbell_close), or NULL if no rank can ring. `name` as
 * for doorbell_open. */
dpb_status signals_open_doorbell(const struct signals *signals, const struct dpb_comm_args *args,
                                 const char *name, struct doorbell **doorbell);

/* Raises the own counter to `bucket` of this exchange, with the current time. */
void signals_raise(const struct signals *signals, enum signal_kind kind, uint64_t bucket);
/* Stores the time of an event for the others, without a signal. A signal that is raised later
 * makes the time visible. */
void signals_note_time(const struct signals *signals, enum signal_kind kind, uint64_t bucket,
                       int64_t time_ns);
/* The first of `ranks` that has not reached the bucket; UINT32_MAX: all have. */
uint32_t signals_missing(const struct signals *signals, enum signal_kind kind,
                         struct rank_set ranks, uint64_t bucket);
/* Whether all of `ranks` have reached the bucket. */
bool signals_reached(const struct signals *signals, enum signal_kind kind, struct rank_set ranks,
                     uint64_t bucket);
/* Blocks until the rank that signals_missing returns reaches the bucket; timeout_ns as in struct
 * dpb_wait. */
dpb_status signals_wait(const struct signals *signals, enum signal_kind kind, struct rank_set ranks,
                        uint64_t bucket, int64_t timeout_ns, uint64_t bytes, const char *purpose);
/* The time when the last of `ranks` reached the bucket; all have reached it. */
int64_t signals_latest_ns(const struct signals *signals, enum signal_kind kind,
                          struct rank_set ranks, uint64_t bucket);
/* Whether one of `ranks` has raised the signal in the next exchange already, since this rank was
 * held up: its time is that of the next exchange. */
bool signals_overwritten(const struct signals *signals, enum signal_kind kind,
                         struct rank_set ranks, uint64_t bucket);

/* Reports how long this rank's bucket waited for the signal `kind` of `ranks`, after its own; all
 * have raised it. Reports nothing if their times are overwritten. */
void signals_span_late(const struct signals *signals, enum signal_kind kind, struct rank_set ranks,
                       uint64_t bucket);
/* The same for later gradients of `ranks`: READY. */
void signals_span_late_peer(const struct signals *signals, struct rank_set ranks, uint64_t bucket);

#endif
