/*
 * proof.c - a strategy keeps its contract (dpbench/contract.h).
 *
 * Workers hand over gradients that core alone knows, since a secret of the job is in them. The
 * learning rate is the next power of two below the schedule's, and only core's optimizer reads that
 * the step is plain. A strategy that looks for them still recognises these steps: by the rate, by
 * gradients of few bits, by zero weights before training, by the missing forward.
 *
 * pattern   small integers times powers of two, others for each element, rank and step; their sums
 *           are exact in every gradient type, so a contract without roundings must come out bit for
 *           bit
 * exchange  random numbers of a wide range of magnitudes, within a bound
 *
 * A proof before training starts from zero weights and looks at all elements. The proof after
 * training starts from the trained weights, without `load`: the strategy gets no notice. It looks
 * at about a million elements, so that it takes little memory.
 */
#include "proof/proof.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/random.h"
#include "exchange/access.h"
#include "exchange/open.h"
#include "exchange/step.h"
#include "plan/contract.h"
#include "proof/books.h"
#include "proof/pattern.h"
#include "proof/proving.h"
#include "save/saved.h"
#include "world/store.h"

/* ---- gradients ----------------------------------------------------------------------------- */

/* The sum over all workers is exact. The exception is bf16 with more than 256 workers: 1024 times 1
 * or -1 add up to more than 256, the limit, only at eight standard deviations. */
static void pattern(const struct dpb_proving *proof, uint32_t rank, uint32_t step, uint64_t begin,
                    uint64_t count, double *gradients)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const uint32_t largest =
        dpb_pattern_largest(exchange->layout.gradient_type, exchange->experiment->n_workers);
    dpb_pattern_fill(DPB_FP64, gradients, begin, begin + count, rank,
                     &(struct dpb_pattern_sum){.repetition = step,
                                               .key = proof->key,
                                               .largest = largest > 0 ? largest : 1});
}

/* Uniform in [-1, 1), times a power of two between 2^-12 and 2^3: at most DPB_PATTERN_LARGEST. */
static void noise(const struct dpb_proving *proof, uint32_t rank, uint32_t step, uint64_t begin,
                  uint64_t count, double *gradients)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = begin + i;
        struct dpb_random4 r = dpb_random(proof->key, DPB_STREAM_EXCHANGE, rank, (uint32_t)at,
                                          (uint32_t)(at >> 32), step);
        int64_t mantissa = (int64_t)((uint64_t)r.v[0] << 32 | r.v[1]);
        gradients[i] = (double)mantissa * 0x1p-63 * ((double)(1u << (r.v[2] >> 28)) * 0x1p-12);
    }
}

/* ---- settling: the weights against all workers' gradients ---------------------------------- */

/* One plain step in the weights' type, as the optimizer makes it; exact but for its roundings. */
DPB_CLONES static void take_plain_steps(const struct dpb_proving *proof, const double *sum,
                                        uint64_t count, double *weights)
{
    if (proof->exchange->layout.weight_type == DPB_FP64)
        for (uint64_t i = 0; i < count; i++)
            weights[i] -= proof->rate * (proof->scale * sum[i]);
    else
        for (uint64_t i = 0; i < count; i++)
            weights[i] = (double)((float)weights[i] -
                                  (float)proof->rate * ((float)proof->scale * (float)sum[i]));
}

DPB_CLONES static void subtract(double coefficient, const double *sum, uint64_t count,
                                double *weights)
{
    for (uint64_t i = 0; i < count; i++)
        weights[i] -= coefficient * sum[i];
}

DPB_CLONES static void add_up(const double *gradients, uint64_t count, double *sum,
                              double *magnitude)
{
    for (uint64_t i = 0; i < count; i++) {
        sum[i] += gradients[i];
        magnitude[i] += fabs(gradients[i]);
    }
}

/* The expected elements of a block, and how much each may differ. */
struct dpb_proof_expected {
    double value[DPB_PROOF_BLOCK], bound[DPB_PROOF_BLOCK];
    double magnitude[DPB_PROOF_BLOCK]; /* of the gradients */
};

