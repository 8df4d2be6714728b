/*
 * comm_seeded.c - mutant_seeded_shm, mutant_seeded_ring_tcp and so on: real strategies with a
 * mistake that is drawn from comm.drawn, a seed. It is made in training alone, for a while, in a
 * part of the elements.
 *
 *     gradients   one worker's are wrong when it hands over a bucket
 *     update      an owner's step of the elements is too long or too short
 *     weights     all replicas alike have moved too far, or not far enough, when a step begins
 *
 * Of gradients and weights 1 % of the elements or more, here and there; of an update, the first
 * ones of its range. All by one factor: 1 % off or more, 10 % with gradients in bf16.
 */
#include <stdlib.h>
#include <string.h>

#include "dpbench/random.h"
#include "fault.h"
#include "wrap.h"

enum place { GRADIENTS, UPDATE, WEIGHTS, N_PLACES };

struct options {
    int64_t drawn;
    int64_t place; /* -1: drawn, too */
    int64_t from, until;
};

/* Where the strategy's own options begin. */
enum { INNER_AT = (sizeof(struct options) + 15) / 16 * 16 };

#define AT(member) offsetof(struct options, member)
static const struct dpb_option option_rows[] = {
    {"drawn", DPB_OPT_INT, NULL, "0", 0, 1e9, NULL, AT(drawn), "seed of the mistake; 0: none",
     NULL},
    {"place", DPB_OPT_INT, NULL, "-1", -1, N_PLACES - 1, NULL, AT(place), "-1: drawn", NULL},
    {"from", DPB_OPT_INT, "exchange", "100", 0, 1e9, NULL, AT(from), "the first that may be wrong",
     NULL},
    {"until", DPB_OPT_INT, "exchange", "200", 0, 1e9, NULL, AT(until), "none is from here on",
     NULL},
    {0}};
enum { N_ROWS = sizeof option_rows / sizeof option_rows[0] - 1 };

struct mistake {
    enum place place;
    uint32_t worker;
    double share, factor;
    uint64_t from, until; /* exchanges */
};

/* A process has one communicator. */
static const struct dpb_host *host;
static struct dpb_host told;
static struct dpb_optimizer_ops optimizer;
static const struct dpb_comm_ops *inner;
static struct dpb_comm_ops ops;
static struct dpb_comm_args args;
static struct dpb_arenas arenas;
static struct options options;
static struct mistake mistake;
static struct dpb_step now;
static double *before; /* the weights when the last step began */
static bool has_before;

/* ---- what is wrong --------------------------------------------------------------------------- */

static struct mistake draw(void)
{
    static const double shares[] = {0.01, 0.03, 0.1, 0.5, 1.0};
    static const double factors[] = {0.0, 2.0, 1.01, 0.99, -1.0, 1.1};
    static const double coarse[] = {0.0, 2.0, 1.1, 0.9, -1.0, 1.5};
    const bool halves = dpb_dtype_size(arenas.layout.gradient_type) == 2;
    const struct dpb_random4 a =
        dpb_random((uint64_t)options.drawn, DPB_STREAM_SYNTHETIC, 1, 0, 0, 0);
    const struct dpb_random4 b =
        dpb_random((uint64_t)options.drawn, DPB_STREAM_SYNTHETIC, 2, 0, 0, 0);
    const uint64_t span = (uint64_t)(options.until - options.from);
    const uint64_t most = span > 20 ? span - 20 : 0, length = 20 + b.v[0] % (most + 1);
    const uint64_t from = (uint64_t)options.from + b.v[1] % (span - length + 1);
    return (struct mistake){.place = options.place < 0 ? (enum place)(a.v[0] % N_PLACES)
                                                       : (enum place)options.place,
                            .worker = a.v[1] % args.n_workers,
                            .share = shares[a.v[2] % 5],
                            .factor = (halves ? coarse : factors)[a.v[3] % 6],
                            .from = from,
                            .until = from + length};
}

