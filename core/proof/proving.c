/* proving.c - see proving.h. */
#include "proof/proving.h"

#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "exchange/access.h"
#include "exchange/open.h"
#include "exchange/resident.h"
#include "exchange/slots.h"
#include "exchange/step.h"
#include "proof/verify.h"

void dpb_proof_generate(const struct dpb_proving *proof, uint32_t rank, uint32_t step,
                        uint64_t begin, uint64_t count, double *gradients)
{
    dpb_dtype type = proof->exchange->layout.gradient_type;
    double stored[DPB_PROOF_BLOCK]; /* room for any type */
    proof->generate(proof, rank, step, begin, count, gradients);
    dpb_vec.cast(type, stored, DPB_FP64, gradients, count);
    dpb_vec.cast(DPB_FP64, gradients, type, stored, count);
}

uint64_t dpb_proof_block_length(const struct dpb_exchange *exchange, uint64_t begin)
{
    uint64_t rest = exchange->layout.n_elements - begin;
    return rest < DPB_PROOF_BLOCK ? rest : DPB_PROOF_BLOCK;
}

uint64_t dpb_proof_count_blocks(const struct dpb_proving *proof)
{
    uint64_t all = (proof->exchange->layout.n_elements + DPB_PROOF_BLOCK - 1) / DPB_PROOF_BLOCK;
    return all > proof->phase ? (all - proof->phase + proof->stride - 1) / proof->stride : 0;
}

/* ---- steps --------------------------------------------------------------------------------- */

static void fill(const struct dpb_proving *proof, uint32_t step, void *gradients, uint64_t begin,
                 uint64_t end)
{
    const dpb_dtype type = proof->exchange->layout.gradient_type;
    double block[DPB_PROOF_BLOCK];
    memset(block, 0, sizeof block);
    for (uint64_t at = begin; at < end; at += DPB_PROOF_BLOCK) {
        const uint64_t count = end - at < DPB_PROOF_BLOCK ? end - at : DPB_PROOF_BLOCK;
        if (step < proof->n_steps)
            proof->generate(proof, dpb_world.rank, step, at, count, block);
        dpb_vec.cast(type, (char *)gradients + at * dpb_dtype_size(type), DPB_FP64, block, count);
    }
}

/* Slots take a bucket at a time, as in a step's backward. */
static dpb_status give_slots(const struct dpb_proving *proof, uint32_t step)
{
    struct dpb_exchange *exchange = proof->exchange;
    const uint64_t n = exchange->layout.n_elements, bucket = exchange->arenas.bucket_elements;
    for (uint64_t at = 0; at < n; at += bucket) {
        const uint64_t end = n - at < bucket ? n : at + bucket;
        DPB_TRY(dpb_slots_await(exchange, end));
        fill(proof, step, exchange->gradients, at, end);
        DPB_TRY(dpb_exchange_ready(exchange, end, NULL));
    }
    return DPB_OK;
}

static dpb_status fill_arena(const struct dpb_proving *proof, uint32_t step)
{
    struct dpb_exchange *exchange = proof->exchange;
    void *gradients;
    DPB_TRY(dpb_arena_edit(exchange, exchange->gradients, &gradients));
    fill(proof, step, gradients, 0, exchange->layout.n_elements);
    return dpb_arena_commit(exchange, exchange->gradients,
                            dpb_arena_bytes(exchange, exchange->layout.gradient_type));
}

static dpb_status take_step(const struct dpb_proving *proof, uint32_t step)
{
    struct dpb_exchange *exchange = proof->exchange;
    const bool slots = exchange->slots.n > 0;
    if (!slots)
        DPB_TRY(fill_arena(proof, step));
    DPB_TRY(dpb_exchange_begin(exchange, proof->rate, proof->scale, true));
    DPB_TRY(slots ? give_slots(proof, step)
                  : dpb_exchange_ready(exchange, exchange->layout.n_elements, NULL));
    return dpb_exchange_finish(exchange);
}

static dpb_status start_from_zero(struct dpb_exchange *exchange)
{
    DPB_TRY(dpb_workers_meet()); /* nobody reads the arenas any more */
    DPB_TRY(dpb_arena_clear(exchange, exchange->arenas.weights,
                            dpb_arena_bytes(exchange, exchange->layout.weight_type)));
    return dpb_exchange_load(exchange);
}

dpb_status dpb_proof_take_steps(struct dpb_proving *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    proof->first_exchange = exchange->n_begun;
    for (uint32_t step = 0; step < proof->n_steps + proof->n_zero_steps; step++) {
        DPB_TRY(take_step(proof, step));
        if (proof->look)
            DPB_TRY(proof->look(proof, step + 1));
        if (proof->interrupt && step == 0)
            DPB_TRY(proof->interrupt(proof));
    }
    DPB_TRY(dpb_exchange_settle(exchange));
    return dpb_resident_all(exchange); /* the proof looks at them */
}

dpb_status dpb_proof_make_start(const struct dpb_proving *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    if (proof->fresh)
        return start_from_zero(exchange);
    for (uint32_t step = 0; step < exchange->plan.contract.settle_steps; step++)
        DPB_TRY(take_step(proof, UINT32_MAX));
    DPB_TRY(dpb_exchange_drain(exchange));
    DPB_TRY(dpb_resident_all(exchange));
    return exchange->plan.contract.settle_steps > 0 ? dpb_verify_replicas(exchange, proof->journal)
                                                    : DPB_OK;
}

dpb_status dpb_proof_publish(const struct dpb_proving *proof, const void **weights)
{
    struct dpb_exchange *exchange = proof->exchange;
    struct dpb_view view = {.weights = NULL};
    DPB_TRY(dpb_exchange_publish(exchange, "exchange", &view));
    *weights = view.weights;
    return view.weights ? DPB_OK
                        : dpb_fail(DPB_FAILED, "comm '%s' publishes no weights",
                                   exchange->experiment->settings.comm.name);
}

double dpb_proof_roundoff(dpb_dtype type)
{
    static const double units[] = {
        [DPB_FP64] = 0x1p-53, [DPB_FP32] = 0x1p-24, [DPB_BF16] = 0x1p-8, [DPB_FP16] = 0x1p-11};
    return units[type];
}

/* Roundings to the gradients' type, in sums or on the way. Replicas that meet add up no gradients:
 * their means round weights. */
double dpb_proof_error(const struct dpb_exchange *exchange, bool integers)
{
    const struct dpb_contract *contract = &exchange->plan.contract;
    const bool replicas =
        contract->consistency == DPB_PERIODIC || contract->consistency == DPB_AVERAGING;
    const double of_weights = dpb_proof_roundoff(exchange->layout.weight_type);
    const double of_gradients = dpb_proof_roundoff(exchange->layout.gradient_type);
    const double unit = replicas ? of_weights : fmax(of_gradients, of_weights);
    const double of_sums = integers ? of_weights : unit;
    const double n = exchange->slots.each ? exchange->experiment->accumulate : 1.0;
    return (n * exchange->experiment->n_workers + 1.0) * of_sums + contract->roundings * unit;
}
