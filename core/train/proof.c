/*
 * proof.c - a strategy keeps its contract (dpbench/contract.h).
 *
 * Workers hand over known gradients in steps that look like any other: the learning rate is the
 * schedule's, rounded to a power of two, and only core's optimizer can tell that the step is plain.
 *
 * pattern   small integers, another for each element, rank and step; their sums are exact in every
 *           gradient type, so a contract without roundings must come out bit for bit
 * exchange  random numbers of a wide range of magnitudes, within a bound
 *
 * A proof before training starts from zero weights and looks at all elements. The proof after
 * training starts from the trained weights, without `load`: the strategy is told nothing. It looks
 * at about a million elements, so that it takes little memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/random.h"
#include "train/pattern.h"
#include "train/proof.h"
#include "world/store.h"

enum { BLOCK = 1024, SAMPLED_BLOCKS = 1024, BOOK_STEPS = 8 };

/* Gradients of `rank` in the n-th step of a proof, for elements [begin, begin + count). */
typedef void (*generator)(uint64_t seed, uint32_t rank, uint32_t step, uint64_t begin,
                          uint64_t count, double *gradients);

struct proof {
    struct dpb_exchange *exchange;
    struct dpb_journal *journal;
    const char *name;
    generator generate;
    bool exact, fresh; /* from zero weights */
    bool finite;       /* all numbers that were looked at; run.nan = continue lets others be */
    double rate, scale;
    uint32_t n_steps;        /* with gradients; settle_steps with zeros come behind them */
    uint64_t first_exchange; /* step number of the first */
    uint64_t phase, stride;  /* blocks looked at: phase, phase + stride, ... */
    double *before;          /* of those blocks, one behind the other; NULL: zeros */
};

/* ---- gradients ----------------------------------------------------------------------------- */

static void pattern(uint64_t seed, uint32_t rank, uint32_t step, uint64_t begin, uint64_t count,
                    double *gradients)
{
    (void)seed;
    dpb_pattern_fill(DPB_FP64, gradients, begin, begin + count, rank,
                     &(struct dpb_pattern_sum){.repetition = step, .largest = DPB_PATTERN_LARGEST});
}

/* Uniform in [-1, 1), times a power of two between 2^-12 and 2^3: at most DPB_PATTERN_LARGEST. */
static void noise(uint64_t seed, uint32_t rank, uint32_t step, uint64_t begin, uint64_t count,
                  double *gradients)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = begin + i;
        struct dpb_random4 r =
            dpb_random(seed, DPB_STREAM_EXCHANGE, rank, (uint32_t)at, (uint32_t)(at >> 32), step);
        int64_t mantissa = (int64_t)((uint64_t)r.v[0] << 32 | r.v[1]);
        gradients[i] = (double)mantissa * 0x1p-63 * ((double)(1u << (r.v[2] >> 28)) * 0x1p-12);
    }
}

static uint64_t seed_of(const struct dpb_exchange *exchange)
{
    return (uint64_t)exchange->experiment->settings.run.seed;
}

/* As the gradient arena holds them. */
static void generate(const struct proof *proof, uint32_t rank, uint32_t step, uint64_t begin,
                     uint64_t count, double *gradients)
{
    dpb_dtype type = proof->exchange->layout.gradient_type;
    double stored[BLOCK]; /* room for any type */
    proof->generate(seed_of(proof->exchange), rank, step, begin, count, gradients);
    dpb_vec.cast(type, stored, DPB_FP64, gradients, count);
    dpb_vec.cast(DPB_FP64, gradients, type, stored, count);
}

static uint64_t block_length(const struct dpb_exchange *exchange, uint64_t begin)
{
    uint64_t rest = exchange->layout.n_elements - begin;
    return rest < BLOCK ? rest : BLOCK;
}

/* ---- steps --------------------------------------------------------------------------------- */

static dpb_status take_step(const struct proof *proof, uint32_t step)
{
    struct dpb_exchange *exchange = proof->exchange;
    dpb_dtype type = exchange->layout.gradient_type;
    double block[BLOCK];
    void *gradients;
    DPB_TRY(dpb_arena_edit(exchange, exchange->gradients, &gradients));
    memset(block, 0, sizeof block);
    for (uint64_t at = 0; at < exchange->layout.n_elements; at += BLOCK) {
        uint64_t count = block_length(exchange, at);
        if (step < proof->n_steps)
            proof->generate(seed_of(exchange), dpb_world.rank, step, at, count, block);
        dpb_vec.cast(type, (char *)gradients + at * dpb_dtype_size(type), DPB_FP64, block, count);
    }
    DPB_TRY(dpb_arena_commit(exchange, exchange->gradients, dpb_arena_bytes(exchange, type)));
    DPB_TRY(dpb_exchange_begin(exchange, proof->rate, proof->scale, true));
    DPB_TRY(dpb_exchange_ready(exchange, exchange->layout.n_elements, NULL));
    return dpb_exchange_finish(exchange);
}

