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
#include "checkpoint/layout.h"

#define OPTIMIZER_PREFIX "optimizer."

/* ---- the tensors of a checkpoint ----------------------------------------------------------- */

/* In canonical order: node by node, weight, bias, mean, variance; then the optimizer's. */
struct tensors {
    const struct dpb_file_layout *layout; /* NULL: dpbench's own */
    struct dpb_safetensor *array;         /* @owned */
    char (*names)[DPB_LAYOUT_KEY];        /* @owned: those that are not the graph's, by place */
    uint32_t n, n_model;                  /* n_model: without the optimizer's */
};

static struct dpb_safetensor tensor_of(const struct dpb_checkpoint *checkpoint, uint32_t index)
{
    const struct dpb_tensor *tensor = &checkpoint->graph->tensors[index];
    struct dpb_safetensor made = {
        .name = tensor->name, .type = checkpoint->type, .n_dims = tensor->n_dims};
    memcpy(made.dims, tensor->dims, tensor->n_dims * sizeof made.dims[0]);
    return made;
}

/* Adds a tensor, which has the graph's name and dims, as the layout has it. */
static dpb_status add(struct tensors *tensors, const struct dpb_checkpoint *checkpoint,
                      uint32_t node, struct dpb_safetensor made, void *arena, uint64_t offset)
{
    const char *name = checkpoint->graph->nodes[node].name;
    if (tensors->layout)
        DPB_TRY(dpb_layout_apply(tensors->layout, name, made.name + strlen(name),
                                 tensors->names[tensors->n], &made));
    made.memory = arena ? (char *)arena + offset * dpb_dtype_size(made.type) : NULL;
    tensors->array[tensors->n++] = made;
    return DPB_OK;
}

static dpb_status add_tensor(struct tensors *tensors, const struct dpb_checkpoint *checkpoint,
                             uint32_t index)
{
    if (index == DPB_NONE)
        return DPB_OK;
    const struct dpb_tensor *tensor = &checkpoint->graph->tensors[index];
    return add(tensors, checkpoint, tensor->node, tensor_of(checkpoint, index), checkpoint->weights,
               tensor->offset);
}

