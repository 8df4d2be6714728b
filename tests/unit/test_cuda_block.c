/* needs: cuda stand-in */
/*
 * test_cuda_block.c - blocks of convolutions, batch-norms and additions, whose kernels join: op by
 * op against the reference; gradients that a convolution adds to another's, and what the tuning's
 * file keeps of them. On a CUDA for tests; with DPB_TEST_DEVICE=cuda on a GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/command.h"
#include "lib/opcheck.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "plugins/devices/cuda/products.h"

static char cache[64]; /* a directory for the tuning's file */
static struct options options;

static void set_options(const char *tuning)
{
    options =
        (struct options){.ids = "", .tuning = tuning, .graphs = 1, .workspace = UINT64_C(1) << 30};
    session_options(&options);
}

/* ---- the model ----------------------------------------------------------------------------- */

/* Channels fill 16 bytes but for the samples', whose convolution has a bias. */
static dpb_status build_block(const void *unused, const struct dpb_graph_ops *g,
                              struct dpb_graph_builder *b, uint32_t nclass)
{
    (void)unused;
    const struct dpb_conv_args stem = {.channels = 8, .kernel_h = 3, .bias = true};
    const struct dpb_conv_args wide = {.channels = 16, .kernel_h = 3};
    const struct dpb_conv_args point = {.channels = 16, .kernel_h = 1};
    const struct dpb_conv_args down = {.channels = 8, .kernel_h = 5, .stride = 2}; /* pads 1, 2 */
    const struct dpb_conv_args last = {.channels = 8, .kernel_h = 3, .bias = true};
    const struct dpb_batch_norm_args bn = {0};
    uint32_t x = g->relu(b, "relu0", g->conv(b, "stem", g->input(b), &stem)); /* 8 x 10 x 10 */
    uint32_t left =
        g->relu(b, "relu1", g->batch_norm(b, "bn1", g->conv(b, "conv1", x, &wide), &bn));
    uint32_t right = g->batch_norm(b, "bn3", g->conv(b, "conv3", x, &point), &bn);
    left = g->batch_norm(b, "bn2", g->conv(b, "conv2", left, &wide), &bn);
    x = g->relu(b, "relu2", g->add(b, "add", left, right));
    /* Gradients that join: with a shortcut's, and with that of another convolution. */
    left = g->batch_norm(b, "bn6", g->conv(b, "conv6", x, &point), &bn);
    x = g->relu(b, "relu4", g->add(b, "add2", left, x));
    left = g->batch_norm(b, "bn7", g->conv(b, "conv7", x, &wide), &bn);
    right = g->batch_norm(b, "bn8", g->conv(b, "conv8", x, &point), &bn);
    x = g->relu(b, "relu5", g->add(b, "add3", left, right));
    x = g->batch_norm(b, "bn4", g->conv(b, "conv4", x, &down), &bn); /* 8 x 5 x 5 */
    x = g->relu(b, "relu3", x);
    x = g->batch_norm(b, "bn5", g->conv(b, "conv5", x, &last), &bn);
    g->softmax_loss(b, "loss", g->dense(b, "fc", g->global_mean(b, "mean", x), nclass, true));
    return DPB_OK;
}

static void describe_block(const void *unused, struct dpb_model_info *info)
{
    (void)unused;
    *info = (struct dpb_model_info){.input = {3, 10, 10}, .nclass = 10, .batch = 4};
}

static const struct dpb_model_ops block_ops = {.describe = describe_block, .build = build_block};
static const struct dpb_plugin block_model = {.name = "block", .ops = &block_ops};
static const struct subject block = {"block", NULL, 0, 4, DPB_FP32, DPB_CHW, &block_model};

static int setup(void **unused)
{
    (void)unused;
    temporary_directory(cache);
    setenv("XDG_CACHE_HOME", cache, 1);
    return 0;
}

static int teardown(void **unused)
{
    (void)unused;
    remove_directory(cache);
    return 0;
}

/* ---- tests --------------------------------------------------------------------------------- */

TEST(test_ops)
{
    set_options("no");
    check_subject(&block, ALL);
    options.graphs = 0;
    check_in(DPB_PRECISION_FP16, &block, OPS);
}

/* Steps of backward of a training program, by what they do. */
static size_t n_steps(const struct program *p, const char *what)
{
    size_t n = 0;
    for (size_t i = 0; i < p->backward.n; i++)
        n += strcmp(p->backward.steps[i].what, what) == 0;
    return n;
}

/* What the steps of a training pass count. */
static double moved(const struct step_list *list)
{
    double bytes = 0;
    for (size_t i = 0; i < list->n; i++)
        bytes += list->steps[i].when & WHEN_TRAINING ? list->steps[i].bytes : 0;
    return bytes;
}

static void expect_sums(size_t n_added, size_t n_passes, double *bytes)
{
    struct dpb_session s;
    session_open(&block, DPB_PRECISION_FP16, true, &s);
    const struct program *p = s.program;
    assert_int_equal(n_steps(p, "backward data added to another"), n_added);
    assert_int_equal(n_steps(p, "sum of gradients"), n_passes);
    *bytes = moved(&p->forward) + moved(&p->backward);
    session_close(&s);
}

