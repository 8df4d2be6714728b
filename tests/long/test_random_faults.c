/*
 * test_random_faults.c - faults of any kind, in any process, at any hook and time: the job ends,
 * names one cause, keeps what was measured, and leaves nothing behind. Half of them may start
 * again: those that then come to their end have the bits of trainings that checkpoint.load
 * continued.
 *
 * A tenth as often all processes of a job stand still for longer than its deadlines: it goes on.
 *
 * Half as often ranks are killed, one after the other, in a job that may start again as often, once
 * less, or more often.
 *
 * The same around the saves of checkpoints, a fifth as often: each training continues from what was
 * saved.
 *
 * DPB_FAULTS=N: so many instead of 250; DPB_FAULTS_SEED=S: others. A failure names the command that
 * repeats it.
 */
#include <math.h>
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
#include "lib/weights.h"

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

/* A job with a fault. */
struct draw {
    char text[1024];         /* its arguments */
    char inner[256];         /* those that say what it trains, without the fault */
    int n_steps, n_restarts; /* that it makes, and may make */
    int n_parts;             /* launchers */
};

static void make_arguments(unsigned *seed, const char *fault, struct draw *draw)
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
    draw->n_restarts = n_restarts;
    draw->n_steps = 23; /* of base.ini */
    snprintf(draw->inner, sizeof draw->inner, "%s", form_settings(form, "", n_workers));
    snprintf(draw->text, sizeof draw->text,
             "%s device.name=%s run.comm_cores=%d run.timeout_s=%g "
             "run.stall_warning_s=0.5 checkpoint.save=x.safetensors checkpoint.every=4 %s "
             "run.restart=%d checkpoint.place=%s "
             "%s.fault=%s %s.hook=%s %s.rank=%d %s.call=%d",
             form_settings(form, "fault comm.inner=", n_workers), device ? "fault" : "reference",
             on_core, timeout_s, prove, n_restarts, n_restarts ? PICK(places) : "file", kind, fault,
             kind, hook, kind, rank, kind, call);
}

static int remove_checkpoints(void)
{
    return system("rm -f x*.safetensors whole*.safetensors");
}

/* Of a training that has started again: the bits of one that checkpoint.load continued at the same
 * steps. Each time it reads the mean of the workers' statistics, which is rounded. */
static void expect_same_weights(const struct draw *draw, const json_t *restarts)
{
    const size_t n = json_array_size(restarts);
    char load[64] = "", name[32] = "";
    int at = 0;
    for (size_t i = 0; i <= n; i++) {
        const json_t *restart = json_array_get(restarts, i);
        const int to = i < n ? (int)json_number_at(restart, "step") : draw->n_steps;
        struct command command;
        assert_in_range(to, at, draw->n_steps);
        if (to == at)
            continue;
        snprintf(name, sizeof name, "whole%zu.safetensors", i);
        dpbench_ends(&command, deadline_s, 0,
                     FAULTS_BASE "%s eval.every=0 run.warmup_steps=0 run.steps=%d "
                                 "checkpoint.save=%s %s",
                     draw->inner, to - at, name, load);
        snprintf(load, sizeof load, "checkpoint.load=%s", name);
        at = to;
    }
    weights_expect_equal("x.safetensors", name, true);
}

/* Each restart is there, and the goodput is that of all steps over the whole time. How many. */
static size_t expect_restarts(const struct draw *draw, const struct command *command)
{
    static const char *const times[] = {"detect_s", "reform_s", "reload_s", "first_step_s"};
    const json_t *restarts = json_at(command->json, "restarts");
    const size_t n = json_array_size(restarts);
    const double samples = draw->n_steps * json_number_at(command->json, "batch.global"),
                 rate = json_number_at(command->json, "goodput.samples_per_s"),
                 wall_s = json_number_at(command->json, "goodput.wall_s");
    if (n > (size_t)draw->n_restarts ||
        json_is_true(json_at(command->json, "goodput.restarted")) != (n > 0) ||
        !(fabs(rate * wall_s - samples) < 0.1) || wall_s > command->seconds)
        fail_msg("%s: %zu restarts: %s", draw->text, n, command->out);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sizeof times / sizeof *times; k++) {
            const json_t *time = json_at(json_array_get(restarts, i), times[k]);
            if (!(json_number_value(time) >= 0) && !json_is_null(time))
                fail_msg("%s: %s of restart %zu: %s", draw->text, times[k], i, command->out);
        }
    if (n > 0)
        expect_same_weights(draw, restarts);
    return n;
}

