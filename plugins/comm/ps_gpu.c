/*
 * ps_gpu - parameter servers in the workers' devices. Device memory holds the variables and the
 * optimizer's state, in even shards on all workers' devices (comm.shards = all) or on worker 0's
 * (one). A worker pushes its gradients to the shards. Each shard sums them and updates its
 * variables, then the workers pull the new weights (tf_cnn_benchmarks' "parameter_server" with
 * local_parameter_device=gpu).
 *
 * Every bucket is cut into equal slices, one a shard, so that shards are even in bytes and a big
 * tensor is split; the first slice goes to another shard from bucket to bucket. Pushes and pulls
 * are copies from device to device (device_strategy.h), so all workers are on one machine;
 * gradients are summed in the order of the ranks.
 *
 * Bytes moved per step, W workers, M bytes of the model: (W - 1) M pushed, (W - 1) M pulled.
 *
 * Device memory beside the arenas: a shard keeps up to SLOTS slices of gradients for each of the
 * other workers; only shards have optimizer state.
 *
 * Fences:
 *   1. a slice is pushed when the worker's gradients are final (READY) and the shard has summed
 *      the slot's previous content (REDUCED of the bucket SLOTS before; in the first buckets of a
 *      step, REDUCED of the last bucket of the step before: the worker saw it before it ended that
 *      step);
 *   2. the shard sums and updates the slice when every worker has pushed it (PUSHED);
 *   3. workers pull the slice when that update is done (REDUCED); then its gradients may be
 *      written again;
 *   4. weights of a shard change again only when all workers have pushed the bucket in the next
 *      step. A worker begins that step only after its pulls.
 * "Done" is an event of the device that this host has seen; then the host raises the signal.
 *
 * If updates need norms of whole tensors, the model is one bucket: no weight changes before the
 * last gradient is there. Between 2's sum and its update shards exchange sums of squares, a few
 * numbers a tensor, through the host's memory (GATHERED, in LAMB's second round ANSWERED). An entry
 * is written again behind all PUSHED of the next step.
 *
 * Li et al.: Scaling distributed machine learning with the parameter server. OSDI 2014 (the
 * synchronous form).
 */
#include "dpbench/plugin.h"
#include "lib/device_strategy/device_strategy.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"
#include "lib/strategy/squares.h"

enum { SLOTS = 4 };
enum { SHARDS_ALL, SHARDS_ONE };

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

struct ps_options {
    int shards;
};

static const char *const shards_choices[] = {"all", "one", NULL};

static const struct dpb_option options[] = {
    {"shards", DPB_OPT_CHOICE, NULL, "all", 0, 0, shards_choices,
     offsetof(struct ps_options, shards),
     "where the variables are: in even parts on the devices of all workers, or on worker 0's",
     NULL},
    {0}};

/* ---- shares -------------------------------------------------------------------------------- */

static struct dpb_range share_of_all(const struct dpb_comm_args *args, uint32_t owner,
                                     uint64_t bucket, uint64_t length)
{
    return dpb_slice_of(length, (owner + bucket) % args->n_workers, args->n_workers);
}

static struct dpb_range share_of_one(const struct dpb_comm_args *args, uint32_t owner,
                                     uint64_t bucket, uint64_t length)
{
    (void)args, (void)bucket;
    return (struct dpb_range){0, owner == 0 ? length : 0};
}

/* ---- stage: sum and update the own shard's slice ------------------------------------------- */

static void serve(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    const struct dpb_range all = dpb_device_piece(comm, turn);
    dpb_device_sum(comm, bucket, all);
    dpb_device_update(comm, bucket, all);
}

/* ---- stage: pull the new weights ----------------------------------------------------------- */

static void pull(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    dpb_device_pull(comm, bucket, dpb_device_piece(comm, turn));
}

enum { PUSH, SERVE, UPDATED, PULL, STAGES };

static const struct dpb_stage stages[STAGES] = {
    [PUSH] = {dpb_device_push_due, dpb_device_push, dpb_device_push_wait},
    [SERVE] = {dpb_device_sum_due, serve, dpb_device_sum_wait},
    [PULL] = {dpb_device_pull_due, pull, dpb_device_pull_wait},
};

static const struct dpb_stage_flight *const flights[STAGES] = {[PUSH] = &dpb_device_pushed,
                                                               [SERVE] = &dpb_device_summed,
                                                               [UPDATED] = &dpb_device_updated,
                                                               [PULL] = &dpb_device_pulled};

/* ---- stages with norms of whole tensors, on several shards --------------------------------- */

