/*
 * test_usage.c - what a made-up machine has used, and the series that run.monitor keeps of it.
 */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/test.h"
#include "machine/proc.h"
#include "machine/usage.h"
#include "measure/monitor.h"

static const char *const root = own_directory;
static const int32_t pids[] = {11, 0, 12};
enum { N_PIDS = sizeof pids / sizeof *pids };

/* After `t` units of time. */
static void make_machine(unsigned t)
{
    write_below(root, "proc/stat",
                "cpu  0 0 0 0\ncpu0 %u 0 %u 9 0 0 0 0\ncpu1 %u 0 0 9 0 0 0 0\nintr 7\n", 10 * t,
                5 * t, 20 * t);
    write_below(root, "proc/11/stat", "11 (a) b) R 1 1 1 0 0 0 0 0 0 0 %u %u 0 0\n", 4 * t, 3 * t);
    write_below(root, "proc/12/stat", "12 (c) S 1 1 1 0 0 0 0 0 0 0 %u 0 0 0\n", 6 * t);
    write_below(root, "proc/11/statm", "900 300 100 0 0 0 0\n");
    write_below(root, "proc/12/statm", "900 60 10 0 0 0 0\n");
    write_below(root, "proc/meminfo", "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: %u kB\n",
                600 - t);
    write_below(
        root, "proc/net/dev",
        "Inter-| Receive\n face |bytes\n    lo: %u 1 0 0 0 0 0 0 %u 1 0 0 0 0 0 0\n"
        "  eth0: %u 1 0 0 0 0 0 0 %u 1 0 0 0 0 0 0\n slave:%u 1 0 0 0 0 0 0 %u 1 0 0 0 0 0 0\n"
        " bond0: %u 1 0 0 0 0 0 0 %u 1 0 0 0 0 0 0\neth0.5: %u 1 0 0 0 0 0 0 %u 1 0 0 0 0 0 0\n",
        70 * t, 70 * t, 80 * t, 20 * t, 20 * t, 10 * t, 20 * t, 10 * t, 70 * t, 15 * t);
    write_below(root, "sys/class/net/slave/master", "x");
    write_below(root, "sys/class/net/bond0/lower_slave", "x");
    write_below(root, "sys/class/net/eth0.5/lower_eth0", "x");
    write_below(root, "proc/diskstats",
                " 8 0 sda 5 0 %u 1 6 0 %u 1 0 0 0\n 8 1 sda1 5 0 %u 1 6 0 %u 1 0 0 0\n"
                " 253 0 dm-0 5 0 %u 1 6 0 %u 1 0 0 0\n",
                2 * t, 4 * t, 2 * t, 4 * t, 2 * t, 4 * t);
    write_below(root, "sys/block/sda/device", "x");
    write_below(root, "sys/block/dm-0/size", "x");
}

TEST(counters_are_read)
{
    struct dpb_usage_meter meter = {0};
    struct dpb_usage from, to;
    make_machine(1);
    dpb_usage_sample(root, pids, N_PIDS, &meter, &from);
    make_machine(3);
    dpb_usage_sample(root, pids, N_PIDS, &meter, &to);
    const int64_t tick_ns = dpb_proc_tick_ns();
    assert_int_equal(to.cpus, 2);
    assert_true(to.at_ns > from.at_ns);
    assert_int_equal(to.busy_ns - from.busy_ns, 70 * tick_ns);
    assert_int_equal(to.own_ns - from.own_ns, 26 * tick_ns);
    assert_int_equal(to.memory_bytes, 403 * 1024);
    assert_int_equal(to.own_memory_bytes, 250 * sysconf(_SC_PAGESIZE));
    assert_int_equal(to.received_bytes - from.received_bytes, 200);
    assert_int_equal(to.sent_bytes - from.sent_bytes, 60);
    assert_int_equal(to.loopback_bytes - from.loopback_bytes, 140);
    assert_int_equal(to.read_bytes - from.read_bytes, 4 * 512);
    assert_int_equal(to.written_bytes - from.written_bytes, 8 * 512);
    assert_true(isnan(to.package_j)); /* no zone of this machine tells */
    assert_int_equal(to.living, 2);   /* one has no pid yet */
}