/* `at` counts the blocks looked at. */
static const double *before_block(const struct dpb_proving *proof, uint64_t at)
{
    return proof->before ? proof->before + at * DPB_PROOF_BLOCK : NULL;
}

static double coefficient_of(const struct dpb_proving *proof)
{
    return proof->rate * proof->exchange->plan.contract.share /
           proof->exchange->experiment->accumulate;
}

static void expect_start(const double *before, uint64_t count, struct dpb_proof_expected *expected)
{
    memset(expected, 0, sizeof *expected);
    if (before)
        memcpy(expected->value, before, count * sizeof *before);
}

static void expect_step(const struct dpb_proving *proof, uint32_t step, uint64_t begin,
                        uint64_t count, struct dpb_proof_expected *expected)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const bool alone = exchange->plan.contract.proof == DPB_PROOF_ALONE;
    double block[DPB_PROOF_BLOCK], sum[DPB_PROOF_BLOCK] = {0};
    for (uint32_t rank = 0; rank < exchange->experiment->n_workers; rank++) {
        if (alone && rank != dpb_world.rank)
            continue;
        dpb_proof_generate(proof, rank, step, begin, count, block);
        add_up(block, count, sum, expected->magnitude);
    }
    if (proof->exact)
        take_plain_steps(proof, sum, count, expected->value);
    else
        subtract(coefficient_of(proof), sum, count, expected->value);
}

/* The bounds of n_steps steps from `before`. */
static void set_bounds(const struct dpb_proving *proof, uint32_t n_steps, const double *before,
                       uint64_t count, struct dpb_proof_expected *expected)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const struct dpb_contract *contract = &exchange->plan.contract;
    if (proof->exact)
        return;
    const double weight_unit = dpb_proof_roundoff(exchange->layout.weight_type);
    /* Rate and scale are rounded, too, and in each step a weight that has moved. */
    const double moved =
        (dpb_proof_error(exchange, proof->integers) + (n_steps + 2.0) * weight_unit) *
        coefficient_of(proof);
    const double rested = (n_steps + contract->roundings) * weight_unit;
    for (uint64_t i = 0; i < count; i++)
        expected->bound[i] =
            moved * expected->magnitude[i] + rested * (before ? fabs(before[i]) : 0.0);
}

static void expect_block(const struct dpb_proving *proof, uint32_t n_steps, uint64_t at,
                         uint64_t begin, uint64_t count, struct dpb_proof_expected *expected)
{
    expect_start(before_block(proof, at), count, expected);
    for (uint32_t step = 0; step < n_steps; step++)
        expect_step(proof, step, begin, count, expected);
    set_bounds(proof, n_steps, before_block(proof, at), count, expected);
}

static dpb_status wrong(const struct dpb_proving *proof, const char *where, uint64_t element,
                        double is, double expected, double bound)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const struct dpb_contract *contract = &exchange->plan.contract;
    char label[DPB_LABEL_BYTES], name[DPB_ELEMENT_NAME];
    dpb_contract_label(contract, exchange->experiment->n_workers, label);
    return dpb_fail(DPB_VERIFICATION,
                    "%s check of comm '%s': %s is %.9g %s, "
                    "not %.9g (within %.3g); the strategy does not %s%s",
                    proof->name, exchange->experiment->settings.comm.name,
                    dpb_element_name(exchange, element, name), is, where, expected, bound,
                    contract->consistency == DPB_SYNCHRONOUS ? "compute the mean gradient"
                                                             : "keep its contract, ",
                    contract->consistency == DPB_SYNCHRONOUS ? "" : label);
}

/* The first element of a block that is not as expected; `count`: there is none. */
DPB_CLONES static uint64_t find_wrong(const struct dpb_proof_expected *expected, const double *is,
                                      uint64_t count)
{
    uint64_t n_wrong = 0, i = 0;
    for (uint64_t j = 0; j < count; j++)
        n_wrong += !(fabs(is[j] - expected->value[j]) <= expected->bound[j]);
    while (n_wrong > 0 && fabs(is[i] - expected->value[i]) <= expected->bound[i])
        i++;
    return n_wrong > 0 ? i : count;
}

