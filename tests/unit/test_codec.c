/*
 * test_codec.c - the codecs of plugins/codecs against plain forms of their rules in float64: what
 * is sent, what stays in the residual, what is refused.
 */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/options.h"
#include "conform/conform.h"
#include "dpbench/random.h"
#include "lib/plugin.h"
#include "lib/test.h"

enum { MOST = 5000, CANARY = 0xa5 };
static const uint64_t sizes[] = {1, 2, 1023, 1024, 1025, 2047, MOST};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* A codec, a part that it encodes, and what comes of it. */
struct trial {
    const struct dpb_plugin *plugin;
    const struct dpb_codec_ops *ops;
    struct dpb_config *config; /* owns the options' strings */
    _Alignas(16) char options[256];
    struct dpb_codec_part part;
    float gradients[MOST], residual[MOST];
    double values[MOST]; /* gradients + residual, before the encoding */
    float decoded[MOST];
    _Alignas(DPB_CACHE_LINE) unsigned char message[MOST * 8 + 4096];
    uint64_t bytes;
};

/* `assignments`: "comm.codec_KEY=VALUE", ended by NULL. */
static struct trial *trial_open(const char *name, const char *const *assignments)
{
    struct trial *trial = aligned_alloc(DPB_CACHE_LINE, sizeof *trial);
    assert_non_null(trial);
    memset(trial, 0, sizeof *trial);
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_CODEC, name, &plugin_host);
    const struct dpb_option_table table = {
        .section = "comm", .rows = plugin->options, .values = trial->options};
    assert_true(plugin->options_size <= sizeof trial->options);
    trial->plugin = plugin;
    trial->ops = plugin->ops;
    trial->config = dpb_config_create();
    for (; assignments && *assignments; assignments++)
        assert_int_equal(dpb_config_assign(trial->config, *assignments, "test"), DPB_OK);
    assert_int_equal(dpb_options_parse_known(&table, trial->config), DPB_OK);
    return trial;
}

static void trial_close(struct trial *trial)
{
    dpb_config_destroy(trial->config);
    free(trial);
}

/* Numbers of a wide range of magnitudes; every third is one of a few, so that many are equal. */
static float number(uint32_t stream, uint64_t i)
{
    const struct dpb_random4 r = dpb_random(7, DPB_STREAM_EXCHANGE, stream, (uint32_t)i, 0, 0);
    if (r.v[3] % 3 == 0)
        return (float)((int)(r.v[0] % 7) - 3);
    return (float)(int32_t)r.v[0] * 0x1p-31F * ldexpf(1.0F, -(int)(r.v[1] % 16));
}

static void fill(struct trial *trial, uint64_t n)
{
    trial->part =
        (struct dpb_codec_part){.first = 3 * MOST, .n = n, .seed = 5, .step = 9, .rank = 2};
    for (uint64_t i = 0; i < n; i++) {
        trial->gradients[i] = number(1, i);
        trial->residual[i] = i % 2 ? number(2, i) : 0.0F;
    }
}

static dpb_status decode(struct trial *trial, uint64_t bytes)
{
    memset(trial->decoded, 0, sizeof trial->decoded);
    return trial->ops->decode(trial->options, &trial->part, trial->message, bytes, trial->decoded);
}

/* Encodes and decodes. What holds for every codec is test_conforms'. */
static void pass(struct trial *trial)
{
    for (uint64_t i = 0; i < trial->part.n; i++)
        trial->values[i] = (float)(trial->gradients[i] + trial->residual[i]);
    unsigned char *end = trial->message + trial->ops->bound(trial->options, trial->part.n);
    *end = CANARY;
    trial->bytes = trial->ops->encode(trial->options, &trial->part, trial->gradients,
                                      trial->residual, trial->message);
    assert_int_equal(*end, CANARY);
    assert_int_equal(decode(trial, trial->bytes), DPB_OK);
}

