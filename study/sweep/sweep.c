/* sweep.c - from [sweep] or [tune] to jobs and their order: see sweep.h. */
#include "study/sweep/sweep.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/derive.h"
#include "plan/experiment.h"
#include "study/sweep/launch_line.h"
#include "study/sweep/published_read.h"
#include "study/sweep/sweep_list.h"
#include "study/sweep/sweep_option.h"
#include "study/sweep/sweep_own.h"

enum { MAX_JOBS = 100000 };

/* The first setting of a section; NULL: it has none. */
static const struct dpb_setting *first_of(const struct dpb_config *config, const char *section)
{
    for (size_t i = 0; i < config->n_settings; i++)
        if (strcmp(config->settings[i].section, section) == 0)
            return &config->settings[i];
    return NULL;
}

/* ---- axes ---------------------------------------------------------------------------------- */

static void axis_release(struct dpb_sweep_axis *axis)
{
    dpb_sweep_list_destroy(axis->values, axis->n_values);
    free(axis->section);
    free(axis->key);
    free(axis->origin);
    *axis = (struct dpb_sweep_axis){0};
}

static dpb_status refuse_key(const struct dpb_settings_section *study,
                             const struct dpb_setting *setting)
{
    char text[256];
    struct dpb_text keys = dpb_text_in(text, sizeof text);
    for (const struct dpb_option *row = study->rows; row->name; row++)
        dpb_text_item(&keys, ", ", "%s", row->name);
    return dpb_fail(DPB_USAGE, "%s: '%s' is no key of [%s]: write SECTION.KEY = LIST, or one of %s",
                    setting->origin, setting->key, study->name, text);
}

static dpb_status axis_create(const struct dpb_settings_section *study,
                              const struct dpb_setting *setting, struct dpb_sweep_axis *axis)
{
    const char *dot = strchr(setting->key, '.');
    if (!dot || dot == setting->key || dot[1] == '\0')
        return refuse_key(study, setting);
    axis->section = strndup(setting->key, (size_t)(dot - setting->key));
    axis->key = strdup(dot + 1);
    axis->origin = strdup(setting->origin);
    DPB_TRY(dpb_allocated(axis->section && axis->key && axis->origin));
    for (size_t i = 0; i < DPB_STUDIES; i++)
        if (strcmp(axis->section, dpb_studies[i].name) == 0)
            return dpb_fail(DPB_USAGE, "%s: '%s' cannot be an axis of [%s]", axis->origin,
                            setting->key, study->name);
    char name[512];
    snprintf(name, sizeof name, "%s: %s.%s", axis->origin, study->name, setting->key);
    return dpb_sweep_list(setting->value, name, &axis->values, &axis->n_values);
}

/* Whether `setting` is an axis, and of another length of the run than `axis` is. */
static bool is_another_length(const struct dpb_settings_section *study,
                              const struct dpb_setting *setting, const struct dpb_sweep_axis *axis)
{
    return strcmp(setting->section, study->name) == 0 && dpb_begins_with(setting->key, "run.") &&
           dpb_is_run_length("run", setting->key + 4) &&
           dpb_is_run_length(axis->section, axis->key) && strcmp(setting->key + 4, axis->key) != 0;
}

/* Whether the command line says otherwise than the file's axis: then it holds, for all cells. */
static dpb_status overridden(const struct dpb_settings_section *study,
                             const struct dpb_config *config, const struct dpb_sweep_axis *axis,
                             bool *yes)
{
    bool axis_is_late = strcmp(axis->origin, DPB_COMMAND_LINE) == 0;
    *yes = false;
    for (size_t i = 0; i < config->n_settings; i++) {
        const struct dpb_setting *s = &config->settings[i];
        bool late = strcmp(s->origin, DPB_COMMAND_LINE) == 0;
        bool same = strcmp(s->section, axis->section) == 0 && strcmp(s->key, axis->key) == 0;
        bool instead =
            dpb_is_run_length(s->section, s->key) && dpb_is_run_length(axis->section, axis->key);
        bool holds = late ? same || instead || is_another_length(study, s, axis)
                          : !axis_is_late && is_another_length(study, s, axis);
        if (!holds)
            continue;
        if (late == axis_is_late)
            return dpb_fail(DPB_USAGE, "%s: %s.%s and %s.%s.%s are both given; leave one out",
                            s->origin, s->section, s->key, study->name, axis->section, axis->key);
        *yes = true;
    }
    return DPB_OK;
}

