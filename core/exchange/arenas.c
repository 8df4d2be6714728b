/* arenas.c - see arenas.h. */
#include "exchange/arenas.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/estimate.h"
#include "world/host_device.h"
#include "world/store.h"

static const char *const names[DPB_ARENA_KINDS] = {"weights", "gradients", "scratch", "inbox"};

/* Bytes behind the addresses of a whole arena: slots as few as plan->gradient_slots makes them. */
static uint64_t held_bytes(const struct dpb_comm_plan *plan, const struct dpb_layout *layout,
                           int kind, uint64_t bytes)
{
    const uint64_t held = dpb_slots_elements(layout, plan->bucket_elements, plan->gradient_slots) *
                          dpb_dtype_size(layout->gradient_type);
    return kind == DPB_ARENA_GRADIENTS && held < bytes ? held : bytes;
}

/* ---- of this rank -------------------------------------------------------------------------- */

/* Bytes of the pages in which the owned ranges lie. */
static uint64_t count_pages(const struct dpb_comm_plan *plan, size_t size)
{
    uint64_t n = 0, next = 0; /* pages; the first that is not counted */
    for (uint64_t i = 0; i < plan->n_owned; i++) {
        const struct dpb_range owned = plan->owned[i];
        const uint64_t first = owned.begin * size / DPB_SLOT_ALIGNMENT;
        const uint64_t begin = first > next ? first : next;
        const uint64_t end = (owned.end * size + DPB_SLOT_ALIGNMENT - 1) / DPB_SLOT_ALIGNMENT;
        if (owned.end > owned.begin && end > begin) {
            n += end - begin;
            next = end;
        }
    }
    return n * DPB_SLOT_ALIGNMENT;
}

static dpb_status make_sums(struct dpb_arena_memory *m, const struct dpb_comm_plan *plan,
                            const struct dpb_layout *layout)
{
    const size_t size = dpb_dtype_size(layout->gradient_type);
    m->sums = (struct dpb_mapping){.fd = -1};
    if (!plan->keeps_sums)
        return DPB_OK;
    m->own_bytes[DPB_ARENA_GRADIENTS] += count_pages(plan, size);
    return dpb_mapping_create("sums", layout->n_elements * size, &m->sums);
}

static dpb_status make_own(struct dpb_arena_memory *m, const struct dpb_comm_plan *plan,
                           const struct dpb_layout *layout,
                           struct dpb_offer offered[DPB_ARENA_KINDS])
{
    const dpb_memory memory[] = {plan->weights, plan->gradients, plan->scratch, plan->inbox};
    const uint64_t bytes[] = {layout->n_elements * dpb_dtype_size(layout->weight_type),
                              layout->n_elements * dpb_dtype_size(layout->gradient_type),
                              plan->scratch_bytes, plan->inbox_bytes};
    DPB_TRY(m->place->ops->open(m->place->device, &m->queue));
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        offered[kind] = (struct dpb_offer){.name = names[kind]};
        if (memory[kind] == DPB_MEMORY_NONE || bytes[kind] == 0)
            continue;
        const bool shared = memory[kind] == DPB_MEMORY_SHARED;
        if (m->on_device && kind != DPB_ARENA_SCRATCH) {
            m->own_bytes[kind] = bytes[kind];
            m->own_shared[kind] = shared;
            DPB_TRY(m->device.ops->allocate(m->device.device, names[kind], bytes[kind],
                                            m->own_shared[kind], &m->own_device[kind]));
            continue;
        }
        const uint64_t held = m->own_bytes[kind] = held_bytes(plan, layout, kind, bytes[kind]);
        const uint64_t window = held < bytes[kind] ? bytes[kind] : 0;
        if (shared)
            offered[kind] = (struct dpb_offer){names[kind], held, window};
        else
            DPB_TRY(dpb_mapping_create_window(names[kind], held, window, &m->own[kind]));
    }
    return make_sums(m, plan, layout);
}

/* ---- of the peers -------------------------------------------------------------------------- */

/* A worker's shared memory on its device, in the store. */
struct offer {
    bool there[DPB_ARENA_KINDS];
    struct dpb_memory_handle handles[DPB_ARENA_KINDS];
};

static dpb_status offer_device(struct dpb_arena_memory *m)
{
    struct offer offer;
    memset(&offer, 0, sizeof offer);
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        offer.there[kind] = m->own_device[kind] && m->own_shared[kind];
        if (offer.there[kind])
            DPB_TRY(m->device.ops->describe(m->device.device, m->own_device[kind],
                                            &offer.handles[kind]));
    }
    return dpb_store_put_own("device arenas", &offer, sizeof offer);
}

