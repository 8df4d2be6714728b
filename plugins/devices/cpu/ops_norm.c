/*
 * ops_norm.c - batch-norm and local response normalisation.
 *
 * Batch-norm: training normalises by the batch's mean and biased variance, and hands the mean and
 * the unbiased variance to core; evaluation is a primitive of its own that reads core's running
 * averages.
 */
#include "cpu.h"

/* ----------------------------------------------------------------------------------- batch-norm */

static unsigned norm_flags(const struct dpb_node *node)
{
    return (node->weight != DPB_NONE ? dnnl_use_scale : 0u) |
           (node->bias != DPB_NONE ? dnnl_use_shift : 0u);
}

/* The number of values that each channel's statistics are taken of. */
static uint64_t values_a_channel(const struct program *p, const struct dpb_node *node)
{
    return (uint64_t)p->args.batch * node->shape.h * node->shape.w;
}

static void write_statistics(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const float *mean = step->from->data, *variance = step->aux->data;
    float *mean_out = (float *)p->core.statistics + p->graph->states[node->mean].offset;
    float *variance_out = (float *)p->core.statistics + p->graph->states[node->variance].offset;
    double n = (double)values_a_channel(p, node);
    double unbiased = n > 1.0 ? n / (n - 1.0) : 1.0;
    for (uint32_t c = 0; c < node->shape.c; c++) {
        mean_out[c] = mean[c];
        variance_out[c] = (float)(variance[c] * unbiased);
    }
}

/* Gamma and beta in an arena of core's, and what goes with them in every batch-norm primitive. */
struct norm {
    const_dnnl_memory_desc_t data, channels;
    struct tensor *scale, *shift; /* NULL: none */
    unsigned flags;
};

static dpb_status describe_norm(struct program *p, const struct dpb_node *node, const void *arena,
                                struct norm *norm)
{
    const dnnl_dims_t dims = {node->shape.c};
    norm->flags = norm_flags(node);
    DPB_TRY(cpu_activation_desc(p, node->shape, p->type, &norm->data));
    DPB_TRY(cpu_desc(p, 1, dims, dnnl_f32, dnnl_a, &norm->channels));
    DPB_TRY(cpu_core_vector(p, arena, node->weight, &norm->scale));
    return cpu_core_vector(p, arena, node->bias, &norm->shift);
}

static dpb_status forward_by_batch(struct program *p, const struct dpb_node *node,
                                   const struct norm *norm)
{
    const char *what = "forward by the batch's statistics";
    struct node_plan *plan = cpu_plan(p, node);
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_batch_normalization_forward_primitive_desc_create(
        &created, p->engine, dnnl_forward_training, norm->data, norm->data, (float)node->epsilon,
        norm->flags, p->attributes);
    DPB_TRY(cpu_own(p, what, status, created, &plan->forward));
    DPB_TRY(cpu_tensor(p, norm->channels, &plan->mean));
    DPB_TRY(cpu_tensor(p, norm->channels, &plan->variance));
    DPB_TRY(cpu_step(p, WHEN_TRAINING, what, plan->forward,
                     ARGS({DNNL_ARG_SRC, cpu_plan(p, cpu_input(p, node, 0))->activation},
                          {DNNL_ARG_SCALE, norm->scale}, {DNNL_ARG_SHIFT, norm->shift},
                          {DNNL_ARG_MEAN, plan->mean}, {DNNL_ARG_VARIANCE, plan->variance},
                          {DNNL_ARG_DST, plan->activation})));
    return cpu_loop(p, WHEN_TRAINING, "statistics", write_statistics, plan->mean, NULL,
                    plan->variance);
}

static dpb_status forward_by_average(struct program *p, const struct dpb_node *node,
                                     const struct norm *norm)
{
    const char *what = "forward by running averages";
    const struct dpb_state *states = p->graph->states;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_batch_normalization_forward_primitive_desc_create(
        &created, p->engine, dnnl_forward_inference, norm->data, norm->data, (float)node->epsilon,
        norm->flags | dnnl_use_global_stats, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, what, status, created, &desc));
    struct tensor *mean, *variance;
    DPB_TRY(cpu_core_tensor(p, p->core.state, states[node->mean].offset, norm->channels, &mean));
    DPB_TRY(cpu_core_tensor(p, p->core.state, states[node->variance].offset, norm->channels,
                            &variance));
    return cpu_step(p, WHEN_EVALUATION, what, desc,
                    ARGS({DNNL_ARG_SRC, cpu_plan(p, cpu_input(p, node, 0))->activation},
                         {DNNL_ARG_SCALE, norm->scale}, {DNNL_ARG_SHIFT, norm->shift},
                         {DNNL_ARG_MEAN, mean}, {DNNL_ARG_VARIANCE, variance},
                         {DNNL_ARG_DST, cpu_plan(p, node)->activation}));
}

