/* checkpoint.c - see checkpoint.h. */
#include "checkpoint/checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/log.h"
#include "base/text.h"

enum { NAME_BYTES = 256 };

#define OPTIMIZER_PREFIX "optimizer."

/* ---- the tensors of a checkpoint ----------------------------------------------------------- */

/* In canonical order: node by node, weight, bias, mean, variance; then the optimizer's. */
struct tensors {
    struct dpb_safetensor *array; /* @owned */
    char (*names)[NAME_BYTES];    /* @owned: of the optimizer's */
    uint32_t n, n_model;          /* n_model: without the optimizer's */
};

static struct dpb_safetensor tensor_of(const struct dpb_checkpoint *checkpoint, uint32_t index,
                                       void *arena)
{
    const struct dpb_tensor *tensor = &checkpoint->graph->tensors[index];
    struct dpb_safetensor made = {
        .name = tensor->name,
        .type = checkpoint->type,
        .n_dims = tensor->n_dims,
        .memory = arena ? (char *)arena + tensor->offset * dpb_dtype_size(checkpoint->type) : NULL};
    memcpy(made.dims, tensor->dims, tensor->n_dims * sizeof made.dims[0]);
    return made;
}

static void add_tensor(struct tensors *tensors, const struct dpb_checkpoint *checkpoint,
                       uint32_t index)
{
    if (index != DPB_NONE)
        tensors->array[tensors->n++] = tensor_of(checkpoint, index, checkpoint->weights);
}

static void add_state(struct tensors *tensors, const struct dpb_checkpoint *checkpoint,
                      uint32_t index)
{
    if (index == DPB_NONE)
        return;
    const struct dpb_state *state = &checkpoint->graph->states[index];
    size_t at = state->offset * dpb_dtype_size(checkpoint->type);
    tensors->array[tensors->n++] = (struct dpb_safetensor){
        .name = state->name,
        .type = checkpoint->type,
        .n_dims = 1,
        .dims = {(uint32_t)state->n_elements},
        .memory = checkpoint->state ? (char *)checkpoint->state + at : NULL};
}

static uint32_t count_optimizer_arrays(const struct dpb_checkpoint *checkpoint)
{
    uint32_t n = 0;
    while (n < DPB_OPTIMIZER_STATES && checkpoint->optimizer_names[n])
        n++;
    return n;
}

static dpb_status add_optimizer(struct tensors *tensors, const struct dpb_checkpoint *checkpoint,
                                uint32_t array, uint32_t index)
{
    if (index == DPB_NONE)
        return DPB_OK;
    const size_t before = array * checkpoint->graph->n_elements * dpb_dtype_size(checkpoint->type);
    char *arena = checkpoint->optimizer ? (char *)checkpoint->optimizer + before : NULL;
    struct dpb_safetensor tensor = tensor_of(checkpoint, index, arena);
    char *name = tensors->names[tensors->n - tensors->n_model];
    int length = snprintf(name, NAME_BYTES, OPTIMIZER_PREFIX "%s.%s",
                          checkpoint->optimizer_names[array], tensor.name);
    if (length >= NAME_BYTES)
        return dpb_fail(DPB_UNSUPPORTED,
                        "checkpoint of %s: the name of tensor '%.40s...' is too long",
                        checkpoint->graph->name, tensor.name);
    tensor.name = name;
    tensors->array[tensors->n++] = tensor;
    return DPB_OK;
}

/* The weight of a tied product is the embedding's, and there once. */
static uint32_t own_weight(const struct dpb_graph *graph, uint32_t node)
{
    const uint32_t weight = graph->nodes[node].weight;
    return weight == DPB_NONE || graph->tensors[weight].node == node ? weight : DPB_NONE;
}

static void tensors_close(struct tensors *tensors)
{
    free(tensors->array);
    free(tensors->names);
}

