/* parts.c - see parts.h. */
#include "graph/parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

uint32_t dpb_graph_refuse(struct dpb_graph_builder *builder, const char *node, const char *format,
                          ...)
{
    if (builder->status != DPB_OK)
        return DPB_NONE;
    builder->status = DPB_USAGE;
    char reason[384];
    DPB_PRINT_ARGUMENTS(reason, sizeof reason, format);
    if (node)
        snprintf(builder->message, sizeof builder->message, "model '%.40s': node '%.60s': %s",
                 builder->graph->name, node, reason);
    else
        snprintf(builder->message, sizeof builder->message, "model '%.40s': %s",
                 builder->graph->name, reason);
    return DPB_NONE;
}

/* ------------------------------------------------------------------------------ nodes, tensors */

/* Grows an array for element n. Capacities are powers of two, so none is stored. */
void dpb_graph_no_memory(struct dpb_graph_builder *builder)
{
    if (builder->status != DPB_OK)
        return;
    dpb_graph_refuse(builder, NULL, "out of memory");
    builder->status = DPB_NO_MEMORY;
}

static void *grow(struct dpb_graph_builder *builder, void *array, uint32_t n, size_t size)
{
    enum { SMALLEST = 16 };
    if (n != 0 && (n < SMALLEST || (n & (n - 1)) != 0))
        return array;
    void *larger = realloc(array, (n ? 2 * (size_t)n : SMALLEST) * size);
    if (!larger)
        dpb_graph_no_memory(builder);
    return larger;
}

/* The product; 0 also when it exceeds UINT32_MAX: random.h counts elements in 32 bits. */
static uint64_t count(const uint32_t *factors, uint32_t n)
{
    uint64_t product = 1;
    for (uint32_t i = 0; i < n; i++) {
        product *= factors[i];
        if (product > UINT32_MAX)
            return 0;
    }
    return product;
}

static bool name_is_valid(const char *name)
{
    if (!name || !*name)
        return false;
    for (; *name; name++) {
        if (!isalnum((unsigned char)*name) && !strchr("_.-/", *name))
            return false;
    }
    return true;
}

static bool node_is_valid(struct dpb_graph_builder *builder, const char *name,
                          const uint32_t *inputs, uint32_t n_inputs)
{
    const struct dpb_graph *graph = builder->graph;
    if (!name_is_valid(name))
        dpb_graph_refuse(builder, name ? name : "",
                         "a name is made of letters, digits and _ . - /");
    else if (builder->ended)
        dpb_graph_refuse(builder, name, "comes after the loss, which ends a graph");
    for (uint32_t i = 0; builder->status == DPB_OK && i < graph->n_nodes; i++)
        if (strcmp(graph->nodes[i].name, name) == 0)
            dpb_graph_refuse(builder, name, "the name is used twice; names are unique in a graph");
    for (uint32_t i = 0; builder->status == DPB_OK && i < n_inputs; i++)
        if (inputs[i] >= graph->n_nodes)
            dpb_graph_refuse(builder, name,
                             "its input %u is not a node that an earlier call returned", i);
    return builder->status == DPB_OK;
}

struct dpb_node *dpb_graph_append_node(struct dpb_graph_builder *builder, dpb_op op,
                                       const char *name, const uint32_t *inputs, uint32_t n_inputs)
{
    struct dpb_graph *graph = builder->graph;
    if (builder->status != DPB_OK || !node_is_valid(builder, name, inputs, n_inputs))
        return NULL;
    struct dpb_node *nodes = grow(builder, builder->nodes, graph->n_nodes, sizeof *nodes);
    if (!nodes)
        return NULL;
    graph->nodes = builder->nodes = nodes;

    char *own_name = strdup(name);
    uint32_t *own_inputs = malloc((n_inputs + 1) * sizeof *own_inputs);
    if (!own_name || !own_inputs) {
        free(own_name);
        free(own_inputs);
        dpb_graph_no_memory(builder);
        return NULL;
    }
    if (n_inputs > 0)
        memcpy(own_inputs, inputs, n_inputs * sizeof *own_inputs);
    struct dpb_node *node = &nodes[graph->n_nodes++];
    *node = (struct dpb_node){.op = op,
                              .name = own_name,
                              .n_inputs = n_inputs,
                              .inputs = own_inputs,
                              .weight = DPB_NONE,
                              .bias = DPB_NONE,
                              .mean = DPB_NONE,
                              .variance = DPB_NONE};
    return node;
}

