/*
 * groups.h - a device's analysis of a graph before planning: nodes that run together, and how far
 * gradients are final.
 */
#ifndef DPB_LIB_DEVICE_GROUPS_H
#define DPB_LIB_DEVICE_GROUPS_H

#include <stddef.h>

#include "dpbench/graph.h"

/* A device's own. */
struct tensor;

/* One consumer's addend to a node's gradient. */
struct dpb_part {
    struct tensor *tensor; /* @borrowed */
    bool shared;           /* the consumer's bytes: do not write to them */
};

/* A group is a convolution, dense layer or batch-norm, and a ReLU, which names the group. Behind a
 * batch-norm an addition may precede the ReLU; its other input may be anything. Inner nodes have no
 * other consumer. This struct describes one node; nodes are @borrowed from the graph. */
struct dpb_group {
    uint32_t n_consumers;
    const struct dpb_node *into;     /* the ReLU that ends the group around the node, or NULL */
    const struct dpb_node *from;     /* of such a ReLU: the node that begins the group, or NULL */
    const struct dpb_node *residual; /* of such a ReLU: the input added before it, or NULL */
    /* Parts of the node's gradient, as the device plans backward. Room for one a consumer. */
    struct dpb_part *parts;
    uint32_t n_parts;
};

/* Returns all nodes' groups, without parts; @owned, one free(). NULL: no memory, no message.
 * `node_by_node` (DPB_DEVICE_NODE_BY_NODE): a group writes gradients at its ReLU's turn, so it has
 * no node with tensors between its own. */
struct dpb_group *dpb_groups_find(const struct dpb_graph *graph, bool node_by_node);

/* Adds one consumer's part. */
static inline void dpb_group_add(struct dpb_group *group, struct tensor *tensor, bool shared)
{
    group->parts[group->n_parts++] = (struct dpb_part){tensor, shared};
}

/* Returns the first part that may be written, to add up all parts in it; NULL: all are shared. */
static inline struct dpb_part *dpb_group_own_part(const struct dpb_group *group)
{
    for (uint32_t i = 0; i < group->n_parts; i++) {
        if (!group->parts[i].shared)
            return &group->parts[i];
    }
    return NULL;
}

/* The end of the tensors whose gradients are complete after backward of node `index` and of all
 * nodes behind it. */
uint64_t dpb_frontier_after(const struct dpb_graph *graph, uint32_t index);

#endif
