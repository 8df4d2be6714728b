/*
 * compile.c - a program from plan to release: walks the graph forwards and backwards for its steps,
 * allocates the arena once, and answers inspect().
 */
#include <stdlib.h>

#include "account.h"
#include "hooks.h"
#include "lib/device/op_name.h"
#include "lib/device/refuse.h"
#include "ops.h"
#include "plan.h"
#include "products.h"
#include "streams.h"

/* Gradients leave in pieces of at least so many elements: 1 MiB, which PCIe carries in 20 to 80
 * us. */
enum { PIECE_ELEMENTS = 1 << 18 };

/* ----------------------------------------------------------------------------------------- plan */

static dpb_status allocate_plans(struct program *p)
{
    const uint32_t n = p->graph->n_nodes;
    p->nodes = calloc(n, sizeof *p->nodes);
    p->groups = dpb_groups_find(p->graph, false);
    if (!p->nodes || !p->groups)
        return cuda_no_memory();
    for (uint32_t i = 0; i < n; i++)
        p->nodes[i].group = &p->groups[i];
    return DPB_OK;
}

/* Plans the tensors that belong to no node. */
static dpb_status plan_mirrors(struct program *p, const struct dpb_device_memory *core)
{
    const struct dpb_graph *graph = p->graph;
    const size_t n = p->args.batch;
    size_t channels = 0;
    const uint64_t gradients = p->args.training ? graph->n_elements : 0;
    void *weights = (void *)(uintptr_t)core->weights;
    p->takes_events = core->on_device && core->takes_events;
    if (core->on_device) {
        DPB_TRY(cuda_mirror_none(p, weights, &p->weights));
        DPB_TRY(cuda_mirror_none(p, core->gradients, &p->gradients));
        p->gradients.tensor->bytes = (double)(gradients * sizeof(float));
    } else {
        DPB_TRY(cuda_mirror_plan(p, weights, graph->n_elements, &p->weights));
        DPB_TRY(cuda_mirror_plan(p, core->gradients, gradients, &p->gradients));
    }
    DPB_TRY(
        cuda_mirror_plan(p, (void *)(uintptr_t)core->state, graph->n_state_elements, &p->state));
    DPB_TRY(cuda_mirror_plan(p, core->statistics, graph->n_state_elements, &p->statistics));
    DPB_TRY(cuda_tensor(p, n * dpb_sample_bytes(p->args.format), &p->samples));
    DPB_TRY(cuda_tensor(p, cuda_labels(p) * sizeof(int32_t), &p->labels));
    DPB_TRY(cuda_tensor(p, n * sizeof(uint32_t), &p->numbers));
    DPB_TRY(cuda_tensor(p, sizeof(struct pass_words), &p->words));
    DPB_TRY(cuda_tensor(p, graph->n_nodes * sizeof(struct packing), &p->packings));
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        channels = graph->nodes[i].shape.c > channels ? graph->nodes[i].shape.c : channels;
    DPB_TRY(cuda_tensor(p, channels * sizeof(uint32_t), &p->tickets));
    p->tickets->place.kept = true;
    p->samples->place.kept = p->labels->place.kept = p->words->place.kept = true;
    p->packings->place.kept = p->numbers->place.kept = true;
    return DPB_OK;
}

static dpb_status plan_forward(struct program *p)
{
    p->list = &p->forward;
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        p->node = &p->graph->nodes[i];
        if (!cuda_ops[p->node->op].forward)
            return cuda_host->fail(DPB_UNSUPPORTED,
                                   "device cuda has no kernels for node '%s' (%s); use device.name "
                                   "= cpu",
                                   p->node->name, dpb_op_name(p->node->op));
        DPB_TRY(cuda_ops[p->node->op].forward(p, p->node));
    }
    return DPB_OK;
}

static dpb_status run_find_infinite(const struct program *p, const struct step *step)
{
    cuda_find_infinite(p->device->stream, p->words->data, step->t[FROM]->data, p->graph->n_elements,
                       &p->control->infinite);
    return DPB_OK;
}

/* The last piece of the gradients is said to be final once it is known whether all are finite. */
static dpb_status plan_finite(struct program *p)
{
    const struct step_list *list = p->list;
    if (p->type != TYPE_FP16)
        return DPB_OK;
    for (size_t i = 0; i < list->n; i++) {
        if (list->steps[i].frontier == p->graph->n_elements)
            list->steps[i].frontier = 0;
    }
    DPB_TRY(cuda_step(p, WHEN_ALWAYS, "check of the gradients", run_find_infinite,
                      TENSORS(p->gradients.tensor)));
    cuda_last_step(p)->frontier = p->graph->n_elements;
    return DPB_OK;
}

