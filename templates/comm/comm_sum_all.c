/*
 * comm_sum_all.c - every worker sums each bucket straight out of the memory of all workers, then
 * updates its own copy of the weights.
 *
 * A bucket passes three stages, in order, while backward makes the next buckets:
 *
 *     sum       when all workers' gradients of the bucket are final (READY); then TAKEN
 *     (fence)   until all workers have read the bucket (TAKEN): only now may gradients be written
 *     update    from the sum
 *
 * Bytes moved per step, W workers, M bytes of gradients: W (W - 1) M. All sum in the same order, so
 * their weights are equal bit for bit.
 */
#include <dpbench/plugin.h>
#include <dpbench-comm/strategy.h>

static const struct dpb_host *host;

/* Who takes part, the arenas, the signals and the stages are in struct dpb_strategy. */
struct comm {
    struct dpb_strategy base;
    uint64_t sum_at; /* in the scratch memory, behind the worker's signals */
};

/* The sum, from an element of the gradient arena on. */
static void *sum_from(const struct comm *comm, uint64_t element)
{
    const struct dpb_arenas *arenas = &comm->base.arenas;
    return (char *)arenas->scratch + comm->sum_at +
           element * dpb_dtype_size(arenas->layout.gradient_type);
}

/* ---- stages -------------------------------------------------------------------------------- */

static bool sum_due(void *comm, uint64_t bucket)
{
    return dpb_strategy_all_reached(comm, DPB_SIGNAL_READY, bucket);
}

/* Called only if nothing else can be done. Each wait has a purpose: if its deadline passes, the
 * purpose is in the message. */
static dpb_status sum_wait(void *comm, uint64_t bucket)
{
    return dpb_strategy_wait_ready(comm, dpb_strategy_workers(comm), bucket);
}

/* Works on elements [at, length) of the bucket, piece by piece, until it is time to return. */
static void sum(void *comm, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *base = comm;
    if (turn->at == 0)
        dpb_signals_span_late_peer(&base->signals, dpb_strategy_workers(base), bucket);
    do {
        const dpb_dtype type = base->arenas.layout.gradient_type;
        const struct dpb_piece piece =
            dpb_strategy_piece(base, bucket, turn->length, turn->at, type);
        void *to = sum_from(comm, piece.begin);
        dpb_strategy_sum(base, bucket, piece, &to, 1);
        turn->at += piece.n;
    } while (turn->at < turn->length && host->now_ns() < turn->until_ns);
    if (turn->at == turn->length)
        dpb_signals_raise(&base->signals, DPB_SIGNAL_TAKEN, bucket);
}

static bool all_taken(void *comm, uint64_t bucket)
{
    return dpb_strategy_all_reached(comm, DPB_SIGNAL_TAKEN, bucket);
}

static dpb_status wait_taken(void *comm, uint64_t bucket)
{
    const struct dpb_strategy *base = comm;
    return dpb_strategy_wait(base, DPB_SIGNAL_TAKEN, dpb_strategy_workers(base), bucket,
                             base->arenas.layout.gradient_type, "the peer to read the gradients");
}

static void update(void *comm, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *base = comm;
    do {
        const dpb_dtype type = base->arenas.layout.weight_type;
        const struct dpb_piece piece =
            dpb_strategy_piece(base, bucket, turn->length, turn->at, type);
        dpb_strategy_update(base, bucket, piece, sum_from(comm, piece.begin));
        turn->at += piece.n;
    } while (turn->at < turn->length && host->now_ns() < turn->until_ns);
}

static const struct dpb_stage stages[] = {
    {sum_due, sum, sum_wait}, {.due = all_taken, .wait = wait_taken}, {.work = update}};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status open_comm(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    return dpb_strategy_open(host, args, sizeof(struct comm), comm);
}

/* Which memory is whose, before there is any: each worker has all weights and updates them; all
 * workers of the machine can read its gradients and its signals. */
static dpb_status plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct comm *c = comm;
    DPB_TRY(dpb_strategy_plan_replica(&c->base, layout, DPB_MEMORY_SHARED, want));
    c->sum_at = dpb_strategy_lines(want->scratch_bytes);
    want->scratch_bytes = c->sum_at + layout->n_elements * dpb_dtype_size(layout->gradient_type);
    return DPB_OK;
}

static dpb_status bind_arenas(void *comm, const struct dpb_arenas *arenas)
{
    return dpb_strategy_bind(comm, arenas, stages, sizeof stages / sizeof *stages);
}

/* For `dpbench check`: the sum takes memory that grows with the model. */
static void memory(const void *options, const struct dpb_comm_args *args,
                   const struct dpb_layout *layout, uint64_t bucket_elements,
                   struct dpb_comm_memory *memory)
{
    (void)options, (void)args, (void)bucket_elements;
    memory->host_bytes += layout->n_elements * dpb_dtype_size(layout->gradient_type);
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_comm_ops ops = {
    .open = open_comm,
    .plan = plan,
    .bind = bind_arenas,
    .load = dpb_strategy_load,
    .begin = dpb_strategy_begin,
    DPB_STRATEGY_HOOKS, /* ready, progress, end, publish, taken */
    .memory = memory,
    .close = dpb_strategy_close,
};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(COMM, ops),
    .capabilities = DPB_COMM_OVERLAP,
    .name = "sum_all",
    .version = "1",
    .summary = "every worker sums the gradients of all",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
