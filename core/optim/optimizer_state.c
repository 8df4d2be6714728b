/* optimizer_state.c - an optimizer's life, and its state on the host or a device: optimizer.h. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "optim/norms.h"
#include "optim/optimizer_parts.h"

uint32_t dpb_optimizer_state_names(const struct dpb_optimizer_settings *settings,
                                   const char *names[DPB_OPTIMIZER_STATES])
{
    static const char *const first[] = {[DPB_SGD] = "momentum_buffer",
                                        [DPB_ADAGRAD] = "sum",
                                        [DPB_ADAM] = "exp_avg",
                                        [DPB_LARS] = "velocity"};
    const bool adam = settings->kind == DPB_ADAM;
    names[0] = first[settings->kind];
    names[1] = adam ? "exp_avg_sq" : NULL;
    if (!adam && settings->kind != DPB_ADAGRAD && settings->momentum == 0.0)
        names[0] = NULL;
    return adam ? 2 : names[0] ? 1 : 0;
}

uint32_t dpb_optimizer_states(const struct dpb_optimizer_settings *settings)
{
    const char *names[DPB_OPTIMIZER_STATES];
    return dpb_optimizer_state_names(settings, names);
}

uint64_t dpb_optimizer_bytes(const struct dpb_optimizer *optimizer)
{
    return optimizer ? optimizer->n_arrays * dpb_optimizer_array_bytes(optimizer) : 0;
}

/* A tensor and the gap behind it; neighbours are one range. */
static dpb_status list_decays(struct dpb_optimizer *optimizer)
{
    const struct dpb_graph *graph = optimizer->args.graph;
    optimizer->decays = calloc(graph->n_tensors + 1u, sizeof *optimizer->decays);
    if (!optimizer->decays)
        return dpb_fail(DPB_NO_MEMORY, "no memory for the ranges with weight decay");
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        uint64_t begin = graph->tensors[t].offset;
        uint64_t end = t + 1 < graph->n_tensors ? graph->tensors[t + 1].offset : graph->n_elements;
        uint64_t n = optimizer->n_decays;
        if (!graph->tensors[t].decays)
            continue;
        if (n > 0 && optimizer->decays[n - 1].end == begin)
            optimizer->decays[n - 1].end = end;
        else
            optimizer->decays[optimizer->n_decays++] = (struct dpb_range){begin, end};
    }
    return DPB_OK;
}

/* ---- with arenas on a device --------------------------------------------------------------- */

static dpb_status create_on_device(struct dpb_optimizer *optimizer)
{
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    void *device = optimizer->args.device->device, *memory = NULL;
    const uint64_t bytes = optimizer->n_decays * sizeof *optimizer->decays;
    const uint64_t state_bytes = dpb_optimizer_bytes(optimizer);
    DPB_TRY(ops->allocate(device, "ranges with weight decay", bytes + 1, false, &memory));
    optimizer->device_decays = memory;
    DPB_TRY(ops->copy(optimizer->args.queue, memory, optimizer->decays, bytes));
    DPB_TRY(ops->allocate(device, "words", sizeof *optimizer->words, false, &memory));
    optimizer->words = memory;
    DPB_TRY(ops->pin(device, sizeof *optimizer->pinned, &memory));
    optimizer->pinned = memory;
    if (state_bytes > 0) {
        DPB_TRY(ops->allocate(device, "the optimizer's state", state_bytes, false, &memory));
        optimizer->device_state = memory;
    }
    return ops->drain(optimizer->args.queue);
}

static void destroy_on_device(struct dpb_optimizer *optimizer)
{
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    void *device = optimizer->args.device->device;
    ops->release(device, optimizer->device_decays);
    ops->release(device, optimizer->device_state);
    ops->release(device, optimizer->words);
    ops->unpin(device, optimizer->pinned);
}

dpb_status dpb_optimizer_fetch(struct dpb_optimizer *optimizer)
{
    if (!optimizer || !optimizer->device_state)
        return DPB_OK;
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    DPB_TRY(ops->copy(optimizer->args.queue, optimizer->state.memory, optimizer->device_state,
                      dpb_optimizer_bytes(optimizer)));
    return ops->drain(optimizer->args.queue);
}

