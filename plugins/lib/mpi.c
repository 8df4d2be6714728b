/* mpi.c - finds and loads libdpbench-mpi.so: see mpi.h. */
#include "lib/mpi.h"

#include "lib/object.h"

dpb_status mpi_load(const struct dpb_host *host, const struct mpi_library **library)
{
    static const struct mpi_library *loaded;
    mpi_library_entry entry = NULL;
    if (!loaded) {
        DPB_TRY(object_load(host, "libdpbench-mpi.so", "MPI", MPI_LIBRARY_ENTRY, (void **)&entry));
        loaded = entry(host);
    }
    *library = loaded;
    return DPB_OK;
}
