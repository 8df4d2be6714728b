/*
 * across.h - sums a place's share of every bucket over machines: by a ring of its own over TCP or
 * RDMA (over_ring.c), by messages of a codec (over_coded.c), or by MPI (over_mpi.c).
 */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_ACROSS_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_ACROSS_H

#include "lib/object/nccl.h"
#include "lib/ring/ring_strategy.h"
#include "lib/tcp/tcp_connect.h"
#include "lib/verbs/options.h"

enum { OVER_TCP, OVER_VERBS, OVER_MPI };

struct hierarchical_options {
    int inside, transport;
    struct dpb_nccl_options nccl;
    struct dpb_ring_options ring;
    struct dpb_tcp_options tcp;
    struct verbs_options verbs; /* its interface is tcp.interface */
};

/* The ranks that sum a share: one of each machine. @borrowed until close. */
struct across_group {
    const struct dpb_comm_args *job;
    /* This rank's gradients and scratch in the host's memory; until connect returns. */
    const struct dpb_arenas *arenas;
    const uint32_t *members;       /* ranks, by machine */
    uint32_t machine, place;       /* of this rank */
    uint32_t n_shares;             /* of a bucket; the first places have one share each */
    struct dpb_doorbell *doorbell; /* as in struct dpb_ring_members */
    struct dpb_ring_shards shards;
};

struct across;

struct across_ops {
    /* Adds the needed memory to `want`; refuses impossible plans. NULL with a codec: the machines'
     * strategy plans. */
    dpb_status (*plan)(struct across *across, uint64_t share_elements, struct dpb_comm_plan *want);
    dpb_status (*connect)(struct across *across, const struct across_group *group); /* collective */
    void (*close)(struct across *across); /* frees; never waits for a peer */
};

/* The struct of each kind begins with this one. */
struct across {
    const struct across_ops *ops;
    struct dpb_sums *sums; /* of shares, once connected: the next bucket's share is posted */
};

/* Opens rings; only ranks with a share call it. `place` as above. */
dpb_status across_open_ring(const struct dpb_host *host, const struct hierarchical_options *options,
                            uint32_t place, struct across **across);
/* Opens the way of a codec; all workers call it. *machines: a strategy that carries the codec,
 * whose workers are machines; @borrowed until close. `drives`: this rank has shares. */
dpb_status across_open_coded(const struct dpb_host *host, const struct dpb_comm_args *job,
                             const struct hierarchical_options *options, bool drives,
                             struct across **across, struct dpb_strategy **machines);
/* Opens the way by MPI; all workers call it. */
dpb_status across_open_mpi(const struct dpb_host *host, const struct dpb_comm_args *job,
                           struct across **across);

#endif
