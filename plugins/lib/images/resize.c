/*
 * resize.c - rows of a decoded picture to a sample: bilinear, and antialiased where it shrinks: the
 * triangle is as wide as the step between two pixels of the sample, or as one pixel of the picture.
 * Two passes with weights in fixed point: rows are summed as they come, each sum is then stretched
 * from side to side and becomes a row of the sample. No more rows are kept than one sum needs.
 *
 * The loops are plain; the compiler vectorises them (the Makefile gives this file -O3). Arithmetic
 * is integer, so that a sample has the same bytes whichever instruction set did it.
 */
#include <math.h>

#include "images.h"

/* Bits after the point: of a weight, of a pixel between the passes (above a byte's own 8). */
enum { WEIGHT_BITS = 14, BETWEEN_BITS = 6 };
enum { SUM_SHIFT = WEIGHT_BITS - BETWEEN_BITS, OUT_SHIFT = WEIGHT_BITS + BETWEEN_BITS };

/* Taps are summed four at a time; weights of 0 fill up. */
enum { TAPS_AT_ONCE = 4 };

/* One pixel between the passes: red, green, blue, unused. */
typedef int32_t pixel __attribute__((vector_size(16)));

/* Along one axis: pixel i of the sample is the sum over k < n[i] of weights[i * taps + k] times
 * pixel start[i] + k of the picture. Starts never fall. */
struct axis {
    uint32_t to;        /* pixels of the sample */
    uint32_t taps;      /* room for the weights of one; those beyond n[i] are 0 */
    uint32_t slots;     /* the largest n[i] */
    uint32_t low, high; /* all taps lie in [low, high) */
    uint32_t *start, *n;
    int32_t *weights;
    struct buffer memory; /* of weights */
};

struct resizer {
    struct axis x, y;
    bool flip;
    uint32_t row_pixels; /* of a row of the region */
    uint32_t next_row;   /* of the region: the one that comes */
    uint32_t next_out;   /* row of the sample that is not yet made */
    uint8_t *rows;       /* a ring of y.slots rows, row r at r % y.slots */
    pixel *sum;          /* row_pixels, and x.taps that count nothing */
    uint8_t *sample;
    struct buffer memory; /* of rows and sum */
};

/* ---- weights ------------------------------------------------------------------------------- */

/* A stretch of `inner` (begin, length) over the axis, of pixels in [first, end) only. */
struct stretch {
    double begin, length;
    uint32_t first, end;
};

/* The weights of pixel i. Rounding goes along with the sum, so that they add up to 1 exactly. */
static void weigh(struct axis *axis, uint32_t i, double centre, double support)
{
    uint32_t start = axis->start[i], n = axis->n[i];
    int32_t *weights = axis->weights + (size_t)i * axis->taps;
    double slope = 1 / support, total = 0, so_far = 0;
    for (uint32_t k = 0; k < n; k++)
        total += fmax(0, 1 - fabs(start + k + 0.5 - centre) * slope);
    double unit = (1 << WEIGHT_BITS) / total;
    int32_t given = 0;
    for (uint32_t k = 0; k < n; k++) {
        so_far += fmax(0, 1 - fabs(start + k + 0.5 - centre) * slope);
        int32_t upto = k + 1 == n ? 1 << WEIGHT_BITS : (int32_t)(so_far * unit + 0.5);
        weights[k] = upto - given;
        given = upto;
    }
    for (uint32_t k = n; k < axis->taps; k++)
        weights[k] = 0;
}

