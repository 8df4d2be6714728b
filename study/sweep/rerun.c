/* rerun.c - see rerun.h. */
#include "study/sweep/rerun.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/derive.h"
#include "launch/hosts.h"
#include "machine/cores.h"
#include "record/invocation.h"
#include "study/document/read.h"
#include "study/sweep/run.h"
#include "study/sweep/sweep.h"

/* ---- what a result may do -------------------------------------------------------------------- */

/* The real place of `path`, as far as it exists. False: behind the part that exists, `path` goes
 * through ".." or a link to nothing. */
static bool resolve(const char *path, char place[PATH_MAX])
{
    char part[PATH_MAX];
    struct stat info;
    if (snprintf(part, sizeof part, "%s%s", path[0] == '/' ? "" : "./", path) >= (int)sizeof part)
        return false;
    while (!realpath(part, place)) {
        char *slash = strrchr(part, '/');
        if (errno != ENOENT || lstat(part, &info) == 0 || strcmp(slash, "/..") == 0)
            return false;
        slash[slash == part] = '\0'; /* the root keeps its slash */
    }
    return true;
}

static bool is_below(const char *place, const char *root)
{
    size_t length = strcmp(root, "/") == 0 ? 0 : strlen(root);
    return strncmp(place, root, length) == 0 && (place[length] == '/' || place[length] == '\0');
}

static bool is_allowed(const struct dpb_arguments *arguments, const char *path)
{
    char place[PATH_MAX], here[PATH_MAX], result[PATH_MAX];
    if (!resolve(path, place) || !realpath(".", here) || !realpath(arguments->file, result))
        return false;
    char *slash = strrchr(result, '/');
    slash[slash == result] = '\0';
    return is_below(place, here) || is_below(place, result);
}

/* Whether the document says so, not this command line. */
static bool is_sent(const struct dpb_arguments *arguments, const char *section, const char *key)
{
    return !dpb_config_get(arguments->given, section, key);
}

static dpb_status check_place(const struct dpb_arguments *arguments, const char *section,
                              const char *key, const char *path)
{
    if (path[0] == '\0' || arguments->trust || !is_sent(arguments, section, key) ||
        is_allowed(arguments, path))
        return DPB_OK;
    return dpb_fail(DPB_USAGE,
                    "%s: %s.%s = %s is neither beside the result nor below the working directory; "
                    "give another by %s.%s=..., or --trust if you know who made the result",
                    arguments->file, section, key, path, section, key);
}

/* A checkpoint that is there, of the end or of a step; false: there is none. */
static bool find_checkpoint(const char *save, char found[PATH_MAX])
{
    static const char marker[] = "-step";
    char with_step[PATH_MAX], directory[PATH_MAX];
    struct stat info;
    snprintf(found, PATH_MAX, "%s", save);
    if (lstat(save, &info) == 0)
        return true;
    if (!dpb_snapshot_path(save, 0, with_step, sizeof with_step))
        return false;
    const char *slash = strrchr(with_step, '/'), *name = slash ? slash + 1 : with_step;
    const char *digit = with_step + strlen(with_step);
    while (!dpb_begins_with(digit, marker))
        digit--;
    digit += sizeof marker - 1; /* "net-step0.safetensors" */
    const size_t stem = (size_t)(digit - name);
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(name - with_step) : 1,
             slash ? with_step : ".");
    DIR *entries = opendir(directory);
    bool is_there = false;
    for (struct dirent *entry; entries && !is_there && (entry = readdir(entries));)
        if (strncmp(entry->d_name, name, stem) == 0) {
            const char *rest = entry->d_name + stem + strspn(entry->d_name + stem, "0123456789");
            is_there = rest > entry->d_name + stem && strcmp(rest, digit + 1) == 0;
            if (is_there)
                snprintf(found, PATH_MAX, "%s", entry->d_name);
        }
    if (entries)
        closedir(entries);
    return is_there;
}

