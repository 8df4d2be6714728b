/* needs: cuda stand-in */
/*
 * test_cuda_runs.c - runs of dpbench with the cuda device: on a CUDA for tests (tests/cuda), which
 * needs no GPU, or with DPB_TEST_DEVICE=cuda on one that two workers share; and what is said where
 * there is none.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/link_rows.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/training.h"

#define CUDA "device.name=cuda run.precision=fp32 model.name=tiny run.batch=2 device.tuning=no "
#define LARGER "model.name=lenet model.image=12 comm.bucket=256KiB " /* six buckets */
#define TWO "run.workers=2 device.ids=0,0 "

static const double deadline_s = 60.0;
static char cache[64]; /* for the tuning's file */
static char pipes[80]; /* of an MPS daemon, for the stand-in */

/* Two workers are one that goes through two micro-batches, whatever carries the gradients. */
TEST(test_same_training)
{
    static const char *const strategies[] = {"shm", "replicated", "ps_cpu run.servers=1",
                                             "ring_tcp"};
    struct training one, two, start;
    use_stand_in(true);
    train(&start, CUDA "run.steps=1 run.workers=1 optimizer.learning_rate=0");
    train(&one, CUDA "run.steps=1 run.workers=1 run.accumulate=2");
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        train(&two, CUDA TWO "run.steps=1 run.prove=yes comm.name=%s", strategies[i]);
        expect_verified(&two);
        expect_same_weights(&one, &two, &start, 1e-4);
        training_free(&two);
    }
    training_free(&one);
    training_free(&start);
}

/* The learners of a place have its GPU. */
TEST(test_learners)
{
    struct training workers, learners, start;
    use_stand_in(true);
    train(&start, CUDA "run.steps=1 run.workers=1 optimizer.learning_rate=0");
    train(&workers, CUDA TWO "run.steps=4 comm.name=shm");
    train(&learners, CUDA "run.learners=2 device.threads=2 device.ids=0 run.steps=4 comm.name=shm");
    expect_same_weights(&workers, &learners, &start, 0);
    training_free(&workers);
    training_free(&learners);
    training_free(&start);
}

/* The number of warnings of that code. */
static int count_warnings(const json_t *document, const char *code)
{
    size_t i;
    const json_t *warning;
    int n = 0;
    json_array_foreach(json_at(document, "warnings"), i, warning)
    {
        n += strcmp(json_text_at(warning, "code"), code) == 0;
    }
    return n;
}

/* Workers on one GPU take turns, or an MPS daemon serves them: the result says which, whether they
 * are learners of a place or places that `ids` puts on one GPU. */
CASE(test_sharing)
{
    static const struct {
        const char *settings;
        bool served, known;
        int most;
    } rows[] = {{"run.learners=2 device.threads=2 device.ids=0 comm.name=sma", false, true, 2},
                {"run.learners=4 device.threads=4 device.ids=0 comm.name=sma", true, true, 4},
                {"run.learners=2 device.threads=2 device.ids=0 comm.name=shm", false, false, 2},
                {TWO "comm.name=shm", false, true, 2},
                {"run.workers=2 comm.name=shm", false, true, 1}};
    use_stand_in(true);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training training;
        setenv("CUDA_MPS_PIPE_DIRECTORY", rows[i].served ? pipes : cache, 1);
        if (!rows[i].known)
            setenv("DPB_STAND_IN_MPS", "0", 1);
        train(&training, CUDA "run.steps=2 %s", rows[i].settings);
        unsetenv("DPB_STAND_IN_MPS");
        const json_t *result = training.command.json;
        const char *word = rows[i].served ? "MPS" : "time slices";
        const bool sliced = rows[i].most > 1 && !rows[i].served;
        if (rows[i].known) {
            assert_string_equal(json_text_at(result, "ranks.1.gpu.sharing"), word);
            assert_string_equal(json_text_at(result, "gpus.sharing"), word);
        } else {
            assert_true(json_is_null(json_at(result, "ranks.1.gpu.sharing")));
            assert_true(json_is_null(json_at(result, "gpus.sharing")));
        }
        assert_int_equal(json_number_at(result, "gpus.most_workers"), rows[i].most);
        assert_int_equal(json_is_true(json_at(result, "gpus.time_sliced")), sliced);
        assert_int_equal(count_warnings(result, "gpu_shared"), sliced);
        training_free(&training);
    }
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

