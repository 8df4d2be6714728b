/* coded_sums.c - see coded_sums.h. */
#include "lib/coded/coded_sums.h"

#include <stdlib.h>
#include <string.h>

/* The progress of an exchange, in buckets of each round. */
struct coded_sums {
    const struct coded_sums_ops *ops;
    struct sums *in_place; /* of coded_sums_use */
    uint64_t *buckets;     /* by place */
    uint64_t encoded[DPB_CODEC_ROUNDS], posted[DPB_CODEC_ROUNDS];
};

static struct coded_sums *sums_of(const struct strategy *strategy)
{
    return coded_of(strategy)->carried;
}

/* ---- places -------------------------------------------------------------------------------- */

/* The round of the next place, behind so many buckets of each round. */
static uint32_t next_round(const uint64_t done[DPB_CODEC_ROUNDS], uint64_t n_buckets)
{
    const bool all = done[0] == n_buckets;
    return done[1] < n_buckets && (all || done[0] > done[1] + CODED_AHEAD);
}

static uint64_t place_of(uint64_t bucket, uint32_t round, uint64_t n_buckets)
{
    const uint64_t firsts = bucket + CODED_AHEAD + 1;
    if (round == 0)
        return bucket > CODED_AHEAD ? 2 * bucket - CODED_AHEAD : bucket;
    return bucket + (firsts < n_buckets ? firsts : n_buckets);
}

uint64_t coded_sums_places(const struct strategy *strategy)
{
    return DPB_CODEC_ROUNDS * strategy->arenas.n_buckets;
}

const uint64_t *coded_sums_buckets(const struct strategy *strategy)
{
    return sums_of(strategy)->buckets;
}

/* ---- messages ------------------------------------------------------------------------------ */

uint64_t coded_sums_longest(const struct dpb_codec *codec, const struct dpb_layout *layout,
                            uint64_t bucket_elements)
{
    return (coded_longest_slot_bytes(codec, layout, bucket_elements) -
            sizeof(struct coded_message)) /
           sizeof(float);
}

/* Of the message in a slot, counted in the memory of coded_memory_of. */
static uint64_t first_element(const struct strategy *strategy, uint64_t slot)
{
    const struct coded_message *message = coded_message(strategy, strategy->args.rank, slot);
    const uint8_t *memory = (const uint8_t *)strategy->arenas.scratch + coded_of(strategy)->at;
    return (uint64_t)(message->content - memory) / sizeof(float);
}

uint64_t coded_sums_length(const struct strategy *strategy, uint64_t slot)
{
    const struct dpb_codec *codec = strategy->args.codec;
    const uint64_t n_buckets = strategy->arenas.n_buckets;
    struct dpb_codec_part part =
        coded_part(&strategy->arenas.layout, strategy->arenas.bucket_elements, slot % n_buckets);
    part.round = (uint32_t)(slot / n_buckets);
    return codec->ops->bytes(codec->options, &part) / sizeof(float);
}

bool coded_sums_post(struct strategy *strategy)
{
    struct coded_sums *sums = sums_of(strategy);
    for (bool posted = false;; posted = true) {
        const uint32_t round = next_round(sums->posted, strategy->arenas.n_buckets);
        const uint64_t bucket = sums->posted[round];
        if (bucket == sums->encoded[round])
            return posted;
        const uint64_t slot = coded_slot(strategy, bucket, round);
        const uint64_t bytes = coded_message(strategy, strategy->args.rank, slot)->bytes;
        if (!sums->ops->post(strategy, slot, bytes / sizeof(float)))
            return posted;
        sums->posted[round]++;
    }
}

/* ---- an all-reduce in place ---------------------------------------------------------------- */

static bool post_in_place(struct strategy *strategy, uint64_t slot, uint64_t n)
{
    struct sums *sums = sums_of(strategy)->in_place;
    if (!sums_has_place(sums))
        return false;
    sums->ops->post(sums, first_element(strategy, slot), n);
    return true;
}

static bool finished_in_place(const struct strategy *strategy, uint64_t place)
{
    return sums_finished(sums_of(strategy)->in_place, place);
}

static dpb_status wait_in_place(const struct strategy *strategy)
{
    struct sums *sums = sums_of(strategy)->in_place;
    return sums->ops->wait(sums);
}

const struct coded_sums_ops coded_sums_in_place = {post_in_place, finished_in_place, wait_in_place};

/* ---- the carrier --------------------------------------------------------------------------- */

static void post(struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    sums_of(strategy)->encoded[round] = bucket + 1;
    coded_sums_post(strategy);
}

static bool here(const struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct coded_sums *sums = sums_of(strategy);
    return bucket < sums->posted[round] &&
           sums->ops->finished(strategy, place_of(bucket, round, strategy->arenas.n_buckets));
}

/* With nothing under way and nothing to take, the next place belongs to the first round of a bucket
 * that backward has not reached. */
static dpb_status wait(const struct strategy *strategy, uint64_t bucket, uint32_t round)
{
    const struct coded_sums *sums = sums_of(strategy);
    const uint64_t n_posted = sums->posted[0] + sums->posted[1];
    if (n_posted > 0 && !sums->ops->finished(strategy, n_posted - 1))
        return sums->ops->wait(strategy);
    if (here(strategy, bucket, round))
        return DPB_OK;
    return strategy_wait_ready(strategy, strategy_self(strategy), sums->encoded[0]);
}

static void begin(struct strategy *strategy)
{
    struct coded_sums *sums = sums_of(strategy);
    memset(sums->encoded, 0, sizeof sums->encoded);
    memset(sums->posted, 0, sizeof sums->posted);
}

static void close(struct strategy *strategy)
{
    struct coded_sums *sums = sums_of(strategy);
    if (sums)
        strategy->host->release(sums->buckets, coded_sums_places(strategy) * sizeof *sums->buckets);
    free(sums);
}

static const struct coded_carrier all_reduced = {post, here, wait, coded_take_sum, begin, close};

/* ---- life ---------------------------------------------------------------------------------- */

dpb_status coded_sums_bind(struct strategy *strategy, const struct dpb_arenas *arenas,
                           const struct coded_sums_ops *ops)
{
    const uint64_t n_buckets = arenas->n_buckets;
    uint64_t done[DPB_CODEC_ROUNDS] = {0};
    DPB_TRY(coded_bind_stages(strategy, arenas, &all_reduced));
    struct coded_sums *sums = coded_of(strategy)->carried = calloc(1, sizeof *sums);
    if (!sums)
        return strategy->host->fail(DPB_NO_MEMORY, "no memory for sums of messages");
    sums->ops = ops;
    sums->buckets = strategy->host->alloc(coded_sums_places(strategy) * sizeof *sums->buckets);
    if (!sums->buckets)
        return DPB_NO_MEMORY;
    for (uint64_t place = 0; place < coded_sums_places(strategy); place++)
        sums->buckets[place] = done[next_round(done, n_buckets)]++;
    return DPB_OK;
}

void coded_sums_use(struct strategy *strategy, struct sums *in_place)
{
    sums_of(strategy)->in_place = in_place;
}
