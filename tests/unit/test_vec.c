/*
 * vec against plain loops written here, for all types, sizes around the vectors' lengths, odd
 * offsets, aliasing, and the bits of sums however they are grouped.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "dpbench/random.h"
#include "lib/test.h"

enum { MAX_N = 5000, MAX_K = 9, GUARD = 16 /* elements around a range that must not change */ };

static const dpb_dtype types[] = {DPB_FP64, DPB_FP32, DPB_BF16, DPB_FP16};
enum { TYPES = sizeof types / sizeof types[0] };
static const uint64_t long_sizes[] = {255, 1023, 1024, 1025, 2049, 4711};

/* MAX_K sources and a destination, each with room for offset and guards. */
union buffer {
    double fp64[MAX_N + 2 * GUARD];
    float fp32[MAX_N + 2 * GUARD];
    uint16_t halves[MAX_N + 2 * GUARD];
    uint8_t bytes[(MAX_N + 2 * GUARD) * 8];
};
static union buffer memory[MAX_K + 1], before, values[TYPES][MAX_K + 1];

static void *at(dpb_dtype type, int buffer, uint64_t element)
{
    return memory[buffer].bytes + element * dpb_dtype_size(type);
}

static double get(dpb_dtype type, const void *x, uint64_t i)
{
    if (type == DPB_FP64)
        return ((const double *)x)[i];
    if (type == DPB_FP32)
        return (double)((const float *)x)[i];
    const uint16_t half = ((const uint16_t *)x)[i];
    return (double)(type == DPB_BF16 ? dpb_bf16_to_fp32(half) : dpb_fp16_to_fp32(half));
}

/* By memcpy: callers put into words of another type too. */
static void put(dpb_dtype type, void *x, uint64_t i, double value)
{
    float single = (float)value;
    uint16_t half = type == DPB_BF16 ? dpb_bf16_from_fp32(single) : dpb_fp16_from_fp32(single);
    const void *bits = type == DPB_FP64   ? (const void *)&value
                       : type == DPB_FP32 ? (const void *)&single
                                          : (const void *)&half;
    memcpy((char *)x + i * dpb_dtype_size(type), bits, dpb_dtype_size(type));
}

/* Values whose sums round differently in another order. */
static int make_values(void **state)
{
    (void)state;
    for (size_t t = 0; t < TYPES; t++)
        for (uint32_t b = 0; b <= MAX_K; b++)
            for (uint32_t i = 0; i < MAX_N + 2 * GUARD; i++) {
                struct dpb_random4 r = dpb_random(17, DPB_STREAM_EXCHANGE, b, i, 0, 0);
                double x = (double)dpb_random_uniform(r.v[0]) * 2 - 1;
                put(types[t], &values[t][b], i, ldexp(x, (int)(r.v[1] % 12)));
            }
    return 0;
}

static void fill(dpb_dtype type)
{
    for (size_t t = 0; t < TYPES; t++)
        if (types[t] == type)
            memcpy(memory, values[t], sizeof memory);
}

/* The sum as it is defined: left to right in the type of arithmetic, rounded once. */
static double sum_at(dpb_dtype type, const void *const *sources, uint32_t k, uint64_t i)
{
    if (type == DPB_FP64) {
        double sum = get(type, sources[0], i);
        for (uint32_t j = 1; j < k; j++)
            sum += get(type, sources[j], i);
        return sum;
    }
    volatile float sum = (float)get(type, sources[0], i);
    for (uint32_t j = 1; j < k; j++)
        sum = sum + (float)get(type, sources[j], i);
    return (double)sum;
}

static void sum(dpb_dtype type, void *dst, const void *const *sources, uint32_t k, uint64_t n)
{
    dpb_vec.sum(type, &dst, 1, sources, k, n);
}

/* Into all of the sources and one more. */
static void check_sum_everywhere(dpb_dtype type, uint32_t k, uint64_t n)
{
    const void *sources[MAX_K];
    void *dst[MAX_K + 1];
    size_t size = dpb_dtype_size(type), begin = GUARD * size, end = begin + n * size;
    static uint8_t expected[MAX_N * 8], old[MAX_K + 1][sizeof before];
    fill(type);
    memcpy(old, memory, sizeof old);
    for (uint32_t j = 0; j <= MAX_K; j++)
        dst[j] = at(type, (int)j, GUARD);
    memcpy(sources, dst, sizeof sources);
    for (uint64_t i = 0; i < n; i++)
        put(type, expected, i, sum_at(type, sources, k, i));
    dpb_vec.sum(type, dst, k + 1, sources, k, n);
    for (uint32_t j = 0; j <= k; j++) {
        assert_memory_equal(memory[j].bytes + begin, expected, n * size);
        assert_memory_equal(memory[j].bytes, old[j], begin);
        assert_memory_equal(memory[j].bytes + end, old[j] + end, sizeof before - end);
    }
}

