/* run.c - see run.h. */
#include "study/sweep/run.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/signals.h"
#include "record/invocation.h"
#include "record/result.h"
#include "record/result_file.h"
#include "study/document/spill.h"
#include "study/document/rows.h"
#include "study/document/setup.h"
#include "study/document/verdict.h"
#include "study/sweep/budget.h"
#include "study/sweep/check.h"
#include "study/sweep/execute.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_runs.h"
#include "study/sweep/tune.h"
#include "study/sweep/turns.h"
#include "study/table/sweep_print.h"
#include "study/table/tune_print.h"

/* A signal between two jobs, while no launcher listens. */
static volatile sig_atomic_t signal_between_jobs;

static void note_signal(int number)
{
    signal_between_jobs = number;
}

/* Cells that cannot run in turns run one after another, as often as without them. */
static dpb_status plan_turns(const struct dpb_config *config, struct dpb_sweep *sweep,
                             struct dpb_sweep_plan *plan)
{
    dpb_status status = sweep->turns.on ? dpb_turns_needs(sweep, &plan->needs) : DPB_OK;
    if (status != DPB_UNSUPPORTED)
        return status;
    sweep->turns.on = false;
    if (!dpb_config_get(config, "sweep", "repeats") && sweep->replicates.n_values == 0)
        sweep->options.repeats = DPB_SWEEP_USUAL_REPEATS;
    dpb_warn("no_turns", "sweep.turns: %s; the cells run one after another, %lld times",
             dpb_first_error(NULL), (long long)sweep->options.repeats);
    dpb_first_error_clear();
    return DPB_OK;
}

/* The jobs to come: a list, or, in a search, the jobs that follow from the runs so far. */
struct queue {
    struct dpb_sweep_job *jobs; /* @owned; NULL: a search */
    size_t n, next;
    double ended_s;   /* that the runs so far took */
    uint64_t n_ended; /* those that went well */
    int64_t began_ns; /* the sweep */
    struct dpb_sweep_budget budget;
};

static double elapsed_s(const struct queue *queue)
{
    return (double)(dpb_now_ns() - queue->began_ns) * 1e-9;
}

/* The timing jobs in their order, then one job for the accuracy of each strategy. */
static dpb_status plan_jobs(const struct dpb_sweep *sweep, uint64_t seed, struct queue *queue)
{
    size_t n_timing = sweep->n_cells * (size_t)sweep->options.repeats;
    queue->budget = dpb_sweep_budget_of(&sweep->options, 0);
    if (sweep->tunes)
        return DPB_OK;
    queue->jobs = calloc(n_timing + sweep->n_cells, sizeof *queue->jobs);
    DPB_TRY(dpb_allocated(queue->jobs));
    dpb_sweep_order(sweep, seed, queue->jobs);
    size_t n = 0;
    for (size_t i = 0; i < n_timing; i++) /* a refused cell takes one job to say so */
        if (!dpb_sweep_is_refused(sweep, queue->jobs[i].cell) || queue->jobs[i].repeat == 0)
            queue->jobs[n++] = queue->jobs[i];
    queue->n = n + dpb_sweep_accuracy_jobs(sweep, queue->jobs + n);
    queue->budget.n_jobs = queue->n;
    return DPB_OK;
}

/* "[3/24]", or of a search "[3]". */
struct count {
    char text[48];
};

static struct count count_of(const struct queue *queue)
{
    struct count count;
    if (queue->jobs)
        snprintf(count.text, sizeof count.text, "[%zu/%zu]", queue->next, queue->n);
    else
        snprintf(count.text, sizeof count.text, "[%zu]", queue->next);
    return count;
}

/* The document as it grows, and its runs on the disk. */
struct record {
    json_t *document;         /* @owned */
    char directory[PATH_MAX]; /* "": kept in memory alone */
    size_t n_kept;            /* runs in the directory, numbered from 1 without a gap */
    dpb_status status;        /* of writing */
    bool prints_trials;       /* on standard output, when they end; else they are messages */
};

