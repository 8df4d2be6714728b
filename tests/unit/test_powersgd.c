/*
 * test_powersgd.c - codec powersgd over several workers and steps against the rule in float64, with
 * matrices written out whole: what is decoded, what stays in the residuals, what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/options.h"
#include "dpbench/random.h"
#include "lib/plugin.h"
#include "lib/test.h"

enum { WORKERS = 3, STEPS = 4, FIRST = 1000, MOST = 4000, STATE = 4000 };

/* The part begins within a row of the first tensor and ends within a row of the last. */
static const struct dpb_tensor tensors[] = {
    {.n_dims = 2, .dims = {40, 37}, .n_elements = 1480, .offset = 900},
    {.n_dims = 1, .dims = {61}, .n_elements = 61, .offset = 2384},
    {.n_dims = 4, .dims = {16, 8, 3, 3}, .n_elements = 1152, .offset = 2448},
    {.n_dims = 2, .dims = {50, 64}, .n_elements = 3200, .offset = 3600}};
enum { N_TENSORS = sizeof tensors / sizeof *tensors };

struct world {
    const struct dpb_codec_ops *ops;
    struct dpb_config *config;
    _Alignas(16) char options[256];
    struct dpb_codec_part part;
    float gradients[WORKERS][MOST], residuals[WORKERS][MOST];
    float state[WORKERS][STATE];
    _Alignas(DPB_CACHE_LINE) float messages[WORKERS][MOST];
    uint64_t n_message[DPB_CODEC_ROUNDS];
};

static struct world *open_world(int rank)
{
    char assignment[64];
    const struct dpb_plugin *plugin = plugin_load(DPB_PLUGIN_CODEC, "powersgd", &plugin_host);
    struct world *world = aligned_alloc(DPB_CACHE_LINE, sizeof *world);
    assert_non_null(world);
    memset(world, 0, sizeof *world);
    const struct dpb_option_table table = {
        .section = "comm", .rows = plugin->options, .values = world->options};
    snprintf(assignment, sizeof assignment, "comm.codec_rank=%d", rank);
    world->ops = plugin->ops;
    world->config = dpb_config_create();
    assert_int_equal(dpb_config_assign(world->config, assignment, "test"), DPB_OK);
    assert_int_equal(dpb_options_parse_known(&table, world->config), DPB_OK);
    world->part = (struct dpb_codec_part){.first = FIRST,
                                          .n = MOST,
                                          .seed = 5,
                                          .n_workers = WORKERS,
                                          .tensors = tensors,
                                          .n_tensors = N_TENSORS};
    assert_true(world->ops->state(world->options, &world->part) <= STATE);
    return world;
}

static void close_world(struct world *world)
{
    dpb_config_destroy(world->config);
    free(world);
}

/* A round of all workers: `sum` of the messages, then `finish`. */
static void run_round(struct world *world, uint32_t round)
{
    static float sum[MOST];
    struct dpb_codec_part part = world->part;
    part.round = round;
    const uint64_t bytes = world->ops->bytes(world->options, &part);
    world->n_message[round] = bytes / sizeof(float);
    memset(sum, 0, sizeof sum);
    for (uint32_t w = 0; w < WORKERS; w++) {
        part.rank = w;
        part.state = world->state[w];
        assert_int_equal(world->ops->encode(world->options, &part, world->gradients[w],
                                            world->residuals[w], world->messages[w]),
                         bytes);
        assert_int_equal(world->ops->decode(world->options, &part, world->messages[w], bytes, sum),
                         DPB_OK);
    }
    for (uint32_t w = 0; w < WORKERS; w++) {
        part.rank = w;
        part.state = world->state[w];
        world->ops->finish(world->options, &part, sum, world->gradients[w], world->residuals[w]);
    }
}

