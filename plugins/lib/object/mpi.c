/* mpi.c - finds and loads libdpbench-mpi.so: see mpi.h. */
#include "lib/object/mpi.h"

#include "lib/object/object.h"

dpb_status mpi_load(const struct dpb_host *host, const struct mpi_library **library)
{
    static const void *loaded;
    if (!loaded)
        DPB_TRY(object_load(host, "libdpbench-mpi.so", "MPI", "dpb_mpi_library", &loaded));
    *library = loaded;
    return DPB_OK;
}
