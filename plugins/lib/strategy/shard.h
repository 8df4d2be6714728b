/*
 * shard.h - comm.shard = optimizer: each worker owns a slice of every bucket. A worker keeps the
 * optimizer state of its own slices only. It updates these slices, and sends the new weights to
 * all others. comm.shard = gradients: the same, with gradients in slots
 * (dpb_comm_plan.gradient_slots). A bucket leaves its slot once all its new weights are here; with
 * norms of whole tensors or run.accumulate once it is summed, and owners keep the sums of their
 * slices (keeps_sums).
 * comm.shard = parameters: as gradients, and a worker has the weights of the other slices only
 * while its device reads them (dpb_comm_plan.weights_on_need). New weights stay with their owner.
 *
 * Rajbhandari, Rasley, Ruwase, He: ZeRO: Memory Optimizations Toward Training Trillion Parameter
 * Models. SC 2020: stages 1 (P_os), 2 (P_os+g) and 3 (P_os+g+p).
 */
#ifndef DPB_PLUGINS_LIB_SHARD_H
#define DPB_PLUGINS_LIB_SHARD_H

#include <stddef.h>

#include "dpbench/option.h"
#include "strategy.h"

enum { DPB_SHARD_NONE, DPB_SHARD_OPTIMIZER, DPB_SHARD_GRADIENTS, DPB_SHARD_PARAMETERS };
extern const char *const dpb_shard_choices[], *const dpb_shard_slots_choices[],
                                                  *const dpb_shard_all_choices[];

/* Slots beside the slots of the node under way: buckets that may be in exchange meanwhile. */
enum { DPB_SHARD_SPARE_SLOTS = 4 };

/* The options of a strategy with slots and without other options, and their rows. */
struct dpb_shard_options {
    int shard;
};
extern const struct dpb_option dpb_shard_slots_option_rows[], dpb_shard_all_option_rows[];

/* The option's row, for a struct with this member of type int; and the row of a strategy that has
 * slots, too. */
#define DPB_SHARD_OPTION_ROW(STRUCT, MEMBER) DPB_SHARD_ROW_OF(STRUCT, MEMBER, dpb_shard_choices, "")
#define DPB_SHARD_SLOTS_OPTION_ROW(STRUCT, MEMBER) \
    DPB_SHARD_ROW_OF(                              \
        STRUCT, MEMBER, dpb_shard_slots_choices,   \
        " gradients: the same, with gradients in a few slots of a bucket each (stage 2);")
#define DPB_SHARD_ALL_OPTION_ROW(STRUCT, MEMBER)                                                   \
    DPB_SHARD_ROW_OF(                                                                              \
        STRUCT, MEMBER, dpb_shard_all_choices,                                                     \
        " gradients: the same, with gradients in a few slots of a bucket each (stage 2);"          \
        " parameters: the same, with the weights of other slices only while they are read (stage " \
        "3);")
#define DPB_SHARD_ROW_OF(STRUCT, MEMBER, CHOICES, MORE)                                       \
    DPB_OPTION_ROW(                                                                           \
        "shard", CHOICE, NULL, "none", 0, 0, CHOICES, STRUCT, MEMBER,                         \
        "optimizer: each worker has the optimizer state of its slice of every bucket alone, " \
        "updates it and gives the new weights to the others (ZeRO stage 1);" MORE             \
        " none: each has all of it and updates all",                                          \
        NULL)

/* The shards that there are: a lone worker has the whole state. Core refuses shards with a
 * codec. */
static inline int dpb_shard_wanted(const struct dpb_comm_args *args, int shard)
{
    return args->n_workers > 1 ? shard : DPB_SHARD_NONE;
}

/* With slots a bucket has whole pages. */
static inline uint64_t dpb_shard_slots_bucket(const struct dpb_layout *layout,
                                              uint64_t bucket_elements)
{
    const uint64_t page = DPB_SLOT_ALIGNMENT / dpb_dtype_size(layout->gradient_type);
    return (bucket_elements + page - 1) / page * page;
}

/* With slots: whether owners keep the sums of their slices until the end of the step. */
static inline bool dpb_shard_keeps(const struct dpb_comm_args *args)
{
    return args->whole || args->accumulates;
}

/* In `plan`, before anything that depends on the size of buckets. */
static inline void dpb_shard_plan_slots(const struct dpb_comm_args *args,
                                        const struct dpb_layout *layout, int shard,
                                        struct dpb_comm_plan *want)
{
    if (shard < DPB_SHARD_GRADIENTS)
        return;
    want->weights_on_need = shard == DPB_SHARD_PARAMETERS;
    want->keeps_sums = dpb_shard_keeps(args);
    want->bucket_elements = dpb_shard_slots_bucket(layout, want->bucket_elements);
    want->gradient_slots = DPB_SHARD_SPARE_SLOTS;
}

/* In `bind`, after dpb_strategy_bind: core waits for a slot by `progress` where it has no
 * helper. */
static inline void dpb_shard_bind_slots(struct dpb_strategy *strategy, int shard)
{
    strategy->pipeline.tells_each = shard >= DPB_SHARD_GRADIENTS && strategy->args.comm_cores == 0;
}

/* The most elements that one of n owners has. Each owner has a slice of every bucket. */
static inline uint64_t dpb_shard_elements(const struct dpb_layout *layout, uint64_t bucket_elements,
                                          uint32_t n)
{
    const uint64_t last = dpb_strategy_count_buckets(layout, bucket_elements) - 1;
    return last * ((bucket_elements + n - 1) / n) +
           (dpb_strategy_bucket_length(layout, bucket_elements, last) + n - 1) / n;
}

/* The hook `memory`: a worker's optimizer state with this comm.shard. */
void dpb_shard_memory(const struct dpb_comm_args *args, int shard, const struct dpb_layout *layout,
                      uint64_t bucket_elements, struct dpb_comm_memory *memory);

#endif