static dpb_status start_from_zero(struct dpb_exchange *exchange)
{
    DPB_TRY(dpb_workers_meet()); /* nobody reads the arenas any more */
    DPB_TRY(dpb_arena_clear(exchange, exchange->arenas.weights,
                            dpb_arena_bytes(exchange, exchange->layout.weight_type)));
    return dpb_exchange_load(exchange);
}

static dpb_status take_steps(struct proof *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    const struct dpb_contract *contract = &exchange->plan.contract;
    proof->first_exchange = exchange->n_begun;
    for (uint32_t step = 0; step < proof->n_steps + contract->settle_steps; step++)
        DPB_TRY(take_step(proof, step));
    return dpb_exchange_settle(exchange);
}

/* Where a proof starts from: zero weights; or those of the training, once steps of zero gradients
 * have brought all that it handed over into them. */
static dpb_status make_start(const struct proof *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    if (proof->fresh)
        return start_from_zero(exchange);
    for (uint32_t step = 0; step < exchange->plan.contract.settle_steps; step++)
        DPB_TRY(take_step(proof, UINT32_MAX));
    DPB_TRY(dpb_exchange_drain(exchange));
    return exchange->plan.contract.settle_steps > 0 ? dpb_verify_replicas(exchange, proof->journal)
                                                    : DPB_OK;
}

/* ---- settling: the weights against all workers' gradients ---------------------------------- */

static double roundoff(dpb_dtype type)
{
    static const double units[] = {[DPB_FP64] = 0x1p-53, [DPB_FP32] = 0x1p-24, [DPB_BF16] = 0x1p-8};
    return units[type];
}

static double number_at(dpb_dtype type, const void *array, uint64_t i)
{
    return type == DPB_FP64 ? ((const double *)array)[i] : (double)((const float *)array)[i];
}

/* One plain step in the weights' type, as the optimizer makes it; exact but for its roundings. */
DPB_CLONES static void take_plain_steps(const struct proof *proof, const double *sum,
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

/* What the elements of a block should be, and by how much each may differ. */
struct expected {
    double value[BLOCK], bound[BLOCK];
};

/* `at` counts the blocks looked at. */
static void expect_block(const struct proof *proof, uint64_t at, uint64_t begin, uint64_t count,
                         struct expected *expected)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const struct dpb_contract *contract = &exchange->plan.contract;
    const bool alone = contract->proof == DPB_PROOF_ALONE;
    const uint32_t n_workers = exchange->experiment->n_workers;
    const double coefficient = proof->rate * contract->share / exchange->experiment->accumulate;
    const double *before = proof->before ? proof->before + at * BLOCK : NULL;
    double block[BLOCK], sum[BLOCK], magnitude[BLOCK] = {0};
    memset(expected, 0, sizeof *expected);
    if (before)
        memcpy(expected->value, before, count * sizeof *before);
    for (uint32_t step = 0; step < proof->n_steps; step++) {
        memset(sum, 0, sizeof sum);
        for (uint32_t rank = 0; rank < n_workers; rank++) {
            if (alone && rank != dpb_world.rank)
                continue;
            generate(proof, rank, step, begin, count, block);
            add_up(block, count, sum, magnitude);
        }
        if (proof->exact)
            take_plain_steps(proof, sum, count, expected->value);
        else
            subtract(coefficient, sum, count, expected->value);
    }
    if (proof->exact)
        return;
    const double weight_unit = roundoff(exchange->layout.weight_type);
    const double unit = fmax(roundoff(exchange->layout.gradient_type), weight_unit);
    const double moved = (n_workers + 1.0 + contract->roundings) * unit * coefficient;
    const double rested = (proof->n_steps + contract->roundings) * weight_unit;
    for (uint64_t i = 0; i < count; i++)
        expected->bound[i] = moved * magnitude[i] + rested * (before ? fabs(before[i]) : 0.0);
}

