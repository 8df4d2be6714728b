/*
 * comm_spoilt.c - spoilt: a strategy of plugins/lib/averaging/averaging.h (comm.inner) with a
 * mistake, which a proof must find. The strategy is the real one; what queues and the optimizer do
 * for it is wrong from exchange `from` on, up to exchange `until`.
 *
 *   lost         the last worker does not update bucket 0
 *   doubled      it does so twice
 *   coefficient  all gradients times 1.001
 *   left_out     the last array of every sum over workers is not added
 *   one_sided    a mean is not brought to the others
 *   undrawn      a replica is not drawn, though the centre moves
 *   centre       the centre's momentum is another than its books say
 *   place        the centre of a place moves to z, and z not to it
 *   unmet        replicas take no mean
 *   outer        the outer optimizer's momentum is another than its books say
 */
#include <stddef.h>

#include "fault.h"
#include "lib/averaging/averaging.h"
#include "wrap.h"

enum mistake {
    NONE,
    LOST,
    DOUBLED,
    COEFFICIENT,
    LEFT_OUT,
    ONE_SIDED,
    UNDRAWN,
    CENTRE,
    PLACE,
    UNMET,
    OUTER
};
static const char *const mistakes[] = {"none",     "lost",      "doubled", "coefficient",
                                       "left_out", "one_sided", "undrawn", "centre",
                                       "place",    "unmet",     "outer",   NULL};
static const char *const inner_names[] = {"local_sgd", "gossip", "easgd", "sma", "diloco", NULL};

struct options {
    struct dpb_averaging_options inner;
    int name, mistake;
    bool on_host;
    int64_t from, until;
};

#define INNER(member) offsetof(struct options, inner.member)
#define AT(member) offsetof(struct options, member)
static const struct dpb_option option_table[] = {
    {"inner", DPB_OPT_CHOICE, NULL, "local_sgd", 0, 0, inner_names, AT(name), "the strategy", NULL},
    {"mistake", DPB_OPT_CHOICE, NULL, "none", 0, 0, mistakes, AT(mistake), "what is wrong", NULL},
    {"on_host", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(on_host), "arenas, on any device", NULL},
    {"from", DPB_OPT_INT, "exchange", "0", 0, 1e9, NULL, AT(from), "first exchange with it", NULL},
    {"until", DPB_OPT_INT, "exchange", "1000000", 0, 1e9, NULL, AT(until), "first without it",
     NULL},
    {"period", DPB_OPT_INT, "steps", "2", 1, 64, NULL, INNER(period), "the strategy's", NULL},
    {"local_centers", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, INNER(local_centers), "the strategy's",
     NULL},
    {"average_state", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, INNER(average_state), "the strategy's",
     NULL},
    {"outer_rate", DPB_OPT_REAL, NULL, "0.7", 0.01, 10, NULL, INNER(outer_rate), "the strategy's",
     NULL},
    {"outer_momentum", DPB_OPT_REAL, NULL, "0.9", 0, 1, NULL, INNER(outer_momentum),
     "the strategy's", NULL},
    {"center_momentum", DPB_OPT_REAL, NULL, "0.9", 0, 1, NULL, INNER(center_momentum),
     "the strategy's", NULL},
    {"momentum_on_center", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL, INNER(momentum_on_center),
     "the strategy's", NULL},
    {0}};

static const struct dpb_host *host;
static struct options options;
static const struct dpb_comm_ops *inner;
static struct dpb_comm_args args;
static struct dpb_arenas arenas;
static uint64_t exchange;

static bool wrong(enum mistake mistake)
{
    const uint64_t now = __atomic_load_n(&exchange, __ATOMIC_RELAXED);
    return options.mistake == (int)mistake && now >= (uint64_t)options.from &&
           now < (uint64_t)options.until;
}

static bool is_within(const void *at, const void *arena)
{
    const char *begin = arena, *p = at;
    return p >= begin &&
           p < begin + arenas.layout.n_elements * dpb_dtype_size(arenas.layout.weight_type);
}

