/* needs: long plain stand-in cells */
/*
 * test_pauses.c - no strategy hangs, or exchanges something wrong, whatever the timing: short
 * trainings whose ranks sleep at random, most of all between a look that has found nothing and the
 * wait for it (tests/plugins/comm_paused.c). Every strategy, with and without a thread of its own
 * (run.comm_cores), with 2 to 4 workers. A rank that sleeps for what has come already, or for one
 * of two things of which the other comes, is found by its deadline, or by this program's where that
 * wait has none.
 *
 * All of it is in a network namespace with nothing but loopback, where the system allows one: ranks
 * of one machine need no other interface.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpbench/comm.h"
#include "lib/launchers.h"
#include "lib/network.h"
#include "lib/sandbox.h"
#include "lib/stand_in.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

enum { FEWEST = 2, MOST = 4, AT_ONCE = 6, REPEATS = 5 };

/* Of jobs that take two seconds, in the company of AT_ONCE - 1 others. */
static const double deadline_s = 100.0;

struct form {
    const char *name, *settings; /* of the strategy */
    int servers;
    bool machines, on_device, by_mpi;
};

/* Gradients come late and are not divided by workers: a rate of 0.1 diverges at times. */
#define SMALL_RATE "optimizer.learning_rate=0.01 "
#define SMALL_CHUNKS "comm.chunk=64 comm.inbox=256 "
#define LATE SMALL_RATE "comm.late=1 eval.every=5 data.test_samples=6 "
#define INSIDE "comm.inside=nccl comm.host_ids=rank "

/* Beside each strategy as the table has it. */
static const struct form special[] = {
    {.name = "ps_cpu", .machines = true},
    {.name = "ps_cpu", .settings = "comm.streams=2", .servers = 1, .machines = true},
    {.name = "ps_async", .settings = SMALL_RATE "comm.bound=1", .servers = 1},
    {.name = "shm", .settings = LATE},
    {.name = "ps_cpu", .settings = LATE},
    {.name = "ring_tcp", .settings = LATE SMALL_CHUNKS},
    {.name = "hierarchical", .settings = "comm.transport=mpi", .machines = true, .by_mpi = true},
    {.name = "ps_gpu", .settings = "comm.shards=one", .on_device = true},
    {.name = "replicated", .on_device = true},
    {.name = "hierarchical", .settings = INSIDE, .on_device = true},
    {.name = "hierarchical", .settings = INSIDE SMALL_CHUNKS, .machines = true, .on_device = true},
    {.name = "hierarchical",
     .settings = INSIDE "comm.transport=mpi",
     .machines = true,
     .on_device = true,
     .by_mpi = true},
};
enum { N_SPECIAL = sizeof special / sizeof *special, MOST_FORMS = 64 };
static struct form forms[MOST_FORMS];
static size_t n_forms;

static bool is_there(const struct form *form)
{
    return strategy_named(form->name) && (!form->by_mpi || have_plugin("comm_mpi")) &&
           (!form->on_device || (have_stand_in("comm_nccl") && !on_gpu()));
}

static void add_form(const struct form *form)
{
    assert_true(n_forms < MOST_FORMS);
    if (is_there(form))
        forms[n_forms++] = *form;
}

/* Every strategy that exchanges, with and without servers. A device's own library has its own
 * tests: that of nccl is not to be paused. */
