/*
 * ops_simple.c - the ops by our own kernels but batch-norm and those of sequences: the samples,
 * ReLU, additions, copies, dropout, pools, LRN and the loss.
 */
#include "ops.h"
#include "plan.h"

static cudaStream_t stream_of(const struct program *p)
{
    return p->device->stream;
}

/* A node with one input and one output, by own kernels both ways, as most nodes below. The table
 * has the kernels. */
static dpb_status plan_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *y;
    DPB_TRY(cuda_activation(p, node, &y));
    return cuda_step(p, WHEN_ALWAYS, "forward", cuda_ops[node->op].run,
                     TENSORS(cuda_plan(p, cuda_input(p, node, 0))->activation, y));
}

/* also: the third tensor, from forward; NULL: none. */
static dpb_status plan_backward_with(struct program *p, const struct dpb_node *node,
                                     const struct tensor *also)
{
    struct tensor *dx;
    DPB_TRY(cuda_input_gradient(p, node, 0, &dx));
    if (!dx)
        return DPB_OK;
    return cuda_step(p, WHEN_ALWAYS, "backward", cuda_ops[node->op].run_backward,
                     TENSORS(cuda_plan(p, node)->gradient, dx, also));
}

static dpb_status plan_backward(struct program *p, const struct dpb_node *node)
{
    return plan_backward_with(p, node, NULL);
}

/* ---------------------------------------------------------------------------------------- input */

/* Ids are copied: backward reads them, too, and the samples of the next pass may come before. */
static dpb_status normalise(const struct program *p, const struct step *step, const void *samples,
                            const uint32_t *numbers)
{
    const struct dpb_sample_format *format = p->args.format;
    if (format->type == DPB_INT32) {
        cuda_copy_ids(stream_of(p), samples, numbers, format->shape.w, step->t[TO]->data,
                      (uint64_t)p->args.batch * format->shape.w);
        return DPB_OK;
    }
    struct samples from = {.data = samples,
                           .numbers = numbers,
                           .channels = format->shape.c,
                           .bytes = format->type == DPB_UINT8,
                           .chw = format->order == DPB_CHW};
    for (uint32_t c = 0; c < format->shape.c; c++) {
        from.scale[c] = format->scale[c];
        from.offset[c] = format->offset[c];
    }
    cuda_normalise_samples(stream_of(p), p->type, &from, step->t[TO]->data,
                           cuda_grid(p, cuda_stored_shape(p, step->node)));
    return DPB_OK;
}

static dpb_status run_input(const struct program *p, const struct step *step)
{
    return normalise(p, step, step->t[FROM]->data, NULL);
}

static dpb_status run_pool_input(const struct program *p, const struct step *step)
{
    return normalise(p, step, p->pool, step->t[FROM]->data);
}

static dpb_status input_forward(struct program *p, const struct dpb_node *node)
{
    static const char what[] = "normalisation of the samples";
    const unsigned of_pool = cuda_pool_passes(p);
    struct tensor *y;
    if (p->args.format->type == DPB_INT32) {
        DPB_TRY(cuda_tensor(p, p->samples->place.bytes, &p->ids));
        y = p->ids;
    } else {
        DPB_TRY(cuda_activation(p, node, &y));
    }
    if (of_pool) {
        DPB_TRY(cuda_step(p, of_pool, what, run_pool_input, TENSORS(p->numbers, y)));
        cuda_last_step(p)->bytes = p->samples->bytes + y->bytes;
    }
    if (of_pool == WHEN_ALWAYS)
        return DPB_OK;
    return cuda_step(p, WHEN_ALWAYS & ~of_pool, what, run_input, TENSORS(p->samples, y));
}

static dpb_status nothing(struct program *p, const struct dpb_node *node)
{
    (void)p;
    (void)node;
    return DPB_OK;
}

/* ----------------------------------------------------------------------------------------- ReLU */

static dpb_status run_relu(const struct program *p, const struct step *step)
{
    cuda_bias_relu(stream_of(p), p->type, step->t[FROM]->data, NULL, true, step->t[TO]->data,
                   cuda_grid(p, step->node->shape));
    return DPB_OK;
}