/* Of the workers of `dpbench comm`, the same. */
CASE(test_comm_sharing)
{
    char ini[80];
    use_stand_in(true);
    snprintf(ini, sizeof ini, "%s/empty.ini", cache);
    write_file(ini, "", 0);
    for (int served = 0; served < 2; served++) {
        struct command command;
        setenv("CUDA_MPS_PIPE_DIRECTORY", served ? pipes : cache, 1);
        dpbench_ends(&command, deadline_s, 0,
                     "comm -c %s --json comm.name=ps_gpu device.name=cuda " TWO
                     "device.tuning=no comm_test.sizes=4096 comm_test.iterations=3",
                     ini);
        assert_int_equal(json_number_at(command.json, "gpus.most_workers"), 2);
        assert_string_equal(json_text_at(command.json, "gpus.sharing"),
                            served ? "MPS" : "time slices");
        assert_int_equal(json_is_true(json_at(command.json, "gpus.time_sliced")), !served);
        assert_int_equal(count_warnings(command.json, "gpu_shared"), !served);
        command_free(&command);
    }
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

/* The layout is no part of the training: in NCHW it is, within rounding, the same. */
TEST(test_layouts)
{
    static const struct {
        const char *settings;
        double bound;
    } rows[] = {{"run.precision=fp32", 1e-4}, {"run.precision=bf16", 2e-2}};
    use_stand_in(true);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        static const char settings[] =
            "device.name=cuda model.name=tiny device.tuning=no run.batch=4 "
            "run.workers=1 comm.name=independent run.steps=5 %s %s";
        struct training nhwc, nchw;
        train(&nhwc, settings, rows[i].settings, "");
        train(&nchw, settings, rows[i].settings, "device.layout=nchw");
        expect_same_losses(&nhwc, &nchw, rows[i].bound);
        training_free(&nhwc);
        training_free(&nchw);
    }
}

/* The losses of 200 steps of LeNet on Fashion-MNIST are the cpu device's within 2 %. By the
 * processor the stand-in would take minutes. */
CASE(test_follows_cpu)
{
    static const char settings[] = "model.name=lenet data.name=idx run.precision=fp32 run.batch=64 "
                                   "run.steps=200 optimizer.learning_rate=0.01 "
                                   "comm.name=independent device.name=%s %s%s";
    const char *brought = getenv("DPB_TEST_FASHION_MNIST"); /* by tests/gpu/pack */
    const char *key = brought ? "data.path=" : "", *path = brought ? brought : "";
    struct training cpu, cuda;
    train(&cpu, settings, "cpu", key, path);
    train(&cuda, settings, "cuda", key, path);
    expect_same_losses(&cpu, &cuda, 0.02);
    training_free(&cpu);
    training_free(&cuda);
}

/* device.mps is refused before anything has begun, and `check` and `plugins` say what is there. */
CASE(test_mps_refused)
{
    static const struct {
        const char *option, *words;
        bool served, known;
    } rows[] = {{"auto", NULL, true, true},
                {"require", NULL, true, true},
                {"require",
                 "device.mps = require: CUDA's Multi-Process Service does not serve GPU 0", false,
                 true},
                {"require", "device.mps = require: this driver does not tell", true, false},
                {"no", NULL, false, true},
                {"no", "device.mps = no: CUDA's Multi-Process Service serves GPU 0", true, true}};
    char ini[80], said[64];
    struct command command;
    use_stand_in(true);
    snprintf(ini, sizeof ini, "%s/empty.ini", cache);
    write_file(ini, "", 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        setenv("CUDA_MPS_PIPE_DIRECTORY", rows[i].served ? pipes : cache, 1);
        if (!rows[i].known)
            setenv("DPB_STAND_IN_MPS", "0", 1);
        dpbench(&command, deadline_s,
                "check -c %s " CUDA "run.steps=1 comm.name=independent device.mps=%s", ini,
                rows[i].option);
        snprintf(said, sizeof said, "workers on one device: %s\n",
                 rows[i].served ? "MPS" : "time slices");
        if (command.exit_code != (rows[i].words ? 2 : 0) ||
            !strstr(rows[i].words ? command.err : command.out,
                    rows[i].words ? rows[i].words : said))
            fail_msg("check, device.mps=%s: exit %d: %s%s", rows[i].option, command.exit_code,
                     command.out, command.err);
        command_free(&command);
        if (rows[i].words) {
            char text[256];
            snprintf(text, sizeof text, CUDA "comm.name=independent device.mps=%s", rows[i].option);
            train_says(2, WORDS(rows[i].words), "%s", text);
        } else {
            dpbench(&command, deadline_s, "plugins");
            assert_non_null(strstr(command.out, said));
            command_free(&command);
        }
        unsetenv("DPB_STAND_IN_MPS");
    }
    unsetenv("CUDA_MPS_PIPE_DIRECTORY");
}

