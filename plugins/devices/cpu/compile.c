/*
 * compile.c - a program from plan to release: walks the graph forwards and backwards for its steps,
 * allocates the arena once, makes oneDNN's primitives, and answers inspect().
 */
#include <stdlib.h>

#include "hooks.h"
#include "lib/device/refuse.h"
#include "ops.h"

/* ----------------------------------------------------------------------------------------- plan */

/* The one table of the ops: the next op gets its line here. */
static const struct op {
    dpb_status (*forward)(struct program *p, const struct dpb_node *node);
    dpb_status (*backward)(struct program *p, const struct dpb_node *node);
} ops[DPB_OPS] = {
    [DPB_OP_INPUT] = {.forward = cpu_input_forward},
    [DPB_OP_CONV] = {cpu_conv_forward, cpu_conv_backward},
    [DPB_OP_BATCH_NORM] = {cpu_batch_norm_forward, cpu_batch_norm_backward},
    [DPB_OP_RELU] = {cpu_relu_forward, cpu_relu_backward},
    [DPB_OP_MAX_POOL] = {cpu_pool_forward, cpu_pool_backward},
    [DPB_OP_MEAN_POOL] = {cpu_pool_forward, cpu_pool_backward},
    [DPB_OP_DENSE] = {cpu_dense_forward, cpu_dense_backward},
    [DPB_OP_ADD] = {cpu_add_forward, cpu_add_backward},
    [DPB_OP_CONCAT] = {cpu_concat_forward, cpu_concat_backward},
    [DPB_OP_DROPOUT] = {cpu_dropout_forward, cpu_dropout_backward},
    [DPB_OP_LRN] = {cpu_lrn_forward, cpu_lrn_backward},
    [DPB_OP_SHORTCUT] = {cpu_shortcut_forward, cpu_shortcut_backward},
    [DPB_OP_EMBEDDING] = {cpu_embedding_forward, cpu_embedding_backward},
    [DPB_OP_LAYER_NORM] = {cpu_layer_norm_forward, cpu_layer_norm_backward},
    [DPB_OP_GELU] = {cpu_gelu_forward, cpu_gelu_backward},
    [DPB_OP_ATTENTION] = {cpu_attention_forward, cpu_attention_backward},
    [DPB_OP_POSITIONS] = {cpu_positions_forward, cpu_positions_backward},
    [DPB_OP_PREPEND] = {cpu_prepend_forward, cpu_prepend_backward},
    [DPB_OP_SOFTMAX_LOSS] = {cpu_loss_forward, cpu_loss_backward},
};

static dpb_status allocate_plans(struct program *p)
{
    const uint32_t n = p->graph->n_nodes;
    p->nodes = calloc(n, sizeof *p->nodes);
    p->groups = dpb_groups_find(p->graph, true);
    if (!p->nodes || !p->groups)
        return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory for a model of %u nodes",
                              n);
    for (uint32_t i = 0; i < n; i++)
        p->nodes[i].group = &p->groups[i];
    return DPB_OK;
}

static dpb_status plan_forward(struct program *p)
{
    p->list = &p->forward;
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        p->node = &p->graph->nodes[i];
        DPB_TRY(ops[p->node->op].forward(p, p->node));
    }
    return DPB_OK;
}

/* Plans all nodes but the input. A node may have no step of its own left: then the step before has
 * finished the node's gradients, too. */
static dpb_status plan_backward(struct program *p)
{
    p->list = &p->backward;
    for (uint32_t i = p->graph->n_nodes; i-- > 1;) {
        p->node = &p->graph->nodes[i];
        const struct node_plan *plan = &p->nodes[i];
        if (!plan->group->from &&
            p->node->op != DPB_OP_BATCH_NORM) /* these take parts as they are */
            DPB_TRY(cpu_join_gradient(p, p->node));
        DPB_TRY(ops[p->node->op].backward(p, p->node));
        if (p->list->n > 0)
            p->list->steps[p->list->n - 1].frontier = dpb_frontier_after(p->graph, i);
    }
    return DPB_OK;
}

