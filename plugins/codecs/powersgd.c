/*
 * powersgd - a matrix of gradients as the product of two factors of rank r: a step of the power
 * iteration that begins with the factor of the step before.
 *
 *     round 0   send P = M Q                  sum over the workers, orthogonalised (Gram-Schmidt)
 *     round 1   send Q = M^T P, vectors raw   sum over the workers
 *     decoded   P Q^T                         residual = M - P Q^T / W
 *
 * M is gradients + residual. Its rows are the first dimension of a tensor; its columns are all
 * others. Where a bucket cuts a tensor, each part is a matrix of its own, with zeros for the
 * elements that its first and last rows lack. A part goes raw if its factors are not smaller.
 *
 * Q of the step before is orthogonalised, too: the same P, with fewer roundings. A column of Q that
 * is zero or not finite begins anew from random numbers, as in the first step.
 *
 * Messages: in the order of the tensors, each factor column by column. Round 0: P of all matrices.
 * Round 1: Q of all matrices, and the elements of the parts that go raw.
 *
 * Vogels, Karimireddy, Jaggi: PowerSGD: Practical low-rank gradient compression for distributed
 * optimization. NeurIPS 2019.
 */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "codecs/message.h"
#include "codecs/powersgd.h"
#include "dpbench/random.h"

enum { CHUNK = POWERSGD_CHUNK, LANES = POWERSGD_LANES };

static const struct dpb_host *host;

static const struct dpb_option option_rows[] = {
    DPB_CODEC_OPTION_ROWS,
    {"codec_rank", DPB_OPT_INT, NULL, "2", 1, 1024, NULL, offsetof(struct powersgd_options, rank),
     "r: columns of the two factors that stand for a matrix", NULL},
    {0}};

/* ---- the rows of a matrix ------------------------------------------------------------------- */

/* A row, or a piece of a long one. */
struct run {
    uint64_t at, n; /* in the part */
    uint64_t row, column;
};

/* *run: the piece behind it, from m->at on. False: there is none. */
static bool next_run(const struct powersgd_matrix *m, struct run *run)
{
    run->at += run->n;
    const uint64_t place = m->lacks + run->at - m->at, left = m->at + m->n - run->at;
    run->row = place / m->columns;
    run->column = place % m->columns;
    run->n = m->columns - run->column;
    run->n = run->n < left ? run->n : left;
    run->n = run->n < CHUNK ? run->n : CHUNK;
    return left > 0;
}

/* ---- arithmetic ---------------------------------------------------------------------------- */

/* In an order that does not depend on the instruction set (powersgd.h). */
DPB_CLONES static float dot(const float *restrict a, const float *restrict b, uint64_t n)
{
    float sums[LANES] = {0}, sum = 0;
    for (uint64_t at = 0; at < n / LANES * LANES; at += LANES)
        for (uint64_t l = 0; l < LANES; l++)
            sums[l] += a[at + l] * b[at + l];
    for (uint64_t i = n / LANES * LANES; i < n; i++)
        sum += a[i] * b[i];
    for (uint64_t l = 0; l < LANES; l++)
        sum += sums[l];
    return sum;
}

DPB_CLONES static void add(const float *restrict a, const float *restrict b, float *restrict to,
                           uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] = a[i] + b[i];
}

DPB_CLONES static void add_times(const float *restrict a, float factor, float *restrict to,
                                 uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        to[i] += factor * a[i];
}

/* gradients and residual <- decoded, gradients + residual - share x decoded. */
DPB_CLONES static void settle(const float *restrict decoded, float share, float *restrict gradients,
                              float *restrict residual, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        residual[i] += gradients[i] - share * decoded[i];
        gradients[i] = decoded[i];
    }
}

/* The largest magnitude: NaN where one is. */
static float largest_of(const float *column, uint64_t n)
{
    float largest = 0;
    for (uint64_t i = 0; i < n && !isnan(largest); i++)
        largest = fabsf(column[i]) <= largest ? largest : fabsf(column[i]);
    return largest;
}

/* Scales a column to length 1, unless all of it is 0. Squares of small numbers would be 0. */
static void normalise(float *column, uint64_t n)
{
    const float largest = largest_of(column, n);
    if (largest == 0)
        return;
    for (uint64_t i = 0; i < n; i++)
        column[i] /= largest;
    const float length = sqrtf(dot(column, column, n));
    for (uint64_t i = 0; i < n; i++)
        column[i] /= length;
}

/* Gram-Schmidt; twice, since a column may be mostly rounding after the first pass. */
static void orthogonalise(float *columns, uint64_t n, uint64_t rank)
{
    for (uint64_t k = 0; k < rank; k++) {
        float *column = columns + k * n;
        normalise(column, n);
        for (int pass = 0; pass < 2; pass++) {
            for (uint64_t j = 0; j < k; j++)
                add_times(columns + j * n, -dot(columns + j * n, column, n), column, n);
            normalise(column, n);
        }
    }
}

/* Q as the step before has left it, or at random: the same on all workers. */
static void begin_q(const struct dpb_codec_part *part, const struct powersgd_matrix *m,
                    float *columns)
{
    for (uint64_t k = 0; k < m->rank; k++) {
        float *q = columns + k * m->columns;
        const float largest = largest_of(q, m->columns);
        for (uint64_t j = 0; j < m->columns && !(largest > 0 && isfinite(largest)); j++) {
            const struct dpb_random4 r =
                dpb_random(part->seed, DPB_STREAM_CODEC, (uint32_t)k, (uint32_t)part->step,
                           (uint32_t)(part->step >> 32), (uint32_t)(part->first + m->at + j));
            q[j] = (float)(int32_t)r.v[0];
        }
    }
    orthogonalise(columns, m->columns, m->rank);
}

