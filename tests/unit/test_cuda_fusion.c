/* needs: cuda stand-in */
/*
 * test_cuda_fusion.c - device.fusion: convolutions that add up the statistics of the batch-norm
 * behind them, and gradients by a convolution's input that add up the sums of the batch-norm before
 * them. On a CUDA for tests, whose graph API (tests/cuda/graphs.cc) takes nothing that is
 * not as it should be; with DPB_TEST_DEVICE=cuda on a GPU. Op by op against the reference, what the
 * tuning's file keeps, and what is refused.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cuda_block.h"
#include "lib/grouped.h"
#include "lib/opcheck.h"
#include "lib/test.h"

/* Whether cuDNN has plans for all of it; the stand-in does. */
static bool offered(dpb_precision precision)
{
    const int asked = options.fusion;
    struct dpb_session s;
    void *device, *program = NULL;
    options.fusion = FUSION_OFF;
    session_open(&block, precision, true, &s);
    options.fusion = asked;
    const struct dpb_device_args device_args = {.threads = 16, .seed = SEED};
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    const struct dpb_compile_args args = {.graph = s.graph,
                                          .batch = s.batch.n,
                                          .precision = precision,
                                          .training = true,
                                          .format = &s.format};
    expect_ok(s.ops->open(&options, &device_args, &device));
    dpb_first_error_clear();
    const dpb_status status = s.ops->compile(device, &args, &memory, &program);
    if (status != DPB_OK) {
        if (!on_gpu() || status != DPB_UNSUPPORTED ||
            !strstr(dpb_first_error(NULL), "device.fusion = on"))
            fail_msg("%s", dpb_first_error(NULL));
        print_message("%s: %s\n", dpb_precision_name(precision), dpb_first_error(NULL));
        dpb_first_error_clear();
    }
    s.ops->release(program);
    s.ops->close(device);
    session_close(&s);
    return status == DPB_OK;
}

/* On a GPU cuDNN compiles a kernel for seconds: they are kept from one program to the next. */
static const char *tuning(void)
{
    return on_gpu() ? "auto" : "no";
}

TEST(test_ops)
{
    static const dpb_precision precisions[] = {DPB_PRECISION_FP16, DPB_PRECISION_BF16,
                                               DPB_PRECISION_TF32, DPB_PRECISION_FP32};
    int n = 0;
    set_options(FUSION_ON, tuning());
    for (int i = 0; i < 4; i++) {
        if (!offered(precisions[i]))
            continue;
        check_in(precisions[i], &block, ALL);
        n++;
    }
    assert_true(on_gpu() ? n > 0 : n == 4);
    set_options(FUSION_ON, tuning());
    options.graphs = 0;
    if (offered(DPB_PRECISION_FP16))
        check_in(DPB_PRECISION_FP16, &block, OPS);
}

/* A whole network. */
TEST(test_network)
{
    const struct subject resnet = {"resnet20", NULL, 16, 3, DPB_UINT8, DPB_HWC, NULL};
    set_options(on_gpu() ? FUSION_AUTO : FUSION_ON, tuning());
    check_in(DPB_PRECISION_FP32, &resnet, OPS | LOSS | REPEAT);
}

/* ---- whether it is done ---------------------------------------------------------------------- */

/* Of a training pass, in fp16: what forward leaves, and backward. */
enum { STATISTICS = 256, GRADIENTS = 16384 /* at least as many as the block has */ };
struct left {
    float statistics[STATISTICS], gradients[GRADIENTS];
    double moved; /* bytes, by the account */
};

/* What the steps of a training pass count. */
static double moved(const struct step_list *list)
{
    double bytes = 0;
    for (size_t i = 0; i < list->n; i++)
        bytes += list->steps[i].when & WHEN_TRAINING ? list->steps[i].bytes : 0;
    return bytes;
}

static void pass_of(const struct subject *subject, struct left *left)
{
    struct dpb_session s;
    session_open(subject, DPB_PRECISION_FP16, true, &s);
    assert_in_range(s.graph->n_state_elements, 1, STATISTICS);
    assert_in_range(s.graph->n_elements, 1, GRADIENTS);
    session_forward(&s);
    session_backward(&s);
    memset(left, 0, sizeof *left);
    memcpy(left->statistics, s.statistics, s.graph->n_state_elements * sizeof(float));
    memcpy(left->gradients, s.gradients, s.graph->n_elements * sizeof(float));
    const struct program *p = s.program;
    left->moved = moved(&p->forward) + moved(&p->backward);
    session_close(&s);
}

