/* loud - a network whose plugin prints on standard output wherever it runs. */
#include <stdio.h>

#include "dpbench/plugin.h"

__attribute__((constructor)) static void begin(void)
{
    puts("loud: loaded");
    fflush(stdout);
}

static void describe(const void *options, struct dpb_model_info *info)
{
    (void)options;
    *info = (struct dpb_model_info){.input = {1, 4, 4}, .nclass = 4, .batch = 2};
}

static dpb_status build(const void *options, const struct dpb_graph_ops *graph,
                        struct dpb_graph_builder *builder, uint32_t nclass)
{
    (void)options;
    puts("loud: build"); /* stays in the buffer */
    graph->softmax_loss(builder, "loss",
                        graph->dense(builder, "fc", graph->input(builder), nclass, true));
    return DPB_OK;
}

static const struct dpb_model_ops ops = {.describe = describe, .build = build};

static const struct dpb_plugin loud = {DPB_PLUGIN_HEAD(MODEL, ops), .name = "loud", .version = "1",
                                       .summary = "prints"};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host;
    puts("loud: entry");
    return &loud;
}
