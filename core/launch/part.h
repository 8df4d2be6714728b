/*
 * part.h - the launcher of a part that is not the head.
 */
#ifndef DPB_CORE_LAUNCH_PART_H
#define DPB_CORE_LAUNCH_PART_H

#include "launch/job.h"

/* dpb_launch of a part that is not the head. */
dpb_status dpb_part_launch(const struct dpb_job *job, struct dpb_job_outcome *outcome);

#endif
