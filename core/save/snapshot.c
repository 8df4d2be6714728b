/* snapshot.c - see snapshot.h. */
#include "save/snapshot.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/output.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "exchange/access.h"
#include "exchange/step.h"
#include "graph/graph.h"
#include "measure/account.h"
#include "measure/trace.h"
#include "plan/evaluations.h"
#include "plan/resume.h"
#include "save/saved.h"

/* ---- opening ------------------------------------------------------------------------------- */

dpb_status dpb_snapshot_open(struct dpb_snapshot *snapshot, struct dpb_exchange *exchange,
                             struct dpb_statistics *statistics, struct dpb_journal *journal)
{
    const struct dpb_settings *settings = &exchange->experiment->settings;
    const uint32_t n_arrays = dpb_optimizer_states(&settings->optimizer);
    *snapshot =
        (struct dpb_snapshot){.exchange = exchange, .statistics = statistics, .journal = journal};
    dpb_saved_warn(exchange);
    if (!dpb_saves(settings) || n_arrays == 0)
        return DPB_OK;
    return dpb_collect_open(&exchange->plan, &exchange->layout, exchange->optimizer, n_arrays,
                            settings->comm.name, &snapshot->collection);
}

void dpb_snapshot_close(struct dpb_snapshot *snapshot)
{
    dpb_collect_close(&snapshot->collection);
}

/* ---- loading ------------------------------------------------------------------------------- */

/* A device may compute a finite loss from weights that are not finite. */
static dpb_status check_finite(const struct dpb_experiment *experiment,
                               const struct dpb_checkpoint *checkpoint)
{
    const struct dpb_graph *graph = experiment->graph;
    const char *weights = checkpoint->weights;
    size_t size = dpb_dtype_size(experiment->weight_type);
    for (uint32_t i = 0; weights && i < graph->n_tensors; i++) {
        const struct dpb_tensor *tensor = &graph->tensors[i];
        if (!dpb_vec_finite(experiment->weight_type, weights + tensor->offset * size,
                            tensor->n_elements))
            return dpb_fail(DPB_DATA,
                            "%s: '%s' has elements that are infinite or no numbers: take a "
                            "checkpoint from before, or run.nan = continue to go on from this one",
                            experiment->settings.checkpoint.load, tensor->name);
    }
    return DPB_OK;
}

/* A server reads the optimizer's state that it owns; its weights come by the communicator's
 * `load`. */
static dpb_status load_file(struct dpb_snapshot *snapshot, void *weights)
{
    const struct dpb_experiment *experiment = snapshot->exchange->experiment;
    bool worker = dpb_world.role == DPB_WORKER, has_optimizer = false;
    size_t bytes = experiment->graph->n_elements * dpb_dtype_size(experiment->weight_type);
    struct dpb_checkpoint checkpoint = {.graph = experiment->graph,
                                        .type = experiment->weight_type,
                                        .weights = weights,
                                        .state = worker ? snapshot->statistics->running : NULL,
                                        .tells = dpb_world.rank == 0,
                                        .has_optimizer = &has_optimizer};
    bytes *= dpb_resumed_state(&experiment->settings, &checkpoint);
    if (bytes > 0 && snapshot->exchange->optimizer) {
        checkpoint.optimizer = dpb_alloc(bytes);
        if (!checkpoint.optimizer)
            return DPB_NO_MEMORY;
    }
    dpb_status status = dpb_checkpoint_load(experiment->settings.checkpoint.load, &checkpoint);
    if (status == DPB_OK && experiment->settings.run.nan == DPB_NAN_STOP)
        status = check_finite(experiment, &checkpoint);
    if (status == DPB_OK && checkpoint.optimizer && has_optimizer) /* else it begins its own way */
        status = dpb_optimizer_load(snapshot->exchange->optimizer, checkpoint.optimizer,
                                    experiment->start.step - experiment->start.skipped_steps);
    dpb_release(checkpoint.optimizer, bytes);
    return status;
}

static void warn_of_seed(const struct dpb_experiment *experiment)
{
    const struct dpb_settings *settings = &experiment->settings;
    if (dpb_world.rank == 0 && experiment->start.step > 0 &&
        experiment->start.seed != (uint64_t)settings->run.seed)
        dpb_warn("other_seed",
                 "%s was trained with run.seed = %" PRIu64
                 ", here it is %lld: samples come in another order, and some of this epoch twice "
                 "or not at all",
                 settings->checkpoint.load, experiment->start.seed, (long long)settings->run.seed);
}