static dpb_status tensors_open(const struct dpb_checkpoint *checkpoint, struct tensors *tensors)
{
    const struct dpb_graph *graph = checkpoint->graph;
    assert(checkpoint->type == DPB_FP32 || checkpoint->type == DPB_FP64);
    const size_t n_names = DPB_OPTIMIZER_STATES * (size_t)graph->n_tensors;
    size_t n = n_names + graph->n_tensors + graph->n_states + checkpoint->n_more + 1;
    *tensors = (struct tensors){.array = calloc(n, sizeof *tensors->array),
                                .names = calloc(n_names + 1, sizeof *tensors->names)};
    if (!tensors->array || !tensors->names)
        return dpb_fail(DPB_NO_MEMORY, "checkpoint of %s: out of memory", graph->name);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        add_tensor(tensors, checkpoint, own_weight(graph, i));
        add_tensor(tensors, checkpoint, node->bias);
        add_state(tensors, checkpoint, node->mean);
        add_state(tensors, checkpoint, node->variance);
    }
    tensors->n_model = tensors->n;
    for (uint32_t k = 0; k < count_optimizer_arrays(checkpoint); k++) {
        for (uint32_t i = 0; i < graph->n_nodes; i++) {
            DPB_TRY(add_optimizer(tensors, checkpoint, k, own_weight(graph, i)));
            DPB_TRY(add_optimizer(tensors, checkpoint, k, graph->nodes[i].bias));
        }
    }
    return DPB_OK;
}

/* ---- progress ------------------------------------------------------------------------------ */

struct field {
    const char *key;
    size_t offset; /* of a 64-bit word of struct dpb_progress */
    bool scaling;  /* of fp16: 0 is not written, and a missing one is 0 */
};

static const struct field fields[] = {
    {"dpbench.step", offsetof(struct dpb_progress, step), false},
    {"dpbench.samples", offsetof(struct dpb_progress, samples), false},
    {"dpbench.epoch", offsetof(struct dpb_progress, epoch), false},
    {"dpbench.position", offsetof(struct dpb_progress, position), false},
    {"dpbench.trained_ns", offsetof(struct dpb_progress, trained_ns), false},
    {"dpbench.seed", offsetof(struct dpb_progress, seed), false},
    {"dpbench.loss_scale", offsetof(struct dpb_progress, loss_scale), true},
    {"dpbench.clean_steps", offsetof(struct dpb_progress, clean_steps), true},
    {"dpbench.skipped_steps", offsetof(struct dpb_progress, skipped_steps), true},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static uint64_t *field_of(struct dpb_progress *progress, size_t i)
{
    return (uint64_t *)((char *)progress + fields[i].offset);
}

static dpb_status read_progress(const char *path, const struct dpb_safetensors *file,
                                struct dpb_progress *progress)
{
    const uint64_t most = UINT64_C(1) << 62; /* the sum of two does not overflow */
    memset(progress, 0, sizeof *progress);
    for (size_t i = 0; i < N_FIELDS; i++) {
        const char *text = dpb_safetensors_metadata(file, fields[i].key);
        if (!text)
            continue;
        char *end;
        errno = 0;
        unsigned long long value = strtoull(text, &end, 10);
        if (text[0] < '0' || text[0] > '9' || *end || errno || value > most)
            return dpb_fail(DPB_DATA, "%s: %s = '%.40s' is no whole number, or too large", path,
                            fields[i].key, text);
        *field_of(progress, i) = value;
    }
    return DPB_OK;
}

/* ---- saving -------------------------------------------------------------------------------- */

dpb_status dpb_checkpoint_save(const char *path, const struct dpb_checkpoint *checkpoint,
                               const struct dpb_progress *progress, const char *const *metadata)
{
    enum { MORE = 16 };
    const char *pairs[2 * (N_FIELDS + MORE) + 1];
    char values[N_FIELDS][24];
    struct dpb_progress copy = *progress;
    size_t n = 0;
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (fields[i].scaling && *field_of(&copy, i) == 0)
            continue;
        snprintf(values[i], sizeof values[i], "%" PRIu64, *field_of(&copy, i));
        pairs[n++] = fields[i].key;
        pairs[n++] = values[i];
    }
    for (; metadata && *metadata; metadata++) {
        assert(n < 2 * (N_FIELDS + MORE));
        pairs[n++] = *metadata;
    }
    pairs[n] = NULL;
    struct tensors tensors;
    dpb_status status = tensors_open(checkpoint, &tensors);
    if (status == DPB_OK) {
        uint32_t n_written = checkpoint->optimizer ? tensors.n : tensors.n_model;
        for (uint32_t i = 0; i < checkpoint->n_more; i++)
            tensors.array[n_written++] = checkpoint->more[i];
        status = dpb_safetensors_write(path, tensors.array, n_written, pairs);
    }
    tensors_close(&tensors);
    return status;
}

/* ---- loading ------------------------------------------------------------------------------- */

