/*
 * slices.h - reducing within a machine by slices. The p-th of the machine's L workers owns the p-th
 * of L slices of every bucket. It sums the slice directly from all L gradient arenas. (In struct
 * strategy, ranks then count the workers of the machine.)
 */
#ifndef DPB_PLUGINS_LIB_SLICES_H
#define DPB_PLUGINS_LIB_SLICES_H

#include "strategy.h"

/* The i-th of n slices of `length` elements. All slices together are the whole. */
static inline struct dpb_range dpb_slice_of(uint64_t length, uint64_t i, uint64_t n)
{
    return (struct dpb_range){length * i / n, length * (i + 1) / n};
}

/* A member's part of the elements sent, if each of n goes from all others to its owner, or from its
 * owner to all others. An all-reduce is both. */
static inline uint64_t dpb_slices_sent(uint64_t n, uint32_t position, uint32_t n_members)
{
    struct dpb_range own = dpb_slice_of(n, position, n_members);
    return (uint64_t)(n_members - 1) * (own.end - own.begin);
}

/* Counts this rank's share of the bytes that a library moves for the bucket: sums are made, and go
 * to all ranks; with shards new weights go in place of sums. `back`: their type. */
void dpb_slices_count_all_reduce(const struct dpb_strategy *strategy, uint64_t bucket,
                                 dpb_dtype back);

/* A slice may be summed when all have announced its bucket. */
bool dpb_slices_due(void *strategy, uint64_t bucket);
dpb_status dpb_slices_wait(void *strategy, uint64_t bucket);

/* Work on a piece of a bucket. */
typedef void (*dpb_slices_work)(const struct dpb_strategy *comm, uint64_t bucket,
                                struct dpb_piece piece);
/* Calls `work` for the range's elements, of `type`, piece by piece from turn->at on, as a stage
 * does; true: the whole range is done. */
bool dpb_slices_work_on(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_range range,
                        dpb_dtype type, struct dpb_stage_turn *turn, dpb_slices_work work);
/* The same for the own slice of the gradients. When the slice is done, turn->at is turn->length. */
bool dpb_slices_work_on_own(const struct dpb_strategy *comm, uint64_t bucket,
                            struct dpb_stage_turn *turn, dpb_slices_work work);
/* The same once all gradients of the bucket are here: notes who was late, and says REDUCED. */
void dpb_slices_reduce(const struct dpb_strategy *comm, uint64_t bucket,
                       struct dpb_stage_turn *turn, dpb_slices_work work);

/* The stages of a bucket if slices are the whole strategy. The first sums the own slice into all
 * arenas, the second updates. */
enum { DPB_SLICES_STAGES = 2 };
extern const struct dpb_stage dpb_slices_stages[DPB_SLICES_STAGES];
/* An even slice of a bucket, a dpb_strategy_part. */
struct dpb_range dpb_slices_own(const struct dpb_strategy *strategy, uint64_t bucket,
                                uint64_t length);
/* With shards (shard.h), in `plan`, after dpb_strategy_plan_replica: the own parts, which need not
 * be even slices, are the owned ranges. */
dpb_status dpb_slices_plan_shards(struct dpb_strategy *strategy, const struct dpb_layout *layout,
                                  dpb_strategy_part part, struct dpb_comm_plan *want);
/* For `bind`: the same stages with shards. They sum and update the own part, and write its weights
 * into all arenas. With norms of whole tensors sums of squares go before the updates
 * (squares.h). */
dpb_status dpb_slices_bind_shards(struct dpb_strategy *strategy, const struct dpb_arenas *arenas);
/* With comm.shard = parameters: the owner keeps the weights of its slice. Others take them from its
 * arena when they need them. */
dpb_status dpb_slices_bind_parameters(struct dpb_strategy *strategy,
                                      const struct dpb_arenas *arenas);
void dpb_slices_need(void *strategy, uint64_t bucket); /* the hook */

#endif