/* ---- what the strategy gets ---------------------------------------------------------------- */

static dpb_status update(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                         struct dpb_range range, void *weights, const void *gradients,
                         uint64_t bucket, const struct dpb_step *step)
{
    const bool here = bucket == 0 && args.rank + 1 == args.n_workers;
    struct dpb_step changed = *step;
    changed.scale *= wrong(COEFFICIENT) ? 1.001 : 1.0;
    for (int times = here && wrong(DOUBLED) ? 2 : here && wrong(LOST) ? 0 : 1; times > 0; times--)
        DPB_TRY(
            host->optimizer->update(optimizer, queue, range, weights, gradients, bucket, &changed));
    return DPB_OK;
}

/* The host's queues, which do work when it is given, for arenas on the host beside a device. */
static dpb_status open_host(void *device, struct dpb_queue **queue)
{
    (void)device;
    *queue = NULL;
    return DPB_OK;
}

static void close_host(struct dpb_queue *queue)
{
    (void)queue;
}

static dpb_status drain_host(struct dpb_queue *queue)
{
    (void)queue;
    return DPB_OK;
}

static dpb_status new_host_event(void *device, struct dpb_event **event)
{
    (void)device;
    *event = host->event->create();
    return *event ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status copy_on_host(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes)
{
    (void)queue;
    memcpy(dst, src, bytes);
    return DPB_OK;
}

static dpb_status clear_on_host(struct dpb_queue *queue, void *dst, uint64_t bytes)
{
    (void)queue;
    memset(dst, 0, bytes);
    return DPB_OK;
}

static dpb_status sum_on_host(struct dpb_queue *queue, dpb_dtype type, void *dst,
                              const void *const *sources, uint32_t k, uint64_t n)
{
    (void)queue;
    host->vec->sum(type, &dst, 1, sources, k, n);
    return DPB_OK;
}

static dpb_status axpby_on_host(struct dpb_queue *queue, dpb_dtype type, double a, const void *x,
                                double b, void *y, uint64_t n)
{
    (void)queue;
    host->vec->axpby(type, a, x, b, y, n);
    return DPB_OK;
}

static const struct dpb_queue_ops host_queues = {.runtime = "host",
                                                 .open = open_host,
                                                 .close = close_host,
                                                 .drain = drain_host,
                                                 .new_event = new_host_event,
                                                 .copy = copy_on_host,
                                                 .clear = clear_on_host,
                                                 .sum = sum_on_host,
                                                 .axpby = axpby_on_host};

static const struct dpb_queue_ops *queues(void)
{
    return options.on_host ? &host_queues : args.device->ops;
}

static dpb_status sum(struct dpb_queue *queue, dpb_dtype type, void *dst,
                      const void *const *sources, uint32_t k, uint64_t n)
{
    if (wrong(UNMET) && k > 1)
        return DPB_OK;
    return queues()->sum(queue, type, dst, sources, wrong(LEFT_OUT) && k > 1 ? k - 1 : k, n);
}

static dpb_status copy(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes)
{
    bool foreign = false;
    for (uint32_t rank = 0; arenas.peer_weights && rank < args.n_workers; rank++)
        foreign = foreign || (rank != args.rank && is_within(dst, arenas.peer_weights[rank]));
    return foreign && (wrong(ONE_SIDED) || wrong(UNMET)) ? DPB_OK
                                                         : queues()->copy(queue, dst, src, bytes);
}

static dpb_status axpby(struct dpb_queue *queue, dpb_dtype type, double a, const void *x, double b,
                        void *y, uint64_t n)
{
    const bool scales = !(b < 0) && !(b > 0) && !is_within(y, arenas.weights);
    if (!(b < 0) && !(b > 0) && !scales && wrong(UNMET))
        return DPB_OK;
    if (is_within(y, arenas.weights) && a < 0 && wrong(UNDRAWN))
        return DPB_OK;
    if (a > 0 && a < 1 && b > 0 && !(b < 1) && wrong(PLACE)) /* d gets its part of y */
        return DPB_OK;
    if (a > 0 && !(a < 1) && b > 0 && b < 1 && wrong(OUTER)) /* v <- momentum v + d */
        b *= 0.99;
    return queues()->axpby(queue, type, scales && wrong(CENTRE) ? a * 0.99 : a, x, b, y, n);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static const struct dpb_plugin *load_inner(const struct options *given, const struct dpb_host *told)
{
    char file[64];
    snprintf(file, sizeof file, "comm_%s", inner_names[given->name]);
    const struct dpb_plugin *plugin = fault_inner(told, file);
    inner = plugin ? plugin->ops : NULL;
    return plugin;
}

static dpb_status spoilt_needs(const void *given, struct dpb_comm_needs *needs)
{
    const struct options *its = given;
    if (!load_inner(its, host))
        return DPB_FAILED;
    return its->on_host ? DPB_OK : inner->needs(&its->inner, needs);
}

static dpb_status spoilt_open(const void *given, const struct dpb_comm_args *given_args,
                              void **comm)
{
    static struct dpb_host told;
    static struct dpb_queue_ops ops;
    static struct dpb_device_arenas device;
    static struct dpb_optimizer_ops optimizer;
    struct dpb_comm_args its = *given_args;
    options = *(const struct options *)given;
    args = *given_args;
    told = *host;
    ops = *queues();
    ops.sum = sum;
    ops.copy = copy;
    ops.axpby = axpby;
    device = *args.device;
    device.ops = &ops;
    its.device = &device;
    optimizer = *host->optimizer;
    optimizer.update = update;
    told.optimizer = &optimizer;
    if (!load_inner(&options, &told))
        return DPB_FAILED;
    return inner->open(&options.inner, &its, comm);
}

static dpb_status spoilt_plan(void *comm, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want)
{
    return wrap_plan(&inner, comm, layout, want);
}

static dpb_status spoilt_bind(void *comm, const struct dpb_arenas *given)
{
    arenas = *given;
    return inner->bind(comm, given);
}

static dpb_status spoilt_load(void *comm)
{
    return inner->load(comm);
}

static dpb_status spoilt_begin(void *comm, const struct dpb_step *step)
{
    __atomic_store_n(&exchange, step->step, __ATOMIC_RELAXED);
    return inner->begin(comm, step);
}

static dpb_status spoilt_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    return inner->ready(comm, bucket, event);
}

static dpb_status spoilt_progress(void *comm, int64_t budget_ns)
{
    return inner->progress(comm, budget_ns);
}

static dpb_status spoilt_end(void *comm, struct dpb_event **done)
{
    return inner->end(comm, done);
}

static dpb_status spoilt_publish(void *comm, struct dpb_view *view)
{
    return inner->publish(comm, view);
}

static dpb_status spoilt_books(void *comm, struct dpb_books *books)
{
    return inner->books(comm, books);
}

static void spoilt_close(void *comm)
{
    if (inner)
        inner->close(comm);
}

static const struct dpb_comm_ops spoilt_ops = {.needs = spoilt_needs,
                                               .open = spoilt_open,
                                               .plan = spoilt_plan,
                                               .bind = spoilt_bind,
                                               .load = spoilt_load,
                                               .begin = spoilt_begin,
                                               .ready = spoilt_ready,
                                               .progress = spoilt_progress,
                                               .end = spoilt_end,
                                               .publish = spoilt_publish,
                                               .books = spoilt_books,
                                               .close = spoilt_close};

static const struct dpb_plugin spoilt = {
    DPB_PLUGIN_HEAD(COMM, spoilt_ops),
    .name = "spoilt",
    .version = DPB_VERSION,
    .summary = "a strategy that averages, with a mistake",
    .options = option_table,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &spoilt;
}
