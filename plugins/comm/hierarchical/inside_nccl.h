/* inside_nccl.h - the hooks of `hierarchical` with comm.inside = nccl. */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_INSIDE_NCCL_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_INSIDE_NCCL_H

#include "comm/hierarchical/places.h"

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
