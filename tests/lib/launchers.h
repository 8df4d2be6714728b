/*
 * launchers.h - dpbench under mpirun, under srun in a Slurm that the test program starts, and by
 * variables alone; and the processes of such a job.
 */
#ifndef DPB_TESTS_LIB_LAUNCHERS_H
#define DPB_TESTS_LIB_LAUNCHERS_H

#include "lib/command.h"

typedef enum launcher { MPIRUN, SRUN, ENVIRONMENT, N_LAUNCHERS } launcher;
extern const char *const launcher_names[N_LAUNCHERS];

/* Before anything else of the program makes orphans its own (traces.h): Slurm's daemons are not to
 * be among them. Slurm's jobs go over `n_nodes` nodes, n1, n2, ..., machines of their own to whom
 * it starts. Fails with what is missing: 0 is success, as of cmocka's fixtures. */
int launchers_start(int n_nodes);
void launchers_stop(void);
/* For programs that use mpirun alone: it takes root. launchers_start does it, too. */
void launchers_allow_root(void);

/* dpbench with a line of arguments, by n processes: printf-like. */
void launched(struct command *command, double deadline_s, launcher by, int n, const char *format,
              ...) __attribute__((format(printf, 5, 6)));
void launched_start(struct started *started, launcher by, int n, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The same of another program, which executes dpbench. */
void launched_start_program(struct started *started, launcher by, int n, const char *program);

/* For jobs that are started in another way: NAME=VALUE for the environment of the next one. */
const char *launched_mark(void);

/* The process of a rank, or the launcher of its part, of the job that was started last; 0: not
 * there. */
pid_t launched_process(int rank, bool part_launcher);
/* Whether the launcher of a rank's part has met the others, and watches its rank. */
bool launched_has_begun(int rank);
/* Waits until its n ranks have made some steps, and the head knows their losses. */
void launched_await_steps(int n);
/* Fails the test if a process of it is left after `gone_s`. */
void launched_expect_none(const char *title, double gone_s);

#endif
