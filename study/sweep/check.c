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
static dpb_status fit_experiment(struct dpb_experiment *experiment, const struct dpb_sweep *sweep,
                                 const char *label, struct needs *needs)
{
    const bool launched = sweep->options.launch[0] != '\0';
    const bool placed = experiment->settings.comm.hosts[0] != '\0';
    struct dpb_machine_memory memory;
    struct dpb_fit fit;
    dpb_memory_look("", &memory);
    dpb_fit_of(experiment, launched && placed ? 0 : UINT32_MAX, &fit);
    /* A run warns by itself. */
    if ((!launched || placed) && (needs || fit.all_bytes > memory.total_bytes) &&
        (needs || experiment->settings.run.memory == DPB_TOO_LARGE_REFUSE))
        DPB_TRY(dpb_fit_check(experiment, &fit, &memory));
    if (needs)
        add_needs(experiment, &fit, label, needs);
    if (!launched || !needs)
        return DPB_OK;
    printf("%s: %.1f MiB %s", label, (double)fit.all_bytes / mib,
           placed ? "on the first machine" : "in all");
    dpb_cell_launch_print(sweep, experiment, stdout);
    putchar('\n');
    return DPB_OK;
}

/* Cells in a row that are refused for the same reason. */
struct refusals {
    FILE *out;
    const char *mark; /* before a line */
    char reason[1024];
    size_t n;
};

static void end_refusals(struct refusals *refusals)
{
    if (refusals->n > 1)
        fprintf(refusals->out, "%s... and %zu more, for the same reason\n", refusals->mark,
                refusals->n - 1);
    refusals->n = 0;
}

/* False: the reason is that of the cell before. */
static bool add_refusal(struct refusals *refusals, const char *label, const char *reason)
{
    char text[4 * sizeof refusals->reason + 5];
    if (refusals->n > 0 && strcmp(refusals->reason, reason) == 0) {
        refusals->n++;
        return false;
    }
    end_refusals(refusals);
    snprintf(refusals->reason, sizeof refusals->reason, "%s", reason);
    refusals->n = 1;
    dpb_escape(refusals->reason, strlen(refusals->reason), text, sizeof text);
    fprintf(refusals->out, "%s%s: refused: %s\n", refusals->mark, label, text);
    return true;
}

/* A cell before, whose data may be this one's. Cells that differ in the data need not be
 * neighbours, so each of the last KEPT networks has one. */
enum { KEPT = 16 };
struct checked {
    struct dpb_experiment *experiment; /* @owned; NULL: there is none */
    size_t network;
};

static void release_kept(struct checked kept[KEPT])
{
    for (size_t i = 0; i < KEPT; i++)
        dpb_experiment_destroy(kept[i].experiment);
}

/* A built experiment of the cell; `kept` owns it. */
static dpb_status build_cell(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                             struct checked kept[KEPT], struct dpb_experiment **made)
{
    struct dpb_experiment *experiment = NULL;
    const size_t network = dpb_sweep_network(sweep, job->cell);
    struct checked *last = &kept[network % KEPT];
    DPB_TRY(dpb_sweep_experiment(sweep, job, &experiment));
    if (last->experiment && last->network == network)
        dpb_experiment_take_data(experiment, last->experiment);
    dpb_experiment_destroy(last->experiment);
    *last = (struct checked){experiment, network};
    *made = experiment;
    return job->accuracy ? DPB_OK : dpb_fit_build(experiment, experiment->n_workers, true);
}

static dpb_status check_cell(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                             const char *label, struct checked kept[KEPT], struct needs *needs)
{
    struct dpb_experiment *experiment;
    DPB_TRY(build_cell(sweep, job, kept, &experiment));
    if (job->accuracy)
        return DPB_OK;
    DPB_TRY(dpb_result_probe(NULL, experiment->settings.run.results));
    DPB_TRY(dpb_experiment_probe(experiment, NULL, 0));
    return fit_experiment(experiment, sweep, label, needs);
}

/* ---- before a sweep runs ------------------------------------------------------------------- */

static dpb_status look_at(const struct dpb_sweep *sweep, size_t cell,
                          const struct dpb_named_file *files, size_t n_files,
                          struct checked kept[KEPT], struct dpb_sweep_plan *plan)
{
    const struct dpb_sweep_job job = {.cell = cell};
    struct dpb_experiment *experiment;
    DPB_TRY(build_cell(sweep, &job, kept, &experiment));
    DPB_TRY(dpb_experiment_probe(experiment, files, n_files));
    DPB_TRY(fit_experiment(experiment, sweep, "", NULL));
    if (plan->results)
        return DPB_OK;
    plan->results = strdup(experiment->settings.run.results);
    plan->name = strdup(experiment->settings.run.name);
    plan->seed = (uint64_t)experiment->settings.run.seed;
    return dpb_allocated(plan->results && plan->name);
}

/* Drops the messages; the first of a failure that is no refusal, or of a search that cannot begin,
 * is written at the end. */
