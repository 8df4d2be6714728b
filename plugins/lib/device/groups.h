/*
 * groups.h - what devices find in a graph before they plan: nodes that are carried out together,
 * and how far gradients are final.
 */
#ifndef DPB_LIB_DEVICE_GROUPS_H
#define DPB_LIB_DEVICE_GROUPS_H

#include "dpbench/graph.h"

/* A group is an op, for some rules an addition whose other input may be anything, and a ReLU, by
 * which it is known. The inner nodes have no other consumer. */
struct dpb_group_rule {
    dpb_op begin;
    bool added;
};

/* Of a node; @borrowed from the graph. */
struct dpb_group {
    uint32_t n_consumers;
    const struct dpb_node *into; /* the ReLU that ends the group that it is inside of, or NULL */
    const struct dpb_node *from; /* of such a ReLU: the node that begins the group, or NULL */
    const struct dpb_node *residual; /* of such a ReLU: what is added before it, or NULL */
};

/* groups: one a node, zeroed. */
void dpb_groups_find(const struct dpb_graph *graph, const struct dpb_group_rule *rules,
                     size_t n_rules, struct dpb_group *groups);

/* The end of the tensors whose gradients are complete after the backward of node `index` and of all
 * behind it. */
uint64_t dpb_frontier_after(const struct dpb_graph *graph, uint32_t index);

#endif