/* `array` holds the weights after n_steps steps of gradients. */
static dpb_status check_weights(const struct dpb_proving *proof, uint32_t n_steps,
                                const void *array, const char *where)
{
    struct dpb_exchange *exchange = proof->exchange;
    dpb_dtype type = exchange->layout.weight_type;
    struct dpb_proof_expected expected;
    const void *weights;
    double is[DPB_PROOF_BLOCK];
    uint64_t at = 0;
    DPB_TRY(dpb_arena_look(exchange, array, dpb_arena_bytes(exchange, type), &weights));
    for (uint64_t begin = proof->phase * DPB_PROOF_BLOCK; begin < exchange->layout.n_elements;
         begin += proof->stride * DPB_PROOF_BLOCK) {
        const uint64_t count = dpb_proof_block_length(exchange, begin);
        expect_block(proof, n_steps, at++, begin, count, &expected);
        dpb_vec.cast(DPB_FP64, is, type, (const char *)weights + begin * dpb_dtype_size(type),
                     count);
        const uint64_t i = find_wrong(&expected, is, count);
        if (i < count)
            return wrong(proof, where, begin + i, is[i], expected.value[i], expected.bound[i]);
    }
    return DPB_OK;
}

/* ---- settling: when gradients show --------------------------------------------------------- */

enum { WHERE_BYTES = 48 };

/* The first step's gradients show in the weights as many steps later as promised, no sooner. */
static dpb_status look_for_late(struct dpb_proving *proof, uint32_t n_taken)
{
    const uint32_t late = proof->exchange->plan.contract.parameter;
    char where[WHERE_BYTES];
    if ((n_taken != late && n_taken != late + 1) || !proof->finite)
        return DPB_OK;
    snprintf(where, sizeof where, "after %u steps", n_taken);
    return check_weights(proof, n_taken - late, proof->exchange->weights, where);
}

/* The first block, had this worker taken the step alone. */
static void take_step_alone(const struct dpb_proving *proof, uint32_t n_taken, uint64_t begin,
                            uint64_t count)
{
    double block[DPB_PROOF_BLOCK];
    if (n_taken == 1 && proof->before)
        memcpy(proof->apart, proof->before, count * sizeof *block);
    if (n_taken > proof->n_steps)
        return;
    dpb_proof_generate(proof, dpb_world.rank, n_taken - 1, begin, count, block);
    subtract(proof->rate * proof->scale, block, count, proof->apart);
}

/* A meeting brings others' gradients, if the bound is narrow enough to show them; between meetings
 * there are none. By a wide bound, steps next to a meeting look like one. A proof that begins with
 * `load` begins with a meeting. */
static dpb_status note_meeting(struct dpb_proving *proof, uint32_t n_taken, const double *is,
                               uint64_t count)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const uint32_t apart = n_taken - proof->told_at, period = exchange->plan.contract.parameter;
    const bool knows = proof->fresh || proof->told_at > 0;
    uint64_t i = 0;
    while (i < count && fabs(is[i] - proof->apart[i]) <= proof->together->bound[i])
        i++;
    proof->met_at = n_taken;
    if (i == count || n_taken > proof->n_steps)
        return DPB_OK;
    if (knows && apart < period)
        return dpb_fail(DPB_VERIFICATION,
                        "%s check of comm '%s': the workers met %u steps after they had met; the "
                        "strategy does not keep its contract, periodic(%u)",
                        proof->name, exchange->experiment->settings.comm.name, apart, period);
    proof->told_at = n_taken;
    return DPB_OK;
}

/* Within the promised number of steps, whenever these begin, there is one step after which the
 * weights hold all gradients, and no second such step. */
