/*
 * test_dgc.c - topk with momentum correction and a warm-up of its ratio (Lin et al. 2018) against a
 * plain form in float64: several workers, a training's steps, bit for bit.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/options.h"
#include "dpbench/random.h"
#include "lib/plugin.h"
#include "lib/test.h"

enum { N = 1500, WORKERS = 3, STEPS = 10, START = 2, WARMUP = 4 };
static const double ratio = 0.004, momentum = 0.5;

/* As the carrier keeps it, and as the rule says. */
struct worker {
    float residual[N], velocity[N], added[N];
    double v[N], u[N];
};

/* Small integers: with momentum 1/2 all numbers of these steps are exact in fp32. */
static float gradient(uint32_t rank, uint64_t step, uint64_t i)
{
    const struct dpb_random4 r =
        dpb_random(3, DPB_STREAM_EXCHANGE, rank, (uint32_t)step, (uint32_t)i, 0);
    return (float)((int)(r.v[0] % 64) - 31);
}

static const double *ordered;

static int by_magnitude(const void *a, const void *b)
{
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const double x = fabs(ordered[i]), y = fabs(ordered[j]);
    return x != y ? (x > y ? -1 : 1) : (i < j ? -1 : 1);
}

/* The rule; returns how many elements are sent. */
static uint64_t send_plainly(struct worker *worker, uint32_t rank, uint64_t step, double *sum)
{
    static uint32_t order[N];
    const double t = (double)(step - START);
    const double part = t > WARMUP ? ratio : pow(ratio, t / (WARMUP + 1));
    const uint64_t k = (uint64_t)ceil(part * N);
    for (uint32_t i = 0; i < N; i++) {
        worker->u[i] = momentum * worker->u[i] + (double)gradient(rank, step, i);
        worker->v[i] += worker->u[i];
        order[i] = i;
    }
    ordered = worker->v;
    qsort(order, N, sizeof *order, by_magnitude);
    for (uint64_t i = 0; i < k; i++) {
        sum[order[i]] += worker->v[order[i]];
        worker->v[order[i]] = worker->u[order[i]] = 0;
    }
    return k;
}

static uint64_t send(const struct dpb_codec_ops *ops, const void *options, struct worker *worker,
                     uint32_t rank, uint64_t step, float *sum)
{
    static float gradients[N];
    static _Alignas(DPB_CACHE_LINE) unsigned char message[N * 8];
    const struct dpb_codec_part part = {.n = N,
                                        .step = step,
                                        .rank = rank,
                                        .n_workers = WORKERS,
                                        .velocity = worker->velocity,
                                        .added = worker->added};
    for (uint64_t i = 0; i < N; i++)
        gradients[i] = gradient(rank, step, i);
    const uint64_t bytes = ops->encode(options, &part, gradients, worker->residual, message);
    assert_true(bytes <= ops->bound(options, N));
    assert_int_equal(ops->decode(options, &part, message, bytes, sum), DPB_OK);
    return bytes;
}

static void expect_equal(const struct worker *worker, const float *sum, const double *plain)
{
    for (uint64_t i = 0; i < N; i++) {
        assert_true((double)sum[i] == plain[i]);
        assert_true((double)worker->residual[i] == worker->v[i]);
        assert_true((double)worker->velocity[i] == worker->u[i]);
    }
}

TEST(test_rule)
{
    static struct worker workers[WORKERS];
    _Alignas(16) char options[256] = {0};
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_CODEC, "topk", &plugin_host);
    const struct dpb_codec_ops *ops = plugin->ops;
    struct dpb_config *config = dpb_config_create();
    char all[][64] = {"comm.codec_ratio=0.004", "comm.codec_momentum=0.5",
                      "comm.codec_start_step=2", "comm.codec_warmup_steps=4"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_int_equal(dpb_config_assign(config, all[i], "test"), DPB_OK);
    assert_int_equal(
        dpb_options_parse_known(
            &(struct dpb_option_table){"comm", "topk", plugin->options, options}, config),
        DPB_OK);
    assert_true(plugin->options_size <= sizeof options && ops->velocity(options));
    for (uint64_t step = START + 1; step <= START + STEPS; step++) {
        float sum[N] = {0};
        double plain[N] = {0};
        for (uint32_t rank = 0; rank < WORKERS; rank++) {
            const uint64_t k = send_plainly(&workers[rank], rank, step, plain);
            assert_int_equal(send(ops, options, &workers[rank], rank, step, sum), 8 * k);
        }
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            expect_equal(&workers[rank], sum, plain);
    }
    dpb_config_destroy(config);
}

/* Lin et al. send 25 %, 6.25 %, 1.5625 % and 0.4 % in the epochs before 0.1 %. */
TEST(test_published_warmup)
{
    static const double published[] = {0.25, 0.0625, 0.015625, 0.004, 0.001, 0.001};
    enum { MANY = 100000 };
    static float gradients[MANY], residual[MANY];
    static _Alignas(DPB_CACHE_LINE) unsigned char message[MANY * 8];
    struct {
        struct dpb_codec_options base;
        double ratio, momentum;
        int64_t warmup_steps;
    } options = {.ratio = 0.001, .warmup_steps = 4};
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_CODEC, "topk", &plugin_host);
    const struct dpb_codec_ops *ops = plugin->ops;
    assert_int_equal(plugin->options_size, sizeof options);
    assert_false(ops->velocity(&options));
    for (uint64_t t = 1; t <= sizeof published / sizeof *published; t++) {
        const struct dpb_codec_part part = {.n = MANY, .step = t};
        const double bytes = (double)ops->encode(&options, &part, gradients, residual, message);
        assert_true(fabs(bytes / 8 / MANY / published[t - 1] - 1) < 0.02);
    }
}

TEST_MAIN(NULL, NULL)
