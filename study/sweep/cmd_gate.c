/* cmd_gate.c - `dpbench gate --base OLD/dpbench -c FILE.ini`: runs an experiment, or each cell of a
 * sweep once, with the other build and with this one, and compares pair by pair. The two of a pair
 * run side by side, in turns (pair.h); where they cannot, one after the other. `dpbench gate comm`,
 * `data` and `links` run that command instead, and compare its series. With a
 * threshold pairs are taken until they decide (study/document/signed_rank.h), or until --repeats or
 * --budget ends them. */
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/cli.h"
#include "record/result_file.h"
#include "record/series.h"
#include "study/document/rows.h"
#include "study/document/signed_rank.h"
#include "study/sweep/check.h"
#include "study/sweep/child.h"
#include "study/sweep/pair.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_runs.h"
#include "study/table/compare.h"

enum {
    RETRIES = 3, /* of a disturbed run; a sweep repeats its own */
    REPEATS = 10 /* where nothing is judged */
};

struct gate {
    const char *base, *command; /* "comm"; NULL: run */
    const char *undecided;      /* "pass", "fail"; NULL: not given */
    int64_t repeats, budget_ns; /* pairs, at most; their time: 0 is no limit */
    double threshold;           /* a share; NaN: not given */
    char **words; /* @owned: the other words of the command line, for each run; ended by NULL */
    int n_words;
    bool is_sweep, has_seeds; /* by sweep.seeds */
    bool failed;              /* a cell of either, so far */
    bool decided;             /* at a look, so the last look is not taken */
};

/* ---- the command line ---------------------------------------------------------------------- */

/* An option and its value, of this command alone. */
static dpb_status take_option(const struct dpb_command *self, const char *option, const char *value,
                              struct gate *gate)
{
    const char *given = value ? value : "";
    if (strcmp(option, "--base") == 0)
        gate->base = value;
    else if (strcmp(option, "--threshold") == 0)
        return dpb_compare_threshold(self, given, &gate->threshold);
    else if (strcmp(option, "--undecided") == 0)
        return dpb_compare_undecided(self, given, &gate->undecided);
    else if (strcmp(option, "--budget") == 0 &&
             (!dpb_parse_time(given, NULL, &gate->budget_ns) || gate->budget_ns == 0))
        return dpb_usage_error(self, "--budget needs a time with its unit, as in 10min: no pair "
                                     "starts that would end later");
    else if (strcmp(option, "--repeats") == 0 &&
             (dpb_parse_int(given, &gate->repeats) != DPB_PARSED || gate->repeats < 2 ||
              gate->repeats > 1000))
        return dpb_usage_error(self, "--repeats needs a number from 2 to 1000");
    return DPB_OK;
}

static dpb_status check_options(const struct dpb_command *self, struct gate *gate)
{
    if (!gate->base)
        return dpb_usage_error(self, "which other build? give its program by --base OLD/dpbench");
    if (access(gate->base, X_OK) != 0)
        return dpb_fail(DPB_USAGE, "--base %s: %s", gate->base, strerror(errno));
    if (isnan(gate->threshold) && (gate->undecided || gate->budget_ns > 0))
        return dpb_usage_error(self, "%s: nothing is judged without --threshold",
                               gate->undecided ? "--undecided" : "--budget");
    if (gate->repeats == 0)
        gate->repeats = isnan(gate->threshold) ? REPEATS : DPB_LOOK_UNITS;
    return DPB_OK;
}

static dpb_status parse(const struct dpb_command *self, int argc, char **argv, struct gate *gate)
{
    gate->words = calloc((size_t)argc + 1, sizeof *gate->words);
    DPB_TRY(dpb_allocated(gate->words));
    gate->words[gate->n_words++] = argv[0];
    for (int i = 1; i < argc; i++) {
        if (i == 1 && dpb_text_lists("comm data links", " ", argv[i], strlen(argv[i]))) {
            gate->command = argv[i];
        } else if (dpb_text_lists("--base --threshold --undecided --budget --repeats", " ", argv[i],
                                  strlen(argv[i]))) {
            DPB_TRY(take_option(self, argv[i], i + 1 < argc ? argv[i + 1] : NULL, gate));
            i++;
        } else {
            gate->words[gate->n_words++] = argv[i];
        }
    }
    return check_options(self, gate);
}

