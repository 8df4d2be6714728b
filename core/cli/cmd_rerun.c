/* cmd_rerun.c - `dpbench rerun RESULT.json`: the run that a result was made by, once more. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "cli/cli.h"
#include "study/result.h"
#include "study/sweep.h"

/* Warns for every leaf of `then` that `now` has otherwise. `path` grows while it descends. */
static void compare(const json_t *then, const json_t *now, char *path, size_t length)
{
    enum { PATH = 256 };
    if (json_is_object(then)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)then, key, value)
        {
            int n = snprintf(path + length, PATH - length, "%s%s", length ? "." : "", key);
            if (n > 0 && length + (size_t)n < PATH)
                compare(value, json_object_get(now, key), path, length + (size_t)n);
            path[length] = '\0';
        }
    } else if (!json_equal(then, now)) {
        char *was = json_dumps(then, JSON_ENCODE_ANY | JSON_COMPACT);
        char *is = now == NULL ? NULL : json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT);
        dpb_warn("version_differs", "%s was %s in the result, here it is %s", path, was ? was : "?",
                 is ? is : "missing");
        free(was);
        free(is);
    }
}

/* A sweep keeps the versions in its runs; the first that has them speaks for all. */
static const json_t *versions_of(const json_t *document)
{
    const json_t *versions = json_object_get(document, "versions");
    const json_t *runs = json_object_get(document, "runs");
    for (size_t i = 0; versions == NULL && i < json_array_size(runs); i++)
        versions = json_object_get(json_array_get(runs, i), "versions");
    return versions;
}

/* What would run now: the configuration itself, or the first cell of its sweep. */
static struct dpb_experiment *experiment_of(const struct dpb_config *config)
{
    struct dpb_sweep *sweep = NULL;
    struct dpb_config *cell = NULL;
    struct dpb_experiment *experiment = NULL;
    const struct dpb_sweep_job first = {0};
    if (!dpb_sweep_wanted(config))
        dpb_experiment_create(config, &experiment);
    else if (dpb_sweep_create(config, &sweep) == DPB_OK &&
             dpb_sweep_config(sweep, &first, &cell) == DPB_OK)
        dpb_experiment_create(cell, &experiment);
    dpb_config_destroy(cell);
    dpb_sweep_destroy(sweep);
    return experiment;
}

static dpb_status compare_versions(const struct dpb_arguments *arguments)
{
    const json_t *then = versions_of(arguments->document);
    struct dpb_experiment *experiment = experiment_of(arguments->config);
    if (experiment == NULL) {
        dpb_status status;
        dpb_first_error(&status);
        return status;
    }
    json_t *now = dpb_result_versions(experiment);
    char path[256] = "";
    if (then != NULL)
        compare(then, now, path, 0);
    json_decref(now);
    dpb_experiment_destroy(experiment);
    return DPB_OK;
}

int dpb_command_rerun(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_arguments arguments;
    dpb_status status =
        dpb_arguments_parse(self, DPB_ACCEPTS_RESULT | DPB_ACCEPTS_OUTPUT, argc, argv, &arguments);
    if (status != DPB_OK)
        return dpb_status_exit_code(status);
    status = compare_versions(&arguments);
    int code = status == DPB_OK ? dpb_run_arguments(&arguments) : dpb_status_exit_code(status);
    dpb_arguments_release(&arguments);
    return code;
}