static dpb_status look_at_all(struct dpb_sweep *sweep, const struct dpb_named_file *files,
                              size_t n_files, struct dpb_sweep_plan *plan)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    struct checked kept[KEPT] = {{NULL, 0}};
    dpb_status status = DPB_OK;
    dpb_log_set_hooks(&silent);
    for (size_t cell = 0; cell < sweep->n_cells && status == DPB_OK; cell++) {
        dpb_first_error_clear();
        const dpb_status is = look_at(sweep, cell, files, n_files, kept, plan);
        const bool refused = dpb_status_exit_code(is) == dpb_status_exit_code(DPB_USAGE);
        if (is != DPB_OK && (!refused || (sweep->tunes && is != DPB_UNSUPPORTED)))
            status = is;
        else if (is != DPB_OK)
            sweep->refusals[cell] = (struct dpb_sweep_refusal){is, strdup(dpb_first_error(NULL))};
    }
    release_kept(kept);
    dpb_log_set_hooks(NULL);
    if (status != DPB_OK)
        dpb_log(DPB_LOG_ERROR, "%s", dpb_first_error(NULL));
    return status;
}

static dpb_status list_refused(const struct dpb_sweep *sweep, size_t n, size_t first)
{
    struct refusals refusals = {.out = stderr, .mark = "error: "};
    char label[256];
    for (size_t cell = 0; cell < sweep->n_cells; cell++) {
        const struct dpb_sweep_job job = {.cell = cell};
        if (!dpb_sweep_is_refused(sweep, cell))
            continue;
        dpb_sweep_label(sweep, &job, label, sizeof label);
        add_refusal(&refusals, label, sweep->refusals[cell].reason);
    }
    end_refusals(&refusals);
    dpb_first_error_clear();
    return dpb_fail(sweep->refusals[first].status,
                    "nothing was run: %zu of %zu cells are refused; choose the others by "
                    "sweep.when, or sweep.skip_refused = yes makes these rows with their reasons",
                    n, sweep->n_cells);
}

dpb_status dpb_sweep_find_refused(struct dpb_sweep *sweep, const struct dpb_named_file *files,
                                  size_t n_files, struct dpb_sweep_plan *plan)
{
    size_t n = 0, first = sweep->n_cells;
    bool differ = false;
    sweep->refusals = calloc(sweep->n_cells, sizeof *sweep->refusals);
    DPB_TRY(dpb_allocated(sweep->refusals));
    DPB_TRY(look_at_all(sweep, files, n_files, plan));
    for (size_t cell = 0; cell < sweep->n_cells; cell++) {
        if (!dpb_sweep_is_refused(sweep, cell))
            continue;
        first = n++ == 0 ? cell : first;
        differ |= strcmp(sweep->refusals[cell].reason, sweep->refusals[first].reason) != 0;
    }
    dpb_first_error_clear();
    if (n == 0 || ((sweep->options.skip_refused || sweep->tunes) && n < sweep->n_cells))
        return DPB_OK;
    if (n == sweep->n_cells && !differ)
        return dpb_fail(sweep->refusals[first].status, "%s", sweep->refusals[first].reason);
    return list_refused(sweep, n, first);
}

/* ---- dpbench check ------------------------------------------------------------------------- */

/* The cells that are not refused, their runs, the most memory, and how long they take. */
static void print_plan(const struct dpb_sweep *sweep, size_t n_cells, const struct needs *needs)
{
    const double repeats = (double)sweep->options.repeats;
    const double budget_s = sweep->turns.on ? (double)sweep->options.budget_ns * 1e-9 : 0;
    const double minutes = (budget_s > 0 ? budget_s : needs->timed_s * repeats) / 60;
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
    struct refusals refusals = {.out = stdout, .mark = ""};
    struct checked kept[KEPT] = {{NULL, 0}};
    struct needs needs = {.steps = 0};
    size_t n_good = 0;
    dpb_status status = dpb_sweep_create(config, &sweep);
    DPB_THEN(status, dpb_cells_open(sweep, &cells));
    int code = dpb_status_exit_code(status);
    const bool skips = status == DPB_OK && sweep->options.skip_refused;
    dpb_status skipped = DPB_OK;
    size_t per_cell = status == DPB_OK && sweep->options.accuracy > 0 ? 2 : 1;
    dpb_log_set_hooks(&silent);
    for (size_t i = 0; status == DPB_OK && i < per_cell * sweep->n_cells; i++) {
        struct dpb_sweep_job job = {.cell = i / per_cell, .accuracy = i % per_cell == 1};
        char label[256];
        dpb_sweep_label(sweep, &job, label, sizeof label);
        dpb_status refused = check_cell(sweep, &job, label, kept, &needs);
        n_good += refused == DPB_OK && !job.accuracy;
        if (refused != DPB_OK && add_refusal(&refusals, label, dpb_first_error(NULL)) && !skips)
            dpb_log(DPB_LOG_ERROR, "%s", refusals.reason);
        dpb_first_error_clear();
        if (!skips || dpb_status_exit_code(refused) != dpb_status_exit_code(DPB_USAGE))
            code = dpb_exit_code_first(code, dpb_status_exit_code(refused));
        skipped = skipped == DPB_OK ? refused : skipped;
    }
    if (n_good == 0)
        code = dpb_exit_code_first(code, dpb_status_exit_code(skipped));
    release_kept(kept);
    end_refusals(&refusals);
    dpb_log_set_hooks(NULL);
    if (n_good > 0)
        print_plan(sweep, n_good, &needs);
    dpb_sweep_destroy(sweep);
    return code;
}
