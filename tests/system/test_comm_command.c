/*
 * test_comm_command.c - `dpbench comm`: every strategy over sizes and on a model's layout, checked;
 * times of a strategy whose time is known; its document and its table; wrong sums are found and
 * named; how it ends, and what it refuses.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/training.h"

static const double deadline_s = 60.0, most_s = 5.0;
enum { MOST_AFTER_US = 10000000 }; /* until a job of a busy machine has timed something */

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    sandbox_write("x.ini", "[run]\nname = thing\nworkers = 2\n[device]\nname = reference\n"
                           "[comm]\nname = shm\n[comm_test]\nseconds = 0.02\ncodecs = no\n");
    sandbox_write("none.ini", "%s", "");
    sandbox_write("sweep.ini", "[run]\nsteps = 3\n[sweep]\ncomm.name = shm, replicated\n");
    return result;
}

static void run(struct command *command, int exit_code, const char *arguments)
{
    dpbench_ends(command, deadline_s, exit_code, "comm %s", arguments);
}

static size_t count_points(const struct command *command)
{
    return json_array_size(json_at(command->json, "points"));
}

/* ---- every strategy ------------------------------------------------------------------------- */

/* Sizes below, at and above buckets, that no number of workers divides. A bucket is 64 bytes long,
 * but for a library, which takes seconds for many. */
#define ODD_SIZES "-c x.ini --json comm_test.sizes=8,48,64,264,4KiB,10000 comm.bucket="
#define THRICE "comm_test.iterations=3 comm_test.warmup_iterations=2 "

static void expect_right(const struct command *command, size_t n_points, bool in_place,
                         const char *title)
{
    if (count_points(command) != n_points)
        fail_msg("%s: %zu points, not %zu", title, count_points(command), n_points);
    for (size_t i = 0; i < n_points; i++) {
        const json_t *point = json_array_get(json_at(command->json, "points"), i);
        bool right = json_number_at(point, "wrong") == 0 && json_number_at(point, "checked") == 6 &&
                     json_number_at(point, "iterations") == 3 &&
                     json_is_true(json_at(point, "in_place")) == in_place &&
                     json_number_at(point, "time_us.min") > 0;
        if (!right)
            fail_msg("%s: point %zu is not as it should be\n%s", title, i, command->out);
    }
}

static void test_strategy(void **state)
{
    const struct strategy_form *form = *state;
    static const char *const types[] = {"",
                                        "comm.gradient=bf16",
                                        "comm.gradient=fp16",
                                        "run.precision=fp64",
                                        "run.comm_cores=1",
                                        "comm_test.barrier=exchange",
                                        "comm_test.barrier=exchange comm.gradient=bf16"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct command command;
        char arguments[300];
        snprintf(arguments, sizeof arguments, ODD_SIZES "%s " THRICE "%s %s",
                 form->network && !form->ring ? "1000" : "64",
                 form_settings(form, "", (int)i % 3 + 1), types[i]);
        run(&command, 0, arguments);
        const bool in_place = strcmp(form->name, "ps_cpu") != 0 && !(form->sharded && i % 3 > 0);
        expect_right(&command, 6, in_place, arguments);
        bool apart = form->machines && i % 3 > 0;
        assert_string_equal(json_text_at(command.json, "barrier"),
                            apart || strstr(types[i], "barrier") ? "exchange" : "memory");
        assert_int_equal(expect_number(&command, "world.workers"), i % 3 + 1);
        assert_int_equal(expect_number(&command, "world.servers"), form->servers);
    }
}

TEST(test_models_layout)
{
    struct command command;
    run(&command, 0,
        "-c x.ini --json " THRICE "model.name=lenet comm.bucket=1MiB run.workers=3 "
        "comm_test.sizes=none");
    expect_right(&command, 1, true, "the layout of a model");
    assert_string_equal(json_text_at(command.json, "points.0.model"), "lenet");
    double count = expect_number(&command, "points.0.count");
    assert_true(count > 1e6 && expect_number(&command, "points.0.bytes") == 4 * count);
    assert_true(expect_number(&command, "points.0.buckets") == ceil(4 * count / (1 << 20)));
    run(&command, 0,
        "-c x.ini --json " THRICE "model.name=tiny comm.name=ps_cpu run.servers=1 "
        "comm_test.sizes=100");
    expect_right(&command, 2, false, "a size and the layout of a model");
    assert_true(json_is_null(json_at(command.json, "points.0.model")));
    assert_string_equal(json_text_at(command.json, "points.1.model"), "tiny");
}

