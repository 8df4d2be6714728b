/*
 * follow_judge.c - each followed step against the optimizer's rule (optimizer.h), in float64.
 *
 * A step begins with the weights that a rank had. The rule's state follows from all steps before,
 * with a bound of its error. So the bound of a step grows with roundings alone, and no right
 * strategy exceeds it, in whichever order it sums.
 *
 * Equal replicas take one step, by the gradients of all workers. Replicas that meet now and then
 * take a step each, by their own gradients. A meeting does not change the sum of their weights. The
 * rule (SGD's) is linear, so it is the same sum where the rule's states are averaged, too.
 */
#include "proof/follow_judge.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "exchange/access.h"
#include "exchange/follow.h"
#include "graph/graph.h"
#include "proof/proving.h"
#include "world/store.h"

/* ---- the rules ----------------------------------------------------------------------------- */

/* A number, and how far it may be off. */
struct known {
    double is, off;
};

/* The state of an element; the optimizer's moments. */
struct state {
    struct known first, second;
};

/* The weights' type: its unit roundoff, its smallest normal number and its largest. */
struct arithmetic {
    double unit, smallest, largest;
};

/* Adds two numbers after factors that are rounded, too; u: a unit of the weights' type. */
static struct known add(double a, struct known x, double b, struct known y, double u)
{
    return (struct known){.is = a * x.is + b * y.is,
                          .off = fabs(a) * x.off + fabs(b) * y.off +
                                 4.0 * u * (fabs(a * x.is) + fabs(b * y.is))};
}

/* A number that the weights' type may not hold is infinite there, and everything after it. */
static struct known within(double largest, struct known x)
{
    if (!(fabs(x.is) + x.off <= largest))
        x.off = INFINITY;
    return x;
}

/* The square of a number; tiny ones may vanish. */
static struct known square(struct known x, const struct arithmetic *type)
{
    const struct known squared = {.is = x.is * x.is,
                                  .off = (2.0 * fabs(x.is) + x.off) * x.off +
                                         2.0 * type->unit * x.is * x.is + type->smallest};
    return within(type->largest, squared);
}

/* x / (sqrt(s) + epsilon): where s may be 0, anything. */
static struct known divide_by_root(struct known x, struct known s, double epsilon,
                                   const struct arithmetic *type)
{
    const double least = sqrt(s.off < s.is ? s.is - s.off : 0.0) + epsilon;
    const double most = sqrt(s.is + s.off) + epsilon;
    const double is = x.is / (sqrt(s.is) + epsilon);
    const double above = (fabs(x.is) + x.off) / least - fabs(is);
    const double below = fabs(is) - (fabs(x.is) - x.off) / most;
    const struct known root = within(type->largest, s);
    return (struct known){
        .is = is,
        .off = isfinite(root.off) ? fmax(above, below) + 8.0 * type->unit * fabs(is) : INFINITY};
}

/* The weight's way down in a step of rate 1, given g with its decay. The n-th step, from 1. */
static struct known go_down(const struct dpb_optimizer_settings *rule, uint64_t n, struct known g,
                            const struct arithmetic *type, struct state *state)
{
    const struct known none = {0.0, 0.0};
    const double u = type->unit;
    if (rule->kind == DPB_ADAGRAD) {
        state->second = add(1.0, state->second, 1.0, square(g, type), u);
        return divide_by_root(g, state->second, rule->epsilon, type);
    }
    if (rule->kind == DPB_ADAM) {
        const double first = 1.0 / (1.0 - pow(rule->beta1, (double)n));
        const double second = 1.0 / (1.0 - pow(rule->beta2, (double)n));
        state->first = add(rule->beta1, state->first, 1.0 - rule->beta1, g, u);
        state->second = add(rule->beta2, state->second, 1.0 - rule->beta2, square(g, type), u);
        return divide_by_root(add(first, state->first, 0.0, none, u),
                              add(second, state->second, 0.0, none, u), rule->epsilon, type);
    }
    state->first = add(rule->momentum, state->first, 1.0, g, u);
    return rule->nesterov ? add(1.0, g, rule->momentum, state->first, u) : state->first;
}

