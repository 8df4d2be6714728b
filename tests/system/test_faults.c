/* needs: threads waits cells */
/*
 * test_faults.c - a process of a job that is killed, ends, fails, stops or hangs, in every phase:
 * the job ends soon everywhere, says who, where and in which step, and leaves nothing behind.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/traces.h"

static const double most_s = 5.0;      /* from the fault to the end of the job */
static const double gone_s = 2.0;      /* ranks whose launcher was killed */
static const double deadline_s = 40.0; /* a job that hangs is a failure of the test */
enum { TRIES = 10, SLOW = 2 };         /* of these so many may end too late */

#define COMM FAULTS_COMM
#define DEVICE FAULTS_DEVICE
#define LARGE "model.name=lenet "

/* A document that says that the run failed, why, and what was measured until then. False: the last
 * step is not there, since another rank had not counted it when the job ended. */
static bool has_failed_result(const char *title, const struct command *command, int n_losses)
{
    faults_expect_failed(title, command);
    int n = (int)json_array_size(json_at(command->json, "loss"));
    if (n > n_losses || n + 1 < n_losses)
        fail_msg("%s: %d steps in the result, not %d", title, n, n_losses);
    return n == n_losses;
}

/* ---- from within, at every hook ------------------------------------------------------------ */

struct row {
    const char *title, *arguments;
    int rank;
    const char *words[4]; /* of the message; ended by NULL */
    int n_losses;         /* steps that the result must have; a rank counts what all completed */
};

#define KILLED "was killed by signal 9 (Killed)"

/* A hook in which a rank meets its end, and where it is then. */
struct place {
    const char *title, *settings;
    int rank;
    const char *phase; /* NULL: any */
    int step;          /* the result has so many, too; -1: any */
};