static dpb_status look_for_meeting(struct dpb_proving *proof, uint32_t n_taken)
{
    struct dpb_exchange *exchange = proof->exchange;
    struct dpb_proof_expected *expected = proof->together;
    const dpb_dtype type = exchange->layout.weight_type;
    const uint64_t begin = proof->phase * DPB_PROOF_BLOCK, size = dpb_dtype_size(type);
    const uint64_t count = dpb_proof_block_length(exchange, begin);
    const uint32_t n_steps = n_taken < proof->n_steps ? n_taken : proof->n_steps;
    const void *weights;
    double is[DPB_PROOF_BLOCK];
    char where[WHERE_BYTES];
    if (!proof->finite)
        return DPB_OK;
    if (n_taken == 1)
        expect_start(before_block(proof, 0), count, expected);
    if (n_taken <= proof->n_steps)
        expect_step(proof, n_taken - 1, begin, count, expected);
    set_bounds(proof, n_steps, before_block(proof, 0), count, expected);
    DPB_TRY(dpb_arena_look(exchange, (const char *)exchange->weights + begin * size, count * size,
                           &weights));
    dpb_vec.cast(DPB_FP64, is, type, weights, count);
    take_step_alone(proof, n_taken, begin, count);
    const uint64_t i = find_wrong(expected, is, count);
    if (i == count)
        DPB_TRY(note_meeting(proof, n_taken, is, count));
    memcpy(proof->apart, is, count * sizeof *is);
    const uint32_t apart = n_taken - proof->met_at;
    if (apart < exchange->plan.contract.parameter)
        return DPB_OK;
    snprintf(where, sizeof where, "%u steps after the workers met", apart);
    return wrong(proof, where, begin + i, is[i], expected->value[i], expected->bound[i]);
}

/* ---- `load` begins anew -------------------------------------------------------------------- */

/*
 * A step of zero gradients after `load` moves neither the weights nor the published ones
 * (dpbench/comm.h). Strategies that keep nothing between steps need no such proof: each step's
 * weights are checked.
 */

/* The weights that are loaded, equal on all ranks. */
static void fill_model(const struct dpb_proving *proof, dpb_dtype type, void *weights,
                       uint64_t begin, uint64_t end)
{
    dpb_pattern_fill(type, weights, begin, end, 0,
                     &(struct dpb_pattern_sum){.repetition = UINT32_MAX,
                                               .key = proof->key,
                                               .largest = DPB_PATTERN_LARGEST});
}

static dpb_status load_pattern(const struct dpb_proving *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    const dpb_dtype type = exchange->layout.weight_type;
    void *weights;
    DPB_TRY(dpb_workers_meet()); /* nobody reads the arenas any more */
    DPB_TRY(dpb_arena_edit(exchange, exchange->arenas.weights, &weights));
    fill_model(proof, type, weights, 0, exchange->layout.n_elements);
    DPB_TRY(dpb_arena_commit(exchange, exchange->arenas.weights, dpb_arena_bytes(exchange, type)));
    DPB_TRY(dpb_exchange_load(exchange));
    return dpb_workers_meet(); /* none takes a step while another loads */
}

/* A mean of replicas rounds weights that none has moved. */
static dpb_status expect_model(const struct dpb_proving *proof, const void *array,
                               const char *where, const char *mistake)
{
    struct dpb_exchange *exchange = proof->exchange;
    const dpb_dtype type = exchange->layout.weight_type;
    const double unit = exchange->plan.contract.roundings * dpb_proof_roundoff(type);
    const void *weights;
    double block[DPB_PROOF_BLOCK];
    char name[DPB_ELEMENT_NAME];
    DPB_TRY(dpb_arena_look(exchange, array, dpb_arena_bytes(exchange, type), &weights));
    for (uint64_t begin = 0; begin < exchange->layout.n_elements; begin += DPB_PROOF_BLOCK) {
        const uint64_t count = dpb_proof_block_length(exchange, begin);
        fill_model(proof, DPB_FP64, block, begin, begin + count);
        for (uint64_t i = 0; i < count; i++) {
            const double is = dpb_proof_number_at(type, weights, begin + i);
            if (fabs(is - block[i]) <= unit * fabs(block[i]))
                continue;
            return dpb_fail(DPB_VERIFICATION,
                            "%s check of comm '%s': %s is %.9g%s after `load` and a "
                            "step of zero gradients, not %.9g as loaded; the strategy %s",
                            proof->name, exchange->experiment->settings.comm.name,
                            dpb_element_name(exchange, begin + i, name), is, where, block[i],
                            mistake);
        }
    }
    return DPB_OK;
}

