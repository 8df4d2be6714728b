/*
 * plan.c - the parts of the ops' plans: descriptions, tensors, steps, packed weights, and the sum
 * of the gradients that a node's consumers give.
 *
 * Nothing here touches data. Each step notes the tensors that it uses: lib/device/places.h gives
 * out places from these notes.
 */
#include <stdlib.h>

#include "lib/device/op_name.h"
#include "plan.h"

/* ------------------------------------------------------------------------------------- messages */

static dpb_status no_memory(const struct program *p)
{
    return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory while compiling model '%s'",
                          p->graph->name);
}

dpb_status cpu_check(const struct program *p, const char *what, dnnl_status_t status)
{
    if (status == dnnl_success)
        return DPB_OK;
    const struct dpb_node *node = p->node;
    const char *op = dpb_op_name(node->op);
    if (status == dnnl_out_of_memory)
        return no_memory(p);
    if (status == dnnl_unimplemented)
        return cpu_host->fail(DPB_UNSUPPORTED,
                              "device cpu: node '%s' (%s): oneDNN has no %s in %s on this "
                              "processor; %s",
                              node->name, op, what, p->type == dnnl_bf16 ? "bf16" : "fp32",
                              p->type == dnnl_bf16 ? "use run.precision = fp32"
                                                   : "use device.name = reference");
    return cpu_host->fail(DPB_FAILED, "device cpu: node '%s' (%s): %s: oneDNN reports %s",
                          node->name, op, what, dnnl_status2str(status));
}

/* ------------------------------------------------------------------------ descriptions, tensors */

/* Makes room for element n of an array that grows by one at a time. */
static dpb_status grow(const struct program *p, void **array, size_t n, size_t element_bytes)
{
    enum { SMALLEST = 64 };
    if (n != 0 && (n < SMALLEST || (n & (n - 1)) != 0))
        return DPB_OK;
    void *larger = realloc(*array, (n ? 2 * n : SMALLEST) * element_bytes);
    if (!larger)
        return no_memory(p);
    *array = larger;
    return DPB_OK;
}

static dpb_status own_desc(struct program *p, dnnl_status_t status, dnnl_memory_desc_t created,
                           const_dnnl_memory_desc_t *desc)
{
    DPB_TRY(cpu_check(p, "memory description", status));
    void *array = p->descs;
    dpb_status grown = grow(p, &array, p->n_descs, sizeof *p->descs);
    if (grown != DPB_OK) {
        dnnl_memory_desc_destroy(created);
        return grown;
    }
    p->descs = array;
    p->descs[p->n_descs++] = created;
    *desc = created;
    return DPB_OK;
}

dpb_status cpu_desc(struct program *p, int n_dims, const dnnl_dim_t *dims, dnnl_data_type_t type,
                    dnnl_format_tag_t tag, const_dnnl_memory_desc_t *desc)
{
    dnnl_memory_desc_t created = NULL;
    dnnl_status_t status = dnnl_memory_desc_create_with_tag(&created, n_dims, dims, type, tag);
    return own_desc(p, status, created, desc);
}

dpb_status cpu_strided_desc(struct program *p, int n_dims, const dnnl_dim_t *dims,
                            const dnnl_dim_t *strides, dnnl_data_type_t type,
                            const_dnnl_memory_desc_t *desc)
{
    dnnl_memory_desc_t created = NULL;
    dnnl_status_t status =
        dnnl_memory_desc_create_with_strides(&created, n_dims, dims, type, strides);
    return own_desc(p, status, created, desc);
}

dpb_status cpu_part_desc(struct program *p, const_dnnl_memory_desc_t whole, const dnnl_dim_t *dims,
                         const dnnl_dim_t *offsets, const_dnnl_memory_desc_t *desc)
{
    dnnl_memory_desc_t created = NULL;
    dnnl_status_t status = dnnl_memory_desc_create_submemory(&created, whole, dims, offsets);
    return own_desc(p, status, created, desc);
}

