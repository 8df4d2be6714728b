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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mpirun), cmocka_unit_test(test_srun)};
    return cmocka_run_group_tests(tests, launch_faults_setup, launch_faults_teardown);
}
