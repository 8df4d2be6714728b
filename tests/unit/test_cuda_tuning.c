/* needs: cuda stand-in */
/*
 * test_cuda_tuning.c - device.tuning and device.workspace on a CUDA for tests: what is tried once,
 * taken from the file, shared by processes, and refused.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "cuda_options.h"
#include "lib/opcheck.h"
#include "lib/stand_in.h"
#include "plugins/devices/cuda/products.h"

/* The options of a test; one that fails leaves them to the others. */
static struct options tuned;

static void tune_by(const char *path)
{
    tuned = defaults();
    tuned.tuning = path;
    session_options(&tuned);
}

static const char *cached(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", cache, name);
    return path;
}

static off_t bytes_of(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? about.st_size : -1;
}

static void tune(const struct subject *subject)
{
    struct dpb_session s;
    session_open(subject, DPB_PRECISION_FP32, true, &s);
    session_close(&s);
}

/* What was tried once stands in the file and is not tried again; another batch is another key, and
 * so is another layout; damage is no harm. What is taken from trials or from the file computes. */
TEST(test_tuning)
{
    const char *path = cached("own");
    tune_by(path);
    struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    const off_t first = bytes_of(path);
    assert_true(first > 0);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    assert_int_equal(bytes_of(path), first);
    subject.batch = 5;
    tune(&subject);
    assert_int_equal(bytes_of(path), 2 * first);
    write_file(path, "stand-in\t1\tforward\nx\t\t\t", 22);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    assert_int_equal(bytes_of(path), 22 + first);
    tuned.tuning = "no";
    tune(&subject);
    assert_int_equal(bytes_of(path), 22 + first);
    tuned.tuning = path;
    tuned.layout = LAYOUT_NCHW;
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    const off_t both = bytes_of(path);
    assert_true(both > 22 + first); /* products know of no layout */
    tune(&subject);
    assert_int_equal(bytes_of(path), both);
    session_options(&untuned);
}

/* The file of `auto` is kept although its directory was not there. */
TEST(test_cache_directory)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    setenv("XDG_CACHE_HOME", cached("new"), 1);
    tune_by("auto");
    tune(&subject);
    session_options(&untuned);
    setenv("XDG_CACHE_HOME", cache, 1);
    assert_true(bytes_of(cached("new/dpbench-cuda-tuning")) > 0);
}

/* Lines of the file, and how many of them have the key of another: GPU, cuDNN, call and shapes. */
static size_t count_lines(const char *path, size_t *repeated)
{
    enum { MOST = 256, BYTES = 256 };
    static char lines[MOST][BYTES];
    size_t n = 0;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    *repeated = 0;
    while (n < MOST && fgets(lines[n], BYTES, file)) {
        *strrchr(lines[n], '\t') = '\0';
        bool again = false;
        for (size_t i = 0; i < n; i++)
            again = again || strcmp(lines[i], lines[n]) == 0;
        *repeated += again;
        n++;
    }
    fclose(file);
    return n;
}

/* 19 convolutions have 6 shapes: each is tried once. */
TEST(test_equal_shapes)
{
    const char *path = cached("shapes");
    tune_by(path);
    const struct subject subject = {"resnet20", NULL, 8, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    size_t repeated;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    session_close(&s);
    assert_true(count_lines(path, &repeated) > 6);
    assert_int_equal(repeated, 0);
    session_options(&untuned);
}

/* The most workspace of a candidate for a convolution, and the least number of candidates. */
static size_t most_workspace(const char *name, uint32_t *least)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    size_t most = 0;
    tune_by(cached(name));
    session_open(&subject, DPB_PRECISION_BF16, true, &s);
    const struct program *p = s.program;
    *least = UINT32_MAX;
    for (const struct conv_plans *call = p->plans; call; call = call->next) {
        for (uint32_t i = 0; i < call->n; i++)
            most = call->plans[i].workspace > most ? call->plans[i].workspace : most;
        *least = call->n < *least ? call->n : *least;
    }
    session_close(&s);
    session_options(&untuned);
    return most;
}

/* Engines of the fallback are candidates only where the heuristic has none that suits. */
TEST(test_fallback)
{
    enum { OF_FALLBACK = 100000 /* what its engine takes */ };
    uint32_t n;
    assert_true(most_workspace("heuristic", &n) < OF_FALLBACK);
    assert_true(n > 1);
    setenv("DPB_STAND_IN_BROKEN", "heuristic", 1);
    assert_true(most_workspace("fallback", &n) >= OF_FALLBACK);
    assert_true(n >= 1);
    unsetenv("DPB_STAND_IN_BROKEN");
}

/* Opens a session with that file for tuning; every product has so many choices and has taken the
 * one of that rank. */
