/* access.c - see access.h. */
#include "exchange/access.h"

#include <stdio.h>

#include "base/log.h"
#include "base/vec.h"
#include "exchange/resident.h"
#include "exchange/step.h"

/* There is room for one arena, which the device itself copies from and to. */
static dpb_status get_staging(struct dpb_exchange *exchange)
{
    struct dpb_arena_memory *memory = &exchange->memory;
    if (memory->staging)
        return DPB_OK;
    return memory->place->ops->pin(memory->place->device,
                                   dpb_arena_bytes(exchange, exchange->layout.weight_type),
                                   &memory->staging);
}

dpb_status dpb_arena_edit(struct dpb_exchange *exchange, void *arena, void **content)
{
    *content = arena;
    if (!exchange->memory.on_device)
        return DPB_OK;
    DPB_TRY(get_staging(exchange));
    *content = exchange->memory.staging;
    return DPB_OK;
}

dpb_status dpb_arena_commit(struct dpb_exchange *exchange, void *arena, uint64_t bytes)
{
    if (!exchange->memory.on_device)
        return DPB_OK;
    DPB_TRY(dpb_exchange_drain(exchange));
    DPB_TRY(exchange->memory.place->ops->copy(exchange->memory.queue, arena,
                                              exchange->memory.staging, bytes));
    return exchange->memory.place->ops->drain(exchange->memory.queue);
}

dpb_status dpb_arena_look(struct dpb_exchange *exchange, const void *arena, uint64_t bytes,
                          const void **content)
{
    *content = arena;
    if (!exchange->memory.on_device)
        return DPB_OK;
    DPB_TRY(get_staging(exchange));
    DPB_TRY(dpb_exchange_drain(exchange));
    DPB_TRY(exchange->memory.place->ops->copy(exchange->memory.queue, exchange->memory.staging,
                                              arena, bytes));
    DPB_TRY(exchange->memory.place->ops->drain(exchange->memory.queue));
    *content = exchange->memory.staging;
    return DPB_OK;
}

dpb_status dpb_arena_clear(struct dpb_exchange *exchange, void *arena, uint64_t bytes)
{
    if (!arena)
        return DPB_OK;
    DPB_TRY(dpb_exchange_drain(exchange));
    DPB_TRY(exchange->memory.place->ops->clear(exchange->memory.queue, arena, bytes));
    return exchange->memory.place->ops->drain(exchange->memory.queue);
}

dpb_status dpb_arena_checksum(struct dpb_exchange *exchange, const void *arena, dpb_dtype type,
                              uint64_t *checksum)
{
    const void *content;
    DPB_TRY(dpb_arena_look(exchange, arena, dpb_arena_bytes(exchange, type), &content));
    *checksum = dpb_vec_checksum(type, content, exchange->layout.n_elements);
    return DPB_OK;
}

dpb_status dpb_exchange_publish(struct dpb_exchange *exchange, const char *phase,
                                struct dpb_view *view)
{
    DPB_TRY(dpb_resident_all(exchange));
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

static const char *name_of_tensor(const struct dpb_layout *layout, uint64_t element)
{
    for (uint32_t i = 0; i < layout->n_tensors; i++)
        if (element - layout->tensors[i].offset < layout->tensors[i].n_elements)
            return layout->tensors[i].name;
    return NULL; /* a gap, or no model */
}

const char *dpb_element_name(const struct dpb_exchange *exchange, uint64_t element,
                             char name[DPB_ELEMENT_NAME])
{
    const char *tensor = name_of_tensor(&exchange->layout, element);
    snprintf(name, DPB_ELEMENT_NAME, "element %llu (bucket %llu)%s%s%s",
             (unsigned long long)element,
             (unsigned long long)(element / exchange->arenas.bucket_elements),
             tensor ? " of '" : "", tensor ? tensor : "", tensor ? "'" : "");
    return name;
}