dpb_status dpb_snapshot_load(struct dpb_snapshot *snapshot)
{
    const struct dpb_experiment *experiment = snapshot->exchange->experiment;
    bool worker = dpb_world.role == DPB_WORKER;
    void *weights = NULL;
    dpb_world_note("load", UINT64_MAX, UINT32_MAX);
    if (worker)
        DPB_TRY(dpb_arena_edit(snapshot->exchange, snapshot->exchange->arenas.weights, &weights));
    if (experiment->settings.checkpoint.load[0]) {
        DPB_TRY(load_file(snapshot, weights));
        warn_of_seed(experiment);
    } else if (worker) {
        dpb_graph_initialise(experiment->graph, (uint64_t)experiment->settings.run.seed,
                             experiment->weight_type, weights);
        dpb_graph_initialise_state(experiment->graph, experiment->weight_type,
                                   snapshot->statistics->running);
    }
    return worker ? dpb_arena_commit(snapshot->exchange, snapshot->exchange->arenas.weights,
                                     dpb_arena_bytes(snapshot->exchange, experiment->weight_type))
                  : DPB_OK;
}

/* ---- saving -------------------------------------------------------------------------------- */

/* Rank 0, with the mean statistics and the published weights. */
static dpb_status write_snapshot(struct dpb_snapshot *snapshot, const char *path, bool over,
                                 const struct dpb_progress *progress, const void *weights,
                                 void *state)
{
    const struct dpb_experiment *experiment = snapshot->exchange->experiment;
    size_t bytes = experiment->graph->n_elements * dpb_dtype_size(experiment->weight_type);
    const struct dpb_journal *journal = snapshot->journal;
    char *evaluations = dpb_evaluations_text(journal->evals, journal->n_evals);
    const char *const metadata[] = {"dpbench.version",
                                    DPB_VERSION,
                                    "dpbench.model",
                                    experiment->graph->name,
                                    journal->n_evals > 0 ? DPB_EVALUATIONS_KEY : NULL,
                                    evaluations,
                                    NULL};
    struct dpb_checkpoint checkpoint = {.graph = experiment->graph,
                                        .type = experiment->weight_type,
                                        .weights = (void *)(uintptr_t)weights,
                                        .state = state,
                                        .over = over};
    (void)dpb_layout_find(experiment->graph->layout, experiment->settings.checkpoint.layout,
                          &checkpoint.layout); /* it was checked before the run */
    bytes *= dpb_optimizer_state_names(&experiment->settings.optimizer, checkpoint.optimizer_names);
    struct dpb_saved_tensors saved = {.n = 0};
    dpb_status status = evaluations ? DPB_OK : DPB_NO_MEMORY;
    if (status == DPB_OK && bytes > 0) {
        checkpoint.optimizer = dpb_alloc(bytes);
        status = checkpoint.optimizer
                     ? dpb_collect_state(&snapshot->collection, checkpoint.optimizer)
                     : DPB_NO_MEMORY;
    }
    DPB_THEN(status, dpb_saved_open(snapshot->exchange, &saved));
    checkpoint.more = saved.tensors;
    checkpoint.n_more = saved.n;
    DPB_THEN(status, dpb_checkpoint_save(path, &checkpoint, progress, metadata));
    dpb_saved_close(&saved);
    dpb_release(checkpoint.optimizer, bytes);
    free(evaluations);
    return status;
}

/* The state of all ranks is in memory that rank 0 has mapped; on devices it is brought there. */
static dpb_status fetch_state(struct dpb_snapshot *snapshot)
{
    if (!snapshot->exchange->memory.on_device)
        return DPB_OK;
    DPB_TRY(dpb_exchange_drain(snapshot->exchange));
    DPB_TRY(dpb_optimizer_fetch(snapshot->exchange->optimizer));
    return dpb_experiment_replicas(snapshot->exchange->experiment) > 1 ? dpb_workers_meet()
                                                                       : DPB_OK;
}

