/*
 * gpt.c - GPT-2: a row of the embedding for each token and one for its position, blocks of causal
 * attention, and at each position the next token, by the embedding's own weight.
 *
 * Radford et al.: Language models are unsupervised multitask learners. OpenAI 2019. Initial values
 * are OpenAI's: 0.02, positions 0.01, what a sum follows 0.02 / sqrt(2 blocks). No dropout.
 */
#include <math.h>

#include "transformer.h"

struct options {
    int64_t layers, heads, width, context;
    bool tied;
};

static const struct dpb_option option_table[] = {
    COUNT_ROW(layers, "12", 512, "blocks."),
    COUNT_ROW(heads, "12", 512, "of attention; they divide the width."),
    COUNT_ROW(width, "768", 65536, "channels of a position."),
    COUNT_ROW(context, "1024", 1 << 20, "rows of the table of positions: the longest sequence."),
    {.name = "tied",
     .type = DPB_OPT_BOOL,
     .def = "yes",
     .offset = offsetof(struct options, tied),
     .help = "the classifier has the embedding's weight."},
    {.name = NULL},
};

/* Of Hugging Face's files: layers of the kind Conv1D have their weights transposed, and the
 * masks of attention are tensors. */
static const struct dpb_file_layer layers[] = {
    {"tokens", "wte", false},
    {"positions", "wpe", false},
    {"block#.norm1", "h.#.ln_1", false},
    {"block#.qkv", "h.#.attn.c_attn", true},
    {"block#.projection", "h.#.attn.c_proj", true},
    {"block#.norm2", "h.#.ln_2", false},
    {"block#.fc1", "h.#.mlp.c_fc", true},
    {"block#.fc2", "h.#.mlp.c_proj", true},
    {"norm", "ln_f", false},
    {"head", "lm_head", false},
    {NULL, "h.#.attn.bias", false},
    {NULL, "h.#.attn.masked_bias", false},
    {NULL, NULL, false},
};
static const struct dpb_file_layout layout = {"gpt2", "transformer.", layers};

static void describe(const void *options, struct dpb_model_info *info)
{
    const struct options *of = options;
    *info = (struct dpb_model_info){.input = {1, 1, (uint32_t)of->context},
                                    .nclass = 50257,
                                    .batch = 4,
                                    .any_image = true,
                                    .ids = true};
}

MODEL_INFO(describe_gpt2, .input = {1, 1, 1024}, .nclass = 50257, .batch = 4, .ids = true)
MODEL_INFO(describe_tiny, .input = {1, 1, 64}, .nclass = 256, .batch = 32, .ids = true)

static dpb_status build(const void *options, const struct dpb_graph_ops *g,
                        struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct options *of = options;
    const double stddev = 0.02;
    const struct net net = {.g = g,
                            .b = b,
                            .width = (uint32_t)of->width,
                            .heads = (uint32_t)of->heads,
                            .causal = true,
                            .tanh = true,
                            .epsilon = 1e-5,
                            .stddev = stddev,
                            .residual_stddev = stddev / sqrt(2.0 * (double)of->layers)};
    const struct dpb_positions_args positions = {
        .rows = (uint32_t)of->context, .init_stddev = 0.01, .decays = true};
    const struct dpb_conv_args classes = {.channels = nclass, .kernel_h = 1};
    const struct dpb_initial normal = {DPB_INITIAL_NORMAL, stddev};
    const uint32_t embedding = g->embedding(b, "tokens", g->input(b), net.width);
    uint32_t x = g->positions(b, "positions", embedding, &positions);
    for (uint32_t i = 1; i <= (uint32_t)of->layers; i++)
        x = block(&net, i, x);
    x = g->layer_norm(b, "norm", x, net.epsilon);
    if (of->tied)
        x = g->tied(b, "head", x, embedding);
    else
        x = g->initial(b, g->conv(b, "head", x, &classes), &normal, NULL);
    g->softmax_loss(b, "loss", x);
    return DPB_OK;
}

#define GPT(NAME, LAYERS, HEADS, WIDTH, CONTEXT, DESCRIBE, TITLE, NEXT)                \
    static dpb_status build_##NAME(const void *options, const struct dpb_graph_ops *g, \
                                   struct dpb_graph_builder *b, uint32_t nclass)       \
    {                                                                                  \
        const struct options of = {.layers = (LAYERS),                                 \
                                   .heads = (HEADS),                                   \
                                   .width = (WIDTH),                                   \
                                   .context = (CONTEXT),                               \
                                   .tied = true};                                      \
        (void)options;                                                                 \
        return build(&of, g, b, nclass);                                               \
    }                                                                                  \
    MODEL_IN(NAME, DESCRIBE, build_##NAME, &layout, .summary = TITLE, .next = NEXT)

GPT(gpt_tiny, 4, 4, 128, 64, describe_tiny, "a GPT of 0.8 million parameters for bytes of text",
    NULL)
GPT(gpt2_xl, 48, 25, 1600, 1024, describe_gpt2, "GPT-2 XL: 48 blocks of width 1600", &gpt_tiny)
GPT(gpt2_large, 36, 20, 1280, 1024, describe_gpt2, "GPT-2 large: 36 blocks of width 1280", &gpt2_xl)
GPT(gpt2_medium, 24, 16, 1024, 1024, describe_gpt2, "GPT-2 medium: 24 blocks of width 1024",
    &gpt2_large)
GPT(gpt2, 12, 12, 768, 1024, describe_gpt2, "GPT-2: 12 blocks of width 768", &gpt2_medium)
MODEL_IN(gpt, describe, build, &layout, .summary = "a GPT of any size", .options = option_table,
         .options_size = sizeof(struct options), .next = &gpt2)

MODELS(gpt)