dpb_status cpu_activation_desc(struct program *p, struct dpb_shape shape, dnnl_data_type_t type,
                               const_dnnl_memory_desc_t *desc)
{
    const dnnl_dims_t dims = {p->args.batch, shape.c, shape.h, shape.w};
    return cpu_desc(p, 4, dims, type, dnnl_nhwc, desc);
}

dpb_status cpu_matrix_desc(struct program *p, uint64_t columns, dnnl_data_type_t type,
                           const_dnnl_memory_desc_t *desc)
{
    const dnnl_dims_t dims = {p->args.batch, (dnnl_dim_t)columns};
    return cpu_desc(p, 2, dims, type, dnnl_ab, desc);
}

static dpb_status new_tensor(struct program *p, const_dnnl_memory_desc_t desc,
                             struct tensor **tensor)
{
    struct tensor *created = calloc(1, sizeof *created);
    if (!created)
        return no_memory(p);
    created->next = p->tensors;
    p->tensors = created;
    created->desc = desc;
    if (desc)
        DPB_TRY(cpu_check(p, "memory",
                          dnnl_memory_create(&created->memory, desc, p->engine, DNNL_MEMORY_NONE)));
    *tensor = created;
    return DPB_OK;
}

dpb_status cpu_tensor(struct program *p, const_dnnl_memory_desc_t desc, struct tensor **tensor)
{
    DPB_TRY(new_tensor(p, desc, tensor));
    dpb_place_add(&p->places, &(*tensor)->place, dnnl_memory_desc_get_size(desc), ARENA_ALIGN);
    return DPB_OK;
}

dpb_status cpu_buffer(struct program *p, size_t bytes, struct tensor **tensor)
{
    DPB_TRY(new_tensor(p, NULL, tensor));
    dpb_place_add(&p->places, &(*tensor)->place, bytes, ARENA_ALIGN);
    return DPB_OK;
}

dpb_status cpu_view(struct program *p, const struct tensor *base, const_dnnl_memory_desc_t desc,
                    struct tensor **tensor)
{
    DPB_TRY(new_tensor(p, desc, tensor));
    (*tensor)->base = base;
    return DPB_OK;
}

dpb_status cpu_core_tensor(struct program *p, const void *arena, uint64_t offset,
                           const_dnnl_memory_desc_t desc, struct tensor **tensor)
{
    DPB_TRY(new_tensor(p, desc, tensor));
    if (arena)
        (*tensor)->data = (float *)arena + offset;
    return DPB_OK;
}

dpb_status cpu_core_vector(struct program *p, const void *arena, uint32_t index,
                           struct tensor **tensor)
{
    *tensor = NULL;
    if (index == DPB_NONE)
        return DPB_OK;
    const struct dpb_tensor *vector = &p->graph->tensors[index];
    const_dnnl_memory_desc_t desc;
    const dnnl_dims_t dims = {(dnnl_dim_t)vector->n_elements};
    DPB_TRY(cpu_desc(p, 1, dims, dnnl_f32, dnnl_a, &desc));
    return cpu_core_tensor(p, arena, vector->offset, desc, tensor);
}

/* ---------------------------------------------------------------------------------------- steps */

dpb_status cpu_own(struct program *p, const char *what, dnnl_status_t status,
                   dnnl_primitive_desc_t created, const_dnnl_primitive_desc_t *desc)
{
    DPB_TRY(cpu_check(p, what, status));
    void *array = p->primitive_descs;
    dpb_status grown = grow(p, &array, p->n_primitive_descs, sizeof *p->primitive_descs);
    if (grown != DPB_OK) {
        dnnl_primitive_desc_destroy(created);
        return grown;
    }
    p->primitive_descs = array;
    p->primitive_descs[p->n_primitive_descs++] = created;
    *desc = created;
    return DPB_OK;
}

dpb_status cpu_workspace(struct program *p, const_dnnl_primitive_desc_t forward,
                         struct tensor **tensor)
{
    const_dnnl_memory_desc_t desc =
        dnnl_primitive_desc_query_md(forward, dnnl_query_workspace_md, 0);
    *tensor = NULL;
    if (!desc || dnnl_memory_desc_get_size(desc) == 0)
        return DPB_OK;
    return cpu_tensor(p, desc, tensor);
}