TEST(test_sum_everywhere)
{
    for (size_t t = 0; t < TYPES; t++)
        for (uint32_t k = 1; k < MAX_K; k++)
            for (size_t s = 0; s < sizeof long_sizes / sizeof *long_sizes; s++)
                check_sum_everywhere(types[t], k, long_sizes[s]);
}

/* dst is buffer `dst` (one of the sources or MAX_K); all buffers begin at element `offset`. */
static void check_sum(dpb_dtype type, uint32_t k, uint64_t n, uint64_t offset, int dst)
{
    const void *sources[MAX_K];
    size_t size = dpb_dtype_size(type);
    fill(type);
    for (uint32_t j = 0; j < k; j++)
        sources[j] = at(type, (int)j, GUARD + offset);
    static uint8_t expected[MAX_N * 8];
    for (uint64_t i = 0; i < n; i++)
        put(type, expected, i, sum_at(type, sources, k, i));
    before = memory[dst];
    sum(type, at(type, dst, GUARD + offset), sources, k, n);
    size_t begin = (GUARD + offset) * size, end = begin + n * size;
    assert_memory_equal(memory[dst].bytes + begin, expected, n * size);
    assert_memory_equal(memory[dst].bytes, before.bytes, begin);
    assert_memory_equal(memory[dst].bytes + end, before.bytes + end, sizeof before - end);
}

TEST(test_sum_sizes)
{
    for (size_t t = 0; t < TYPES; t++)
        for (uint32_t k = 1; k <= MAX_K; k++)
            for (uint64_t n = 0; n <= 67; n++)
                check_sum(types[t], k, n, n % 8, MAX_K);
}

TEST(test_sum_long_and_aliased)
{
    for (size_t t = 0; t < TYPES; t++)
        for (uint32_t k = 1; k <= MAX_K; k++)
            for (size_t s = 0; s < sizeof long_sizes / sizeof *long_sizes; s++) {
                check_sum(types[t], k, long_sizes[s], 1 + s, MAX_K);
                check_sum(types[t], k, long_sizes[s], 1 + s, (int)(s % k));
            }
    for (uint32_t k = 1; k <= MAX_K; k++)
        for (uint32_t dst = 0; dst < k; dst++)
            check_sum(DPB_BF16, k, 1100, 3, (int)dst);
}

/* Summing the first sources and adding the rest gives the bits of one call. */
TEST(test_sum_groups)
{
    enum { N = 1500 };
    for (size_t t = 0; t < 2; t++) {
        dpb_dtype type = types[t];
        fill(type);
        const void *sources[MAX_K];
        static double whole[N], parts[N];
        for (int j = 0; j < MAX_K; j++)
            sources[j] = at(type, j, 1);
        sum(type, whole, sources, MAX_K, N);
        for (uint32_t first = 1; first < MAX_K; first++) {
            const void *rest[MAX_K] = {parts};
            sum(type, parts, sources, first, N);
            memcpy(rest + 1, sources + first, (MAX_K - first) * sizeof *rest);
            sum(type, parts, rest, MAX_K - first + 1, N);
            assert_memory_equal(whole, parts, N * dpb_dtype_size(type));
        }
    }
}

TEST(test_sum_of_nothing)
{
    float x[3] = {1, 2, 3};
    sum(DPB_FP32, x, NULL, 0, 2);
    assert_true(x[0] == 0 && x[1] == 0 && x[2] == 3);
}

