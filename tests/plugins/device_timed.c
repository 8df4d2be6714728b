/*
 * timed - a device that computes nothing: it sleeps for times that a test knows exactly.
 *
 * Forward takes `forward`, backward `backward`, split evenly over the layers that have tensors, the
 * last layer first; a layer's gradients are final at its end. Each pass sleeps to absolute
 * deadlines counted from its begin, so errors do not add up, and neither writing the gradients nor
 * what the strategy does in `progress` moves a deadline (as long as it fits into the layer).
 *
 * On top of that the first `warmup_steps` steps can be longer, by `warmup_extra` in the first and
 * linearly less in each that follows; and one rank can be late in every step, in forward or before
 * a layer of backward, and by up to `jitter` more in forward, another time in every step.
 *
 * With `trace = PATH` each rank writes PATH.RANK when its program is released: a line a pass (in
 * training, evaluations left out) with its step, begin, deadline and end of forward and of
 * backward, how long the strategy was at work within backward, and how many layers there are and
 * when the gradients of each were final (CLOCK_MONOTONIC), so that a test knows how late the
 * machine woke it and what there was to be exchanged.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "devices/cuda/nvml.h"
#include "dpbench/plugin.h"

enum { MAX_PASSES = 1 << 16, FILL_ELEMENTS = 1 << 14 };
static const int64_t poll_ns = 500000;   /* between two looks at the strategy */
static const int64_t worked_ns = 100000; /* a look that took so long may have left work behind */

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

enum { LATE_IN_FORWARD, LATE_IN_BACKWARD };

struct options {
    int64_t forward_ns, backward_ns, evaluate_ns;
    int64_t warmup_steps, warmup_extra_ns;
    int64_t late_rank, late_ns, late_layer, jitter_ns;
    int late_in;
    const char *trace, *gpu;
};

static const char *const late_places[] = {"forward", "backward", NULL};

#define TIME(name, def, help)                                                                     \
    {                                                                                             \
#name, DPB_OPT_TIME, "ms", def, 0, 1e12, NULL, offsetof(struct options, name##_ns), help, \
            NULL                                                                                  \
    }
#define NUMBER(name, def, min, max, help)                                                         \
    {                                                                                             \
#name, DPB_OPT_INT, NULL, def, min, max, NULL, offsetof(struct options, name), help, NULL \
    }

static const struct dpb_option option_table[] = {
    TIME(forward, "5", "a forward pass in training"),
    TIME(backward, "5", "a backward pass"),
    TIME(evaluate, "5", "a forward pass in evaluation"),
    NUMBER(warmup_steps, "0", 0, 1e6, "steps whose forward is longer"),
    TIME(warmup_extra, "0", "by how much in the first, falling linearly to nothing"),
    NUMBER(late_rank, "-1", -1, 4096, "the rank that is late in every step; -1: none"),
    TIME(late, "0", "by how much it is"),
    TIME(jitter, "0", "its forward is longer by up to as much, another time in every step"),
    {"late_in", DPB_OPT_CHOICE, NULL, "forward", 0, 0, late_places,
     offsetof(struct options, late_in), "the pass in which it is", NULL},
    NUMBER(late_layer, "0", 0, 1e6,
           "in backward: the layer before which it is, in backward's order"),
    {"trace", DPB_OPT_STRING, NULL, "", 0, 0, NULL, offsetof(struct options, trace),
     "file for the times of the passes; .RANK is appended", NULL},
    {"gpu", DPB_OPT_STRING, NULL, "", 0, 0, NULL, offsetof(struct options, gpu),
     "PCI address that it gives for the GPU that it computes on; empty: the host", NULL},
    {0}};

/* ---- state --------------------------------------------------------------------------------- */

struct device {
    struct options options;
    uint32_t rank;
};

struct stretch {
    int64_t begin, deadline, end;
};

struct times {
    uint64_t step;
    struct stretch forward, backward;
    int64_t strategy_ns; /* of backward */
};

struct program {
    const struct device *device;
    const struct dpb_graph *graph;
    char *gradients;
    bool training;  /* else there are only forward passes */
    size_t element; /* bytes */
    uint32_t n_layers;
    int64_t looked_ns;   /* when the strategy last moved on */
    int64_t strategy_ns; /* in its hooks, since backward began */
    struct times *times;
    int64_t *final_ns; /* n_layers a pass */
    uint64_t n_times;
    char constant[FILL_ELEMENTS * sizeof(double)]; /* what gradients are copied from */
};

/* ---- sleeping ------------------------------------------------------------------------------ */