static bool is_wrong(enum place place, uint64_t exchange)
{
    return options.drawn > 0 && mistake.place == place && exchange >= mistake.from &&
           exchange < mistake.until;
}

/* The same elements in each step. */
static bool is_among(uint64_t element)
{
    const struct dpb_random4 word = dpb_random((uint64_t)options.drawn, DPB_STREAM_SYNTHETIC, 3,
                                               (uint32_t)element, (uint32_t)(element >> 32), 0);
    return (double)word.v[0] < mistake.share * 0x1p32;
}

static double get(dpb_dtype type, const void *array, uint64_t i)
{
    if (type == DPB_FP64)
        return ((const double *)array)[i];
    return type == DPB_FP32 ? (double)((const float *)array)[i]
                            : (double)dpb_bf16_to_fp32(((const uint16_t *)array)[i]);
}

static void set(dpb_dtype type, void *array, uint64_t i, double value)
{
    if (type == DPB_FP64)
        ((double *)array)[i] = value;
    else if (type == DPB_FP32)
        ((float *)array)[i] = (float)value;
    else
        ((uint16_t *)array)[i] = dpb_bf16_from_fp32((float)value);
}

/* ---- hooks ----------------------------------------------------------------------------------- */

static dpb_status seeded_bind(void *comm, const struct dpb_arenas *given)
{
    arenas = *given;
    before = calloc(given->layout.n_elements, sizeof *before);
    mistake = draw();
    return before ? inner->bind(comm, given) : DPB_NO_MEMORY;
}

/* Replicas that each worker has to itself; all change alike. */
static void spoil_weights(void)
{
    const dpb_dtype type = arenas.layout.weight_type;
    for (uint64_t i = 0; i < arenas.layout.n_elements; i++) {
        const double is = get(type, arenas.weights, i);
        if (has_before && is_wrong(WEIGHTS, now.step) && is_among(i))
            set(type, arenas.weights, i, before[i] + mistake.factor * (is - before[i]));
        before[i] = get(type, arenas.weights, i);
    }
    has_before = true;
}

static dpb_status seeded_begin(void *comm, const struct dpb_step *step)
{
    now = *step;
    if (options.drawn > 0 && mistake.place == WEIGHTS)
        spoil_weights();
    return inner->begin(comm, step);
}

static dpb_status seeded_ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    const dpb_dtype type = arenas.layout.gradient_type;
    const uint64_t begin = bucket * arenas.bucket_elements, all = arenas.layout.n_elements;
    const uint64_t end =
        all - begin < arenas.bucket_elements ? all : begin + arenas.bucket_elements;
    for (uint64_t i = begin;
         i < end && is_wrong(GRADIENTS, now.step) && args.rank == mistake.worker; i++)
        if (is_among(i))
            set(type, arenas.gradients, i, mistake.factor * get(type, arenas.gradients, i));
    return inner->ready(comm, bucket, event);
}

static dpb_status seeded_update(struct dpb_optimizer *of, struct dpb_queue *queue,
                                struct dpb_range range, void *weights, const void *gradients,
                                uint64_t bucket, const struct dpb_step *step)
{
    struct dpb_step wrong = *step;
    const double n = (double)(range.end - range.begin) * mistake.share;
    const uint64_t middle = range.begin + (uint64_t)(n < 1.0 ? 1.0 : n);
    if (!is_wrong(UPDATE, step->step) || range.begin == range.end)
        return host->optimizer->update(of, queue, range, weights, gradients, bucket, step);
    wrong.scale *= mistake.factor;
    DPB_TRY(host->optimizer->update(of, queue, (struct dpb_range){range.begin, middle}, weights,
                                    gradients, bucket, &wrong));
    const uint64_t done = middle - range.begin;
    return host->optimizer->update(
        of, queue, (struct dpb_range){middle, range.end},
        (char *)weights + done * dpb_dtype_size(arenas.layout.weight_type),
        (const char *)gradients + done * dpb_dtype_size(arenas.layout.gradient_type), bucket, step);
}