/* Sums of fp32 are not those of fp64 to the last bit. */
TEST(test_differs)
{
    static struct left on, again, off;
    set_options(FUSION_ON, tuning());
    if (!offered(DPB_PRECISION_FP16))
        skip();
    pass_of(&block, &on);
    pass_of(&block, &again);
    assert_memory_equal(&on, &again, sizeof on);
    set_options(FUSION_OFF, "no");
    pass_of(&block, &off);
    assert_memory_not_equal(on.statistics, off.statistics, sizeof on.statistics);
    set_options(FUSION_AUTO, "no"); /* nothing is measured */
    pass_of(&block, &on);
    assert_memory_equal(&on, &off, sizeof on);
}

/* Passes that make no statistics are those of a program that never does. */
TEST(test_evaluation)
{
    double loss[2][2];
    set_options(FUSION_ON, tuning());
    if (!offered(DPB_PRECISION_FP16))
        skip();
    for (int i = 0; i < 2; i++) {
        struct dpb_session s;
        set_options(i == 0 ? FUSION_ON : FUSION_OFF, tuning());
        session_open(&block, DPB_PRECISION_FP16, true, &s);
        session_forward(&s);
        session_backward(&s);
        s.pass.training = false;
        for (int pass = 0; pass < 2; pass++) {
            float *samples = (float *)(uintptr_t)s.batch.samples;
            s.pass.weights_changed = false;
            for (uint64_t k = 0; k < s.batch.n * dpb_sample_bytes(&s.format) / sizeof(float); k++)
                samples[k] = 1.0f - samples[k] * 0.5f;
            session_forward(&s);
            loss[i][pass] = s.outcome.loss;
        }
        session_close(&s);
    }
    assert_true(loss[0][0] != loss[0][1]);
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
}

/* ---- gradients that are added up ------------------------------------------------------------- */

/* Steps of backward of a training program, by what they do. */
static size_t n_steps(const struct program *p, const char *what)
{
    size_t n = 0;
    for (size_t i = 0; i < p->backward.n; i++)
        n += strcmp(p->backward.steps[i].what, what) == 0;
    return n;
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
    set_options(FUSION_OFF, "no");
    expect_sums(1, 0, &added);
    check_in(DPB_PRECISION_FP32, &block, OPS | REPEAT);
    check_in(DPB_PRECISION_FP16, &block, OPS);
    options.layout = LAYOUT_NCHW;
    check_in(DPB_PRECISION_BF16, &block, OPS);
    setenv("DPB_STAND_IN_BROKEN", "added", 1);
    set_options(FUSION_OFF, "no");
    expect_sums(0, 1, &separate);
    check_in(DPB_PRECISION_FP16, &block, OPS);
    unsetenv("DPB_STAND_IN_BROKEN");
    assert_true(separate - added == 2 * part);
}

/* ---- tuning ---------------------------------------------------------------------------------- */

/* Calls that may be fused: how the file names them, what is slow for them alone to be, and what
 * shows that they are. */
enum { TUNED_NAMES = 2 };
struct tuned {
    const char *names[TUNED_NAMES], *slow;
    size_t at, bytes; /* of struct left */
};
static const struct tuned tuned[] = {
    {{"\tforward with statistics"},
     "forward,graph_data",
     offsetof(struct left, statistics),
     sizeof(float) * STATISTICS},
    {{"\tdata with sums", "\tdata with shortcut and sums"},
     "data,graph",
     offsetof(struct left, gradients),
     sizeof(float) * GRADIENTS},
};

/* How many lines the file has, and what the last of that call has for a plan. */
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

static void pass_slowly(const char *slow, struct left *left)
{
    setenv("DPB_STAND_IN_SLOW", slow, 1);
    pass_of(&many, left);
    unsetenv("DPB_STAND_IN_SLOW");
}

/* A pass of a process that can make plans of what was kept alone. */
static void pass_of_kept(struct left *left)
{
    setenv("DPB_STAND_IN_BROKEN", "plan", 1);
    pass_of(&many, left);
    unsetenv("DPB_STAND_IN_BROKEN");
}

static bool warned(const char *wanted)
{
    const char *code, *text;
    for (size_t i = 0; dpb_warning_at(i, &code, &text); i++)
        if (strcmp(code, wanted) == 0)
            return true;
    return false;
}

/* Plans that were kept and do not fit are made anew, which is said, and kept. */
static void check_cut_plans(const char *path, const struct left *first)
{
    static struct left again;
    char plans[160], plan[512];
    int n = 0;
    snprintf(plans, sizeof plans, "%s.plans", path);
    DIR *directory = opendir(plans);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(plan, sizeof plan, "%s/%s", plans, entry->d_name);
        assert_int_equal(truncate(plan, 300), 0);
        n++;
    }
    closedir(directory);
    assert_true(n > 0);
    dpb_warnings_clear();
    pass_of(&many, &again);
    assert_true(warned("plan_refused"));
    assert_memory_equal(first, &again, sizeof again);
    dpb_warnings_clear();
    pass_of_kept(&again);
    assert_false(warned("plan_refused"));
    assert_memory_equal(first, &again, sizeof again);
}