static dpb_status relu_forward(struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *from = cuda_plan(p, node)->group->from;
    if (from)
        return from->op == DPB_OP_BATCH_NORM ? cuda_fused_norm_forward(p, node) : DPB_OK;
    return plan_forward(p, node);
}

static dpb_status run_relu_backward(const struct program *p, const struct step *step)
{
    cuda_relu_backward(stream_of(p), p->type, step->t[FROM]->data, step->t[AUX]->data,
                       step->t[TO]->data, cuda_elements(p, step->node->shape));
    return DPB_OK;
}

/* The gradient by the input of a ReLU that follows a convolution or dense layer. */
static dpb_status masked_gradient(struct program *p, const struct dpb_node *relu)
{
    struct node_plan *plan = cuda_plan(p, relu);
    struct tensor *dz;
    DPB_TRY(cuda_over_gradient(p, relu, &dz));
    cuda_plan(p, plan->group->from)->gradient = dz;
    return cuda_step(p, WHEN_ALWAYS, "backward", run_relu_backward,
                     TENSORS(plan->gradient, dz, plan->activation));
}

static dpb_status relu_backward(struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *from = cuda_plan(p, node)->group->from;
    if (from)
        return from->op == DPB_OP_BATCH_NORM ? cuda_fused_norm_backward(p, node)
                                             : masked_gradient(p, node);
    return plan_backward_with(p, node, cuda_plan(p, node)->activation);
}

/* ------------------------------------------------------------------------------------------ add */

static dpb_status run_add(const struct program *p, const struct step *step)
{
    const struct sum_parts parts = {{step->t[FROM]->data, step->t[AUX]->data}, 2};
    cuda_sum(stream_of(p), p->type, &parts, step->t[TO]->data, cuda_elements(p, step->node->shape));
    return DPB_OK;
}

static dpb_status add_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *y;
    if (cuda_plan(p, node)->group->into)
        return DPB_OK;
    DPB_TRY(cuda_activation(p, node, &y));
    return cuda_step(p, WHEN_ALWAYS, "forward", run_add,
                     TENSORS(cuda_plan(p, cuda_input(p, node, 0))->activation, y,
                             cuda_plan(p, cuda_input(p, node, 1))->activation));
}

static dpb_status add_backward(struct program *p, const struct dpb_node *node)
{
    if (cuda_plan(p, node)->group->into)
        return DPB_OK;
    cuda_share_input_gradient(p, node, 0, cuda_plan(p, node)->gradient);
    cuda_share_input_gradient(p, node, 1, cuda_plan(p, node)->gradient);
    return DPB_OK;
}

/* --------------------------------------------------------------------------------------- concat */

/* The columns of the input that is in slot FROM (forward) or TO (backward), among those of all. A
 * row is a pixel, whose columns are channels; in NCHW it is a sample, whose columns are all
 * channels' pixels. */
struct columns {
    uint64_t rows;
    uint32_t at, c, wide;
};

static struct columns columns_of(const struct program *p, const struct dpb_node *node,
                                 uint32_t input)
{
    const struct grid grid = cuda_grid(p, node->shape);
    const uint32_t unit = grid.planes ? grid.h * grid.w : 1;
    struct columns columns = {.rows = grid.planes ? grid.n : cuda_grid_pixels(&grid),
                              .c = cuda_input(p, node, input)->shape.c * unit,
                              .wide = node->shape.c * unit};
    for (uint32_t i = 0; i < input; i++)
        columns.at += cuda_input(p, node, i)->shape.c * unit;
    return columns;
}

static dpb_status run_concat(const struct program *p, const struct step *step)
{
    const struct columns by = columns_of(p, step->node, step->which);
    cuda_scatter_columns(stream_of(p), p->type, step->t[FROM]->data, step->t[TO]->data, by.wide,
                         by.at, by.rows, by.c);
    return DPB_OK;
}

static dpb_status concat_forward(struct program *p, const struct dpb_node *node)
{
    struct tensor *y;
    DPB_TRY(cuda_activation(p, node, &y));
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        const struct tensor *x = cuda_plan(p, cuda_input(p, node, i))->activation;
        DPB_TRY(cuda_step(p, WHEN_ALWAYS, "forward", run_concat, TENSORS(x, y)));
        cuda_last_step(p)->bytes = 2 * x->bytes;
        cuda_last_step(p)->which = i;
    }
    return DPB_OK;
}

