/*
 * timed - a data source that takes exactly `fetch` for a batch, on each rank `later` more than on
 * the rank before, and gives zeros. It says that it read 1000 bytes and decoded 2000 for each
 * sample, and skipped one in each batch.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "dpbench/plugin.h"

static const struct dpb_host *host;

struct options {
    int64_t fetch_ns, later_ns, samples, test_samples, fail_at;
    const char *path, *shelf;
};

static const struct dpb_option option_table[] = {
    {"fetch", DPB_OPT_TIME, "ms", "0", 0, 1e12, NULL, offsetof(struct options, fetch_ns),
     "a batch takes so long", NULL},
    {"later", DPB_OPT_TIME, "ms", "0", 0, 1e12, NULL, offsetof(struct options, later_ns),
     "a batch of rank r takes r times as much longer", NULL},
    {"samples", DPB_OPT_INT, NULL, "1000000", 1, 1e9, NULL, offsetof(struct options, samples),
     "of the training set", NULL},
    {"test_samples", DPB_OPT_INT, NULL, "0", 0, 1e9, NULL, offsetof(struct options, test_samples),
     "of the test set", NULL},
    {"fail_at", DPB_OPT_INT, NULL, "0", 0, 1e9, NULL, offsetof(struct options, fail_at),
     "this batch, counted from 1, cannot be read; 0: none", NULL},
    {"path", DPB_OPT_STRING, NULL, "", 0, 0, NULL, offsetof(struct options, path), "not read",
     NULL},
    {"shelf", DPB_OPT_STRING, "directory", "", 0, 0, NULL, offsetof(struct options, shelf),
     "not read either", NULL},
    {0}};

struct source {
    int64_t fetch_ns, fail_at;
    size_t sample_bytes;
    _Atomic int64_t n_batches, n_samples;
};

static dpb_status timed_open(const void *options_, const struct dpb_data_request *request,
                             void **handle, struct dpb_data_info *info)
{
    const struct options *options = options_;
    struct source *source = host->alloc(sizeof *source);
    if (!source)
        return DPB_NO_MEMORY;
    *info = (struct dpb_data_info){
        .format = {.shape = request->shape, .type = DPB_UINT8, .order = DPB_CHW, .scale = {1.0f}},
        .nclass = request->nclass,
        .n_samples = {(uint64_t)options->samples, (uint64_t)options->test_samples}};
    source->fetch_ns = options->fetch_ns + request->rank * options->later_ns;
    source->fail_at = options->fail_at;
    source->sample_bytes = dpb_sample_bytes(&info->format);
    *handle = source;
    return DPB_OK;
}

static dpb_status timed_fetch(void *handle, dpb_split split, uint64_t epoch,
                              const uint64_t *indices, uint32_t n, void *samples, int32_t *labels)
{
    struct source *source = handle;
    int64_t until_ns = host->now_ns() + source->fetch_ns;
    const struct timespec until = {.tv_sec = until_ns / INT64_C(1000000000),
                                   .tv_nsec = until_ns % INT64_C(1000000000)};
    (void)split;
    (void)epoch;
    (void)indices;
    source->n_samples += n;
    if (++source->n_batches == source->fail_at)
        return host->fail(DPB_IO, "batch %lld cannot be read: it was told so",
                          (long long)source->fail_at);
    memset(samples, 0, n * source->sample_bytes);
    memset(labels, 0, n * sizeof *labels);
    prctl(PR_SET_TIMERSLACK, 1000); /* of the calling thread */
    while (source->fetch_ns > 0 &&
           clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
    return DPB_OK;
}

static void timed_close(void *handle)
{
    host->release(handle, sizeof(struct source));
}

static void timed_count(void *handle, struct dpb_data_counts *counts)
{
    struct source *source = handle;
    counts->bytes_read = 1000 * (uint64_t)source->n_samples;
    counts->bytes_decoded = 2000 * (uint64_t)source->n_samples;
    counts->skipped = (uint64_t)source->n_batches;
}

static const struct dpb_data_ops timed_ops = {
    .open = timed_open, .fetch = timed_fetch, .close = timed_close, .count = timed_count};

static const struct dpb_plugin timed = {DPB_PLUGIN_HEAD(DATA, timed_ops),
                                        .name = "timed",
                                        .version = "1",
                                        .summary = "a batch takes an exactly known time",
                                        .options = option_table,
                                        .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &timed;
}