/* ---- what is measured ----------------------------------------------------------------------- */

/* Writing and checking 64 MiB takes longer than the exchange, of which it is no part. The machine
 * can only make a sleep longer, and not that of every exchange. */
TEST(test_time_is_that_of_the_exchange)
{
    double least_us = INFINITY;
    for (int attempt = 0; attempt < 3 && least_us > 12500; attempt++) {
        struct command command;
        run(&command, 0,
            "-c x.ini --json run.workers=1 comm.name=timed comm.exchange=5ms "
            "comm.bucket=32MiB comm_test.sizes=64MiB comm_test.iterations=8");
        least_us = expect_number(&command, "points.0.time_us.min");
        assert_true(json_is_null(json_at(command.json, "points.0.bus_gb_per_s"))); /* one worker */
    }
    if (least_us < 10000 || least_us > 12500)
        fail_msg("two buckets of 5 ms take %.1f us", least_us);
}

static void expect_near(double value, double wanted)
{
    if (!(fabs(value / wanted - 1) < 1e-9))
        fail_msg("%.12g, not %.12g", value, wanted);
}

TEST(test_bandwidths)
{
    static const char *const rising[] = {"min", "p10", "p50", "p90", "p99", "max"};
    struct command command;
    run(&command, 0, "-c x.ini --json run.workers=3 comm_test.sizes=30000 comm_test.iterations=40");
    double before = 0;
    for (size_t i = 0; i < sizeof rising / sizeof *rising; i++) {
        char path[64];
        snprintf(path, sizeof path, "points.0.time_us.%s", rising[i]);
        assert_true(expect_number(&command, path) >= before);
        before = expect_number(&command, path);
    }
    double algorithm = 30000 / expect_number(&command, "points.0.time_us.p50") / 1e3;
    expect_near(expect_number(&command, "points.0.algorithm_gb_per_s"), algorithm);
    expect_near(expect_number(&command, "points.0.bus_gb_per_s"), algorithm * 4 / 3);
}

/* ---- options -------------------------------------------------------------------------------- */

static void expect_sizes(const char *arguments, const double *bytes, size_t n)
{
    struct command command;
    char line[300];
    snprintf(line, sizeof line, "-c x.ini --json " THRICE "%s", arguments);
    run(&command, 0, line);
    assert_int_equal(count_points(&command), n);
    for (size_t i = 0; i < n; i++) {
        char path[64];
        snprintf(path, sizeof path, "points.%zu.bytes", i);
        assert_true(expect_number(&command, path) == bytes[i]);
    }
}

TEST(test_sizes)
{
    expect_sizes("comm_test.min_bytes=16 comm_test.max_bytes=1kB comm_test.step_factor=4",
                 (const double[]){16, 64, 256}, 3);
    expect_sizes("comm_test.min_bytes=1 comm_test.max_bytes=16", (const double[]){4, 8, 16}, 3);
    expect_sizes("comm_test.sizes=5,1KiB,12 run.precision=fp64", (const double[]){8, 1024, 8}, 3);
}

static double iterations_with(const char *settings)
{
    struct command command;
    char line[300];
    snprintf(line, sizeof line,
             "-c x.ini --json run.workers=1 comm.name=timed comm.exchange=1ms comm_test.sizes=4 %s",
             settings);
    run(&command, 0, line);
    double n = expect_number(&command, "points.0.iterations");
    return n;
}

TEST(test_lengths)
{
    double many = iterations_with("comm_test.seconds=0.3"); /* of a ms at least */
    double few = iterations_with("comm_test.seconds=1ms");
    assert_true(many > 20 && many < 310);
    assert_true(few >= 5 && few < 12);
    assert_true(iterations_with("comm_test.iterations=11") == 11); /* over the file's seconds */
}

/* ---- what it says --------------------------------------------------------------------------- */