/* Whether the last of the calls' plans in the file are such (or none). How many lines it has. */
static int expect_plans(const char *path, const struct tuned *t, bool fused)
{
    int n = 0, rank;
    for (int i = 0; i < TUNED_NAMES && t->names[i]; i++) {
        n = lines_of(path, t->names[i], &rank);
        assert_in_range(rank + 1, fused, fused ? 76 : 0);
    }
    return n;
}

/* By the file the same again, with nothing measured or compiled. */
static void check_kept(const char *path, const struct tuned *t, bool fused,
                       const struct left *first)
{
    static struct left again;
    const int lines = expect_plans(path, t, fused);
    pass_of_kept(&again);
    assert_int_equal(expect_plans(path, t, fused), lines);
    assert_memory_equal(first, &again, sizeof again);
}

/* The file knows a call that adds from the call that does not. */
static void check_added(const char *path)
{
    int added, alone;
    lines_of(path, "\tdata added to another bf16", &added);
    assert_int_equal(added, INT32_MIN);
    lines_of(path, "\tdata added to another fp16", &added);
    lines_of(path, "\tdata fp16", &alone);
    assert_true(added >= 0 && alone >= 0);
}

/* What is fastest is taken and kept. What the file names and cuDNN does not have is measured
 * anew. */
static void check_fused(const struct tuned *t, const struct left *off)
{
    static struct left first, again;
    char path[128];
    snprintf(path, sizeof path, "%s/%s", cache, t->names[0] + 1);
    set_options(FUSION_AUTO, path);
    options.workspace = FEW_PLANS;
    pass_slowly(t->slow, &first);
    const int lines = expect_plans(path, t, true);
    check_added(path);
    assert_memory_not_equal((char *)&first + t->at, (const char *)off + t->at, t->bytes);
    assert_true(first.moved < off->moved);
    if (t->at > 0)
        assert_memory_equal(first.statistics, off->statistics, sizeof first.statistics);
    check_kept(path, t, true, &first);
    if (t == tuned)
        check_cut_plans(path, &first);
    for (int i = 0; i < TUNED_NAMES && t->names[i]; i++)
        damage(path, t->names[i]);
    pass_slowly(t->slow, &again);
    assert_true(expect_plans(path, t, true) > lines);
}

/* What is slower is not. */
static void check_separate(const struct left *off)
{
    static struct left first;
    char path[128];
    snprintf(path, sizeof path, "%s/separate", cache);
    set_options(FUSION_AUTO, path);
    options.workspace = FEW_PLANS;
    pass_slowly("graph,graph_data", &first);
    assert_memory_equal(&first, off, sizeof first);
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++)
        expect_plans(path, &tuned[i], false);
    check_kept(path, tuned, false, off);
}

/* Plans that fail when they are tried are dropped: the convolutions alone are taken. */
static void check_dropped(const struct left *off)
{
    static struct left dropped;
    char path[128];
    snprintf(path, sizeof path, "%s/dropped", cache);
    set_options(FUSION_AUTO, path);
    options.workspace = FEW_PLANS;
    setenv("DPB_STAND_IN_BROKEN", "graph", 1);
    pass_of(&many, &dropped);
    unsetenv("DPB_STAND_IN_BROKEN");
    assert_memory_equal(&dropped, off, sizeof dropped);
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++)
        expect_plans(path, &tuned[i], false);
}

