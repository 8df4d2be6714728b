/*
 * emulation_report.h - what a run emulated, and whether this machine kept up with it.
 */
#ifndef DPB_CORE_RECORD_EMULATION_REPORT_H
#define DPB_CORE_RECORD_EMULATION_REPORT_H

#include <jansson.h>

#include "measure/journal.h"
#include "plan/plan.h"

/*
 * Of the ranks' journals (those that are NULL are left out). `late`: threads of a rank waited for a
 * core for more than 4 % of the time that the run was timed, or gradients were final more than 1 %
 * of it after their deadlines. Then the rate is that of a machine that is short of cores, and not
 * of the emulated one. A warning says by which run.dilation it would do. Null for a device that
 * computes. @owned.
 */
json_t *dpb_emulation_to_json(const struct dpb_experiment *experiment,
                              const struct dpb_journal *const *journals, uint32_t n_ranks);
void dpb_emulation_warn(const json_t *emulated, json_t *warnings);
/* "  emulated      V100, published: ...". Nothing for null. */
void dpb_emulation_print(const json_t *emulated, FILE *out);

#endif
