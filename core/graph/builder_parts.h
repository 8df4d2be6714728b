/*
 * builder_parts.h - nodes, tensors and windows of a graph being built: private to builder.c and
 * builder_calls.c.
 */
#ifndef DPB_CORE_GRAPH_BUILDER_PARTS_H
#define DPB_CORE_GRAPH_BUILDER_PARTS_H

#include "graph/builder.h"

/* Appends a node without shape; NULL after a mistake. The pointer is valid until the next node. */
struct dpb_node *dpb_builder_node(struct dpb_graph_builder *builder, dpb_op op, const char *name,
                                  const uint32_t *inputs, uint32_t n_inputs);
/* Appends a tensor of the node appended last, initialised to zeros; NULL after a mistake. */
struct dpb_tensor *dpb_builder_tensor(struct dpb_graph_builder *builder, const char *suffix,
                                      uint32_t n_dims, const uint32_t *dims);
/* The weight of a convolution or dense layer and, if wanted, its bias. */
bool dpb_builder_weights(struct dpb_graph_builder *builder, uint32_t n_dims, const uint32_t *dims,
                         bool bias);
/* Appends a state of the batch-norm node appended last; its index or DPB_NONE. */
uint32_t dpb_builder_state(struct dpb_graph_builder *builder, const char *suffix,
                           double init_value);
/* Ends a call: gives the node appended last its shape and returns its index. */
uint32_t dpb_builder_shape(struct dpb_graph_builder *builder, uint32_t c, uint32_t h, uint32_t w);
/* Sets window and output height and width of the node appended last, a convolution or pool. */
bool dpb_builder_window(struct dpb_graph_builder *builder, struct dpb_shape in,
                        const struct dpb_conv_args *args, uint32_t *out_h, uint32_t *out_w);

#endif
