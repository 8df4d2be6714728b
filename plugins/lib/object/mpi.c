/* mpi.c - finds and loads libdpbench-mpi.so: see mpi.h. */
#include "lib/object/mpi.h"

#include "lib/object/object.h"

dpb_status dpb_mpi_load(const struct dpb_host *host, const struct dpb_mpi_library **library)
{
    static const void *loaded;
    if (!loaded)
        DPB_TRY(dpb_object_load(host, "libdpbench-mpi.so", "MPI", "dpb_mpi_library", &loaded));
    *library = loaded;
    return DPB_OK;
}