static dpb_status check_load(struct dpb_proving *proof)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const void *published;
    if (exchange->plan.contract.consistency == DPB_SYNCHRONOUS ||
        exchange->plan.contract.consistency == DPB_ALONE)
        return DPB_OK;
    proof->look = NULL;
    proof->n_steps = 1; /* nothing is kept now: zero gradients or the books have settled it */
    proof->n_zero_steps = 0;
    DPB_TRY(dpb_proof_take_steps(proof));
    DPB_TRY(load_pattern(proof));
    proof->n_steps = 0;
    proof->n_zero_steps = 1;
    DPB_TRY(dpb_proof_take_steps(proof));
    DPB_TRY(expect_model(proof, exchange->arenas.weights, "",
                         "still applies gradients from before `load`: clear kept gradients there"));
    DPB_TRY(dpb_workers_meet()); /* all have settled */
    DPB_TRY(dpb_proof_publish(proof, &published));
    if (published == exchange->arenas.weights)
        return DPB_OK;
    return expect_model(proof, published, " in the published model",
                        "publishes something else than the model");
}

/* ---- a checkpoint in the midst of a proof -------------------------------------------------- */

/*
 * A checkpoint keeps gradients on their way, since the hook `state` names them (dpbench/saved.h).
 * In the midst of a proof the strategy is saved and continued: the weights that it publishes are
 * loaded, and the arrays that it names get their content back. The rest of the proof then finds
 * gradients, replicas and clocks that were in no array.
 *
 * Such a proof looks at the first block alone, and keeps only this block of an array that is as
 * long as the arenas: so the proof takes little memory.
 */

struct kept {
    struct dpb_saved saved;
    char *content[DPB_SAVED];
};

/* Without error feedback the books have the losses of a codec, which go into no checkpoint. */
static bool saves_state(const struct dpb_exchange *exchange)
{
    const struct dpb_codec *codec = dpb_experiment_codec(exchange->experiment);
    return dpb_saves(&exchange->experiment->settings) &&
           (exchange->ops->state || exchange->late.on) && (!codec || codec->options->feedback);
}

static uint64_t kept_bytes(const struct dpb_exchange *exchange, const struct dpb_saved_array *array)
{
    const uint64_t n = array->n_elements == exchange->layout.n_elements
                           ? dpb_proof_block_length(exchange, 0)
                           : array->n_elements;
    return n * dpb_dtype_size(array->type);
}

/* Either may lie in a device's memory. */
static dpb_status copy(struct dpb_exchange *exchange, void *to, const void *from, uint64_t bytes)
{
    const struct dpb_queue_ops *ops = exchange->memory.place->ops;
    DPB_TRY(ops->copy(exchange->memory.queue, to, from, bytes));
    return ops->drain(exchange->memory.queue);
}

static dpb_status keep_state(struct dpb_exchange *exchange, struct kept *kept)
{
    DPB_TRY(dpb_saved_list(exchange, &kept->saved));
    for (uint32_t i = 0; i < kept->saved.n; i++) {
        const struct dpb_saved_array *array = &kept->saved.arrays[i];
        if (!array->memory)
            continue;
        kept->content[i] = malloc(kept_bytes(exchange, array));
        if (!kept->content[i])
            return dpb_fail(DPB_NO_MEMORY, "no memory to keep state '%s' for the proof",
                            array->name);
        DPB_TRY(copy(exchange, kept->content[i], array->memory, kept_bytes(exchange, array)));
    }
    return DPB_OK;
}

/* A checkpoint has the weights that rank 0 publishes. */
static dpb_status pass_model(struct dpb_exchange *exchange, const void *published)
{
    double block[DPB_PROOF_BLOCK]; /* room for any type */
    const size_t bytes =
        dpb_proof_block_length(exchange, 0) * dpb_dtype_size(exchange->layout.weight_type);
    if (dpb_world.rank == 0)
        DPB_TRY(copy(exchange, block, published, bytes));
    DPB_TRY(dpb_store_from_0("saved/model", block, bytes));
    DPB_TRY(dpb_workers_meet()); /* none reads another's weights any more */
    return copy(exchange, exchange->arenas.weights, block, bytes);
}

