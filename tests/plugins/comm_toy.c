/*
 * toy - one small strategy of each kind, for tests of contracts.
 *
 *   mean       synchronous: the sum is divided here, and by step->scale no more
 *   late       the sum of a step is applied one step later
 *   periodic   workers train alone and average their weights every `period` steps (local SGD)
 *   partial    in step s the gradient of worker s mod W is dropped
 *   lossy      each step sends every other element; the rest stays in a residual
 *   async      worker 0's scratch holds the model; each worker applies its gradient and pulls,
 *              under a lock, and waits for nobody
 *   averaging  as async, with weights of its own that a centre draws: x -= d, z += d,
 *              d = alpha (x - z)
 *
 * `mistake`, from exchange `from` on, is what a proof must find. Buckets are whole pieces of work;
 * arenas are fp32 in memory that the machine's workers share.
 */
#include <sched.h>
#include <stddef.h>
#include <string.h>

#include "dpbench/plugin.h"
#include "lib/strategy/strategy.h"

enum kind { LATE, PERIODIC, PARTIAL, LOSSY, ASYNC, AVERAGING, MEAN };
static const char *const kinds[] = {"late",  "periodic",  "partial", "lossy",
                                    "async", "averaging", "mean",    NULL};
enum mistake {
    NONE,
    LOST,
    DOUBLED,
    COEFFICIENT,
    FORGOTTEN,
    LIE,
    KEPT,
    PUBLISHED,
    TIMING,
    OFTEN,
    UNNAMED,
    UNCLOCKED,
    UNSAID,
    SUMMED,
    VAGUE,
    DROPPED,
    BOOKLESS,
    OWN,
    AHEAD
};
static const char *const mistakes[] = {
    "none",      "lost",    "doubled",  "coefficient", "forgotten", "lie",    "kept",
    "published", "timing",  "often",    "unnamed",     "unclocked", "unsaid", "summed",
    "vague",     "dropped", "bookless", "own",         "ahead",     NULL};

struct options {
    int kind, mistake;
    int64_t from, period;
    bool books, half, leads;
};

#define AT(member) offsetof(struct options, member)
static const struct dpb_option option_table[] = {
    {"kind", DPB_OPT_CHOICE, NULL, "late", 0, 0, kinds, AT(kind), "which strategy", NULL},
    {"mistake", DPB_OPT_CHOICE, NULL, "none", 0, 0, mistakes, AT(mistake),
     "lost: a worker's gradients of bucket 0; doubled: the same; coefficient: times 1.001; "
     "forgotten: what is on its way or kept; lie: the contract or the books say otherwise; "
     "kept: by load; published: twice the model; timing: late at once, "
     "periodic a step after its period; often: periodic a step before; unnamed: a checkpoint has "
     "the steps alone; unclocked: "
     "all but the steps; unsaid: the contract's "
     "parameter; summed: late, by the sum in place of the mean; vague: the contract allows any "
     "rounding; dropped: async without the last worker, as `applied` says; bookless: "
     "the plan chooses hooks without books; own: mean by a rule of its own",
     NULL},
    {"from", DPB_OPT_INT, "exchange", "0", 0, 1e9, NULL, AT(from), "first exchange with it", NULL},
    {"period", DPB_OPT_INT, "steps", "3", 1, 64, NULL, AT(period), "of periodic", NULL},
    {"books", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(books),
     "late, periodic, lossy: prove by books", NULL},
    {"leads", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(leads),
     "periodic: workers wait in meetings alone", NULL},
    {"half", DPB_OPT_BOOL, NULL, "no", 0, 0, NULL, AT(half),
     "lossy: the books have the residual in bf16, which holds the pattern", NULL},
    {0}};

struct toy {
    struct dpb_strategy base;
    struct options options;
    float *sums[2];    /* of the step at hand, of the step before */
    float *residual;   /* lossy */
    uint64_t model_at; /* in rank 0's scratch: lock, then the model or centre */
    double steps;      /* since `load` */
};

static const struct dpb_host *host;

static bool wrong(const struct toy *toy, enum mistake mistake)
{
    return (enum mistake)toy->options.mistake == mistake &&
           toy->base.step.step >= (uint64_t)toy->options.from;
}

static bool is_last(const struct toy *toy)
{
    return toy->base.args.rank + 1 == toy->base.args.n_workers;
}

