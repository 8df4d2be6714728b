/* inside_shm.h - the hooks of `hierarchical` with comm.inside = shm. */
#ifndef DPB_PLUGINS_COMM_HIERARCHICAL_INSIDE_SHM_H
#define DPB_PLUGINS_COMM_HIERARCHICAL_INSIDE_SHM_H

#include "comm/hierarchical/places.h"

/* Hooks: this form's parts of `plan` and `bind`. */
dpb_status inside_shm_plan(struct hierarchical *comm, const struct dpb_layout *layout,
                           struct dpb_comm_plan *want);
dpb_status inside_shm_bind(void *comm, const struct dpb_arenas *arenas);

#endif
