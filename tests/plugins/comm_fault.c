/*
 * comm_fault.c - a real strategy (comm.inner) that misbehaves when it is told; see fault.h.
 */
#include "fault.h"

#include "comm/hierarchical/across.h"
#include "comm/ps_cpu/ps.h"
#include "lib/averaging/averaging.h"
#include "wrap.h"

#ifndef FAULT_NAME
#define FAULT_NAME "fault"
#define FAULT_INNER inner_names[options->inner]
#define FAULT_CAPABILITIES \
    DPB_COMM_OVERLAP | DPB_COMM_SERVERS | DPB_COMM_MULTI_NODE | DPB_COMM_ROUNDS
#endif

#define HOOKS(X) \
    X(open)      \
    X(plan)      \
    X(bind) X(load) X(begin) X(ready) X(progress) X(end) X(publish) X(serve) X(close) X(need)
enum {
#define HOOK_NUMBER(name) HOOK_##name,
    HOOKS(HOOK_NUMBER)
};
#define HOOK_NAME(name) #name,
static const char *const hooks[] = {HOOKS(HOOK_NAME) NULL};
static const char *const inner_names[] = {
    "shm",       "replicated", "ps_cpu", "ring_tcp", "hierarchical", "gloo", "ps_gpu",
    "local_sgd", "sma",        "easgd",  "gossip",   "diloco",       NULL};

static const char *const shards[] = {"none", "optimizer", "gradients", "parameters", NULL};

struct options {
    struct fault_options fault;
    int inner;
    struct dpb_ring_options ring; /* these two are those of ring_tcp */
    struct dpb_tcp_options tcp;
};

static const struct dpb_option option_rows[] = {
    FAULT_ROWS(struct options, fault, hooks),
    {"inner", DPB_OPT_CHOICE, NULL, "shm", 0, 0, inner_names, offsetof(struct options, inner),
     "the strategy that does the work", NULL},
    {"shard", DPB_OPT_CHOICE, NULL, "none", 0, 0, shards, offsetof(struct options, ring.shard),
     "of shm and ring_tcp", NULL},
    DPB_RING_OPTION_ROWS(struct options, NULL),
    DPB_TCP_OPTION_ROWS(struct options, NULL),
    {0},
};

/* A process has one communicator. */
static const struct dpb_host *host;
static const struct dpb_comm_ops *inner;
static struct fault_options fault;
static uint32_t own_rank;

#define FAULT_HERE(hook) DPB_TRY(fault_here(host, &fault, own_rank, HOOK_##hook))

/* Loads the inner strategy; *its are options for it. */
static dpb_status load_inner(const struct options *options, const void **its)
{
    static struct hierarchical_options over_tcp;
    static struct ps_cpu_options served;
    static const int shards_on_all = 0;
    static struct {
        struct dpb_averaging_options own;
        struct dpb_tcp_options tcp; /* as dpb_tcp_add_options puts it behind */
    } averaging = {.own = {.period = 4, .outer_rate = 0.7, .outer_momentum = 0.9}};
    char file[64];
    const char *name = FAULT_INNER;
    snprintf(file, sizeof file, "comm_%s", name);
    const struct dpb_plugin *plugin = fault_inner(host, file);
    if (!plugin)
        return DPB_FAILED;
    inner = plugin->ops;
    over_tcp = (struct hierarchical_options){.ring = options->ring, .tcp = options->tcp};
    averaging.tcp = options->tcp;
    served = (struct ps_cpu_options){.ps = {.tcp = options->tcp}};
    *its = NULL; /* Gloo's have defaults */
    if (strcmp(name, "shm") == 0 || strcmp(name, "replicated") == 0)
        *its = &options->ring.shard;
    else if (strcmp(name, "ring_tcp") == 0)
        *its = &options->ring;
    else if (strcmp(name, "ps_cpu") == 0)
        *its = &served;
    else if (strcmp(name, "ps_gpu") == 0)
        *its = &shards_on_all;
    else if (strcmp(name, "hierarchical") == 0)
        *its = &over_tcp;
    else if (strcmp(name, "gloo") != 0)
        *its = &averaging;
    return DPB_OK;
}