TEST(test_tuning)
{
    if (on_gpu())
        skip(); /* it cannot be told what is to be slow */
    static struct left off;
    set_options(FUSION_OFF, "no");
    options.workspace = FEW_PLANS;
    pass_of(&many, &off);
    check_dropped(&off);
    check_separate(&off);
    for (size_t i = 0; i < sizeof tuned / sizeof tuned[0]; i++)
        check_fused(&tuned[i], &off);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* The program of a subject by these options is refused with these words. */
static void expect_refusal(const struct subject *subject, dpb_precision precision,
                           const char *first, const char *second)
{
    const struct options asked = options;
    struct dpb_session s;
    void *device, *program = NULL;
    set_options(FUSION_OFF, "no");
    session_open(subject, precision, true, &s);
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    struct dpb_compile_args args = {.graph = s.graph,
                                    .batch = subject->batch,
                                    .precision = precision,
                                    .training = true,
                                    .format = &s.format};
    expect_ok(s.ops->open(&asked, &device_args, &device));
    dpb_first_error_clear();
    assert_int_equal(s.ops->compile(device, &args, &memory, &program), DPB_UNSUPPORTED);
    assert_non_null(strstr(dpb_first_error(NULL), "device.fusion = on"));
    assert_non_null(strstr(dpb_first_error(NULL), first));
    assert_non_null(strstr(dpb_first_error(NULL), second));
    dpb_first_error_clear();
    args.training = false; /* evaluations have no statistics to make */
    expect_ok(s.ops->compile(device, &args, &memory, &program));
    s.ops->release(program);
    s.ops->close(device);
    session_close(&s);
}

/* Channels of the stand-in that no plan takes: `on` says so by name, auto goes without. */
TEST(test_no_plan)
{
    const struct subject tiny = {"tiny_bn", NULL, 0, 330, DPB_UINT8, DPB_HWC, NULL};
    char path[128];
    if (on_gpu())
        skip();
    snprintf(path, sizeof path, "%s/none", cache);
    set_options(FUSION_AUTO, path);
    check_in(DPB_PRECISION_BF16, &tiny, OPS);
    set_options(FUSION_ON, "no");
    expect_refusal(&tiny, DPB_PRECISION_BF16, "'conv1' (3 to 5 channels, 3x3, bf16)",
                   "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN");
}

/* Of several groups: `on` says so by name, auto goes without. */
TEST(test_groups)
{
    struct subject subject = {"grouped", NULL, 0, 30, DPB_FP32, DPB_HWC, &grouped_model};
    char path[128];
    snprintf(path, sizeof path, "%s/groups", cache);
    set_options(FUSION_AUTO, path);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    subject.batch = 2;
    set_options(FUSION_ON, "no");
    expect_refusal(&subject, DPB_PRECISION_FP32, "'conv2' has 24 groups", "auto leaves");
}

/* Statistics are those of NHWC alone. */
TEST(test_layout)
{
    static struct left on, off;
    char path[128];
    struct dpb_session s;
    void *device = NULL;
    snprintf(path, sizeof path, "%s/nchw", cache);
    set_options(FUSION_OFF, path);
    options.layout = LAYOUT_NCHW;
    options.workspace = 60000;
    pass_of(&many, &off);
    set_options(FUSION_AUTO, path);
    options.layout = LAYOUT_NCHW;
    options.workspace = 60000;
    pass_slowly("forward,data", &on);
    assert_memory_equal(&on, &off, sizeof on);
    session_open(&block, DPB_PRECISION_FP32, true, &s);
    options.fusion = FUSION_ON;
    dpb_first_error_clear();
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    assert_int_equal(s.ops->open(&options, &device_args, &device), DPB_USAGE);
    assert_non_null(strstr(dpb_first_error(NULL), "device.fusion = on wants device.layout = nhwc"));
    dpb_first_error_clear();
    session_close(&s);
}

/* A cuDNN that lacks what fusion asks for: on is refused; auto is off, says so, and asks for no
 * plan. */
TEST(test_older_cudnn)
{
    static struct left unused;
    char path[128];
    void *device = NULL;
    struct dpb_session s;
    if (on_gpu())
        skip();
    snprintf(path, sizeof path, "%s/older", cache);
    setenv("DPB_STAND_IN_CUDNN", "91002", 1);
    set_options(FUSION_AUTO, path);
    dpb_warnings_clear();
    pass_of(&many, &unused);
    assert_true(warned("fusion_cudnn"));
    assert_false(warned("fusion_failed"));
    dpb_warnings_clear();
    session_open(&block, DPB_PRECISION_FP32, true, &s);
    options.fusion = FUSION_ON;
    dpb_first_error_clear();
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    assert_int_equal(s.ops->open(&options, &device_args, &device), DPB_UNSUPPORTED);
    assert_non_null(strstr(dpb_first_error(NULL), "wants cuDNN 91100 or later"));
    dpb_first_error_clear();
    unsetenv("DPB_STAND_IN_CUDNN");
    session_close(&s);
}

/* A plan that wants more than it may have is none. */
TEST(test_workspace)
{
    if (on_gpu())
        skip();
    set_options(FUSION_ON, "no");
    options.workspace = 2800;
    check_in(DPB_PRECISION_FP16, &block, OPS);
    options.workspace = 2600; /* room for forward's only */
    expect_refusal(&block, DPB_PRECISION_FP16, "'conv5' (8 to 8 channels, 3x3, fp16) by its input",
                   "device.workspace = 2600");
    set_options(FUSION_ON, "no");
    options.workspace = 2400;
    expect_refusal(&block, DPB_PRECISION_FP16, "'conv1' (8 to 16 channels, 3x3, fp16)",
                   "device.workspace = 2400");
}

int main(void)
{
    if (!on_gpu())
        setenv("DPB_TEST_DEVICE", "cuda_stand_in", 1);
    return test_main(setup, teardown);
}
