/*
 * synthetic - samples made by a formula, in the shape and number of classes of the model.
 *
 * With p the class's own pattern, one bit for each channel and each cell of an 8 x 8 grid laid over
 * the image, and u a uniform random number of the element, an element is
 *
 *     p + 3 u - 2        in [-2, 2), mean 0, standard deviation 1
 *
 * so that a network can learn the classes and training can be seen to work. uint8 samples hold it
 * in steps of 1/64. Where the model reads ids, three of four follow from the one before: id * 5 + 7
 * modulo the classes; the others are any.
 *
 * Numbers come from Philox by sample and element (random.h): they depend on the seed alone. Only
 * `distinct` samples of each split are generated; further ones repeat them. So fetch is a copy. The
 * training set's are made in open, the test set's when it is first asked for one: most runs never
 * do, and many workers are ready the sooner.
 */
#include <inttypes.h>
#include <pthread.h>

#include "dpbench/plugin.h"
#include "dpbench/random.h"

/* Sample numbers of the counter: training samples from 0, test samples from TEST_BASE, patterns of
 * classes from the top down. A label takes a number of an element that no sample has. */
#define TEST_BASE UINT32_C(0x80000000)
#define CLASS_TOP UINT32_MAX
#define LABEL_ELEMENT UINT32_MAX

enum { GRID = 8, PAD = 8, MAX_CLASSES = 1 << 30 };
enum { DEFAULT_TRAIN_BYTES = 16 << 20, DEFAULT_TEST_BYTES = 8 << 20 };

static const struct dpb_host *host;

/* ---- options ------------------------------------------------------------------------------- */

struct options {
    int64_t samples, test_samples, distinct;
    int type;
};

static const char *const types[] = {"uint8", "fp32", NULL};

static const struct dpb_option option_table[] = {
    {"samples", DPB_OPT_INT, "samples", "50000", 1, 1 << 30, NULL,
     offsetof(struct options, samples), "Samples of the training set: the length of an epoch.",
     NULL},
    {"test_samples", DPB_OPT_INT, "samples", "10000", 0, 1 << 30, NULL,
     offsetof(struct options, test_samples), "Samples of the test set.", NULL},
    {"distinct", DPB_OPT_INT, "samples", "0", 0, 1 << 30, NULL, offsetof(struct options, distinct),
     "Different samples of each set that are kept in memory, the rest repeats them; 0: as many as "
     "16 MiB (training) and 8 MiB (test) hold.",
     NULL},
    {"type", DPB_OPT_CHOICE, NULL, "uint8", 0, 0, types, offsetof(struct options, type),
     "Type of an element in memory; both are normalised by the device.", NULL},
    {NULL, DPB_OPT_INT, NULL, NULL, 0, 0, NULL, 0, NULL, NULL}};

/* ---- state --------------------------------------------------------------------------------- */

struct pool {
    uint8_t *samples; /* NULL: not made yet */
    int32_t *labels;
    uint64_t n; /* distinct ones */
};

struct synthetic {
    struct dpb_data_info info;
    size_t sample_bytes, label_bytes; /* of one sample */
    uint64_t seed;
    struct pool pools[2]; /* by dpb_split */
    pthread_mutex_t making;
};

/* ---- generation ---------------------------------------------------------------------------- */

/* The pattern's bits of one channel: bit y * GRID + x is cell (x, y). */
static uint64_t class_pattern(uint64_t seed, int32_t label, uint32_t channel)
{
    struct dpb_random4 r =
        dpb_random(seed, DPB_STREAM_SYNTHETIC, CLASS_TOP - (uint32_t)label, channel, 0, 0);
    return (uint64_t)r.v[1] << 32 | r.v[0];
}

static int32_t label_of(uint64_t seed, uint32_t number, uint32_t nclass)
{
    struct dpb_random4 r = dpb_random(seed, DPB_STREAM_SYNTHETIC, number, LABEL_ELEMENT, 0, 0);
    return (int32_t)((uint64_t)r.v[0] * nclass >> 32);
}

