/*
 * faults.h - what tests of faults share: the small job that they disturb, and what must be of it
 * afterwards.
 */
#ifndef DPB_TESTS_LIB_FAULTS_H
#define DPB_TESTS_LIB_FAULTS_H

#include "lib/command.h"

#define FAULTS_BASE "-c base.ini --json "
#define FAULTS_COMM "device.name=reference comm.name=fault "
#define FAULTS_DEVICE "device.name=fault comm.name=shm "

/* cmocka's group fixture (sandbox_teardown is the other): a sandbox with base.ini, 2 workers, 3 +
 * 20 steps, an evaluation every 5; no core files. */
int faults_setup(void **state);

/* The line of the error; fails the test unless there is exactly one. */
const char *faults_only_error(const char *title, const struct command *command);
/* Fails unless the result says that the run failed and why, as the messages do. */
void faults_expect_failed(const char *title, const struct command *command);

/* What a variable of the environment says, or otherwise. */
unsigned faults_number_of(const char *variable, unsigned otherwise);

/* The name of the process's main thread, which `ps` and `top` show. */
bool faults_is_named(pid_t pid, const char *name);
/* Starts a job; command_finish collects it. Or one that lasts, and leaves the processor to other
 * tests for a millisecond a step. */
void faults_start(struct started *started, const char *arguments);
void faults_start_long(struct started *started, const char *arguments);
/* Waits until the job has `n` ranks; gives their processes by rank. */
void faults_await_ranks(const struct started *started, pid_t *pids, size_t n);
/* ... and until each of them has made some steps, or serves. Ranks bear their number as a name. */
void faults_await_steps(const struct started *started, pid_t *pids, size_t n);
/* Kills rank 1 of `n_ranks` of a job, as soon as there is one, or when it trains. Fails the test
 * unless the job ends within most_s, names the rank, and leaves nothing behind. */
void faults_check_killed(const char *arguments, size_t n_ranks, bool in_training, double most_s);
/* At most `n` living processes that the main thread of `parent` started, the oldest first; how many
 * these are. */
size_t faults_children_of(pid_t parent, pid_t *pids, size_t n);

#endif