static bool meets(const struct toy *toy)
{
    return toy->options.kind == PERIODIC && !wrong(toy, FORGOTTEN) &&
           (int64_t)toy->steps % (toy->options.period + wrong(toy, TIMING) - wrong(toy, OFTEN)) ==
               0;
}

static bool waits(const struct toy *toy)
{
    return toy->options.kind != ASYNC && toy->options.kind != AVERAGING;
}

/* ---- worker 0's scratch -------------------------------------------------------------------- */

static uint32_t *lock_of(const struct toy *toy)
{
    return (uint32_t *)(void *)((char *)toy->base.arenas.peer_scratch[0] + toy->model_at);
}

static float *model_of(const struct toy *toy)
{
    return (float *)(void *)((char *)lock_of(toy) + DPB_CACHE_LINE);
}

static void lock(const struct toy *toy)
{
    while (__atomic_exchange_n(lock_of(toy), 1, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void unlock(const struct toy *toy)
{
    __atomic_store_n(lock_of(toy), 0, __ATOMIC_RELEASE);
}

/* ---- work on a bucket ---------------------------------------------------------------------- */

static void update(const struct toy *toy, uint64_t bucket, struct dpb_piece piece, float *weights,
                   const float *gradients)
{
    struct dpb_step step = toy->base.step;
    const bool here = bucket == 0 && is_last(toy);
    if (wrong(toy, COEFFICIENT))
        step.scale *= 1.001;
    for (int times = wrong(toy, DOUBLED) && here ? 2 : 1; times > 0; times--)
        if (!(wrong(toy, LOST) && here) && !(wrong(toy, DROPPED) && is_last(toy)))
            host->optimizer->update(toy->base.arenas.optimizer, NULL,
                                    (struct dpb_range){piece.begin, piece.begin + piece.n},
                                    weights + piece.begin, gradients, bucket, &step);
}

/* All gradients of the bucket, less what kind and mistake leave out. */
static void sum(const struct toy *toy, uint64_t bucket, struct dpb_piece piece, float *to)
{
    const struct dpb_comm_args *args = &toy->base.args;
    const uint32_t left_out = toy->options.kind == PARTIAL && args->n_workers > 1
                                  ? (uint32_t)(toy->base.step.step % args->n_workers)
                                  : UINT32_MAX;
    memset(to, 0, piece.n * sizeof *to);
    for (uint32_t rank = 0; rank < args->n_workers; rank++) {
        const bool last = rank + 1 == args->n_workers && bucket == 0;
        float factor = rank == left_out ? 0.0F : 1.0F;
        factor *= wrong(toy, LOST) && last ? 0.0F : 1.0F;
        factor *= wrong(toy, DOUBLED) && last ? 2.0F : 1.0F;
        const float *from = dpb_strategy_gradients(&toy->base, rank, piece.begin);
        for (uint64_t i = 0; i < piece.n; i++)
            to[i] += factor * from[i];
    }
}

/* Gradients and residual become what is sent, in place, and a new residual. */
static void encode(const struct toy *toy, struct dpb_piece piece)
{
    float *gradients = dpb_strategy_gradients(&toy->base, toy->base.args.rank, piece.begin);
    float *residual = toy->residual + piece.begin;
    for (uint64_t i = 0; i < piece.n; i++) {
        const bool sent = (piece.begin + i + (uint64_t)toy->steps) % 2 == 0;
        const float value = gradients[i] + residual[i];
        gradients[i] = sent ? value : 0.0F;
        residual[i] = sent || wrong(toy, FORGOTTEN) ? 0.0F : value;
    }
}

static void average_with_centre(const struct toy *toy, struct dpb_piece piece)
{
    const float alpha = 0.25F;
    float *x = (float *)toy->base.arenas.weights + piece.begin;
    float *z = model_of(toy) + piece.begin;
    for (uint64_t i = 0; i < piece.n; i++) {
        const float difference = alpha * (x[i] - z[i]);
        x[i] -= difference;
        z[i] += wrong(toy, FORGOTTEN) ? 0.0F : difference;
    }
}

static void work_alone(const struct toy *toy, uint64_t bucket, struct dpb_piece piece)
{
    float *own = toy->base.arenas.weights;
    const float *gradients = dpb_strategy_gradients(&toy->base, toy->base.args.rank, piece.begin);
    lock(toy);
    if (toy->options.kind == ASYNC) {
        update(toy, bucket, piece, model_of(toy), gradients);
        memcpy(own + piece.begin, model_of(toy) + piece.begin, piece.n * sizeof *own);
    } else {
        update(toy, bucket, piece, own, gradients);
        average_with_centre(toy, piece);
    }
    unlock(toy);
}

static void work_together(struct toy *toy, uint64_t bucket, struct dpb_piece piece)
{
    float *own = toy->base.arenas.weights, *now = toy->sums[0] + piece.begin;
    float *before = toy->sums[1] + piece.begin;
    if (toy->options.kind == PERIODIC) {
        const float *gradients =
            dpb_strategy_gradients(&toy->base, toy->base.args.rank, piece.begin);
        update(toy, bucket, piece, own, gradients);
        return;
    }
    sum(toy, bucket, piece, now);
    const bool late = toy->options.kind == LATE && !wrong(toy, TIMING);
    const bool forgets = wrong(toy, FORGOTTEN) && toy->base.step.step % 2 == 0;
    struct dpb_step *step = &toy->base.step;
    const double scale = step->scale;
    step->scale *= wrong(toy, COEFFICIENT) ? 1.001 : 1.0;
    if (!(toy->options.kind == LATE && forgets))
        host->optimizer->update(toy->base.arenas.optimizer, NULL,
                                (struct dpb_range){piece.begin, piece.begin + piece.n},
                                own + piece.begin, late ? before : now, bucket, step);
    step->scale = scale;
    memcpy(before, now, piece.n * sizeof *now);
}

static void work_by_mean(struct toy *toy, uint64_t bucket, struct dpb_piece piece)
{
    float *mean = toy->sums[0] + piece.begin;
    float *own = (float *)toy->base.arenas.weights + piece.begin;
    const struct dpb_step *step = &toy->base.step;
    struct dpb_step given = *step;
    sum(toy, bucket, piece, mean);
    for (uint64_t i = 0; i < piece.n; i++)
        mean[i] *= 1.0F / (float)toy->base.args.n_workers;
    given.scale *= wrong(toy, COEFFICIENT) ? 1.001 : 1.0;
    if (!wrong(toy, OWN))
        host->optimizer->update(toy->base.arenas.optimizer, NULL,
                                (struct dpb_range){piece.begin, piece.begin + piece.n}, own, mean,
                                bucket, &given);
    for (uint64_t i = 0; i < piece.n && wrong(toy, OWN); i++)
        own[i] -= (float)step->learning_rate * ((float)step->scale * mean[i]);
}

/* ---- stages -------------------------------------------------------------------------------- */

static struct dpb_rank_set needed(const struct toy *toy)
{
    return waits(toy) && (!toy->options.leads || meets(toy)) ? dpb_strategy_workers(&toy->base)
                                                             : dpb_strategy_self(&toy->base);
}

static struct dpb_piece whole(const struct toy *toy, uint64_t bucket, uint64_t length)
{
    return (struct dpb_piece){bucket * toy->base.arenas.bucket_elements, length};
}

static void encode_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct toy *toy = strategy;
    if (toy->options.kind == LOSSY)
        encode(toy, whole(toy, bucket, turn->length));
    dpb_signals_raise(&toy->base.signals, DPB_SIGNAL_PUSHED, bucket);
    turn->at = turn->length;
}

static bool apply_due(void *strategy, uint64_t bucket)
{
    const struct toy *toy = strategy;
    return dpb_signals_reached(&toy->base.signals, DPB_SIGNAL_PUSHED, needed(toy), bucket);
}

static dpb_status apply_wait(void *strategy, uint64_t bucket)
{
    return dpb_strategy_wait(strategy, DPB_SIGNAL_PUSHED, needed(strategy), bucket, DPB_FP32,
                             "the peer's gradients");
}

static void apply_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct toy *toy = strategy;
    if (toy->options.kind == MEAN)
        work_by_mean(toy, bucket, whole(toy, bucket, turn->length));
    else if (waits(toy))
        work_together(toy, bucket, whole(toy, bucket, turn->length));
    else
        work_alone(toy, bucket, whole(toy, bucket, turn->length));
    dpb_signals_raise(&toy->base.signals, DPB_SIGNAL_REDUCED, bucket);
    turn->at = turn->length;
}

static bool average_due(void *strategy, uint64_t bucket)
{
    const struct toy *toy = strategy;
    return dpb_signals_reached(&toy->base.signals, DPB_SIGNAL_REDUCED, needed(toy), bucket);
}

static dpb_status average_wait(void *strategy, uint64_t bucket)
{
    return dpb_strategy_wait(strategy, DPB_SIGNAL_REDUCED, needed(strategy), bucket, DPB_FP32,
                             "the peer's weights");
}

static void average_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct toy *toy = strategy;
    const struct dpb_piece piece = whole(toy, bucket, turn->length);
    const uint32_t n = toy->base.args.n_workers;
    for (uint64_t i = 0; i < turn->length && meets(toy); i++) {
        float all = 0;
        for (uint32_t rank = 0; rank < n; rank++)
            all += ((const float *)dpb_strategy_weights(&toy->base, rank, piece.begin))[i];
        toy->sums[0][piece.begin + i] = all / (float)n;
    }
    dpb_signals_raise(&toy->base.signals, DPB_SIGNAL_GATHERED, bucket);
    turn->at = turn->length;
}

