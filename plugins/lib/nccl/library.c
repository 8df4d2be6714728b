/* library.c - the one symbol of libdpbench-nccl.so: see lib/object/nccl.h. */
#include "lib/nccl/communicator.h"
#include "lib/object/object.h"

static const struct dpb_nccl_library library = {.versions = nccl_versions,
                                                .missing = nccl_missing,
                                                .settle_options = communicator_settle_options,
                                                .open = communicator_open,
                                                .look = communicator_look,
                                                .all_reduce = communicator_all_reduce,
                                                .reduce_slices = communicator_reduce_slices,
                                                .gather_slices = communicator_gather_slices,
                                                .abort = communicator_abort,
                                                .close = communicator_close};

DPB_EXPORT dpb_object_entry dpb_nccl_library;

const void *dpb_nccl_library(const struct dpb_host *host)
{
    return nccl_set_up(host) ? &library : NULL;
}
