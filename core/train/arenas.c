/*
 * arenas.c - the arenas of a rank: made as the strategy's plan says, on the host or in the memory
 * of the worker's device; shared with the ranks of its machine; and core's own access to them,
 * which is a pointer on the host and a copy by a queue on a device.
 *
 * Memory of a device is unmapped by all who have mapped it before its owner gives it back: peers
 * let go when the communicator is closed, owners after the ranks have met once more. Where a run
 * fails nobody meets, and what was shared is left to the end of the process.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/trainer.h"
#include "world/host_device.h"

static const char *const names[DPB_ARENA_KINDS] = {"weights", "gradients", "scratch", "inbox"};

/* What the plan asks for, by kind. */
static void list_plan(const struct dpb_trainer *t, dpb_memory memory[DPB_ARENA_KINDS],
                      uint64_t bytes[DPB_ARENA_KINDS])
{
    const struct dpb_comm_plan *want = &t->plan;
    const struct dpb_layout *layout = &t->layout;
    const dpb_memory memories[] = {want->weights, want->gradients, want->scratch, want->inbox};
    const uint64_t sizes[] = {layout->n_elements * dpb_dtype_size(layout->weight_type),
                              layout->n_elements * dpb_dtype_size(layout->gradient_type),
                              want->scratch_bytes, want->inbox_bytes};
    memcpy(memory, memories, sizeof memories);
    memcpy(bytes, sizes, sizeof sizes);
}

static bool is_on_device(const struct dpb_trainer *t, int kind)
{
    return t->on_device && kind != DPB_ARENA_SCRATCH;
}

/* ---- of this rank -------------------------------------------------------------------------- */

static dpb_status make_own(struct dpb_trainer *t, struct dpb_mapping offered[DPB_ARENA_KINDS])
{
    dpb_memory memory[DPB_ARENA_KINDS];
    uint64_t bytes[DPB_ARENA_KINDS];
    list_plan(t, memory, bytes);
    t->on_device = dpb_experiment_arenas_on_device(t->experiment) && dpb_world.role == DPB_WORKER;
    t->place = t->on_device ? &t->device_arenas : &dpb_host_device;
    if (t->on_device && t->layout.weight_type != DPB_FP32)
        return dpb_fail(DPB_UNSUPPORTED, "comm '%s': arenas in a device's memory are fp32 only",
                        t->experiment->settings.comm.name);
    DPB_TRY(t->place->ops->open(t->place->device, &t->queue));
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        offered[kind] = (struct dpb_mapping){.fd = -1};
        if (memory[kind] == DPB_MEMORY_NONE || bytes[kind] == 0)
            continue;
        const bool shared = memory[kind] == DPB_MEMORY_SHARED;
        if (is_on_device(t, kind)) {
            t->own_shared[kind] = shared;
            DPB_TRY(t->device_arenas.ops->allocate(t->device, names[kind], bytes[kind],
                                                   t->own_shared[kind], &t->own_device[kind]));
            continue;
        }
        DPB_TRY(dpb_mapping_create(names[kind], bytes[kind], &t->own[kind]));
        if (shared)
            offered[kind] = t->own[kind];
    }
    return DPB_OK;
}

/* ---- of the peers -------------------------------------------------------------------------- */

/* A worker's shared memory on its device, in the store. */
struct offer {
    bool there[DPB_ARENA_KINDS];
    struct dpb_memory_handle handles[DPB_ARENA_KINDS];
};

static dpb_status offer_device(struct dpb_trainer *t)
{
    struct offer offer;
    char key[64];
    memset(&offer, 0, sizeof offer);
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        offer.there[kind] = t->own_device[kind] && t->own_shared[kind];
        if (offer.there[kind])
            DPB_TRY(t->device_arenas.ops->describe(t->device, t->own_device[kind],
                                                   &offer.handles[kind]));
    }
    snprintf(key, sizeof key, "device arenas/%u", dpb_world.rank);
    return dpb_store.put(key, &offer, sizeof offer);
}

static dpb_status map_device_of(struct dpb_trainer *t, uint32_t rank)
{
    struct offer offer;
    size_t bytes = sizeof offer;
    char key[64];
    snprintf(key, sizeof key, "device arenas/%u", rank);
    DPB_TRY(dpb_store.get(key, &offer, &bytes, 0));
    t->direct[rank] = true;
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        bool direct = true;
        if (offer.there[kind])
            DPB_TRY(t->device_arenas.ops->map(
                t->device, &offer.handles[kind],
                &t->peers_device[rank * DPB_ARENA_KINDS + (uint32_t)kind], &direct));
        t->direct[rank] = t->direct[rank] && direct;
    }
    return DPB_OK;
}

/* Among the workers of each machine; all of them have a device of the same plugin. */
static dpb_status share_device(struct dpb_trainer *t)
{
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        t->direct[rank] = !t->on_device || rank == dpb_world.rank;
    if (!t->on_device)
        return DPB_OK;
    DPB_TRY(offer_device(t));
    for (uint32_t rank = 0; rank < t->experiment->n_workers; rank++)
        if (rank != dpb_world.rank && dpb_world_is_local(rank))
            DPB_TRY(map_device_of(t, rank));
    return DPB_OK;
}

static void *memory_of(const struct dpb_trainer *t, uint32_t rank, uint32_t kind)
{
    uint32_t at = rank * DPB_ARENA_KINDS + kind;
    if (rank == dpb_world.rank)
        return t->own_device[kind] ? t->own_device[kind] : t->own[kind].memory;
    return t->peers_device[at] ? t->peers_device[at] : t->peers[at].memory;
}

