/* needs: waits */
/*
 * test_restart.c - run.restart: after the loss of a rank all ranks start again from the newest
 * checkpoint, and the training ends with the bits of one that checkpoint.load continued there. What
 * is no loss ends the job as ever.
 *
 * DPB_RESTART_SEED=S: other ranks and steps.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/boards.h"
#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/weights.h"

static const double deadline_s = 60.0;
static const double slack_s = 0.5; /* of a restart beside the job's own start */

enum { STEPS = 60, WARMUP = 3, MOST_RANKS = 4, MOST_LAUNCHERS = 2, FIRST_PORT = 20000 };

#define RESTART FAULTS_BASE "eval.every=0 run.precision=fp64 "
#define MEMORY "checkpoint.place=peer "
#define FILES "checkpoint.save=kept.safetensors "
#define DEVICE "device.name=fault comm.name=shm device.fault=kill device.rank=1 device.hook="

static double sum_of(const json_t *restart)
{
    static const char *const parts[] = {"detect_s", "reform_s", "reload_s", "first_step_s"};
    double sum_s = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const double part_s = json_number_at(restart, parts[i]);
        if (!(part_s >= 0))
            fail_msg("%s of a restart is %g", parts[i], part_s);
        sum_s += part_s;
    }
    return sum_s;
}

static size_t restarts_of(const struct command *command)
{
    return json_array_size(json_at(command->json, "restarts"));
}

/* ---- any rank at any step ------------------------------------------------------------------ */

static const struct job {
    const char *settings;
    unsigned every;                /* steps between checkpoints */
    unsigned n_ranks, n_launchers; /* launchers by variables have as many each; 0: the local one */
} jobs[] = {
    {MEMORY "comm.name=shm", 7, 2, 0},
    {MEMORY "comm.name=ring_tcp comm.interface=lo run.precision=fp32 comm.codec=topk", 1, 2, 0},
    {MEMORY "comm.name=ps_cpu run.servers=1", 7, 3, 0},
    {MEMORY "comm.name=shm comm.shard=optimizer comm.late=1 comm.bucket=1kB optimizer.name=adam", 7,
     2, 0},
    {FILES "comm.name=replicated run.workers=3", 11, 3, 0},
    {MEMORY "comm.name=local_sgd comm.period=3", 7, 2, 0},
    {MEMORY "run.workers=4 comm.name=ring_tcp comm.interface=lo run.precision=fp32 comm.codec=topk",
     7, 4, MOST_LAUNCHERS},
};

/* Launcher `i` of n of one machine. */
static void start_launcher(struct started *started, unsigned i, unsigned n, const char *line)
{
    static unsigned port;
    char of_rank[24], of_size[32], of_local[40], of_port[32];
    if (port == 0)
        port = FIRST_PORT + (unsigned)getpid() * 16 % 20000;
    port += i == 0 ? 1 : 0;
    snprintf(of_rank, sizeof of_rank, "RANK=%u", i);
    snprintf(of_size, sizeof of_size, "WORLD_SIZE=%u", n);
    snprintf(of_local, sizeof of_local, "LOCAL_WORLD_SIZE=%u", n);
    snprintf(of_port, sizeof of_port, "MASTER_PORT=%u", port);
    dpbench_start(started, WORDS(of_rank, of_size, of_local, of_port, "MASTER_ADDR=localhost"),
                  FAULTS_BASE "run.launch=environment %s", line);
}

/* The job, whose first launcher's board tells of it, and its ranks. */
static void start_job(const struct job *job, const char *line, struct started *started, pid_t *pids)
{
    const unsigned n = job->n_launchers, each = job->n_ranks / (n > 0 ? n : 1);
    if (n == 0)
        faults_start(started, line);
    for (unsigned i = 0; i < n; i++)
        start_launcher(&started[i], i, n, line);
    for (unsigned i = 0; i < (n > 0 ? n : 1); i++)
        faults_await_ranks(&started[i], pids + i * each, each);
}

/* Of all runs: from the last sign of life to the next step, and from the begin to the first. */
static double restart_s, begin_s;

