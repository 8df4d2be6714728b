/* stand_in.c - see stand_in.h. */
#include "lib/stand_in.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "lib/command.h"

bool on_gpu(void)
{
    const char *device = getenv("DPB_TEST_DEVICE");
    return device && strcmp(device, "cuda") == 0;
}

void use_stand_in(bool yes)
{
    char path[512];
    if (!yes || on_gpu()) {
        unsetenv("DPBENCH_PLUGIN_PATH");
        return;
    }
    char *here = realpath(build_directory(), NULL);
    assert_non_null(here);
    snprintf(path, sizeof path, "%s/tests/cuda/plugins", here);
    free(here);
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
}