/* Steps count from 1. All workers end with the same sum and state, bit for bit. */
static void run_step(struct world *world)
{
    world->part.step++;
    run_round(world, 0);
    run_round(world, 1);
    for (uint32_t w = 1; w < WORKERS; w++) {
        assert_memory_equal(world->gradients[w], world->gradients[0], sizeof world->gradients[0]);
        assert_memory_equal(world->state[w], world->state[0], sizeof world->state[0]);
    }
}

/* Between tensors gradients are 0. */
static void fill(struct world *world, uint32_t step)
{
    memset(world->gradients, 0, sizeof world->gradients);
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint32_t t = 0; t < N_TENSORS; t++)
            for (uint64_t i = 0; i < tensors[t].n_elements; i++) {
                const struct dpb_random4 r =
                    dpb_random(3, DPB_STREAM_EXCHANGE, w, step, t, (uint32_t)i);
                const uint64_t at = tensors[t].offset + i;
                if (at >= FIRST && at < FIRST + MOST)
                    world->gradients[w][at - FIRST] = (float)(int32_t)r.v[0] * 0x1p-40F;
            }
}

/* ---- the rule in float64 ------------------------------------------------------------------- */

enum { SIDE = 128 };

/* Tensor t's part of an array of the part, as rows x columns; elements that it lacks are 0. */
struct whole {
    uint64_t rows, columns, row; /* its first row in the tensor */
    double element[SIDE][SIDE];
};

static int64_t place_of(const struct whole *m, uint32_t t, uint64_t i, uint64_t j)
{
    const int64_t at =
        (int64_t)(tensors[t].offset + (m->row + i) * m->columns + j) - (int64_t)FIRST;
    const bool within = (m->row + i) * m->columns + j < tensors[t].n_elements;
    return within && at >= 0 && at < MOST ? at : -1;
}

static void shape(struct whole *m, uint32_t t)
{
    const uint64_t begin = tensors[t].offset, end = begin + tensors[t].n_elements;
    m->columns = tensors[t].n_elements / tensors[t].dims[0];
    m->row = begin < FIRST ? (FIRST - begin) / m->columns : 0;
    const uint64_t last = (end < FIRST + MOST ? end : FIRST + MOST) - 1;
    m->rows = (last - begin) / m->columns - m->row + 1;
}

static void read_whole(struct whole *m, uint32_t t, const float *gradients, const double *residual)
{
    for (uint64_t i = 0; i < m->rows; i++)
        for (uint64_t j = 0; j < m->columns; j++) {
            const int64_t at = place_of(m, t, i, j);
            m->element[i][j] = at < 0 ? 0 : (double)gradients[at] + residual[at];
        }
}

static void orthogonalise(double columns[][SIDE], uint64_t n, uint64_t rank)
{
    for (uint64_t k = 0; k < rank; k++)
        for (uint64_t j = 0; j <= k; j++) {
            double product = 0;
            for (uint64_t i = 0; i < n; i++)
                product += columns[j][i] * columns[k][i];
            for (uint64_t i = 0; i < n; i++)
                columns[k][i] =
                    j < k ? columns[k][i] - product * columns[j][i] : columns[k][i] / sqrt(product);
        }
}

/* *sum: P Q^T of the power iteration that begins with q, which becomes Q. */
static void iterate(const struct whole *sum, uint64_t rank, double q[][SIDE], struct whole *decoded)
{
    static double p[SIDE][SIDE];
    memset(p, 0, sizeof p);
    for (uint64_t k = 0; k < rank; k++)
        for (uint64_t i = 0; i < sum->rows; i++)
            for (uint64_t j = 0; j < sum->columns; j++)
                p[k][i] += sum->element[i][j] * q[k][j];
    orthogonalise(p, sum->rows, rank);
    memset(q, 0, rank * sizeof *q);
    *decoded = *sum;
    for (uint64_t i = 0; i < sum->rows; i++)
        for (uint64_t j = 0; j < sum->columns; j++)
            for (uint64_t k = 0; k < rank; k++)
                q[k][j] += sum->element[i][j] * p[k][i];
    for (uint64_t i = 0; i < sum->rows; i++)
        for (uint64_t j = 0; j < sum->columns; j++) {
            decoded->element[i][j] = 0;
            for (uint64_t k = 0; k < rank; k++)
                decoded->element[i][j] += p[k][i] * q[k][j];
        }
}