/* A kernel that fails ends the run with CUDA's word for it; too large a batch with one that
 * fits. */
CASE(test_failures)
{
    use_stand_in(true);
    setenv("DPB_STAND_IN_FAIL", "120", 1);
    train_says(1, WORDS("cudaErrorIllegalAddress", "device cuda"), CUDA LARGER TWO "comm.name=shm");
    unsetenv("DPB_STAND_IN_FAIL");
    setenv("DPB_STAND_IN_MB", "2", 1);
    train_says(1, WORDS("run.batch = 2 takes", "MB are free"), CUDA LARGER TWO "comm.name=shm");
    unsetenv("DPB_STAND_IN_MB");
}

/* An algorithm that fails when it is tried is dropped with a warning; the run goes on with another.
 * Where none is left, or where the GPU fails from then on, the run ends with CUDA's words. */
CASE(test_dropped_candidates)
{
    static const char settings[] = "device.name=cuda run.precision=bf16 model.name=tiny "
                                   "run.batch=2 run.steps=1 run.workers=1 comm.name=independent "
                                   "device.tuning=%s/dropped%d";
    static const struct {
        const char *broken;
        const char *words[4]; /* of the failure; none: it trains */
    } rows[] = {{"forward", {NULL}},
                {"every", {"none of ", "an algorithm on trial", "device.tuning = no", NULL}},
                {"forward,stuck", {"cudaErrorIllegalAddress", "device cuda", NULL}}};
    use_stand_in(true);
    for (int i = 0; i < (int)(sizeof rows / sizeof rows[0]); i++) {
        char text[512];
        snprintf(text, sizeof text, settings, cache, i);
        setenv("DPB_STAND_IN_BROKEN", rows[i].broken, 1);
        if (rows[i].words[0]) {
            train_says(1, rows[i].words, "%s", text);
        } else {
            struct training trained;
            train(&trained, "%s", text);
            if (!strstr(trained.command.err, "an algorithm on trial is dropped"))
                fail_msg("%s: nothing was dropped: %s", rows[i].broken, trained.command.err);
            training_free(&trained);
        }
        unsetenv("DPB_STAND_IN_BROKEN");
    }
}

/* A worker that waits while another process tries algorithms on its GPU is not stuck, however long
 * that takes beside run.timeout_s. */
CASE(test_turn)
{
    struct flock bytes = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 0};
    struct training trained;
    char path[96];
    int status;
    use_stand_in(true);
    snprintf(path, sizeof path, "%s/turn", cache);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && fcntl(fd, F_OFD_SETLK, &bytes) == 0);
    const pid_t other = fork(); /* the lock is this process's, too */
    if (other == 0) {
        sleep(6);
        _exit(0);
    }
    close(fd);
    train(&trained,
          "device.name=cuda run.precision=fp32 model.name=tiny run.batch=2 run.steps=1 "
          "run.workers=1 run.timeout_s=2 device.tuning=%s",
          path);
    assert_int_equal(waitpid(other, &status, WNOHANG), other); /* it was waited for */
    training_free(&trained);
}

/* Samples that stay on the device train as those that the host sends: the same losses, the same
 * evaluation. Data that is read cannot stay there, nor what does not fit. */
TEST(test_place)
{
    static const char settings[] =
        CUDA TWO "comm.name=shm run.steps=5 data.place=%s eval.final=yes "
                 "data.test_samples=8";
    struct training host, device;
    struct command check;
    char ini[80];
    use_stand_in(true);
    train(&host, settings, "host");
    train(&device, settings, "device");
    expect_same_losses(&host, &device, 0);
    assert_true(json_equal(json_at(host.command.json, "eval.0.loss"),
                           json_at(device.command.json, "eval.0.loss")));
    training_free(&host);
    training_free(&device);
    snprintf(ini, sizeof ini, "%s/empty.ini", cache);
    write_file(ini, "", 0);
    dpbench_ends(&check, deadline_s, 2,
                 "check -c %s " CUDA
                 "run.steps=1 comm.name=independent data.name=idx data.place=device",
                 ini);
    if (!strstr(check.err, "data.place = device: data 'idx' reads"))
        fail_msg("check says: %s", check.err);
    command_free(&check);
    if (on_gpu())
        return;
    setenv("DPB_STAND_IN_MB", "8", 1);
    train_says(1, WORDS("40000 samples take", "data.distinct smaller"),
               CUDA "comm.name=independent data.place=device data.samples=40000 "
                    "data.distinct=40000");
    unsetenv("DPB_STAND_IN_MB");
}