/* The block's first ReLU is read by two convolutions. The second one to come in backward adds to
 * the first one's gradient, which it reads and writes. Without a plan that adds, it writes a
 * gradient of its own, and a pass reads both and writes their sum. */
TEST(test_added)
{
    static const double part = 4 * 8 * 10 * 10 * 2.0; /* bytes */
    double added, separate;
    if (on_gpu())
        skip(); /* cuDNN cannot be told to have no plan */
    set_options("no");
    expect_sums(1, 0, &added);
    check_in(DPB_PRECISION_FP32, &block, OPS | REPEAT);
    check_in(DPB_PRECISION_FP16, &block, OPS);
    options.layout = LAYOUT_NCHW;
    check_in(DPB_PRECISION_BF16, &block, OPS);
    setenv("DPB_STAND_IN_BROKEN", "added", 1);
    set_options("no");
    expect_sums(0, 1, &separate);
    check_in(DPB_PRECISION_FP16, &block, OPS);
    unsetenv("DPB_STAND_IN_BROKEN");
    assert_true(separate - added == 2 * part);
}

/* ---- tuning -------------------------------------------------------------------------------- */

/* How many lines the file has, and the rank in the last of that call; INT32_MIN: there is none. */
static int lines_of(const char *path, const char *name, int *rank)
{
    FILE *file = fopen(path, "r");
    char line[512];
    int n = 0;
    *rank = INT32_MIN;
    assert_non_null(file);
    for (; fgets(line, sizeof line, file); n++) {
        char *tab = strstr(line, name);
        tab = tab ? strchr(tab + 1, '\t') : NULL;
        if (tab)
            assert_int_equal(sscanf(tab, "\t%d", rank), 1);
    }
    fclose(file);
    return n;
}

/* All of the call's plans there become one that cuDNN does not have. */
static void damage(const char *path, const char *name)
{
    char damaged[160], line[512];
    snprintf(damaged, sizeof damaged, "%s-damaged", path);
    FILE *from = fopen(path, "r"), *to = fopen(damaged, "w");
    assert_true(from && to);
    while (fgets(line, sizeof line, from)) {
        char *tab = strstr(line, name);
        if (tab)
            strcpy(strchr(tab + 1, '\t'), "\t77\n");
        fputs(line, to);
    }
    fclose(from);
    fclose(to);
    assert_int_equal(rename(damaged, path), 0);
}

/* Of a training pass in fp16: the gradients, and the most plans that a call has. */
enum { GRADIENTS = 16384 /* at least as many as the block has */ };
static void pass_of(float gradients[GRADIENTS], uint32_t *most_plans)
{
    struct dpb_session s;
    session_open(&block, DPB_PRECISION_FP16, true, &s);
    assert_in_range(s.graph->n_elements, 1, GRADIENTS);
    session_forward(&s);
    session_backward(&s);
    memset(gradients, 0, GRADIENTS * sizeof(float));
    memcpy(gradients, s.gradients, s.graph->n_elements * sizeof(float));
    const struct program *p = s.program;
    *most_plans = 0;
    for (const struct conv_plans *plans = p->plans; plans; plans = plans->next)
        *most_plans = plans->n > *most_plans ? plans->n : *most_plans;
    session_close(&s);
}

/* The file knows a call that adds from the call that does not. The next program makes the named
 * plans alone, and has the same bits. What the file names and cuDNN does not have is tried anew. */
TEST(test_tuning)
{
    static float first[GRADIENTS], again[GRADIENTS];
    uint32_t most_plans;
    char path[128];
    int added, alone;
    if (on_gpu())
        skip(); /* cuDNN's plans are other ones */
    snprintf(path, sizeof path, "%s/tuning", cache);
    set_options(path);
    options.workspace = 60000; /* room for one plan a call */
    pass_of(first, &most_plans);
    lines_of(path, "\tdata added to another bf16", &added);
    assert_int_equal(added, INT32_MIN);
    const int lines = lines_of(path, "\tdata added to another fp16", &added);
    lines_of(path, "\tdata fp16", &alone);
    assert_true(added >= 0 && alone >= 0);
    options.workspace = UINT64_C(1) << 30; /* room for more, which nobody asks for */
    pass_of(again, &most_plans);
    assert_int_equal(most_plans, 1);
    assert_int_equal(lines_of(path, "\tdata fp16", &alone), lines);
    assert_memory_equal(first, again, sizeof first);
    options.workspace = 60000;
    damage(path, "\tdata added to another fp16");
    pass_of(again, &most_plans);
    assert_int_equal(lines_of(path, "\tdata added to another fp16", &alone), lines + 1);
    assert_in_range(alone, 0, 76);
    assert_memory_equal(first, again, sizeof first);
}

int main(void)
{
    if (!on_gpu())
        setenv("DPB_TEST_DEVICE", "cuda_stand_in", 1);
    return test_main(setup, teardown);
}
