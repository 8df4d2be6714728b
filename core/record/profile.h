/*
 * profile.h - run.profile: the time of rank 0's device in the timed steps, op by op, beside the
 * hardware's limits.
 */
#ifndef DPB_CORE_RECORD_PROFILE_H
#define DPB_CORE_RECORD_PROFILE_H

#include <jansson.h>
#include <stdio.h>

#include "measure/journal.h"

/* result.profile: {limits: {fp32_flops_per_s, ...}, rows: [{layer, op, what, pass, calls, ns,
 * flops, bytes}], bytes_per_sample}; sums over all calls; batch: of a pass. @owned. */
json_t *dpb_profile_to_json(const struct dpb_journal *journal, uint32_t batch);

/* For people: a line a row (mean of a call, share of all, rates), sums by kind of op, the limits,
 * and the bytes of a sample. */
void dpb_profile_print(const json_t *profile, FILE *out);

#endif
