/*
 * inside.h - the two forms of `hierarchical`: inside a machine sums are made through shared memory
 * (inside_shm.c) or by NCCL (inside_nccl.c).
 */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_INSIDE_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_INSIDE_H

#include "comm/hierarchical/hierarchical.h"

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
