/*
 * test_data_command.c - `dpbench data`: the rates of a source whose rate is known, its document and
 * its table, which threads it measures and for how long, what it refuses, how it ends; all workers
 * of a job at once.
 */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/launchers.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

static const double deadline_s = 60.0;

enum { CIFAR_RECORD = 3073 };

/* idx and CIFAR-10 files of a few samples. */
static void write_sets(void)
{
    uint8_t images[16 + 8 * 81], labels[8 + 8] = {0, 0, 8, 1, 0, 0, 0, 8};
    static uint8_t records[8 * CIFAR_RECORD];
    const uint8_t head[16] = {0, 0, 8, 3, 0, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 9};
    memcpy(images, head, sizeof head);
    for (size_t i = 0; i < 8 * 81; i++)
        images[16 + i] = (uint8_t)(i * 7);
    for (size_t i = 0; i < 8; i++)
        labels[8 + i] = (uint8_t)(i % 5);
    for (size_t i = 0; i < sizeof records; i++)
        records[i] = (uint8_t)(i % CIFAR_RECORD == 0 ? i / CIFAR_RECORD : i * 13);
    mkdir("idx", 0777);
    mkdir("cifar", 0777);
    write_file("idx/train-images-idx3-ubyte", images, sizeof images);
    write_file("idx/train-labels-idx1-ubyte", labels, sizeof labels);
    write_file("idx/t10k-images-idx3-ubyte", images, sizeof images);
    write_file("idx/t10k-labels-idx1-ubyte", labels, sizeof labels);
    write_file("cifar/data_batch_1.bin", records, sizeof records);
    write_file("cifar/test_batch.bin", records, sizeof records);
}

static char by_environment[PATH_MAX];

static int set_up(void **state)
{
    if (!by_environment[0] && !realpath("tests/lib/by_environment", by_environment))
        return 1;
    int result = sandbox_setup(state);
    launchers_allow_root();
    write_sets();
    sandbox_write("x.ini", "[run]\nname = thing\nbatch = 4\nepochs = 1000\n[model]\nname = tiny\n"
                           "[device]\nname = reference\n");
    sandbox_write("text.txt", "%0*d", 42 * 64 + 1, 7);
    sandbox_write("sweep.ini", "[run]\nbatch = 4\nsteps = 1000\n[model]\nname = tiny\n"
                               "[device]\nname = reference\n[sweep]\ncomm.name = shm, replicated\n"
                               "run.workers = 1, 2\n");
    return result;
}

static void run(struct command *command, int exit_code, const char *arguments)
{
    dpbench_ends(command, deadline_s, exit_code, "data %s", arguments);
}

/* ---- what it measures ---------------------------------------------------------------------- */

/* A source that sleeps 5 ms for a batch of 4 gives 800 samples/s from each thread. The machine can
 * only make it slower; the upper bounds leave room for a wake-up at a window's edge. */
TEST(test_rate_is_that_of_the_source)
{
    static const int threads[] = {0, 1, 4};
    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        struct command command;
        char arguments[160];
        snprintf(arguments, sizeof arguments,
                 "-c x.ini --json data.name=timed data.fetch=5ms run.steps=20 data.threads=%d",
                 threads[i]);
        run(&command, 0, arguments);
        double rate = expect_number(&command, "points.0.samples_per_s.median");
        double full = 800.0 * (threads[i] > 0 ? threads[i] : 1);
        if (rate > 1.25 * full || rate < 0.2 * full)
            fail_msg("%d threads: %.1f samples/s, not %.0f", threads[i], rate, full);
        assert_int_equal(json_array_size(json_at(command.json, "points")), 1);
        assert_int_equal(expect_number(&command, "points.0.threads"), threads[i]);
        assert_int_equal(json_array_size(json_at(command.json, "points.0.windows")), 5);
        for (int w = 0; w < 5; w++) {
            char path[64];
            snprintf(path, sizeof path, "points.0.windows.%d.batches", w);
            assert_int_equal(expect_number(&command, path), 20);
            snprintf(path, sizeof path, "points.0.windows.%d.samples", w);
            assert_int_equal(expect_number(&command, path), 80);
        }
    }
}

