/* nccl.c - finds and loads libdpbench-nccl.so: see nccl.h. */
#include "lib/object/nccl.h"

#include "lib/object/object.h"

const char *const dpb_nccl_algos[] = {"auto",          "ring", "tree",      "collnet_direct",
                                      "collnet_chain", "nvls", "nvls_tree", NULL};
const char *const dpb_nccl_protos[] = {"auto", "ll", "ll128", "simple", NULL};
const char *const dpb_nccl_host_ids[] = {"machine", "rank", NULL};

dpb_status dpb_nccl_load(const struct dpb_host *host, const struct dpb_nccl_library **library)
{
    static const void *loaded;
    if (!loaded)
        DPB_TRY(dpb_object_load(host, "libdpbench-nccl.so", "NCCL", "dpb_nccl_library", &loaded));
    *library = loaded;
    return DPB_OK;
}
