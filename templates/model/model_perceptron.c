/* model_perceptron.c - one dense layer from the pixels to the classes, or two with a hidden layer
 * between. */
#include <dpbench/plugin.h>

/* ---- options: a struct, and a row for each member ------------------------------------------ */

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
    info->input = (struct dpb_shape){.c = 1, .h = 28, .w = 28};
    info->nclass = 10; /* when the data does not say */
    info->batch = 32;
    info->any_image = true; /* of another size, too */
    info->any_channels = true;
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
    .name = "perceptron",
    .version = "1",
    .summary = "perceptron with one hidden layer or none",
    .options = option_rows,
    .options_size = sizeof(struct options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)
{
    (void)host; /* this plugin asks nothing of core */
    return &plugin;
}