static dpb_status run_concat_backward(const struct program *p, const struct step *step)
{
    const struct columns by = columns_of(p, step->node, step->which);
    cuda_gather_columns(stream_of(p), p->type, step->t[FROM]->data, by.wide, by.at,
                        step->t[TO]->data, by.rows, by.c);
    return DPB_OK;
}

static dpb_status concat_backward(struct program *p, const struct dpb_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        struct tensor *dx;
        DPB_TRY(cuda_input_gradient(p, node, i, &dx));
        if (!dx)
            continue;
        DPB_TRY(cuda_step(p, WHEN_ALWAYS, "backward", run_concat_backward,
                          TENSORS(cuda_plan(p, node)->gradient, dx)));
        cuda_last_step(p)->bytes = 2 * dx->bytes;
        cuda_last_step(p)->which = i;
    }
    return DPB_OK;
}

/* -------------------------------------------------------------------------------------- dropout */

static dpb_status run_dropout(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct dropout by = {p->device->seed, cuda_index(p, node), node->rate, p->words->data};
    cuda_dropout(stream_of(p), p->type, &by, step->t[FROM]->data, step->t[TO]->data,
                 cuda_grid(p, node->shape));
    return DPB_OK;
}

static dpb_status run_copy(const struct program *p, const struct step *step)
{
    size_t bytes = cuda_elements(p, step->node->shape) * cuda_type_size(p->type);
    return cuda_check(p, step->node, "cudaMemcpyAsync",
                      cudaMemcpyAsync(step->t[TO]->data, step->t[FROM]->data, bytes,
                                      cudaMemcpyDeviceToDevice, stream_of(p)));
}

static dpb_status dropout_forward(struct program *p, const struct dpb_node *node)
{
    const struct tensor *x = cuda_plan(p, cuda_input(p, node, 0))->activation;
    struct tensor *y;
    DPB_TRY(cuda_activation(p, node, &y));
    DPB_TRY(cuda_step(p, WHEN_TRAINING, "forward", run_dropout, TENSORS(x, y, p->words)));
    return cuda_step(p, WHEN_EVALUATION, "copy", run_copy, TENSORS(x, y));
}

static dpb_status dropout_backward(struct program *p, const struct dpb_node *node)
{
    return plan_backward_with(p, node, p->words);
}

/* ------------------------------------------------------------------------------------- shortcut */

static struct sampling sampling_of(const struct program *p, const struct dpb_node *node)
{
    return (struct sampling){.large = cuda_grid(p, cuda_input(p, node, 0)->shape),
                             .small = cuda_grid(p, node->shape),
                             .stride_h = node->window.stride_h,
                             .stride_w = node->window.stride_w};
}

static dpb_status run_shortcut(const struct program *p, const struct step *step)
{
    const struct sampling by = sampling_of(p, step->node);
    cuda_sample(stream_of(p), p->type, &by, step->t[FROM]->data, step->t[TO]->data);
    return DPB_OK;
}

static dpb_status run_shortcut_backward(const struct program *p, const struct step *step)
{
    const struct sampling by = sampling_of(p, step->node);
    cuda_spread(stream_of(p), p->type, &by, step->t[FROM]->data, step->t[TO]->data);
    return DPB_OK;
}

/* ---------------------------------------------------------------------------------------- pools */

static dpb_status run_max_pool(const struct program *p, const struct step *step)
{
    const struct dpb_node *norm = cuda_pooled_norm(p, step->node);
    const struct norm_by norm_by = norm ? cuda_norm_by(p, norm) : (struct norm_by){.mean = NULL};
    const struct window by = cuda_window(p, step->node);
    cuda_max_pool(stream_of(p), p->type, &by, step->t[FROM]->data, norm ? &norm_by : NULL,
                  step->t[TO]->data, step->t[AUX] ? step->t[AUX]->data : NULL);
    return DPB_OK;
}

