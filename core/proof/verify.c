/* verify.c - see verify.h. */
#include "proof/verify.h"

#include "base/log.h"
#include "exchange/access.h"
#include "plan/contract.h"
#include "proof/lead.h"
#include "world/store.h"

/* Partial, batches: a gradient that counts is of the newest weights. Stale: between a pull and its
 * push another worker's clock passes from `bound` behind the own to one more than `bound` ahead of
 * it. */
dpb_status dpb_verify_ages(const struct dpb_exchange *exchange, const struct dpb_journal *journal)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    const uint32_t n_workers = exchange->experiment->n_workers;
    const bool stale = contract->consistency == DPB_STALE;
    const uint64_t most = stale ? (n_workers - 1) * (2 * (uint64_t)contract->parameter + 1) : 0;
    char label[DPB_LABEL_BYTES];
    const bool newest =
        contract->consistency == DPB_PARTIAL || contract->consistency == DPB_BATCHES;
    if ((!stale && !newest) || journal->most_age <= most)
        return DPB_OK;
    dpb_contract_label(contract, n_workers, label);
    return dpb_fail(DPB_VERIFICATION,
                    "comm '%s' promises %s, by which %u workers' gradients are at most %llu "
                    "updates old; one was %llu updates old when it was applied",
                    exchange->experiment->settings.comm.name, label, n_workers,
                    (unsigned long long)most, (unsigned long long)journal->most_age);
}

dpb_status dpb_verify_lead(const struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const uint32_t *machines = experiment->machines;
    const struct dpb_journal *journals[DPB_JOB_RANKS] = {NULL};
    struct dpb_lead_broken broken;
    for (uint32_t rank = 0; rank < experiment->n_workers; rank++) {
        const bool here = machines[rank] == machines[dpb_world.rank];
        if (here && rank < dpb_world.rank)
            return DPB_OK;
        if (here && !dpb_board_lost(dpb_world.board, rank))
            journals[rank] = dpb_board_journal(dpb_world.board, rank, NULL);
    }
    if (dpb_lead_kept(journals, experiment->n_workers, &broken))
        return DPB_OK;
    return dpb_fail(DPB_VERIFICATION,
                    "comm '%s': rank %u began step %llu %.3f ms before rank %u began step %llu; by "
                    "its contract's lead no worker is so far ahead",
                    experiment->settings.comm.name, broken.ahead, (unsigned long long)broken.step,
                    (double)broken.early_ns * 1e-6, broken.behind,
                    (unsigned long long)(broken.step - broken.within));
}

dpb_status dpb_verify_replicas(struct dpb_exchange *exchange, struct dpb_journal *journal)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    struct dpb_view view;
    dpb_world_note("replicas", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_exchange_publish(exchange, "replicas", &view));
    /* Equal replicas are the workers' own weights; the published weights may be one array. */
    const bool equal = exchange->plan.contract.replicas_equal;
    DPB_TRY(dpb_arena_checksum(exchange, equal ? exchange->weights : view.weights,
                               exchange->layout.weight_type, &journal->checksum));
    if (!equal) {
        journal->verdict_replicas = DPB_VERDICT_NOT_APPLICABLE;
        return DPB_OK;
    }
    uint64_t checksums[DPB_JOB_RANKS];
    DPB_TRY(dpb_store_gather("replicas", &journal->checksum, sizeof checksums[0],
                             experiment->n_workers, checksums));
    for (uint32_t rank = 1; rank < experiment->n_workers; rank++) {
        const uint64_t first = checksums[0], checksum = checksums[rank];
        if (checksum == first)
            continue;
        journal->verdict_replicas = DPB_VERDICT_FAIL;
        return dpb_fail(
            DPB_VERIFICATION,
            "replicas differ after step %llu: the weights of rank 0 have checksum %016llx, "
            "those of rank %u %016llx; comm '%s' promises equal bits",
            (unsigned long long)dpb_world_step(), (unsigned long long)first, rank,
            (unsigned long long)checksum, experiment->settings.comm.name);
    }
    journal->verdict_replicas = DPB_VERDICT_PASS;
    return DPB_OK;
}