/* By what the source says of itself: as many bytes a sample as it counts, up to the batches that
 * are on their way at the edges of a window. */
TEST(test_bytes_are_those_that_the_source_counts)
{
    struct command command;
    run(&command, 0, "-c x.ini --json data.name=timed data.fetch=1ms run.steps=100 data.threads=2");
    double rate = expect_number(&command, "points.0.samples_per_s.median");
    double read = expect_number(&command, "points.0.bytes_read_per_s");
    double window = expect_number(&command, "points.0.windows.1.bytes_read");
    assert_true(fabs(window - 400 * 1000) <= 4 * 4 * 1000); /* ring of 4 batches of 4 samples */
    assert_true(read > 500 * rate && read < 2000 * rate);
    assert_true(expect_number(&command, "points.0.bytes_decoded_per_s") == 2 * read);
    double skipped = expect_number(&command, "points.0.skipped_samples");
    /* Of each window, and the warm-up of a batch a thread and the ring before it. */
    assert_true(skipped >= 500 && skipped <= 500 + 5 * (2 + 4));
    assert_true(expect_number(&command, "points.0.windows.4.skipped_samples") == skipped);
}

/* Without data.threads: 1, 2, 4, ... and all cores. */
TEST(test_threads)
{
    struct command command;
    run(&command, 0, "-c x.ini --json run.steps=2");
    double cores = expect_number(&command, "machine.usable_cores"), wanted = 1;
    const json_t *points = json_at(command.json, "points");
    for (size_t i = 0; i < json_array_size(points); i++) {
        const json_t *point = json_array_get(points, i);
        assert_true(json_number_at(point, "threads") == fmin(wanted, cores));
        assert_true(json_is_number(json_at(point, "speedup")));
        wanted *= 2;
    }
    assert_true(wanted >= 2 * cores || json_array_size(points) == 1);
    assert_true(json_number_at(json_array_get(points, 0), "speedup") == 1);
}

/* Only the command line says how long a window is; the file's length is that of the training. */
TEST(test_lengths)
{
    struct command command;
    run(&command, 0, "-c x.ini --json data.threads=1 data.samples=40 run.epochs=3");
    assert_int_equal(expect_number(&command, "points.0.windows.4.samples"), 3 * 40);
    run(&command, 0, "-c x.ini --json data.threads=1 run.seconds=20ms");
    for (int w = 0; w < 5; w++) {
        char path[64];
        snprintf(path, sizeof path, "points.0.windows.%d.ns", w);
        assert_true(expect_number(&command, path) >= 20e6);
    }
    assert_true(json_is_null(json_at(command.json, "config.run.epochs.value")));
    run(&command, 0, "-c x.ini --json data.threads=1");
    assert_true(expect_number(&command, "config.run.seconds.value") == 0.6);
    assert_string_equal(json_text_at(command.json, "config.run.seconds.origin"), "derived");
    assert_true(expect_number(&command, "points.0.windows.0.ns") >= 0.6e9);
}

/* The training's length is no window's, and a schedule that needs this length is none here. */
TEST(test_schedules)
{
    static const char *const schedules[] = {"cosine", "polynomial"};
    for (size_t i = 0; i < 2; i++) {
        struct command command;
        char words[128];
        snprintf(words, sizeof words,
                 "-c x.ini --json data.threads=1 run.seconds=20ms optimizer.schedule=%s",
                 schedules[i]);
        run(&command, 0, words);
        assert_string_equal(json_text_at(command.json, "config.optimizer.schedule.value"),
                            "constant");
    }
    struct command command;
    run(&command, 2, "-c x.ini optimizer.schedule=cosin");
    expect_part(command.err, "did you mean 'cosine'?");
}

/* ---- what it says -------------------------------------------------------------------------- */

