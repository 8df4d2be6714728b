/*
 * saved.h - a strategy's arrays for a checkpoint, beside published weights and optimizer state, so
 * that a training continues bit for bit.
 *
 * For strategies with arrays that a continued training needs. A first plugin does not need this
 * header.
 *
 * The hook `state` names the same arrays on all workers; *saved is zeroed. Core reads the arrays
 * after `publish`. To continue, core writes them after `load` and before the first step. No hook
 * announces the writing: look at the arrays in `begin`. NULL: nothing.
 */
#ifndef DPBENCH_SAVED_H
#define DPBENCH_SAVED_H

#include "types.h"

/* An array that belongs to training beside weights and optimizer: a residual, a replica that
 * differs from the model, a clock. */
struct dpb_saved_array {
    const char *name; /* a snake_case word; a checkpoint has it as comm.STRATEGY.NAME */
    dpb_dtype type;   /* fp32 or fp64. Keep bf16 and fp16 as fp32, counts below 2^53 as fp64 */
    bool common;      /* one for all workers, rank 0's; else each worker has one of its own */
    uint64_t n_elements;
    /* Any memory of the host (arenas.weights, a member of your struct), or memory where the weights
     * lie, there at most an arena long. @borrowed until the next hook. NULL only for a
     * `common` array, on ranks other than 0. */
    void *memory;
};

enum { DPB_SAVED = 12 };
struct dpb_saved {
    struct dpb_saved_array arrays[DPB_SAVED];
    uint32_t n;
};

#endif
