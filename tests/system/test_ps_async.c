/* needs: threads cells */
/*
 * test_ps_async.c - ps_async keeps its contract with any number of workers and servers, trains one
 * worker to the bits of synchronous training, keeps its bound, and ends well however far its
 * workers are apart.
 */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

#define ASYNC                                                                             \
    FAULTS_BASE "comm.name=ps_async eval.every=0 model.name=tiny_dense data.samples=640 " \
                "optimizer.learning_rate=0.05 "

/* ---- contracts ----------------------------------------------------------------------------- */

static const struct world {
    unsigned workers, servers, accumulate;
    uint64_t bucket;
    const char *settings, *label;
} worlds[] = {
    {1, 1, 1, 1 << 20, "", "asynchronous"},
    {2, 1, 1, 388, "run.comm_cores=1", "asynchronous"},
    {2, 3, 3, 1000, "comm.rate=staleness run.precision=fp64 comm.interface=lo comm.hosts=1+1+1+1+1",
     "asynchronous"},
    {3, 2, 2, 388, "comm.rate=staleness run.delay=exponential(2ms)", "asynchronous"},
    {3, 2, 1, 388, "comm.bound=0 run.delay=exponential(2ms) comm.interface=lo comm.hosts=3+2",
     "stale(0)"},
    {4, 1, 1, 1000,
     "comm.bound=1 run.delay=pareto(1ms,1.5) eval.every=4 comm.interface=lo comm.hosts=2+3",
     "stale(1)"},
    {5, 3, 1, 16, "comm.bound=3 comm.rate=staleness comm.gradient=bf16 model.name=tiny",
     "stale(3)"},
    {4, 2, 1, 388, "comm.softsync=3 comm.rate=staleness run.delay=exponential(2ms)",
     "asynchronous"},
    {5, 2, 2, 1000,
     "comm.softsync=2 comm.bound=2 comm.gradient=bf16 eval.every=7 comm.interface=lo "
     "comm.hosts=1+1+1+1+1+1+1",
     "stale(2)"},
    {4, 1, 2, 388,
     "comm.policy=k_sync comm.k=2 run.delay=exponential(4ms) eval.every=6 comm.interface=lo "
     "comm.hosts=1+1+1+1+1",
     "partial(2 of 4)"},
    {3, 2, 1, 1000, "comm.policy=k_sync comm.k=1 run.delay=pareto(1ms,1.5) run.comm_cores=1",
     "partial(1 of 3)"},
    {4, 1, 2, 388, "comm.policy=k_batch_sync comm.k=2 run.delay=exponential(4ms) eval.every=6",
     "batches(2)"},
    {3, 2, 1, 1000,
     "comm.policy=k_batch_sync comm.k=7 run.delay=pareto(1ms,1.5) run.comm_cores=1 "
     "comm.interface=lo comm.hosts=2+3",
     "batches(7)"},
    {5, 3, 1, 388,
     "comm.policy=k_batch_sync comm.k=5 comm.gradient=bf16 run.delay=exponential(2ms)",
     "batches(5)"},
    {2, 1, 3, 1 << 20,
     "comm.policy=k_batch_sync comm.k=1 run.precision=fp64 comm.interface=lo comm.hosts=1+1+1",
     "batches(1)"},
    {4, 2, 1, 1000, "comm.policy=k_batch_async comm.k=3 run.delay=exponential(2ms) eval.every=6",
     "asynchronous"},
    {4, 1, 2, 388,
     "comm.policy=k_async comm.k=3 run.delay=exponential(2ms) eval.every=6 comm.interface=lo "
     "comm.hosts=2+3",
     "asynchronous"},
    {3, 3, 1, 1000, "comm.policy=k_async comm.k=2 comm.rate=staleness run.delay=exponential(1ms)",
     "asynchronous"},
    {5, 2, 1, 388, "comm.policy=k_async comm.k=4 comm.gradient=bf16 run.comm_cores=1 eval.every=7",
     "asynchronous"},
    {2, 1, 2, 4,
     "comm.push_every=3 comm.fetch_every=5 model.name=tiny comm.interface=lo comm.hosts=1+1+1",
     "asynchronous"},
    {4, 3, 1, 388,
     "comm.push_every=4 comm.fetch_every=2 comm.rate=staleness comm.gradient=bf16 "
     "eval.every=7",
     "asynchronous"},
    {5, 2, 2, 1000,
     "comm.push_every=2 comm.fetch_every=3 comm.softsync=3 run.comm_cores=1 "
     "run.delay=exponential(2ms)",
     "asynchronous"},
    {3, 2, 1, 1 << 20,
     "comm.fetch_every=4 run.precision=fp64 run.delay=pareto(1ms,1.5) comm.interface=lo "
     "comm.hosts=2+3",
     "asynchronous"},
    {1, 2, 3, 388, "comm.push_every=7 comm.fetch_every=5", "asynchronous"},
    {3, 2, 1, 388,
     "comm.fetch_every=3 comm.softsync=2 comm.rate=staleness run.delay=exponential(2ms)",
     "asynchronous"},
    {5, 2, 2, 1 << 20,
     "eval.every=3 run.delay=exponential(2ms) comm.streams=2 comm.interface=lo "
     "comm.hosts=1+1+1+1+1+1+1",
     "asynchronous"},
};

