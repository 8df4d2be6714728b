/* coded_sums.c - see coded_sums.h. */
#include "lib/coded/coded_sums.h"

#include <stdlib.h>
#include <string.h>

/* The progress of an exchange, in buckets of each round. */
struct coded_sums {
    const struct dpb_coded_sums_ops *ops;
    struct dpb_sums *in_place; /* of dpb_coded_sums_use */
    uint64_t *buckets;         /* by place */
    uint64_t encoded[DPB_CODEC_ROUNDS], posted[DPB_CODEC_ROUNDS];
};

static struct coded_sums *sums_of(const struct dpb_strategy *strategy)
{
    return dpb_coded_of(strategy)->carried;
}

static bool gathers(const struct dpb_strategy *strategy)
{
    return dpb_coded_of(strategy)->way == DPB_CODED_GATHERED;
}

/* ---- places -------------------------------------------------------------------------------- */

/* The round of the next place, behind so many buckets of each round. */
static uint32_t next_round(const struct dpb_strategy *strategy,
                           const uint64_t done[DPB_CODEC_ROUNDS])
{
    const uint64_t n_buckets = strategy->arenas.n_buckets;
    const bool all = done[0] == n_buckets;
    return !gathers(strategy) && done[1] < n_buckets &&
           (all || done[0] > done[1] + DPB_CODED_AHEAD);
}

static uint64_t place_of(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    const uint64_t n_buckets = strategy->arenas.n_buckets, firsts = bucket + DPB_CODED_AHEAD + 1;
    if (gathers(strategy))
        return bucket;
    if (round == 0)
        return bucket > DPB_CODED_AHEAD ? 2 * bucket - DPB_CODED_AHEAD : bucket;
    return bucket + (firsts < n_buckets ? firsts : n_buckets);
}

uint64_t dpb_coded_sums_places(const struct dpb_strategy *strategy)
{
    return dpb_coded_rounds(strategy->args.codec) * strategy->arenas.n_buckets;
}

const uint64_t *dpb_coded_sums_buckets(const struct dpb_strategy *strategy)
{
    return sums_of(strategy)->buckets;
}

/* ---- messages ------------------------------------------------------------------------------ */

uint64_t dpb_coded_sums_longest(const struct dpb_codec *codec, const struct dpb_layout *layout,
                                uint64_t bucket_elements)
{
    const bool summed = dpb_coded_way_of(codec) == DPB_CODED_SUMMED;
    return (dpb_coded_longest_slot_bytes(codec, layout, bucket_elements) -
            (summed ? sizeof(struct dpb_coded_message) : 0)) /
           sizeof(float);
}

uint64_t dpb_coded_sums_stride(const struct dpb_strategy *strategy)
{
    uint64_t bytes;
    dpb_coded_memory_of(strategy, &bytes);
    return bytes / strategy->args.n_workers / sizeof(float);
}

/* Of the collective of a slot, counted in the memory of dpb_coded_memory_of. */
static uint64_t first_element(const struct dpb_strategy *strategy, uint64_t slot)
{
    const bool all = gathers(strategy);
    const struct dpb_coded_message *message =
        dpb_coded_message(strategy, all ? 0 : strategy->args.rank, slot);
    const uint8_t *memory = (const uint8_t *)strategy->arenas.scratch + dpb_coded_of(strategy)->at;
    const uint8_t *first = all ? (const uint8_t *)message : message->content;
    return (uint64_t)(first - memory) / sizeof(float);
}

uint64_t dpb_coded_sums_length(const struct dpb_strategy *strategy, uint64_t slot)
{
    const struct dpb_codec *codec = strategy->args.codec;
    const uint64_t n_buckets = strategy->arenas.n_buckets;
    struct dpb_codec_part part = dpb_coded_part(&strategy->arenas.layout,
                                                strategy->arenas.bucket_elements, slot % n_buckets);
    part.round = (uint32_t)(slot / n_buckets);
    return codec->ops->bytes(codec->options, &part) / sizeof(float);
}

/* Elements of the collective of a slot. Peers would read a longer message only in part. */
static uint64_t length_of(struct dpb_strategy *strategy, uint64_t slot)
{
    const struct dpb_coded_message *own = dpb_coded_message(strategy, strategy->args.rank, slot);
    if (!gathers(strategy))
        return own->bytes / sizeof(float);
    const uint64_t most = dpb_coded_most_bytes(strategy, slot, 0);
    if (own->bytes > most)
        DPB_THEN(dpb_coded_of(strategy)->status,
                 strategy->host->fail(
                     DPB_VERIFICATION,
                     "codec '%s': rank %u's message for bucket %llu has %llu bytes, and at most "
                     "%llu by the codec's `%s`",
                     strategy->args.codec->name, strategy->args.rank, (unsigned long long)slot,
                     (unsigned long long)own->bytes, (unsigned long long)most,
                     strategy->args.codec->ops->bytes ? "bytes" : "bound"));
    return (sizeof *own + most + sizeof(float) - 1) / sizeof(float);
}

