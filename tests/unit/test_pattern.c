/* test_pattern.c - gradients of known sums: exact in every type, never 0, told apart by rank,
 * element and repetition; the check finds each wrong element and says where the first one is. */
#include <math.h>
#include <stdlib.h>

#include "base/vec.h"
#include "lib/test.h"
#include "proof/pattern.h"

enum { N = 2500 /* blocks of 1024, and a part */ };

static const dpb_dtype types[] = {DPB_FP64, DPB_FP32, DPB_BF16, DPB_FP16};
enum { TYPES = sizeof types / sizeof types[0] };

static double number_at(dpb_dtype type, const void *arena, uint64_t i)
{
    double value;
    dpb_vec.cast(DPB_FP64, &value, type, (const char *)arena + i * dpb_dtype_size(type), 1);
    return value;
}

/* As a strategy would: the ranks' gradients are summed in their type. */
static void sum_up(dpb_dtype type, void *sum, const struct dpb_pattern_sum *pattern)
{
    double gradients[N];
    void *const into[] = {sum};
    for (uint32_t rank = 0; rank < pattern->n_ranks; rank++) {
        const void *const both[] = {sum, gradients};
        dpb_pattern_fill(type, rank == 0 ? sum : gradients, 0, N, rank, pattern);
        if (rank > 0)
            dpb_vec.sum(type, into, 1, both, 2, N);
    }
}

TEST(test_sums_are_exact)
{
    double arena[N];
    for (size_t t = 0; t < TYPES; t++)
        for (uint32_t largest = 1; largest <= DPB_PATTERN_LARGEST; largest++) {
            const uint32_t most = dpb_pattern_most(types[t]) / largest;
            struct dpb_pattern_wrong first;
            const struct dpb_pattern_sum pattern = {.repetition = largest,
                                                    .key =
                                                        largest % 2 * UINT64_C(0x123456789abcdef),
                                                    .largest = largest,
                                                    .n_ranks = most < 300 ? most : 300,
                                                    .factor = 1.0};
            sum_up(types[t], arena, &pattern);
            assert_int_equal(dpb_pattern_check(types[t], arena, N, &pattern, &first), 0);
            for (uint64_t i = 0; i < N; i += 131) {
                double sum = 0;
                for (uint32_t rank = 0; rank < pattern.n_ranks; rank++) {
                    double one;
                    dpb_pattern_fill(DPB_FP64, &one, i, i + 1, rank, &pattern);
                    assert_true(one != 0 && one >= -(double)largest && one <= largest);
                    assert_true(pattern.key != 0 || one == floor(one));
                    sum += one;
                }
                assert_true(number_at(types[t], arena, i) == sum);
            }
        }
}

/* A proof's gradients are not those of the run before: half of the elements differ by their
 * integers, three of four by their powers of two, which all ranks and repetitions share. */
TEST(test_keys)
{
    const struct dpb_pattern_sum one = {.key = 0x9876543210fedcba, .largest = 1, .n_ranks = 1};
    struct dpb_pattern_sum other = one, later = one;
    double a[N], b[N], c[N];
    uint64_t n_wrong = 0, n_scaled = 0;
    other.key = ~one.key;
    later.repetition = 5;
    dpb_pattern_fill(DPB_FP64, a, 0, N, 0, &one);
    dpb_pattern_fill(DPB_FP64, b, 0, N, 0, &other);
    dpb_pattern_fill(DPB_FP64, c, 0, N, 7, &later);
    for (uint64_t i = 0; i < N; i++) {
        n_wrong += (a[i] < 0) != (b[i] < 0);
        n_scaled += fabs(a[i]) != fabs(b[i]);
        assert_true(fabs(a[i]) == fabs(c[i]));
    }
    assert_true(n_wrong > N * 9 / 20 && n_scaled > N * 7 / 10);
}

/* The proof takes these for up to 1024 workers. In bf16 more than 256 have no exact sum of any
 * signs, but those of the pattern are small. */
TEST(test_largest)
{
    static const uint32_t workers[] = {1, 32, 33, 64, 256, 1024};
    double arena[N];
    for (size_t t = 0; t < TYPES; t++)
        for (size_t w = 0; w < sizeof workers / sizeof *workers; w++) {
            const uint32_t largest = dpb_pattern_largest(types[t], workers[w]);
            struct dpb_pattern_wrong first;
            const struct dpb_pattern_sum pattern = {
                .largest = largest > 0 ? largest : 1, .n_ranks = workers[w], .factor = 1.0};
            assert_true(largest <= DPB_PATTERN_LARGEST);
            assert_true((uint64_t)largest * workers[w] <= dpb_pattern_most(types[t]));
            sum_up(types[t], arena, &pattern);
            assert_int_equal(dpb_pattern_check(types[t], arena, N, &pattern, &first), 0);
        }
    assert_int_equal(dpb_pattern_largest(DPB_BF16, 32), DPB_PATTERN_LARGEST);
    assert_int_equal(dpb_pattern_largest(DPB_BF16, 33), 7);
    assert_int_equal(dpb_pattern_largest(DPB_BF16, 257), 0);
}

TEST(test_wrong_elements_are_found)
{
    static const uint64_t places[] = {0, 1023, 1024, 2047, N - 1};
    const struct dpb_pattern_sum pattern = {
        .repetition = 3, .largest = 8, .n_ranks = 5, .factor = 1.0};
    float arena[N];
    sum_up(DPB_FP32, arena, &pattern);
    for (size_t i = sizeof places / sizeof *places; i-- > 0;) {
        struct dpb_pattern_wrong first;
        float right = arena[places[i]];
        arena[places[i]] += 1.0f;
        assert_int_equal(dpb_pattern_check(DPB_FP32, arena, N, &pattern, &first),
                         sizeof places / sizeof *places - i);
        assert_int_equal(first.element, places[i]);
        assert_true(first.wanted == right && first.got == right + 1.0f);
    }
}

static uint64_t count_wrong(const float *arena, uint64_t repetition, uint32_t n_ranks,
                            double factor)
{
    struct dpb_pattern_wrong first;
    const struct dpb_pattern_sum pattern = {
        .repetition = repetition, .largest = 8, .n_ranks = n_ranks, .factor = factor};
    return dpb_pattern_check(DPB_FP32, arena, N, &pattern, &first);
}

/* Of what could be mistaken for each other at least half of the elements differ. */
TEST(test_misplacement_shows)
{
    const struct dpb_pattern_sum pattern = {
        .repetition = 7, .largest = 8, .n_ranks = 3, .factor = 1.0};
    struct dpb_pattern_wrong first;
    float arena[N + 64];
    sum_up(DPB_FP32, arena, &pattern);
    assert_int_equal(count_wrong(arena, 7, 3, 1.0), 0);
    assert_true(count_wrong(arena, 6, 3, 1.0) > N / 2); /* an exchange before */
    assert_true(count_wrong(arena, 7, 2, 1.0) > N / 2); /* a rank left out */
    assert_true(count_wrong(arena, 7, 3, 3.0) > N / 2); /* summed again */
    for (uint64_t by = 1; by <= 2000; by++) {
        float moved[N];
        for (uint64_t i = 0; i < N; i++)
            moved[i] = arena[(i + by) % N];
        assert_true(dpb_pattern_check(DPB_FP32, moved, N, &pattern, &first) > N / 2);
    }
    for (uint64_t i = 0; i < N; i++)
        arena[i] *= 3.0f;
    assert_int_equal(count_wrong(arena, 7, 3, 3.0), 0); /* a sum of sums */
}

TEST_MAIN(NULL, NULL)
