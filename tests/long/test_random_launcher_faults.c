/*
 * test_random_launcher_faults.c - a process of a job, any of them, is killed, stopped or terminated
 * at any time, under each of the three launchers, with every strategy that runs here and 2 to 6
 * workers: the job ends in time, names the one cause, keeps what was measured, and leaves nothing
 * behind.
 *
 * DPB_FAULTS=N: so many instead of 250; DPB_FAULTS_SEED=S: others. A failure names the fault and
 * its seed.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dpbench/comm.h"
#include "lib/faults.h"
#include "lib/launch_faults.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/training.h"

enum { BY_ITSELF = N_LAUNCHERS, MOST_WORKERS = 6, MOST_RANKS = MOST_WORKERS + 2 };

static const double most_s = 5.0, there_s = 30.0, timeout_s = 1.0;
static const double start_s = 5.0; /* beyond run.timeout_s, for the others to notice that it does
                                      not join, and cannot be reached */

static const struct kind {
    const char *name;
    int signal_number;
    bool part_launcher; /* of the rank; not where there is one for all */
    bool at_any_time;   /* else when all ranks train */
    double allowed_s;   /* to end */
} kinds[] = {{"a rank is killed", SIGKILL, false, true, 0},
             {"a rank aborts", SIGABRT, false, true, 0},
             {"a rank has a fault", SIGSEGV, false, true, 0},
             {"a rank is stopped", SIGSTOP, false, true, timeout_s + start_s},
             {"a rank's launcher is killed", SIGKILL, true, true, 0},
             {"a rank's launcher has a fault", SIGSEGV, true, true, 0},
             {"a rank's launcher is stopped", SIGSTOP, true, true, timeout_s + start_s},
             {"a rank's launcher is terminated", SIGTERM, true, false, 0}};

struct fault {
    const struct kind *kind;
    char settings[192];
    int n_workers, n_servers, by, rank;
    unsigned delay_us;
    char title[512];
};

#define PICK(list) &list[(size_t)rand_r(seed) % (sizeof list / sizeof *list)]

/* The `wanted`-th of those that run here, be it under mpirun alone; NULL: there are only *n. */
static const struct strategy *usable_strategy(size_t wanted, size_t *n)
{
    *n = 0;
    for (const struct strategy *s = NULL; (s = strategy_after(s));)
        if (s->usable && !s->runtime && (*n)++ == wanted)
            return s;
    return NULL;
}

/* False: not under this launcher. */
static bool choose_strategy(unsigned *seed, struct fault *fault)
{
    size_t n;
    usable_strategy(SIZE_MAX, &n);
    const struct strategy *s = usable_strategy((size_t)rand_r(seed) % n, &n);
    fault->n_workers = 2 + rand_r(seed) % (MOST_WORKERS - 1);
    fault->n_servers = s->capabilities & DPB_COMM_SERVERS ? rand_r(seed) % 3 : 0;
    if (s->capabilities & DPB_COMM_SERVED && fault->n_servers == 0)
        fault->n_servers = 1;
    int used = snprintf(fault->settings, sizeof fault->settings, "comm.name=%s run.servers=%d",
                        s->name, fault->n_servers);
    const size_t room = sizeof fault->settings - (size_t)used;
    const bool by_mpi =
        s->machines && fault->by == MPIRUN && have_plugin("comm_mpi") && rand_r(seed) % 2;
    if (s->machines)
        snprintf(fault->settings + used, room, " comm.hosts=1+%d%s", fault->n_workers - 1,
                 by_mpi ? " comm.transport=mpi" : "");
    else if (s->capabilities & DPB_COMM_OVERLAP && rand_r(seed) % 4 == 0)
        snprintf(fault->settings + used, room, " run.comm_cores=1");
    return fault->by == MPIRUN || fault->by == SRUN || strategy_on_host(s);
}

static void choose(unsigned *seed, struct fault *fault)
{
    const unsigned first = *seed;
    do {
        fault->kind = PICK(kinds);
        fault->by = rand_r(seed) % (N_LAUNCHERS + 1);
    } while (!choose_strategy(seed, fault) ||
             (fault->by == BY_ITSELF && fault->kind->part_launcher));
    fault->rank = rand_r(seed) % (fault->n_workers + fault->n_servers);
    fault->delay_us = (unsigned)rand_r(seed) % 1500000;
    snprintf(fault->title, sizeof fault->title,
             "seed %u: %s, rank %d, %s, %d workers, by %s, %u us", first, fault->kind->name,
             fault->rank, fault->settings, fault->n_workers,
             fault->by == BY_ITSELF ? "itself" : launcher_names[fault->by], fault->delay_us);
}

static void start(const struct fault *fault, struct started *started)
{
    char arguments[512];
    int n_ranks = fault->n_workers + fault->n_servers;
    snprintf(arguments, sizeof arguments,
             "run.workers=%d run.timeout_s=%g run.stall_warning_s=0.5 %s", fault->n_workers,
             fault->kind->signal_number == SIGSTOP ? timeout_s : 20.0, fault->settings);
    if (fault->by == BY_ITSELF)
        faults_start_long(started, arguments);
    else
        launched_start(started, (launcher)fault->by, n_ranks, LAUNCH_BASE "run.seconds=60 %s",
                       arguments);
}

