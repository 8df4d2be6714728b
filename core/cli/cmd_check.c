/* cmd_check.c - `dpbench check -c FILE.ini`: refuses everything that a run would refuse before it
 * begins, in every cell of a sweep, and prints the memory that a run would take and move. Runs
 * nothing. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "record/gpus_report.h"
#include "record/result.h"
#include "study/sweep/sweep.h"
#include "plan/estimate.h"
#include "plan/fit.h"

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
    DPB_TRY(dpb_experiment_sharing(experiment, 0, &sharing));
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

/* The needs of a sweep's cells, as far as their settings say. */
struct needs {
    double timed_s, gate_s; /* at most, of the gates */
    uint64_t steps;
    uint64_t most_bytes; /* of a cell */
    char most_label[256];
};

static void add_needs(const struct dpb_experiment *experiment, const struct dpb_fit *fit,
                      const char *label, struct needs *needs)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    needs->timed_s += (double)run->seconds_ns / 1e9;
    needs->gate_s += (double)run->steady_limit_ns / 1e9;
    needs->steps += (uint64_t)run->steps + (uint64_t)run->epochs * experiment->steps_per_epoch;
    if (fit->all_bytes <= needs->most_bytes)
        return;
    needs->most_bytes = fit->all_bytes;
    snprintf(needs->most_label, sizeof needs->most_label, "%s", label);
}

/* With sweep.launch a cell's memory is that of the first machine, and its line says how the cell is
 * started. Where the number of machines is not known, the cell may still fit. */
static dpb_status check_fit(const struct dpb_experiment *experiment, const struct dpb_sweep *sweep,
                            const char *label, const struct dpb_machine_memory *memory,
                            struct needs *needs)
{
    const bool launched = sweep->launch[0] != '\0';
    const bool placed = experiment->settings.comm.hosts[0] != '\0';
    struct dpb_fit fit;
    dpb_fit_of(experiment, launched && placed ? 0 : UINT32_MAX, &fit);
    if (!launched || placed)
        DPB_TRY(dpb_fit_check(experiment, &fit, memory));
    add_needs(experiment, &fit, label, needs);
    if (!launched)
        return DPB_OK;
    printf("%s: %.1f MiB %s", label, (double)fit.all_bytes / mib,
           placed ? "on the first machine" : "in all");
    dpb_launched_print(sweep, experiment, stdout);
    putchar('\n');
    return DPB_OK;
}

/* `sweep`, `label`: of the cell, which is added to `needs`; NULL: no sweep. */
static dpb_status check_experiment(struct dpb_experiment *experiment, const struct dpb_sweep *sweep,
                                   const char *label, struct needs *needs)
{
    struct dpb_machine_memory memory;
    struct dpb_fit fit;
    DPB_TRY(dpb_fit_build(experiment, experiment->n_workers, true));
    DPB_TRY(dpb_result_probe(NULL, experiment->settings.run.results));
    DPB_TRY(dpb_experiment_probe(experiment));
    dpb_memory_look("", &memory);
    if (sweep)
        return check_fit(experiment, sweep, label, &memory, needs);
    dpb_fit_of(experiment, UINT32_MAX, &fit);
    print_run(experiment);
    print_memory(experiment, &fit, &memory);
    DPB_TRY(print_sharing(experiment));
    DPB_TRY(print_moved(experiment));
    return dpb_fit_check(experiment, &fit, &memory);
}

/* Cells in a row that are refused for the same reason. */
struct refusals {
    char reason[1024];
    size_t n;
};

static void end_refusals(struct refusals *refusals)
{
    if (refusals->n > 1)
        printf("... and %zu more, for the same reason\n", refusals->n - 1);
    refusals->n = 0;
}

static void add_refusal(struct refusals *refusals, const char *label)
{
    const char *reason = dpb_first_error(NULL);
    if (refusals->n > 0 && strcmp(refusals->reason, reason) == 0) {
        refusals->n++;
        return;
    }
    end_refusals(refusals);
    snprintf(refusals->reason, sizeof refusals->reason, "%s", reason);
    refusals->n = 1;
    dpb_log(DPB_LOG_ERROR, "%s", reason);
    printf("%s: refused: %s\n", label, reason);
}

/* A cell before, whose data may be this one's. Cells that differ in the data need not be
 * neighbours, so each of the last KEPT networks has one. */
