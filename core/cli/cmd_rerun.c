/* cmd_rerun.c - `dpbench rerun RESULT.json`: the run that a result was made by, once more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "study/json.h"
#include "study/result.h"
#include "study/sweep.h"
#include "world/cores.h"

/* Warns for every leaf of `then` or `now` that the other has otherwise. `path` grows while it
 * descends. */
static void compare(const char *code, const json_t *then, const json_t *now, char *path,
                    size_t length)
{
    enum { PATH = 256 };
    if (json_is_object(then)) {
        const char *key;
        json_t *value;
        json_object_foreach((json_t *)(uintptr_t)then, key, value)
        {
            int n = snprintf(path + length, PATH - length, "%s%s", length ? "." : "", key);
            if (n > 0 && length + (size_t)n < PATH)
                compare(code, value, json_object_get(now, key), path, length + (size_t)n);
            path[length] = '\0';
        }
    } else if (!json_equal(then, now)) {
        char *was = json_dumps(then, JSON_ENCODE_ANY | JSON_COMPACT);
        char *is = now == NULL ? NULL : json_dumps(now, JSON_ENCODE_ANY | JSON_COMPACT);
        dpb_warn(code, "%s was %s in the result, here it is %s", path, was ? was : "?",
                 is ? is : "missing");
        free(was);
        free(is);
    }
}

static void compare_part(const char *code, const char *name, const json_t *then, json_t *now)
{
    char path[256] = "";
    snprintf(path, sizeof path, "%s", name);
    if (then != NULL)
        compare(code, then, now, path, strlen(path));
    json_decref(now);
}

/* A variable that is set now and was not is a difference, too. */
static void compare_environment(const json_t *then, const json_t *now)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, name, value)
    {
        if (then != NULL && json_object_get(then, name) == NULL)
            dpb_warn("environment_differs", "%s is %s here and was not set in the result", name,
                     json_string_value(value));
    }
}

/* A part of a result, `name`. A sweep keeps it in its runs; the first that has it speaks for
 * all. */
static const json_t *part_of(const json_t *document, const char *name)
{
    const json_t *part = dpb_json_at(document, name);
    const json_t *runs = json_object_get(document, "runs");
    for (size_t i = 0; part == NULL && i < json_array_size(runs); i++)
        part = dpb_json_at(json_array_get(runs, i), name);
    return part;
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

/* What differs is said by name, before the run: its numbers are another machine's, or others'. */
static dpb_status compare_all(const struct dpb_arguments *arguments)
{
    const json_t *document = arguments->document;
    json_t *invocation = dpb_result_invocation();
    json_t *environment = json_object_get(invocation, "environment");
    const json_t *variables = part_of(document, "invocation.environment");
    compare_environment(variables, environment);
    compare_part("environment_differs", "environment", variables, json_incref(environment));
    json_decref(invocation);
    compare_part("machine_differs", "machine", part_of(document, "machine"),
                 dpb_machine_describe());
    struct dpb_experiment *experiment = experiment_of(arguments->config);
    if (experiment == NULL) {
        dpb_status status;
        dpb_first_error(&status);
        return status;
    }
    compare_part("version_differs", "versions", part_of(document, "versions"),
                 dpb_result_versions(experiment));
    if (!dpb_sweep_wanted(arguments->config))
        compare_part("input_differs", "inputs", part_of(document, "inputs"),
                     dpb_result_inputs(experiment));
    dpb_experiment_destroy(experiment);
    return DPB_OK;
}

static int rerun(struct dpb_arguments *arguments)
{
    int code;
    dpb_status status = compare_all(arguments);
    if (status == DPB_OK)
        return dpb_run_arguments(arguments);
    dpb_together_agree(arguments, status, NULL, &code);
    return code;
}

int dpb_command_rerun(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_RESULT | DPB_ACCEPTS_OUTPUT, argc, argv, rerun);
}