static dpb_status check_checkpoint(const struct dpb_arguments *arguments,
                                   const struct dpb_experiment *experiment)
{
    const char *save = experiment->settings.checkpoint.save;
    char found[PATH_MAX];
    DPB_TRY(check_place(arguments, "checkpoint", "save", save));
    if (save[0] == '\0' || !is_sent(arguments, "checkpoint", "save") ||
        !find_checkpoint(save, found))
        return DPB_OK;
    return dpb_fail(DPB_USAGE,
                    "%s: checkpoint.save = %s: %s is there, and a rerun replaces no file; give "
                    "another by checkpoint.save=FILE, or checkpoint.save= to save none",
                    arguments->file, save, found);
}

static dpb_status check_trace(const struct dpb_arguments *arguments,
                              const struct dpb_experiment *experiment)
{
    const char *trace = experiment->settings.run.trace;
    struct stat info;
    DPB_TRY(check_place(arguments, "run", "trace", trace));
    if (trace[0] == '\0' || !is_sent(arguments, "run", "trace") || lstat(trace, &info) != 0)
        return DPB_OK;
    return dpb_fail(DPB_USAGE,
                    "%s: run.trace = %s is there, and a rerun replaces no file; give another by "
                    "run.trace=FILE, or run.trace= for none",
                    arguments->file, trace);
}

static dpb_status check_plugins(const struct dpb_arguments *arguments,
                                const struct dpb_experiment *experiment)
{
    for (size_t i = 0; i < experiment->n_tables; i++) {
        const struct dpb_option_table *table = &experiment->tables[i];
        for (const struct dpb_option *row = table->rows; row->name; row++) {
            if (!table->owner || row->type != DPB_OPT_STRING || dpb_result_is_input(table, row))
                continue;
            const char *const *value = (const void *)((const uint8_t *)table->values + row->offset);
            DPB_TRY(check_place(arguments, table->section, row->name, *value));
        }
    }
    return DPB_OK;
}

static dpb_status check_one(const struct dpb_arguments *arguments,
                            const struct dpb_experiment *experiment)
{
    if (!arguments->output)
        DPB_TRY(check_place(arguments, "run", "results", experiment->settings.run.results));
    DPB_TRY(check_checkpoint(arguments, experiment));
    DPB_TRY(check_trace(arguments, experiment));
    return check_plugins(arguments, experiment);
}

/* A cell that cannot be made is a refused one of its sweep, and writes nothing. */
static dpb_status check_cell(const struct dpb_arguments *arguments, const struct dpb_sweep *sweep,
                             size_t i, json_t *plugins)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    const struct dpb_sweep_job job = {.cell = i};
    struct dpb_experiment *experiment = NULL;
    dpb_log_set_hooks(&silent);
    dpb_sweep_experiment(sweep, &job, &experiment);
    dpb_log_set_hooks(NULL);
    dpb_first_error_clear();
    dpb_status status = experiment ? check_one(arguments, experiment) : DPB_OK;
    if (experiment)
        dpb_result_add_plugins(experiment, plugins);
    dpb_experiment_destroy(experiment);
    return status;
}

static dpb_status check_launch(const struct dpb_arguments *arguments, const struct dpb_sweep *sweep)
{
    const char *section = sweep->study->name;
    if (sweep->options.launch[0] == '\0' || arguments->trust ||
        !is_sent(arguments, section, "launch"))
        return DPB_OK;
    return dpb_fail(
        DPB_USAGE,
        "%s: %s.launch = %s would start this program; give another by %s.launch=..., or "
        "--trust if you know who made the result",
        arguments->file, section, sweep->options.launch, section);
}

/*
 * Refuses a rerun that would write elsewhere than beside its result or below the working directory
 * (unless arguments->trust), or replace a checkpoint that is there. A setting of this command line
 * may do both. Adds the plugins of a sweep's cells to `plugins`.
 */
static dpb_status check_trust(const struct dpb_arguments *arguments,
                              const struct dpb_experiment *experiment, json_t *plugins)
{
    struct dpb_sweep *sweep = NULL;
    if (!dpb_sweep_wanted(arguments->config))
        return check_one(arguments, experiment);
    DPB_TRY(dpb_sweep_create(arguments->config, &sweep));
    dpb_status status = check_launch(arguments, sweep);
    for (size_t i = 0; i < sweep->n_cells && status == DPB_OK; i++)
        status = check_cell(arguments, sweep, i, plugins);
    dpb_sweep_destroy(sweep);
    return status;
}

