/*
 * verify.h - after training: replicas that promise equal bits hold them, no gradient was older than
 * a bound allows, and no worker was further ahead than its contract says.
 */
#ifndef DPB_CORE_PROOF_VERIFY_H
#define DPB_CORE_PROOF_VERIFY_H

#include "exchange/exchange.h"
#include "measure/journal.h"

/* After training: checks that no gradient was applied later than a contract of DPB_STALE,
 * DPB_PARTIAL or DPB_BATCHES allows. */
dpb_status dpb_verify_ages(const struct dpb_exchange *exchange, const struct dpb_journal *journal);
/* After all have trained: checks that no worker of this machine was further ahead of another than
 * the contract's lead. The machine's first worker checks. */
dpb_status dpb_verify_lead(const struct dpb_exchange *exchange);
/* After training: checks that replicas are equal bit for bit if the contract promises so. */
dpb_status dpb_verify_replicas(struct dpb_exchange *exchange, struct dpb_journal *journal);

#endif
