/* signals.c - see signals.h. */
#include "lib/signals/signals.h"

#include <stdlib.h>

size_t dpb_signals_bytes(uint64_t n_buckets)
{
    return sizeof(struct dpb_signal_page) + DPB_N_SIGNALS * n_buckets * sizeof(int64_t);
}

/* The own rank, where a thread of it waits while another one rings. */
static bool is_rung(const struct dpb_rank_signals *signals, const struct dpb_comm_args *args,
                    uint32_t rank)
{
    if (rank == signals->rank)
        return args->comm_cores > 0 && args->role == DPB_WORKER;
    return signals->pages[rank] && args->machines[dpb_signals_rank(signals, rank)] ==
                                       args->machines[dpb_signals_rank(signals, signals->rank)];
}

static struct dpb_doorbell_rank bell_of(const struct dpb_rank_signals *signals, uint32_t rank)
{
    return (struct dpb_doorbell_rank){dpb_signals_rank(signals, rank), &signals->pages[rank]->bell};
}

dpb_status dpb_signals_open_doorbell(const struct dpb_rank_signals *signals,
                                     const struct dpb_comm_args *args, const char *name,
                                     struct dpb_doorbell **doorbell)
{
    const uint32_t n_ranks = args->n_workers + args->n_servers;
    struct dpb_doorbell_rank *rung = calloc(n_ranks, sizeof *rung);
    uint32_t n = 0;
    *doorbell = NULL;
    if (!rung)
        return signals->host->fail(DPB_NO_MEMORY, "no memory for the ranks of this machine");
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        if (is_rung(signals, args, rank))
            rung[n++] = bell_of(signals, rank);
    dpb_status status = n == 0
                            ? DPB_OK
                            : dpb_doorbell_open(signals->host, name,
                                                bell_of(signals, signals->rank), rung, n, doorbell);
    free(rung);
    return status;
}

static uint32_t count_of(const struct dpb_rank_signals *signals, uint64_t bucket)
{
    return (uint32_t)(signals->exchange * signals->n_buckets + bucket + 1);
}

/* Atomically, for readers of the next round. */
void dpb_signals_note_time(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                           uint64_t bucket, int64_t time_ns)
{
    struct dpb_signal_page *page = signals->pages[signals->rank];
    __atomic_store_n(&page->times_ns[kind * signals->n_buckets + bucket], time_ns,
                     __ATOMIC_RELAXED);
}

/* The time is written before the flag that publishes it. */
void dpb_signals_raise(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                       uint64_t bucket)
{
    struct dpb_signal_page *page = signals->pages[signals->rank];
    dpb_signals_note_time(signals, kind, bucket, signals->host->now_ns());
    signals->host->flag->set(&page->flags[kind], count_of(signals, bucket));
    dpb_doorbell_ring(signals->doorbell);
}

uint32_t dpb_signals_missing(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                             struct dpb_rank_set ranks, uint64_t bucket)
{
    uint32_t count = count_of(signals, bucket);
    for (uint32_t rank = ranks.first; rank < ranks.first + ranks.n; rank++)
        if (!signals->host->flag->reached(&signals->pages[rank]->flags[kind], count))
            return rank;
    return UINT32_MAX;
}

bool dpb_signals_reached(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                         struct dpb_rank_set ranks, uint64_t bucket)
{
    return dpb_signals_missing(signals, kind, ranks, bucket) == UINT32_MAX;
}

dpb_status dpb_signals_wait(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                            struct dpb_rank_set ranks, uint64_t bucket, int64_t timeout_ns,
                            uint64_t bytes, const char *purpose)
{
    const uint32_t rank = dpb_signals_missing(signals, kind, ranks, bucket);
    if (rank == UINT32_MAX)
        return DPB_OK;
    const struct dpb_wait what = {.timeout_ns = timeout_ns,
                                  .step = signals->exchange,
                                  .bucket = bucket,
                                  .bytes = bytes,
                                  .peer = dpb_signals_rank(signals, rank),
                                  .purpose = purpose};
    struct dpb_flag *flag = &signals->pages[rank]->flags[kind];
    const uint32_t count = count_of(signals, bucket);
    const uint32_t next = signals->host->flag->get(flag) + (uint32_t)signals->n_buckets;
    signals->host->note("wait_peer", bucket, what.peer);
    return signals->host->flag->wait(flag, (int32_t)(count - next) > 0 ? next : count, &what);
}

int64_t dpb_signals_latest_ns(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                              struct dpb_rank_set ranks, uint64_t bucket)
{
    int64_t latest = INT64_MIN;
    for (uint32_t rank = ranks.first; rank < ranks.first + ranks.n; rank++) {
        const int64_t *at = &signals->pages[rank]->times_ns[kind * signals->n_buckets + bucket];
        int64_t time = __atomic_load_n(at, __ATOMIC_RELAXED);
        latest = time > latest ? time : latest;
    }
    return latest;
}

bool dpb_signals_overwritten(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                             struct dpb_rank_set ranks, uint64_t bucket)
{
    const uint32_t next = count_of(signals, bucket) + (uint32_t)signals->n_buckets;
    for (uint32_t rank = ranks.first; rank < ranks.first + ranks.n; rank++)
        if (signals->host->flag->reached(&signals->pages[rank]->flags[kind], next))
            return true;
    return false;
}

void dpb_signals_span_late(const struct dpb_rank_signals *signals, enum dpb_signal_kind kind,
                           struct dpb_rank_set ranks, uint64_t bucket)
{
    struct dpb_rank_set self = {signals->rank, 1};
    int64_t here = dpb_signals_latest_ns(signals, kind, self, bucket);
    int64_t last = dpb_signals_latest_ns(signals, kind, ranks, bucket);
    if (last > here && !dpb_signals_overwritten(signals, kind, ranks, bucket))
        signals->host->span(bucket, DPB_PHASE_WAIT_PEER, here, last);
}

void dpb_signals_span_late_peer(const struct dpb_rank_signals *signals, struct dpb_rank_set ranks,
                                uint64_t bucket)
{
    dpb_signals_span_late(signals, DPB_SIGNAL_READY, ranks, bucket);
}
