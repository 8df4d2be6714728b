/* publish.c - see publish.h. */
#include "exchange/publish.h"

#include "base/log.h"
#include "exchange/access.h"

dpb_status dpb_exchange_publish(struct dpb_exchange *exchange, const char *phase,
                                struct dpb_view *view)
{
    DPB_TRY(exchange->ops->publish(exchange->comm, view));
    dpb_world_note(phase, UINT64_MAX, UINT32_MAX);
    return DPB_OK;
}

dpb_status dpb_verify_published(struct dpb_exchange *exchange, const void *published,
                                struct dpb_journal *journal)
{
    uint64_t own, other;
    if (exchange->plan.contract.consistency != DPB_SYNCHRONOUS || published == exchange->weights)
        return DPB_OK;
    DPB_TRY(dpb_arena_checksum(exchange, exchange->weights, exchange->layout.weight_type, &own));
    DPB_TRY(dpb_arena_checksum(exchange, published, exchange->layout.weight_type, &other));
    if (own == other)
        return DPB_OK;
    journal->verdict_replicas = DPB_VERDICT_FAIL;
    return dpb_fail(DPB_VERIFICATION,
                    "comm '%s' publishes other weights (checksum %016llx) before step %llu than "
                    "rank %u trains with (%016llx); its contract is synchronous",
                    exchange->experiment->settings.comm.name, (unsigned long long)other,
                    (unsigned long long)dpb_world_step(), dpb_world.rank, (unsigned long long)own);
}
