/* cmd_data.c - `dpbench data -c FILE.ini`: measures how fast an experiment's data come, by threads;
 * trains nothing. */
#include <string.h>

#include "base/log.h"
#include "cli/sweep_options.h"
#include "cli/cli.h"
#include "plan/fit.h"
#include "record/loader_report.h"

#define WINDOW_SECONDS "0.6"

/* ---- what to measure ----------------------------------------------------------------------- */

/* The file's length is the training's: only a length on the command line is a window's. So a
 * schedule that needs the training's length is left out; nothing trains here. */
static dpb_status settle_length(struct dpb_config *config)
{
    const struct dpb_setting *schedule = dpb_config_get(config, "optimizer", "schedule");
    bool given = false;
    if (schedule &&
        (strcmp(schedule->value, "cosine") == 0 || strcmp(schedule->value, "polynomial") == 0))
        dpb_config_remove(config, "optimizer", "schedule");
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
    dpb_config_destroy(config);
    return status;
}

/* ---- measuring ----------------------------------------------------------------------------- */

static int measure(struct dpb_experiment *experiment, const struct dpb_arguments *arguments)
{
    struct dpb_loader loader;
    int64_t begin_ns = dpb_now_ns();
    dpb_status status = dpb_fit_build(experiment, 0, true);
    int64_t open_ns = dpb_now_ns() - begin_ns;
    DPB_THEN(status, dpb_loader_init(experiment, &dpb_stop_signal, &loader));
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    dpb_stop_on_signals();
    status = dpb_loader_measure(&loader);
    return dpb_measured_deliver(
        dpb_loader_report_make(&loader, open_ns, status, dpb_stop_error(status)),
        dpb_stop_exit_code(status), arguments, "", "data", dpb_loader_report_print);
}

int dpb_data_measure(const struct dpb_arguments *arguments)
{
    return dpb_measure(arguments, make_experiment, measure);
}

int dpb_command_data(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_arguments arguments;
    dpb_status status =
        dpb_arguments_parse(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT | DPB_ACCEPTS_SERIES,
                            NULL, argc, argv, &arguments);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    const int code = dpb_sweep_wanted(arguments.config) ? dpb_program_become("sweep")
                                                        : dpb_data_measure(&arguments);
    dpb_arguments_release(&arguments);
    return code;
}