/* A training to step `from` and on from there, with nothing that is lost. */
static void continue_at(const struct job *job, unsigned from, struct command *command)
{
    const char *settings = job->settings + strcspn(job->settings, " ");
    struct command whole;
    dpbench_ends(&whole, deadline_s, 0,
                 RESTART "%s run.steps=%d checkpoint.save=whole.safetensors checkpoint.at=%u",
                 settings, STEPS - WARMUP, from);
    dpbench_ends(command, deadline_s, 0,
                 RESTART "%s run.steps=%u checkpoint.load=whole-step%u.safetensors "
                         "checkpoint.save=continued.safetensors",
                 settings, STEPS - WARMUP - from, from);
}

static void expect_continued(const struct job *job, const struct command *command, unsigned from)
{
    struct command continued;
    continue_at(job, from, &continued);
    weights_expect_equal("kept.safetensors", "continued.safetensors", true);
    if (!json_equal(json_at(command->json, "loss"), json_at(continued.json, "loss")))
        fail_msg("%s: other losses than from step %u on", job->settings, from);
}

static void test_job(void **state)
{
    const struct job *job = *state;
    unsigned seed = faults_number_of("DPB_RESTART_SEED", 1) * 977 + (unsigned)(job - jobs);
    const long at = 12 + rand_r(&seed) % 35;
    const unsigned rank = (unsigned)rand_r(&seed) % job->n_ranks;
    char line[512];
    snprintf(line, sizeof line,
             "run.restart=1 eval.every=0 run.precision=fp64 run.steps=%d run.delay=constant(2ms) "
             "checkpoint.save=kept.safetensors checkpoint.every=%u %s",
             STEPS - WARMUP, job->every, job->settings);
    struct started started[MOST_LAUNCHERS];
    struct command command, other;
    struct traces before;
    pid_t pids[MOST_RANKS];
    start_job(job, line, started, pids);
    while (board_step(started[0].pid) < at)
        usleep(300);
    kill(pids[rank], SIGKILL);
    command_finish(&started[0], &command, deadline_s);
    for (unsigned i = 1; i < job->n_launchers; i++) {
        command_finish(&started[i], &other, deadline_s);
        assert_int_equal(other.exit_code, command.exit_code);
        assert_string_equal(other.err, "");
    }
    print_message("rank %u is killed at step %ld\n", rank, at);
    if (command.exit_code != 0 || restarts_of(&command) != 1)
        fail_msg("%s: exit %d: %s", line, command.exit_code, command.err);
    const json_t *restart = json_at(command.json, "restarts.0");
    const unsigned from = (unsigned)json_number_at(restart, "step");
    assert_int_equal(json_number_at(restart, "rank"), rank);
    assert_int_equal(from % job->every, 0);
    assert_in_range(from + (unsigned)json_number_at(restart, "steps_lost"), at - 1, STEPS);
    assert_int_equal(json_number_at(command.json, "timing.first_step"), from);
    assert_true(json_is_true(json_at(command.json, "goodput.restarted")));
    EXPECT_WORDS(line, command.err, "was killed by signal 9", "all ranks start again from step");
    const double useful = STEPS * json_number_at(command.json, "batch.global"),
                 wall_s = json_number_at(command.json, "goodput.wall_s");
    assert_float_equal(json_number_at(command.json, "goodput.samples_per_s") * wall_s, useful, 0.1);
    restart_s += sum_of(restart);
    begin_s += json_number_at(command.json, "goodput.first_step_s");
    traces_take(&before, ".");
    traces_expect_none(&before, line, 1.0);
    expect_continued(job, &command, from);
}

/* After test_job. */
static void test_time(void **state)
{
    const double n = PART_OF(jobs, 2);
    (void)state;
    print_message("%.3f s to restart, %.3f s to start\n", restart_s / n, begin_s / n);
    assert_true(restart_s > 0);
    assert_true(restart_s / n <= begin_s / n + slack_s);
}

/* ---- a launcher is lost -------------------------------------------------------------------- */