TEST(test_document)
{
    static const char *const objects[] = {"config",   "versions",         "machine",   "world",
                                          "strategy", "points.0.time_us", "invocation"};
    struct command command;
    run(&command, 0, "-c x.ini comm_test.sizes=8,1KiB --json --output o.json");
    assert_non_null(command.json); /* of the whole of stdout: nothing else is there */
    assert_string_equal(command.err, "result: o.json\n");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.comm/1");
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_string_equal(json_text_at(command.json, "name"), "thing");
    assert_true(json_is_null(json_at(command.json, "error")));
    assert_true(json_is_array(json_at(command.json, "warnings")));
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++)
        assert_true(json_is_object(json_at(command.json, objects[i])));
    assert_string_equal(json_text_at(command.json, "strategy.name"), "shm");
    assert_string_equal(json_text_at(command.json, "versions.plugins.comm.name"), "shm");
    assert_string_equal(json_text_at(command.json, "config.run.workers.origin"), "x.ini:3");
    assert_string_equal(json_text_at(command.json, "points.1.type"), "fp32");
    assert_int_equal(expect_number(&command, "points.1.count"), 256);
    json_t *file = own_json(json_load_file("o.json", 0, NULL));
    assert_true(json_equal(file, command.json));
    unlink("o.json");
}

#define THREE_TIMES " +[0-9.]+ +[0-9.]+ +[0-9.]+"

TEST(test_table)
{
    struct command command;
    struct traces before;
    traces_take(&before, ".");
    run(&command, 0, "-c x.ini comm_test.sizes=1KiB model.name=tiny comm.gradient=bf16");
    expect_line(command.out,
                "^thing: comm shm, 2 workers; buckets of 4194304 bytes; barrier by memory");
    expect_line(command.out, "^ +bytes +count +type +buckets +iterations +min us +p50 us +p99 us "
                             "+algbw GB/s +busbw GB/s +wrong +in place$");
    expect_line(command.out,
                "^ +1024 +512 +bf16 +1 +[0-9]+" THREE_TIMES " +[0-9.]+ +[0-9.]+ +0 +yes *$");
    expect_line(command.out, "^ +[0-9]+ +[0-9]+ +bf16 +1 +[0-9]+" THREE_TIMES
                             " +[0-9.]+ +[0-9.]+ +0 +yes +tiny$");
    run(&command, 0, "-c x.ini comm_test.sizes=8 comm.name=ps_cpu run.workers=1 run.servers=1");
    expect_line(command.out, "^thing: comm ps_cpu, 1 worker, 1 server; ");
    expect_line(command.out, "^ +8 +2 +fp32 +1 +[0-9]+" THREE_TIMES " +[0-9.]+ +- +0 +no *$");
    /* 40 kB in 10 ms, or a little more. */
    run(&command, 0,
        "-c x.ini comm_test.sizes=40000 comm.name=timed comm.exchange=10ms run.workers=1");
    expect_line(command.out, THREE_TIMES " +0\\.00[1-4][0-9][0-9] ");
    traces_expect_none(&before, "dpbench comm", 0.5);
}

/* A codec wins on links that take longer for the bytes saved than a core for encoding once, and
 * decoding as often as there are workers; where an all-reduce adds the messages, not at all. */
static void expect_link(const json_t *codec, size_t i, double workers)
{
    const bool sums = strcmp(json_text_at(codec, "name"), "powersgd") == 0;
    const json_t *wins = json_array_get(json_at(codec, "wins_below"), i);
    const double saved = 4 * (workers - 1) *
                         (2 / workers - json_number_at(codec, "ratio") * (sums ? 2 / workers : 1));
    const double ns = 4 / json_number_at(codec, "encode_gb_per_s") +
                      (sums ? 0 : workers * 4 / json_number_at(codec, "decode_gb_per_s"));
    const double wanted = saved > 0 ? saved / ns * 8 : 0;
    assert_true(json_number_at(wins, "workers") == workers);
    if (!(fabs(json_number_at(wins, "gbit_per_s") - wanted) <= 1e-6 * wanted))
        fail_msg("%s, %g workers: %g Gbit/s, not %g", json_text_at(codec, "name"), workers,
                 json_number_at(wins, "gbit_per_s"), wanted);
}