/* Whether the file has this optimizer's state; a training under way must. */
static dpb_status find_optimizer(const char *path, const struct dpb_safetensors *file,
                                 const struct tensors *tensors, uint64_t step, bool *found)
{
    *found = false;
    for (uint32_t i = tensors->n_model; i < tensors->n && !*found; i++)
        *found = dpb_safetensors_has(file, tensors->array[i].name);
    if (tensors->n == tensors->n_model || *found || step == 0)
        return DPB_OK;
    return dpb_fail(DPB_DATA,
                    "%s: is of a training after step %" PRIu64 ", but has no '%s': it had another "
                    "optimizer. Take that one, or only the weights: checkpoint.resume=no",
                    path, step, tensors->array[tensors->n_model].name);
}

/* Finds all mistakes of the file; on success the first `*n` tensors are read. */
static dpb_status check(const char *path, const struct dpb_safetensors *file,
                        const struct tensors *tensors, struct dpb_progress *progress, uint32_t *n)
{
    bool found;
    DPB_TRY(read_progress(path, file, progress));
    for (uint32_t i = 0; i < tensors->n_model; i++)
        DPB_TRY(dpb_safetensors_check(file, &tensors->array[i]));
    DPB_TRY(find_optimizer(path, file, tensors, progress->step, &found));
    *n = found ? tensors->n : tensors->n_model;
    for (uint32_t i = tensors->n_model; i < *n; i++)
        DPB_TRY(dpb_safetensors_check(file, &tensors->array[i]));
    return DPB_OK;
}

/* Warns of tensors that are not the model's, except PyTorch's counters of batches and optimizer
 * state. */
struct others {
    json_t *known;
    const char *first;
    size_t n;
};

static void count_other(void *context, const char *name)
{
    struct others *others = context;
    bool expected =
        json_object_get(others->known, name) || dpb_begins_with(name, OPTIMIZER_PREFIX) ||
        dpb_begins_with(name, DPB_CHECKPOINT_COMM) || dpb_ends_on(name, ".num_batches_tracked");
    if (!expected && others->n++ == 0)
        others->first = name;
}

static void warn_of_others(const char *path, const struct dpb_safetensors *file,
                           const struct tensors *tensors)
{
    struct others others = {.known = json_object()};
    for (uint32_t i = 0; i < tensors->n; i++)
        json_object_set_new(others.known, tensors->array[i].name, json_true());
    dpb_safetensors_visit(file, count_other, &others);
    if (others.n > 0)
        dpb_warn("checkpoint_other_tensors",
                 "%s: %zu tensors are not the model's and were not read; the first is '%s'", path,
                 others.n, others.first);
    json_decref(others.known);
}

static dpb_status read_all(const struct dpb_safetensors *file,
                           const struct dpb_checkpoint *checkpoint, const struct tensors *tensors,
                           uint32_t n)
{
    const struct dpb_graph *graph = checkpoint->graph;
    size_t element = dpb_dtype_size(checkpoint->type);
    /* From here on only input and output can fail. Gaps between the tensors hold zeros. */
    if (checkpoint->weights)
        memset(checkpoint->weights, 0, graph->n_elements * element);
    if (checkpoint->state)
        memset(checkpoint->state, 0, graph->n_state_elements * element);
    if (checkpoint->optimizer)
        memset(checkpoint->optimizer, 0,
               count_optimizer_arrays(checkpoint) * graph->n_elements * element);
    for (uint32_t i = 0; i < n; i++)
        if (tensors->array[i].memory)
            DPB_TRY(dpb_safetensors_read(file, &tensors->array[i]));
    return DPB_OK;
}

/* Loads with `load`, else only checks. */
static dpb_status visit(const char *path, const struct dpb_checkpoint *checkpoint, bool load,
                        struct dpb_progress *progress)
{
    struct tensors tensors;
    struct dpb_safetensors *file = NULL;
    uint32_t n = 0;
    dpb_status status = tensors_open(checkpoint, &tensors);
    DPB_THEN(status, dpb_safetensors_open(path, &file));
    DPB_THEN(status, check(path, file, &tensors, progress, &n));
    if (status == DPB_OK && load)
        status = read_all(file, checkpoint, &tensors, n);
    if (status == DPB_OK && load)
        warn_of_others(path, file, &tensors);
    dpb_safetensors_close(file);
    tensors_close(&tensors);
    return status;
}

dpb_status dpb_checkpoint_check(const char *path, const struct dpb_checkpoint *checkpoint,
                                struct dpb_progress *progress)
{
    struct dpb_progress found;
    DPB_TRY(visit(path, checkpoint, false, &found));
    *progress = found;
    return DPB_OK;
}

dpb_status dpb_checkpoint_load(const char *path, const struct dpb_checkpoint *checkpoint)
{
    struct dpb_progress progress;
    return visit(path, checkpoint, true, &progress);
}
