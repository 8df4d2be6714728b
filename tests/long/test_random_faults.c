/*
 * test_random_faults.c - faults of any kind, in any process, at any hook and time: the job ends,
 * names one cause, keeps what was measured, and leaves nothing behind. Half of them start again.
 *
 * A tenth as often all processes of a job stand still for longer than its deadlines: it goes on.
 *
 * The same around the saves of checkpoints, a fifth as often: each training continues from what was
 * saved.
 *
 * DPB_FAULTS=N: so many instead of 250; DPB_FAULTS_SEED=S: others. A failure names the command that
 * repeats it.
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

static const double most_s = 5.0; /* to end, beyond the deadline of who waits */
static const double timeout_s = 1.0, deadline_s = 40.0;
enum { TRIES = 3 };

#define PICK(list) list[(size_t)rand_r(seed) % (sizeof list / sizeof *list)]

static const char *const faults[] = {"kill",  "kill",   "exit_0", "exit_7", "exit_3", "abort",
                                     "error", "memory", "stop",   "hang",   "spin"};

static const char *const comm_hooks[] = {"open", "plan",     "bind",  "load",    "begin", "ready",
                                         "end",  "progress", "serve", "publish", "close"};
static const char *const device_hooks[] = {"open",     "compile", "forward",
                                           "backward", "release", "close"};

static bool waits_for_deadline(const char *fault)
{
    return strcmp(fault, "stop") == 0 || strcmp(fault, "hang") == 0 || strcmp(fault, "spin") == 0;
}

/* The forms that comm fault can wrap: it opens the first strategy of a plugin, with few options. */
static const struct strategy_form *next_form(const struct strategy_form *form)
{
    while ((form = any_form_after(form)) != NULL) {
        const struct strategy *strategy = strategy_named(form->name);
        if (!form->sharded && !strategy->library &&
            strcmp(strategy->plugin + strlen("comm_"), form->name) == 0)
            break;
    }
    return form;
}

static const struct strategy_form *pick_form(unsigned *seed)
{
    const struct strategy_form *form = NULL;
    int n = 0;
    while ((form = next_form(form)) != NULL)
        n++;
    for (int skip = rand_r(seed) % n; skip >= 0; skip--)
        form = next_form(form);
    return form;
}

/* Returns how often the job may start again. */
static int make_arguments(unsigned *seed, const char *fault, char *text, size_t size)
{
    static const char *const places[] = {"file", "peer"};
    const struct strategy_form *form = pick_form(seed);
    int n_workers = 2 + rand_r(seed) % 2;
    int n_ranks = n_workers + form->servers;
    bool device = rand_r(seed) % 3 == 0;
    const char *kind = device ? "device" : "comm";
    int rank = rand_r(seed) % (device ? n_workers : n_ranks);
    /* Most often early: the later the call, the fewer the hooks that ever see it. */
    int call = rand_r(seed) % 2 ? 1 : 1 + rand_r(seed) % 12;
    const char *prove = rand_r(seed) % 3 == 0 ? "run.prove=yes" : "";
    const bool on_core = rand_r(seed) % 4 == 0;
    const char *hook = device ? PICK(device_hooks) : PICK(comm_hooks);
    const int n_restarts = rand_r(seed) % 2 * 2;
    snprintf(text, size,
             "%s device.name=%s run.comm_cores=%d run.timeout_s=%g "
             "run.stall_warning_s=0.5 checkpoint.save=x.safetensors checkpoint.every=4 %s "
             "run.restart=%d checkpoint.place=%s "
             "%s.fault=%s %s.hook=%s %s.rank=%d %s.call=%d",
             form_settings(form, "fault comm.inner=", n_workers), device ? "fault" : "reference",
             on_core, timeout_s, prove, n_restarts, n_restarts ? PICK(places) : "file", kind, fault,
             kind, hook, kind, rank, kind, call);
    return n_restarts;
}

static int remove_checkpoints(void)
{
    return system("rm -f x*.safetensors");
}

