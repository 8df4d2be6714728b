/* cmd_rerun.c - `dpbench rerun RESULT.json`: runs a result's run once more. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "machine/cores.h"
#include "study/json.h"
#include "study/result.h"
#include "study/sweep.h"

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
    else if (strncmp(path, "environment.", 12) == 0)
        dpb_warn(code, "%s is %s here and was not set in the result", name, is ? is : "?");
    free(was);
    free(is);
}

static void compare_part(const char *code, const char *name, const json_t *then, json_t *now)
{
    dpb_json_differences(then, now, name, warn_of, (void *)(uintptr_t)code);
    json_decref(now);
}

/* The configuration that would run now, or the first cell of its sweep. */
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
    struct dpb_experiment *experiment = experiment_of(arguments->config);
    if (!experiment) {
        dpb_status status;
        dpb_first_error(&status);
        return status;
    }
    dpb_status status = dpb_trust_check(arguments);
    if (status != DPB_OK) {
        dpb_experiment_destroy(experiment);
        return status;
    }
    dpb_trust_announce(arguments, experiment);
    compare_part("version_differs", "versions", dpb_result_part(document, "versions"),
                 dpb_result_versions(experiment));
    if (!dpb_sweep_wanted(arguments->config))
        compare_part("input_differs", "inputs", dpb_result_part(document, "inputs"),
                     dpb_result_inputs(experiment));
    dpb_experiment_destroy(experiment);
    return DPB_OK;
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
        return dpb_run_arguments(arguments);
    dpb_together_agree(arguments, status, NULL, &code);
    return code;
}

int dpb_command_rerun(const struct dpb_command *self, int argc, char **argv)
{
    return dpb_together(self, DPB_ACCEPTS_RESULT | DPB_ACCEPTS_OUTPUT, argc, argv, rerun);
}
