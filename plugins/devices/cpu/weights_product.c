/*
 * weights_product.c - the weight gradient of a convolution as products of matrices, by AVX-512:
 *
 *     dW[tap][o][i] = sum over the output's pixels p of dy[p][o] * x[input pixel of p at tap][i]
 *
 * A block of dy for a group of output channels is laid out by pixels, then for each tap and block of
 * input channels a panel of x, that all rows of the group are multiplied with while it is in the
 * first caches. Which pixels x has them from is a list, so that strides and padding cost nothing
 * further. In bf16 an instruction sums over two pixels: there pairs of pixels are interleaved.
 *
 * Sums are cut by the shape alone: where they are small, into ranges of pixels that are added up at
 * the end. Threads share ranges, groups of output channels and panels. So the result does not depend
 * on their number.
 *
 * oneDNN's backward by weights runs at two thirds of the rate of its forward, and at a third on few
 * channels; with tiles (AMX) and bf16 it is the better one.
 */
#include "cpu.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <omp.h>
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    LANES = 16,
    LINE = 64,               /* bytes, of a cache */
    ROWS = 6,                /* output channels at a time */
    VECTORS = 4,             /* input channels at a time, in lanes */
    GROUP = 48 * ROWS,       /* output channels of a group */
    PANEL = VECTORS * LANES, /* input channels of a panel */
    /* Instructions that a sum takes in a block: so few that a panel fits the first cache; more
     * where an item's sums, which every block adds to, do not fit the second. */
    FEW_DOTS = 96,
    MOST_DOTS = 256,
    SMALL_SUMS_BYTES = 4 << 20,
    LEAST_PIXELS = 2048, /* of a range */
    MOST_RANGES = 32,
    MOST_SUMS_BYTES = 4 << 20, /* of all ranges together */
    ITEMS = 4,                 /* for each thread, at least where there are enough panels */
    LEAST_PANELS = 2           /* of an item */
};

/* How the work is cut. */
struct cut {
    bool bf16;
    size_t element; /* bytes */
    size_t pixels, x_pixels, from, to, taps;
    size_t sums;     /* floats of all taps */
    size_t n_ranges; /* of pixels */
    size_t n_groups; /* of output channels */
    size_t n_panels; /* of all taps */
    size_t n_parts;  /* of the panels; by the number of threads */
    size_t per_dot;  /* pixels */
    size_t block;    /* pixels that are laid out at once */
};

/* A thread's own. */
struct workspace {
    uint32_t dy[MOST_DOTS * GROUP], x[MOST_DOTS * PANEL]; /* pairs of bf16, or fp32 */
    const char *pixels[2 * MOST_DOTS];
};

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t rounded_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static struct cut cut_of(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    const struct dpb_shape in = cpu_input(p, node, 0)->shape;
    const bool bf16 = p->type == dnnl_bf16;
    struct cut cut = {.bf16 = bf16,
                      .element = bf16 ? sizeof(uint16_t) : sizeof(float),
                      .per_dot = bf16 ? 2 : 1,
                      .pixels = (size_t)p->args.batch * node->shape.h * node->shape.w,
                      .x_pixels = (size_t)p->args.batch * in.h * in.w,
                      .from = in.c,
                      .to = node->shape.c,
                      .taps = (size_t)w->kernel_h * w->kernel_w};
    cut.sums = cut.taps * cut.to * cut.from;
    const size_t fit = MOST_SUMS_BYTES / sizeof(float) / cut.sums;
    cut.n_ranges = larger(1, smaller(MOST_RANGES, smaller(fit, cut.pixels / LEAST_PIXELS)));
    cut.n_groups = (cut.to + GROUP - 1) / GROUP;
    cut.n_panels = cut.taps * ((cut.from + PANEL - 1) / PANEL);
    const size_t wanted = (ITEMS * p->threads - 1) / (cut.n_ranges * cut.n_groups) + 1;
    cut.n_parts = larger(1, smaller(wanted, cut.n_panels / LEAST_PANELS));
    const bool small = cut.sums * sizeof(float) <= SMALL_SUMS_BYTES;
    cut.block = cut.per_dot * (small ? FEW_DOTS : MOST_DOTS);
    return cut;
}

