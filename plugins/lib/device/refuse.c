/* refuse.c - see refuse.h. */
#include "lib/device/refuse.h"

dpb_status dpb_refuse_compile(const struct dpb_host *host, const char *device,
                              const struct dpb_compile_args *args)
{
    const struct dpb_shape have = args->format->shape, want = args->graph->nodes[0].shape;
    if (args->batch == 0)
        return host->fail(DPB_USAGE, "device %s: a batch has at least one sample", device);
    if (have.c != want.c || have.h != want.h || have.w != want.w || have.c > DPB_MAX_CHANNELS)
        return host->fail(
            DPB_USAGE, "device %s: samples are %ux%ux%u, but the input of model '%s' is %ux%ux%u",
            device, have.c, have.h, have.w, args->graph->name, want.c, want.h, want.w);
    const bool ids = dpb_graph_reads_ids(args->graph);
    if (ids ? args->format->type != DPB_INT32
            : args->format->type != DPB_UINT8 && args->format->type != DPB_FP32)
        return host->fail(DPB_UNSUPPORTED, "device %s: samples of type %s; %s possible", device,
                          dpb_dtype_name(args->format->type),
                          ids ? "of this model int32 is" : "uint8 and fp32 are");
    for (uint32_t i = 0; i < args->graph->n_nodes; i++)
        if (args->graph->nodes[i].op >= DPB_OPS)
            return host->fail(DPB_UNSUPPORTED,
                              "device %s: the op of node '%s' is unknown: the device was built for "
                              "an older dpbench",
                              device, args->graph->nodes[i].name);
    return DPB_OK;
}

dpb_status dpb_refuse_pass(const struct dpb_host *host, const char *device,
                           const struct dpb_compile_args *args, const struct dpb_pass *pass,
                           const struct dpb_batch *batch)
{
    if (pass->training && !args->training)
        return host->fail(
            DPB_USAGE, "device %s: training pass of a program that was compiled for forward only",
            device);
    if (batch->n != args->batch || pass->valid == 0 || pass->valid > batch->n)
        return host->fail(
            DPB_USAGE,
            "device %s: step %llu: %u valid samples in a batch of %u, but the program "
            "was compiled for %u",
            device, (unsigned long long)pass->step, pass->valid, batch->n, args->batch);
    return DPB_OK;
}

dpb_status dpb_refuse_inspect(const struct dpb_host *host, const char *device,
                              const struct dpb_compile_args *args, uint32_t node)
{
    if (node >= args->graph->n_nodes)
        return host->fail(DPB_USAGE, "device %s: no node %u in model '%s'", device, node,
                          args->graph->name);
    if (!args->inspect)
        return host->fail(DPB_UNSUPPORTED, "device %s: the program was compiled without inspection",
                          device);
    return DPB_OK;
}

dpb_status dpb_refuse_hidden(const struct dpb_host *host, const char *device, const char *what,
                             const struct dpb_node *node)
{
    return host->fail(DPB_UNSUPPORTED,
                      "device %s: the %s of node '%s' is not computed: the node was fused with "
                      "another, or nobody needs it",
                      device, what, node->name);
}