/* Its own look at the clock, not the host's: a trace has to be independent of core. */
static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void nap_until(int64_t at_ns)
{
    const struct timespec at = {.tv_sec = at_ns / INT64_C(1000000000),
                                .tv_nsec = at_ns % INT64_C(1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

static dpb_status look(struct program *program, const struct dpb_hooks *hooks)
{
    int64_t began_ns = now_ns();
    dpb_status status = hooks->progress(hooks->context);
    program->looked_ns = now_ns();
    program->strategy_ns += program->looked_ns - began_ns;
    return status;
}

static dpb_status give(struct program *program, const struct dpb_hooks *hooks, uint32_t layer,
                       uint64_t frontier)
{
    int64_t began_ns = now_ns();
    if (program->n_times > 0)
        program->final_ns[(program->n_times - 1) * program->n_layers + layer] = began_ns;
    dpb_status status = hooks->final(hooks->context, frontier, NULL);
    program->strategy_ns += now_ns() - began_ns;
    return status;
}

static dpb_status sleep_until(struct program *program, const struct dpb_hooks *hooks,
                              int64_t deadline_ns)
{
    for (int64_t now = now_ns(); now < deadline_ns; now = now_ns()) {
        DPB_TRY(look(program, hooks));
        if (program->looked_ns - now > worked_ns)
            continue;
        int64_t next_ns = program->looked_ns + poll_ns;
        nap_until(next_ns < deadline_ns ? next_ns : deadline_ns);
    }
    return DPB_OK;
}

/* ---- gradients ----------------------------------------------------------------------------- */

/* The same for all elements, another for each step and micro-batch. */
static void choose_gradient(struct program *program, const struct dpb_pass *pass)
{
    double value = 0x1p-10 * (double)(1 + (pass->step + pass->first_sample) % 7);
    for (size_t i = 0; i < FILL_ELEMENTS; i++)
        if (program->element == sizeof(double))
            ((double *)program->constant)[i] = value;
        else
            ((float *)program->constant)[i] = (float)value;
}

static dpb_status write_tensor(struct program *program, const struct dpb_hooks *hooks,
                               const struct dpb_tensor *tensor, uint64_t next_offset)
{
    char *at = program->gradients + tensor->offset * program->element;
    char *end = at + tensor->n_elements * program->element;
    char *next = program->gradients + next_offset * program->element;
    while (at < end) {
        size_t rest = (size_t)(end - at), piece = FILL_ELEMENTS * program->element;
        piece = rest < piece ? rest : piece;
        memcpy(at, program->constant, piece);
        at += piece;
        if (now_ns() - program->looked_ns > poll_ns)
            DPB_TRY(look(program, hooks));
    }
    memset(end, 0, (size_t)(next - end));
    return DPB_OK;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status timed_open(const void *options, const struct dpb_device_args *args, void **device)
{
    struct device *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    made->options = *(const struct options *)options;
    made->rank = args->rank;
    prctl(PR_SET_TIMERSLACK, 1000);
    *device = made;
    return DPB_OK;
}

static uint32_t count_layers(const struct dpb_graph *graph)
{
    uint32_t n = 0;
    for (uint32_t t = 0; t < graph->n_tensors; t++)
        n += t == 0 || graph->tensors[t].node != graph->tensors[t - 1].node;
    return n;
}

static size_t final_bytes(const struct dpb_graph *graph)
{
    return (size_t)MAX_PASSES * count_layers(graph) * sizeof(int64_t);
}

static uint64_t timed_memory_needed(const void *options, const struct dpb_compile_args *args)
{
    (void)options;
    return sizeof(struct program) + MAX_PASSES * sizeof(struct times) + final_bytes(args->graph);
}

static void free_program(struct program *program)
{
    host->release(program->times, MAX_PASSES * sizeof *program->times);
    host->release(program->final_ns, final_bytes(program->graph));
    host->release(program, sizeof *program);
}

static dpb_status timed_compile(void *device, const struct dpb_compile_args *args,
                                const struct dpb_device_memory *memory, void **program)
{
    const struct dpb_graph *graph = args->graph;
    struct program *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    made->device = device;
    made->graph = graph;
    made->n_layers = count_layers(graph);
    made->times = host->alloc(MAX_PASSES * sizeof *made->times);
    made->final_ns = host->alloc(final_bytes(graph));
    if (!made->times || !made->final_ns) {
        free_program(made);
        return DPB_NO_MEMORY;
    }
    made->gradients = memory->gradients;
    made->training = args->training;
    made->element = dpb_dtype_size(args->precision == DPB_PRECISION_FP64 ? DPB_FP64 : DPB_FP32);
    *program = made;
    return DPB_OK;
}

static int64_t forward_duration(const struct device *device, uint64_t step)
{
    const struct options *options = &device->options;
    int64_t duration = options->forward_ns, left = options->warmup_steps - (int64_t)step;
    if (left > 0)
        duration += options->warmup_extra_ns * left / options->warmup_steps;
    if (options->late_rank != device->rank)
        return duration;
    if (options->late_in == LATE_IN_FORWARD)
        duration += options->late_ns;
    return duration + options->jitter_ns * (int64_t)(step * 7 % 11) / 10;
}

static dpb_status timed_forward(void *program_, const struct dpb_pass *pass,
                                const struct dpb_batch *batch, const struct dpb_hooks *hooks,
                                struct dpb_outcome *outcome)
{
    struct program *program = program_;
    const struct device *device = program->device;
    int64_t began_ns = now_ns();
    int64_t deadline_ns = began_ns + (pass->training ? forward_duration(device, pass->step)
                                                     : device->options.evaluate_ns);
    (void)batch;
    DPB_TRY(sleep_until(program, hooks, deadline_ns));
    *outcome = (struct dpb_outcome){
        .loss = 2.0 / (double)(1 + pass->step), .correct = pass->valid / 2, .in_top5 = pass->valid};
    if (pass->training == program->training && program->n_times < MAX_PASSES)
        program->times[program->n_times++] =
            (struct times){.step = pass->step, .forward = {began_ns, deadline_ns, now_ns()}};
    return DPB_OK;
}

static dpb_status timed_backward(void *program_, const struct dpb_pass *pass,
                                 const struct dpb_hooks *hooks)
{
    struct program *program = program_;
    const struct options *options = &program->device->options;
    const struct dpb_graph *graph = program->graph;
    bool late = options->late_rank == program->device->rank && options->late_in == LATE_IN_BACKWARD;
    int64_t began_ns = now_ns(), deadline_ns = began_ns;
    uint32_t layer = 0;
    program->looked_ns = began_ns;
    program->strategy_ns = 0;
    choose_gradient(program, pass);
    for (uint32_t t = 0; t < graph->n_tensors; t++) {
        bool last = t + 1 == graph->n_tensors;
        uint64_t next = last ? graph->n_elements : graph->tensors[t + 1].offset;
        DPB_TRY(write_tensor(program, hooks, &graph->tensors[t], next));
        if (!last && graph->tensors[t].node == graph->tensors[t + 1].node)
            continue;
        deadline_ns = began_ns + options->backward_ns * (layer + 1) / program->n_layers;
        if (late && layer >= options->late_layer)
            deadline_ns += options->late_ns;
        DPB_TRY(sleep_until(program, hooks, deadline_ns));
        DPB_TRY(give(program, hooks, layer++, next));
    }
    if (program->n_times > 0) {
        struct times *times = &program->times[program->n_times - 1];
        times->backward = (struct stretch){began_ns, deadline_ns, now_ns()};
        times->strategy_ns = program->strategy_ns;
    }
    return DPB_OK;
}

static dpb_status timed_inspect(void *program, uint32_t node, double *activation, double *gradient)
{
    (void)program;
    (void)activation;
    (void)gradient;
    return host->fail(DPB_UNSUPPORTED,
                      "device 'timed' computes nothing: node %" PRIu32 " cannot be inspected",
                      node);
}

static void write_trace(const struct program *program)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%" PRIu32, program->device->options.trace,
             program->device->rank);
    FILE *file = fopen(path, "we");
    if (!file) {
        host->warn("no_trace", "%s cannot be written: %s", path, strerror(errno));
        return;
    }
    for (uint64_t i = 0; i < program->n_times; i++) {
        const struct times *one = &program->times[i];
        const struct stretch *f = &one->forward, *b = &one->backward;
        fprintf(file,
                "%" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                " %" PRId64 " %" PRIu32,
                one->step, f->begin, f->deadline, f->end, b->begin, b->deadline, b->end,
                one->strategy_ns, program->n_layers);
        for (uint32_t layer = 0; layer < program->n_layers; layer++)
            fprintf(file, " %" PRId64, program->final_ns[i * program->n_layers + layer]);
        fputc('\n', file);
    }
    fclose(file);
}

static void timed_release(void *program_)
{
    struct program *program = program_;
    if (!program)
        return;
    if (program->device->options.trace[0])
        write_trace(program);
    free_program(program);
}

static void timed_close(void *device)
{
    host->release(device, sizeof(struct device));
}

static const char *timed_pci_address(void *device)
{
    const char *gpu = ((const struct device *)device)->options.gpu;
    return gpu[0] != '\0' ? gpu : NULL;
}

static const struct dpb_device_ops timed_ops = {.open = timed_open,
                                                .memory_needed = timed_memory_needed,
                                                .compile = timed_compile,
                                                .forward = timed_forward,
                                                .backward = timed_backward,
                                                .inspect = timed_inspect,
                                                .release = timed_release,
                                                .close = timed_close,
                                                .pci_address = timed_pci_address,
                                                .monitor = &cuda_monitor};

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_plugin timed = {DPB_PLUGIN_HEAD(DEVICE, timed_ops),
                                        .capabilities = DPB_DEVICE_FP32 | DPB_DEVICE_FP64,
                                        .name = "timed",
                                        .version = "1",
                                        .summary = "sleeps exactly known times",
                                        .options = option_table,
                                        .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &timed;
}