/* ---- laying out -------------------------------------------------------------------------------- */

/* The first n of up to 32 elements. */
AVX512 ALWAYS_INLINE __mmask32 first_of(size_t n)
{
    return n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

/* Channels [begin, begin + n) of each pair of pixels, as pairs; `to` has room for `width` of them a
 * row, of which those behind n become zeros. width is a multiple of LANES. */
AVX512 static void lay_out_pairs(const char *const *pixels, size_t pairs, size_t begin, size_t n,
                                 size_t width, uint32_t *to)
{
    static const uint16_t order[2][32] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
    for (size_t k = 0; k < pairs; k++, to += width) {
        const uint16_t *a = (const uint16_t *)(const void *)pixels[2 * k] + begin;
        const uint16_t *b = (const uint16_t *)(const void *)pixels[2 * k + 1] + begin;
        for (size_t c = 0; c < width; c += 2 * LANES) {
            const __mmask32 mask = c < n ? first_of(n - c) : 0;
            const __m512i even = _mm512_maskz_loadu_epi16(mask, a + c);
            const __m512i odd = _mm512_maskz_loadu_epi16(mask, b + c);
            _mm512_storeu_si512(to + c, _mm512_permutex2var_epi16(even, low, odd));
            if (c + LANES < width)
                _mm512_storeu_si512(to + c + LANES, _mm512_permutex2var_epi16(even, high, odd));
        }
    }
}

/* The same of each pixel, in fp32. */
AVX512 static void lay_out_pixels(const char *const *pixels, size_t n_pixels, size_t begin,
                                  size_t n, size_t width, uint32_t *to)
{
    for (size_t k = 0; k < n_pixels; k++, to += width) {
        const float *from = (const float *)(const void *)pixels[k] + begin;
        for (size_t c = 0; c < width; c += LANES) {
            const __mmask16 mask = c < n ? (__mmask16)first_of(smaller(n - c, LANES)) : 0;
            _mm512_storeu_ps(to + c, _mm512_maskz_loadu_ps(mask, from + c));
        }
    }
}

/* ---- multiplying ------------------------------------------------------------------------------- */

/* The sums that a call of a kernel makes: n columns of `rows` rows. */
struct block {
    size_t dots, dy_stride;
    float *sums;
    size_t stride, rows, n;
    bool add; /* to what is there */
};

AVX512 ALWAYS_INLINE void put_sums(__m512 sum[ROWS][VECTORS], const struct block *block,
                                   int vectors)
{
#pragma GCC unroll 6
    for (int r = 0; r < ROWS; r++) {
        float *to = block->sums + (size_t)r * block->stride;
        if ((size_t)r >= block->rows)
            break;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const size_t left = block->n - (size_t)v * LANES;
            const __mmask16 mask = (__mmask16)first_of(smaller(left, LANES));
            __m512 total = sum[r][v];
            if (block->add)
                total = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to + v * LANES), total);
            _mm512_mask_storeu_ps(to + v * LANES, mask, total);
        }
    }
}

/* ROWS output channels by `vectors` of input channels. */
#define MULTIPLY(name, vectors, TARGET, dot, spread, load)                                    \
    TARGET static void name(const uint32_t *dy, const uint32_t *x, const struct block *block) \
    {                                                                                         \
        __m512 sum[ROWS][VECTORS];                                                            \
        _Pragma("GCC unroll 6") for (int r = 0; r < ROWS; r++)                                \
        {                                                                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < (vectors); v++) sum[r][v] =           \
                _mm512_setzero_ps();                                                          \
        }                                                                                     \
        for (size_t k = 0; k < block->dots; k++) {                                            \
            _Pragma("GCC unroll 6") for (int r = 0; r < ROWS; r++)                            \
            {                                                                                 \
                _Pragma("GCC unroll 4") for (int v = 0; v < (vectors); v++) sum[r][v] =       \
                    dot(sum[r][v], spread(dy + r), load(x + v * LANES));                      \
            }                                                                                 \
            dy += block->dy_stride;                                                           \
            x += (vectors)*LANES;                                                             \
        }                                                                                     \
        put_sums(sum, block, vectors);                                                        \
    }

