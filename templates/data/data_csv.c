/* data_csv.c - square grey images in a text file: a line is a label and the pixels, with commas
 * between. Every test_every-th line is a test sample. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dpbench/plugin.h>

enum { MAX_LABEL = 9999 };

static const struct dpb_host *host;

struct options {
    const char *path;
    int64_t side, test_every;
};

static const struct dpb_option option_rows[] = {
    {.name = "path",
     .type = DPB_OPT_STRING,
     .unit = "file",
     .offset = offsetof(struct options, path),
     .help = "the file"},
    {.name = "side",
     .type = DPB_OPT_INT,
     .unit = "pixels",
     .def = "4",
     .min = 1,
     .max = 1024,
     .offset = offsetof(struct options, side),
     .help = "height and width of an image"},
    {.name = "test_every",
     .type = DPB_OPT_INT,
     .unit = "lines",
     .def = "4",
     .min = 2,
     .max = 1000,
     .offset = offsetof(struct options, test_every),
     .help = "one line in so many is a test sample"},
    {.name = NULL},
};

/* What `open` gives to the other hooks. */
struct source {
    uint32_t n_pixels; /* of an image */
    uint64_t test_every;
    uint64_t n, capacity; /* lines */
    float *pixels;        /* n x n_pixels */
    int32_t *labels;      /* n */
    int32_t largest_label;
};

/* ---- reading ------------------------------------------------------------------------------- */

static void close_source(void *source)
{
    struct source *s = source;
    if (!s)
        return;
    free(s->pixels);
    free(s->labels);
    free(s);
}

static dpb_status make_room(struct source *s)
{
    if (s->n < s->capacity)
        return DPB_OK;
    uint64_t capacity = s->capacity ? 2 * s->capacity : 1024;
    float *pixels = realloc(s->pixels, capacity * s->n_pixels * sizeof *pixels);
    s->pixels = pixels ? pixels : s->pixels;
    int32_t *labels = realloc(s->labels, capacity * sizeof *labels);
    s->labels = labels ? labels : s->labels;
    if (!pixels || !labels)
        return host->fail(DPB_NO_MEMORY, "no memory for %llu lines", (unsigned long long)capacity);
    s->capacity = capacity;
    return DPB_OK;
}

/* Bad data is refused here, by file and line, before the first step. */
static dpb_status read_line(struct source *s, const char *path, const char *text)
{
    unsigned long long line = s->n + 1;
    char *end;
    DPB_TRY(make_room(s));
    long label = strtol(text, &end, 10);
    if (end == text || label < 0 || label > MAX_LABEL)
        return host->fail(DPB_DATA, "%s:%llu: a line begins with a label from 0 to %d", path, line,
                          MAX_LABEL);
    for (uint32_t p = 0; p < s->n_pixels; p++) {
        const char *number = end + 1;
        float value = *end == ',' ? strtof(number, &end) : NAN;
        if (!isfinite(value) || end == number)
            return host->fail(DPB_DATA,
                              "%s:%llu: %u pixels are wanted after the label, number %u "
                              "is missing or no number; is data.side right?",
                              path, line, s->n_pixels, p + 1);
        s->pixels[s->n * s->n_pixels + p] = value;
    }
    if (*end != '\n' && *end != '\0')
        return host->fail(DPB_DATA, "%s:%llu: more than %u pixels; is data.side right?", path, line,
                          s->n_pixels);
    s->labels[s->n++] = (int32_t)label;
    s->largest_label = label > s->largest_label ? (int32_t)label : s->largest_label;
    return DPB_OK;
}

static dpb_status read_file(struct source *s, const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t capacity = 0;
    dpb_status status = DPB_OK;
    if (!file && !*path)
        return host->fail(DPB_USAGE, "data csv needs data.path, a file to read");
    if (!file)
        return host->fail(DPB_DATA, "data.path = %s: %s", path, strerror(errno));
    while (status == DPB_OK && getline(&text, &capacity, file) >= 0)
        status = read_line(s, path, text);
    if (status == DPB_OK && ferror(file))
        status = host->fail(DPB_IO, "%s: %s", path, strerror(errno));
    if (status == DPB_OK && s->n < s->test_every)
        status = host->fail(DPB_DATA, "%s: %llu lines are too few for data.test_every = %llu", path,
                            (unsigned long long)s->n, (unsigned long long)s->test_every);
    free(text);
    fclose(file);
    return status;
}

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status open_source(const void *options, const struct dpb_data_request *request,
                              void **source, struct dpb_data_info *info)
{
    const struct options *o = options;
    uint32_t side = (uint32_t)o->side;
    (void)request; /* what the model would like; these images are what they are */
    struct source *s = calloc(1, sizeof *s);
    if (!s)
        return host->fail(DPB_NO_MEMORY, "no memory for a data source");
    s->n_pixels = side * side;
    s->test_every = (uint64_t)o->test_every;
    dpb_status status = read_file(s, o->path);
    if (status != DPB_OK) {
        close_source(s);
        return status;
    }
    uint64_t n_test = s->n / s->test_every;
    *info = (struct dpb_data_info){
        .format = {.shape = {1, side, side}, .type = DPB_FP32, .order = DPB_CHW, .scale = {1.0f}},
        .nclass = (uint32_t)s->largest_label + 1,
        .n_samples = {[DPB_TRAIN] = s->n - n_test, [DPB_TEST] = n_test},
    };
    *source = s;
    return DPB_OK;
}

/* A sample depends on its number alone: whoever asks, whenever, gets the same. Core shuffles and
 * shards by choosing the numbers; several threads come at once. */
static dpb_status fetch(void *source, dpb_split split, uint64_t epoch, const uint64_t *indices,
                        uint32_t n, void *samples, int32_t *labels)
{
    const struct source *s = source;
    (void)epoch; /* for sources that vary their samples: by dpb_random, keyed by epoch and number */
    for (uint32_t i = 0; i < n; i++) {
        uint64_t line = split == DPB_TEST ? (indices[i] + 1) * s->test_every - 1
                                          : indices[i] + indices[i] / (s->test_every - 1);
        memcpy((float *)samples + (size_t)i * s->n_pixels, s->pixels + line * s->n_pixels,
               s->n_pixels * sizeof(float));
        labels[i] = s->labels[line];
    }
    return DPB_OK;
}

/* ---- entry --------------------------------------------------------------------------------- */

static const struct dpb_data_ops ops = {
    .open = open_source,
    .fetch = fetch,
    .close = close_source,
};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(DATA, ops),
    .name = "csv",
    .version = "1",
    .summary = "square grey images, a line of text each",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