/* The state of the rule: Q of each tensor, residuals of each worker. */
struct rule {
    double q[N_TENSORS][SIDE][SIDE], residuals[WORKERS][MOST], decoded[MOST];
    uint64_t ranks[N_TENSORS];
};

static void step_of_rule(struct rule *rule, const struct world *world)
{
    static struct whole one[WORKERS], sum, decoded;
    memset(rule->decoded, 0, sizeof rule->decoded);
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        shape(&sum, t);
        memset(sum.element, 0, sizeof sum.element);
        for (uint32_t w = 0; w < WORKERS; w++) {
            shape(&one[w], t);
            read_whole(&one[w], t, world->gradients[w], rule->residuals[w]);
            for (uint64_t i = 0; i < sum.rows; i++)
                for (uint64_t j = 0; j < sum.columns; j++)
                    sum.element[i][j] += one[w].element[i][j];
        }
        decoded = sum;
        if (rule->ranks[t] > 0)
            iterate(&sum, rule->ranks[t], rule->q[t], &decoded);
        for (uint64_t i = 0; i < sum.rows; i++)
            for (uint64_t j = 0; j < sum.columns; j++) {
                const int64_t at = place_of(&sum, t, i, j);
                for (uint32_t w = 0; w < WORKERS && at >= 0; w++)
                    rule->residuals[w][at] =
                        rule->ranks[t] == 0
                            ? 0
                            : one[w].element[i][j] - decoded.element[i][j] / WORKERS;
                if (at >= 0)
                    rule->decoded[at] = decoded.element[i][j];
            }
    }
}

/* The codec's first Q, which is random. It is the first of each matrix in the state; P follows. */
static void take_first_q(struct rule *rule, const struct world *world, uint64_t rank)
{
    const float *q = world->state[0];
    struct whole m;
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        shape(&m, t);
        rule->ranks[t] = tensors[t].n_dims > 1 ? rank : 0;
        for (uint64_t k = 0; k < rule->ranks[t]; k++)
            for (uint64_t j = 0; j < m.columns; j++) {
                rule->q[t][k][j] = (double)q[k * m.columns + j];
                assert_true(rule->q[t][k][j] != 0);
            }
        q += rule->ranks[t] * (m.columns + m.rows);
    }
    assert_int_equal(q - world->state[0], world->ops->state(world->options, &world->part));
}

static double largest_of(const struct world *world)
{
    double largest = 0;
    for (uint32_t w = 0; w < WORKERS; w++)
        for (uint64_t i = 0; i < MOST; i++)
            largest = fmax(largest,
                           fabs((double)world->gradients[w][i] + (double)world->residuals[w][i]));
    return largest;
}

/* ---- the tests ----------------------------------------------------------------------------- */

/* Each step begins with the factor and the residuals of the step before. */
TEST(test_rule)
{
    static const int ranks[] = {1, 2, 4};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        struct world *world = open_world(ranks[r]), *first = open_world(ranks[r]);
        struct rule *rule = calloc(1, sizeof *rule);
        assert_non_null(rule);
        fill(first, 0);
        first->part.step = 1;
        run_round(first, 0);
        take_first_q(rule, first, (uint64_t)ranks[r]);
        for (uint32_t step = 0; step < STEPS; step++) {
            fill(world, step);
            const double largest = largest_of(world) * WORKERS;
            step_of_rule(rule, world);
            run_step(world);
            for (uint64_t i = 0; i < MOST; i++) {
                assert_true(fabs((double)world->gradients[0][i] - rule->decoded[i]) <=
                            1e-5 * largest);
                for (uint32_t w = 0; w < WORKERS; w++)
                    assert_true(fabs((double)world->residuals[w][i] - rule->residuals[w][i]) <=
                                1e-5 * largest);
            }
        }
        assert_int_equal(world->n_message[0], ranks[r] * (38 + 16 + 22));
        assert_int_equal(world->n_message[1], ranks[r] * (37 + 72 + 64) + 61);
        free(rule);
        close_world(first);
        close_world(world);
    }
}