static void expect_verdict(const struct command *command, const char *check)
{
    char path[64];
    snprintf(path, sizeof path, "verification.%s", check);
    assert_string_equal(json_text_at(command->json, path), "pass");
}

/* Steps whose gradients are told of in others: those that a push brings together, and those that
 * are pushed before a pause. */
static double count_untold(const struct world *world, double steps)
{
    const char *push = strstr(world->settings, "comm.push_every=");
    const char *pauses = strstr(world->settings, "eval.every=");
    const double n = pauses ? 1.0 + floor(steps / atoi(pauses + strlen("eval.every="))) : 1.0;
    return push ? n * (atoi(push + strlen("comm.push_every=")) - 1) : 0.0;
}

/* Each worker's gradients of each timed step were applied once by each server, and none after more
 * updates than the bound allows. The age of the oldest. */
static double expect_ages(const struct command *command, const struct world *world, double steps)
{
    const json_t *age = json_at(command->json, "strategy.age");
    const char *bound = strstr(world->settings, "comm.bound=");
    const double most = json_number_at(age, "max"), others = world->workers - 1;
    const char *sync = strstr(world->settings, "k_sync comm.k=");
    const bool batches = strstr(world->settings, "k_batch_sync");
    double sum = 0.0, weighted = 0.0, counted = 0.0;
    for (unsigned w = 0; w < world->workers; w++) {
        const double count = json_number_value(json_array_get(json_at(age, "contributions"), w));
        const double dropped = json_number_value(json_array_get(json_at(age, "dropped"), w));
        assert_true(fabs(count + dropped - steps * world->servers) <=
                    count_untold(world, steps) * world->servers);
        assert_true(sync || batches || dropped == 0);
        counted += count;
    }
    const double all = steps * world->servers * world->workers;
    const double share = batches ? counted / all
                         : sync  ? atoi(sync + strlen("k_sync comm.k=")) / (double)world->workers
                                 : 1.0;
    assert_true(fabs(counted - share * all) <=
                count_untold(world, steps) * world->servers * world->workers + 0.5);
    assert_true(fabs(json_number_at(age, "dropped_share") - (1.0 - share)) < 1e-9);
    /* No number: the workers of so short a run had no time in common. */
    const double rate = json_number_at(command->json, "timing.samples_per_s.mean");
    const double of_counted = json_number_at(age, "counted_samples_per_s");
    assert_true(isfinite(rate) ? fabs(of_counted - share * rate) <= 1e-9 * rate
                               : !isfinite(of_counted));
    const json_t *histogram = json_at(age, "histogram");
    for (size_t i = 0; i < json_array_size(histogram); i++) {
        sum += json_number_value(json_array_get(histogram, i));
        weighted += json_number_value(json_array_get(histogram, i)) * (double)i;
    }
    assert_true(sum == counted);
    assert_true(fabs(json_number_at(age, "mean") - weighted / sum) < 1e-9);
    assert_int_equal(json_array_size(histogram), most + 1);
    if (bound)
        assert_true(most <= others * (2 * atoi(bound + strlen("comm.bound=")) + 1));
    assert_true(most == 0 || !(sync || batches));
    return most;
}