static void seeded_close(void *comm)
{
    if (comm)
        inner->close(comm);
    free(before);
    before = NULL;
}

/* The hooks of the form that the strategy has chosen, but for those above. */
static dpb_status seeded_plan(void *comm, const struct dpb_layout *layout,
                              struct dpb_comm_plan *want)
{
    DPB_TRY(wrap_plan(&inner, comm, layout, want));
    ops = *inner;
    ops.bind = seeded_bind;
    ops.begin = seeded_begin;
    ops.ready = seeded_ready;
    ops.close = seeded_close;
    want->ops = &ops;
    return DPB_OK;
}

/* ---- the strategies -------------------------------------------------------------------------- */

static dpb_status seeded_open(const struct dpb_plugin *plugin, const void *given,
                              const struct dpb_comm_args *told_args, void **comm)
{
    options = *(const struct options *)given;
    args = *told_args;
    inner = plugin->ops;
    has_before = false;
    return inner->open((const char *)given + INNER_AT, told_args, comm);
}

#define WRONG(X) X(shm) X(ring_tcp) X(ps_cpu) X(local_sgd) X(gossip) X(easgd) X(diloco)

/* Questions that come without `open` have options, too. */
#define WRONG_OPS(NAME)                                                                       \
    static const struct dpb_plugin *inner_##NAME;                                             \
    static dpb_status open_##NAME(const void *given, const struct dpb_comm_args *their_args,  \
                                  void **comm)                                                \
    {                                                                                         \
        return seeded_open(inner_##NAME, given, their_args, comm);                            \
    }                                                                                         \
    static dpb_status needs_##NAME(const void *given, struct dpb_comm_needs *needs)           \
    {                                                                                         \
        const struct dpb_comm_ops *its = inner_##NAME->ops;                                   \
        return its->needs ? its->needs((const char *)given + INNER_AT, needs) : DPB_OK;       \
    }                                                                                         \
    static dpb_status contract_##NAME(const void *given, const struct dpb_comm_args *of,      \
                                      struct dpb_contract *contract)                          \
    {                                                                                         \
        const struct dpb_comm_ops *its = inner_##NAME->ops;                                   \
        return its->contract ? its->contract((const char *)given + INNER_AT, of, contract)    \
                             : DPB_OK;                                                        \
    }                                                                                         \
    static struct dpb_comm_ops ops_##NAME;                                                    \
    static struct dpb_plugin plugin_##NAME = {DPB_PLUGIN_HEAD(COMM, ops_##NAME),              \
                                              .name = "mutant_seeded_" #NAME, .version = "1", \
                                              .summary = "a test's: " #NAME " with a mistake"};
WRONG(WRONG_OPS)

#define WRONG_LOAD(NAME)                                                                         \
    inner_##NAME = fault_inner(&told, "comm_" #NAME);                                            \
    if (inner_##NAME) {                                                                          \
        ops_##NAME = *(const struct dpb_comm_ops *)inner_##NAME->ops;                            \
        ops_##NAME.open = open_##NAME;                                                           \
        ops_##NAME.needs = needs_##NAME;                                                         \
        ops_##NAME.contract = ops_##NAME.contract ? contract_##NAME : NULL;                      \
        ops_##NAME.memory = NULL;                                                                \
        ops_##NAME.plan = seeded_plan;                                                           \
        ops_##NAME.close = seeded_close;                                                         \
        plugin_##NAME.capabilities = inner_##NAME->capabilities;                                 \
        plugin_##NAME.options = wrap_rows(option_rows, N_ROWS, inner_##NAME->options, INNER_AT); \
        plugin_##NAME.options_size = INNER_AT + inner_##NAME->options_size;                      \
        plugin_##NAME.next = first;                                                              \
        first = &plugin_##NAME;                                                                  \
    }

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    const struct dpb_plugin *first = NULL;
    host = given;
    told = *given;
    optimizer = *given->optimizer;
    optimizer.update = seeded_update;
    told.optimizer = &optimizer;
    WRONG(WRONG_LOAD)
    return first;
}