dpb_status cpu_batch_norm_forward(struct program *p, const struct dpb_node *node)
{
    struct norm norm;
    struct tensor *dst;
    DPB_TRY(describe_norm(p, node, p->core.weights, &norm));
    DPB_TRY(cpu_activation(p, node, &dst));
    if (p->args.training)
        DPB_TRY(forward_by_batch(p, node, &norm));
    return forward_by_average(p, node, &norm);
}

dpb_status cpu_batch_norm_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cpu_plan(p, node);
    struct norm diff;
    struct tensor *scale, *diff_src;
    DPB_TRY(describe_norm(p, node, p->core.gradients, &diff));
    DPB_TRY(cpu_core_vector(p, p->core.weights, node->weight, &scale));
    DPB_TRY(cpu_input_gradient(p, node, 0, &diff_src));
    if (!diff_src) /* of the samples themselves; the primitive writes it all the same */
        DPB_TRY(cpu_tensor(p, diff.data, &diff_src));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_batch_normalization_backward_primitive_desc_create(
        &created, p->engine, diff.flags ? dnnl_backward : dnnl_backward_data, diff.data, diff.data,
        diff.data, (float)node->epsilon, diff.flags, plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "backward", status, created, &desc));
    return cpu_step(p, WHEN_ALWAYS, "backward", desc,
                    ARGS({DNNL_ARG_SRC, cpu_plan(p, cpu_input(p, node, 0))->activation},
                         {DNNL_ARG_MEAN, plan->mean}, {DNNL_ARG_VARIANCE, plan->variance},
                         {DNNL_ARG_DIFF_DST, plan->gradient}, {DNNL_ARG_SCALE, scale},
                         {DNNL_ARG_DIFF_SRC, diff_src}, {DNNL_ARG_DIFF_SCALE, diff.scale},
                         {DNNL_ARG_DIFF_SHIFT, diff.shift}));
}

/* ------------------------------------------------------------------------------------------ lrn */

/*
 * In fp32 whatever the precision: oneDNN 3.2's bf16 backward on AVX-512 gives wrong values for more
 * than one block of 16 channels in nhwc. oneDNN divides alpha by the size of the window; graph.h
 * does not.
 */
static dnnl_dim_t lrn_size(const struct dpb_node *node)
{
    return 2 * (dnnl_dim_t)node->lrn_radius + 1;
}

static float lrn_alpha(const struct dpb_node *node)
{
    return (float)(node->lrn_alpha * (double)lrn_size(node));
}

dpb_status cpu_lrn_forward(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cpu_plan(p, node);
    struct tensor *activation, *dst;
    DPB_TRY(cpu_activation(p, node, &activation));
    DPB_TRY(cpu_read_fp32(p, cpu_plan(p, cpu_input(p, node, 0))->activation, node->shape,
                          &plan->input_fp32));
    DPB_TRY(cpu_write_fp32(p, activation, node->shape, &dst));
    dnnl_prop_kind_t kind = p->args.training ? dnnl_forward_training : dnnl_forward_inference;
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_lrn_forward_primitive_desc_create(
        &created, p->engine, kind, dnnl_lrn_across_channels, dst->desc, dst->desc, lrn_size(node),
        lrn_alpha(node), (float)node->lrn_beta, (float)node->lrn_k, p->attributes);
    DPB_TRY(cpu_own(p, "forward", status, created, &plan->forward));
    DPB_TRY(cpu_workspace(p, plan->forward, &plan->workspace));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, "forward", plan->forward,
                     ARGS({DNNL_ARG_SRC, plan->input_fp32}, {DNNL_ARG_DST, dst},
                          {DNNL_ARG_WORKSPACE, plan->workspace})));
    return cpu_round_fp32(p, dst, activation);
}

dpb_status cpu_lrn_backward(struct program *p, const struct dpb_node *node)
{
    const struct node_plan *plan = cpu_plan(p, node);
    struct tensor *part, *diff_dst, *diff_src;
    DPB_TRY(cpu_input_gradient(p, node, 0, &part));
    if (!part)
        return DPB_OK;
    DPB_TRY(cpu_read_fp32(p, plan->gradient, node->shape, &diff_dst));
    DPB_TRY(cpu_write_fp32(p, part, node->shape, &diff_src));
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_lrn_backward_primitive_desc_create(
        &created, p->engine, dnnl_lrn_across_channels, diff_src->desc, diff_src->desc,
        diff_src->desc, lrn_size(node), lrn_alpha(node), (float)node->lrn_beta, (float)node->lrn_k,
        plan->forward, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, "backward", status, created, &desc));
    DPB_TRY(cpu_step(p, WHEN_ALWAYS, "backward", desc,
                     ARGS({DNNL_ARG_SRC, plan->input_fp32}, {DNNL_ARG_DIFF_DST, diff_dst},
                          {DNNL_ARG_WORKSPACE, plan->workspace}, {DNNL_ARG_DIFF_SRC, diff_src})));
    return cpu_round_fp32(p, diff_src, part);
}
