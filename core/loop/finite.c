/* finite.c - see finite.h. */
#include "loop/finite.h"

#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "exchange/step.h"
#include "graph/graph.h"
#include "measure/account.h"

/* run.nan: the run ends, or continues after a warning at the first such step. */
static dpb_status meet_nan(struct dpb_trainer *trainer, const char *what)
{
    if (trainer->experiment->settings.run.nan == DPB_NAN_STOP)
        return dpb_fail(DPB_FAILED,
                        "step %llu: %s is not finite; try a smaller "
                        "optimizer.learning_rate, or run.nan = continue to train on",
                        (unsigned long long)trainer->course.step, what);
    if (!trainer->course.nan_seen)
        dpb_warn("nan", "step %llu: %s is not finite, and the run continues (run.nan = continue)",
                 (unsigned long long)trainer->course.step, what);
    trainer->course.nan_seen = true;
    return DPB_OK;
}

/* The loss, and the weights that this worker or a server has updated: devices may compute a finite
 * loss from weights that are no numbers. */
dpb_status dpb_look_for_nan(struct dpb_trainer *trainer, double loss)
{
    const struct dpb_graph *graph = trainer->experiment->graph;
    char what[128];
    if (!isfinite(loss))
        return meet_nan(trainer, "the loss");
    for (uint32_t rank = dpb_world.rank; rank < dpb_world.n_ranks && !trainer->course.nan_seen;
         rank = rank < dpb_world.n_workers ? dpb_world.n_workers : rank + 1) {
        const struct dpb_status_page *page = dpb_board_page(dpb_world.board, rank);
        uint64_t element = __atomic_load_n(&page->not_finite, __ATOMIC_RELAXED);
        if (element == 0)
            continue;
        uint32_t tensor = dpb_graph_tensor_at(graph, element - 1);
        snprintf(what, sizeof what, "an element of the new %s", graph->tensors[tensor].name);
        return meet_nan(trainer, what);
    }
    return DPB_OK;
}

/* ---- fp16 ---------------------------------------------------------------------------------- */

dpb_status dpb_look_for_overflow(const struct dpb_engine *engine, bool *overflow)
{
    bool finite;
    DPB_TRY(engine->ops->finite(engine->program, &finite));
    *overflow = *overflow || !finite;
    return DPB_OK;
}

static dpb_status agree_on_overflow(struct dpb_trainer *trainer, bool overflow, uint8_t *highest)
{
    *highest = overflow;
    if (trainer->replicas == 1)
        return DPB_OK;
    dpb_world_note("agree", UINT64_MAX, UINT32_MAX);
    const int64_t entered_ns = dpb_account_enter();
    return dpb_account_leave(
        entered_ns, dpb_control_agree(&trainer->control, trainer->course.step, overflow, highest));
}

/* Gradients are exchanged only if the gradients of all ranks are finite. Otherwise no rank
 * exchanges any: weights, momentum, running statistics and schedule stay as they were. */
dpb_status dpb_exchange_if_finite(struct dpb_trainer *trainer, double rate, double scale,
                                  bool own_overflow)
{
    const double multiplied_by = trainer->loss_scale.scale;
    uint8_t overflow;
    DPB_TRY(agree_on_overflow(trainer, own_overflow, &overflow));
    const bool helps = dpb_loss_scale_step(&trainer->loss_scale, overflow != 0);
    trainer->journal->loss_scale = trainer->loss_scale.scale;
    trainer->journal->skipped_steps += overflow != 0;
    if (!helps)
        DPB_TRY(meet_nan(trainer, "at a loss scale of 1 a gradient"));
    if (overflow) {
        trainer->course.rate_shift--;
        return DPB_OK;
    }
    dpb_statistics_move(&trainer->statistics);
    DPB_TRY(dpb_exchange_begin(&trainer->exchange, rate, scale / multiplied_by, false));
    DPB_TRY(dpb_exchange_ready(&trainer->exchange, trainer->exchange.layout.n_elements, NULL));
    trainer->engine.weights_changed = true;
    return dpb_exchange_finish(&trainer->exchange);
}
