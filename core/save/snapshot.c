/* snapshot.c - see snapshot.h. */
#include "save/snapshot.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"
#include "base/vec.h"
#include "graph/checkpoint.h"
#include "graph/graph.h"
#include "proof/proof.h"
#include "save/saved.h"
#include "measure/trace.h"
#include "loop/trainer.h"

/* ---- when, and under which name ------------------------------------------------------------ */

dpb_status dpb_save_points_make(const struct dpb_settings *settings, const char *origin,
                                struct dpb_save_points *points)
{
    *points = (struct dpb_save_points){.every = (uint64_t)settings->checkpoint.every};
    uint64_t last = 0;
    for (const char *at = settings->checkpoint.at; *at;) {
        char *end;
        unsigned long long step = strtoull(at, &end, 10);
        end += strspn(end, " ");
        bool dangling = *end == ',' && end[1] == '\0';
        if (at[strspn(at, " ")] == '-' || dangling || (*end != ',' && *end != '\0') ||
            step <= last || step > INT64_MAX)
            return dpb_fail(DPB_USAGE,
                            "%s: checkpoint.at: '%s' is not a rising list of steps, as in 100,200",
                            origin, settings->checkpoint.at);
        if (points->n == DPB_SAVE_POINTS)
            return dpb_fail(DPB_USAGE,
                            "%s: checkpoint.at: more than %d steps; try checkpoint.every", origin,
                            DPB_SAVE_POINTS);
        points->at[points->n++] = last = step;
        at = *end == ',' ? end + 1 : end;
    }
    return DPB_OK;
}

bool dpb_save_points_due(const struct dpb_save_points *points, uint64_t step)
{
    bool due = points->every > 0 && step % points->every == 0;
    for (uint32_t i = 0; i < points->n && !due; i++)
        due = points->at[i] == step;
    return due;
}

bool dpb_snapshot_path(const char *save, uint64_t step, char *path, size_t capacity)
{
    static const char extension[] = ".safetensors";
    bool has = dpb_ends_on(save, extension);
    int stem = (int)(strlen(save) - (has ? strlen(extension) : 0));
    int written =
        snprintf(path, capacity, "%.*s-step%" PRIu64 "%s", stem, save, step, has ? extension : "");
    return written >= 0 && (size_t)written < capacity;
}

/* ---- loading ------------------------------------------------------------------------------- */

/* Names the state of a training that is continued; another optimizer's has no name here. Returns
 * the number of arrays. */
static uint32_t resumed_state(const struct dpb_settings *settings,
                              struct dpb_checkpoint *checkpoint)
{
    bool resumes = settings->checkpoint.resume && settings->run.mode == DPB_MODE_TRAIN;
    return resumes ? dpb_optimizer_state_names(&settings->optimizer, checkpoint->optimizer_names)
                   : 0;
}

