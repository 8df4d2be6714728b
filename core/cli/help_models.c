/* help_models.c - the table of `dpbench help models`. Each row comes from an experiment of the
 * model with defaults, so its memory is that of `dpbench check`. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "train/estimate.h"

static const struct dpb_plugin *find_device(const struct dpb_plugin_row *rows, size_t n_rows,
                                            const char *name)
{
    for (size_t i = 0; i < n_rows; i++)
        if (rows[i].kind == DPB_PLUGIN_DEVICE && rows[i].plugin &&
            (rows[i].plugin->capabilities & DPB_DEVICE_FP32) &&
            (!name || strcmp(rows[i].plugin->name, name) == 0))
            return rows[i].plugin;
    return NULL;
}

static dpb_status create(const char *model, const char *device, struct dpb_experiment **experiment)
{
    struct dpb_config *config = dpb_config_create();
    if (!config)
        return DPB_NO_MEMORY;
    dpb_status status = dpb_config_set(config, "model", "name", model, "help");
    DPB_THEN(status, dpb_config_set(config, "device", "name", device, "help"));
    DPB_THEN(status, dpb_config_set(config, "run", "steps", "1", "help"));
    DPB_THEN(status, dpb_experiment_create(config, experiment));
    dpb_config_destroy(config);
    return status;
}

static void print_model(const char *name, const char *summary, const char *device)
{
    const double mib = 1024.0 * 1024.0;
    struct dpb_experiment *experiment = NULL;
    dpb_status status = create(name, device, &experiment);
    /* Opens the data as the rank after the workers does: for its description, not its samples. */
    DPB_THEN(status, dpb_experiment_build(experiment, experiment->n_workers));
    if (status != DPB_OK) {
        printf("  %-16s not usable: %s\n", name, dpb_first_error(NULL));
    } else {
        const struct dpb_graph *graph = experiment->graph;
        struct dpb_shape shape = experiment->data_info.format.shape;
        char input[40];
        snprintf(input, sizeof input, "%ux%ux%u", shape.c, shape.h, shape.w);
        printf("  %-16s %-10s %11llu %8.3f %6u %9.1f  %s\n", name, input,
               (unsigned long long)graph->n_parameters, (double)graph->macs / 1e9,
               experiment->batch, (double)dpb_experiment_memory(experiment, 0) / mib, summary);
    }
    dpb_first_error_clear();
    dpb_experiment_destroy(experiment);
}

void dpb_help_models(const struct dpb_plugin_row *rows, size_t n_rows)
{
    const struct dpb_plugin *device =
        find_device(rows, n_rows, dpb_options_find(dpb_settings_rows("device"), "name")->def);
    if (!device)
        device = find_device(rows, n_rows, NULL);
    printf("  %-16s %-10s %11s %8s %6s %9s\n", "name", "input", "parameters", "GMAC", "batch",
           "MiB");
    /* A model's error stands in its row. */
    const struct dpb_log_hooks silent = {.silent = true};
    dpb_log_set_hooks(&silent);
    for (size_t i = 0; i < n_rows; i++) {
        if (rows[i].kind != DPB_PLUGIN_MODEL)
            continue;
        if (!rows[i].plugin)
            printf("  %s: not usable: %s\n", rows[i].path, rows[i].reason);
        else if (!device)
            printf("  %-16s no device plugin can be loaded: `dpbench plugins` says why\n",
                   rows[i].plugin->name);
        else
            print_model(rows[i].plugin->name, rows[i].plugin->summary, device->name);
    }
    dpb_log_set_hooks(NULL);
    if (device)
        printf("input: channels x height x width; GMAC: 10^9 multiply-accumulates of a sample's "
               "forward pass;\n"
               "batch: the default of run.batch; MiB: memory of one worker that trains with that "
               "batch in fp32\non device '%s' (an estimate); classes and options: the defaults\n",
               device->name);
}