TEST(test_document)
{
    static const char *const objects[] = {"config", "versions", "machine", "data",
                                          "points.0.samples_per_s"};
    struct command command;
    run(&command, 0,
        "-c x.ini data.name=idx data.path=idx run.steps=3 data.threads=1 --json --output o.json");
    assert_non_null(command.json); /* of the whole of stdout: nothing else is there */
    assert_string_equal(command.err, "result: o.json\n");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.data/1");
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_string_equal(json_text_at(command.json, "name"), "thing");
    assert_true(json_is_null(json_at(command.json, "error")));
    assert_true(json_is_array(json_at(command.json, "warnings")));
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        assert_true(json_is_object(json_at(command.json, objects[i])));
    assert_string_equal(json_text_at(command.json, "data.name"), "idx");
    assert_string_equal(json_text_at(command.json, "versions.plugins.data.name"), "idx");
    assert_string_equal(json_text_at(command.json, "config.run.batch.origin"), "x.ini:3");
    assert_int_equal(expect_number(&command, "data.train_samples"), 8);
    assert_int_equal(expect_number(&command, "data.shape.1"), 9);
    assert_int_equal(expect_number(&command, "batch"), 4);
    assert_true(expect_number(&command, "data.open_s") > 0);
    /* A source that does not count. */
    assert_true(json_is_null(json_at(command.json, "points.0.bytes_read_per_s")));
    assert_null(json_at(command.json, "points.0.windows.0.bytes_read"));
    double least = expect_number(&command, "points.0.samples_per_s.min");
    double middle = expect_number(&command, "points.0.samples_per_s.median");
    assert_true(least <= middle && middle <= expect_number(&command, "points.0.samples_per_s.max"));
    json_t *file = own_json(json_load_file("o.json", 0, NULL));
    assert_true(json_equal(file, command.json));
    unlink("o.json");
}

TEST(test_table)
{
    struct command command;
    struct traces before;
    traces_take(&before, ".");
    run(&command, 0,
        "-c x.ini data.name=cifar10 data.path=cifar data.augment=crop_flip run.steps=4");
    expect_line(command.out, "^thing: data cifar10, 8 training samples of 3 x 32 x 32 uint8, batch "
                             "4, opened in [0-9.]+ s$");
    expect_line(command.out, "^ +threads +samples/s +slowest .. fastest +speedup +read MB/s");
    expect_line(command.out, "^ +1 +[0-9]+ +[0-9]+ \\.\\. [0-9]+ +1\\.00 +- +- +-$");
    run(&command, 0, "-c x.ini data.name=timed run.steps=40 data.threads=2");
    expect_line(command.out, "^ +2 +[0-9]+ +[0-9]+ \\.\\. [0-9]+ +- +[0-9.]+ +[0-9.]+ +[0-9]+$");
    /* A sweep over what does not matter here. */
    run(&command, 0, "-c sweep.ini run.steps=2");
    expect_line(command.out, "^ +1 +[0-9]+ ");
    run(&command, 0, "-c sweep.ini data.shard=yes run.servers=0 run.steps=2");
    traces_expect_none(&before, "dpbench data", 0.5);
}

/* Of a model that reads ids: from files, whose length may be another, and by the formula. */
TEST(test_ids)
{
    static const struct {
        const char *arguments, *line;
        int length, samples, classes;
    } rows[] = {
        {"model.name=gpt_tiny data.name=tokens data.path=text.txt",
         "^thing: data tokens, 38 training samples of 1 x 1 x 64 int32, batch 4, opened in ", 64,
         38, 256},
        {"model.name=gpt model.layers=1 model.width=8 model.heads=2 model.context=40 "
         "data.name=tokens data.path=text.txt data.type=bytes data.length=32",
         "^thing: data tokens, 76 training samples of 1 x 1 x 32 int32", 32, 76, 256},
        {"model.name=gpt_tiny data.name=synthetic data.samples=50",
         "^thing: data synthetic, 50 training samples of 1 x 1 x 64 int32", 64, 50, 256},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        char words[320];
        snprintf(words, sizeof words, "-c x.ini run.steps=9 data.threads=1 --output o.json %s",
                 rows[i].arguments);
        run(&command, 0, words);
        expect_line(command.out, rows[i].line);
        json_t *document = own_json(json_load_file("o.json", 0, NULL));
        assert_string_equal(json_text_at(document, "data.type"), "int32");
        assert_int_equal(json_number_at(document, "data.shape.2"), rows[i].length);
        assert_int_equal(json_number_at(document, "data.sample_bytes"), 4 * rows[i].length);
        assert_int_equal(json_number_at(document, "data.classes"), rows[i].classes);
        assert_int_equal(json_number_at(document, "data.train_samples"), rows[i].samples);
        const bool counts = strstr(rows[i].arguments, "tokens") != NULL;
        assert_int_equal(json_is_number(json_at(document, "points.0.bytes_read_per_s")), counts);
        unlink("o.json");
    }
}