/* All have read this rank's weights and gradients. */
static bool take_due(void *strategy, uint64_t bucket)
{
    const struct toy *toy = strategy;
    return dpb_signals_reached(&toy->base.signals, DPB_SIGNAL_GATHERED, needed(toy), bucket);
}

static dpb_status take_wait(void *strategy, uint64_t bucket)
{
    return dpb_strategy_wait(strategy, DPB_SIGNAL_GATHERED, needed(strategy), bucket, DPB_FP32,
                             "the peer to read");
}

static void take_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct toy *toy = strategy;
    const struct dpb_piece piece = whole(toy, bucket, turn->length);
    if (meets(toy))
        memcpy((float *)toy->base.arenas.weights + piece.begin, toy->sums[0] + piece.begin,
               turn->length * sizeof(float));
    turn->at = turn->length;
}

static const struct dpb_stage stages[] = {
    {dpb_strategy_own_ready, encode_work, dpb_strategy_own_wait},
    {apply_due, apply_work, apply_wait},
    {average_due, average_work, average_wait},
    {take_due, take_work, take_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status toy_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    DPB_TRY(dpb_strategy_open(host, args, sizeof(struct toy), comm));
    ((struct toy *)*comm)->options = *(const struct options *)options;
    return DPB_OK;
}

static struct dpb_contract contract_of(const struct toy *toy, const struct dpb_contract *given)
{
    const uint32_t n = toy->base.args.n_workers;
    const dpb_proof proof = toy->options.books ? DPB_PROOF_BOOKS : DPB_PROOF_SETTLES;
    struct dpb_contract contract = *given;
    switch ((enum kind)toy->options.kind) {
    case LATE:
        if (toy->options.mistake == LIE) /* synchronous, it says */
            break;
        contract.consistency = DPB_LATE;
        contract.parameter = contract.settle_steps = 1;
        contract.proof = proof;
        if (toy->options.mistake == SUMMED)
            contract.share = contract.divisor = 1;
        break;
    case PERIODIC:
        contract.consistency = DPB_PERIODIC;
        contract.parameter = (uint32_t)toy->options.period;
        contract.settle_steps = contract.parameter - 1;
        contract.lead = toy->options.leads ? contract.parameter - 1 : 0;
        contract.divisor = 1;
        contract.roundings = n + 2 * contract.parameter;
        contract.proof = proof;
        contract.replicas_equal = !toy->options.books;
        break;
    case PARTIAL:
        contract.consistency = DPB_PARTIAL;
        contract.parameter = contract.divisor = n > 1 ? n - 1 : 1;
        contract.share = 1.0 / contract.divisor;
        contract.proof = DPB_PROOF_BOOKS;
        break;
    case LOSSY:
        contract.consistency = DPB_LOSSY;
        contract.settle_steps = 1;
        contract.roundings = 1;
        contract.proof = proof;
        break;
    case MEAN:
        contract.divisor = 1;
        contract.roundings = 2;
        break;
    case ASYNC:
    case AVERAGING:
        contract.consistency = toy->options.kind == ASYNC ? DPB_ASYNCHRONOUS : DPB_AVERAGING;
        contract.proof = DPB_PROOF_BOOKS;
        contract.divisor = 1;
        contract.share = 1.0;
        contract.lead = UINT32_MAX;
        contract.replicas_equal = false;
    }
    if (toy->options.mistake == LIE && toy->options.kind > LATE && toy->options.kind != PARTIAL)
        contract.share *= 0.5;
    if (toy->options.mistake == AHEAD)
        contract.lead = 0;
    if (toy->options.mistake == UNSAID)
        contract.parameter = 0;
    if (toy->options.mistake == VAGUE)
        contract.roundings = 1 << 24;
    return contract;
}

static dpb_status toy_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct toy *toy = comm;
    if (layout->weight_type != DPB_FP32 || layout->gradient_type != DPB_FP32)
        return host->fail(DPB_UNSUPPORTED, "comm toy: fp32 alone");
    DPB_TRY(dpb_strategy_plan_replica(comm, layout, DPB_MEMORY_SHARED, want));
    want->weights = DPB_MEMORY_SHARED;
    want->contract = contract_of(toy, &want->contract);
    if (toy->options.mistake == BOOKLESS) {
        static struct dpb_comm_ops other;
        other = *want->ops;
        other.books = NULL;
        want->ops = &other;
    }
    toy->model_at = (want->scratch_bytes + DPB_CACHE_LINE - 1) / DPB_CACHE_LINE * DPB_CACHE_LINE;
    want->scratch_bytes = toy->model_at + DPB_CACHE_LINE + layout->n_elements * sizeof(float);
    return DPB_OK;
}

