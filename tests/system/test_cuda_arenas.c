/* needs: cuda stand-in */
/*
 * test_cuda_arenas.c - trainings whose weights, gradients and optimizer state are in a GPU's
 * memory: the same as on the reference, whatever the optimizer and the way of the gradients; saved,
 * continued and evaluated; and what is said where a model is too large. On a CUDA for tests, or on
 * a GPU (lib/stand_in.h).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/sandbox.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/training.h"

#define CUDA "device.name=cuda device.tuning=no run.precision=fp32 "
#define CPU "device.name=reference run.precision=fp32 "
#define RUN "model.name=tiny run.batch=4 comm.name=independent data.test_samples=10 "

#define GPT                                                                       \
    "model.name=gpt model.layers=1 model.heads=2 model.width=32 model.context=9 " \
    "model.nclass=11 "

struct form {
    const char *name, *settings, *own; /* of the cuda device alone */
};

static const struct form forms[] = {
    {"plain", "run.steps=3", ""},
    {"momentum", "run.steps=4 optimizer.momentum=0.9 optimizer.weight_decay=0.01", ""},
    {"nesterov, small buckets",
     "run.steps=4 optimizer.momentum=0.9 optimizer.nesterov=yes optimizer.weight_decay=0.01 "
     "comm.bucket=100",
     ""},
    {"adagrad",
     "run.steps=4 optimizer.name=adagrad optimizer.learning_rate=0.01 optimizer.weight_decay=0.01",
     ""},
    {"micro-batches", "run.steps=3 run.accumulate=3 optimizer.momentum=0.9", ""},
    {"bf16 gradients", "run.steps=3 comm.gradient=bf16 optimizer.momentum=0.9", ""},
    {"fp16 gradients", "run.steps=3 comm.gradient=fp16 optimizer.momentum=0.9", ""},
    {"bf16 gradients of micro-batches, step by step",
     "run.steps=3 comm.gradient=bf16 run.accumulate=2", "device.graphs=no"},
    {"tokens, whose ids go up while backward reads those before",
     GPT "run.steps=5 optimizer.momentum=0.9 optimizer.weight_decay=0.01", ""},
    {"tokens of a pool, nothing tied", GPT "run.steps=5 model.tied=no", "data.place=device"},
};

static void test_same_training(void **state)
{
    const struct form *form = *state;
    struct training start, cpu, cuda;
    /* bf16 rounds differently what differs in the last bit. */
    double bound = strstr(form->settings, "bf16") ? 1e-2 : 1e-4;
    use_stand_in(false);
    train(&start, CPU RUN "%s run.steps=1 optimizer.learning_rate=0", form->settings);
    train(&cpu, CPU RUN "eval.final=yes %s", form->settings);
    use_stand_in(true);
    train(&cuda, CUDA RUN "eval.final=yes %s %s", form->settings, form->own);
    expect_same_weights(&cuda, &cpu, &start, bound);
    double loss = json_number_at(cuda.command.json, "eval.0.loss");
    double wanted = json_number_at(cpu.command.json, "eval.0.loss");
    if (!(fabs(loss - wanted) <= bound * fabs(wanted)))
        fail_msg("the evaluation's loss is %.9g, not %.9g", loss, wanted);
    training_free(&start);
    training_free(&cpu);
    training_free(&cuda);
}

/* ---- checkpoints --------------------------------------------------------------------------- */

static void run(struct command *command, int exit_code, const char *settings)
{
    dpbench(
        command, 60.0,
        "-c empty.ini --json run.results=results run.steady_limit_s=0 run.warmup_steps=0 "
        "data.name=synthetic data.samples=40 device.threads=1 optimizer.learning_rate=0.1 " CUDA RUN
        "%s",
        settings);
    if (command->exit_code != exit_code)
        fail_msg("%s: exit code %d, not %d: %s", settings, command->exit_code, exit_code,
                 command->err);
}

