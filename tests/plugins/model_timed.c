/*
 * timed - a model of `layers` layers (an even number) with exactly `parameters` trainable ones
 * each: dense layers without bias, by turns from 2 features to many and back. With comm.bucket set
 * to a layer's bytes, bucket i of the arena is the i-th layer that backward finishes.
 */
#include <inttypes.h>
#include <stdio.h>

#include "dpbench/plugin.h"

enum { NARROW = 2 /* features between a pair of layers; classes too */ };

static const struct dpb_host *host;

struct options {
    int64_t layers, parameters;
};

static const struct dpb_option option_table[] = {
    {"layers", DPB_OPT_INT, NULL, "4", 2, 1000, NULL, offsetof(struct options, layers),
     "dense layers; an even number", NULL},
    {"parameters", DPB_OPT_INT, NULL, "1024", 32, 1e9, NULL, offsetof(struct options, parameters),
     "of each layer; a multiple of 32, so that no gap follows a layer", NULL},
    {0}};

static void describe(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {1, 1, NARROW}, .nclass = NARROW, .batch = 8};
}

static dpb_status build(const void *options_, const struct dpb_graph_ops *graph,
                        struct dpb_graph_builder *builder, uint32_t nclass)
{
    const struct options *options = options_;
    uint32_t wide = (uint32_t)options->parameters / NARROW;
    if (options->layers % 2 != 0 || options->parameters % (NARROW * DPB_TENSOR_ALIGN) != 0 ||
        nclass != NARROW)
        return host->fail(DPB_USAGE,
                          "model 'timed': layers = %" PRId64 " must be even, parameters "
                          "= %" PRId64 " a multiple of 32, classes 2",
                          options->layers, options->parameters);
    uint32_t x = graph->input(builder);
    for (int64_t i = 0; i < options->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer%" PRId64, i);
        x = graph->dense(builder, name, x, i % 2 == 0 ? wide : NARROW, false);
    }
    graph->softmax_loss(builder, "loss", x);
    return DPB_OK;
}

static const struct dpb_model_ops ops = {.describe = describe, .build = build};

static const struct dpb_plugin timed = {DPB_PLUGIN_HEAD(MODEL, ops),
                                        .name = "timed",
                                        .version = "1",
                                        .summary = "equal layers of a chosen number of parameters",
                                        .options = option_table,
                                        .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &timed;
}
