/* needs: threads */
/*
 * test_ps_cpu.c - ps_cpu is a parameter server: the optimizer's state is mapped on the shards and
 * nowhere else, nothing goes on without a server, and on several machines it trains to the same
 * bits as on one. With comm.shard state and gradients are mapped where they should be, too.
 */
#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/test.h"
#include "lib/training.h"

enum { MOST_RANKS = 16, PAGE = 4096 };

/* ---- the processes of a job, as /proc shows them ------------------------------------------- */

struct process {
    pid_t pid;
    uint64_t optimizer_bytes, gradients_bytes; /* resident: the most that was seen */
};

struct job {
    struct process processes[MOST_RANKS];
    int n;
};

/* Bytes of the process's mappings of such memory. What several addresses show counts once: they lie
 * side by side. */
static uint64_t mapped_bytes(pid_t pid, const char *name)
{
    char path[64], line[1024];
    uint64_t bytes = 0, shown = 0;
    unsigned long long before = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        unsigned long long begin, end, offset, inode;
        if (!strstr(line, name) ||
            sscanf(line, "%llx-%llx %*s %llx %*s %llu", &begin, &end, &offset, &inode) != 4)
            continue;
        const uint64_t last = offset + end - begin;
        shown = inode == before ? shown : 0;
        bytes += last > shown ? last - shown : 0;
        shown = last > shown ? last : shown;
        before = inode;
    }
    if (file)
        fclose(file);
    return bytes;
}

static void keep_most(uint64_t *most, uint64_t seen)
{
    *most = seen > *most ? seen : *most;
}

static struct process *process_of(struct job *job, pid_t pid)
{
    for (int i = 0; i < job->n; i++)
        if (job->processes[i].pid == pid)
            return &job->processes[i];
    if (job->n == MOST_RANKS)
        fail_msg("a job of more than %d processes", MOST_RANKS);
    job->processes[job->n] = (struct process){.pid = pid};
    return &job->processes[job->n++];
}