/* `left`: room for the axes that the command line replaced, and their number. */
static dpb_status create_axes(const struct dpb_config *config, struct dpb_sweep *sweep,
                              struct dpb_sweep_axis *left, size_t *n_left)
{
    sweep->axes = calloc(config->n_settings + 1, sizeof *sweep->axes);
    DPB_TRY(dpb_allocated(sweep->axes));
    sweep->n_cells = 1;
    for (size_t i = 0; i < config->n_settings; i++) {
        const struct dpb_setting *setting = &config->settings[i];
        if (strcmp(setting->section, sweep->study->name) != 0 ||
            dpb_options_find(sweep->study->rows, setting->key) ||
            dpb_sweep_own_is(sweep->study, setting))
            continue;
        struct dpb_sweep_axis *axis = &sweep->axes[sweep->n_axes++];
        bool leave_out = false;
        DPB_TRY(axis_create(sweep->study, setting, axis));
        DPB_TRY(overridden(sweep->study, config, axis, &leave_out));
        if (leave_out) {
            dpb_config_remove(sweep->given, setting->section, setting->key);
            left[(*n_left)++] = *axis;
            *axis = (struct dpb_sweep_axis){0};
            sweep->n_axes--;
            continue;
        }
        if (strcmp(setting->key, sweep->options.over) == 0) {
            sweep->replicates = *axis;
            *axis = (struct dpb_sweep_axis){0};
            sweep->n_axes--;
            continue;
        }
        if (axis->n_values > MAX_JOBS / sweep->n_cells)
            return dpb_fail(DPB_USAGE, "%s: [%s] has more than %d cells", axis->origin,
                            sweep->study->name, MAX_JOBS);
        sweep->n_cells *= axis->n_values;
    }
    return DPB_OK;
}

/* `seeds` as replicates: run.seed and the numbers behind it. */
static dpb_status create_seeds(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    const char *origin = dpb_config_get(config, sweep->study->name, "seeds")->origin;
    const struct dpb_setting *given = dpb_config_get(config, "run", "seed");
    const char *text =
        given ? given->value : dpb_options_find(dpb_settings_rows("run"), "seed")->def;
    struct dpb_sweep_axis *seeds = &sweep->replicates;
    int64_t first;
    if (sweep->options.over[0] != '\0')
        return dpb_fail(DPB_USAGE, "%s: sweep.seeds and sweep.over are both given; leave one out",
                        origin);
    if (dpb_sweep_axis_of(sweep, "run", "seed"))
        return dpb_fail(DPB_USAGE, "%s: %s.seeds and an axis run.seed: leave one out%s", origin,
                        sweep->study->name,
                        sweep->tunes ? ""
                                     : ", or make the axis replicates by sweep.over = run.seed");
    if (dpb_parse_int(text, &first) != DPB_PARSED || first < 0)
        return dpb_fail(DPB_USAGE, "%s: run.seed = '%s' is no whole number from 0",
                        given ? given->origin : origin, text);
    seeds->section = strdup("run");
    seeds->key = strdup("seed");
    seeds->origin = strdup(origin);
    seeds->values = calloc((size_t)sweep->options.seeds, sizeof *seeds->values);
    DPB_TRY(dpb_allocated(seeds->section && seeds->key && seeds->origin && seeds->values));
    for (; seeds->n_values < (size_t)sweep->options.seeds; seeds->n_values++) {
        char value[32];
        const uint64_t seed = (uint64_t)first + seeds->n_values;
        snprintf(value, sizeof value, "%" PRIu64, seed);
        seeds->values[seeds->n_values] = strdup(value);
        DPB_TRY(dpb_allocated(seeds->values[seeds->n_values]));
    }
    return DPB_OK;
}

static bool is_late(const struct dpb_setting *setting)
{
    return strcmp(setting->origin, DPB_COMMAND_LINE) == 0;
}

