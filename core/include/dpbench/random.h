/*
 * random.h - counter-based random numbers: Philox4x32-10.
 *
 * Data sources, and codecs that draw.
 *
 * A number is a pure function of seed, stream and a counter of four words, so it does not depend on
 * how the work is split over ranks, threads or micro-batches.
 *
 * Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3. SC 2011.
 */
#ifndef DPBENCH_RANDOM_H
#define DPBENCH_RANDOM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "types.h"

/* The purpose of the numbers. No two streams share numbers. The counter's words:
 *   INIT       tensor, element / 4, 0, 0
 *   DROPOUT    node, element of the sample / 4, sample in the global batch, step
 *   SHUFFLE    half of a Feistel round, epoch, round, the worker with data.shard, else 0
 *   SYNTHETIC  sample, element / 4, 0, 0
 *   AUGMENT    sample, epoch, what, 0
 *   EXCHANGE   rank, element, element / 2^32, step of the proof
 *   SEAL       step, step / 2^32, rule, 0
 *   DELAY      rank, step, step / 2^32, 0
 *   GOSSIP     round, round / 2^32, position, 0
 *   CODEC      rank, step, step / 2^32, first element of the bucket; or, for a factor of a matrix:
 *              column, step, step / 2^32, first element of the matrix + row
 *   EMULATED   element / 4, 0, 0, 2^32 - 1; or rank, step, step / 2^32 and the micro-batch, what
 *   TEXT       byte, 0, 0, 0 */
enum dpb_stream {
    DPB_STREAM_INIT = 1,
    DPB_STREAM_DROPOUT,
    DPB_STREAM_SHUFFLE,
    DPB_STREAM_SYNTHETIC,
    DPB_STREAM_AUGMENT,
    DPB_STREAM_EXCHANGE,
    DPB_STREAM_SEAL,
    DPB_STREAM_DELAY,
    DPB_STREAM_GOSSIP,
    DPB_STREAM_CODEC,
    DPB_STREAM_EMULATED,
    DPB_STREAM_TEXT
};

struct dpb_random4 {
    uint32_t v[4];
};

DPB_EVERYWHERE struct dpb_random4 dpb_random(uint64_t seed, enum dpb_stream stream, uint32_t c0,
                                             uint32_t c1, uint32_t c2, uint32_t c3)
{
    uint32_t k0 = (uint32_t)seed;
    uint32_t k1 = (uint32_t)(seed >> 32) ^ ((uint32_t)stream << 24);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    struct dpb_random4 result = {{c0, c1, c2, c3}};
    return result;
}

/* Uniform in [0, 1), 24 bits: exact in fp32. */
DPB_EVERYWHERE float dpb_random_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* Two independent standard normal numbers from two words (Box and Muller). */
DPB_EVERYWHERE void dpb_random_normal(uint32_t a, uint32_t b, double out[2])
{
    double u = ((double)a + 1.0) * 0x1p-32, v = (double)b * 0x1p-32;
    double r = sqrt(-2.0 * log(u)), angle = 6.283185307179586 * v;
    out[0] = r * cos(angle);
    out[1] = r * sin(angle);
}

/*
 * Returns whether dropout keeps an element in training. Kept elements are scaled by 1 / (1 - rate).
 * `element` counts within the sample in canonical CHW order, `sample` within the global batch.
 */
DPB_EVERYWHERE bool dpb_dropout_keeps(uint64_t seed, uint64_t step, uint32_t sample, uint32_t node,
                                      uint32_t element, double rate)
{
    struct dpb_random4 r =
        dpb_random(seed, DPB_STREAM_DROPOUT, node, element / 4, sample, (uint32_t)step);
    /* Chosen, not indexed: an array that is indexed lies in memory on a GPU. */
    const uint32_t low = element % 2 ? r.v[1] : r.v[0], high = element % 2 ? r.v[3] : r.v[2];
    return (double)dpb_random_uniform(element % 4 < 2 ? low : high) >= rate;
}

#endif
