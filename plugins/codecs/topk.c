/*
 * topk - the k elements of largest magnitude of each bucket, k = ceil(comm.codec_ratio x elements).
 *
 * The selection is exact. The k-th largest magnitude is found by its bits, 11 + 10 + 10 of them in
 * three counting passes; of elements of this magnitude those with the lowest index are sent. These
 * passes are over candidates: a sample shows a magnitude that about 1.5 k elements have. Where
 * fewer than k or more than 2 k have it, all elements are candidates.
 *
 * Message: k indices (uint32) in rising order, then their k values (fp32): 8 k bytes.
 *
 * Deep gradient compression (Lin et al.), m = comm.codec_momentum above 0. The optimizer has no
 * momentum then; u is the worker's velocity, v its residual:
 *
 *     u = m u + gradient,  v = v + u;  of the elements that are sent  v = u = 0
 *
 * In step t of the first w = comm.codec_warmup_steps the ratio r is r^(t / (w + 1)): with w = 4 and
 * r = 0.001 it is 0.25, 0.063, 0.016, 0.004, as that of Lin et al. is in epochs.
 *
 * Aji, Heafield: Sparse communication for distributed gradient descent. EMNLP 2017. Lin et al.:
 * Deep gradient compression. ICLR 2018.
 */
#include <stddef.h>
#include <string.h>

#include "codecs/message.h"
#include "codecs/topk.h"

/* Elements that are looked at together; of the k to send, those in a sample. */
enum { BLOCK = 32, SENT_SAMPLED = 256 };

static const struct dpb_host *host;

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_ratio", DPB_OPT_REAL, NULL, "0.01", 1e-9, 1, NULL, offsetof(struct topk_options, ratio),
     "part of the elements that is sent", NULL},
    {"codec_momentum", DPB_OPT_REAL, NULL, "0", 0, 0.9999, NULL,
     offsetof(struct topk_options, momentum),
     "momentum correction: each worker has a velocity, and sends of its sum; the optimizer has no "
     "momentum",
     NULL},
    {"codec_warmup_steps", DPB_OPT_INT, "steps", "0", 0, 1e12, NULL,
     offsetof(struct topk_options, warmup_steps),
     "steps of the codec in which the part that is sent falls to codec_ratio", NULL},
    {0}};

/* The part that is sent only falls. */
static uint64_t topk_bound(const void *options, uint64_t n)
{
    return topk_bytes(topk_count_in(options, 1, n));
}

static uint64_t topk_message_bytes(const void *options, const struct dpb_codec_part *part)
{
    return topk_bytes(topk_count(options, part));
}

static bool topk_velocity(const void *options)
{
    return ((const struct topk_options *)options)->momentum > 0;
}

/* ---- selection ----------------------------------------------------------------------------- */

/* Elements of `values`: those at n indices, or, without indices, element 0 and each `stride`-th. */
struct some {
    const float *values;
    const uint32_t *indices;
    uint64_t n, stride;
};

static inline uint64_t place(const struct some *some, uint64_t i)
{
    return some->indices ? some->indices[i] : i * some->stride;
}

/* Finds the k-th largest of the magnitudes that begin with `prefix`; returns its next bits, down to
 * bit `shift`. *k becomes its place among the magnitudes that have these bits, too. */
static uint32_t next_bits(const struct some *some, uint32_t prefix, uint32_t prefix_shift,
                          uint32_t shift, uint64_t *k)
{
    uint32_t counts[2048] = {0};
    const uint32_t mask = (1u << (prefix_shift - shift)) - 1;
    uint32_t bits = mask;
    for (uint64_t i = 0; i < some->n; i++) {
        const uint32_t m = topk_magnitude(some->values[place(some, i)]);
        if (m >> prefix_shift == prefix)
            counts[m >> shift & mask]++;
    }
    for (; counts[bits] < *k; bits--)
        *k -= counts[bits];
    return prefix << (prefix_shift - shift) | bits;
}

/* The k-th largest magnitude; *n_equal: how many elements that have it are among the k. */
static uint32_t find_least(const struct some *some, uint64_t k, uint64_t *n_equal)
{
    uint32_t bits = next_bits(some, 0, 31, 20, &k);
    bits = next_bits(some, bits, 20, 10, &k);
    bits = next_bits(some, bits, 10, 0, &k);
    *n_equal = k;
    return bits;
}

DPB_CLONES static void add(const float *restrict gradients, float *restrict residual, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        residual[i] += gradients[i];
}

/* In place of `add`. */
DPB_CLONES static void accelerate(const float *restrict gradients, float momentum,
                                  float *restrict velocity, float *restrict added,
                                  float *restrict residual, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        residual[i] = topk_accelerate(gradients[i], momentum, &velocity[i], &added[i], residual[i]);
    }
}