static double keeps(const struct world *world)
{
    enum { STEPS = 20 };
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 ASYNC
                 "run.prove=yes run.workers=%u run.servers=%u run.accumulate=%u comm.bucket=%llu "
                 "run.steps=%d %s",
                 world->workers, world->servers, world->accumulate,
                 (unsigned long long)world->bucket, STEPS, world->settings);
    expect_verdict(&command, "pattern");
    expect_verdict(&command, "exchange");
    expect_verdict(&command, "after");
    assert_string_equal(json_text_at(command.json, "strategy.consistency"), world->label);
    const double oldest = expect_ages(&command, world, STEPS);
    return oldest;
}

/* Of two workers on a busy machine one may end before the other begins: then all ages are 0. */
static void test_keeps(void **state)
{
    enum { TRIES = 5 };
    const struct world *world = *state;
    const bool is_old = world->workers > 1 && !strstr(world->settings, "sync comm.k=");
    double oldest = keeps(world);
    for (int tries = 1; is_old && oldest == 0 && tries < TRIES; tries++)
        oldest = keeps(world);
    assert_true(oldest > 0 || !is_old);
}

/* By the clock a slow worker does fewer steps. An evaluation counts the samples of each. */
TEST(test_samples_of_all)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 ASYNC "run.workers=2 run.servers=1 run.warmup_steps=0 run.seconds=0.4 "
                       "run.delay=constant(40ms) run.delay_ranks=1 eval.final=yes");
    const json_t *pushes = json_at(command.json, "strategy.age.contributions");
    const double fast = json_number_value(json_array_get(pushes, 0));
    const double slow = json_number_value(json_array_get(pushes, 1));
    assert_true(fast > 2 * slow);
    assert_true(json_number_at(command.json, "eval.0.trained_samples") ==
                json_number_at(command.json, "batch.per_worker") * (fast + slow));
}

/* Where nothing is sent in a timed step, adding up gradients for a push is all that a core for
 * communication does for them. */
TEST(test_accruing_takes_time)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 ASYNC
                 "run.workers=1 run.servers=1 run.comm_cores=1 comm.bucket=4096 model.name=lenet "
                 "comm.push_every=1000 comm.fetch_every=1000 run.prove=no run.steps=12");
    assert_true(json_number_at(command.json, "timing.breakdown_ns.comm_hidden") > 0.0);
}

/* ---- one worker ---------------------------------------------------------------------------- */

/* Without others its gradients are of the weights that they are applied to. */
TEST(test_one_worker)
{
    static const char *const forms[] = {
        "run.servers=1 run.accumulate=2",
        "run.servers=3 comm.bucket=388 run.comm_cores=1",
        "run.servers=2 comm.bucket=1000 comm.rate=staleness optimizer.name=adagrad",
        "run.servers=1 comm.bound=0 run.precision=fp32 comm.gradient=bf16",
        "run.servers=1 optimizer.name=lars optimizer.clip_norm=0.05",
        "run.servers=2 comm.bucket=388 comm.interface=lo comm.hosts=1+1+1",
        "run.servers=2 comm.bucket=388 comm.interface=lo comm.hosts=2+1"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct training async, synchronous;
        char settings[256], *at;
        snprintf(settings, sizeof settings, "%s", forms[i]);
        train(&async, "comm.name=ps_async model.name=tiny_bn run.steps=12 %s", settings);
        for (const char *const *word =
                 WORDS("comm.rate=staleness", "comm.bound=0", "run.servers=", "comm.hosts=");
             *word; word++)
            if ((at = strstr(settings, *word)))
                memset(at, ' ', strcspn(at, " "));
        train(&synchronous, "comm.name=ps_cpu model.name=tiny_bn run.steps=12 %s", settings);
        expect_same_weights(&async, &synchronous, NULL, 0.0);
        expect_same_losses(&async, &synchronous, 0.0);
    }
}