TEST(test_axpby)
{
    const double a = 0.3, b = -1.7;
    for (size_t t = 0; t < TYPES; t++) {
        dpb_dtype type = types[t];
        for (uint64_t n = 0; n <= 67; n++) {
            fill(type);
            void *x = at(type, 0, n % 5), *y = at(type, 1, 1 + n % 3);
            before = memory[1];
            dpb_vec.axpby(type, a, x, b, y, n);
            double after = get(type, y, n);
            memcpy(&memory[2], &memory[1], sizeof before);
            memcpy(&memory[1], &before, sizeof before);
            assert_true(after == get(type, y, n));
            for (uint64_t i = 0; i < n; i++) {
                /* Two products and a sum, each rounded: no fused multiply-add. */
                volatile float af = (float)a * (float)get(type, x, i);
                volatile float bf = (float)b * (float)get(type, y, i);
                volatile double ad = a * get(type, x, i), bd = b * get(type, y, i);
                uint64_t should = 0, is = 0;
                put(type, &should, 0, type == DPB_FP64 ? ad + bd : (double)(af + bf));
                memcpy(&is, at(type, 2, 1 + n % 3 + i), dpb_dtype_size(type));
                assert_int_equal(is, should);
            }
        }
    }
}

/* x may be y, which counts with b = 0, too. */
TEST(test_axpby_in_place)
{
    const double y[] = {2.0, -8.0, 0.0, NAN, INFINITY}, becomes[] = {1.0, -4.0, 0.0, NAN, NAN};
    for (size_t t = 0; t < TYPES; t++) {
        void *in = at(types[t], 0, 0);
        for (uint64_t i = 0; i < 5; i++)
            put(types[t], in, i, y[i]);
        dpb_vec.axpby(types[t], 0.5, in, 0.0, in, 5);
        for (uint64_t i = 0; i < 5; i++) {
            const double is = get(types[t], in, i);
            assert_true(isnan(becomes[i]) ? isnan(is) : is == becomes[i]);
        }
    }
}

TEST(test_bf16_rounding)
{
    static const struct {
        uint32_t fp32;
        uint16_t bf16;
    } known[] = {
        {0x3f800000, 0x3f80},                       /* 1 */
        {0x3f807fff, 0x3f80},                       /* just below a tie */
        {0x3f808000, 0x3f80},                       /* tie: to even, down */
        {0x3f808001, 0x3f81},                       /* just above */
        {0x3f818000, 0x3f82},                       /* tie: to even, up */
        {0xbf818000, 0xbf82}, {0x80000000, 0x8000}, /* -0 */
        {0x00008000, 0x0000}, {0x00018000, 0x0002}, /* subnormal ties */
        {0x3fffffff, 0x4000},                       /* carries into the exponent */
        {0x7f7fffff, 0x7f80},                       /* the largest fp32 rounds to infinity */
        {0x7f7f7fff, 0x7f7f}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80},
        {0x7fc00000, 0x7fc0}, {0x7f800001, 0x7fc0}, /* NaN whose upper half says infinity */
        {0xffffffff, 0xffff},
    };
    enum { N = sizeof known / sizeof *known };
    float src[N];
    uint16_t dst[N];
    for (int i = 0; i < N; i++)
        memcpy(&src[i], &known[i].fp32, sizeof *src);
    dpb_vec.cast(DPB_BF16, dst, DPB_FP32, src, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(dst[i], known[i].bf16);
}

