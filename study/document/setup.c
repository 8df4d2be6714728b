/* setup.c - see setup.h. */
#include "study/document/setup.h"

#include <stddef.h>
#include <string.h>

bool dpb_setup_is_state(const char *path)
{
    static const char *const states[] = {"machine.memory_bytes", "machine.usable_cores",
                                         "machine.cgroup.memory_bytes"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++)
        if (strcmp(path, states[i]) == 0)
            return true;
    return false;
}