static dpb_status toy_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct toy *toy = comm;
    float **buffers[] = {&toy->sums[0], &toy->sums[1], &toy->residual};
    for (int i = 0; i < 3; i++)
        if (!(*buffers[i] = host->alloc(arenas->layout.n_elements * sizeof(float))))
            return DPB_NO_MEMORY;
    return dpb_strategy_bind(comm, arenas, stages, 4);
}

/* What is on its way is of another model. */
static dpb_status toy_load(void *comm)
{
    struct toy *toy = comm;
    const size_t bytes = toy->base.arenas.layout.n_elements * sizeof(float);
    if (wrong(toy, KEPT))
        return DPB_OK;
    memset(toy->sums[1], 0, bytes);
    memset(toy->residual, 0, bytes);
    toy->steps = 0;
    if (toy->base.args.rank == 0)
        memcpy(model_of(toy), toy->base.arenas.weights, bytes);
    return DPB_OK;
}

static dpb_status toy_begin(void *comm, const struct dpb_step *step)
{
    ((struct toy *)comm)->steps += 1;
    return dpb_strategy_begin(comm, step);
}

static dpb_status toy_state(void *comm, struct dpb_saved *saved)
{
    struct toy *toy = comm;
    const struct dpb_arenas *arenas = &toy->base.arenas;
    const struct dpb_saved_array arrays[] = {
        {"steps", DPB_FP64, true, 1, &toy->steps},
        {"weights", DPB_FP32, false, 0, arenas->weights},
        {"momentum", DPB_FP32, false, 0, host->optimizer->state(arenas->optimizer, 0, 0)},
        {"pending", DPB_FP32, false, 0, toy->sums[1]},
        {"residual", DPB_FP32, false, 0, toy->residual}};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (!arrays[i].memory || wrong(toy, i == 0 ? UNCLOCKED : UNNAMED))
            continue;
        saved->arrays[saved->n] = arrays[i];
        saved->arrays[saved->n++].n_elements = i == 0 ? 1 : arenas->layout.n_elements;
    }
    return DPB_OK;
}

