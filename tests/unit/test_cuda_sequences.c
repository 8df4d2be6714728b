/* needs: cuda stand-in */
/*
 * test_cuda_sequences.c - networks of sequences on the cuda device, on a CUDA for tests, or with
 * DPB_TEST_DEVICE=cuda on a GPU: every op against the reference in all precisions, attention in
 * several blocks and calls, odd sizes, 64-bit indices, the account, and what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/model.h"
#include "lib/opcheck.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "plugins/devices/cuda/program.h"
#include "plugins/models/transformer.h"

static struct options options;

/* ---- gpt and vit --------------------------------------------------------------------------- */

static const struct subject gpt = {"gpt_tiny", NULL, 11, 2, DPB_INT32, DPB_CHW, NULL};

/* A tied tensor, whose 10 classes are no multiple of a pack's 8; ids that come back, and a table of
 * positions with more rows than there are positions. */
TEST(test_gpt)
{
    check_subject(&gpt, ALL);
}

/* A block of attention that sees everything, of `heads` heads of 16 channels, behind x. */
static uint32_t blocks_of(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x,
                          uint32_t heads, bool causal)
{
    const struct net net = {.g = g,
                            .b = b,
                            .width = 16 * heads,
                            .heads = heads,
                            .causal = causal,
                            .epsilon = 1e-6,
                            .stddev = 0.1,
                            .residual_stddev = 0.1};
    return block(&net, 1, x);
}

static void describe_vit(const void *unused, struct dpb_model_info *info)
{
    (void)unused;
    *info = (struct dpb_model_info){.input = {3, 12, 8}, .nclass = 10, .batch = 4};
}

static dpb_status build_vit(const void *unused, const struct dpb_graph_ops *g,
                            struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct dpb_conv_args patches = {
        .channels = 48, .kernel_h = 4, .stride = 4, .padding = DPB_PAD_VALID, .bias = true};
    (void)unused;
    uint32_t x = g->prepend(b, "class", g->conv(b, "patches", g->input(b), &patches));
    x = g->positions(b, "positions", x, &(struct dpb_positions_args){.init_stddev = 0.02});
    x = g->layer_norm(b, "norm", blocks_of(g, b, x, 3, false), 1e-6);
    x = g->shortcut(b, "first", x, 48, g->shape(b, x).w);
    g->softmax_loss(b, "loss", g->dense(b, "head", x, nclass, true));
    return DPB_OK;
}

static const struct dpb_model_ops vit_ops = {.describe = describe_vit, .build = build_vit};
static const struct dpb_plugin vit_model = {.name = "small_vit", .ops = &vit_ops};
static const struct subject vit = {"small_vit", NULL, 0, 3, DPB_UINT8, DPB_HWC, &vit_model};

/* Images become sequences; GELU by the error function; a loss at one position. */
TEST(test_vit)
{
    check_subject(&vit, ALL);
}

/* ---- attention ----------------------------------------------------------------------------- */

/* Sequences longer than a block of queries: 128, and 22 more. */
static void describe_long(const void *unused, struct dpb_model_info *info)
{
    (void)unused;
    *info = (struct dpb_model_info){.input = {1, 1, 150}, .nclass = 10, .batch = 3, .ids = true};
}

static dpb_status build_long(const struct dpb_graph_ops *g, struct dpb_graph_builder *b,
                             uint32_t nclass, bool causal)
{
    const struct dpb_conv_args classes = {.channels = nclass, .kernel_h = 1, .bias = true};
    const uint32_t x = g->embedding(b, "tokens", g->input(b), 32);
    g->softmax_loss(b, "loss", g->conv(b, "head", blocks_of(g, b, x, 2, causal), &classes));
    return DPB_OK;
}

static dpb_status build_causal(const void *unused, const struct dpb_graph_ops *g,
                               struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)unused;
    return build_long(g, b, nclass, true);
}

static dpb_status build_all_seen(const void *unused, const struct dpb_graph_ops *g,
                                 struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)unused;
    return build_long(g, b, nclass, false);
}

static const struct dpb_model_ops causal_ops = {.describe = describe_long, .build = build_causal};
static const struct dpb_plugin causal_model = {.name = "causal", .ops = &causal_ops};
static const struct subject causal = {"causal", NULL, 0, 3, DPB_INT32, DPB_CHW, &causal_model};

