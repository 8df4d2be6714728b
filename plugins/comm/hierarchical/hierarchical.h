/*
 * hierarchical.h - the two forms of `hierarchical`, and their common parts: the ranks' places, and
 * the way across machines. Inside a machine, sums are made through shared memory (inside_shm.c) or
 * by NCCL (inside_nccl.c).
 */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_HIERARCHICAL_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_HIERARCHICAL_H

#include "comm/hierarchical/across.h"
#include "lib/coded/coded.h"
#include "lib/device_strategy/device_strategy.h"

enum { INSIDE_SHM, INSIDE_NCCL };

struct inside_nccl;

/* `base` is the strategy within the machine; its ranks are the machine's places. */
struct hierarchical {
    union {
        struct strategy base;
        struct device_strategy on_device; /* begins with `base`; with comm.inside = nccl */
    };
    struct dpb_comm_args job; /* as core gave it: ranks of the job */
    bool sharded;
    int transport, inside;
    struct nccl_options nccl_options;
    uint32_t machine;
    uint32_t n_shares;         /* of a bucket; 0: no bucket goes across */
    uint32_t *ranks;           /* of the machine's workers, by place */
    uint32_t *members;         /* by machine: the ranks that carry this place's share */
    void **views;              /* of the machine's arenas, by kind and place */
    struct across *across;     /* NULL: this place carries nothing across */
    struct ring_shards shards; /* of this place's share; zeroed: sums go round the ring */
    struct strategy *machines; /* across_open_coded; NULL: without a codec */
    struct coded_share share;  /* with a codec: buckets whose residuals are here */
    struct inside_nccl *nccl;  /* NULL: shared memory */
};

static inline bool hierarchical_drives(const struct hierarchical *comm)
{
    return comm->base.args.rank < comm->n_shares;
}

/* ---- places.c ------------------------------------------------------------------------------ */

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

/* ---- inside_shm.c -------------------------------------------------------------------------- */

/* Hooks: this form's parts of `plan` and `bind`. */
dpb_status inside_shm_plan(struct hierarchical *comm, const struct dpb_layout *layout,
                           struct dpb_comm_plan *want);
dpb_status inside_shm_bind(void *comm, const struct dpb_arenas *arenas);

/* ---- inside_nccl.c ------------------------------------------------------------------------- */

/* This form's part of `plan`; makes comm->nccl. */
dpb_status inside_nccl_plan(struct hierarchical *comm, const struct dpb_layout *layout,
                            struct dpb_comm_plan *want);
/* The pinned memory that a rank will allocate. No strategy need be open. */
uint64_t inside_nccl_pinned_bytes(const struct dpb_comm_args *job, const struct dpb_layout *layout,
                                  uint64_t bucket_elements);
/* Hooks. */
dpb_status inside_nccl_bind(void *comm, const struct dpb_arenas *arenas);
dpb_status inside_nccl_begin(void *comm, const struct dpb_step *step);
dpb_status inside_nccl_progress(void *comm, int64_t budget_ns);
void inside_nccl_close(void *comm);

#endif