static dpb_status take_and_write(struct dpb_snapshot *snapshot, const char *path, bool over,
                                 const struct dpb_progress *progress)
{
    const struct dpb_experiment *experiment = snapshot->exchange->experiment;
    const uint32_t replicas = dpb_experiment_replicas(experiment);
    struct dpb_view view;
    char name[48];
    dpb_world_note("checkpoint", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_exchange_publish(snapshot->exchange, "checkpoint", &view));
    DPB_TRY(fetch_state(snapshot));
    DPB_TRY(dpb_verify_published(snapshot->exchange, view.weights, snapshot->journal));
    const void *weights = NULL;
    if (dpb_world.rank == 0)
        DPB_TRY(dpb_arena_look(snapshot->exchange, view.weights,
                               dpb_arena_bytes(snapshot->exchange, experiment->weight_type),
                               &weights));
    void *average =
        calloc(experiment->graph->n_state_elements + 1, dpb_dtype_size(experiment->weight_type));
    DPB_TRY(dpb_allocated(average));
    snprintf(name, sizeof name, "checkpoint/%u", snapshot->n_begun++);
    dpb_status status = dpb_statistics_average(snapshot->statistics, replicas, name, average);
    if (status == DPB_OK && dpb_world.rank == 0)
        status = write_snapshot(snapshot, path, over, progress, weights, average);
    else if (status == DPB_OK)
        status = dpb_collect_answer(&snapshot->collection);
    if (status == DPB_OK && dpb_world.rank != 0)
        status = dpb_saved_give(snapshot->exchange);
    free(average);
    /* Rank 0 reads the others' mapped state until here; workers that do not exchange have nothing
     * to wait for. */
    if (status == DPB_OK && replicas > 1)
        status = dpb_workers_meet();
    return status;
}

static dpb_status save(struct dpb_snapshot *snapshot, const char *path, bool over,
                       const struct dpb_progress *progress)
{
    const int64_t begun_ns = dpb_trace_begin();
    const dpb_spent before = dpb_account_spend(DPB_SPENT_CHECKPOINTS);
    dpb_status status = take_and_write(snapshot, path, over, progress);
    dpb_account_spend(before);
    dpb_trace_end(DPB_TRACE_CHECKPOINT, 0, progress->step, begun_ns);
    return status;
}

dpb_status dpb_snapshot_save(struct dpb_snapshot *snapshot, const struct dpb_progress *progress)
{
    const char *path = snapshot->exchange->experiment->settings.checkpoint.save;
    return path[0] ? save(snapshot, path, false, progress) : DPB_OK;
}

dpb_status dpb_snapshot_save_step(struct dpb_snapshot *snapshot,
                                  const struct dpb_progress *progress)
{
    const struct dpb_settings *settings = &snapshot->exchange->experiment->settings;
    const bool over = settings->checkpoint.place == DPB_CHECKPOINT_PEER;
    struct dpb_board_kept *kept = dpb_board_kept(dpb_world.board);
    const uint32_t oldest = kept->steps[1] < kept->steps[0];
    char path[PATH_MAX];
    if (over)
        dpb_kept_path(kept, oldest, path, sizeof path);
    else
        dpb_snapshot_path(settings->checkpoint.save, progress->step, path, sizeof path);
    if (dpb_world.rank == 0)
        __atomic_store_n(&kept->steps[oldest], 0, __ATOMIC_RELEASE);
    DPB_TRY(save(snapshot, path, over, progress));
    if (dpb_world.rank == 0)
        __atomic_store_n(&kept->steps[oldest], progress->step, __ATOMIC_RELEASE);
    return DPB_OK;
}

/* ---- after a death ------------------------------------------------------------------------- */

/* "net-step100.safetensors.4711.tmp" of "net.safetensors": as base/output.h names it. */
static bool is_temporary_of(const char *name, const char *stem, const int32_t *pids, uint32_t n)
{
    if (!dpb_begins_with(name, stem))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        char tail[32];
        snprintf(tail, sizeof tail, ".%" PRId32 ".tmp", pids[i]);
        if (pids[i] > 0 && dpb_ends_on(name, tail))
            return true;
    }
    return false;
}

void dpb_snapshot_clean_up(const char *save, const int32_t *pids, uint32_t n)
{
    char place[PATH_MAX], directory[PATH_MAX], stem[PATH_MAX];
    if (save[0] == '\0' || !dpb_output_place(save, place))
        return;
    dpb_output_directory(place, directory);
    snprintf(stem, sizeof stem, "%s", strrchr(place, '/') + 1);
    char *dot = strstr(stem, ".safetensors");
    if (dot)
        *dot = '\0';
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_temporary_of(entry->d_name, stem, pids, n))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
}