/* Gradients by keys are sums over two blocks. The scores of a head take 81,920 bytes: all six heads
 * at once, or two in each of three calls, which changes no bit. */
TEST(test_blocks)
{
    static const struct dpb_model_ops ops = {.describe = describe_long, .build = build_all_seen};
    static const struct dpb_plugin model = {.name = "all_seen", .ops = &ops};
    const struct subject all = {"all_seen", NULL, 0, 1, DPB_INT32, DPB_CHW, &model};
    check_in(DPB_PRECISION_FP32, &all, OPS);
    check_in(DPB_PRECISION_BF16, &all, OPS);
    check_in(DPB_PRECISION_FP32, &causal, OPS | LOSS | REPEAT);
}

static void *gradients_of(const struct subject *subject, uint64_t workspace, size_t *bytes)
{
    struct dpb_session s;
    options.workspace = workspace;
    session_open(subject, DPB_PRECISION_BF16, true, &s);
    session_forward(&s);
    session_backward(&s);
    *bytes = s.graph->n_elements * sizeof(float);
    void *kept = allocate(*bytes, 1);
    memcpy(kept, s.gradients, *bytes);
    session_close(&s);
    options.workspace = UINT64_C(1) << 30;
    return kept;
}

TEST(test_heads_at_once)
{
    size_t bytes, same;
    void *all = gradients_of(&causal, UINT64_C(1) << 30, &bytes);
    void *two = gradients_of(&causal, 200000, &same);
    assert_memory_equal(all, two, bytes);
    free(all);
    free(two);
}

/* ---- sizes --------------------------------------------------------------------------------- */

/* Channels that fill no pack, and no tied tensor. Some ids are missing, and positions behind the
 * last: their rows get zeros. */
static void describe_odd(const void *unused, struct dpb_model_info *info)
{
    (void)unused;
    *info = (struct dpb_model_info){.input = {1, 1, 13}, .nclass = 10, .batch = 2, .ids = true};
}

static dpb_status build_odd(const void *unused, const struct dpb_graph_ops *g,
                            struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct dpb_conv_args conv = {.channels = 7, .kernel_h = 1, .bias = true};
    const struct dpb_conv_args classes = {.channels = nclass, .kernel_h = 1};
    (void)unused;
    uint32_t x = g->embedding(b, "tokens", g->input(b), 7);
    x = g->positions(b, "positions", x, &(struct dpb_positions_args){.rows = 15});
    x = g->layer_norm(b, "norm", x, 1e-5);
    x = g->gelu(b, "gelu", g->conv(b, "fc", x, &conv), true);
    x = g->dropout(b, "dropout", x, 0.3);
    g->softmax_loss(b, "loss", g->conv(b, "head", x, &classes));
    return DPB_OK;
}

static const struct dpb_model_ops odd_ops = {.describe = describe_odd, .build = build_odd};
static const struct dpb_plugin odd_model = {.name = "odd", .ops = &odd_ops};
static const struct subject odd = {"odd", NULL, 0, 2, DPB_INT32, DPB_CHW, &odd_model};

TEST(test_odd_sizes)
{
    struct subject many = odd; /* for an id more rows than a block's lines add in fp32 */
    many.batch = 230;
    check_subject(&odd, ALL);
    check_in(DPB_PRECISION_FP32, &many, OPS);
}

/* Whatever an earlier pass has left there. */
CASE(test_rows_without_gradient)
{
    struct dpb_session s;
    session_open(&odd, DPB_PRECISION_FP32, true, &s);
    float *gradients = ((struct program *)s.program)->gradients.tensor->data;
    session_forward(&s);
    for (uint32_t i = 0; i < s.graph->n_tensors; i++)
        for (uint64_t k = 0; k < s.graph->tensors[i].n_elements; k++)
            gradients[s.graph->tensors[i].offset + k] = NAN;
    session_backward(&s);
    check_ops(&s);
    session_close(&s);
}