/* ---- a run --------------------------------------------------------------------------------- */

/* The command line of a run, ended by NULL. @owned; NULL: out of memory. */
static const char **words_of(const struct gate *gate)
{
    const char **words = calloc((size_t)gate->n_words + 8, sizeof *words);
    int n = 0;
    if (!words)
        return NULL;
    words[n++] = "dpbench";
    words[n++] = gate->command ? gate->command : "run";
    for (int i = 1; i < gate->n_words; i++) {
        if (strcmp(gate->words[i], "--output") == 0)
            i++; /* the gate's own */
        else if (strcmp(gate->words[i], "--json") != 0)
            words[n++] = gate->words[i];
    }
    words[n++] = "--json";
    if (!gate->command)
        words[n++] = "run.results=";
    if (gate->is_sweep) {
        words[n++] = "sweep.repeats=1";
        if (gate->has_seeds)
            words[n++] = "sweep.seeds=1";
        words[n++] = "sweep.accuracy=0";
    }
    return words;
}

/* Runs `program` once. *code: its exit code, or 130 or 143 after a signal. *document: @owned, NULL
 * where it printed none. A sweep prints one with failed cells, too. */
static dpb_status run_once(const char *program, const struct gate *gate, int *code,
                           json_t **document)
{
    const char **words = words_of(gate);
    /* Each build has its own plugins. */
    const struct dpb_child child = {
        .program = program, .words = words, .without = "DPBENCH_PLUGIN_PATH"};
    struct dpb_child_end end = {0};
    *document = NULL;
    dpb_status status = dpb_allocated(words);
    DPB_THEN(status, dpb_child_run(&child, &end));
    if (status == DPB_OK) {
        *code = end.signal_number != 0 ? 128 + end.signal_number : end.code;
        if (*code == 0 || (gate->is_sweep && *code == 1))
            *document = json_loadb(end.out, end.out_bytes, 0, NULL);
        if (*code != 0)
            fwrite(end.err, 1, end.err_bytes, stderr);
        if (end.signal_number != 0)
            status = DPB_INTERRUPTED;
        else if (*code == 0 && !*document)
            status = dpb_fail(DPB_FAILED, "%s printed no result", program);
    }
    dpb_child_release(&end);
    free((void *)words);
    return status;
}

/* ---- turns of a command that has series ------------------------------------------------------ */

/* The turns of a build as one document, whose repeats are the turns. */
struct turns {
    json_t *document; /* @owned; NULL: no turn yet */
    size_t n;
};

static json_t *row_of(json_t *document, json_t *key)
{
    json_t *row = dpb_json_find(json_object_get(document, "series"), "key", key);
    return row ? row : dpb_series_add(document, json_incref(key));
}

/* Appends the mean of each field as the value of repeat `repeat`; those before it that it lacks
 * have none. */
static void add_turn(struct turns *turns, const json_t *made, uint32_t repeat)
{
    if (!turns->document) {
        turns->document = json_copy((json_t *)(uintptr_t)made);
        json_object_set_new(turns->document, "series", json_array());
    }
    dpb_each_item(json_object_get(made, "series"), i, one) {
        json_t *values =
            json_object_get(row_of(turns->document, json_object_get(one, "key")), "values");
        dpb_each_member(json_object_get(one, "values"), field, unused) {
            (void)unused;
            struct dpb_estimate estimate;
            size_t n;
            double *x = dpb_series_values(one, field, &n);
            dpb_series_estimate(x, n, &estimate);
            free(x);
            if (!json_object_get(values, field))
                json_object_set_new(values, field, json_array());
            json_t *list = json_object_get(values, field);
            while (json_array_size(list) < repeat)
                json_array_append_new(list, json_null());
            json_array_append_new(list, dpb_json_real(exp(estimate.mean)));
        }
    }
    turns->n++;
}

