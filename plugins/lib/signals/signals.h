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

enum dpb_signal_kind {
    DPB_SIGNAL_READY,    /* the rank's gradients of the bucket are final */
    DPB_SIGNAL_REDUCED,  /* its share of the bucket is summed (and updated, if it owns weights) */
    DPB_SIGNAL_TAKEN,    /* it has read all it needs from the others */
    DPB_SIGNAL_GATHERED, /* its share of all machines' sum is in all arenas of its machine */
    DPB_SIGNAL_PUSHED,   /* its gradients are in the memory where the bucket's owners sum them */
    DPB_SIGNAL_ANSWERED, /* its message of a second round is there, of a codec or of squares */
    DPB_N_SIGNALS
};

struct dpb_signal_page {
    struct dpb_flag flags[DPB_N_SIGNALS];
    struct dpb_bell_page bell; /* of a rank that may wait for the network */
    int64_t times_ns[];        /* [kind * n_buckets + bucket] */
};

struct dpb_rank_signals {
    const struct dpb_host *host;
    uint32_t rank;
    uint64_t n_buckets, exchange;         /* the exchange under way, from 0 */
    struct dpb_signal_page *const *pages; /* by rank; at the start of each rank's scratch */
    struct dpb_doorbell *doorbell;        /* rung with every signal; NULL: no rank waits in poll */
    /* NULL; or, if "ranks" count the workers of a machine, each one's rank in the job. */
    const uint32_t *ranks;
};

/* A set of neighbouring ranks. */
struct dpb_rank_set {
    uint32_t first, n;
};

/* The rank in the job. */
static inline uint32_t dpb_signals_rank(const struct dpb_rank_signals *signals, uint32_t rank)
{
    return signals->ranks ? signals->ranks[rank] : rank;
}

size_t dpb_signals_bytes(uint64_t n_buckets);

/* Collective over the ranks of a machine that see each other's signals. Whatever a rank may wait
 * for rings its doorbell: *doorbell, @owned (dpb_doorbell_close), or NULL if no rank can ring.
 * `name` as for dpb_doorbell_open. */
dpb_status dpb_signals_open_doorbell(const struct dpb_rank_signals *signals,
                                     const struct dpb_comm_args *args, const char *name,
                                     struct dpb_doorbell **doorbell);

/* Raises the own counter to `bucket` of this exchange, with the current time. */
void dpb_signals_raise(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                       uint64_t bucket);
/* Stores the time of an event for the others, without a signal. A signal that is raised later
 * makes the time visible. */
void dpb_signals_note_time(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                           uint64_t bucket, int64_t time_ns);
/* The first of `ranks` that has not reached the bucket; UINT32_MAX: all have. */
uint32_t dpb_signals_missing(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                             struct dpb_rank_set ranks, uint64_t bucket);
/* Whether all of `ranks` have reached the bucket. */
bool dpb_signals_reached(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                         struct dpb_rank_set ranks, uint64_t bucket);
/* Blocks until the rank that dpb_signals_missing returns reaches the bucket; timeout_ns as in
 * struct dpb_wait. If that rank is exchanges behind, returns when it has made one: a deadline is
 * one for a step. */
dpb_status dpb_signals_wait(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                            struct dpb_rank_set ranks, uint64_t bucket, int64_t timeout_ns,
                            uint64_t bytes, const char *purpose);
/* The time when the last of `ranks` reached the bucket; all have reached it. */
int64_t dpb_signals_latest_ns(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                              struct dpb_rank_set ranks, uint64_t bucket);
/* Whether one of `ranks` has raised the signal in the next exchange already, since this rank was
 * held up: its time is that of the next exchange. */
bool dpb_signals_overwritten(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                             struct dpb_rank_set ranks, uint64_t bucket);

/* Reports how long this rank's bucket waited for the signal `kind` of `ranks`, after its own; all
 * have raised it. Reports nothing if their times are overwritten. */
void dpb_signals_span_late(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                           struct dpb_rank_set ranks, uint64_t bucket);
/* The same for later gradients of `ranks`: READY. */
void dpb_signals_span_late_peer(const struct dpb_rank_signals *signals, struct dpb_rank_set ranks,
                                uint64_t bucket);

#endif