/* The weight after a step from weight w; *sum: of all workers' gradients. */
static struct known take_step(const struct dpb_optimizer_settings *rule,
                              const struct dpb_followed_step *step, uint64_t n, bool decays,
                              double w, struct known sum, const struct arithmetic *type,
                              struct state *state)
{
    const struct known weight = {w, 0.0};
    const double u = type->unit;
    const double decay = decays ? rule->weight_decay : 0.0;
    const bool apart = rule->kind == DPB_ADAM && rule->decoupled_decay;
    const struct known g = add(step->scale, sum, apart ? 0.0 : decay, weight, u);
    const struct known down =
        add(1.0, go_down(rule, n, g, type, state), apart ? decay : 0.0, weight, u);
    return add(1.0, weight, -step->rate, down, u);
}

/* ---- the record of all workers ------------------------------------------------------------- */

/* Of each row of weights its checksum; on rank 0 the numbers of each step and element. */
struct record {
    uint64_t n_steps;
    uint32_t n;
    uint64_t *checksums;
    /* Replicas that are apart: of the worker whose record was taken last. Otherwise of all. */
    double *sum, *magnitude, *weights;
    struct outcome *outcomes;
    bool unknown; /* books of a worker name more than its replica */
};

/* Of one step and element, summed over the replicas that take steps of their own. */
struct outcome {
    double from, to;
    struct known expected;
};

static dpb_status no_memory(void)
{
    return dpb_fail(DPB_NO_MEMORY, "no memory to compare the followed elements");
}

static dpb_status make_record(const struct dpb_exchange *exchange, struct record *record)
{
    const struct dpb_follow *follow = exchange->follow;
    const dpb_dtype type = exchange->layout.weight_type;
    const uint64_t n_steps =
        follow->n_begun < DPB_FOLLOWED_STEPS ? follow->n_begun : DPB_FOLLOWED_STEPS;
    const uint64_t row = follow->n * dpb_dtype_size(type);
    *record = (struct record){.n_steps = n_steps, .n = follow->n};
    record->checksums = calloc(n_steps + 1, sizeof *record->checksums);
    if (!record->checksums)
        return no_memory();
    for (uint64_t step = 0; step <= n_steps; step++)
        record->checksums[step] = dpb_vec_checksum(type, follow->weights + step * row, follow->n);
    return DPB_OK;
}

static dpb_status make_numbers(struct record *record)
{
    const uint64_t n = record->n_steps * record->n;
    record->sum = calloc(n + 1, sizeof *record->sum);
    record->magnitude = calloc(n + 1, sizeof *record->magnitude);
    record->weights = calloc(n + record->n, sizeof *record->weights);
    record->outcomes = calloc(n + 1, sizeof *record->outcomes);
    return record->sum && record->magnitude && record->weights && record->outcomes ? DPB_OK
                                                                                   : no_memory();
}

static void free_record(struct record *record)
{
    free(record->checksums);
    free(record->sum);
    free(record->magnitude);
    free(record->weights);
    free(record->outcomes);
}

static dpb_status add_gradients(dpb_dtype type, const void *gradients, struct record *record)
{
    const uint64_t n = record->n_steps * record->n;
    double *values = malloc((n + 1) * sizeof *values);
    if (!values)
        return no_memory();
    dpb_vec.cast(DPB_FP64, values, type, gradients, n);
    for (uint64_t i = 0; i < n; i++) {
        record->sum[i] += values[i];
        record->magnitude[i] += fabs(values[i]);
    }
    free(values);
    return DPB_OK;
}

static void set_weights(const struct dpb_exchange *exchange, const void *weights,
                        struct record *record)
{
    dpb_vec.cast(DPB_FP64, record->weights, exchange->layout.weight_type, weights,
                 (record->n_steps + 1) * record->n);
}

static dpb_status differ(const struct dpb_exchange *exchange, uint64_t row, uint32_t rank)
{
    const unsigned long long step = exchange->follow->steps[row].number;
    return dpb_fail(DPB_VERIFICATION,
                    "steps check of comm '%s': before step %llu of training the weights of rank 0 "
                    "and of rank %u differed; the strategy promises equal bits after each step",
                    exchange->experiment->settings.comm.name, step, rank);
}