/* The document without runs and rows; of a search, with the trials so far. */
static dpb_status keep_head(struct record *record, const char *status)
{
    json_t *head = json_copy(record->document);
    DPB_TRY(dpb_allocated(head));
    json_object_set_new(head, "status", json_string(status));
    json_object_set_new(head, "runs", json_array());
    json_object_set_new(head, "rows", json_array());
    dpb_status written = dpb_result_keep(head, record->directory, 0);
    json_decref(head);
    return written;
}

/* A search that is killed leaves its trials. */
static void keep_trials(struct record *record)
{
    dpb_status status = keep_head(record, "interrupted");
    if (record->status == DPB_OK)
        record->status = status;
}

/* Writes the last run of the document. A full disk does not end the sweep: the document is still
 * delivered as a whole. */
static void keep_run(struct record *record)
{
    const json_t *runs = json_object_get(record->document, "runs");
    const size_t n = json_array_size(runs);
    json_t *run = json_array_get(runs, n - 1);
    json_t *whole = dpb_run_whole(run); /* that of --resume is spilled */
    dpb_status status = dpb_allocated(whole);
    DPB_THEN(status, dpb_result_keep(whole, record->directory, record->n_kept + 1));
    json_decref(whole);
    record->n_kept += status == DPB_OK;
    dpb_run_spill(run, n > 1 ? json_array_get(runs, n - 2) : NULL);
    if (record->status == DPB_OK)
        record->status = status;
}

/* For --resume: puts the good runs into the document and keeps the missing jobs, in their order. */
static dpb_status take_done(const struct dpb_sweep *sweep, const struct dpb_arguments *arguments,
                            struct queue *queue, struct record *record)
{
    size_t n_left = 0;
    json_t *kept = json_object_get(record->document, "runs");
    dpb_each_item(json_object_get(arguments->document, "runs"), i, done) {
        if (!dpb_json_is(done, "status", "ok"))
            continue;
        json_t *run = dpb_setups_unsplit(done);
        json_array_append_new(kept, run);
        if (!dpb_sweep_has(sweep, run))
            return dpb_fail(DPB_USAGE,
                            "%s: run %zu is of no cell of this sweep: its `cell` and `cell_index` "
                            "do not agree with the axes; give the file as dpbench wrote it",
                            arguments->file, i + 1);
        keep_run(record);
    }
    for (size_t i = 0; i < queue->n; i++)
        if (!dpb_sweep_done(sweep, record->document, &queue->jobs[i]))
            queue->jobs[n_left++] = queue->jobs[i];
    if (queue->jobs)
        dpb_log(DPB_LOG_INFO, "%zu of %zu runs are there, from %s", queue->n - n_left, queue->n,
                arguments->file);
    else
        dpb_log(DPB_LOG_INFO, "%zu runs are there, from %s", record->n_kept, arguments->file);
    queue->n = queue->budget.n_jobs = n_left;
    return record->status;
}

static void report_job(const struct queue *queue, const char *label,
                       const struct dpb_execution *execution)
{
    double rate = dpb_json_number(execution->result, "timing.samples_per_s.mean");
    if (execution->status == DPB_OK && isfinite(rate))
        dpb_log(DPB_LOG_INFO, "%s %s: %.1f samples/s", count_of(queue).text, label, rate);
    else
        dpb_log(DPB_LOG_INFO, "%s %s: %s", count_of(queue).text, label,
                dpb_json_text(execution->result, "status", "failed"));
}

/* A cell of sweep.skip_refused. */
static void refuse(const struct dpb_config *config, const struct dpb_sweep_refusal *why,
                   struct dpb_execution *execution)
{
    *execution =
        (struct dpb_execution){.status = why->status,
                               .exit_code = dpb_status_exit_code(why->status),
                               .result = dpb_result_refused(config, why->status, why->reason)};
    json_object_set_new(execution->result, "status", json_string("refused"));
}