/* Where factors would not be smaller, all goes raw: nothing is lost. A matrix of rank r or less
 * comes through whole, in the first step. */
TEST(test_nothing_lost)
{
    static const int ranks[] = {1024, 12, 3};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
        struct world *world = open_world(ranks[r]);
        static double sum[MOST];
        fill(world, 0);
        for (uint32_t w = 0; w < WORKERS && ranks[r] < 1024; w++) /* an outer product a worker */
            for (uint32_t t = 0; t < N_TENSORS; t++)
                for (uint64_t i = 0; i < tensors[t].n_elements; i++) {
                    const uint64_t columns = tensors[t].n_elements / tensors[t].dims[0];
                    const uint64_t at = tensors[t].offset + i - FIRST;
                    /* The rows that the part cuts are zeros: what is left has rank 1, too. */
                    const bool cut = i / columns < 3 || i / columns == 21;
                    if (at < MOST && columns > 1)
                        world->gradients[w][at] = cut ? 0.0F
                                                      : sinf((float)(i / columns * (w + 1))) *
                                                            cosf((float)(i % columns * (w + 2)));
                }
        memset(sum, 0, sizeof sum);
        for (uint32_t w = 0; w < WORKERS; w++)
            for (uint64_t i = 0; i < MOST; i++)
                sum[i] += (double)world->gradients[w][i];
        const double largest = largest_of(world) * WORKERS;
        run_step(world);
        for (uint64_t i = 0; i < MOST; i++)
            assert_true(fabs((double)world->gradients[0][i] - sum[i]) <= 1e-5 * largest);
        close_world(world);
    }
}

/* A step that is not finite leaves no trace in the factors; a step of zeros is one of zeros. */
TEST(test_begins_anew)
{
    struct world *world = open_world(2);
    fill(world, 0);
    world->gradients[1][5] = NAN;
    run_step(world);
    assert_true(isnan(world->gradients[0][5]));
    memset(world->residuals, 0, sizeof world->residuals);
    memset(world->gradients, 0, sizeof world->gradients);
    run_step(world);
    for (uint64_t i = 0; i < MOST; i++)
        assert_true(world->gradients[0][i] == 0 && world->residuals[0][i] == 0);
    fill(world, 1);
    run_step(world);
    double square = 0;
    for (uint64_t i = 0; i < MOST; i++)
        square += pow((double)world->gradients[0][i], 2);
    assert_true(isfinite(square) && square > 0);
    close_world(world);
}

TEST(test_lengths)
{
    struct world *world = open_world(2);
    fill(world, 0);
    run_step(world);
    for (uint32_t round = 0; round < DPB_CODEC_ROUNDS; round++) {
        const uint64_t bytes = world->n_message[round] * sizeof(float);
        const uint64_t lengths[] = {0, bytes - 1, bytes + 4, UINT64_MAX};
        struct dpb_codec_part part = world->part;
        part.round = round;
        part.rank = 2;
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            dpb_status status = world->ops->decode(world->options, &part, world->messages[0],
                                                   lengths[i], world->gradients[0]);
            assert_int_not_equal(status, DPB_OK);
            assert_non_null(strstr(dpb_first_error(&status), "codec powersgd: rank 2 sent"));
            dpb_first_error_clear();
        }
    }
    close_world(world);
}

TEST_MAIN(NULL, NULL)