static double bytes_of(const struct tensor *tensor)
{
    return (double)(tensor->desc ? dnnl_memory_desc_get_size(tensor->desc) : tensor->place.bytes);
}

/* The step that was appended last uses the tensor: its place is taken from the first use to the
 * last. Weights that are packed only when they have changed must outlive the pass. */
static void use(struct program *p, struct step *step, const struct tensor *tensor)
{
    if (!tensor)
        return;
    struct tensor *root = (struct tensor *)(uintptr_t)tensor;
    while (root->base)
        root = (struct tensor *)(uintptr_t)root->base;
    if (root == &p->scratch)
        return;
    size_t now = p->n_steps - 1;
    dpb_place_use(&root->place, now);
    root->place.kept = root->place.kept || step->when == WHEN_REPACKING;
    step->bytes += bytes_of(tensor);
}

void cpu_keep(struct tensor *tensor)
{
    tensor->place.kept = true;
}

void cpu_set_flops(struct program *p, const struct dpb_node *node)
{
    p->list->steps[p->list->n - 1].flops = 2.0 * (double)node->macs * p->args.batch;
}

static dpb_status append_step(struct program *p, enum when when, const char *what,
                              struct step **step)
{
    void *array = p->list->steps;
    DPB_TRY(grow(p, &array, p->list->n, sizeof *p->list->steps));
    p->list->steps = array;
    *step = &p->list->steps[p->list->n++];
    p->n_steps++;
    **step = (struct step){.node = p->node, .what = what, .when = when};
    return DPB_OK;
}

dpb_status cpu_scratch(struct program *p, size_t bytes, struct tensor **tensor)
{
    if (p->scratch.place.bytes < bytes)
        p->scratch.place.bytes = bytes;
    return cpu_view(p, &p->scratch, NULL, tensor);
}

struct matrix cpu_matrix(const struct program *p, const struct dpb_node *node,
                         const struct tensor *tensor)
{
    return (struct matrix){.data = tensor ? tensor->data : NULL,
                           .bf16 = p->type == dnnl_bf16,
                           .rows = (size_t)p->args.batch * node->shape.h * node->shape.w,
                           .columns = node->shape.c};
}

dpb_status cpu_partials(struct program *p, const struct dpb_node *node, struct tensor **tensor)
{
    const struct matrix m = cpu_matrix(p, node, NULL);
    size_t n = 2 * m.columns + cpu_column_partials(m.rows, m.columns);
    return cpu_scratch(p, n * sizeof(double), tensor);
}

/* A tensor for the primitive's scratchpad, or NULL where it needs none. */
static dpb_status scratchpad(struct program *p, const_dnnl_primitive_desc_t desc,
                             struct tensor **tensor)
{
    const_dnnl_memory_desc_t wanted =
        dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    size_t bytes = wanted ? dnnl_memory_desc_get_size(wanted) : 0;
    *tensor = NULL;
    if (bytes == 0)
        return DPB_OK;
    if (p->scratch.place.bytes < bytes)
        p->scratch.place.bytes = bytes;
    return cpu_view(p, &p->scratch, wanted, tensor);
}

dpb_status cpu_step(struct program *p, enum when when, const char *what,
                    const_dnnl_primitive_desc_t desc, const struct arg *args)
{
    struct tensor *scratch;
    DPB_TRY(scratchpad(p, desc, &scratch));
    size_t n = 0;
    while (args[n].name)
        n++;
    dnnl_exec_arg_t *own = malloc((n + 1) * sizeof *own);
    if (!own)
        return no_memory(p);
    struct step *step;
    dpb_status status = append_step(p, when, what, &step);
    if (status != DPB_OK) {
        free(own);
        return status;
    }
    step->desc = desc;
    step->args = own;
    for (size_t i = 0; i < n; i++) {
        if (args[i].tensor)
            own[step->n_args++] = (dnnl_exec_arg_t){args[i].name, args[i].tensor->memory};
        use(p, step, args[i].tensor);
    }
    if (scratch)
        own[step->n_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, scratch->memory};
    return DPB_OK;
}