static void make_forms(void)
{
    for (const struct strategy *s = NULL; (s = strategy_after(s));) {
        struct form form = {.name = s->name,
                            .settings = s->synchronous ? s->small : SMALL_RATE,
                            .machines = s->machines,
                            .on_device = s->runtime != NULL,
                            .by_mpi = s->capabilities & DPB_COMM_LAUNCHER};
        if (!s->usable || s->capabilities & DPB_COMM_ALONE)
            continue;
        if (!(s->capabilities & DPB_COMM_SERVED))
            add_form(&form);
        form.servers = 2;
        if (s->capabilities & DPB_COMM_SERVERS)
            add_form(&form);
    }
    for (size_t i = 0; i < N_SPECIAL; i++)
        add_form(&special[i]);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

struct job {
    char line[1024];
    struct started started;
};

static const char common[] =
    "-c empty.ini --json run.results=results run.steady_limit_s=0 run.warmup_steps=0 run.steps=12 "
    "run.prove=yes run.timeout_s=30 run.batch=2 device.threads=1 data.name=synthetic "
    "data.samples=640 optimizer.learning_rate=0.1 model.name=tiny ";

/* Some twenty buckets. */
static const char on_host[] = "device.name=reference run.precision=fp64 comm.bucket=424 ";
static const char on_device[] =
    "device.name=cuda run.precision=fp32 device.tuning=no device.ids=0,0,0,0 comm.bucket=212 ";

static void start(struct job *job, const struct form *form, int workers, int cores, int seed)
{
    char mpirun[96] = "", hosts[64] = "";
    if (form->by_mpi)
        snprintf(mpirun, sizeof mpirun,
                 "/usr/bin/env mpirun --oversubscribe --bind-to none -np %d ",
                 workers + form->servers);
    if (form->machines) /* the first has the worker more, and no server */
        snprintf(hosts, sizeof hosts, "%scomm.hosts=%d+%d",
                 form->by_mpi ? "" : "comm.interface=lo ", (workers + 1) / 2,
                 workers / 2 + form->servers);
    snprintf(job->line, sizeof job->line,
             "%s%s/dpbench %s%scomm.name=%s run.workers=%d run.servers=%d run.comm_cores=%d %s %s",
             mpirun, build_directory(), common, form->on_device ? on_device : on_host, form->name,
             workers, form->servers, cores, form->settings ? form->settings : "", hosts);
    char pauses[32];
    snprintf(pauses, sizeof pauses, "DPB_PAUSES=%d", seed);
    line_start(&job->started, WORDS(pauses), "%s", job->line);
}

/* All are collected before the first failure is told. */
static void finish(struct job *jobs, int n)
{
    char said[4096] = "";
    for (int i = 0; i < n; i++) {
        struct command command;
        command_finish(&jobs[i].started, &command, deadline_s);
        if (command.exit_code != 0 && !said[0])
            snprintf(said, sizeof said, "%s\n%s after %.1f s, exit code %d: %s", jobs[i].line,
                     command.late ? "killed at the deadline" : "over", command.seconds,
                     command.exit_code, command.err);
    }
    if (said[0])
        fail_msg("%s", said);
}

/* Each form runs with and without a core for communication, with another number of workers each:
 * three neighbours have all six pairs. With DPB_ALL_CELLS (make check-long) each form has them. */
static bool is_taken(const struct form *form, int workers, int cores)
{
    return (form - forms + workers + 2 * cores) % 3 == 0 || getenv("DPB_ALL_CELLS") != NULL;
}

static void test_pauses(void **state)
{
    const struct form *form = *state;
    struct job jobs[AT_ONCE];
    int n = 0, repeats = getenv("DPB_ALL_CELLS") ? REPEATS : 1;
    for (int seed = 1; seed <= repeats; seed++)
        for (int workers = FEWEST; workers <= MOST; workers++)
            for (int cores = 0; cores <= 1; cores++) {
                if (!is_taken(form, workers, cores))
                    continue;
                start(&jobs[n++], form, workers, cores, seed);
                if (n == AT_ONCE) {
                    finish(jobs, n);
                    n = 0;
                }
            }
    finish(jobs, n);
}

/* ---- the program --------------------------------------------------------------------------- */

static void copy(const char *from, const char *to)
{
    struct command command;
    command_run(&command, deadline_s, WORDS("/usr/bin/env", "cp", from, to), NULL);
    assert_int_equal(command.exit_code, 0);
}

static int setup(void **state)
{
    char own[512], path[1600], *here = getcwd(NULL, 0);
    free(here);
    int result = sandbox_setup(state);
    if (result != 0)
        return result;
    here = getcwd(NULL, 0);
    snprintf(own, sizeof own, "%s/tests/plugins/comm_paused.so", build_directory());
    assert_int_equal(mkdir("paused", 0755), 0);
    for (size_t i = 0; i < n_forms; i++) {
        snprintf(path, sizeof path, "paused/%s.so", strategy_named(forms[i].name)->plugin);
        if (access(path, F_OK) != 0)
            copy(own, path);
    }
    snprintf(path, sizeof path, "%s/paused:%s/tests/cuda/plugins", here, build_directory());
    free(here);
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    if (network_leave())
        network_loop();
    sandbox_write("empty.ini", "%s", "");
    launchers_allow_root();
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    return 0;
}

int main(void)
{
    make_forms();
    for (const struct form *form = forms; form < forms + n_forms; form++)
        add_case(test_pauses, form, "%s%s %s%s%s", form->on_device ? "cuda: " : "", form->name,
                 form->settings ? form->settings : "", form->servers > 0 ? ", servers" : "",
                 form->machines ? ", machines" : "");
    return test_main(setup, sandbox_teardown);
}