enum { BLOCK = 256 }; /* elements that are made at once */

/* The random words of BLOCK elements of a sample, from element `first` (a multiple of 4) on. */
DPB_CLONES static void random_block(uint64_t seed, uint32_t number, uint32_t first,
                                    uint32_t words[BLOCK])
{
    for (uint32_t i = 0; i < BLOCK / 4; i++) {
        struct dpb_random4 r = dpb_random(seed, DPB_STREAM_SYNTHETIC, number, first / 4 + i, 0, 0);
        for (uint32_t j = 0; j < 4; j++)
            words[4 * i + j] = r.v[j];
    }
}

DPB_CLONES static void bytes_of(const uint32_t *words, const uint8_t *bits, uint32_t n,
                                uint8_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint8_t)(64 * bits[i] + ((uint64_t)words[i] * 192 >> 32));
}

DPB_CLONES static void floats_of(const uint32_t *words, const uint8_t *bits, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)bits[i] + 3.0f * dpb_random_uniform(words[i]) - 2.0f;
}

/* The first of `pixels` pixels that shows `cell` of the grid, or a cell behind it. */
static uint32_t first_pixel(uint32_t cell, uint32_t pixels)
{
    return (uint32_t)(((uint64_t)cell * pixels + GRID - 1) / GRID);
}

/* The pattern's bit of every pixel of one channel. Whole words fill a cell of a row: the last one
 * may reach up to PAD bytes beyond the cell. The next cell, written later, corrects them. */
static void draw_pattern(uint64_t pattern, struct dpb_shape shape, uint8_t *bits)
{
    uint32_t left[GRID + 1];
    for (uint32_t x = 0; x <= GRID; x++)
        left[x] = first_pixel(x, shape.w);
    for (uint32_t y = 0; y < GRID; y++) {
        uint32_t top = first_pixel(y, shape.h), bottom = first_pixel(y + 1, shape.h);
        for (uint32_t line = top; line < bottom; line++) {
            uint8_t *row = bits + (size_t)line * shape.w;
            for (uint32_t x = 0; x < GRID; x++) {
                uint64_t word = (pattern >> (y * GRID + x) & 1) * UINT64_C(0x0101010101010101);
                for (uint32_t at = left[x]; at < left[x + 1]; at += sizeof word)
                    memcpy(row + at, &word, sizeof word);
            }
        }
    }
}

/* One sample, in CHW order. `bits` is room for its elements and PAD more. */
static void generate(const struct synthetic *source, uint32_t number, int32_t label, uint8_t *bits,
                     void *sample)
{
    struct dpb_shape shape = source->info.format.shape;
    uint32_t plane = shape.h * shape.w, n = shape.c * plane, words[BLOCK];
    for (uint32_t c = 0; c < shape.c; c++)
        draw_pattern(class_pattern(source->seed, label, c), shape, bits + (size_t)c * plane);
    for (uint32_t at = 0; at < n; at += BLOCK) {
        uint32_t length = n - at < BLOCK ? n - at : BLOCK;
        random_block(source->seed, number, at, words);
        if (source->info.format.type == DPB_UINT8)
            bytes_of(words, bits + at, length, (uint8_t *)sample + at);
        else
            floats_of(words, bits + at, length, (float *)sample + at);
    }
}

/* A sequence of ids; the label of each is the next one. */
static void generate_ids(const struct synthetic *source, uint32_t number, int32_t *ids,
                         int32_t *labels)
{
    const uint32_t length = source->info.format.shape.w, nclass = source->info.nclass;
    uint32_t words[BLOCK], id = 0;
    for (uint32_t at = 0; at <= length; at += BLOCK) {
        random_block(source->seed, number, at, words);
        for (uint32_t i = at; i <= length && i - at < BLOCK; i++) {
            const uint32_t word = words[i - at];
            const uint32_t any = (uint32_t)((uint64_t)(word << 2) * nclass >> 32);
            id = i > 0 && word >> 30 != 0 ? (uint32_t)(((uint64_t)id * 5 + 7) % nclass) : any;
            if (i < length)
                ids[i] = (int32_t)id;
            if (i > 0)
                labels[i - 1] = (int32_t)id;
        }
    }
}