/* Scratchpads are the plan's, and fp32 means fp32 whatever the environment says. */
static dpb_status make_attributes(struct program *p)
{
    dnnl_status_t status = dnnl_primitive_attr_create(&p->attributes);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(p->attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_fpmath_mode(p->attributes, dnnl_fpmath_mode_strict);
    dnnl_post_ops_t relu = NULL;
    if (status == dnnl_success)
        status = dnnl_post_ops_create(&relu);
    if (status == dnnl_success)
        status = dnnl_post_ops_append_eltwise(relu, dnnl_eltwise_relu, 0.0f, 0.0f);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_clone(&p->with_relu, p->attributes);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(p->with_relu, relu);
    dnnl_post_ops_destroy(relu);
    if (status != dnnl_success)
        return cpu_host->fail(DPB_FAILED, "device cpu: primitive attributes: oneDNN reports %s",
                              dnnl_status2str(status));
    return DPB_OK;
}

static dpb_status check_args(const struct dpb_compile_args *args)
{
    if (args->precision != DPB_PRECISION_FP32 && args->precision != DPB_PRECISION_BF16)
        return cpu_host->fail(DPB_UNSUPPORTED,
                              "device cpu computes in fp32 and bf16 only, not in %s; for fp64 "
                              "use device.name = reference",
                              dpb_precision_name(args->precision));
    return dpb_refuse_compile(cpu_host, "cpu", args);
}

static dpb_status plan_program(struct program *p)
{
    DPB_TRY(check_args(&p->args));
    p->type = p->args.precision == DPB_PRECISION_BF16 ? dnnl_bf16 : dnnl_f32;
    DPB_TRY(make_attributes(p));
    DPB_TRY(allocate_plans(p));
    DPB_TRY(plan_forward(p));
    if (p->args.training)
        DPB_TRY(plan_backward(p));
    if (!dpb_places_plan(p->places, p->args.inspect, &p->arena_bytes))
        return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory for a plan of memory");
    p->scratch.place.offset = p->arena_bytes;
    p->arena_bytes += p->scratch.place.bytes;
    return DPB_OK;
}

/* ----------------------------------------------------------------------------------------- bind */

static dpb_status make_primitives(struct program *p, struct step_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        struct step *step = &list->steps[i];
        p->node = step->node;
        if (step->desc)
            DPB_TRY(cpu_check(p, step->what, dnnl_primitive_create(&step->primitive, step->desc)));
    }
    return DPB_OK;
}

static dpb_status bind_tensor(const struct program *p, struct tensor *tensor)
{
    const struct tensor *root = tensor;
    while (root->base)
        root = root->base;
    tensor->data = root->place.bytes ? (char *)p->arena + root->place.offset : root->data;
    if (!tensor->memory)
        return DPB_OK;
    return cpu_check(p, "memory", dnnl_memory_set_data_handle(tensor->memory, tensor->data));
}

static dpb_status open_account(struct program *p)
{
    p->step_ns = calloc(p->n_steps, sizeof *p->step_ns);
    p->step_calls = calloc(p->n_steps, sizeof *p->step_calls);
    p->rows = calloc(p->n_steps, sizeof *p->rows);
    if (p->step_ns && p->step_calls && p->rows)
        return DPB_OK;
    return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory for the account of %zu steps",
                          p->n_steps);
}

static dpb_status bind_program(struct program *p)
{
    if (p->args.profile)
        DPB_TRY(open_account(p));
    p->arena = cpu_host->alloc(p->arena_bytes);
    if (!p->arena)
        return DPB_NO_MEMORY;
    for (struct tensor *tensor = p->tensors; tensor; tensor = tensor->next)
        DPB_TRY(bind_tensor(p, tensor));
    DPB_TRY(make_primitives(p, &p->forward));
    return make_primitives(p, &p->backward);
}

static void release_steps(struct step_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        dnnl_primitive_destroy(list->steps[i].primitive);
        free(list->steps[i].args);
    }
    free(list->steps);
}

