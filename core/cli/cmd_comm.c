/* cmd_comm.c - `dpbench comm -c FILE.ini`: measures an experiment's communicator alone, over sizes
 * and on the layout of its model. */
#include <stdio.h>

#include "base/log.h"
#include "cli/sweep_options.h"
#include "bench/codec_rates.h"
#include "cli/cli.h"
#include "record/comm_report.h"

static dpb_status make_experiment(struct dpb_config *config, struct dpb_experiment **experiment)
{
    struct dpb_comm_point points[DPB_COMM_POINTS];
    struct dpb_experiment *made = NULL;
    uint32_t n, largest;
    if (dpb_sweep_wanted(config))
        return dpb_fail(DPB_USAGE,
                        "`dpbench comm` measures one communicator, and [sweep] or [tune] makes "
                        "several experiments; leave it out, and give comm.name=NAME");
    DPB_TRY(dpb_config_set(config, "run", "mode", "comm", DPB_COMM_ORIGIN));
    DPB_TRY(dpb_experiment_create(config, &made));
    dpb_status status = dpb_experiment_build(made, made->n_workers);
    DPB_THEN(status, dpb_comm_points(made, points, &n));
    if (status == DPB_OK) /* the launcher's guess; the ranks find out themselves */
        status = dpb_comm_largest(made, made->settings.comm_test.barrier != DPB_BARRIER_EXCHANGE,
                                  &largest);
    if (status != DPB_OK)
        dpb_experiment_destroy(made);
    else
        *experiment = made;
    return status;
}

/* On this machine, whose ranks have ended. */
static dpb_status add_codecs(const struct dpb_experiment *experiment, json_t *document)
{
    json_t *codecs = json_null();
    const uint64_t carried =
        experiment->plugins[DPB_PLUGIN_COMM]->capabilities & (DPB_COMM_CODECS | DPB_COMM_ROUNDS);
    if (experiment->settings.comm_test.codecs && carried)
        DPB_TRY(dpb_codec_rates_measure(carried, &codecs));
    json_object_set_new(document, "codecs", codecs);
    return DPB_OK;
}

static int measure(struct dpb_experiment *experiment, const struct dpb_arguments *arguments)
{
    struct dpb_job_outcome outcome;
    char label[128];
    snprintf(label, sizeof label, "%s: comm %s, %u worker%s", experiment->settings.run.name,
             experiment->plugins[DPB_PLUGIN_COMM]->name, experiment->n_workers,
             experiment->n_workers == 1 ? "" : "s");
    const struct dpb_live_place place = {.label = label};
    dpb_execute_job(experiment, arguments->party, &place, &outcome);
    if (!outcome.board)
        return outcome.exit_code;
    int code = outcome.exit_code;
    json_t *document = dpb_comm_report_make(experiment, outcome.board, outcome.status,
                                            outcome.cause[0] != '\0' ? outcome.cause : NULL);
    dpb_board_destroy(outcome.board);
    if (document && outcome.status == DPB_OK)
        code = dpb_exit_code_first(code, dpb_status_exit_code(add_codecs(experiment, document)));
    return dpb_measured_deliver(document, code, arguments, "", "comm", dpb_comm_report_print);
}

static int run(struct dpb_arguments *arguments)
{
    return dpb_measure(arguments, make_experiment, measure);
}

int dpb_command_comm(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT | DPB_ACCEPTS_SERIES, NULL,
                        argc, argv, run);
}
