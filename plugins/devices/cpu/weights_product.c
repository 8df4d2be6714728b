/*
 * weights_product.c - the weight gradient of a convolution as products of matrices, by AVX-512:
 *
 *     dW[tap][o][i] = sum over the output's pixels p of dy[p][o] * x[input pixel of p at tap][i]
 *
 * A block of dy for a group of output channels is laid out by pixels, then panel by panel of x. All
 * rows of the group are multiplied with a panel while it is in the first caches. Taps and input
 * channels are one axis of vectors, and a panel is a few vectors: so it is full where channels are
 * few, too. A list names the pixels of x, so that strides and padding cost nothing further. In bf16
 * an instruction sums over two pixels: there pairs of pixels are interleaved.
 *
 * Sums are cut by the shape alone: where they are small, into ranges of pixels that are added up at
 * the end. Threads share ranges, groups of output channels and panels. So the result does not
 * depend on their number.
 *
 * oneDNN's backward by weights runs at two thirds of the rate of its forward, and at a third on few
 * channels; with tiles (AMX) and bf16 it is the better one.
 */
#include "hooks.h"
#include "ops.h"
#include "inner.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#include <omp.h>
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

enum {
    LANES = 16,
    LINE = 64, /* bytes, of a cache */
    /* Output channels at a time by vectors at a time: 6 x 4 or 8 x 3 fill the registers. */
    LEAST_ROWS = 6,
    MOST_VECTORS = 4,
    BUSY = 12,                    /* sums at a time, for which instructions need not wait */
    GROUP = 288,                  /* output channels of a group: full rows of either */
    PANEL = MOST_VECTORS * LANES, /* columns of a panel, at most */
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
    size_t rows, vectors; /* at a time */
    size_t blocks;        /* vectors of a tap */
    size_t n_vectors;     /* of all taps */
    bool direct;          /* the sums are the gradient itself, where it lies in core */
    size_t sums;          /* floats of a range */
    size_t n_ranges;      /* of pixels */
    size_t n_groups;      /* of output channels */
    size_t n_panels;
    size_t n_parts; /* of the panels; by the number of threads */
    size_t per_dot; /* pixels */
    size_t block;   /* pixels that are laid out at once */
};

/* A thread's own. */
struct workspace {
    uint32_t dy[MOST_DOTS * GROUP], x[MOST_DOTS * PANEL]; /* pairs of bf16, or fp32 */
    const char *pixels[2 * MOST_DOTS];
};

/* Instructions for a pair of pixels with `rows` x `vectors` at a time. Instructions that wait for
 * one another also count for the instructions that could have run meanwhile. */
static size_t cost_of(const struct cut *cut, size_t rows, size_t vectors)
{
    const size_t last = cut->n_vectors % vectors;
    const size_t panels = cut->n_vectors / vectors * rows * vectors;
    return ((cut->to + rows - 1) / rows) * (panels + (last ? larger(BUSY, rows * last) : 0));
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
                      .taps = (size_t)w->kernel_h * w->kernel_w,
                      .rows = 6,
                      .vectors = 4};
    cut.blocks = (cut.from + LANES - 1) / LANES;
    cut.n_vectors = cut.taps * cut.blocks;
    /* 8 x 3 loads more: it has to save a twentieth. */
    if (20 * cost_of(&cut, 8, 3) < 19 * cost_of(&cut, 6, 4)) {
        cut.rows = 8;
        cut.vectors = 3;
    }
    cut.n_panels = (cut.n_vectors + cut.vectors - 1) / cut.vectors;
    cut.sums = cut.n_panels * cut.vectors * LANES * cut.to;
    const size_t fit = MOST_SUMS_BYTES / sizeof(float) / cut.sums;
    cut.n_ranges = larger(1, smaller(MOST_RANGES, smaller(fit, cut.pixels / LEAST_PIXELS)));
    cut.direct = cut.n_ranges == 1 && cut.taps == 1 && cut.from % LANES == 0;
    cut.n_groups = (cut.to + GROUP - 1) / GROUP;
    const size_t wanted = (ITEMS * p->threads - 1) / (cut.n_ranges * cut.n_groups) + 1;
    cut.n_parts = larger(1, smaller(wanted, cut.n_panels / LEAST_PANELS));
    const bool small = cut.sums * sizeof(float) <= SMALL_SUMS_BYTES;
    cut.block = cut.per_dot * (small ? FEW_DOTS : MOST_DOTS);
    return cut;
}

