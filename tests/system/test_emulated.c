/*
 * test_emulated.c - device `emulated`, model `profile` and run.dilation: a step lasts as long as
 * the profile says and never less; what each option adds to it; what a result, a table and a
 * comparison say of it; what is refused. That a late emulation is called late is shown by one that
 * cannot be in time. All bounds from above are against a control in the same run, or leave room for
 * a machine that others use.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60;
enum { FORWARD_MS = 4, BACKWARD_MS = 8, ELEMENTS = 200016, BYTES = 4 * ELEMENTS };

static void write_profile(const char *file, const char *kind, double spread)
{
    sandbox_write(file,
                  "{\"schema\": \"dpbench.profile/1\", \"accelerator\": \"X1\", \"model\": \"m\", "
                  "\"precision\": \"fp32\", \"kind\": \"%s\", \"source\": \"a test\", "
                  "\"batch\": 8, \"macs_per_sample\": 1000, \"forward_ns\": %d000000, "
                  "\"backward_ns\": %d000000, \"spread\": %g, "
                  "\"update_elements_per_s\": 4e7, \"tensors\": [\n"
                  "{\"name\": \"c\", \"elements\": 100000, \"ready_ns\": 2000000},\n"
                  "{\"name\": \"b\", \"elements\": 100000, \"ready_ns\": 5000000},\n"
                  "{\"name\": \"a\", \"elements\": 16, \"ready_ns\": 8000000}]}\n",
                  kind, FORWARD_MS, BACKWARD_MS, spread);
}

static int setup(void **state)
{
    if (sandbox_setup(state) != 0)
        return -1;
    write_profile("x1.json", "estimated", 0);
    write_profile("published.json", "published", 0);
    write_profile("spread.json", "estimated", 0.2);
    return 0;
}

#define EMULATED                                                                 \
    " --json run.results= run.steady_limit_s=0 run.warmup_steps=2 run.steps=15 " \
    "model.name=profile device.name=emulated "
#define ON_X1 "-c /dev/null model.file=x1.json" EMULATED

static double step_ms(const struct command *command)
{
    return expect_number(command, "timing.elapsed_ns") / expect_number(command, "timing.steps") /
           1e6;
}

/* A part of the step, in ms. */
static double part_ms(const struct command *command, const char *part)
{
    char path[64];
    snprintf(path, sizeof path, "timing.breakdown_ns.%s", part);
    return expect_number(command, path) / 1e6;
}

/* The times that a run sleeps, and no loss. */
TEST(test_step)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0, ON_X1);
    assert_true(step_ms(&command) >= FORWARD_MS + BACKWARD_MS);
    assert_true(part_ms(&command, "forward") >= FORWARD_MS);
    assert_true(part_ms(&command, "backward") >= BACKWARD_MS - 0.1);
    assert_int_equal(json_array_size(json_at(command.json, "loss")), 0);
    assert_int_equal(expect_number(&command, "batch.per_worker"), 8);
    assert_string_equal(json_text_at(command.json, "emulated.accelerator"), "X1");
    assert_string_equal(json_text_at(command.json, "emulated.kind"), "estimated");
    assert_string_equal(json_text_at(command.json, "emulated.source"), "a test");
    assert_string_equal(json_text_at(command.json, "config.data.place.value"), "device");
    assert_string_equal(json_text_at(command.json, "config.device.profile.value"), "x1.json");
    assert_string_equal(json_text_at(command.json, "config.device.profile.origin"), "model.file");
    const double ready[] = {100000, 200000, ELEMENTS};
    const json_t *elements = json_at(command.json, "timing.ready.elements");
    assert_int_equal(json_array_size(elements), 3);
    for (size_t i = 0; i < 3; i++) /* with the gaps of the arena */
        assert_true(json_number_value(json_array_get(elements, i)) >= ready[i]);
    assert_true(json_number_at(command.json, "timing.ready.ns.0") >= (FORWARD_MS + 2) * 1e6);
}

