/*
 * contract.h - core's side of dpbench/contract.h: the contract that core fills in before `plan`,
 * the check for claims that exclude each other, the word for tables.
 */
#ifndef DPB_CORE_PLAN_CONTRACT_H
#define DPB_CORE_PLAN_CONTRACT_H

#include "dpbench/plugin.h"
#include "measure/journal.h"

struct dpb_experiment;

enum { DPB_SETTLE_STEPS = 4096 };
enum { DPB_ROUNDINGS = 1 << 24 }; /* so many units of fp32 are as large as the gradients */

/* The contract of a synchronous mean over the workers; `alone`: of workers that do not exchange. */
struct dpb_contract dpb_contract_default(uint32_t n_workers, bool alone);

/* Whether each worker ends where it is: a common step would make slow workers train for as long as
 * they are behind, or nobody waits for a worker that has settled. */
bool dpb_contract_apart(const struct dpb_contract *contract, const struct dpb_comm_ops *ops);

/* The contract that the strategy tells the launcher (needs.h); without its hook, the preset. */
dpb_status dpb_contract_ask(const struct dpb_experiment *experiment, struct dpb_contract *contract);

/* DPB_FAILED, naming the claims of the plan's contract that contradict each other, or the hook that
 * is missing among the plan's or has told another contract. */
dpb_status dpb_contract_check(const struct dpb_experiment *experiment,
                              const struct dpb_comm_plan *plan);

/* "synchronous", "late(1)", "partial(3 of 4)", "none", ... */
void dpb_contract_label(const struct dpb_contract *contract, uint32_t n_workers,
                        char label[DPB_LABEL_BYTES]);

#endif