/* fp64 goes there in one rounding. */
TEST(test_bf16_from_fp64)
{
    const double known[][2] = {
        {1.00390625, 1.0},                 /* a tie: to even */
        {1.00390625 + 0x1p-52, 1.0078125}, /* fp32 would make it a tie */
        {-1.00390625 - 0x1p-40, -1.0078125},
        {1.01171875 - 0x1p-52, 1.0078125},   /* the same from below */
        {0x1.fefffffffffffp127, 0x1.fep127}, /* the largest, and the tie above it */
        {0x1.ffp127, INFINITY},
        {1e300, INFINITY},
        {-1e300, -INFINITY},
        {0x1p-134, 0}, /* half of the least subnormal: a tie */
        {0x1p-134 + 0x1p-180, 0x1p-133},
        {1e-300, 0},
        {-0.0, -0.0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint16_t dst, should = dpb_bf16_from_fp32((float)known[i][1]);
        dpb_vec.cast(DPB_BF16, &dst, DPB_FP64, known[i], 1);
        assert_int_equal(dst, should);
    }
    double nan = NAN;
    uint16_t dst;
    dpb_vec.cast(DPB_BF16, &dst, DPB_FP64, &nan, 1);
    assert_true(isnan(dpb_bf16_to_fp32(dst)));
}

/* IEEE 754 binary16. */
static double fp16_value(uint32_t bits)
{
    const int exponent = (int)(bits >> 10), mantissa = (int)(bits & 0x3ff);
    return exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
}

static void expect_fp16(double value, uint32_t bits)
{
    const float single = (float)value, minus = -single;
    const double negative = -value;
    uint16_t is;
    if ((double)single == value) {
        dpb_vec.cast(DPB_FP16, &is, DPB_FP32, &single, 1);
        assert_int_equal(is, bits);
        dpb_vec.cast(DPB_FP16, &is, DPB_FP32, &minus, 1);
        assert_int_equal(is, bits | 0x8000);
    }
    dpb_vec.cast(DPB_FP16, &is, DPB_FP64, &value, 1);
    assert_int_equal(is, bits);
    dpb_vec.cast(DPB_FP16, &is, DPB_FP64, &negative, 1);
    assert_int_equal(is, bits | 0x8000);
}

/* All of its numbers, and what lies between two: half way to the even one, else to the nearer. */
TEST(test_fp16)
{
    enum { INFINITE = 0x7c00 };
    for (uint32_t bits = 0; bits < INFINITE; bits++) {
        const double low = fp16_value(bits), middle = (low + fp16_value(bits + 1)) / 2;
        assert_true((double)dpb_fp16_to_fp32((uint16_t)bits) == low);
        assert_true((double)dpb_fp16_to_fp32((uint16_t)(bits | 0x8000)) == -low);
        expect_fp16(low, bits);
        expect_fp16(middle, bits + (bits & 1));
        expect_fp16((double)nextafterf((float)middle, 0), bits);
        expect_fp16((double)nextafterf((float)middle, INFINITY), bits + 1);
        expect_fp16(nextafter(middle, 0), bits);
        expect_fp16(nextafter(middle, INFINITY), bits + 1);
    }
    expect_fp16(0x1p17, INFINITE);
    expect_fp16(1e300, INFINITE);
    expect_fp16(INFINITY, INFINITE);
    for (uint32_t bits = INFINITE + 1; bits <= 0x7fff; bits++) {
        const float wide = dpb_fp16_to_fp32((uint16_t)bits);
        assert_true(isnan(wide) && isnan(dpb_fp16_to_fp32(dpb_fp16_from_fp32(wide))));
    }
    assert_true(isinf(dpb_fp16_to_fp32(INFINITE)));
}

TEST(test_cast)
{
    for (size_t from = 0; from < TYPES; from++)
        for (size_t to = 0; to < TYPES; to++)
            for (uint64_t n = 0; n <= 67; n++) {
                if (from != to && types[from] >= DPB_BF16 && types[to] >= DPB_BF16)
                    continue; /* one side is fp64 or fp32 */
                fill(types[from]);
                memset(&memory[1], 0x5a, sizeof memory[1]);
                const void *src = at(types[from], 0, n % 7);
                void *dst = at(types[to], 1, 1 + n % 5);
                dpb_vec.cast(types[to], dst, types[from], src, n);
                for (uint64_t i = 0; i < n; i++) {
                    uint64_t should = 0, is = 0;
                    put(types[to], &should, 0, get(types[from], src, i));
                    memcpy(&is, at(types[to], 1, 1 + n % 5 + i), dpb_dtype_size(types[to]));
                    assert_int_equal(is, should);
                }
                assert_int_equal(*(uint8_t *)at(types[to], 1, 1 + n % 5 + n), 0x5a);
            }
}

TEST(test_finite)
{
    const double bad[] = {INFINITY, -INFINITY, NAN};
    for (size_t t = 0; t < TYPES; t++)
        for (uint64_t n = 1; n <= 2200; n += n < 67 ? 1 : 211)
            for (uint64_t where = 0; where < n; where += 1 + n / 9) {
                fill(types[t]);
                void *x = at(types[t], 0, n % 3);
                assert_true(dpb_vec_finite(types[t], x, n));
                put(types[t], x, n, NAN); /* past the end: nobody's business */
                assert_true(dpb_vec_finite(types[t], x, n));
                put(types[t], x, where, bad[n % 3]);
                assert_false(dpb_vec_finite(types[t], x, n));
            }
    const float largest = 0x1.fffffep127f, least = 0x1p-149f;
    assert_true(dpb_vec_finite(DPB_FP32, &largest, 1) && dpb_vec_finite(DPB_FP32, &least, 1));
    assert_true(dpb_vec_finite(DPB_FP64, NULL, 0));
}

/* The definition: halves of the least power of two that is not below n. */
static double squares_by_halves(const double *x, uint64_t n)
{
    uint64_t half = 1;
    if (n < 2)
        return n == 0 ? 0.0 : x[0] * x[0];
    while (2 * half < n)
        half *= 2;
    return squares_by_halves(x, half) + squares_by_halves(x + half, n - half);
}

TEST(test_squares)
{
    static const uint64_t sizes[] = {0, 1, 2, 3, 7, 1023, 1024, 1025, 3071, 4097, 7 * 1024 + 5};
    enum { MOST = 8 * 1024 };
    static double x[MOST], given[MOST];
    for (size_t t = 0; t < TYPES; t++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            const uint64_t n = sizes[i];
            for (uint64_t j = 0; j < n; j++) /* of many magnitudes: the order shows in the bits */
                x[j] = sin((double)(j * (t + 1))) * exp2((double)(j % 23) - 8.0);
            dpb_vec.cast(types[t], given, DPB_FP64, x, n);
            dpb_vec.cast(DPB_FP64, x, types[t], given, n);
            const double is = dpb_vec_squares(types[t], given, n);
            const double expected = squares_by_halves(x, n);
            assert_memory_equal(&is, &expected, sizeof is);
        }
    x[5] = NAN;
    assert_true(isnan(dpb_vec_squares(DPB_FP64, x, 1025)));
}

/* Known answers of XXH64 with seed 0. */
TEST(test_checksum_known)
{
    static const struct {
        const char *text;
        uint64_t sum;
    } known[] = {
        {"", UINT64_C(0xef46db3751d8e999)},
        {"a", UINT64_C(0xd24ec4f1a98c6e5b)},
        {"abc", UINT64_C(0x44bc2cf5ad770999)},
        {"Nobody inspects the spammish repetition", UINT64_C(0xfbcea83c8a378bf1)},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(dpb_vec_checksum(DPB_UINT8, known[i].text, strlen(known[i].text)),
                         known[i].sum);
}

/* Swapped elements, flipped bits and pairs of flipped signs all show. */
TEST(test_checksum_changes)
{
    enum { N = 203 };
    float x[N + 1];
    for (uint32_t i = 0; i <= N; i++)
        x[i] = (float)i + 0.5f;
    uint64_t sum = dpb_vec_checksum(DPB_FP32, x, N), changed;
    memmove(memory[0].bytes + 4, x, sizeof x);
    assert_int_equal(dpb_vec_checksum(DPB_FP32, memory[0].bytes + 4, N), sum);
    assert_int_not_equal(dpb_vec_checksum(DPB_FP32, x, N + 1), sum);
    for (int i = 0; i < N; i++)
        for (int j = i + 1; j < N; j++) {
            float kept_i = x[i], kept_j = x[j];
            x[i] = kept_j, x[j] = kept_i;
            changed = dpb_vec_checksum(DPB_FP32, x, N);
            assert_int_not_equal(changed, sum);
            x[i] = -kept_i, x[j] = -kept_j;
            changed = dpb_vec_checksum(DPB_FP32, x, N);
            assert_int_not_equal(changed, sum);
            x[i] = kept_i, x[j] = kept_j;
        }
    uint8_t *bytes = (uint8_t *)x;
    int flipped = 0;
    for (int bit = 0; bit < N * 32; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        changed = dpb_vec_checksum(DPB_FP32, x, N);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(changed, sum);
        flipped += __builtin_popcountll(changed ^ sum);
    }
    /* Every input bit moves half of the 64 output bits. */
    double mean = (double)flipped / (N * 32);
    assert_true(mean > 31.5 && mean < 32.5);
}

TEST(test_copy)
{
    const uint8_t src[5] = {1, 2, 3, 4, 5};
    uint8_t dst[5] = {0};
    dpb_vec.copy(DPB_UINT8, dst, src, 4);
    assert_memory_equal(dst, src, 4);
    assert_int_equal(dst[4], 0);
    uint16_t half[2] = {0x7f81, 0x1234}, copy[2]; /* a signalling NaN keeps its bits */
    dpb_vec.copy(DPB_BF16, copy, half, 2);
    assert_memory_equal(copy, half, sizeof half);
}

TEST_MAIN(make_values, NULL)