static dpb_status run_job(const struct dpb_cells *cells, const struct dpb_sweep_job *job,
                          struct queue *queue, struct dpb_execution *execution)
{
    struct dpb_config *config = NULL;
    char label[256], progress[320];
    DPB_TRY(dpb_sweep_config(cells->sweep, job, &config));
    dpb_sweep_label(cells->sweep, job, label, sizeof label);
    snprintf(progress, sizeof progress, "%s %s", count_of(queue).text, label);
    const size_t n_left = queue->jobs ? queue->n - queue->next : 0;
    const struct dpb_live_place place = {
        .label = progress,
        .ended_s = queue->ended_s,
        .n_ended = queue->n_ended,
        .n_left = dpb_sweep_budget_left(n_left, queue->n_ended, queue->next - 1)};
    const int64_t began_ns = dpb_now_ns();
    const bool refused = dpb_sweep_is_refused(cells->sweep, job->cell) && !cells->sweep->tunes;
    dpb_first_error_clear();
    dpb_warnings_clear();
    if (refused)
        refuse(config, &cells->sweep->refusals[job->cell], execution);
    else
        dpb_cell_execute(cells, config, &place, execution);
    if (execution->status == DPB_OK) {
        queue->ended_s += (double)(dpb_now_ns() - began_ns) * 1e-9;
        queue->n_ended++;
    }
    if (!execution->result)
        execution->result = dpb_result_refused(config, execution->status, dpb_first_error(NULL));
    if (queue->jobs)
        report_job(queue, label, execution);
    dpb_config_destroy(config);
    return dpb_allocated(execution->result);
}

/* The outcome of all jobs so far. */
struct outcome {
    dpb_status status;
    int code;
};

static void note_end(const struct dpb_sweep *sweep, const struct dpb_execution *execution,
                     struct outcome *outcome)
{
    /* A cell with a refused combination or refused data is a failed cell of a sweep that ran. To a
     * search it is the end of a direction. */
    bool refused = execution->exit_code == dpb_status_exit_code(DPB_USAGE);
    bool failed = execution->status != DPB_OK &&
                  !dpb_json_is(execution->result, "status", "refused") &&
                  !(sweep->tunes && dpb_sweep_refused(execution->result));
    if (failed)
        outcome->code = dpb_exit_code_first(
            outcome->code, refused ? dpb_status_exit_code(DPB_FAILED) : execution->exit_code);
    if (failed && outcome->status == DPB_OK)
        outcome->status = DPB_FAILED;
    if (execution->status == DPB_INTERRUPTED)
        outcome->status = DPB_INTERRUPTED;
    if (signal_between_jobs != 0) {
        outcome->status = DPB_INTERRUPTED;
        outcome->code = dpb_exit_code_first(outcome->code, 128 + signal_between_jobs);
    }
}

/* Whether the run that just ended well is to be repeated. A disturbed run that is not, for lack of
 * time, gets a mark. */
static bool once_more(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job, double run_s,
                      struct queue *queue, json_t *document)
{
    struct dpb_sweep_budget *budget = &queue->budget;
    if (dpb_sweep_done(sweep, document, job))
        return false;
    const bool more = dpb_sweep_budget_repeats(budget, run_s, elapsed_s(queue));
    dpb_log(DPB_LOG_INFO, "  disturbed: %s (repeats took %.1f s of %.1f s)",
            more ? "once more" : "it stays, for lack of time", budget->repeats_s,
            dpb_sweep_budget_repeats_s(budget));
    if (!more)
        dpb_sweep_stay(document);
    return more;
}

/* Runs a job until a run of it ends badly or undisturbed, or was repeated often enough. */
static void run_until_done(const struct dpb_cells *cells, const struct dpb_sweep_job *job,
                           struct queue *queue, struct record *record, struct outcome *outcome)
{
    const struct dpb_sweep *sweep = cells->sweep;
    bool more = true;
    for (bool again = false; more && outcome->status != DPB_INTERRUPTED; again = true) {
        struct dpb_execution execution = {0};
        const double before_s = elapsed_s(queue);
        if (run_job(cells, job, queue, &execution) != DPB_OK) {
            *outcome = (struct outcome){
                DPB_INTERRUPTED,
                dpb_exit_code_first(outcome->code, dpb_status_exit_code(DPB_NO_MEMORY))};
            return;
        }
        const double run_s = elapsed_s(queue) - before_s;
        dpb_sweep_budget_spend(&queue->budget, run_s, again);
        dpb_sweep_add(sweep, job, execution.result, record->document);
        more = execution.status == DPB_OK && once_more(sweep, job, run_s, queue, record->document);
        keep_run(record);
        note_end(sweep, &execution, outcome);
    }
}

