/* needs: cuda stand-in */
/*
 * test_cuda_codecs.c - the cuda device's kernels of codecs: messages, residuals, sums and state
 * have the bits of the codec on the host, and a hostile message is refused. On a CUDA for tests, or
 * on a GPU (lib/stand_in.h).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/options.h"
#include "dpbench/plugin.h"
#include "dpbench/random.h"
#include "lib/cuda_queue.h"
#include "lib/plugin.h"
#include "lib/session.h"
#include "lib/stand_in.h"
#include "lib/test.h"

enum { MOST = 9000, STEPS = 3, FIRST = 3 * MOST, WORKERS = 2 };

static struct cuda_queue opened;
static const struct dpb_queue_ops *ops;
static void *device;
static struct dpb_queue *queue;

static const struct row {
    const char *codec, *options[2];
    uint64_t n;
} rows[] = {
    {"int8", {NULL}, MOST},
    {"int8", {NULL}, 1},
    {"int8", {"comm.codec_rounding=stochastic"}, 2049},
    {"topk", {NULL}, 1},
    {"topk", {NULL}, MOST},
    {"topk", {"comm.codec_ratio=0.4"}, 1025},
    {"topk", {"comm.codec_ratio=1"}, 1024},
    {"topk", {"comm.codec_momentum=0.9", "comm.codec_warmup_steps=2"}, 5000},
    {"powersgd", {NULL}, MOST},
    {"powersgd", {"comm.codec_rank=1"}, 2604},
    {"powersgd", {"comm.codec_rank=16"}, MOST},
    {"powersgd", {NULL}, 1},
};
enum { N_ROWS = sizeof rows / sizeof *rows };

/* The part begins within a row of the first tensor, and ends within a row of the last or, of 2604
 * elements, between two. Between tensors gradients are not 0: that they are kept shows. */
static const struct dpb_tensor tensors[] = {
    {.n_dims = 2, .dims = {40, 37}, .n_elements = 1480, .offset = FIRST - 100},
    {.n_dims = 1, .dims = {61}, .n_elements = 61, .offset = FIRST + 1384},
    {.n_dims = 4, .dims = {16, 8, 3, 3}, .n_elements = 1152, .offset = FIRST + 1448},
    {.n_dims = 2, .dims = {3, 1100}, .n_elements = 3300, .offset = FIRST + 2608},
    {.n_dims = 2, .dims = {60, 64}, .n_elements = 3840, .offset = FIRST + 6000}};

/* The arrays of a part, on the host and on the device. */
enum { GRADIENTS, RESIDUAL, VELOCITY, ADDED, STATE, MESSAGE, SUM, ARRAYS };
static const char *const names[] = {"gradients", "residual", "velocity", "added",
                                    "state",     "message",  "sum"};

struct trial {
    struct dpb_config *config;
    _Alignas(16) char options[256];
    struct dpb_codec codec;
    void *host[ARRAYS], *device[ARRAYS], *room;
    uint32_t *refused;
};

static uint64_t bytes_of(int array)
{
    return array == MESSAGE ? MOST * 8 + 64 : MOST * sizeof(float);
}

static void trial_open(struct trial *trial, const struct row *row)
{
    void *pinned;
    memset(trial, 0, sizeof *trial);
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_CODEC, row->codec, &plugin_host);
    const struct dpb_option_table table = {
        .section = "comm", .rows = plugin->options, .values = trial->options};
    trial->config = dpb_config_create();
    for (int i = 0; i < 2 && row->options[i]; i++)
        expect_ok(dpb_config_assign(trial->config, row->options[i], "test"));
    expect_ok(dpb_options_parse_known(&table, trial->config));
    trial->codec = (struct dpb_codec){
        .name = row->codec, .ops = plugin->ops, .options = (const void *)trial->options};
    for (int i = 0; i < ARRAYS; i++) {
        trial->host[i] = plugin_host.alloc(bytes_of(i));
        expect_ok(ops->allocate(device, names[i], bytes_of(i), false, &trial->device[i]));
    }
    expect_ok(ops->allocate(device, "room", ops->coding_bytes(&trial->codec, MOST) + 1, false,
                            &trial->room));
    expect_ok(ops->pin(device, sizeof *trial->refused, &pinned));
    trial->refused = pinned;
}

static void trial_close(struct trial *trial)
{
    for (int i = 0; i < ARRAYS; i++) {
        plugin_host.release(trial->host[i], bytes_of(i));
        ops->release(device, trial->device[i]);
    }
    ops->release(device, trial->room);
    ops->unpin(device, trial->refused);
    dpb_config_destroy(trial->config);
}