/* Whether the launcher has not ended yet; it is not collected here. */
static bool is_running(pid_t launcher)
{
    siginfo_t info = {.si_pid = 0};
    return waitid(P_PID, (id_t)launcher, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

/* Looks at the children of `launcher` once more. */
static void look(struct job *job, pid_t launcher)
{
    pid_t pids[MOST_RANKS];
    const size_t n = faults_children_of(launcher, pids, MOST_RANKS);
    for (size_t i = 0; i < n; i++) {
        struct process *process = process_of(job, pids[i]);
        keep_most(&process->optimizer_bytes, mapped_bytes(pids[i], "dpbench-optimizer"));
        keep_most(&process->gradients_bytes, mapped_bytes(pids[i], "dpbench-gradients"));
    }
}

/* ---- where the optimizer's state is -------------------------------------------------------- */

/* The share of the state that each worker and each server has to have, of `shares`. */
struct residence {
    const char *settings;
    int workers, servers;
    double worker, server;
};

static const struct residence residences[] = {
    {"comm.name=ps_cpu run.servers=1 run.workers=2", 2, 1, 0.0, 1.0},
    {"comm.name=ps_cpu run.servers=2 run.workers=2", 2, 2, 0.0, 1.0 / 2},
    {"comm.name=ps_cpu run.servers=3 run.workers=1", 1, 3, 0.0, 1.0 / 3},
    {"comm.name=ps_cpu run.workers=2", 2, 0, 1.0 / 2, 0.0},
    {"comm.name=ps_cpu run.workers=3 optimizer.name=adagrad", 3, 0, 1.0 / 3, 0.0},
    {"comm.name=ps_cpu run.servers=2 run.workers=2 comm.hosts=2x2 comm.interface=lo", 2, 2, 0.0,
     1.0 / 2},
    /* The look itself: where every worker keeps all of it, it is seen. */
    {"comm.name=shm run.workers=2", 2, 0, 1.0, 0.0},
    {"comm.name=shm comm.shard=optimizer run.workers=3", 3, 0, 1.0 / 3, 0.0},
    {"comm.name=ring_tcp comm.shard=gradients run.workers=2", 2, 0, 1.0 / 2, 0.0},
    {"comm.name=hierarchical comm.shard=optimizer run.workers=4 comm.hosts=2x2 comm.interface=lo",
     4, 0, 1.0 / 4, 0.0},
    {"comm.name=replicated run.workers=2", 2, 0, 1.0, 0.0},
};

static uint64_t state_bytes(void)
{
    static uint64_t bytes;
    struct training training;
    if (bytes > 0)
        return bytes;
    train(&training, "model.name=lenet run.steps=1 run.batch=1");
    return bytes = weights_arena_elements(&training.weights) * sizeof(double);
}

static void expect_residence(const struct residence *residence, struct job *job,
                             const json_t *result, double state)
{
    for (int rank = 0; rank < residence->workers + residence->servers; rank++) {
        char path[32];
        snprintf(path, sizeof path, "ranks.%d.pid", rank);
        pid_t pid = (pid_t)json_number_at(result, path);
        double share = rank < residence->workers ? residence->worker : residence->server;
        double seen = (double)process_of(job, pid)->optimizer_bytes;
        /* Slices are rounded to elements in each bucket, mappings to pages. */
        double slack = share > 0.0 ? 2.0 * PAGE : 0.0;
        if (seen < share * state - slack || seen > share * state + slack)
            fail_msg("%s\nrank %d maps %.0f bytes of optimizer state, not %.0f",
                     residence->settings, rank, seen, share * state);
    }
    assert_int_equal(job->n, residence->workers + residence->servers);
}

static void test_residence(void **state)
{
    const struct residence *residence = *state;
    char settings[512];
    struct started started;
    struct command command;
    struct job job = {.n = 0};
    snprintf(settings, sizeof settings,
             "model.name=lenet run.steps=4 run.batch=1 comm.bucket=1MB %s", residence->settings);
    double all = (double)state_bytes();
    training_start(&started, settings);
    for (; is_running(started.pid); usleep(10000))
        look(&job, started.pid);
    command_finish(&started, &command, 60);
    if (command.exit_code != 0)
        fail_msg("%s\nexit code %d: %s", settings, command.exit_code, command.err);
    expect_residence(residence, &job, command.json, all);
}

/* ---- where gradients are ------------------------------------------------------------------- */

/* ResNet-20 in buckets of a page: the largest layer, and 4 slots. With shm a worker maps those of
 * both. */
TEST(test_slots_resident)
{
    enum { WORKERS = 2 };
    static const struct {
        const char *settings;
        int arenas;
        double most;
    } cases[] = {{"comm.name=ring_tcp comm.shard=optimizer", 1, 1.0},
                 {"comm.name=ring_tcp comm.shard=gradients", 1, 0.2},
                 {"comm.name=shm comm.shard=gradients", WORKERS, 0.2}};
    double all = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = {.n = 0};
        struct started started;
        struct command command;
        char settings[256];
        snprintf(settings, sizeof settings,
                 "model.name=resnet20 model.image=8 run.steps=4 run.batch=1 run.workers=%d "
                 "comm.bucket=4096 %s",
                 WORKERS, cases[i].settings);
        training_start(&started, settings);
        for (; is_running(started.pid); usleep(10000))
            look(&job, started.pid);
        command_finish(&started, &command, 60);
        assert_int_equal(command.exit_code, 0);
        const double said = json_number_at(command.json, "ranks.1.memory.gradients_bytes");
        all = i == 0 ? said : all;
        for (int rank = 0; rank < WORKERS; rank++)
            if (fabs((double)job.processes[rank].gradients_bytes - cases[i].arenas * said) >=
                    PAGE ||
                said > cases[i].most * all)
                fail_msg("%s\nrank %d maps %llu bytes of gradients, says %.0f; there are %.0f",
                         settings, rank, (unsigned long long)job.processes[rank].gradients_bytes,
                         said, all);
        dpbench(&command, 60, "check -c /dev/null device.name=reference run.precision=fp64 %s",
                settings);
        const char *at = strstr(command.out, ", gradients ");
        assert_non_null(at);
        assert_true(fabs(strtod(at + strlen(", gradients "), NULL) * 0x1p20 - said) <
                    0.05 * 0x1p20);
    }
}

/* ---- a server that stops ------------------------------------------------------------------- */

static void test_stopped_server(void **state)
{
    const struct residence *residence = *state;
    int workers = residence->workers, n = workers + residence->servers;
    char settings[512], name[32];
    struct started started;
    struct command command;
    pid_t ranks[8];
    snprintf(settings, sizeof settings,
             "model.name=tiny run.steps=10000000 run.delay=constant(1ms) run.timeout_s=1 "
             "comm.bucket=4kB %s",
             residence->settings);
    training_start(&started, settings);
    faults_await_steps(&started, ranks, (size_t)n);
    assert_int_equal(kill(ranks[n - 1], SIGSTOP), 0);
    double stopped_s = now_s();
    command_finish(&started, &command, 60);
    snprintf(name, sizeof name, "rank %d", n - 1);
    if (command.exit_code != 1 || now_s() - stopped_s > 6.0 || !strstr(command.err, name) ||
        !strstr(command.err, "weights from the server"))
        fail_msg("%s\nexit code %d after %.1f s: %s", settings, command.exit_code,
                 now_s() - stopped_s, command.err);
    for (int i = 0; i < n; i++)
        if (kill(ranks[i], 0) == 0)
            fail_msg("%s\nprocess %d is left", settings, (int)ranks[i]);
}

/* ---- several machines ---------------------------------------------------------------------- */

/* The same ranks on one machine and on those of `hosts`. */
struct spread {
    const char *settings, *hosts;
};

static const struct spread spreads[] = {
    {"run.workers=2", "1+1"},
    {"run.workers=3 run.precision=fp32 comm.gradient=bf16 comm.bucket=106", "0,1,0"},
    {"run.workers=5 comm.bucket=8", "2+1+2"},
    {"run.workers=4 optimizer.name=adagrad", "2x2 comm.streams=2"},
    {"run.workers=2 run.servers=1", "2+1 comm.streams=3"},
    {"run.workers=2 run.servers=1 run.comm_cores=1", "1+2"},
    {"run.workers=3 run.servers=2 run.precision=fp32 comm.bucket=212", "0,1,1,0,1"},
    {"run.workers=1 run.servers=3 run.accumulate=2", "4x1"},
};

static void train_spread(struct training *training, const char *settings, const char *hosts)
{
    train(training,
          "model.name=tiny_bn comm.name=ps_cpu run.prove=yes eval.final=yes data.test_samples=10 "
          "comm.bucket=424 %s%s%s",
          settings, hosts ? " comm.interface=lo comm.hosts=" : "", hosts ? hosts : "");
    expect_verified(training);
}

static void test_same_bits(void **state)
{
    static const char *const numbers[] = {"eval.0.loss", "comm.bytes_per_step"};
    const struct spread *spread = *state;
    struct training together, apart;
    train_spread(&together, spread->settings, NULL);
    train_spread(&apart, spread->settings, spread->hosts);
    expect_same_losses(&apart, &together, 0.0);
    expect_same_weights(&apart, &together, NULL, 0.0);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        double here = json_number_at(together.command.json, numbers[i]);
        double there = json_number_at(apart.command.json, numbers[i]);
        if (here != there)
            fail_msg("%s\n%s: %.17g, on one machine %.17g", apart.settings, numbers[i], there,
                     here);
    }
}

static const struct residence stops[] = {
    {"comm.name=ps_cpu run.servers=1 run.workers=2", 2, 1, 0.0, 1.0},
    {"comm.name=ps_cpu run.servers=2 run.workers=1", 1, 2, 0.0, 0.5},
    {"comm.name=ps_cpu run.servers=1 run.workers=2 comm.hosts=2+1 comm.interface=lo", 2, 1, 0.0,
     1.0},
};

int main(void)
{
    for (size_t i = 0; i < sizeof residences / sizeof residences[0]; i++)
        add_case(test_residence, &residences[i], "state, %s", residences[i].settings);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++)
        add_case(test_stopped_server, &stops[i], "stopped server, %s", stops[i].settings);
    for (size_t i = 0; i < sizeof spreads / sizeof spreads[0]; i++)
        add_case(test_same_bits, &spreads[i], "same bits, %s, %s", spreads[i].settings,
                 spreads[i].hosts);
    return test_main(training_setup, training_teardown);
}
