/*
 * cpu.c - the CPU device: training on oneDNN 3, fp32 or bf16 (fp32 master weights, gradients and
 * accumulation; bf16 activations and their gradients).
 *
 * This file is the plugin: opening, closing, versions. program.h explains how a graph becomes a
 * program. docs/devices.md describes the device and its limits.
 */
#include <stdio.h>
#include <stdlib.h>

#include "hooks.h"

static dpb_status open_device(const void *options, const struct dpb_device_args *args,
                              void **device)
{
    (void)options;
    struct device *d = calloc(1, sizeof *d);
    if (!d)
        return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory");
    d->threads = args->threads;
    d->seed = args->seed;
    cpu_use_threads(d->threads);
    dnnl_status_t status = dnnl_engine_create(&d->engine, dnnl_cpu, 0);
    if (status != dnnl_success)
        goto err_device;
    status = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);
    if (status != dnnl_success)
        goto err_engine;
    *device = d;
    return DPB_OK;

err_engine:
    dnnl_engine_destroy(d->engine);
err_device:
    free(d);
    return cpu_host->fail(DPB_FAILED, "device cpu: oneDNN reports %s on opening the processor",
                          dnnl_status2str(status));
}

static void close_device(void *device)
{
    struct device *d = device;
    if (!d)
        return;
    dnnl_stream_destroy(d->stream);
    dnnl_engine_destroy(d->engine);
    free(d);
}

static const struct dpb_device_ops ops = {
    .open = open_device,
    .memory_needed = cpu_memory_needed,
    .compile = cpu_compile,
    .forward = cpu_forward,
    .backward = cpu_backward,
    .inspect = cpu_inspect,
    .release = cpu_release,
    .close = close_device,
    .profile = cpu_profile,
};

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define BUILT_VERSION \
    TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(DNNL_VERSION_PATCH)

static char loaded_version[32];

static const struct dpb_library libraries[] = {
    {.name = "oneDNN", .built = BUILT_VERSION, .loaded = loaded_version},
    {.name = NULL},
};

static const char *const thread_variables[] = {"OMP_NUM_THREADS", NULL};

static struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(DEVICE, ops),
    .capabilities = DPB_DEVICE_FP32 | DPB_DEVICE_BF16 | DPB_DEVICE_NODE_BY_NODE,
    .name = "cpu",
    .version = DPB_VERSION,
    .summary = "processor cores, by oneDNN: fp32 and bf16",
    .libraries = libraries,
    .thread_variables = thread_variables,
};

/* oneDNN has bf16 for all of our ops on a processor, or for none. ReLU answers for them. */
static bool lacks_bf16(void)
{
    const dnnl_dims_t dims = {1, 1};
    dnnl_engine_t engine = NULL;
    dnnl_memory_desc_t tensor = NULL;
    dnnl_primitive_desc_t relu = NULL;
    dnnl_status_t status = dnnl_engine_create(&engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_memory_desc_create_with_tag(&tensor, 2, dims, dnnl_bf16, dnnl_ab);
    if (status == dnnl_success)
        status = dnnl_eltwise_forward_primitive_desc_create(&relu, engine, dnnl_forward_training,
                                                            dnnl_eltwise_relu, tensor, tensor, 0.0f,
                                                            0.0f, NULL);
    dnnl_primitive_desc_destroy(relu);
    dnnl_memory_desc_destroy(tensor);
    dnnl_engine_destroy(engine);
    return status == dnnl_unimplemented;
}

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    cpu_host = host;
    const dnnl_version_t *version = dnnl_version();
    snprintf(loaded_version, sizeof loaded_version, "%d.%d.%d", version->major, version->minor,
             version->patch);
    if (version->major != DNNL_VERSION_MAJOR) {
        host->fail(DPB_FAILED,
                   "device cpu: built for oneDNN %s, but oneDNN %s was loaded; rebuild it or mend "
                   "LD_LIBRARY_PATH",
                   BUILT_VERSION, loaded_version);
        return NULL;
    }
    if (lacks_bf16()) {
        plugin.capabilities &= ~DPB_DEVICE_BF16;
        plugin.summary = "processor cores, by oneDNN: fp32; oneDNN has no bf16 on this processor";
    }
    return &plugin;
}