/* Without momentum a plain step of its own is the server's: by how many steps they are apart makes
 * no difference, but for the rounding of a sum. */
TEST(test_one_worker_apart)
{
#define APART "model.name=tiny_bn run.precision=fp64 run.steps=14 optimizer.momentum=0 "
    static const char *const forms[] = {"comm.push_every=3 comm.fetch_every=3",
                                        "comm.fetch_every=5",
                                        "comm.push_every=2 comm.fetch_every=6 comm.bucket=776"};
    struct training synchronous;
    train(&synchronous, APART "comm.name=ps_cpu run.servers=2 run.accumulate=2");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct training async;
        train(&async, APART "comm.name=ps_async run.servers=2 run.accumulate=2 %s", forms[i]);
        expect_same_weights(&async, &synchronous, NULL, 1e-12);
        expect_same_losses(&async, &synchronous, 1e-12);
    }
}

/* All gradients of a step: the synchronous mean. */
TEST(test_all_of_them)
{
    static const char *const forms[][2] = {
        {"comm.policy=k_sync comm.k=3", "run.servers=2"},
        {"comm.policy=k_async comm.k=3", "run.servers=1"},
        {"comm.policy=k_sync comm.k=3", "run.servers=1 optimizer.clip_norm=0.05"}};
    struct training partial, synchronous;
#define ALL "model.name=tiny_bn run.workers=3 comm.bucket=388 run.steps=8 run.precision=fp32 "
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        train(&synchronous, ALL "comm.name=ps_cpu %s", forms[i][1]);
        train(&partial, ALL "comm.name=ps_async %s %s", forms[i][0], forms[i][1]);
        expect_same_weights(&partial, &synchronous, NULL, 0.0);
        expect_same_losses(&partial, &synchronous, 0.0);
    }
}

/* One worker alone gives all gradients of an update, at the same weights: micro-batches. (Dropout,
 * which is drawn by step, would differ.) */
TEST(test_batches_of_one_worker)
{
    enum { STEPS = 5, K = 3 };
    struct training batches, synchronous;
#define MICRO "model.name=tiny_dense run.servers=2 comm.bucket=388 run.precision=fp32 "
    train(&batches, MICRO "comm.name=ps_async comm.policy=k_batch_sync comm.k=%d run.steps=%d", K,
          K * STEPS);
    train(&synchronous, MICRO "comm.name=ps_cpu run.accumulate=%d run.steps=%d", K, STEPS);
    expect_same_weights(&batches, &synchronous, NULL, 0.0);
}

/* ---- ends ---------------------------------------------------------------------------------- */

#define LATE_BY(time) "run.workers=3 run.servers=1 run.delay=constant(" time ") run.delay_ranks=%d "
#define STRAGGLER LATE_BY("100ms")

static double steps_of(const struct command *command, int rank)
{
    return json_number_value(
        json_at(json_array_get(json_at(command->json, "ranks"), (size_t)rank), "steps"));
}

/* Rank 0 trains until the slowest worker has done its steps of 10 ms, too: at an evaluation between
 * steps, and at the last one. */
TEST(test_time_of_training)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 ASYNC "run.servers=1 run.steps=12 run.warmup_steps=0 eval.every=5 eval.final=yes "
                       "run.delay=constant(10ms) run.delay_ranks=1");
    for (size_t i = 0; i < 3; i++) {
        char path[32];
        snprintf(path, sizeof path, "eval.%zu.trained_s", i);
        /* Less than 10 ms a step: the worker's sleep may have begun before rank 0's clock. */
        assert_true(json_number_at(command.json, path) >= 0.008 * (i < 2 ? 5.0 * (i + 1) : 12));
    }
}

