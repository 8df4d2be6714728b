/* cmd_run.c - `dpbench -c FILE.ini`: one run; dpbench-sweep runs the file's sweep or search. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "cli/cell.h"
#include "cli/cli.h"
#include "record/invocation.h"
#include "record/result.h"
#include "record/result_file.h"

/* A sweep gets a document of a run that was refused, too. */
static int end_cell(const struct dpb_arguments *arguments, struct dpb_execution *execution)
{
    if (!execution->result && !arguments->party)
        execution->result =
            dpb_result_refused(arguments->config, execution->status, dpb_first_error(NULL));
    dpb_document_set_launcher(execution->result, arguments->party);
    if (execution->result)
        dpb_cell_print(execution->result);
    json_decref(execution->result);
    return execution->exit_code;
}

static void execute(const struct dpb_arguments *arguments, const struct dpb_experiment *experiment,
                    struct dpb_execution *execution)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    char label[128];
    struct dpb_live_place place = {.label = label};
    snprintf(label, sizeof label, "%s: %s, %u worker%s", run->name,
             experiment->plugins[DPB_PLUGIN_COMM]->name, experiment->n_workers,
             experiment->n_workers == 1 ? "" : "s");
    if (arguments->cell)
        dpb_cell_place(arguments->cell, &place);
    dpb_execute(experiment, arguments->party, &place, execution);
}

/* The document of a run that its device did not let begin. */
static void refuse(const struct dpb_experiment *experiment, struct dpb_execution *execution)
{
    execution->result = dpb_result_make(experiment, NULL, execution->status, dpb_first_error(NULL));
    json_object_set_new(execution->result, "failure",
                        json_string(dpb_status_name(execution->status)));
    json_object_set_new(execution->result, "inputs", dpb_result_inputs(experiment));
    json_object_set_new(execution->result, "invocation", dpb_result_invocation());
}

int dpb_run_single(const struct dpb_arguments *arguments)
{
    struct dpb_experiment *experiment = NULL;
    struct dpb_execution execution = {0};
    const char *device = "skipped";
    dpb_stdout_aside();
    dpb_status status = dpb_experiment_create(arguments->config, &experiment);
    const bool writes = dpb_party_is_head(arguments->party) && !arguments->cell;
    if (status == DPB_OK && writes)
        status = dpb_result_probe(arguments->output, experiment->settings.run.results);
    struct dpb_named_file files[DPB_ARGUMENTS_FILES];
    dpb_arguments_files(arguments, files);
    if (status == DPB_OK && writes)
        status = dpb_experiment_probe(experiment, files, DPB_ARGUMENTS_FILES);
    DPB_THEN(status, dpb_conform_before(experiment, &device));
    execution.status = dpb_together_agree(arguments, status, experiment, &execution.exit_code);
    if (execution.status == DPB_OK)
        execute(arguments, experiment, &execution);
    else if (strcmp(device, "fail") == 0 && dpb_party_is_head(arguments->party))
        refuse(experiment, &execution);
    json_object_set_new(json_object_get(execution.result, "verification"), "device",
                        json_string(device));
    int code = execution.exit_code;
    if (arguments->cell)
        code = end_cell(arguments, &execution);
    else if (execution.result)
        code = dpb_measured_deliver(execution.result, code, arguments,
                                    experiment->settings.run.results, experiment->settings.run.name,
                                    dpb_result_print);
    dpb_experiment_destroy(experiment);
    return code;
}

static int run(struct dpb_arguments *arguments)
{
    return dpb_sweep_wanted(arguments->config) ? dpb_program_become("sweep")
                                               : dpb_run_single(arguments);
}

int dpb_command_run(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT | DPB_ACCEPTS_SERIES, NULL,
                        argc, argv, run);
}