/* The indices of the magnitudes from `least` on; 0: more than `room`. */
DPB_CLONES static uint64_t find_from(const float *restrict values, uint64_t n, uint32_t least,
                                     uint32_t *restrict indices, uint64_t room)
{
    uint64_t found = 0;
    for (uint64_t at = 0; at < n; at += BLOCK) {
        const uint64_t end = n - at < BLOCK ? n : at + BLOCK;
        uint32_t largest = 0;
        for (uint64_t i = at; i < end; i++)
            largest = topk_magnitude(values[i]) > largest ? topk_magnitude(values[i]) : largest;
        if (largest < least)
            continue;
        if (found + BLOCK > room)
            return 0;
        for (uint64_t i = at; i < end; i++) {
            indices[found] = (uint32_t)i;
            found += topk_magnitude(values[i]) >= least;
        }
    }
    return found;
}

/* Elements that hold the k largest magnitudes: by a sample, few; or else all. Their indices lie in
 * `room`, of 2 k words. */
static struct some find_candidates(const float *values, uint64_t n, uint64_t k, uint32_t *room)
{
    struct some some = {values, NULL, n, 1};
    const uint64_t stride = k < SENT_SAMPLED ? 1 : k / SENT_SAMPLED, wanted = SENT_SAMPLED * 3 / 2;
    const struct some sample = {values, NULL, n / stride, stride};
    uint64_t n_equal;
    if (stride == 1 || sample.n < wanted)
        return some;
    const uint32_t least = find_least(&sample, wanted, &n_equal);
    const uint64_t found = find_from(values, n, least, room, 2 * k);
    return found < k ? some : (struct some){values, room, found, 0};
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint64_t topk_encode(const void *options, const struct dpb_codec_part *part,
                            const float *gradients, float *residual, void *message)
{
    const float momentum = (float)((const struct topk_options *)options)->momentum;
    const uint64_t k = topk_count(options, part);
    uint32_t *indices = message;
    float *values = (void *)(indices + k);
    uint64_t n_equal, sent = 0;
    if (part->velocity)
        accelerate(gradients, momentum, part->velocity, part->added, residual, part->n);
    else
        add(gradients, residual, part->n);
    const struct some some = find_candidates(residual, part->n, k, indices);
    const uint32_t least = find_least(&some, k, &n_equal);
    for (uint64_t i = 0; i < some.n && sent < k; i++) {
        const uint64_t at = place(&some, i); /* not below `sent`: the candidates lie in `indices` */
        const uint32_t m = topk_magnitude(residual[at]);
        if (m < least || (m == least && n_equal == 0))
            continue;
        n_equal -= m == least;
        indices[sent++] = (uint32_t)at;
    }
    for (uint64_t i = 0; i < k; i++) {
        values[i] = residual[indices[i]];
        residual[indices[i]] = 0.0F;
    }
    for (uint64_t i = 0; i < k && part->velocity; i++)
        part->velocity[indices[i]] = 0.0F;
    return topk_bytes(k);
}

static dpb_status topk_decode(const void *options, const struct dpb_codec_part *part,
                              const void *message, uint64_t bytes, float *sum)
{
    const uint64_t k = topk_count(options, part);
    const uint32_t *indices = message;
    const float *values = (const void *)(indices + k);
    DPB_TRY(message_check_length(host, "topk", part, bytes, topk_bytes(k)));
    uint64_t least = 0; /* that the next index may be */
    for (uint64_t i = 0; i < k; i++) {
        /* Once: the message may lie in a peer's memory. */
        const uint32_t at = __atomic_load_n(&indices[i], __ATOMIC_RELAXED);
        if (at >= part->n || at < least)
            return host->fail(DPB_FAILED,
                              "codec topk: rank %u sent index %u as number %llu of %llu, for %llu "
                              "elements: indices rise and are below that",
                              part->rank, at, (unsigned long long)i, (unsigned long long)k,
                              (unsigned long long)part->n);
        sum[at] += values[i];
        least = (uint64_t)at + 1;
    }
    return DPB_OK;
}

static const struct dpb_codec_ops topk_ops = {.bound = topk_bound,
                                              .encode = topk_encode,
                                              .decode = topk_decode,
                                              .velocity = topk_velocity,
                                              .bytes = topk_message_bytes};

static const struct dpb_plugin topk = {
    DPB_PLUGIN_HEAD(CODEC, topk_ops),
    .name = "topk",
    .version = DPB_VERSION,
    .summary = "the elements of largest magnitude, with their indices",
    .options = option_rows,
    .options_size = sizeof(struct topk_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &topk;
}
