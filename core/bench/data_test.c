/* data_test.c - see data_test.h. */
#include "bench/data_test.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "plan/binding.h"
#include "plan/fit.h"
#include "world/store.h"

static bool interrupted(void)
{
    return dpb_board_interrupted(dpb_world.board) != 0;
}

/* Rank 0 says for all whether they continue. */
static dpb_status meet(struct dpb_loader *loader, bool *more)
{
    const struct dpb_run_settings *run = &loader->experiment->settings.run;
    uint8_t answer = !interrupted();
    char name[32];
    snprintf(name, sizeof name, "window/%u", loader->n_met++);
    dpb_world_note("wait_peer", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_store_barrier(name, run->timeout_ns + run->seconds_ns));
    DPB_TRY(dpb_store_from_0(name, &answer, sizeof answer));
    dpb_world_note("load", UINT64_MAX, UINT32_MAX);
    *more = answer != 0;
    return DPB_OK;
}

/* Those of rank 0: machines may have other numbers of cores. */
static dpb_status agree_on_threads(struct dpb_loader *loader)
{
    uint32_t threads[DPB_LOADER_POINTS + 1] = {loader->n_points};
    for (uint32_t i = 0; i < loader->n_points; i++)
        threads[1 + i] = loader->points[i].threads;
    DPB_TRY(dpb_store_from_0("threads", threads, sizeof threads));
    loader->n_points = threads[0];
    for (uint32_t i = 0; i < loader->n_points; i++)
        loader->points[i].threads = threads[1 + i];
    return DPB_OK;
}

static dpb_status measure(struct dpb_experiment *experiment)
{
    struct dpb_data_journal *journal = dpb_board_journal(dpb_world.board, dpb_world.rank, NULL);
    struct dpb_binding binding;
    struct dpb_loader loader;
    DPB_TRY(dpb_bind(experiment, &binding));
    dpb_world_note("open", UINT64_MAX, UINT32_MAX);
    const int64_t begin_ns = dpb_now_ns();
    DPB_TRY(dpb_fit_build(experiment, dpb_world.rank, false));
    journal->info = experiment->data_info;
    journal->open_ns = dpb_now_ns() - begin_ns;
    DPB_TRY(dpb_loader_init(experiment, journal->points, interrupted, &loader));
    loader.meet = meet;
    DPB_TRY(agree_on_threads(&loader));
    journal->n_points = loader.n_points;
    dpb_world_note("load", UINT64_MAX, UINT32_MAX);
    return dpb_loader_measure(&loader);
}

dpb_status dpb_data_test_run(struct dpb_experiment *experiment)
{
    dpb_world.timeout_ns = experiment->settings.run.timeout_ns;
    dpb_status status = measure(experiment);
    if (status == DPB_OK || status == DPB_INTERRUPTED) { /* else the page keeps where it failed */
        dpb_world_note("teardown", UINT64_MAX, UINT32_MAX);
        const dpb_status ended = dpb_store_barrier("end", 0);
        status = ended != DPB_OK ? ended : status;
    }
    return status;
}

/* ---- the launcher's side ------------------------------------------------------------------- */

static void add(const struct dpb_loader_window *one, struct dpb_loader_window *sum)
{
    sum->ns = one->ns > sum->ns ? one->ns : sum->ns;
    sum->batches += one->batches;
    sum->samples += one->samples;
    sum->counts.bytes_read += one->counts.bytes_read;
    sum->counts.bytes_decoded += one->counts.bytes_decoded;
    sum->counts.skipped += one->counts.skipped;
    sum->storage_bytes = one->storage_bytes < 0 || sum->storage_bytes < 0
                             ? -1
                             : sum->storage_bytes + one->storage_bytes;
}

void dpb_data_test_total(const struct dpb_data_journal *const *journals, uint32_t n_ranks,
                         struct dpb_loader *total)
{
    total->n_points = journals[0]->n_points;
    for (uint32_t rank = 0; rank < n_ranks; rank++)
        if (journals[rank]->n_points != total->n_points) /* it has not come so far */
            total->n_points = 0;
    for (uint32_t i = 0; i < total->n_points; i++) {
        struct dpb_loader_point *point = &total->points[i];
        *point = (struct dpb_loader_point){.threads = journals[0]->points[i].threads,
                                           .n_windows = DPB_LOADER_WINDOWS};
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            const struct dpb_loader_point *one = &journals[rank]->points[i];
            if (one->n_windows < point->n_windows)
                point->n_windows = one->n_windows;
            for (uint32_t w = 0; w < DPB_LOADER_WINDOWS; w++)
                add(&one->windows[w], &point->windows[w]);
        }
    }
}
