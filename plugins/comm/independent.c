/*
 * independent - no exchange at all: every worker trains a replica of its own. Its rate is the upper
 * bound for the other strategies.
 *
 * Each bucket's update is enqueued behind its gradients, on a queue beside the device's own. The
 * host's queue runs the update at once.
 *
 * Bytes moved per step: none. Consistency: none.
 */
#include "dpbench/plugin.h"
#include "lib/strategy/strategy.h"

static const struct dpb_host *host;

struct independent {
    struct dpb_strategy strategy;
    const struct dpb_queue_ops *queues;
    struct dpb_queue *queue;
    struct dpb_event *updated;
};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status independent_needs(const void *options, struct dpb_comm_needs *needs)
{
    (void)options;
    needs->on_device = needs->takes_events = true;
    return DPB_OK;
}

static dpb_status independent_open(const void *options, const struct dpb_comm_args *args,
                                   void **comm)
{
    (void)options;
    DPB_TRY(dpb_strategy_open(host, args, sizeof(struct independent), comm));
    ((struct independent *)*comm)->queues = args->device->ops;
    return DPB_OK;
}

static dpb_status independent_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct independent *self = comm;
    void *device = self->strategy.args.device->device;
    DPB_TRY(dpb_strategy_bind(comm, arenas, NULL, 0));
    DPB_TRY(self->queues->open(device, &self->queue));
    return self->queues->new_event(device, &self->updated);
}

static dpb_status independent_begin(void *comm, const struct dpb_step *step)
{
    ((struct independent *)comm)->strategy.step = *step;
    return DPB_OK;
}

static dpb_status independent_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    const struct independent *self = comm;
    const struct dpb_strategy *strategy = comm;
    const uint64_t begin = bucket * strategy->arenas.bucket_elements;
    const uint64_t n = dpb_pipeline_bucket_length(&strategy->pipeline, bucket);
    if (event)
        DPB_TRY(self->queues->await(self->queue, event));
    return dpb_strategy_enqueue_update(strategy, self->queue, bucket, (struct dpb_piece){begin, n},
                                       dpb_strategy_own_gradients(strategy, begin));
}

/* Enqueued updates need no help. A caller that may block waits for the last update. */
static dpb_status independent_progress(void *comm, int64_t budget_ns)
{
    const struct independent *self = comm;
    const struct dpb_wait wait = {.step = self->strategy.step.step, .purpose = "its updates"};
    if (budget_ns != DPB_FOREVER || host->event->poll(self->updated))
        return DPB_OK;
    int64_t began_ns = host->now_ns();
    DPB_TRY(host->event->wait(self->updated, &wait));
    host->span(0, DPB_PHASE_UPDATE, began_ns, host->now_ns());
    return DPB_OK;
}

static dpb_status independent_end(void *comm, struct dpb_event **done)
{
    const struct independent *self = comm;
    *done = self->updated;
    return self->queues->record(self->queue, self->updated);
}

static void independent_close(void *comm)
{
    const struct independent *self = comm;
    if (self && self->queue) {
        host->event->destroy(self->updated);
        self->queues->close(self->queue);
    }
    dpb_strategy_close(comm);
}

static const struct dpb_comm_ops independent_ops = {.needs = independent_needs,
                                                    .open = independent_open,
                                                    .plan = dpb_strategy_plan_own,
                                                    .bind = independent_bind,
                                                    .load = dpb_strategy_load,
                                                    .close = independent_close,
                                                    .begin = independent_begin,
                                                    .ready = independent_ready,
                                                    .progress = independent_progress,
                                                    .end = independent_end,
                                                    .publish = dpb_strategy_publish};

static const struct dpb_plugin independent = {
    DPB_PLUGIN_HEAD(COMM, independent_ops),
    .capabilities = DPB_COMM_ALONE | DPB_COMM_MULTI_NODE | DPB_COMM_WHOLE | DPB_COMM_SURVIVES,
    .name = "independent",
    .version = DPB_VERSION,
    .summary = "no exchange: the upper bound",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &independent;
}
