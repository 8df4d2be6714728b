/*
 * run.h - runs a [sweep], or the search of a [tune]: checks every cell, then runs each job. A
 * failed job is a row with its reason.
 */
#ifndef DPB_STUDY_SWEEP_RUN_H
#define DPB_STUDY_SWEEP_RUN_H

#include "cli/cli.h"

/* Runs the [sweep] or [tune] of the arguments' configuration; writes and prints its document.
 * Returns the exit code. */
int dpb_sweep_run(const struct dpb_arguments *arguments);

#endif