#define DOT_BF16(sum, a, b) _mm512_dpbf16_ps(sum, a, b)
#define SPREAD_BF16(at) ((__m512bh)_mm512_set1_epi32((int)*(at)))
#define LOAD_BF16(at) ((__m512bh)_mm512_loadu_si512(at))
#define DOT_FP32(sum, a, b) _mm512_fmadd_ps(a, b, sum)
#define SPREAD_FP32(at) _mm512_castsi512_ps(_mm512_set1_epi32((int)*(at)))
#define LOAD_FP32(at) _mm512_loadu_ps(at)

#define KERNELS(v)                                                                \
    MULTIPLY(multiply_bf16_##v, v, AVX512_BF16, DOT_BF16, SPREAD_BF16, LOAD_BF16) \
    MULTIPLY(multiply_fp32_##v, v, AVX512, DOT_FP32, SPREAD_FP32, LOAD_FP32)
KERNELS(1)
KERNELS(2)
KERNELS(3)
KERNELS(4)

typedef void kernel(const uint32_t *dy, const uint32_t *x, const struct block *block);
static kernel *const kernels[2][VECTORS] = {
    {multiply_fp32_1, multiply_fp32_2, multiply_fp32_3, multiply_fp32_4},
    {multiply_bf16_1, multiply_bf16_2, multiply_bf16_3, multiply_bf16_4}};

/* ---- a block of pixels, a group, the batch ----------------------------------------------------- */

/* What all threads work on. */
struct job {
    const struct program *p;
    const struct step *step;
    struct cut cut;
    const char *x, *dy, *zeros; /* zeros: a pixel of either */
    float *sums;                /* [range][tap][o][i] */
};

/* Where x has its pixels [first, first + n) of the output for a tap; an odd last one gets a partner
 * of zeros. */
static void find_inputs(const struct job *job, size_t tap, size_t first, size_t n,
                        const char **pixels)
{
    const struct dpb_node *node = job->step->node;
    const struct dpb_window *w = &node->window;
    const struct dpb_shape in = cpu_input(job->p, node, 0)->shape, out = node->shape;
    const size_t ky = tap / w->kernel_w, kx = tap % w->kernel_w, size = in.c * job->cut.element;
    size_t image = first / out.w / out.h, oy = first / out.w % out.h, ox = first % out.w;
    for (size_t i = 0; i < n; oy++, ox = 0) {
        if (oy == out.h) {
            oy = 0;
            image++;
        }
        /* These wrap where they lie before the image. */
        const size_t y = oy * w->stride_h + ky - w->pad_top;
        const bool inside = y < in.h;
        const char *line = inside ? job->x + (image * in.h + y) * in.w * size : job->zeros;
        size_t x = ox * w->stride_w + kx - w->pad_left;
        for (; ox < out.w && i < n; ox++, i++, x += w->stride_w)
            pixels[i] = inside && x < in.w ? line + x * size : job->zeros;
    }
    if (n % job->cut.per_dot)
        pixels[n] = job->zeros;
}

/* Memory that the next block reads, brought near while this one is multiplied. */
struct ahead {
    const char *dy, *x;
    size_t dy_step, x_step; /* bytes for each call of a kernel */
};

static void bring_near(struct ahead *ahead)
{
    for (size_t at = 0; at < ahead->dy_step; at += LINE)
        _mm_prefetch(ahead->dy + at, _MM_HINT_T1);
    for (size_t at = 0; at < ahead->x_step; at += LINE)
        _mm_prefetch(ahead->x + at, _MM_HINT_T1);
    ahead->dy += ahead->dy_step;
    ahead->x += ahead->x_step;
}

/* What a thread does at a time: pixels [begin, end), `rows` output channels from o on, panels
 * [first, last). */
struct item {
    size_t begin, end, o, rows, first, last;
    float *sums; /* of the range */
};

static struct item item_of(const struct job *job, size_t number)
{
    const struct cut *cut = &job->cut;
    const size_t part = number % cut->n_parts, group = number / cut->n_parts % cut->n_groups;
    const size_t range = number / cut->n_parts / cut->n_groups, o = group * GROUP;
    return (struct item){.begin = cut->pixels * range / cut->n_ranges,
                         .end = cut->pixels * (range + 1) / cut->n_ranges,
                         .o = o,
                         .rows = smaller(cut->to - o, GROUP),
                         .first = cut->n_panels * part / cut->n_parts,
                         .last = cut->n_panels * (part + 1) / cut->n_parts,
                         .sums = job->sums + range * cut->sums};
}

/* The memory of pixels [first, first + n), spread over the calls of a kernel until then. */
static struct ahead plan_ahead(const struct job *job, const struct item *item, size_t first,
                               size_t n)
{
    const struct cut *cut = &job->cut;
    const size_t calls = (item->last - item->first) * ((item->rows + ROWS - 1) / ROWS);
    const size_t x_first = first * cut->x_pixels / cut->pixels;
    const size_t dy_bytes = n * cut->to * cut->element;
    const size_t x_bytes = n * cut->x_pixels / cut->pixels * cut->from * cut->element;
    return (struct ahead){.dy = job->dy + (first * cut->to + item->o) * cut->element,
                          .x = job->x + x_first * cut->from * cut->element,
                          .dy_step = rounded_up(dy_bytes / calls, LINE),
                          .x_step = rounded_up(x_bytes / calls, LINE)};
}

/* A panel of x against all rows of the group. */
static void multiply_panel(const struct job *job, const struct item *item,
                           const struct workspace *work, struct block block, struct ahead *ahead)
{
    kernel *const run = kernels[job->cut.bf16][(block.n + LANES - 1) / LANES - 1];
    for (size_t r = 0; r < item->rows; r += ROWS, block.sums += ROWS * job->cut.from) {
        block.rows = smaller(item->rows - r, ROWS);
        bring_near(ahead);
        run(work->dy + r, work->x, &block);
    }
}

static void add_block(const struct job *job, const struct item *item, struct workspace *work,
                      size_t first, size_t n)
{
    const struct cut *cut = &job->cut;
    const size_t panels = cut->n_panels / cut->taps; /* of a tap */
    void (*const lay_out)(const char *const *, size_t, size_t, size_t, size_t, uint32_t *) =
        cut->bf16 ? lay_out_pairs : lay_out_pixels;
    struct block block = {.dots = (n + cut->per_dot - 1) / cut->per_dot,
                          .dy_stride = rounded_up(rounded_up(item->rows, ROWS), LANES),
                          .stride = cut->from,
                          .add = first > item->begin};
    for (size_t i = 0; i < n; i++)
        work->pixels[i] = job->dy + (first + i) * cut->to * cut->element;
    if (n % cut->per_dot)
        work->pixels[n] = job->zeros;
    lay_out(work->pixels, block.dots, item->o, item->rows, block.dy_stride, work->dy);
    struct ahead ahead = plan_ahead(job, item, first + n, n);
    for (size_t panel = item->first; panel < item->last; panel++) {
        const size_t tap = panel / panels, i = panel % panels * PANEL;
        if (panel == item->first || i == 0)
            find_inputs(job, tap, first, n, work->pixels);
        block.n = smaller(cut->from - i, PANEL);
        block.sums = item->sums + (tap * cut->to + item->o) * cut->from + i;
        lay_out(work->pixels, block.dots, i, block.n, rounded_up(block.n, LANES), work->x);
        multiply_panel(job, item, work, block, &ahead);
    }
}

/* The ranges' sums, in order, as core has weights: [o][i][tap]. */
static void add_up(const struct job *job, size_t o)
{
    const struct cut *cut = &job->cut;
    float *to = (float *)job->step->to->data + o * cut->from * cut->taps;
    for (size_t tap = 0; tap < cut->taps; tap++) {
        const float *from = job->sums + (tap * cut->to + o) * cut->from;
        for (size_t i = 0; i < cut->from; i++) {
            float sum = from[i];
            for (size_t range = 1; range < cut->n_ranges; range++)
                sum += from[range * cut->sums + i];
            to[i * cut->taps + tap] = sum;
        }
    }
}

/* Room for the sums, unless they are the gradient itself; behind it are zeros and the threads' own. */
static size_t sums_bytes(const struct cut *cut)
{
    const bool direct = cut->n_ranges == 1 && cut->taps == 1;
    return direct ? 0 : cut->n_ranges * cut->sums * sizeof(float);
}

static size_t zeros_bytes(const struct cut *cut)
{
    return rounded_up(larger(cut->from, cut->to) * cut->element, ARENA_ALIGN);
}

static void sum_batch(const struct program *p, const struct step *step)
{
    struct job job = {.p = p, .step = step, .cut = cut_of(p, step->node)};
    const struct cut *cut = &job.cut;
    const size_t work_at = rounded_up(sums_bytes(cut), ARENA_ALIGN);
    char *room = step->aux->data;
    struct workspace *workspaces = (void *)(room + work_at + zeros_bytes(cut));
    job.x = step->from->data;
    job.dy = step->also[USE_PART]->data;
    job.zeros = memset(room + work_at, 0, zeros_bytes(cut));
    job.sums = sums_bytes(cut) ? (void *)room : step->to->data;
    const size_t n_items = cut->n_ranges * cut->n_groups * cut->n_parts;
#pragma omp parallel for schedule(dynamic)
    for (size_t number = 0; number < n_items; number++) {
        const struct item item = item_of(&job, number);
        struct workspace *work = &workspaces[omp_get_thread_num()];
        for (size_t first = item.begin; first < item.end; first += cut->block)
            add_block(&job, &item, work, first, smaller(item.end - first, cut->block));
    }
    if (!sums_bytes(cut))
        return;
#pragma omp parallel for
    for (size_t o = 0; o < cut->to; o++)
        add_up(&job, o);
}

/* ---- planning ---------------------------------------------------------------------------------- */

bool cpu_multiplies_weights(const struct program *p, const struct dpb_node *node)
{
    if (cpu_input(p, node, 0)->shape.c < LANES || node->shape.c < ROWS ||
        !__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl"))
        return false;
    return p->type == dnnl_f32 || (__builtin_cpu_supports("avx512bf16") && !cpu_has_tiles());
}

dpb_status cpu_weights_product(struct program *p, const struct dpb_node *node,
                               const_dnnl_memory_desc_t canonical)
{
    const struct cut cut = cut_of(p, node);
    const size_t bytes =
        sums_bytes(&cut) + ARENA_ALIGN + zeros_bytes(&cut) + p->threads * sizeof(struct workspace);
    return cpu_weights_loop(p, node, canonical, bytes, sum_batch);
}

#else

bool cpu_multiplies_weights(const struct program *p, const struct dpb_node *node)
{
    (void)p, (void)node;
    return false;
}

dpb_status cpu_weights_product(struct program *p, const struct dpb_node *node,
                               const_dnnl_memory_desc_t canonical)
{
    (void)p, (void)node, (void)canonical;
    return cpu_host->fail(DPB_UNSUPPORTED, "this processor has no AVX-512");
}

#endif
