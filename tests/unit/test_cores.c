/*
 * test_cores.c - which cores a process may use, how ranks divide them, and the limits of control
 * groups.
 */
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/test.h"
#include "machine/cgroup.h"
#include "machine/cores.h"
#include "machine/latency.h"

/* ---- the division -------------------------------------------------------------------------- */

/* Over all ranks: either nobody has cores, or the sets are disjoint, inside, and of the right
 * size. */
static void check_shares(uint32_t n_cores, const struct dpb_cores_job *job,
                         uint32_t expected_threads, bool expected_enough)
{
    uint8_t taken[256] = {0};
    for (uint32_t rank = 0; rank < job->n_workers + job->n_servers; rank++) {
        const struct dpb_cores_share mine = dpb_cores_place(n_cores, job, rank);
        assert_int_equal(mine.threads, rank < job->n_workers ? expected_threads : 1);
        assert_int_equal(mine.n > 0, expected_enough);
        assert_int_equal(mine.n_all > 0, expected_enough);
        if (mine.n == 0)
            continue;
        assert_int_equal(mine.n, rank < job->n_workers ? mine.threads + job->comm_cores : 1);
        assert_true(mine.first + mine.n <= mine.n_all && mine.n_all <= n_cores);
        for (uint32_t i = mine.first; i < mine.first + mine.n; i++)
            assert_int_equal(taken[i]++, 0);
    }
}

static void check_division(uint32_t n_cores, uint32_t n_workers, uint32_t n_servers,
                           uint32_t comm_cores, uint32_t threads, uint32_t expected_threads,
                           bool expected_enough)
{
    const struct dpb_cores_job job = {n_workers, n_servers, 1, comm_cores, threads};
    check_shares(n_cores, &job, expected_threads, expected_enough);
}

/* Also: each learner's cores are among those of its place, which one worker would have had. */
static void check_learners(uint32_t n_cores, uint32_t places, uint32_t learners,
                           uint32_t comm_cores, uint32_t threads, uint32_t expected_threads,
                           bool expected_enough)
{
    const struct dpb_cores_job one = {places, 1, 1, comm_cores, threads};
    const struct dpb_cores_job job = {places * learners, 1, learners, comm_cores, threads};
    check_shares(n_cores, &job, expected_threads, expected_enough);
    for (uint32_t rank = 0; rank < job.n_workers; rank++) {
        const struct dpb_cores_share whole = dpb_cores_place(n_cores, &one, rank / learners);
        const struct dpb_cores_share mine = dpb_cores_place(n_cores, &job, rank);
        assert_int_equal(mine.place_threads, whole.threads);
        if (mine.n == 0)
            continue;
        assert_true(mine.first >= whole.first && mine.first + mine.n <= whole.first + whole.n);
        assert_int_equal(mine.n_all, whole.n_all);
    }
}

TEST(test_learners)
{
    /*             cores places learners comm threads | threads enough; and a server */
    check_learners(9, 1, 1, 0, 0, 8, true);
    check_learners(9, 1, 2, 0, 0, 4, true);
    check_learners(9, 1, 3, 0, 0, 2, true);
    check_learners(9, 2, 2, 0, 0, 2, true);
    check_learners(9, 2, 3, 0, 0, 1, true);
    check_learners(9, 2, 5, 0, 0, 1, false);
    check_learners(9, 1, 8, 0, 0, 1, true);
    check_learners(9, 1, 9, 0, 0, 1, false);
    check_learners(9, 2, 2, 0, 2, 1, true);
    check_learners(9, 2, 2, 0, 3, 1, true);
    check_learners(8, 2, 2, 0, 4, 2, false);
    check_learners(9, 2, 2, 1, 0, 1, true);
    check_learners(9, 2, 2, 1, 3, 1, true);
    check_learners(9, 2, 3, 1, 0, 1, false);
}