/* ---- how it ends --------------------------------------------------------------------------- */

TEST(test_refusals)
{
    static const struct {
        const char *arguments, *words[4];
    } rows[] = {
        {"", {"which experiment?", "usage: dpbench data -c FILE.ini"}},
        {"-c nowhere.ini", {"nowhere.ini"}},
        {"-c x.ini data.nmae=idx", {"'nmae'", "did you mean"}},
        {"-c x.ini data.name=idx data.path=nowhere", {"nowhere: there is no such directory"}},
        {"-c x.ini data.name=cifar10", {"needs data.path", "cifar-10-binary.tar.gz"}},
        {"-c x.ini data.name=idx data.path=cifar", {"train-images-idx3-ubyte"}},
        {"-c x.ini data.samples=40 run.batch=41", {"larger than the training set", "run.batch"}},
        {"-c x.ini model.name=overfeat data.name=idx data.path=idx", {"takes samples of"}},
        {"-c x.ini data.name=tokens data.path=text.txt",
         {"data 'tokens' has ids of tokens", "the model reads images", "model.name = gpt"}},
        {"-c x.ini model.name=gpt_tiny data.name=idx data.path=idx",
         {"'gpt_tiny' reads ids of tokens", "data 'idx' has images"}},
        {"-c x.ini model.name=gpt_tiny data.name=tokens", {"data.path is empty"}},
        {"-c x.ini model.name=gpt_tiny data.name=tokens data.path=text.txt data.length=65",
         {"has 64 rows for 65 positions"}},
        {"-c x.ini run.steps=2 run.seconds=1", {"run.seconds", "exactly one"}},
        {"-c x.ini --output .", {"--output . is a directory"}},
        {"-c x.ini --jsn", {"unknown option '--jsn'", "usage: dpbench data"}},
        {"-c sweep.ini sweep.data.name=idx,synthetic",
         {"sweep.data.name", "measures one source", "data.name=idx"}},
        {"-c sweep.ini sweep.run.batch=4,8", {"sweep.run.batch", "run.batch=4"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        run(&command, 2, rows[i].arguments);
        assert_string_equal(command.out, "");
        expect_words(rows[i].arguments, command.err, rows[i].words);
    }
}

/* What was measured before a failure is not lost. */
TEST(test_failure_in_a_fetch)
{
    struct command command;
    run(&command, 1, "-c x.ini --json data.name=timed data.fail_at=40 run.steps=10 data.threads=1");
    assert_string_equal(json_text_at(command.json, "status"), "failed");
    assert_non_null(strstr(json_text_at(command.json, "error"), "batch 40 cannot be read"));
    assert_non_null(strstr(command.err, "batch 40 cannot be read"));
    size_t n = json_array_size(json_at(command.json, "points.0.windows"));
    assert_in_range(n, 1, 3); /* 11 batches each, and those on their way */
    run(&command, 1, "-c x.ini data.name=timed data.fail_at=1 data.threads=0");
    expect_line(command.out, "^ +0 +- +- +- ");
    expect_line(command.out, "^failed: batch 1 cannot be read");
}

TEST(test_interrupts)
{
    static const int signals[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < 2; i++) {
        struct started started;
        struct command command;
        dpbench_start(&started, NULL,
                      "data -c x.ini --json data.name=timed data.fetch=5ms data.threads=1 "
                      "run.seconds=600");
        double began_s = now_s();
        while (traces_threads(started.pid) < 2 && now_s() < began_s + 30) /* it measures */
            nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        began_s = now_s();
        kill(started.pid, signals[i]);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        if (now_s() < began_s + 0.02) /* at once, as `timeout` does: the same interruption */
            kill(started.pid, signals[i]);
        command_finish(&started, &command, deadline_s);
        assert_int_equal(command.exit_code, 128 + signals[i]);
        assert_string_equal(json_text_at(command.json, "status"), "interrupted");
        assert_non_null(strstr(json_text_at(command.json, "error"), "signal"));
        assert_int_equal(json_array_size(json_at(command.json, "points")), 1);
        assert_string_equal(command.err, "");
    }
}

/* ---- all workers of a job ------------------------------------------------------------------- */

static void start_job(struct started *started, int n, const char *arguments)
{
    const char *const environment[] = {launched_mark(), NULL};
    line_start(started, environment, "%s %d %s/dpbench data -c x.ini %s", by_environment, n,
               build_directory(), arguments);
}

static void run_job(struct command *command, int n, int exit_code, const char *arguments)
{
    struct started started;
    start_job(&started, n, arguments);
    command_finish(&started, command, deadline_s);
    if (command->exit_code != exit_code)
        fail_msg("%s: exit code %d: %s", arguments, command->exit_code, command->err);
}

/* What the job did in a window is the sum over its workers, for as long as the slowest took. */
static void expect_sum(const json_t *point, size_t window, size_t n)
{
    double samples = 0, longest_ns = 0, bytes = 0;
    for (size_t rank = 0; rank < n; rank++) {
        const json_t *one = json_array_get(json_at(point, "ranks"), rank);
        const json_t *own = json_array_get(json_at(one, "windows"), window);
        assert_true(json_number_at(one, "rank") == (double)rank);
        assert_true(json_number_at(own, "ns") >= 20e6);
        samples += json_number_at(own, "samples");
        bytes += json_number_at(own, "bytes_read");
        longest_ns = fmax(longest_ns, json_number_at(own, "ns"));
    }
    const json_t *all = json_array_get(json_at(point, "windows"), window);
    assert_true(samples > 0 && json_number_at(all, "samples") == samples);
    assert_true(json_number_at(all, "bytes_read") == bytes);
    assert_true(json_number_at(all, "ns") == longest_ns);
}

/* Up to half a batch a window is luck. */
static void expect_rate(const json_t *rank, double batch_ns)
{
    double batches = 0, ns = 0;
    for (size_t window = 0; window < 5; window++) {
        batches += json_number_at(json_array_get(json_at(rank, "windows"), window), "batches");
        ns += json_number_at(json_array_get(json_at(rank, "windows"), window), "ns");
    }
    if (batches > ns / batch_ns + 2.5 || batches < 0.2 * ns / batch_ns)
        fail_msg("%.0f batches of %.0f ms in %.1f ms", batches, batch_ns / 1e6, ns / 1e6);
}

/* Batches that worker 0 fetches while it waits for the other do not count: with them it would have
 * 6 batches in 20 ms instead of 4. */
TEST(test_all_workers_at_once)
{
    struct command command;
    launched(&command, deadline_s, MPIRUN, 2,
             "data -c x.ini data.name=timed data.fetch=5ms data.later=15ms data.threads=1 "
             "run.seconds=20ms --least slowest_samples_per_s=1 --output job.json");
    assert_int_equal(command.exit_code, 0);
    expect_line(command.out, "^ +threads +worker +samples/s ");
    expect_line(command.out, "^ +1 +0 +[0-9]+ ");
    expect_line(command.out, "^ +1 +1 +[0-9]+ ");
    expect_line(command.out, "^ +1 +all +[0-9]+ ");
    expect_line(command.out, "^slowest with 1 thread: worker 1 on ");
    json_t *document = own_json(json_load_file("job.json", 0, NULL));
    const json_t *point = json_at(document, "points.0");
    assert_int_equal(json_number_at(document, "workers"), 2);
    assert_int_equal(json_array_size(json_at(point, "ranks")), 2);
    assert_int_equal(json_array_size(json_at(point, "windows")), 5);
    for (size_t window = 0; window < 5; window++)
        expect_sum(point, window, 2);
    assert_int_equal(json_number_at(point, "slowest"), 1);
    expect_rate(json_at(point, "ranks.0"), 5e6);
    expect_rate(json_at(point, "ranks.1"), 20e6);
    const json_t *series = json_at(document, "series.0.values");
    assert_int_equal(json_array_size(json_at(series, "slowest_samples_per_s")), 5);
    unlink("job.json");
}

TEST(test_ends_of_a_job)
{
    static const struct {
        const char *arguments;
        int exit_code;
        const char *word;
    } rows[] = {{"run.steps=3", 2, "give run.seconds in place of run.steps"},
                {"run.epochs=1", 2, "in place of run.epochs"},
                {"comm.name=ps_cpu run.servers=1 run.workers=1", 2, "servers load no data"},
                {"data.threads=1 data.name=timed data.fail_at=1", 1, "batch 1 cannot be read"}};
    struct command command;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_job(&command, 2, rows[i].exit_code, rows[i].arguments);
        expect_part(command.err, rows[i].word);
    }
    expect_line(command.out, "^failed: rank [01] .*in phase 'load'"); /* of the last */
    struct started started;
    start_job(&started, 2, "--json data.threads=1 run.seconds=600");
    const double began_s = now_s();
    for (pid_t rank = 0; (rank == 0 || traces_threads(rank) < 2) && now_s() < began_s + 30;
         rank = launched_process(1, false)) /* until it measures */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    kill(started.pid, SIGTERM);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 128 + SIGTERM);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
}

