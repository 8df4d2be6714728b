/*
 * lead.h - whether workers kept to the lead of their contract (dpbench/contract.h): no step begins
 * before all have begun the step that their lead allows. By the journals of one machine's workers,
 * which share a clock.
 */
#ifndef DPB_CORE_PROOF_LEAD_H
#define DPB_CORE_PROOF_LEAD_H

#include "measure/journal.h"

/* A worker that began `step` before `behind` began step - within. */
struct dpb_lead_broken {
    uint32_t ahead, behind, within;
    uint64_t step;
    int64_t early_ns;
};

/* Of workers that train no more, by rank; NULL: not of this machine, or lost. False: *broken is the
 * first step that came too early. */
bool dpb_lead_kept(const struct dpb_journal *const *journals, uint32_t n_workers,
                   struct dpb_lead_broken *broken);

#endif
