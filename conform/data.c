/* data.c - the conformance suite of data sources: see conform.h. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "conform/conform.h"
#include "conform/session.h"
#include "dpbench/random.h"

enum { SAMPLES = 64, THREADS = 4, ROUNDS = 8 };
enum { LENGTH = 48 }; /* ids of a sample */
/* Fill buffers before a fetch, the first and later ones: bytes that fetch leaves out differ. */
enum { CANARY = 0xa5, CANARY_AGAIN = 0x5a };

static const char *const split_names[] = {[DPB_TRAIN] = "training", [DPB_TEST] = "test"};

struct subject {
    const struct dpb_data_ops *ops;
    const void *options;
    struct dpb_data_request request;
    void *source;
    struct dpb_data_info info;
    size_t sample_bytes;
    uint32_t n_labels; /* of a sample */
};

/* Samples of a split as they were fetched first, one by one. */
struct samples {
    const struct subject *subject;
    dpb_split split;
    uint64_t epoch;
    uint32_t n;
    uint64_t indices[SAMPLES];
    unsigned char *bytes;
    int32_t *labels;
};

static dpb_status allocate(struct samples *samples)
{
    const struct subject *subject = samples->subject;
    samples->bytes = malloc(SAMPLES * subject->sample_bytes);
    samples->labels = malloc(SAMPLES * sizeof *samples->labels * subject->n_labels);
    return samples->bytes && samples->labels ? DPB_OK
                                             : dpb_fail(DPB_NO_MEMORY, "no memory for samples");
}

static void release(struct samples *samples)
{
    free(samples->bytes);
    free(samples->labels);
}

static dpb_status open_source(struct subject *subject)
{
    return subject->ops->open(subject->options, &subject->request, &subject->source,
                              &subject->info);
}

/* A source of text refuses the request of a model of images. */
static dpb_status open_any(struct subject *subject)
{
    const dpb_status status = open_source(subject);
    if (status != DPB_UNSUPPORTED)
        return status;
    char refusal[1024];
    snprintf(refusal, sizeof refusal, "%s", dpb_first_error(NULL));
    dpb_first_error_clear();
    const struct dpb_data_request images = subject->request;
    subject->request.shape = (struct dpb_shape){1, 1, LENGTH};
    subject->request.nclass = 256;
    subject->request.ids = true;
    const dpb_status of_ids = open_source(subject);
    if (of_ids != DPB_UNSUPPORTED)
        return of_ids;
    subject->request = images;
    dpb_first_error_clear();
    return dpb_fail(DPB_UNSUPPORTED, "%s", refusal);
}

static dpb_status check_info(struct subject *subject)
{
    const struct dpb_sample_format *format = &subject->info.format;
    const struct dpb_shape shape = format->shape;
    subject->sample_bytes = dpb_sample_bytes(format);
    subject->n_labels = dpb_sample_labels(format);
    if (shape.c == 0 || shape.c > DPB_MAX_CHANNELS || shape.h == 0 || shape.w == 0)
        return dpb_fail(DPB_VERIFICATION, "info: samples of %u x %u x %u; 1 to %d channels",
                        shape.c, shape.h, shape.w, DPB_MAX_CHANNELS);
    if (subject->request.ids != (format->type == DPB_INT32))
        return dpb_fail(DPB_VERIFICATION, "info: the samples' type is %s; %s",
                        dpb_dtype_name(format->type),
                        subject->request.ids ? "the request is of ids (int32)"
                                             : "the request is of images (uint8 or fp32)");
    if (format->type != DPB_UINT8 && format->type != DPB_FP32 && format->type != DPB_INT32)
        return dpb_fail(DPB_VERIFICATION, "info: the samples' type is neither uint8 nor fp32");
    if (format->type == DPB_INT32 && (shape.c != 1 || shape.h != 1))
        return dpb_fail(DPB_VERIFICATION,
                        "info: samples of ids are %u x %u x %u; 1 x 1 x length are wanted", shape.c,
                        shape.h, shape.w);
    if (subject->info.nclass < 2)
        return dpb_fail(DPB_VERIFICATION, "info: %u classes", subject->info.nclass);
    if (subject->info.n_samples[DPB_TRAIN] == 0)
        return dpb_fail(DPB_VERIFICATION, "info: no training samples");
    for (uint32_t c = 0; format->type != DPB_INT32 && c < shape.c; c++)
        if (!isfinite(format->scale[c]) || format->scale[c] == 0 || !isfinite(format->offset[c]))
            return dpb_fail(DPB_VERIFICATION, "info: scale %g and offset %g of channel %u",
                            (double)format->scale[c], (double)format->offset[c], c);
    return DPB_OK;
}

