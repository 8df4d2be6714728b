/*
 * saved.h - the state of a strategy in checkpoints: the arrays that the hook `state` of
 * dpbench/saved.h names, beside the model and the optimizer's state.
 *
 * The file has a common array as "comm.STRATEGY.NAME", and one for each worker as
 * "comm.STRATEGY.NAME.RANK". Rank 0 writes the file; the others hand it theirs through the store,
 * piece by piece. Each worker reads its own.
 */
#ifndef DPB_CORE_SAVE_SAVED_H
#define DPB_CORE_SAVE_SAVED_H

#include "checkpoint/safetensors.h"
#include "dpbench/saved.h"

struct dpb_exchange;
struct dpb_experiment;

/* The arrays of all workers, for the writer. Zeroed: none. */
struct dpb_saved_tensors {
    struct dpb_safetensor *tensors; /* @owned, as what follows */
    struct dpb_saved_source *sources;
    uint32_t n;
};

/* Warns, on rank 0, of a strategy that keeps a state of its own without naming it. */
void dpb_saved_warn(const struct dpb_exchange *exchange);
/* Workers, after the strategy's `load`: reads its state, if checkpoint.load is continued. DPB_USAGE
 * if strategy and file differ in arrays or lengths, unless checkpoint.partial = yes. */
dpb_status dpb_saved_load(struct dpb_exchange *exchange);

/* Between steps, after `publish`: lists the arrays of a checkpoint, core's own arrays, too. */
dpb_status dpb_saved_list(struct dpb_exchange *exchange, struct dpb_saved *saved);

/* Between steps, after `publish`. Rank 0; the tensors are valid until the strategy's next hook. */
dpb_status dpb_saved_open(struct dpb_exchange *exchange, struct dpb_saved_tensors *tensors);
void dpb_saved_close(struct dpb_saved_tensors *tensors);
/* The other workers, while rank 0 writes. */
dpb_status dpb_saved_give(struct dpb_exchange *exchange);

#endif