/* A worker of 150 ms a step beside two of much less: nobody trains on for as long as that one is
 * behind. Steps of all would take it minutes. */
TEST(test_seconds)
{
    enum { TRIES = 3 };
    for (int late = 0; late < 2; late++) {
        double elapsed_s = 0;
        for (int tries = 0; tries < TRIES && !(elapsed_s > 0.6 && elapsed_s < 3); tries++) {
            struct command command;
            dpbench_ends(&command, deadline_s, 0, ASYNC LATE_BY("150ms") "run.seconds=1", late);
            elapsed_s = json_number_at(command.json, "timing.elapsed_ns") / 1e9;
            assert_true(steps_of(&command, late) <= 12);
            assert_true(steps_of(&command, 2) > 3 * steps_of(&command, late));
        }
        if (!(elapsed_s > 0.6 && elapsed_s < 3))
            fail_msg("1 s took %.1f s", elapsed_s);
    }
}

/* The same with a bound, with evaluations, for which all meet, and by steps. Rank 0 and rank 1 are
 * late by turns; with DPB_ALL_CELLS both in each row (check-long). */
TEST(test_other_ends)
{
    static const char *const rows[] = {
        "run.seconds=0.5 comm.bound=2",
        "run.seconds=0.5 eval.every=6 comm.push_every=4 comm.fetch_every=3",
        "run.seconds=0.5 eval.every=6",
        "run.seconds=0.5 eval.every=2 comm.bound=0",
        "run.steps=6 comm.bound=1",
        "run.steps=8 eval.every=5 run.steady_limit_s=0.5 run.steady_window=4",
        "run.steps=4 run.steady_limit_s=0.5 run.steady_window=4",
        "run.seconds=0.5 eval.final=yes model.name=tiny_bn", /* all take part in it, far apart */
        "run.steps=4 run.steady_limit_s=0.5 run.steady_window=4 eval.final=yes",
        "run.seconds=0.5 comm.bound=1 checkpoint.every=3 checkpoint.save=a.safetensors"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int late = 0; late < 2; late++) {
            struct command command;
            if (late != (int)i % 2 && !getenv("DPB_ALL_CELLS"))
                continue;
            dpbench_ends(&command, deadline_s, 0, ASYNC STRAGGLER "run.timeout_s=4 %s", late,
                         rows[i]);
            expect_verdict(&command, "after");
            assert_true(command.seconds < 20.0);
        }
}

/* A stopped worker stops the others when they are `comm.bound` steps ahead, and not before; without
 * a bound they train to their end. */
TEST(test_stopped_worker)
{
    static const struct {
        const char *settings, *others; /* where they are in the end */
    } rows[] = {{"comm.bound=0", "phase 'wait_peer' of step 9,"},
                {"comm.bound=1", "phase 'wait_peer' of step 10,"},
                {"comm.bound=4", "phase 'wait_peer' of step 13,"},
                {"", "phase 'wait_end' of step 23,"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 1,
                     ASYNC "run.workers=3 run.servers=1 run.timeout_s=2 device.name=fault "
                           "device.fault=stop device.hook=forward device.rank=1 device.call=10 %s",
                     rows[i].settings);
        for (int rank = 0; rank < 3; rank++) {
            char line[96];
            snprintf(line, sizeof line, "  rank %d \\(worker, pid [0-9]+\\): %s.*%s", rank,
                     rank == 1 ? "phase 'forward' of step 9," : rows[i].others,
                     rank == 1 ? "stopped" : "since");
            expect_line(command.err, line);
        }
    }
}

