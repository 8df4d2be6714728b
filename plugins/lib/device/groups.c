/* groups.c - see groups.h. */
#include "lib/device/groups.h"

struct search {
    const struct dpb_graph *graph;
    const struct dpb_group_rule *rules;
    size_t n_rules;
    struct dpb_group *groups;
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

static bool begins(const struct search *s, const struct dpb_node *node, bool added)
{
    for (size_t i = 0; i < s->n_rules; i++) {
        if (node->op == s->rules[i].begin && added == s->rules[i].added)
            return group_of(s, node)->n_consumers == 1;
    }
    return false;
}

static void group(const struct search *s, const struct dpb_node *relu)
{
    const struct dpb_node *before = input_of(s, relu, 0);
    struct dpb_group *found = group_of(s, relu);
    if (begins(s, before, false)) {
        found->from = before;
    } else if (before->op == DPB_OP_ADD && group_of(s, before)->n_consumers == 1) {
        for (uint32_t slot = 0; slot < 2 && !found->from; slot++) {
            if (begins(s, input_of(s, before, slot), true)) {
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

void dpb_groups_find(const struct dpb_graph *graph, const struct dpb_group_rule *rules,
                     size_t n_rules, struct dpb_group *groups)
{
    const struct search s = {graph, rules, n_rules, groups};
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        for (uint32_t k = 0; k < graph->nodes[i].n_inputs; k++)
            groups[graph->nodes[i].inputs[k]].n_consumers++;
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        if (graph->nodes[i].op == DPB_OP_RELU)
            group(&s, &graph->nodes[i]);
    }
}

uint64_t dpb_frontier_after(const struct dpb_graph *graph, uint32_t index)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        if (graph->tensors[i].node < index)
            return graph->tensors[i].offset;
    }
    return graph->n_elements;
}
