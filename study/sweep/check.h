/*
 * check.h - `dpbench check` of a sweep or search: every cell, also after a refused one, and the
 * most memory and time that they take.
 */
#ifndef DPB_STUDY_SWEEP_CHECK_H
#define DPB_STUDY_SWEEP_CHECK_H

#include "base/config.h"

/* Returns the exit code. */
int dpb_sweep_check(const struct dpb_config *config);

#endif