static dpb_status toy_publish(void *comm, struct dpb_view *view)
{
    const struct toy *toy = comm;
    const float *weights = waits(toy) ? toy->base.arenas.weights : (void *)model_of(toy);
    view->weights = weights;
    if (!wrong(toy, PUBLISHED))
        return DPB_OK;
    view->weights = toy->sums[0];
    for (uint64_t i = 0; i < toy->base.arenas.layout.n_elements; i++)
        toy->sums[0][i] = 2.0F * weights[i];
    return DPB_OK;
}

static dpb_status toy_books(void *comm, struct dpb_books *books)
{
    const struct toy *toy = comm;
    const struct dpb_comm_args *args = &toy->base.args;
    const double share = 1.0 / args->n_workers;
    const struct dpb_book weights = {toy->base.arenas.weights, DPB_FP32, 1.0, false};
    const struct dpb_book model = {model_of(toy), DPB_FP32, 1.0, false};
    if (toy->options.kind != ASYNC)
        books->entries[books->n++] = weights;
    if (waits(toy))
        books->entries[0].coefficient = share;
    else if (args->rank == 0)
        books->entries[books->n++] = model;
    if (toy->options.kind == LOSSY && toy->options.half) {
        host->vec->cast(DPB_BF16, toy->sums[1], DPB_FP32, toy->residual,
                        toy->base.arenas.layout.n_elements);
        books->entries[books->n++] = (struct dpb_book){toy->sums[1], DPB_BF16, share, true};
    } else if (toy->options.kind == LOSSY) {
        books->entries[books->n++] = (struct dpb_book){toy->residual, DPB_FP32, share, true};
    }
    return DPB_OK;
}