/* A training whose weights are right, by strategies that differ; the whole proof. */
TEST(test_verified)
{
    static const char *const strategies[] = {
        "comm.name=ring_tcp run.workers=2", "comm.name=ps_cpu run.workers=2 run.servers=1",
        "comm.name=shm run.workers=2 comm.late=1",
        "comm.name=ring_tcp run.workers=2 comm.codec=topk",
        "comm.name=shm run.workers=2 run.precision=bf16 device.profile=bf16.json"};
    write_profile("x1.json", "estimated", 0);
    FILE *file = popen("sed s/fp32/bf16/ x1.json >bf16.json", "r");
    assert_non_null(file);
    assert_int_equal(pclose(file), 0);
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0, ON_X1 "run.prove=yes %s", strategies[i]);
        assert_string_equal(json_text_at(command.json, "verification.exchange"), "pass");
        const char *steps = json_text_at(command.json, "verification.steps");
        if (strcmp(steps, "pass") != 0)
            fail_msg("%s: steps: %s", strategies[i], steps);
    }
}

/* What each option adds, from below; each run's own breakdown says where. */
TEST(test_options)
{
    struct command command;
    /* 0.8 MB over 80 MB/s: 10 ms down behind the last layer, and up again. */
    dpbench_ends(&command, deadline_s, 0, ON_X1 "comm.name=shm device.host_link=80MB/s");
    assert_true(part_ms(&command, "forward") >= FORWARD_MS + 9.9);
    assert_true(part_ms(&command, "backward") >= 2 + 9.9);
    dpbench_ends(&command, deadline_s, 0,
                 ON_X1 "comm.name=shm device.host_link=160MB/s "
                       "device.host_link_workers=2");
    assert_true(part_ms(&command, "forward") >= FORWARD_MS + 9.9);
    /* A ring of 4 passes 1.5 times the bytes: 12 ms. */
    dpbench_ends(&command, deadline_s, 0,
                 ON_X1 "device.inside=4 device.inside_link=100MB/s run.batch=32");
    assert_true(part_ms(&command, "backward") >= 2 + 11.9);
    dpbench_ends(&command, deadline_s, 0, ON_X1 "device.overlap_slowdown=3");
    assert_true(part_ms(&command, "backward") >= 2 + 3 * 6 - 0.1);
    /* 200,016 elements at 4e7 a second: 5 ms. */
    dpbench_ends(&command, deadline_s, 0, ON_X1 "device.update=accelerator");
    assert_true(part_ms(&command, "optimizer") >= 4.9);
    dpbench_ends(&command, deadline_s, 0, ON_X1 "device.profile=spread.json");
    assert_true(expect_number(&command, "timing.samples_per_s.jitter") >
                0.02 * expect_number(&command, "timing.samples_per_s.median"));
}

/* Four times as long by the clock, and the same by the result; delays, too. */
TEST(test_dilation)
{
    struct command plain, dilated;
    dpbench_ends(&plain, deadline_s, 0, ON_X1 "run.delay=constant(3ms)");
    dpbench_ends(&dilated, deadline_s, 0, ON_X1 "run.delay=constant(3ms) run.dilation=4");
    const double least_ms = FORWARD_MS + BACKWARD_MS + 3;
    assert_true(dilated.seconds >= 4 * 17 * least_ms / 1e3);
    assert_true(step_ms(&dilated) >= least_ms);
    /* What the machine adds is divided, too. */
    assert_true(step_ms(&dilated) - least_ms < 2 + 2 * (step_ms(&plain) - least_ms));
    assert_true(part_ms(&dilated, "delay") >= 3);
    assert_true(expect_number(&dilated, "emulated.dilation") == 4);
    double sum = 0;
    const char *const parts[] = {"data_wait", "forward",   "delay",
                                 "backward",  "optimizer", "comm_exposed"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += part_ms(&dilated, parts[i]);
    assert_true(fabs(sum - step_ms(&dilated)) < 1e-3);
}

/* More work for the host than it has cores. */
TEST(test_late)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0, ON_X1 "run.workers=2 device.host_cores=8");
    assert_true(json_is_true(json_at(command.json, "emulated.late")));
    assert_true(expect_number(&command, "emulated.run_delay_share") > 0.01);
    assert_true(expect_number(&command, "emulated.dilation_needed") > 1);
    char *warnings = json_dumps(json_at(command.json, "warnings"), 0);
    EXPECT_WORDS("late", warnings, "emulation late", "run.dilation");
    free(warnings);
}

/* A batch of 16 by one worker or two: of two profiles. Alone a worker copies nothing to the
 * host. */