/* By the suite that `dpbench conform` holds every codec to. */
TEST(test_conforms)
{
    static const char *const all[][2] = {{"topk", NULL},
                                         {"topk", "comm.codec_ratio=1"},
                                         {"topk", "comm.codec_momentum=0.9"},
                                         {"int8", NULL},
                                         {"int8", "comm.codec_rounding=stochastic"},
                                         {"fp8", NULL},
                                         {"fp8", "comm.codec_format=e5m2"},
                                         {"threshold", NULL},
                                         {"threshold", "comm.codec_threshold=0"},
                                         {"onebit", NULL},
                                         {"qsgd", NULL},
                                         {"qsgd", "comm.codec_levels=100"},
                                         {"powersgd", NULL},
                                         {"powersgd", "comm.codec_rank=40"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct dpb_conform conform = {0};
        struct trial *trial = trial_open(all[i][0], (const char *const[]){all[i][1], NULL});
        dpb_conform_codec(&conform, trial->plugin, trial->options);
        if (conform.n_failed > 0 || conform.n_refused > 0 || conform.n_shown != 35)
            fail_msg("%s %s: %u trials shown, %u refused, %u failed", all[i][0],
                     all[i][1] ? all[i][1] : "", conform.n_shown, conform.n_refused,
                     conform.n_failed);
        trial_close(trial);
    }
}

/* A message of another length is refused, whatever the length. The suite cannot ask for that:
 * messages of other codecs may vary. */
static void expect_lengths_refused(struct trial *trial)
{
    const uint64_t lengths[] = {0, 1, trial->bytes - 1, trial->bytes + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        if (lengths[i] == trial->bytes)
            continue;
        dpb_status status = decode(trial, lengths[i]);
        assert_int_not_equal(status, DPB_OK);
        assert_non_null(strstr(dpb_first_error(&status), "rank 2 sent"));
        dpb_first_error_clear();
    }
}

/* ---- topk ---------------------------------------------------------------------------------- */

static const double *ordered;

/* By magnitude, falling; of equal ones the first comes first. */
static int by_magnitude(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const double x = fabs(ordered[i]), y = fabs(ordered[j]);
    return x != y ? (x > y ? -1 : 1) : (i < j ? -1 : 1);
}

static void check_topk(const struct trial *trial, uint64_t k)
{
    static uint32_t order[MOST];
    static bool sent[MOST];
    const uint64_t n = trial->part.n;
    assert_int_equal(trial->bytes, 8 * k);
    for (uint32_t i = 0; i < n; i++) {
        order[i] = i;
        sent[i] = false;
    }
    ordered = trial->values;
    qsort(order, n, sizeof *order, by_magnitude);
    for (uint64_t i = 0; i < k; i++)
        sent[order[i]] = true;
    for (uint64_t i = 0; i < n; i++) {
        assert_true((double)trial->decoded[i] == (sent[i] ? trial->values[i] : 0.0));
        assert_true((double)trial->residual[i] == (sent[i] ? 0.0 : trial->values[i]));
    }
}

TEST(test_topk)
{
    static const double ratios[] = {1e-6, 0.01, 0.37, 1};
    for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++) {
        char assignment[64];
        snprintf(assignment, sizeof assignment, "comm.codec_ratio=%.17g", ratios[r]);
        struct trial *trial = trial_open("topk", (const char *const[]){assignment, NULL});
        for (size_t i = 0; i < N_SIZES; i++) {
            fill(trial, sizes[i]);
            pass(trial);
            check_topk(trial, (uint64_t)ceil(ratios[r] * (double)sizes[i]));
            expect_lengths_refused(trial);
        }
        trial_close(trial);
    }
}

/* topk looks at every third element to guess which are large. The guess may be wrong: the large
 * ones are among those, or among the others, or all are equal. */
TEST(test_topk_sample)
{
    enum { ALIKE = 2 };
    struct trial *trial = trial_open("topk", (const char *const[]){"comm.codec_ratio=0.2", NULL});
    for (int large = 0; large <= ALIKE; large++) {
        fill(trial, MOST);
        for (uint64_t i = 0; i < MOST; i++) {
            const bool is_large = (i % 3 == 0) == (large == 0);
            trial->residual[i] = 0;
            trial->gradients[i] = large == ALIKE ? 1.0F : (float)(i * 7 % MOST) + is_large * 1e4F;
        }
        pass(trial);
        check_topk(trial, MOST / 5);
    }
    trial_close(trial);
}