/* Memory between two guards, all of it full of one byte. */
enum { GUARD = 64 };

static unsigned char *guard(size_t n_bytes, unsigned char fill)
{
    unsigned char *guarded = malloc(n_bytes + 2 * GUARD);
    if (guarded)
        memset(guarded, fill, n_bytes + 2 * GUARD);
    return guarded;
}

static bool is_intact(const unsigned char *guarded, size_t n_bytes, unsigned char fill)
{
    bool intact = true;
    for (size_t i = 0; i < GUARD; i++)
        intact &= guarded[i] == fill && guarded[GUARD + n_bytes + i] == fill;
    return intact;
}

/* Fetches into the middle of larger buffers, full of `fill`, whose ends must stay so. */
static dpb_status fetch(const struct samples *samples, const uint64_t *indices, uint32_t n,
                        unsigned char fill, unsigned char *bytes, int32_t *labels)
{
    const struct subject *subject = samples->subject;
    const size_t n_bytes = n * subject->sample_bytes;
    const size_t n_labels = (size_t)n * subject->n_labels, label_bytes = n_labels * sizeof *labels;
    unsigned char *guarded = guard(n_bytes, fill), *guarded_labels = guard(label_bytes, fill);
    dpb_status status = DPB_OK;
    if (!guarded || !guarded_labels)
        status = dpb_fail(DPB_NO_MEMORY, "no memory for %u samples", n);
    DPB_THEN(status, subject->ops->fetch(subject->source, samples->split, samples->epoch, indices,
                                         n, guarded + GUARD, (int32_t *)(guarded_labels + GUARD)));
    if (status == DPB_OK) {
        memcpy(bytes, guarded + GUARD, n_bytes);
        memcpy(labels, guarded_labels + GUARD, label_bytes);
        if (!is_intact(guarded, n_bytes, fill) || !is_intact(guarded_labels, label_bytes, fill))
            status = dpb_fail(DPB_VERIFICATION,
                              "fetch of %u samples wrote outside of their %zu bytes or %zu labels",
                              n, n_bytes, n_labels);
    }
    free(guarded);
    free(guarded_labels);
    return status;
}

/* Labels and ids. */
static dpb_status check_numbers(const struct samples *samples, uint32_t i, const void *numbers,
                                const char *what)
{
    const uint32_t nclass = samples->subject->info.nclass;
    for (uint32_t k = 0; k < samples->subject->n_labels; k++) {
        int32_t number;
        memcpy(&number, (const char *)numbers + k * sizeof number, sizeof number);
        if (number < 0 || (uint32_t)number >= nclass)
            return dpb_fail(DPB_VERIFICATION, "%s sample %llu: %s %d, of %u classes",
                            split_names[samples->split], (unsigned long long)samples->indices[i],
                            what, number, nclass);
    }
    return DPB_OK;
}

static dpb_status check_sample(const struct samples *samples, uint32_t i)
{
    const struct subject *subject = samples->subject;
    const dpb_dtype type = subject->info.format.type;
    const uint64_t n = dpb_shape_elements(subject->info.format.shape);
    const unsigned char *sample = samples->bytes + i * subject->sample_bytes;
    DPB_TRY(check_numbers(samples, i, samples->labels + (size_t)i * subject->n_labels, "label"));
    if (type == DPB_INT32)
        return check_numbers(samples, i, sample, "id");
    for (uint64_t k = 0; type == DPB_FP32 && k < n; k++) {
        float value;
        memcpy(&value, sample + k * sizeof value, sizeof value);
        if (!isfinite(value))
            return dpb_fail(DPB_VERIFICATION, "%s sample %llu: element %llu is %g",
                            split_names[samples->split], (unsigned long long)samples->indices[i],
                            (unsigned long long)k, (double)value);
    }
    return DPB_OK;
}

