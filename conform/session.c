/* session.c - see session.h. */
#include "conform/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dpbench/random.h"

void *dpb_session_allocate(uint64_t n, size_t size)
{
    void *memory = NULL;
    const size_t bytes = n * size + DPB_CACHE_LINE;
    if (posix_memalign(&memory, DPB_CACHE_LINE, bytes) != 0) {
        dpb_fail(DPB_NO_MEMORY, "no memory for %llu elements of a network", (unsigned long long)n);
        return NULL;
    }
    memset(memory, 0, bytes);
    return memory;
}

dpb_dtype dpb_session_type(const struct dpb_session *s)
{
    return s->precision == DPB_PRECISION_FP64 ? DPB_FP64 : DPB_FP32;
}

double dpb_session_value(const struct dpb_session *s, const void *arena, uint64_t i)
{
    return s->precision == DPB_PRECISION_FP64 ? ((const double *)arena)[i]
                                              : (double)((const float *)arena)[i];
}

void dpb_session_set(const struct dpb_session *s, void *arena, uint64_t i, double value)
{
    if (s->precision == DPB_PRECISION_FP64)
        ((double *)arena)[i] = value;
    else
        ((float *)arena)[i] = (float)value;
}

/* ---- test material ------------------------------------------------------------------------- */

static double noise(uint32_t what, uint64_t i)
{
    struct dpb_random4 r =
        dpb_random(DPB_SESSION_SEED, DPB_STREAM_SYNTHETIC, what, (uint32_t)i, 0, 0);
    double pair[2];
    dpb_random_normal(r.v[0], r.v[1], pair);
    return pair[0];
}

static void add_noise(const struct dpb_session *s, void *arena, uint64_t i, double value)
{
    dpb_session_set(s, arena, i, dpb_session_value(s, arena, i) + value);
}

static void fill_weights(const struct dpb_session *s)
{
    dpb_graph_initialise(s->graph, DPB_SESSION_SEED, dpb_session_type(s), s->weights);
    for (uint32_t t = 0; t < s->graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &s->graph->tensors[t];
        for (uint64_t i = 0; tensor->n_dims == 1 && i < tensor->n_elements; i++)
            add_noise(s, s->weights, tensor->offset + i, 0.2 * noise(t, i));
    }
}

static void fill_state(const struct dpb_session *s)
{
    dpb_graph_initialise_state(s->graph, dpb_session_type(s), s->state);
    for (uint32_t k = 0; k < s->graph->n_states; k++) {
        const struct dpb_state *item = &s->graph->states[k];
        for (uint64_t i = 0; i < item->n_elements; i++)
            add_noise(s, s->state, item->offset + i, 0.3 * fabs(noise(1000 + k, i)));
    }
}

static dpb_status fill_batch(const struct dpb_session_args *args, struct dpb_session *s)
{
    s->format = (struct dpb_sample_format){.shape = s->graph->nodes[0].shape,
                                           .type = args->type,
                                           .order = args->order,
                                           .scale = {0.02f, 0.017f, 0.023f, 0.01f},
                                           .offset = {-2.1f, -1.9f, -2.4f, 0.5f}};
    const bool as_bytes = args->type == DPB_UINT8;
    uint64_t n = args->batch * dpb_shape_elements(s->format.shape);
    void *samples = dpb_session_allocate(n, dpb_dtype_size(args->type));
    const uint32_t n_labels = args->batch * dpb_graph_labels(s->graph);
    int32_t *labels = dpb_session_allocate(n_labels, sizeof *labels);
    s->batch = (struct dpb_batch){
        .format = &s->format, .samples = samples, .labels = labels, .n = args->batch};
    if (!samples || !labels)
        return DPB_NO_MEMORY;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t byte =
            (uint8_t)dpb_random(DPB_SESSION_SEED, DPB_STREAM_SYNTHETIC, 2000, (uint32_t)i, 0, 0)
                .v[0];
        if (as_bytes)
            ((uint8_t *)samples)[i] = byte;
        else if (args->type == DPB_INT32)
            ((int32_t *)samples)[i] = byte % (int32_t)s->graph->nclass;
        else
            ((float *)samples)[i] = (float)byte + 0.3f;
    }
    for (uint32_t i = 0; i < n_labels; i++)
        labels[i] = (int32_t)((i * 3 + 1) % s->graph->nclass);
    return DPB_OK;
}

