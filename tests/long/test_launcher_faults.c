/*
 * test_launcher_faults.c - every process of a job of mpirun's and of srun's, killed, stopped and
 * interrupted: see lib/launch_faults.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lib/faults.h"
#include "lib/launch_faults.h"
#include "lib/sandbox.h"

static void test_mpirun(void **state)
{
    (void)state;
    launch_faults_run(MPIRUN, true);
}

static void test_srun(void **state)
{
    (void)state;
    launch_faults_run(SRUN, true);
}

static int setup(void **state)
{
    int code = launchers_start(1);
    return code != 0 ? code : faults_setup(state);
}

static int teardown(void **state)
{
    launchers_stop();
    return sandbox_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mpirun), cmocka_unit_test(test_srun)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
