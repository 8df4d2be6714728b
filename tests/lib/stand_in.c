/* stand_in.c - see stand_in.h. */
#include "lib/stand_in.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/test.h"

bool is_cuda_left_out(void)
{
    const char *cuda = getenv("DPB_TEST_CUDA");
    return cuda && strcmp(cuda, "no") == 0;
}

bool on_gpu(void)
{
    const char *device = getenv("DPB_TEST_DEVICE");
    return device && strcmp(device, "cuda") == 0;
}

void use_stand_in(bool yes)
{
    char path[512];
    if (!yes || is_cuda_left_out() || on_gpu()) {
        unsetenv("DPBENCH_PLUGIN_PATH");
        return;
    }
    char *here = realpath(build_directory(), NULL);
    assert_non_null(here);
    snprintf(path, sizeof path, "%s/tests/cuda/plugins", here);
    free(here);
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
}

int stand_in_count(const char *trace, const char *wanted)
{
    char line[64];
    int n = 0;
    FILE *file = fopen(trace, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        n += strcmp(line, wanted) == 0;
    }
    fclose(file);
    return n;
}

uint64_t stand_in_counted(const char *what)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/cuda/libstand_in.so", build_directory());
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        fail_msg("%s", dlerror());
    const uint64_t *count = dlsym(library, what);
    assert_non_null(count);
    uint64_t now = *count;
    dlclose(library);
    return now;
}

bool have_stand_in(const char *kind_name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/tests/cuda/plugins/%s.so", build_directory(), kind_name);
    return access(path, R_OK) == 0;
}
