/*
 * vec.c - arithmetic on ranges of host memory: the inner loops of every exchange on the host.
 *
 * The compiler vectorises plain loops (the Makefile gives this file -O3) for several instruction
 * sets; the program chooses one when it starts. All give the same bits: elements are independent, a
 * sum has the order of its sources, and products are never fused with sums (ISO C mode turns
 * contraction off).
 *
 * Sums go from left to right in the type of arithmetic (fp32 for bf16 and fp16) and are rounded
 * once to the type of the elements. So in fp32 and fp64 a sum in two calls gives the bits of one
 * call; in bf16 and fp16 it rounds once more.
 */
#include "base/vec.h"

#include <assert.h>

/* Iterations are independent: dst equals a source or does not overlap it. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum { BLOCK = 1024 /* elements of a block: its accumulators and sources fit the first cache */ };

/* ---- conversions of one element ------------------------------------------------------------ */

#define AS_IS(x) (x)

/* To fp32 rounded to odd, which keeps the cases of a second rounding apart.
 * Boldo, Melquiond: Emulation of a FMA and correctly rounded sums. IEEE Trans. Comp. 57, 2008. */
static inline float fp64_to_odd(double x)
{
    float nearest = (float)x;
    double back = (double)nearest;
    uint32_t bits;
    memcpy(&bits, &nearest, sizeof bits);
    bool outwards = x > 0 ? back > x : back < x;
    bits -= outwards ? 1u : 0u;
    bits |= back != x ? 1u : 0u;
    memcpy(&nearest, &bits, sizeof bits);
    return nearest;
}

#define BF16_FROM_FP64(x) dpb_bf16_from_fp32(fp64_to_odd(x))
#define FP16_FROM_FP64(x) dpb_fp16_from_fp32(fp64_to_odd(x))

/* ---- loops by type ------------------------------------------------------------------------- */

struct loops {
    void (*sum)(void *dst, const void *const *sources, uint32_t k, uint64_t n);
    void (*sum2_into2)(void *const *dst, const void *const *sources, uint64_t n);
    void (*axpby)(double a, const void *x, double b, void *y, uint64_t n);
    bool (*finite)(const void *x, uint64_t n);
};

#define T double
#define A double
#define NAME(verb) verb##_fp64
#define LOAD AS_IS
#define STORE AS_IS
#define BITS uint64_t
#define EXPONENT_MASK UINT64_C(0x7ff0000000000000)
#include "base/vec_typed.inc"

#define T float
#define A float
#define NAME(verb) verb##_fp32
#define LOAD AS_IS
#define STORE AS_IS
#define BITS uint32_t
#define EXPONENT_MASK 0x7f800000u
#include "base/vec_typed.inc"

#define T uint16_t
#define A float
#define NAME(verb) verb##_bf16
#define LOAD dpb_bf16_to_fp32
#define STORE dpb_bf16_from_fp32
#define BITS uint16_t
#define EXPONENT_MASK 0x7f80u
#include "base/vec_typed.inc"

#define T uint16_t
#define A float
#define NAME(verb) verb##_fp16
#define LOAD dpb_fp16_to_fp32
#define STORE dpb_fp16_from_fp32
#define BITS uint16_t
#define EXPONENT_MASK 0x7c00u
#include "base/vec_typed.inc"

static const struct loops *loops_of(dpb_dtype type)
{
    static const struct loops *const loops[DPB_DTYPES] = {[DPB_FP64] = &loops_fp64,
                                                          [DPB_FP32] = &loops_fp32,
                                                          [DPB_BF16] = &loops_bf16,
                                                          [DPB_FP16] = &loops_fp16};
    assert(loops[type]);
    return loops[type];
}

#define DEFINE_CAST(name, to_type, from_type, convert)                  \
    DPB_CLONES static void name(void *to, const void *from, uint64_t n) \
    {                                                                   \
        to_type *restrict dst = to;                                     \
        const from_type *restrict src = from;                           \
        for (uint64_t i = 0; i < n; i++)                                \
            dst[i] = convert(src[i]);                                   \
    }

