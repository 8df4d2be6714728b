/*
 * proof.h - proves that the strategy keeps its contract (dpbench/contract.h). All are collective;
 * verdicts go into the journal. A failure is DPB_VERIFICATION with the first wrong element.
 */
#ifndef DPB_CORE_PROOF_PROOF_H
#define DPB_CORE_PROOF_PROOF_H

#include "exchange/exchange.h"
#include "measure/journal.h"

/* Before training, on arenas that hold nothing yet. `rate` is the learning rate of the step that
 * follows. */
dpb_status dpb_prove_pattern(struct dpb_exchange *exchange, double rate,
                             struct dpb_journal *journal);
dpb_status dpb_prove_exchange(struct dpb_exchange *exchange, double rate,
                              struct dpb_journal *journal);
/* After the last step of training and the last checkpoint. */
dpb_status dpb_prove_again(struct dpb_exchange *exchange, double rate, struct dpb_journal *journal);

#endif
