/* books.c - see books.h. */
#include "proof/books.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/vec.h"
#include "exchange/access.h"
#include "proof/pattern.h"
#include "world/store.h"

/* A worker's part of the balance, which is zero in the sum over the workers: the change of its
 * arrays, less the change that its gradients account for. */
struct balance {
    double *is, *bound;
    uint64_t n;
    double residual;                        /* the largest that a codec feeds back */
    uint32_t counted[DPB_PROOF_BOOK_STEPS]; /* 1: this worker's gradient of the step was applied */
};

/* The elements from `begin` on, in float64. Returns their number. */
static uint64_t read_block(const struct dpb_exchange *exchange, dpb_dtype type, const void *array,
                           uint64_t begin, double block[DPB_PROOF_BLOCK])
{
    const uint64_t count = dpb_proof_block_length(exchange, begin);
    dpb_vec.cast(DPB_FP64, block, type, (const char *)array + begin * dpb_dtype_size(type), count);
    return count;
}

/* The largest magnitude in an array beside the weights, which with a codec may be a residual: what
 * it adds to the next ones. Its scales may be of elements that are not compared, so all of the
 * array is read. */
static double largest_residual(const struct dpb_exchange *exchange, const struct dpb_book *book,
                               const void *array, double unit)
{
    const struct dpb_codec *codec = dpb_experiment_codec(exchange->experiment);
    double largest = 0.0, block[DPB_PROOF_BLOCK];
    if (book->array == exchange->arenas.weights || !codec || !codec->options->feedback)
        return 0.0;
    for (uint64_t begin = 0; begin < exchange->layout.n_elements; begin += DPB_PROOF_BLOCK) {
        const uint64_t count = read_block(exchange, book->type, array, begin, block);
        for (uint64_t i = 0; i < count; i++)
            if (isfinite(block[i]))
                largest = fmax(largest, fabs(block[i]));
    }
    return fabs(unit) * largest;
}

/* Adds `sign` times the books as they stand. */
static dpb_status add_books(const struct dpb_proving *proof, double sign, struct balance *balance)
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
        balance->residual =
            fmax(balance->residual, largest_residual(exchange, book, array, coefficient));
        for (uint64_t begin = proof->phase * DPB_PROOF_BLOCK; begin < exchange->layout.n_elements;
             begin += proof->stride * DPB_PROOF_BLOCK, at += DPB_PROOF_BLOCK) {
            double block[DPB_PROOF_BLOCK];
            const uint64_t count = read_block(exchange, book->type, array, begin, block);
            for (uint64_t i = 0; i < count; i++) {
                balance->is[at + i] += coefficient * block[i];
                balance->bound[at + i] += fabs(coefficient * block[i]);
            }
        }
    }
    return DPB_OK;
}

static double share_of(const struct dpb_proving *proof, uint32_t step, uint64_t element)
{
    const struct dpb_exchange *exchange = proof->exchange;
    return exchange->ops->applied
               ? exchange->ops->applied(exchange->comm, proof->first_exchange + step, element)
               : exchange->plan.contract.share;
}

static void add_gradients(const struct dpb_proving *proof, struct balance *balance)
{
    struct dpb_exchange *exchange = proof->exchange;
    double block[DPB_PROOF_BLOCK];
    for (uint32_t step = 0; step < proof->n_steps; step++) {
        const double unit = proof->rate / exchange->experiment->accumulate;
        uint64_t at = 0;
        balance->counted[step] = share_of(proof, step, 0) != 0.0;
        for (uint64_t begin = proof->phase * DPB_PROOF_BLOCK; begin < exchange->layout.n_elements;
             begin += proof->stride * DPB_PROOF_BLOCK, at += DPB_PROOF_BLOCK) {
            uint64_t count = dpb_proof_block_length(exchange, begin);
            dpb_proof_generate(proof, dpb_world.rank, step, begin, count, block);
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
    double counted[DPB_PROOF_BOOK_STEPS];
    for (int step = 0; step < DPB_PROOF_BOOK_STEPS; step++)
        counted[step] = balance->counted[step];
    DPB_TRY(pass_part(key, gives, balance->is, balance->n));
    DPB_TRY(pass_part(key, gives, balance->bound, balance->n));
    DPB_TRY(pass_part(key, gives, &balance->residual, 1));
    DPB_TRY(pass_part(key, gives, counted, DPB_PROOF_BOOK_STEPS));
    for (int step = 0; step < DPB_PROOF_BOOK_STEPS; step++)
        balance->counted[step] = (uint32_t)counted[step];
    return DPB_OK;
}

static uint32_t count_left(const struct dpb_exchange *exchange)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < exchange->experiment->n_workers; rank++)
        n += !dpb_board_lost(dpb_world.board, rank);
    return n;
}