dpb_status cpu_loop(struct program *p, enum when when, const char *what, step_loop *loop,
                    const struct tensor *from, const struct tensor *to, const struct tensor *aux)
{
    struct step *step;
    DPB_TRY(append_step(p, when, what, &step));
    step->loop = loop;
    step->from = from;
    step->to = to;
    step->aux = aux;
    use(p, step, from);
    use(p, step, to);
    use(p, step, aux);
    return DPB_OK;
}

void cpu_also(struct program *p, enum use slot, const struct tensor *tensor)
{
    struct step *step = &p->list->steps[p->list->n - 1];
    step->also[slot] = tensor;
    use(p, step, tensor);
}

dpb_status cpu_reorder(struct program *p, enum when when, const char *what,
                       const struct tensor *from, const struct tensor *to)
{
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t status = dnnl_reorder_primitive_desc_create(&created, from->desc, p->engine,
                                                              to->desc, p->engine, p->attributes);
    const_dnnl_primitive_desc_t desc;
    DPB_TRY(cpu_own(p, what, status, created, &desc));
    return cpu_step(p, when, what, desc, ARGS({DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}));
}

/* ------------------------------------------------------------------------- fp32 within bf16 */

dpb_status cpu_write_fp32(struct program *p, struct tensor *tensor, struct dpb_shape shape,
                          struct tensor **fp32)
{
    *fp32 = tensor;
    if (p->type == dnnl_f32)
        return DPB_OK;
    const_dnnl_memory_desc_t desc;
    DPB_TRY(cpu_activation_desc(p, shape, dnnl_f32, &desc));
    return cpu_tensor(p, desc, fp32);
}

dpb_status cpu_read_fp32(struct program *p, struct tensor *tensor, struct dpb_shape shape,
                         struct tensor **fp32)
{
    DPB_TRY(cpu_write_fp32(p, tensor, shape, fp32));
    if (*fp32 == tensor)
        return DPB_OK;
    return cpu_reorder(p, WHEN_ALWAYS, "conversion to fp32", tensor, *fp32);
}

dpb_status cpu_round_fp32(struct program *p, const struct tensor *fp32, struct tensor *tensor)
{
    if (fp32 == tensor)
        return DPB_OK;
    return cpu_reorder(p, WHEN_ALWAYS, "rounding to bf16", fp32, tensor);
}

/* -------------------------------------------------------------------------------------- weights */

dpb_status cpu_packed_weights(struct program *p, uint32_t index, const_dnnl_memory_desc_t canonical,
                              const_dnnl_memory_desc_t wanted, struct tensor **tensor)
{
    struct tensor *packed = cpu_plan(p, p->node)->weights; /* by forward */
    if (packed && dnnl_memory_desc_equal(packed->desc, wanted)) {
        *tensor = packed;
        return DPB_OK;
    }
    struct tensor *core;
    DPB_TRY(cpu_core_tensor(p, p->core.weights, p->graph->tensors[index].offset, canonical, &core));
    if (dnnl_memory_desc_equal(canonical, wanted)) {
        *tensor = core;
        return DPB_OK;
    }
    DPB_TRY(cpu_tensor(p, wanted, tensor));
    return cpu_reorder(p, WHEN_REPACKING, "packing of weights", core, *tensor);
}

dpb_status cpu_weight_gradient(struct program *p, uint32_t index,
                               const_dnnl_memory_desc_t canonical, const_dnnl_memory_desc_t format,
                               struct tensor **tensor)
{
    if (!dnnl_memory_desc_equal(canonical, format))
        return cpu_tensor(p, format, tensor);
    return cpu_core_tensor(p, p->core.gradients, p->graph->tensors[index].offset, canonical,
                           tensor);
}

dpb_status cpu_unpack_gradient(struct program *p, uint32_t index,
                               const_dnnl_memory_desc_t canonical, const struct tensor *tensor)
{
    if (dnnl_memory_desc_equal(canonical, tensor->desc))
        return DPB_OK;
    struct tensor *core;
    DPB_TRY(
        cpu_core_tensor(p, p->core.gradients, p->graph->tensors[index].offset, canonical, &core));
    return cpu_reorder(p, WHEN_ALWAYS, "unpacking of the weights' gradient", tensor, core);
}

