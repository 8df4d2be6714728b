/*
 * powersgd.c - the codec powersgd on gradients of several workers, for powersgd.py.
 *
 *   powersgd DIRECTORY RANK WORKERS STEPS SHAPE...      SHAPE: as 16x3x3x3
 *
 * DIRECTORY has `gradients`, fp32, [STEPS][WORKERS][elements of all shapes]. It gets, likewise in
 * fp32: `first`, the codec's state when the first message is made; `sums`, [STEPS][elements], what
 * all workers decode; `residuals`, [WORKERS][elements], after the last step.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/log.h"
#include "base/options.h"
#include "plugin/plugins.h"
#include "plan/experiment.h"

enum { MOST_WORKERS = 8, MOST_TENSORS = 16, OPTIONS_BYTES = 64 };

struct worker {
    float *gradients, *residual, *state;
    unsigned char *message;
};

struct run {
    const char *directory;
    const struct dpb_codec_ops *ops;
    _Alignas(16) char options[OPTIONS_BYTES];
    struct dpb_tensor tensors[MOST_TENSORS];
    struct dpb_codec_part part;
    struct worker workers[MOST_WORKERS];
    uint64_t n_steps;
    float *sum;
};

static dpb_status move(const struct run *run, const char *name, bool writes, float *values,
                       uint64_t at, uint64_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", run->directory, name);
    FILE *file = fopen(path, !writes ? "rb" : at == 0 ? "wb" : "ab");
    bool good = file && (writes || fseek(file, (long)(at * sizeof *values), SEEK_SET) == 0) &&
                (writes ? fwrite(values, sizeof *values, n, file)
                        : fread(values, sizeof *values, n, file)) == n;
    if (file && fclose(file) != 0)
        good = false;
    return good ? DPB_OK : dpb_fail(DPB_IO, "%s: %s", path, strerror(errno));
}

static void read_shape(const char *text, uint64_t offset, struct dpb_tensor *tensor)
{
    *tensor = (struct dpb_tensor){.n_elements = 1, .offset = offset};
    for (char *end; *text; text = *end ? end + 1 : end) {
        tensor->dims[tensor->n_dims] = (uint32_t)strtoul(text, &end, 10);
        tensor->n_elements *= tensor->dims[tensor->n_dims++];
    }
}

static dpb_status open_codec(struct run *run, const char *rank)
{
    const struct dpb_plugin *plugin;
    char setting[64];
    DPB_TRY(dpb_plugin_load(DPB_PLUGIN_CODEC, "powersgd", NULL, &dpb_host, &plugin));
    if (plugin->options_size > sizeof run->options)
        return dpb_fail(DPB_FAILED, "powersgd.c has no room for the codec's options");
    struct dpb_config *config = dpb_config_create();
    if (!config)
        return dpb_fail(DPB_NO_MEMORY, "no memory for settings");
    const struct dpb_option_table table = {"comm", "powersgd", plugin->options, run->options};
    snprintf(setting, sizeof setting, "comm.codec_rank=%s", rank);
    dpb_status status = dpb_config_assign(config, setting, "powersgd.c");
    if (status == DPB_OK)
        status = dpb_options_parse_known(&table, config);
    dpb_config_destroy(config);
    run->ops = plugin->ops;
    return status;
}

static void *allocate(uint64_t bytes)
{
    const uint64_t lines = bytes / DPB_CACHE_LINE + 1;
    void *memory = aligned_alloc(DPB_CACHE_LINE, lines * DPB_CACHE_LINE);
    if (!memory)
        abort();
    return memset(memory, 0, lines * DPB_CACHE_LINE);
}

static uint64_t open_workers(struct run *run)
{
    const uint64_t n = run->part.n, n_state = run->ops->state(run->options, &run->part);
    for (uint32_t w = 0; w < run->part.n_workers; w++)
        run->workers[w] = (struct worker){allocate(n * sizeof(float)), allocate(n * sizeof(float)),
                                          allocate(n_state * sizeof(float)),
                                          allocate(run->ops->bound(run->options, n))};
    run->sum = allocate(n * sizeof(float));
    return n_state;
}

static void close_workers(struct run *run)
{
    for (uint32_t w = 0; w < run->part.n_workers; w++) {
        free(run->workers[w].gradients);
        free(run->workers[w].residual);
        free(run->workers[w].state);
        free(run->workers[w].message);
    }
    free(run->sum);
}

static dpb_status exchange_round(struct run *run, uint64_t n_state)
{
    struct dpb_codec_part *part = &run->part;
    memset(run->sum, 0, part->n * sizeof *run->sum);
    for (part->rank = 0; part->rank < part->n_workers; part->rank++) {
        struct worker *worker = &run->workers[part->rank];
        part->state = worker->state;
        const uint64_t bytes = run->ops->encode(run->options, part, worker->gradients,
                                                worker->residual, worker->message);
        DPB_TRY(run->ops->decode(run->options, part, worker->message, bytes, run->sum));
    }
    if (part->step == 1 && part->round == 0)
        DPB_TRY(move(run, "first", true, run->workers[0].state, 0, n_state));
    for (part->rank = 0; part->rank < part->n_workers; part->rank++) {
        struct worker *worker = &run->workers[part->rank];
        part->state = worker->state;
        run->ops->finish(run->options, part, run->sum, worker->gradients, worker->residual);
    }
    return DPB_OK;
}

static dpb_status exchange(struct run *run, uint64_t n_state)
{
    struct dpb_codec_part *part = &run->part;
    for (part->step = 1; part->step <= run->n_steps; part->step++) {
        const uint64_t first = (part->step - 1) * part->n_workers;
        for (uint32_t w = 0; w < part->n_workers; w++)
            DPB_TRY(move(run, "gradients", false, run->workers[w].gradients, (first + w) * part->n,
                         part->n));
        for (part->round = 0; part->round < DPB_CODEC_ROUNDS; part->round++)
            DPB_TRY(exchange_round(run, n_state));
        for (uint32_t w = 1; w < part->n_workers; w++)
            if (memcmp(run->workers[w].gradients, run->workers[0].gradients,
                       part->n * sizeof(float)) != 0)
                return dpb_fail(DPB_VERIFICATION, "workers 0 and %u decode other numbers", w);
        DPB_TRY(move(run, "sums", true, run->workers[0].gradients, (part->step - 1) * part->n,
                     part->n));
    }
    for (uint32_t w = 0; w < part->n_workers; w++)
        DPB_TRY(move(run, "residuals", true, run->workers[w].residual, w * part->n, part->n));
    return DPB_OK;
}

int main(int argc, char **argv)
{
    static struct run run;
    const int n_shapes = argc - 5;
    if (n_shapes < 1 || n_shapes > MOST_TENSORS || strtoul(argv[3], NULL, 10) > MOST_WORKERS) {
        fputs("usage: powersgd DIRECTORY RANK WORKERS STEPS SHAPE...\n", stderr);
        return 2;
    }
    run.directory = argv[1];
    run.n_steps = strtoull(argv[4], NULL, 10);
    run.part = (struct dpb_codec_part){.seed = 1,
                                       .n_workers = (uint32_t)strtoul(argv[3], NULL, 10),
                                       .tensors = run.tensors,
                                       .n_tensors = (uint32_t)n_shapes};
    for (int i = 0; i < n_shapes; i++) {
        read_shape(argv[5 + i], run.part.n, &run.tensors[i]);
        run.part.n += run.tensors[i].n_elements;
    }
    dpb_status status = open_codec(&run, argv[2]);
    if (status == DPB_OK)
        status = exchange(&run, open_workers(&run));
    close_workers(&run);
    return status == DPB_OK ? 0 : 1;
}
