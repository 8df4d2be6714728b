/* needs: cpu plain */
/*
 * test_memory_plan.c - the memory that `check` plans for a run is what its processes take, and a
 * run that does not fit is refused before the system ends a process for it. In control groups.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/datasets.h"
#include "lib/faults.h"
#include "lib/memory_group.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60.0;

/* "  memory: 1.0 MiB a worker, 2.0 MiB a server, 9.0 MiB in all" */
static double planned_mib(const struct command *check)
{
    const char *at = strstr(check->out, "  memory: "), *all = at ? strstr(at, " MiB in all") : NULL;
    if (!all)
        fail_msg("%s%s", check->out, check->err);
    while (all[-1] != ' ')
        all--;
    return strtod(all, NULL);
}

/* What runs take, as `check` says it, and what their groups had. */
TEST(test_plan_and_peak)
{
    static const char *const runs[] = {
        "device.name=reference model.name=tiny comm.name=shm run.workers=4",
        "model.name=tiny comm.name=replicated run.workers=3",
        "model.name=resnet20 comm.name=shm run.workers=2",
        "model.name=resnet20 comm.name=ring_tcp run.workers=2 run.batch=32",
        "model.name=alexnet_cifar10 comm.name=ps_cpu run.workers=2 run.servers=1",
        "model.name=alexnet_cifar10 comm.name=local_sgd run.workers=2",
        "model.name=mlp comm.name=shm run.workers=2 comm.gradient=bf16 optimizer.momentum=0",
        "model.name=vit model.image=32 model.width=384 run.batch=1 comm.name=shm run.workers=2 "
        "comm.shard=gradients comm.gradient=bf16 comm.bucket=256KiB optimizer.momentum=0",
        "model.name=vit model.image=32 model.width=384 run.batch=1 comm.name=shm run.workers=2 "
        "comm.shard=gradients run.accumulate=2 comm.bucket=256KiB optimizer.momentum=0",
        "model.name=lenet data.name=idx data.path=large comm.name=shm run.workers=2"};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct command command;
        char arguments[512];
        snprintf(arguments, sizeof arguments, "-c plan.ini %s %s",
                 strstr(runs[i], "idx") ? "" : "data.samples=512 data.test_samples=64", runs[i]);
        dpbench(&command, deadline_s, "check %s", arguments);
        const double plan = planned_mib(&command);
        if (!run_in_group(&command, 0, arguments))
            skip();
        const char *had = strstr(command.err, "peak ");
        if (command.exit_code != 0)
            fail_msg("%s: exit %d: %s", runs[i], command.exit_code, command.err);
        if (!had)
            skip();
        const double peak = strtod(had + strlen("peak "), NULL) / 1048576;
        print_message("%.1f MiB planned, %.1f MiB taken: %s\n", plan, peak, runs[i]);
        if (peak > 1.05 * plan || plan > 1.5 * peak + 32)
            fail_msg("%s: %.1f MiB planned, %.1f MiB taken", runs[i], plan, peak);
    }
}

#define ADAM "-c plan.ini model.name=mlp data.samples=64 optimizer.name=adam "

/* A checkpoint's optimizer state is in memory as a whole: of rank 0, which collects it to write it,
 * and of each rank that reads it, before the device takes its own memory. */
TEST(test_plan_of_a_checkpoint)
{
    static const double state_mib = 2 * 4 * 20922378.0 / (1 << 20);
    static const char *const more[] = {
        "", "checkpoint.save=a.safetensors", "checkpoint.load=a.safetensors",
        "checkpoint.place=peer checkpoint.every=1 run.restart=1 run.steps=1 run.steady_limit_s=0"};
    double planned[4];
    struct command command;
    dpbench_ends(&command, deadline_s, 0, ADAM "run.steps=1 run.warmup_steps=0 %s", more[1]);
    for (int i = 0; i < 4; i++) {
        dpbench(&command, deadline_s, "check " ADAM "%s", more[i]);
        planned[i] = planned_mib(&command);
    }
    assert_true(fabs(planned[1] - planned[0] - state_mib) < 1);
    /* Two files, each of weights and state, that the launcher keeps; and a rank reads one. */
    assert_true(fabs(planned[3] - planned[1] - 2 * 1.5 * state_mib - planned[2] + planned[0]) < 1);
    assert_true(planned[2] > planned[0] + 0.9 * state_mib && planned[2] < planned[1] + 1);
    /* The launcher of another rank gets a copy. */
    struct started started;
    dpbench_start(&started, WORDS("RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a"),
                  "check " ADAM "run.workers=2 %s", more[3]);
    command_finish(&started, &command, deadline_s);
    const double by_ranks = planned_mib(&command);
    dpbench(&command, deadline_s, "check " ADAM "run.workers=2 %s", more[3]);
    assert_true(fabs(by_ranks - planned_mib(&command) - 1.5 * state_mib) < 1);
}

/* Refused by name, before the system has to end anything. */
TEST(test_refused_in_groups)
{
    static const struct {
        unsigned limit_mib;
        const char *arguments, *word;
    } rows[] = {
        {300, "run.workers=4 model.name=lenet data.name=idx data.path=large", "this run needs "},
        {60, "run.workers=4 model.name=resnet20 data.samples=2000", " MiB"},
        {40, "model.name=lenet data.name=idx data.path=large", "data 'idx' take more than "},
        {400, "run.workers=1001 run.batch=1 data.samples=2000 model.name=tiny", "this run needs "}};
    for (size_t i = 0; i < 2 * sizeof rows / sizeof *rows; i++) {
        struct command command;
        char arguments[512];
        snprintf(arguments, sizeof arguments, "%s -c plan.ini %s", i % 2 ? "check" : "",
                 rows[i / 2].arguments);
        if (!run_in_group(&command, rows[i / 2].limit_mib, arguments))
            skip();
        if (command.exit_code != 2)
            fail_msg("%s: exit %d: %s", arguments, command.exit_code, command.err);
        EXPECT_WORDS(arguments, faults_only_error(arguments, &command), rows[i / 2].word,
                     "run.memory = warn");
    }
}

/* The launcher and servers hold no data, so a worker may take what they leave. */
TEST(test_data_of_one_worker)
{
    struct command command;
    if (!run_in_group(&command, 70,
                      "-c plan.ini device.name=reference model.name=tiny data.name=idx "
                      "data.path=large"))
        skip();
    if (command.exit_code != 0)
        fail_msg("exit %d: %s", command.exit_code, command.err);
}

/* A process takes its memory by the end of its second step. */
static int set_up(void **state)
{
    const int result = faults_setup(state);
    sandbox_write("plan.ini", "[run]\nresults =\nbatch = 8\nsteps = 1\nwarmup_steps = 1\n"
                              "steady_limit_s = 0\n[device]\nthreads = 1\n[eval]\nevery = 0\n");
    dataset_idx("large", 60000, 64, 28); /* of 28 x 28 bytes: 45 MiB */
    return result;
}

TEST_MAIN(set_up, sandbox_teardown)