TEST(test_topk_indices)
{
    static const struct {
        uint32_t at, index;
    } wrong[] = {{9, 1000}, {9, UINT32_MAX}, {0, 1000}, {5, 0}};
    struct trial *trial = trial_open("topk", NULL);
    uint32_t *indices = (uint32_t *)(void *)trial->message;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fill(trial, 1000);
        pass(trial);
        indices[wrong[i].at] = wrong[i].index;
        dpb_status status = decode(trial, trial->bytes);
        assert_int_not_equal(status, DPB_OK);
        assert_non_null(strstr(dpb_first_error(&status), "codec topk: rank 2 sent index"));
        dpb_first_error_clear();
    }
    trial_close(trial);
}

/* ---- int8 ---------------------------------------------------------------------------------- */

TEST(test_int8)
{
    static const char *const settings[][2] = {{"comm.codec_rounding=nearest", NULL},
                                              {"comm.codec_rounding=stochastic", NULL}};
    for (int stochastic = 0; stochastic < 2; stochastic++) {
        struct trial *trial = trial_open("int8", settings[stochastic]);
        for (size_t s = 0; s < N_SIZES; s++) {
            fill(trial, sizes[s]);
            pass(trial);
            assert_int_equal(trial->bytes, sizes[s] + (sizes[s] + 1023) / 1024 * 4);
            for (uint64_t i = 0; i < sizes[s]; i++) {
                const uint64_t block = i / 1024 * 1024;
                double largest = 0;
                for (uint64_t j = block; j < block + 1024 && j < sizes[s]; j++)
                    largest = fmax(largest, fabs(trial->values[j]));
                const double step = largest / 127, off = stochastic ? 1.0 : 0.5;
                const double units = (double)trial->decoded[i] / step;
                assert_true(fabs((double)trial->decoded[i] - trial->values[i]) <=
                            off * step * (1 + 1e-4));
                assert_true(fabs(units - nearbyint(units)) <= 1e-4);
            }
            expect_lengths_refused(trial);
        }
        trial_close(trial);
    }
}

/* The mean of 10,000 draws is the value, within 4 standard errors; each step draws anew. The
 * largest magnitude is `levels` units. */
static void expect_unbiased(const char *codec, const char *assignment, double levels)
{
    enum { N = 8, DRAWS = 10000 };
    static const double units[N] = {1.0, 0.5, 0.1, -0.9, 0.333, -1.0, 0, -0.77};
    struct trial *trial = trial_open(codec, (const char *const[]){assignment, NULL});
    double sum[N] = {0};
    for (uint64_t draw = 0; draw < DRAWS; draw++) {
        fill(trial, N);
        for (int i = 0; i < N; i++)
            trial->gradients[i] = (float)(i % 4 == 0 ? units[i] : units[i] / levels);
        memset(trial->residual, 0, sizeof trial->residual);
        trial->part.step = draw;
        pass(trial);
        for (int i = 0; i < N; i++)
            sum[i] += (double)trial->decoded[i];
    }
    for (int i = 0; i < N; i++) {
        const double value = trial->values[i] * levels, up = value - floor(value);
        const double error = sqrt(up * (1 - up) / DRAWS);
        if (!(fabs(sum[i] / DRAWS * levels - value) <= 4 * error + 1e-4))
            fail_msg("%s: the mean of %g is %g, error %g", codec, value, sum[i] / DRAWS * levels,
                     error);
    }
    trial_close(trial);
}

TEST(test_unbiased)
{
    expect_unbiased("int8", "comm.codec_rounding=stochastic", 127);
    expect_unbiased("qsgd", "comm.codec_levels=7", 7);
    expect_unbiased("qsgd", "comm.codec_levels=100", 100);
}

/* ---- fp8 ----------------------------------------------------------------------------------- */

static const struct fp8 {
    const char *const assignment[2];
    int mantissa, bias;
    int n_finite; /* magnitudes; the next is infinite or NaN */
    float largest;
} fp8s[] = {{{"comm.codec_format=e4m3", NULL}, 3, 7, 0x7f, 448.0F},
            {{"comm.codec_format=e5m2", NULL}, 2, 15, 0x7c, 57344.0F}};
enum { N_FP8 = sizeof fp8s / sizeof *fp8s };

