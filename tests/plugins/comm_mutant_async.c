/*
 * comm_mutant_async.c - mutant_async is ps_async, with its options and one mistake: what its
 * servers have the host do is changed, or what it says of itself.
 *
 *   lost      push number `from` of a server is not applied
 *   twice     it is applied twice
 *   version   the weights that a server keeps for three pulls, from number `from` on, are those
 *             of the worker's pull before
 *   banked    sum number `from` of a server's gradients takes the first of them alone
 *   accrued   sum number `from` of a worker's gradients, for a push of several steps, takes those
 *             of the last step alone
 *   alone     worker 0 takes no steps of its own between fetches
 *   late      gradients that come late count in the next update, which k_sync and k_batch_sync say
 *             they do not
 *   denied    worker 0 says of all its gradients but the first element that they were dropped
 *   scale     the gradients of an update are summed, not averaged
 *   deaf      workers do not see that they are cancelled
 *   again     a worker may give several gradients of an update, which k_async says it does not
 *   slow      the last worker settles late; a server that has banked a gradient reads late, too:
 *             what the last worker says, and all that follows from it
 *   bound     workers may be five steps further ahead than the contract says
 *
 * Beside it, a rank misbehaves in a hook when it is told; see fault.h.
 */
#include "fault.h"
#include "wrap.h"

enum mutation {
    NONE,
    LOST,
    TWICE,
    VERSION,
    BANKED,
    ACCRUED,
    ALONE,
    LATE,
    DENIED,
    SCALE,
    DEAF,
    AGAIN,
    SLOW,
    BOUND
};
enum { K_BATCH_SYNC = 2, K_BATCH_ASYNC }; /* of comm.policy */
static const char *const mutations[] = {"none",    "lost",  "twice", "version", "banked",
                                        "accrued", "alone", "late",  "denied",  "scale",
                                        "deaf",    "again", "slow",  "bound",   NULL};

enum { FURTHER = 5, ROWS = 40 };

#define HOOKS(X) X(begin) X(ready) X(progress) X(end) X(publish) X(settle)
enum {
#define HOOK_NUMBER(name) HOOK_##name,
    HOOKS(HOOK_NUMBER)
};
#define HOOK_NAME(name) #name,
static const char *const hooks[] = {HOOKS(HOOK_NAME) NULL};

struct options {
    int mutation;
    int64_t from;
    struct fault_options fault;
};
enum { INNER = sizeof(struct options) }; /* where the options of ps_async begin */

static const struct dpb_host *host;
static struct dpb_host told;
static struct dpb_optimizer_ops optimizer;
static struct dpb_vec_ops vec;
static const struct dpb_comm_ops *inner;
static struct options options;
static bool serves, batches, banked, is_last;
static uint32_t rank;
static int64_t n_pushes, n_kept, n_sums; /* by this rank */

/* ---- what the host does -------------------------------------------------------------------- */

static dpb_status update(struct dpb_optimizer *of, struct dpb_queue *queue, struct dpb_range range,
                         void *weights, const void *gradients, uint64_t bucket,
                         const struct dpb_step *step)
{
    int times = 1;
    n_pushes += bucket == 0;
    banked = false;
    if (serves && n_pushes == options.from)
        times = options.mutation == LOST ? 0 : options.mutation == TWICE ? 2 : 1;
    for (; times > 0; times--)
        DPB_TRY(host->optimizer->update(of, queue, range, weights, gradients, bucket, step));
    return DPB_OK;
}

static void copy(dpb_dtype type, void *dst, const void *src, uint64_t n)
{
    n_kept++;
    if (!(serves && options.mutation == VERSION && n_kept >= options.from &&
          n_kept < options.from + 3))
        host->vec->copy(type, dst, src, n);
}

static void sum(dpb_dtype type, void *const *dst, uint32_t n_dst, const void *const *sources,
                uint32_t k, uint64_t n)
{
    const bool looks = serves ? options.mutation == BANKED : options.mutation == ACCRUED && k > 1;
    banked = true;
    const bool loses = looks && ++n_sums == options.from;
    host->vec->sum(type, dst, n_dst, sources, loses ? 1 : k, n);
}

static void axpby(dpb_dtype type, double a, const void *x, double b, void *y, uint64_t n)
{
    const bool alone = rank == 0 && options.mutation == ALONE;
    host->vec->axpby(type, alone ? 0.0 : a, x, b, y, n);
}

