/*
 * graph.c - makes a graph from a model's calls, lays out its arenas, and answers questions about
 * the graph.
 */
#include "graph/graph.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "graph/builder.h"

/* The aligned end of a tensor or state that begins at `offset`: where the next one begins. */
static uint64_t aligned_end(uint64_t offset, uint64_t n_elements)
{
    const uint64_t mask = DPB_TENSOR_ALIGN - 1;
    return (offset + n_elements + mask) & ~mask;
}

/* ------------------------------------------------------------------------------------- building */

/* A node without a reader would never get a gradient. */
static void check_finished(struct dpb_graph_builder *builder)
{
    const struct dpb_graph *graph = builder->graph;
    if (!builder->ended)
        dpb_graph_refuse(builder, NULL, "has no loss; a model's last call is softmax_loss()");
    if (graph->n_tensors == 0)
        dpb_graph_refuse(builder, NULL, "has nothing to train");
    bool *read = calloc(graph->n_nodes + 1, sizeof *read);
    if (!read) {
        dpb_graph_no_memory(builder);
        return;
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++)
            read[graph->nodes[i].inputs[k]] = true;
    }
    for (uint32_t i = 0; i + 1 < graph->n_nodes; i++) {
        if (!read[i])
            dpb_graph_refuse(builder, graph->nodes[i].name,
                             "no other node uses it, so it has no gradient");
    }
    free(read);
}

/* Weights without initial values of the model's choice: He's. The dense layer that feeds the loss
 * gets smaller ones, so that a network begins with nearly equal logits. */
static void set_default_initial(struct dpb_graph_builder *builder)
{
    const struct dpb_graph *graph = builder->graph;
    const uint32_t logits = graph->nodes[graph->n_nodes - 1].inputs[0];
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        struct dpb_tensor *tensor = &builder->tensors[i];
        const bool last = tensor->node == logits && graph->nodes[logits].op == DPB_OP_DENSE;
        if (isnan(tensor->init_stddev))
            tensor->init_stddev = sqrt((last ? 1.0 : 2.0) / dpb_graph_fan_in(tensor));
    }
}

/* Moves the tensor that *index names, if it is the node's own, to the end of `ordered` and makes
 * *index its new place. */
static void place_tensor(struct dpb_graph *graph, const struct dpb_tensor *from, uint32_t node,
                         struct dpb_tensor *ordered, uint32_t *n_ordered, uint32_t *index)
{
    if (*index == DPB_NONE || from[*index].node != node)
        return;
    struct dpb_tensor *tensor = &ordered[*n_ordered];
    *tensor = from[*index];
    tensor->offset = graph->n_elements;
    graph->n_elements = aligned_end(tensor->offset, tensor->n_elements);
    graph->n_parameters += tensor->n_elements;
    *index = (*n_ordered)++;
}

/* Backward finishes the last node first, so tensors get this order; states keep theirs. Sets
 * offsets.
 */
static dpb_status lay_out(struct dpb_graph_builder *builder)
{
    struct dpb_graph *graph = builder->graph;
    struct dpb_tensor *ordered = calloc(graph->n_tensors, sizeof *ordered);
    DPB_TRY(dpb_allocated(ordered));
    uint32_t n_ordered = 0;
    for (uint32_t i = graph->n_nodes; i-- > 0;) {
        struct dpb_node *node = &builder->nodes[i];
        place_tensor(graph, builder->tensors, i, ordered, &n_ordered, &node->weight);
        place_tensor(graph, builder->tensors, i, ordered, &n_ordered, &node->bias);
        graph->macs += node->macs;
    }
    assert(n_ordered == graph->n_tensors);
    for (uint32_t i = 0; i < graph->n_nodes; i++) /* its tensor is an earlier node's */
        if (builder->nodes[i].tied && builder->nodes[i].op != DPB_OP_EMBEDDING)
            builder->nodes[i].weight =
                builder->nodes[builder->tensors[builder->nodes[i].weight].node].weight;
    free(builder->tensors);
    graph->tensors = builder->tensors = ordered;

    for (uint32_t i = 0; i < graph->n_states; i++) {
        struct dpb_state *state = &builder->states[i];
        state->offset = graph->n_state_elements;
        graph->n_state_elements = aligned_end(state->offset, state->n_elements);
    }
    return DPB_OK;
}

dpb_status dpb_graph_build(const char *name, const struct dpb_model_ops *model, const void *options,
                           struct dpb_shape input, uint32_t nclass, struct dpb_graph **graph)
{
    struct dpb_graph_builder builder = {.graph = calloc(1, sizeof *builder.graph)};
    char *own_name = strdup(name);
    if (!builder.graph || !own_name) {
        free(builder.graph);
        free(own_name);
        return dpb_fail(DPB_NO_MEMORY, "model '%s': out of memory", name);
    }
    builder.graph->name = own_name;
    builder.graph->nclass = nclass;
    builder.graph->layout = model->layout;