/* Lines of the table of trials, as far as `shown` says that they are missing. */
static void show_trials(const struct record *record, long *shown)
{
    char line[DPB_TUNE_LINE], text[4 * DPB_TUNE_LINE + 5];
    for (; *shown < (long)dpb_tune_trials(record->document); ++*shown) {
        dpb_tune_line(record->document, *shown, line, sizeof line);
        if (!record->prints_trials) {
            dpb_log(DPB_LOG_INFO, "%s", line);
            continue;
        }
        dpb_escape(line, strlen(line), text, sizeof text);
        dpb_stdout_back();
        puts(text);
        fflush(stdout);
    }
}

/* False: all are done, or *outcome says that no more can be. */
static bool next_job(const struct dpb_sweep *sweep, struct queue *queue, struct record *record,
                     long *shown, struct dpb_sweep_job *job, struct outcome *outcome)
{
    bool failed = false, more = queue->next < queue->n;
    if (sweep->tunes) {
        more = dpb_tune_next(sweep, record->document, job, &failed);
        show_trials(record, shown);
        keep_trials(record);
    } else if (more && queue->next > 0 &&
               !dpb_sweep_budget_starts(&queue->budget, elapsed_s(queue))) {
        queue->budget.n_never = queue->n - queue->next;
        more = false;
    } else if (more) {
        *job = queue->jobs[queue->next];
    }
    if (failed) /* as where a result is lost */
        *outcome = (struct outcome){DPB_INTERRUPTED, dpb_status_exit_code(DPB_NO_MEMORY)};
    more &= outcome->status != DPB_INTERRUPTED;
    queue->next += more;
    return more;
}

/* A search that found nothing has failed. */
static void end_search(struct record *record, struct outcome *outcome)
{
    if (outcome->status == DPB_INTERRUPTED ||
        json_is_object(dpb_json_at(record->document, "tune.best")))
        return;
    outcome->status = dpb_fail(DPB_FAILED, "[tune]: no trial has a value; each says why");
    outcome->code = dpb_exit_code_first(outcome->code, dpb_status_exit_code(outcome->status));
}

/* For the end of a cell that ran side by side with others. */
struct side_by_side {
    const struct dpb_sweep *sweep;
    struct queue *queue;
    struct record *record;
    struct outcome *outcome;
};

static void cell_ended(void *context, const struct dpb_sweep_job *job,
                       struct dpb_execution *execution)
{
    const struct side_by_side *sides = context;
    struct dpb_config *config = NULL;
    char label[256];
    if (!execution->result && dpb_sweep_config(sides->sweep, job, &config) == DPB_OK)
        execution->result = dpb_result_refused(config, execution->status, dpb_first_error(NULL));
    dpb_config_destroy(config);
    if (!execution->result) {
        *sides->outcome = (struct outcome){DPB_INTERRUPTED, dpb_status_exit_code(DPB_NO_MEMORY)};
        return;
    }
    if (dpb_sweep_is_refused(sides->sweep, job->cell))
        json_object_set_new(execution->result, "status", json_string("refused"));
    sides->queue->next += sides->queue->next < sides->queue->n;
    dpb_sweep_label(sides->sweep, job, label, sizeof label);
    report_job(sides->queue, label, execution);
    dpb_sweep_add(sides->sweep, job, execution->result, sides->record->document);
    keep_run(sides->record);
    note_end(sides->sweep, execution, sides->outcome);
}

/* The seconds of turns for a group: of sweep.budget as many as it has starts of all; else
 * run.seconds of each cell. */