struct ps {
    struct dpb_device_strategy device; /* first */
    struct dpb_squares *squares;       /* by worker and tensor, on the device; NULL: no exchange */
    uint64_t squares_at;               /* of the own entries, by round: the place in the scratch */
    uint32_t round;                    /* of the exchange under way */
};

static void sum(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    dpb_device_sum(comm, bucket, dpb_device_piece(comm, turn));
}

static uint64_t entries_bytes(const struct ps *ps)
{
    return dpb_strategy_squares_bytes(&ps->device.base.arenas.layout);
}

static void *entries_of(const struct ps *ps, uint32_t rank)
{
    return (char *)ps->device.base.arenas.peer_scratch[rank] + ps->squares_at +
           (ps->round - 1) * entries_bytes(ps);
}

static enum dpb_signal_kind round_signal(const struct ps *ps)
{
    return ps->round == 1 ? DPB_SIGNAL_GATHERED : DPB_SIGNAL_ANSWERED;
}

static uint32_t missing_entries(const struct ps *ps, uint64_t bucket)
{
    return ps->round == 0 ? UINT32_MAX
                          : dpb_device_missing(&ps->device, round_signal(ps), true, bucket);
}

static bool squares_due(void *strategy, uint64_t bucket)
{
    return missing_entries(strategy, bucket) == UINT32_MAX;
}

static dpb_status squares_wait(void *strategy, uint64_t bucket)
{
    struct ps *ps = strategy;
    return dpb_device_wait_signal(&ps->device, round_signal(ps), missing_entries(ps, bucket),
                                  bucket, DPB_FP64, "the shard's sums of squares");
}

/* Waits for the device's sums: all that they wait for has come. */
static dpb_status exchange_squares(struct ps *ps, bool *more)
{
    const struct dpb_strategy *base = &ps->device.base;
    const struct dpb_queue_ops *ops = ps->device.ops;
    struct dpb_queue *queue = ps->device.here.queue;
    const uint32_t n = base->args.n_workers, n_tensors = base->arenas.layout.n_tensors;
    struct dpb_squares *own = ps->squares + (uint64_t)base->args.rank * n_tensors;
    const uint32_t round = ps->round;
    for (uint32_t rank = 0; rank < n && round > 0; rank++)
        DPB_TRY(ops->copy(queue, ps->squares + (uint64_t)rank * n_tensors, entries_of(ps, rank),
                          entries_bytes(ps)));
    DPB_TRY(host->optimizer->squares(base->arenas.optimizer, queue, &base->step,
                                     round > 0 ? ps->squares : NULL, n, own, more));
    ps->round = *more ? round + 1 : 0;
    return *more ? ops->copy(queue, entries_of(ps, base->args.rank), own, entries_bytes(ps))
                 : DPB_OK;
}

static void squares(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct ps *ps = strategy;
    bool more = false;
    if (ps->device.status == DPB_OK)
        dpb_device_keep(&ps->device, exchange_squares(ps, &more));
    const bool goes_on = more && ps->device.status == DPB_OK;
    if (goes_on)
        dpb_signals_raise(&ps->device.base.signals, round_signal(ps), bucket);
    turn->at = goes_on ? 0 : turn->length;
}

static void update(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct dpb_device_strategy *comm = strategy;
    dpb_device_update(comm, bucket, dpb_device_piece(comm, turn));
}

enum { BY_NORMS_STAGES = 5 };

static const struct dpb_stage stages_by_norms[BY_NORMS_STAGES] = {
    {dpb_device_push_due, dpb_device_push, dpb_device_push_wait},
    {dpb_device_sum_due, sum, dpb_device_sum_wait},
    {squares_due, squares, squares_wait},
    {.work = update},
    {dpb_device_pull_due, pull, dpb_device_pull_wait}};

static const struct dpb_stage_flight *const flights_by_norms[BY_NORMS_STAGES] = {
    &dpb_device_pushed, &dpb_device_summed, NULL, &dpb_device_updated, &dpb_device_pulled};

/* ---- hooks --------------------------------------------------------------------------------- */

static bool exchanges_squares(const struct dpb_comm_args *args, const struct dpb_device_scheme *of)
{
    return args->whole && args->n_workers > 1 && of->share == share_of_all;
}

static uint64_t bucket_of(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                          uint64_t elements)
{
    return args->whole && elements < layout->n_elements ? layout->n_elements : elements;
}

