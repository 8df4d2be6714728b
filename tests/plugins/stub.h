/*
 * stub.h - a communicator that does nothing, for plugins that are wrong in one thing each.
 */
#include "dpbench/plugin.h"

static dpb_status stub_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    (void)args;
    *comm = NULL;
    return DPB_OK;
}

static dpb_status stub_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    (void)comm;
    (void)layout;
    (void)want;
    return DPB_OK;
}

static dpb_status stub_bind(void *comm, const struct dpb_arenas *arenas)
{
    (void)comm;
    (void)arenas;
    return DPB_OK;
}

static dpb_status stub_load(void *comm)
{
    (void)comm;
    return DPB_OK;
}

static dpb_status stub_begin(void *comm, const struct dpb_step *step)
{
    (void)comm;
    (void)step;
    return DPB_OK;
}

static dpb_status stub_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    (void)comm;
    (void)bucket;
    (void)event;
    return DPB_OK;
}

static dpb_status stub_progress(void *comm, int64_t budget_ns)
{
    (void)comm;
    (void)budget_ns;
    return DPB_OK;
}

static dpb_status stub_end(void *comm, struct dpb_event **done)
{
    (void)comm;
    (void)done;
    return DPB_OK;
}

static dpb_status stub_publish(void *comm, struct dpb_view *view)
{
    (void)comm;
    (void)view;
    return DPB_OK;
}

static void stub_close(void *comm)
{
    (void)comm;
}

#define STUB_OPS                                                                          \
    .open = stub_open, .plan = stub_plan, .bind = stub_bind, .load = stub_load,           \
    .begin = stub_begin, .ready = stub_ready, .progress = stub_progress, .end = stub_end, \
    .publish = stub_publish, .close = stub_close

static const struct dpb_comm_ops stub_ops = {STUB_OPS};

#define STUB_PLUGIN(NAME)                                                                    \
    {                                                                                        \
        DPB_PLUGIN_HEAD(COMM, stub_ops), .name = NAME, .version = "1", .summary = "a test's" \
    }