TEST(test_codecs)
{
    static const struct {
        const char *name;
        double ratio;
    } codecs[] = {{"fp8", 0.251},  {"int8", 0.251},       {"onebit", 0.0332}, {"powersgd", 0.0039},
                  {"qsgd", 0.127}, {"threshold", 0.0625}, {"topk", 0.02}};
    struct command command;
    run(&command, 0, "-c x.ini --json comm_test.sizes=8 comm_test.codecs=yes");
    const json_t *list = json_at(command.json, "codecs"), *codec;
    size_t i, n = 0;
    json_array_foreach(list, i, codec)
    {
        if (n == sizeof codecs / sizeof *codecs ||
            strcmp(json_text_at(codec, "name"), codecs[n].name) != 0)
            continue; /* the tests' own */
        assert_true(fabs(json_number_at(codec, "ratio") - codecs[n].ratio) < 0.001);
        assert_int_equal(json_array_size(json_at(codec, "wins_below")), 3);
        for (size_t w = 0; w < 3; w++)
            expect_link(codec, w, 2 << w);
        n++;
    }
    assert_int_equal(n, sizeof codecs / sizeof *codecs);
    run(&command, 0, "-c x.ini comm_test.sizes=8 comm_test.codecs=yes");
    expect_line(command.out, "^codecs on one core, ");
    expect_line(command.out, "^ +int8 +0\\.2510 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +never$");
    run(&command, 0, "-c x.ini comm_test.sizes=8 comm_test.codecs=yes comm.name=ps_cpu");
    expect_line(command.out, "^ +onebit ");
    assert_null(strstr(command.out, "powersgd")); /* not carried */
    run(&command, 0,
        "-c x.ini --json comm_test.sizes=8 comm_test.codecs=yes run.workers=1 comm.name=timed");
    assert_true(json_is_null(json_at(command.json, "codecs")));
}

/* ---- wrong sums ----------------------------------------------------------------------------- */

struct mistake {
    const char *comm, *settings, *words[3];
};

static const struct mistake mistakes[] = {
    {"mutant_shm", "element_wrong comm.element=300", {"element 300 (bucket 4)", ".5 on rank "}},
    {"mutant_replicated", "element_wrong comm.element=300", {"element 300 (bucket 4)", ".5 on"}},
    {"mutant_ps_cpu", "element_wrong comm.element=300", {"element 300 (bucket 4)", ".5 on"}},
    {"mutant_shm", "bucket_left_out comm.mutant_bucket=3", {"element 192 (bucket 3)"}},
    {"mutant_replicated", "bucket_left_out comm.mutant_bucket=3", {"element 192 (bucket 3)"}},
    {"mutant_ps_cpu run.servers=1",
     "bucket_left_out comm.mutant_bucket=3",
     {"element 192 (bucket 3)"}},
    {"mutant_shm", "slices_swapped", {"element 0 (bucket 0)"}},
    {"mutant_replicated", "slices_swapped", {"element 0 (bucket 0)"}},
    {"mutant_ps_cpu", "slices_swapped", {"element 0 (bucket 0)"}},
    {"mutant_ps_cpu",
     "stale_weights comm.mutant_bucket=2",
     {"element 128 (bucket 2)", "on rank 1"}},
    /* All others of this size are right: it is this one that is named. */
    {"mutant_shm",
     "element_wrong comm.until=4 comm.element=5",
     {"exchange 3: element 5 ", "in phase 'check' of step 3: "}},
};

/* From its third exchange on the strategy is wrong: seen in the fourth at the latest, counted, and
 * the sizes that would follow are left out. */
static void test_mistake(void **state)
{
    const struct mistake *mistake = *state;
    struct command command;
    struct traces before;
    char line[400];
    traces_take(&before, ".");
    snprintf(line, sizeof line,
             "-c x.ini --json comm.bucket=256 comm_test.sizes=4KiB,8KiB comm_test.iterations=20 "
             "comm.from=3 comm.name=%s comm.mutation=%s",
             mistake->comm, mistake->settings);
    run(&command, 3, line);
    const char *error = json_text_at(command.json, "error");
    EXPECT_WORDS(line, faults_only_error(line, &command), "rank ", "comm 'mutant_",
                 "4096 bytes, exchange ", "wanted ", "does not compute the sum", error);
    for (size_t i = 0; i < 3 && mistake->words[i]; i++)
        if (!strstr(error, mistake->words[i]))
            fail_msg("%s: '%s' is not in '%s'", line, mistake->words[i], error);
    assert_int_equal(count_points(&command), 1);
    assert_true(expect_number(&command, "points.0.wrong") > 0);
    assert_string_equal(json_text_at(command.json, "status"), "failed");
    traces_expect_none(&before, line, 0.5);
}