static dpb_status max_pool_forward(struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    const struct dpb_node *norm = cuda_pooled_norm(p, node);
    const struct tensor *x = cuda_plan(p, cuda_input(p, norm ? norm : node, 0))->activation;
    struct node_plan *plan = cuda_plan(p, node);
    struct tensor *y;
    if (w->kernel_h * w->kernel_w > WINDOW_MAX)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device cuda: the window of max pool '%s' has %ux%u elements; %d in "
                               "all are possible",
                               node->name, w->kernel_h, w->kernel_w, WINDOW_MAX);
    DPB_TRY(cuda_activation(p, node, &y));
    if (p->args.training)
        DPB_TRY(cuda_tensor(p, cuda_elements(p, node->shape), &plan->workspace));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, norm ? "batch-norm, ReLU, forward" : "forward", run_max_pool,
                      TENSORS(x, y, plan->workspace)));
    if (!norm)
        return DPB_OK;
    cuda_use(p, cuda_plan(p, norm)->workspace);
    cuda_use_core(p, norm->weight);
    cuda_use_core(p, norm->bias);
    return DPB_OK;
}

static dpb_status run_max_pool_backward(const struct program *p, const struct step *step)
{
    const struct window by = cuda_window(p, step->node);
    cuda_max_pool_backward(stream_of(p), p->type, &by, step->t[FROM]->data, step->t[AUX]->data,
                           step->t[TO]->data);
    return DPB_OK;
}

static dpb_status max_pool_backward(struct program *p, const struct dpb_node *node)
{
    if (cuda_pooled_norm(p, node))
        return DPB_OK;
    return plan_backward_with(p, node, cuda_plan(p, node)->workspace);
}

static dpb_status run_mean_pool(const struct program *p, const struct step *step)
{
    const struct window by = cuda_window(p, step->node);
    cuda_mean_pool(stream_of(p), p->type, &by, step->t[FROM]->data, step->t[TO]->data);
    return DPB_OK;
}

static dpb_status run_mean_pool_backward(const struct program *p, const struct step *step)
{
    const struct window by = cuda_window(p, step->node);
    cuda_mean_pool_backward(stream_of(p), p->type, &by, step->t[FROM]->data, step->t[TO]->data);
    return DPB_OK;
}

/* ------------------------------------------------------------------------------------------ LRN */

static struct lrn lrn_of(const struct dpb_node *node)
{
    return (struct lrn){node->lrn_radius, (float)node->lrn_k, (float)node->lrn_alpha,
                        (float)node->lrn_beta};
}

static dpb_status run_lrn(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct lrn by = lrn_of(node);
    cuda_lrn(stream_of(p), p->type, &by, step->t[FROM]->data, step->t[TO]->data,
             cuda_grid(p, node->shape));
    return DPB_OK;
}

static dpb_status run_lrn_backward(const struct program *p, const struct step *step)
{
    const struct dpb_node *node = step->node;
    const struct lrn by = lrn_of(node);
    cuda_lrn_backward(stream_of(p), p->type, &by, step->t[AUX]->data, step->t[FROM]->data,
                      step->t[TO]->data, cuda_grid(p, node->shape));
    return DPB_OK;
}

/* Of GELU, too. */
static dpb_status backward_with_input(struct program *p, const struct dpb_node *node)
{
    return plan_backward_with(p, node, cuda_plan(p, cuda_input(p, node, 0))->activation);
}

/* ----------------------------------------------------------------------------------------- loss */

static struct loss loss_of(const struct program *p)
{
    const struct dpb_node *node = &p->graph->nodes[p->graph->n_nodes - 1];
    const struct dpb_node *logits = cuda_input(p, node, 0);
    return (struct loss){.labels = p->labels->data,
                         .log_sum = p->log_sum->data,
                         .label_loss = p->label_loss->data,
                         .label_rank = p->label_rank->data,
                         .n = (uint32_t)cuda_labels(p),
                         .in_sample = dpb_graph_labels(p->graph),
                         .classes = logits->shape.c,
                         .wide = cuda_stored_shape(p, logits).c,
                         .smoothing = (float)node->smoothing};
}

static dpb_status run_loss(const struct program *p, const struct step *step)
{
    const struct loss by = loss_of(p);
    cuda_softmax_loss(stream_of(p), p->type, &by, step->t[FROM]->data);
    cuda_outcome(stream_of(p), &by, p->words->data, &p->control->outcome);
    return DPB_OK;
}