/* The first samples, the last, and some between, one by one. */
static dpb_status fetch_first(struct samples *samples)
{
    const uint64_t all = samples->subject->info.n_samples[samples->split];
    samples->n = all < SAMPLES ? (uint32_t)all : SAMPLES;
    for (uint32_t i = 0; i < samples->n; i++) {
        samples->indices[i] = samples->n == 1 ? 0 : (all - 1) / (samples->n - 1) * i;
        if (i + 1 == samples->n)
            samples->indices[i] = all - 1;
        DPB_TRY(fetch(samples, &samples->indices[i], 1, CANARY,
                      samples->bytes + i * samples->subject->sample_bytes,
                      samples->labels + (size_t)i * samples->subject->n_labels));
        DPB_TRY(check_sample(samples, i));
    }
    return DPB_OK;
}

static dpb_status refuse_change(const struct samples *samples, uint32_t i,
                                const unsigned char *bytes, const char *when)
{
    const size_t size = samples->subject->sample_bytes;
    const unsigned char *first = samples->bytes + i * size;
    const char *split = split_names[samples->split];
    const unsigned long long index = samples->indices[i];
    size_t left_out = size;
    bool others = false; /* bytes differ that fetch wrote */
    for (size_t k = size; k-- > 0;) {
        if (first[k] == CANARY && bytes[k] == CANARY_AGAIN)
            left_out = k;
        else
            others |= first[k] != bytes[k];
    }
    if (left_out < size && !others)
        return dpb_fail(DPB_VERIFICATION, "%s sample %llu: fetch did not write byte %zu of %zu",
                        split, index, left_out, size);
    return dpb_fail(DPB_VERIFICATION,
                    "%s sample %llu is another one %s; a sample depends on its number, the epoch "
                    "and the seed alone",
                    split, index, when);
}

/* All of them once more in one call, backwards from the first-th, must be unchanged. */
static dpb_status check_again(const struct samples *samples, uint32_t first, const char *when)
{
    const size_t size = samples->subject->sample_bytes, n_labels = samples->subject->n_labels;
    uint64_t indices[SAMPLES];
    struct samples again = *samples;
    dpb_status status = allocate(&again);
    for (uint32_t i = 0; i < samples->n; i++)
        indices[i] = samples->indices[(first + samples->n - i) % samples->n];
    DPB_THEN(status, fetch(samples, indices, samples->n, CANARY_AGAIN, again.bytes, again.labels));
    for (uint32_t i = 0; i < samples->n && status == DPB_OK; i++) {
        const uint32_t at = (first + samples->n - i) % samples->n;
        if (memcmp(again.labels + i * n_labels, samples->labels + at * n_labels,
                   n_labels * sizeof *again.labels) != 0 ||
            memcmp(again.bytes + i * size, samples->bytes + at * size, size) != 0)
            status = refuse_change(samples, at, again.bytes + i * size, when);
    }
    release(&again);
    return status;
}

struct worker {
    pthread_t thread;
    const struct samples *samples;
    uint32_t number;
    dpb_status status;
};

static void *work(void *context)
{
    struct worker *worker = context;
    for (uint32_t round = 0; round < ROUNDS && worker->status == DPB_OK; round++)
        worker->status = check_again(worker->samples, worker->number * 5 + round,
                                     "while other threads fetch, too");
    return NULL;
}

