/*
 * cli.h - for tests of what dpbench says: a configuration of a short run, and dpbench held to its
 * exit code.
 */
#ifndef DPB_TESTS_LIB_CLI_H
#define DPB_TESTS_LIB_CLI_H

#include <stdio.h>
#include <stdlib.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60.0;

#define RUN "-c base.ini "
/* For runs that last: others have the processor most of the time. */
#define LAZY "run.delay=constant(2ms) "

/* The sandbox with base.ini in it; the tests' plugins are not looked for. */
static inline int set_up(void **state)
{
    int result = sandbox_setup(state);
    unsetenv("DPBENCH_PLUGIN_PATH");
    sandbox_write("base.ini", "[run]\nresults =\nworkers = 2\nbatch = 2\nsteps = 6\n"
                              "warmup_steps = 2\nsteady_limit_s = 0\n"
                              "[model]\nname = tiny\n"
                              "[data]\nsamples = 64\ntest_samples = 16\n"
                              "[device]\nname = reference\nthreads = 1\n"
                              "[comm]\nname = shm\n");
    return result;
}

static inline void run(struct command *command, int exit_code, const char *arguments)
{
    dpbench_ends(command, deadline_s, exit_code, "%s", arguments);
}

#define EXPECT_ERROR(exit_code, arguments, ...) \
    dpbench_says(deadline_s, exit_code, WORDS(__VA_ARGS__), "%s", arguments)

#endif