/* The mutants do what their names say: without a mistake they are right. */
TEST(test_no_mistake)
{
    struct command command;
    run(&command, 0, "-c x.ini comm.name=mutant_shm comm_test.sizes=4KiB comm_test.iterations=9");
}

/* ---- how it ends ---------------------------------------------------------------------------- */

static const struct lost {
    const char *settings;
    int signal_number;
} losses[] = {
    {"run.workers=3", SIGKILL},
    {"comm_test.barrier=exchange", SIGKILL},
    {"comm.name=ps_cpu run.servers=1", SIGKILL},
    {"run.timeout_s=1", SIGSTOP},
};

/* The last rank is lost `after_us` after all have started: named, once; the first size is kept.
 * False: no exchange had been timed by then. */
static bool lose_rank(const struct lost *lost, useconds_t after_us)
{
    size_t n_ranks =
        strstr(lost->settings, "workers=3") || strstr(lost->settings, "servers") ? 3 : 2;
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[3];
    char settings[200], who[64];
    traces_take(&before, ".");
    snprintf(settings, sizeof settings, "comm_test.sizes=8,64KiB comm_test.iterations=131072 %s",
             lost->settings);
    dpbench_start(&started, NULL, "comm -c x.ini --json %s", settings);
    faults_await_ranks(&started, pids, n_ranks);
    usleep(after_us);
    kill(pids[n_ranks - 1], lost->signal_number);
    double lost_s = now_s();
    command_finish(&started, &command, deadline_s);
    double took_s = now_s() - lost_s, limit_s = most_s + (lost->signal_number == SIGSTOP ? 1 : 0);
    if (command.exit_code != 1 || took_s > limit_s)
        fail_msg("%s: exit %d after %.1f s: %s", settings, command.exit_code, took_s, command.err);
    snprintf(who, sizeof who, "rank %zu (", n_ranks - 1);
    const char *error = faults_only_error(settings, &command);
    EXPECT_WORDS(settings, error, who);
    if (lost->signal_number == SIGKILL)
        EXPECT_WORDS(settings, error, "killed by signal 9");
    faults_expect_failed(settings, &command);
    bool timed = json_number_at(command.json, "points.0.iterations") > 0;
    traces_expect_none(&before, settings, 0.5);
    return timed;
}

/* On a busy machine ranks take longer to begin. */
static void test_rank_lost(void **state)
{
    for (useconds_t after_us = 700000; !lose_rank(*state, after_us); after_us *= 4)
        if (after_us > MOST_AFTER_US)
            fail_msg("no exchange was timed within %u us", after_us);
}

/* Two points of 600 s; the signal comes `after_us` after all ranks have started. False: no exchange
 * had been timed by then. */
static bool interrupt(const char *settings, size_t n_ranks, int signal_number, useconds_t after_us)
{
    struct started started;
    struct command command;
    struct traces before;
    pid_t pids[3];
    char line[200];
    traces_take(&before, ".");
    snprintf(line, sizeof line, "comm_test.sizes=1MiB,2MiB comm_test.seconds=600 %s", settings);
    dpbench_start(&started, NULL, "comm -c x.ini --json %s", line);
    faults_await_ranks(&started, pids, n_ranks);
    usleep(after_us);
    kill(started.pid, signal_number);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 128 + signal_number);
    assert_string_equal(json_text_at(command.json, "status"), "interrupted");
    assert_non_null(strstr(json_text_at(command.json, "error"), "signal"));
    bool timed = json_number_at(command.json, "points.0.iterations") > 0;
    if (timed) {
        assert_int_equal(count_points(&command), 1);
        assert_true(expect_number(&command, "points.0.time_us.p50") > 0);
    }
    traces_expect_none(&before, "interrupted", 0.5);
    return timed;
}

