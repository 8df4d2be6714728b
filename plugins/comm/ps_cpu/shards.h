/*
 * shards.h - the ranks that are shards, and their slices. A shard is a server process; without
 * server processes each worker is one.
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_SHARDS_H
#define DPB_PLUGINS_COMM_PS_CPU_SHARDS_H

#include "lib/strategy/strategy.h"

enum { NONE = UINT32_MAX }; /* no rank, shard or link */

static inline struct dpb_rank_set ps_shards(const struct dpb_comm_args *args)
{
    return args->n_servers > 0 ? (struct dpb_rank_set){args->n_workers, args->n_servers}
                               : (struct dpb_rank_set){0, args->n_workers};
}

static inline bool ps_is_shard(const struct dpb_comm_args *args)
{
    return args->role == DPB_SERVER || args->n_servers == 0;
}

/* A worker raises this signal when the shards here can read its gradients or its message. */
static inline enum dpb_signal_kind ps_pushed(const struct dpb_strategy *base)
{
    return base->args.codec ? DPB_SIGNAL_PUSHED : DPB_SIGNAL_READY;
}

static inline bool ps_is_here(const struct dpb_comm_args *args, uint32_t rank)
{
    return args->machines[rank] == args->machines[args->rank];
}

/* The slice of a bucket of `length` elements that the shard of a rank owns, as elements of the
 * bucket. With a codec one shard owns all of a bucket, since a message has all of it. */
static inline struct dpb_range ps_slice(const struct dpb_comm_args *args, uint32_t rank,
                                        uint64_t bucket, uint64_t length)
{
    struct dpb_rank_set all = ps_shards(args);
    uint64_t turn = (rank - all.first + bucket) % all.n;
    if (args->codec)
        return (struct dpb_range){0, turn == 0 ? length : 0};
    return (struct dpb_range){length * turn / all.n, length * (turn + 1) / all.n};
}

#endif
