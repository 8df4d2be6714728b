/*
 * test_load.c - what else the machine did: counters of made-up systems, their differences, and the
 * warnings that a result gets of them.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "lib/command.h"
#include "lib/says.h"
#include "lib/test.h"
#include "machine/cores.h"
#include "machine/load.h"
#include "machine/neighbour.h"
#include "machine/proc.h"
#include "record/load_report.h"

static const char *const root = own_directory;

/* A machine of 4 hardware threads; the job has 0 and 1, whose siblings are 2 and 3. */
static const uint8_t cpus[4] = {DPB_CPU_USED, DPB_CPU_USED, DPB_CPU_SIBLING, DPB_CPU_SIBLING};
static const int32_t pids[] = {11, 12};

/* Ticks since the start: user, nice and system of each thread, stolen of the first; the job's
 * own. */
struct machine {
    unsigned user[4], nice[4], system[4], stolen, own_user[2], own_system[2];
    unsigned throttled, throttled_us, hot;
};

static void make_machine(const struct machine *machine)
{
    char text[2048];
    int used = snprintf(text, sizeof text, "cpu  1 2 3 4 5 6 7 8 9 10\n");
    for (int cpu = 0; cpu < 4; cpu++)
        used += snprintf(text + used, sizeof text - (size_t)used,
                         "cpu%d %u %u %u 70000 50 60 70 %u 9 10\n", cpu, machine->user[cpu],
                         machine->nice[cpu], machine->system[cpu], cpu == 0 ? machine->stolen : 0);
    write_below(root, "proc/stat", "%sintr 1 2 3\nctxt 4\n", text);
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "proc/%d/stat", (int)pids[i]);
        write_below(root, name,
                    "%d (a ) 3 (name) R 1 1 1 0 -1 4194304 9 9 9 9 %u %u 77 77 20 0 1 0 5\n",
                    (int)pids[i], machine->own_user[i], machine->own_system[i]);
        snprintf(name, sizeof name, "proc/%d/io", (int)pids[i]);
        write_below(root, name, "rchar: 100\nwchar: 20\nsyscr: 3\n");
    }
    write_below(root, "proc/self/cgroup", "0::/job\n");
    write_below(root, "sys/fs/cgroup/job/cpu.stat",
                "usage_usec 5\nnr_periods 9\nnr_throttled %u\nthrottled_usec %u\n",
                machine->throttled, machine->throttled_us);
    write_below(root, "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count", "%u\n",
                machine->hot);
    write_below(root, "sys/devices/system/cpu/cpu2/thermal_throttle/core_throttle_count", "%u\n",
                1000 * machine->hot);
}

/* Both machines, `seconds` apart. */
static struct dpb_load load_between(const struct machine *from, const struct machine *to,
                                    double seconds)
{
    struct dpb_load_sample begin, end;
    struct dpb_load load;
    make_machine(from);
    dpb_load_sample(root, cpus, 4, pids, 2, &begin);
    make_machine(to);
    dpb_load_sample(root, cpus, 4, pids, 2, &end);
    begin.at_ns = 5;
    end.at_ns = 5 + (int64_t)(seconds * 1e9);
    dpb_load_between(&begin, &end, &load);
    return load;
}

static const struct machine start = {
    {100, 200, 300, 400}, {10, 20, 30, 40}, {1, 2, 3, 4}, 7, {50, 60}, {5, 6}, 3, 2000000, 2};

static struct machine later(void)
{
    struct machine machine =
        start; /* ten seconds on which the job had its two threads for itself */
    for (int i = 0; i < 2; i++) {
        double ticks_s = 1e9 / (double)dpb_proc_tick_ns();
        machine.own_user[i] += (unsigned)(9 * ticks_s);
        machine.own_system[i] += (unsigned)(1 * ticks_s);
        machine.user[i] += (unsigned)(9 * ticks_s);
        machine.system[i] += (unsigned)(1 * ticks_s);
    }
    return machine;
}

/* Of the only code that warns; "" for none, "many" for several. */
static const char *code_of(const struct dpb_load *load)
{
    static char code[64];
    json_t *warnings = own_json(json_array());
    dpb_load_warn(load, warnings);
    json_t *json = own_json(dpb_load_to_json(load));
    assert_true(json_is_true(json_object_get(json, "disturbed")) ==
                (json_array_size(warnings) > 0));
    snprintf(code, sizeof code, "%s",
             json_array_size(warnings) > 1
                 ? "many"
                 : dpb_json_text(json_array_get(warnings, 0), "code", ""));
    return code;
}

