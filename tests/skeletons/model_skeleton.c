/*
 * model_skeleton.c - the smallest model: one dense layer from the pixels to the classes, or two
 * with a hidden layer between. Copy it, rename it, and build your own network:
 *
 *     cc -std=c11 -shared -fPIC -I.../include -o model_skeleton.so model_skeleton.c
 *     DPBENCH_PLUGIN_PATH=. dpbench help skeleton
 *
 * The file is called KIND_NAME.so, and NAME is what `model.name = NAME` says.
 */
#include "dpbench/plugin.h"

/* ---- options: a struct, and a row for each member; `dpbench help` prints the rows ---------- */

struct options {
    int64_t hidden;
};

static const struct dpb_option option_rows[] = {
    {.name = "hidden",
     .type = DPB_OPT_INT,
     .def = "0",
     .min = 0,
     .max = 4096,
     .offset = offsetof(struct options, hidden),
     .help = "features of a hidden layer; 0: none"},
    {.name = NULL}, /* the end of the table */
};

/* ---- hooks --------------------------------------------------------------------------------- */

/* What core has to know before it opens the data. */
static void describe(const void *options, struct dpb_model_info *info)
{
    (void)options;
    info->input = (struct dpb_shape){.c = 1, .h = 4, .w = 4};
    info->nclass = 3; /* when the data does not say */
    info->batch = 8;
    info->any_image = false; /* 4 x 4 and nothing else */
}

/* Adds the nodes in forward order. Core infers shapes and checks them; no call needs a check here.
 */
static dpb_status build(const void *options, const struct dpb_graph_ops *graph,
                        struct dpb_graph_builder *builder, uint32_t nclass)
{
    const struct options *o = options;
    uint32_t node = graph->input(builder);
    if (o->hidden > 0) {
        node = graph->dense(builder, "hidden", node, (uint32_t)o->hidden, true);
        node = graph->relu(builder, "relu", node);
    }
    node = graph->dense(builder, "classes", node, nclass, true);
    graph->softmax_loss(builder, "loss", node);
    return DPB_OK;
}

/* ---- entry: the one symbol of a plugin ----------------------------------------------------- */

static const struct dpb_model_ops ops = {
    .describe = describe,
    .build = build,
};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(MODEL, ops),
    .name = "skeleton",
    .version = "1",
    .summary = "the smallest model: softmax regression",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host; /* this plugin asks nothing of core */
    return &plugin;
}
