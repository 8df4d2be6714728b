/*
 * signals.h - how ranks that share memory tell each other how far they are: a page a rank, with one
 * counter for each thing that can have happened to a bucket, and when it happened last.
 *
 * Buckets are counted over all steps (modulo 2^32): bucket b of the n-th exchange has the count
 * n * n_buckets + b + 1. Each rank raises the counters of its own page only.
 */
#ifndef DPB_PLUGINS_LIB_SIGNALS_H
#define DPB_PLUGINS_LIB_SIGNALS_H

#include "doorbell.h"

enum signal_kind {
    SIGNAL_READY,    /* the rank's gradients of the bucket are final */
    SIGNAL_REDUCED,  /* its share of the bucket is summed (and, where it owns weights, updated) */
    SIGNAL_TAKEN,    /* it has what it needs of the others' */
    SIGNAL_GATHERED, /* its share of the sum over all machines is in all arenas of its own */
    SIGNAL_PUSHED,   /* its gradients are where the owners of the bucket sum them */
    SIGNAL_ANSWERED, /* of a codec of two rounds: its message of the second one is there */
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
    struct doorbell *doorbell;        /* rung with every signal; NULL: nobody waits in poll */
    /* NULL; or, where "ranks" are places in a machine, the rank in the job of each. */
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

/* Raises the own counter to `bucket` of this exchange, at this moment. */
void signals_raise(const struct signals *signals, enum signal_kind kind, uint64_t bucket);
/* Writes down for the others when something happened, without a signal: one that is raised later
 * shows it. */
void signals_note_time(const struct signals *signals, enum signal_kind kind, uint64_t bucket,
                       int64_t time_ns);
/* The first of `ranks` that has not got there; UINT32_MAX: all have. */
uint32_t signals_missing(const struct signals *signals, enum signal_kind kind,
                         struct rank_set ranks, uint64_t bucket);
/* Whether all of `ranks` have got there. */
bool signals_reached(const struct signals *signals, enum signal_kind kind, struct rank_set ranks,
                     uint64_t bucket);
/* Blocks for the first of `ranks` that has not; timeout_ns as in struct dpb_wait. */
dpb_status signals_wait(const struct signals *signals, enum signal_kind kind, struct rank_set ranks,
                        uint64_t bucket, int64_t timeout_ns, uint64_t bytes, const char *purpose);
/* When the last of `ranks` got there; they all have. */
int64_t signals_latest_ns(const struct signals *signals, enum signal_kind kind,
                          struct rank_set ranks, uint64_t bucket);

/* Reports how long this rank's bucket waited for gradients of `ranks` that came later. */
void signals_span_late_peer(const struct signals *signals, struct rank_set ranks, uint64_t bucket);

#endif