static dpb_status map_device_of(struct dpb_arena_memory *m, uint32_t rank)
{
    struct offer offer;
    DPB_TRY(dpb_store_get_of(rank, "device arenas", &offer, sizeof offer, NULL));
    m->direct[rank] = true;
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        bool direct = true;
        if (offer.there[kind])
            DPB_TRY(m->device.ops->map(m->device.device, &offer.handles[kind],
                                       &m->peers_device[rank * DPB_ARENA_KINDS + (uint32_t)kind],
                                       &direct));
        m->direct[rank] = m->direct[rank] && direct;
    }
    return DPB_OK;
}

/* Among the workers of each machine; all of them have a device of the same plugin. */
static dpb_status share_device(struct dpb_arena_memory *m)
{
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        m->direct[rank] = !m->on_device || rank == dpb_world.rank;
    if (!m->on_device)
        return DPB_OK;
    DPB_TRY(offer_device(m));
    for (uint32_t rank = 0; rank < dpb_world.n_workers; rank++)
        if (rank != dpb_world.rank && dpb_world_is_local(rank))
            DPB_TRY(map_device_of(m, rank));
    return DPB_OK;
}

static void *memory_of(const struct dpb_arena_memory *m, uint32_t rank, uint32_t kind)
{
    uint32_t at = rank * DPB_ARENA_KINDS + kind;
    if (rank == dpb_world.rank && m->own_device[kind])
        return m->own_device[kind];
    if (rank == dpb_world.rank && m->own[kind].memory)
        return m->own[kind].memory;
    return m->peers_device[at] ? m->peers_device[at] : m->shared.of[at].memory;
}

dpb_status dpb_arenas_make(struct dpb_arena_memory *m, const struct dpb_comm_plan *plan,
                           const struct dpb_layout *layout, bool on_device,
                           struct dpb_arenas *arenas)
{
    struct dpb_offer offered[DPB_ARENA_KINDS];
    uint32_t n_ranks = dpb_world.n_ranks;
    size_t places = (size_t)n_ranks * DPB_ARENA_KINDS;
    m->on_device = on_device;
    m->place = on_device ? &m->device : &dpb_host_device;
    DPB_TRY(make_own(m, plan, layout, offered));
    m->peers_device = calloc(places, sizeof *m->peers_device);
    m->views = calloc(places, sizeof *m->views);
    m->direct = calloc(n_ranks, sizeof *m->direct);
    DPB_TRY(dpb_allocated(m->peers_device && m->views && m->direct));
    DPB_TRY(dpb_world_share("arenas", offered, DPB_ARENA_KINDS, &m->shared));
    DPB_TRY(share_device(m));
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        for (uint32_t kind = 0; kind < DPB_ARENA_KINDS; kind++)
            m->views[kind * n_ranks + rank] = memory_of(m, rank, kind);
    arenas->weights = memory_of(m, dpb_world.rank, DPB_ARENA_WEIGHTS);
    arenas->gradients = memory_of(m, dpb_world.rank, DPB_ARENA_GRADIENTS);
    arenas->scratch = memory_of(m, dpb_world.rank, DPB_ARENA_SCRATCH);
    arenas->inbox = memory_of(m, dpb_world.rank, DPB_ARENA_INBOX);
    arenas->sums = m->sums.memory;
    arenas->peer_weights = m->views + DPB_ARENA_WEIGHTS * n_ranks;
    arenas->peer_gradients = m->views + DPB_ARENA_GRADIENTS * n_ranks;
    arenas->peer_scratch = m->views + DPB_ARENA_SCRATCH * n_ranks;
    arenas->peer_inbox = m->views + DPB_ARENA_INBOX * n_ranks;
    arenas->direct = m->direct;
    return DPB_OK;
}

void dpb_arenas_let_go(struct dpb_arena_memory *m)
{
    for (uint32_t i = 0; m->peers_device && i < dpb_world.n_ranks * DPB_ARENA_KINDS; i++) {
        if (m->peers_device[i])
            m->device.ops->unmap(m->device.device, m->peers_device[i]);
        m->peers_device[i] = NULL;
    }
}

void dpb_arenas_stop(struct dpb_arena_memory *m)
{
    if (m->queue)
        m->place->ops->close(m->queue);
    m->queue = NULL;
}

void dpb_arenas_release(struct dpb_arena_memory *m)
{
    const struct dpb_queue_ops *ops = m->device.ops;
    dpb_arenas_let_go(m);
    dpb_arenas_stop(m);
    dpb_shared_destroy(&m->shared);
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        dpb_mapping_destroy(&m->own[kind]);
        if (m->own_device[kind] && (!m->own_shared[kind] || m->all_let_go))
            ops->release(m->device.device, m->own_device[kind]);
        m->own_device[kind] = NULL;
    }
    dpb_mapping_destroy(&m->sums);
    if (m->staging)
        m->place->ops->unpin(m->place->device, m->staging);
    m->staging = NULL;
    free(m->peers_device);
    free(m->views);
    free(m->direct);
    m->peers_device = NULL;
    m->views = NULL;
    m->direct = NULL;
    m->all_let_go = m->on_device = false;
}
