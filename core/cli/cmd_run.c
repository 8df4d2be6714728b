/* cmd_run.c - `dpbench -c FILE.ini`: one run, or the file's sweep or search; `dpbench tune`. */
#include <stdio.h>

#include "base/log.h"
#include "cli/cli.h"
#include "record/result.h"
#include "study/sweep/sweep.h"

static int run_single(const struct dpb_arguments *arguments)
{
    struct dpb_experiment *experiment = NULL;
    int code;
    dpb_status status = dpb_experiment_create(arguments->config, &experiment);
    bool writes = dpb_party_is_head(arguments->party);
    if (status == DPB_OK && writes)
        status = dpb_result_probe(arguments->output, experiment->settings.run.results);
    if (status == DPB_OK && writes)
        status = dpb_experiment_probe(experiment);
    status = dpb_together_agree(arguments, status, experiment, &code);
    if (status == DPB_OK) {
        const struct dpb_run_settings *run = &experiment->settings.run;
        char label[128];
        snprintf(label, sizeof label, "%s: %s, %u worker%s", run->name,
                 experiment->plugins[DPB_PLUGIN_COMM]->name, experiment->n_workers,
                 experiment->n_workers == 1 ? "" : "s");
        struct dpb_execution execution;
        dpb_execute(experiment, arguments->party, &(struct dpb_live_place){.label = label},
                    &execution);
        code = execution.exit_code;
        if (execution.result)
            code = dpb_measured_deliver(execution.result, code, arguments, run->results, run->name,
                                        dpb_result_print);
    }
    dpb_experiment_destroy(experiment);
    return code;
}

int dpb_run_arguments(struct dpb_arguments *arguments)
{
    return dpb_sweep_wanted(arguments->config) ? dpb_sweep_arguments(arguments)
                                               : run_single(arguments);
}

int dpb_command_run(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT, argc, argv,
                        dpb_run_arguments);
}

static int tune(struct dpb_arguments *arguments)
{
    int code;
    if (dpb_tune_wanted(arguments->config))
        return dpb_run_arguments(arguments);
    dpb_status status = dpb_fail(DPB_USAGE,
                                 "%s has no [tune]: add the section, or give an axis as "
                                 "tune.SECTION.KEY=LIST",
                                 arguments->file);
    dpb_together_agree(arguments, status, NULL, &code);
    return code;
}

int dpb_command_tune(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT, argc, argv, tune);
}