static dpb_status loss_forward(struct program *p, const struct dpb_node *node)
{
    const size_t n = cuda_labels(p);
    DPB_TRY(cuda_tensor(p, n * sizeof(double), &p->log_sum));
    DPB_TRY(cuda_tensor(p, n * sizeof(double), &p->label_loss));
    DPB_TRY(cuda_tensor(p, n * sizeof(uint32_t), &p->label_rank));
    return cuda_step(p, WHEN_ALWAYS, "forward", run_loss,
                     TENSORS(cuda_plan(p, cuda_input(p, node, 0))->activation, p->log_sum,
                             p->label_loss, p->label_rank, p->words));
}

static dpb_status run_loss_backward(const struct program *p, const struct step *step)
{
    const struct loss by = loss_of(p);
    cuda_softmax_loss_backward(stream_of(p), p->type, &by, p->words->data, step->t[AUX]->data,
                               step->t[TO]->data);
    return DPB_OK;
}

/* The gradient takes the place of logits that a product wrote and nobody reads again. */
static dpb_status logits_gradient(struct program *p, const struct dpb_node *loss,
                                  struct tensor **dx)
{
    const struct dpb_node *from = cuda_input(p, loss, 0);
    const struct node_plan *plan = cuda_plan(p, from);
    const bool product = from->op == DPB_OP_CONV || from->op == DPB_OP_DENSE;
    if (p->args.inspect || !product || plan->group->n_consumers > 1)
        return cuda_input_gradient(p, loss, 0, dx);
    *dx = plan->activation;
    dpb_group_add(plan->group, *dx, false);
    return DPB_OK;
}

static dpb_status loss_backward(struct program *p, const struct dpb_node *node)
{
    struct tensor *dx;
    DPB_TRY(logits_gradient(p, node, &dx));
    if (!dx)
        return DPB_OK;
    return cuda_step(p, WHEN_ALWAYS, "backward", run_loss_backward,
                     TENSORS(p->log_sum, dx, cuda_plan(p, cuda_input(p, node, 0))->activation));
}

/* ---------------------------------------------------------------------------------------- table */

/* The one table of the ops: the next op gets its line here. */
const struct op cuda_ops[DPB_OPS] = {
    [DPB_OP_INPUT] = {input_forward, nothing, NULL, NULL},
    [DPB_OP_CONV] = {cuda_conv_forward, cuda_conv_backward, NULL, NULL},
    [DPB_OP_BATCH_NORM] = {cuda_norm_forward, cuda_norm_backward_plan, NULL, NULL},
    [DPB_OP_RELU] = {relu_forward, relu_backward, run_relu, run_relu_backward},
    [DPB_OP_MAX_POOL] = {max_pool_forward, max_pool_backward, run_max_pool, run_max_pool_backward},
    [DPB_OP_MEAN_POOL] = {plan_forward, plan_backward, run_mean_pool, run_mean_pool_backward},
    [DPB_OP_DENSE] = {cuda_dense_forward, cuda_dense_backward, NULL, NULL},
    [DPB_OP_ADD] = {add_forward, add_backward, NULL, NULL},
    [DPB_OP_CONCAT] = {concat_forward, concat_backward, NULL, NULL},
    [DPB_OP_DROPOUT] = {dropout_forward, dropout_backward, run_dropout, run_dropout},
    [DPB_OP_LRN] = {plan_forward, backward_with_input, run_lrn, run_lrn_backward},
    [DPB_OP_SHORTCUT] = {plan_forward, plan_backward, run_shortcut, run_shortcut_backward},
    [DPB_OP_EMBEDDING] = {cuda_embedding_forward, cuda_embedding_backward, NULL, NULL},
    [DPB_OP_LAYER_NORM] = {cuda_layer_norm_forward, cuda_layer_norm_backward_plan, NULL, NULL},
    [DPB_OP_GELU] = {plan_forward, backward_with_input, cuda_run_gelu, cuda_run_gelu_backward},
    [DPB_OP_ATTENTION] = {cuda_attention_forward, cuda_attention_backward, NULL, NULL},
    [DPB_OP_POSITIONS] = {cuda_positions_forward, cuda_positions_backward, NULL, NULL},
    [DPB_OP_PREPEND] = {cuda_prepend_forward, cuda_prepend_backward, NULL, NULL},
    [DPB_OP_SOFTMAX_LOSS] = {loss_forward, loss_backward, NULL, NULL},
};
