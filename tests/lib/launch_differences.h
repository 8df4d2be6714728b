/*
 * launch_differences.h - ranks of one job that are started with different options or plugins: it
 * ends at once, and one message names the option or plugin, two ranks and both values.
 */
#ifndef DPB_TESTS_LIB_LAUNCH_DIFFERENCES_H
#define DPB_TESTS_LIB_LAUNCH_DIFFERENCES_H

#include "lib/command.h"

/* Starts `program` by four processes, of which the last is on another host than the first. */
typedef void (*launch_differences_start)(struct started *started, const char *program);

/* `arguments` are those of a job that works. In a directory as faults_setup makes it. Fails the
 * test. */
void launch_differences_run(launch_differences_start start, const char *arguments,
                            const char *first_host, const char *last_host);

#endif