/* A launcher that binds each process has shared the cores of a place out already. */
TEST(test_learners_apart)
{
    const struct dpb_cores_job alone = {.n_workers = 1, .learners = 2};
    const struct dpb_cores_job given = {.n_workers = 1, .learners = 2, .threads = 4};
    struct dpb_cores_share share = dpb_cores_place(2, &alone, 0);
    assert_int_equal(share.n, 2);
    assert_int_equal(share.threads, 2);
    assert_int_equal(share.place_threads, 4);
    share = dpb_cores_place(2, &given, 0);
    assert_int_equal(share.n, 2);
    assert_int_equal(share.threads, 2);
    assert_int_equal(share.place_threads, 4);
}

TEST(test_division)
{
    /*             cores workers servers comm threads | threads enough */
    check_division(8, 1, 0, 0, 0, 8, true);
    check_division(8, 2, 0, 0, 0, 4, true);
    check_division(8, 3, 0, 0, 0, 2, true);
    check_division(8, 3, 0, 0, 3, 3, false);
    check_division(8, 2, 2, 0, 0, 3, true);
    check_division(8, 2, 0, 1, 0, 3, true);
    check_division(8, 4, 0, 1, 1, 1, true);
    check_division(8, 4, 1, 1, 1, 1, false);
    check_division(8, 8, 0, 0, 0, 1, true);
    check_division(8, 9, 0, 0, 0, 1, false);
    check_division(8, 8, 1, 0, 0, 1, false);
    check_division(1, 1, 0, 0, 0, 1, true);
    check_division(1, 1, 0, 1, 0, 1, false);
    check_division(1, 1, 2, 0, 0, 1, false);
    check_division(256, 64, 16, 1, 0, 2, true);
    check_division(4, 2, 0, 0, UINT32_MAX, UINT32_MAX, false);
    check_division(8, 0, 2, 0, 0, 1, true); /* a machine of servers alone */
    check_division(8, 0, 2, 0, 4, 1, true);
}

/* ---- binding, each rank in a process of its own -------------------------------------------- */

#define ANY_CPU SIZE_MAX

struct bound {
    cpu_set_t before, after;
    uint32_t threads, n_cores;
    bool oversubscribed;
    dpb_status status;
};

/* Of all threads of this process: a sanitizer has one of its own, and what any may use is
 * usable. */
static void bind_all_threads(const cpu_set_t *set)
{
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; tasks && (entry = readdir(tasks));)
        if (entry->d_name[0] != '.')
            sched_setaffinity(atoi(entry->d_name), sizeof *set, set);
    if (tasks)
        closedir(tasks);
}

static struct bound bind_in_child(uint32_t rank, uint32_t n_workers, uint32_t threads,
                                  size_t only_cpu)
{
    struct bound result = {.threads = threads};
    int ends[2], wait_status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        if (only_cpu != ANY_CPU) {
            CPU_ZERO(&result.before);
            CPU_SET(only_cpu, &result.before);
            bind_all_threads(&result.before);
        }
        sched_getaffinity(0, sizeof result.before, &result.before);
        const struct dpb_cores_job job = {
            .n_workers = n_workers, .learners = 1, .threads = threads};
        struct dpb_cores_share share;
        result.status = dpb_cores_bind(&job, rank, &share);
        result.threads = share.threads;
        result.oversubscribed = share.n == 0;
        sched_getaffinity(0, sizeof result.after, &result.after);
        if (dpb_cores_available(&result.n_cores) != DPB_OK)
            _exit(1);
        _exit(write(ends[1], &result, sizeof result) != (ssize_t)sizeof result);
    }
    assert_int_equal(read(ends[0], &result, sizeof result), sizeof result);
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(waitpid(child, &wait_status, 0), child);
    assert_int_equal(result.status, DPB_OK);
    return result;
}