static dpb_status prepare_axis(struct axis *axis, const struct stretch *stretch)
{
    double step = stretch->length / axis->to, support = step > 1 ? step : 1;
    uint32_t taps = 1;
    for (uint32_t i = 0; i < axis->to; i++) {
        double centre = stretch->begin + (i + 0.5) * step;
        double from = floor(centre - support + 0.5), until = floor(centre + support + 0.5);
        uint32_t first = from > stretch->first ? (uint32_t)from : stretch->first;
        uint32_t end = until < stretch->end ? (uint32_t)until : stretch->end;
        axis->start[i] = first < end ? first : end - 1;
        axis->n[i] = end - axis->start[i];
        taps = axis->n[i] > taps ? axis->n[i] : taps;
    }
    axis->slots = taps;
    axis->taps = (taps + TAPS_AT_ONCE - 1) / TAPS_AT_ONCE * TAPS_AT_ONCE;
    axis->low = axis->start[0];
    axis->high = axis->start[axis->to - 1] + axis->n[axis->to - 1];
    if (!buffer_reserve(&axis->memory, (size_t)axis->to * axis->taps * sizeof *axis->weights))
        return DPB_NO_MEMORY;
    axis->weights = (void *)axis->memory.bytes;
    for (uint32_t i = 0; i < axis->to; i++)
        weigh(axis, i, stretch->begin + (i + 0.5) * step, support);
    return DPB_OK;
}

/* ---- passes -------------------------------------------------------------------------------- */

/* sum += weighted rows, TAPS_AT_ONCE of them: the sum goes through memory once for all. */
DPB_CLONES static void add_rows(const uint8_t *const rows[TAPS_AT_ONCE],
                                const int32_t weights[TAPS_AT_ONCE], int32_t *restrict sum,
                                size_t n)
{
    const uint8_t *restrict a = rows[0], *restrict b = rows[1];
    const uint8_t *restrict c = rows[2], *restrict d = rows[3];
    int32_t wa = weights[0], wb = weights[1], wc = weights[2], wd = weights[3];
    for (size_t i = 0; i < n; i++)
        sum[i] += wa * a[i] + wb * b[i] + wc * c[i] + wd * d[i];
}

DPB_CLONES static void set_sum(int32_t *restrict sum, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = 1 << (SUM_SHIFT - 1);
}

DPB_CLONES static void shift_sum(int32_t *restrict sum, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] >>= SUM_SHIFT;
}

/* The rows of pixel i of y, weighted, to `sum`. */
static void sum_rows(struct resizer *resizer, uint32_t i)
{
    const struct axis *y = &resizer->y;
    size_t n = (size_t)resizer->row_pixels * DECODED_CHANNELS;
    const int32_t *weights = y->weights + (size_t)i * y->taps;
    int32_t *sum = (int32_t *)resizer->sum;
    set_sum(sum, n);
    for (uint32_t k = 0; k < y->n[i]; k += TAPS_AT_ONCE) {
        const uint8_t *rows[TAPS_AT_ONCE];
        for (uint32_t j = 0; j < TAPS_AT_ONCE; j++) {
            uint32_t tap = k + j < y->n[i] ? k + j : k; /* beyond the last the weight is 0 */
            rows[j] = resizer->rows + (y->start[i] + tap) % y->slots * n;
        }
        add_rows(rows, weights + k, sum, n);
    }
    shift_sum(sum, n);
}

/* A row of the sample from the sum. */
DPB_CLONES static void stretch_row(const struct axis *axis, bool flip, const pixel *sum,
                                   uint8_t *restrict out)
{
    size_t taps = axis->taps;
    for (uint32_t i = 0; i < axis->to; i++) {
        const pixel *from = sum + (axis->start[i] - axis->low);
        const int32_t *weights = axis->weights + (size_t)i * axis->taps;
        pixel total = {1 << (OUT_SHIFT - 1), 1 << (OUT_SHIFT - 1), 1 << (OUT_SHIFT - 1), 0};
        for (size_t k = 0; k < taps; k += TAPS_AT_ONCE) /* as many for all: no branch to miss */
            total += (from[k] * weights[k] + from[k + 1] * weights[k + 1]) +
                     (from[k + 2] * weights[k + 2] + from[k + 3] * weights[k + 3]);
        total >>= OUT_SHIFT;
        uint8_t *to = out + (size_t)(flip ? axis->to - 1 - i : i) * 3;
        to[0] = (uint8_t)total[0];
        to[1] = (uint8_t)total[1];
        to[2] = (uint8_t)total[2];
    }
}