static void rest(int64_t ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static dpb_status slow_poll(struct pollfd *fds, uint32_t n, const struct dpb_wait *wait,
                            int64_t *waited_ns)
{
    const dpb_status status = host->poll(fds, n, wait, waited_ns);
    if (serves && banked && options.mutation == SLOW)
        rest(100);
    return status;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static struct dpb_option rows[ROWS];
static size_t options_bytes; /* with those of ps_async */

static size_t place_of(const char *name)
{
    for (const struct dpb_option *row = rows; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row->offset;
    abort();
}

static dpb_status mutant_open(const void *given, const struct dpb_comm_args *args, void **comm)
{
    char *changed = malloc(options_bytes);
    if (!changed)
        return host->fail(DPB_NO_MEMORY, "no memory for the options of ps_async");
    options = *(const struct options *)given;
    serves = args->role == DPB_SERVER;
    memcpy(changed, given, options_bytes);
    if (options.mutation == BOUND)
        *(int64_t *)(void *)(changed + place_of("bound")) += FURTHER;
    batches = *(int *)(void *)(changed + place_of("policy")) == K_BATCH_SYNC;
    if (options.mutation == LATE || options.mutation == AGAIN)
        *(int *)(void *)(changed + place_of("policy")) = K_BATCH_ASYNC;
    rank = args->rank;
    is_last = rank + 1 == args->n_workers;
    dpb_status status = inner->open(changed + INNER, args, comm);
    free(changed);
    return status;
}

static dpb_status mutant_plan(void *comm, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want)
{
    DPB_TRY(wrap_plan(&inner, comm, layout, want));
    if (options.mutation == BOUND)
        want->contract.parameter -= FURTHER;
    if (options.mutation == LATE) {
        want->contract.consistency = batches ? DPB_BATCHES : DPB_PARTIAL;
        want->contract.parameter = want->contract.divisor;
    }
    if (options.mutation == SCALE)
        want->contract.divisor = 1;
    return DPB_OK;
}

static double mutant_applied(void *comm, uint64_t step, uint64_t element)
{
    if (options.mutation == DENIED && rank == 0 && element > 0)
        return 0.0;
    return inner->applied(comm, step, element);
}

static bool mutant_cancelled(void *comm)
{
    return options.mutation != DEAF && inner->cancelled(comm);
}

#define FAULT_HERE(hook) DPB_TRY(fault_here(host, &options.fault, rank, HOOK_##hook))

static dpb_status mutant_begin(void *comm, const struct dpb_step *step)
{
    FAULT_HERE(begin);
    return inner->begin(comm, step);
}

static dpb_status mutant_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    FAULT_HERE(ready);
    return inner->ready(comm, bucket, event);
}

static dpb_status mutant_progress(void *comm, int64_t budget_ns)
{
    FAULT_HERE(progress);
    return inner->progress(comm, budget_ns);
}

static dpb_status mutant_end(void *comm, struct dpb_event **done)
{
    FAULT_HERE(end);
    return inner->end(comm, done);
}

static dpb_status mutant_publish(void *comm, struct dpb_view *view)
{
    FAULT_HERE(publish);
    return inner->publish(comm, view);
}

static dpb_status mutant_settle(void *comm)
{
    FAULT_HERE(settle);
    if (is_last && options.mutation == SLOW)
        rest(250);
    return inner->settle(comm);
}

static dpb_status mutant_needs(const void *given, struct dpb_comm_needs *needs)
{
    return inner->needs((const char *)given + INNER, needs);
}

static void mutant_memory(const void *given, const struct dpb_comm_args *args,
                          const struct dpb_layout *layout, uint64_t bucket_elements,
                          struct dpb_comm_memory *memory)
{
    inner->memory((const char *)given + INNER, args, layout, bucket_elements, memory);
}

static struct dpb_comm_ops ops;
static struct dpb_plugin plugin;

static void take_rows(const struct dpb_plugin *real)
{
    const struct dpb_option own[] = {{"mutation", DPB_OPT_CHOICE, NULL, "none", 0, 0, mutations,
                                      offsetof(struct options, mutation), "which", NULL},
                                     {"from", DPB_OPT_INT, NULL, "1", 1, 1e9, NULL,
                                      offsetof(struct options, from), "where", NULL},
                                     FAULT_ROWS(struct options, fault, hooks)};
    size_t n = sizeof own / sizeof *own;
    memcpy(rows, own, sizeof own);
    for (const struct dpb_option *row = real->options; row->name && n + 1 < ROWS; row++) {
        rows[n] = *row;
        rows[n++].offset += INNER;
    }
}

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    told = *given;
    optimizer = *given->optimizer;
    vec = *given->vec;
    optimizer.update = update;
    vec.copy = copy;
    vec.sum = sum;
    vec.axpby = axpby;
    told.optimizer = &optimizer;
    told.vec = &vec;
    told.poll = slow_poll;
    const struct dpb_plugin *real = fault_inner(&told, "comm_ps_cpu");
    while (real && strcmp(real->name, "ps_async") != 0)
        real = real->next;
    if (!real)
        return NULL;
    inner = real->ops;
    ops = *inner;
    ops.open = mutant_open;
    ops.plan = mutant_plan;
    ops.applied = mutant_applied;
    ops.cancelled = mutant_cancelled;
    ops.begin = mutant_begin;
    ops.ready = mutant_ready;
    ops.progress = mutant_progress;
    ops.end = mutant_end;
    ops.publish = mutant_publish;
    ops.settle = mutant_settle;
    ops.needs = mutant_needs;
    ops.memory = mutant_memory;
    ops.contract = NULL; /* the mistake is in the plan's */
    take_rows(real);
    plugin = *real;
    plugin.name = "mutant_async";
    plugin.summary = "ps_async with a mistake";
    plugin.ops = &ops;
    plugin.options = rows;
    plugin.options_size = options_bytes = INNER + real->options_size;
    plugin.next = NULL;
    return &plugin;
}