TEST(test_bind)
{
    cpu_set_t all, both;
    struct bound one = bind_in_child(0, 1, 0, ANY_CPU);
    uint32_t n_cores = one.n_cores;
    assert_int_equal(one.threads, n_cores);
    assert_int_equal(CPU_COUNT(&one.after), (int)n_cores);
    CPU_ZERO(&all);
    for (uint32_t rank = 0; rank < n_cores; rank++) {
        struct bound mine = bind_in_child(rank, n_cores, 1, ANY_CPU);
        assert_false(mine.oversubscribed);
        assert_int_equal(mine.n_cores, n_cores); /* the machine did not shrink by binding */
        assert_int_equal(CPU_COUNT(&mine.after), 1);
        CPU_AND(&both, &all, &mine.after);
        assert_int_equal(CPU_COUNT(&both), 0);
        CPU_OR(&all, &all, &mine.after);
    }
    struct bound many = bind_in_child(0, n_cores + 1, 1, ANY_CPU);
    assert_true(many.oversubscribed);
    assert_true(CPU_EQUAL(&many.before, &many.after));
}

TEST(test_affinity)
{
    cpu_set_t allowed;
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        struct bound mine = bind_in_child(0, 1, 0, cpu);
        assert_int_equal(mine.n_cores, 1);
        assert_true(CPU_ISSET(cpu, &mine.after));
    }
}

/* ---- control groups: trees as kernels show them -------------------------------------------- */

static char root[] = "/tmp/dpbench-test-cores-XXXXXX";

static double cpus_of(const char *machine)
{
    char below[PATH_MAX];
    snprintf(below, sizeof below, "%s/%s", root, machine);
    return dpb_cgroup_cpus(below);
}

static uint64_t memory_of(const char *machine)
{
    uint64_t used_bytes, cache_bytes;
    char below[PATH_MAX];
    snprintf(below, sizeof below, "%s/%s", root, machine);
    return dpb_cgroup_memory(below, &used_bytes, &cache_bytes);
}

static const char *quota_of(const char *machine, uint32_t n_cores)
{
    static char text[DPB_CGROUP_QUOTA];
    char below[PATH_MAX];
    snprintf(below, sizeof below, "%s/%s", root, machine);
    return dpb_cgroup_name_quota(below, n_cores, text);
}