/* Rank 0 takes the record of `rank`, which gives its own. */
static dpb_status take_record(const struct dpb_exchange *exchange, uint32_t rank, void *room,
                              struct record *record)
{
    const struct dpb_follow *follow = exchange->follow;
    const bool apart = dpb_follow_apart(exchange);
    const size_t n_rows = record->n_steps + 1;
    const size_t weights_bytes = n_rows * record->n * dpb_dtype_size(exchange->layout.weight_type);
    const size_t rows_bytes = apart ? weights_bytes : n_rows * sizeof(uint64_t);
    const dpb_dtype type = exchange->layout.gradient_type;
    const size_t bytes = record->n_steps * record->n * dpb_dtype_size(type);
    char key[32];
    snprintf(key, sizeof key, "followed/%u", rank);
    if (dpb_world.rank == rank) {
        DPB_TRY(dpb_store_give_all(key, &follow->coefficient, sizeof follow->coefficient));
        const void *rows = apart ? (const void *)follow->weights : record->checksums;
        DPB_TRY(dpb_store_give_all(key, rows, rows_bytes));
        return dpb_store_give_all(key, follow->gradients, bytes);
    }
    double coefficient;
    DPB_TRY(dpb_store_take_all(rank, key, &coefficient, sizeof coefficient, "followed books"));
    record->unknown = record->unknown || !(coefficient == follow->coefficient);
    DPB_TRY(dpb_store_take_all(rank, key, room, rows_bytes, "followed weights"));
    if (apart)
        set_weights(exchange, room, record);
    const uint64_t *checksums = room;
    for (uint64_t row = 0; row < n_rows && !apart; row++)
        if (checksums[row] != record->checksums[row])
            return differ(exchange, row, rank);
    DPB_TRY(dpb_store_take_all(rank, key, room, bytes, "followed gradients"));
    return add_gradients(type, room, record);
}

/* ---- the verdict --------------------------------------------------------------------------- */

static const double smallest[] = {[DPB_FP64] = DBL_MIN,
                                  [DPB_FP32] = (double)FLT_MIN,
                                  [DPB_BF16] = (double)FLT_MIN,
                                  [DPB_FP16] = 0x1p-14};

static struct arithmetic arithmetic_of(dpb_dtype weights)
{
    return (struct arithmetic){.unit = dpb_proof_roundoff(weights),
                               .smallest = smallest[weights],
                               .largest = weights == DPB_FP64 ? DBL_MAX : (double)FLT_MAX};
}

/* Adds to the outcomes of the i-th element the steps of the record, whose gradients are of
 * `n_summed` workers. */
static void take_steps(const struct dpb_exchange *exchange, uint32_t i, uint32_t n_summed,
                       struct record *record)
{
    const struct dpb_experiment *experiment = exchange->experiment;
    const struct dpb_follow *follow = exchange->follow;
    const struct dpb_contract *contract = &exchange->plan.contract;
    const dpb_dtype type = exchange->layout.gradient_type;
    const bool decays =
        experiment->graph->tensors[dpb_graph_tensor_at(experiment->graph, follow->elements[i])]
            .decays;
    const struct arithmetic weights = arithmetic_of(exchange->layout.weight_type);
    const double tiny = (n_summed + 1.0) * smallest[type];
    /* The sum in float64 that it is compared with is rounded, too. */
    const double error = dpb_proof_error(exchange, false) + n_summed * (double)DBL_EPSILON;
    /* Sums over replicas are made in float64, too. */
    const double summing = (experiment->n_workers - n_summed) * (double)DBL_EPSILON;
    /* Replicas in the sum take each their own gradients; the sum is in units of the books. */
    const double own = dpb_follow_apart(exchange) ? follow->coefficient : 1.0;
    const double part = contract->share * contract->divisor / own; /* a mean may be its own */
    struct state state = {.first = {0.0, 0.0}};
    for (uint64_t step = 0; step < record->n_steps; step++) {
        const uint64_t at = step * record->n + i;
        const double from = record->weights[at], to = record->weights[at + record->n];
        const struct known sum = {record->sum[at], error * record->magnitude[at] + tiny};
        struct outcome *outcome = &record->outcomes[at];
        struct dpb_followed_step taken = follow->steps[step];
        taken.scale *= part;
        const struct known expected = take_step(&experiment->settings.optimizer, &taken, step + 1,
                                                decays, from, sum, &weights, &state);
        /* The contract's roundings may be of weights and of the rule's state: a mean of replicas,
         * a copy of few bits. */
        const double rounded = contract->roundings * weights.unit + summing;
        state.first.off += rounded * fabs(state.first.is);
        outcome->from += from;
        outcome->to += to;
        outcome->expected.is += expected.is;
        outcome->expected.off += expected.off + weights.smallest +
                                 rounded * (fabs(from) + fmax(fabs(to), fabs(expected.is)));
    }
}