dpb_status dpb_snapshot_check(const struct dpb_experiment *experiment, struct dpb_progress *start)
{
    const struct dpb_settings *settings = &experiment->settings;
    struct dpb_checkpoint checkpoint = {.graph = experiment->graph,
                                        .type = experiment->weight_type};
    struct dpb_progress found;
    (void)resumed_state(settings, &checkpoint);
    memset(start, 0, sizeof *start);
    if (!settings->checkpoint.load[0])
        return DPB_OK;
    DPB_TRY(dpb_checkpoint_check(settings->checkpoint.load, &checkpoint, &found));
    if (!settings->checkpoint.resume || settings->run.mode != DPB_MODE_TRAIN)
        return DPB_OK;
    if (settings->run.epochs && found.epoch >= (uint64_t)settings->run.epochs)
        return dpb_fail(DPB_USAGE,
                        "%s: its training has gone through %" PRIu64
                        " epochs already, and run.epochs = %lld: give more, or begin anew with its "
                        "weights by checkpoint.resume=no",
                        settings->checkpoint.load, found.epoch, (long long)settings->run.epochs);
    if (found.position > experiment->data_info.n_samples[DPB_TRAIN])
        return dpb_fail(DPB_USAGE,
                        "%s: its training has taken %" PRIu64
                        " samples of its epoch, but data '%s' has %" PRIu64
                        " only: take the data it was trained on, or its weights alone by "
                        "checkpoint.resume=no",
                        settings->checkpoint.load, found.position, settings->data.name,
                        experiment->data_info.n_samples[DPB_TRAIN]);
    if (found.loss_scale > UINT64_C(1) << 32 || (found.loss_scale & (found.loss_scale - 1)) != 0 ||
        found.skipped_steps > found.step)
        return dpb_fail(
            DPB_DATA,
            "%s: dpbench.loss_scale = %" PRIu64 " is no power of two up to 2^32, or more "
            "steps were skipped (%" PRIu64 ") than done (%" PRIu64 ")",
            settings->checkpoint.load, found.loss_scale, found.skipped_steps, found.step);
    DPB_TRY(dpb_saved_check(experiment));
    *start = found;
    return DPB_OK;
}

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
static dpb_status load_file(struct dpb_trainer *trainer, void *weights)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    bool worker = dpb_world.role == DPB_WORKER;
    size_t bytes = experiment->graph->n_elements * dpb_dtype_size(experiment->weight_type);
    struct dpb_checkpoint checkpoint = {.graph = experiment->graph,
                                        .type = experiment->weight_type,
                                        .weights = weights,
                                        .state = worker ? trainer->statistics.running : NULL};
    bytes *= resumed_state(&experiment->settings, &checkpoint);
    if (bytes > 0 && trainer->exchange.optimizer) {
        checkpoint.optimizer = dpb_alloc(bytes);
        if (!checkpoint.optimizer)
            return DPB_NO_MEMORY;
    }
    dpb_status status = dpb_checkpoint_load(experiment->settings.checkpoint.load, &checkpoint);
    if (status == DPB_OK && experiment->settings.run.nan == DPB_NAN_STOP)
        status = check_finite(experiment, &checkpoint);
    if (status == DPB_OK && checkpoint.optimizer)
        status = dpb_optimizer_load(trainer->exchange.optimizer, checkpoint.optimizer,
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

dpb_status dpb_snapshot_load(struct dpb_trainer *trainer)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    bool worker = dpb_world.role == DPB_WORKER;
    void *weights = NULL;
    dpb_world_note("load", UINT64_MAX, UINT32_MAX);
    if (worker)
        DPB_TRY(dpb_arena_edit(&trainer->exchange, trainer->exchange.arenas.weights, &weights));
    if (experiment->settings.checkpoint.load[0]) {
        DPB_TRY(load_file(trainer, weights));
        warn_of_seed(experiment);
    } else if (worker) {
        dpb_graph_initialise(experiment->graph, (uint64_t)experiment->settings.run.seed,
                             experiment->weight_type, weights);
        dpb_graph_initialise_state(experiment->graph, experiment->weight_type,
                                   trainer->statistics.running);
    }
    return worker ? dpb_arena_commit(&trainer->exchange, trainer->exchange.arenas.weights,
                                     dpb_arena_bytes(&trainer->exchange, experiment->weight_type))
                  : DPB_OK;
}

/* ---- saving -------------------------------------------------------------------------------- */

/* Rank 0, with the mean statistics and the published weights. */
static dpb_status write_snapshot(struct dpb_trainer *trainer, const char *path, const void *weights,
                                 void *state)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    size_t bytes = experiment->graph->n_elements * dpb_dtype_size(experiment->weight_type);
    const char *const metadata[] = {"dpbench.version", DPB_VERSION, "dpbench.model",
                                    experiment->graph->name, NULL};
    struct dpb_checkpoint checkpoint = {.graph = experiment->graph,
                                        .type = experiment->weight_type,
                                        .weights = (void *)(uintptr_t)weights,
                                        .state = state};
    bytes *= dpb_optimizer_state_names(&experiment->settings.optimizer, checkpoint.optimizer_names);
    struct dpb_progress progress = dpb_feed_progress(trainer->feed, trainer->course.step);
    progress.trained_ns = dpb_trained_ns(trainer);
    progress.seed = (uint64_t)experiment->settings.run.seed;
    if (trainer->exchange.staging.held_back) {
        progress.loss_scale = trainer->loss_scale.fixed ? 0 : (uint64_t)trainer->loss_scale.scale;
        progress.clean_steps = trainer->loss_scale.clean;
        progress.skipped_steps = trainer->loss_scale.skipped;
    }
    struct dpb_saved_tensors saved = {.n = 0};
    dpb_status status = DPB_OK;
    if (bytes > 0) {
        checkpoint.optimizer = dpb_alloc(bytes);
        status = checkpoint.optimizer
                     ? dpb_collect_state(&trainer->exchange.collection, checkpoint.optimizer)
                     : DPB_NO_MEMORY;
    }
    DPB_THEN(status, dpb_saved_open(&trainer->exchange, &saved));
    checkpoint.more = saved.tensors;
    checkpoint.n_more = saved.n;
    DPB_THEN(status, dpb_checkpoint_save(path, &checkpoint, &progress, metadata));
    dpb_saved_close(&saved);
    dpb_release(checkpoint.optimizer, bytes);
    return status;
}

