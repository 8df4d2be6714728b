/*
 * image_conv.c - the weight gradient of a convolution that reads the images themselves: few input
 * channels, and as many terms to a sum as the batch has pixels. oneDNN makes these sums in one fp32
 * chain, which for VGG's first layer is off by 4e-5 of the magnitude with 16 images. Here a chain
 * is one row of pixels; rows and images are added up in fp64.
 *
 * A 1x1 convolution with a stride and few channels comes here, too (ops_conv.c).
 *
 * A row of an image is laid out with its padding, so that the taps of a kernel's row (its columns
 * times the channels) lie side by side; each is multiplied with vectors of output channels
 * (image_row.inc). Images are work for threads: results do not depend on their number.
 */
#include "ops.h"
#include "inner.h"

enum { TAPS = 3 /* at a time */, VECTORS = 4 /* likewise */, LINE = 16 /* floats */ };

/* Sizes in floats, but where it says otherwise. */
struct layout {
    size_t taps;        /* of a row of the kernel */
    size_t step;        /* from one output pixel's taps to the next one's */
    size_t channels;    /* of the output, a multiple of LINE */
    size_t input_row;   /* an image's row with its padding */
    size_t output_row;  /* of the gradient */
    size_t sums;        /* of a whole kernel, [row][tap][channel]; in doubles */
    size_t image_bytes; /* of working space for an image */
};

static struct layout layout_of(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    const struct dpb_shape in = cpu_input(p, node, 0)->shape;
    struct layout l = {.taps = (size_t)w->kernel_w * in.c,
                       .step = (size_t)w->stride_w * in.c,
                       .channels = rounded_up(node->shape.c, LINE)};
    l.input_row = rounded_up(((size_t)in.w + w->pad_left + w->pad_right) * in.c, LINE);
    l.output_row = node->shape.w * l.channels;
    l.sums = w->kernel_h * l.taps * l.channels;
    l.image_bytes = (l.input_row + l.output_row + l.taps * l.channels) * sizeof(float) +
                    l.sums * sizeof(double);
    return l;
}

/* ------------------------------------------------------------------------------------- a row */

#define LANES 8
#define NAME(verb) verb##_8
#define ROW_KERNEL KERNEL
#include "image_row.inc"

#if defined(__x86_64__) && defined(__GNUC__)
#define LANES 16
#define NAME(verb) verb##_16
#define ROW_KERNEL __attribute__((target("avx512f"))) static
#include "image_row.inc"
#endif

static void multiply_row(const float *x, const float *dy, const struct layout *l, size_t pixels,
                         float *sums)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) {
        multiply_row_16(x, dy, l, pixels, sums);
        return;
    }
#endif
    multiply_row_8(x, dy, l, pixels, sums);
}

KERNEL void widen(const struct tensor *tensor, bool bf16, size_t first, size_t n, float *to)
{
    const uint16_t *halves = (const uint16_t *)tensor->data + first;
    const float *values = (const float *)tensor->data + first;
    if (!bf16) {
        memcpy(to, values, n * sizeof *to);
        return;
    }
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        to[i] = dpb_bf16_to_fp32(halves[i]);
}

KERNEL void add_row(const float *row, size_t n, double *sums)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        sums[i] += (double)row[i];
}

/* ---------------------------------------------------------------------------- images, the batch */

static void sum_image(const struct program *p, const struct step *step, const struct layout *l,
                      size_t image)
{
    const struct dpb_node *node = step->node;
    const struct dpb_window *w = &node->window;
    const struct dpb_shape in = cpu_input(p, node, 0)->shape, out = node->shape;
    const bool bf16 = p->type == dnnl_bf16;
    double *sums = (double *)(void *)((char *)step->aux->data + image * l->image_bytes);
    float *row = (float *)(sums + l->sums), *dy = row + l->taps * l->channels;
    float *x = dy + l->output_row;
    memset(sums, 0, l->image_bytes);
    for (uint32_t oy = 0; oy < out.h; oy++) {
        const size_t first = (image * out.h + oy) * out.w;
        for (uint32_t ox = 0; ox < out.w; ox++)
            widen(step->also[USE_PART], bf16, (first + ox) * out.c, out.c, dy + ox * l->channels);
        for (uint32_t ky = 0; ky < w->kernel_h; ky++) {
            const size_t iy =
                (size_t)oy * w->stride_h + ky - w->pad_top; /* wraps above the image */
            if (iy >= in.h)
                continue;
            widen(step->from, bf16, (image * in.h + iy) * in.w * in.c, (size_t)in.w * in.c,
                  x + w->pad_left * in.c);
            multiply_row(x, dy, l, out.w, row);
            add_row(row, l->taps * l->channels, sums + ky * l->taps * l->channels);
        }
    }
}

static void sum_batch(const struct program *p, const struct step *step)
{
    const struct layout l = layout_of(p, step->node);
    const struct dpb_window *w = &step->node->window;
    const uint32_t images = p->args.batch, from = cpu_input(p, step->node, 0)->shape.c;
    const uint32_t to = step->node->shape.c;
    float *gradient = step->to->data;
#pragma omp parallel for
    for (uint32_t i = 0; i < images; i++)
        sum_image(p, step, &l, i);
#pragma omp parallel for
    for (uint32_t o = 0; o < to; o++) {
        for (uint32_t k = 0; k < from * w->kernel_h * w->kernel_w; k++) {
            const uint32_t c = k / (w->kernel_h * w->kernel_w);
            const uint32_t ky = k / w->kernel_w % w->kernel_h, kx = k % w->kernel_w;
            const size_t at = (ky * l.taps + kx * from + c) * l.channels + o;
            double sum = 0.0;
            for (uint32_t i = 0; i < images; i++)
                sum += ((const double *)(const void *)((const char *)step->aux->data +
                                                       i * l.image_bytes))[at];
            gradient[(size_t)o * from * w->kernel_h * w->kernel_w + k] = (float)sum;
        }
    }
}

bool cpu_reads_images(const struct program *p, const struct dpb_node *node)
{
    enum { LONG = 1 << 14 /* pixels: from here on the error shows */ };
    const struct dpb_window *w = &node->window;
    return node->inputs[0] == 0 && node->groups == 1 && w->stride_h == 1 && w->stride_w == 1 &&
           (uint64_t)p->args.batch * node->shape.h * node->shape.w >= LONG;
}

dpb_status cpu_image_weights(struct program *p, const struct dpb_node *node,
                             const_dnnl_memory_desc_t canonical)
{
    const struct layout l = layout_of(p, node);
    return cpu_weights_loop(p, node, canonical, p->args.batch * l.image_bytes, sum_batch);
}