TEST(test_interrupt)
{
    /* In the last, two workers have ended before the signal. */
    static const char *const rows[] = {"", "comm.bound=2", "eval.every=6",
                                       "run.steps=40 eval.final=yes checkpoint.save=b.safetensors"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct started started;
        struct command command;
        char line[512];
        pid_t ranks[4];
        snprintf(line, sizeof line,
                 "comm.name=ps_async model.name=tiny_dense data.samples=640 eval.every=0 " STRAGGLER
                 "%s",
                 1, rows[i]);
        (strstr(rows[i], "run.steps") ? faults_start : faults_start_long)(&started, line);
        faults_await_ranks(&started, ranks, 4);
        usleep(500000);
        kill(started.pid, SIGINT);
        const double sent_s = now_s();
        command_finish(&started, &command, deadline_s);
        if (command.exit_code != 130)
            fail_msg("%s: exit code %d: %s", rows[i], command.exit_code, command.err);
        assert_string_equal(json_text_at(command.json, "status"), "interrupted");
        assert_true(now_s() - sent_s < 10.0);
    }
}

/* ---- refusals ------------------------------------------------------------------------------ */

TEST(test_refusals)
{
    static const struct {
        const char *settings, *words;
        int exit_code;
    } rows[] = {
        {"run.workers=2", "comm 'ps_async' keeps the model in server processes; give run.servers",
         2},
        {"run.workers=2 run.servers=1 comm.softsync=3", "comm.softsync is more than the workers",
         2},
        {"run.workers=2 run.servers=1 comm.softsync=2 comm.policy=k_batch_async comm.k=2",
         "comm.softsync and comm.policy both", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_sync", "comm.policy needs comm.k", 2},
        {"run.workers=2 run.servers=2 optimizer.clip_norm=1",
         "2 servers that update apart exchange none", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_batch_sync", "comm.policy needs comm.k", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_sync comm.k=3",
         "comm.k is more than the workers", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_batch_sync comm.k=3 comm.bound=0",
         "leave out comm.bound", 2},
        {"run.workers=2 run.servers=1 comm.k=2", "comm.k goes with comm.policy", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_sync comm.k=1 comm.bound=1",
         "leave out comm.bound", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_sync comm.k=1 comm.rate=staleness",
         "leave out comm.rate", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_sync comm.k=1 comm.push_every=2",
         "leave out comm.push_every and comm.fetch_every", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_async comm.k=2 comm.bound=1",
         "leave out comm.bound", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_async comm.k=2 comm.fetch_every=2",
         "leave out comm.push_every and comm.fetch_every", 2},
        {"run.workers=2 run.servers=1 comm.policy=k_async comm.k=3",
         "comm.k is more than the workers", 2},
        {"run.workers=2 run.servers=1 comm.fetch_every=2 comm.bound=1",
         "servers do not see each step; leave out comm.bound", 2},
        {"run.workers=2 run.servers=1 comm.log=/no_such/log", "cannot write /no_such/log.2", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench(&command, deadline_s, ASYNC "%s", rows[i].settings);
        assert_int_equal(command.exit_code, rows[i].exit_code);
        EXPECT_WORDS(rows[i].settings, command.err, rows[i].words);
    }
}

/* /dev/full stands for a full disk. */
TEST(test_full_log)
{
    struct command command;
    assert_int_equal(symlink("/dev/full", "full.2"), 0);
    dpbench_ends(&command, deadline_s, 1, ASYNC "run.workers=2 run.servers=1 comm.log=full");
    EXPECT_WORDS("full log", faults_only_error("full log", &command),
                 "comm.log = full: ", "full.2; is the disk full?");
}

static int setup(void **state)
{
    return training_setup(state) || faults_setup(state);
}

static int teardown(void **state)
{
    return sandbox_teardown(state) || training_teardown(state);
}

int main(void)
{
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
        add_case(test_keeps, &worlds[i], "%u workers, %u servers %s keep the contract",
                 worlds[i].workers, worlds[i].servers, worlds[i].settings);
    return test_main(setup, teardown);
}