/* The state of all ranks is in memory that rank 0 has mapped; on devices it is brought there. */
static dpb_status fetch_state(struct dpb_trainer *trainer)
{
    if (!trainer->exchange.memory.on_device)
        return DPB_OK;
    DPB_TRY(dpb_exchange_drain(&trainer->exchange));
    DPB_TRY(dpb_optimizer_fetch(trainer->exchange.optimizer));
    return trainer->replicas > 1 ? dpb_workers_meet() : DPB_OK;
}

static dpb_status take_and_write(struct dpb_trainer *trainer, const char *path)
{
    const struct dpb_experiment *experiment = trainer->experiment;
    struct dpb_view view;
    char name[48];
    dpb_world_note("checkpoint", UINT64_MAX, UINT32_MAX);
    DPB_TRY(dpb_exchange_publish(&trainer->exchange, "checkpoint", &view));
    DPB_TRY(fetch_state(trainer));
    DPB_TRY(dpb_verify_published(&trainer->exchange, view.weights, trainer->journal));
    const void *weights = NULL;
    if (dpb_world.rank == 0)
        DPB_TRY(dpb_arena_look(&trainer->exchange, view.weights,
                               dpb_arena_bytes(&trainer->exchange, experiment->weight_type),
                               &weights));
    void *average =
        malloc(experiment->graph->n_state_elements * dpb_dtype_size(experiment->weight_type) + 1);
    if (!average)
        return dpb_fail(DPB_NO_MEMORY, "no memory for the checkpoint's statistics");
    snprintf(name, sizeof name, "checkpoint/%u", trainer->course.snapshots++);
    dpb_status status =
        dpb_statistics_average(&trainer->statistics, trainer->replicas, name, average);
    if (status == DPB_OK && dpb_world.rank == 0)
        status = write_snapshot(trainer, path, weights, average);
    else if (status == DPB_OK)
        status = dpb_collect_answer(&trainer->exchange.collection);
    if (status == DPB_OK && dpb_world.rank != 0)
        status = dpb_saved_give(&trainer->exchange);
    free(average);
    /* Rank 0 reads the others' mapped state until here; workers that do not exchange have nothing
     * to wait for. */
    if (status == DPB_OK && trainer->replicas > 1)
        status = dpb_workers_meet();
    return status;
}

static dpb_status save(struct dpb_trainer *trainer, const char *path)
{
    const int64_t begun_ns = dpb_trace_begin();
    dpb_status status = take_and_write(trainer, path);
    dpb_trace_end(DPB_TRACE_CHECKPOINT, 0, trainer->course.step, begun_ns);
    return status;
}

dpb_status dpb_snapshot_save(struct dpb_trainer *trainer)
{
    const char *path = trainer->experiment->settings.checkpoint.save;
    return path[0] ? save(trainer, path) : DPB_OK;
}

dpb_status dpb_snapshot_save_step(struct dpb_trainer *trainer)
{
    char path[PATH_MAX];
    dpb_snapshot_path(trainer->experiment->settings.checkpoint.save, trainer->course.step, path,
                      sizeof path);
    return save(trainer, path);
}

/* ---- after a death ------------------------------------------------------------------------- */

/* "net-step100.safetensors.4711.tmp" of "net.safetensors": as graph/safetensors.c names it. */
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

void dpb_snapshot_sweep(const char *save, const int32_t *pids, uint32_t n)
{
    char directory[PATH_MAX], stem[PATH_MAX];
    const char *slash = strrchr(save, '/');
    if (save[0] == '\0' || snprintf(stem, sizeof stem, "%s", slash ? slash + 1 : save) >= PATH_MAX)
        return;
    char *dot = strstr(stem, ".safetensors");
    if (dot)
        *dot = '\0';
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - save + 1) : 1,
             slash ? save : ".");
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (is_temporary_of(entry->d_name, stem, pids, n))
            unlinkat(dirfd(entries), entry->d_name, 0);
    if (entries)
        closedir(entries);
}
