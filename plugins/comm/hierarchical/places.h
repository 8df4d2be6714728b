/*
 * places.h - a rank of `hierarchical`: its state, the places of ranks in machines, and the way
 * across machines. Inside a machine, sums are made through shared memory (inside_shm.h) or by NCCL
 * (inside_nccl.h).
 */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_PLACES_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_PLACES_H

#include "comm/hierarchical/across.h"
#include "lib/coded/coded.h"
#include "lib/device_strategy/device_strategy.h"

struct inside_nccl;

/* `base` is the strategy within the machine; its ranks are the machine's places. */
struct hierarchical {
    union {
        struct dpb_strategy base;
        struct dpb_device_strategy on_device; /* begins with `base`; with comm.inside = nccl */
    };
    struct dpb_comm_args job; /* as core gave it: ranks of the job */
    int shard;                /* dpb_shard_wanted */
    int transport, inside;
    struct dpb_nccl_options nccl_options;
    uint32_t machine;
    uint32_t n_shares;             /* of a bucket; 0: no bucket goes across */
    uint32_t *ranks;               /* of the machine's workers, by place */
    uint32_t *members;             /* by machine: the ranks that carry this place's share */
    void **views;                  /* of the machine's arenas, by kind and place */
    struct across *across;         /* NULL: this place carries nothing across */
    struct dpb_ring_shards shards; /* of this place's share; zeroed: sums go round the ring */
    struct dpb_strategy *machines; /* across_open_coded; NULL: without a codec */
    struct dpb_coded_share share;  /* with a codec: buckets whose residuals are here */
    struct inside_nccl *nccl;      /* NULL: shared memory */
};

static inline bool hierarchical_drives(const struct hierarchical *comm)
{
    return comm->base.args.rank < comm->n_shares;
}

/* Workers of a machine. */
uint32_t hierarchical_count(const struct dpb_comm_args *job, uint32_t machine);
/* Shares of a bucket: as many as the smallest machine has workers; 0: one machine, no codec. */
uint32_t hierarchical_shares(const struct dpb_comm_args *job);
/* The last rank that carries a share across machines. */
uint32_t hierarchical_last(const struct dpb_comm_args *job);
/* The most elements of a bucket's share, if there are shares. */
uint64_t hierarchical_longest_share(const struct dpb_comm_args *job,
                                    const struct dpb_layout *layout, uint64_t bucket_elements);
/* Sets `machine`, `ranks`, `members` and `n_shares`; allocates `views`. */
dpb_status hierarchical_find_places(struct hierarchical *comm);
/* Begins an exchange across. */
void hierarchical_begin(const struct hierarchical *comm, uint64_t step);
/* Parts of `bind`. view, before the stages': the machine's arenas, by place. connect, after the
 * stages': the way across; shares lie in `staged`, an arena like core's. */
struct dpb_arenas hierarchical_view(struct hierarchical *comm, const struct dpb_arenas *arenas);
dpb_status hierarchical_connect(struct hierarchical *comm, const struct dpb_arenas *staged);
/* Part of `close`: releases all but the strategy within the machine. */
void hierarchical_release(struct hierarchical *comm);

#endif
