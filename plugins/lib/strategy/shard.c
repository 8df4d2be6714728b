/* shard.c - see shard.h. */
#include "lib/strategy/shard.h"

const char *const dpb_shard_choices[] = {"none", "optimizer", NULL};
const char *const dpb_shard_slots_choices[] = {"none", "optimizer", "gradients", NULL};
const char *const dpb_shard_all_choices[] = {"none", "optimizer", "gradients", "parameters", NULL};
const struct dpb_option dpb_shard_slots_option_rows[] = {
    DPB_SHARD_SLOTS_OPTION_ROW(struct dpb_shard_options, shard), {0}};
const struct dpb_option dpb_shard_all_option_rows[] = {
    DPB_SHARD_ALL_OPTION_ROW(struct dpb_shard_options, shard), {0}};

void dpb_shard_memory(const struct dpb_comm_args *args, int shard, const struct dpb_layout *layout,
                      uint64_t bucket_elements, struct dpb_comm_memory *memory)
{
    if (!dpb_shard_wanted(args, shard))
        return;
    const bool slots = shard >= DPB_SHARD_GRADIENTS;
    const uint64_t planned =
        slots ? dpb_shard_slots_bucket(layout, bucket_elements) : bucket_elements;
    memory->state_elements = dpb_shard_elements(layout, planned, args->n_workers);
    memory->gradient_slots = slots ? DPB_SHARD_SPARE_SLOTS : 0;
    memory->keeps_sums = slots && dpb_shard_keeps(args);
}