/* ---- laying out ------------------------------------------------------------------------------ */

/* The first n of up to 32 elements. */
AVX512 INLINE __mmask32 first_of(size_t n)
{
    return n >= 32 ? 0xffffffffu : (1u << n) - 1;
}

/* The part of a pixel, or of a pair of pixels, that is laid out: channels [begin, begin + n) and
 * zeros behind them, `width` in all, a multiple of LANES, in rows of `stride`. */
struct strip {
    size_t begin, n, width, stride;
};

AVX512 static void lay_out_pairs(const char *const *pixels, size_t pairs, struct strip strip,
                                 uint32_t *to)
{
    static const uint16_t order[2][32] = {
        {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
         8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
        {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
         24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
    const __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
    for (size_t k = 0; k < pairs; k++, to += strip.stride) {
        const uint16_t *a = (const uint16_t *)(const void *)pixels[2 * k] + strip.begin;
        const uint16_t *b = (const uint16_t *)(const void *)pixels[2 * k + 1] + strip.begin;
        for (size_t c = 0; c < strip.width; c += 2 * LANES) {
            const __mmask32 mask = c < strip.n ? first_of(strip.n - c) : 0;
            const __m512i even = _mm512_maskz_loadu_epi16(mask, a + c);
            const __m512i odd = _mm512_maskz_loadu_epi16(mask, b + c);
            _mm512_storeu_si512(to + c, _mm512_permutex2var_epi16(even, low, odd));
            if (c + LANES < strip.width)
                _mm512_storeu_si512(to + c + LANES, _mm512_permutex2var_epi16(even, high, odd));
        }
    }
}

/* In fp32. */
AVX512 static void lay_out_pixels(const char *const *pixels, size_t n_pixels, struct strip strip,
                                  uint32_t *to)
{
    for (size_t k = 0; k < n_pixels; k++, to += strip.stride) {
        const float *from = (const float *)(const void *)pixels[k] + strip.begin;
        for (size_t c = 0; c < strip.width; c += LANES) {
            const size_t left = c < strip.n ? strip.n - c : 0;
            const __mmask16 mask = (__mmask16)first_of(smaller(left, LANES));
            _mm512_storeu_ps(to + c, _mm512_maskz_loadu_ps(mask, from + c));
        }
    }
}

static void (*const lay_out[2])(const char *const *, size_t, struct strip,
                                uint32_t *) = {lay_out_pixels, lay_out_pairs};

/* ---- multiplying ----------------------------------------------------------------------------- */

/* The sums that a call of a kernel makes: the first `rows` of its rows. */
struct block {
    size_t dots, dy_stride;
    float *sums;
    size_t stride, rows;
    bool add; /* to the sums there */
};

AVX512 INLINE void put_sums(__m512 sum[][MOST_VECTORS], const struct block *block, int rows,
                            int vectors)
{
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        float *to = block->sums + (size_t)r * block->stride;
        if ((size_t)r >= block->rows)
            break;
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            __m512 total = sum[r][v];
            if (block->add)
                total = _mm512_add_ps(_mm512_loadu_ps(to + v * LANES), total);
            _mm512_storeu_ps(to + v * LANES, total);
        }
    }
}

/* Output channels by vectors. */
#define MULTIPLY(name, rows, vectors, TARGET, dot, spread, load)                              \
    TARGET static void name(const uint32_t *dy, const uint32_t *x, const struct block *block) \
    {                                                                                         \
        __m512 sum[rows][MOST_VECTORS];                                                       \
        _Pragma("GCC unroll 8") for (int r = 0; r < (rows); r++)                              \
        {                                                                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < (vectors); v++) sum[r][v] =           \
                _mm512_setzero_ps();                                                          \
        }                                                                                     \
        for (size_t k = 0; k < block->dots; k++) {                                            \
            _Pragma("GCC unroll 8") for (int r = 0; r < (rows); r++)                          \
            {                                                                                 \
                _Pragma("GCC unroll 4") for (int v = 0; v < (vectors); v++) sum[r][v] =       \
                    dot(sum[r][v], spread(dy + r), load(x + v * LANES));                      \
            }                                                                                 \
            dy += block->dy_stride;                                                           \
            x += (vectors)*LANES;                                                             \
        }                                                                                     \
        put_sums(sum, block, rows, vectors);                                                  \
    }