static void note_seen(const struct dpb_optimizer *optimizer)
{
    uint64_t none = 0, seen = __atomic_load_n(&optimizer->pinned->found, __ATOMIC_RELAXED);
    if (seen != 0 && optimizer->args.not_finite)
        __atomic_compare_exchange_n(optimizer->args.not_finite, &none, seen, false,
                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

dpb_status dpb_optimizer_watch(struct dpb_optimizer *optimizer, struct dpb_event *done)
{
    if (!optimizer || !optimizer->args.device)
        return DPB_OK;
    const struct dpb_queue_ops *ops = optimizer->args.device->ops;
    note_seen(optimizer);
    DPB_TRY(ops->await(optimizer->args.queue, done));
    return ops->copy(optimizer->args.queue, &optimizer->pinned->found, &optimizer->words->found,
                     sizeof optimizer->pinned->found);
}

dpb_status dpb_optimizer_find(struct dpb_optimizer *optimizer)
{
    if (!optimizer || !optimizer->args.device)
        return DPB_OK;
    DPB_TRY(optimizer->args.device->ops->drain(optimizer->args.queue));
    note_seen(optimizer);
    return DPB_OK;
}

/* ---- life ---------------------------------------------------------------------------------- */

/* On a device the mapping is for checkpoints alone. */
static dpb_status make_state(struct dpb_optimizer *optimizer)
{
    DPB_TRY(list_decays(optimizer));
    if (dpb_norms_needed(&optimizer->settings)) {
        const uint64_t all = optimizer->args.graph->n_elements;
        if (optimizer->n_state != all && !optimizer->args.parts)
            return dpb_fail(DPB_FAILED,
                            "the strategy owns %llu of %llu elements on this rank and has not the "
                            "capability DPB_COMM_WHOLE_SHARDS: norms are of whole tensors",
                            (unsigned long long)optimizer->n_state, (unsigned long long)all);
        optimizer->factors = calloc(optimizer->args.graph->n_tensors, sizeof *optimizer->factors);
        if (!optimizer->factors)
            return dpb_fail(DPB_NO_MEMORY, "no memory for the norms of the tensors");
    }
    if (optimizer->args.device)
        DPB_TRY(create_on_device(optimizer));
    if (dpb_optimizer_bytes(optimizer) == 0 || (optimizer->args.device && !optimizer->args.saved))
        return DPB_OK;
    return dpb_mapping_create("optimizer", dpb_optimizer_bytes(optimizer), &optimizer->state);
}

dpb_status dpb_optimizer_create(const struct dpb_optimizer_args *args,
                                struct dpb_optimizer **optimizer)
{
    if (args->n_owned == 0) {
        *optimizer = NULL;
        return DPB_OK;
    }
    struct dpb_optimizer *made = calloc(1, sizeof *made);
    size_t ranges = (size_t)args->n_owned;
    if (made) {
        made->owned = malloc(ranges * sizeof *made->owned);
        made->state_at = malloc(ranges * sizeof *made->state_at);
    }
    if (!made || !made->owned || !made->state_at) {
        dpb_optimizer_destroy(made);
        return dpb_fail(DPB_NO_MEMORY, "no memory for the optimizer's %zu ranges", ranges);
    }
    memcpy(made->owned, args->owned, ranges * sizeof *made->owned);
    made->settings = *args->settings;
    made->args = *args;
    made->args.settings = &made->settings;
    made->args.owned = made->owned;
    made->n_arrays = dpb_optimizer_states(args->settings);
    made->landing = UINT64_MAX;
    for (uint64_t i = 0; i < args->n_owned; i++) {
        made->state_at[i] = made->n_state;
        made->n_state += made->owned[i].end - made->owned[i].begin;
    }
    dpb_status status = make_state(made);
    if (status == DPB_OK)
        *optimizer = made;
    else
        dpb_optimizer_destroy(made);
    return status;
}

void dpb_optimizer_destroy(struct dpb_optimizer *optimizer)
{
    if (!optimizer)
        return;
    if (optimizer->args.device)
        destroy_on_device(optimizer);
    dpb_mapping_destroy(&optimizer->state);
    free(optimizer->factors);
    free(optimizer->decays);
    free(optimizer->owned);
    free(optimizer->state_at);
    free(optimizer);
}

void dpb_optimizer_was_read(struct dpb_optimizer *optimizer)
{
    dpb_optimizer_changed(optimizer);
}

struct dpb_mapping dpb_optimizer_mapping(const struct dpb_optimizer *optimizer)
{
    if (!optimizer)
        return (struct dpb_mapping){.fd = -1};
    (void)__atomic_load_n(&optimizer->n_changes, __ATOMIC_ACQUIRE);
    return optimizer->state;
}

/* One array's ranges. */
static dpb_status load_array(struct dpb_optimizer *optimizer, const char *arena, uint32_t array)
{
    const size_t element = dpb_dtype_size(optimizer->args.weight_type);
    for (uint64_t i = 0; i < optimizer->args.n_owned; i++) {
        const struct dpb_range *owned = &optimizer->owned[i];
        const char *from = arena + owned->begin * element;
        const uint64_t bytes = (owned->end - owned->begin) * element;
        const uint64_t at =
            array * dpb_optimizer_array_bytes(optimizer) + optimizer->state_at[i] * element;
        if (optimizer->args.device)
            DPB_TRY(optimizer->args.device->ops->copy(optimizer->args.queue,
                                                      optimizer->device_state + at, from, bytes));
        else
            memcpy((char *)optimizer->state.memory + at, from, bytes);
    }
    return DPB_OK;
}

dpb_status dpb_optimizer_load(struct dpb_optimizer *optimizer, const void *arenas, uint64_t updates)
{
    const uint64_t arena_bytes =
        optimizer->args.graph->n_elements * dpb_dtype_size(optimizer->args.weight_type);
    for (uint32_t i = 0; i < optimizer->n_arrays; i++)
        DPB_TRY(load_array(optimizer, (const char *)arenas + i * arena_bytes, i));
    optimizer->n_updated = updates * optimizer->n_state;
    dpb_optimizer_changed(optimizer);
    return optimizer->args.device ? optimizer->args.device->ops->drain(optimizer->args.queue)
                                  : DPB_OK;
}
