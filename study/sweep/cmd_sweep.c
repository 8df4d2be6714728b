/*
 * cmd_sweep.c - dpbench-sweep: what dpbench hands over where the experiment has a [sweep] or
 * [tune]: its run, `dpbench check` and `dpbench data`.
 */
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "study/sweep/check.h"
#include "study/sweep/run.h"
#include "study/sweep/sweep.h"

/* A sweep's first cell stands for all, unless the sweep changes data, model or batch. */
static dpb_status first_cell(const struct dpb_config *config, struct dpb_config **cell)
{
    const struct dpb_sweep_job first = {0};
    struct dpb_sweep *sweep = NULL;
    DPB_TRY(dpb_sweep_create(config, &sweep));
    dpb_status status = DPB_OK;
    for (size_t i = 0; i < sweep->n_axes && status == DPB_OK; i++) {
        const struct dpb_sweep_axis *axis = &sweep->axes[i];
        bool batch = strcmp(axis->section, "run") == 0 && strstr(axis->key, "batch");
        if (batch || strcmp(axis->section, "data") == 0 || strcmp(axis->section, "model") == 0)
            status = dpb_fail(DPB_USAGE,
                              "%s: `dpbench data` measures one source: sweep.%s.%s makes several; "
                              "choose one by %s.%s=%s",
                              axis->origin, axis->section, axis->key, axis->section, axis->key,
                              axis->values[0]);
    }
    DPB_THEN(status, dpb_sweep_config(sweep, &first, cell));
    dpb_sweep_destroy(sweep);
    return status;
}

static int run(struct dpb_arguments *arguments)
{
    return dpb_sweep_run(arguments);
}

static int check(struct dpb_arguments *arguments)
{
    return dpb_sweep_check(arguments->config);
}

static int data(struct dpb_arguments *arguments)
{
    struct dpb_config *cell = NULL;
    dpb_status status = first_cell(arguments->config, &cell);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    dpb_config_destroy(arguments->config);
    arguments->config = cell;
    return dpb_data_measure(arguments);
}

static int with_arguments(const struct dpb_command *self, unsigned accepts, int argc, char **argv,
                          int (*command)(struct dpb_arguments *arguments))
{
    struct dpb_arguments arguments;
    dpb_status status = dpb_arguments_parse(self, accepts, NULL, argc, argv, &arguments);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    const int code = command(&arguments);
    dpb_arguments_release(&arguments);
    return code;
}

static int command_run(const struct dpb_command *self, int argc, char **argv)
{
    return with_arguments(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT | DPB_ACCEPTS_SERIES, argc,
                          argv, run);
}

static int command_check(const struct dpb_command *self, int argc, char **argv)
{
    return with_arguments(self, DPB_ACCEPTS_CONFIG, argc, argv, check);
}

static int command_data(const struct dpb_command *self, int argc, char **argv)
{
    return with_arguments(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT | DPB_ACCEPTS_SERIES, argc,
                          argv, data);
}

int main(int argc, char **argv)
{
    static const struct dpb_program_command commands[] = {
        {"run", command_run}, {"check", command_check}, {"data", command_data}, {0}};
    return dpb_program_main(&(struct dpb_program){.commands = commands}, argc, argv);
}