/* By the definition of the formats: Micikevicius et al. 2022, table 1. */
static double fp8_value(const struct fp8 *format, int code)
{
    const int magnitude = code & 0x7f, exponent = magnitude >> format->mantissa;
    const int fraction = magnitude & ((1 << format->mantissa) - 1);
    double value = ldexp(fraction, 1 - format->bias - format->mantissa);
    if (exponent > 0)
        value =
            ldexp((1 << format->mantissa) + fraction, exponent - format->bias - format->mantissa);
    if (magnitude >= format->n_finite)
        value = strstr(format->assignment[0], "e5m2") && fraction == 0 ? INFINITY : NAN;
    return code & 0x80 ? -value : value;
}

TEST(test_fp8_codes)
{
    enum { CODES = 256 };
    static const float scale = 0.75F;
    for (size_t f = 0; f < N_FP8; f++) {
        struct trial *trial = trial_open("fp8", fp8s[f].assignment);
        fill(trial, CODES);
        memcpy(trial->message, &scale, sizeof scale);
        for (int code = 0; code < CODES; code++)
            trial->message[sizeof scale + (size_t)code] = (unsigned char)code;
        assert_int_equal(decode(trial, CODES + sizeof scale), DPB_OK);
        for (int code = 0; code < CODES; code++) {
            const double sent = (double)trial->decoded[code];
            const double wanted = fp8_value(&fp8s[f], code) * (double)scale;
            if (isnan(wanted) ? !isnan(sent) : sent != wanted)
                fail_msg("%s: code %02x is %g, not %g", fp8s[f].assignment[0], (unsigned)code, sent,
                         wanted);
        }
        trial_close(trial);
    }
}

/* All numbers between `code` and the next that round in another way: with the format's largest
 * number beside them the scale is 1. */
static void check_fp8_rounding(struct trial *trial, const struct fp8 *format, int code)
{
    enum { N = 9, CODES = sizeof(float) };
    const float down = (float)fp8_value(format, code), up = (float)fp8_value(format, code + 1);
    const float middle = (down + up) / 2;
    const float values[] = {down, nextafterf(middle, 0), middle, nextafterf(middle, up)};
    const int wanted[] = {code, code, code + (code & 1), code + 1};
    fill(trial, N);
    memset(trial->residual, 0, sizeof trial->residual);
    trial->gradients[0] = format->largest;
    for (size_t i = 1; i < N; i++)
        trial->gradients[i] = i % 2 ? values[i / 2] : -values[i / 2 - 1];
    pass(trial);
    assert_int_equal(trial->message[CODES], format->n_finite - 1);
    for (size_t i = 1; i < N; i++) {
        const int right = wanted[(i - 1) / 2] | (signbit(trial->values[i]) ? 0x80 : 0);
        if (trial->message[CODES + i] != right)
            fail_msg("%s: %.9g is code %02x, not %02x", format->assignment[0], trial->values[i],
                     (unsigned)trial->message[CODES + i], (unsigned)right);
        assert_true((double)trial->residual[i] == trial->values[i] - fp8_value(format, right));
    }
}

TEST(test_fp8_rounding)
{
    for (size_t f = 0; f < N_FP8; f++) {
        struct trial *trial = trial_open("fp8", fp8s[f].assignment);
        for (int code = 0; code + 1 < fp8s[f].n_finite; code++)
            check_fp8_rounding(trial, &fp8s[f], code);
        trial_close(trial);
    }
}

/* Each element is the nearest number of the format, times the scale of its block. */
static void check_fp8_block(const struct trial *trial, const struct fp8 *format, uint64_t begin,
                            uint64_t end)
{
    double largest = 0;
    for (uint64_t i = begin; i < end; i++)
        largest = fmax(largest, fabs(trial->values[i]));
    const double scale = largest / (double)format->largest;
    const double unit = ldexp(scale, 1 - format->bias - format->mantissa);
    for (uint64_t i = begin; i < end; i++) {
        const double value = fabs(trial->values[i]), sent = (double)trial->decoded[i];
        const double off = fabs(sent - trial->values[i]), slack = 1e-6 * value;
        double least = INFINITY;
        for (int code = 0; code < format->n_finite; code++)
            least = fmin(least, fabs(fp8_value(format, code) * scale - value));
        assert_true(off <= least + slack);
        assert_true(off <= fmax(ldexp(value, -1 - format->mantissa), unit / 2) + slack);
        assert_true(value < largest || fabs(fabs(sent) - largest) <= slack);
    }
}