/* A build. */
struct side {
    const char *name, *program;
    json_t *document;        /* @owned: a sweep of all runs; NULL: of a command with series */
    struct turns clean, all; /* of such a command; clean ones, if there are two, count alone */
};

static dpb_status take_series_turn(struct gate *gate, uint32_t repeat, struct side *side, int *code)
{
    json_t *made = NULL;
    bool disturbed = true;
    for (int i = 0; disturbed && i <= RETRIES; i++) {
        json_decref(made);
        DPB_TRY(run_once(side->program, gate, code, &made));
        if (!json_object_get(made, "series")) {
            const bool ended = made != NULL;
            json_decref(made);
            return ended ? dpb_fail(DPB_USAGE,
                                    "%s: %s is of a time when `dpbench %s` had no series; gate it "
                                    "by `dpbench run`",
                                    side->name, side->program, gate->command)
                         : dpb_fail(DPB_FAILED, "%s: %s ended with exit code %d", side->name,
                                    side->program, *code);
        }
        disturbed = dpb_json_true(made, "load.disturbed");
        dpb_log(DPB_LOG_INFO, "[%u/%lld] %s%s", repeat + 1, (long long)gate->repeats, side->name,
                disturbed ? ": disturbed" : "");
    }
    add_turn(&side->all, made, repeat);
    if (!disturbed)
        add_turn(&side->clean, made, repeat);
    json_decref(made);
    return DPB_OK;
}

/* The document that counts. @borrowed. */
static json_t *series_of(struct side *side)
{
    json_t *load = json_object_get(side->all.document, "load");
    if (side->clean.n >= 2)
        return side->clean.document;
    if (side->clean.n < side->all.n)
        json_object_set_new(load, "disturbed", json_true());
    return side->all.document;
}

/* ---- turns --------------------------------------------------------------------------------- */

/* Adds a run, or those of a sweep, as this repeat. Returns a rate to show. */
static double add_runs(const struct dpb_sweep *sweep, json_t *made, uint32_t repeat,
                       struct side *side)
{
    const json_t *runs = json_object_get(made, "runs");
    size_t n = runs ? json_array_size(runs) : 1;
    double rate = NAN;
    for (size_t i = 0; i < n; i++) {
        json_t *run = runs ? json_array_get(runs, i) : made;
        double cell = runs ? dpb_json_number(run, "cell_index") : 0;
        if (strcmp(dpb_json_text(run, "purpose", "timing"), "timing") != 0 ||
            !(cell >= 0 && cell < (double)sweep->n_cells))
            continue;
        const struct dpb_sweep_job job = {.cell = (size_t)cell, .repeat = repeat};
        rate = dpb_json_number(run, "timing.samples_per_s.mean");
        dpb_sweep_add(sweep, &job, json_incref(run), side->document);
    }
    return rate;
}

static dpb_status take_turn(struct gate *gate, const struct dpb_sweep *sweep, uint32_t repeat,
                            struct side *side, int *code)
{
    bool again = true;
    for (int i = 0; again && i <= RETRIES; i++) {
        json_t *made = NULL;
        DPB_TRY(run_once(side->program, gate, code, &made));
        if (!made)
            return dpb_fail(DPB_FAILED, "%s: %s ended with exit code %d", side->name, side->program,
                            *code);
        gate->failed |= *code != 0;
        again = !gate->is_sweep && dpb_json_true(made, "load.disturbed");
        double rate = add_runs(sweep, made, repeat, side);
        dpb_log(DPB_LOG_INFO, "[%u/%lld] %s: %.1f samples/s%s%s", repeat + 1,
                (long long)gate->repeats, side->name, rate,
                gate->is_sweep ? " in the last cell" : "", again ? ", disturbed" : "");
        json_decref(made);
    }
    return DPB_OK;
}