/* A node may have no step of its own left: then the one before has finished its gradients, too. */
static dpb_status plan_backward(struct program *p)
{
    p->list = &p->backward;
    for (uint32_t i = p->graph->n_nodes; i-- > 0;) {
        p->node = &p->graph->nodes[i];
        if (!p->nodes[i].group->into)
            DPB_TRY(cuda_join_gradient(p, p->node));
        DPB_TRY(cuda_ops[p->node->op].backward(p, p->node));
        if (p->list->n > 0)
            cuda_last_step(p)->frontier = dpb_frontier_after(p->graph, i);
    }
    DPB_TRY(plan_finite(p));
    return cuda_cut_pieces(&p->backward, PIECE_ELEMENTS, &p->pieces, &p->n_pieces);
}

static dpb_status place_tensors(struct program *p)
{
    if (!dpb_places_plan(p->places, p->args.inspect, &p->arena_bytes))
        return cuda_no_memory();
    p->arena_bytes += p->scratch_bytes;
    return DPB_OK;
}

static dpb_status plan_program(struct program *p, const struct dpb_device_memory *core)
{
    p->type = p->args.precision == DPB_PRECISION_BF16   ? TYPE_BF16
              : p->args.precision == DPB_PRECISION_FP16 ? TYPE_FP16
                                                        : TYPE_FP32;
    DPB_TRY(allocate_plans(p));
    DPB_TRY(plan_mirrors(p, core));
    DPB_TRY(plan_forward(p));
    if (p->args.training)
        DPB_TRY(plan_backward(p));
    if (p->args.profile) /* measures the GPU's limits by products */
        cuda_need_scratch(p, CUDA_GEMM_WORKSPACE);
    return place_tensors(p);
}

/* ----------------------------------------------------------------------------------------- bind */

static dpb_status allocate_arena(struct program *p)
{
    size_t free_bytes = 0, total = 0;
    bool fits = false;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
    if (p->arena_bytes > free_bytes)
        return cuda_too_large(p, free_bytes);
    DPB_TRY(cuda_allocate(p->arena_bytes, &p->arena, &fits));
    return fits ? DPB_OK : cuda_too_large(p, free_bytes);
}

