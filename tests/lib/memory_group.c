/* memory_group.c - see memory_group.h. */
#include "lib/memory_group.h"

#include <stdio.h>

static const double deadline_s = 60.0;

/* A group that ends with the shell; $A: the run's arguments, $L: bytes, or nothing. The last line
 * of stderr is the most that the group had, where the system tells. */
static const char in_group[] =
    "g=/sys/fs/cgroup/memory/dpbench-test-$$ l=memory.limit_in_bytes p=memory.max_usage_in_bytes\n"
    "[ -d /sys/fs/cgroup/memory ] || {\n"
    "    g=/sys/fs/cgroup/dpbench-test-$$ l=memory.max p=memory.peak\n"
    "}\n"
    "mkdir $g 2>/dev/null || exit 77\n"
    "[ ! -e $g/memory.swap.max ] || echo 0 >$g/memory.swap.max\n"
    "[ -z \"$L\" ] || echo $L >$g/$l || { rmdir $g; exit 77; }\n"
    "sh -c 'echo $$ >$0/cgroup.procs && exec $DPB_BUILD/dpbench $A' $g\n"
    "code=$?\n"
    "[ ! -r $g/$p ] || echo peak $(cat $g/$p) >&2\n"
    "for i in 1 2 3 4 5 6 7 8 9; do rmdir $g 2>/dev/null && break; sleep 0.1; done\n"
    "[ ! -d $g ] || exit 76\n"
    "exit $code\n";

bool run_in_group(struct command *command, unsigned limit_mib, const char *arguments)
{
    const char *const words[] = {"/bin/sh", "-c", in_group, NULL};
    char line[1024], limit[32] = "L=";
    snprintf(line, sizeof line, "A=%s", arguments);
    if (limit_mib > 0)
        snprintf(limit, sizeof limit, "L=%llu", (unsigned long long)limit_mib << 20);
    command_run(command, deadline_s, words, WORDS(line, limit));
    if (command->exit_code != 77)
        return true;
    return false;
}