TEST(test_fp8)
{
    for (size_t f = 0; f < N_FP8; f++) {
        struct trial *trial = trial_open("fp8", fp8s[f].assignment);
        for (size_t s = 0; s < N_SIZES; s++) {
            const uint64_t n = sizes[s];
            fill(trial, n);
            pass(trial);
            assert_int_equal(trial->bytes, n + (n + 1023) / 1024 * 4);
            for (uint64_t at = 0; at < n; at += 1024)
                check_fp8_block(trial, &fp8s[f], at, at + 1024 < n ? at + 1024 : n);
            expect_lengths_refused(trial);
        }
        trial_close(trial);
    }
}

/* ---- a scale for 1,024 elements ------------------------------------------------------------ */

/* Blocks too small for a scale stay in the residual; what is not finite makes its block so. */
static void expect_extremes(const char *codec, const char *assignment)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    struct trial *trial = trial_open(codec, (const char *const[]){assignment, NULL});
    fill(trial, 10);
    for (int i = 0; i < 10; i++) {
        trial->gradients[i] = FLT_MIN;
        trial->residual[i] = 0;
    }
    memset(trial->message, 0xff, sizeof trial->message); /* NaN, of fp8 */
    pass(trial);
    assert_true(trial->residual[3] == FLT_MIN && trial->decoded[3] == 0);
    for (int i = 0; i < 3; i++) {
        fill(trial, 2000);
        trial->gradients[7] = odd[i];
        trial->bytes = trial->ops->encode(trial->options, &trial->part, trial->gradients,
                                          trial->residual, trial->message);
        assert_int_equal(decode(trial, trial->bytes), DPB_OK);
        assert_true(isnan(trial->decoded[7]) && isnan(trial->decoded[0]));
        assert_true(isnan(trial->residual[7]) && isnan(trial->residual[0]));
        assert_true(isfinite(trial->decoded[1024]) && isfinite(trial->residual[1024]));
    }
    trial_close(trial);
}

TEST(test_extremes)
{
    expect_extremes("int8", NULL);
    expect_extremes("fp8", NULL);
    expect_extremes("fp8", "comm.codec_format=e5m2");
}

/* ---- threshold ----------------------------------------------------------------------------- */

TEST(test_threshold)
{
    static const double thresholds[] = {1e-3, 0.3, 1, 2.5};
    for (size_t k = 0; k < sizeof thresholds / sizeof *thresholds; k++) {
        char assignment[64];
        const double t = (double)(float)thresholds[k];
        snprintf(assignment, sizeof assignment, "comm.codec_threshold=%.17g", thresholds[k]);
        struct trial *trial = trial_open("threshold", (const char *const[]){assignment, NULL});
        for (size_t s = 0; s < N_SIZES; s++) {
            fill(trial, sizes[s]);
            pass(trial);
            assert_int_equal(trial->bytes, (sizes[s] + 3) / 4);
            for (uint64_t i = 0; i < sizes[s]; i++) {
                const double value = trial->values[i];
                const double sent = value >= t ? t : value <= -t ? -t : 0;
                assert_true((double)trial->decoded[i] == sent);
                assert_true(trial->residual[i] == (float)(value - sent));
            }
            expect_lengths_refused(trial);
        }
        trial_close(trial);
    }
}

/* Threshold 0 sends all elements, as they are. */
TEST(test_threshold_zero)
{
    struct trial *trial =
        trial_open("threshold", (const char *const[]){"comm.codec_threshold=0", NULL});
    for (size_t s = 0; s < N_SIZES; s++) {
        fill(trial, sizes[s]);
        pass(trial);
        assert_int_equal(trial->bytes, 4 * sizes[s]);
        for (uint64_t i = 0; i < sizes[s]; i++)
            assert_true((double)trial->decoded[i] == trial->values[i] && trial->residual[i] == 0);
        expect_lengths_refused(trial);
    }
    trial_close(trial);
}

/* ---- onebit -------------------------------------------------------------------------------- */

