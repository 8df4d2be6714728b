/* needs: threads */
/*
 * test_learners.c - several workers in a place: they train as workers in places of their own do,
 * bit for bit, share the cores of the place, and are counted in ranks, batches, memory and tables.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/launchers.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

#define BASE                                                                                \
    "-c empty.ini --json run.results= run.steady_limit_s=0 run.warmup_steps=0 run.batch=2 " \
    "run.steps=3 data.name=synthetic data.samples=96 data.test_samples=6 model.name=tiny "  \
    "device.name=reference run.precision=fp64 "

/* Two places of two learners, and one place of four, are four workers. */
TEST(test_same_bits)
{
    static const char *const strategies[] = {"shm", "sma", "gossip", "ring_tcp",
                                             "ps_cpu run.servers=1"};
    static const char *const worlds[] = {"run.workers=2 run.learners=2 device.threads=2",
                                         "run.learners=4 device.threads=4"};
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct training start, workers, learners;
        train(&start, "model.name=tiny run.steps=1 run.workers=4 optimizer.learning_rate=0");
        train(&workers, "model.name=tiny run.steps=9 run.workers=4 comm.name=%s", strategies[i]);
        for (size_t k = 0; k < sizeof worlds / sizeof *worlds; k++) {
            train(&learners, "model.name=tiny run.steps=9 comm.name=%s %s", strategies[i],
                  worlds[k]);
            expect_same_weights(&workers, &learners, &start, 0);
            expect_same_losses(&workers, &learners, 0);
        }
    }
}

/* run.global_batch is divided among all learners. */
TEST(test_counts)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 BASE "run.workers=2 run.learners=3 run.accumulate=2 comm.name=shm");
    assert_true(json_number_at(command.json, "world.workers") == 6);
    assert_true(json_number_at(command.json, "world.learners") == 3);
    assert_true(json_number_at(command.json, "config.run.workers.value") == 2);
    assert_true(json_number_at(command.json, "batch.per_worker") == 2);
    assert_true(json_number_at(command.json, "batch.global") == 24);
    assert_int_equal(json_array_size(json_at(command.json, "ranks")), 6);
    sandbox_write("global.ini", "[run]\nworkers = 2\nlearners = 3\nglobal_batch = 24\n");
    dpbench_ends(
        &command, deadline_s, 0,
        "-c global.ini --json run.results= run.steady_limit_s=0 run.warmup_steps=0 run.steps=2 "
        "data.name=synthetic data.samples=96 model.name=tiny device.name=reference "
        "comm.name=shm");
    assert_true(json_number_at(command.json, "batch.per_worker") == 4);
}

/* The cores that a rank was bound to, as bits; 0: it was not bound. */
static uint64_t cores_of(const json_t *result, int rank)
{
    char path[32];
    const json_t *core;
    uint64_t bits = 0;
    size_t i;
    snprintf(path, sizeof path, "ranks.%d.cores", rank);
    json_array_foreach(json_at(result, path), i, core)
    {
        assert_in_range(json_integer_value(core), 0, 63);
        bits |= UINT64_C(1) << json_integer_value(core);
    }
    return bits;
}

/* Two learners halve the cores of their place; more learners than cores are oversubscribed. */
TEST(test_cores)
{
    struct command one, two, many;
    dpbench(&one, deadline_s, BASE);
    const int n_cores = (int)json_number_at(one.json, "machine.usable_cores");
    assert_true(n_cores >= 1 && n_cores <= 64);
    assert_true(json_number_at(one.json, "ranks.0.threads") == n_cores);
    dpbench(&many, deadline_s, BASE "run.learners=%d comm.name=shm", n_cores + 1);
    assert_true(json_is_true(json_at(many.json, "world.oversubscribed")));
    assert_int_equal(cores_of(many.json, 0), 0);
    if (n_cores >= 2) {
        dpbench(&two, deadline_s, BASE "run.learners=2 comm.name=shm");
        assert_true(json_is_false(json_at(two.json, "world.oversubscribed")));
        const uint64_t a = cores_of(two.json, 0), b = cores_of(two.json, 1);
        assert_true(a != 0 && b != 0);
        assert_int_equal(a & b, 0);
        assert_int_equal((a | b) & ~cores_of(one.json, 0), 0);
        assert_int_equal(__builtin_popcountll(a), n_cores / 2);
        assert_int_equal(__builtin_popcountll(b), n_cores / 2);
        assert_true(json_number_at(two.json, "ranks.1.threads") == n_cores / 2);
        assert_true(json_number_at(two.json, "ranks.1.place_threads") == n_cores);
    }
}