static void make_row(struct resizer *resizer)
{
    const struct axis *x = &resizer->x;
    uint32_t i = resizer->next_out++;
    sum_rows(resizer, i);
    stretch_row(x, resizer->flip, resizer->sum, resizer->sample + (size_t)i * x->to * 3);
}

/* ---- a sample ------------------------------------------------------------------------------ */

void resizer_take(void *handle, const uint8_t *row)
{
    struct resizer *resizer = handle;
    const struct axis *y = &resizer->y;
    size_t row_bytes = (size_t)resizer->row_pixels * DECODED_CHANNELS;
    uint32_t r = resizer->next_row++;
    memcpy(resizer->rows + r % y->slots * row_bytes, row, row_bytes);
    while (resizer->next_out < y->to &&
           y->start[resizer->next_out] + y->n[resizer->next_out] <= r + 1)
        make_row(resizer);
}

/* Along one axis; of `whole` pixels there, whole * scale / 8 are left, rounded up. */
static struct stretch scaled(double inner, double inner_length, double outer, double outer_length,
                             uint32_t scale, uint32_t whole)
{
    double factor = scale / 8.0;
    uint32_t pixels = (uint32_t)(((uint64_t)whole * scale + 7) / 8);
    double end = ceil((outer + outer_length) * factor);
    return (struct stretch){.begin = inner * factor,
                            .length = inner_length * factor,
                            .first = (uint32_t)floor(outer * factor),
                            .end = end < pixels ? (uint32_t)end : pixels};
}

dpb_status resizer_begin(struct resizer *resizer, const struct crop *crop, uint32_t scale,
                         uint32_t w, uint32_t h, uint8_t *sample, struct region *region)
{
    const struct box *in = &crop->inner, *out = &crop->outer;
    struct stretch x = scaled(in->x, in->w, out->x, out->w, scale, w);
    struct stretch y = scaled(in->y, in->h, out->y, out->h, scale, h);
    DPB_TRY(prepare_axis(&resizer->x, &x));
    DPB_TRY(prepare_axis(&resizer->y, &y));
    resizer->sample = sample;
    resizer->flip = crop->flip;
    resizer->row_pixels = resizer->x.high - resizer->x.low;
    resizer->next_row = resizer->y.low;
    resizer->next_out = 0;
    size_t sum_bytes = ((size_t)resizer->row_pixels + resizer->x.taps) * sizeof(pixel);
    size_t rows_bytes = (size_t)resizer->y.slots * resizer->row_pixels * DECODED_CHANNELS;
    if (!buffer_reserve(&resizer->memory, sum_bytes + rows_bytes))
        return DPB_NO_MEMORY;
    resizer->sum = (void *)resizer->memory.bytes;
    resizer->rows = resizer->memory.bytes + sum_bytes;
    *region = (struct region){.scale = scale,
                              .x0 = resizer->x.low,
                              .x1 = resizer->x.high,
                              .y0 = resizer->y.low,
                              .y1 = resizer->y.high};
    return DPB_OK;
}

static bool create_axis(struct axis *axis, uint32_t to)
{
    axis->to = to;
    axis->start = image_host->alloc(to * sizeof *axis->start);
    axis->n = image_host->alloc(to * sizeof *axis->n);
    return axis->start && axis->n;
}

static void destroy_axis(struct axis *axis)
{
    image_host->release(axis->start, axis->to * sizeof *axis->start);
    image_host->release(axis->n, axis->to * sizeof *axis->n);
    buffer_release(&axis->memory);
}

void resizer_destroy(struct resizer *resizer)
{
    if (!resizer)
        return;
    destroy_axis(&resizer->x);
    destroy_axis(&resizer->y);
    buffer_release(&resizer->memory);
    image_host->release(resizer, sizeof *resizer);
}

struct resizer *resizer_create(struct dpb_shape to)
{
    struct resizer *resizer = image_host->alloc(sizeof *resizer);
    if (!resizer)
        return NULL;
    if (!create_axis(&resizer->x, to.w) || !create_axis(&resizer->y, to.h)) {
        resizer_destroy(resizer);
        return NULL;
    }
    return resizer;
}