static dpb_status fault_needs(const void *given, struct dpb_comm_needs *needs)
{
    const void *its;
    DPB_TRY(load_inner(given, &its));
    return inner->needs ? inner->needs(its, needs) : DPB_OK;
}

static dpb_status fault_open(const void *given, const struct dpb_comm_args *args, void **comm)
{
    const struct options *options = given;
    const void *its;
    fault = options->fault;
    own_rank = args->rank;
    FAULT_HERE(open);
    DPB_TRY(load_inner(options, &its));
    return inner->open(its, args, comm);
}

static dpb_status fault_plan(void *comm, const struct dpb_layout *layout,
                             struct dpb_comm_plan *want)
{
    FAULT_HERE(plan);
    return wrap_plan(&inner, comm, layout, want);
}

static dpb_status fault_bind(void *comm, const struct dpb_arenas *arenas)
{
    FAULT_HERE(bind);
    return inner->bind(comm, arenas);
}

static dpb_status fault_load(void *comm)
{
    FAULT_HERE(load);
    return inner->load(comm);
}

static dpb_status fault_begin(void *comm, const struct dpb_step *step)
{
    FAULT_HERE(begin);
    return inner->begin(comm, step);
}

static dpb_status fault_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    FAULT_HERE(ready);
    return inner->ready(comm, bucket, event);
}

static dpb_status fault_progress(void *comm, int64_t budget_ns)
{
    FAULT_HERE(progress);
    return inner->progress(comm, budget_ns);
}

static dpb_status fault_end(void *comm, struct dpb_event **done)
{
    static struct dpb_event *never;
    FAULT_HERE(end);
    DPB_TRY(inner->end(comm, done));
    if (fault.fault != FAULT_FORGET || own_rank != fault.rank)
        return DPB_OK;
    if (!never && !(never = host->event->create()))
        return DPB_NO_MEMORY;
    *done = never;
    return DPB_OK;
}

static dpb_status fault_publish(void *comm, struct dpb_view *view)
{
    FAULT_HERE(publish);
    return inner->publish(comm, view);
}

static uint64_t fault_taken(void *comm)
{
    return inner->taken(comm);
}

static void fault_need(void *comm, uint64_t bucket)
{
    (void)fault_here(host, &fault, own_rank, HOOK_need);
    inner->need(comm, bucket);
}

static uint64_t fault_met(void *comm)
{
    return inner->met(comm);
}

static dpb_status fault_books(void *comm, struct dpb_books *books)
{
    return inner->books(comm, books);
}

static dpb_status fault_serve(void *comm)
{
    FAULT_HERE(serve);
    return inner->serve(comm);
}

static void fault_close(void *comm)
{
    fault_here(host, &fault, own_rank, HOOK_close);
    if (inner)
        inner->close(comm);
}

static const struct dpb_comm_ops fault_ops = {.needs = fault_needs,
                                              .open = fault_open,
                                              .plan = fault_plan,
                                              .bind = fault_bind,
                                              .load = fault_load,
                                              .begin = fault_begin,
                                              .ready = fault_ready,
                                              .progress = fault_progress,
                                              .end = fault_end,
                                              .publish = fault_publish,
                                              .taken = fault_taken,
                                              .need = fault_need,
                                              .met = fault_met,
                                              .books = fault_books,
                                              .serve = fault_serve,
                                              .close = fault_close};

static const struct dpb_plugin plugin_fault = {
    DPB_PLUGIN_HEAD(COMM, fault_ops),
    .capabilities = FAULT_CAPABILITIES,
    .name = FAULT_NAME,
    .version = "1",
    .summary = "for tests: a strategy that misbehaves when it is told",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin_fault;
}