static const struct place places[] = {
    {"open", COMM "comm.hook=open", 0, "plan", 0},
    {"plan", COMM "comm.hook=plan", 1, "plan", 0},
    {"bind", COMM "comm.hook=bind", 1, "bind", 0},
    {"opening the device", DEVICE "device.hook=open", 0, "open", 0},
    {"compile", DEVICE "device.hook=compile", 1, "compile", 0},
    {"pattern, zero weights", COMM "comm.hook=load", 0, "pattern", 0},
    {"pattern, exchange", COMM "comm.hook=ready", 1, "pattern", 0},
    {"proof", COMM "run.prove=yes comm.hook=begin comm.call=2", 0, "exchange check", 0},
    {"load", COMM "comm.hook=load comm.call=2", 1, "load", 0},
    {"first step", COMM "comm.hook=begin comm.call=2", 0, "data", 0},
    {"warm-up, forward", DEVICE "device.hook=forward device.call=2", 1, "forward", 1},
    {"timed step, backward", DEVICE "device.hook=backward device.call=5", 0, "backward", 4},
    {"timed step, ready", COMM "comm.hook=ready comm.call=6", 1, "backward", 4},
    {"timed step, begin", COMM "comm.hook=begin comm.call=9", 1, "data", 7},
    {"timed step, end", COMM "comm.hook=end comm.call=9", 1, "exchange", 7},
    {"evaluation, publish", COMM "comm.hook=publish comm.call=2", 0, "evaluate", 5},
    {"evaluation by rank 0 alone, publish",
     "device.name=reference comm.name=fault_alone comm.hook=publish comm.call=2", 1, "evaluate",
     -1}, /* rank 0 may be at any step */
    {"evaluation, forward", DEVICE "device.hook=forward device.call=7", 1, "evaluate", 5},
    {"checkpoint", COMM "eval.every=0 checkpoint.save=x.safetensors comm.hook=publish comm.call=3",
     1, "checkpoint", 23},
    {"replicas", COMM "eval.every=0 comm.hook=publish comm.call=2", 1, "replicas", 23},
    {"teardown", COMM "comm.hook=close", 1, "teardown", 23},
    {"teardown of the device", DEVICE "device.hook=release", 0, "teardown", 23},
    {"server, open", COMM "run.servers=1 comm.inner=ps_cpu comm.hook=open", 2, "plan", 0},
    {"server, bind", COMM "run.servers=1 comm.inner=ps_cpu comm.hook=bind", 2, "bind", 0},
    {"server, serve", COMM "run.servers=2 comm.inner=ps_cpu comm.hook=serve", 3, "serve", 0},
    {"server, teardown", COMM "run.servers=1 comm.inner=ps_cpu comm.hook=close", 2, "teardown", 23},
    {"worker of a server", COMM "run.servers=1 comm.inner=ps_cpu comm.hook=end comm.call=9", 1,
     "exchange", 7},
    {"replicated", COMM "comm.inner=replicated comm.hook=end comm.call=9", 1, "exchange", 7},
    /* Of those below, the proofs have had six exchanges, four and ten. */
    {"one step late", COMM "comm.late=1 comm.hook=end comm.call=14", 1, "exchange", 7},
    {"weights on need, in forward",
     COMM "comm.shard=parameters comm.bucket=4KiB comm.hook=need comm.call=12", 1, NULL, -1},
    {"weights on need, round a ring",
     COMM "comm.inner=ring_tcp comm.shard=parameters comm.bucket=4KiB comm.hook=need comm.call=12",
     0, NULL, -1},
    {"one step late, handing over",
     COMM "comm.late=1 comm.inner=ring_tcp comm.hook=ready comm.call=11", 0, "exchange", 4},
    {"one step late, between the device's ops",
     COMM "comm.late=1 run.steps=2000 comm.hook=progress comm.call=300", 1, NULL, -1},
    {"one step late, evaluation", COMM "comm.late=1 comm.hook=publish comm.call=3", 0, "evaluate",
     5},
    {"between two meetings", COMM "comm.inner=local_sgd comm.hook=end comm.call=17", 1, "exchange",
     6},
    /* Others may be steps behind. */
    {"near a meeting", COMM "comm.inner=sma run.workers=3 comm.hook=end comm.call=18", 1,
     "exchange", -1},
    {"near a meeting of two machines",
     COMM "comm.inner=local_sgd comm.hosts=1+1 comm.interface=lo comm.hook=end comm.call=18", 1,
     "exchange", -1},
    {"sums of a codec round a ring",
     COMM "comm.inner=ring_tcp comm.codec=powersgd comm.hook=end comm.call=18", 1, "exchange", 7},
    {"sums of a codec by a library",
     COMM "comm.inner=gloo comm.codec=powersgd run.steps=2000 comm.hook=progress comm.call=60", 0,
     NULL, -1},
    {"a core for communication", COMM "run.comm_cores=1 comm.hook=progress comm.call=9", 1, NULL,
     -1},
};

static const struct kind {
    const char *fault, *says;
    int timeout_s; /* the others' deadline ends the job; 0: nothing has to */
} kinds[] = {{"kill", KILLED, 0},     {"abort", "was killed by signal 6 (Aborted)", 0},
             {"exit_0", "ended ", 0}, {"exit_7", "ended with exit code 7", 0},
             {"stop", "", 2},         {"hang", "", 2}};

