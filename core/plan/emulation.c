/* emulation.c - see emulation.h. */
#include "plan/emulation.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"

dpb_status dpb_emulation_adopt(struct dpb_experiment *experiment)
{
    const struct dpb_setting *file = dpb_config_get(experiment->config, "model", "file");
    if (!dpb_experiment_emulates(experiment) || !file ||
        !dpb_options_find(experiment->plugins[DPB_PLUGIN_MODEL]->options, "file") ||
        !dpb_options_find(experiment->plugins[DPB_PLUGIN_DEVICE]->options, "profile") ||
        dpb_config_get(experiment->config, "device", "profile"))
        return DPB_OK;
    return dpb_config_set(experiment->config, "device", "profile", file->value, "model.file");
}

dpb_status dpb_emulation_settle(struct dpb_experiment *experiment)
{
    const struct dpb_device_ops *device = experiment->plugins[DPB_PLUGIN_DEVICE]->ops;
    const struct dpb_data_ops *data = experiment->plugins[DPB_PLUGIN_DATA]->ops;
    if (!dpb_experiment_emulates(experiment))
        return DPB_OK;
    DPB_TRY(device->emulation(experiment->options[DPB_PLUGIN_DEVICE], &experiment->emulation));
    experiment->model_info.batch = experiment->emulation.batch;
    if (!data->pool || dpb_config_get(experiment->config, "data", "place"))
        return DPB_OK;
    experiment->settings.data.place = DPB_PLACE_DEVICE;
    return dpb_config_set(experiment->config, "data", "place", "device", "device emulated");
}

double dpb_emulation_element_ns(const struct dpb_experiment *experiment)
{
    const double rate = experiment->emulation.update_elements_per_s;
    return rate > 0 ? 1e9 * experiment->settings.run.dilation / rate : 0;
}

/* A setting that is not its default, of those that need what a model learns. */
static const char *learns(const struct dpb_settings *settings, const char **key)
{
    const struct {
        bool given;
        const char *section, *key;
    } rows[] = {{settings->eval.every > 0, "eval", "every"},
                {settings->eval.final, "eval", "final"},
                {settings->eval.every_epochs > 0, "eval", "every_epochs"},
                {settings->checkpoint.load[0] != '\0', "checkpoint", "load"},
                {settings->checkpoint.save[0] != '\0', "checkpoint", "save"},
                {dpb_saves(settings), "checkpoint", "place"},
                {settings->run.mode == DPB_MODE_EVALUATE, "run", "mode"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].given) {
            *key = rows[i].key;
            return rows[i].section;
        }
    return NULL;
}

static dpb_status refuse_dilation(const struct dpb_experiment *experiment)
{
    const double dilation = experiment->settings.run.dilation;
    const char *hosts = getenv("DPBENCH_DILATION");
    double of_hosts = 1;
    if (dilation > 1 && !dpb_experiment_emulates(experiment))
        return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "run", "dilation",
                               "run.dilation = %g: device '%s' computes, and cannot do so more "
                               "slowly; leave it out, or take device.name = emulated",
                               dilation, experiment->settings.device.name);
    if (hosts && (dpb_parse_real(hosts, &of_hosts) != DPB_PARSED || of_hosts < 1))
        return dpb_fail(DPB_USAGE,
                        "DPBENCH_DILATION = '%s' is no dilation: unset it, or start "
                        "by `dpbench hosts --dilation`",
                        hosts);
    if (of_hosts == dilation || !dpb_mode_has_steps(experiment->settings.run.mode))
        return DPB_OK;
    return hosts ? dpb_config_fail(experiment->config, DPB_USAGE, "run", "dilation",
                                   "run.dilation = %g, and the network of `dpbench hosts` is "
                                   "dilated %g times: give both the same",
                                   dilation, of_hosts)
                 : DPB_OK;
}

dpb_status dpb_emulation_refuse(const struct dpb_experiment *experiment)
{
    const char *key = NULL, *section = learns(&experiment->settings, &key);
    DPB_TRY(refuse_dilation(experiment));
    if (!dpb_experiment_emulates(experiment) || !section)
        return DPB_OK;
    return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, section, key,
                           "%s.%s: device '%s' computes nothing, so that its model learns nothing: "
                           "there are no loss, accuracy or checkpoints; leave it out",
                           section, key, experiment->settings.device.name);
}

dpb_status dpb_emulation_refuse_graph(const struct dpb_experiment *experiment)
{
    const struct dpb_graph *graph = experiment->graph;
    if (dpb_experiment_emulates(experiment) || experiment->settings.run.mode == DPB_MODE_COMM)
        return DPB_OK;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].op == DPB_OP_TENSOR)
            return dpb_config_fail(experiment->config, DPB_UNSUPPORTED, "model", "name",
                                   "model '%s' has tensors and nothing to compute: device '%s' "
                                   "cannot train it; take device.name = emulated",
                                   graph->name, experiment->settings.device.name);
    return DPB_OK;
}