TEST(test_refusals)
{
    static const struct {
        const char *settings;
        const char *words[4];
    } rows[] = {
        {"run.workers=600 run.learners=2",
         {"run.workers = 600", "each with 2 learners", "are 1200 processes"}},
        {"run.learners=2 device.threads=1",
         {"run.learners = 2 share the 1 cores of a place (device.threads = 1"}},
        {"run.learners=2 device.threads=2 run.comm_cores=1 comm.name=shm",
         {"share the 3 cores of a place", "each needs 2"}},
        {"run.workers=2 run.learners=2 comm.name=ring_tcp comm.hosts=1+3",
         {"workers 0 and 1 share a place, but are on two machines"}},
        {"run.workers=2 run.learners=2 comm.name=ring_tcp comm.hosts=0,1,0,1",
         {"workers 0 and 1 share a place, but are on two machines"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, rows[i].words, BASE "%s", rows[i].settings);
}

/* `dpbench check` takes memory for every learner. */
TEST(test_memory)
{
    static const char check[] = "check -c empty.ini run.steps=1 model.name=lenet comm.name=sma "
                                "data.name=synthetic data.samples=960 %s";
    struct command workers, learners;
    dpbench(&workers, deadline_s, check, "run.workers=4");
    dpbench(&learners, deadline_s, check, "run.workers=2 run.learners=2");
    assert_int_equal(workers.exit_code, 0);
    assert_int_equal(learners.exit_code, 0);
    expect_part(learners.out, "4 workers (2 places x 2 learners), 0 servers;");
    const char *a = strstr(workers.out, "memory: "), *b = strstr(learners.out, "memory: ");
    assert_true(a && b);
    assert_string_equal(a, b);
}

static const json_t *row_of(const json_t *document, const char *strategy, const char *learners)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_at(document, "rows"), i, row)
    {
        if (strcmp(json_text_at(row, "strategy"), strategy) == 0 &&
            strcmp(json_string_value(json_object_get(json_at(row, "cell"), "run.learners")),
                   learners) == 0)
            return row;
    }
    fail_msg("no row of %s with %s learners", strategy, learners);
    return NULL;
}

/* Speedup is over one worker that has the place alone; efficiency is speedup by places. */
TEST(test_sweep)
{
    struct command command;
    sandbox_write("sweep.ini",
                  "[run]\nresults =\nsteady_limit_s = 0\nbatch = 2\nsteps = 3\n[data]\n"
                  "name = synthetic\n[model]\nname = tiny\n[device]\nname = reference\n"
                  "threads = 2\n[sweep]\ncomm.name = independent, shm\nrun.workers = 1, 2\n"
                  "run.learners = 1..2\nwhen = comm.name = shm or run.workers = 1 and "
                  "run.learners = 1\nrepeats = 1\nretry_disturbed = 0\n");
    dpbench_ends(&command, deadline_s, 0, "-c sweep.ini --json --output swept.json");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 5);
    const json_t *one = row_of(command.json, "independent", "1"), *row;
    size_t i;
    json_array_foreach(json_at(command.json, "rows"), i, row)
    {
        const json_t *cell = json_at(row, "cell");
        const double places = atof(json_string_value(json_object_get(cell, "run.workers")));
        const double learners = atof(json_string_value(json_object_get(cell, "run.learners")));
        assert_true(json_number_at(row, "workers") == places * learners);
        assert_true(json_number_at(row, "learners") == learners);
        assert_true(json_number_at(row, "threads") * learners == 2);
        assert_true(json_number_at(row, "place_threads") == 2);
        const double speedup = json_number_at(row, "speedup");
        assert_string_equal(json_text_at(row, "speedup_over"), "independent, 1 worker");
        assert_float_equal(speedup,
                           json_number_at(row, "samples_per_s.median") /
                               json_number_at(one, "samples_per_s.median"),
                           1e-9 * speedup);
        assert_float_equal(json_number_at(row, "efficiency"), speedup / places, 1e-9 * speedup);
    }
    assert_false(strstr(command.err, "cores_differ"));
    dpbench(&command, deadline_s, "report swept.json");
    EXPECT_WORDS("report", command.out, "run.learners = 2:", "1x2", "2x2",
                 "- run.learners 2 / 1: shm, 1 place ", "same cores a place",
                 "- x: places x learners of each.");
}

/* The launcher's ranks, without the servers, make whole places. */
TEST(test_mpirun)
{
    struct command command;
    launched(&command, deadline_s, MPIRUN, 4, BASE "run.learners=2 comm.name=shm");
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
    assert_true(json_number_at(command.json, "config.run.workers.value") == 2);
    assert_string_equal(json_text_at(command.json, "config.run.workers.origin"), "launcher");
    assert_true(json_number_at(command.json, "world.workers") == 4);
    assert_true(json_number_at(command.json, "world.learners") == 2);
    assert_int_equal(json_array_size(json_at(command.json, "ranks")), 4);
    assert_string_equal(json_text_at(command.json, "verification.replicas"), "pass");
    launched(&command, deadline_s, MPIRUN, 3, BASE "run.workers=2 run.learners=2 comm.name=shm");
    assert_int_equal(command.exit_code, 2);
    expect_part(command.err, "run.workers = 2 times run.learners = 2 and run.servers = 0 make 4 "
                             "ranks, but mpirun has started 3");
}

static int setup(void **state)
{
    launchers_allow_root();
    if (sandbox_setup(state) != 0 || training_setup(state) != 0)
        return 1;
    sandbox_write("empty.ini", "[run]\n");
    return 0;
}

static int teardown(void **state)
{
    const int failed = sandbox_teardown(state);
    return training_teardown(state) || failed;
}

TEST_MAIN(setup, teardown)