/* ---- pairs --------------------------------------------------------------------------------- */

/* The gate's work: sides[0] is the base. */
struct work {
    struct gate *gate;
    struct dpb_sweep *sweep; /* NULL: of a command with series */
    struct side sides[2];
    bool side_by_side;
    struct dpb_pairs pairs; /* if so */
    char own[PATH_MAX];
};

/* The end of a cell of this pair by one build. */
static dpb_status take_cell(struct work *work, struct side *side, const struct dpb_sweep_job *job,
                            struct dpb_execution *made, int *code)
{
    const bool is_sweep = work->gate->is_sweep, failed = made->status != DPB_OK;
    if (made->status == DPB_INTERRUPTED || (failed && !is_sweep))
        *code = made->exit_code;
    if (made->status == DPB_INTERRUPTED)
        return DPB_INTERRUPTED;
    if (failed && !is_sweep)
        return dpb_fail(DPB_FAILED, "%s: %s ended with exit code %d", side->name, side->program,
                        made->exit_code);
    work->gate->failed |= failed;
    if (made->result)
        dpb_sweep_add(work->sweep, job, json_incref(made->result), side->document);
    return DPB_OK;
}

/* A pair of each cell, side by side. */
static dpb_status take_side_by_side(struct work *work, uint32_t pair, int *code)
{
    const struct dpb_sweep *sweep = work->sweep;
    dpb_status status = DPB_OK;
    for (size_t cell = 0; cell < sweep->n_cells && status == DPB_OK; cell++) {
        const struct dpb_sweep_job job = {.cell = cell, .repeat = pair};
        struct dpb_execution made[2] = {{.status = DPB_OK}};
        double rates[2];
        char label[256];
        if (dpb_sweep_is_refused(sweep, cell))
            continue;
        dpb_sweep_label(sweep, &job, label, sizeof label);
        status = dpb_pairs_run(&work->pairs, cell, made);
        for (size_t i = 0; i < 2; i++) {
            rates[i] = dpb_json_number(made[i].result, "timing.samples_per_s.mean");
            DPB_THEN(status, take_cell(work, &work->sides[i], &job, &made[i], code));
            json_decref(made[i].result);
        }
        if (status == DPB_OK)
            dpb_log(DPB_LOG_INFO, "[%u/%lld] %s%sbase: %.1f samples/s, this: %.1f", pair + 1,
                    (long long)work->gate->repeats, label, label[0] == '\0' ? "" : ": ", rates[0],
                    rates[1]);
    }
    return status;
}

static json_t *document_of(const struct work *work, struct side *side, bool last)
{
    if (!work->sweep)
        return series_of(side);
    if (last)
        dpb_sweep_finish(DPB_OK, side->document);
    else
        dpb_sweep_make_rows(side->document);
    return side->document;
}

/* Compares all pairs so far. *comparison: @owned. */
static dpb_status compare(struct work *work, bool last, json_t **comparison)
{
    const struct gate *gate = work->gate;
    char here[PATH_MAX];
    const char *own = realpath(work->own, here);
    const struct dpb_compared a = {gate->base, document_of(work, &work->sides[0], last)};
    const struct dpb_compared b = {own ? own : work->own, document_of(work, &work->sides[1], last)};
    const size_t planned = isnan(gate->threshold) ? 0 : (size_t)gate->repeats;
    const struct dpb_compare_how how = {.threshold = gate->threshold,
                                        .paired = true,
                                        .side_by_side = work->side_by_side,
                                        .looks = {planned, last}};
    bool regression;
    return dpb_compare_make(&a, &b, &how, comparison, &regression);
}

/* Whether the pairs so far have decided, for each cell. */
static dpb_status look(struct work *work, size_t n_pairs, bool *decided)
{
    json_t *comparison = NULL;
    if (isnan(work->gate->threshold) || n_pairs < DPB_LOOK_FIRST)
        return DPB_OK;
    DPB_TRY(compare(work, false, &comparison));
    *decided = json_object_get(comparison, "rows") != NULL;
    dpb_each_item(json_object_get(comparison, "rows"), i, row)
        *decided &= !dpb_json_is(row, "judgement", "undecided");
    json_decref(comparison);
    return DPB_OK;
}

