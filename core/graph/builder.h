/*
 * builder.h - a model plugin's calls: what is behind struct dpb_graph_ops.
 *
 * Only graph.c includes this header.
 */
#ifndef DPB_CORE_GRAPH_BUILDER_H
#define DPB_CORE_GRAPH_BUILDER_H

#include "graph/parts.h"

extern const struct dpb_graph_ops dpb_graph_builder_ops;

/* Adds the input node to an empty builder, whose graph has its name and nclass. */
void dpb_graph_builder_start(struct dpb_graph_builder *builder, struct dpb_shape input);

#endif
