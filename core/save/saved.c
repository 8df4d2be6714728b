/* saved.c - see saved.h. */
#include "save/saved.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "graph/checkpoint.h"
#include "plugin/plugins.h"
#include "exchange/exchange.h"
#include "world/store.h"

enum { NAME_BYTES = 192, KEY_BYTES = 32 };

_Static_assert((int)DPB_SAFETENSORS_PIECE == (int)DPB_STORE_VALUE_BYTES, "a piece is one value");

struct dpb_saved_source {
    char name[NAME_BYTES];
    uint32_t rank;
    const struct dpb_arena_memory *memory; /* `next` lies in a device's; NULL: on the host */
    const char *next;
};

static const char *comm_of(const struct dpb_experiment *experiment)
{
    return experiment->settings.comm.name;
}

static bool continues(const struct dpb_settings *settings)
{
    return settings->checkpoint.load[0] && settings->checkpoint.resume &&
           settings->run.mode == DPB_MODE_TRAIN;
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
    const uint32_t most = DPB_SAVED - (exchange->is_late ? 1 : 0);
    memset(saved, 0, sizeof *saved);
    if (exchange->ops->state)
        DPB_TRY(exchange->ops->state(exchange->comm, saved));
    if (saved->n > most)
        return dpb_fail(DPB_FAILED, "comm '%s' names %u arrays of state; at most %u are saved",
                        comm_of(exchange->experiment), saved->n, most);
    if (exchange->is_late) { /* the published weights have a gradient more */
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

static struct dpb_safetensor tensor_of(const struct dpb_experiment *experiment,
                                       const struct dpb_saved_array *array, uint32_t rank,
                                       char name[NAME_BYTES])
{
    int n =
        snprintf(name, NAME_BYTES, DPB_CHECKPOINT_COMM "%s.%s", comm_of(experiment), array->name);
    if (!array->common && n < NAME_BYTES)
        snprintf(name + n, NAME_BYTES - (size_t)n, ".%u", rank);
    return (struct dpb_safetensor){.name = name,
                                   .type = array->type,
                                   .n_dims = 1,
                                   .dims = {(uint32_t)array->n_elements},
                                   .memory = array->memory};
}

void dpb_saved_warn(const struct dpb_exchange *exchange)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    const bool apart = !contract->replicas_equal || contract->settle_steps > 0 ||
                       contract->consistency == DPB_LOSSY;
    if (dpb_world.rank == 0 && apart && contract->consistency != DPB_ALONE &&
        !exchange->ops->state && !exchange->is_late &&
        exchange->experiment->settings.checkpoint.save[0])
        dpb_warn("state_not_saved",
                 "comm '%s' keeps gradients or replicas apart and has no hook `state`: a training "
                 "continued from %s begins without them",
                 comm_of(exchange->experiment), exchange->experiment->settings.checkpoint.save);
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
    if (!tensors->tensors || !tensors->sources)
        return dpb_fail(DPB_NO_MEMORY, "no memory to list the state of %u workers", n_workers);
    for (uint32_t i = 0; i < saved.n; i++)
        for (uint32_t rank = 0; rank < (saved.arrays[i].common ? 1 : n_workers); rank++) {
            struct dpb_saved_source *source = &tensors->sources[tensors->n];
            struct dpb_safetensor *tensor = &tensors->tensors[tensors->n++];
            source->rank = rank;
            *tensor = tensor_of(exchange->experiment, &saved.arrays[i], rank, source->name);
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

/* ---- what a file has ----------------------------------------------------------------------- */

/* comm.STRATEGY.ARRAY or comm.STRATEGY.ARRAY.RANK; false: another tensor's name. */
struct parts {
    char comm[64], array[64];
    bool common;
    uint32_t rank;
};

static bool parse(const char *name, struct parts *parts)
{
    int n = sscanf(name, DPB_CHECKPOINT_COMM "%63[a-z0-9_].%63[a-z0-9_].%9u", parts->comm,
                   parts->array, &parts->rank);
    parts->common = n == 2;
    return n >= 2;
}

/* The part of a file's state that is not kept: `keeps` decides. */
struct lost {
    const struct dpb_experiment *experiment;
    const struct dpb_safetensors *file;
    const struct dpb_saved *saved; /* NULL: the strategy has not been asked */
    uint32_t n_ranks;              /* in the file */
    uint32_t n_own, n;             /* of this strategy; lost */
    char first[NAME_BYTES];
};

static void count_ranks(void *context, const char *name)
{
    struct lost *lost = context;
    struct parts parts;
    if (!parse(name, &parts) || strcmp(parts.comm, comm_of(lost->experiment)) != 0)
        return;
    lost->n_own++;
    if (!parts.common && parts.rank >= lost->n_ranks)
        lost->n_ranks = parts.rank + 1;
}

static bool keeps(const struct lost *lost, const struct parts *parts)
{
    if (strcmp(parts->comm, comm_of(lost->experiment)) != 0 ||
        (!parts->common && lost->n_ranks != lost->experiment->n_workers))
        return false;
    bool listed = !lost->saved;
    for (uint32_t i = 0; lost->saved && i < lost->saved->n; i++) {
        const struct dpb_saved_array *array = &lost->saved->arrays[i];
        char name[NAME_BYTES];
        const struct dpb_safetensor tensor = tensor_of(lost->experiment, array, parts->rank, name);
        listed =
            listed || (strcmp(array->name, parts->array) == 0 && array->common == parts->common &&
                       dpb_safetensors_fits(lost->file, &tensor));
    }
    return listed;
}

static void count_lost(void *context, const char *name)
{
    struct lost *lost = context;
    struct parts parts;
    if (parse(name, &parts) && !keeps(lost, &parts) && lost->n++ == 0)
        snprintf(lost->first, sizeof lost->first, "%s", name);
}

static void look_for_lost(struct lost *lost)
{
    dpb_safetensors_visit(lost->file, count_ranks, lost);
    dpb_safetensors_visit(lost->file, count_lost, lost);
}

/* An error, or with checkpoint.partial = yes a warning of rank 0. */
static dpb_status tell_lost(const struct lost *lost, const char *what)
{
    const struct dpb_settings *settings = &lost->experiment->settings;
    if (!settings->checkpoint.partial)
        return dpb_fail(DPB_USAGE,
                        "%s: %s '%s' and %u more of a strategy's state, which comm '%s' with %u "
                        "workers cannot keep: continue with the strategy, options and workers it "
                        "was saved with, or without this state by checkpoint.partial=yes",
                        settings->checkpoint.load, what, lost->first, lost->n - 1,
                        comm_of(lost->experiment), lost->experiment->n_workers);
    if (dpb_world.rank == 0)
        dpb_warn("state_not_kept",
                 "%s: %s '%s' and %u more of a strategy's state, which comm '%s' with %u workers "
                 "cannot keep; they begin anew from the model (checkpoint.partial=yes)",
                 settings->checkpoint.load, what, lost->first, lost->n - 1,
                 comm_of(lost->experiment), lost->experiment->n_workers);
    return DPB_OK;
}

/* ---- loading ------------------------------------------------------------------------------- */

dpb_status dpb_saved_check(const struct dpb_experiment *experiment)
{
    struct lost lost = {.experiment = experiment};
    struct dpb_safetensors *file;
    if (!continues(&experiment->settings) || experiment->settings.checkpoint.partial)
        return DPB_OK;
    DPB_TRY(dpb_safetensors_open(experiment->settings.checkpoint.load, &file));
    lost.file = file;
    look_for_lost(&lost);
    dpb_safetensors_close(file);
    return lost.n > 0 ? tell_lost(&lost, "it has") : DPB_OK;
}

static dpb_status read_array(struct dpb_exchange *exchange, const struct dpb_safetensors *file,
                             struct dpb_safetensor tensor)
{
    void *memory = tensor.memory;
    DPB_TRY(dpb_arena_edit(exchange, memory, &tensor.memory));
    DPB_TRY(dpb_safetensors_read(file, &tensor));
    return dpb_arena_commit(exchange, memory, tensor.dims[0] * dpb_dtype_size(tensor.type));
}

static dpb_status read_arrays(struct dpb_exchange *exchange, const struct dpb_safetensors *file,
                              const struct dpb_saved *saved, struct lost *missing)
{
    for (uint32_t i = 0; i < saved->n; i++) {
        const struct dpb_saved_array *array = &saved->arrays[i];
        char name[NAME_BYTES];
        const struct dpb_safetensor tensor =
            tensor_of(exchange->experiment, array, dpb_world.rank, name);
        if (!array->common && missing->n_ranks != missing->experiment->n_workers)
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
    if (!continues(&experiment->settings))
        return DPB_OK;
    DPB_TRY(dpb_saved_list(exchange, &saved));
    DPB_TRY(dpb_safetensors_open(experiment->settings.checkpoint.load, &file));
    struct lost lost = {.experiment = experiment, .file = file, .saved = &saved};
    look_for_lost(&lost);
    struct lost missing = {.experiment = experiment, .n_ranks = lost.n_ranks};
    dpb_status status = lost.n > 0 ? tell_lost(&lost, "it has") : DPB_OK;
    if (status == DPB_OK && lost.n_own > 0)
        status = read_arrays(exchange, file, &saved, &missing);
    if (status == DPB_OK && missing.n > 0)
        status = tell_lost(&missing, "it lacks");
    dpb_safetensors_close(file);
    return status;
}