/* Announces the work, inputs and outputs of a rerun: for a sweep, those of experiment_of. */
static void announce(const struct dpb_arguments *arguments, const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    json_t *inputs = dpb_result_inputs(experiment);
    dpb_log(DPB_LOG_INFO, "%s runs: %s on %s, %s, %s%s; %u worker%s, %u server%s", arguments->file,
            settings->model.name, settings->data.name, settings->device.name, settings->comm.name,
            dpb_sweep_wanted(arguments->config) ? ", and the other cells of its sweep" : "",
            experiment->n_workers, experiment->n_workers == 1 ? "" : "s", experiment->n_servers,
            experiment->n_servers == 1 ? "" : "s");
    const char *launch = dpb_tune_wanted(arguments->config) ? "tune" : "sweep";
    const struct dpb_setting *by = dpb_config_get(arguments->config, launch, "launch");
    if (by && by->value[0] != '\0')
        dpb_log(DPB_LOG_INFO, "  starts %s.launch = %s", launch, by->value);
    dpb_each_member(inputs, name, entry)
        if (json_is_object(entry))
            dpb_log(DPB_LOG_INFO, "  reads %s = %s", name, dpb_json_text(entry, "path", ""));
    json_decref(inputs);
    if (arguments->output)
        dpb_log(DPB_LOG_INFO, "  writes its result to %s", arguments->output);
    else if (settings->run.results[0] != '\0')
        dpb_log(DPB_LOG_INFO, "  writes its result into %s", settings->run.results);
    if (settings->checkpoint.save[0] != '\0')
        dpb_log(DPB_LOG_INFO, "  writes checkpoint.save = %s", settings->checkpoint.save);
    if (settings->run.trace[0] != '\0')
        dpb_log(DPB_LOG_INFO, "  writes run.trace = %s", settings->run.trace);
}

/* ---- what differs ---------------------------------------------------------------------------- */

/* Warns of a field of the result that is different or missing here. A field that the result lacks
 * is newer than the result's dpbench, except in the environment: a result has all of its
 * variables. */
static void warn_of(void *code, const char *path, const json_t *then, const json_t *now)
{
    char name[512];
    dpb_escape(path, strlen(path), name, sizeof name);
    char *was = !then ? NULL : json_dumps(then, JSON_ENCODE_ANY | JSON_COMPACT);
    char *is = !now ? NULL : json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT);
    if (then)
        dpb_warn(code, "%s was %s in the result, here it is %s", name, was ? was : "?",
                 is ? is : "missing");
    else if (dpb_begins_with(path, "environment."))
        dpb_warn(code, "%s is %s here and was not set in the result", name, is ? is : "?");
    free(was);
    free(is);
}

static void compare_part(const char *code, const char *name, const json_t *then, json_t *now)
{
    dpb_json_differences(then, now, name, warn_of, (void *)(uintptr_t)code);
    json_decref(now);
}

/* `plugins`: those of the cells; a run has none. A plugin that only the result, or only this sweep,
 * has is no difference: axes may be others here. */
static void compare_versions(const json_t *document, const struct dpb_experiment *experiment,
                             json_t *plugins)
{
    json_t *now = dpb_result_versions(experiment);
    if (json_object_size(plugins) == 0) {
        compare_part("version_differs", "versions", dpb_result_part(document, "versions"), now);
        return;
    }
    json_object_set(now, "plugins", plugins);
    json_t *all = dpb_result_all_versions(document), *then = dpb_result_versions_within(all, now);
    compare_part("version_differs", "versions", then, dpb_result_versions_within(now, all));
    json_decref(all);
    json_decref(then);
    json_decref(now);
}

/* The configuration that would run now, or the first cell of its sweep that can: a combination that
 * cannot work is a failed row of the sweep, here as there. */