/* ---- passes -------------------------------------------------------------------------------- */

/* Tensors behind the node of the last frontier are as they were: NaN. */
static dpb_status check_order(const struct dpb_session *s)
{
    const struct dpb_graph *graph = s->graph;
    uint32_t t = 0;
    while (t < graph->n_tensors && graph->tensors[t].offset < s->frontier)
        t++;
    const uint32_t node = t < graph->n_tensors ? graph->tensors[t].node : UINT32_MAX;
    for (; s->node_by_node && t < graph->n_tensors; t++)
        for (uint64_t i = 0; graph->tensors[t].node != node && i < graph->tensors[t].n_elements;
             i += 1 + i / 2)
            if (!isnan(dpb_session_value(s, s->gradients, graph->tensors[t].offset + i)))
                return dpb_fail(DPB_VERIFICATION,
                                "%s: the gradient of '%s' was written before that of the node at "
                                "frontier %llu was final; the device promises "
                                "DPB_DEVICE_NODE_BY_NODE",
                                graph->name, graph->tensors[t].name,
                                (unsigned long long)s->frontier);
    return DPB_OK;
}

/* The range is final: remember its gradients, and take its weights away. */
static dpb_status on_final(void *context, uint64_t frontier, struct dpb_event *event)
{
    struct dpb_session *s = context;
    if (event)
        return dpb_fail(DPB_VERIFICATION,
                        "%s: hooks->final was called with an event, and memory->takes_events is "
                        "false",
                        s->graph->name);
    if (frontier <= s->frontier || frontier > s->graph->n_elements)
        return dpb_fail(DPB_VERIFICATION,
                        "%s: hooks->final was called with frontier %llu after %llu; frontiers rise "
                        "to n_elements = %llu",
                        s->graph->name, (unsigned long long)frontier,
                        (unsigned long long)s->frontier, (unsigned long long)s->graph->n_elements);
    DPB_TRY(check_order(s));
    for (uint64_t i = s->frontier; i < frontier; i++) {
        dpb_session_set(s, s->at_frontier, i, dpb_session_value(s, s->gradients, i));
        if (s->spoil)
            dpb_session_set(s, s->weights, i, NAN);
    }
    s->frontier = frontier;
    return DPB_OK;
}

static void spoil_all(struct dpb_session *s)
{
    for (uint64_t i = 0; s->spoil && s->kept && i < s->graph->n_elements; i++)
        dpb_session_set(s, s->weights, i, NAN);
}

/* Weights of this node alone are there. */
static dpb_status on_enter(void *context, uint32_t node)
{
    struct dpb_session *s = context;
    const uint32_t tensors[] = {s->graph->nodes[node].weight, s->graph->nodes[node].bias};
    spoil_all(s);
    for (int t = 0; s->spoil && s->kept && t < 2; t++)
        for (uint64_t i = 0; tensors[t] != DPB_NONE && i < s->graph->tensors[tensors[t]].n_elements;
             i++) {
            const uint64_t at = s->graph->tensors[tensors[t]].offset + i;
            dpb_session_set(s, s->weights, at, dpb_session_value(s, s->kept, at));
        }
    return DPB_OK;
}

static dpb_status on_progress(void *context)
{
    struct dpb_session *s = context;
    s->n_progress++;
    return DPB_OK;
}

dpb_status dpb_session_forward(struct dpb_session *s)
{
    s->n_progress = 0;
    spoil_all(s);
    return s->ops->forward(s->program, &s->pass, &s->batch, &s->hooks, &s->outcome);
}

/* Bit by bit: gradients that overflow are no numbers, and rightly. A gradient that backward did not
 * assign is no number either; the comparison with the reference finds it. */
static dpb_status check_gradients(const struct dpb_session *s)
{
    const struct dpb_graph *graph = s->graph;
    const size_t size = dpb_dtype_size(dpb_session_type(s));
    if (s->frontier != graph->n_elements)
        return dpb_fail(DPB_VERIFICATION,
                        "%s: the last hooks->final of backward had frontier %llu, not n_elements = "
                        "%llu",
                        graph->name, (unsigned long long)s->frontier,
                        (unsigned long long)graph->n_elements);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &graph->tensors[t];
        for (uint64_t i = 0; i < tensor->n_elements; i++) {
            const uint64_t at = tensor->offset + i;
            double now = dpb_session_value(s, s->gradients, at);
            double then = dpb_session_value(s, s->at_frontier, at);
            if (memcmp((char *)s->gradients + at * size, (char *)s->at_frontier + at * size,
                       size) != 0)
                return dpb_fail(DPB_VERIFICATION,
                                "%s: gradient of '%s', element %llu: %.9g when hooks->final "
                                "announced it, %.9g after backward",
                                graph->name, tensor->name, (unsigned long long)i, then, now);
        }
    }
    return DPB_OK;
}