/* Rank 0, with the sum over all workers. */
static dpb_status judge_balance(struct dpb_proving *proof, const struct balance *balance)
{
    const struct dpb_exchange *exchange = proof->exchange;
    const struct dpb_contract *contract = &exchange->plan.contract;
    const char *comm = exchange->experiment->settings.comm.name;
    const double error = proof->n_steps * dpb_proof_roundoff(exchange->layout.weight_type) +
                         dpb_proof_error(exchange, proof->integers);
    const double handed = proof->rate * contract->share / exchange->experiment->accumulate *
                          exchange->experiment->n_workers * proof->n_steps * DPB_PATTERN_LARGEST;
    /* Elements share a codec's scale, so each is rounded by the largest of them in each step. */
    const double shared =
        contract->consistency == DPB_LOSSY || dpb_experiment_codec(exchange->experiment)
            ? handed + proof->n_steps * balance->residual
            : 0.0;
    const uint32_t left = count_left(exchange);
    char name[DPB_ELEMENT_NAME];
    const bool partial = contract->consistency == DPB_PARTIAL;
    const uint32_t counting = partial && contract->parameter < left ? contract->parameter : left;
    for (uint32_t step = 0; step < proof->n_steps; step++)
        if (contract->consistency != DPB_BATCHES && balance->counted[step] != counting)
            return dpb_fail(DPB_VERIFICATION,
                            "%s check of comm '%s': in step %llu the gradients of %u workers "
                            "count, not of %u as its contract says",
                            proof->name, comm, (unsigned long long)proof->first_exchange + step,
                            balance->counted[step], counting);
    for (uint64_t i = 0; i < balance->n; i++) {
        double bound = error * (balance->bound[i] + shared);
        uint64_t element = (proof->phase + i / DPB_PROOF_BLOCK * proof->stride) * DPB_PROOF_BLOCK +
                           i % DPB_PROOF_BLOCK;
        if (!isfinite(bound) && exchange->experiment->settings.run.nan != DPB_NAN_STOP) {
            proof->finite = false;
            continue;
        }
        if (!(fabs(balance->is[i]) <= bound))
            return dpb_fail(DPB_VERIFICATION,
                            "%s check of comm '%s': the books of %s are "
                            "off by %.9g (within %.3g): a gradient was lost, applied twice or "
                            "with another coefficient than the strategy says",
                            proof->name, comm, dpb_element_name(exchange, element, name),
                            balance->is[i], bound);
    }
    return DPB_OK;
}

/* Only rank 0 has the sum, and all go on alike. */
static dpb_status share_finite(struct dpb_proving *proof)
{
    char key[32];
    size_t bytes = sizeof proof->finite;
    for (uint32_t rank = 1; rank < proof->exchange->experiment->n_workers; rank++) {
        snprintf(key, sizeof key, "finite/%u", rank);
        if (dpb_board_lost(dpb_world.board, rank))
            continue;
        if (dpb_world.rank == 0)
            DPB_TRY(dpb_store_give(key, &proof->finite, bytes, 0));
        else if (dpb_world.rank == rank)
            DPB_TRY(dpb_store_take(key, &proof->finite, &bytes, 0));
    }
    return DPB_OK;
}

static dpb_status close_books(struct dpb_proving *proof, struct balance *balance)
{
    char key[32];
    add_gradients(proof, balance);
    DPB_TRY(add_books(proof, 1.0, balance));
    for (uint32_t rank = 1; rank < proof->exchange->experiment->n_workers; rank++) {
        snprintf(key, sizeof key, "books/%u", rank);
        if (dpb_board_lost(dpb_world.board, rank))
            continue;
        if (dpb_world.rank == 0 || dpb_world.rank == rank)
            DPB_TRY(pass_balance(key, dpb_world.rank == rank, balance));
    }
    if (dpb_world.rank == 0)
        DPB_TRY(judge_balance(proof, balance));
    DPB_TRY(share_finite(proof));
    return dpb_workers_meet();
}

dpb_status dpb_books_prove(struct dpb_proving *proof)
{
    struct balance balance = {.n = dpb_proof_count_blocks(proof) * DPB_PROOF_BLOCK};
    balance.is = calloc(balance.n + 1, sizeof *balance.is);
    balance.bound = calloc(balance.n + 1, sizeof *balance.bound);
    dpb_status status = balance.is && balance.bound
                            ? DPB_OK
                            : dpb_fail(DPB_NO_MEMORY, "no memory for the books of a proof");
    DPB_THEN(status, dpb_proof_make_start(proof));
    if (status == DPB_OK)
        status = dpb_workers_meet(); /* none takes a step while another opens its books */
    DPB_THEN(status, add_books(proof, -1.0, &balance));
    DPB_THEN(status, dpb_workers_meet());
    DPB_THEN(status, dpb_proof_take_steps(proof));
    if (status == DPB_OK)
        status = dpb_workers_meet(); /* none closes its books while another still hands over */
    DPB_THEN(status, close_books(proof, &balance));
    free(balance.is);
    free(balance.bound);
    return status;
}
