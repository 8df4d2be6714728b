/*
 * communicator.h - NCCL itself, for libdpbench-nccl.so and for the plugin that is linked to NCCL
 * anyway: the hooks of struct dpb_nccl_library (lib/object/nccl.h) as functions. See NCCL's User
 * Guide.
 */
#ifndef DPB_PLUGINS_LIB_NCCL_COMMUNICATOR_H
#define DPB_PLUGINS_LIB_NCCL_COMMUNICATOR_H

#include <nccl.h>

#include "lib/object/nccl.h"

/* Compares NCCL's versions, built against and loaded. Call it first. False: the versions cannot
 * work together, and the message is written. */
bool nccl_set_up(const struct dpb_host *host);
extern const struct dpb_host *nccl_host;
extern const struct dpb_library nccl_versions[];
/* Why NCCL cannot run here; NULL: it can. Initialises the driver: for the process that will run
 * NCCL, and for dpb_plugin.missing. */
const char *nccl_missing(void);

/* Returns ncclNumTypes if NCCL has no such type. */
ncclDataType_t nccl_type_of(dpb_dtype type);

dpb_status communicator_settle_options(const struct dpb_nccl_options *options,
                                       const struct dpb_comm_args *job);
dpb_status communicator_open(const struct dpb_nccl_options *options,
                             const struct dpb_nccl_group *group, struct dpb_communicator *made);
dpb_status communicator_look(const struct dpb_communicator *communicator,
                             const struct dpb_wait *what);
dpb_status communicator_all_reduce(const struct dpb_communicator *communicator,
                                   struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                   const struct dpb_wait *what);
dpb_status communicator_reduce_slices(const struct dpb_communicator *communicator,
                                      struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                      uint32_t n_slices, const struct dpb_wait *what);
dpb_status communicator_gather_slices(const struct dpb_communicator *communicator,
                                      struct dpb_queue *queue, const struct dpb_nccl_range *range,
                                      uint32_t n_slices, const struct dpb_wait *what);
void communicator_abort(struct dpb_communicator *communicator);
void communicator_close(struct dpb_communicator *communicator);

#endif
