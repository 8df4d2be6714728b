/*
 * fuzz_result.c - a result that `dpbench rerun`, `report` and `compare` are given. What does not
 * depend on the file (the machine, the plugins, the run itself) is left out: mk/fuzz.mk puts the
 * functions below in its place.
 */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "cli/cli.h"
#include "machine/cores.h"
#include "study/compare.h"
#include "study/forms.h"
#include "study/merge.h"
#include "study/pivot.h"
#include "study/result.h"
#include "study/sweep.h"
#include "tests/fuzz/fuzz.h"

json_t *__wrap_dpb_machine_describe(void);
dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment);

json_t *__wrap_dpb_machine_describe(void)
{
    return json_pack("{s:s, s:i, s:{s:f}}", "cpu", "fuzz", "cores", 2, "memory", "bytes", 1e9);
}

/* As an unknown plugin: nothing is run. */
dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment)
{
    (void)config, (void)experiment;
    fuzz_used();
    return dpb_fail(DPB_USAGE, "nothing is run here");
}

/* Its table, itself beside itself (where it can be compared, nothing is slower), merged with
 * itself. */
static void show(const char *path)
{
    json_t *document = NULL, *comparison = NULL;
    bool regression = true;
    if (dpb_result_read(path, &document) != DPB_OK)
        return;
    FILE *out = fopen("/dev/null", "we");
    FUZZ_CHECK(out != NULL);
    dpb_result_print(document, out);
    dpb_sweep_print(document, out);
    const struct dpb_compared side = {path, document};
    const struct dpb_compare_how how = {.threshold = NAN};
    if (dpb_compare_make(&side, &side, &how, &comparison, &regression) == DPB_OK) {
        FUZZ_CHECK(!regression);
        FUZZ_CHECK(json_array_size(json_object_get(comparison, "differences")) == 0);
        dpb_compare_print(comparison, out);
    }
    const struct dpb_compared twice[] = {side, side};
    json_t *merged = NULL;
    if (dpb_merge(twice, 2, &merged) == DPB_OK) {
        dpb_sweep_print(merged, out);
        dpb_sweep_csv(merged, out);
        dpb_runs_csv(merged, out);
        dpb_steps_csv(merged, out);
        dpb_pivot_print(merged, &(struct dpb_pivot){.rows = "strategy", .columns = "workers"},
                        DPB_PIVOT_TEXT, out);
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