/* A file that is not in memory comes from storage, and then from memory. */
TEST(test_cache)
{
    enum { BYTES = 1 << 20 };
    struct command command;
    char *text = calloc(1, BYTES);
    assert_non_null(text);
    memset(text, '7', BYTES);
    write_file("long.txt", text, BYTES);
    free(text);
    int fd = open("long.txt", O_RDWR);
    assert_true(fd >= 0 && fsync(fd) == 0 && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0);
    static const char arguments[] =
        "-c x.ini --json data.threads=1 run.seconds=20ms data.name=tokens "
        "model.name=gpt_tiny data.path=long.txt --output cache.json";
    run(&command, 0, arguments);
    const json_t *cold = json_at(command.json, "points.0.storage_bytes_per_s");
    struct statfs system;
    if (!json_is_number(cold) || fstatfs(fd, &system) != 0 || system.f_type == TMPFS_MAGIC)
        skip();
    assert_true(json_number_value(cold) > 0);
    char *all = calloc(1, BYTES);
    assert_true(pread(fd, all, BYTES, 0) == BYTES);
    free(all);
    close(fd);
#define WARM                                                                              \
    "data -c x.ini data.threads=1 run.seconds=20ms data.name=tokens model.name=gpt_tiny " \
    "data.path=long.txt "
    dpbench_ends(&command, deadline_s, 0, WARM);
    expect_line(command.out, "^cache: warm: nothing came from storage");
    dpbench_ends(&command, deadline_s, 0, WARM "data.direct=yes"); /* past the cache */
    expect_line(command.out, "^cache: cold: ");
    unlink("long.txt");
    unlink("cache.json");
}

