/* saved.c - see saved.h. */
#include "save/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "exchange/access.h"
#include "plan/resume.h"
#include "plugin/plugins.h"
#include "world/store.h"

enum { KEY_BYTES = 32 };

_Static_assert((int)DPB_SAFETENSORS_PIECE == (int)DPB_STORE_VALUE_BYTES, "a piece is one value");

struct dpb_saved_source {
    char name[DPB_SAVED_NAME];
    uint32_t rank;
    const struct dpb_arena_memory *memory; /* `next` lies in a device's; NULL: on the host */
    const char *next;
};

static const char *comm_of(const struct dpb_experiment *experiment)
{
    return experiment->settings.comm.name;
}

/* ---- what the strategy names --------------------------------------------------------------- */

static const char *mistake_of(const struct dpb_exchange *exchange,
                              const struct dpb_saved_array *array)
{
    if (array->type != DPB_FP32 && array->type != DPB_FP64)
        return "its type is neither fp32 nor fp64";
    if (array->n_elements == 0 || array->n_elements > UINT32_MAX)
        return "it has no elements, or more than 2^32";
    if (!array->memory && (!array->common || dpb_world.rank == 0))
        return "this rank has none, which goes for common arrays on other ranks than 0 alone";
    if (exchange->memory.on_device && array->n_elements * dpb_dtype_size(array->type) >
                                          dpb_arena_bytes(exchange, exchange->layout.weight_type))
        return "it is larger than the weights, and the arenas lie in a device's memory";
    return NULL;
}

dpb_status dpb_saved_list(struct dpb_exchange *exchange, struct dpb_saved *saved)
{
    const uint32_t most = DPB_SAVED - (exchange->late.on ? 1 : 0);
    memset(saved, 0, sizeof *saved);
    if (exchange->ops->state)
        DPB_TRY(exchange->ops->state(exchange->comm, saved));
    if (saved->n > most)
        return dpb_fail(DPB_FAILED, "comm '%s' names %u arrays of state; at most %u are saved",
                        comm_of(exchange->experiment), saved->n, most);
    if (exchange->late.on) { /* the published weights have a gradient more */
        saved->arrays[saved->n++] =
            (struct dpb_saved_array){.name = "weights_before",
                                     .type = exchange->layout.weight_type,
                                     .common = true,
                                     .n_elements = exchange->layout.n_elements,
                                     .memory = exchange->weights};
    }
    for (uint32_t i = 0; i < saved->n; i++) {
        const struct dpb_saved_array *array = &saved->arrays[i];
        const char *mistake = mistake_of(exchange, array);
        if (!dpb_plugin_name_valid(array->name))
            mistake = "its name should match [a-z0-9_]+";
        if (mistake)
            return dpb_fail(DPB_FAILED, "comm '%s' names state '%s' that cannot be saved: %s",
                            comm_of(exchange->experiment), array->name ? array->name : "(NULL)",
                            mistake);
    }
    return DPB_OK;
}

void dpb_saved_warn(const struct dpb_exchange *exchange)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    const bool apart = !contract->replicas_equal || contract->settle_steps > 0 ||
                       contract->consistency == DPB_LOSSY;
    if (dpb_world.rank == 0 && apart && contract->consistency != DPB_ALONE &&
        !exchange->ops->state && !exchange->late.on && dpb_saves(&exchange->experiment->settings))
        dpb_warn("state_not_saved",
                 "comm '%s' keeps gradients or replicas apart and has no hook `state`: a training "
                 "continued from its checkpoints begins without them",
                 comm_of(exchange->experiment));
}

/* ---- saving -------------------------------------------------------------------------------- */

static dpb_status fetch_from_device(void *context, void *piece, size_t bytes)
{
    struct dpb_saved_source *source = context;
    const struct dpb_queue_ops *ops = source->memory->place->ops;
    DPB_TRY(ops->copy(source->memory->queue, piece, source->next, bytes));
    source->next += bytes;
    return ops->drain(source->memory->queue);
}

static dpb_status fetch(void *context, void *piece, size_t bytes)
{
    const struct dpb_saved_source *source = context;
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "saved/%u", source->rank);
    dpb_world_note("checkpoint", UINT64_MAX, source->rank);
    return dpb_store_take_all(source->rank, key, piece, bytes, source->name);
}

