/*
 * proof_state.c - a checkpoint keeps gradients on their way, since the hook `state` names them
 * (dpbench/saved.h). In the midst of a proof the strategy is saved and continued: the weights that
 * it publishes are loaded, and the arrays that it names get their content back. The rest of the
 * proof then finds gradients, replicas and clocks that were in no array.
 *
 * Such a proof looks at the first block alone, and keeps only this block of an array that is as
 * long as the arenas: so the proof takes little memory.
 */
#include <stdlib.h>

#include "base/log.h"
#include "plan/experiment.h"
#include "proof/proof_parts.h"
#include "save/saved.h"
#include "world/store.h"

struct kept {
    struct dpb_saved saved;
    char *content[DPB_SAVED];
};

/* Without error feedback the books have the losses of a codec, which go into no checkpoint. */
bool dpb_proof_saves(const struct dpb_exchange *exchange)
{
    const struct dpb_codec *codec = dpb_experiment_codec(exchange->experiment);
    return exchange->experiment->settings.checkpoint.save[0] &&
           (exchange->ops->state || exchange->is_late) && (!codec || codec->options->feedback);
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

static dpb_status keep(struct dpb_exchange *exchange, struct kept *kept)
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

/* As a training that continues (rank.c: load_model). */
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

dpb_status dpb_proof_continue(const struct dpb_proving *proof)
{
    struct dpb_exchange *exchange = proof->exchange;
    struct kept kept = {.saved = {.n = 0}};
    const void *published = NULL;
    DPB_TRY(dpb_exchange_drain(exchange));
    DPB_TRY(dpb_exchange_settle(exchange));
    DPB_TRY(dpb_workers_meet()); /* all have settled */
    DPB_TRY(dpb_proof_publish(proof, &published));
    dpb_status status = keep(exchange, &kept);
    DPB_THEN(status, begin_anew(exchange, published, &kept));
    for (uint32_t i = 0; i < DPB_SAVED; i++)
        free(kept.content[i]);
    return status;
}
