/*
 * plan.c - functions for planning an op: tensors, steps, parts of gradients, weights in the
 * libraries' layout, and the pieces in which gradients leave. Plain C: no call here needs a GPU.
 */
#include <stdlib.h>

#include "plan.h"

/* -------------------------------------------------------------------------------------- tensors */

static dpb_status new_tensor(struct program *p, struct tensor **tensor)
{
    struct tensor *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    made->next = p->tensors;
    p->tensors = made;
    *tensor = made;
    return DPB_OK;
}

dpb_status cuda_tensor(struct program *p, size_t bytes, struct tensor **tensor)
{
    DPB_TRY(new_tensor(p, tensor));
    dpb_place_add(&p->places, &(*tensor)->place, bytes ? bytes : 1, ARENA_ALIGN);
    (*tensor)->bytes = (double)bytes;
    return DPB_OK;
}

dpb_status cuda_foreign_tensor(struct program *p, void *data, struct tensor **tensor)
{
    DPB_TRY(new_tensor(p, tensor));
    (*tensor)->foreign = true;
    (*tensor)->data = data;
    return DPB_OK;
}

void cuda_need_scratch(struct program *p, size_t bytes)
{
    p->scratch_bytes = p->scratch_bytes > bytes ? p->scratch_bytes : bytes;
}

void cuda_need_sum_room(struct program *p, const struct dpb_node *node)
{
    const struct grid grid = cuda_grid(p, node->shape);
    cuda_need_scratch(p, cuda_partial_bytes(p->type, &grid));
}

static dpb_status activation_like(struct program *p, struct dpb_shape shape, struct tensor **tensor)
{
    return cuda_tensor(p, cuda_elements(p, shape) * cuda_type_size(p->type), tensor);
}

bool cuda_multiplies_positions(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    return node->op == DPB_OP_CONV && node->inputs[0] != 0 &&
           cuda_input(p, node, 0)->shape.h == 1 && p->device->options.layout == LAYOUT_NHWC &&
           w->kernel_h == 1 && w->kernel_w == 1 && w->stride_w == 1 && node->groups == 1 &&
           w->pad_left == 0 && w->pad_right == 0 && w->pad_top == 0 && w->pad_bottom == 0;
}

/* Logits that only a product writes and only the loss reads. */
static bool are_padded(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_node *loss = &p->graph->nodes[p->graph->n_nodes - 1];
    return node == cuda_input(p, loss, 0) && node->bias == DPB_NONE &&
           cuda_plan(p, node)->group->n_consumers == 1 && cuda_multiplies_positions(p, node);
}

struct dpb_shape cuda_stored_shape(const struct program *p, const struct dpb_node *node)
{
    enum { PACKED_CHANNELS = 8 };
    struct dpb_shape shape = node->shape;
    if (are_padded(p, node)) {
        shape.c = (shape.c + PACKED_CHANNELS - 1) / PACKED_CHANNELS * PACKED_CHANNELS;
        return shape;
    }
    if (node->op != DPB_OP_INPUT || shape.c >= PACKED_CHANNELS || cuda_type_size(p->type) != 2 ||
        p->device->options.layout != LAYOUT_NHWC)
        return shape;
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        const struct dpb_node *reader = &p->graph->nodes[i];
        for (uint32_t k = 0; k < reader->n_inputs; k++) {
            if (reader->inputs[k] == cuda_index(p, node) &&
                (reader->op != DPB_OP_CONV || reader->groups > 1))
                return shape;
        }
    }
    shape.c = PACKED_CHANNELS;
    return shape;
}

const struct dpb_node *cuda_first_reader(const struct program *p, const struct dpb_node *node)
{
    for (uint32_t i = cuda_index(p, node) + 1; i < p->graph->n_nodes; i++) {
        const struct dpb_node *other = &p->graph->nodes[i];
        for (uint32_t k = 0; k < other->n_inputs; k++) {
            if (other->inputs[k] == cuda_index(p, node))
                return other;
        }
    }
    return NULL;
}

dpb_status cuda_activation(struct program *p, const struct dpb_node *node, struct tensor **tensor)
{
    DPB_TRY(activation_like(p, cuda_stored_shape(p, node), tensor));
    cuda_plan(p, node)->activation = *tensor;
    return DPB_OK;
}

/* ---------------------------------------------------------------------------------------- steps */