static char *join_name(struct dpb_graph_builder *builder, const char *node, const char *suffix)
{
    size_t size = strlen(node) + strlen(suffix) + 2;
    char *name = malloc(size);
    if (name)
        snprintf(name, size, suffix[0] ? "%s.%s" : "%s", node, suffix);
    else
        dpb_graph_no_memory(builder);
    return name;
}

struct dpb_tensor *dpb_graph_append_tensor(struct dpb_graph_builder *builder, uint32_t *index,
                                           const char *suffix, uint32_t n_dims,
                                           const uint32_t *dims)
{
    struct dpb_graph *graph = builder->graph;
    const struct dpb_node *node = &graph->nodes[graph->n_nodes - 1];
    if (builder->status != DPB_OK)
        return NULL;
    uint64_t n_elements = count(dims, n_dims);
    if (n_elements == 0) {
        dpb_graph_refuse(builder, node->name, "its %s has no elements or more than 2^32 - 1",
                         suffix);
        return NULL;
    }
    struct dpb_tensor *tensors = grow(builder, builder->tensors, graph->n_tensors, sizeof *tensors);
    if (!tensors)
        return NULL;
    graph->tensors = builder->tensors = tensors;
    char *name = join_name(builder, node->name, suffix);
    if (!name)
        return NULL;
    *index = graph->n_tensors;
    struct dpb_tensor *tensor = &tensors[graph->n_tensors++];
    *tensor = (struct dpb_tensor){
        .name = name, .node = graph->n_nodes - 1, .n_dims = n_dims, .n_elements = n_elements};
    memcpy(tensor->dims, dims, n_dims * sizeof *dims);
    return tensor;
}

uint32_t dpb_graph_append_state(struct dpb_graph_builder *builder, const char *suffix,
                                double init_value)
{
    struct dpb_graph *graph = builder->graph;
    const struct dpb_node *node = &graph->nodes[graph->n_nodes - 1];
    if (builder->status != DPB_OK)
        return DPB_NONE;
    struct dpb_state *states = grow(builder, builder->states, graph->n_states, sizeof *states);
    if (!states)
        return DPB_NONE;
    graph->states = builder->states = states;
    char *name = join_name(builder, node->name, suffix);
    if (!name)
        return DPB_NONE;
    states[graph->n_states] = (struct dpb_state){.name = name,
                                                 .node = graph->n_nodes - 1,
                                                 .n_elements = node->shape.c,
                                                 .init_value = init_value,
                                                 .keep_average = node->keep_average};
    return graph->n_states++;
}

uint32_t dpb_graph_end_node(struct dpb_graph_builder *builder, uint32_t c, uint32_t h, uint32_t w)
{
    uint32_t index = builder->graph->n_nodes - 1;
    struct dpb_node *node = &builder->nodes[index];
    if (count((const uint32_t[]){c, h, w}, 3) == 0)
        return dpb_graph_refuse(builder, node->name,
                                "a %ux%ux%u output has no elements or more than 2^32 - 1", c, h, w);
    node->shape = (struct dpb_shape){c, h, w};
    return index;
}

uint32_t dpb_graph_keep_shape(struct dpb_graph_builder *builder, uint32_t input)
{
    const struct dpb_shape in = builder->nodes[input].shape;
    return dpb_graph_end_node(builder, in.c, in.h, in.w);
}