/* As many repeats as replicates. The command line may ask for fewer of those of the file. */
static dpb_status set_repeats(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    const char *section = sweep->study->name;
    const struct dpb_setting *repeats = dpb_config_get(config, section, "repeats");
    if (sweep->turns.on && !repeats)
        sweep->options.repeats = 1;
    const struct dpb_setting *over = dpb_config_get(config, "sweep", "over");
    if (sweep->options.seeds > 0) {
        DPB_TRY(create_seeds(config, sweep));
        over = dpb_config_get(config, section, "seeds");
    }
    const int64_t n = (int64_t)sweep->replicates.n_values;
    if (n == 0 && sweep->options.over[0] != '\0')
        return dpb_fail(DPB_USAGE, "%s: sweep.over = %s: give its values, as sweep.%s = LIST",
                        over->origin, sweep->options.over, sweep->options.over);
    if (n > 0 && !repeats)
        sweep->options.repeats = n;
    const int64_t n_repeats = sweep->options.repeats;
    if (n > 0 &&
        (n_repeats > n ||
         (n_repeats < n && (!is_late(repeats) || (sweep->options.seeds > 0 && is_late(over))))))
        return dpb_fail(
            DPB_USAGE,
            "%s: %s.repeats = %lld, but %s: %s.%s gives %s.%s %lld value%s, one for each "
            "repeat: leave %s.repeats out",
            repeats->origin, section, (long long)n_repeats, over->origin, section, over->key,
            sweep->replicates.section, sweep->replicates.key, (long long)n, n == 1 ? "" : "s",
            section);
    return DPB_OK;
}

/* sweep.turns: yes, no, a time, or "30 steps". */
static dpb_status read_turns(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    const char *text = sweep->options.turns;
    const size_t digits = strspn(text, "0123456789");
    sweep->turns.on = true;
    if (digits > 0 && strcmp(text + digits + strspn(text + digits, " "), "steps") == 0) {
        sweep->turns.steps = strtoll(text, NULL, 10);
        return sweep->turns.steps > 0
                   ? DPB_OK
                   : dpb_config_fail(config, DPB_USAGE, "sweep", "turns", "a turn has no steps");
    }
    if (dpb_parse_bool(text, &sweep->turns.on))
        return DPB_OK;
    if (dpb_parse_time(text, NULL, &sweep->turns.ns) && sweep->turns.ns >= 50000000)
        return DPB_OK;
    return dpb_config_fail(config, DPB_USAGE, "sweep", "turns",
                           "sweep.turns = '%s': give yes, no, a turn's time of 50 ms or more, as "
                           "0.5 s, or its steps, as 30 steps",
                           text);
}

/* The axes, and those settings of a value that the command line has not replaced. */
static dpb_status read_axes(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    struct dpb_sweep_axis *left = calloc(config->n_settings + 1, sizeof *left);
    size_t n_left = 0;
    dpb_status status = dpb_allocated(left);
    DPB_THEN(status, create_axes(config, sweep, left, &n_left));
    DPB_THEN(status, dpb_sweep_own_read(sweep, left, n_left));
    for (size_t i = 0; i < n_left; i++)
        axis_release(&left[i]);
    free(left);
    return status;
}

/* A run has one length: those of [run] make room for the setting, where it is one. */
static void remove_lengths(const char *section, const char *key, struct dpb_config *config)
{
    for (size_t i = 0; dpb_run_lengths[i] && dpb_is_run_length(section, key); i++)
        dpb_config_remove(config, "run", dpb_run_lengths[i]);
}

static dpb_status set(struct dpb_config *config, const char *section, const char *key,
                      const char *value, const char *origin)
{
    remove_lengths(section, key, config);
    return dpb_config_set(config, section, key, value, origin);
}

static dpb_status set_axis(const struct dpb_sweep_axis *axis, const char *value,
                           struct dpb_config *config)
{
    DPB_TRY(set(config, axis->section, axis->key, value, axis->origin));
    dpb_config_mark(config, axis->section, axis->key, DPB_FROM_AXIS);
    return DPB_OK;
}