static void near(double is, double should)
{
    if (!(fabs(is - should) < 1e-9))
        fail_msg("%.17g should be %.17g", is, should);
}

TEST(test_quiet)
{
    struct machine end = later();
    struct dpb_load load = load_between(&start, &end, 10);
    assert_true(load.known);
    assert_int_equal(load.cpus, 2);
    near(load.seconds, 10);
    near(load.own_share, 1);
    near(load.others_share, 0);
    near(load.siblings_share, 0);
    near(load.stolen_share, 0);
    assert_int_equal(load.throttled, 0);
    assert_int_equal(load.hot, 0);
    assert_string_equal(code_of(&load), "");
    assert_string_equal(code_of(NULL), "");
}

TEST(test_each_disturbance)
{
    unsigned second = (unsigned)(1000000000 / dpb_proc_tick_ns());
    struct machine end = later();
    end.nice[1] += 4 * second; /* of 20 */
    struct dpb_load load = load_between(&start, &end, 10);
    near(load.others_share, 0.2);
    assert_string_equal(code_of(&load), "busy_machine");

    end = later();
    end.system[3] += 5 * second;
    load = load_between(&start, &end, 10);
    near(load.siblings_share, 0.25);
    near(load.others_share, 0);
    assert_string_equal(code_of(&load), "busy_siblings");

    end = later();
    end.stolen += 2 * second;
    load = load_between(&start, &end, 10);
    near(load.stolen_share, 0.1);
    assert_string_equal(code_of(&load), "stolen_time");

    end = later();
    end.throttled += 4;
    end.throttled_us += 1500000;
    load = load_between(&start, &end, 10);
    assert_int_equal(load.throttled, 4);
    near(load.throttled_s, 1.5);
    assert_string_equal(code_of(&load), "throttled");

    end = later();
    end.hot += 1; /* and a thousand times on a thread that is not the job's */
    load = load_between(&start, &end, 10);
    assert_int_equal(load.hot, 1);
    assert_string_equal(code_of(&load), "hot");

    end = later();
    load = load_between(&start, &end, 10);
    assert_true(isnan(load.suspended_s)); /* the system does not tell */
    load.suspended_s = 4.0;
    assert_string_equal(code_of(&load), "suspended");
}

static void make_rank(int pid, int launcher, const char *allowed)
{
    char name[64];
    snprintf(name, sizeof name, "proc/%d/comm", pid);
    write_below(root, name, "dpb-rank0\n");
    snprintf(name, sizeof name, "proc/%d/stat", pid);
    write_below(root, name, "%d (dpb-rank0) R %d 1 1 0 -1 4194304 9 9 9 9 1 1 7 7 20 0 1 0 5\n",
                pid, launcher);
    snprintf(name, sizeof name, "proc/%d/status", pid);
    write_below(root, name, "Name:\tdpb-rank0\nCpus_allowed_list:\t%s\nMems_allowed:\t1\n",
                allowed);
}

static int32_t find_neighbour(struct dpb_neighbour *found)
{
    dpb_neighbour_find(root, cpus, 4, pids, 2, found);
    return found->pid;
}

/* The message names the other job, and what keeps the two apart. */
TEST(test_neighbour)
{
    struct dpb_load load = {.seconds = 10, .cpus = 2, .others_share = 0.5};
    char link[300];
    make_rank(pids[0], 10, "0");
    make_rank(15, pids[0], "0"); /* a child of a rank */
    make_rank(21, 20, "2-3,5");
    write_below(root, "proc/22/comm", "bash\n");
    assert_int_equal(find_neighbour(&load.neighbour), 0);
    make_rank(31, 30, "1-3");
    assert_int_equal(find_neighbour(&load.neighbour), 30);
    assert_string_equal(load.neighbour.directory, "");
    write_below(root, "proc/30/comm", "dpbench\n");
    snprintf(link, sizeof link, "%s/proc/30/cwd", root);
    assert_int_equal(symlink("/home/other", link), 0);
    assert_int_equal(find_neighbour(&load.neighbour), 30);

    strcpy(load.neighbour.halves[0], "0-1");
    strcpy(load.neighbour.halves[1], "2,5");
    json_t *warnings = own_json(json_array());
    dpb_load_warn(&load, warnings);
    expect_part(dpb_json_text(json_array_get(warnings, 0), "text", ""),
                "; another dpbench job (process 30, /home/other) has the same cores: keep the "
                "two apart by `taskset -c 0-1 dpbench ...` and `taskset -c 2,5 dpbench ...`");
}