/* Whether the fault came to pass. */
static bool run_one(unsigned *seed)
{
    char arguments[1024];
    struct command command;
    struct traces before;
    const char *fault = PICK(faults);
    const int n_starts = 1 + make_arguments(seed, fault, arguments, sizeof arguments);
    traces_take(&before, ".");
    double bound_s = n_starts * (most_s + (waits_for_deadline(fault) ? timeout_s + 2 : 0));
    dpbench(&command, deadline_s, FAULTS_BASE "%s", arguments);
    for (int try = 1; command.seconds > bound_s && try < TRIES; try++) { /* a busy machine */
        assert_int_equal(remove_checkpoints(), 0);
        dpbench(&command, deadline_s, FAULTS_BASE "%s", arguments);
    }
    const char *status = json_text_at(command.json, "status");
    if (command.late || command.signal_number || command.seconds > bound_s)
        fail_msg("%s: %.1f s, signal %d\n%s", arguments, command.seconds, command.signal_number,
                 command.err);
    bool failed = command.exit_code == 1;
    if (failed) {
        const char *error = faults_only_error(arguments, &command);
        EXPECT_WORDS(arguments, error, "rank ", "in phase '");
        faults_expect_failed(arguments, &command);
    } else if (command.exit_code != 0 || strcmp(status, "ok") != 0) {
        fail_msg("%s: exit %d, status '%s'\n%s", arguments, command.exit_code, status, command.err);
    }
    assert_int_equal(remove_checkpoints(), 0); /* whole ones: what else there is is a leftover */
    traces_expect_none(&before, arguments, 0.5);
    return failed || json_array_size(json_at(command.json, "restarts")) > 0;
}

/* SIGINT or SIGTERM at any time from the first rank on. */
static void interrupt_one(unsigned *seed)
{
    const struct {
        const char *settings;
        int number, exit_code;
    } kinds[] = {{"comm.name=shm", SIGINT, 130}, {"comm.name=ps_cpu run.servers=1", SIGTERM, 143}},
      *kind = &PICK(kinds);
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[1];
    traces_take(&before, ".");
    faults_start_long(&started, kind->settings);
    faults_await_ranks(&started, pids, 1);
    unsigned delay_us = (unsigned)rand_r(seed) % 300000;
    usleep(delay_us);
    double sent_s = now_s();
    kill(started.pid, kind->number);
    command_finish(&started, &command, sent_s - started.began_s + 2 * most_s);
    if (command.exit_code != kind->exit_code || now_s() - sent_s > most_s ||
        strcmp(json_text_at(command.json, "status"), "interrupted") != 0)
        fail_msg("%s, signal %d after %u us: exit %d after %.1f s\n%s", kind->settings,
                 kind->number, delay_us, command.exit_code, now_s() - sent_s, command.err);
    traces_expect_none(&before, kind->settings, 0.5);
}

TEST(test_random_faults)
{
    unsigned n = faults_number_of("DPB_FAULTS", 250), seed = faults_number_of("DPB_FAULTS_SEED", 6);
    unsigned n_failed = 0;
    for (unsigned i = 0; i < n; i++) {
        /* Each by a seed of its own, so that one can be looked at alone. */
        unsigned own = seed + i * 2654435761u;
        n_failed += run_one(&own);
    }
    print_message("%u of %u faults came to pass\n", n_failed, n);
    assert_true(n_failed * 2 > n);
}

TEST(test_random_interrupts)
{
    unsigned n = faults_number_of("DPB_FAULTS", 250) / 5,
             seed = faults_number_of("DPB_FAULTS_SEED", 6);
    for (unsigned i = 0; i < n; i++)
        interrupt_one(&seed);
}

/* The launcher first: nothing starts meanwhile. */
static void signal_job(pid_t launcher, int number)
{
    pid_t pids[16];
    kill(launcher, number);
    const size_t n = faults_children_of(launcher, pids, sizeof pids / sizeof *pids);
    for (size_t i = 0; i < n; i++)
        kill(pids[i], number);
}

static void freeze_one(unsigned *seed)
{
    enum { FREEZE_S = 3 };
    const struct strategy_form *form = pick_form(seed);
    const int n_workers = 2 + rand_r(seed) % 3;
    const unsigned delay_us = (unsigned)rand_r(seed) % 2000000;
    struct started started;
    struct command command;
    char line[1024];
    snprintf(line, sizeof line,
             "%s run.comm_cores=%d run.timeout_s=%d run.seconds=1 run.delay=constant(2ms) "
             "checkpoint.save=x.safetensors checkpoint.every=50",
             form_settings(form, "", n_workers), rand_r(seed) % 4 == 0, FREEZE_S - 1);
    faults_start(&started, line);
    usleep(delay_us);
    signal_job(started.pid, SIGSTOP);
    sleep(FREEZE_S);
    signal_job(started.pid, SIGCONT);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 0)
        fail_msg("%s, frozen after %u us: exit %d\n%s", line, delay_us, command.exit_code,
                 command.err);
    assert_int_equal(remove_checkpoints(), 0);
}

TEST(test_random_freezes)
{
    unsigned n = faults_number_of("DPB_FAULTS", 250) / 10,
             seed = faults_number_of("DPB_FAULTS_SEED", 6);
    for (unsigned i = 0; i < n; i++) {
        unsigned own = seed + i * 2654435761u;
        freeze_one(&own);
    }
}

