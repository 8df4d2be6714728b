/* groups.c - see groups.h. */
#include "lib/device/groups.h"

#include <stdlib.h>

struct search {
    const struct dpb_graph *graph;
    struct dpb_group *groups;
    bool node_by_node;
};

static struct dpb_group *group_of(const struct search *s, const struct dpb_node *node)
{
    return &s->groups[node - s->graph->nodes];
}

static const struct dpb_node *input_of(const struct search *s, const struct dpb_node *node,
                                       uint32_t slot)
{
    return &s->graph->nodes[node->inputs[slot]];
}

static bool has_tensors_between(const struct dpb_node *node, const struct dpb_node *relu)
{
    for (node++; node < relu; node++)
        if (node->weight != DPB_NONE || node->bias != DPB_NONE)
            return true;
    return false;
}

static bool begins(const struct search *s, const struct dpb_node *node, bool added,
                   const struct dpb_node *relu)
{
    const bool product = node->op == DPB_OP_CONV || node->op == DPB_OP_DENSE;
    return (node->op == DPB_OP_BATCH_NORM || (product && !added)) &&
           group_of(s, node)->n_consumers == 1 &&
           !(s->node_by_node && has_tensors_between(node, relu));
}

static void group(const struct search *s, const struct dpb_node *relu)
{
    const struct dpb_node *before = input_of(s, relu, 0);
    struct dpb_group *found = group_of(s, relu);
    if (begins(s, before, false, relu)) {
        found->from = before;
    } else if (before->op == DPB_OP_ADD && group_of(s, before)->n_consumers == 1) {
        for (uint32_t slot = 0; slot < 2 && !found->from; slot++) {
            if (begins(s, input_of(s, before, slot), true, relu)) {
                found->from = input_of(s, before, slot);
                found->residual = input_of(s, before, 1 - slot);
            }
        }
        if (found->from)
            group_of(s, before)->into = relu;
    }
    if (found->from)
        group_of(s, found->from)->into = relu;
}

/* The parts lie behind the groups. */
struct dpb_group *dpb_groups_find(const struct dpb_graph *graph, bool node_by_node)
{
    size_t n_parts = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        n_parts += graph->nodes[i].n_inputs;
    const size_t bytes = graph->n_nodes * sizeof(struct dpb_group);
    struct dpb_group *groups = calloc(1, bytes + n_parts * sizeof(struct dpb_part));
    const struct search s = {graph, groups, node_by_node};
    if (!groups)
        return NULL;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++)
            groups[graph->nodes[i].inputs[k]].n_consumers++;
    }
    struct dpb_part *parts = (struct dpb_part *)(void *)(groups + graph->n_nodes);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        groups[i].parts = parts;
        parts += groups[i].n_consumers;
        if (graph->nodes[i].op == DPB_OP_RELU)
            group(&s, &graph->nodes[i]);
    }
    return groups;
}

uint64_t dpb_frontier_after(const struct dpb_graph *graph, uint32_t index)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensors[i].node < index)
            return graph->tensors[i].offset;
    }
    return graph->n_elements;
}