/* clang-format off */
static const struct row others[] = {
    {"ends by itself", COMM "comm.fault=exit_0 comm.hook=end comm.rank=1 comm.call=9", 1,
     {"ended in phase 'exchange' of step 7", "before the job was over"}, 7},
    {"ends while it starts", COMM "comm.fault=exit_0 comm.hook=bind comm.rank=1", 1,
     {"ended in phase 'bind' of step 0", "before the job was over"}, 0},
    {"ends with a code", COMM "comm.fault=exit_7 comm.hook=ready comm.call=6", 0,
     {"ended with exit code 7 in phase 'backward' of step 4"}, 4},
    {"ends by exit(3), the code of a failed check",
     COMM "comm.fault=exit_3 comm.hook=end comm.rank=1 comm.call=9", 1,
     {"ended with exit code 3 in phase 'exchange' of step 7"}, 7},
    {"aborts", DEVICE "device.fault=abort device.hook=backward device.call=5", 0,
     {"was killed by signal 6 (Aborted) in phase 'backward' of step 4"}, 4},
#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__
    /* Sanitizers end a process whose memory is at its end. */
    {"out of memory while it starts",
     DEVICE "data.threads=0 device.fault=memory device.hook=open device.rank=1", 1,
     {"in phase 'open' of step 0: ", "memory"}, 0},
#endif
    {"error while it starts", COMM "comm.fault=error comm.hook=plan comm.rank=1", 1,
     {"in phase 'plan' of step 0: the fault that was asked for"}, 0},
    /* Rank 0 then says at a barrier that rank 1 left: why is what rank 1 says. */
    {"blames another while it starts", DEVICE "device.fault=peer device.hook=compile device.rank=1",
     1, {"in phase 'compile' of step 0: the blame that was asked for"}, 0},
    {"error in a step", DEVICE "device.fault=error device.hook=forward device.rank=1 device.call=4",
     1, {"in phase 'forward' of step 3: the fault that was asked for"}, 3},
    /* What the thread of the exchange waits for then never comes. */
    {"error in a step, a core for communication",
     DEVICE LARGE "run.comm_cores=1 device.fault=error device.hook=backward "
            "device.call=4",
     0, {"in phase 'backward' of step 3: the fault that was asked for"}, 3},
    {"error before the end of a step, a core for communication",
     COMM "run.comm_cores=1 comm.fault=error comm.hook=end comm.rank=1 comm.call=6", 1,
     {"in phase 'exchange' of step 4: the fault that was asked for"}, 4},
    {"the same, over a network",
     COMM "comm.inner=ring_tcp run.comm_cores=1 comm.fault=error comm.hook=ready comm.rank=1 "
          "comm.call=7", 1,
     {"in phase 'backward' of step 5: the fault that was asked for"}, 5},
    {"error of a server",
     COMM "run.servers=1 comm.inner=ps_cpu comm.fault=error comm.hook=serve comm.rank=2", 2,
     {"in phase 'serve' of step 0: the fault that was asked for"}, 0},
    {0}};
/* clang-format on */

/* What a job without a fault takes here: on a busy machine, or under a sanitizer, it is seconds.
 * One of the larger model makes the steps that its fault leaves it. */
static double healthy_job_s(bool large)
{
    static double seconds[2];
    if (seconds[large] == 0) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0, FAULTS_BASE "device.name=reference comm.name=shm %s",
                     large ? LARGE "run.steps=1 run.warmup_steps=3 eval.every=0" : "");
        seconds[large] = command.seconds;
    }
    return seconds[large];
}

static void start_row(const struct row *row, int timeout_s, struct started *started)
{
    char arguments[1024];
    int n = snprintf(arguments, sizeof arguments, "%s", row->arguments);
    if (timeout_s > 0)
        snprintf(arguments + n, sizeof arguments - (size_t)n, " run.timeout_s=%d", timeout_s);
    faults_start(started, arguments);
}

/* The job ends soon: at once, or after its `timeout_s`, unless that is 0. Returns what
 * has_failed_result does; false, too, where the job took longer, as beside others it may SLOW
 * times. */
static bool finish_row(const struct row *row, int timeout_s, struct started *started, int *n_slow)
{
    struct command command;
    bool complete = true;
    char who[32] = "error: ";
    if (row->rank >= 0)
        snprintf(who, sizeof who, "error: rank %d (", row->rank);
    command_finish(started, &command, deadline_s);
    if (command.exit_code != 1)
        fail_msg("%s: exit %d%s\n%s", row->title, command.exit_code, command.late ? " (late)" : "",
                 command.err);
    const char *error = faults_only_error(row->title, &command);
    EXPECT_WORDS(row->title, error, who);
    expect_words(row->title, error, row->words);
    if (row->n_losses >= 0)
        complete = has_failed_result(row->title, &command, row->n_losses);
    const double healthy_s = healthy_job_s(strstr(row->arguments, LARGE) != NULL);
    const bool soon = command.seconds <= timeout_s + most_s + healthy_s;
    if (command.seconds < timeout_s || !soon)
        print_message("%s: the job took %.1f s\n", row->title, command.seconds);
    *n_slow += !soon;
    assert_true(command.seconds >= timeout_s && *n_slow <= SLOW);
    return complete && soon;
}