/* Files that are no data are not opened: the system's own, whose reading may block, and pipes. An
 * option of any name takes part that says by its unit that it is a file or a directory. */
TEST(test_only_files_are_looked_at)
{
    struct command command;
    mkdir("shelf", 0777);
    assert_int_equal(mkfifo("shelf/pipe", 0666), 0);
    assert_int_equal(symlink("/dev/zero", "shelf/zero"), 0);
    assert_int_equal(symlink("/proc/version", "shelf/version"), 0);
    sandbox_write("shelf/book", "twelve bytes");
    dpbench_ends(&command, deadline_s, 0,
                 "-c x.ini --json run.steps=2 run.warmup_steps=0 run.steady_limit_s=0 "
                 "data.name=timed data.path=/proc data.shelf=shelf");
    const json_t *inputs = json_at(command.json, "inputs"), *shelf;
    assert_non_null(
        json_string_value(json_object_get(json_object_get(inputs, "data.path"), "fingerprint")));
    assert_non_null(shelf = json_object_get(inputs, "data.shelf"));
    assert_int_equal(json_integer_value(json_object_get(shelf, "files")), 1);
    assert_int_equal(json_integer_value(json_object_get(shelf, "bytes")), 12);
}

TEST_MAIN(set_up, sandbox_teardown)
