/*
 * data_skeleton.c - the smallest data source: images of 4 x 4 with one bright row, whose number is
 * the class. See model_skeleton.c for how to build it and what its name must be.
 */
#include "dpbench/plugin.h"

#include "dpbench/random.h"

enum { SIDE = 4, N_CLASSES = 3, TEST_BASE = 1 << 20 /* numbers of test samples */ };

static const struct dpb_host *host;

struct options {
    int64_t samples;
    int64_t shift;
};

static const struct dpb_option option_rows[] = {
    {.name = "samples",
     .type = DPB_OPT_INT,
     .def = "96",
     .min = 1,
     .max = TEST_BASE,
     .offset = offsetof(struct options, samples),
     .help = "samples of the training set; the test set has a third"},
    {.name = "shift",
     .type = DPB_OPT_INT,
     .def = "0",
     .min = 0,
     .max = N_CLASSES - 1,
     .offset = offsetof(struct options, shift),
     .help = "added to every label, modulo the classes"},
    {.name = NULL},
};

/* What `open` gives to the other hooks. */
struct source {
    uint64_t seed;
    uint32_t shift;
};

/* ---- hooks --------------------------------------------------------------------------------- */

/* A real source opens its files here, checks them, and refuses bad ones by
 * `return host->fail(DPB_DATA, "%s: byte %llu: expected ...", ...)`. */
static dpb_status open_source(const void *options, const struct dpb_data_request *request,
                              void **source, struct dpb_data_info *info)
{
    const struct options *o = options;
    struct source *made = host->alloc(sizeof *made);
    if (!made)
        return DPB_NO_MEMORY; /* alloc has written the message */
    made->seed = request->seed;
    made->shift = (uint32_t)o->shift;
    *info = (struct dpb_data_info){
        .format = {.shape = {1, SIDE, SIDE}, .type = DPB_FP32, .order = DPB_CHW, .scale = {1.0f}},
        .nclass = N_CLASSES,
        .n_samples = {[DPB_TRAIN] = (uint64_t)o->samples, [DPB_TEST] = (uint64_t)o->samples / 3},
    };
    *source = made;
    return DPB_OK;
}

/* A sample is a function of its number alone: whoever asks, whenever, gets the same. Core shuffles
 * and shards by choosing the numbers; several threads come at once. */
static dpb_status fetch(void *source, dpb_split split, uint64_t epoch, const uint64_t *indices,
                        uint32_t n, void *samples, int32_t *labels)
{
    const struct source *s = source;
    float *pixels = samples;
    (void)epoch; /* for sources that augment */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t number = (uint32_t)indices[i] + (split == DPB_TEST ? TEST_BASE : 0);
        uint32_t row = number % N_CLASSES;
        for (uint32_t p = 0; p < SIDE * SIDE; p++) {
            struct dpb_random4 r = dpb_random(s->seed, DPB_STREAM_SYNTHETIC, number, p, 0, 0);
            *pixels++ = dpb_random_uniform(r.v[0]) - 0.5f + (p / SIDE == row ? 1.0f : 0.0f);
        }
        labels[i] = (int32_t)((row + s->shift) % N_CLASSES);
    }
    return DPB_OK;
}

static void close_source(void *source)
{
    host->release(source, sizeof(struct source));
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops ops = {
    .open = open_source,
    .fetch = fetch,
    .close = close_source,
};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(DATA, ops),
    .name = "skeleton",
    .version = "1",
    .summary = "the smallest data source: which row is bright?",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
