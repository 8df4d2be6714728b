/* test_memory.c - how much memory there is: made-up systems, and this one. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/test.h"
#include "machine/memory.h"

static const char *const root = own_directory;

static void expect(uint64_t total, uint64_t available, uint64_t used, bool limited)
{
    struct dpb_machine_memory memory;
    dpb_memory_look(root, &memory);
    assert_int_equal(memory.total_bytes, total);
    assert_int_equal(memory.available_bytes, available);
    assert_int_equal(memory.used_bytes, used);
    assert_int_equal(memory.limited, limited);
}

TEST(test_limits)
{
    expect(UINT64_MAX, UINT64_MAX, UINT64_MAX, false); /* a system that tells nothing */
    write_below(root, "proc/meminfo",
                "MemTotal:       1000 kB\nMemFree:         100 kB\n"
                "MemAvailable:    300 kB\nSwapTotal:      9000 kB\n");
    expect(1000 * 1024, 300 * 1024, 700 * 1024, false);
    write_below(root, "proc/self/cgroup", "0::/job/step\n");
    write_below(root, "sys/fs/cgroup/job/memory.max", "409600\n");
    write_below(root, "sys/fs/cgroup/job/step/memory.max", "max\n");
    expect(400 * 1024, 300 * 1024, UINT64_MAX, true); /* no count of its use */
    write_below(root, "sys/fs/cgroup/job/memory.max", "204800\n");
    write_below(root, "sys/fs/cgroup/job/memory.current", "5000\n");
    expect(200 * 1024, 200 * 1024 - 5000, 5000, true);
    /* Files in the page cache make room: of version 2, and of version 1, where totals count. */
    write_below(root, "sys/fs/cgroup/job/memory.stat",
                "anon 9\nfile 7\ninactive_file 1000\nactive_file 3000\n");
    expect(200 * 1024, 200 * 1024 - 1000, 5000, true);
    write_below(root, "sys/fs/cgroup/job/memory.stat",
                "inactive_file 10\nactive_file 20\ntotal_inactive_file 100\n"
                "total_active_file 400\n");
    expect(200 * 1024, 200 * 1024 - 4500, 5000, true);
    write_below(root, "sys/fs/cgroup/job/memory.max", "99999999999\n");
    expect(1000 * 1024, 300 * 1024, 700 * 1024, false);
}

TEST(test_kills)
{
    assert_true(dpb_memory_kills("/nowhere") == UINT64_MAX);
    write_below(root, "proc/vmstat", "nr_free_pages 12\noom_kill_other 8\noom_kill 3\npgfault 4\n");
    assert_int_equal(dpb_memory_kills(root), 3);
    /* Other groups of the machine and of the job count for nothing. */
    write_below(root, "proc/self/cgroup", "0::/job/step\n");
    write_below(root, "sys/fs/cgroup/job/memory.events", "high 9\noom 6\noom_kill 2\n");
    assert_int_equal(dpb_memory_kills(root), 2);
    write_below(root, "sys/fs/cgroup/job/step/memory.events", "high 9\noom 6\noom_kill 1\n");
    assert_int_equal(dpb_memory_kills(root), 1);
    /* Version 1: a group counts its own processes alone. */
    write_below(root, "proc/self/cgroup", "4:memory:/job/step\n1:cpu:/job\n0::/\n");
    write_below(root, "sys/fs/cgroup/memory/memory.oom_control", "under_oom 0\noom_kill 7\n");
    assert_int_equal(dpb_memory_kills(root), 7); /* a container's own group is the mount's root */
    write_below(root, "sys/fs/cgroup/memory/job/step/memory.oom_control",
                "oom_kill_disable 0\nunder_oom 0\noom_kill 9\n");
    assert_int_equal(dpb_memory_kills(root), 9);
    write_below(root, "sys/fs/cgroup/memory/memory.oom_control", "under_oom 0\noom_kill 8\n");
    assert_int_equal(dpb_memory_kills(root), 9);
}

TEST(test_here)
{
    struct dpb_machine_memory memory;
    dpb_memory_look("", &memory);
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_true(memory.total_bytes > 0 && memory.total_bytes <= bytes);
    assert_true(memory.available_bytes <= memory.total_bytes);
}

TEST_MAIN(own_directory_setup, own_directory_teardown)