/* A cell's axes, and the settings of their values. */
static dpb_status set_cell(const struct dpb_sweep *sweep, size_t cell, struct dpb_config *config)
{
    for (size_t i = 0; i < sweep->n_axes; i++)
        DPB_TRY(set_axis(&sweep->axes[i], dpb_sweep_value(sweep, cell, i), config));
    for (size_t i = 0; i < sweep->n_own; i++)
        for (size_t k = 0; k < sweep->own[i].settings->n_settings; k++) {
            const struct dpb_setting *s = &sweep->own[i].settings->settings[k];
            if (!dpb_sweep_owns(sweep, cell, &sweep->own[i]))
                continue;
            DPB_TRY(set(config, s->section, s->key, s->value, s->origin));
            dpb_config_mark(config, s->section, s->key, DPB_FROM_AXIS);
        }
    return DPB_OK;
}

/* With all settings of the sweep, also those that the cell's plugins lack. */
static dpb_status cell_config(const struct dpb_sweep *sweep, size_t cell,
                              struct dpb_config **config)
{
    struct dpb_config *made = dpb_config_copy(sweep->base);
    dpb_status status = dpb_allocated(made);
    DPB_THEN(status, set_cell(sweep, cell, made));
    if (status != DPB_OK)
        dpb_config_destroy(made);
    else
        *config = made;
    return status;
}

/* Keeps the cells for which sweep.when holds. */
static dpb_status choose_cells(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    const struct dpb_setting *when = dpb_config_get(config, "sweep", "when");
    size_t n = sweep->n_cells;
    sweep->cells = calloc(n + 1, sizeof *sweep->cells);
    DPB_TRY(dpb_allocated(sweep->cells));
    sweep->n_cells = 0;
    DPB_TRY(dpb_sweep_check_values(sweep));
    for (size_t i = 0; i < n; i++) {
        bool holds = true;
        char name[512];
        sweep->cells[sweep->n_cells] = i; /* dpb_sweep_read_value looks at this one */
        if (when && when->value[0] != '\0') {
            struct dpb_sweep_reading reading = {.sweep = sweep};
            snprintf(name, sizeof name, "%s: sweep.when", when->origin);
            DPB_TRY(cell_config(sweep, sweep->n_cells, &reading.config));
            const dpb_status status = dpb_sweep_when(when->value, name, dpb_sweep_read_value,
                                                     dpb_sweep_read_number, &reading, &holds);
            dpb_config_destroy(reading.config);
            DPB_TRY(status);
        }
        sweep->n_cells += holds;
    }
    if (sweep->n_cells == 0)
        return dpb_fail(DPB_USAGE, "%s: sweep.when holds for no cell", when->origin);
    if (sweep->n_cells > (size_t)(MAX_JOBS / sweep->options.repeats))
        return dpb_fail(DPB_USAGE,
                        "%s: [%s] has %zu cells and %lld repeats: more than %d runs; leave out "
                        "values of its axes, or repeats",
                        first_of(config, sweep->study->name)->origin, sweep->study->name,
                        sweep->n_cells, (long long)sweep->options.repeats, MAX_JOBS);
    return DPB_OK;
}

static dpb_status choose_study(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    const struct dpb_setting *tune = first_of(config, "tune");
    if (tune && first_of(config, "sweep"))
        return dpb_fail(DPB_USAGE, "%s: [tune] stands beside a [sweep] (%s); leave one out",
                        tune->origin, first_of(config, "sweep")->origin);
    const struct dpb_setting *published = first_of(config, "published");
    if (published && !first_of(config, "sweep"))
        return dpb_fail(DPB_USAGE,
                        "%s: [published] has figures for the cells of a [sweep]: add one",
                        published->origin);
    sweep->tunes = tune != NULL;
    sweep->study = &dpb_studies[tune ? DPB_STUDY_TUNE : DPB_STUDY_SWEEP];
    sweep->options.when = sweep->options.over = "";
    return DPB_OK;
}

/* The setting at which a run ends; NULL: none. */
static const struct dpb_setting *target_of(const struct dpb_config *config)
{
    const struct dpb_setting *accuracy = dpb_config_get(config, "eval", "target");
    return accuracy ? accuracy : dpb_config_get(config, "eval", "target_loss");
}