/* No file a CPU: a pipe in the place of one still holds all that was written into it. */
TEST(only_times_of_cpus_are_read)
{
    static const char heat[] = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count";
    struct dpb_usage_meter meter = {0};
    struct dpb_usage usage;
    char path[PATH_MAX], left[8];
    make_machine(1);
    write_below(root, heat, "%s", "");
    snprintf(path, sizeof path, "%s/%s", root, heat);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    const int pipe = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(write(pipe, "7\n", 2), 2);
    dpb_usage_sample(root, pids, N_PIDS, &meter, &usage);
    const ssize_t n_left = read(pipe, left, sizeof left);
    close(pipe);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(n_left, 2);
}

/* The group's own count, of version 2 or 1, whatever the machine has left. */
TEST(memory_is_of_the_group_that_limits)
{
    static const struct {
        const char *membership, *directory, *limit, *used;
    } versions[] = {{"0::/job/step\n", "sys/fs/cgroup/job", "memory.max", "memory.current"},
                    {"4:memory:/job/step\n", "sys/fs/cgroup/memory/job", "memory.limit_in_bytes",
                     "memory.usage_in_bytes"}};
    struct dpb_usage_meter meter = {0};
    struct dpb_usage usage;
    char name[128];
    make_machine(1);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        write_below(root, "proc/self/cgroup", "%s", versions[i].membership);
        for (unsigned step = 0; step < 2; step++) {
            const char *child = step ? "/step" : "";
            snprintf(name, sizeof name, "%s%s/%s", versions[i].directory, child, versions[i].limit);
            write_below(root, name, "%u\n", step ? 300000u : 200000u);
            snprintf(name, sizeof name, "%s%s/%s", versions[i].directory, child, versions[i].used);
            write_below(root, name, "%u\n", step ? 11000u : 150000u);
        }
        dpb_usage_sample(root, pids, N_PIDS, &meter, &usage);
        assert_int_equal(usage.memory_bytes, 150000);
    }
    write_below(root, "proc/self/cgroup", "0::/\n");
}

static void set_energy(unsigned package, unsigned long long uj)
{
    char name[128];
    snprintf(name, sizeof name, "sys/class/powercap/intel-rapl:%u/energy_uj", package);
    write_below(root, name, "%llu\n", uj);
}

/* Zone 1 holds the packages, and does not count; zone 2 wraps around. */
TEST(energy_is_of_packages_and_wraps)
{
    static const char *const names[] = {"package-0", "psys", "package-1"};
    struct dpb_usage_meter meter = {0};
    struct dpb_usage usage;
    char name[128];
    make_machine(1);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "sys/class/powercap/intel-rapl:%u/name", i);
        write_below(root, name, "%s\n", names[i]);
        snprintf(name, sizeof name, "sys/class/powercap/intel-rapl:%u/max_energy_range_uj", i);
        write_below(root, name, "10000000\n");
        set_energy(i, 9000000);
    }
    dpb_usage_sample(root, pids, N_PIDS, &meter, &usage);
    assert_true(usage.package_j == 0);
    set_energy(0, 9500000);
    set_energy(1, 9900000);
    set_energy(2, 1000000);
    dpb_usage_sample(root, pids, N_PIDS, &meter, &usage);
    assert_true(fabs(usage.package_j - 2.5) < 1e-9);
    set_energy(2, 2000000);
    dpb_usage_sample(root, pids, N_PIDS, &meter, &usage);
    assert_true(fabs(usage.package_j - 3.5) < 1e-9);
}

/* A counter of 65,536 J at 1 kW, sampled every 128 s. */
TEST(long_intervals_lose_no_energy)
{
    struct dpb_usage_meter meter = {0};
    struct dpb_usage usage;
    make_machine(1);
    write_below(root, "sys/class/powercap/intel-rapl:0/name", "package-0\n");
    write_below(root, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "65536000000\n");
    set_energy(0, 0);
    dpb_usage_sample(root, pids, N_PIDS, &meter, &usage);
    const int64_t due_ns = INT64_C(128000000000);
    for (int64_t now_ns = 0; now_ns < due_ns;) {
        now_ns = dpb_monitor_look_ns(now_ns, due_ns);
        set_energy(0, (unsigned long long)now_ns % 65536000000);
        dpb_usage_follow(root, &meter);
    }
    dpb_usage_sample(root, pids, N_PIDS, &meter, &usage);
    assert_true(fabs(usage.package_j - 128000) < 1e-3);
}