TEST(test_cgroups)
{
    assert_non_null(mkdtemp(root));
    /* Version 2: the group above is tighter. */
    write_below(root, "v2/proc/self/cgroup", "0::/job.slice/step\n");
    write_below(root, "v2/sys/fs/cgroup/job.slice/cpu.max", "150000 100000\n");
    write_below(root, "v2/sys/fs/cgroup/job.slice/memory.max", "max\n");
    write_below(root, "v2/sys/fs/cgroup/job.slice/step/cpu.max", "400000 100000\n");
    write_below(root, "v2/sys/fs/cgroup/job.slice/step/memory.max", "1073741824\n");
    assert_true(cpus_of("v2") == 1.5);
    assert_string_equal(quota_of("v2", 1), " (the control group's CPU quota is 1.5)");
    assert_true(memory_of("v2") == UINT64_C(1) << 30);
    write_below(root, "v2/sys/fs/cgroup/job.slice/cpu.max", "max 100000\n");
    assert_true(cpus_of("v2") == 4);
    assert_string_equal(quota_of("v2", 2), ""); /* the machine has no more */
    /* Version 1: a directory a controller, -1 and a huge number for none. */
    write_below(root, "v1/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n1:name=systemd:/x\n");
    write_below(root, "v1/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "250000\n");
    write_below(root, "v1/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
    write_below(root, "v1/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    write_below(root, "v1/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "536870912\n");
    assert_true(cpus_of("v1") == 2.5);
    assert_true(memory_of("v1") == UINT64_C(1) << 29);
    write_below(root, "v1/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
    assert_true(isinf(cpus_of("v1")));
    /* A container: the path is the host's, the mount is the container's own group. */
    write_below(root, "container/proc/self/cgroup", "0::/kubepods/pod7/c\n");
    write_below(root, "container/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_true(cpus_of("container") == 2);
    /* No membership to be read: the root still counts. */
    write_below(root, "bare/sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_true(cpus_of("bare") == 3);
    /* Nothing there, or nonsense. */
    assert_true(isinf(cpus_of("nowhere")));
    assert_true(memory_of("nowhere") == UINT64_MAX);
    write_below(root, "odd/proc/self/cgroup", "nonsense\n0::\n::\n");
    write_below(root, "odd/sys/fs/cgroup/cpu.max", "\n");
    write_below(root, "odd/sys/fs/cgroup/memory.max", "lots\n");
    assert_true(isinf(cpus_of("odd")));
    assert_true(memory_of("odd") == UINT64_MAX);
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    assert_int_equal(system(command), 0);
}

/* ---- the machine --------------------------------------------------------------------------- */

TEST(test_machine)
{
    static const char *const keys[] = {
        "host",     "kernel",       "processor",    "cores",      "threads",   "caches", "cgroup",
        "governor", "memory_bytes", "usable_cores", "numa_nodes", "microcode", "smt",    "vendor"};
    uint32_t n_cores;
    json_t *machine = own_json(dpb_machine_describe());
    assert_non_null(machine);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_non_null(json_object_get(machine, keys[i]));
    assert_int_equal(dpb_cores_available(&n_cores), DPB_OK);
    assert_int_equal(json_integer_value(json_object_get(machine, "usable_cores")), n_cores);
    assert_true(n_cores >= 1);
    assert_true(json_integer_value(json_object_get(machine, "memory_bytes")) > 1 << 20);
}

/* What a result says of a rank's cores is what binding gives it. */
TEST(test_cores_of)
{
    uint32_t n_cores = 0;
    assert_int_equal(dpb_cores_available(&n_cores), DPB_OK);
    uint16_t cores[4];
    const struct dpb_cores_job job = {.n_workers = n_cores, .learners = 1, .threads = 1};
    const struct dpb_cores_job many = {.n_workers = n_cores + 1, .learners = 1, .threads = 1};
    assert_int_equal(dpb_cores_of(&many, 0, cores, 4), 0);
    uint64_t seen[16] = {0};
    for (uint32_t rank = 0; rank < n_cores; rank++) {
        assert_int_equal(dpb_cores_of(&job, rank, cores, 4), 1);
        uint16_t core = cores[0];
        assert_in_range(core, 0, 1023);
        assert_int_equal(seen[core / 64] >> core % 64 & 1, 0);
        seen[core / 64] |= UINT64_C(1) << core % 64;
    }
    if (fork() == 0) { /* bound for good */
        cpu_set_t set;
        struct dpb_cores_share share;
        uint32_t n = dpb_cores_of(&job, n_cores - 1, cores, 4);
        int core = n == 1 ? cores[0] : -1;
        bool same = core >= 0 && dpb_cores_bind(&job, n_cores - 1, &share) == DPB_OK &&
                    sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1 &&
                    CPU_ISSET(core, &set);
        _exit(same ? 0 : 1);
    }
    int status = 0;
    assert_true(wait(&status) > 0);
    assert_int_equal(status, 0);
}

/* A way takes nanoseconds, and is not known where there are not two cores. */
TEST(test_core_latency)
{
    static const struct dpb_cores_job job = {.n_workers = 2, .learners = 1};
    uint16_t cores[2];
    assert_true(isnan(dpb_core_latency_ns(0, 0)));
    assert_true(isnan(dpb_core_latency_ns(0, UINT16_MAX)));
    if (dpb_cores_of(&job, 0, &cores[0], 1) == 0 || dpb_cores_of(&job, 1, &cores[1], 1) == 0)
        skip();
    double ns = NAN; /* others may hold a core at times */
    for (int i = 0; i < 1000 && isnan(ns); i++)
        ns = dpb_core_latency_ns(cores[0], cores[1]);
    assert_true(ns > 1 && ns < 100000);
}

TEST_MAIN(NULL, NULL)
