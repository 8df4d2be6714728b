#include "feed/order.h"

#include <assert.h>
#include <inttypes.h>

#include "base/log.h"
#include "dpbench/random.h"

/* Halves of fewer than four bits do not mix, however many rounds they get: with this minimum all
 * permutations of 2 to 5 samples are equally frequent, without it they are not (test_feed). */
enum { ROUNDS = 8, MIN_BITS = 8 };

static uint32_t low_mask(uint32_t bits)
{
    return (uint32_t)((UINT64_C(1) << bits) - 1);
}

/* One pass of the network over [0, 2^bits): a permutation, since each round xors one half with a
 * function of the other. */
static uint64_t scramble(const struct dpb_order *order, uint32_t epoch, uint32_t bits, uint64_t x)
{
    uint32_t low_bits = bits / 2;
    uint32_t half[2] = {(uint32_t)x & low_mask(low_bits), (uint32_t)(x >> low_bits)};
    uint32_t mask[2] = {low_mask(low_bits), low_mask(bits - low_bits)};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t to = (round + 1) % 2, from = round % 2;
        struct dpb_random4 r =
            dpb_random(order->seed, DPB_STREAM_SHUFFLE, half[from], epoch, round, order->shard);
        half[to] ^= r.v[0] & mask[to];
    }
    return (uint64_t)half[1] << low_bits | half[0];
}

static uint64_t permute(const struct dpb_order *order, uint64_t epoch, uint64_t position)
{
    if (!order->shuffle || order->n == 1)
        return position;
    uint32_t bits = 64 - (uint32_t)__builtin_clzll(order->n - 1);
    if (bits < MIN_BITS)
        bits = MIN_BITS;
    uint64_t x = position;
    do {
        x = scramble(order, (uint32_t)epoch, bits, x);
    } while (x >= order->n);
    return x;
}

uint64_t dpb_order_at(const struct dpb_order *order, uint64_t epoch, uint64_t position)
{
    assert(position < order->n);
    uint64_t at = permute(order, epoch, position);
    return order->n_shards > 1 ? at * order->n_shards + order->shard : at;
}

dpb_status dpb_shards_init(const char *data, uint64_t n_samples, uint32_t batch, uint32_t n_workers,
                           uint32_t accumulate, const struct dpb_progress *start,
                           struct dpb_shards *shards)
{
    assert(batch > 0 && n_workers > 0 && accumulate > 0);
    uint64_t global_batch;
    if (__builtin_mul_overflow((uint64_t)batch * n_workers, accumulate, &global_batch) ||
        global_batch > n_samples)
        return dpb_fail(
            DPB_USAGE,
            "data '%s' has %" PRIu64 " training samples, fewer than one global batch "
            "(batch %" PRIu32 " x accumulate %" PRIu32 " x %" PRIu32 " workers): make "
            "run.batch, run.accumulate, run.workers or run.learners smaller, or take more data",
            data, n_samples, batch, accumulate, n_workers);
    assert(start->position <= n_samples);
    *shards = (struct dpb_shards){.n_samples = n_samples,
                                  .batch = batch,
                                  .n_workers = n_workers,
                                  .accumulate = accumulate,
                                  .global_batch = global_batch,
                                  .steps_per_epoch = n_samples / global_batch,
                                  .dropped = n_samples % global_batch,
                                  .start = *start,
                                  .first_steps = (n_samples - start->position) / global_batch};
    return DPB_OK;
}

/* Epoch and position at the begin of the step that comes `n` steps after the start. */
static void find_step(const struct dpb_shards *shards, uint64_t n, uint64_t *epoch,
                      uint64_t *position)
{
    *epoch = shards->start.epoch;
    if (n < shards->first_steps) {
        *position = shards->start.position + n * shards->global_batch;
        return;
    }
    n -= shards->first_steps;
    *epoch += 1 + n / shards->steps_per_epoch;
    *position = n % shards->steps_per_epoch * shards->global_batch;
}

struct dpb_place dpb_shards_place(const struct dpb_shards *shards, uint32_t rank, uint64_t number)
{
    uint64_t n = number / shards->accumulate;
    struct dpb_place place = {.step = shards->start.step + n,
                              .micro = (uint32_t)(number % shards->accumulate)};
    find_step(shards, n, &place.epoch, &place.position);
    place.first_sample = ((uint64_t)rank * shards->accumulate + place.micro) * shards->batch;
    place.position += place.first_sample;
    return place;
}

struct dpb_progress dpb_shards_progress(const struct dpb_shards *shards, uint64_t step)
{
    uint64_t n = step - shards->start.step;
    struct dpb_progress progress = {.step = step,
                                    .samples = shards->start.samples + n * shards->global_batch};
    find_step(shards, n, &progress.epoch, &progress.position);
    return progress;
}

uint64_t dpb_shards_epochs_end(const struct dpb_shards *shards, uint64_t epochs)
{
    const struct dpb_progress *start = &shards->start;
    if (epochs <= start->epoch)
        return start->step;
    return start->step + shards->first_steps +
           (epochs - start->epoch - 1) * shards->steps_per_epoch;
}

struct dpb_range dpb_shards_evaluate(uint64_t n, uint32_t rank, uint32_t n_workers)
{
    uint64_t each = n / n_workers,
             longer = n % n_workers; /* the first `longer` ranks take one more */
    uint64_t begin = rank * each + (rank < longer ? rank : longer);
    return (struct dpb_range){begin, begin + each + (rank < longer ? 1 : 0)};
}
