/* restarts.c - see restarts.h. */
#include "record/restarts.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "measure/journal.h"

dpb_status dpb_restarts_open(const struct dpb_experiment *experiment, struct dpb_restarts *restarts)
{
    const struct dpb_settings *settings = &experiment->settings;
    *restarts = (struct dpb_restarts){.experiment = experiment,
                                      .known_ns = NAN,
                                      .first_step_s = NAN,
                                      .kept = {.launcher = (int32_t)getpid(), .files = {-1, -1}}};
    if (settings->run.restart == 0)
        return DPB_OK;
    restarts->losses = json_array();
    DPB_TRY(dpb_allocated(restarts->losses));
    for (uint32_t i = 0; settings->checkpoint.place == DPB_CHECKPOINT_PEER && i < DPB_KEPT; i++) {
        restarts->kept.files[i] = memfd_create("dpbench-checkpoint", MFD_CLOEXEC);
        if (restarts->kept.files[i] < 0)
            return dpb_fail(DPB_FAILED, "memfd_create: %s", strerror(errno));
    }
    return DPB_OK;
}

void dpb_restarts_close(struct dpb_restarts *restarts)
{
    for (uint32_t i = 0; restarts->losses && i < DPB_KEPT; i++)
        if (restarts->kept.files[i] >= 0)
            close(restarts->kept.files[i]);
    json_decref(restarts->losses);
    free(restarts->config);
    *restarts = (struct dpb_restarts){.losses = NULL};
}

/* ---- the account --------------------------------------------------------------------------- */

/* Steps that all workers have done. */
static uint64_t steps_done(const struct dpb_restarts *restarts, struct dpb_board *board)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t rank = 0; rank < restarts->experiment->n_workers; rank++) {
        const struct dpb_journal *journal = dpb_board_journal(board, rank, NULL);
        const uint64_t n = __atomic_load_n(&journal->n_records, __ATOMIC_ACQUIRE);
        const uint64_t done = journal->first_step + n + journal->unrecorded;
        least = done < least ? done : least;
    }
    return least;
}

/* When the slowest worker began and ended the first step of a start; false: it made none. */
static bool first_step_of(const struct dpb_restarts *restarts, struct dpb_board *board,
                          double *began_ns, double *ended_ns)
{
    *began_ns = *ended_ns = 0;
    for (uint32_t rank = 0; rank < restarts->experiment->n_workers; rank++) {
        const struct dpb_journal *journal = dpb_board_journal(board, rank, NULL);
        if (__atomic_load_n(&journal->n_records, __ATOMIC_ACQUIRE) == 0)
            return false;
        const double dilation = journal->dilation > 1 ? journal->dilation : 1;
        const double begin_ns = (double)dpb_journal_began_ns(journal, 0);
        *began_ns = fmax(*began_ns, begin_ns);
        *ended_ns = fmax(*ended_ns, begin_ns + (double)journal->records[0].step_ns * dilation);
    }
    return true;
}

/* What the start that followed the last loss, or the job's first, says of itself. */
static void end_start(struct dpb_restarts *restarts, struct dpb_board *board)
{
    const struct dpb_journal *journal = dpb_board_journal(board, 0, NULL);
    json_t *loss = json_array_get(restarts->losses, json_array_size(restarts->losses) - 1);
    double began_ns, ended_ns;
    const bool stepped = first_step_of(restarts, board, &began_ns, &ended_ns);
    if (!loss && journal->capacity > 0)
        restarts->from = journal->first_step;
    if (stepped && !isfinite(restarts->first_step_s))
        restarts->first_step_s = (ended_ns - (double)dpb_board_about(board)->began_ns) * 1e-9;
    if (!loss || !stepped)
        return;
    const double opened_ns = (double)(dpb_journal_began_ns(journal, 0) - journal->start_ns);
    json_object_set_new(loss, "reform_s", dpb_json_real((opened_ns - restarts->known_ns) * 1e-9));
    json_object_set_new(loss, "reload_s", dpb_json_real((began_ns - opened_ns) * 1e-9));
    json_object_set_new(loss, "first_step_s", dpb_json_real((ended_ns - began_ns) * 1e-9));
}

void dpb_restarts_report(struct dpb_restarts *restarts, struct dpb_board *board, json_t *document)
{
    if (!restarts->losses)
        return;
    end_start(restarts, board);
    const double steps = (double)steps_done(restarts, board) - (double)restarts->from;
    const double wall_s = (double)(dpb_now_ns() - dpb_board_about(board)->began_ns) * 1e-9;
    const double samples = steps * (double)restarts->experiment->global_batch;
    json_object_set(document, "restarts", restarts->losses);
    json_object_set_new(document, "goodput",
                        json_pack("{s:o, s:o, s:o, s:b}",                                    //
                                  "samples_per_s", dpb_json_real(fmax(samples, 0) / wall_s), //
                                  "wall_s", dpb_json_real(wall_s),                           //
                                  "first_step_s", dpb_json_real(restarts->first_step_s),     //
                                  "restarted", json_array_size(restarts->losses) > 0));
}

