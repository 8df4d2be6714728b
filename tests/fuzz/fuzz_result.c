/*
 * fuzz_result.c - a result that `dpbench rerun`, `report`, `compare` and `predict` are given. What
 * does not depend on the file (the machine, the plugins, the run itself) is left out: mk/fuzz.mk
 * puts the functions below in its place.
 */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "cli/cli.h"
#include "machine/cores.h"
#include "plugin/plugins.h"
#include "record/result.h"
#include "study/document/read.h"
#include "study/page/page.h"
#include "study/predict/predict_report.h"
#include "study/sweep/rerun.h"
#include "study/table/compare.h"
#include "study/table/forms.h"
#include "study/table/merge.h"
#include "study/table/sweep_print.h"
#include "tests/fuzz/fuzz.h"

json_t *__wrap_dpb_machine_describe(void);
dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment);

json_t *__wrap_dpb_machine_describe(void)
{
    return json_pack("{s:s, s:i, s:{s:f}}", "cpu", "fuzz", "cores", 2, "memory", "bytes", 1e9);
}

dpb_status __wrap_dpb_plugin_load(dpb_plugin_kind kind, const char *name, const char *where,
                                  const struct dpb_host *host, const struct dpb_plugin **plugin);

/* One of any name, without options. */
dpb_status __wrap_dpb_plugin_load(dpb_plugin_kind kind, const char *name, const char *where,
                                  const struct dpb_host *host, const struct dpb_plugin **plugin)
{
    static const struct dpb_option none[] = {{0}};
    static const struct dpb_plugin empty = {.options = none};
    (void)kind, (void)name, (void)where, (void)host;
    *plugin = &empty;
    return DPB_OK;
}

/* As an unknown plugin: nothing is run. */
dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment)
{
    (void)config, (void)experiment;
    fuzz_used();
    return dpb_fail(DPB_USAGE, "nothing is run here");
}

/* Nothing of a document in a page begins an element, or is a control character. */
static void show_page(const json_t *document)
{
    char *text = NULL;
    size_t length = 0;
    struct dpb_page *page = dpb_page_create();
    FUZZ_CHECK(page != NULL);
    dpb_page_add(page, "x.json", document);
    FUZZ_CHECK(dpb_page_finish(page, "@SCRIPT@@TEXT@@REPORT@", &text, &length) == DPB_OK);
    FUZZ_CHECK(strlen(text) == length);
    FUZZ_CHECK(strchr(text, '<') == NULL && strchr(text, '\x1b') == NULL);
    free(text);
    dpb_page_destroy(page);
}

/* Over a link that is given, or measured in the document. */
static void predict(const json_t *document, FILE *out)
{
    const json_t *comm = json_object_get(document, "comm");
    const bool measured = json_object_get(comm, "points") != NULL;
    const struct dpb_predict_request request = {
        .path = "x.json",
        .result = document,
        .links = {{"link", {measured ? INFINITY : 1e9, 1e-6}, measured ? comm : NULL, NULL}},
        .n_links = 1,
        .workers = {8},
        .n_workers = 1,
        .strategies = {"ring_tcp"}, /* 4,096 buckets by all strategies take seconds */
        .n_strategies = 1,
        .per_machine = 1,
        .inside = {.cost = {.bytes_per_s = INFINITY}},
        .host = {.bytes_per_s = INFINITY}};
    json_t *made = NULL;
    if (dpb_predict_report_make(&request, &made) == DPB_OK)
        dpb_predict_report_print(made, out);
    json_decref(made);
}

/* Its table, its page, itself beside itself (where it can be compared, nothing is slower), merged
 * with itself. */
static void show(const char *path)
{
    json_t *document = NULL, *comparison = NULL;
    bool regression = true;
    if (dpb_measured_read_printable(path, &document) != DPB_OK)
        return;
    FILE *out = fopen("/dev/null", "we");
    FUZZ_CHECK(out != NULL);
    dpb_result_print(document, out);
    dpb_sweep_print(document, out);
    dpb_sweep_markdown(document, out);
    show_page(document);
    predict(document, out);
    const struct dpb_compared side = {path, document};
    const struct dpb_compare_how how = {.threshold = NAN};
    if (dpb_compare_make(&side, &side, &how, &comparison, &regression) == DPB_OK) {
        FUZZ_CHECK(!regression);
        FUZZ_CHECK(json_array_size(json_object_get(comparison, "differences")) == 0);
        dpb_compare_print(comparison, out);
    }
    const struct dpb_compared twice[] = {side, side};
    json_t *merged = NULL;
    if (dpb_merge(twice, 2, NULL, &merged) == DPB_OK) {
        dpb_sweep_print(merged, out);
        dpb_sweep_csv(merged, out);
        dpb_runs_csv(merged, out);
        dpb_steps_csv(merged, out);
    }
    json_decref(merged);
    json_decref(comparison);
    json_decref(document);
    fclose(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dpb_command self = {.name = "rerun", .usage = "dpbench rerun"};
    char command[] = "rerun", path[64];
    fuzz_begin();
    snprintf(path, sizeof path, "%s", fuzz_file(data, size));
    char *arguments[] = {command, path, NULL};
    show(path);
    dpb_first_error_clear();
    FUZZ_CHECK(dpb_command_rerun(&self, 2, arguments) == 2); /* a usage error */
    fuzz_close();
    return 0;
}