/* Weights and the optimizer's state, out of the device's memory and into it again, bit for bit. */
TEST(test_continued)
{
    static const char momentum[] = "optimizer.momentum=0.9 optimizer.weight_decay=0.01 ";
    struct command command;
    struct weights whole, part;
    char settings[256];
    use_stand_in(true);
    snprintf(settings, sizeof settings,
             "%s run.steps=6 checkpoint.save=whole.safetensors checkpoint.at=3", momentum);
    run(&command, 0, settings);
    command_free(&command);
    snprintf(settings, sizeof settings,
             "%s run.steps=3 checkpoint.load=whole-step3.safetensors "
             "checkpoint.save=part.safetensors",
             momentum);
    run(&command, 0, settings);
    command_free(&command);
    weights_read(&whole, "whole.safetensors", true);
    weights_read(&part, "part.safetensors", true);
    assert_int_equal(whole.n_tensors, part.n_tensors);
    for (size_t i = 0; i < whole.n_tensors; i++)
        assert_memory_equal(whole.tensors[i].values, part.tensors[i].values,
                            whole.tensors[i].n_elements * sizeof(float));
    weights_free(&whole);
    weights_free(&part);
}

/* ---- running ahead ------------------------------------------------------------------------- */

/* How often a graph was launched right behind another, with neither a wait nor a look between. */
static int count_pairs(const char *trace)
{
    char line[64], last[64] = "";
    int n = 0;
    FILE *file = fopen(trace, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        n += strcmp(line, "cudaGraphLaunch\n") == 0 && strcmp(line, last) == 0;
        snprintf(last, sizeof last, "%s", line);
    }
    fclose(file);
    return n;
}

static void run_traced(struct command *command, const char *settings)
{
    use_stand_in(true);
    setenv("DPB_STAND_IN_TRACE", "trace", 1);
    run(command, 0, settings);
    unsetenv("DPB_STAND_IN_TRACE");
}

/* `dpbench check` on the cuda device: what a sample moves, and all of a batch. */
static double bytes_moved(const char *settings, double *mb_a_sample)
{
    char arguments[512];
    struct command command;
    double bytes = 0;
    snprintf(arguments, sizeof arguments,
             "-c empty.ini device.name=cuda data.name=synthetic run.steps=1 %s", settings);
    dpbench_ends(&command, 60.0, 0, "check %s", arguments);
    const char *line = strstr(command.out, "  moved: ");
    const char *all = line ? strstr(line, "backward; ") : NULL;
    if (!all || sscanf(line, "  moved: %lf MB", mb_a_sample) != 1 ||
        sscanf(all, "backward; %lf bytes", &bytes) != 1)
        fail_msg("%s", command.out);
    command_free(&command);
    return bytes;
}

/* What is planned without a GPU is what a run counts. */
static void expect_planned(const struct command *command, const char *settings)
{
    double mb;
    const double bytes = bytes_moved(settings, &mb);
    assert_true(bytes == 4 * expect_number(command, "profile.bytes_per_sample"));
}

/* Bounds that the plan of ResNet-50 keeps, in bf16: a pass over a large tensor too many breaks
 * them. */
TEST(test_bytes_moved)
{
    double mb;
    use_stand_in(true);
    bytes_moved("model.name=resnet50 run.batch=256 run.precision=bf16 comm.name=independent "
                "run.results= run.memory=warn",
                &mb);
    print_message("%.1f MB a sample\n", mb);
    assert_true(mb > 331 && mb < 332);
}

/* `dpbench check` refuses, without a GPU, an option that no GPU takes. */
TEST(test_checked_options)
{
    use_stand_in(true);
    dpbench_says(60.0, 2, WORDS("device.ids = '0,x' is no list of numbers"),
                 "check -c empty.ini device.name=cuda data.name=synthetic run.steps=1 "
                 "model.name=tiny run.results= comm.name=independent device.ids=0,x");
}

/* The account has the timed steps and no others, though the host does not wait for the last of the
 * warm-up; nor is anything captured for it. Evaluations come behind it. */