enum { KEPT = 16 };
struct checked {
    struct dpb_experiment *experiment; /* @owned; NULL: there is none */
    size_t network;
};

static dpb_status check_cell(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                             const char *label, struct checked kept[KEPT], struct needs *needs)
{
    struct dpb_experiment *experiment = NULL;
    const size_t network = dpb_sweep_network(sweep, job->cell);
    struct checked *last = &kept[network % KEPT];
    DPB_TRY(dpb_sweep_experiment(sweep, job, &experiment));
    if (last->experiment && last->network == network)
        dpb_experiment_take_data(experiment, last->experiment);
    dpb_experiment_destroy(last->experiment);
    *last = (struct checked){experiment, network};
    return job->accuracy ? DPB_OK : check_experiment(experiment, sweep, label, needs);
}

/* The cells that are not refused, their runs, the most memory, and how long they take. */
static void print_plan(const struct dpb_sweep *sweep, size_t n_cells, const struct needs *needs)
{
    double repeats = (double)sweep->repeats, minutes = needs->timed_s * repeats / 60;
    printf("plan: %zu cell%s, %.0f repeat%s: %.0f run%s", n_cells, n_cells == 1 ? "" : "s", repeats,
           repeats == 1 ? "" : "s", (double)n_cells * repeats,
           (double)n_cells * repeats == 1 ? "" : "s");
    if (sweep->accuracy > 0)
        printf(", and one a strategy for its accuracy");
    printf("; up to %.1f MiB%s%s", (double)needs->most_bytes / mib,
           needs->most_label[0] == '\0' ? "" : ", for ", needs->most_label);
    if (minutes > 0)
        printf("; %.1f min of timed steps", minutes);
    if (needs->steps > 0)
        printf("; %.0f steps, whose time is known once they ran", (double)needs->steps * repeats);
    if (needs->gate_s > 0)
        printf("; up to %.1f min until steps are steady", needs->gate_s * repeats / 60);
    if (sweep->retry_disturbed > 0)
        printf("; a disturbed run up to %lld times more", (long long)sweep->retry_disturbed);
    putchar('\n');
}

/* Checks every cell, also after a refused one. */
static int check_sweep(const struct dpb_config *config)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    struct dpb_sweep *sweep = NULL;
    struct refusals refusals = {.n = 0};
    struct checked kept[KEPT] = {{NULL, 0}};
    struct needs needs = {.steps = 0};
    size_t n_good = 0;
    dpb_status status = dpb_sweep_create(config, &sweep);
    DPB_THEN(status, dpb_launched_probe(sweep));
    int code = dpb_status_exit_code(status);
    size_t per_cell = status == DPB_OK && sweep->accuracy > 0 ? 2 : 1;
    dpb_log_set_hooks(&silent);
    for (size_t i = 0; status == DPB_OK && i < per_cell * sweep->n_cells; i++) {
        struct dpb_sweep_job job = {.cell = i / per_cell, .accuracy = i % per_cell == 1};
        char label[256];
        dpb_sweep_label(sweep, &job, label, sizeof label);
        dpb_status refused = check_cell(sweep, &job, label, kept, &needs);
        n_good += refused == DPB_OK && !job.accuracy;
        if (refused != DPB_OK)
            add_refusal(&refusals, label);
        dpb_first_error_clear();
        code = dpb_exit_code_first(code, dpb_status_exit_code(refused));
    }
    for (size_t i = 0; i < KEPT; i++)
        dpb_experiment_destroy(kept[i].experiment);
    end_refusals(&refusals);
    dpb_log_set_hooks(NULL);
    if (n_good > 0)
        print_plan(sweep, n_good, &needs);
    dpb_sweep_destroy(sweep);
    return code;
}

static int check_run(const struct dpb_config *config)
{
    struct dpb_experiment *experiment = NULL;
    dpb_status status = dpb_experiment_create(config, &experiment);
    DPB_THEN(status, check_experiment(experiment, NULL, NULL, NULL));
    dpb_experiment_destroy(experiment);
    return dpb_status_exit_code(status);
}

int dpb_command_check(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_arguments arguments;
    dpb_status status = dpb_arguments_parse(self, DPB_ACCEPTS_CONFIG, argc, argv, &arguments);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    int code = dpb_sweep_wanted(arguments.config) ? check_sweep(arguments.config)
                                                  : check_run(arguments.config);
    dpb_arguments_release(&arguments);
    return code;
}