static const struct job rejoined = {
    MEMORY "comm.name=ring_tcp comm.interface=lo run.precision=fp32 comm.codec=topk", 7, 2,
    MOST_LAUNCHERS};

/* The second launcher is killed, or told to end as an eviction does, and started again. */
static void lose_launcher(int number, const char *settings, struct started started[2],
                          const char *of_new)
{
    char line[512];
    pid_t pids[MOST_RANKS];
    struct command command;
    snprintf(line, sizeof line,
             "run.restart=1 eval.every=0 run.precision=fp64 run.steps=%d run.delay=constant(2ms) "
             "checkpoint.save=kept.safetensors checkpoint.every=%u %s %s",
             STEPS - WARMUP, rejoined.every, rejoined.settings, settings);
    start_job(&rejoined, line, started, pids);
    while (board_step(started[0].pid) < 20)
        usleep(300);
    kill(started[1].pid, number);
    command_finish(&started[1], &command, deadline_s);
    assert_int_equal(command.exit_code, number == SIGKILL ? -1 : 128 + number);
    assert_string_equal(command.err, "");
    if (of_new) {
        strncat(line, of_new, sizeof line - strlen(line) - 1);
        start_launcher(&started[1], 1, MOST_LAUNCHERS, line);
    }
}

TEST(test_rejoin)
{
    static const int numbers[] = {SIGTERM, SIGKILL};
    for (int i = 0; i < 2; i++) {
        struct started started[2];
        struct command command[2];
        lose_launcher(numbers[i], "run.rejoin=30", started, "");
        for (int j = 0; j < 2; j++) {
            command_finish(&started[j], &command[j], deadline_s);
            if (command[j].exit_code != 0)
                fail_msg("launcher %d: exit %d: %s", j, command[j].exit_code, command[j].err);
        }
        assert_int_equal(restarts_of(&command[0]), 1);
        EXPECT_WORDS("rejoin", command[0].err, "its launcher (",
                     i == 0 ? "was told to end (SIGTERM)" : "has ended",
                     "waiting 30.0 s (run.rejoin)", "all ranks start again from step");
        if (i == 0)
            expect_continued(&rejoined, &command[0],
                             (unsigned)json_number_at(command[0].json, "restarts.0.step"));
    }
}

/* One that does not fit ends the job, as does none; a signal interrupts the wait. */
TEST(test_no_rejoin)
{
    static const struct {
        const char *settings, *of_new, *words;
    } rows[] = {
        {"", NULL, "was told to end (SIGTERM)"},
        {"run.rejoin=0.1", NULL, "no other launcher has come"},
        {"run.rejoin=30", " run.seed=7", "run.seed is '(not given)' at rank 0"},
    };
    struct started started[2];
    struct command command;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lose_launcher(SIGTERM, rows[i].settings, started, rows[i].of_new);
        command_finish(&started[0], &command, deadline_s);
        assert_int_equal(command.exit_code, 1);
        assert_int_equal(restarts_of(&command), 0);
        EXPECT_WORDS(rows[i].settings, command.err, rows[i].words);
        if (!rows[i].of_new)
            continue;
        command_finish(&started[1], &command, deadline_s);
        assert_int_equal(command.exit_code, 2);
    }
    lose_launcher(SIGTERM, "run.rejoin=30", started, NULL);
    kill(started[0].pid, SIGINT);
    command_finish(&started[0], &command, deadline_s);
    assert_int_equal(command.exit_code, 130);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
}

/* ---- many losses --------------------------------------------------------------------------- */

