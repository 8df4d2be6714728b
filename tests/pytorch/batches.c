/*
 * batches.c - writes the training batches of an experiment as its feed hands them out, those of all
 * workers and micro-batches in the order of the global batch, for continuation.py.
 *
 *   batches DIRECTORY STEPS SECTION.KEY=VALUE...
 *
 * DIRECTORY gets batches.json, `samples` (as the data plugin makes them, CHW, before scale and
 * offset) and `labels` (int32).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/log.h"
#include "plan/experiment.h"
#include "feed/feed.h"

struct output {
    const char *directory;
    FILE *samples, *labels;
};

static dpb_status open_file(const char *directory, const char *name, FILE **file)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    *file = fopen(path, "wb");
    return *file ? DPB_OK : dpb_fail(DPB_IO, "%s: %s", path, strerror(errno));
}

static dpb_status write_description(const struct output *output, const struct dpb_experiment *x)
{
    const struct dpb_sample_format *format = &x->data_info.format;
    json_t *scale = json_array(), *offset = json_array();
    for (uint32_t c = 0; c < format->shape.c; c++) {
        json_array_append_new(scale, json_real((double)format->scale[c]));
        json_array_append_new(offset, json_real((double)format->offset[c]));
    }
    json_t *json =
        json_pack("{s:i,s:i,s:i,s:[i,i,i],s:s,s:o,s:o}", "nclass", (int)x->data_info.nclass,
                  "micro_batches", (int)(x->n_workers * x->accumulate), "batch", (int)x->batch,
                  "shape", (int)format->shape.c, (int)format->shape.h, (int)format->shape.w, "type",
                  dpb_dtype_name(format->type), "scale", scale, "offset", offset);
    char path[1024];
    snprintf(path, sizeof path, "%s/batches.json", output->directory);
    int failed = json_dump_file(json, path, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(json);
    return failed ? dpb_fail(DPB_IO, "%s: cannot be written", path) : DPB_OK;
}

static dpb_status write_batch(const struct output *output, const struct dpb_batch *batch)
{
    const size_t bytes = dpb_sample_bytes(batch->format);
    const size_t n_labels = (size_t)batch->n * dpb_sample_labels(batch->format);
    if (fwrite(batch->samples, bytes, batch->n, output->samples) != batch->n ||
        fwrite(batch->labels, sizeof *batch->labels, n_labels, output->labels) != n_labels)
        return dpb_fail(DPB_IO, "%s: %s", output->directory, strerror(errno));
    return DPB_OK;
}

static dpb_status write_batches(const struct output *output, const struct dpb_experiment *x,
                                uint64_t n_steps)
{
    if (x->data_info.format.order != DPB_CHW || x->settings.data.shard)
        return dpb_fail(DPB_UNSUPPORTED, "batches: CHW samples only, and data.shard=no");
    /* One worker goes through what all of them do. */
    uint32_t micro_batches = x->n_workers * x->accumulate;
    struct dpb_feed_args args = dpb_experiment_feed(x);
    args.n_workers = 1;
    args.accumulate = micro_batches;
    args.threads = 0;
    struct dpb_feed *feed;
    struct dpb_feed_batch batch;
    DPB_TRY(dpb_feed_create(&args, &feed));
    dpb_status status = DPB_OK;
    for (uint64_t i = 0; i < n_steps * micro_batches && status == DPB_OK; i++) {
        status = dpb_feed_next(feed, &batch);
        if (status == DPB_OK)
            status = write_batch(output, &batch.batch);
    }
    dpb_feed_destroy(feed);
    return status;
}

static dpb_status make_experiment(char **assignments, struct dpb_experiment **experiment)
{
    struct dpb_config *config = dpb_config_create();
    if (!config)
        return DPB_NO_MEMORY;
    dpb_status status = DPB_OK;
    for (char **one = assignments; *one && status == DPB_OK; one++)
        status = dpb_config_assign(config, *one, "command line");
    if (status == DPB_OK)
        status = dpb_experiment_create(config, experiment);
    dpb_config_destroy(config);
    return status;
}

static dpb_status run(char **arguments)
{
    struct output output = {.directory = arguments[0]};
    struct dpb_experiment *experiment;
    DPB_TRY(make_experiment(arguments + 2, &experiment));
    dpb_status status = dpb_experiment_build(experiment, 0);
    if (status == DPB_OK)
        status = write_description(&output, experiment);
    if (status == DPB_OK)
        status = open_file(output.directory, "samples", &output.samples);
    if (status == DPB_OK)
        status = open_file(output.directory, "labels", &output.labels);
    if (status == DPB_OK)
        status = write_batches(&output, experiment, strtoull(arguments[1], NULL, 10));
    bool closed = !output.samples || fclose(output.samples) == 0;
    closed = (!output.labels || fclose(output.labels) == 0) && closed;
    if (status == DPB_OK && !closed)
        status = dpb_fail(DPB_IO, "%s: %s", output.directory, strerror(errno));
    dpb_experiment_destroy(experiment);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        dpb_fail(DPB_USAGE, "usage: batches DIRECTORY STEPS SECTION.KEY=VALUE...");
        return dpb_status_exit_code(DPB_USAGE);
    }
    return dpb_status_exit_code(run(argv + 1));
}