/* The needs of a search beside the rows of its section. */
static dpb_status check_search(const struct dpb_config *config, const struct dpb_sweep *sweep)
{
    const char *origin = first_of(config, "tune")->origin;
    if (sweep->n_axes == 0)
        return dpb_fail(DPB_USAGE, "%s: [tune] has no axis: write SECTION.KEY = LIST", origin);
    if (sweep->options.objective == DPB_OBJECTIVE_TARGET && !target_of(config))
        return dpb_config_fail(
            config, DPB_USAGE, "tune", "objective",
            "tune.objective = time_to_target needs a target: set eval.target or target_loss");
    return DPB_OK;
}

static void remove_section(const char *section, struct dpb_config *config)
{
    for (const struct dpb_setting *s; (s = first_of(config, section)) != NULL;)
        dpb_config_remove(config, section, s->key);
}

/* The settings of single runs alone. */
static dpb_status make_base(struct dpb_sweep *sweep)
{
    sweep->base = dpb_config_copy(sweep->given);
    DPB_TRY(dpb_allocated(sweep->base));
    for (size_t i = 0; i < DPB_STUDIES; i++)
        remove_section(dpb_studies[i].name, sweep->base);
    for (size_t i = 0; i < sweep->base->n_settings;) {
        const struct dpb_setting *s = &sweep->base->settings[i];
        const bool own = dpb_sweep_own_is(sweep->study, s);
        if (own)
            dpb_config_remove(sweep->base, s->section, s->key);
        i += !own;
    }
    for (size_t i = 0; i < sweep->n_axes; i++)
        remove_lengths(sweep->axes[i].section, sweep->axes[i].key, sweep->base);
    return DPB_OK;
}

static dpb_status fill(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    DPB_TRY(choose_study(config, sweep));
    const char *section = sweep->study->name;
    const struct dpb_option_table table = {section, NULL, sweep->study->rows, &sweep->options};
    DPB_TRY(dpb_options_parse_known(&table, config));
    if (!dpb_config_get(config, section, "retry_budget"))
        sweep->options.retry_budget_ns = -1;
    DPB_TRY(dpb_sweep_launch_check(config, sweep));
    sweep->given = dpb_config_copy(config);
    DPB_TRY(dpb_allocated(sweep->given));
    DPB_TRY(read_axes(config, sweep));
    if (!first_of(sweep->given, section)) /* a rerun is of a sweep, too */
        DPB_TRY(dpb_config_set(sweep->given, section, "skip_refused",
                               sweep->options.skip_refused ? "yes" : "no", DPB_COMMAND_LINE));
    if (!sweep->tunes)
        DPB_TRY(read_turns(config, sweep));
    DPB_TRY(set_repeats(config, sweep));
    if (sweep->tunes)
        DPB_TRY(check_search(config, sweep));
    const struct dpb_setting *target = target_of(config);
    if (target && sweep->options.accuracy > 0)
        return dpb_fail(DPB_USAGE,
                        "%s: with eval.%s every run of a sweep has its accuracy: leave "
                        "sweep.accuracy out",
                        target->origin, target->key);
    DPB_TRY(make_base(sweep));
    DPB_TRY(choose_cells(config, sweep));
    return dpb_published_read(config, sweep);
}

dpb_status dpb_sweep_create(const struct dpb_config *config, struct dpb_sweep **sweep)
{
    struct dpb_sweep *result = calloc(1, sizeof *result);
    DPB_TRY(dpb_allocated(result));
    dpb_status status = fill(config, result);
    if (status != DPB_OK)
        dpb_sweep_destroy(result);
    else
        *sweep = result;
    return status;
}

void dpb_sweep_destroy(struct dpb_sweep *sweep)
{
    if (!sweep)
        return;
    for (size_t i = 0; i < sweep->n_axes; i++)
        axis_release(&sweep->axes[i]);
    axis_release(&sweep->replicates);
    json_decref(sweep->published);
    free(sweep->axes);
    for (size_t i = 0; i < sweep->n_cells && sweep->refusals; i++)
        free(sweep->refusals[i].reason);
    free(sweep->refusals);
    free(sweep->cells);
    dpb_sweep_own_release(sweep);
    dpb_config_destroy(sweep->given);
    dpb_config_destroy(sweep->base);
    free(sweep);
}

