/* contract.c - see contract.h. */
#include "plan/contract.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "plan/plan.h"

struct dpb_contract dpb_contract_default(uint32_t n_workers, bool alone)
{
    const uint32_t divisor = alone ? 1 : n_workers;
    return (struct dpb_contract){.consistency = alone ? DPB_ALONE : DPB_SYNCHRONOUS,
                                 .proof = alone ? DPB_PROOF_ALONE : DPB_PROOF_SETTLES,
                                 .divisor = divisor,
                                 .share = 1.0 / divisor,
                                 .lead = alone ? UINT32_MAX : 0,
                                 .replicas_equal = !alone};
}

/* The first claim that cannot be; NULL: there is none. */
static const char *contradiction(const struct dpb_contract *contract,
                                 const struct dpb_comm_ops *ops, uint32_t n_workers, bool alone)
{
    const bool books = contract->proof == DPB_PROOF_BOOKS;
    const bool late = contract->consistency == DPB_LATE;
    if ((uint32_t)contract->consistency > DPB_ALONE || (uint32_t)contract->proof > DPB_PROOF_ALONE)
        return "its consistency or its proof is none of those in contract.h";
    const bool batches = contract->consistency == DPB_BATCHES;
    if (contract->divisor < 1 || (contract->divisor > n_workers && !batches))
        return "its divisor is not between 1 and the number of workers";
    if (!(contract->share > 0 && contract->share <= 1))
        return "its share is not above 0 and at most 1";
    if (contract->roundings >= DPB_ROUNDINGS)
        return "with 2^24 roundings or more its proof passes any weights";
    if (contract->settle_steps > DPB_SETTLE_STEPS)
        return "it settles in more than 4096 steps; say DPB_PROOF_BOOKS";
    if (contract->consistency == DPB_SYNCHRONOUS &&
        (books || contract->settle_steps > 0 || !contract->replicas_equal || contract->lead > 0))
        return "a synchronous strategy settles at once, with equal replicas, and no worker leads";
    if (alone != (contract->consistency == DPB_ALONE) ||
        alone != (contract->proof == DPB_PROOF_ALONE))
        return "DPB_COMM_ALONE, DPB_ALONE and DPB_PROOF_ALONE go together";
    if ((late || contract->consistency == DPB_PERIODIC) && contract->parameter < 1)
        return "late(0) and periodic(0) are none; say in parameter how many steps";
    if ((late || contract->consistency == DPB_PERIODIC) && books)
        return "books do not show when gradients come, as late and periodic promise; say "
               "DPB_PROOF_SETTLES or another consistency";
    if ((late || contract->consistency == DPB_SYNCHRONOUS) &&
        fabs(contract->share * n_workers - 1.0) > 1e-9)
        return "a synchronous or late strategy applies the mean gradient: its share is 1 / workers";
    if (contract->consistency == DPB_PARTIAL &&
        (contract->parameter < 1 || contract->parameter > n_workers))
        return "of a step's gradients more count than there are workers, or none";
    if (batches && contract->parameter < 1)
        return "an update of batches(K) takes at least one gradient";
    if ((contract->consistency == DPB_PARTIAL || batches) && !ops->applied)
        return "a strategy that drops gradients says by the hook `applied` which gradients count";
    if (books && !ops->books)
        return "DPB_PROOF_BOOKS needs the hook `books`";
    if (contract->proof == DPB_PROOF_SETTLES && ops->applied)
        return "the hook `applied` goes with DPB_PROOF_BOOKS";
    if (contract->proof == DPB_PROOF_SETTLES && contract->roundings == 0 &&
        fabs(contract->share * contract->divisor - 1.0) > 1e-9)
        return "a share that is not 1 / divisor takes a rounding";
    return NULL;
}

bool dpb_contract_apart(const struct dpb_contract *contract, const struct dpb_comm_ops *ops)
{
    return contract->lead == UINT32_MAX || (contract->lead > 0 && ops->settle);
}

dpb_status dpb_contract_ask(const struct dpb_experiment *experiment, struct dpb_contract *contract)
{
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    const struct dpb_comm_ops *ops = comm->ops;
    const struct dpb_comm_args args = dpb_experiment_comm_args(experiment, 0);
    *contract = dpb_contract_default(experiment->n_workers, comm->capabilities & DPB_COMM_ALONE);
    return ops->contract ? ops->contract(experiment->options[DPB_PLUGIN_COMM], &args, contract)
                         : DPB_OK;
}

static bool equals(const struct dpb_contract *a, const struct dpb_contract *b)
{
    return a->consistency == b->consistency && a->parameter == b->parameter &&
           a->proof == b->proof && a->settle_steps == b->settle_steps && a->divisor == b->divisor &&
           a->share == b->share && a->roundings == b->roundings && a->lead == b->lead &&
           a->replicas_equal == b->replicas_equal;
}

dpb_status dpb_contract_check(const struct dpb_experiment *experiment,
                              const struct dpb_comm_plan *plan)
{
    const struct dpb_plugin *comm = experiment->plugins[DPB_PLUGIN_COMM];
    const struct dpb_comm_ops *ops = comm->ops;
    const bool alone = comm->capabilities & DPB_COMM_ALONE;
    const char *reason = contradiction(&plan->contract, plan->ops, experiment->n_workers, alone);
    struct dpb_contract told;
    if (reason)
        return dpb_fail(DPB_FAILED, "comm '%s' plans a contract that cannot be: %s", comm->name,
                        reason);
    DPB_TRY(dpb_contract_ask(experiment, &told));
    return !ops->contract || equals(&told, &plan->contract)
               ? DPB_OK
               : dpb_fail(DPB_FAILED,
                          "comm '%s': its hook `contract` and its plan set different contracts; "
                          "`dpbench check` refuses by the first, and the second is proven",
                          comm->name);
}

void dpb_contract_label(const struct dpb_contract *contract, uint32_t n_workers,
                        char label[DPB_LABEL_BYTES])
{
    static const char *const words[] = {"synchronous", "late",    "periodic",     "stale",
                                        "partial",     "batches", "asynchronous", "lossy",
                                        "averaging",   "none"};
    const char *word = words[contract->consistency];
    switch (contract->consistency) {
    case DPB_LATE:
    case DPB_PERIODIC:
    case DPB_STALE:
    case DPB_BATCHES:
        snprintf(label, DPB_LABEL_BYTES, "%s(%u)", word, contract->parameter);
        break;
    case DPB_PARTIAL:
        snprintf(label, DPB_LABEL_BYTES, "%s(%u of %u)", word, contract->parameter, n_workers);
        break;
    default:
        snprintf(label, DPB_LABEL_BYTES, "%s", word);
    }
}
