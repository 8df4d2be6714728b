/* fuzz_sweep.c - the [sweep] of an .ini file, to its cells and their order. */
#include "base/config.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_runs.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_CELLS = 64, MOST_JOBS = 4096 };

static void use_cell(const struct dpb_sweep *sweep, size_t number)
{
    const struct dpb_sweep_job job = {.cell = number, .accuracy = number % 2 == 1};
    struct dpb_config *config = NULL;
    char label[64];
    dpb_sweep_label(sweep, &job, label, sizeof label);
    FUZZ_CHECK(strlen(label) < sizeof label);
    if (dpb_sweep_config(sweep, &job, &config) == DPB_OK)
        FUZZ_CHECK(!dpb_sweep_wanted(config));
    dpb_config_destroy(config);
}

static void use_sweep(const struct dpb_sweep *sweep)
{
    size_t n = sweep->n_cells * (size_t)sweep->options.repeats;
    FUZZ_CHECK(sweep->n_cells > 0 && sweep->options.repeats > 0);
    for (size_t cell = 0; cell < sweep->n_cells && cell < MOST_CELLS; cell++)
        use_cell(sweep, cell);
    use_cell(sweep, sweep->n_cells - 1);
    json_decref(dpb_sweep_document(sweep));
    if (n > MOST_JOBS)
        return;
    struct dpb_sweep_job *jobs = calloc(n, sizeof *jobs);
    FUZZ_CHECK(jobs != NULL);
    dpb_sweep_order(sweep, 1, jobs);
    for (size_t i = 0; i < n; i++)
        FUZZ_CHECK(jobs[i].cell < sweep->n_cells);
    FUZZ_CHECK(dpb_sweep_accuracy_jobs(sweep, jobs) <= sweep->n_cells);
    free(jobs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct dpb_sweep *sweep = NULL;
    fuzz_begin();
    struct dpb_config *config = dpb_config_create();
    if (dpb_config_read(config, fuzz_file(data, size)) == DPB_OK && dpb_sweep_wanted(config) &&
        dpb_sweep_create(config, &sweep) == DPB_OK)
        use_sweep(sweep);
    if (sweep)
        fuzz_used();
    dpb_sweep_destroy(sweep);
    dpb_config_destroy(config);
    fuzz_close();
    return 0;
}
