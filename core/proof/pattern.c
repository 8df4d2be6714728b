/* pattern.c - see pattern.h. Made block by block, in float, which holds these integers exactly. */
#include "proof/pattern.h"

#include <string.h>

#include "base/vec.h"

enum { BLOCK = 1024 };

/* The part that is the same for all elements of a block; blocks do not cross a multiple of 2^32. */
static uint32_t seed_of(const struct dpb_pattern_sum *sum, uint32_t rank, uint64_t element)
{
    uint64_t mixed = (rank + 1) * UINT64_C(0xD1B54A32D192ED03) +
                     sum->repetition * UINT64_C(0xABC98388FB8FAC03) +
                     (element >> 32) * UINT64_C(0x9E3779B97F4A7C15) + sum->key;
    return (uint32_t)(mixed ^ mixed >> 32);
}

/* Words that differ in any bit give unrelated values (multiplications and shifts: Wellons,
 * Prospecting for hash functions, 2018); so arrays that are shifted against each other do not look
 * alike. */
static uint32_t mix(uint32_t seed, uint32_t element)
{
    uint32_t word = seed + element * UINT32_C(0x9E3779B9);
    word = (word ^ word >> 16) * UINT32_C(0x7FEB352D);
    return (word ^ word >> 15) * UINT32_C(0x846CA68B);
}

static int32_t value_of(uint32_t seed, uint32_t element, uint32_t largest)
{
    const uint32_t word = mix(seed, element);
    int32_t value = (int32_t)((word >> 16) * (2 * largest) >> 16) - (int32_t)largest;
    return value + (value >= 0);
}

DPB_CLONES static void add_block(float *block, uint64_t n, uint32_t seed, uint32_t element,
                                 uint32_t largest)
{
    for (uint64_t i = 0; i < n; i++)
        block[i] += (float)value_of(seed, element + (uint32_t)i, largest);
}

/* By 1 to 1/8: small against the range of fp16. In all repetitions alike: a strategy may add up the
 * gradients of several steps. */
DPB_CLONES static void scale_block(float *block, uint64_t n, uint32_t seed, uint32_t element)
{
    for (uint64_t i = 0; i < n; i++)
        block[i] /= (float)(1u << (mix(seed, element + (uint32_t)i) >> 30));
}

static void make_block(float *block, uint64_t n, const struct dpb_pattern_sum *sum,
                       uint32_t first_rank, uint32_t n_ranks, uint64_t element)
{
    memset(block, 0, n * sizeof *block);
    for (uint32_t rank = first_rank; rank < first_rank + n_ranks; rank++)
        add_block(block, n, seed_of(sum, rank, element), (uint32_t)element, sum->largest);
    if (sum->key != 0)
        scale_block(block, n, (uint32_t)(sum->key >> 32) + (uint32_t)(element >> 32),
                    (uint32_t)element);
}

/* The length of the block that begins with `element`, in an array that ends before `end`. */
static uint64_t block_length(uint64_t element, uint64_t end)
{
    const uint64_t most = BLOCK - element % BLOCK;
    return end - element < most ? end - element : most;
}

void dpb_pattern_fill(dpb_dtype type, void *array, uint64_t begin, uint64_t end, uint32_t rank,
                      const struct dpb_pattern_sum *sum)
{
    float block[BLOCK];
    const size_t size = dpb_dtype_size(type);
    for (uint64_t at = begin, length; at < end; at += length) {
        length = block_length(at, end);
        make_block(block, length, sum, rank, 1, at);
        dpb_vec.cast(type, (char *)array + (at - begin) * size, DPB_FP32, block, length);
    }
}

static double number_at(dpb_dtype type, const void *memory, uint64_t i)
{
    double value;
    dpb_vec.cast(DPB_FP64, &value, type, (const char *)memory + i * dpb_dtype_size(type), 1);
    return value;
}

uint32_t dpb_pattern_most(dpb_dtype type)
{
    static const uint32_t most[] = {[DPB_FP64] = UINT32_MAX,
                                    [DPB_FP32] = 1u << 24,
                                    [DPB_BF16] = 1u << 8,
                                    [DPB_FP16] = 1u << 11};
    return most[type];
}

uint32_t dpb_pattern_largest(dpb_dtype type, uint64_t terms)
{
    const uint64_t limit = dpb_pattern_most(type) / terms;
    return limit < DPB_PATTERN_LARGEST ? (uint32_t)limit : (uint32_t)DPB_PATTERN_LARGEST;
}

static uint64_t compare_block(dpb_dtype type, const void *got, const void *wanted, uint64_t n,
                              uint64_t at, uint64_t n_before, struct dpb_pattern_wrong *first)
{
    uint64_t n_wrong = 0;
    for (uint64_t i = 0; i < n; i++) {
        double a = number_at(type, got, i), b = number_at(type, wanted, i);
        if (a == b)
            continue;
        if (n_before + n_wrong++ == 0)
            *first = (struct dpb_pattern_wrong){.element = at + i, .got = a, .wanted = b};
    }
    return n_wrong;
}

uint64_t dpb_pattern_check_part(dpb_dtype type, const void *memory,
                                const struct dpb_pattern_part *part,
                                const struct dpb_pattern_sum *sum, struct dpb_pattern_wrong *first)
{
    float block[BLOCK];
    double wanted[BLOCK]; /* room for any type */
    size_t size = dpb_dtype_size(type);
    uint64_t n_wrong = 0;
    for (uint64_t at = part->begin, length; at < part->end; at += length) {
        const char *got = (const char *)memory + (at - part->begin) * size;
        length = block_length(at, part->end);
        make_block(block, length, sum, part->first_rank, part->n_ranks, at);
        for (uint64_t i = 0; sum->factor != 1.0 && i < length; i++)
            block[i] *= (float)sum->factor;
        dpb_vec.cast(type, wanted, DPB_FP32, block, length);
        if (memcmp(got, wanted, length * size) != 0)
            n_wrong += compare_block(type, got, wanted, length, at, n_wrong, first);
    }
    return n_wrong;
}

uint64_t dpb_pattern_check(dpb_dtype type, const void *arena, uint64_t n,
                           const struct dpb_pattern_sum *sum, struct dpb_pattern_wrong *first)
{
    const struct dpb_pattern_part all = {.end = n, .n_ranks = sum->n_ranks};
    return dpb_pattern_check_part(type, arena, &all, sum, first);
}
