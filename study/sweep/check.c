/* check.c - see check.h. */
#include "study/sweep/check.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "plan/fit.h"
#include "record/result_file.h"
#include "study/sweep/execute.h"
#include "study/sweep/sweep.h"

static const double mib = 1024.0 * 1024.0;

/* The needs of a sweep's cells, as far as their settings say. */
struct needs {
    double timed_s, gate_s; /* at most, of the gates */
    uint64_t steps;
    uint64_t most_bytes, all_bytes; /* of a cell, and of all */
    char most_label[256];
};

static void add_needs(const struct dpb_experiment *experiment, const struct dpb_fit *fit,
                      const char *label, struct needs *needs)
{
    const struct dpb_run_settings *run = &experiment->settings.run;
    needs->timed_s += (double)run->seconds_ns / 1e9;
    needs->gate_s += (double)run->steady_limit_ns / 1e9;
    needs->steps += (uint64_t)run->steps + (uint64_t)run->epochs * experiment->steps_per_epoch;
    needs->all_bytes += fit->all_bytes;
    if (fit->all_bytes <= needs->most_bytes)
        return;
    needs->most_bytes = fit->all_bytes;
    snprintf(needs->most_label, sizeof needs->most_label, "%s", label);
}

/* With sweep.launch a cell's memory is that of the first machine, and its line says how the cell is
 * started. Where the number of machines is not known, the cell may still fit. */
static dpb_status check_experiment(struct dpb_experiment *experiment, const struct dpb_sweep *sweep,
                                   const char *label, struct needs *needs)
{
    const bool launched = sweep->options.launch[0] != '\0';
    const bool placed = experiment->settings.comm.hosts[0] != '\0';
    struct dpb_machine_memory memory;
    struct dpb_fit fit;
    DPB_TRY(dpb_fit_build(experiment, experiment->n_workers, true));
    DPB_TRY(dpb_result_probe(NULL, experiment->settings.run.results));
    DPB_TRY(dpb_experiment_probe(experiment, NULL, 0));
    dpb_memory_look("", &memory);
    dpb_fit_of(experiment, launched && placed ? 0 : UINT32_MAX, &fit);
    if (!launched || placed)
        DPB_TRY(dpb_fit_check(experiment, &fit, &memory));
    add_needs(experiment, &fit, label, needs);
    if (!launched)
        return DPB_OK;
    printf("%s: %.1f MiB %s", label, (double)fit.all_bytes / mib,
           placed ? "on the first machine" : "in all");
    dpb_cell_launch_print(sweep, experiment, stdout);
    putchar('\n');
    return DPB_OK;
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
    double repeats = (double)sweep->options.repeats, minutes = needs->timed_s * repeats / 60;
    printf("plan: %zu cell%s, %.0f repeat%s: %.0f run%s", n_cells, n_cells == 1 ? "" : "s", repeats,
           repeats == 1 ? "" : "s", (double)n_cells * repeats,
           (double)n_cells * repeats == 1 ? "" : "s");
    if (sweep->options.accuracy > 0)
        printf(", and one a strategy for its accuracy");
    printf("; up to %.1f MiB%s%s", (double)needs->most_bytes / mib,
           needs->most_label[0] == '\0' ? "" : ", for ", needs->most_label);
    if (sweep->turns.on)
        printf("; side by side, in turns: %.1f MiB in all", (double)needs->all_bytes / mib);
    if (minutes > 0)
        printf("; %.1f min of timed steps", minutes);
    if (needs->steps > 0)
        printf("; %.0f steps, whose time is known once they ran", (double)needs->steps * repeats);
    if (needs->gate_s > 0)
        printf("; up to %.1f min until steps are steady", needs->gate_s * repeats / 60);
    const bool retries = sweep->options.retry_disturbed > 0 && !sweep->turns.on;
    if (retries)
        printf("; a disturbed run up to %lld times more",
               (long long)sweep->options.retry_disturbed);
    if (retries && sweep->options.retry_budget_ns < 0)
        printf(", for as long as all other runs take");
    else if (retries)
        printf(", for %g s in all", (double)sweep->options.retry_budget_ns * 1e-9);
    if (sweep->options.limit_ns > 0)
        printf("; no run starts after %g s", (double)sweep->options.limit_ns * 1e-9);
    putchar('\n');
}

/* Checks every cell, also after a refused one. */
int dpb_sweep_check(const struct dpb_config *config)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    struct dpb_sweep *sweep = NULL;
    struct dpb_cells cells;
    struct refusals refusals = {.n = 0};
    struct checked kept[KEPT] = {{NULL, 0}};
    struct needs needs = {.steps = 0};
    size_t n_good = 0;
    dpb_status status = dpb_sweep_create(config, &sweep);
    DPB_THEN(status, dpb_cells_open(sweep, &cells));
    int code = dpb_status_exit_code(status);
    size_t per_cell = status == DPB_OK && sweep->options.accuracy > 0 ? 2 : 1;
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
