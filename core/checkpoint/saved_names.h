/*
 * saved_names.h - the names of a strategy's state in a checkpoint, comm.STRATEGY.ARRAY or
 * comm.STRATEGY.ARRAY.RANK (save/saved.h), and the state in a file that a run cannot keep.
 */
#ifndef DPB_CORE_CHECKPOINT_SAVED_NAMES_H
#define DPB_CORE_CHECKPOINT_SAVED_NAMES_H

#include "checkpoint/safetensors.h"
#include "dpbench/saved.h"

enum { DPB_SAVED_NAME = 192 };

/* An array of the state of strategy `comm` as a tensor of a file. */
struct dpb_safetensor dpb_saved_tensor(const char *comm, const struct dpb_saved_array *array,
                                       uint32_t rank, char name[DPB_SAVED_NAME]);

/* The strategies' state in a file that this run cannot keep. */
struct dpb_lost {
    const char *comm; /* this run's strategy, of so many workers */
    uint32_t n_workers;
    const struct dpb_safetensors *file;
    const struct dpb_saved *saved; /* NULL: the strategy has not been asked */
    uint32_t n_ranks;              /* in the file */
    uint32_t n_own, n;             /* of this strategy; not kept */
    char first[DPB_SAVED_NAME];
};

/* Fills in the numbers and the first name. */
void dpb_lost_look(struct dpb_lost *lost);

#endif
