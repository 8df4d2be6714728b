/* versions.c - the version of NCCL, and whether it can run: see communicator.h. */
#include <cuda_runtime_api.h>
#include <stdio.h>

#include "lib/cuda/driver.h"
#include "lib/nccl/communicator.h"

enum { LEAST_VERSION = NCCL_VERSION(2, 14, 3) /* the first whose calls need not block */ };

static char built[24], loaded[24];

const struct dpb_library nccl_versions[] = {{.name = "NCCL", .built = built, .loaded = loaded},
                                            {.name = NULL}};
const char *nccl_missing;
const struct dpb_host *nccl_host;

static void write_version(char *text, size_t bytes, int version)
{
    snprintf(text, bytes, "%d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
}

bool nccl_set_up(const struct dpb_host *host)
{
    int version = 0;
    ncclGetVersion(&version);
    write_version(built, sizeof built, NCCL_VERSION_CODE);
    write_version(loaded, sizeof loaded, version);
    if (version < LEAST_VERSION || version / 10000 != NCCL_VERSION_CODE / 10000) {
        host->fail(DPB_FAILED, "built for NCCL %s, but NCCL %s was loaded; mend LD_LIBRARY_PATH",
                   built, loaded);
        return false;
    }
    nccl_host = host;
    nccl_missing = cuda_driver_missing(CUDART_VERSION);
    return true;
}
