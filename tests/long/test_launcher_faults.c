/*
 * test_launcher_faults.c - every process of a job of mpirun's and of srun's, killed, stopped and
 * interrupted: see lib/launch_faults.h.
 */

#include "lib/launch_faults.h"
#include "lib/test.h"

TEST(test_mpirun)
{
    launch_faults_run(MPIRUN, true);
}

TEST(test_srun)
{
    launch_faults_run(SRUN, true);
}

TEST_MAIN(launch_faults_setup, launch_faults_teardown)
