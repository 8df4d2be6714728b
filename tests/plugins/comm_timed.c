/*
 * timed - a strategy for one worker whose buckets take exactly known times.
 *
 * Bucket by bucket: `late_peer` of waiting, then the rest of `exchange` as a transfer. With
 * `worker = no` somebody else does the work, as a network card would: a bucket begins when it is
 * ready and the one before is through, whoever looks or not. With `worker = yes` it happens inside
 * `progress` only, by whoever calls that, piece by piece. After the last bucket comes `update`,
 * inside `progress`, as work of the optimizer; then the true update.
 */
#include <errno.h>
#include <sys/prctl.h>
#include <time.h>

#include "dpbench/plugin.h"

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

struct options {
    int64_t exchange_ns, late_peer_ns, update_ns, payload_bytes;
    bool worker;
};

#define TIME(name, help)                                                                          \
    {                                                                                             \
#name, DPB_OPT_TIME, "ms", "0", 0, 1e12, NULL, offsetof(struct options, name##_ns), help, \
            NULL                                                                                  \
    }

static const struct dpb_option option_table[] = {
    TIME(exchange, "of a bucket, waiting for the late peer included"),
    TIME(late_peer, "how long of it a peer is late"),
    TIME(update, "of the optimizer, once a step"),
    {"worker", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, offsetof(struct options, worker),
     "whether progress does the work, or only looks", NULL},
    {"payload", DPB_OPT_INT, "bytes", "0", 0, 1e12, NULL, offsetof(struct options, payload_bytes),
     "of a bucket, as if it had been sent", NULL},
    {0}};

/* ---- state --------------------------------------------------------------------------------- */

struct comm {
    struct options options;
    struct dpb_arenas arenas;
    struct dpb_step step;
    struct dpb_event *done;
    int64_t *ready_ns; /* by bucket; 0: not yet */
    uint64_t bucket;   /* the one under way */
    int64_t worked_ns; /* on it */
    int64_t free_ns;   /* when the one before was through */
    bool finished;
};

/* ---- work ---------------------------------------------------------------------------------- */