static double group_budget_s(const struct dpb_sweep *sweep, const struct dpb_sweep_plan *plan,
                             const struct dpb_turns_group *group, size_t n_starts)
{
    double seconds = 0;
    if (sweep->options.budget_ns > 0)
        return (double)sweep->options.budget_ns * 1e-9 * (double)group->n / (double)n_starts;
    for (size_t i = 0; i < group->n; i++) {
        const double own = plan->needs.seconds[group->jobs[i].cell];
        seconds += own > 0 ? own : INFINITY;
    }
    return seconds;
}

/* The number of the first block behind those of earlier runs, which --resume keeps. */
static int64_t next_block(const json_t *document)
{
    double next = 0;
    dpb_each_item(json_object_get(document, "runs"), i, run)
        dpb_each_item(dpb_json_at(run, "turns.block"), k, block)
            next = fmax(next, dpb_json_number(block, "") + 1);
    return (int64_t)next;
}

static int by_cell(const void *a, const void *b)
{
    const struct dpb_sweep_job *x = a, *y = b;
    const int of_repeats = (x->repeat > y->repeat) - (x->repeat < y->repeat);
    return of_repeats != 0 ? of_repeats : (x->cell > y->cell) - (x->cell < y->cell);
}

/* All timing jobs, each repeat's in groups. */
static void run_side_by_side(const struct dpb_cells *cells, const struct dpb_sweep_plan *plan,
                             struct queue *queue, struct record *record, struct outcome *outcome)
{
    const struct dpb_sweep *sweep = cells->sweep;
    struct side_by_side sides = {sweep, queue, record, outcome};
    size_t n_jobs = 0;
    while (n_jobs < queue->n && !queue->jobs[n_jobs].accuracy)
        n_jobs++;
    struct dpb_turns_group group = {
        .cells = {cells, cells},
        .jobs = calloc(n_jobs + 1, sizeof *group.jobs),
        .before = dpb_deadline_in(sweep->options.limit_ns > 0
                                      ? sweep->options.limit_ns - (int64_t)(elapsed_s(queue) * 1e9)
                                      : -1),
        .seed = plan->seed,
        .block = next_block(record->document),
        .ended = cell_ended,
        .context = &sides};
    qsort(queue->jobs, n_jobs, sizeof *queue->jobs, by_cell);
    for (size_t at = 0, n = 0; group.jobs && at < n_jobs && outcome->status != DPB_INTERRUPTED;) {
        for (n = at; n < n_jobs && queue->jobs[n].repeat == queue->jobs[at].repeat;)
            n++;
        at += dpb_turns_group_fill(&plan->needs, queue->jobs + at, n - at, &group);
        group.budget_s = group_budget_s(sweep, plan, &group, n_jobs);
        group.looks = sweep->options.budget_ns > 0 && sweep->options.repeats == 1;
        if (dpb_turns_run(&group) != DPB_OK)
            *outcome = (struct outcome){DPB_INTERRUPTED, dpb_status_exit_code(DPB_FAILED)};
    }
    queue->next = n_jobs;
    free(group.jobs);
}

/* Runs all jobs into the document; returns the exit code. */
static int run_jobs(const struct dpb_cells *cells, const struct dpb_sweep_plan *plan,
                    struct queue *queue, struct record *record)
{
    const struct dpb_sweep *sweep = cells->sweep;
    struct outcome outcome = {DPB_OK, 0};
    struct sigaction old[DPB_ENDING_SIGNALS];
    struct dpb_sweep_job job;
    long shown = -1;
    signal_between_jobs = 0;
    dpb_signals_handle(note_signal, old);
    dpb_warnings_once(true);
    if (sweep->turns.on)
        run_side_by_side(cells, plan, queue, record, &outcome);
    while (next_job(sweep, queue, record, &shown, &job, &outcome))
        run_until_done(cells, &job, queue, record, &outcome);
    dpb_warnings_once(false);
    dpb_signals_restore(old);
    dpb_sweep_budget_report(&queue->budget, record->document);
    if (sweep->tunes)
        end_search(record, &outcome);
    /* If runs are missing there, the directory's document keeps the status `interrupted`. */
    if (outcome.status != DPB_INTERRUPTED && record->status == DPB_OK)
        record->status = keep_head(record, "ok");
    dpb_sweep_finish(outcome.status, record->document);
    if (dpb_verdict_failed(record->document))
        outcome.code = dpb_exit_code_first(outcome.code, dpb_status_exit_code(DPB_VERIFICATION));
    if (dpb_sweep_missed(record->document))
        outcome.code = dpb_exit_code_first(outcome.code, dpb_status_exit_code(DPB_REGRESSION));
    return dpb_exit_code_first(outcome.code, dpb_status_exit_code(record->status));
}