static double toy_applied(void *comm, uint64_t step, uint64_t element)
{
    const struct toy *toy = comm;
    (void)element;
    const uint32_t n = toy->base.args.n_workers;
    if (toy->options.kind == ASYNC)
        return wrong(toy, DROPPED) && is_last(toy) ? 0.0 : 1.0;
    const uint32_t dropped = (uint32_t)((step + (wrong(toy, LIE) ? 1 : 0)) % n);
    return n > 1 && toy->base.args.rank == dropped ? 0.0 : 1.0 / (n > 1 ? n - 1 : 1);
}

static void toy_close(void *comm)
{
    struct toy *toy = comm;
    if (!toy)
        return;
    const size_t bytes = toy->base.arenas.layout.n_elements * sizeof(float);
    host->release(toy->sums[0], bytes);
    host->release(toy->sums[1], bytes);
    host->release(toy->residual, bytes);
    dpb_strategy_close(comm);
}

#define TOY_HOOKS                                                                               \
    .open = toy_open, .plan = toy_plan, .bind = toy_bind, .load = toy_load, .begin = toy_begin, \
    .ready = dpb_strategy_ready, .progress = dpb_strategy_progress, .end = dpb_strategy_end,    \
    .publish = toy_publish, .books = toy_books, .close = toy_close

static const struct dpb_comm_ops toy_ops = {TOY_HOOKS, .state = toy_state};
static const struct dpb_comm_ops bare_ops = {TOY_HOOKS};
static const struct dpb_comm_ops partial_ops = {TOY_HOOKS, .applied = toy_applied};

/* Leaves the preset, a synchronous mean, whatever the plan sets. */
static dpb_status untrue_contract(const void *given, const struct dpb_comm_args *args,
                                  struct dpb_contract *contract)
{
    (void)given;
    (void)args;
    (void)contract;
    return DPB_OK;
}

static const struct dpb_comm_ops untrue_ops = {TOY_HOOKS, .contract = untrue_contract};

static const struct dpb_plugin untrue = {
    DPB_PLUGIN_HEAD(COMM, untrue_ops),
    .name = "toy_untrue",
    .version = DPB_VERSION,
    .summary = "toy that tells the launcher another contract than its plan's",
    .options = option_table,
    .options_size = sizeof(struct options),
};
static const struct dpb_plugin bare = {
    DPB_PLUGIN_HEAD(COMM, bare_ops),
    .name = "toy_bare",
    .version = DPB_VERSION,
    .summary = "toy without the hook that says what a checkpoint needs",
    .options = option_table,
    .options_size = sizeof(struct options),
    .next = &untrue,
};
static const struct dpb_plugin partial = {
    DPB_PLUGIN_HEAD(COMM, partial_ops),
    .name = "toy_partial",
    .version = DPB_VERSION,
    .summary = "toy with the hook that says which gradients count",
    .options = option_table,
    .options_size = sizeof(struct options),
    .next = &bare,
};
static const struct dpb_plugin toy = {
    DPB_PLUGIN_HEAD(COMM, toy_ops),
    .name = "toy",
    .version = DPB_VERSION,
    .summary = "a small strategy of each kind, with mistakes",
    .options = option_table,
    .options_size = sizeof(struct options),
    .next = &partial,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &toy;
}