DEFINE_CAST(cast_fp64_fp32, float, double, (float))
DEFINE_CAST(cast_fp64_bf16, uint16_t, double, BF16_FROM_FP64)
DEFINE_CAST(cast_fp64_fp16, uint16_t, double, FP16_FROM_FP64)
DEFINE_CAST(cast_fp32_fp64, double, float, (double))
DEFINE_CAST(cast_fp32_bf16, uint16_t, float, dpb_bf16_from_fp32)
DEFINE_CAST(cast_fp32_fp16, uint16_t, float, dpb_fp16_from_fp32)
DEFINE_CAST(cast_bf16_fp64, double, uint16_t, dpb_bf16_to_fp32)
DEFINE_CAST(cast_bf16_fp32, float, uint16_t, dpb_bf16_to_fp32)
DEFINE_CAST(cast_fp16_fp64, double, uint16_t, dpb_fp16_to_fp32)
DEFINE_CAST(cast_fp16_fp32, float, uint16_t, dpb_fp16_to_fp32)

/* ---- checksum: XXH64 with seed 0 (Collet, xxHash fast digest algorithm, version 0.1.1) ----- */

static const uint64_t prime[6] = {0,
                                  UINT64_C(0x9E3779B185EBCA87),
                                  UINT64_C(0xC2B2AE3D27D4EB4F),
                                  UINT64_C(0x165667B19E3779F9),
                                  UINT64_C(0x85EBCA77C2B2AE63),
                                  UINT64_C(0x27D4EB2F165667C5)};

static inline uint64_t rotate(uint64_t x, int by)
{
    return x << by | x >> (64 - by);
}