/* Whether the fault came to pass. */
static bool run_one(unsigned *seed)
{
    struct draw draw;
    struct command command;
    struct traces before;
    const char *fault = PICK(faults);
    make_arguments(seed, fault, &draw);
    traces_take(&before, ".");
    double bound_s =
        (1 + draw.n_restarts) * (most_s + (waits_for_deadline(fault) ? timeout_s + 2 : 0));
    dpbench(&command, deadline_s, FAULTS_BASE "%s", draw.text);
    for (int try = 1; command.seconds > bound_s && try < TRIES; try++) { /* a busy machine */
        assert_int_equal(remove_checkpoints(), 0);
        dpbench(&command, deadline_s, FAULTS_BASE "%s", draw.text);
    }
    const char *status = json_text_at(command.json, "status");
    if (command.late || command.signal_number || command.seconds > bound_s)
        fail_msg("%s: %.1f s, signal %d\n%s", draw.text, command.seconds, command.signal_number,
                 command.err);
    const bool failed = command.exit_code == 1;
    size_t n_restarts = 0;
    if (failed) {
        const char *error = faults_only_error(draw.text, &command);
        EXPECT_WORDS(draw.text, error, "rank ", "in phase '");
        faults_expect_failed(draw.text, &command);
    } else if (command.exit_code != 0 || strcmp(status, "ok") != 0) {
        fail_msg("%s: exit %d, status '%s'\n%s", draw.text, command.exit_code, status, command.err);
    } else if (draw.n_restarts > 0) {
        n_restarts = expect_restarts(&draw, &command);
    }
    assert_int_equal(remove_checkpoints(), 0); /* whole ones: what else there is is a leftover */
    traces_expect_none(&before, draw.text, 0.5);
    return failed || n_restarts > 0;
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

enum { PARTS = 2 };

/* By itself, or one launcher a machine by variables: both on this one. The first has the result. */
static void start_parts(const struct draw *draw, struct started started[PARTS])
{
    char rank[16], port[24];
    snprintf(port, sizeof port, "MASTER_PORT=%d", 20000 + getpid() % 6000 * 2);
    for (int part = 0; part < draw->n_parts; part++) {
        snprintf(rank, sizeof rank, "RANK=%d", part);
        dpbench_start(&started[part],
                      draw->n_parts > 1 ? WORDS(rank, port, "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
                                                "MASTER_ADDR=localhost")
                                        : NULL,
                      FAULTS_BASE "%s%s", draw->text,
                      draw->n_parts > 1 ? " run.launch=environment" : "");
    }
}

/* Any rank of the start that runs at that moment. */
static bool kill_one(unsigned *seed, const struct started *launcher)
{
    pid_t pids[8];
    usleep((unsigned)rand_r(seed) % 250000);
    const size_t n = faults_children_of(launcher->pid, pids, sizeof pids / sizeof *pids);
    return n > 0 && kill(pids[(size_t)rand_r(seed) % n], SIGKILL) == 0;
}

static void draw_restarts(unsigned *seed, struct draw *draw)
{
    static const char *const places[] = {"file", "peer"};
    const struct strategy_form *form = pick_form(seed);
    draw->n_steps = 60;
    draw->n_restarts = 1 + rand_r(seed) % 3;
    draw->n_parts = form->machines ? 1 : 1 + rand_r(seed) % PARTS; /* else told of two machines */
    snprintf(draw->inner, sizeof draw->inner, "%s run.delay=constant(2ms)",
             form_settings(form, "", draw->n_parts > 1 ? 2 : 2 + rand_r(seed) % 2));
    snprintf(draw->text, sizeof draw->text,
             "%s eval.every=0 run.warmup_steps=0 run.steps=%d run.restart=%d checkpoint.every=%d "
             "checkpoint.place=%s checkpoint.save=x.safetensors",
             draw->inner, draw->n_steps, draw->n_restarts, 1 + rand_r(seed) % 11, PICK(places));
}

/* Returns how often the job has started again. */
static size_t restart_one(unsigned *seed)
{
    struct draw draw;
    struct started started[PARTS];
    struct command command, other;
    struct traces before;
    int n_killed = 0;
    size_t n_restarts = 0;
    draw_restarts(seed, &draw);
    traces_take(&before, ".");
    start_parts(&draw, started);
    for (int i = rand_r(seed) % (draw.n_restarts + 2); i > 0; i--)
        n_killed += kill_one(seed, &started[rand_r(seed) % draw.n_parts]);
    command_finish(&started[0], &command, deadline_s);
    if (draw.n_parts > 1)
        command_finish(&started[1], &other, deadline_s);
    if (draw.n_parts > 1 && other.exit_code != command.exit_code)
        fail_msg("%s: exit %d, %d\n%s%s", draw.text, command.exit_code, other.exit_code,
                 command.err, other.err);
    if (command.exit_code == 1 && n_killed > draw.n_restarts) {
        EXPECT_WORDS(draw.text, faults_only_error(draw.text, &command), "rank ", "signal 9");
        faults_expect_failed(draw.text, &command);
    } else if (command.exit_code == 0) {
        n_restarts = expect_restarts(&draw, &command);
    } else {
        fail_msg("%s: %d killed, exit %d\n%s", draw.text, n_killed, command.exit_code, command.err);
    }
    assert_int_equal(remove_checkpoints(), 0);
    traces_expect_none(&before, draw.text, 0.5);
    return n_restarts;
}

TEST(test_random_restarts)
{
    unsigned n = faults_number_of("DPB_FAULTS", 250) / 2,
             seed = faults_number_of("DPB_FAULTS_SEED", 6);
    size_t n_restarts = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned own = seed + i * 2654435761u;
        n_restarts += restart_one(&own);
    }
    print_message("%zu restarts in %u jobs\n", n_restarts, n);
    assert_true(n_restarts * 3 > n);
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