static void check_onebit_block(const struct trial *trial, uint64_t begin, uint64_t end)
{
    double sums[2] = {0}, largest = 0;
    uint64_t counts[2] = {0};
    for (uint64_t i = begin; i < end; i++) {
        sums[trial->values[i] < 0] += trial->values[i];
        counts[trial->values[i] < 0]++;
        largest = fmax(largest, fabs(trial->values[i]));
    }
    for (uint64_t i = begin; i < end; i++) {
        const bool negative = trial->values[i] < 0;
        const double mean = sums[negative] / (double)counts[negative];
        assert_true(fabs((double)trial->decoded[i] - mean) <= largest * 64 * FLT_EPSILON);
    }
}

TEST(test_onebit)
{
    struct trial *trial = trial_open("onebit", NULL);
    for (size_t s = 0; s < N_SIZES; s++) {
        const uint64_t n = sizes[s];
        fill(trial, n);
        pass(trial);
        assert_int_equal(trial->bytes, (n + 7) / 8 + (n + 1023) / 1024 * 8);
        for (uint64_t at = 0; at < n; at += 1024)
            check_onebit_block(trial, at, at + 1024 < n ? at + 1024 : n);
        expect_lengths_refused(trial);
    }
    trial_close(trial);
}

/* ---- qsgd ---------------------------------------------------------------------------------- */

TEST(test_qsgd)
{
    static const int all[] = {2, 7, 8, 127};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        char assignment[64];
        snprintf(assignment, sizeof assignment, "comm.codec_levels=%d", all[k]);
        struct trial *trial = trial_open("qsgd", (const char *const[]){assignment, NULL});
        for (size_t s = 0; s < N_SIZES; s++) {
            const uint64_t n = sizes[s], codes = all[k] > 7 ? n : (n + 1) / 2;
            fill(trial, n);
            pass(trial);
            assert_int_equal(trial->bytes, codes + (n + 511) / 512 * 4);
            for (uint64_t i = 0; i < n; i++) {
                const uint64_t block = i / 512 * 512;
                double largest = 0;
                for (uint64_t j = block; j < block + 512 && j < n; j++)
                    largest = fmax(largest, fabs(trial->values[j]));
                const double step = largest / all[k], units = (double)trial->decoded[i] / step;
                assert_true(fabs((double)trial->decoded[i] - trial->values[i]) <= step * 1.0001);
                assert_true(fabs(units - nearbyint(units)) <= 1e-4);
            }
            expect_lengths_refused(trial);
        }
        trial_close(trial);
    }
}

/* A level beyond s is refused, whatever the place. */
TEST(test_qsgd_levels)
{
    static const uint64_t places[] = {8, 8 + 255, 8 + 256, 8 + 499};
    struct trial *trial = trial_open("qsgd", NULL);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        fill(trial, 1000);
        pass(trial);
        trial->message[places[i]] |= 0xf0;
        dpb_status status = decode(trial, trial->bytes);
        assert_int_not_equal(status, DPB_OK);
        assert_non_null(strstr(dpb_first_error(&status), "codec qsgd: rank 2 sent level 8"));
        dpb_first_error_clear();
    }
    trial_close(trial);
}

/* ---- all of these -------------------------------------------------------------------------- */

/* NaN reaches the elements that the codec says, and no other block. */
TEST(test_not_finite)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    static const char *const codecs[] = {"threshold", "onebit", "qsgd"};
    for (size_t c = 0; c < sizeof codecs / sizeof *codecs; c++) {
        struct trial *trial = trial_open(codecs[c], NULL);
        for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
            fill(trial, 2000);
            trial->gradients[7] = odd[i];
            trial->bytes = trial->ops->encode(trial->options, &trial->part, trial->gradients,
                                              trial->residual, trial->message);
            assert_int_equal(decode(trial, trial->bytes), DPB_OK);
            assert_true(isnan(trial->decoded[7]) && !isfinite(trial->residual[7]));
            assert_true(isnan(trial->decoded[8]) == (c > 0));
            assert_true(isfinite(trial->decoded[1024]) && isfinite(trial->residual[1024]));
        }
        trial_close(trial);
    }
}

TEST_MAIN(NULL, NULL)
