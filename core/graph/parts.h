/*
 * parts.h - the graph that a model plugin is describing, and the parts of a call: its node, its
 * tensors, its end, its mistake.
 *
 * Nodes, tensors and states are appended in forward order, without offsets; graph.c finishes the
 * graph. Only files of this directory include this header.
 */
#ifndef DPB_CORE_GRAPH_PARTS_H
#define DPB_CORE_GRAPH_PARTS_H

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

/* Inputs of one output of a weight, OIHW or OI. */
static inline double dpb_graph_fan_in(const struct dpb_tensor *weight)
{
    const uint64_t inputs = weight->n_elements / weight->dims[0];
    return (double)inputs;
}

/* Keeps the first mistake of a builder, with the names of model and node (NULL: no node). Returns
 * DPB_NONE, as does a builder's call after a mistake. */
DPB_PRINTF(3, 4)
uint32_t dpb_graph_refuse(struct dpb_graph_builder *builder, const char *node, const char *format,
                          ...);
void dpb_graph_no_memory(struct dpb_graph_builder *builder);

/* Appends a node without shape; NULL after a mistake. The pointer is valid until the next node. */
struct dpb_node *dpb_graph_append_node(struct dpb_graph_builder *builder, dpb_op op,
                                       const char *name, const uint32_t *inputs, uint32_t n_inputs);
/* Appends a tensor of the node appended last, initialised to zeros, and sets the node's `index` of
 * it; NULL after a mistake. */
struct dpb_tensor *dpb_graph_append_tensor(struct dpb_graph_builder *builder, uint32_t *index,
                                           const char *suffix, uint32_t n_dims,
                                           const uint32_t *dims);
/* Appends a state of the batch-norm node appended last; its index or DPB_NONE. */
uint32_t dpb_graph_append_state(struct dpb_graph_builder *builder, const char *suffix,
                                double init_value);
/* Gives the node appended last its shape and returns its index. */
uint32_t dpb_graph_end_node(struct dpb_graph_builder *builder, uint32_t c, uint32_t h, uint32_t w);
/* The same with the shape of node `input`. */
uint32_t dpb_graph_keep_shape(struct dpb_graph_builder *builder, uint32_t input);

#endif