TEST(test_profile)
{
    static const char *const ways[] = {
        "comm.name=independent", "comm.name=shm run.precision=bf16",
        "comm.name=independent model.name=tiny_bn data.place=device"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct command command;
        char settings[256];
        const json_t *row;
        size_t k;
        snprintf(settings, sizeof settings,
                 "run.profile=yes run.warmup_steps=2 run.steps=3 eval.final=yes %s", ways[i]);
        run_traced(&command, settings);
        const json_t *rows = json_at(command.json, "profile.rows");
        assert_true(json_array_size(rows) > 8);
        json_array_foreach(rows, k, row) assert_true(json_number_at(row, "calls") == 3);
        assert_non_null(strstr(json_text_at(command.json, "profile.how"), "no CUDA graph"));
        assert_true(json_number_at(command.json, "profile.limits.copy_bytes_per_s") > 0);
        if (!on_gpu())
            assert_int_equal(stand_in_count("trace", "cudaGraphLaunch"), 0);
        snprintf(settings, sizeof settings, RUN "run.results= %s%s", ways[i],
                 strstr(ways[i], "bf16") ? "" : " run.precision=fp32");
        expect_planned(&command, settings);
        command_free(&command);
    }
}

/* The next forward is enqueued behind a backward that nobody has waited for, in every step but the
 * first, which is not captured, and the last; with arenas on the host in none. */
CASE(test_runs_ahead)
{
    struct command command;
    run_traced(&command, "run.steps=6");
    command_free(&command);
    assert_int_equal(count_pairs("trace"), 4);
    run_traced(&command, "run.steps=6 comm.name=shm");
    command_free(&command);
    assert_int_equal(count_pairs("trace"), 0);
}

/* All parts of the device's time are the step, evaluations between steps or not. */
TEST(test_times)
{
    static const char *const parts[] = {"data_wait", "forward",   "delay",
                                        "backward",  "optimizer", "comm_exposed"};
    struct command command;
    use_stand_in(true);
    run(&command, 0, "run.steps=7 run.accumulate=2 run.batch=2 eval.every=3");
    const json_t *steps = json_at(command.json, "timing.step_ns");
    double mean = 0.0, sum = 0.0;
    assert_int_equal(json_array_size(steps), 7);
    for (size_t i = 0; i < 7; i++)
        mean += json_number_value(json_array_get(steps, i)) / 7;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char path[64];
        snprintf(path, sizeof path, "timing.breakdown_ns.%s", parts[i]);
        double part = json_number_at(command.json, path);
        if (strcmp(parts[i], "comm_exposed") == 0 || strcmp(parts[i], "delay") == 0)
            assert_true(part == 0.0); /* all work is updates, and no delay was asked for */
        else
            assert_true(part > 0.0);
        sum += part;
    }
    assert_true(fabs(sum - mean) <= 1e-9 * mean);
    assert_string_equal(json_text_at(command.json, "timing.clock"), "device");
    command_free(&command);
    run(&command, 0, "run.steps=2 comm.name=shm");
    assert_string_equal(json_text_at(command.json, "timing.clock"), "host");
    command_free(&command);
}

/* ---- what is said -------------------------------------------------------------------------- */

static void expect_failure(const char *settings, const char *words)
{
    struct command command;
    run(&command, 1, settings);
    if (!strstr(command.err, words))
        fail_msg("%s: no '%s' in: %s", settings, words, command.err);
    command_free(&command);
}

CASE(test_too_large)
{
    use_stand_in(true);
    setenv("DPB_STAND_IN_MB", "1", 1);
    expect_failure("run.steps=1 model.name=lenet",
                   "device cuda: weights take 6 MB of device memory");
    unsetenv("DPB_STAND_IN_MB");
}

static int setup(void **state)
{
    int result = sandbox_setup(state);
    sandbox_write("empty.ini", "%s", "");
    return result == 0 ? training_setup(state) : result;
}

static int teardown(void **state)
{
    int result = training_teardown(state);
    return sandbox_teardown(state) || result;
}

int main(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        add_case(test_same_training, &forms[i], "as the reference: %s", forms[i].name);
    if (!on_gpu())
        add_case(test_runs_ahead, NULL, "the host runs ahead");
    if (!on_gpu())
        add_case(test_too_large, NULL, "too large a model");
    return test_main(setup, teardown);
}
