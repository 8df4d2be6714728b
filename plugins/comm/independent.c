/*
 * independent - no exchange at all: every worker trains a replica of its own. The upper bound that
 * the other strategies are measured against.
 *
 * On the host a bucket is updated once its gradients are final. On a device that has arenas of its
 * own each update is enqueued behind the gradients, on a queue beside the device's.
 *
 * Bytes moved per step: none. Consistency: none.
 */
#include "dpbench/plugin.h"
#include "lib/strategy.h"

static const struct dpb_host *host;

struct independent {
    struct strategy strategy;
    struct dpb_queue *queue; /* NULL: arenas on the host */
    struct dpb_event *updated;
};

/* ---- stage: update, once the own gradients are final --------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_self(comm), bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return strategy_wait_ready(comm, strategy_self(comm), bucket);
}

static const struct stage stages[] = {{update_due, strategy_update_bucket, update_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status independent_open(const void *options, const struct dpb_comm_args *args,
                                   void **comm)
{
    (void)options;
    return strategy_open(host, args, sizeof(struct independent), comm);
}

static dpb_status independent_plan(void *comm, const struct dpb_layout *layout,
                                   struct dpb_comm_plan *want)
{
    const struct strategy *strategy = comm;
    DPB_TRY(strategy_plan_replica(comm, layout, DPB_MEMORY_PRIVATE, want));
    want->on_device = strategy->args.device != NULL;
    return DPB_OK;
}

static dpb_status independent_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct independent *self = comm;
    const struct dpb_device_arenas *device = self->strategy.args.device;
    DPB_TRY(strategy_bind(comm, arenas, stages, 1));
    if (!device)
        return DPB_OK;
    DPB_TRY(device->ops->open(device->device, &self->queue));
    return device->ops->new_event(device->device, &self->updated);
}

static dpb_status independent_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    struct independent *self = comm;
    const struct strategy *strategy = comm;
    if (!self->queue)
        return strategy_ready(comm, bucket, event);
    uint64_t begin = bucket * strategy->arenas.bucket_elements;
    uint64_t n = pipeline_bucket_length(&strategy->pipeline, bucket);
    if (event)
        DPB_TRY(strategy->args.device->ops->await(self->queue, event));
    return host->optimizer->enqueue(
        strategy->arenas.optimizer, self->queue, (struct dpb_range){begin, begin + n},
        strategy_weights(strategy, strategy->args.rank, begin),
        strategy_gradients(strategy, strategy->args.rank, begin), &strategy->step);
}

/* Nothing has to be done for what is enqueued; who may block waits for it. */
static dpb_status independent_progress(void *comm, int64_t budget_ns)
{
    const struct independent *self = comm;
    const struct dpb_wait wait = {.step = self->strategy.step.step, .purpose = "its updates"};
    if (!self->queue)
        return strategy_progress(comm, budget_ns);
    if (budget_ns != DPB_FOREVER)
        return DPB_OK;
    int64_t began_ns = host->now_ns();
    DPB_TRY(host->event->wait(self->updated, &wait));
    host->span(0, DPB_PHASE_UPDATE, began_ns, host->now_ns());
    return DPB_OK;
}

static dpb_status independent_end(void *comm, struct dpb_event **done)
{
    struct independent *self = comm;
    if (!self->queue)
        return strategy_end(comm, done);
    *done = self->updated;
    return self->strategy.args.device->ops->record(self->queue, self->updated);
}

static void independent_close(void *comm)
{
    struct independent *self = comm;
    if (self && self->strategy.args.device) {
        host->event->destroy(self->updated);
        self->strategy.args.device->ops->close(self->queue);
    }
    strategy_close(comm);
}

static const struct dpb_comm_ops independent_ops = {.open = independent_open,
                                                    .plan = independent_plan,
                                                    .bind = independent_bind,
                                                    .load = strategy_load,
                                                    .begin = strategy_begin,
                                                    .ready = independent_ready,
                                                    .progress = independent_progress,
                                                    .end = independent_end,
                                                    .publish = strategy_publish,
                                                    .close = independent_close};

static const struct dpb_plugin independent = {
    DPB_PLUGIN_HEAD(COMM, independent_ops),
    .capabilities = DPB_COMM_ALONE | DPB_COMM_MULTI_NODE | DPB_COMM_EVENTS,
    .name = "independent",
    .version = DPB_VERSION,
    .summary = "no exchange: the upper bound",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &independent;
}