dpb_status dpb_saved_open(struct dpb_exchange *exchange, struct dpb_saved_tensors *tensors)
{
    const uint32_t n_workers = exchange->experiment->n_workers;
    struct dpb_saved saved;
    DPB_TRY(dpb_saved_list(exchange, &saved));
    const size_t most = (size_t)saved.n * n_workers + 1;
    tensors->tensors = calloc(most, sizeof *tensors->tensors);
    tensors->sources = calloc(most, sizeof *tensors->sources);
    DPB_TRY(dpb_allocated(tensors->tensors && tensors->sources));
    for (uint32_t i = 0; i < saved.n; i++)
        for (uint32_t rank = 0; rank < (saved.arrays[i].common ? 1 : n_workers); rank++) {
            struct dpb_saved_source *source = &tensors->sources[tensors->n];
            struct dpb_safetensor *tensor = &tensors->tensors[tensors->n++];
            source->rank = rank;
            *tensor = dpb_saved_tensor(comm_of(exchange->experiment), &saved.arrays[i], rank,
                                       source->name);
            tensor->memory = rank == 0 ? tensor->memory : NULL;
            tensor->fetch = fetch;
            tensor->context = source;
            if (rank == 0 && exchange->memory.on_device) {
                source->memory = &exchange->memory;
                source->next = tensor->memory;
                tensor->memory = NULL;
                tensor->fetch = fetch_from_device;
            }
        }
    return DPB_OK;
}

void dpb_saved_close(struct dpb_saved_tensors *tensors)
{
    free(tensors->tensors);
    free(tensors->sources);
    *tensors = (struct dpb_saved_tensors){.n = 0};
}

/* In the pieces that the writer takes. */
dpb_status dpb_saved_give(struct dpb_exchange *exchange)
{
    struct dpb_saved saved;
    char key[KEY_BYTES];
    DPB_TRY(dpb_saved_list(exchange, &saved));
    snprintf(key, sizeof key, "saved/%u", dpb_world.rank);
    for (uint32_t i = 0; i < saved.n; i++) {
        const struct dpb_saved_array *array = &saved.arrays[i];
        const uint64_t bytes = array->n_elements * dpb_dtype_size(array->type);
        const void *content;
        if (array->common)
            continue;
        DPB_TRY(dpb_arena_look(exchange, array->memory, bytes, &content));
        DPB_TRY(dpb_store_give_all(key, content, bytes));
    }
    return DPB_OK;
}

/* ---- loading ------------------------------------------------------------------------------- */

static dpb_status read_array(struct dpb_exchange *exchange, const struct dpb_safetensors *file,
                             struct dpb_safetensor tensor)
{
    void *memory = tensor.memory;
    DPB_TRY(dpb_arena_edit(exchange, memory, &tensor.memory));
    DPB_TRY(dpb_safetensors_read(file, &tensor));
    return dpb_arena_commit(exchange, memory, tensor.dims[0] * dpb_dtype_size(tensor.type));
}

static dpb_status read_arrays(struct dpb_exchange *exchange, const struct dpb_safetensors *file,
                              const struct dpb_saved *saved, struct dpb_lost *missing)
{
    for (uint32_t i = 0; i < saved->n; i++) {
        const struct dpb_saved_array *array = &saved->arrays[i];
        char name[DPB_SAVED_NAME];
        const struct dpb_safetensor tensor =
            dpb_saved_tensor(comm_of(exchange->experiment), array, dpb_world.rank, name);
        if (!array->common && missing->n_ranks != missing->n_workers)
            continue; /* reported as lost */
        if (!dpb_safetensors_has(file, name) && missing->n++ == 0)
            snprintf(missing->first, sizeof missing->first, "%s", name);
        else if (dpb_safetensors_fits(file, &tensor) && array->memory) /* else reported as lost */
            DPB_TRY(read_array(exchange, file, tensor));
    }
    return DPB_OK;
}

dpb_status dpb_saved_load(struct dpb_exchange *exchange)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    struct dpb_saved saved;
    struct dpb_safetensors *file;
    if (!dpb_resumes(&experiment->settings))
        return DPB_OK;
    DPB_TRY(dpb_saved_list(exchange, &saved));
    DPB_TRY(dpb_safetensors_open(experiment->settings.checkpoint.load, &file));
    struct dpb_lost lost = {.comm = comm_of(experiment),
                            .n_workers = experiment->n_workers,
                            .file = file,
                            .saved = &saved};
    struct dpb_lost missing = lost;
    dpb_lost_look(&lost);
    missing.n_ranks = lost.n_ranks;
    dpb_status status = lost.n > 0 ? dpb_lost_tell(experiment, &lost, "it has") : DPB_OK;
    if (status == DPB_OK && lost.n_own > 0)
        status = read_arrays(exchange, file, &saved, &missing);
    if (status == DPB_OK && missing.n > 0)
        status = dpb_lost_tell(experiment, &missing, "it lacks");
    dpb_safetensors_close(file);
    return status;
}