TEST(test_speedup)
{
    struct command command;
    FILE *file = popen("sed 's/\"batch\": 8/\"batch\": 16/' x1.json >x16.json", "r");
    assert_non_null(file);
    assert_int_equal(pclose(file), 0);
    sandbox_write("shared.ini",
                  "[sweep]\ncomm.name = independent, shm\nmodel.file = x1.json, x16.json\n"
                  "run.workers = 1, 2\nrepeats = 1\nretry_disturbed = 0\n"
                  "when = comm.name = independent and run.workers = 1 and model.file = x16.json "
                  "or comm.name = shm and run.workers = 2 and model.file = x1.json\n");
    dpbench_ends(&command, deadline_s, 0,
                 "-c shared.ini" EMULATED "run.global_batch=16 device.host_link=80MB/s");
    const json_t *rows = json_at(command.json, "rows");
    assert_int_equal(json_array_size(rows), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *row = json_array_get(rows, i);
        assert_string_equal(json_text_at(row, "speedup_over"), "independent, 1 worker");
        if (strcmp(json_text_at(row, "strategy"), "shm") == 0)
            assert_true(json_number_at(row, "speedup") < 0.7); /* 12 ms, and 20 for copies */
    }
}

/* A row says what it emulates; rates of different kinds allow no conclusion together. */
TEST(test_conclusions)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "-c /dev/null run.results= run.steady_limit_s=0 run.warmup_steps=2 run.steps=15 "
                 "model.name=profile model.file=x1.json device.name=emulated "
                 "sweep.run.workers=1,2 comm.name=shm sweep.repeats=1 "
                 "sweep.retry_disturbed=0 --output sweep.json");
    EXPECT_WORDS("table", command.out, "emulated", "X1, estimated",
                 "EMULATED, and no measurement of the accelerator", "a test");
    dpbench_ends(&command, deadline_s, 0, ON_X1 "--output estimated.json");
    dpbench_ends(&command, deadline_s, 0,
                 ON_X1 "device.profile=published.json --output published_run.json");
    dpbench_ends(&command, deadline_s, 0,
                 "-c /dev/null --json run.results= run.steady_limit_s=0 run.steps=15 "
                 "model.name=tiny run.batch=8 device.name=reference --output real.json");
    dpbench_ends(&command, deadline_s, 0, "compare estimated.json published_run.json");
    EXPECT_WORDS("kinds", command.out, "no conclusion", "profiles of different kinds");
    dpbench_ends(&command, deadline_s, 0, "compare estimated.json real.json");
    EXPECT_WORDS("real", command.out, "no conclusion", "one is emulated");
}

TEST(test_conform)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "conform %s/plugins/device_emulated.so model.name=profile model.file=x1.json "
                 "device.profile=x1.json",
                 build_directory());
    EXPECT_WORDS("conform", command.out, "1 shown, 0 refused, 0 failed");
    dpbench_ends(&command, deadline_s, 2,
                 "conform %s/plugins/device_emulated.so device.profile=x1.json", build_directory());
}

TEST(test_refused)
{
    static const struct {
        const char *line, *words[4];
    } rows[] = {
        {"eval.every=5", {"eval.every", "learns nothing"}},
        {"eval.final=yes", {"eval.final", "learns nothing"}},
        {"checkpoint.save=c.safetensors", {"checkpoint.save", "learns nothing"}},
        {"run.batch=9", {"a batch of 8", "run.batch=8"}},
        {"run.precision=bf16", {"the profile is of fp32", "run.precision=fp32"}},
        {"model.name=lenet", {"the profile is of model 'm'", "'lenet' differs"}},
        {"model.file=", {"which one? give model.file"}},
        {"model.file=none.json", {"none.json"}},
        {"device.profile=nobody", {"nobody"}},
        {"device.gpu_direct=yes", {"device.update = accelerator"}},
        {"device.name=reference run.batch=8", {"nothing to compute", "device.name = emulated"}},
        {"model.name=tiny device.name=reference run.dilation=2",
         {"run.dilation = 2", "device.name = emulated"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[1024];
        const char *dropped = strstr(rows[i].line, "device.name=reference");
        snprintf(line, sizeof line,
                 "-c /dev/null run.results= run.steady_limit_s=0 run.steps=5 %s %s %s",
                 strstr(rows[i].line, "model.name=") ? "" : "model.name=profile model.file=x1.json",
                 dropped ? "" : "device.name=emulated device.profile=x1.json", rows[i].line);
        dpbench_says(deadline_s, 2, rows[i].words, "%s", line);
    }
    setenv("DPBENCH_DILATION", "4", 1);
    dpbench_says(deadline_s, 2, WORDS("run.dilation = 1", "dilated 4 times"), ON_X1);
    unsetenv("DPBENCH_DILATION");
}

TEST_MAIN(setup, sandbox_teardown)