/* Whether another pair would end within the budget, if it takes as long as the longest so far. */
static bool is_affordable(const struct gate *gate, int64_t elapsed_ns, int64_t longest_ns)
{
    return gate->budget_ns == 0 || elapsed_ns + longest_ns <= gate->budget_ns;
}

/* One after the other they are A B, B A, A B, ...: a slow change of the machine favours neither. */
static dpb_status take_pair(struct work *work, uint32_t n, int *code)
{
    if (work->side_by_side)
        return take_side_by_side(work, n, code);
    for (uint32_t turn = 0; turn < 2; turn++) {
        struct side *side = &work->sides[(n + turn) % 2];
        DPB_TRY(work->sweep ? take_turn(work->gate, work->sweep, n, side, code)
                            : take_series_turn(work->gate, n, side, code));
    }
    return DPB_OK;
}

static dpb_status take_pairs(struct work *work, int *code)
{
    struct gate *gate = work->gate;
    const int64_t began_ns = dpb_now_ns();
    int64_t longest_ns = 0;
    bool decided = false;
    uint32_t n = 0;
    while (n < gate->repeats && !decided &&
           is_affordable(gate, dpb_now_ns() - began_ns, longest_ns)) {
        const int64_t pair_ns = dpb_now_ns();
        DPB_TRY(take_pair(work, n, code));
        n++;
        if (dpb_now_ns() - pair_ns > longest_ns)
            longest_ns = dpb_now_ns() - pair_ns;
        if (n < gate->repeats)
            DPB_TRY(look(work, n, &decided));
    }
    for (size_t i = 0; i < 2 && work->sweep; i++)
        json_object_set_new(work->sides[i].document, "repeats", json_integer(n));
    dpb_log(DPB_LOG_INFO, "%u pair%s%s", n, n == 1 ? "" : "s",
            decided             ? " have decided"
            : n < gate->repeats ? "; --budget is spent"
                                : "");
    /* What was decided at a look stands: the last look would have other intervals. */
    gate->decided = decided;
    return DPB_OK;
}

/* Compares, prints and judges. */
static dpb_status conclude(struct work *work, const struct dpb_arguments *arguments, int *code)
{
    const struct gate *gate = work->gate;
    json_t *comparison = NULL;
    DPB_TRY(compare(work, !gate->decided, &comparison));
    *code = dpb_document_deliver(comparison, arguments, "", "gate", dpb_compare_print);
    const bool regression = dpb_json_is(comparison, "judgement", "regression");
    dpb_status status =
        regression || !gate->failed
            ? dpb_compare_status(comparison, gate->undecided)
            : dpb_fail(DPB_FAILED, "a cell of either build has failed, as the lines "
                                   "above say");
    json_decref(comparison);
    *code = dpb_exit_code_first(*code, dpb_status_exit_code(status));
    return DPB_OK;
}

/* Side by side, if they can. files[DPB_ARGUMENTS_FILES]: those of the command. */
static dpb_status arrange(struct work *work, const struct dpb_named_file *files)
{
    const char *const programs[2] = {work->sides[0].program, work->sides[1].program};
    struct dpb_sweep_plan plan = {0};
    dpb_status status = dpb_pairs_open(work->sweep, programs, &work->pairs);
    work->side_by_side = status == DPB_OK;
    if (status == DPB_UNSUPPORTED) {
        dpb_log(DPB_LOG_INFO, "the two builds run one after the other: %s", dpb_first_error(NULL));
        dpb_first_error_clear();
        return DPB_OK;
    }
    DPB_THEN(status, dpb_sweep_find_refused(work->sweep, files, DPB_ARGUMENTS_FILES, &plan));
    free(plan.results);
    free(plan.name);
    return status;
}