/* Of a part in one of two places. */
static struct dpb_codec_part part_of(const struct row *row, void *const *arrays, uint64_t step)
{
    const bool velocity = row->options[0] && strstr(row->options[0], "momentum");
    struct dpb_codec_part part = {.first = FIRST,
                                  .n = row->n,
                                  .seed = 5,
                                  .step = step,
                                  .rank = 2,
                                  .n_workers = WORKERS,
                                  .state = arrays[STATE],
                                  .velocity = velocity ? arrays[VELOCITY] : NULL,
                                  .added = velocity ? arrays[ADDED] : NULL,
                                  .tensors = tensors};
    while (part.n_tensors < sizeof tensors / sizeof *tensors &&
           tensors[part.n_tensors].offset < part.first + part.n)
        part.n_tensors++;
    return part;
}

/* Every third number is one of a few: many magnitudes are equal. A block is 0, one is too small for
 * a scale. */
static float number(uint64_t step, uint64_t i)
{
    const struct dpb_random4 r =
        dpb_random(7, DPB_STREAM_EXCHANGE, (uint32_t)step, (uint32_t)i, 0, 0);
    if (i / 1024 == 2)
        return 0.0F;
    if (i / 1024 == 3)
        return 1e-40F;
    if (r.v[3] % 3 == 0)
        return (float)((int)(r.v[0] % 7) - 3);
    return (float)(int32_t)r.v[0] * 0x1p-31F * ldexpf(1.0F, -(int)(r.v[1] % 16));
}

static void expect_equal(const struct row *row, const struct trial *trial, int array,
                         uint64_t bytes)
{
    char *found = plugin_host.alloc(bytes + 1);
    expect_ok(ops->copy(queue, found, trial->device[array], bytes));
    for (uint64_t i = 0; i < bytes; i++)
        if (found[i] != ((const char *)trial->host[array])[i])
            fail_msg("%s %s, %llu elements: byte %llu of %s differs from the host's", row->codec,
                     row->options[0] ? row->options[0] : "", (unsigned long long)row->n,
                     (unsigned long long)i, names[array]);
    plugin_host.release(found, bytes + 1);
}

/* Encodes and decodes in both places; returns the bytes of the message. */
static uint64_t run_round(const struct trial *trial, const struct dpb_codec_part *host,
                          const struct dpb_codec_part *there)
{
    void *const *const at = trial->device;
    const struct dpb_codec_ops *codec = trial->codec.ops;
    uint64_t bytes = 0;
    expect_ok(ops->encode(queue, &trial->codec, there, at[GRADIENTS], at[RESIDUAL], at[MESSAGE],
                          trial->room, &bytes));
    expect_ok(ops->decode(queue, &trial->codec, there, at[MESSAGE], at[SUM], trial->refused));
    assert_true(bytes == codec->encode(trial->options, host, trial->host[GRADIENTS],
                                       trial->host[RESIDUAL], trial->host[MESSAGE]));
    expect_ok(codec->decode(trial->options, host, trial->host[MESSAGE], bytes, trial->host[SUM]));
    return bytes;
}

/* Both rounds of a codec of sums. As if the other workers had sent zeros. */
static void finish_rounds(const struct row *row, const struct trial *trial, uint64_t step,
                          bool spoilt)
{
    for (uint32_t round = 0; round < DPB_CODEC_ROUNDS; round++) {
        struct dpb_codec_part host = part_of(row, trial->host, step);
        struct dpb_codec_part there = part_of(row, trial->device, step);
        host.round = there.round = round;
        memset(trial->host[SUM], 0, bytes_of(SUM));
        expect_ok(ops->clear(queue, trial->device[SUM], bytes_of(SUM)));
        const uint64_t bytes = run_round(trial, &host, &there);
        if (!spoilt)
            expect_equal(row, trial, MESSAGE, bytes);
        expect_ok(ops->finish(queue, &trial->codec, &there, trial->device[SUM],
                              trial->device[GRADIENTS], trial->device[RESIDUAL]));
        trial->codec.ops->finish(trial->options, &host, trial->host[SUM], trial->host[GRADIENTS],
                                 trial->host[RESIDUAL]);
    }
}

