/* driver.c - see driver.h. Types and numbers are those of NVIDIA's CUDA driver API, which keeps
 * them. */
#include "lib/cuda/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CUDA_NO_DEVICE = 100 };

static struct driver {
    int (*get_version)(int *version);
    int (*init)(unsigned flags);
    int (*get_count)(int *count);
    int (*error_name)(int error, const char **name);
    int (*error_string)(int error, const char **text);
} driver;

static char words[512];

#define SAY(...) (snprintf(words, sizeof words, __VA_ARGS__), words)

/* NULL: loaded. The handle stays open. */
static const char *load(void)
{
    static const struct {
        const char *name;
        void **function;
    } symbols[] = {{"cuDriverGetVersion", (void **)&driver.get_version},
                   {"cuInit", (void **)&driver.init},
                   {"cuDeviceGetCount", (void **)&driver.get_count},
                   {"cuGetErrorName", (void **)&driver.error_name},
                   {"cuGetErrorString", (void **)&driver.error_string}};
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return SAY("there is no NVIDIA driver: %s; install the driver of the GPU, or start the "
                   "container with its GPUs",
                   dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++)
        if (!(*symbols[i].function = dlsym(library, symbols[i].name)))
            return SAY("the NVIDIA driver cannot be used: libcuda.so.1 has no %s", symbols[i].name);
    return NULL;
}

static const char *name_of(int error)
{
    const char *name = NULL;
    return driver.error_name(error, &name) == 0 && name ? name : "an unknown error";
}

static const char *text_of(int error)
{
    const char *text = NULL;
    return driver.error_string(error, &text) == 0 && text ? text : "no further words";
}

static const char *no_device(int version)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return SAY("the NVIDIA driver (CUDA %d.%d) finds no GPU%s%s%s", version / 1000,
               version % 1000 / 10, visible ? ": CUDA_VISIBLE_DEVICES is '" : "",
               visible ? visible : "", visible ? "'" : "");
}

const char *cuda_driver_missing(int built)
{
    int version = 0, count = 0;
    const char *missing = load();
    if (missing)
        return missing;
    int error = driver.get_version(&version);
    if (error != 0)
        return SAY("the NVIDIA driver does not tell its version: cuDriverGetVersion: %s (%d): %s",
                   name_of(error), error, text_of(error));
    /* From release 11 on a driver runs programs built against any release of its major number. */
    if (version / 1000 < built / 1000)
        return SAY("the NVIDIA driver is too old: it is for CUDA %d.%d, and this was built against "
                   "%d.%d, which needs a driver for CUDA %d.0 or later",
                   version / 1000, version % 1000 / 10, built / 1000, built % 1000 / 10,
                   built / 1000);
    error = driver.init(0);
    if (error == 0)
        error = driver.get_count(&count);
    if (error == CUDA_NO_DEVICE || (error == 0 && count == 0))
        return no_device(version);
    if (error != 0)
        return SAY("the NVIDIA driver (CUDA %d.%d) does not start: %s (%d): %s", version / 1000,
                   version % 1000 / 10, name_of(error), error, text_of(error));
    return NULL;
}
