/*
 * coded_sums.h - messages of a codec that collectives of all workers carry (dpb_coded_way_of): of
 * two rounds an all-reduce adds them up in place; of one round an all-gather brings each worker's
 * message to all others.
 *
 * A ring or a library takes collectives in one order on all workers. So the messages of a step have
 * places in a fixed order: buckets in turn; second rounds come DPB_CODED_AHEAD buckets behind first
 * rounds. With fewer buckets between them an all-reduce would wait for the coding of the one
 * before. With more buckets the last second rounds would begin late.
 *
 * A library's all-gather takes as many bytes of each worker. A message goes with its header, which
 * has its own length, and with as many bytes behind it as the longest message has
 * (dpb_coded_most_bytes).
 */
#ifndef DPB_PLUGINS_LIB_CODED_SUMS_H
#define DPB_PLUGINS_LIB_CODED_SUMS_H

#include "lib/coded/coded.h"
#include "lib/strategy/sums.h"

enum { DPB_CODED_AHEAD = 4 };

/* A strategy's collectives. They finish in the order of their places. */
struct dpb_coded_sums_ops {
    /* Begins the next place's all-reduce: the first n elements of the own message in a slot, fp32;
     * n may be 0. Or its all-gather: the first 4 n bytes of the slot of each worker, with the
     * header. False: not now. The strategy then calls dpb_coded_sums_post later. */
    bool (*post)(struct dpb_strategy *strategy, uint64_t slot, uint64_t n);
    bool (*finished)(const struct dpb_strategy *strategy, uint64_t place);
    /* Blocks until the oldest one may be finished; returns at once if all are finished. */
    dpb_status (*wait)(const struct dpb_strategy *strategy);
};

/* By the sums of dpb_coded_sums_use (sums.h), which gather if the way is DPB_CODED_GATHERED: then
 * each worker's messages lie dpb_coded_sums_stride behind those of the worker before. The messages'
 * memory is their arena, and dpb_coded_sums_buckets names their buckets. */
extern const struct dpb_coded_sums_ops dpb_coded_sums_in_place;

/* In `bind`, in place of dpb_coded_bind_stages. */
dpb_status dpb_coded_sums_bind(struct dpb_strategy *strategy, const struct dpb_arenas *arenas,
                               const struct dpb_coded_sums_ops *ops);
/* After dpb_coded_sums_bind with dpb_coded_sums_in_place. @borrowed until close. */
void dpb_coded_sums_use(struct dpb_strategy *strategy, struct dpb_sums *in_place);
/* Begins collectives whose turn has come; true: one was begun. */
bool dpb_coded_sums_post(struct dpb_strategy *strategy);

/* The number of collectives of an exchange; and the bucket of each place, @borrowed until close. */
uint64_t dpb_coded_sums_places(const struct dpb_strategy *strategy);
const uint64_t *dpb_coded_sums_buckets(const struct dpb_strategy *strategy);
/* The largest number of elements of a collective (for each worker), for a layout. */
uint64_t dpb_coded_sums_longest(const struct dpb_codec *codec, const struct dpb_layout *layout,
                                uint64_t bucket_elements);
/* DPB_CODED_GATHERED: elements between the messages of two workers. */
uint64_t dpb_coded_sums_stride(const struct dpb_strategy *strategy);
/* DPB_CODED_SUMMED: elements of the message that the codec makes in a slot. */
uint64_t dpb_coded_sums_length(const struct dpb_strategy *strategy, uint64_t slot);

#endif