static dpb_status check_threads(const struct samples *samples)
{
    struct worker workers[THREADS];
    uint32_t n = 0;
    dpb_status status = DPB_OK;
    for (; n < THREADS; n++) {
        workers[n] = (struct worker){.samples = samples, .number = n};
        if (pthread_create(&workers[n].thread, NULL, work, &workers[n]) != 0) {
            status = dpb_fail(DPB_FAILED, "no thread");
            break;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        pthread_join(workers[i].thread, NULL);
        status = status == DPB_OK ? workers[i].status : status;
    }
    return status;
}

/* A source that was opened anew, as another worker opens it. */
static dpb_status check_reopened(const struct subject *subject, const struct samples *samples)
{
    struct subject again = *subject;
    struct samples from_again = *samples;
    again.request.rank = 1;
    again.request.n_workers = 2;
    from_again.subject = &again;
    DPB_TRY(open_source(&again));
    dpb_status status = check_again(&from_again, 3, "in a source opened by another worker");
    again.ops->close(again.source);
    return status;
}

static void try_split(struct dpb_conform *conform, const struct subject *subject, dpb_split split,
                      uint64_t epoch)
{
    struct samples samples = {.subject = subject, .split = split, .epoch = epoch};
    dpb_conform_heading(conform, "%s, epoch %llu: %llu samples", split_names[split],
                        (unsigned long long)epoch,
                        (unsigned long long)subject->info.n_samples[split]);
    dpb_status status = allocate(&samples);
    DPB_THEN(status, fetch_first(&samples));
    dpb_conform_trial(conform, status, "bounds");
    if (status == DPB_OK) {
        dpb_conform_trial(conform, check_again(&samples, 0, "in another order, in one call"),
                          "determinism");
        dpb_conform_trial(conform, check_threads(&samples), "threads");
        dpb_conform_trial(conform, check_reopened(subject, &samples), "another worker");
    }
    dpb_conform_end(conform);
    release(&samples);
}

/* ---- bad files ------------------------------------------------------------------------------ */

enum { EMPTY, CUT, RANDOM, DAMAGES };
static const char *const damage_names[] = {"empty", "cut in half", "of random bytes"};

enum { TAKEN = 10, REFUSED, REFUSED_WITHOUT_NAME, OUT_OF_BOUNDS }; /* exit codes of the child */
enum { PATIENCE_S = 20, MOST_DAMAGED_BYTES = 16 << 20 };

/* The option that names the source's file; NULL: there is none, or it is not given. */
static const struct dpb_option *find_input(const struct dpb_plugin *plugin, const void *options,
                                           const char **path)
{
    for (const struct dpb_option *row = plugin->options; row && row->name; row++) {
        const bool is_input =
            strcmp(row->name, "path") == 0 || (row->unit && strcmp(row->unit, "file") == 0);
        *path = row->type == DPB_OPT_STRING
                    ? *(const char *const *)(const void *)((const char *)options + row->offset)
                    : "";
        if (is_input && (*path)[0] != '\0')
            return row;
    }
    return NULL;
}

static dpb_status write_damaged(const char *from, const char *to, int damage)
{
    FILE *in = fopen(from, "rbe"), *out = fopen(to, "wbxe");
    unsigned char *bytes = malloc(MOST_DAMAGED_BYTES);
    size_t n = in && bytes ? fread(bytes, 1, MOST_DAMAGED_BYTES, in) : 0;
    n = damage == EMPTY ? 0 : damage == CUT ? n / 2 : n;
    for (size_t i = 0; damage == RANDOM && i < n; i++)
        bytes[i] = (unsigned char)dpb_random(17, DPB_STREAM_SYNTHETIC, 0, (uint32_t)i, 0, 0).v[0];
    bool written = in && out && bytes && fwrite(bytes, 1, n, out) == n;
    free(bytes);
    if (in)
        fclose(in);
    if (out)
        written &= fclose(out) == 0;
    return written ? DPB_OK : dpb_fail(DPB_IO, "%s cannot be written from %s: %m", to, from);
}

/* In the child: opens the source and takes some samples of both splits. */
static int read_damaged(struct subject *subject, const char *file)
{
    dpb_status status = open_source(subject);
    DPB_THEN(status, check_info(subject));
    for (int split = 0; split < 2 && status == DPB_OK; split++) {
        struct samples samples = {.subject = subject, .split = (dpb_split)split};
        status = allocate(&samples);
        if (subject->info.n_samples[split] > 0)
            DPB_THEN(status, fetch_first(&samples));
        release(&samples);
    }
    if (status == DPB_OK || status == DPB_VERIFICATION)
        return status == DPB_OK ? TAKEN : OUT_OF_BOUNDS;
    return strstr(dpb_first_error(NULL), file) ? REFUSED : REFUSED_WITHOUT_NAME;
}

static dpb_status judge_damaged(int state, int damage)
{
    const char *how = damage_names[damage];
    const int code = WIFEXITED(state) ? WEXITSTATUS(state) : 0;
    if (WIFSIGNALED(state))
        return dpb_fail(DPB_VERIFICATION, "a file that is %s ends the process by signal %d (%s)",
                        how, WTERMSIG(state), strsignal(WTERMSIG(state)));
    if (code == REFUSED || (code == TAKEN && damage != EMPTY))
        return DPB_OK;
    return dpb_fail(DPB_VERIFICATION, "a file that is %s %s", how,
                    code == TAKEN                  ? "is taken"
                    : code == REFUSED_WITHOUT_NAME ? "is refused without the file's name"
                    : code == OUT_OF_BOUNDS        ? "gives a label or a value out of bounds"
                                                   : "ends the process");
}

/* A child opens the damaged file. */
static dpb_status try_damaged(const struct subject *subject, const struct dpb_plugin *plugin,
                              const struct dpb_option *row, const char *path, int damage)
{
    int state;
    struct subject own = *subject;
    void *options = calloc(1, plugin->options_size);
    DPB_TRY(dpb_allocated(options));
    memcpy(options, subject->options, plugin->options_size);
    *(const char **)(void *)((char *)options + row->offset) = path;
    own.options = options;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S);
        _exit(read_damaged(&own, path));
    }
    free(options);
    if (child < 0 || waitpid(child, &state, 0) != child)
        return dpb_fail(DPB_FAILED, "no process for a bad file: %m");
    return judge_damaged(state, damage);
}