/* *code is set where the status is DPB_OK, or a run failed. */
static dpb_status run_gate(struct work *work, struct dpb_arguments *arguments, int *code)
{
    struct gate *gate = work->gate;
    struct dpb_sweep *sweep = NULL;
    gate->is_sweep = dpb_sweep_wanted(arguments->config);
    if (dpb_tune_wanted(arguments->config))
        return dpb_fail(DPB_USAGE, "`dpbench gate` runs the same cells by both builds, and [tune] "
                                   "would choose them; leave it out, or make it a [sweep]");
    DPB_TRY(dpb_config_set(arguments->config, "run", "results", "", "gate"));
    DPB_TRY(dpb_sweep_create(arguments->config, &sweep));
    work->sweep = sweep;
    sweep->options.repeats = gate->repeats;
    gate->has_seeds = sweep->options.seeds > 0;
    struct dpb_named_file files[DPB_ARGUMENTS_FILES];
    dpb_arguments_files(arguments, files);
    dpb_status status = dpb_result_probe(arguments->output, "");
    DPB_THEN(status, dpb_outputs_apart(files, DPB_ARGUMENTS_FILES));
    for (size_t i = 0; i < 2 && status == DPB_OK; i++) {
        work->sides[i].document = dpb_sweep_document(sweep);
        status = dpb_allocated(work->sides[i].document);
    }
    DPB_THEN(status, arrange(work, files));
    DPB_THEN(status, take_pairs(work, code));
    DPB_THEN(status, conclude(work, arguments, code));
    dpb_pairs_release(&work->pairs);
    dpb_sweep_destroy(sweep);
    return status;
}

/* The words but the form of this command's own document are the measuring command's, which checks
 * them. */
static dpb_status parse_form(const struct dpb_command *self, const struct gate *gate,
                             struct dpb_arguments *arguments)
{
    for (int i = 1; i < gate->n_words; i++)
        if (strcmp(gate->words[i], "--json") == 0 || strcmp(gate->words[i], "--output") == 0)
            DPB_TRY(dpb_arguments_take_form(self, 0, gate->n_words, gate->words, &i, arguments));
    return dpb_result_probe(arguments->output, "");
}

static dpb_status gate_any(const struct dpb_command *self, struct work *work,
                           struct dpb_arguments *arguments, int *code)
{
    struct gate *gate = work->gate;
    struct dpb_signals both; /* they wait for the next run */
    if (gate->command)
        DPB_TRY(parse_form(self, gate, arguments));
    else
        DPB_TRY(dpb_arguments_parse(self, DPB_ACCEPTS_CONFIG | DPB_ACCEPTS_OUTPUT, NULL,
                                    gate->n_words, gate->words, arguments));
    DPB_TRY(dpb_program_itself(work->own));
    dpb_signals_hold(&both, 0, 0);
    if (!gate->command)
        return run_gate(work, arguments, code);
    DPB_TRY(take_pairs(work, code));
    return conclude(work, arguments, code);
}

static int command_gate(const struct dpb_command *self, int argc, char **argv)
{
    struct gate gate = {.threshold = NAN};
    struct dpb_arguments arguments = {0};
    struct work work = {.gate = &gate};
    int code = 0;
    dpb_status status = parse(self, argc, argv, &gate);
    work.sides[0] = (struct side){.name = "base", .program = gate.base};
    work.sides[1] = (struct side){.name = "this", .program = work.own};
    DPB_THEN(status, gate_any(self, &work, &arguments, &code));
    if (status != DPB_OK && code == 0)
        code = dpb_status_exit_code(status);
    for (size_t i = 0; i < 2; i++) {
        json_decref(work.sides[i].document);
        json_decref(work.sides[i].clean.document);
        json_decref(work.sides[i].all.document);
    }
    dpb_arguments_release(&arguments);
    free((void *)gate.words);
    return code;
}

DPB_PROGRAM("gate", command_gate)