/* The empty document, the directory of its runs, and the results of a sweep before this one. */
static dpb_status begin(const struct dpb_sweep *sweep, const struct dpb_arguments *arguments,
                        const struct dpb_sweep_plan *plan, struct queue *queue,
                        struct record *record)
{
    DPB_TRY(plan_jobs(sweep, plan->seed, queue));
    record->prints_trials = sweep->tunes && !arguments->json;
    record->document = dpb_sweep_document(sweep);
    DPB_TRY(dpb_allocated(record->document));
    json_object_set_new(record->document, "invocation", dpb_result_invocation());
    DPB_TRY(dpb_result_begin(record->document, arguments->output, plan->results, plan->name,
                             record->directory));
    DPB_TRY(keep_head(record, "interrupted"));
    if (record->directory[0] != '\0')
        dpb_log(DPB_LOG_INFO, "runs: %s", record->directory);
    return arguments->resume ? take_done(sweep, arguments, queue, record) : DPB_OK;
}

/* Beside the directory of the runs: "FILE.json" and "FILE.runs". */
static int deliver(const struct dpb_arguments *arguments, const struct dpb_sweep_plan *plan,
                   const struct record *record)
{
    char path[PATH_MAX];
    struct dpb_arguments named = *arguments;
    named.dump = dpb_document_dump;
    size_t length = strlen(record->directory);
    if (!arguments->output && length > 0) {
        snprintf(path, sizeof path, "%.*s.json", (int)(length - strlen(".runs")),
                 record->directory);
        named.output = path;
    }
    const int code =
        dpb_document_deliver(record->document, &named, plan->results, plan->name,
                             record->prints_trials ? dpb_sweep_print_best : dpb_sweep_print);
    if (code == 0 && named.output &&
        (dpb_json_is(record->document, "status", "interrupted") ||
         dpb_json_number(record->document, "runs_left_out") > 0))
        dpb_log(DPB_LOG_INFO, "to run the rest: dpbench rerun %s --resume", named.output);
    return code;
}

int dpb_sweep_run(const struct dpb_arguments *arguments)
{
    struct dpb_sweep *sweep = NULL;
    struct queue queue = {.began_ns = dpb_now_ns()};
    struct record record = {.document = NULL};
    struct dpb_sweep_plan plan = {0};
    struct dpb_named_file files[DPB_ARGUMENTS_FILES];
    struct dpb_cells cells;
    dpb_stdout_aside();
    dpb_status status = dpb_sweep_create(arguments->config, &sweep);
    DPB_THEN(status, dpb_cells_open(sweep, &cells));
    dpb_arguments_files(arguments, files);
    DPB_THEN(status, dpb_sweep_find_refused(sweep, files, DPB_ARGUMENTS_FILES, &plan));
    DPB_THEN(status, plan_turns(arguments->config, sweep, &plan));
    DPB_THEN(status, dpb_result_probe(arguments->output, plan.results));
    DPB_THEN(status, begin(sweep, arguments, &plan, &queue, &record));
    int code = dpb_status_exit_code(status);
    if (status == DPB_OK) {
        code = run_jobs(&cells, &plan, &queue, &record);
        code = dpb_exit_code_first(code, deliver(arguments, &plan, &record));
    }
    json_decref(record.document);
    free(queue.jobs);
    dpb_turns_needs_release(&plan.needs);
    free(plan.results);
    free(plan.name);
    dpb_sweep_destroy(sweep);
    return code;
}