/* Ranks may be a step apart when the job ends, most often where there are more of them than cores:
 * one of some jobs has all steps. */
static void run_row(const struct row *row, int timeout_s)
{
    bool complete = false;
    int n_slow = 0;
    for (int try = 0; try < TRIES && !complete; try++) {
        struct started started;
        struct traces before;
        traces_take(&before, ".");
        start_row(row, timeout_s, &started);
        complete = finish_row(row, timeout_s, &started, &n_slow);
        traces_expect_none(&before, row->title, 0.5);
    }
    if (!complete)
        fail_msg("%s: the last step is not in the result, or the end comes too late, in %d tries",
                 row->title, TRIES);
}

static void run_place(const struct place *place, const struct kind *kind, int rank)
{
    char arguments[512], title[128], who[16], phase[64] = "";
    const char *section = strstr(place->settings, "device.hook") ? "device" : "comm";
    snprintf(title, sizeof title, "%s: %s, rank %d", place->title, kind->fault, rank);
    snprintf(arguments, sizeof arguments, "%s %s.fault=%s %s.rank=%d", place->settings, section,
             kind->fault, section, rank);
    snprintf(who, sizeof who, "rank %d", rank);
    if (place->phase)
        snprintf(phase, sizeof phase, place->step < 0 ? "phase '%s'" : "phase '%s' of step %d",
                 place->phase, place->step);
    const struct row row = {title,
                            arguments,
                            kind->timeout_s > 0 ? -1 : rank, /* another one says it */
                            {who, phase, kind->says},
                            place->step};
    run_row(&row, kind->timeout_s);
}

/* A kill in every place; with DPB_ALL_CELLS (make check-long) each kind of end in each, of the
 * first worker, of another and of a server. */
static void test_places(void **state)
{
    const struct kind *kind = *state;
    const bool all = getenv("DPB_ALL_CELLS") != NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (int rank = 0; rank < 4; rank++)
            if (rank == places[i].rank ||
                (all && places[i].phase && rank < 2 && places[i].rank < 2))
                run_place(&places[i], kind, rank);
}

TEST(test_ended_or_failed)
{
    for (const struct row *row = others; row->title; row++)
        run_row(row, 0);
}

/* The others' deadline ends the job, and names who did not come. The jobs only wait, so they wait
 * together. */