static dpb_status wrong(const struct proof *proof, uint64_t element, double is, double expected,
                        double bound)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const struct dpb_contract *contract = &exchange->plan.contract;
    char label[DPB_LABEL_BYTES];
    dpb_contract_label(contract, exchange->experiment->n_workers, label);
    return dpb_fail(
        DPB_VERIFICATION,
        "%s check of comm '%s': element %llu (bucket %llu) is %.9g after the exchange, "
        "not %.9g (within %.3g); the strategy does not %s%s",
        proof->name, exchange->experiment->settings.comm.name, (unsigned long long)element,
        (unsigned long long)(element / exchange->arenas.bucket_elements), is, expected, bound,
        contract->consistency == DPB_SYNCHRONOUS ? "compute the mean gradient"
                                                 : "keep its contract, ",
        contract->consistency == DPB_SYNCHRONOUS ? "" : label);
}

/* The first element of a block that is not as expected; `count`: there is none. */
DPB_CLONES static uint64_t find_wrong(const struct expected *expected, const double *is,
                                      uint64_t count)
{
    uint64_t n_wrong = 0, i = 0;
    for (uint64_t j = 0; j < count; j++)
        n_wrong += !(fabs(is[j] - expected->value[j]) <= expected->bound[j]);
    while (n_wrong > 0 && fabs(is[i] - expected->value[i]) <= expected->bound[i])
        i++;
    return n_wrong > 0 ? i : count;
}

static dpb_status check_weights(const struct proof *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    dpb_dtype type = exchange->layout.weight_type;
    struct expected expected;
    const void *weights;
    double is[BLOCK];
    uint64_t at = 0;
    DPB_TRY(dpb_arena_look(exchange, exchange->weights, dpb_arena_bytes(exchange, type), &weights));
    for (uint64_t begin = proof->phase * BLOCK; begin < exchange->layout.n_elements;
         begin += proof->stride * BLOCK) {
        const uint64_t count = block_length(exchange, begin);
        expect_block(proof, at++, begin, count, &expected);
        dpb_vec.cast(DPB_FP64, is, type, (const char *)weights + begin * dpb_dtype_size(type),
                     count);
        const uint64_t i = find_wrong(&expected, is, count);
        if (i < count)
            return wrong(proof, begin + i, is[i], expected.value[i], expected.bound[i]);
    }
    return DPB_OK;
}

/* ---- books: named arrays against the gradients that each worker says were applied ----------- */

/* A worker's part of the balance, which is zero in the sum over the workers: the change of its
 * arrays, less the change that its gradients account for. */
struct balance {
    double *is, *bound;
    uint64_t n;
    uint32_t counted[BOOK_STEPS]; /* 1: this worker's gradient of the step was applied */
};

static uint64_t count_blocks(const struct proof *proof)
{
    uint64_t all = (proof->exchange->layout.n_elements + BLOCK - 1) / BLOCK;
    return all > proof->phase ? (all - proof->phase + proof->stride - 1) / proof->stride : 0;
}

/* Adds `sign` times the books as they stand. */
static dpb_status add_books(const struct proof *proof, double sign, struct balance *balance)
{
    struct dpb_exchange *exchange = proof->exchange;
    struct dpb_books books = {.n = 0};
    DPB_TRY(exchange->ops->books(exchange->comm, &books));
    for (uint32_t e = 0; e < books.n && e < DPB_BOOKS; e++) {
        const struct dpb_book *book = &books.entries[e];
        const double unit =
            book->of_gradients ? -proof->rate / exchange->experiment->accumulate : 1.0;
        const double coefficient = sign * unit * book->coefficient;
        const void *array;
        uint64_t at = 0;
        if (!book->array)
            continue;
        DPB_TRY(
            dpb_arena_look(exchange, book->array, dpb_arena_bytes(exchange, book->type), &array));
        for (uint64_t begin = proof->phase * BLOCK; begin < exchange->layout.n_elements;
             begin += proof->stride * BLOCK, at += BLOCK)
            for (uint64_t i = 0; i < block_length(exchange, begin); i++) {
                double part = coefficient * number_at(book->type, array, begin + i);
                balance->is[at + i] += part;
                balance->bound[at + i] += fabs(part);
            }
    }
    return DPB_OK;
}

static double share_of(const struct proof *proof, uint32_t step, uint64_t element)
{
    const struct dpb_exchange *exchange = proof->exchange;
    return exchange->ops->applied
               ? exchange->ops->applied(exchange->comm, proof->first_exchange + step, element)
               : exchange->plan.contract.share;
}