static struct dpb_device_scheme scheme_of(const struct ps_options *given)
{
    return (struct dpb_device_scheme){.share =
                                          given->shards == SHARDS_ONE ? share_of_one : share_of_all,
                                      .every = 1,
                                      .n_slots = SLOTS,
                                      .gives_weights = true};
}

static dpb_status ps_needs(const void *given, struct dpb_comm_needs *needs)
{
    (void)given;
    needs->on_device = true;
    needs->runtime = "any";
    return DPB_OK;
}

static dpb_status ps_open(const void *given, const struct dpb_comm_args *args, void **comm)
{
    DPB_TRY(dpb_device_strategy_open(host, args, sizeof(struct ps), comm));
    ((struct dpb_device_strategy *)*comm)->scheme = scheme_of(given);
    return DPB_OK;
}

static void ps_memory(const void *given, const struct dpb_comm_args *args,
                      const struct dpb_layout *layout, uint64_t bucket_elements,
                      struct dpb_comm_memory *memory)
{
    const struct dpb_device_scheme scheme = scheme_of(given);
    bucket_elements = bucket_of(args, layout, bucket_elements);
    memory->device_bytes = dpb_device_strategy_inbox(&scheme, args, layout, bucket_elements);
    if (scheme.share == share_of_all)
        memory->state_elements = dpb_shard_elements(layout, bucket_elements, args->n_workers);
    else if (args->rank != 0)
        memory->state_elements = 0;
}

static struct dpb_range own_part(const struct dpb_strategy *base, uint64_t bucket, uint64_t length)
{
    const struct dpb_device_strategy *comm = (const struct dpb_device_strategy *)(const void *)base;
    return comm->scheme.share(&base->args, base->args.rank, bucket, length);
}

static dpb_status ps_plan(void *comm_, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct dpb_device_strategy *comm = comm_;
    const struct dpb_comm_args *args = &comm->base.args;
    struct dpb_range first = comm->scheme.share(args, args->rank, 0, args->n_workers);
    bool shard = first.end > first.begin;
    want->weights = shard ? DPB_MEMORY_SHARED : DPB_MEMORY_PRIVATE;
    want->gradients = DPB_MEMORY_PRIVATE;
    want->bucket_elements = bucket_of(args, layout, want->bucket_elements);
    dpb_device_strategy_plan(comm, layout, want);
    ((struct ps *)comm)->squares_at = want->scratch_bytes = dpb_strategy_lines(want->scratch_bytes);
    if (exchanges_squares(args, &comm->scheme))
        want->scratch_bytes += DPB_SQUARES_ROUNDS * dpb_strategy_squares_bytes(layout);
    return shard ? dpb_strategy_plan_parts(&comm->base, layout, own_part, want) : DPB_OK;
}

static dpb_status ps_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct ps *ps = comm;
    const struct dpb_comm_args *args = &ps->device.base.args;
    void *made = NULL;
    if (!exchanges_squares(args, &ps->device.scheme))
        return dpb_device_strategy_bind(comm, arenas, stages, flights, STAGES);
    DPB_TRY(ps->device.ops->allocate(ps->device.device, "sums of squares",
                                     args->n_workers * dpb_strategy_squares_bytes(&arenas->layout),
                                     false, &made));
    ps->squares = made;
    return dpb_device_strategy_bind(comm, arenas, stages_by_norms, flights_by_norms,
                                    BY_NORMS_STAGES);
}

static void ps_close(void *comm)
{
    struct ps *ps = comm;
    if (ps && ps->squares) {
        dpb_device_flights_close(&ps->device);
        ps->device.ops->release(ps->device.device, ps->squares);
    }
    dpb_device_strategy_close(comm);
}

static const struct dpb_comm_ops ps_ops = {.needs = ps_needs,
                                           .memory = ps_memory,
                                           .open = ps_open,
                                           .plan = ps_plan,
                                           .bind = ps_bind,
                                           .load = dpb_strategy_load,
                                           .begin = dpb_device_strategy_begin,
                                           .ready = dpb_strategy_ready,
                                           .progress = dpb_device_strategy_progress,
                                           .end = dpb_strategy_end,
                                           .publish = dpb_strategy_publish,
                                           .close = ps_close};

static const struct dpb_plugin ps_gpu = {
    DPB_PLUGIN_HEAD(COMM, ps_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_WHOLE | DPB_COMM_WHOLE_SHARDS,
    .name = "ps_gpu",
    .version = DPB_VERSION,
    .summary = "parameter servers in device memory: push, sum, update there, pull",
    .options = options,
    .options_size = sizeof(struct ps_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &ps_gpu;
}
