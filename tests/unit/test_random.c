/*
 * Philox4x32-10 against the known answers published with Random123 (kat_vectors), and the numbers
 * made from its words.
 */
#include <math.h>
#include <string.h>

#include "dpbench/random.h"
#include "lib/test.h"

/* The function keys by seed and stream; this undoes the stream. */
static struct dpb_random4 philox(uint32_t k0, uint32_t k1, const uint32_t c[4])
{
    uint64_t seed = (uint64_t)(k1 ^ ((uint32_t)DPB_STREAM_INIT << 24)) << 32 | k0;
    return dpb_random(seed, DPB_STREAM_INIT, c[0], c[1], c[2], c[3]);
}

TEST(test_known_answers)
{
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct dpb_random4 r = philox(known[i].key[0], known[i].key[1], known[i].counter);
        assert_memory_equal(r.v, known[i].answer, sizeof r.v);
    }
}

TEST(test_streams_differ)
{
    for (int a = DPB_STREAM_INIT; a <= DPB_STREAM_EXCHANGE; a++)
        for (int b = a + 1; b <= DPB_STREAM_EXCHANGE; b++) {
            struct dpb_random4 x = dpb_random(7, (enum dpb_stream)a, 1, 2, 3, 4);
            struct dpb_random4 y = dpb_random(7, (enum dpb_stream)b, 1, 2, 3, 4);
            assert_memory_not_equal(x.v, y.v, sizeof x.v);
        }
}

TEST(test_uniform)
{
    assert_true(dpb_random_uniform(0) == 0);
    assert_true(dpb_random_uniform(UINT32_MAX) < 1);
    assert_true(dpb_random_uniform(0x80000000u) == 0.5f);
    double bins[16] = {0}, chi_squared = 0;
    enum { N = 40000 };
    for (uint32_t i = 0; i < N; i++) {
        struct dpb_random4 r = dpb_random(3, DPB_STREAM_SYNTHETIC, i, 0, 0, 0);
        for (int j = 0; j < 4; j++)
            bins[(int)(16 * dpb_random_uniform(r.v[j]))]++;
    }
    for (int i = 0; i < 16; i++)
        chi_squared += (bins[i] - N / 4.0) * (bins[i] - N / 4.0) / (N / 4.0);
    assert_true(chi_squared > 3.5 && chi_squared < 37.7); /* 15 degrees: 0.1 % to either side */
}

TEST(test_normal)
{
    enum { N = 200000 };
    double moment[5] = {0}, product = 0;
    for (uint32_t i = 0; i < N / 2; i++) {
        struct dpb_random4 r = dpb_random(11, DPB_STREAM_INIT, i, 0, 0, 0);
        double x[2];
        dpb_random_normal(r.v[0], r.v[1], x);
        product += x[0] * x[1] / (N / 2);
        for (int j = 0; j < 2; j++)
            for (int p = 1; p <= 4; p++)
                moment[p] += pow(x[j], p) / N;
    }
    /* Five standard errors: 1, sqrt 2, sqrt 15, sqrt 96 over sqrt n. */
    double unit = 5 / sqrt(N);
    assert_true(fabs(moment[1]) < unit);
    assert_true(fabs(moment[2] - 1) < sqrt(2) * unit);
    assert_true(fabs(moment[3]) < sqrt(15) * unit);
    assert_true(fabs(moment[4] - 3) < sqrt(96) * unit);
    assert_true(fabs(product) < sqrt(2) * unit);
    double edge[2];
    dpb_random_normal(0, 0, edge); /* the largest there is */
    assert_true(isfinite(edge[0]) && isfinite(edge[1]));
    dpb_random_normal(UINT32_MAX, UINT32_MAX, edge);
    assert_true(isfinite(edge[0]) && isfinite(edge[1]));
}

TEST(test_dropout)
{
    enum { N = 40000 };
    int kept = 0;
    for (uint32_t element = 0; element < N; element++) {
        bool keeps = dpb_dropout_keeps(1, 2, 3, 4, element, 0.25);
        assert_int_equal(keeps, dpb_dropout_keeps(1, 2, 3, 4, element, 0.25));
        assert_true(dpb_dropout_keeps(1, 2, 3, 4, element, 0));
        kept += keeps;
    }
    assert_in_range(kept, N * 3 / 4 - 450, N * 3 / 4 + 450); /* five standard errors: 433 */
}

TEST_MAIN(NULL, NULL)
