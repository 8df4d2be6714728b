/* mpi.c - finds and loads libdpbench-mpi.so: see mpi.h. */
#include "lib/mpi.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OBJECT "libdpbench-mpi.so"

/* Beside the plugin that this is part of. Its rpath is not relied on: a sanitizer's dlopen does not
 * know who calls it. */
static bool find_object(char path[PATH_MAX])
{
    Dl_info here;
    if (!dladdr((const void *)(uintptr_t)&find_object, &here) || !here.dli_fname)
        return false;
    const char *slash = strrchr(here.dli_fname, '/');
    int directory = slash ? (int)(slash - here.dli_fname) : 1;
    int n = snprintf(path, PATH_MAX, "%.*s/" OBJECT, directory, slash ? here.dli_fname : ".");
    return n < PATH_MAX && access(path, F_OK) == 0;
}

dpb_status mpi_load(const struct dpb_host *host, const struct mpi_library **library)
{
    static const struct mpi_library *loaded;
    char path[PATH_MAX];
    mpi_library_entry entry = NULL;
    if (!loaded) {
        if (!find_object(path))
            return host->fail(DPB_UNSUPPORTED, "this build is without MPI (`make` says why): there "
                                               "is no " OBJECT " beside the plugins");
        void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (object)
            *(void **)&entry = dlsym(object, MPI_LIBRARY_ENTRY);
        if (!entry)
            return host->fail(DPB_UNSUPPORTED, "MPI cannot be loaded: %s", dlerror());
        loaded = entry(host);
    }
    *library = loaded;
    return DPB_OK;
}
