/*
 * builder.h - a graph while a model plugin describes it: the state behind struct dpb_graph_ops.
 *
 * The builder appends nodes, tensors and states in forward order to a graph that is not laid out
 * yet; graph.c makes the finished graph of it. Nobody but graph.c and builder.c needs this.
 */
#ifndef DPB_CORE_GRAPH_BUILDER_H
#define DPB_CORE_GRAPH_BUILDER_H

#include "dpbench/graph.h"
#include "dpbench/host.h"
#include "dpbench/status.h"

struct dpb_graph_builder {
    struct dpb_graph *graph;    /* owns all that hangs on it, finished or not */
    struct dpb_node *nodes;     /* graph->nodes, to be written */
    struct dpb_tensor *tensors; /* likewise */
    struct dpb_state *states;
    bool ended;        /* the loss is there */
    dpb_status status; /* of the first mistake: later calls do nothing */
    char message[512]; /* what it was */
};

extern const struct dpb_graph_ops dpb_graph_builder_ops;

/* Adds the input node to an empty builder, whose graph has its name and nclass. */
void dpb_graph_builder_start(struct dpb_graph_builder *builder, struct dpb_shape input);

/* Keeps the first mistake of a builder, with the names of model and node (NULL: of none). */
void dpb_graph_builder_refuse(struct dpb_graph_builder *builder, dpb_status status,
                              const char *node, const char *format, ...) DPB_PRINTF(4, 5);

#endif
