/* object.c - see object.h. */
#include "lib/object/object.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The plugins' rpath is not relied on: a sanitizer's dlopen does not know its caller. */
static bool find_object(const char *file, char path[PATH_MAX])
{
    Dl_info here;
    if (!dladdr((const void *)(uintptr_t)&find_object, &here) || !here.dli_fname)
        return false;
    const char *slash = strrchr(here.dli_fname, '/');
    int directory = slash ? (int)(slash - here.dli_fname) : 1;
    int n = snprintf(path, PATH_MAX, "%.*s/%s", directory, slash ? here.dli_fname : ".", file);
    return n < PATH_MAX && access(path, F_OK) == 0;
}

dpb_status dpb_object_load(const struct dpb_host *host, const char *file, const char *what,
                           const char *symbol, const void **table)
{
    dpb_object_entry *entry = NULL;
    char path[PATH_MAX];
    if (!find_object(file, path))
        return host->fail(DPB_UNSUPPORTED,
                          "this build is without %s (`make` says why): there is no %s beside the "
                          "plugins",
                          what, file);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object)
        *(void **)&entry = dlsym(object, symbol);
    if (!entry)
        return host->fail(DPB_UNSUPPORTED, "%s cannot be loaded: %s", what, dlerror());
    *table = entry(host);
    return *table ? DPB_OK : DPB_FAILED;
}