/* The process of the fault, once it is there. */
static pid_t await_process(const struct fault *fault, const struct started *started)
{
    pid_t pids[MOST_RANKS] = {0};
    if (fault->by == BY_ITSELF) {
        faults_await_ranks(started, pids, (size_t)fault->rank + 1);
        return pids[fault->rank]; /* they are started one after the other */
    }
    for (double until_s = now_s() + there_s; now_s() < until_s; usleep(2000)) {
        pid_t pid = launched_process(fault->rank, fault->kind->part_launcher);
        if (pid != 0)
            return pid;
    }
    fail_msg("%s: the process is not there", fault->title);
    return 0;
}

static void await_steps(const struct fault *fault, const struct started *started)
{
    pid_t pids[MOST_RANKS];
    const size_t n_ranks = (size_t)fault->n_workers + (size_t)fault->n_servers;
    if (fault->kind->at_any_time)
        return;
    if (fault->by != BY_ITSELF) {
        launched_await_steps((int)n_ranks);
        return;
    }
    faults_await_ranks(started, pids, n_ranks);
    sleep(1);
}

static void expect_result(const struct fault *fault, const struct command *command)
{
    json_t *launched = fault->by != BY_ITSELF ? launch_take_result() : NULL;
    const json_t *result = fault->by != BY_ITSELF ? launched : command->json;
    const char *wanted = fault->kind->signal_number == SIGTERM ? "interrupted" : "failed";
    /* It is made by rank 0's part, once there is one. */
    bool due = !(fault->kind->part_launcher && fault->rank == 0 &&
                 fault->kind->signal_number != SIGTERM) &&
               (fault->by == BY_ITSELF || !fault->kind->at_any_time);
    if (due && !fault->kind->at_any_time && json_array_size(json_at(result, "loss")) == 0)
        fail_msg("%s: the result has no steps\n%s", fault->title, command->err);
    if ((due || result) && strcmp(json_text_at(result, "status"), wanted) != 0)
        fail_msg("%s: the result has status '%s'\n%s", fault->title, json_text_at(result, "status"),
                 command->err);
    json_decref(launched);
}

/* Until the parts have met, mpirun or srun alone can know that one has ended, and ends the others
 * before they could. It names the rank; but mpirun does not where it is still starting others. */
static bool launcher_says_it(const struct fault *fault, const struct command *command)
{
    char task[32];
    snprintf(task, sizeof task, "task %d: ", fault->rank);
    return fault->by != BY_ITSELF && fault->kind->part_launcher &&
           strstr(command->err, fault->by == MPIRUN ? "the job has been aborted" : task);
}

static void expect_cause(const struct fault *fault, const struct command *command, bool met)
{
    char rank[16];
    int n_errors = launch_count_errors(command->err);
    if (n_errors == 0 && !met && launcher_says_it(fault, command))
        return;
    if (n_errors != (fault->kind->signal_number == SIGTERM ? 0 : 1))
        fail_msg("%s: %d errors\n%s", fault->title, n_errors, command->err);
    snprintf(rank, sizeof rank, "rank %d", fault->rank);
    if (n_errors > 0 && !strstr(command->err, rank))
        fail_msg("%s: the error does not name it\n%s", fault->title, command->err);
}

/* Open MPI 4.1.4 may hang in PMIx_server_finalize when a process is killed while it connects, also
 * of a program that does nothing but MPI_Init (1 of 16 kills): all parts have ended, mpirun does
 * not. */
static bool hangs_alone(const struct fault *fault, const struct started *started, double until_s)
{
    siginfo_t info = {0};
    if (fault->by != MPIRUN)
        return false;
    while (info.si_pid == 0 && now_s() < until_s) {
        waitid(P_PID, (id_t)started->pid, &info, WEXITED | WNOHANG | WNOWAIT);
        usleep(5000);
    }
    return info.si_pid == 0 && launched_process(-1, false) == 0;
}

static void run_one(unsigned *seed)
{
    struct fault fault;
    struct started started;
    struct command command;
    struct traces before;
    choose(seed, &fault);
    traces_take(&before, ".");
    start(&fault, &started);
    await_steps(&fault, &started);
    pid_t pid = await_process(&fault, &started);
    usleep(fault.delay_us);
    /* The one that says so: the head, or rank 1's part of the head. */
    const bool met = fault.by == BY_ITSELF || launched_has_begun(fault.rank == 0);
    kill(pid, fault.kind->signal_number);
    double began_s = now_s(), bound_s = fault.kind->allowed_s + most_s;
    const bool alone = !met && hangs_alone(&fault, &started, began_s + bound_s);
    if (alone) {
        print_message("%s: mpirun hangs by itself\n", fault.title);
        kill(started.pid, SIGKILL);
    }
    command_finish(&started, &command, began_s - started.began_s + bound_s + 2 * most_s);
    double took_s = alone ? 0 : now_s() - began_s;
    if (command.exit_code == 0 || command.late || took_s > bound_s)
        fail_msg("%s: exit %d after %.1f s\n%s", fault.title, command.exit_code, took_s,
                 command.err);
    expect_cause(&fault, &command, met);
    expect_result(&fault, &command);
    if (fault.by != BY_ITSELF)
        launched_expect_none(fault.title, 2.0);
    traces_expect_none(&before, fault.title, 2.0);
}

TEST(test_random_faults)
{
    unsigned n = faults_number_of("DPB_FAULTS", 250), seed = faults_number_of("DPB_FAULTS_SEED", 7);
    for (unsigned i = 0; i < n; i++) {
        unsigned own = seed + i * 2654435761u; /* so that one can be looked at alone */
        run_one(&own);
    }
}

TEST_MAIN(launch_faults_setup, launch_faults_teardown)
