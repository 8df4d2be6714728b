/*
 * builder.h - the graph that a model plugin is describing: the state behind struct dpb_graph_ops.
 *
 * The builder appends nodes, tensors and states in forward order to a graph without offsets;
 * graph.c finishes the graph. Only graph.c and builder.c include this header.
 */
#ifndef DPB_CORE_GRAPH_BUILDER_H
#define DPB_CORE_GRAPH_BUILDER_H

#include "dpbench/graph.h"
#include "dpbench/host.h"
#include "dpbench/status.h"

struct dpb_graph_builder {
    struct dpb_graph *graph;    /* @owned with all its arrays */
    struct dpb_node *nodes;     /* graph->nodes, writable */
    struct dpb_tensor *tensors; /* likewise; init_stddev is NaN by default until graph.c sets it */
    struct dpb_state *states;
    bool ended;        /* the loss was added */
    dpb_status status; /* of the first mistake; later calls do nothing */
    char message[512]; /* of the first mistake */
};

extern const struct dpb_graph_ops dpb_graph_builder_ops;

/* Inputs of one output of a weight, OIHW or OI. */
static inline uint64_t dpb_graph_fan_in(const struct dpb_tensor *weight)
{
    return weight->n_elements / weight->dims[0];
}

/* Adds the input node to an empty builder, whose graph has its name and nclass. */
void dpb_graph_builder_start(struct dpb_graph_builder *builder, struct dpb_shape input);

/* Keeps the first mistake of a builder, with the names of model and node (NULL: no node). Returns
 * DPB_NONE, as does a builder's call after a mistake. */
uint32_t dpb_graph_builder_refuse(struct dpb_graph_builder *builder, dpb_status status,
                                  const char *node, const char *format, ...) DPB_PRINTF(4, 5);

#endif