static void expect_products(const char *path, uint32_t n, int rank)
{
    const struct subject subject = {"lenet", NULL, 12, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    unsigned products = 0;
    tune_by(path);
    tuned.workspace = 2000; /* few plans of convolutions to try */
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct program *p = s.program;
    for (uint32_t i = 0; i < s.graph->n_nodes; i++) {
        for (int k = 0; k < 3; k++) {
            const struct gemm *gemm = p->nodes[i].gemm[k];
            if (!gemm)
                continue;
            assert_int_equal(gemm->n, n);
            assert_int_equal(gemm->choices[gemm->taken].rank, rank);
            products++;
        }
    }
    assert_int_equal(products, 6);
    session_close(&s);
    session_options(&untuned);
}

/* Of what cuBLASLt offers and can be had the fastest is taken, and the file's the next time;
 * untuned the first. Of each of six products three candidates are slow: run once, of the first
 * product also to raise the clocks; each time behind a run that is not timed. */
TEST(test_products)
{
    const char *path = cached("products");
    tune_by("no");
    tune(&(struct subject){"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL}); /* loads the stand-in */
    const uint64_t before = stand_in_counted("stand_in_taken");
    setenv("DPB_STAND_IN_SLOW", "product", 1);
    expect_products(path, 4, 3);
    unsetenv("DPB_STAND_IN_SLOW");
    assert_int_equal(stand_in_counted("stand_in_taken") - before, 3 * 2 * (6 + 1));
    const off_t bytes = bytes_of(path);
    expect_products(path, 4, 3);
    assert_int_equal(bytes_of(path), bytes);
    expect_products("no", 1, 0);
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    tune_by(path);
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    session_options(&untuned);
}

/* A process that is killed while it tunes leaves the choices that it has made; the next makes the
 * others alone. With a slow call the clocks are up at once. */
TEST(test_cut_off)
{
    const struct subject subject = {"lenet", NULL, 12, 2, DPB_UINT8, DPB_CHW, NULL};
    char path[128], at[32];
    size_t repeated;
    int status;
    setenv("DPB_STAND_IN_SLOW", "forward", 1);
    tune_by("no");
    tune(&subject); /* loads the stand-in */
    const uint64_t before = stand_in_counted("stand_in_worked");
    tune_by(cached("whole"));
    tune(&subject);
    const uint64_t now = stand_in_counted("stand_in_worked");
    const size_t all = count_lines(cached("whole"), &repeated);
    snprintf(path, sizeof path, "%s", cached("cut"));
    tune_by(path);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        snprintf(at, sizeof at, "%llu", (unsigned long long)(now + (now - before) / 2));
        setenv("DPB_STAND_IN_KILL", at, 1);
        tune(&subject);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const size_t kept = count_lines(path, &repeated);
    assert_in_range(kept, 1, all - 1);
    tune(&subject);
    unsetenv("DPB_STAND_IN_SLOW");
    session_options(&untuned);
    assert_int_equal(count_lines(path, &repeated), all);
    assert_int_equal(repeated, 0);
}

/* Two processes that begin at once to tune on one GPU: what one has tried the other takes. */
TEST(test_shared_gpu)
{
    const struct subject subject = {"lenet", NULL, 12, 2, DPB_UINT8, DPB_CHW, NULL};
    char path[128];
    int go[2], status;
    size_t repeated;
    struct dpb_session s;
    snprintf(path, sizeof path, "%s/shared", cache);
    tune_by(path);
    assert_int_equal(pipe(go), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(60);
        char byte;
        bool told = read(go[0], &byte, 1) == 1;
        session_open(&subject, DPB_PRECISION_FP32, true, &s);
        session_close(&s);
        _exit(told ? 0 : 1);
    }
    assert_int_equal(write(go[1], "", 1), 1);
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    session_close(&s);
    session_options(&untuned);
    close(go[0]);
    close(go[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(count_lines(path, &repeated) > 10);
    assert_int_equal(repeated, 0);
}

/* A plan that wants more than it may have is not taken; where none is left, that is said. */
TEST(test_workspace)
{
    const struct subject subject = {"lenet", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    tune_by("no");
    tuned.workspace = 2000;
    check_in(DPB_PRECISION_FP32, &subject, OPS);
    tuned.workspace = 1;
    session_options(&untuned);
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct dpb_device_args device_args = {.threads = 1, .seed = SEED};
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    const struct dpb_compile_args args = compile_args_of(&s);
    void *device, *program = NULL;
    expect_ok(s.ops->open(&tuned, &device_args, &device));
    dpb_first_error_clear();
    assert_int_equal(s.ops->compile(device, &args, &memory, &program), DPB_UNSUPPORTED);
    assert_non_null(strstr(dpb_first_error(NULL), "device.workspace"));
    assert_non_null(strstr(dpb_first_error(NULL), "'conv1'"));
    s.ops->close(device);
    session_close(&s);
}

TEST_MAIN(setup, teardown)