/* Each start is killed in its eighth step: by 5 steps nearer to the end of 23. */
TEST(test_many_losses)
{
    struct command command, whole;
    dpbench_ends(&whole, deadline_s, 0, RESTART "checkpoint.save=whole.safetensors");
    dpbench_ends(&command, deadline_s, 0,
                 RESTART DEVICE "backward device.call=8 run.restart=4 checkpoint.every=5 " MEMORY
                                "checkpoint.save=kept.safetensors");
    weights_expect_equal("kept.safetensors", "whole.safetensors", false);
    assert_int_equal(restarts_of(&command), 4);
    for (int i = 0; i < 4; i++) {
        char path[32];
        snprintf(path, sizeof path, "restarts.%d.step", i);
        assert_int_equal(json_number_at(command.json, path), 5 * (i + 1));
        snprintf(path, sizeof path, "restarts.%d.steps_lost", i);
        assert_in_range(json_number_at(command.json, path), 1, 2);
    }
    assert_int_equal(json_number_at(command.json, "timing.first_step"), 20);
    write_file("whole.json", whole.out, strlen(whole.out));
    write_file("restarted.json", command.out, strlen(command.out));
    dpbench_ends(&whole, deadline_s, 0, "compare whole.json restarted.json");
    EXPECT_WORDS("compare", whole.out, "no conclusion", ", restarted");

    dpbench_ends(&command, deadline_s, 1,
                 RESTART DEVICE "backward device.call=8 run.restart=3 checkpoint.every=5 " MEMORY);
    assert_int_equal(restarts_of(&command), 3);
    faults_expect_failed("three restarts", &command);
    EXPECT_WORDS("three restarts", faults_only_error("three restarts", &command), "rank 1 (",
                 "in phase 'backward' of step 22");
}

/* While a checkpoint is written, by rank 0; before there is one; behind the last step, where there
 * is one of it. The same call comes again in each start, for as long as it has so many. */
TEST(test_moments)
{
    static const char publish[] = "comm.name=fault comm.fault=kill comm.rank=0 comm.hook=publish ";
    static const struct {
        const char *settings;
        size_t n_restarts;
        double first;
        int exit_code;
    } rows[] = {
        {"comm.call=5 checkpoint.every=5 " MEMORY, 1, 15, 0},
        {"comm.call=5 checkpoint.every=5 " FILES, 2, 15, 0},
        {"comm.call=6 checkpoint.every=5 " MEMORY, 1, 20, 0},
        {"comm.call=7 checkpoint.every=5 " FILES, 1, 20, 0},
        {"comm.call=1 checkpoint.every=5 " MEMORY, 3, 0, 1},
        {"comm.call=1", 3, 0, 1},
        {"comm.call=4 checkpoint.every=11 run.steps=19 " FILES, 3, 11, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench(&command, deadline_s, RESTART "run.restart=3 %s%s", publish, rows[i].settings);
        if (command.exit_code != rows[i].exit_code || restarts_of(&command) != rows[i].n_restarts ||
            json_number_at(command.json, "restarts.0.step") != rows[i].first)
            fail_msg("%s: exit %d: %s", rows[i].settings, command.exit_code, command.err);
    }
}

/* The checkpoints that the launcher keeps, and their bytes. */
static size_t sizes_of(pid_t launcher, off_t sizes[2])
{
    size_t n = 0;
    for (int fd = 3; fd < 64 && n < 2; fd++) {
        char path[64], target[64] = "";
        struct stat info;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)launcher, fd);
        if (readlink(path, target, sizeof target - 1) > 0 && strstr(target, "dpbench-checkpoint") &&
            stat(path, &info) == 0)
            sizes[n++] = info.st_size;
    }
    return n;
}

#define LARGE RESTART "model.name=lenet run.batch=1 run.steps=12 "

/* In the middle of a write: the other one is whole. */
TEST(test_part_of_a_file)
{
    struct started started;
    struct command whole, command;
    pid_t pids[2];
    off_t sizes[2] = {0}, most = 0;
    dpbench_ends(&whole, deadline_s, 0, LARGE "checkpoint.save=whole.safetensors");
    dpbench_start(&started, NULL,
                  LARGE MEMORY "run.restart=1 checkpoint.every=1 "
                               "checkpoint.save=kept.safetensors");
    faults_await_ranks(&started, pids, 2);
    while (board_step(started.pid) < 5)
        usleep(300);
    while (most == 0 || (sizes[0] == most && sizes[1] == most)) {
        assert_int_equal(sizes_of(started.pid, sizes), 2);
        most = sizes[0] > most ? sizes[0] : sizes[1] > most ? sizes[1] : most;
    }
    kill(pids[0], SIGKILL);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 0);
    EXPECT_WORDS("part of a file", command.err, "rank 0 (", "in phase 'checkpoint' of step");
    assert_true(json_number_at(command.json, "restarts.0.step") >= 4);
    weights_expect_equal("kept.safetensors", "whole.safetensors", true);
}