/* Releases all parts that planning and binding made, also after either has failed. */
static void release_parts(struct program *p)
{
    release_steps(&p->forward);
    release_steps(&p->backward);
    while (p->tensors) {
        struct tensor *next = p->tensors->next;
        dnnl_memory_destroy(p->tensors->memory);
        free(p->tensors);
        p->tensors = next;
    }
    for (size_t i = 0; i < p->n_primitive_descs; i++)
        dnnl_primitive_desc_destroy(p->primitive_descs[i]);
    for (size_t i = 0; i < p->n_descs; i++)
        dnnl_memory_desc_destroy(p->descs[i]);
    free(p->primitive_descs);
    free(p->descs);
    dnnl_primitive_attr_destroy(p->attributes);
    dnnl_primitive_attr_destroy(p->with_relu);
    free(p->step_ns);
    free(p->step_calls);
    free(p->rows);
    free(p->nodes);
    free(p->groups);
    cpu_host->release(p->arena, p->arena_bytes);
}

/* ---------------------------------------------------------------------------------------- hooks */

/* The most memory of oneDNN beside its scratchpads: its code for a primitive, and buffers of its
 * own. Measured in a control group: 6 to 57 MiB with 10 to 220 primitives. */
static const uint64_t library_bytes = UINT64_C(6) << 20, primitive_bytes = UINT64_C(128) << 10;

uint64_t cpu_memory_needed(const void *options, const struct dpb_compile_args *args)
{
    (void)options;
    struct program p = {.graph = args->graph, .args = *args};
    dnnl_status_t status = dnnl_engine_create(&p.engine, dnnl_cpu, 0);
    if (status != dnnl_success) {
        cpu_host->fail(DPB_FAILED, "device cpu: engine: oneDNN reports %s",
                       dnnl_status2str(status));
        return 0;
    }
    uint64_t bytes = plan_program(&p) == DPB_OK ? p.arena_bytes : 0;
    bytes += bytes > 0 ? library_bytes + p.n_primitive_descs * primitive_bytes : 0;
    release_parts(&p);
    dnnl_engine_destroy(p.engine);
    return bytes;
}

dpb_status cpu_compile(void *device, const struct dpb_compile_args *args,
                       const struct dpb_device_memory *memory, void **program)
{
    const struct device *d = device;
    struct program *p = calloc(1, sizeof *p);
    if (!p)
        return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory for a program");
    p->threads = d->threads;
    p->seed = d->seed;
    p->engine = d->engine;
    p->stream = d->stream;
    p->graph = args->graph;
    p->args = *args;
    p->core = *memory;
    cpu_use_threads(p->threads);
    dpb_status status = plan_program(p);
    DPB_THEN(status, bind_program(p));
    if (status != DPB_OK) {
        cpu_release(p);
        return status;
    }
    *program = p;
    return DPB_OK;
}

void cpu_release(void *program)
{
    if (!program)
        return;
    release_parts(program);
    free(program);
}

static void copy_to_nchw(const struct program *p, struct dpb_shape shape, const void *data,
                         double *out)
{
    const float *fp32 = data;
    const uint16_t *bf16 = data;
    size_t pixels = (size_t)shape.h * shape.w;
    for (size_t n = 0; n < p->args.batch; n++) {
        for (size_t pixel = 0; pixel < pixels; pixel++) {
            for (size_t c = 0; c < shape.c; c++) {
                size_t i = (n * pixels + pixel) * shape.c + c;
                out[(n * shape.c + c) * pixels + pixel] =
                    p->type == dnnl_bf16 ? dpb_bf16_to_fp32(bf16[i]) : fp32[i];
            }
        }
    }
}

dpb_status cpu_inspect(void *program, uint32_t node, double *activation, double *gradient)
{
    const struct program *p = program;
    DPB_TRY(dpb_refuse_inspect(cpu_host, "cpu", &p->args, node));
    const struct dpb_node *what = &p->graph->nodes[node];
    const struct node_plan *plan = &p->nodes[node];
    if (what->op == DPB_OP_SOFTMAX_LOSS)
        return cpu_inspect_loss(p, activation, gradient);
    if (activation && !plan->activation)
        return dpb_refuse_hidden(cpu_host, "cpu", "activation", what);
    if (gradient && !plan->gradient)
        return dpb_refuse_hidden(cpu_host, "cpu", "gradient", what);
    if (activation)
        copy_to_nchw(p, what->shape, plan->activation->data, activation);
    if (gradient)
        copy_to_nchw(p, what->shape, plan->gradient->data, gradient);
    return DPB_OK;
}
