/*
 * proof_load.c - `load` begins anew, and the published weights are the model (dpbench/comm.h).
 * Strategies that keep nothing between steps need no such proof: each step's weights are checked.
 */
#include <math.h>

#include "base/log.h"
#include "proof/pattern.h"
#include "proof/proof_parts.h"

/* The weights that are loaded: integers, equal on all ranks. */
static const struct dpb_pattern_sum model = {.largest = DPB_PATTERN_LARGEST, .repetition = 1};

static dpb_status load_model(const struct dpb_proving *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    const dpb_dtype type = exchange->layout.weight_type;
    void *weights;
    DPB_TRY(dpb_workers_meet()); /* nobody reads the arenas any more */
    DPB_TRY(dpb_arena_edit(exchange, exchange->arenas.weights, &weights));
    dpb_pattern_fill(type, weights, 0, exchange->layout.n_elements, 0, &model);
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
        dpb_pattern_fill(DPB_FP64, block, begin, begin + count, 0, &model);
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

dpb_status dpb_proof_check_load(struct dpb_proving *proof)
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
    DPB_TRY(load_model(proof));
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