#define FP16 "device.name=cuda run.precision=fp16 model.name=tiny run.batch=2 device.tuning=no "

/* A step whose gradients are infinite on one of two workers is skipped on both: the weights are,
 * bit for bit, those of a training without it, with momentum, decay and a rate that rises from step
 * to step. All steps have the same samples here. */
CASE(test_skipped_step)
{
    static const char *const strategies[] = {"shm", "replicated run.accumulate=2",
                                             "ps_cpu run.servers=1", "ring_tcp run.comm_cores=1"};
    static const char same[] =
        FP16 LARGER "run.workers=2 device.ids=0,1 run.loss_scale=1024 "
                    "run.batch=1 data.shuffle=no data.samples=16 data.distinct=2 "
                    "optimizer.momentum=0.9 optimizer.weight_decay=0.01 "
                    "optimizer.linear_scaling=yes optimizer.linear_base=1 "
                    "optimizer.learning_rate=0.001 optimizer.warmup_epochs=50 "
                    "run.prove=yes run.steps=%d comm.name=%s";
    struct training without, with;
    use_stand_in(true);
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++) {
        train(&without, same, 2, strategies[i]);
        setenv("DPB_STAND_IN_INFINITE", "3", 1);
        train(&with, same, 3, strategies[i]);
        unsetenv("DPB_STAND_IN_INFINITE");
        expect_verified(&with);
        assert_true(json_number_at(with.command.json, "loss_scale.skipped_steps") == 1);
        assert_true(json_number_at(with.command.json, "loss_scale.final") == 1024);
        assert_true(json_number_at(without.command.json, "loss_scale.skipped_steps") == 0);
        expect_same_weights(&without, &with, NULL, 0);
        training_free(&without);
        training_free(&with);
    }
}

/* The automatic scale begins too high for this net: it is halved by every overflow, its own ones
 * and one that the other worker alone has had. */
CASE(test_loss_scale)
{
    static const char settings[] =
        FP16 LARGER "run.batch=4 run.workers=2 device.ids=0,1 comm.name=shm run.steps=8";
    struct training two;
    use_stand_in(true);
    for (int forced = 0; forced < 2; forced++) {
        if (forced) /* of two convolutions a step: in the seventh */
            setenv("DPB_STAND_IN_INFINITE", "13", 1);
        train(&two, settings);
        unsetenv("DPB_STAND_IN_INFINITE");
        const int skipped = (int)json_number_at(two.command.json, "loss_scale.skipped_steps");
        static int before;
        assert_in_range(skipped, forced ? before + 1 : 1, forced ? before + 1 : 5);
        assert_true(json_number_at(two.command.json, "loss_scale.final") == ldexp(65536, -skipped));
        before = skipped;
        training_free(&two);
    }
    train_says(2,
               WORDS("comm.gradient = fp16 beside run.precision = fp16",
                     "take comm.gradient = fp32 or bf16"),
               FP16 "run.workers=2 device.ids=0,1 comm.name=shm comm.gradient=fp16");
    /* Residuals of reduce.h would change with the scale. */
    char path[1024];
    snprintf(path, sizeof path, "%s:%s/tests/plugins", getenv("DPBENCH_PLUGIN_PATH"),
             build_directory());
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    train_says(2, WORDS("keeps residuals", "run.precision than fp16"),
               FP16 "run.workers=2 device.ids=0,1 comm.name=toy_reduce");
}

/* ---- links --------------------------------------------------------------------------------- */

/* All ways of all GPUs: pinned and pageable, within, peer and staged. Where GPUs are no peers that
 * way is left out, and nothing is copied on it. */
