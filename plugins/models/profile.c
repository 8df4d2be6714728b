/*
 * profile.c - the tensors of a profile (lib/accelerator/accelerator.h), and nothing else: a network
 * that somebody traced, whose ops dpbench need not have. Only device `emulated` takes it.
 */
#include "lib/accelerator/accelerator.h"
#include "model.h"

static const struct dpb_host *host;

struct options {
    const char *file;
};

static const struct dpb_option option_table[] = {
    {"file", DPB_OPT_STRING, "file", "", 0, 0, NULL, offsetof(struct options, file),
     "The profile: a file of `dpbench profile`, or the name of one that came with dpbench.", NULL},
    {0}};

/* A sample is two numbers, one a class: nobody reads it. */
static void describe(const void *options_, struct dpb_model_info *info)
{
    const struct options *options = options_;
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY];
    *info = (struct dpb_model_info){.input = {2, 1, 1}, .nclass = 2, .batch = 1};
    if (options->file[0] == '\0' || !dpb_accelerator_read(options->file, &profile, why))
        return; /* build says so */
    info->batch = profile.batch;
    dpb_accelerator_release(&profile);
}

/* Backward's first tensor is the last of the graph. */
static dpb_status build(const void *options_, const struct dpb_graph_ops *graph,
                        struct dpb_graph_builder *builder, uint32_t nclass)
{
    const struct options *options = options_;
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY];
    (void)nclass;
    if (options->file[0] == '\0')
        return host->fail(DPB_USAGE, "model 'profile': which one? give model.file, a profile of "
                                     "`dpbench profile` or the name of one that came with dpbench");
    if (!dpb_accelerator_read(options->file, &profile, why))
        return host->fail(DPB_USAGE, "model 'profile': model.file: %s", why);
    uint32_t node = graph->input(builder);
    for (uint32_t i = profile.n_tensors; i-- > 0;)
        node = graph->tensor(builder, profile.tensors[i].name, node,
                             (uint32_t)profile.tensors[i].n_elements,
                             i + 1 == profile.n_tensors ? profile.macs : 0);
    graph->softmax_loss(builder, "loss", node);
    dpb_accelerator_release(&profile);
    return DPB_OK;
}

static const struct dpb_model_ops ops = {.describe = describe, .build = build};

static const struct dpb_plugin plugin = {
    DPB_PLUGIN_HEAD(MODEL, ops), .name = "profile",
    .version = DPB_VERSION,      .summary = "the tensors of a profile, for device emulated",
    .options = option_table,     .options_size = sizeof(struct options)};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &plugin;
}