static inline uint64_t read_u64(const uint8_t *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static inline uint32_t read_u32(const uint8_t *at)
{
    uint32_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static inline uint64_t mix(uint64_t lane, uint64_t input)
{
    return rotate(lane + input * prime[2], 31) * prime[1];
}

static uint64_t checksum_bytes(const uint8_t *at, uint64_t bytes)
{
    const uint8_t *end = at + bytes;
    uint64_t sum = prime[5];
    if (bytes >= 32) {
        uint64_t lane[4] = {prime[1] + prime[2], prime[2], 0, 0 - prime[1]};
        for (; end - at >= 32; at += 32)
            for (int i = 0; i < 4; i++)
                lane[i] = mix(lane[i], read_u64(at + 8 * i));
        sum = rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
        for (int i = 0; i < 4; i++)
            sum = (sum ^ mix(0, lane[i])) * prime[1] + prime[4];
    }
    sum += bytes;
    for (; end - at >= 8; at += 8)
        sum = rotate(sum ^ mix(0, read_u64(at)), 27) * prime[1] + prime[4];
    for (; end - at >= 4; at += 4)
        sum = rotate(sum ^ read_u32(at) * prime[1], 23) * prime[2] + prime[3];
    for (; at < end; at++)
        sum = rotate(sum ^ *at * prime[5], 11) * prime[1];
    sum = (sum ^ sum >> 33) * prime[2];
    sum = (sum ^ sum >> 29) * prime[3];
    return sum ^ sum >> 32;
}

/* ---- the table ----------------------------------------------------------------------------- */

static void vec_sum(dpb_dtype type, void *const *dst, uint32_t n_dst, const void *const *sources,
                    uint32_t k, uint64_t n)
{
    enum { MOST = 64 }; /* most sources that are summed in blocks */
    const void *at[MOST];
    size_t size = dpb_dtype_size(type);
    const struct loops *loops = loops_of(type);
    if (n_dst == 2 && k == 2) {
        loops->sum2_into2(dst, sources, n);
        return;
    }
    if (n_dst == 1 || k > MOST) {
        loops->sum(dst[0], sources, k, n);
        for (uint32_t d = 1; d < n_dst; d++)
            memcpy(dst[d], dst[0], n * size);
        return;
    }
    for (uint64_t begin = 0; begin < n; begin += BLOCK) {
        uint64_t m = n - begin < BLOCK ? n - begin : BLOCK;
        void *first = (char *)dst[0] + begin * size;
        for (uint32_t j = 0; j < k; j++)
            at[j] = (const char *)sources[j] + begin * size;
        loops->sum(first, at, k, m);
        for (uint32_t d = 1; d < n_dst; d++)
            memcpy((char *)dst[d] + begin * size, first, m * size);
    }
}

static void vec_axpby(dpb_dtype type, double a, const void *x, double b, void *y, uint64_t n)
{
    loops_of(type)->axpby(a, x, b, y, n);
}

static void vec_copy(dpb_dtype type, void *dst, const void *src, uint64_t n)
{
    memmove(dst, src, n * dpb_dtype_size(type));
}

static void vec_cast(dpb_dtype to, void *dst, dpb_dtype from, const void *src, uint64_t n)
{
    static void (*const cast[DPB_DTYPES][DPB_DTYPES])(void *, const void *, uint64_t) = {
        [DPB_FP64] =
            {[DPB_FP32] = cast_fp64_fp32, [DPB_BF16] = cast_fp64_bf16, [DPB_FP16] = cast_fp64_fp16},
        [DPB_FP32] =
            {[DPB_FP64] = cast_fp32_fp64, [DPB_BF16] = cast_fp32_bf16, [DPB_FP16] = cast_fp32_fp16},
        [DPB_BF16] = {[DPB_FP64] = cast_bf16_fp64, [DPB_FP32] = cast_bf16_fp32},
        [DPB_FP16] = {[DPB_FP64] = cast_fp16_fp64, [DPB_FP32] = cast_fp16_fp32}};
    assert(to == from || cast[from][to]);
    if (to == from)
        vec_copy(to, dst, src, n);
    else
        cast[from][to](dst, src, n);
}

bool dpb_vec_finite(dpb_dtype type, const void *x, uint64_t n)
{
    return loops_of(type)->finite(x, n);
}

uint64_t dpb_vec_checksum(dpb_dtype type, const void *x, uint64_t n)
{
    return checksum_bytes(x, n * dpb_dtype_size(type));
}

/* The tree of a block; the elements that it lacks count as zeros, which change no bit. */
DPB_CLONES static double squares_of_block(double *restrict x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] *= x[i];
    for (; n > 1; n = (n + 1) / 2) {
        x[n] = 0.0;
        for (uint64_t i = 0; i < (n + 1) / 2; i++)
            x[i] = x[2 * i] + x[2 * i + 1];
    }
    return x[0];
}

void dpb_vec_tree_add(struct dpb_vec_tree *tree, double sum)
{
    for (uint64_t bits = tree->n++; bits & 1; bits >>= 1)
        sum = tree->sums[--tree->n_sums] + sum;
    tree->sums[tree->n_sums++] = sum;
}

double dpb_vec_tree_total(struct dpb_vec_tree *tree)
{
    for (; tree->n_sums > 1; tree->n_sums--)
        tree->sums[tree->n_sums - 2] += tree->sums[tree->n_sums - 1];
    return tree->sums[0];
}

double dpb_vec_squares(dpb_dtype type, const void *x, uint64_t n)
{
    double block[BLOCK + 1];
    struct dpb_vec_tree tree = {.n = 0};
    for (uint64_t begin = 0; begin < n; begin += BLOCK) {
        const uint64_t m = n - begin < BLOCK ? n - begin : BLOCK;
        vec_cast(DPB_FP64, block, type, (const char *)x + begin * dpb_dtype_size(type), m);
        dpb_vec_tree_add(&tree, squares_of_block(block, m));
    }
    return dpb_vec_tree_total(&tree);
}

const struct dpb_vec_ops dpb_vec = {
    .sum = vec_sum,
    .axpby = vec_axpby,
    .cast = vec_cast,
    .copy = vec_copy,
};
