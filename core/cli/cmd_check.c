/* cmd_check.c - `dpbench check -c FILE.ini`: refuses everything that a run would refuse before it
 * begins, and prints the memory that a run would take and move. Runs
 * nothing. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/sweep_options.h"
#include "cli/cli.h"
#include "plan/estimate.h"
#include "plan/fit.h"
#include "plugin/trial.h"
#include "record/gpus_report.h"
#include "record/result_file.h"

static const double mib = 1024.0 * 1024.0;

static void print_device_memory(const struct dpb_experiment *experiment, uint64_t scratch)
{
    const uint64_t arenas = dpb_experiment_device_memory(experiment);
    if (arenas == 0)
        return;
    printf(" beside %.1f MiB of arenas", (double)arenas / mib);
    if (scratch > 0)
        printf(" and up to %.1f MiB of scratch", (double)scratch / mib);
    printf(" on each worker's device");
    const unsigned learners = (unsigned)experiment->settings.run.learners;
    if (learners > 1)
        printf(" (%.1f MiB of the GPU that %u learners share)",
               (double)learners * (double)(arenas + scratch) / mib, learners);
}

/* The arenas of worker 0, wherever they lie. */
static void print_arenas(const struct dpb_experiment *experiment)
{
    const double n = (double)experiment->graph->n_elements / mib;
    printf("  a worker's weights %.1f MiB, gradients %.1f MiB, optimizer state %.1f MiB\n",
           n * (double)dpb_dtype_size(experiment->weight_type),
           (double)dpb_experiment_gradients(experiment, 0) / mib *
               (double)dpb_dtype_size(experiment->gradient_type),
           (double)dpb_experiment_state_memory(experiment, 0) / mib);
}

static void print_memory(const struct dpb_experiment *experiment, const struct dpb_fit *fit,
                         const struct dpb_machine_memory *memory)
{
    printf("  memory: %.1f MiB a worker", (double)fit->worker_bytes / mib);
    if (experiment->n_servers > 0)
        printf(", %.1f MiB a server", (double)fit->server_bytes / mib);
    printf(", %.1f MiB in all", (double)fit->all_bytes / mib);
    print_device_memory(experiment, fit->device_bytes);
    if (memory->total_bytes != UINT64_MAX)
        printf(", of %.1f MiB here", (double)memory->total_bytes / mib);
    putchar('\n');
    print_arenas(experiment);
}

/* As far as this process knows: each worker asks for itself. */
static dpb_status print_sharing(const struct dpb_experiment *experiment)
{
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    struct dpb_sharing sharing;
    DPB_TRY(dpb_trial_sharing(device, experiment->options[DPB_PLUGIN_DEVICE], &sharing));
    const char *name = dpb_sharing_name(&sharing);
    if (((const struct dpb_device_ops *)device->ops)->sharing)
        printf("  workers on one device: %s\n", name ? name : "how they share it is not known");
    return DPB_OK;
}

static dpb_status print_moved(const struct dpb_experiment *experiment)
{
    double bytes;
    DPB_TRY(dpb_experiment_bytes_moved(experiment, &bytes));
    if (bytes > 0)
        printf("  moved: %.1f MB a sample, forward and backward; %.0f bytes in %u samples\n",
               bytes / experiment->batch / 1e6, bytes, experiment->batch);
    return DPB_OK;
}

static void print_run(const struct dpb_experiment *experiment)
{
    const unsigned places = (unsigned)experiment->settings.run.workers;
    char shared[64] = "";
    if (places < experiment->n_workers)
        snprintf(shared, sizeof shared, " (%u place%s x %u learners)", places,
                 places == 1 ? "" : "s", experiment->n_workers / places);
    printf("%s: %s on %s, %s, %s; %u worker%s%s, %u server%s; batch %u a worker, %llu in all\n",
           experiment->settings.run.name, experiment->plugins[DPB_PLUGIN_MODEL]->name,
           experiment->plugins[DPB_PLUGIN_DATA]->name, experiment->plugins[DPB_PLUGIN_DEVICE]->name,
           experiment->plugins[DPB_PLUGIN_COMM]->name, experiment->n_workers,
           experiment->n_workers == 1 ? "" : "s", shared, experiment->n_servers,
           experiment->n_servers == 1 ? "" : "s", experiment->batch,
           (unsigned long long)experiment->global_batch);
    printf("  %llu parameters, %llu multiply-accumulates a sample, %llu steps an epoch\n",
           (unsigned long long)experiment->graph->n_parameters,
           (unsigned long long)experiment->graph->macs,
           (unsigned long long)experiment->steps_per_epoch);
}

static dpb_status check_experiment(struct dpb_experiment *experiment)
{
    struct dpb_machine_memory memory;
    struct dpb_fit fit;
    DPB_TRY(dpb_fit_build(experiment, experiment->n_workers, true));
    DPB_TRY(dpb_result_probe(NULL, experiment->settings.run.results));
    DPB_TRY(dpb_experiment_probe(experiment, NULL, 0));
    dpb_memory_look("", &memory);
    dpb_fit_of(experiment, UINT32_MAX, &fit);
    print_run(experiment);
    print_memory(experiment, &fit, &memory);
    DPB_TRY(print_sharing(experiment));
    DPB_TRY(print_moved(experiment));
    return dpb_fit_check(experiment, &fit, &memory);
}

static int check_run(const struct dpb_config *config)
{
    struct dpb_experiment *experiment = NULL;
    dpb_status status = dpb_experiment_create(config, &experiment);
    DPB_THEN(status, check_experiment(experiment));
    dpb_experiment_destroy(experiment);
    return dpb_status_exit_code(status);
}

int dpb_command_check(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_arguments arguments;
    dpb_status status = dpb_arguments_parse(self, DPB_ACCEPTS_CONFIG, NULL, argc, argv, &arguments);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    int code = dpb_sweep_wanted(arguments.config) ? dpb_program_become("sweep")
                                                  : check_run(arguments.config);
    dpb_arguments_release(&arguments);
    return code;
}
