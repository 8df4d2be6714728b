/*
 * across.h - between machines: how a place's share of every bucket is summed over them. By a ring
 * of its own over TCP or RDMA (over_ring.c), by messages of a codec (over_coded.c), or by MPI
 * (over_mpi.c).
 *
 * Shares are posted in the order of the buckets and finish in it. One thread at a time, but for
 * `wake`.
 */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_ACROSS_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_ACROSS_H

#include "lib/nccl.h"
#include "lib/ring_strategy.h"
#include "lib/tcp_connect.h"
#include "lib/verbs/options.h"

enum { OVER_TCP, OVER_VERBS, OVER_MPI };

struct hierarchical_options {
    int inside, transport;
    struct nccl_options nccl;
    struct ring_options ring;
    struct tcp_options tcp;
    struct verbs_options verbs; /* its interface is tcp.interface */
};

/* Who sums a share: one rank of each machine. @borrowed until close. */
struct across_group {
    const struct dpb_comm_args *job;
    /* Of this rank: gradients and scratch in the host's memory; until connect returns. */
    const struct dpb_arenas *arenas;
    const uint32_t *members;   /* ranks, by machine */
    uint32_t machine, place;   /* of this rank */
    uint32_t n_shares;         /* of a bucket: the first places have one each */
    struct doorbell *doorbell; /* as struct ring_members has it */
    struct ring_shards shards;
};

struct across;

struct across_ops {
    /* Adds to `want` what is needed of memory; refuses what cannot be. NULL with a codec: the
     * machines' strategy plans. */
    dpb_status (*plan)(struct across *across, uint64_t share_elements, struct dpb_comm_plan *want);
    dpb_status (*connect)(struct across *across, const struct across_group *group); /* collective */
    void (*begin)(struct across *across, uint64_t step); /* a new exchange */
    bool (*has_place)(const struct across *across);      /* for one more that is posted */
    /* The next bucket's share is elements [begin, begin + n) of the arena. */
    void (*post)(struct across *across, uint64_t begin, uint64_t n);
    bool (*finished)(const struct across *across, uint64_t bucket);
    bool (*idle)(const struct across *across); /* all that were posted are finished */
    /* As ring.h has them. `wait` is for the oldest that is not finished, and ends when the bell
     * rings. */
    dpb_status (*move)(struct across *across, int64_t until_ns, bool *moved);
    dpb_status (*wait)(struct across *across);
    void (*close)(struct across *across); /* never waits for a peer; frees */
};

/* Either kind's own struct begins with it. */
struct across {
    const struct across_ops *ops;
};

/* By rings: only ranks with a share. `place` as above. */
dpb_status across_open_ring(const struct dpb_host *host, const struct hierarchical_options *options,
                            uint32_t place, struct across **across);
/* With a codec: all workers. *machines: the machines as workers, which carry the codec; @borrowed
 * until close. `drives`: this rank has shares. */
dpb_status across_open_coded(const struct dpb_host *host, const struct dpb_comm_args *job,
                             const struct hierarchical_options *options, bool drives,
                             struct across **across, struct strategy **machines);
/* By MPI: all workers. */
dpb_status across_open_mpi(const struct dpb_host *host, const struct dpb_comm_args *job,
                           struct across **across);

#endif
