/*
 * comm_sum_all.c - every worker sums the gradients of all workers straight out of their memory,
 * then updates its own copy of the weights.
 *
 * Each worker has one flag that all can read. In the n-th exchange, from 1, it says
 *     2 n - 1   my gradients are final: read them
 *     2 n       I have read those of all others: they may be written again
 *
 * Bytes moved per step, W workers, M bytes of gradients: W (W - 1) M. All sum in the same order, so
 * their weights are equal bit for bit.
 */
#include <dpbench/plugin.h>

static const struct dpb_host *host;

struct comm {
    struct dpb_comm_args args;
    struct dpb_arenas arenas;
    struct dpb_step step;
    struct dpb_event *done;
    uint32_t exchange; /* its number, from 1 */
    enum { IDLE, FILLING, SUMMING, READ_BY_ALL } state;
};

/* At the beginning of each worker's scratch memory; the sum follows it. Put arrays of wider types
 * before those of narrower ones: each must be aligned to its type. */
static struct dpb_flag *flag_of(const struct comm *comm, uint32_t rank)
{
    return comm->arenas.peer_scratch[rank];
}

static void *sum_of(const struct comm *comm)
{
    return (char *)comm->arenas.scratch + sizeof(struct dpb_flag);
}

/* ---- hooks, in the order in which they are called ------------------------------------------ */

static dpb_status open_comm(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    struct comm *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    made->args = *args;
    made->done = host->event->create();
    if (!made->done) {
        host->release(made, sizeof *made);
        return DPB_NO_MEMORY;
    }
    *comm = made;
    return DPB_OK;
}

/* Which memory is whose, before there is any. */
static dpb_status plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    (void)comm;
    want->weights = DPB_MEMORY_PRIVATE;
    want->gradients = DPB_MEMORY_SHARED; /* the others read them */
    want->scratch = DPB_MEMORY_SHARED;
    want->scratch_bytes =
        sizeof(struct dpb_flag) + layout->n_elements * dpb_dtype_size(layout->gradient_type);
    /* Every worker updates all weights, so it has the optimizer's state for all. */
    want->owned = host->alloc(sizeof *want->owned);
    if (!want->owned)
        return DPB_NO_MEMORY;
    want->owned[0] = (struct dpb_range){0, layout->n_elements};
    want->n_owned = 1;
    return DPB_OK;
}

static dpb_status bind_arenas(void *comm, const struct dpb_arenas *arenas)
{
    ((struct comm *)comm)->arenas = *arenas;
    return DPB_OK;
}

static dpb_status load(void *comm)
{
    (void)comm; /* all workers hold the same weights already, and they are the model */
    return DPB_OK;
}

static dpb_status begin(void *comm, const struct dpb_step *step)
{
    struct comm *c = comm;
    c->step = *step;
    c->exchange++;
    c->state = FILLING;
    host->event->reset(c->done);
    return DPB_OK;
}

static dpb_status ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    struct comm *c = comm;
    (void)event;
    if (bucket + 1 < c->arenas.n_buckets)
        return DPB_OK; /* a strategy that overlaps would begin with this bucket now */
    host->flag->set(flag_of(c, c->args.rank), 2 * c->exchange - 1);
    c->state = SUMMING;
    return DPB_OK;
}

/* Whether all workers' flags have reached `value`; with DPB_FOREVER waits for the first that has
 * not. Every wait says what it is for: that is the message when its deadline passes. */
static dpb_status all_reached(const struct comm *c, uint32_t value, int64_t budget_ns, bool *all)
{
    const struct dpb_wait what = {.step = c->step.step, .purpose = "the others' gradients"};
    *all = false;
    for (uint32_t rank = 0; rank < c->args.n_workers; rank++) {
        struct dpb_wait wait = what;
        wait.peer = rank;
        if (host->flag->reached(flag_of(c, rank), value))
            continue;
        if (budget_ns != DPB_FOREVER)
            return DPB_OK;
        int64_t began_ns = host->now_ns();
        DPB_TRY(host->flag->wait(flag_of(c, rank), value, &wait));
        host->span(0, DPB_PHASE_WAIT_PEER, began_ns, host->now_ns());
    }
    *all = true;
    return DPB_OK;
}

/* Moves on as far as it can: called by core whenever there is time. */
static dpb_status progress(void *comm, int64_t budget_ns)
{
    struct comm *c = comm;
    const struct dpb_layout *layout = &c->arenas.layout;
    uint64_t n = layout->n_elements;
    bool all;
    if (c->state == SUMMING) {
        DPB_TRY(all_reached(c, 2 * c->exchange - 1, budget_ns, &all));
        if (!all)
            return DPB_OK;
        int64_t began_ns = host->now_ns();
        void *sum = sum_of(c);
        host->vec->sum(layout->gradient_type, &sum, 1,
                       (const void *const *)c->arenas.peer_gradients, c->args.n_workers, n);
        host->span(0, DPB_PHASE_REDUCE, began_ns, host->now_ns());
        host->count_bytes((c->args.n_workers - 1) * n * dpb_dtype_size(layout->gradient_type));
        host->flag->set(flag_of(c, c->args.rank), 2 * c->exchange);
        c->state = READ_BY_ALL;
    }
    if (c->state == READ_BY_ALL) {
        DPB_TRY(all_reached(c, 2 * c->exchange, budget_ns, &all));
        if (!all)
            return DPB_OK;
        host->optimizer->update(c->arenas.optimizer, NULL, (struct dpb_range){0, n},
                                c->arenas.weights, sum_of(c), 0, &c->step);
        c->state = IDLE;
        host->event->signal(c->done);
    }
    return DPB_OK;
}

static dpb_status end(void *comm, struct dpb_event **done)
{
    *done = ((struct comm *)comm)->done;
    return DPB_OK;
}

static dpb_status publish(void *comm, struct dpb_view *view)
{
    view->weights = ((struct comm *)comm)->arenas.weights;
    return DPB_OK;
}

static void close_comm(void *comm)
{
    struct comm *c = comm;
    if (c)
        host->event->destroy(c->done);
    host->release(c, sizeof *c);
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_comm_ops ops = {
    .open = open_comm,
    .plan = plan,
    .bind = bind_arenas,
    .load = load,
    .begin = begin,
    .ready = ready,
    .progress = progress,
    .end = end,
    .publish = publish,
    .close = close_comm,
};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(COMM, ops),
    .name = "sum_all",
    .version = "1",
    .summary = "every worker sums the gradients of all",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