static dpb_status fill_pool(const struct synthetic *source, struct pool *pool, uint32_t first)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(pool->n, (uint64_t)source->sample_bytes, &bytes) ||
        bytes > SIZE_MAX / 2)
        return host->fail(DPB_USAGE,
                          "data.distinct: %" PRIu64 " samples of %zu bytes do not fit in any "
                          "memory: make it smaller",
                          pool->n, source->sample_bytes);
    size_t label_bytes = (size_t)pool->n * source->label_bytes;
    const bool ids = source->info.format.type == DPB_INT32;
    size_t bits_bytes = source->sample_bytes + PAD;
    uint8_t *samples = host->alloc((size_t)bytes), *bits = host->alloc(bits_bytes);
    int32_t *labels = host->alloc(label_bytes);
    bool made = samples && bits && labels;
    for (uint64_t i = 0; i < pool->n && made; i++) {
        uint32_t number = first + (uint32_t)i;
        void *sample = samples + i * source->sample_bytes;
        if (ids) {
            generate_ids(source, number, sample, labels + i * source->info.format.shape.w);
            continue;
        }
        labels[i] = label_of(source->seed, number, source->info.nclass);
        generate(source, number, labels[i], bits, sample);
    }
    host->release(bits, bits_bytes);
    if (!made) {
        host->release(samples, (size_t)bytes);
        host->release(labels, label_bytes);
        return DPB_NO_MEMORY;
    }
    pool->labels = labels;
    __atomic_store_n(&pool->samples, samples, __ATOMIC_RELEASE);
    return DPB_OK;
}

