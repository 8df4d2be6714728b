/* cmd_data.c - `dpbench data -c FILE.ini`: measures how fast an experiment's data come, by threads;
 * trains nothing. Alone it loads as rank 0 would; under a launcher all workers load at once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/sweep_options.h"
#include "cli/cli.h"
#include "plan/fit.h"
#include "plan/plan.h"
#include "record/loader_report.h"

#define WINDOW_SECONDS "0.6"

/* ---- what to measure ----------------------------------------------------------------------- */

/* The file's length is the training's: only a length on the command line is a window's. So a
 * schedule that needs the training's length is left out; nothing trains here. */
static dpb_status settle_length(struct dpb_config *config)
{
    static const char *const of_schedule[] = {"schedule", "decay_power", "end_rate"};
    const struct dpb_setting *schedule = dpb_config_get(config, "optimizer", "schedule");
    bool given = false;
    if (schedule &&
        (strcmp(schedule->value, "cosine") == 0 || strcmp(schedule->value, "polynomial") == 0))
        for (size_t i = 0; i < sizeof of_schedule / sizeof *of_schedule; i++)
            dpb_config_remove(config, "optimizer", of_schedule[i]);
    for (size_t i = 0; dpb_run_lengths[i]; i++) {
        const struct dpb_setting *setting = dpb_config_get(config, "run", dpb_run_lengths[i]);
        if (setting && strcmp(setting->origin, DPB_COMMAND_LINE) == 0)
            given = true;
        else if (setting)
            dpb_config_remove(config, "run", dpb_run_lengths[i]);
    }
    return given ? DPB_OK : dpb_config_set(config, "run", "seconds", WINDOW_SECONDS, "derived");
}

static dpb_status make_experiment(struct dpb_config *given, struct dpb_experiment **experiment)
{
    struct dpb_config *config = dpb_config_copy(given);
    DPB_TRY(dpb_allocated(config));
    dpb_status status = settle_length(config);
    DPB_THEN(status, dpb_experiment_create(config, experiment));
    DPB_THEN(status, dpb_loader_refuse(*experiment));
    dpb_config_destroy(config);
    return status;
}

/* Ranks that end a window at different times would leave the storage to the others. */
static dpb_status make_job(struct dpb_config *config, struct dpb_experiment **experiment)
{
    DPB_TRY(dpb_config_set(config, "run", "mode", "data", DPB_DATA_ORIGIN));
    if (!dpb_config_get(config, "run", "stall_warning_s")) /* a rank waits for slower ones */
        DPB_TRY(dpb_config_set(config, "run", "stall_warning_s", "0", DPB_DATA_ORIGIN));
    DPB_TRY(make_experiment(config, experiment));
    const struct dpb_run_settings *run = &(*experiment)->settings.run;
    if ((*experiment)->n_servers > 0)
        return dpb_config_fail(config, DPB_UNSUPPORTED, "run", "servers",
                               "servers load no data: take run.servers=0 and a comm.name without "
                               "servers for `dpbench data` under a launcher");
    if (run->steps > 0 || run->epochs > 0)
        return dpb_config_fail(config, DPB_USAGE, "run", run->steps > 0 ? "steps" : "epochs",
                               "all workers load for the same time: give run.seconds in place of "
                               "run.%s",
                               run->steps > 0 ? "steps" : "epochs");
    return DPB_OK;
}

/* ---- measuring ----------------------------------------------------------------------------- */

static bool stopped(void)
{
    return dpb_stop_signal != 0;
}

static int measure(struct dpb_experiment *experiment, const struct dpb_arguments *arguments)
{
    struct dpb_loader_point points[DPB_LOADER_POINTS] = {0};
    struct dpb_loader loader;
    int64_t begin_ns = dpb_now_ns();
    dpb_status status = dpb_fit_build(experiment, 0, true);
    int64_t open_ns = dpb_now_ns() - begin_ns;
    DPB_THEN(status, dpb_loader_init(experiment, points, stopped, &loader));
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    dpb_stop_on_signals();
    status = dpb_loader_measure(&loader);
    return dpb_measured_deliver(
        dpb_loader_report_make(&loader, NULL, open_ns, status, dpb_stop_error(status)),
        dpb_stop_exit_code(status), arguments, "", "data", dpb_loader_report_print);
}

static int deliver_job(struct dpb_experiment *experiment, const struct dpb_arguments *arguments,
                       const struct dpb_job_outcome *outcome,
                       const struct dpb_data_journal **journals)
{
    struct dpb_loader_point points[DPB_LOADER_POINTS] = {0};
    struct dpb_loader total = {.experiment = experiment, .points = points};
    const uint32_t n = experiment->n_workers;
    int64_t open_ns = 0;
    bool opened = true;
    for (uint32_t rank = 0; rank < n; rank++) {
        journals[rank] = dpb_board_journal(outcome->board, rank, NULL);
        opened = opened && journals[rank]->open_ns > 0;
        open_ns = journals[rank]->open_ns > open_ns ? journals[rank]->open_ns : open_ns;
    }
    experiment->data_info = journals[0]->info;
    dpb_data_test_total(journals, n, &total);
    const struct dpb_loader_ranks ranks = {n, journals, outcome->board};
    return dpb_measured_deliver(
        dpb_loader_report_make(&total, &ranks, opened ? open_ns : 0, outcome->status,
                               outcome->cause[0] != '\0' ? outcome->cause : NULL),
        outcome->exit_code, arguments, "", "data", dpb_loader_report_print);
}

static int measure_job(struct dpb_experiment *experiment, const struct dpb_arguments *arguments)
{
    struct dpb_job_outcome outcome;
    const struct dpb_live_place place = {.label = "data",
                                         .journal_bytes = sizeof(struct dpb_data_journal)};
    const struct dpb_data_journal **journals = calloc(experiment->n_workers, sizeof *journals);
    if (dpb_allocated(journals) != DPB_OK)
        return dpb_status_exit_code(DPB_NO_MEMORY);
    dpb_execute_job(experiment, arguments->party, &place, &outcome);
    const int code =
        outcome.board ? deliver_job(experiment, arguments, &outcome, journals) : outcome.exit_code;
    dpb_board_destroy(outcome.board);
    free(journals);
    return code;
}

int dpb_data_measure(const struct dpb_arguments *arguments)
{
    return arguments->party ? dpb_measure(arguments, make_job, measure_job)
                            : dpb_measure(arguments, make_experiment, measure);
}

static int run(struct dpb_arguments *arguments)
{
    return dpb_sweep_wanted(arguments->config) ? dpb_program_become("sweep")
                                               : dpb_data_measure(arguments);
}

int dpb_command_data(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT | DPB_ACCEPTS_SERIES, NULL,
                        argc, argv, run);
}