/* Two turns of 2 and 1 units of time, 7 units of others between them, in which the energy wraps. */
TEST(turns_alone_count)
{
    static const struct {
        unsigned t, joules;
        bool begins;
        int64_t ranks_ns;
    } calls[] = {{1, 8, true, 100}, {3, 9, false, 300}, {10, 4, true, 300}, {11, 7, false, 400}};
    static const struct {
        int64_t at_ns;
        unsigned t, joules;
    } expected[] = {{0, 0, 0}, {200, 2, 1}, {300, 3, 4}};
    struct dpb_monitor_series *series =
        calloc(1, sizeof *series + DPB_MONITOR_SAMPLES * sizeof series->samples[0]);
    const int64_t tick_ns = dpb_proc_tick_ns();
    series->interval_ns = INT64_C(50000000000);
    write_below(root, "sys/class/powercap/intel-rapl:0/name", "package-0\n");
    write_below(root, "sys/class/powercap/intel-rapl:0/max_energy_range_uj", "10000000\n");
    set_energy(2, 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        make_machine(calls[i].t);
        set_energy(0, calls[i].joules * 1000000ull);
        const int64_t due_ns =
            dpb_monitor_turn(root, series, pids, N_PIDS, calls[i].begins, calls[i].ranks_ns);
        assert_int_equal(due_ns, INT64_C(20000000000)); /* lest a counter wraps twice */
    }
    assert_int_equal(series->n, 3);
    for (size_t i = 0; i < 3; i++) {
        const struct dpb_usage *first = &series->samples[0].machine,
                               *usage = &series->samples[i].machine;
        const unsigned t = expected[i].t;
        assert_int_equal(series->samples[i].at_ns, expected[i].at_ns);
        assert_int_equal(usage->own_ns - first->own_ns, 13 * t * tick_ns);
        assert_int_equal(usage->busy_ns - first->busy_ns, 35 * t * tick_ns);
        assert_int_equal(usage->received_bytes - first->received_bytes, 100 * t);
        assert_int_equal(usage->sent_bytes - first->sent_bytes, 30 * t);
        assert_int_equal(usage->loopback_bytes - first->loopback_bytes, 70 * t);
        assert_int_equal(usage->read_bytes - first->read_bytes, 2 * 512 * t);
        assert_int_equal(usage->written_bytes - first->written_bytes, 4 * 512 * t);
        assert_true(fabs(usage->package_j - expected[i].joules) < 1e-9);
    }
    assert_int_equal(series->samples[2].machine.memory_bytes, 411 * 1024); /* as it is */
    free(series);
}

TEST(full_series_keep_every_second)
{
    enum { CAPACITY = 4, ADDED = 11 };
    struct dpb_monitor_series *series =
        calloc(1, sizeof *series + CAPACITY * sizeof series->samples[0]);
    assert_non_null(series);
    series->interval_ns = 1;
    for (int64_t i = 0; i < ADDED; i++) {
        const struct dpb_monitor_sample sample = {.at_ns = i};
        if (i % series->interval_ns == 0) /* as the thread sleeps */
            dpb_monitor_add(series, CAPACITY, &sample);
    }
    assert_int_equal(series->interval_ns, 4);
    assert_int_equal(series->n, 3);
    for (int64_t i = 0; i < 3; i++)
        assert_int_equal(series->samples[i].at_ns, 4 * i);
    free(series);
}

TEST(samples_keep_their_distance)
{
    static const int64_t taken_and_next[][2] = {{100, 110}, {104, 110}, {105, 110}, {106, 120},
                                                {109, 120}, {114, 120}, {116, 130}, {200, 210}};
    for (size_t i = 0; i < sizeof taken_and_next / sizeof *taken_and_next; i++)
        assert_int_equal(dpb_monitor_due_ns(100, taken_and_next[i][0], 10), taken_and_next[i][1]);
}

TEST_MAIN(own_directory_setup, own_directory_teardown)