static void measure_links(const char *trace, bool peers)
{
    const size_t n_sizes = 4; /* to 64 KiB */
    struct command command;
    dpbench_ends(&command, deadline_s, 0, "links devices --window 20us --max 64KiB --json");
    const json_t *cuda = links_of(command.json, "cuda");
    const size_t n = json_array_size(json_at(cuda, "devices"));
    assert_true(n >= 1 && (on_gpu() || n == 2));
    assert_true(json_number_at(cuda, "devices.0.memory_bytes") > 1e9);
    assert_int_equal(json_array_size(json_at(cuda, "host")), 2 * n);
    expect_rates(json_at(cuda, "host.0.to_device"), n_sizes);
    expect_rates(json_at(cuda, "host.0.from_device"), n_sizes);
    expect_rates(json_at(cuda, "host.0.both"), n_sizes);
    expect_rates(json_at(cuda, "host.1.to_device"), n_sizes);
    expect_rates(json_at(cuda, "host.1.from_device"), n_sizes);
    expect_rates(json_at(cuda, "pairs.0.one_way"), n_sizes);
    if (!on_gpu()) {
        static const char *const ways[] = {"within", "peer", "staged", "within"};
        assert_int_equal(json_array_size(json_at(cuda, "pairs")), 4);
        for (size_t i = 0; i < 4; i++) {
            const json_t *pair = json_array_get(json_at(cuda, "pairs"), i);
            const bool possible = peers || i != 1;
            assert_string_equal(json_text_at(pair, "way"), ways[i]);
            assert_int_equal(json_is_true(json_at(pair, "possible")), possible);
            if (possible)
                expect_rates(json_at(pair, "one_way"), n_sizes);
            if (possible && i % 3 != 0)
                expect_rates(json_at(pair, "both"), n_sizes);
        }
        assert_int_equal(stand_in_count(trace, "copied directly") > 0, peers);
        assert_true(stand_in_count(trace, "copied by the host") > 0);
    }
    command_free(&command);
}

TEST(test_links)
{
    char trace[80];
    use_stand_in(true);
    snprintf(trace, sizeof trace, "%s/trace", cache);
    setenv("DPB_STAND_IN_TRACE", trace, 1);
    measure_links(trace, true);
    setenv("DPB_STAND_IN_PEERS", "0", 1);
    if (!on_gpu())
        measure_links(trace, false);
    unsetenv("DPB_STAND_IN_PEERS");
    unsetenv("DPB_STAND_IN_TRACE");
}

/* ---- no GPU -------------------------------------------------------------------------------- */

/* What `plugins` says is missing; "": nothing. */
static void read_missing(char *text, size_t bytes)
{
    static const char words[] = "cannot run here: ";
    struct command plugins;
    dpbench(&plugins, deadline_s, "plugins");
    const char *row = strstr(plugins.out, "device   cuda ");
    const char *next = row ? strstr(row + 1, "\ndevice ") : NULL;
    const char *found = row ? strstr(row, words) : NULL;
    text[0] = 0;
    if (found && (!next || found < next))
        snprintf(text, bytes, "device 'cuda' %.*s", (int)strcspn(found, "\n"), found);
    command_free(&plugins);
}

/* Without a GPU `check` and a run refuse by the same words as `plugins`, before anything has
 * begun. */
CASE(test_without_gpu)
{
    char words[1024], ini[80];
    struct command check;
    use_stand_in(false);
    read_missing(words, sizeof words);
    if (!words[0])
        return; /* there is one: make check-gpu */
    train_says(2, WORDS(words), CUDA "comm.name=independent");
    snprintf(ini, sizeof ini, "%s/empty.ini", cache);
    write_file(ini, "", 0);
    dpbench_ends(&check, deadline_s, 2,
                 "check -c %s %s data.name=synthetic run.steps=1 comm.name=independent", ini, CUDA);
    if (!strstr(check.err, words))
        fail_msg("no '%s' in: %s", words, check.err);
    command_free(&check);
}

static int setup(void **state)
{
    temporary_directory(cache);
    setenv("XDG_CACHE_HOME", cache, 1);
    char control[96];
    snprintf(pipes, sizeof pipes, "%s/mps", cache);
    snprintf(control, sizeof control, "%s/control", pipes);
    assert_int_equal(mkdir(pipes, 0700), 0);
    assert_int_equal(mkfifo(control, 0600), 0);
    return training_setup(state);
}

static int teardown(void **state)
{
    remove_directory(cache);
    return training_teardown(state);
}

int main(void)
{
    if (on_gpu() && have_cpu_device())
        add_case(test_follows_cpu, NULL, "LeNet follows the cpu device");
    if (!on_gpu()) {
        add_case(test_sharing, NULL, "workers on one GPU, with MPS and without");
        add_case(test_comm_sharing, NULL, "the same of dpbench comm");
        add_case(test_mps_refused, NULL, "device.mps that cannot be had");
        add_case(test_skipped_step, NULL, "fp16: an overflow skips the step everywhere");
        add_case(test_loss_scale, NULL, "fp16: the scale of the loss");
        add_case(test_failures, NULL, "a kernel that fails, a batch that is too large");
        add_case(test_dropped_candidates, NULL, "algorithms that fail when they are tried");
        add_case(test_turn, NULL, "another process tries algorithms");
        add_case(test_without_gpu, NULL, "without a GPU");
    }
    return test_main(setup, teardown);
}
