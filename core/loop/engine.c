/* engine.c - see engine.h. */
#include "loop/engine.h"

#include <stdio.h>

#include "world/world.h"

/* Among the workers of its machine. */
static uint32_t local_index(const struct dpb_experiment *experiment)
{
    uint32_t index = 0;
    for (uint32_t rank = 0; rank < dpb_world.rank; rank++)
        index += experiment->machines[rank] == experiment->machines[dpb_world.rank];
    return index;
}

/* See dpb_device_arenas.no_capture. */
static const char *capture_refusal(const struct dpb_experiment *experiment,
                                   const struct dpb_engine *engine)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    if (run->mode != DPB_MODE_TRAIN)
        return "no backward is done";
    if (run->precision == DPB_PRECISION_FP16)
        return "run.precision = fp16, where the host sees the gradients before they are exchanged";
    if (experiment->settings.comm.late > 0)
        return "comm.late = 1, where an exchange outlasts the step that a graph is of";
    if (run->profile)
        return "run.profile = yes";
    if (!engine->ops->no_capture)
        return "the device captures nothing";
    return engine->ops->no_capture(engine->device);
}

dpb_status dpb_engine_open(const struct dpb_experiment *experiment, uint32_t threads,
                           struct dpb_engine *engine, struct dpb_device_arenas *arenas)
{
    struct dpb_status_page *page = dpb_board_page(dpb_world.board, dpb_world.rank);
    const struct dpb_device_args args = {
        .rank = dpb_world.rank,
        .threads = threads,
        .seed = (uint64_t)experiment->settings.run.seed,
        .index = local_index(experiment) / (uint32_t)experiment->settings.run.learners,
        .dilation = experiment->settings.run.dilation,
        .alone = experiment->plugins[DPB_PLUGIN_COMM]->capabilities & DPB_COMM_ALONE};
    engine->ops = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    DPB_TRY(engine->ops->open(experiment->options[DPB_PLUGIN_DEVICE], &args, &engine->device));
    const char *gpu = engine->ops->pci_address ? engine->ops->pci_address(engine->device) : NULL;
    snprintf(page->gpu, sizeof page->gpu, "%s", gpu ? gpu : "");
    if (engine->ops->sharing)
        DPB_TRY(engine->ops->sharing(experiment->options[DPB_PLUGIN_DEVICE], args.index,
                                     &page->sharing));
    if (engine->ops->queues)
        *arenas = (struct dpb_device_arenas){engine->ops->queues, engine->device,
                                             capture_refusal(experiment, engine)};
    return DPB_OK;
}

void dpb_engine_close(struct dpb_engine *engine)
{
    if (engine->ops)
        engine->ops->close(engine->device);
    *engine = (struct dpb_engine){.ops = NULL};
}
