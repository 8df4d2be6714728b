/*
 * slices.h - reducing within a machine by slices. The p-th of the machine's L workers owns the p-th
 * of L slices of every bucket. It sums the slice directly from all L gradient arenas. (In struct
 * strategy, ranks then count the workers of the machine.)
 */
#ifndef DPB_PLUGINS_LIB_SLICES_H
#define DPB_PLUGINS_LIB_SLICES_H

#include "strategy.h"

/* The i-th of n slices of `length` elements. All slices together are the whole. */
static inline struct dpb_range slice_of(uint64_t length, uint64_t i, uint64_t n)
{
    return (struct dpb_range){length * i / n, length * (i + 1) / n};
}

/* A member's part of the elements sent, if each of n goes from all others to its owner, or from its
 * owner to all others. An all-reduce is both. */
static inline uint64_t slices_sent(uint64_t n, uint32_t position, uint32_t n_members)
{
    struct dpb_range own = slice_of(n, position, n_members);
    return (uint64_t)(n_members - 1) * (own.end - own.begin);
}

/* Counts this rank's share of the bytes that a library moves for the bucket: sums are made, and go to
 * all ranks; with shards new weights go in place of sums. `back`: their type. */
void slices_count_all_reduce(const struct strategy *strategy, uint64_t bucket, dpb_dtype back);

/* A slice may be summed when all have announced its bucket. */
bool slices_due(void *strategy, uint64_t bucket);
dpb_status slices_wait(void *strategy, uint64_t bucket);

/* Work on a piece of a bucket. */
typedef void (*slices_work)(const struct strategy *comm, uint64_t bucket, struct piece piece);
/* Calls `work` for the range's elements, of `type`, piece by piece from turn->at on, as a stage
 * does; true: the whole range is done. */
bool slices_work_on(const struct strategy *comm, uint64_t bucket, struct dpb_range range,
                    dpb_dtype type, struct stage_turn *turn, slices_work work);
/* The same for the own slice of the gradients. When the slice is done, turn->at is turn->length. */
bool slices_work_on_own(const struct strategy *comm, uint64_t bucket, struct stage_turn *turn,
                        slices_work work);
/* The same once all gradients of the bucket are here: notes who was late, and says REDUCED. */
void slices_reduce(const struct strategy *comm, uint64_t bucket, struct stage_turn *turn,
                   slices_work work);

/* The stages of a bucket if slices are the whole strategy. The first sums the own slice into all
 * arenas, the second updates. */
enum { SLICES_STAGES = 2 };
extern const struct stage slices_stages[SLICES_STAGES];
/* With shards (shard.h): the own slice of a bucket, a strategy_part. In `plan` the own slices are
 * the owned ranges: strategy_plan_parts. */
struct dpb_range slices_own(const struct strategy *strategy, uint64_t bucket, uint64_t length);
/* For `bind`: the same stages with shards. They sum and update the own slice, and write its weights
 * into all arenas. */
dpb_status slices_bind_shards(struct strategy *strategy, const struct dpb_arenas *arenas);

#endif
