/* cmd_run.c - `dpbench -c FILE.ini`: one run, or a sweep where the file has one. */
#include <stdio.h>

#include "base/log.h"
#include "cli/cli.h"
#include "study/result.h"
#include "study/sweep.h"

static int run_single(const struct dpb_arguments *arguments)
{
    struct dpb_experiment *experiment = NULL;
    dpb_status status = dpb_experiment_create(arguments->config, &experiment);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    const struct dpb_run_settings *run = &experiment->settings.run;
    status = dpb_result_probe(arguments->output, run->results);
    if (status == DPB_OK)
        status = dpb_experiment_probe(experiment);
    int code = dpb_status_exit_code(status);
    if (status == DPB_OK) {
        char label[128];
        snprintf(label, sizeof label, "%s: %s, %u worker%s", run->name,
                 experiment->plugins[DPB_PLUGIN_COMM]->name, experiment->n_workers,
                 experiment->n_workers == 1 ? "" : "s");
        struct dpb_execution execution;
        dpb_execute(experiment, label, &execution);
        code = execution.exit_code;
        /* Wrong input leaves nothing behind. */
        if (execution.result != NULL && code != dpb_status_exit_code(DPB_USAGE))
            code = dpb_exit_code_first(code, dpb_document_deliver(execution.result, arguments,
                                                                  run->results, run->name,
                                                                  dpb_result_print));
        json_decref(execution.result);
    }
    dpb_experiment_destroy(experiment);
    return code;
}

int dpb_run_arguments(const struct dpb_arguments *arguments)
{
    return dpb_sweep_wanted(arguments->config) ? dpb_sweep_arguments(arguments)
                                               : run_single(arguments);
}

int dpb_command_run(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_arguments arguments;
    dpb_status status =
        dpb_arguments_parse(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT, argc, argv, &arguments);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    int code = dpb_run_arguments(&arguments);
    dpb_arguments_release(&arguments);
    return code;
}