    dpb_graph_builder_start(&builder, input);
    dpb_status status = model->build(options, &dpb_graph_builder_ops, &builder, nclass);
    if (status == DPB_OK && builder.status == DPB_OK)
        check_finished(&builder);
    if (builder.status != DPB_OK)
        status = dpb_fail(builder.status, "%s", builder.message);
    if (status == DPB_OK) {
        set_default_initial(&builder);
        status = lay_out(&builder);
    }
    if (status != DPB_OK) {
        dpb_graph_destroy(builder.graph);
        return status;
    }
    *graph = builder.graph;
    return DPB_OK;
}

void dpb_graph_smooth_labels(struct dpb_graph *graph, double smoothing)
{
    struct dpb_node *nodes = (struct dpb_node *)graph->nodes;
    nodes[graph->n_nodes - 1].smoothing = smoothing;
}

void dpb_graph_destroy(struct dpb_graph *graph)
{
    if (!graph)
        return;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        free((void *)graph->nodes[i].name);
        free((void *)graph->nodes[i].inputs);
    }
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        free((void *)graph->tensors[i].name);
    for (uint32_t i = 0; i < graph->n_states; i++)
        free((void *)graph->states[i].name);
    free((void *)graph->nodes);
    free((void *)graph->tensors);
    free((void *)graph->states);
    free((void *)graph->name);
    free(graph);
}

/* ------------------------------------------------------------------------------------ questions */

/* FNV-1a, 64 bits, over the eight bytes of a number from the lowest up. */
static void hash_u64(uint64_t *hash, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        *hash ^= (value >> (8 * i)) & 0xff;
        *hash *= UINT64_C(0x100000001b3);
    }
}

static void hash_double(uint64_t *hash, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    hash_u64(hash, bits);
}

static void hash_text(uint64_t *hash, const char *text)
{
    size_t length = strlen(text);
    hash_u64(hash, length);
    for (size_t i = 0; i < length; i++)
        hash_u64(hash, (unsigned char)text[i]);
}

static void hash_node(uint64_t *hash, const struct dpb_node *node)
{
    const struct dpb_window *window = &node->window;
    const uint32_t words[] = {
        (uint32_t)node->op, node->shape.c,    node->shape.h,   node->shape.w,      node->weight,
        node->bias,         node->mean,       node->variance,  window->kernel_h,   window->kernel_w,
        window->stride_h,   window->stride_w, window->pad_top, window->pad_bottom, window->pad_left,
        window->pad_right,  node->lrn_radius, node->groups,    node->n_inputs,     node->heads,
        node->causal,       node->tanh,       node->tied};
    const double reals[] = {node->epsilon,   node->keep_average, node->rate,     node->lrn_k,
                            node->lrn_alpha, node->lrn_beta,     node->smoothing};
    hash_text(hash, node->name);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        hash_u64(hash, words[i]);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        hash_u64(hash, node->inputs[i]);
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        hash_double(hash, reals[i]);
}

uint64_t dpb_graph_hash(const struct dpb_graph *graph)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash_text(&hash, graph->name);
    hash_u64(&hash, graph->nclass);
    hash_u64(&hash, graph->n_nodes);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        hash_node(&hash, &graph->nodes[i]);
    hash_u64(&hash, graph->n_tensors);
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        const struct dpb_tensor *tensor = &graph->tensors[i];
        hash_text(&hash, tensor->name);
        hash_u64(&hash, tensor->n_dims);
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            hash_u64(&hash, tensor->dims[k]);
        hash_u64(&hash, tensor->offset);
        hash_u64(&hash, tensor->decays);
        hash_double(&hash, tensor->init_stddev);
        hash_u64(&hash, tensor->init_uniform);
        hash_double(&hash, tensor->init_value);
    }
    hash_u64(&hash, graph->n_states);
    for (uint32_t i = 0; i < graph->n_states; i++) {
        hash_text(&hash, graph->states[i].name);
        hash_u64(&hash, graph->states[i].n_elements);
        hash_u64(&hash, graph->states[i].offset);
    }
    return hash;
}

uint32_t dpb_graph_tensor_at(const struct dpb_graph *graph, uint64_t offset)
{
    assert(offset < graph->n_elements);
    uint32_t low = 0, high = graph->n_tensors; /* tensors[low] begins at or before `offset` */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (graph->tensors[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}