/* ---- jobs ---------------------------------------------------------------------------------- */

/* An accuracy job is as long as sweep.accuracy says, evaluates at its end, and its times are not
 * used: steps of a warm-up would train, too. Then the timing jobs need no evaluation. */
static dpb_status set_purpose(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                              struct dpb_config *config)
{
    if (sweep->options.accuracy == 0)
        return DPB_OK;
    dpb_config_remove(config, "eval", "every");
    if (!job->accuracy) {
        dpb_config_remove(config, "eval", "final");
        dpb_config_remove(config, "eval", "batches");
        return DPB_OK;
    }
    char steps[32];
    snprintf(steps, sizeof steps, "%lld", (long long)sweep->options.accuracy);
    DPB_TRY(set(config, "run", "steps", steps, "sweep.accuracy"));
    DPB_TRY(set(config, "run", "warmup_steps", "0", "sweep.accuracy"));
    DPB_TRY(set(config, "run", "steady_limit_s", "0", "sweep.accuracy"));
    DPB_TRY(set(config, "run", "require_steady", "no", "sweep.accuracy"));
    return set(config, "eval", "final", "yes", "sweep.accuracy");
}

dpb_status dpb_sweep_config(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                            struct dpb_config **config)
{
    const bool as_written = dpb_sweep_is_refused(sweep, job->cell);
    struct dpb_config *result = dpb_config_copy(sweep->base);
    dpb_status status = dpb_allocated(result);
    for (size_t i = 0; i < sweep->n_axes && status == DPB_OK; i++)
        status = dpb_sweep_leave_to_others(sweep, &sweep->axes[i],
                                           dpb_sweep_value(sweep, job->cell, i), result);
    DPB_THEN(status, set_cell(sweep, job->cell, result));
    const struct dpb_sweep_axis *by_repeat = &sweep->replicates;
    if (status == DPB_OK && by_repeat->n_values > 0)
        status = set_axis(by_repeat, by_repeat->values[job->repeat % by_repeat->n_values], result);
    if (!as_written)
        DPB_THEN(status, dpb_derive(result, false));
    /* A run that misses is a part of its row; the sweep as a whole answers for it. */
    if (status == DPB_OK && target_of(result))
        dpb_config_remove(result, "eval", "require_target");
    DPB_THEN(status, set_purpose(sweep, job, result));
    DPB_THEN(status, dpb_sweep_launch_place(sweep, result));
    if (status != DPB_OK)
        dpb_config_destroy(result);
    else
        *config = result;
    return status;
}

/* Whether no two runs save into one file. */
static bool saves_apart(const struct dpb_sweep *sweep)
{
    return sweep->options.repeats == 1 &&
           (sweep->n_cells == 1 ||
            (sweep->n_axes == 1 && dpb_sweep_axis_of(sweep, "checkpoint", "save")));
}

dpb_status dpb_sweep_experiment(const struct dpb_sweep *sweep, const struct dpb_sweep_job *job,
                                struct dpb_experiment **experiment)
{
    struct dpb_config *config = NULL;
    DPB_TRY(dpb_sweep_config(sweep, job, &config));
    struct dpb_experiment *made;
    dpb_status status = dpb_experiment_create(config, &made);
    dpb_config_destroy(config);
    DPB_TRY(status);
    if (made->settings.run.trace[0])
        status = dpb_config_fail(made->config, DPB_USAGE, "run", "trace",
                                 "run.trace in a sweep: each run would replace the file of the one "
                                 "before; leave it out, or trace one run without [sweep]");
    else if (made->settings.checkpoint.save[0] && !saves_apart(sweep))
        status = dpb_config_fail(made->config, DPB_USAGE, "checkpoint", "save",
                                 "checkpoint.save in a sweep: each run would replace the file of "
                                 "the one before, and with checkpoint.load continue it; leave it "
                                 "out, or save one run without [sweep]");
    if (status == DPB_OK)
        *experiment = made;
    else
        dpb_experiment_destroy(made);
    return status;
}