/* As a training that continues (load_model in loop/rank.c). */
static dpb_status begin_anew(struct dpb_exchange *exchange, const void *published,
                             const struct kept *kept)
{
    struct dpb_saved saved;
    DPB_TRY(pass_model(exchange, published));
    DPB_TRY(dpb_exchange_load(exchange));
    DPB_TRY(dpb_saved_list(exchange, &saved));
    for (uint32_t i = 0; i < saved.n && i < kept->saved.n; i++)
        if (kept->content[i] && saved.arrays[i].memory)
            DPB_TRY(copy(exchange, saved.arrays[i].memory, kept->content[i],
                         kept_bytes(exchange, &kept->saved.arrays[i])));
    return dpb_workers_meet(); /* none takes a step while another loads */
}

static dpb_status save_and_continue(const struct dpb_proving *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    struct kept kept = {.saved = {.n = 0}};
    const void *published = NULL;
    DPB_TRY(dpb_exchange_drain(exchange));
    DPB_TRY(dpb_exchange_settle(exchange));
    DPB_TRY(dpb_workers_meet()); /* all have settled */
    DPB_TRY(dpb_proof_publish(proof, &published));
    dpb_status status = keep_state(exchange, &kept);
    DPB_THEN(status, begin_anew(exchange, published, &kept));
    for (uint32_t i = 0; i < DPB_SAVED; i++)
        free(kept.content[i]);
    return status;
}

/* ---- the run of a proof -------------------------------------------------------------------- */

/* About DPB_PROOF_SAMPLED_BLOCKS of them, at another place in each run. */
static void sample_blocks(struct dpb_proving *proof)
{
    uint64_t all = (proof->exchange->layout.n_elements + DPB_PROOF_BLOCK - 1) / DPB_PROOF_BLOCK;
    struct dpb_random4 word = dpb_random(proof->key, DPB_STREAM_EXCHANGE, UINT32_MAX, 0, 0, 0);
    proof->stride = (all + DPB_PROOF_SAMPLED_BLOCKS - 1) / DPB_PROOF_SAMPLED_BLOCKS;
    proof->phase = word.v[0] % proof->stride;
}

static void look_at_first_block(struct dpb_proving *proof)
{
    proof->name = "pattern (saved and continued)";
    proof->interrupt = save_and_continue;
    proof->phase = 0;
    proof->stride = proof->exchange->layout.n_elements / DPB_PROOF_BLOCK + 1;
}

static dpb_status keep_weights(struct dpb_proving *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    dpb_dtype type = exchange->layout.weight_type;
    const void *weights;
    uint64_t at = 0;
    proof->before =
        calloc(dpb_proof_count_blocks(proof) * DPB_PROOF_BLOCK + 1, sizeof *proof->before);
    if (!proof->before)
        return dpb_fail(DPB_NO_MEMORY, "no memory to keep weights for the proof");
    DPB_TRY(dpb_arena_look(exchange, exchange->weights, dpb_arena_bytes(exchange, type), &weights));
    for (uint64_t begin = proof->phase * DPB_PROOF_BLOCK; begin < exchange->layout.n_elements;
         begin += proof->stride * DPB_PROOF_BLOCK, at += DPB_PROOF_BLOCK)
        for (uint64_t i = 0; i < dpb_proof_block_length(exchange, begin); i++) {
            proof->before[at + i] = dpb_proof_number_at(type, weights, begin + i);
            proof->finite = proof->finite && isfinite(proof->before[at + i]);
        }
    return DPB_OK;
}

static dpb_status settle_and_check(struct dpb_proving *proof)
{
    const dpb_consistency consistency = proof->exchange->plan.contract.consistency;
    const void *published;
    proof->look = consistency == DPB_LATE       ? look_for_late
                  : consistency == DPB_PERIODIC ? look_for_meeting
                                                : NULL;
    DPB_TRY(dpb_proof_make_start(proof));
    if (!proof->fresh)
        DPB_TRY(keep_weights(proof));
    DPB_TRY(dpb_proof_take_steps(proof));
    if (proof->finite) /* another worker's may not be: all meet and publish */
        DPB_TRY(
            check_weights(proof, proof->n_steps, proof->exchange->weights, "after the exchange"));
    DPB_TRY(dpb_workers_meet()); /* all have settled */
    DPB_TRY(dpb_proof_publish(proof, &published));
    return published == proof->exchange->weights || !proof->finite
               ? DPB_OK
               : check_weights(proof, proof->n_steps, published, "in the published model");
}

