/*
 * pass.c - forward and backward: walks a list of steps, and reports the pass's progress to the
 * hooks between them.
 */
#include <omp.h>

#include "hooks.h"
#include "lib/device/op_name.h"
#include "lib/device/refuse.h"
#include "ops.h"

void cpu_use_threads(uint32_t threads)
{
    omp_set_num_threads((int)threads);
}

static dpb_status run_step(const struct program *p, const struct step *step)
{
    if (!step->desc) {
        step->loop(p, step);
        return DPB_OK;
    }
    dnnl_status_t status =
        dnnl_primitive_execute(step->primitive, p->stream, step->n_args, step->args);
    if (status == dnnl_success)
        return DPB_OK;
    return cpu_host->fail(DPB_FAILED, "device cpu: node '%s' (%s): %s: oneDNN reports %s",
                          step->node->name, dpb_op_name(step->node->op), step->what,
                          dnnl_status2str(status));
}

static dpb_status run_timed(struct program *p, const struct step *step, size_t number, bool counted,
                            const struct dpb_hooks *hooks)
{
    int64_t began_ns = cpu_host->now_ns();
    dpb_status status = run_step(p, step);
    int64_t ended_ns = cpu_host->now_ns();
    if (counted) {
        p->step_ns[number] += ended_ns - began_ns;
        p->step_calls[number]++;
    }
    if (hooks->op)
        hooks->op(hooks->context, cpu_index(p, step->node), began_ns, ended_ns);
    return status;
}

/* Runs the steps of a list that `when` (bits of enum when) asks for. */
static dpb_status run_steps(struct program *p, const struct step_list *list, unsigned when,
                            const struct dpb_hooks *hooks)
{
    const size_t first = list == &p->backward ? p->forward.n : 0;     /* for p->step_ns */
    const bool counted = (when & WHEN_TRAINING) || !p->args.training; /* struct dpb_profile */
    const struct dpb_node *node = NULL;
    uint64_t frontier = 0;
    cpu_use_threads(p->threads); /* a setting of the calling thread, which need not be open's */
    for (size_t i = 0; i < list->n; i++) {
        const struct step *step = &list->steps[i];
        if (!(step->when & when))
            continue;
        if (hooks->enter && step->node != node)
            DPB_TRY(hooks->enter(hooks->context, cpu_index(p, step->node)));
        node = step->node;
        DPB_TRY(p->step_ns ? run_timed(p, step, first + i, counted, hooks) : run_step(p, step));
        if (step->frontier > frontier) {
            frontier = step->frontier;
            DPB_TRY(hooks->final(hooks->context, frontier, NULL));
        }
        DPB_TRY(hooks->progress(hooks->context));
    }
    return DPB_OK;
}

dpb_status cpu_forward(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                       const struct dpb_hooks *hooks, struct dpb_outcome *outcome)
{
    struct program *p = program;
    DPB_TRY(dpb_refuse_pass(cpu_host, "cpu", &p->args, pass, batch));
    unsigned when = pass->training ? WHEN_TRAINING : WHEN_EVALUATION;
    if (pass->weights_changed || !p->forward_packed)
        when |= WHEN_REPACKING;
    if (pass->weights_changed)
        p->backward_packed = false;
    p->trained = false;
    p->forward_packed = false;
    p->pass = pass;
    p->batch = batch;
    dpb_status status = run_steps(p, &p->forward, when, hooks);
    p->pass = NULL;
    p->batch = NULL;
    if (status != DPB_OK)
        return status;
    p->forward_packed = true;
    p->trained = pass->training;
    cpu_loss_outcome(p, pass->valid, outcome);
    return DPB_OK;
}

dpb_status cpu_backward(void *program, const struct dpb_pass *pass, const struct dpb_hooks *hooks)
{
    struct program *p = program;
    if (!p->trained)
        return cpu_host->fail(DPB_USAGE, "device cpu: backward without a training pass forward");
    unsigned when = WHEN_TRAINING | (p->backward_packed ? 0 : WHEN_REPACKING);
    p->backward_packed = false;
    p->pass = pass;
    dpb_status status = run_steps(p, &p->backward, when, hooks);
    p->pass = NULL;
    if (status == DPB_OK)
        p->backward_packed = true;
    return status;
}
