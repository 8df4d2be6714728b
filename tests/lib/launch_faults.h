/*
 * launch_faults.h - a process of a job of mpirun's or srun's that is killed, stopped or gets a
 * signal, whichever it is: the job ends soon, names the cause once, keeps what was measured, and
 * leaves nothing behind.
 */
#ifndef DPB_TESTS_LIB_LAUNCH_FAULTS_H
#define DPB_TESTS_LIB_LAUNCH_FAULTS_H

#include "lib/launchers.h"

/* In a directory as faults_setup makes it. */
#define LAUNCH_RESULT "result.json"
#define LAUNCH_BASE "-c base.ini --output " LAUNCH_RESULT " "

/* For cmocka's group: launchers for one host, and that directory. */
int launch_faults_setup(void **state);
int launch_faults_teardown(void **state);

/* All faults, or those that `make check` has time for. Fails the test. */
void launch_faults_run(launcher by, bool all);

/* What LAUNCH_RESULT has, and it is gone; NULL: it is not there. @owned. */
json_t *launch_take_result(void);
/* How many lines begin with "error: ": those of dpbench itself. */
int launch_count_errors(const char *text);

#endif