static dpb_status add_state(struct tensors *tensors, const struct dpb_checkpoint *checkpoint,
                            uint32_t index)
{
    if (index == DPB_NONE)
        return DPB_OK;
    const struct dpb_state *state = &checkpoint->graph->states[index];
    const struct dpb_safetensor made = {.name = state->name,
                                        .type = checkpoint->type,
                                        .n_dims = 1,
                                        .dims = {(uint32_t)state->n_elements}};
    return add(tensors, checkpoint, state->node, made, checkpoint->state, state->offset);
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
    const struct dpb_tensor *tensor = &checkpoint->graph->tensors[index];
    char name[DPB_LAYOUT_KEY], *kept = tensors->names[tensors->n];
    struct dpb_safetensor *made = &tensors->array[tensors->n];
    DPB_TRY(add(tensors, checkpoint, tensor->node, tensor_of(checkpoint, index),
                checkpoint->optimizer, array * checkpoint->graph->n_elements + tensor->offset));
    int length = snprintf(name, sizeof name, OPTIMIZER_PREFIX "%s.%s",
                          checkpoint->optimizer_names[array], made->name);
    if (length >= DPB_LAYOUT_KEY)
        return dpb_fail(DPB_UNSUPPORTED,
                        "checkpoint of %s: the name of tensor '%.40s...' is too long",
                        checkpoint->graph->name, made->name);
    made->name = strcpy(kept, name);
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

static dpb_status tensors_open(const struct dpb_checkpoint *checkpoint,
                               const struct dpb_file_layout *layout, struct tensors *tensors)
{
    const struct dpb_graph *graph = checkpoint->graph;
    assert(checkpoint->type == DPB_FP32 || checkpoint->type == DPB_FP64);
    const size_t n = (1 + DPB_OPTIMIZER_STATES) * (size_t)graph->n_tensors + graph->n_states;
    *tensors = (struct tensors){.layout = layout,
                                .array = calloc(n + checkpoint->n_more + 1, sizeof *tensors->array),
                                .names = calloc(n + 1, sizeof *tensors->names)};
    DPB_TRY(dpb_allocated(tensors->array && tensors->names));
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct dpb_node *node = &graph->nodes[i];
        DPB_TRY(add_tensor(tensors, checkpoint, own_weight(graph, i)));
        DPB_TRY(add_tensor(tensors, checkpoint, node->bias));
        DPB_TRY(add_state(tensors, checkpoint, node->mean));
        DPB_TRY(add_state(tensors, checkpoint, node->variance));
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
    const char *pairs[2 * (N_FIELDS + MORE) + 3];
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
    if (checkpoint->layout) { /* Hugging Face's loader asks for it */
        pairs[n++] = "format";
        pairs[n++] = "pt";
    }
    pairs[n] = NULL;
    struct tensors tensors;
    dpb_status status = tensors_open(checkpoint, checkpoint->layout, &tensors);
    if (status == DPB_OK) {
        uint32_t n_written = checkpoint->optimizer ? tensors.n : tensors.n_model;
        for (uint32_t i = 0; i < checkpoint->n_more; i++)
            tensors.array[n_written++] = checkpoint->more[i];
        status = dpb_safetensors_write(path, tensors.array, n_written, pairs, checkpoint->over);
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

/* An open file, and what a graph finds in it. */
struct source {
    const char *path;
    struct dpb_safetensors *file;
    json_t *names; /* by keys: dpb_layout_names() */
    json_t *known; /* names of tensors that are the model's */
    struct tensors tensors;
};

/* The file's name for a tensor's key, which it replaces. A file without it is refused later. */
static dpb_status take_name(const struct source *source, struct dpb_safetensor *tensor)
{
    const json_t *names = json_object_get(source->names, tensor->name);
    if (json_array_size(names) > 1)
        return dpb_fail(DPB_DATA, "%s: has both '%s' and '%s', which is one tensor; leave one out",
                        source->path, json_string_value(json_array_get(names, 0)),
                        json_string_value(json_array_get(names, 1)));
    if (names && !dpb_safetensors_has(source->file, tensor->name))
        tensor->name = json_string_value(json_array_get(names, 0));
    return DPB_OK;
}

static uint32_t count_names(const struct source *source, const struct tensors *tensors)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < tensors->n_model; i++)
        n += json_object_get(source->names, tensors->array[i].name) != NULL;
    return n;
}

/* Lists the graph's tensors in the layout of which the file has more names. */
static dpb_status recognise(const struct dpb_checkpoint *checkpoint, struct source *source)
{
    const struct dpb_file_layout *layout = checkpoint->graph->layout;
    source->names = dpb_layout_names(layout, source->file);
    source->known = json_object();
    DPB_TRY(dpb_allocated(source->names && source->known));
    DPB_TRY(tensors_open(checkpoint, NULL, &source->tensors));
    if (!layout)
        return DPB_OK;
    struct tensors other;
    dpb_status status = tensors_open(checkpoint, layout, &other);
    if (status == DPB_OK && count_names(source, &other) > count_names(source, &source->tensors)) {
        struct tensors own = source->tensors;
        source->tensors = other;
        other = own;
    }
    tensors_close(&other);
    return status;
}

/* A tied weight may be there a second time, as the weight of the product. */
static dpb_status check_copies(const struct dpb_checkpoint *checkpoint, const struct source *source)
{
    const struct dpb_graph *graph = checkpoint->graph;
    const struct dpb_file_layout *layout = source->tensors.layout;
    for (uint32_t i = 0; layout && i < graph->n_nodes; i++) {
        const uint32_t weight = graph->nodes[i].weight;
        char keys[2][DPB_LAYOUT_KEY];
        bool equal;
        if (weight == own_weight(graph, i))
            continue;
        const char *owner = graph->nodes[graph->tensors[weight].node].name;
        const char *suffix = graph->tensors[weight].name + strlen(owner);
        struct dpb_safetensor first = tensor_of(checkpoint, weight), second = first;
        DPB_TRY(dpb_layout_apply(layout, owner, suffix, keys[0], &first));
        DPB_TRY(dpb_layout_apply(layout, graph->nodes[i].name, suffix, keys[1], &second));
        DPB_TRY(take_name(source, &first));
        DPB_TRY(take_name(source, &second));
        if (!dpb_safetensors_has(source->file, second.name))
            continue;
        DPB_TRY(dpb_safetensors_equal(source->file, &first, &second, &equal));
        json_object_set_new(source->known, second.name, json_true());
        if (!equal)
            return dpb_fail(DPB_DATA,
                            "%s: '%s' differs from '%s', and model '%s' has one tensor for both; "
                            "take a model that has two",
                            source->path, second.name, first.name, graph->name);
    }
    return DPB_OK;
}

/* Finds all mistakes of the file; on success the first `*n` tensors are read. */
static dpb_status check(const struct dpb_checkpoint *checkpoint, struct source *source,
                        struct dpb_progress *progress, uint32_t *n)
{
    struct tensors *tensors = &source->tensors;
    bool found;
    DPB_TRY(read_progress(source->path, source->file, progress));
    for (uint32_t i = 0; i < tensors->n_model; i++) {
        DPB_TRY(take_name(source, &tensors->array[i]));
        DPB_TRY(dpb_safetensors_check(source->file, &tensors->array[i]));
    }
    DPB_TRY(check_copies(checkpoint, source));
    DPB_TRY(find_optimizer(source->path, source->file, tensors, progress->step, &found));
    *n = found ? tensors->n : tensors->n_model;
    for (uint32_t i = tensors->n_model; i < *n; i++)
        DPB_TRY(dpb_safetensors_check(source->file, &tensors->array[i]));
    return DPB_OK;
}

/* Warns of tensors that are not the model's, except PyTorch's counters of batches, the layout's
 * masks and optimizer state. */
struct others {
    const struct source *source;
    const char *first;
    size_t n;
};

static void count_other(void *context, const char *name)
{
    struct others *others = context;
    const struct dpb_file_layout *layout = others->source->tensors.layout;
    bool expected =
        json_object_get(others->source->known, name) || dpb_begins_with(name, OPTIMIZER_PREFIX) ||
        dpb_begins_with(name, DPB_CHECKPOINT_COMM) || dpb_ends_on(name, ".num_batches_tracked") ||
        dpb_layout_skips(layout, dpb_layout_key_of(layout, name));
    if (!expected && others->n++ == 0)
        others->first = name;
}

static void warn_of_others(const struct source *source)
{
    struct others others = {.source = source};
    for (uint32_t i = 0; i < source->tensors.n; i++)
        json_object_set_new(source->known, source->tensors.array[i].name, json_true());
    dpb_safetensors_visit(source->file, count_other, &others);
    if (others.n > 0)
        dpb_warn("checkpoint_other_tensors",
                 "%s: %zu tensors are not the model's and were not read; the first is '%s'",
                 source->path, others.n, others.first);
}

/* Logs what was recognised, unless it is dpbench's own file. */
static void tell(const struct source *source)
{
    const struct dpb_file_layout *layout = source->tensors.layout;
    const char *name = source->tensors.array[0].name;
    const int prefix = (int)(dpb_layout_key_of(layout, name) - name);
    if (layout || prefix > 0)
        dpb_log(DPB_LOG_INFO, "%s: recognised as layout %s%s%.*s%s", source->path,
                layout ? layout->name : "dpbench", prefix > 0 ? ", with names behind '" : "",
                prefix, name, prefix > 0 ? "'" : "");
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
    struct source source = {.path = path};
    uint32_t n = 0;
    dpb_status status = dpb_safetensors_open(path, &source.file);
    DPB_THEN(status, recognise(checkpoint, &source));
    DPB_THEN(status, check(checkpoint, &source, progress, &n));
    if (status == DPB_OK && load)
        status = read_all(source.file, checkpoint, &source.tensors, n);
    if (status == DPB_OK && checkpoint->has_optimizer)
        *checkpoint->has_optimizer = n > source.tensors.n_model;
    if (status == DPB_OK && load)
        warn_of_others(&source);
    if (status == DPB_OK && load && checkpoint->tells)
        tell(&source);
    tensors_close(&source.tensors);
    json_decref(source.known);
    json_decref(source.names);
    dpb_safetensors_close(source.file);
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
