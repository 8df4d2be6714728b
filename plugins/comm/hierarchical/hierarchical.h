/*
 * hierarchical.h - the two forms of `hierarchical`, and what they share: who is where, and the way
 * across. Inside a machine sums are made through shared memory (inside_shm.c) or by NCCL
 * (inside_nccl.c).
 */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_HIERARCHICAL_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_HIERARCHICAL_H

#include "comm/hierarchical/across.h"
#include "lib/coded.h"
#include "lib/device_strategy.h"

enum { INSIDE_SHM, INSIDE_NCCL };

struct inside_nccl;

/* Its base is the strategy within the machine, whose ranks are the places there. */
struct hierarchical {
    union {
        struct strategy base;
        struct device_strategy on_device; /* begins with it; with comm.inside = nccl */
    };
    struct dpb_comm_args job; /* as core gave it: ranks are ranks */
    int transport, inside;
    struct nccl_options nccl_options;
    uint32_t machine;
    uint32_t n_shares;         /* of a bucket; 0: nothing goes across */
    uint32_t *ranks;           /* of the machine's workers, by place */
    uint32_t *members;         /* who carry this place's share, by machine */
    void **views;              /* of the machine's arenas, by kind and place */
    struct across *across;     /* NULL: nothing goes across from this place */
    struct ring_shards shards; /* of this place's share; zeroed: sums go round */
    struct strategy *machines; /* across_open_coded; NULL: without a codec */
    struct coded_share share;  /* with one: the buckets whose residuals are here */
    struct inside_nccl *nccl;  /* NULL: shared memory */
};

static inline bool hierarchical_drives(const struct hierarchical *comm)
{
    return comm->base.args.rank < comm->n_shares;
}

/* ---- places.c ------------------------------------------------------------------------------ */

/* Workers of a machine. */
uint32_t hierarchical_count(const struct dpb_comm_args *job, uint32_t machine);
/* Shares of a bucket: workers of the machine that has the fewest; 0: there is one machine, and no
 * codec. */
uint32_t hierarchical_shares(const struct dpb_comm_args *job);
/* The most elements of a bucket's share, where there are some. */
uint64_t hierarchical_longest_share(const struct dpb_comm_args *job,
                                    const struct dpb_layout *layout, uint64_t bucket_elements);
/* Sets `machine`, `ranks`, `members` and `n_shares`; room for the rest. */
dpb_status hierarchical_find_places(struct hierarchical *comm);
/* A new exchange. */
void hierarchical_begin(const struct hierarchical *comm, uint64_t step);
/* For what comes from across, or from the machine: either may let a bucket move on. */
dpb_status hierarchical_wait(const struct hierarchical *comm);
/* The part of `bind` that comes before and after the stages': the machine's arenas, by place; and
 * the way across, where shares lie in `staged`, an arena as core's. */
struct dpb_arenas hierarchical_view(struct hierarchical *comm, const struct dpb_arenas *arenas);
dpb_status hierarchical_connect(struct hierarchical *comm, const struct dpb_arenas *staged);
/* What both forms have beside their strategy within the machine; part of `close`. */
void hierarchical_release(struct hierarchical *comm);

/* ---- inside_shm.c -------------------------------------------------------------------------- */

/* Hooks; of `plan` and `bind` the parts that are this form's. */
dpb_status inside_shm_plan(struct hierarchical *comm, const struct dpb_layout *layout,
                           struct dpb_comm_plan *want);
dpb_status inside_shm_bind(void *comm, const struct dpb_arenas *arenas);

/* ---- inside_nccl.c ------------------------------------------------------------------------- */

/* The part of `plan` that is this form's; makes comm->nccl. */
dpb_status inside_nccl_plan(struct hierarchical *comm, const struct dpb_layout *layout,
                            struct dpb_comm_plan *want);
/* Pinned memory that a rank will take, which need not be open. */
uint64_t inside_nccl_pinned_bytes(const struct dpb_comm_args *job, const struct dpb_layout *layout,
                                  uint64_t bucket_elements);
/* Hooks. */
dpb_status inside_nccl_bind(void *comm, const struct dpb_arenas *arenas);
dpb_status inside_nccl_begin(void *comm, const struct dpb_step *step);
dpb_status inside_nccl_progress(void *comm, int64_t budget_ns);
void inside_nccl_close(void *comm);

#endif
