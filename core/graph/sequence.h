/*
 * sequence.h - a model plugin's calls for the ops of sequences, as in struct dpb_graph_ops.
 */
#ifndef DPB_CORE_GRAPH_SEQUENCE_H
#define DPB_CORE_GRAPH_SEQUENCE_H

#include "graph/parts.h"

uint32_t dpb_graph_add_embedding(struct dpb_graph_builder *builder, const char *name,
                                 uint32_t input, uint32_t channels);
uint32_t dpb_graph_add_tied(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                            uint32_t embedding);
uint32_t dpb_graph_add_layer_norm(struct dpb_graph_builder *builder, const char *name,
                                  uint32_t input, double epsilon);
uint32_t dpb_graph_add_gelu(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                            bool tanh);
uint32_t dpb_graph_add_attention(struct dpb_graph_builder *builder, const char *name,
                                 uint32_t input, const struct dpb_attention_args *args);
uint32_t dpb_graph_add_positions(struct dpb_graph_builder *builder, const char *name,
                                 uint32_t input, const struct dpb_positions_args *args);
uint32_t dpb_graph_add_prepend(struct dpb_graph_builder *builder, const char *name, uint32_t input);

#endif
