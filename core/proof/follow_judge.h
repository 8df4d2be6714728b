/* follow_judge.h - each followed step (exchange/follow.h) against the optimizer's rule. */
#ifndef DPB_CORE_PROOF_FOLLOW_JUDGE_H
#define DPB_CORE_PROOF_FOLLOW_JUDGE_H

#include "exchange/exchange.h"
#include "measure/journal.h"

/* Workers, collective, after dpb_follow_end. Sets the verdict. */
dpb_status dpb_follow_judge(struct dpb_exchange *exchange, struct dpb_journal *journal);

#endif
