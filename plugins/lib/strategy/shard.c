/* shard.c - see shard.h. */
#include "lib/strategy/shard.h"

const char *const shard_choices[] = {"none", "optimizer", NULL};
const char *const shard_slots_choices[] = {"none", "optimizer", "gradients", NULL};
const struct dpb_option shard_option_rows[] = {SHARD_OPTION_ROW(struct shard_options, shard), {0}};
const struct dpb_option shard_slots_option_rows[] = {
    SHARD_SLOTS_OPTION_ROW(struct shard_options, shard), {0}};

void shard_memory(const struct dpb_comm_args *args, int shard, const struct dpb_layout *layout,
                  uint64_t bucket_elements, struct dpb_comm_memory *memory)
{
    if (!shard_wanted(args, shard))
        return;
    const bool slots = shard == SHARD_GRADIENTS;
    const uint64_t planned = slots ? shard_slots_bucket(layout, bucket_elements) : bucket_elements;
    memory->state_elements = shard_elements(layout, planned, args->n_workers);
    memory->gradient_slots = slots ? SHARD_SPARE_SLOTS : 0;
}