/* The samples of a split, made by the first thread that comes. */
static dpb_status need_pool(struct synthetic *source, dpb_split split)
{
    static const uint32_t firsts[2] = {[DPB_TRAIN] = 0, [DPB_TEST] = TEST_BASE};
    struct pool *pool = &source->pools[split];
    dpb_status status = DPB_OK;
    if (__atomic_load_n(&pool->samples, __ATOMIC_ACQUIRE))
        return DPB_OK;
    pthread_mutex_lock(&source->making);
    if (!pool->samples)
        status = fill_pool(source, pool, firsts[split]);
    pthread_mutex_unlock(&source->making);
    return status;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void synthetic_close(void *handle)
{
    struct synthetic *source = handle;
    if (!source)
        return;
    for (int split = 0; split < 2; split++) {
        struct pool *pool = &source->pools[split];
        host->release(pool->samples, (size_t)pool->n * source->sample_bytes);
        host->release(pool->labels, (size_t)pool->n * source->label_bytes);
    }
    pthread_mutex_destroy(&source->making);
    host->release(source, sizeof *source);
}

static dpb_status check_request(const struct dpb_data_request *request)
{
    struct dpb_shape shape = request->shape;
    uint64_t plane = (uint64_t)shape.h * shape.w;
    if (shape.c == 0 || shape.c > DPB_MAX_CHANNELS || plane == 0 || plane > UINT32_MAX / 16)
        return host->fail(DPB_UNSUPPORTED,
                          "data 'synthetic' makes images of 1 to %d channels and up to %" PRIu32
                          " pixels; the model asks for %" PRIu32 " x %" PRIu32 " x %" PRIu32
                          " (channels x height x width)",
                          DPB_MAX_CHANNELS, UINT32_MAX / 16, shape.c, shape.h, shape.w);
    if (request->nclass == 0 || request->nclass > MAX_CLASSES)
        return host->fail(DPB_UNSUPPORTED,
                          "data 'synthetic' makes 1 to %d classes; the model asks for %" PRIu32,
                          MAX_CLASSES, request->nclass);
    return DPB_OK;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How many distinct samples a split of n gets. */
static uint64_t distinct_of(const struct options *options, uint64_t n, size_t sample_bytes,
                            uint64_t default_bytes)
{
    uint64_t fit = default_bytes / sample_bytes;
    return smaller(n, options->distinct ? (uint64_t)options->distinct : fit ? fit : 1);
}

static dpb_status synthetic_open(const void *given, const struct dpb_data_request *request,
                                 void **handle, struct dpb_data_info *info)
{
    const struct options *options = given;
    DPB_TRY(check_request(request));
    struct synthetic *source = host->alloc(sizeof *source);
    if (!source)
        return DPB_NO_MEMORY;
    pthread_mutex_init(&source->making, NULL);
    bool u8 = options->type == 0;
    source->seed = request->seed;
    source->info.nclass = request->nclass;
    source->info.n_samples[DPB_TRAIN] = (uint64_t)options->samples;
    source->info.n_samples[DPB_TEST] = (uint64_t)options->test_samples;
    source->info.format = (struct dpb_sample_format){.shape = request->shape,
                                                     .type = request->ids ? DPB_INT32
                                                             : u8         ? DPB_UINT8
                                                                          : DPB_FP32,
                                                     .order = DPB_CHW};
    for (uint32_t c = 0; c < DPB_MAX_CHANNELS; c++) {
        /* A byte stands for the middle of its step. */
        source->info.format.scale[c] = u8 ? 1.0f / 64 : 1.0f;
        source->info.format.offset[c] = u8 ? -2.0f + 0.5f / 64 : 0.0f;
    }
    source->sample_bytes = dpb_sample_bytes(&source->info.format);
    source->label_bytes = dpb_sample_labels(&source->info.format) * sizeof(int32_t);
    dpb_status status = DPB_OK;
    if (!request->info_only) {
        source->pools[DPB_TRAIN].n = distinct_of(options, (uint64_t)options->samples,
                                                 source->sample_bytes, DEFAULT_TRAIN_BYTES);
        source->pools[DPB_TEST].n = distinct_of(options, (uint64_t)options->test_samples,
                                                source->sample_bytes, DEFAULT_TEST_BYTES);
        status = need_pool(source, DPB_TRAIN);
    }
    if (status != DPB_OK) {
        synthetic_close(source);
        return status;
    }
    *handle = source;
    *info = source->info;
    return DPB_OK;
}

static dpb_status synthetic_fetch(void *handle, dpb_split split, uint64_t epoch,
                                  const uint64_t *indices, uint32_t n, void *samples,
                                  int32_t *labels)
{
    (void)epoch;
    struct synthetic *source = handle;
    const struct pool *pool = &source->pools[split];
    DPB_TRY(need_pool(source, split));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t number = indices[i] % pool->n;
        memcpy((uint8_t *)samples + i * source->sample_bytes,
               pool->samples + number * source->sample_bytes, source->sample_bytes);
        memcpy((uint8_t *)labels + i * source->label_bytes,
               (const uint8_t *)pool->labels + number * source->label_bytes, source->label_bytes);
    }
    return DPB_OK;
}

static dpb_status synthetic_pool(void *handle, dpb_split split, struct dpb_sample_pool *given)
{
    struct synthetic *source = handle;
    const struct pool *pool = &source->pools[split];
    DPB_TRY(need_pool(source, split));
    *given = (struct dpb_sample_pool){pool->samples, pool->labels, (uint32_t)pool->n};
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops synthetic_ops = {.open = synthetic_open,
                                                  .fetch = synthetic_fetch,
                                                  .close = synthetic_close,
                                                  .pool = synthetic_pool};

static const struct dpb_plugin synthetic_plugin = {
    DPB_PLUGIN_HEAD(DATA, synthetic_ops),
    .name = "synthetic",
    .version = "1",
    .summary = "samples made by a formula, in the model's shape: no input, learnable classes",
    .options = option_table,
    .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &synthetic_plugin;
}