static dpb_status try_damage(const struct subject *subject, const struct dpb_plugin *plugin,
                             const struct dpb_option *row, const char *input, int damage)
{
    char place[] = "/tmp/dpbench-conform-XXXXXX", path[sizeof place + 16];
    if (!mkdtemp(place))
        return dpb_fail(DPB_IO, "%s: %m", place);
    snprintf(path, sizeof path, "%s/damaged", place);
    dpb_status status = write_damaged(input, path, damage);
    DPB_THEN(status, try_damaged(subject, plugin, row, path, damage));
    unlink(path);
    rmdir(place);
    return status;
}

/* Of a source that reads one file. */
static void try_bad_files(struct dpb_conform *conform, const struct subject *subject,
                          const struct dpb_plugin *plugin)
{
    const char *input = "";
    struct stat info;
    const struct dpb_option *row = find_input(plugin, subject->options, &input);
    if (!row || stat(input, &info) != 0 || !S_ISREG(info.st_mode)) {
        puts("not shown: that bad files are refused: the source reads no single file");
        return;
    }
    dpb_conform_heading(conform, "bad files");
    for (int damage = 0; damage < DAMAGES; damage++)
        dpb_conform_trial(conform,
                          dpb_conform_promised(try_damage(subject, plugin, row, input, damage)),
                          damage_names[damage]);
    dpb_conform_end(conform);
}

void dpb_conform_data(struct dpb_conform *conform, const struct dpb_plugin *plugin,
                      const void *options)
{
    struct subject subject = {
        .ops = plugin->ops,
        .options = options,
        .request = {.shape = {3, 32, 32}, .nclass = 10, .seed = 1, .n_workers = 1}};
    dpb_status status = open_any(&subject);
    dpb_conform_heading(conform, "open");
    DPB_THEN(status, check_info(&subject));
    /* Wrong options are no failure of the source. */
    dpb_conform_trial(conform, status == DPB_DATA ? DPB_USAGE : status, "info");
    dpb_conform_end(conform);
    if (status == DPB_OK) {
        try_split(conform, &subject, DPB_TRAIN, 0);
        try_split(conform, &subject, DPB_TRAIN, 3);
        if (subject.info.n_samples[DPB_TEST] > 0)
            try_split(conform, &subject, DPB_TEST, 0);
    }
    if (status == DPB_OK)
        try_bad_files(conform, &subject, plugin);
    subject.ops->close(subject.source);
    subject.ops->close(NULL);
    puts(
        "bounds: up to 64 samples, the first and the last among them: labels and ids below nclass, "
        "finite values, no byte written outside\n"
        "determinism: the same bytes in another order, in one call, from 4 threads at once, and "
        "from another worker's source\n"
        "bad files: refused with the file's name, or read within bounds; an empty one is refused\n"
        "not shown: speed (`dpbench data`), sharded sources");
}