TEST(test_stopped_or_hanging)
{
    enum { TIMEOUT_S = 2, AT_ONCE = 4 };
    static const struct row rows[] = {
        {"stopped in a step",
         COMM "comm.fault=stop comm.hook=end comm.rank=1 comm.call=9",
         0,
         {"waited 2", "rank 1 (pid", "is stopped (SIGSTOP)"},
         7},
        {"stopped while it starts",
         COMM "comm.fault=stop comm.hook=bind comm.rank=1",
         0,
         {"waited 2", "rank 1", "is stopped (SIGSTOP)"},
         0},
        {"hangs in a step",
         COMM "comm.fault=hang comm.hook=end comm.rank=1 comm.call=9",
         0,
         {"waited 2", "rank 1 (pid", "phase 'exchange' of step 7"},
         7},
        {"one step late, hangs in forward while its core for communication waits for a peer",
         DEVICE "comm.late=1 run.comm_cores=1 run.delay=constant(200ms) run.delay_ranks=0 "
                "eval.every=0 device.fault=hang device.hook=forward device.rank=1 device.call=4",
         0,
         {"waited 2", "rank 1 (pid", "phase 'forward' of step 3"},
         3},
        {"stopped before a meeting",
         COMM "comm.inner=local_sgd comm.fault=stop comm.hook=end comm.rank=1 comm.call=17",
         0,
         {"waited 2", "the peer's update", "rank 1 (pid"},
         6},
        {"nobody waits for it",
         COMM "run.workers=1 comm.fault=hang comm.hook=end comm.call=9",
         0,
         {"stuck: for ", "in phase 'exchange' of step 7", "run.timeout_s"},
         7},
        {"stuck after all have left",
         DEVICE "device.fault=spin device.hook=close device.rank=1",
         1,
         {"stuck: it has not ended within ", "in phase 'teardown' of step 23"},
         23},
        {"a server is stopped",
         COMM "run.servers=1 comm.inner=ps_cpu comm.fault=stop comm.hook=serve comm.rank=2",
         -1,
         {"waited 2", "rank 2 (pid", "is stopped (SIGSTOP)"},
         0},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    struct started started[ROWS];
    struct traces before;
    bool complete[ROWS];
    int n_slow[ROWS] = {0};
    traces_take(&before, ".");
    for (size_t first = 0; first < ROWS; first += AT_ONCE) {
        for (size_t i = first; i < ROWS && i < first + AT_ONCE; i++)
            start_row(&rows[i], TIMEOUT_S, &started[i]);
        for (size_t i = first; i < ROWS && i < first + AT_ONCE; i++)
            complete[i] = finish_row(&rows[i], TIMEOUT_S, &started[i], &n_slow[i]);
    }
    traces_expect_none(&before, "stopped or hanging", 0.5);
    for (size_t i = 0; i < ROWS; i++)
        if (!complete[i])
            run_row(&rows[i], TIMEOUT_S);
}

/* ---- from outside -------------------------------------------------------------------------- */

/* Kills any of the ranks at any time; then what must be, must be. */
static void kill_at_random(unsigned *seed, const char *arguments, int n_ranks)
{
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[8];
    char title[128], victim[64];
    traces_take(&before, ".");
    faults_start_long(&started, arguments);
    size_t n = (size_t)(rand_r(seed) % n_ranks) + 1; /* as soon as so many are there, or later */
    faults_await_ranks(&started, pids, n);
    unsigned delay_us = rand_r(seed) % 3 == 0 ? 0 : (unsigned)rand_r(seed) % 300000;
    usleep(delay_us);
    pid_t pid = pids[(size_t)rand_r(seed) % n];
    kill(pid, SIGKILL);
    double killed_s = now_s();
    command_finish(&started, &command, killed_s - started.began_s + 2 * most_s);
    double took_s = now_s() - killed_s;
    snprintf(title, sizeof title, "%s, %zu ranks and %u us", arguments, n, delay_us);
    snprintf(victim, sizeof victim, ", pid %d) " KILLED " in phase '", (int)pid);
    if (command.exit_code != 1 || took_s > most_s)
        fail_msg("%s: exit %d after %.1f s\n%s", title, command.exit_code, took_s, command.err);
    EXPECT_WORDS(title, faults_only_error(title, &command), "rank ", victim, " of step ");
    assert_string_equal(json_text_at(command.json, "status"), "failed");
    traces_expect_none(&before, title, 0.5);
}

TEST(test_killed_at_random)
{
    enum { WORKERS = 2 };
    static const char *const policies[] = {
        "comm.name=ps_async run.servers=2 comm.bound=1",
        "comm.name=ps_async run.servers=2 comm.policy=k_async comm.k=2"};
    unsigned seed = 20;
    for (const struct strategy_form *form = NULL; (form = any_form_after(form));)
        kill_at_random(&seed, form_settings(form, "", WORKERS), WORKERS + form->servers);
    for (size_t i = 0; i < 2; i++)
        kill_at_random(&seed, policies[i], WORKERS + 2);
}

#define HANGING COMM "comm.fault=hang comm.hook=end comm.rank=1 comm.call=9"

/* Nobody is left to end the job: the system does it, also to ranks that look at nothing. */
TEST(test_launcher_killed)
{
    static const struct {
        const char *arguments;
        size_t n_ranks; /* that have started */
        unsigned delay_us;
    } rows[] = {{"comm.name=ps_cpu run.servers=1", 1, 0},
                {"comm.name=ps_cpu run.servers=1", 3, 10000},
                {"comm.name=ps_cpu run.servers=1", 3, 300000},
                {HANGING, 2, 500000}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        struct traces before;
        pid_t pids[3];
        traces_take(&before, ".");
        faults_start_long(&started, rows[i].arguments);
        faults_await_ranks(&started, pids, rows[i].n_ranks);
        usleep(rows[i].delay_us);
        kill(started.pid, SIGKILL);
        double killed_s = now_s();
        command_finish(&started, &command, killed_s - started.began_s + most_s);
        assert_int_equal(command.signal_number, SIGKILL);
        traces_expect_none(&before, rows[i].arguments, gone_s - (now_s() - killed_s));
    }
}

/* ---- a rank that does not begin ------------------------------------------------------------- */

/* Stopped between fork and exec; SIGTERM comes meanwhile, or does not. */
static void expect_not_begun(double timeout_s, bool terminated, const char *const *words)
{
    char arguments[64];
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[2];
    snprintf(arguments, sizeof arguments, "run.timeout_s=%g", timeout_s);
    traces_take(&before, ".");
    sandbox_preload("stop_before_exec");
    faults_start_long(&started, arguments);
    sandbox_forget_preload(NULL);
    faults_await_ranks(&started, pids, 2);
    double began_s = now_s();
    if (terminated)
        kill(started.pid, SIGTERM);
    command_finish(&started, &command, deadline_s);
    if (now_s() - began_s > timeout_s * !terminated + most_s ||
        command.exit_code != (terminated ? 143 : 1))
        fail_msg("exit %d after %.1f s: %s", command.exit_code, now_s() - began_s, command.err);
    if (!terminated)
        expect_words("a rank does not begin", faults_only_error("it", &command), words);
    if (strcmp(json_text_at(command.json, "status"), terminated ? "interrupted" : "failed") != 0)
        fail_msg("the result has status '%s'", json_text_at(command.json, "status"));
    traces_expect_none(&before, "a rank does not begin", 0.5);
}

TEST(test_does_not_begin)
{
    expect_not_begun(
        1, false, WORDS("rank 1 (", "has not executed dpbench within 1.0 s", "stopped (SIGSTOP)"));
    expect_not_begun(30, true, NULL);
}

/* A job that cannot stop by itself ends at the second signal. */
TEST(test_interrupted_twice)
{
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[2];
    traces_take(&before, ".");
    faults_start_long(&started, HANGING);
    faults_await_ranks(&started, pids, 2);
    for (double until_s = now_s() + deadline_s;
         !faults_is_named(pids[0], "hangs") && !faults_is_named(pids[1], "hangs");) {
        assert_true(now_s() < until_s);
        usleep(10000);
    }
    signal_process(started.pid, SIGINT);
    usleep(300000);
    assert_int_equal(faults_children_of(started.pid, pids, 2), 2); /* the first is only passed on */
    kill(started.pid, SIGINT);
    double second_s = now_s();
    command_finish(&started, &command, deadline_s);
    assert_true(now_s() - second_s < most_s);
    assert_int_equal(command.exit_code, 130);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
    assert_non_null(strstr(json_text_at(command.json, "error"), "a second one ended the job"));
    traces_expect_none(&before, "interrupted twice", 0.5);
}

int main(void)
{
    const size_t n = getenv("DPB_ALL_CELLS") ? sizeof kinds / sizeof *kinds : 1;
    for (size_t i = 0; i < n; i++)
        add_case(test_places, &kinds[i], "%s in every phase", kinds[i].fault);
    return test_main(faults_setup, sandbox_teardown);
}