static void add_gradients(const struct proof *proof, struct balance *balance)
{
    struct dpb_exchange *exchange = proof->exchange;
    double block[BLOCK];
    for (uint32_t step = 0; step < proof->n_steps; step++) {
        const double unit = proof->rate / exchange->experiment->accumulate;
        uint64_t at = 0;
        balance->counted[step] = share_of(proof, step, 0) != 0.0;
        for (uint64_t begin = proof->phase * BLOCK; begin < exchange->layout.n_elements;
             begin += proof->stride * BLOCK, at += BLOCK) {
            uint64_t count = block_length(exchange, begin);
            generate(proof, dpb_world.rank, step, begin, count, block);
            for (uint64_t i = 0; i < count; i++) {
                const double part = unit * share_of(proof, step, begin + i) * block[i];
                balance->is[at + i] += part;
                balance->bound[at + i] += fabs(part);
            }
        }
    }
}

/* Adds the part of another worker, or gives the own to rank 0. */
static dpb_status pass_part(const char *key, bool gives, double *part, uint64_t n)
{
    enum { PIECE = 4096 };
    double piece[PIECE];
    for (uint64_t at = 0; at < n; at += PIECE) {
        size_t count = n - at < PIECE ? n - at : PIECE, bytes = sizeof piece;
        if (gives) {
            DPB_TRY(dpb_store_give(key, part + at, count * sizeof *part, 0));
            continue;
        }
        DPB_TRY(dpb_store_take(key, piece, &bytes, 0));
        for (size_t i = 0; i < count; i++)
            part[at + i] += piece[i];
    }
    return DPB_OK;
}

static dpb_status pass_balance(const char *key, bool gives, struct balance *balance)
{
    double counted[BOOK_STEPS];
    for (int step = 0; step < BOOK_STEPS; step++)
        counted[step] = balance->counted[step];
    DPB_TRY(pass_part(key, gives, balance->is, balance->n));
    DPB_TRY(pass_part(key, gives, balance->bound, balance->n));
    DPB_TRY(pass_part(key, gives, counted, BOOK_STEPS));
    for (int step = 0; step < BOOK_STEPS; step++)
        balance->counted[step] = (uint32_t)counted[step];
    return DPB_OK;
}

/* Rank 0, with the sum over all workers. */
static dpb_status judge_balance(struct proof *proof, const struct balance *balance)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const struct dpb_contract *contract = &exchange->plan.contract;
    const char *comm = exchange->experiment->settings.comm.name;
    const double unit =
        fmax(roundoff(exchange->layout.gradient_type), roundoff(exchange->layout.weight_type));
    const double roundings =
        proof->n_steps + exchange->experiment->n_workers + 1.0 + contract->roundings;
    const double handed = proof->rate * contract->share / exchange->experiment->accumulate *
                          exchange->experiment->n_workers * proof->n_steps * DPB_PATTERN_LARGEST;
    const double shared = contract->consistency == DPB_LOSSY ? handed : 0.0;
    for (uint32_t step = 0; step < proof->n_steps; step++)
        if (contract->consistency == DPB_PARTIAL && balance->counted[step] != contract->parameter)
            return dpb_fail(DPB_VERIFICATION,
                            "%s check of comm '%s': in step %llu the gradients of %u workers "
                            "count, not of %u as its contract says",
                            proof->name, comm, (unsigned long long)proof->first_exchange + step,
                            balance->counted[step], contract->parameter);
    for (uint64_t i = 0; i < balance->n; i++) {
        double bound = roundings * unit * (balance->bound[i] + shared);
        uint64_t element = (proof->phase + i / BLOCK * proof->stride) * BLOCK + i % BLOCK;
        if (!isfinite(bound) && exchange->experiment->settings.run.nan != DPB_NAN_STOP) {
            proof->finite = false;
            continue;
        }
        if (!(fabs(balance->is[i]) <= bound))
            return dpb_fail(DPB_VERIFICATION,
                            "%s check of comm '%s': the books of element %llu (bucket %llu) are "
                            "off by %.9g (within %.3g): a gradient was lost, applied twice or "
                            "with another coefficient than the strategy says",
                            proof->name, comm, (unsigned long long)element,
                            (unsigned long long)(element / exchange->arenas.bucket_elements),
                            balance->is[i], bound);
    }
    return DPB_OK;
}

static dpb_status close_books(struct proof *proof, struct balance *balance)
{
    char key[32];
    add_gradients(proof, balance);
    DPB_TRY(add_books(proof, 1.0, balance));
    for (uint32_t rank = 1; rank < proof->exchange->experiment->n_workers; rank++) {
        snprintf(key, sizeof key, "books/%u", rank);
        if (dpb_world.rank == 0 || dpb_world.rank == rank)
            DPB_TRY(pass_balance(key, dpb_world.rank == rank, balance));
    }
    if (dpb_world.rank == 0)
        DPB_TRY(judge_balance(proof, balance));
    return dpb_workers_meet();
}