static void nap_until(int64_t at_ns)
{
    const struct timespec at = {.tv_sec = at_ns / INT64_C(1000000000),
                                .tv_nsec = at_ns % INT64_C(1000000000)};
    prctl(PR_SET_TIMERSLACK, 1000); /* of the calling thread */
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

static void report(const struct comm *comm, int64_t began_ns, int64_t end_ns)
{
    int64_t arrived_ns = began_ns + comm->options.late_peer_ns;
    arrived_ns = arrived_ns < end_ns ? arrived_ns : end_ns;
    host->span(comm->bucket, DPB_PHASE_WAIT_PEER, began_ns, arrived_ns);
    host->span(comm->bucket, DPB_PHASE_TRANSFER, arrived_ns, end_ns);
}

/* True when the bucket under way is through. */
static bool look_at_bucket(struct comm *comm, int64_t ready_ns, bool may_block)
{
    int64_t began_ns = ready_ns > comm->free_ns ? ready_ns : comm->free_ns;
    int64_t end_ns = began_ns + comm->options.exchange_ns;
    if (may_block)
        nap_until(end_ns);
    if (host->now_ns() < end_ns)
        return false;
    report(comm, began_ns, end_ns);
    comm->free_ns = end_ns;
    return true;
}

static bool work_on_bucket(struct comm *comm, int64_t budget_ns)
{
    int64_t left_ns = comm->options.exchange_ns - comm->worked_ns, began_ns = host->now_ns();
    bool all = budget_ns == DPB_FOREVER || left_ns < budget_ns;
    nap_until(began_ns + (all ? left_ns : budget_ns));
    int64_t end_ns = host->now_ns();
    host->span(comm->bucket, DPB_PHASE_TRANSFER, began_ns, end_ns);
    comm->worked_ns += end_ns - began_ns;
    return comm->worked_ns >= comm->options.exchange_ns;
}

static void update(struct comm *comm)
{
    const struct dpb_arenas *arenas = &comm->arenas;
    int64_t began_ns = host->now_ns();
    nap_until(began_ns + comm->options.update_ns);
    host->span(comm->bucket, DPB_PHASE_UPDATE, began_ns, host->now_ns());
    host->optimizer->update(arenas->optimizer, NULL,
                            (struct dpb_range){0, arenas->layout.n_elements}, arenas->weights,
                            arenas->gradients, 0, &comm->step);
    comm->finished = true;
    host->event->signal(comm->done);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status timed_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    if (args->n_workers != 1)
        return host->fail(DPB_UNSUPPORTED, "comm 'timed' is for one worker");
    struct comm *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY;
    made->options = *(const struct options *)options;
    *comm = made;
    return DPB_OK;
}

static dpb_status timed_plan(void *comm, const struct dpb_layout *layout,
                             struct dpb_comm_plan *want)
{
    (void)comm;
    want->weights = want->gradients = DPB_MEMORY_PRIVATE;
    want->owned = host->alloc(sizeof *want->owned);
    if (!want->owned)
        return DPB_NO_MEMORY;
    want->owned[0] = (struct dpb_range){0, layout->n_elements};
    want->n_owned = 1;
    return DPB_OK;
}

static dpb_status timed_bind(void *comm_, const struct dpb_arenas *arenas)
{
    struct comm *comm = comm_;
    comm->arenas = *arenas;
    comm->done = host->event->create();
    comm->ready_ns = host->alloc(arenas->n_buckets * sizeof *comm->ready_ns);
    return comm->done && comm->ready_ns ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status timed_load(void *comm)
{
    (void)comm;
    return DPB_OK;
}

static dpb_status timed_begin(void *comm_, const struct dpb_step *step)
{
    struct comm *comm = comm_;
    comm->step = *step;
    comm->bucket = 0;
    comm->worked_ns = comm->free_ns = 0;
    comm->finished = false;
    for (uint64_t b = 0; b < comm->arenas.n_buckets; b++)
        __atomic_store_n(&comm->ready_ns[b], 0, __ATOMIC_RELAXED);
    host->event->reset(comm->done);
    return DPB_OK;
}

static dpb_status timed_ready(void *comm_, uint64_t bucket, struct dpb_event *event)
{
    struct comm *comm = comm_;
    (void)event;
    __atomic_store_n(&comm->ready_ns[bucket], host->now_ns(), __ATOMIC_RELEASE);
    return DPB_OK;
}

static dpb_status timed_progress(void *comm_, int64_t budget_ns)
{
    struct comm *comm = comm_;
    bool forever = budget_ns == DPB_FOREVER;
    while (comm->bucket < comm->arenas.n_buckets) {
        int64_t ready_ns = __atomic_load_n(&comm->ready_ns[comm->bucket], __ATOMIC_ACQUIRE);
        if (ready_ns == 0 && forever)
            nap_until(host->now_ns() + 50000);
        if (ready_ns == 0)
            return DPB_OK;
        if (comm->options.worker ? !work_on_bucket(comm, budget_ns)
                                 : !look_at_bucket(comm, ready_ns, forever))
            return DPB_OK;
        host->count_bytes((uint64_t)comm->options.payload_bytes);
        comm->bucket++;
        comm->worked_ns = 0;
        if (comm->options.worker && !forever)
            return DPB_OK;
    }
    if (!comm->finished)
        update(comm);
    return DPB_OK;
}

static dpb_status timed_end(void *comm, struct dpb_event **done)
{
    *done = ((struct comm *)comm)->done;
    return DPB_OK;
}

static dpb_status timed_publish(void *comm, struct dpb_view *view)
{
    view->weights = ((struct comm *)comm)->arenas.weights;
    return DPB_OK;
}

static void timed_close(void *comm_)
{
    struct comm *comm = comm_;
    if (!comm)
        return;
    host->event->destroy(comm->done);
    host->release(comm->ready_ns, comm->arenas.n_buckets * sizeof *comm->ready_ns);
    host->release(comm, sizeof *comm);
}

static const struct dpb_comm_ops timed_ops = {.open = timed_open,
                                              .plan = timed_plan,
                                              .bind = timed_bind,
                                              .load = timed_load,
                                              .begin = timed_begin,
                                              .ready = timed_ready,
                                              .progress = timed_progress,
                                              .end = timed_end,
                                              .publish = timed_publish,
                                              .close = timed_close};

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_plugin timed = {DPB_PLUGIN_HEAD(COMM, timed_ops),
                                        .capabilities = DPB_COMM_OVERLAP,
                                        .name = "timed",
                                        .version = "1",
                                        .summary = "buckets take exactly known times; one worker",
                                        .options = option_table,
                                        .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &timed;
}
