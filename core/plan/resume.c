/* resume.c - see resume.h. */
#include "plan/resume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "optim/optimizer.h"
#include "plan/evaluations.h"
#include "world/world.h"

bool dpb_resumes(const struct dpb_settings *settings)
{
    return settings->checkpoint.load[0] && settings->checkpoint.resume &&
           settings->run.mode == DPB_MODE_TRAIN;
}

uint32_t dpb_resumed_state(const struct dpb_settings *settings, struct dpb_checkpoint *checkpoint)
{
    return dpb_resumes(settings)
               ? dpb_optimizer_state_names(&settings->optimizer, checkpoint->optimizer_names)
               : 0;
}

/* ---- the strategy's state ------------------------------------------------------------------ */

dpb_status dpb_lost_tell(const struct dpb_experiment *experiment, const struct dpb_lost *lost,
                         const char *what)
{
    const struct dpb_settings *settings = &experiment->settings;
    if (!settings->checkpoint.partial)
        return dpb_fail(DPB_USAGE,
                        "%s: %s '%s' and %u more of a strategy's state, which comm '%s' with %u "
                        "workers cannot keep: continue with the strategy, options and workers it "
                        "was saved with, or without this state by checkpoint.partial=yes",
                        settings->checkpoint.load, what, lost->first, lost->n - 1, lost->comm,
                        lost->n_workers);
    if (dpb_world.rank == 0)
        dpb_warn("state_not_kept",
                 "%s: %s '%s' and %u more of a strategy's state, which comm '%s' with %u workers "
                 "cannot keep; they begin anew from the model (checkpoint.partial=yes)",
                 settings->checkpoint.load, what, lost->first, lost->n - 1, lost->comm,
                 lost->n_workers);
    return DPB_OK;
}

static dpb_status check_saved(const struct dpb_experiment *experiment)
{
    struct dpb_lost lost = {.comm = experiment->settings.comm.name,
                            .n_workers = experiment->n_workers};
    struct dpb_safetensors *file;
    if (!dpb_resumes(&experiment->settings) || experiment->settings.checkpoint.partial)
        return DPB_OK;
    DPB_TRY(dpb_safetensors_open(experiment->settings.checkpoint.load, &file));
    lost.file = file;
    dpb_lost_look(&lost);
    dpb_safetensors_close(file);
    return lost.n > 0 ? dpb_lost_tell(experiment, &lost, "it has") : DPB_OK;
}

/* ---- its evaluations ----------------------------------------------------------------------- */

/* A training that has met its target is over: it would meet it again at the next evaluation. */
static dpb_status check_target(const struct dpb_settings *settings)
{
    const char *path = settings->checkpoint.load;
    const size_t bytes = DPB_JOURNAL_EVALS * sizeof(struct dpb_eval);
    struct dpb_eval *evals = calloc(1, bytes);
    uint64_t n, met = 0;
    DPB_TRY(dpb_allocated(evals));
    dpb_status status = dpb_evaluations_read(path, evals, DPB_JOURNAL_EVALS, &n);
    while (status == DPB_OK && met < n && !dpb_evaluations_meet(evals, met + 1, settings))
        met++;
    if (status == DPB_OK && met < n)
        status = dpb_fail(DPB_USAGE,
                          "%s: its training met eval.%s = %.6g at step %" PRIu64
                          ": give another target or none, or begin anew with its weights by "
                          "checkpoint.resume=no",
                          path, settings->eval.target_loss > 0 ? "target_loss" : "target",
                          settings->eval.target + settings->eval.target_loss, evals[met].step);
    free(evals);
    return status;
}

/* ---- all of a file ------------------------------------------------------------------------- */

dpb_status dpb_resume_check(const struct dpb_experiment *experiment, struct dpb_progress *start)
{
    const struct dpb_settings *settings = &experiment->settings;
    struct dpb_checkpoint checkpoint = {.graph = experiment->graph,
                                        .type = experiment->weight_type};
    struct dpb_progress found;
    (void)dpb_resumed_state(settings, &checkpoint);
    memset(start, 0, sizeof *start);
    if (!settings->checkpoint.load[0])
        return DPB_OK;
    DPB_TRY(dpb_checkpoint_check(settings->checkpoint.load, &checkpoint, &found));
    if (!dpb_resumes(settings))
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
    DPB_TRY(check_saved(experiment));
    DPB_TRY(check_target(settings));
    *start = found;
    return DPB_OK;
}