static dpb_status bind_control(struct program *p)
{
    size_t bytes = sizeof *p->control + (p->n_pieces + 1) * sizeof p->control->piece_done[0];
    void *memory = NULL;
    CUDA_TRY(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    p->control = memory;
    memset(memory, 0, bytes);
    bytes = p->samples->place.bytes + cuda_labels(p) * sizeof *p->pinned_labels +
            p->args.batch * sizeof *p->pinned_numbers;
    CUDA_TRY(cudaHostAlloc(&p->pinned_samples, bytes, cudaHostAllocPortable));
    p->pinned_labels = (int32_t *)((char *)p->pinned_samples + p->samples->place.bytes);
    p->pinned_numbers = (uint32_t *)(p->pinned_labels + cuda_labels(p));
    return DPB_OK;
}

/* Makes the events of a program that runs ahead of the host. */
static dpb_status bind_events(struct program *p)
{
    if (!p->takes_events)
        return DPB_OK;
    for (size_t i = 0; i < p->n_pieces; i++) {
        DPB_TRY(cuda_event_make(cudaEventDisableTiming, &p->pieces[i].final));
        DPB_TRY(cuda_event_make(cudaEventDisableTiming, &p->pieces[i].captured));
    }
    return cuda_times_open(&p->times);
}

/* In the main stream's order, and done on return. cudaMemcpy's order is the default stream's, which
 * this one does not share, and from pageable memory it returns before the device has all. */
static dpb_status copy_now(const struct program *p, void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = p->device->stream;
    CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    return CUDA_CALL(cudaStreamSynchronize(stream));
}

/* By pinned memory, a batch at a time. */
static dpb_status fill_pool(const struct program *p, size_t bytes)
{
    const size_t most = p->samples->place.bytes;
    for (size_t at = 0; at < bytes; at += most) {
        const size_t n = bytes - at < most ? bytes - at : most;
        memcpy(p->pinned_samples, (const char *)p->args.pool.samples + at, n);
        DPB_TRY(copy_now(p, (char *)p->pool + at, p->pinned_samples, n));
    }
    return DPB_OK;
}

/* The samples that stay on the device. */
static dpb_status bind_pool(struct program *p)
{
    const struct dpb_sample_pool *pool = &p->args.pool;
    const size_t bytes = pool->n * dpb_sample_bytes(p->args.format);
    size_t free_bytes = 0, total = 0;
    bool fits = false;
    if (!pool->samples)
        return DPB_OK;
    CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
    DPB_TRY(cuda_allocate(bytes, &p->pool, &fits));
    if (!fits)
        return cuda_host->fail(
            DPB_NO_MEMORY,
            "device cuda: data.place = device: %u samples take %zu MB of GPU %d's "
            "memory, of which %zu MB are free beside the program; make "
            "data.distinct smaller",
            pool->n, bytes / 1000000, p->device->id, free_bytes / 1000000);
    return fill_pool(p, bytes);
}

static dpb_status bind_packings(struct program *p)
{
    struct packing *table = calloc(p->n_packings + 1, sizeof *table);
    if (!table)
        return cuda_no_memory();
    cuda_list_packings(p, table);
    dpb_status status = copy_now(p, p->packings->data, table, p->n_packings * sizeof *table);
    free(table);
    return status;
}

static dpb_status bind_program(struct program *p)
{
    DPB_TRY(allocate_arena(p));
    for (struct tensor *tensor = p->tensors; tensor; tensor = tensor->next) {
        if (!tensor->foreign)
            tensor->data = (char *)p->arena + tensor->place.offset;
    }
    p->scratch = (char *)p->arena + p->arena_bytes - p->scratch_bytes;
    CUDA_TRY(cudaMemsetAsync(p->tickets->data, 0, p->tickets->place.bytes, p->device->stream));
    DPB_TRY(cuda_tune(p));
    struct mirror *mirrors[] = {&p->weights, &p->gradients, &p->state, &p->statistics};
    for (size_t i = 0; i < sizeof mirrors / sizeof mirrors[0]; i++)
        DPB_TRY(cuda_mirror_bind(p, mirrors[i]));
    DPB_TRY(bind_control(p));
    DPB_TRY(bind_packings(p));
    DPB_TRY(bind_pool(p));
    CUDA_TRY(cudaEventCreateWithFlags(&p->piece_ready, cudaEventDisableTiming));
    CUDA_TRY(cudaEventCreateWithFlags(&p->joined, cudaEventDisableTiming));
    DPB_TRY(bind_events(p));
    if (p->args.profile)
        DPB_TRY(cuda_account_open(p));
    return CUDA_CALL(cudaStreamSynchronize(p->device->stream));
}

/* -------------------------------------------------------------------------------------- release */

static void release_nodes(struct program *p)
{
    for (uint32_t i = 0; p->nodes && i < p->graph->n_nodes; i++) {
        for (int call = 0; call < CONV_CALLS; call++)
            cuda_gemm_close(p->nodes[i].gemm[call]);
        for (uint32_t k = 0; k < p->nodes[i].n_products; k++)
            cuda_gemm_close(p->nodes[i].products[k]);
        free(p->nodes[i].products);
    }
    cuda_plans_close(p->plans);
    free(p->nodes);
    free(p->groups);
}

static void release_plan(struct program *p)
{
    release_nodes(p);
    while (p->tensors) {
        struct tensor *next = p->tensors->next;
        free(p->tensors);
        p->tensors = next;
    }
    free(p->forward.steps);
    free(p->backward.steps);
    free(p->pieces);
}

static void release_cuda(struct program *p)
{
    for (int i = 0; i < CAPTURES; i++) {
        if (p->graphs[i])
            cudaGraphExecDestroy(p->graphs[i]);
    }
    if (p->piece_ready)
        cudaEventDestroy(p->piece_ready);
    if (p->joined)
        cudaEventDestroy(p->joined);
    cuda_mirror_release(&p->weights);
    cuda_mirror_release(&p->gradients);
    cuda_mirror_release(&p->state);
    cuda_mirror_release(&p->statistics);
    if (p->control)
        cudaFreeHost(p->control);
    if (p->pinned_samples)
        cudaFreeHost(p->pinned_samples);
    for (size_t i = 0; p->takes_events && i < p->n_pieces; i++) {
        cuda_host->event->destroy(p->pieces[i].final);
        cuda_host->event->destroy(p->pieces[i].captured);
    }
    cuda_times_close(p->times);
    cuda_account_close(p->account);
    if (p->pool)
        cudaFree(p->pool);
    if (p->arena)
        cudaFree(p->arena);
}

/* A pass may have been left in the middle: nothing that it uses may go before it has ended. */
void cuda_release(void *program)
{
    struct program *p = program;
    if (!p)
        return;
    cudaSetDevice(p->device->id);
    cudaStreamSynchronize(p->device->stream);
    cudaStreamSynchronize(p->device->copies);
    release_cuda(p);
    release_plan(p);
    free(p);
}

/* ---------------------------------------------------------------------------------------- hooks */

/* Returns the host's memory, for core's count: pinned copies of the arenas, in case the arenas
 * cannot be pinned in place. compile counts device memory, on the device itself. */
uint64_t cuda_memory_needed(const void *options, const struct dpb_compile_args *args)
{
    const struct dpb_graph *graph = args->graph;
    const uint64_t arenas = args->on_device ? 0 : (args->training ? 2 : 1) * graph->n_elements;
    (void)options;
    return sizeof(float) * (arenas + 2 * graph->n_state_elements) +
           args->batch * (dpb_graph_labels(graph) * sizeof(int32_t) + sizeof(uint32_t)) +
           sizeof(struct control);
}

static dpb_status check_args(const struct dpb_compile_args *args)
{
    if (args->precision == DPB_PRECISION_FP64)
        return cuda_host->fail(DPB_UNSUPPORTED, "device cuda does not compute in fp64; use "
                                                "device.name = reference for it");
    return dpb_refuse_compile(cuda_host, "cuda", args);
}

dpb_status cuda_count(const struct device *device, const struct dpb_compile_args *args,
                      double *bytes)
{
    const struct dpb_device_memory memory = {.on_device = args->on_device};
    struct program p = {.device = device, .graph = args->graph, .args = *args};
    DPB_TRY(check_args(args));
    dpb_status status = plan_program(&p, &memory);
    if (status == DPB_OK)
        *bytes = cuda_step_bytes(&p);
    release_plan(&p);
    return status;
}

dpb_status cuda_compile(void *device, const struct dpb_compile_args *args,
                        const struct dpb_device_memory *memory, void **program)
{
    const struct device *d = device;
    DPB_TRY(check_args(args));
    struct program *p = calloc(1, sizeof *p);
    if (!p)
        return cuda_no_memory();
    p->device = d;
    p->graph = args->graph;
    p->args = *args;
    dpb_status status = CUDA_CALL(cudaSetDevice(d->id));
    DPB_THEN(status, plan_program(p, memory));
    DPB_THEN(status, bind_program(p));
    if (status != DPB_OK) {
        cuda_release(p);
        return status;
    }
    *program = p;
    return DPB_OK;
}

/* -------------------------------------------------------------------------------------- inspect */

static double value_of(const struct program *p, const void *data, size_t i)
{
    if (p->type == TYPE_FP32)
        return (double)((const float *)data)[i];
    const uint16_t bits = ((const uint16_t *)data)[i];
    return p->type == TYPE_BF16 ? (double)dpb_bf16_to_fp32(bits) : (double)dpb_fp16_to_fp32(bits);
}

/* Copies the channels of `shape` of an activation that has the shape `stored` in memory. */
static dpb_status copy_to_nchw(const struct program *p, struct dpb_shape shape,
                               struct dpb_shape stored, const struct tensor *tensor, double *out)
{
    const size_t n = (size_t)cuda_elements(p, stored), bytes = n * cuda_type_size(p->type);
    const size_t pixels = (size_t)shape.h * shape.w;
    const bool planes = p->device->options.layout == LAYOUT_NCHW;
    void *data = malloc(bytes);
    if (!data)
        return cuda_no_memory();
    dpb_status status = copy_now(p, data, tensor->data, bytes);
    for (size_t i = 0; i < n && status == DPB_OK; i++) {
        size_t c = i % stored.c, pixel = i / stored.c % pixels, sample = i / stored.c / pixels;
        if (planes || c < shape.c)
            out[planes ? i : (sample * shape.c + c) * pixels + pixel] = value_of(p, data, i);
    }
    free(data);
    return status;
}

static dpb_status inspect_loss(const struct program *p, double *activation, double *gradient)
{
    const size_t n = cuda_labels(p);
    for (size_t i = 0; gradient && i < n; i++)
        gradient[i] = p->loss_scale / (double)n;
    if (!activation)
        return DPB_OK;
    return copy_now(p, activation, p->label_loss->data, n * sizeof(double));
}

dpb_status cuda_inspect(void *program, uint32_t node, double *activation, double *gradient)
{
    const struct program *p = program;
    DPB_TRY(dpb_refuse_inspect(cuda_host, "cuda", &p->args, node));
    const struct dpb_node *what = &p->graph->nodes[node];
    const struct node_plan *plan = &p->nodes[node];
    const struct dpb_shape stored = cuda_stored_shape(p, what);
    DPB_TRY(cuda_check(p, what, "cudaSetDevice", cudaSetDevice(p->device->id)));
    if (what->op == DPB_OP_SOFTMAX_LOSS)
        return inspect_loss(p, activation, gradient);
    if (activation && !plan->activation)
        return dpb_refuse_hidden(cuda_host, "cuda", "activation", what);
    if (gradient && !plan->gradient)
        return dpb_refuse_hidden(cuda_host, "cuda", "gradient", what);
    if (activation)
        DPB_TRY(copy_to_nchw(p, what->shape, stored, plan->activation, activation));
    return gradient ? copy_to_nchw(p, what->shape, stored, plan->gradient, gradient) : DPB_OK;
}
