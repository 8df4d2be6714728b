/*
 * groups.h - what devices find in a graph before they plan: nodes that are carried out together,
 * and how far gradients are final.
 */
#ifndef DPB_LIB_DEVICE_GROUPS_H
#define DPB_LIB_DEVICE_GROUPS_H

#include <stddef.h>

#include "dpbench/graph.h"

/* A device's own. */
struct tensor;

/* What one consumer of a node adds to the node's gradient. */
struct dpb_part {
    struct tensor *tensor; /* @borrowed */
    bool shared;           /* bytes of the consumer's: not to be written */
};

/* A group is a convolution, dense layer or batch-norm, behind a batch-norm maybe an addition whose
 * other input may be anything, and a ReLU, by which it is known. The inner nodes have no other
 * consumer. Here is what is found of one node; nodes are @borrowed from the graph. */
struct dpb_group {
    uint32_t n_consumers;
    const struct dpb_node *into; /* the ReLU that ends the group that it is inside of, or NULL */
    const struct dpb_node *from; /* of such a ReLU: the node that begins the group, or NULL */
    const struct dpb_node *residual; /* of such a ReLU: what is added before it, or NULL */
    /* Of the node's gradient, as the device plans backward. Room for one a consumer. */
    struct dpb_part *parts;
    uint32_t n_parts;
};

/* All nodes' groups, without parts; @owned, one free(). NULL: no memory, no message. */
struct dpb_group *dpb_groups_find(const struct dpb_graph *graph);

/* One consumer more has its part. */
static inline void dpb_group_add(struct dpb_group *group, struct tensor *tensor, bool shared)
{
    group->parts[group->n_parts++] = (struct dpb_part){tensor, shared};
}

/* The first part that may be written, where all parts can be added up; NULL: all are shared. */
static inline struct dpb_part *dpb_group_own_part(const struct dpb_group *group)
{
    for (uint32_t i = 0; i < group->n_parts; i++) {
        if (!group->parts[i].shared)
            return &group->parts[i];
    }
    return NULL;
}

/* The end of the tensors whose gradients are complete after the backward of node `index` and of all
 * behind it. */
uint64_t dpb_frontier_after(const struct dpb_graph *graph, uint32_t index);

#endif
