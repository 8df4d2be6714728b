/*
 * test_too_large.c - a run that needs more memory than there is: refused by name before it takes
 * any, or warned about and, where the system ends it for that, told so.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/datasets.h"
#include "lib/faults.h"
#include "lib/memory_group.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

static const double deadline_s = 60.0;

/* Terabytes of activations; a sample of the data is one of two. */
#define HUGE_RUN                                                                          \
    "model.name=resnet50 run.batch=8192 data.samples=20000 data.distinct=2 eval.every=0 " \
    "comm.name=shm run.workers=2 "

TEST(test_refused)
{
    static const char *const commands[] = {"", "check "};
    for (size_t i = 0; i < 2; i++) {
        struct command command;
        struct traces before;
        traces_take(&before, ".");
        dpbench(&command, deadline_s, "%s-c base.ini " HUGE_RUN, commands[i]);
        if (command.exit_code != 2 || command.seconds > 20)
            fail_msg("exit %d after %.1f s: %s", command.exit_code, command.seconds, command.err);
        EXPECT_WORDS(commands[i], faults_only_error(commands[i], &command), "this run needs ",
                     " a worker, and ", " MiB: take", "run.batch", "run.memory = warn");
        traces_expect_none(&before, "refused", 0.5);
    }
}

TEST(test_warned)
{
    dpbench_says(deadline_s, 0, WORDS("warning: this run needs "),
                 "check -c base.ini " HUGE_RUN "run.memory=warn");
}

/* Data that a source keeps, its helper threads' batches and the processes themselves are in the
 * plan. */
TEST(test_data_and_processes_count)
{
    static const char *const settings[] = {
        "data.name=synthetic model.name=tiny", "data.name=idx data.path=big model.name=tiny",
        "data.name=synthetic model.name=tiny data.threads=64 run.batch=1000 data.samples=9000"};
    double mib[3];
    sandbox_write("plain.ini", "[run]\nresults =\nworkers = 2\nbatch = 2\nsteps = 2\n"
                               "[device]\nname = reference\nthreads = 1\n");
    dataset_idx("big", 20000, 8, 28); /* of 28 x 28 bytes: 15 MiB */
    for (size_t i = 0; i < 3; i++) {
        struct command command;
        dpbench(&command, deadline_s, "check -c plain.ini %s", settings[i]);
        const char *said = strstr(command.out, "  memory: ");
        if (said == NULL)
            fail_msg("%s: %s%s", settings[i], command.out, command.err);
        mib[i] = strtod(strstr(said, " a worker, ") + strlen(" a worker, "), NULL) / 2;
    }
    assert_true(mib[0] > 9); /* 3 processes of 6 */
    if (mib[1] - mib[0] < 14 || mib[1] - mib[0] > 17)
        fail_msg("%.1f MiB with 15 MiB of data, %.1f MiB without", mib[1], mib[0]);
    assert_true(mib[2] - mib[0] > 64 * 1000 * 81 / 1048576.);
}

/* ---- in a control group -------------------------------------------------------------------- */

#define LARGE_MODEL                                                                 \
    "-c base.ini --json model.name=alexnet_cifar10 data.samples=1024 eval.every=0 " \
    "run.workers=1 run.steps=3 "
#define LARGE_RUN LARGE_MODEL "run.batch=512 "

/* A small run fits, a sanitizer's memory besides. */
enum { GROUP_MIB = SANITIZED ? 192 : 128 };

/* The limit is what counts, not the machine; without the check the system ends the worker. */
TEST(test_control_group)
{
    struct command command;
    if (!run_in_group(&command, GROUP_MIB, LARGE_RUN))
        skip();
    if (command.exit_code != 2)
        fail_msg("exit %d: %s", command.exit_code, command.err);
    EXPECT_WORDS("group", faults_only_error("group", &command),
                 SANITIZED ? "its control group may have 192.0 MiB"
                           : "its control group may have 128.0 MiB");

    assert_true(run_in_group(&command, GROUP_MIB, LARGE_RUN "run.memory=warn"));
    if (command.exit_code != 1)
        fail_msg("exit %d: %s", command.exit_code, command.err);
    EXPECT_WORDS("killed", faults_only_error("killed", &command), "rank 0 (",
                 "was killed by signal 9 (Killed) in phase ",
                 "memory ran out: the system ended processes");
    faults_expect_failed("killed", &command);

    /* To a search it is the end of a direction. */
    assert_true(run_in_group(&command, GROUP_MIB,
                             LARGE_MODEL "run.memory=warn tune.run.batch=8,512,1024 "
                                         "tune.retry_disturbed=0"));
    if (command.exit_code != 0)
        fail_msg("exit %d: %s", command.exit_code, command.err);
    assert_string_equal(json_text_at(command.json, "runs.1.failure"), "NO_MEMORY");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 2);
}

TEST_MAIN(faults_setup, sandbox_teardown)