/* A place is taken from the first use to the last. Weights that are packed only when they have
 * changed must outlive the pass. */
static void use(const struct program *p, struct step *step, const struct tensor *tensor)
{
    if (!tensor)
        return;
    struct tensor *used = (struct tensor *)(uintptr_t)tensor;
    dpb_place_use(&used->place, p->n_steps - 1);
    used->place.kept = used->place.kept || step->when == WHEN_REPACKING;
    step->bytes += used->bytes;
}

dpb_status cuda_step(struct program *p, unsigned when, const char *what, step_run *run,
                     const struct tensor *const t[SLOTS])
{
    struct step_list *list = p->list;
    if (list->n % 64 == 0) {
        struct step *more = realloc(list->steps, (list->n + 64) * sizeof *more);
        if (!more)
            return cuda_no_memory();
        list->steps = more;
    }
    struct step *step = &list->steps[list->n++];
    *step = (struct step){.node = p->node, .what = what, .when = when, .run = run};
    p->n_steps++;
    for (int slot = 0; slot < SLOTS; slot++) {
        step->t[slot] = t[slot];
        use(p, step, t[slot]);
    }
    return DPB_OK;
}

void cuda_use(struct program *p, const struct tensor *tensor)
{
    use(p, cuda_last_step(p), tensor);
}

void cuda_use_core(struct program *p, uint32_t index)
{
    if (index != DPB_NONE)
        cuda_last_step(p)->bytes += (double)p->graph->tensors[index].n_elements * sizeof(float);
}

/* ------------------------------------------------------------------------------------ gradients */

dpb_status cuda_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor **tensor)
{
    *tensor = NULL;
    if (node->inputs[slot] == 0)
        return DPB_OK;
    DPB_TRY(activation_like(p, cuda_stored_shape(p, cuda_input(p, node, slot)), tensor));
    dpb_group_add(p->nodes[node->inputs[slot]].group, *tensor, false);
    return DPB_OK;
}

void cuda_share_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor *part)
{
    if (node->inputs[slot] != 0)
        dpb_group_add(p->nodes[node->inputs[slot]].group, part, true);
}

static dpb_status run_join(const struct program *p, const struct step *step)
{
    const struct dpb_group *group = cuda_plan(p, step->node)->group;
    struct sum_parts parts = {.n = group->n_parts};
    for (uint32_t i = 0; i < group->n_parts; i++)
        parts.part[i] = group->parts[i].tensor->data;
    cuda_sum(p->device->stream, p->type, &parts, step->t[TO]->data,
             cuda_elements(p, step->node->shape));
    return DPB_OK;
}

dpb_status cuda_join_gradient(struct program *p, const struct dpb_node *node)
{
    struct node_plan *plan = cuda_plan(p, node);
    const struct dpb_part *parts = plan->group->parts, *own = dpb_group_own_part(plan->group);
    const uint32_t n = plan->group->n_parts;
    if (n == 0) /* the input, which needs no gradient; the loss; a ReLU that a pool takes */
        return DPB_OK;
    if (cuda_joins_in_sums(plan->group))
        return DPB_OK;
    if (n == 1) {
        plan->gradient = parts[0].tensor;
        return DPB_OK;
    }
    if (n > SUM_PARTS)
        return cuda_host->fail(DPB_UNSUPPORTED,
                               "device cuda: node '%s' has %u consumers; %d are possible",
                               node->name, n, SUM_PARTS);
    if (own)
        plan->gradient = own->tensor;
    else
        DPB_TRY(activation_like(p, node->shape, &plan->gradient));
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "sum of gradients", run_join, TENSORS(NULL, plan->gradient)));
    for (uint32_t i = 0; i < n; i++)
        cuda_use(p, parts[i].tensor);
    return DPB_OK;
}

dpb_status cuda_over_gradient(struct program *p, const struct dpb_node *node,
                              struct tensor **tensor)
{
    const struct node_plan *plan = cuda_plan(p, node);
    const struct dpb_part *own = dpb_group_own_part(plan->group);
    const bool whole = own && own->tensor == plan->gradient;
    if (p->args.inspect || !own || !(whole || cuda_joins_in_sums(plan->group)))
        return activation_like(p, node->shape, tensor);
    *tensor = own->tensor;
    return DPB_OK;
}

/* -------------------------------------------------------------------------------------- weights */

