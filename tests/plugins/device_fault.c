/*
 * device_fault.c - the device `reference` that misbehaves when it is told; see fault.h.
 */
#include "fault.h"

#define HOOKS(X) X(open) X(compile) X(forward) X(backward) X(release) X(close)
enum {
#define HOOK_NUMBER(name) HOOK_##name,
    HOOKS(HOOK_NUMBER)
};
#define HOOK_NAME(name) #name,
static const char *const hooks[] = {HOOKS(HOOK_NAME) NULL};

struct options {
    struct fault_options fault;
};

static const struct dpb_option option_rows[] = {
    FAULT_ROWS(struct options, fault, hooks),
    {0},
};

/* A process has one device. */
static const struct dpb_host *host;
static const struct dpb_device_ops *inner;
static struct fault_options fault;
static uint32_t own_rank;

#define FAULT_HERE(hook) DPB_TRY(fault_here(host, &fault, own_rank, HOOK_##hook))

static dpb_status fault_open(const void *given, const struct dpb_device_args *args, void **device)
{
    const struct options *options = given;
    fault = options->fault;
    own_rank = args->rank;
    FAULT_HERE(open);
    return inner->open(NULL, args, device);
}

static uint64_t fault_memory_needed(const void *options, const struct dpb_compile_args *args)
{
    (void)options;
    return inner->memory_needed(NULL, args);
}

static dpb_status fault_compile(void *device, const struct dpb_compile_args *args,
                                const struct dpb_device_memory *memory, void **program)
{
    FAULT_HERE(compile);
    return inner->compile(device, args, memory, program);
}

static dpb_status fault_forward(void *program, const struct dpb_pass *pass,
                                const struct dpb_batch *batch, const struct dpb_hooks *given,
                                struct dpb_outcome *outcome)
{
    FAULT_HERE(forward);
    return inner->forward(program, pass, batch, given, outcome);
}

static dpb_status fault_backward(void *program, const struct dpb_pass *pass,
                                 const struct dpb_hooks *given)
{
    FAULT_HERE(backward);
    return inner->backward(program, pass, given);
}

static dpb_status fault_inspect(void *program, uint32_t node, double *activation, double *gradient)
{
    return inner->inspect(program, node, activation, gradient);
}

static void fault_release(void *program)
{
    fault_here(host, &fault, own_rank, HOOK_release);
    inner->release(program);
}

static void fault_close(void *device)
{
    fault_here(host, &fault, own_rank, HOOK_close);
    inner->close(device);
}

static const struct dpb_device_ops fault_ops = {.open = fault_open,
                                                .memory_needed = fault_memory_needed,
                                                .compile = fault_compile,
                                                .forward = fault_forward,
                                                .backward = fault_backward,
                                                .inspect = fault_inspect,
                                                .release = fault_release,
                                                .close = fault_close};

static const struct dpb_plugin plugin_fault = {
    DPB_PLUGIN_HEAD(DEVICE, fault_ops),
    .capabilities = DPB_DEVICE_FP32 | DPB_DEVICE_FP64,
    .name = "fault",
    .version = "1",
    .summary = "for tests: a device that misbehaves when it is told",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    const struct dpb_plugin *plugin = fault_inner(host, "device_reference");
    if (!plugin)
        return NULL;
    inner = plugin->ops;
    return &plugin_fault;
}