static dpb_status experiment_of(const struct dpb_config *config, struct dpb_experiment **experiment)
{
    static const struct dpb_log_hooks silent = {.silent = true};
    struct dpb_sweep *sweep = NULL;
    if (!dpb_sweep_wanted(config))
        return dpb_experiment_create(config, experiment);
    DPB_TRY(dpb_sweep_create(config, &sweep));
    dpb_status status = DPB_UNSUPPORTED;
    dpb_log_set_hooks(&silent);
    for (size_t cell = 0;
         cell < sweep->n_cells && (status == DPB_UNSUPPORTED || status == DPB_USAGE); cell++) {
        dpb_first_error_clear();
        status = dpb_sweep_experiment(sweep, &(struct dpb_sweep_job){.cell = cell}, experiment);
    }
    dpb_log_set_hooks(NULL);
    if (status != DPB_OK)
        dpb_log(DPB_LOG_ERROR, "%s", dpb_first_error(NULL));
    dpb_sweep_destroy(sweep);
    return status;
}

/* Warns before the run of each difference by name: with a difference the numbers do not compare. */
static dpb_status compare_all(const struct dpb_arguments *arguments)
{
    const json_t *document = arguments->document;
    json_t *invocation = dpb_result_invocation();
    compare_part("environment_differs", "environment",
                 dpb_result_part(document, "invocation.environment"),
                 json_incref(json_object_get(invocation, "environment")));
    json_decref(invocation);
    compare_part("machine_differs", "machine", dpb_result_part(document, "machine"),
                 dpb_machine_describe());
    struct dpb_experiment *experiment = NULL;
    DPB_TRY(experiment_of(arguments->config, &experiment));
    json_t *plugins = json_object();
    dpb_status status = check_trust(arguments, experiment, plugins);
    if (status == DPB_OK) {
        announce(arguments, experiment);
        compare_versions(document, experiment, plugins);
    }
    if (status == DPB_OK && !dpb_sweep_wanted(arguments->config))
        compare_part("input_differs", "inputs", dpb_result_part(document, "inputs"),
                     dpb_result_inputs(experiment));
    json_decref(plugins);
    dpb_experiment_destroy(experiment);
    return status;
}

static int rerun(struct dpb_arguments *arguments)
{
    int code;
    dpb_status status = DPB_OK;
    if (arguments->resume && !dpb_sweep_wanted(arguments->config))
        status = dpb_fail(DPB_USAGE, "%s is one run: --resume is for a sweep; leave it out",
                          arguments->file);
    DPB_THEN(status, compare_all(arguments));
    if (status == DPB_OK)
        return dpb_sweep_wanted(arguments->config) ? dpb_sweep_run(arguments)
                                                   : dpb_run_single(arguments);
    dpb_together_agree(arguments, status, NULL, &code);
    return code;
}

static dpb_status read_result(const char *path, struct dpb_arguments *arguments)
{
    DPB_TRY(dpb_result_read(path, &arguments->document));
    const json_t *config = json_object_get(arguments->document, "config");
    DPB_TRY(dpb_config_from_json(arguments->config, config, path));
    DPB_TRY(dpb_derive_undo(arguments->config)); /* this command line may change their names */
    /* The result's ranks were on other machines than this run's. */
    const struct dpb_setting *hosts = dpb_config_get(arguments->config, "comm", "hosts");
    if (hosts &&
        (strcmp(hosts->origin, "launcher") == 0 || strcmp(hosts->origin, DPB_LAUNCH_ORIGIN) == 0))
        dpb_config_remove(arguments->config, "comm", "hosts");
    for (size_t i = 0; i < 2; i++) {
        const char *key = i == 0 ? "hosts" : "interface";
        if (strcmp(dpb_config_origin(arguments->config, "comm", key), DPB_HOSTS_ORIGIN) == 0)
            dpb_config_remove(arguments->config, "comm", key);
    }
    return dpb_result_locate(arguments->document, arguments->config);
}

int dpb_command_rerun(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_OUTPUT, read_result, argc, argv, rerun);
}