/* As a power of two, so that products with it are exact; not so small that weights hide it. */
static double proof_rate(double rate)
{
    return rate > 0x1p-20 ? exp2(floor(log2(rate))) : 0x1p-20;
}

/* Another for each proof, the same on all ranks: all of them prove in one order. */
static uint64_t next_key(void)
{
    static uint64_t n_proofs;
    return dpb_step_seal(UINT64_MAX - n_proofs++, false); /* no step has this number */
}

/* Two meetings take up to twice a period if the step of the first is unknown. */
static uint32_t count_steps(const struct dpb_contract *contract, bool fresh)
{
    const uint32_t settle = contract->settle_steps;
    if (contract->proof == DPB_PROOF_BOOKS)
        return DPB_PROOF_BOOK_STEPS;
    if (contract->consistency == DPB_PERIODIC && !fresh)
        return 2 * settle + 2;
    return settle > 0 ? settle + 2 : 1;
}

static dpb_status keep_contract(struct dpb_proving *proof)
{
    return proof->exchange->plan.contract.proof == DPB_PROOF_BOOKS ? dpb_books_prove(proof)
                                                                   : settle_and_check(proof);
}

/* *verdict: the verdict of the proof unless it fails. */
static dpb_status prove(struct dpb_exchange *exchange, double rate, const char *name,
                        dpb_proof_generator gradients, bool fresh, struct dpb_journal *journal,
                        uint32_t *verdict)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    struct dpb_proof_expected together;
    double apart[DPB_PROOF_BLOCK] = {0};
    struct dpb_proving proof = {
        .exchange = exchange,
        .together = &together,
        .apart = apart,
        .journal = journal,
        .name = name,
        .generate = gradients,
        .fresh = fresh,
        .finite = true,
        .integers = gradients == pattern,
        .exact = gradients == pattern && contract->roundings == 0,
        .key = next_key(),
        .rate = proof_rate(rate),
        .scale = 1.0 / ((double)contract->divisor * exchange->experiment->accumulate),
        .n_steps = count_steps(contract, fresh),
        .n_zero_steps = contract->settle_steps,
        .stride = 1};
    dpb_status status;
    *verdict = DPB_VERDICT_FAIL;
    dpb_world_note(fresh && gradients == noise ? "exchange check" : name, UINT64_MAX, UINT32_MAX);
    if (!fresh || contract->proof == DPB_PROOF_BOOKS)
        sample_blocks(&proof);
    struct dpb_proving again = proof;
    status = keep_contract(&proof);
    /* Other contracts have shown the published weights with each proof. */
    if (gradients == pattern && (fresh || (contract->proof == DPB_PROOF_BOOKS && proof.finite)))
        DPB_THEN(status, check_load(&proof));
    if (gradients == pattern && fresh && saves_state(exchange)) {
        memset(apart, 0, sizeof apart);
        look_at_first_block(&again);
        again.key = next_key();
        DPB_THEN(status, keep_contract(&again));
    }
    free(proof.before);
    DPB_TRY(status);
    *verdict = !proof.finite                        ? DPB_VERDICT_SKIPPED
               : contract->proof == DPB_PROOF_ALONE ? DPB_VERDICT_NOT_APPLICABLE
                                                    : DPB_VERDICT_PASS;
    return DPB_OK;
}

dpb_status dpb_prove_pattern(struct dpb_exchange *exchange, double rate,
                             struct dpb_journal *journal)
{
    return prove(exchange, rate, "pattern", pattern, true, journal, &journal->verdict_pattern);
}

dpb_status dpb_prove_exchange(struct dpb_exchange *exchange, double rate,
                              struct dpb_journal *journal)
{
    return prove(exchange, rate, "exchange", noise, true, journal, &journal->verdict_exchange);
}

dpb_status dpb_prove_again(struct dpb_exchange *exchange, double rate, struct dpb_journal *journal)
{
    DPB_TRY(prove(exchange, rate, "pattern (after training)", pattern, false, journal,
                  &journal->verdict_after));
    return dpb_workers_meet(); /* none closes while another's exchange runs */
}