/* ---- a matrix ------------------------------------------------------------------------------ */

/* P = M Q, or Q = M^T P, into the message. */
static void multiply(const struct dpb_codec_part *part, const struct powersgd_matrix *m,
                     const float *gradients, const float *residual, float *message)
{
    const float *q = part->state + m->in_state, *p = q + m->columns * m->rank;
    struct run run = {.at = m->at};
    memset(message, 0, powersgd_elements(m, part->round) * sizeof *message);
    while (next_run(m, &run)) {
        float values[CHUNK];
        add(gradients + run.at, residual + run.at, values, run.n);
        for (uint64_t k = 0; k < m->rank && part->round == 0; k++)
            message[k * m->rows + run.row] += dot(values, q + k * m->columns + run.column, run.n);
        for (uint64_t k = 0; k < m->rank && part->round == 1; k++)
            add_times(values, p[k * m->rows + run.row], message + k * m->columns + run.column,
                      run.n);
    }
}

/* The sum of P, orthogonalised, or of Q becomes state. */
static void take_factor(const struct dpb_codec_part *part, const struct powersgd_matrix *m,
                        const float *sum)
{
    float *q = part->state + m->in_state, *p = q + m->columns * m->rank;
    memcpy(part->round == 0 ? p : q, sum, powersgd_elements(m, part->round) * sizeof *sum);
    if (part->round == 0)
        orthogonalise(p, m->rows, m->rank);
}

/* D = P Q^T, with the sum of Q. */
static void decode_matrix(const struct dpb_codec_part *part, const struct powersgd_matrix *m,
                          const float *sum, float *gradients, float *residual)
{
    const float share = 1.0F / (float)part->n_workers;
    const float *p = part->state + m->in_state + m->columns * m->rank;
    struct run run = {.at = m->at};
    while (next_run(m, &run)) {
        float values[CHUNK] = {0};
        for (uint64_t k = 0; k < m->rank; k++)
            add_times(sum + k * m->columns + run.column, p[k * m->rows + run.row], values, run.n);
        settle(values, share, gradients + run.at, residual + run.at, run.n);
    }
}

/* ---- hooks --------------------------------------------------------------------------------- */

static uint64_t powersgd_bound(const void *options, uint64_t n)
{
    (void)options;
    return n * sizeof(float); /* factors are smaller than their matrix */
}

static uint64_t powersgd_state(const void *options, const struct dpb_codec_part *part)
{
    struct powersgd_matrix m;
    powersgd_end(options, part, &m);
    return m.in_state;
}

static uint64_t powersgd_bytes(const void *options, const struct dpb_codec_part *part)
{
    return powersgd_message_bytes(options, part);
}

static uint64_t powersgd_encode(const void *options, const struct dpb_codec_part *part,
                                const float *gradients, float *residual, void *message_)
{
    float *message = message_;
    struct powersgd_matrix m = {0};
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        powersgd_next(options, part, i, &m);
        float *to = message + m.in_message[part->round];
        if (m.rank > 0 && part->round == 0)
            begin_q(part, &m, part->state + m.in_state);
        if (m.rank > 0)
            multiply(part, &m, gradients, residual, to);
        else if (part->round == 1)
            add(gradients + m.at, residual + m.at, to, m.n);
    }
    return powersgd_bytes(options, part);
}

static dpb_status powersgd_decode(const void *options, const struct dpb_codec_part *part,
                                  const void *message, uint64_t bytes, float *sum)
{
    const float *elements = message;
    DPB_TRY(message_check_length(host, "powersgd", part, bytes, powersgd_bytes(options, part)));
    for (uint64_t i = 0; i < bytes / sizeof *elements; i++)
        sum[i] += elements[i];
    return DPB_OK;
}

/* Elements between tensors are 0: should a carrier leave others there, they are kept. */
static void keep(float *gradients, float *residual, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        residual[i] += gradients[i];
        gradients[i] = 0.0F;
    }
}

static void powersgd_finish(const void *options, const struct dpb_codec_part *part,
                            const float *sum, float *gradients, float *residual)
{
    struct powersgd_matrix m = {0};
    uint64_t at = 0;
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        powersgd_next(options, part, i, &m);
        const float *factor = sum + m.in_message[part->round];
        if (m.rank > 0)
            take_factor(part, &m, factor);
        if (part->round == 0)
            continue;
        keep(gradients, residual, at, m.at);
        at = m.at + m.n;
        if (m.rank > 0) {
            decode_matrix(part, &m, factor, gradients, residual);
            continue;
        }
        memcpy(gradients + m.at, factor, m.n * sizeof *factor);
        memset(residual + m.at, 0, m.n * sizeof *residual);
    }
    if (part->round == 1)
        keep(gradients, residual, at, part->n);
}

static const struct dpb_codec_ops powersgd_ops = {.bound = powersgd_bound,
                                                  .encode = powersgd_encode,
                                                  .decode = powersgd_decode,
                                                  .state = powersgd_state,
                                                  .bytes = powersgd_bytes,
                                                  .finish = powersgd_finish};

static const struct dpb_plugin powersgd = {
    DPB_PLUGIN_HEAD(CODEC, powersgd_ops),
    .name = "powersgd",
    .version = DPB_VERSION,
    .summary = "matrices as two factors of low rank, summed over the workers",
    .options = option_rows,
    .options_size = sizeof(struct powersgd_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &powersgd;
}