dpb_status dpb_arenas_make(struct dpb_trainer *t)
{
    struct dpb_mapping offered[DPB_ARENA_KINDS];
    struct dpb_arenas *arenas = &t->arenas;
    uint32_t n_ranks = dpb_world.n_ranks;
    size_t places = (size_t)n_ranks * DPB_ARENA_KINDS;
    DPB_TRY(make_own(t, offered));
    t->peers = calloc(places, sizeof *t->peers);
    t->peers_device = calloc(places, sizeof *t->peers_device);
    t->views = calloc(places, sizeof *t->views);
    t->direct = calloc(n_ranks, sizeof *t->direct);
    if (!t->peers || !t->peers_device || !t->views || !t->direct)
        return dpb_fail(DPB_NO_MEMORY, "no memory for the views of %u ranks", n_ranks);
    DPB_TRY(dpb_world_share("arenas", offered, DPB_ARENA_KINDS, t->peers));
    DPB_TRY(share_device(t));
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        for (uint32_t kind = 0; kind < DPB_ARENA_KINDS; kind++)
            t->views[kind * n_ranks + rank] = memory_of(t, rank, kind);
    arenas->weights = memory_of(t, dpb_world.rank, DPB_ARENA_WEIGHTS);
    arenas->gradients = memory_of(t, dpb_world.rank, DPB_ARENA_GRADIENTS);
    arenas->scratch = memory_of(t, dpb_world.rank, DPB_ARENA_SCRATCH);
    arenas->inbox = memory_of(t, dpb_world.rank, DPB_ARENA_INBOX);
    arenas->peer_weights = t->views + DPB_ARENA_WEIGHTS * n_ranks;
    arenas->peer_gradients = t->views + DPB_ARENA_GRADIENTS * n_ranks;
    arenas->peer_scratch = t->views + DPB_ARENA_SCRATCH * n_ranks;
    arenas->peer_inbox = t->views + DPB_ARENA_INBOX * n_ranks;
    arenas->direct = t->direct;
    return DPB_OK;
}

void dpb_arenas_let_go(struct dpb_trainer *t)
{
    for (uint32_t i = 0; t->peers_device && i < dpb_world.n_ranks * DPB_ARENA_KINDS; i++) {
        if (t->peers_device[i])
            t->device_arenas.ops->unmap(t->device, t->peers_device[i]);
        t->peers_device[i] = NULL;
    }
}

void dpb_arenas_stop(struct dpb_trainer *t)
{
    if (t->queue)
        t->place->ops->close(t->queue);
    t->queue = NULL;
}

void dpb_arenas_release(struct dpb_trainer *t)
{
    const struct dpb_queue_ops *ops = t->device_arenas.ops;
    dpb_arenas_let_go(t);
    dpb_arenas_stop(t);
    for (uint32_t i = 0; t->peers && i < dpb_world.n_ranks * DPB_ARENA_KINDS; i++)
        if (i / DPB_ARENA_KINDS != dpb_world.rank)
            dpb_mapping_destroy(&t->peers[i]);
    for (int kind = 0; kind < DPB_ARENA_KINDS; kind++) {
        dpb_mapping_destroy(&t->own[kind]);
        if (t->own_device[kind] && (!t->own_shared[kind] || t->all_let_go))
            ops->release(t->device, t->own_device[kind]);
        t->own_device[kind] = NULL;
    }
    dpb_release(t->staging, t->staging_bytes);
    t->staging = NULL;
    free(t->peers);
    free(t->peers_device);
    free(t->views);
    free(t->direct);
    t->peers = NULL;
    t->peers_device = NULL;
    t->views = NULL;
    t->direct = NULL;
    t->all_let_go = t->on_device = false;
}

/* ---- core's access ------------------------------------------------------------------------- */

/* In staging memory there is room for one arena. */
static dpb_status get_staging(struct dpb_trainer *t)
{
    if (t->staging)
        return DPB_OK;
    t->staging_bytes = t->layout.n_elements * dpb_dtype_size(t->layout.weight_type);
    t->staging = dpb_alloc(t->staging_bytes);
    return t->staging ? DPB_OK : DPB_NO_MEMORY;
}

dpb_status dpb_arena_edit(struct dpb_trainer *t, void *arena, void **content)
{
    *content = arena;
    if (!t->on_device)
        return DPB_OK;
    DPB_TRY(get_staging(t));
    *content = t->staging;
    return DPB_OK;
}

dpb_status dpb_arena_commit(struct dpb_trainer *t, void *arena, uint64_t bytes)
{
    if (!t->on_device)
        return DPB_OK;
    DPB_TRY(dpb_trainer_drain(t));
    DPB_TRY(t->place->ops->copy(t->queue, arena, t->staging, bytes));
    return t->place->ops->drain(t->queue);
}

dpb_status dpb_arena_look(struct dpb_trainer *t, const void *arena, uint64_t bytes,
                          const void **content)
{
    *content = arena;
    if (!t->on_device)
        return DPB_OK;
    DPB_TRY(get_staging(t));
    DPB_TRY(dpb_trainer_drain(t));
    DPB_TRY(t->place->ops->copy(t->queue, t->staging, arena, bytes));
    DPB_TRY(t->place->ops->drain(t->queue));
    *content = t->staging;
    return DPB_OK;
}

dpb_status dpb_arena_clear(struct dpb_trainer *t, void *arena, uint64_t bytes)
{
    if (!arena)
        return DPB_OK;
    DPB_TRY(dpb_trainer_drain(t));
    DPB_TRY(t->place->ops->clear(t->queue, arena, bytes));
    return t->place->ops->drain(t->queue);
}

uint64_t dpb_arena_bytes(const struct dpb_trainer *t, dpb_dtype type)
{
    return t->layout.n_elements * dpb_dtype_size(type);
}