/* ----------------------------------------------------------------------- activations, gradients */

dpb_status cpu_activation(struct program *p, const struct dpb_node *node, struct tensor **tensor)
{
    const_dnnl_memory_desc_t desc;
    DPB_TRY(cpu_activation_desc(p, node->shape, p->type, &desc));
    DPB_TRY(cpu_tensor(p, desc, tensor));
    cpu_plan(p, node)->activation = *tensor;
    return DPB_OK;
}

dpb_status cpu_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                              struct tensor **tensor)
{
    struct node_plan *input = &p->nodes[node->inputs[slot]];
    *tensor = NULL;
    if (node->inputs[slot] == 0)
        return DPB_OK;
    DPB_TRY(cpu_tensor(p, input->activation->desc, tensor));
    dpb_group_add(input->group, *tensor, false);
    return DPB_OK;
}

void cpu_share_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                              struct tensor *part)
{
    if (node->inputs[slot] != 0)
        dpb_group_add(p->nodes[node->inputs[slot]].group, part, true);
}

dpb_status cpu_forward_loop(struct program *p, const struct dpb_node *node, step_loop *loop)
{
    struct tensor *dst;
    DPB_TRY(cpu_activation(p, node, &dst));
    return cpu_loop(p, WHEN_ALWAYS, "forward", loop, cpu_plan(p, cpu_input(p, node, 0))->activation,
                    dst, NULL);
}

/* One step for all parts, so that bf16 parts are added in fp32 and rounded once. */
static dpb_status add_parts(struct program *p, struct node_plan *plan)
{
    const struct dpb_part *parts = plan->group->parts;
    uint32_t n = plan->group->n_parts;
    const_dnnl_memory_desc_t *descs = calloc(n, sizeof *descs);
    float *scales = calloc(n, sizeof *scales);
    struct arg *args = calloc(n + 2, sizeof *args);
    dpb_status status = descs && scales && args ? DPB_OK : no_memory(p);
    if (status != DPB_OK)
        goto done;
    for (uint32_t i = 0; i < n; i++) {
        descs[i] = parts[i].tensor->desc;
        scales[i] = 1.0f;
        args[i] = (struct arg){DNNL_ARG_MULTIPLE_SRC + (int)i, parts[i].tensor};
    }
    args[n] = (struct arg){DNNL_ARG_DST, plan->gradient};
    dnnl_primitive_desc_t created = NULL;
    dnnl_status_t made = dnnl_sum_primitive_desc_create(&created, p->engine, plan->gradient->desc,
                                                        (int)n, scales, descs, p->attributes);
    const_dnnl_primitive_desc_t desc;
    status = cpu_own(p, "sum of gradients", made, created, &desc);
    DPB_THEN(status, cpu_step(p, WHEN_ALWAYS, "sum of gradients", desc, args));
done:
    free(args);
    free(scales);
    free(descs);
    return status;
}

dpb_status cpu_join_gradient(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cpu_plan(p, node);
    struct dpb_part *first = plan->group->parts, *own = dpb_group_own_part(plan->group);
    if (plan->group->n_parts == 0) /* the input, whose gradient nobody needs, and the loss */
        return DPB_OK;
    const_dnnl_memory_desc_t dense = plan->activation->desc;
    if (plan->group->n_parts == 1) {
        if (dnnl_memory_desc_equal(first->tensor->desc, dense)) {
            plan->gradient = first->tensor;
            return DPB_OK;
        }
        DPB_TRY(cpu_tensor(p, dense, &plan->gradient));
        return cpu_reorder(p, WHEN_ALWAYS, "copy of the gradient", first->tensor, plan->gradient);
    }
    if (!own) {
        DPB_TRY(cpu_tensor(p, dense, &plan->gradient));
        return add_parts(p, plan);
    }
    /* The sum goes into a part that is the node's own; oneDNN wants that one first. */
    const struct dpb_part sum = *own;
    *own = *first;
    *first = sum;
    plan->gradient = sum.tensor;
    return add_parts(p, plan);
}