TEST(test_long_indices)
{
    setenv("DPB_STAND_IN_LONG", "1", 1);
    check_in(DPB_PRECISION_BF16, &gpt, OPS);
    check_in(DPB_PRECISION_FP32, &vit, OPS);
    unsetenv("DPB_STAND_IN_LONG");
}

/* ---- the account --------------------------------------------------------------------------- */

/* Three times the forward products; the patches need no gradient by the samples. */
TEST(test_flops)
{
    struct dpb_session s;
    struct dpb_profile profile;
    double flops = 0, want = 0;
    session_open(&vit, DPB_PRECISION_BF16, true, &s);
    void *plain = s.program;
    s.program = session_compile_with_account(&s);
    session_forward(&s);
    session_backward(&s);
    expect_ok(s.ops->drain(s.program));
    expect_ok(s.ops->profile(s.program, &profile));
    for (uint64_t i = 0; i < profile.n_rows; i++) {
        assert_true(profile.rows[i].bytes > 0);
        flops += profile.rows[i].flops;
    }
    for (uint32_t i = 1; i < s.graph->n_nodes; i++) {
        const struct dpb_node *node = &s.graph->nodes[i];
        want += 2.0 * (double)node->macs * s.batch.n * (node->inputs[0] == 0 ? 2 : 3);
    }
    assert_true(flops == want);
    s.ops->release(s.program);
    s.program = plain;
    session_close(&s);
}

/* ---- refusals ------------------------------------------------------------------------------ */

/* Heads of 24 channels. */
static dpb_status build_narrow(const void *unused, const struct dpb_graph_ops *g,
                               struct dpb_graph_builder *b, uint32_t nclass)
{
    const struct dpb_conv_args qkv = {.channels = 144, .kernel_h = 1};
    const struct dpb_conv_args classes = {.channels = nclass, .kernel_h = 1};
    (void)unused;
    uint32_t x = g->conv(b, "qkv", g->embedding(b, "tokens", g->input(b), 8), &qkv);
    x = g->attention(b, "attention", x, &(struct dpb_attention_args){.heads = 2});
    g->softmax_loss(b, "loss", g->conv(b, "head", x, &classes));
    return DPB_OK;
}

/* The model on another device, in place of a session's. */
static void expect_refused(const struct dpb_plugin *model, struct options other, const char *words)
{
    const struct dpb_device_args args = {.threads = 1};
    const struct dpb_shape input = model_info(model).input;
    struct dpb_session s;
    session_open(&causal, DPB_PRECISION_FP32, true, &s);
    struct dpb_session changed = s;
    changed.graph = model_graph(model, NULL, input, 10);
    changed.format.shape = input;
    changed.format.type = model_info(model).ids ? DPB_INT32 : DPB_UINT8;
    expect_ok(s.ops->open(&other, &args, &changed.device));
    session_expect_refused(&changed, DPB_PRECISION_FP32, words);
    s.ops->close(changed.device);
    dpb_graph_destroy(changed.graph);
    session_close(&s);
}

TEST(test_refusals)
{
    static const struct dpb_model_ops ops = {.describe = describe_odd, .build = build_narrow};
    static const struct dpb_plugin narrow = {.name = "narrow", .ops = &ops};
    struct options nchw = options, small = options;
    nchw.layout = LAYOUT_NCHW;
    small.workspace = 81919;
    expect_refused(&narrow, options,
                   "a head of attention 'attention' has 24 channels; multiples of 16 are possible");
    expect_refused(&causal_model, nchw, "device.layout = nchw has no embedding (node 'tokens')");
    expect_refused(&vit_model, nchw, "device.layout = nchw has no prepend (node 'class')");
    expect_refused(&causal_model, small,
                   "attention 'block1.attention' needs 81920 bytes for scores; device.workspace = "
                   "81919 allows fewer");
}

static int setup(void **unused)
{
    (void)unused;
    options =
        (struct options){.ids = "", .tuning = "no", .graphs = 1, .workspace = UINT64_C(1) << 30};
    if (!on_gpu())
        setenv("DPB_TEST_DEVICE", "cuda_stand_in", 1);
    session_options(&options);
    return 0;
}

int main(void)
{
    if (!on_gpu()) /* it looks into the device's memory */
        add_case(test_rows_without_gradient, NULL, "rows without a gradient");
    return test_main(setup, NULL);
}