static dpb_status keep_books(struct proof *proof)
{
    struct balance balance = {.n = count_blocks(proof) * BLOCK};
    balance.is = calloc(balance.n + 1, sizeof *balance.is);
    balance.bound = calloc(balance.n + 1, sizeof *balance.bound);
    dpb_status status = balance.is && balance.bound
                            ? DPB_OK
                            : dpb_fail(DPB_NO_MEMORY, "no memory for the books of a proof");
    if (status == DPB_OK)
        status = make_start(proof);
    if (status == DPB_OK)
        status = dpb_workers_meet(); /* none takes a step while another opens its books */
    if (status == DPB_OK)
        status = add_books(proof, -1.0, &balance);
    if (status == DPB_OK)
        status = dpb_workers_meet();
    if (status == DPB_OK)
        status = take_steps(proof);
    if (status == DPB_OK)
        status = dpb_workers_meet(); /* none closes its books while another still hands over */
    if (status == DPB_OK)
        status = close_books(proof, &balance);
    free(balance.is);
    free(balance.bound);
    return status;
}

/* ---- the run of a proof -------------------------------------------------------------------- */

/* About SAMPLED_BLOCKS of them, at another place in each run. */
static void sample_blocks(struct proof *proof)
{
    const struct dpb_exchange *exchange = proof->exchange;
    uint64_t all = (exchange->layout.n_elements + BLOCK - 1) / BLOCK;
    struct dpb_random4 word =
        dpb_random(seed_of(exchange), DPB_STREAM_EXCHANGE, UINT32_MAX, 0, 0, 0);
    proof->stride = (all + SAMPLED_BLOCKS - 1) / SAMPLED_BLOCKS;
    proof->phase = word.v[0] % proof->stride;
}

static dpb_status keep_weights(struct proof *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    dpb_dtype type = exchange->layout.weight_type;
    const void *weights;
    uint64_t at = 0;
    proof->before = calloc(count_blocks(proof) * BLOCK + 1, sizeof *proof->before);
    if (!proof->before)
        return dpb_fail(DPB_NO_MEMORY, "no memory to keep weights for the proof");
    DPB_TRY(dpb_arena_look(exchange, exchange->weights, dpb_arena_bytes(exchange, type), &weights));
    for (uint64_t begin = proof->phase * BLOCK; begin < exchange->layout.n_elements;
         begin += proof->stride * BLOCK, at += BLOCK)
        for (uint64_t i = 0; i < block_length(exchange, begin); i++) {
            proof->before[at + i] = number_at(type, weights, begin + i);
            proof->finite = proof->finite && isfinite(proof->before[at + i]);
        }
    return DPB_OK;
}

static dpb_status settle_and_check(struct proof *proof)
{
    DPB_TRY(make_start(proof));
    if (!proof->fresh)
        DPB_TRY(keep_weights(proof));
    DPB_TRY(take_steps(proof));
    return proof->finite ? check_weights(proof) : DPB_OK;
}

/* As a power of two, so that products with it are exact. */
static double proof_rate(double rate)
{
    return rate > 0x1p-10 ? exp2(floor(log2(rate))) : 0x1p-10;
}

/* *verdict: what the proof says unless it fails. */
static dpb_status prove(struct dpb_exchange *exchange, double rate, const char *name,
                        generator gradients, bool fresh, struct dpb_journal *journal,
                        uint32_t *verdict)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    struct proof proof = {.exchange = exchange,
                          .journal = journal,
                          .name = name,
                          .generate = gradients,
                          .fresh = fresh,
                          .finite = true,
                          .exact = gradients == pattern && contract->roundings == 0,
                          .rate = proof_rate(rate),
                          .scale =
                              1.0 / ((double)contract->divisor * exchange->experiment->accumulate),
                          .n_steps = contract->settle_steps ? contract->settle_steps + 2 : 1,
                          .stride = 1};
    dpb_status status;
    *verdict = DPB_VERDICT_FAIL;
    dpb_world_note(fresh && gradients == noise ? "exchange check" : name, UINT64_MAX, UINT32_MAX);
    if (!fresh || contract->proof == DPB_PROOF_BOOKS)
        sample_blocks(&proof);
    if (contract->proof == DPB_PROOF_BOOKS) {
        proof.n_steps = BOOK_STEPS;
        status = keep_books(&proof);
    } else {
        status = settle_and_check(&proof);
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
    return dpb_workers_meet(); /* none closes while another's exchange goes on */
}
