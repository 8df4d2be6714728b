/*
 * squares.h - with shards, norms of whole tensors: owners exchange sums of squares, a few numbers a
 * tensor, once the sums of all their ranges lie in their gradient arenas. One stage precedes the
 * stages that update and give weights. All of them work in the last bucket alone. Its gradients are
 * the last of backward: no device op waits for this work.
 *
 * Bytes moved a round and owner: W - 1 times the entries of all tensors, 16 bytes each. LAMB has
 * two rounds, other rules one.
 */
#ifndef DPB_PLUGINS_LIB_SQUARES_H
#define DPB_PLUGINS_LIB_SQUARES_H

#include "strategy.h"

enum { DPB_SQUARES_ROUNDS = 2 }; /* of an exchange, at most */

static inline uint64_t dpb_strategy_squares_bytes(const struct dpb_layout *layout)
{
    return layout->n_tensors * sizeof(struct dpb_squares);
}

/* The entries of an owner. */
struct dpb_squares *dpb_strategy_squares_of(const struct dpb_strategy *strategy, uint32_t owner);

/* In `bind`, after dpb_strategy_bind. */
dpb_status dpb_strategy_open_squares(struct dpb_strategy *strategy,
                                     const struct dpb_squares_carrier *carrier, uint32_t n_owners,
                                     uint32_t own);

/* The stage, without its `wait`. Without args->whole it passes all buckets on. */
bool dpb_strategy_squares_due(void *strategy, uint64_t bucket);
void dpb_strategy_squares_work(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn);

#endif