/* ---- the next start ------------------------------------------------------------------------ */

static dpb_status set_number(struct dpb_config *config, const char *key, uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, number);
    return dpb_config_set(config, "run", key, text, "run.restart");
}

/* The step behind the job's last; UINT64_MAX: no start came so far that it is known. */
static uint64_t end_of(const struct dpb_restarts *restarts, struct dpb_board *board)
{
    const struct dpb_run_settings *run = &restarts->experiment->settings.run;
    const uint64_t planned = dpb_board_page(board, 0)->n_steps;
    if (run->steps > 0)
        return restarts->from + (uint64_t)(run->warmup_steps + run->steps);
    return planned > 0 ? planned : UINT64_MAX;
}

/* Continues checkpoint i; a checkpoint behind the last step is none to continue. */
static dpb_status continue_from(const struct dpb_restarts *restarts, uint64_t step, uint64_t end,
                                uint32_t i, struct dpb_config *config)
{
    const struct dpb_settings *settings = &restarts->experiment->settings;
    char path[PATH_MAX];
    if (settings->checkpoint.place == DPB_CHECKPOINT_PEER)
        dpb_kept_path(&restarts->kept, i, path, sizeof path);
    else
        dpb_snapshot_path(settings->checkpoint.save, step, path, sizeof path);
    DPB_TRY(dpb_config_set(config, "checkpoint", "load", path, "run.restart"));
    DPB_TRY(dpb_config_set(config, "checkpoint", "resume", "yes", "run.restart"));
    if (settings->run.steps == 0)
        return DPB_OK;
    const uint64_t warm = (uint64_t)settings->run.warmup_steps, left = end - step;
    const uint64_t untimed = warm < left ? warm : left - 1;
    DPB_TRY(set_number(config, "warmup_steps", untimed));
    return set_number(config, "steps", left - untimed);
}

/* Takes over the JSON. */
static dpb_status keep_config(struct dpb_restarts *restarts, json_t *json)
{
    free(restarts->config);
    restarts->config = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return dpb_allocated(restarts->config);
}

dpb_status dpb_restarts_follow(void *context, const struct dpb_again *head, struct dpb_again *again)
{
    struct dpb_restarts *restarts = context;
    json_t *json = json_loads(head->config, 0, NULL);
    json_t *load = json_object_get(json_object_get(json, "checkpoint"), "load");
    char path[PATH_MAX];
    if (!json)
        return dpb_fail(DPB_PEER, "rank 0's launcher has sent a configuration that is none");
    if (head->checkpoint >= 0) {
        dpb_kept_path(&restarts->kept, 0, path, sizeof path);
        json_object_set_new(load, "value", json_string(path));
    }
    const dpb_status status = keep_config(restarts, json);
    *again = (struct dpb_again){restarts->config, head->checkpoint >= 0 ? 0 : -1};
    return status;
}

dpb_status dpb_restarts_again(void *context, const struct dpb_loss *loss, struct dpb_board *board,
                              struct dpb_again *again)
{
    struct dpb_restarts *restarts = context;
    const struct dpb_board_kept *kept = dpb_board_kept(board);
    end_start(restarts, board);
    const uint64_t end = end_of(restarts, board), done = steps_done(restarts, board);
    const uint32_t last = kept->steps[1] > kept->steps[0],
                   i = kept->steps[last] < end ? last : !last;
    const bool continues = kept->steps[i] > 0 && kept->steps[i] < end;
    const uint64_t step = continues ? kept->steps[i] : restarts->from;
    json_t *entry =
        json_pack("{s:I, s:o, s:I, s:I, s:o, s:n, s:n, s:n}", "rank", (json_int_t)loss->rank, //
                  "cause", dpb_json_string(loss->cause), "step", (json_int_t)step,            //
                  "steps_lost", (json_int_t)(done > step ? done - step : 0),                  //
                  "detect_s", dpb_json_real((double)(loss->known_ns - loss->sign_ns) * 1e-9), //
                  "reform_s", "reload_s", "first_step_s");
    DPB_TRY(dpb_allocated(entry));
    json_array_append_new(restarts->losses, entry);
    restarts->known_ns = (double)loss->known_ns;
    dpb_warn("restarted", "%s; all ranks start again from step %" PRIu64 " (restart %zu of %lld)",
             loss->cause, step, json_array_size(restarts->losses),
             (long long)restarts->experiment->settings.run.restart);
    struct dpb_config *next = dpb_config_copy(restarts->experiment->config);
    dpb_status status = dpb_allocated(next);
    if (continues)
        DPB_THEN(status, continue_from(restarts, step, end, i, next));
    DPB_THEN(status, keep_config(restarts, dpb_config_to_json(next)));
    dpb_config_destroy(next);
    const bool in_memory = restarts->kept.files[0] >= 0;
    *again = (struct dpb_again){restarts->config, continues && in_memory ? (int)i : -1};
    return status;
}
