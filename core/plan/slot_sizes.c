/* slot_sizes.c - see slot_sizes.h. */
#include "plan/slot_sizes.h"

uint64_t dpb_slots_bucket(const struct dpb_layout *layout, uint64_t bucket_elements)
{
    const uint64_t page = DPB_SLOT_ALIGNMENT / dpb_dtype_size(layout->gradient_type);
    return (bucket_elements + page - 1) / page * page;
}

uint64_t dpb_slots_node_end(const struct dpb_layout *layout, uint64_t frontier)
{
    uint32_t t = 0;
    while (t < layout->n_tensors && layout->tensors[t].offset < frontier)
        t++;
    const uint32_t first = t;
    while (t < layout->n_tensors && layout->tensors[t].node == layout->tensors[first].node)
        t++;
    return t < layout->n_tensors ? layout->tensors[t].offset : layout->n_elements;
}

/* The most buckets of one node, counting a bucket that the node before has begun. */
static uint64_t largest_node(const struct dpb_layout *layout, uint64_t bucket_elements)
{
    uint64_t most = 1, end;
    for (uint64_t at = 0; at < layout->n_elements; at = end) {
        end = dpb_slots_node_end(layout, at);
        const uint64_t n = (end - 1) / bucket_elements - at / bucket_elements + 1;
        most = n > most ? n : most;
    }
    return most;
}

uint64_t dpb_slots_elements(const struct dpb_layout *layout, uint64_t bucket_elements,
                            uint64_t spare)
{
    if (spare == 0)
        return layout->n_elements;
    const uint64_t bucket = dpb_slots_bucket(layout, bucket_elements);
    const uint64_t n = (largest_node(layout, bucket) + spare) * bucket;
    return n < layout->n_elements ? n : layout->n_elements;
}
