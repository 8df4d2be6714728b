/* launch_faults.c - see launch_faults.h. */
#include "lib/launch_faults.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/training.h"

static const double most_s = 5.0; /* from a fault, or from the deadline that it takes, to the end */

json_t *launch_take_result(void)
{
    json_t *result = json_load_file(LAUNCH_RESULT, 0, NULL);
    unlink(LAUNCH_RESULT);
    return result;
}

int launch_count_errors(const char *text)
{
    int n = 0;
    for (const char *at = text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        n += strncmp(at, "error: ", 7) == 0;
    }
    return n;
}

struct fault {
    const char *title, *arguments;
    const char *plugin; /* without it the fault is left out; NULL: none is needed */
    int rank;
    bool part_launcher; /* of the rank, not the rank itself */
    bool mpirun;        /* mpirun itself, where it is that, with a script around each part */
    int signal_number;
    double timeout_s;   /* run.timeout_s where that ends the job, else 0 */
    double held_s;      /* the launcher of rank 0 is stopped for so long, meanwhile */
    const char *status; /* of the result; NULL: there need not be one */
    const char *words[5];
    bool quick; /* one of those that `make check` has time for */
};

#define KILLED "was killed by signal 9 (Killed) in phase '"

static const struct fault faults[] = {
    {.title = "rank 0 killed",
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 0 (", KILLED}},
    {.title = "rank 2 killed",
     .rank = 2,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 2 (", KILLED},
     .quick = true},
    {.title = "server killed",
     .arguments = "comm.name=ps_cpu run.servers=1 run.workers=2",
     .rank = 2,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 2 (", KILLED}},
    {.title = "rank 1 killed, ring_tcp",
     .arguments = "comm.name=ring_tcp",
     .rank = 1,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 1 (", KILLED}},
    {.title = "rank 0 killed, gloo",
     .arguments = "comm.name=gloo",
     .plugin = "comm_gloo",
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 0 (", KILLED}},
    {.title = "rank 2 killed, mpi",
     .arguments = "comm.name=mpi",
     .plugin = "comm_mpi",
     .rank = 2,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 2 (", KILLED}},
    /* Longer than Slurm takes to kill a job of which it has lost a client of PMIx. */
    {.title = "rank 2 killed, mpi, and rank 0's launcher is slow",
     .arguments = "comm.name=mpi",
     .plugin = "comm_mpi",
     .rank = 2,
     .signal_number = SIGKILL,
     .held_s = 2.5,
     .status = "failed",
     .words = {"error: rank 2 (", KILLED}},
    {.title = "rank 1 killed, hierarchical",
     .arguments = "comm.name=hierarchical comm.hosts=1+2",
     .rank = 1,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 1 (", KILLED}},
    {.title = "rank 1 killed, hierarchical by MPI",
     .arguments = "comm.name=hierarchical comm.transport=mpi comm.hosts=1+2",
     .plugin = "comm_mpi",
     .rank = 1,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 1 (", KILLED}},
    {.title = "rank 2 stopped, hierarchical by MPI",
     .arguments = "comm.name=hierarchical comm.transport=mpi comm.hosts=1+2",
     .plugin = "comm_mpi",
     .rank = 2,
     .signal_number = SIGSTOP,
     .timeout_s = 1,
     .status = "failed",
     .words = {"waited 1", "is stopped (SIGSTOP)"}},
    {.title = "rank 0 stopped",
     .signal_number = SIGSTOP,
     .timeout_s = 1,
     .status = "failed",
     .words = {"waited 1", "rank 0", "is stopped (SIGSTOP)"}},
    {.title = "rank 1 stopped",
     .rank = 1,
     .signal_number = SIGSTOP,
     .timeout_s = 1,
     .status = "failed",
     .words = {"waited 1", "rank 1", "is stopped (SIGSTOP)"}},
    {.title = "rank 2 stopped, ring_tcp",
     .arguments = "comm.name=ring_tcp",
     .rank = 2,
     .signal_number = SIGSTOP,
     .timeout_s = 1,
     .status = "failed",
     .words = {"waited 1", "rank 2", "is stopped (SIGSTOP)"}},
    {.title = "rank 1 stopped, gloo",
     .arguments = "comm.name=gloo",
     .plugin = "comm_gloo",
     .rank = 1,
     .signal_number = SIGSTOP,
     .timeout_s = 1,
     .status = "failed",
     .words = {"waited 1", "rank 1", "is stopped (SIGSTOP)"}},
    {.title = "rank 0 stopped, mpi",
     .arguments = "comm.name=mpi",
     .plugin = "comm_mpi",
     .signal_number = SIGSTOP,
     .timeout_s = 1,
     .status = "failed",
     .words = {"waited 1", "rank 0", "is stopped (SIGSTOP)"}},
    {.title = "server stopped",
     .arguments = "comm.name=ps_cpu run.servers=1 run.workers=2",
     .rank = 2,
     .signal_number = SIGSTOP,
     .timeout_s = 1,
     .status = "failed",
     .words = {"waited 1", "rank 2", "is stopped (SIGSTOP)"}},
    {.title = "launcher of rank 0 killed",
     .part_launcher = true,
     .signal_number = SIGKILL,
     .words = {"error: the launcher of rank 0 (", "has ended"}},
    {.title = "launcher of rank 1 killed",
     .rank = 1,
     .part_launcher = true,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 1 (", "its launcher (", "has ended"},
     .quick = true},
    {.title = "launcher of rank 1 killed, mpi",
     .arguments = "comm.name=mpi",
     .plugin = "comm_mpi",
     .rank = 1,
     .part_launcher = true,
     .signal_number = SIGKILL,
     .status = "failed",
     .words = {"error: rank 1 (", "its launcher (", "has ended"}},
    {.title = "launcher of rank 1 stopped",
     .rank = 1,
     .part_launcher = true,
     .signal_number = SIGSTOP,
     .timeout_s = 2,
     .status = "failed",
     .words = {"error: rank 1 (", "its launcher (", "has not been heard of for 3."}},
    {.title = "launcher of rank 0 stopped",
     .part_launcher = true,
     .signal_number = SIGSTOP,
     .timeout_s = 2,
     .words = {"error: the launcher of rank 0 (", "has not been heard of"}},
    /* As slow as no rank may be. The others wait half a second longer for it, at the least; an
     * evaluation would need it meanwhile. */
    {.title = "launcher of rank 0 is slow, that of rank 1 terminated",
     .arguments = "eval.every=0",
     .rank = 1,
     .part_launcher = true,
     .signal_number = SIGTERM,
     .timeout_s = 2,
     .held_s = 2.1,
     .status = "interrupted"},
    {.title = "launcher of rank 0 interrupted",
     .part_launcher = true,
     .signal_number = SIGINT,
     .status = "interrupted"},
    {.title = "launcher of rank 1 terminated",
     .rank = 1,
     .part_launcher = true,
     .signal_number = SIGTERM,
     .status = "interrupted",
     .quick = true},
    {.title = "mpirun killed",
     .arguments = "comm.name=ring_tcp",
     .mpirun = true,
     .signal_number = SIGKILL,
     .status = "failed",
     .quick = true},
    {.title = "mpirun crashes", .mpirun = true, .signal_number = SIGSEGV, .status = "failed"},
};

static void expect_result(const char *title, const struct fault *fault,
                          const struct command *command)
{
    json_t *result = own_json(launch_take_result());
    if (!fault->status) {
        if (result && strcmp(json_text_at(result, "status"), "failed") != 0)
            fail_msg("%s: the result has status '%s'", title, json_text_at(result, "status"));
        return;
    }
    if (!result || strcmp(json_text_at(result, "status"), fault->status) != 0 ||
        json_array_size(json_at(result, "loss")) == 0)
        fail_msg("%s: the result has status '%s' and %zu steps\n%s", title,
                 json_text_at(result, "status"), json_array_size(json_at(result, "loss")),
                 command->err);
}

/* A script that stays there, as those that bind a rank to its place do. */
#define SCRIPT "around.sh"

static void start(const struct fault *fault, launcher by, struct started *started)
{
    char arguments[512], program[4096];
    snprintf(arguments, sizeof arguments, "run.seconds=60 run.workers=3 run.timeout_s=%g %s",
             fault->timeout_s > 0 ? fault->timeout_s : 20.0,
             fault->arguments ? fault->arguments : "");
    if (!fault->mpirun) {
        launched_start(started, by, 3, LAUNCH_BASE "%s", arguments);
        return;
    }
    snprintf(program, sizeof program, "/bin/sh " SCRIPT " %s/dpbench " LAUNCH_BASE "%s",
             build_directory(), arguments);
    launched_start_program(started, by, 3, program);
}

static void disturb(const struct fault *fault, pid_t pid)
{
    pid_t head = fault->held_s > 0 ? launched_process(0, true) : 0;
    if (head > 0)
        kill(head, SIGSTOP);
    kill(pid, fault->signal_number);
    usleep((useconds_t)(fault->held_s * 1e6));
    if (head > 0)
        kill(head, SIGCONT);
}

static void run_fault(launcher by, const struct fault *fault)
{
    struct started started;
    struct command command;
    struct traces before;
    char title[128];
    snprintf(title, sizeof title, "%s, %s", launcher_names[by], fault->title);
    sandbox_write(SCRIPT, "\"$@\"\nexit $?\n");
    traces_take(&before, ".");
    start(fault, by, &started);
    launched_await_steps(3);
    pid_t pid = fault->mpirun ? started.pid : launched_process(fault->rank, fault->part_launcher);
    if (pid == 0)
        fail_msg("%s: the process is not there", title);
    double began_s = now_s(), bound_s = fault->timeout_s + fault->held_s + most_s;
    disturb(fault, pid);
    command_finish(&started, &command, began_s - started.began_s + bound_s + 2 * most_s);
    double took_s = now_s() - began_s;
    if (command.exit_code == 0 || command.late || took_s > bound_s)
        fail_msg("%s: exit %d after %.1f s\n%s", title, command.exit_code, took_s, command.err);
    if (fault->mpirun) /* it is the first to end */
        launched_expect_none(title, most_s);
    expect_result(title, fault, &command);
    int n_errors = launch_count_errors(command.err);
    if (n_errors != (fault->words[0] ? 1 : 0))
        fail_msg("%s: %d errors\n%s", title, n_errors, command.err);
    expect_words(title, command.err, fault->words);
    launched_expect_none(title, 2.0);
    traces_expect_none(&before, title, 2.0);
}

void launch_faults_run(launcher by, bool all)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        if ((all || faults[i].quick) && (!faults[i].mpirun || by == MPIRUN) &&
            (by != ENVIRONMENT || !faults[i].plugin || strcmp(faults[i].plugin, "comm_mpi") != 0) &&
            (!faults[i].plugin || have_plugin(faults[i].plugin)))
            run_fault(by, &faults[i]);
}

int launch_faults_setup(void **state)
{
    int code = launchers_start(1);
    return code != 0 ? code : faults_setup(state);
}

int launch_faults_teardown(void **state)
{
    launchers_stop();
    return sandbox_teardown(state);
}