/* A few ticks of a short run, and the system's daemons, are no load. */
TEST(test_bounds)
{
    struct dpb_load load = {.known = true, .seconds = 10, .cpus = 2, .siblings_share = NAN};
    load.others_share = 0.049;
    assert_string_equal(code_of(&load), "");
    load.others_share = 0.051;
    assert_string_equal(code_of(&load), "busy_machine");
    load.seconds = 0.1;
    load.others_share = 0.2; /* 40 ms */
    assert_string_equal(code_of(&load), "");
    load.others_share = 0.3; /* 60 ms */
    assert_string_equal(code_of(&load), "busy_machine");
    load.others_share = NAN;
    assert_string_equal(code_of(&load), "");
}

/* What is not known is null, never 0. */
TEST(test_nothing_known)
{
    struct dpb_load_sample begin, end;
    struct dpb_load load;
    dpb_load_sample("/nowhere", cpus, 4, pids, 2, &begin);
    end = begin;
    end.at_ns += 1000000000;
    dpb_load_between(&begin, &end, &load);
    json_t *json = own_json(dpb_load_to_json(&load));
    assert_true(json_is_null(json_object_get(json, "others_share")));
    assert_true(json_is_null(json_object_get(json, "own_share")));
    assert_true(json_is_null(json_object_get(json, "siblings_share")));
    assert_string_equal(code_of(&load), "");
    json = own_json(dpb_load_to_json(NULL));
    assert_true(json_is_null(json));
}

/* Version 1 counts nanoseconds in a directory of the controller's. */
TEST(test_old_cgroup)
{
    struct dpb_load_sample sample;
    make_machine(&start);
    write_below(root, "proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/\n");
    write_below(root, "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat",
                "nr_periods 9\nnr_throttled 8\nthrottled_time 2500000000\n");
    dpb_load_sample(root, cpus, 4, pids, 2, &sample);
    assert_int_equal(sample.throttled, 8);
    assert_int_equal(sample.throttled_ns, 2500000000);
}

TEST(test_proc)
{
    struct dpb_proc proc;
    make_machine(&start);
    assert_true(dpb_proc_read(root, 11, &proc));
    assert_int_equal(proc.state, 'R');
    assert_int_equal(proc.cpu_ns, 55 * dpb_proc_tick_ns());
    assert_int_equal(proc.io_bytes, 120);
    assert_false(dpb_proc_read(root, 13, &proc));
    assert_true(dpb_proc_read("", getpid(), &proc));
    write_below(root, "proc/14/stat", "14 (cut");
    assert_false(dpb_proc_read(root, 14, &proc));
}

/* "0" stands for a process that runs, and where the system does not tell. */
TEST(test_asleep)
{
    char function[DPB_PROC_FUNCTION_BYTES];
    write_below(root, "proc/15/wchan", "futex_do_wait");
    write_below(root, "proc/16/wchan", "0");
    write_below(root, "proc/17/wchan", "%s", "");
    assert_true(dpb_proc_sleeps_in(root, 15, function));
    assert_string_equal(function, "futex_do_wait");
    for (int32_t pid = 16; pid <= 18; pid++)
        assert_false(dpb_proc_sleeps_in(root, pid, function));
}

TEST(test_kinds)
{
    enum { MANY = 1024 };
    uint8_t all[MANY], one[MANY];
    uint32_t n_cores = 0, n_all = 0, n_one = 0;
    assert_int_equal(dpb_cores_available(&n_cores), DPB_OK);
    dpb_cores_kinds(0, all, MANY);
    dpb_cores_kinds(1, one, MANY);
    for (int cpu = 0; cpu < MANY; cpu++) {
        n_all += all[cpu] == DPB_CPU_USED;
        n_one += one[cpu] == DPB_CPU_USED;
        assert_true(all[cpu] != DPB_CPU_SIBLING); /* unbound: any may be used */
        assert_true(one[cpu] == DPB_CPU_OTHER || all[cpu] == DPB_CPU_USED);
    }
    assert_int_equal(n_one, 1);
    assert_true(n_all >= n_cores);
    char first[96], second[96];
    dpb_cores_halves(first, second, sizeof first);
    assert_int_equal(first[0] != '\0', n_cores > 1);
    assert_int_equal(second[0] != '\0', n_cores > 1);
    assert_true(n_cores == 1 || strcmp(first, second) != 0);
}

TEST_MAIN(own_directory_setup, own_directory_teardown)