/* A step in both places. `spoilt`: a block of gradients is not finite. */
static uint64_t pass(const struct row *row, struct trial *trial, uint64_t step, bool spoilt)
{
    const struct dpb_codec_part host = part_of(row, trial->host, step);
    const struct dpb_codec_part there = part_of(row, trial->device, step);
    float *gradients = trial->host[GRADIENTS];
    const uint64_t size = row->n * sizeof *gradients;
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < row->n; i++)
        gradients[i] = number(step, i);
    gradients[0] = spoilt ? INFINITY : gradients[0];
    expect_ok(ops->copy(queue, trial->device[GRADIENTS], gradients, size));
    if (trial->codec.ops->finish) {
        finish_rounds(row, trial, step, spoilt);
    } else {
        bytes = run_round(trial, &host, &there);
        expect_equal(row, trial, MESSAGE, bytes);
    }
    for (int array = 0; array < ARRAYS; array++)
        if (array != MESSAGE && !spoilt)
            expect_equal(row, trial, array, size);
    assert_int_equal(*trial->refused, 0);
    return bytes;
}

/* Factors that are not finite begin anew. */
static void pass_anew(const struct row *row, struct trial *trial, uint64_t step)
{
    memset(trial->host[RESIDUAL], 0, bytes_of(RESIDUAL));
    expect_ok(ops->clear(queue, trial->device[RESIDUAL], bytes_of(RESIDUAL)));
    pass(row, trial, step, false);
}

static void test_bits(void **state)
{
    const struct row *row = *state;
    struct trial trial;
    trial_open(&trial, row);
    for (uint64_t step = 1; step <= STEPS; step++)
        pass(row, &trial, step, false);
    if (!on_gpu() || trial.codec.ops->finish) /* a GPU's NaN has other bits */
        pass(row, &trial, STEPS + 1, true);
    if (trial.codec.ops->finish)
        pass_anew(row, &trial, STEPS + 2);
    trial_close(&trial);
}

/* Whatever the indices are, nothing behind the bucket is written. */
TEST(test_hostile_indices)
{
    static const uint32_t wrong[] = {5000, UINT32_MAX, 0}; /* the first index is not below 0 */
    static const struct row row = {"topk", {NULL}, 5000};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct trial trial;
        trial_open(&trial, &row);
        const struct dpb_codec_part part = part_of(&row, trial.device, 1);
        const uint64_t bytes = pass(&row, &trial, 1, false);
        memcpy((uint32_t *)trial.host[MESSAGE] + 7, &wrong[i], sizeof wrong[i]);
        expect_ok(ops->copy(queue, trial.device[MESSAGE], trial.host[MESSAGE], bytes));
        expect_ok(ops->decode(queue, &trial.codec, &part, trial.device[MESSAGE], trial.device[SUM],
                              trial.refused));
        expect_ok(ops->drain(queue));
        assert_int_equal(*trial.refused, part.rank + 1);
        memset(trial.host[SUM], 0, bytes_of(SUM));
        expect_ok(ops->copy(queue, trial.host[SUM], trial.device[SUM], bytes_of(SUM)));
        for (uint64_t at = row.n; at < MOST; at++)
            assert_true(((const float *)trial.host[SUM])[at] == 0.0F);
        trial_close(&trial);
    }
}

TEST(test_no_kernels)
{
    const struct dpb_codec codec = {.name = "onebit"};
    const struct dpb_codec_part part = {.n = 1};
    uint64_t bytes;
    assert_true(ops->coding_bytes(&codec, 1) == UINT64_MAX);
    dpb_first_error_clear();
    assert_int_equal(ops->encode(queue, &codec, &part, NULL, NULL, NULL, NULL, &bytes),
                     DPB_UNSUPPORTED);
    assert_int_equal(ops->decode(queue, &codec, &part, NULL, NULL, NULL), DPB_UNSUPPORTED);
    assert_non_null(strstr(dpb_first_error(NULL), "no kernels for codec onebit"));
    dpb_first_error_clear();
}

static int setup(void **state)
{
    (void)state;
    cuda_queue_open(0, &opened);
    ops = opened.arenas.ops;
    device = opened.arenas.device;
    queue = opened.queue;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cuda_queue_close(&opened);
    return 0;
}

int main(void)
{
    for (size_t i = 0; i < N_ROWS; i++)
        add_case(test_bits, (void *)&rows[i], "%s %s, %llu elements: the host's bits",
                 rows[i].codec, rows[i].options[0] ? rows[i].options[0] : "",
                 (unsigned long long)rows[i].n);
    return test_main(setup, teardown);
}