/* Takes the records of all workers into the outcomes of rank 0. */
static dpb_status collect(const struct dpb_exchange *exchange, struct record *record)
{
    const struct dpb_follow *follow = exchange->follow;
    const uint64_t n = record->n_steps * record->n;
    const uint32_t n_workers = exchange->experiment->n_workers;
    const bool apart = dpb_follow_apart(exchange);
    if (dpb_world.rank > 0)
        return take_record(exchange, dpb_world.rank, NULL, record);
    /* For the rows of weights, the checksums and the gradients. */
    void *room = malloc((n + record->n + record->n_steps + 1) * sizeof(double));
    dpb_status status = room ? make_numbers(record) : no_memory();
    record->unknown = !(follow->coefficient > 0);
    for (uint32_t rank = 0; rank < n_workers && status == DPB_OK; rank++) {
        if (rank == 0) {
            set_weights(exchange, follow->weights, record);
            status = add_gradients(exchange->layout.gradient_type, follow->gradients, record);
        } else {
            status = take_record(exchange, rank, room, record);
        }
        if (record->unknown || (!apart && rank + 1 < n_workers))
            continue;
        for (uint32_t i = 0; i < record->n && status == DPB_OK; i++)
            take_steps(exchange, i, apart ? 1 : n_workers, record);
        memset(record->sum, 0, n * sizeof *record->sum);
        memset(record->magnitude, 0, n * sizeof *record->magnitude);
    }
    free(room);
    return status;
}

static dpb_status wrong(const struct dpb_exchange *exchange, uint64_t step, uint64_t element,
                        const struct outcome *outcome)
{
    const bool apart = dpb_follow_apart(exchange);
    const uint32_t n = apart ? exchange->experiment->n_workers : 1;
    char name[DPB_ELEMENT_NAME];
    return dpb_fail(DPB_VERIFICATION,
                    "steps check of comm '%s': %s%s went from %.9g to %.9g in step %llu of "
                    "training, not to %.9g (within %.3g); that is not %s",
                    exchange->experiment->settings.comm.name, apart ? "the mean of " : "",
                    dpb_element_name(exchange, element, name), outcome->from / n, outcome->to / n,
                    (unsigned long long)step, outcome->expected.is / n, outcome->expected.off / n,
                    apart ? "the mean of the replicas' updates by their own gradients"
                          : "the optimizer's update by the mean gradient");
}

/* All steps of the i-th element. Sets *finite to false where a number is not. */
static dpb_status judge_element(const struct dpb_exchange *exchange, const struct record *record,
                                uint32_t i, bool *finite)
{
    const struct dpb_follow *follow = exchange->follow;
    for (uint64_t step = 0; step < record->n_steps; step++) {
        const struct outcome *outcome = &record->outcomes[step * record->n + i];
        const struct known *expected = &outcome->expected;
        *finite =
            *finite && isfinite(outcome->to) && isfinite(expected->is) && isfinite(expected->off);
        if (*finite && !(fabs(outcome->to - expected->is) <= expected->off))
            return wrong(exchange, follow->steps[step].number, follow->elements[i], outcome);
    }
    return DPB_OK;
}

static dpb_status judge(const struct dpb_exchange *exchange, bool *finite)
{
    struct record record;
    dpb_status status = make_record(exchange, &record);
    DPB_THEN(status, collect(exchange, &record));
    *finite = !record.unknown;
    for (uint32_t i = 0; i < record.n && dpb_world.rank == 0; i++)
        DPB_THEN(status, judge_element(exchange, &record, i, finite));
    free_record(&record);
    return status;
}

dpb_status dpb_follow_judge(struct dpb_exchange *exchange, struct dpb_journal *journal)
{
    bool finite = true;
    if (!exchange->follow)
        return DPB_OK;
    dpb_world_note("steps check", UINT64_MAX, UINT32_MAX);
    journal->verdict_steps = DPB_VERDICT_FAIL;
    DPB_TRY(judge(exchange, &finite));
    DPB_TRY(dpb_workers_meet());
    journal->verdict_steps = finite ? DPB_VERDICT_PASS : DPB_VERDICT_SKIPPED;
    if (!finite)
        snprintf(journal->steps_reason, sizeof journal->steps_reason,
                 exchange->follow->coefficient > 0 ? "a followed number is not finite"
                                                   : "books name more than the replicas");
    return DPB_OK;
}