bool dpb_coded_sums_post(struct dpb_strategy *strategy)
{
    struct coded_sums *sums = sums_of(strategy);
    for (bool posted = false;; posted = true) {
        const uint32_t round = next_round(strategy, sums->posted);
        const uint64_t bucket = sums->posted[round];
        if (bucket == sums->encoded[round])
            return posted;
        const uint64_t slot = dpb_coded_slot(strategy, bucket, round);
        if (!sums->ops->post(strategy, slot, length_of(strategy, slot)))
            return posted;
        sums->posted[round]++;
    }
}

/* ---- a collective in place ----------------------------------------------------------------- */

static bool post_in_place(struct dpb_strategy *strategy, uint64_t slot, uint64_t n)
{
    struct dpb_sums *sums = sums_of(strategy)->in_place;
    if (!dpb_sums_has_place(sums))
        return false;
    sums->ops->post(sums, first_element(strategy, slot), n);
    return true;
}

static bool finished_in_place(const struct dpb_strategy *strategy, uint64_t place)
{
    return dpb_sums_finished(sums_of(strategy)->in_place, place);
}

static dpb_status wait_in_place(const struct dpb_strategy *strategy)
{
    struct dpb_sums *sums = sums_of(strategy)->in_place;
    return sums->ops->wait(sums);
}

const struct dpb_coded_sums_ops dpb_coded_sums_in_place = {post_in_place, finished_in_place,
                                                           wait_in_place};

/* ---- the carrier --------------------------------------------------------------------------- */

static void post(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    sums_of(strategy)->encoded[round] = bucket + 1;
    dpb_coded_sums_post(strategy);
}

static bool here(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct coded_sums *sums = sums_of(strategy);
    return bucket < sums->posted[round] &&
           sums->ops->finished(strategy, place_of(strategy, bucket, round));
}

/* With nothing under way and nothing to take, the next place belongs to the first round of a bucket
 * that backward has not reached. */
static dpb_status wait(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct coded_sums *sums = sums_of(strategy);
    const uint64_t n_posted = sums->posted[0] + sums->posted[1];
    if (n_posted > 0 && !sums->ops->finished(strategy, n_posted - 1))
        return sums->ops->wait(strategy);
    if (here(strategy, bucket, round))
        return DPB_OK;
    return dpb_strategy_wait_ready(strategy, dpb_strategy_self(strategy), sums->encoded[0]);
}

/* All others have got the own message. */
static void take(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round)
{
    if (!gathers(strategy)) {
        dpb_coded_take_sum(strategy, bucket, round);
        return;
    }
    strategy->host->count_bytes((strategy->args.n_workers - 1) *
                                dpb_coded_message(strategy, strategy->args.rank, bucket)->bytes);
    dpb_coded_decode(strategy, bucket, round);
}

static void begin(struct dpb_strategy *strategy)
{
    struct coded_sums *sums = sums_of(strategy);
    memset(sums->encoded, 0, sizeof sums->encoded);
    memset(sums->posted, 0, sizeof sums->posted);
}

static void close(struct dpb_strategy *strategy)
{
    struct coded_sums *sums = sums_of(strategy);
    if (sums)
        strategy->host->release(sums->buckets,
                                dpb_coded_sums_places(strategy) * sizeof *sums->buckets);
    free(sums);
}

static const struct dpb_coded_carrier collective = {post, here, wait, take, begin, close};

/* ---- life ---------------------------------------------------------------------------------- */

dpb_status dpb_coded_sums_bind(struct dpb_strategy *strategy, const struct dpb_arenas *arenas,
                               const struct dpb_coded_sums_ops *ops)
{
    uint64_t done[DPB_CODEC_ROUNDS] = {0};
    DPB_TRY(dpb_coded_bind_stages(strategy, arenas, &collective));
    struct coded_sums *sums = dpb_coded_of(strategy)->carried = calloc(1, sizeof *sums);
    if (!sums)
        return strategy->host->fail(DPB_NO_MEMORY, "no memory for sums of messages");
    sums->ops = ops;
    sums->buckets = strategy->host->alloc(dpb_coded_sums_places(strategy) * sizeof *sums->buckets);
    if (!sums->buckets)
        return DPB_NO_MEMORY;
    for (uint64_t place = 0; place < dpb_coded_sums_places(strategy); place++)
        sums->buckets[place] = done[next_round(strategy, done)]++;
    return DPB_OK;
}

void dpb_coded_sums_use(struct dpb_strategy *strategy, struct dpb_sums *in_place)
{
    sums_of(strategy)->in_place = in_place;
}