/* I counts the inputs of an output: for a convolution, the channels of a group. A dense layer over
 * a picture has OI over CHW, which is OIHW. Activations in NCHW need weights in core's order:
 * nothing is permuted. */
static struct packing packing_of(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_tensor *tensor = &p->graph->tensors[node->weight];
    const struct dpb_shape in = cuda_input(p, node, 0)->shape;
    const struct dpb_window *w = &node->window;
    uint32_t hw = node->op == DPB_OP_DENSE ? in.h * in.w : w->kernel_h * w->kernel_w;
    if (p->device->options.layout == LAYOUT_NCHW)
        hw = 1;
    const uint32_t i = (uint32_t)(tensor->n_elements / node->shape.c / hw);
    const uint32_t more = cuda_stored_shape(p, cuda_input(p, node, 0)).c - in.c;
    return (struct packing){
        .from = tensor->offset, .o = node->shape.c, .i = i, .hw = hw, .wide = i + more};
}

static size_t packed_elements(const struct packing *by)
{
    return (size_t)by->o * by->wide * by->hw;
}

static bool needs_packing(const struct program *p, const struct dpb_node *node, enum cuda_type type)
{
    return packing_of(p, node).hw > 1 || type != TYPE_FP32;
}

dpb_status cuda_pack_weights_of(struct program *p, const struct dpb_node *node)
{
    const struct packing by = packing_of(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    if (!needs_packing(p, node, p->type))
        return DPB_OK;
    DPB_TRY(cuda_tensor(p, packed_elements(&by) * cuda_type_size(p->type), &plan->packed));
    plan->packed->place.kept = true;
    p->n_packings++;
    return DPB_OK;
}

const void *cuda_packed(const struct program *p, const struct dpb_node *node)
{
    const struct tensor *packed = cuda_plan(p, node)->packed;
    return packed ? packed->data : cuda_weight(p, node->weight);
}

void cuda_list_packings(const struct program *p, struct packing *table)
{
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        if (!p->nodes[i].packed)
            continue;
        *table = packing_of(p, &p->graph->nodes[i]);
        table->to = p->nodes[i].packed->data;
        table->by_wide = cuda_divisor(table->wide);
        table++;
    }
}

dpb_status cuda_weight_gradient(struct program *p, const struct dpb_node *node, enum cuda_type type)
{
    const struct packing by = packing_of(p, node);
    struct node_plan *plan = cuda_plan(p, node);
    plan->gradient_type = type;
    if (!needs_packing(p, node, type))
        return DPB_OK;
    return cuda_tensor(p, packed_elements(&by) * cuda_type_size(type), &plan->packed_gradient);
}

void *cuda_weight_gradient_data(const struct program *p, const struct dpb_node *node)
{
    const struct tensor *packed = cuda_plan(p, node)->packed_gradient;
    return packed ? packed->data : cuda_gradient(p, node->weight);
}

static dpb_status run_unpack(const struct program *p, const struct step *step)
{
    const struct packing by = packing_of(p, step->node);
    cuda_unpack_gradient(p->device->stream, cuda_plan(p, step->node)->gradient_type,
                         step->t[FROM]->data, cuda_gradient(p, step->node->weight), &by);
    return DPB_OK;
}

dpb_status cuda_unpack_weights(struct program *p, const struct dpb_node *node)
{
    const struct tensor *packed = cuda_plan(p, node)->packed_gradient;
    if (!packed)
        return DPB_OK;
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "unpacking of the weights' gradient", run_unpack,
                      TENSORS(packed)));
    cuda_use_core(p, node->weight);
    return DPB_OK;
}

/* --------------------------------------------------------------------------------------- pieces */

dpb_status cuda_cut_pieces(const struct step_list *backward, uint64_t least, struct piece **pieces,
                           size_t *n)
{
    struct piece *made = calloc(backward->n + 1, sizeof *made);
    size_t n_made = 0;
    uint64_t begin = 0, end = 0;
    if (!made)
        return cuda_no_memory();
    for (size_t i = 0; i < backward->n; i++) {
        if (backward->steps[i].frontier <= end)
            continue;
        end = backward->steps[i].frontier;
        if (end - begin >= least) {
            made[n_made++] = (struct piece){.begin = begin, .end = end, .after = i};
            begin = end;
        }
    }
    if (end > begin)
        made[n_made++] = (struct piece){.begin = begin, .end = end, .after = backward->n - 1};
    *pieces = made;
    *n = n_made;
    return DPB_OK;
}