#define DOT_BF16(sum, a, b) _mm512_dpbf16_ps(sum, a, b)
#define SPREAD_BF16(at) ((__m512bh)_mm512_set1_epi32((int)*(at)))
#define LOAD_BF16(at) ((__m512bh)_mm512_loadu_si512(at))
#define DOT_FP32(sum, a, b) _mm512_fmadd_ps(a, b, sum)
#define SPREAD_FP32(at) _mm512_castsi512_ps(_mm512_set1_epi32((int)*(at)))
#define LOAD_FP32(at) _mm512_loadu_ps(at)

#define KERNELS(r, v)                                                             \
    MULTIPLY(bf16_##r##x##v, r, v, AVX512_BF16, DOT_BF16, SPREAD_BF16, LOAD_BF16) \
    MULTIPLY(fp32_##r##x##v, r, v, AVX512, DOT_FP32, SPREAD_FP32, LOAD_FP32)
KERNELS(6, 1)
KERNELS(6, 2)
KERNELS(6, 3)
KERNELS(6, 4)
KERNELS(8, 1)
KERNELS(8, 2)
KERNELS(8, 3)

typedef void kernel(const uint32_t *dy, const uint32_t *x, const struct block *block);
/* [bf16][8 rows][vectors - 1] */
static kernel *const kernels[2][2][MOST_VECTORS] = {
    {{fp32_6x1, fp32_6x2, fp32_6x3, fp32_6x4}, {fp32_8x1, fp32_8x2, fp32_8x3}},
    {{bf16_6x1, bf16_6x2, bf16_6x3, bf16_6x4}, {bf16_8x1, bf16_8x2, bf16_8x3}}};

/* ---- a block of pixels, a group, the batch --------------------------------------------------- */

/* All threads work on one job. */
struct job {
    const struct program *p;
    const struct step *step;
    struct cut cut;
    const char *x, *dy, *zeros; /* zeros: a pixel of either */
    float *sums; /* [range][panel][o][column of it], or where they are direct [o][i] */
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
        const size_t y = oy * w->stride_h + ky - w->pad_top; /* wraps before the image */
        ptrdiff_t x = (ptrdiff_t)(ox * w->stride_w + kx) - (ptrdiff_t)w->pad_left;
        const size_t end = smaller(i + out.w - ox, n);
        const ptrdiff_t width = y < in.h ? (ptrdiff_t)in.w : 0;
        const char *line = job->x + (image * in.h + y) * in.w * size;
        for (; i < end && x < 0; i++, x += w->stride_w)
            pixels[i] = job->zeros;
        for (; i < end && x < width; i++, x += w->stride_w)
            pixels[i] = line + (size_t)x * size;
        for (; i < end; i++)
            pixels[i] = job->zeros;
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

/* A thread's unit of work: pixels [begin, end), `rows` output channels from o on, panels
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
    const size_t calls = (item->last - item->first) * ((item->rows + cut->rows - 1) / cut->rows);
    const size_t x_first = first * cut->x_pixels / cut->pixels;
    const size_t dy_bytes = n * cut->to * cut->element;
    const size_t x_bytes = n * cut->x_pixels / cut->pixels * cut->from * cut->element;
    return (struct ahead){.dy = job->dy + (first * cut->to + item->o) * cut->element,
                          .x = job->x + x_first * cut->from * cut->element,
                          .dy_step = rounded_up(dy_bytes / calls, LINE),
                          .x_step = rounded_up(x_bytes / calls, LINE)};
}

/* Lays a panel out: `n` vectors from `vector` on. `found`: the tap that work->pixels are for. */
static void lay_out_panel(const struct job *job, struct workspace *work, size_t first,
                          size_t n_pixels, size_t vector, size_t n, size_t *found)
{
    const struct cut *cut = &job->cut;
    const size_t dots = (n_pixels + cut->per_dot - 1) / cut->per_dot;
    for (size_t v = 0, run; v < n; v += run) {
        const size_t tap = (vector + v) / cut->blocks, block = (vector + v) % cut->blocks;
        run = smaller(n - v, cut->blocks - block);
        if (tap != *found)
            find_inputs(job, tap, first, n_pixels, work->pixels);
        *found = tap;
        const struct strip strip = {.begin = block * LANES,
                                    .n = smaller(cut->from - block * LANES, run * LANES),
                                    .width = run * LANES,
                                    .stride = n * LANES};
        lay_out[cut->bf16](work->pixels, dots, strip, work->x + v * LANES);
    }
}

/* A panel of x against all rows of the group. */
static void multiply_panel(const struct cut *cut, const struct item *item,
                           const struct workspace *work, kernel *run, struct block block,
                           struct ahead *ahead)
{
    for (size_t r = 0; r < item->rows; r += cut->rows, block.sums += cut->rows * block.stride) {
        block.rows = smaller(item->rows - r, cut->rows);
        bring_near(ahead);
        run(work->dy + r, work->x, &block);
    }
}

static void add_block(const struct job *job, const struct item *item, struct workspace *work,
                      size_t first, size_t n)
{
    const struct cut *cut = &job->cut;
    const size_t columns = cut->vectors * LANES;
    struct block block = {.dots = (n + cut->per_dot - 1) / cut->per_dot,
                          .dy_stride = rounded_up(rounded_up(item->rows, cut->rows), LANES),
                          .stride = cut->direct ? cut->from : columns,
                          .add = first > item->begin};
    for (size_t i = 0; i < n; i++)
        work->pixels[i] = job->dy + (first + i) * cut->to * cut->element;
    if (n % cut->per_dot)
        work->pixels[n] = job->zeros;
    const struct strip group = {item->o, item->rows, block.dy_stride, block.dy_stride};
    lay_out[cut->bf16](work->pixels, block.dots, group, work->dy);
    struct ahead ahead = plan_ahead(job, item, first + n, n);
    size_t found = SIZE_MAX;
    for (size_t panel = item->first; panel < item->last; panel++) {
        const size_t vector = panel * cut->vectors;
        const size_t n_vectors = smaller(cut->vectors, cut->n_vectors - vector);
        lay_out_panel(job, work, first, n, vector, n_vectors, &found);
        block.sums = cut->direct ? item->sums + item->o * cut->from + panel * columns
                                 : item->sums + (panel * cut->to + item->o) * columns;
        multiply_panel(cut, item, work, kernels[cut->bf16][cut->rows == 8][n_vectors - 1], block,
                       &ahead);
    }
}

/* The ranges' sums, in order, as core has weights: [o][i][tap]. */
static void add_up(const struct job *job, size_t o)
{
    const struct cut *cut = &job->cut;
    const size_t columns = cut->vectors * LANES;
    float *to = (float *)job->step->to->data + o * cut->from * cut->taps;
    for (size_t vector = 0; vector < cut->n_vectors; vector++) {
        const size_t tap = vector / cut->blocks, i = vector % cut->blocks * LANES;
        const float *from = job->sums + (vector / cut->vectors * cut->to + o) * columns +
                            vector % cut->vectors * LANES;
        float sum[LANES];
        memcpy(sum, from, sizeof sum);
        for (size_t range = 1; range < cut->n_ranges; range++) {
            from += cut->sums;
            for (size_t lane = 0; lane < LANES; lane++)
                sum[lane] += from[lane];
        }
        for (size_t lane = 0; lane < smaller(LANES, cut->from - i); lane++)
            to[(i + lane) * cut->taps + tap] = sum[lane];
    }
}

/* Room for the sums, unless they are the gradient itself; behind it are zeros and the threads'
 * own. */
static size_t sums_bytes(const struct cut *cut)
{
    return cut->direct ? 0 : cut->n_ranges * cut->sums * sizeof(float);
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

/* ---- planning -------------------------------------------------------------------------------- */

bool cpu_multiplies_weights(const struct program *p, const struct dpb_node *node)
{
    if (node->groups > 1 || cpu_input(p, node, 0)->shape.c < LANES || node->shape.c < LEAST_ROWS ||
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
