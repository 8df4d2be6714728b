/*
 * sweep_launch.h - what is particular to a sweep or search whose cells sweep.launch starts.
 */
#ifndef DPB_CORE_STUDY_SWEEP_LAUNCH_H
#define DPB_CORE_STUDY_SWEEP_LAUNCH_H

#include "study/sweep.h"

/* Refuses a template that launch_line.h refuses, and keys that need one. */
dpb_status dpb_sweep_launch_check(const struct dpb_config *config, struct dpb_sweep *sweep);
/* In a cell's configuration: comm.hosts says where the ranks will be, as far as sweep.machines
 * does, and its origin begins with DPB_LAUNCH_ORIGIN. */
dpb_status dpb_sweep_launch_place(const struct dpb_sweep *sweep, struct dpb_config *config);
/* The words of the template for so many processes. *words, ended by NULL, is @owned:
 * dpb_sweep_list_destroy. */
dpb_status dpb_sweep_launch(const struct dpb_sweep *sweep, uint32_t workers, uint32_t servers,
                            uint32_t learners, char ***words, size_t *n_words);

#endif