/* A rank that hangs is lost, too: at the deadline of the rank that waits for it. */
TEST(test_hang)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 RESTART "device.name=fault comm.name=shm device.fault=hang device.rank=1 "
                         "device.hook=forward device.call=8 run.steps=7 run.timeout_s=1 "
                         "run.restart=1 checkpoint.every=5 " MEMORY);
    assert_int_equal(restarts_of(&command), 1);
    assert_int_equal(json_number_at(command.json, "restarts.0.step"), 5);
    assert_true(json_number_at(command.json, "restarts.0.detect_s") > 0.7);
}

/* ---- no losses ----------------------------------------------------------------------------- */

TEST(test_no_loss)
{
    static const struct {
        const char *settings;
        int exit_code;
        const char *words;
    } rows[] = {
        {"comm.name=fault comm.fault=error comm.rank=1 comm.hook=end comm.call=20", 1,
         "the fault that was asked for"},
        {"comm.name=mutant_shm comm.mutation=wrong_scale", 3, "pattern check of comm 'mutant_shm'"},
        {"optimizer.learning_rate=1e6 optimizer.momentum=0.99", 1, "not finite"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, rows[i].exit_code,
                     RESTART "run.restart=2 checkpoint.every=5 " MEMORY "%s", rows[i].settings);
        EXPECT_WORDS(rows[i].settings, command.err, rows[i].words);
        assert_int_equal(restarts_of(&command), 0);
        assert_true(json_is_false(json_at(command.json, "goodput.restarted")));
    }
}

/* A signal to the launcher ends the job, restarted or not. */
TEST(test_interrupted)
{
    struct started started;
    struct command command;
    pid_t pids[2];
    faults_start(&started, "run.steps=60000 run.restart=2 run.delay=constant(1ms) eval.every=0");
    faults_await_steps(&started, pids, 2);
    kill(pids[1], SIGKILL);
    for (pid_t again[2] = {pids[0]}; again[0] == pids[0] || board_step(started.pid) < 5;) {
        assert_true(now_s() - started.began_s < deadline_s);
        (void)faults_children_of(started.pid, again, 2);
    }
    kill(started.pid, SIGTERM);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 143);
    assert_int_equal(restarts_of(&command), 1);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
}

TEST(test_refusals)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"run.restart=1 comm.name=ps_async run.servers=1", "take a synchronous one"},
        {"run.restart=1 comm.name=ps_cpu comm.bound=1 run.servers=1", "unknown option"},
        {"run.restart=1 run.rejoin=5", "here is none to wait for: leave run.rejoin out"},
        {"run.restart=1 run.steady_limit_s=5", "run.steps with run.steady_limit_s = 0"},
        {"run.restart=1 comm.name=ps_async run.servers=1 run.survive=yes", "leave one out"},
        {"run.restart=1 run.mode=forward comm.name=independent", "run.restart is for trainings"},
        {MEMORY, "give run.restart and checkpoint.every"},
        {MEMORY "run.restart=1", "give run.restart and checkpoint.every"},
        {MEMORY "checkpoint.every=5", "give run.restart and checkpoint.every"},
    };
    struct started started;
    struct command command;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i].words), RESTART "%s", rows[i].settings);
    dpbench_start(&started, WORDS("PMIX_NAMESPACE=a", "PMIX_RANK=0"),
                  "check -c base.ini eval.every=0 run.restart=1");
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 2);
    EXPECT_WORDS("PMIx", command.err, "a rank that joined by PMIx cannot join again");
}

int main(void)
{
    for (int i = 0; i < PART_OF(jobs, 2); i++)
        add_case(test_job, &jobs[i], "a rank is killed, %s", jobs[i].settings);
    add_case(test_time, NULL, "restarts take no longer than starts");
    return test_main(faults_setup, sandbox_teardown);
}