TEST(test_interrupts)
{
    static const struct {
        const char *settings;
        size_t n_ranks;
        int signal_number;
    } rows[] = {{"", 2, SIGINT}, {"comm.name=ps_cpu run.servers=1", 3, SIGTERM}};
    for (size_t i = 0; i < 2; i++)
        for (useconds_t after_us = 400000;
             !interrupt(rows[i].settings, rows[i].n_ranks, rows[i].signal_number, after_us);
             after_us *= 4)
            if (after_us > MOST_AFTER_US)
                fail_msg("no exchange was timed within %u us", after_us);
}

TEST(test_refusals)
{
    static const struct {
        const char *arguments, *words[4];
    } rows[] = {
        {"", {"which experiment?", "usage: dpbench comm -c FILE.ini"}},
        {"-c nowhere.ini", {"nowhere.ini"}},
        {"-c x.ini comm_test.size=8", {"'size'", "did you mean"}},
        {"-c none.ini", {"default: comm 'independent' exchanges nothing"}},
        {"-c x.ini comm.name=independent", {"'independent' exchanges nothing", "comm.name="}},
        {"-c x.ini comm.name=local_sgd", {"command line: comm 'local_sgd' does not sum"}},
        {"-c x.ini comm.name=ps_async run.servers=1", {"command line: comm 'ps_async' does not"}},
        {"-c sweep.ini", {"[sweep]", "measures one communicator"}},
        {"-c x.ini sweep.run.workers=1,2", {"[sweep]", "measures one communicator"}},
        {"-c x.ini run.mode=forward comm_test.sizes=8q", {"comm_test.sizes: '8q' is no size"}},
        {"-c x.ini comm_test.sizes=8,,16", {"'' is no size"}},
        {"-c x.ini comm_test.sizes=0", {"'0' is no size"}},
        {"-c x.ini comm_test.sizes=none", {"nothing to exchange", "model.name"}},
        {"-c x.ini comm_test.min_bytes=2KiB comm_test.max_bytes=1KiB",
         {"comm_test.min_bytes = 2048", "max_bytes = 1024"}},
        {"-c x.ini comm_test.iterations=5 comm_test.seconds=1",
         {"comm_test.iterations is given beside comm_test.seconds (command line)"}},
        {"-c x.ini comm.bucket=1 comm_test.sizes=8MiB", {"comm.bucket = 1", "2097152 buckets"}},
        {"-c x.ini comm.name=replicated comm.gradient=bf16 run.workers=257 comm_test.sizes=8",
         {"comm.gradient = bf16", "257 workers", "take fp32"}},
        {"-c x.ini comm_test.barrier=exchange comm.gradient=bf16 run.workers=17 comm_test.sizes=8",
         {"comm.gradient = bf16", "17 workers", "take fp32"}},
        {"-c x.ini comm_test.sizes=100GB",
         {"needs 381487.7 MiB of memory", "smaller comm_test.max_bytes"}},
        {"-c x.ini run.servers=1", {"comm 'shm' has no servers"}},
        {"-c x.ini --output .", {"--output . is a directory"}},
        {"-c x.ini --jsn", {"unknown option '--jsn'", "usage: dpbench comm"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        run(&command, 2, rows[i].arguments);
        assert_string_equal(command.out, "");
        expect_words(rows[i].arguments, command.err, rows[i].words);
    }
}

/* The other commands know nothing of it. */
TEST(test_mode_is_its_own)
{
    static const char *const commands[] = {"run", "check", "data"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        dpbench_says(deadline_s, 2, WORDS("say `dpbench comm`"),
                     "%s -c x.ini run.mode=comm run.steps=1", commands[i]);
    }
}

int main(void)
{
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));)
        add_case(test_strategy, form, "%s: sums are right", form->label);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        add_case(test_mistake, &mistakes[i], "%s: %s", mistakes[i].comm, mistakes[i].settings);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++)
        add_case(test_rank_lost, &losses[i], "a rank is lost: %s", losses[i].settings);
    return test_main(set_up, sandbox_teardown);
}
