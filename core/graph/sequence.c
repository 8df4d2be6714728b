/* sequence.c - see sequence.h. */
#include "graph/sequence.h"

enum { MOST_IDS = 1 << 24 /* which fp32 holds exactly: device reference */ };

uint32_t dpb_graph_add_embedding(struct dpb_graph_builder *builder, const char *name,
                                 uint32_t input, uint32_t channels)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_EMBEDDING, name, &input, 1);
    const uint32_t nclass = builder->graph->nclass;
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    if (input != 0 || in.c != 1 || in.h != 1 || nclass > MOST_IDS)
        return dpb_graph_refuse(builder, name,
                                "reads '%s' of %ux%ux%u for %u classes; it needs the samples, {1, "
                                "1, length} ids of at most %d classes",
                                builder->nodes[input].name, in.c, in.h, in.w, nclass, MOST_IDS);
    struct dpb_tensor *rows = dpb_graph_append_tensor(builder, &node->weight, "weight", 2,
                                                      (const uint32_t[]){nclass, channels});
    if (!rows)
        return DPB_NONE;
    rows->decays = true;
    rows->init_stddev = 0.02;
    return dpb_graph_end_node(builder, channels, 1, in.w);
}

uint32_t dpb_graph_add_tied(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                            uint32_t embedding)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_CONV, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    struct dpb_node *with = embedding < builder->graph->n_nodes ? &builder->nodes[embedding] : NULL;
    if (!with || with->op != DPB_OP_EMBEDDING || with->tied || with->shape.c != in.c)
        return dpb_graph_refuse(
            builder, name,
            "takes the weight of an embedding of %u channels that nothing else takes", in.c);
    with->tied = node->tied = true;
    node->weight = with->weight;
    node->groups = 1;
    node->window = (struct dpb_window){.kernel_h = 1, .kernel_w = 1, .stride_h = 1, .stride_w = 1};
    node->macs = builder->tensors[node->weight].n_elements * ((uint64_t)in.h * in.w);
    return dpb_graph_end_node(builder, builder->graph->nclass, in.h, in.w);
}

uint32_t dpb_graph_add_layer_norm(struct dpb_graph_builder *builder, const char *name,
                                  uint32_t input, double epsilon)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_LAYER_NORM, name, &input, 1);
    if (!node)
        return DPB_NONE;
    if (!(epsilon > 0.0))
        return dpb_graph_refuse(builder, name, "epsilon %g has to be positive", epsilon);
    const uint32_t channels = builder->nodes[input].shape.c;
    node->epsilon = epsilon;
    struct dpb_tensor *gamma =
        dpb_graph_append_tensor(builder, &node->weight, "weight", 1, &channels);
    if (!gamma)
        return DPB_NONE;
    gamma->init_value = 1.0;
    if (!dpb_graph_append_tensor(builder, &node->bias, "bias", 1, &channels))
        return DPB_NONE;
    return dpb_graph_keep_shape(builder, input);
}

uint32_t dpb_graph_add_gelu(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                            bool tanh)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_GELU, name, &input, 1);
    if (!node)
        return DPB_NONE;
    node->tanh = tanh;
    return dpb_graph_keep_shape(builder, input);
}

uint32_t dpb_graph_add_attention(struct dpb_graph_builder *builder, const char *name,
                                 uint32_t input, const struct dpb_attention_args *args)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_ATTENTION, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    const uint64_t length = in.w;
    if (in.h != 1 || args->heads == 0 || in.c % (3 * args->heads) != 0)
        return dpb_graph_refuse(
            builder, name,
            "gets %ux%ux%u for %u heads; it needs a sequence {3 width, 1, length} of queries, keys "
            "and values, and heads that divide the width",
            in.c, in.h, in.w, args->heads);
    node->heads = args->heads;
    node->causal = args->causal;
    /* Queries by keys, then probabilities by values. */
    node->macs = 2 * (in.c / 3) * (args->causal ? length * (length + 1) / 2 : length * length);
    return dpb_graph_end_node(builder, in.c / 3, 1, in.w);
}

uint32_t dpb_graph_add_positions(struct dpb_graph_builder *builder, const char *name,
                                 uint32_t input, const struct dpb_positions_args *args)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_POSITIONS, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    const uint32_t positions = in.h * in.w, rows = args->rows ? args->rows : positions;
    if (rows < positions)
        return dpb_graph_refuse(
            builder, name, "has %u rows for %u positions; take shorter sequences", rows, positions);
    struct dpb_tensor *table = dpb_graph_append_tensor(builder, &node->weight, "weight", 2,
                                                       (const uint32_t[]){rows, in.c});
    if (!table)
        return DPB_NONE;
    table->decays = args->decays;
    table->init_stddev = args->init_stddev > 0.0 ? args->init_stddev : 0.02;
    return dpb_graph_keep_shape(builder, input);
}

uint32_t dpb_graph_add_prepend(struct dpb_graph_builder *builder, const char *name, uint32_t input)
{
    struct dpb_node *node = dpb_graph_append_node(builder, DPB_OP_PREPEND, name, &input, 1);
    if (!node)
        return DPB_NONE;
    const struct dpb_shape in = builder->nodes[input].shape;
    struct dpb_tensor *token = dpb_graph_append_tensor(builder, &node->weight, "weight", 1, &in.c);
    if (!token)
        return DPB_NONE;
    token->init_stddev = 0.02;
    return dpb_graph_end_node(builder, in.c, 1, 1 + in.h * in.w);
}
