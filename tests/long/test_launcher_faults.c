/*
 * test_launcher_faults.c - every process of a job of mpirun's and of srun's, killed, stopped and
 * interrupted: see lib/launch_faults.h.
 */

#include <stdio.h>
#include <stdlib.h>

#include "lib/launch_faults.h"
#include "lib/sandbox.h"
#include "lib/test.h"

TEST(test_mpirun)
{
    launch_faults_run(MPIRUN, true);
}

TEST(test_srun)
{
    launch_faults_run(SRUN, true);
}

static int forget_environment(__attribute__((unused)) void **state)
{
    unsetenv("OMPI_MCA_orte_abort_on_non_zero_status");
    return sandbox_forget_preload(NULL);
}

/* A part leaves a rank behind that the system does not let die: before its job began, and after. No
 * starter ends the part. */
TEST_WITH(test_unkillable_rank, NULL, forget_environment)
{
    static const char *const lines[] = {LAUNCH_BASE "comm.name=none_such",
                                        LAUNCH_BASE "run.steps=2 run.timeout_s=3"};
    setenv("OMPI_MCA_orte_abort_on_non_zero_status", "0", 1);
    sandbox_preload("hide_ends");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct command command;
        launched(&command, 60.0, MPIRUN, 2, "%s", lines[i]);
        if (command.late || launch_count_errors(command.err) != 1)
            fail_msg("%s: %s\n%s", lines[i], command.late ? "late" : "ended", command.err);
    }
}

TEST_MAIN(launch_faults_setup, launch_faults_teardown)