dpb_status dpb_session_backward(struct dpb_session *s)
{
    const struct dpb_graph *graph = s->graph;
    s->frontier = 0;
    s->n_progress = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        for (uint64_t i = 0; i < graph->tensors[t].n_elements; i++)
            dpb_session_set(s, s->gradients, graph->tensors[t].offset + i, NAN);
    }
    DPB_TRY(s->ops->backward(s->program, &s->pass, &s->hooks));
    return check_gradients(s);
}

/* ---- open and close ------------------------------------------------------------------------ */

struct dpb_device_memory dpb_session_memory(const struct dpb_session *s)
{
    return (struct dpb_device_memory){.weights = s->weights,
                                      .gradients = s->pass.training ? s->gradients : NULL,
                                      .state = s->state,
                                      .statistics = s->statistics};
}

static dpb_status make_arenas(const struct dpb_session_args *args, struct dpb_session *s)
{
    const size_t size = dpb_dtype_size(dpb_session_type(s));
    const struct dpb_graph *graph = s->graph;
    s->weights = dpb_session_allocate(graph->n_elements, size);
    s->gradients = dpb_session_allocate(graph->n_elements, size);
    s->at_frontier = dpb_session_allocate(graph->n_elements, size);
    s->state = dpb_session_allocate(graph->n_state_elements, size);
    s->statistics = dpb_session_allocate(graph->n_state_elements, size);
    if (!s->weights || !s->gradients || !s->at_frontier || !s->state || !s->statistics)
        return DPB_NO_MEMORY;
    fill_weights(s);
    fill_state(s);
    return fill_batch(args, s);
}

static dpb_status compile(const struct dpb_session_args *args, struct dpb_session *s)
{
    const struct dpb_device_args device_args = {.threads = 2, .seed = DPB_SESSION_SEED};
    const struct dpb_compile_args compile_args = {.graph = s->graph,
                                                  .batch = args->batch,
                                                  .precision = args->precision,
                                                  .training = args->training,
                                                  .format = &s->format,
                                                  .inspect = !args->plain};
    const struct dpb_device_memory memory = dpb_session_memory(s);
    DPB_TRY(s->ops->open(args->options, &device_args, &s->device));
    if (s->ops->memory_needed(args->options, &compile_args) == 0)
        return dpb_fail(DPB_VERIFICATION, "%s: memory_needed is 0", s->graph->name);
    return s->ops->compile(s->device, &compile_args, &memory, &s->program);
}

dpb_status dpb_session_open(const struct dpb_session_args *args, struct dpb_session *s)
{
    *s = (struct dpb_session){.ops = args->ops,
                              .graph = args->graph,
                              .precision = args->precision,
                              .node_by_node = args->node_by_node,
                              .rounds_weights = args->rounds_weights,
                              .rounds_sums = args->rounds_sums,
                              .pass = {.training = args->training,
                                       .weights_changed = true,
                                       .step = DPB_SESSION_STEP,
                                       .first_sample = DPB_SESSION_FIRST_SAMPLE,
                                       .valid = args->batch,
                                       .loss_scale = 256}};
    s->hooks = (struct dpb_hooks){
        .context = s, .final = on_final, .enter = on_enter, .progress = on_progress};
    dpb_status status = make_arenas(args, s);
    DPB_THEN(status, compile(args, s));
    if (status != DPB_OK) {
        s->graph = NULL; /* the caller's still */
        dpb_session_close(s);
    }
    return status;
}

void dpb_session_close(struct dpb_session *s)
{
    s->ops->release(s->program);
    s->ops->close(s->device);
    dpb_graph_destroy(s->graph);
    free(s->weights);
    free(s->gradients);
    free(s->at_frontier);
    free(s->state);
    free(s->statistics);
    free((void *)(uintptr_t)s->batch.samples);
    free((void *)(uintptr_t)s->batch.labels);
}