/* ---- around a checkpoint's save -------------------------------------------------------------- */

enum { SAVED_STEPS = 60 };
static const char saving[] =
    "run.warmup_steps=0 eval.every=0 run.precision=fp64 checkpoint.save=y.safetensors ";

static const char *const savers[] = {"comm.name=shm", "comm.name=replicated run.workers=3",
                                     "comm.name=ring_tcp run.workers=3",
                                     "comm.name=ps_cpu run.servers=1"};

/* The last checkpoint that is whole: those before it are, too. 0: there is none. */
static int last_checkpoint(void)
{
    for (int step = SAVED_STEPS; step > 0; step--) {
        char path[64];
        snprintf(path, sizeof path, "y-step%d.safetensors", step);
        if (access(path, F_OK) == 0)
            return step;
    }
    return 0;
}

static void expect_continued(const char *title, const json_t *whole, int step, const char *strategy)
{
    struct command command;
    dpbench(&command, deadline_s,
            FAULTS_BASE "%s%s run.steps=%d checkpoint.load=y-step%d.safetensors", saving, strategy,
            SAVED_STEPS - step, step);
    const json_t *expected = json_at(whole, "loss"), *found = json_at(command.json, "loss");
    if (command.exit_code != 0 || json_array_size(found) != (size_t)(SAVED_STEPS - step))
        fail_msg("%s: from step %d: exit %d\n%s", title, step, command.exit_code, command.err);
    for (size_t i = 0; i < json_array_size(found); i++)
        if (json_number_value(json_array_get(found, i)) !=
            json_number_value(json_array_get(expected, (size_t)step + i)))
            fail_msg("%s: from step %d: step %zu has another loss", title, step, (size_t)step + i);
}

/* A rank is killed while checkpoints are written, one a step: whichever was the last, the training
 * continues from it, bit for bit. Whether there was one. */
static bool kill_saver(unsigned *seed, const char *strategy, const struct command *whole)
{
    struct started started;
    struct command command;
    struct traces before;
    char arguments[512], title[512];
    pid_t pids[2];
    int rank = rand_r(seed) % 2;
    unsigned delay_us = (unsigned)(whole->seconds * 1e6) * (unsigned)(rand_r(seed) % 1000) / 1000;
    snprintf(title, sizeof title, "%s, rank %d killed after %u us", strategy, rank, delay_us);
    snprintf(arguments, sizeof arguments, "%s%s checkpoint.every=1 run.steps=%d", saving, strategy,
             SAVED_STEPS);
    faults_start(&started, arguments);
    faults_await_ranks(&started, pids, 2);
    usleep(delay_us);
    kill(pids[rank], SIGKILL);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 1 && command.exit_code != 0) /* 0: it was over */
        fail_msg("%s: exit %d\n%s", title, command.exit_code, command.err);
    int step = last_checkpoint();
    if (step > 0 && step < SAVED_STEPS)
        expect_continued(title, whole->json, step, strategy);
    assert_int_equal(system("rm -f y.safetensors y-step*.safetensors"), 0);
    traces_take(&before, ".");
    for (size_t i = 0; i < before.n; i++)
        if (strstr(before.names[i], ".tmp"))
            fail_msg("%s: %s is left", title, before.names[i]);
    return step > 0 && step < SAVED_STEPS;
}

TEST(test_killed_savers)
{
    const size_t n_savers = sizeof savers / sizeof *savers;
    unsigned n = faults_number_of("DPB_FAULTS", 250) / 5,
             seed = faults_number_of("DPB_FAULTS_SEED", 6);
    unsigned n_continued = 0;
    for (size_t s = 0; s < n_savers; s++) {
        struct command whole;
        dpbench_ends(&whole, deadline_s, 0, FAULTS_BASE "%s%s checkpoint.every=1 run.steps=%d",
                     saving, savers[s], SAVED_STEPS);
        assert_int_equal(last_checkpoint(), SAVED_STEPS);
        assert_int_equal(system("rm -f y.safetensors y-step*.safetensors"), 0);
        const unsigned end = n_continued + (unsigned)((n + n_savers - 1) / n_savers);
        /* Of a quicker job than `whole` was most are over before they are killed. */
        for (unsigned tries = 0; n_continued < end && tries < 4 * n; tries++)
            n_continued += kill_saver(&seed, savers[s], &whole);
    }
    print_message("%u kills around a save, each continued\n", n_continued);
    assert_true(n_continued >= n);
}

TEST_MAIN(faults_setup, sandbox_teardown)
