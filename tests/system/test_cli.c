/*
 * test_cli.c - what dpbench says and writes, as a user or a script reads it.
 */
#include <dirent.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/datasets.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

static const double deadline_s = 60.0;

#define RUN "-c base.ini "
/* For runs that last: others have the processor most of the time. */
#define LAZY "run.delay=constant(2ms) "

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    unsetenv("DPBENCH_PLUGIN_PATH");
    sandbox_write("base.ini", "[run]\nresults =\nworkers = 2\nbatch = 2\nsteps = 6\n"
                              "warmup_steps = 2\nsteady_limit_s = 0\n"
                              "[model]\nname = tiny\n"
                              "[data]\nsamples = 64\ntest_samples = 16\n"
                              "[device]\nname = reference\nthreads = 1\n"
                              "[comm]\nname = shm\n");
    return result;
}

/* ---- reading what it said ------------------------------------------------------------------ */

static const char *last_line(const char *text)
{
    const char *line = text;
    for (const char *at = text; *at; at++)
        if (*at == '\n' && at[1])
            line = at + 1;
    return line;
}

static void run(struct command *command, int exit_code, const char *arguments)
{
    dpbench(command, deadline_s, "%s", arguments);
    if (command->exit_code != exit_code)
        fail_msg("dpbench %s: exit %d, not %d%s\n%s", arguments, command->exit_code, exit_code,
                 command->late ? " (late)" : "", command->err);
}

/* Number of files in a directory whose name ends in .json. */
static size_t count_results(const char *directory)
{
    size_t n = 0;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        n += strstr(entry->d_name, ".json") != NULL;
    if (entries)
        closedir(entries);
    return n;
}

/* ---- commands that tell -------------------------------------------------------------------- */

/* The output of each command has these words; nothing goes to stderr. */
TEST(test_answers)
{
    static const struct {
        const char *arguments, *words[12];
    } rows[] = {
        {"--version", {"dpbench "}},
        {"help",
         {"dpbench [run] -c FILE.ini", "dpbench check", "dpbench rerun RESULT.json",
          "dpbench plugins", "dpbench --version", "  optimizer ", "  checkpoint ", "  sweep ",
          "models ", "devices ", "comm  "}},
        {"--help", {"dpbench [run] -c FILE.ini"}},
        {"help run",
         {"run.workers = integer, 1 to 1024; default 1", "run.global_batch", "run.seconds",
          "run.epochs", "run.precision = fp32|bf16|fp64|tf32|fp16; default fp32", "run.timeout_s",
          "run.require_steady", "run.results"}},
        {"help model", {"model.name", "model.nclass", "model.image"}},
        {"help data",
         {"command data: ", "data.name", "data.shuffle", "data.threads", "synthetic", "idx"}},
        {"help device", {"device.name", "device.threads", "reference"}},
        {"help comm", {"comm.name", "comm.bucket", "default 4 MiB", "comm.gradient", "shm"}},
        {"help optimizer", {"optimizer.momentum", "optimizer.schedule = constant|step|cosine"}},
        {"help eval", {"eval.every", "eval.final"}},
        {"help checkpoint", {"checkpoint.load", "checkpoint.save"}},
        {"help sweep", {"sweep.repeats"}},
        {"help models", {"model.name may be", "lenet", "resnet50", "tiny"}},
        {"help devices", {"device.name may be", "reference"}},
        {"help synthetic",
         {"data synthetic: ", "data.samples = integer", "data.type = uint8|fp32"}},
        {"help ps_cpu", {"comm ps_cpu: "}},
        {"help comm.bucket", {"comm.bucket = size (bytes)"}},
        {"help data.path", {"data.path", "Directory with"}},
        {"help rerun", {"command rerun: ", "RESULT.json ", "--json ", "--output FILE "}},
        {"check --help", {"command check: ", "-c FILE.ini ", "SECTION.KEY=VALUE "}},
        {"plugins",
         {"kind ", "summary", "comm     independent", "comm     ps_cpu", "comm     replicated",
          "comm     shm", "data     idx", "data     synthetic", "device   reference",
          "model    lenet"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        run(&command, 0, rows[i].arguments);
        expect_words(rows[i].arguments, command.out, rows[i].words);
        assert_string_equal(command.err, "");
        command_free(&command);
    }
}

/* Each experiment that comes with dpbench has a question, and is checked by its name. */
TEST(test_list)
{
    struct command all, some, command;
    uint32_t n_names = 0, n_questions = 0, n_said = 0;
    char *rest, *last = NULL;
    run(&all, 0, "list");
    run(&some, 0, "list CUDA nccl");
    expect_words("list CUDA nccl", some.out, (const char *const[]){"  resnet50_nccl\n", NULL});
    assert_null(strstr(some.out, "  lenet_shm\n"));
    assert_non_null(strstr(all.out, "  lenet_shm\n"));
    for (char *line = strtok_r(all.out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const bool indented = strncmp(line, "      ", 6) == 0;
        if (!indented && last)
            n_questions += last[strlen(last) - 1] == '?';
        n_names += !indented && line[0] == ' ';
        if (line[0] != ' ')
            assert_int_equal(sscanf(line, "%u experiments in /", &n_said), 1);
        last = indented ? line : NULL;
    }
    assert_true(n_names > 0);
    assert_int_equal(n_names, n_said);
    assert_int_equal(n_names, n_questions);
    run(&command, 0, "check lenet_shm data.name=synthetic device.name=reference");
    expect_words("check lenet_shm", command.out, (const char *const[]){"lenet_shm: ", NULL});
    command_free(&command);
    command_free(&some);
    command_free(&all);
}

/* clang-format off */
/* Input and counts of docs/models.md at the default number of classes, the field's batches. */
static const struct {
    const char *name, *input, *parameters, *gmac, *batch;
} models[] = {
    {"alexnet", "3x227x227", "61838248", "0.839", "512"},
    {"alexnet_cifar10", "3x32x32", "1756426", "0.033", "128"},
    {"cifar_cnn", "3x32x32", "1250858", "0.021", "128"},
    {"densenet100_k12", "3x32x32", "6979642", "1.770", "64"},
    {"densenet100_k24", "3x32x32", "27249082", "6.889", "64"},
    {"densenet40_k12", "3x32x32", "1019722", "0.265", "64"},
    {"googlenet", "3x224x224", "6998552", "1.583", "32"},
    {"inception3", "3x299x299", "23817352", "5.713", "32"},
    {"lenet", "1x28x28", "1663370", "0.012", "32"},
    {"mlp", "1x1x1000", "20922378", "0.021", "128"},
    {"mobilenet_v1", "3x224x224", "4231976", "0.569", "64"},
    {"overfeat", "3x231x231", "145920872", "2.801", "32"},
    {"resnet101", "3x224x224", "44549160", "7.801", "32"},
    {"resnet110", "3x32x32", "1727962", "0.253", "128"},
    {"resnet152", "3x224x224", "60192808", "11.514", "32"},
    {"resnet20", "3x32x32", "269722", "0.041", "128"},
    {"resnet32", "3x32x32", "464154", "0.069", "128"},
    {"resnet44", "3x32x32", "658586", "0.097", "128"},
    {"resnet50", "3x224x224", "25557032", "4.089", "64"},
    {"resnet56", "3x32x32", "853018", "0.125", "128"},
    {"resnext50_32x4d", "3x224x224", "25028904", "4.230", "32"},
    {"vgg11", "3x224x224", "132863336", "7.609", "64"},
    {"vgg16", "3x224x224", "138357544", "15.470", "64"},
    {"vgg16_cifar", "3x32x32", "15038116", "0.314", "128"},
    {"vgg19", "3x224x224", "143667240", "19.632", "64"},
};
/* clang-format on */

/* Every model has a row; its memory is what `check` says of it. */
TEST(test_help_models)
{
    struct command help, check;
    sandbox_write("defaults.ini", "[run]\nsteps = 1\n");
    run(&help, 0, "help models");
    assert_string_equal(help.err, "");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char row[256], arguments[128], device[64] = "";
        double mib = 0;
        snprintf(row, sizeof row, "^  %s +%s +%s +%s +%s +[0-9]+\\.[0-9] ", models[i].name,
                 models[i].input, models[i].parameters, models[i].gmac, models[i].batch);
        if (!has_line(help.out, row))
            fail_msg("'%s' is not in '%s'", row, help.out);
        if (strcmp(models[i].name, "lenet") != 0 && strcmp(models[i].name, "resnet20") != 0)
            continue;
        snprintf(row, sizeof row, "\n  %s ", models[i].name);
        assert_int_equal(sscanf(strstr(help.out, row), "%*s %*s %*s %*s %*s %lf", &mib), 1);
        assert_int_equal(sscanf(strstr(help.out, "on device '"), "on device '%63[^']", device), 1);
        snprintf(arguments, sizeof arguments, "check -c defaults.ini model.name=%s device.name=%s",
                 models[i].name, device);
        run(&check, 0, arguments);
        snprintf(row, sizeof row, "memory: %.1f MiB a worker,", mib);
        expect_part(check.out, row);
        command_free(&check);
    }
    command_free(&help);
}

TEST(test_help_unknown)
{
    static const struct {
        const char *word, *near;
    } rows[] = {{"shmm", "'shm'"},
                {"optimiser", "'optimizer'"},
                {"comm.bukcet", "'comm.bucket'"},
                {"renun", "'rerun'"},
                {"reference2", "'reference'"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        char arguments[64];
        snprintf(arguments, sizeof arguments, "help %s", rows[i].word);
        run(&command, 2, arguments);
        assert_string_equal(command.out, "");
        expect_words("dpbench", command.err,
                     (const char *const[]){rows[i].word, "did you mean ", rows[i].near, NULL});
        command_free(&command);
    }
}

/* Words in the wrong place: the message has the right line. */
TEST(test_words_in_the_wrong_place)
{
    static const struct {
        const char *arguments, *words[3];
    } rows[] = {
        {"base.ini", {"did you mean '-c base.ini'?"}},
        {"check base.ini", {"did you mean '-c base.ini'?"}},
        {"check nothing", {"no experiment 'nothing' in /", "`dpbench list`"}},
        {"check ../conf/tiny", {"'../conf/tiny' is no setting"}},
        {"check lenet_shm lenet_shm", {"'lenet_shm' is no setting"}},
        {"list nothing-like-it", {"no experiment mentions nothing-like-it"}},
        {"x.json", {"did you mean 'rerun x.json'?"}},
        {RUN "workers=1", {"command line: 'workers=1'", "did you mean 'run.workers=1'?"}},
        {RUN "bucket=1kB", {"did you mean 'comm.bucket=1kB'?"}},
        {RUN "nothing=1", {"'nothing=1' is not SECTION.KEY=VALUE\n"}},
        {RUN "comm.name=foo", {"unknown comm 'foo'; `dpbench plugins` lists those there are"}},
        {RUN "comm.name=shn", {"unknown comm 'shn'; did you mean 'shm'?"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        run(&command, 2, rows[i].arguments);
        assert_string_equal(command.out, "");
        expect_words(rows[i].arguments, command.err, rows[i].words);
        command_free(&command);
    }
}

/* A file put in its place by a rename would be the end of a device. */
TEST(test_no_device_is_replaced)
{
    static const struct {
        const char *arguments, *words[3];
    } rows[] = {
        {RUN "--output pipe", {"--output pipe is no regular file", "--json"}},
        {"comm " RUN "--output pipe", {"--output pipe is no regular file"}},
        {RUN "checkpoint.save=pipe", {"checkpoint.save = pipe", "no regular file"}},
        {"check " RUN "checkpoint.save=pipe", {"checkpoint.save = pipe", "no regular file"}},
    };
    struct stat info;
    assert_int_equal(mkfifo("pipe", 0600), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        run(&command, 2, rows[i].arguments);
        expect_words(rows[i].arguments, command.err, rows[i].words);
        command_free(&command);
        assert_true(stat("pipe", &info) == 0 && S_ISFIFO(info.st_mode));
    }
    unlink("pipe");
}

/* One that is there but broken is not hidden. */
TEST(test_broken_plugin_is_listed)
{
    struct command text, json;
    const json_t *row;
    size_t i, n = 0;
    sandbox_write("comm_broken.so", "this is no shared object at all\n");
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
    run(&text, 0, "plugins");
    run(&json, 0, "plugins --json");
    expect_words(
        "dpbench", text.out,
        (const char *const[]){"there, but not usable:", "comm_broken.so\n", "too short", NULL});
    assert_string_equal(json_text_at(json.json, "schema"), "dpbench.plugins/1");
    json_array_foreach(json_at(json.json, "plugins"), i, row)
    {
        bool broken = strstr(json_text_at(row, "path"), "comm_broken.so") != NULL;
        assert_true(json_is_true(json_at(row, "usable")) != broken);
        if (broken)
            expect_part(json_text_at(row, "reason"), "too short");
        n += broken;
        if (strcmp(json_text_at(row, "name"), "ps_gpu") == 0) {
            assert_string_equal(json_text_at(row, "runtime"), "any");
            assert_string_equal(json_text_at(row, "hooks.0"), "needs");
            n += 10;
        }
    }
    assert_int_equal(n, 11);
    command_free(&text);
    command_free(&json);
    unsetenv("DPBENCH_PLUGIN_PATH");
    unlink("comm_broken.so");
}

TEST(test_check_runs_nothing)
{
    struct command command;
    struct traces before;
    traces_take(&before, ".");
    run(&command, 0, "check " RUN "run.results=res");
    expect_words("dpbench", command.out,
                 (const char *const[]){"tiny on synthetic, reference, shm; 2 workers",
                                       "batch 2 a worker, 4 in all", "1690 parameters",
                                       "16 steps an epoch", "memory: ", "MiB a worker", NULL});
    assert_null(strstr(command.out, "SamplesPerSec"));
    command_free(&command);
    /* Every cell, also behind one that is refused. */
    run(&command, 2, "check " RUN "sweep.run.precision=fp32,bf16,fp64");
    expect_words("dpbench", command.out,
                 (const char *const[]){
                     "run.precision=fp32: ", "run.precision=bf16: refused: ",
                     "run.precision=fp64: ", "plan: 2 cells, 3 repeats: 6 runs; 36 steps", NULL});
    int n_lines = 0;
    for (const char *c = command.out; *c != '\0'; c++)
        n_lines += *c == '\n';
    assert_int_equal(n_lines, 4); /* one a cell, and the plan */
    command_free(&command);
    /* What all cells have is said once. */
    run(&command, 2, "check " RUN "run.precision=bf16 sweep.run.batch=2,4,8");
    expect_part(command.out, "... and 2 more, for the same reason\n");
    assert_null(strstr(strstr(command.err, "error: ") + 1, "error: "));
    command_free(&command);
    traces_expect_none(&before, "check", 0.5);
    traces_free(&before);
}

/* ---- a run --------------------------------------------------------------------------------- */

TEST(test_table_for_people)
{
    struct command command;
    run(&command, 0, RUN "eval.final=yes");
    expect_words("dpbench", command.out,
                 (const char *const[]){"strategy", "consistency: synchronous", "2 workers",
                                       "data_wait", "comm_exposed", "verification  pattern pass",
                                       "accuracy", NULL});
    if (!has_line(last_line(command.out), "^SamplesPerSec: [0-9]+\\.[0-9]+ \\+- [0-9]+\\.[0-9]+ "
                                          "\\(jitter [0-9]+\\.[0-9]+\\)$"))
        fail_msg("the last line is '%s'", last_line(command.out));
    command_free(&command);
}

/* clang-format off */
/* Names that scripts count on, and the type of each: n(umber), s(tring), b(ool), a(rray), o(bject),
 * 0 (null). */
static const struct {
    const char *path;
    char type;
} result_names[] = {
    {"schema", 's'}, {"status", 's'}, {"error", '0'}, {"warnings", 'a'},
    {"config.run.workers.value", 'n'}, {"config.run.workers.origin", 's'},
    {"config.comm.bucket.value", 'n'}, {"config.run.prove.value", 'b'},
    {"world.workers", 'n'}, {"world.servers", 'n'}, {"world.learners", 'n'},
    {"world.launcher", 's'}, {"world.oversubscribed", 'b'},
    {"model.name", 's'}, {"model.parameters", 'n'}, {"model.macs_per_sample", 'n'},
    {"strategy.name", 's'}, {"strategy.consistency", 's'},
    {"batch.per_worker", 'n'}, {"batch.global", 'n'},
    {"timing.warmup_steps", 'n'}, {"timing.steps", 'n'}, {"timing.steady", 'b'},
    {"timing.step_ns", 'a'}, {"timing.step_ns.5", 'n'},
    {"timing.samples_per_s.mean", 'n'}, {"timing.samples_per_s.median", 'n'},
    {"timing.samples_per_s.p10", 'n'}, {"timing.samples_per_s.p90", 'n'},
    {"timing.samples_per_s.ci95.0", 'n'}, {"timing.samples_per_s.ci95.1", 'n'},
    {"timing.samples_per_s.jitter", 'n'}, {"timing.samples_per_s.uncertainty", 'n'},
    {"timing.breakdown_ns.data_wait", 'n'}, {"timing.breakdown_ns.forward", 'n'},
    {"timing.breakdown_ns.delay", 'n'},
    {"timing.breakdown_ns.backward", 'n'}, {"timing.breakdown_ns.optimizer", 'n'},
    {"timing.breakdown_ns.comm_exposed", 'n'}, {"timing.breakdown_ns.comm_hidden", 'n'},
    {"timing.breakdown_ns.comm_wait_peer", 'n'},
    {"comm.bytes_per_step", 'n'}, {"comm.codec", '0'}, {"loss.7", 'n'},
    {"eval.0.step", 'n'}, {"eval.0.accuracy", 'n'}, {"eval.0.loss", 'n'},
    {"verification.pattern", 's'}, {"verification.exchange", 's'}, {"verification.replicas", 's'},
    {"machine", 'o'}, {"machine.usable_cores", 'n'}, {"machine.instructions", 'a'},
    {"versions", 'o'}, {"versions.dpbench", 's'}, {"versions.build.flags", 's'},
    {"versions.build.crc32", 's'}, {"versions.plugins.comm.file.path", 's'},
    {"versions.plugins.comm.file.crc32", 's'}, {"versions.zlib.loaded", 's'},
    {"invocation.command.1", 's'}, {"invocation.directory", 's'}, {"invocation.environment", 'o'},
    {"inputs", 'o'},
    {"ranks.0.pid", 'n'}, {"ranks.1.breakdown_ns", 'o'},
};
/* clang-format on */

static char type_of(const json_t *value)
{
    return !value                   ? '-'
           : json_is_number(value)  ? 'n'
           : json_is_string(value)  ? 's'
           : json_is_boolean(value) ? 'b'
           : json_is_array(value)   ? 'a'
           : json_is_object(value)  ? 'o'
                                    : '0';
}

TEST(test_json_is_one_document)
{
    struct command command;
    run(&command, 0, RUN "eval.final=yes run.prove=yes --json");
    assert_non_null(command.json); /* of the whole of stdout: nothing else is there */
    for (size_t i = 0; i < sizeof result_names / sizeof *result_names; i++) {
        char type = type_of(json_at(command.json, result_names[i].path));
        if (type != result_names[i].type)
            fail_msg("%s is of type '%c', not '%c'", result_names[i].path, type,
                     result_names[i].type);
    }
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.result/1");
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_string_equal(json_text_at(command.json, "verification.exchange"), "pass");
    assert_int_equal(json_array_size(json_at(command.json, "loss")), 8);
    assert_int_equal(json_number_at(command.json, "timing.steps"), 6);
    assert_string_equal(command.err, ""); /* no results directory: nothing to say */
    command_free(&command);
}

TEST(test_origins)
{
    static const struct {
        const char *path, *origin;
    } rows[] = {{"config.run.workers.origin", "base.ini:3"},
                {"config.comm.name.origin", "base.ini:17"},
                {"config.run.batch.origin", "command line"},
                {"config.run.seconds.origin", "command line"},
                {"config.data.samples.origin", "base.ini:11"},
                {"config.data.distinct.origin", "default"},
                {"config.optimizer.momentum.origin", "default"}};
    struct command command;
    /* run.seconds takes the place of the file's run.steps */
    run(&command, 0, RUN "run.batch=4 comm.bucket=1kB run.seconds=50ms --json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(json_text_at(command.json, rows[i].path), rows[i].origin);
    assert_true(json_is_null(json_at(command.json, "config.run.steps.value")));
    assert_true(json_number_at(command.json, "config.run.seconds.value") == 0.05);
    assert_int_equal(json_number_at(command.json, "config.comm.bucket.value"), 1000);
    assert_int_equal(json_number_at(command.json, "batch.global"), 8);
    command_free(&command);
}

/* More evaluations than a result has room for, in a run by time: it keeps those that it has. */
TEST(test_evaluations_without_room)
{
    struct command command;
    run(&command, 1,
        RUN "run.workers=1 run.seconds=50 eval.every=1 data.test_samples=1 --output many.json");
    expect_part(command.err, "more than 4096 evaluations in a run; make eval.every larger");
    json_t *file = json_load_file("many.json", 0, NULL);
    assert_string_equal(json_text_at(file, "status"), "failed");
    assert_int_equal(json_array_size(json_at(file, "eval")), 4096);
    json_decref(file);
    command_free(&command);
}

/* Each run has a file of its own, also within a second; stderr says which. */
TEST(test_results_are_kept)
{
    enum { N = 3 };
    struct command command;
    for (size_t i = 0; i < N; i++) {
        run(&command, 0, RUN "run.results=kept/deep");
        if (!has_line(command.err, "^result: kept/deep/run-shm-w2-[0-9TZ]+(-[0-9]+)?\\.json$"))
            fail_msg("'%s'", command.err);
        assert_int_equal(count_results("kept/deep"), i + 1);
        command_free(&command);
    }
    run(&command, 0, RUN "--output kept/named.json --json");
    json_t *file = json_load_file("kept/named.json", 0, NULL);
    assert_true(json_equal(file, command.json));
    assert_int_equal(count_results("kept/deep"), N);
    json_decref(file);
    command_free(&command);
}

/* The result alone gives the same run: options, weights, losses, to the last bit. */
TEST(test_rerun)
{
    struct command first, second, third;
    run(&first, 0,
        RUN "run.precision=fp64 comm.name=ps_cpu comm.bucket=512 optimizer.learning_rate=0.1 "
            "run.seed=7 --json --output first.json");
    run(&second, 0, "rerun first.json --json");
    run(&third, 0, "rerun first.json run.seed=8 --json");
    assert_true(json_equal(json_at(first.json, "loss"), json_at(second.json, "loss")));
    assert_false(json_equal(json_at(first.json, "loss"), json_at(third.json, "loss")));
    assert_string_equal(json_text_at(first.json, "ranks.0.checksum"),
                        json_text_at(second.json, "ranks.0.checksum"));
    const char *section, *key;
    json_t *rows, *entry;
    json_object_foreach(json_at(first.json, "config"), section, rows)
    {
        json_object_foreach(rows, key, entry)
        {
            const json_t *again =
                json_object_get(json_object_get(json_at(second.json, "config"), section), key);
            if (!json_equal(json_at(entry, "value"), json_at(again, "value")))
                fail_msg("%s.%s is another one in the rerun", section, key);
        }
    }
    command_free(&first);
    command_free(&second);
    command_free(&third);
}

/* Runs dpbench in another directory, as `cd DIRECTORY; dpbench ...` does. */
static void run_in(const char *directory, struct command *command, int exit_code,
                   const char *arguments)
{
    char here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(directory), 0);
    run(command, exit_code, arguments);
    assert_int_equal(chdir(here), 0);
}

/* Files that a relative path names are found from anywhere, and those that changed are named. */
TEST(test_rerun_elsewhere)
{
    struct command first, again, changed;
    sandbox_write("idx.ini", "[run]\nresults =\nbatch = 2\nsteps = 4\nwarmup_steps = 0\n"
                             "steady_limit_s = 0\ndelay = trace(delays)\n[model]\nname = tiny\n"
                             "[data]\nname = idx\npath = small\n"
                             "[device]\nname = reference\nthreads = 1\n");
    dataset_idx("small", 32, 8);
    sandbox_write("delays", "0.1\n");
    assert_int_equal(mkdir("elsewhere", 0777), 0);
    run(&first, 0, "-c idx.ini run.seed=3 --json --output idx.json");
    assert_int_equal(
        json_number_at(json_object_get(json_at(first.json, "inputs"), "data.path"), "files"), 4);
    run_in("elsewhere", &again, 0, "rerun ../idx.json --json");
    assert_true(json_equal(json_at(first.json, "loss"), json_at(again.json, "loss")));
    expect_part(again.err, "data.path = small is taken from ");
    expect_part(again.err, "run.delay = trace(delays) is taken from ");
    assert_null(strstr(again.err, "differs"));
    assert_null(strstr(again.err, "warning"));
    write_file("small/extra", "x", 1);
    sandbox_write("delays", "0.2\n");
    run_in("elsewhere", &changed, 0, "rerun ../idx.json --json --output new.json");
    expect_words("dpbench", changed.err,
                 (const char *const[]){"inputs.data.path.files was 4 in the result, here it is 5",
                                       "inputs.data.path.fingerprint was ",
                                       "inputs.run.delay.fingerprint was ", NULL});
    assert_int_equal(access("elsewhere/new.json", R_OK), 0);
    command_free(&first);
    command_free(&again);
    command_free(&changed);
}

/* What a result says of its machine, build and environment is compared before it is run again. */
TEST(test_rerun_names_what_differs)
{
    struct command command;
    run(&command, 0, RUN "--json --output here.json");
    json_t *document = json_deep_copy(command.json);
    command_free(&command);
    json_object_set_new(json_at(document, "machine"), "processor", json_string("Z80"));
    json_object_set_new(json_at(document, "machine"), "microcode", json_null());
    json_object_set_new(json_at(document, "versions.build"), "crc32", json_string("0x0"));
    json_object_set_new(json_at(document, "versions.plugins.comm"), "version", json_string("0.0"));
    json_object_set_new(json_at(document, "invocation.environment"), "OMP_WAIT_POLICY",
                        json_string("active"));
    assert_int_equal(json_dump_file(document, "other.json", 0), 0);
    json_decref(document);
    setenv("MALLOC_ARENA_MAX", "2", 1);
    run(&command, 0, "rerun other.json --json");
    unsetenv("MALLOC_ARENA_MAX");
    expect_words("dpbench", command.err,
                 (const char *const[]){"machine.processor was \"Z80\" in the result, here it is ",
                                       "versions.build.crc32 was \"0x0\"",
                                       "versions.plugins.comm.version was \"0.0\"",
                                       "environment.OMP_WAIT_POLICY was \"active\"", "missing",
                                       "environment.MALLOC_ARENA_MAX is \"2\" here and was not set",
                                       NULL});
    assert_true(json_array_size(json_at(command.json, "warnings")) >= 5); /* and they are kept */
    command_free(&command);
}

/* A plugin that only DPBENCH_PLUGIN_PATH led to: without it the rerun says what it was. */
TEST(test_rerun_without_the_plugin_path)
{
    struct command command;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tests/plugins", build_directory());
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    run(&command, 0, RUN "comm.name=fault --output fault.json");
    command_free(&command);
    run(&command, 0, "rerun fault.json --json");
    command_free(&command);
    unsetenv("DPBENCH_PLUGIN_PATH");
    run(&command, 2, "rerun fault.json");
    expect_words("dpbench", command.err,
                 (const char *const[]){"environment.DPBENCH_PLUGIN_PATH was ",
                                       "unknown comm 'fault'", NULL});
    command_free(&command);
}

/* The result of a run with this setting in it, as somebody could have written it. */
static void write_result(const char *path, const char *section, const char *key, const char *value)
{
    json_t *document = json_load_file("first.json", 0, NULL), *config;
    assert_non_null(document);
    assert_non_null(config = json_object_get(document, "config"));
    json_t *rows = json_object_get(config, section);
    if (rows == NULL)
        json_object_set_new(config, section, rows = json_object());
    json_object_set_new(rows, key,
                        json_pack("{s:s, s:s}", "value", value, "origin", "command line"));
    assert_int_equal(json_dump_file(document, path, 0), 0);
    json_decref(document);
}

static void use_test_plugins(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tests/plugins", build_directory());
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
}

/* A result that somebody sent writes nowhere but beside itself and below the working directory. */
TEST(test_rerun_writes_here_only)
{
    static const struct {
        const char *section, *key, *value;
    } outside[] = {{"run", "results", "../../above/new"},
                   {"run", "results", "/nowhere/to/be/made"},
                   {"run", "results", "made/../../../above"},
                   {"run", "results", "away"},
                   {"run", "results", "dangling"},
                   {"checkpoint", "save", "../../above.safetensors"},
                   {"sweep", "run.results", "../../above, results"},
                   {"data", "shelf", "../../read"}, /* an input: see below */
                   {"device", "trace", "../../trace"}};
    struct command command;
    use_test_plugins();
    run(&command, 0, RUN "data.name=timed device.name=timed --json --output first.json");
    command_free(&command);
    mkdir("sent", 0777);
    mkdir("sent/work", 0777);
    assert_int_equal(symlink("/tmp", "sent/work/away"), 0);
    assert_int_equal(symlink("/nowhere/at/all", "sent/work/dangling"), 0);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        write_result("sent/result.json", outside[i].section, outside[i].key, outside[i].value);
        bool reads = strcmp(outside[i].key, "shelf") == 0;
        run_in("sent/work", &command, reads ? 0 : 2, "rerun ../result.json");
        if (!reads)
            expect_part(command.err,
                        "is neither beside the result nor below the working directory");
        assert_int_not_equal(access("above", F_OK), 0);
        assert_int_not_equal(access("above.safetensors", F_OK), 0);
        command_free(&command);
    }
    write_result("sent/result.json", "run", "results", "../../above/new");
    run_in("sent/work", &command, 0, "rerun ../result.json run.results=../mine");
    expect_words("what it says first", command.err,
                 (const char *const[]){"../result.json runs: tiny on timed, timed, shm; 2 "
                                       "workers, 0 servers",
                                       "  writes its result into ../mine", NULL});
    command_free(&command);
    run_in("sent/work", &command, 0, "rerun ../result.json --trust");
    assert_int_equal(access("above/new", F_OK), 0);
    command_free(&command);
    unsetenv("DPBENCH_PLUGIN_PATH");
}

/* The checkpoint that the first run left stays as it is. */
TEST(test_rerun_replaces_no_checkpoint)
{
    static const char *const saves[] = {"net.safetensors", "other.safetensors"};
    struct command command;
    use_test_plugins();
    sandbox_write("net.safetensors", "precious");
    sandbox_write("other-step12.safetensors", "precious");
    run(&command, 0, RUN "data.name=timed device.name=timed --json --output first.json");
    command_free(&command);
    for (size_t i = 0; i < 2; i++) {
        write_result("saves.json", "checkpoint", "save", saves[i]);
        run(&command, 2, "rerun saves.json");
        expect_part(command.err, "a rerun replaces no file");
        command_free(&command);
        run(&command, 2, "rerun saves.json --trust");
        command_free(&command);
    }
    run(&command, 0, "rerun saves.json checkpoint.save=third.safetensors");
    assert_int_equal(access("third.safetensors", R_OK), 0);
    command_free(&command);
    unsetenv("DPBENCH_PLUGIN_PATH");
}

/* No byte of a result reaches the terminal but as text. */
TEST(test_hostile_text)
{
    static const char hostile[] = "red\x1b[31m\nforged: line\xc2\x9b";
    struct command command;
    run(&command, 0, RUN "--json --output first.json");
    json_t *document = json_deep_copy(command.json);
    command_free(&command);
    json_object_set_new(json_at(document, "strategy"), "name", json_string(hostile));
    json_object_set_new(json_at(document, "model"), "name", json_string(hostile));
    json_array_append_new(json_object_get(document, "warnings"),
                          json_pack("{s:s, s:s}", "code", hostile, "text", hostile));
    json_object_set_new(json_at(document, "machine"), hostile, json_string(hostile));
    assert_int_equal(json_dump_file(document, "hostile.json", 0), 0);
    json_decref(document);
    static const char *const lines[] = {"report hostile.json", "compare first.json hostile.json",
                                        "rerun hostile.json run.results=", "check -c hostile.ini",
                                        "-c base.ini data.name=idx data.path=./\x1b[31m"};
    sandbox_write("hostile.ini", "[run]\nsteps = 2\n[model]\nname = \x1b[31mred\n");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        dpbench(&command, deadline_s, "%s", lines[i]);
        if (strpbrk(command.out, "\x1b") || strpbrk(command.err, "\x1b") ||
            strstr(command.out, "\nforged: line") || strstr(command.err, "\nforged: line"))
            fail_msg("%s: %s%s", lines[i], command.out, command.err);
        command_free(&command);
    }
    run(&command, 0, "report hostile.json");
    expect_part(command.out, "red\\x1b[31m\\x0aforged: line\\x9b");
    command_free(&command);
}

TEST(test_rerun_refuses)
{
    struct command command;
    sandbox_write("future.json", "{\"schema\": \"dpbench.result/9\", \"config\": {}}");
    run(&command, 2, "rerun future.json");
    expect_part(command.err, "schema is dpbench.result/9, wanted dpbench.result/1");
    command_free(&command);
    run(&command, 2, "rerun base.ini");
    command_free(&command);
}

/* What went well is taken as it is, the rest is run: as if nothing had come between. */
TEST(test_resume)
{
    struct command first, again;
    run(&first, 0,
        RUN "eval.final=yes sweep.comm.name=shm,replicated sweep.repeats=2 sweep.accuracy=4 "
            "sweep.retry_disturbed=0 "
            "run.seed=5 --json --output whole.json");
    json_t *part = json_deep_copy(first.json), *runs = json_at(part, "runs");
    assert_int_equal(json_array_size(runs), 6); /* two repeats of two cells, two for accuracy */
    json_object_set_new(part, "status", json_string("interrupted"));
    json_object_set_new(json_array_get(runs, 1), "status", json_string("failed"));
    json_array_remove(runs, 5);
    json_array_remove(runs, 3);
    assert_int_equal(json_dump_file(part, "part.json", 0), 0);

    run(&again, 0, "rerun part.json --resume --json --output resumed.json");
    expect_words(
        "rerun --resume", again.err,
        (const char *const[]){"3 of 6 runs are there, from part.json", "[1/3] ", "[3/3] ", NULL});
    assert_string_equal(json_text_at(again.json, "status"), "ok");
    assert_int_equal(json_array_size(json_at(again.json, "runs")), 6);
    for (int i = 0; i < 3; i++) { /* those with their own times */
        static const int kept[] = {0, 2, 4};
        char of_first[64], of_again[64];
        snprintf(of_first, sizeof of_first, "runs.%d.timing", kept[i]);
        snprintf(of_again, sizeof of_again, "runs.%d.timing", i);
        assert_true(json_equal(json_at(first.json, of_first), json_at(again.json, of_again)));
    }
    bool disturbed = false; /* such a run is left out beside a clean one */
    for (int i = 0; i < 6; i++) {
        char path[32];
        snprintf(path, sizeof path, "runs.%d.load.disturbed", i);
        disturbed |= json_is_true(json_at(again.json, path));
    }
    for (int i = 0; i < 2; i++) {
        char path[32];
        snprintf(path, sizeof path, "rows.%d.runs", i);
        assert_true(json_number_at(again.json, path) == 2 || disturbed);
        snprintf(path, sizeof path, "rows.%d.loss", i);
        assert_true(json_equal(json_at(first.json, path), json_at(again.json, path)));
        snprintf(path, sizeof path, "rows.%d.accuracy", i);
        assert_true(json_equal(json_at(first.json, path), json_at(again.json, path)));
    }
    command_free(&again);
    run(&again, 0, "rerun resumed.json --resume --json");
    expect_part(again.err, "6 of 6 runs are there");
    assert_null(strstr(again.err, "[1/"));
    command_free(&again);
    run(&again, 2, "rerun whole.json --resume run.seed=1");
    expect_part(again.err, "--resume goes on with the settings of whole.json");
    command_free(&again);
    run(&again, 0, RUN "--output single.json");
    command_free(&again);
    run(&again, 2, "rerun single.json --resume");
    expect_part(again.err, "single.json is one run");
    command_free(&again);
    json_decref(part);
    command_free(&first);
}

/* ---- results that are there ---------------------------------------------------------------- */

/* The table of a file is the one that its run printed. */
TEST(test_report)
{
    struct command run_, report;
    run(&run_, 0, RUN "--output kept.json");
    run(&report, 0, "report kept.json");
    if (strncmp(report.out, "kept.json\n", 10) != 0)
        fail_msg("'%s'", report.out);
    assert_string_equal(report.out + 10, run_.out);
    json_t *document = json_load_file("kept.json", 0, NULL);
    double most = 0;
    for (size_t i = 0; i < 2; i++)
        most = fmax(most, json_number_at(json_array_get(json_at(document, "ranks"), i),
                                         "peak_memory_bytes"));
    char memory[64];
    snprintf(memory, sizeof memory, "memory        at most %.1f MB in a process", most / 1e6);
    assert_true(most > 1e6);
    expect_part(report.out, memory);
    json_decref(document);
    command_free(&report);
    command_free(&run_);
    run(&run_, 0, RUN "sweep.comm.name=shm,replicated sweep.repeats=1 --output sweep-kept.json");
    run(&report, 0, "report --each kept.json sweep-kept.json");
    expect_part(report.out, run_.out);
    command_free(&report);
    command_free(&run_);
    run(&report, 2, "report base.ini");
    expect_part(report.err, "is it a result of dpbench?");
    command_free(&report);
    run(&report, 2, "report");
    expect_part(report.err, "which results?");
    command_free(&report);
}

TEST(test_compare)
{
    static const struct {
        const char *arguments, *words[3];
        int exit_code;
    } rows[] = {
        {"compare", {"which two results?"}, 2},
        {"compare a.json", {"which two results?"}, 2},
        {"compare a.json b.json a.json", {"'a.json' is a third"}, 2},
        {"compare a.json b.json --threshold", {"--threshold needs a number of percent"}, 2},
        {"compare a.json b.json --threshold -1", {"--threshold needs a number of percent"}, 2},
        {"compare a.json b.json --threshold x%", {"--threshold needs a number of percent"}, 2},
        {"compare a.json b.json --jsn", {"unknown option '--jsn'"}, 2},
        {"compare a.json base.ini", {"base.ini: ", "is it a result"}, 2},
        {"compare a.json none.json", {"none.json"}, 2},
        {"compare a.json a.json --threshold 0", {""}, 0},
        {"compare a.json slow.json --threshold 5%", {"slow.json is slower than a.json"}, 4},
        {"compare slow.json a.json --threshold 5", {""}, 0},
        {"compare a.json slow.json", {""}, 0},
        {"compare short.json slow.json --threshold 5", {""}, 0},
        {"compare a.json slow.json --require-same machine,config", {""}, 0},
        {"compare a.json b.json --require-same machine,config",
         {"A and B differ in config.comm.name"},
         2},
        {"compare a.json b.json --require-same host", {"takes a list of config, inputs"}, 2},
    };
    struct command command;
    run(&command, 0, RUN "--output a.json --json");
    assert_int_equal(json_dump_file(command.json, "short.json", 0), 0); /* too short to conclude */
    json_t *timing = json_at(command.json, "timing"), *steps = json_array();
    for (int i = 0; i < 100; i++)
        json_array_append_new(steps, json_integer(990 + i * 37 % 21));
    json_object_update_new(timing, json_pack("{s:b, s:b, s:b, s:o}", "too_short", 0, "gated", 0,
                                             "steady", 1, "step_ns", steps));
    json_object_set_new(json_at(command.json, "load"), "disturbed", json_false());
    json_object_set_new(json_at(command.json, "world"), "oversubscribed", json_false());
    json_t *slow = json_deep_copy(command.json);
    json_object_set_new(json_at(command.json, "timing.samples_per_s"), "mean", json_real(1000));
    json_object_set_new(json_at(slow, "timing.samples_per_s"), "mean", json_real(500));
    assert_int_equal(json_dump_file(command.json, "a.json", 0), 0);
    assert_int_equal(json_dump_file(slow, "slow.json", 0), 0);
    json_decref(slow);
    command_free(&command);
    run(&command, 0, RUN "comm.name=replicated --output b.json");
    command_free(&command);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run(&command, rows[i].exit_code, rows[i].arguments);
        expect_words(rows[i].arguments, command.err, rows[i].words);
        command_free(&command);
    }
    run(&command, 0, "compare a.json b.json");
    expect_words("compare", command.out,
                 (const char *const[]){"different (A | B):", "\"shm\" | \"replicated\"",
                                       "A samples/s", "comm_exposed", "different times", NULL});
    command_free(&command);
    run(&command, 0, "compare short.json slow.json --threshold 5");
    expect_words("compare", command.out,
                 (const char *const[]){"no conclusion", "A was timed too shortly",
                                       "no regression is shown", NULL});
    command_free(&command);
    run(&command, 0, "compare a.json slow.json --json");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.compare/1");
    assert_string_equal(json_text_at(command.json, "rows.0.verdict"), "slower");
    assert_int_equal(json_array_size(json_at(command.json, "differences")), 0);
    command_free(&command);
}

/* Two builds by turns: the same program is no regression, one whose steps take longer is. */
TEST(test_gate)
{
    static const struct {
        const char *arguments, *words[3];
        int exit_code;
    } rows[] = {
        {"gate -c base.ini", {"which other build?"}, 2},
        {"gate --base none -c base.ini", {"--base none: No such file"}, 2},
        {"gate --base ./slow -c base.ini --repeats 1", {"--repeats needs a number from 2"}, 2},
        {"gate --base ./slow", {"which experiment?"}, 2},
        {"gate --base ./broken -c base.ini", {"out of order", "base: ./broken ended with exit"}, 3},
        {"gate --base ./mute -c base.ini", {"./mute printed no result"}, 1},
    };
    struct command command;
    char script[4600];
    sandbox_write("broken", "#!/bin/sh\necho out of order >&2\nexit 3\n");
    sandbox_write("mute", "#!/bin/sh\n");
    /* Other rates, as their results say. */
    static const char *const mean[] = {"0.", "9999999."}, *const names[] = {"slow", "fast"};
    for (size_t i = 0; i < 2; i++) {
        snprintf(script, sizeof script,
                 "#!/bin/sh\n%s/dpbench \"$@\" | sed -E '/\"samples_per_s\"/,/\\}/"
                 "s/\"mean\": [0-9]+\\./\"mean\": %s/'\n",
                 build_directory(), mean[i]);
        sandbox_write(names[i], script);
        assert_int_equal(chmod(names[i], 0777), 0);
    }
    assert_int_equal(chmod("broken", 0777) | chmod("mute", 0777), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run(&command, rows[i].exit_code, rows[i].arguments);
        expect_words(rows[i].arguments, command.err, rows[i].words);
        command_free(&command);
    }
    run(&command, 0,
        "gate --base ./slow -c base.ini " LAZY
        "run.workers=1 run.seconds=0.6 --repeats 2 --threshold 5 "
        "--output g.json");
    expect_words("gate", command.err,
                 (const char *const[]){"[1/2] base: 0.", "[2/2] this: ", NULL});
    expect_part(command.out, "A and B ran by turns");
    command_free(&command);
    json_t *document = json_load_file("g.json", 0, NULL);
    assert_true(json_number_at(document, "rows.0.ratio") > 100);
    assert_true(json_number_at(document, "rows.0.a.repeats") >= 1); /* undisturbed */
    assert_true(json_is_true(json_at(document, "paired")));
    json_decref(document);
    run(&command, 0,
        "gate --base ./slow -c base.ini sweep.comm.name=shm,replicated --repeats 2 --json");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 2);
    command_free(&command);
}

/* ---- sweeps -------------------------------------------------------------------------------- */

TEST(test_sweep)
{
    struct command command;
    run(&command, 0,
        RUN "sweep.comm.name=shm,replicated sweep.run.workers=1,2 sweep.repeats=2 "
            "sweep.retry_disturbed=0 --json");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.sweep/1");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 8);
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 4);
    assert_string_equal(json_text_at(command.json, "runs.7.schema"), "dpbench.result/1");
    expect_words("dpbench", command.err,
                 (const char *const[]){"[1/8] ", "[8/8] ", "samples/s", NULL});
    command_free(&command);
}

/* An option that only one of the plugins has does not hinder the cells of the other; one that none
 * has hinders all. */
TEST(test_sweep_over_plugins_with_options)
{
    struct command command;
    sandbox_write("plugins.ini", "[run]\nresults =\nbatch = 2\nsteps = 2\nwarmup_steps = 0\n"
                                 "steady_limit_s = 0\n[model]\nname = tiny\n"
                                 "[device]\nname = reference\nthreads = 1\n"
                                 "[data]\nsamples = 64\npath = idx\n"
                                 "[sweep]\ndata.name = synthetic, idx\nrepeats = 1\n");
    dataset_idx("idx", 32, 8);
    run(&command, 0, "-c plugins.ini --json");
    assert_int_equal(json_number_at(command.json, "runs.0.config.data.samples.value") == 64 ||
                         json_number_at(command.json, "runs.1.config.data.samples.value") == 64,
                     true);
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 2);
    command_free(&command);
    run(&command, 2, "check -c plugins.ini data.pth=idx");
    expect_words("dpbench", command.out,
                 (const char *const[]){"synthetic: refused: command line: unknown option 'pth'",
                                       "idx: refused: command line: unknown option 'pth'", NULL});
    command_free(&command);
    run(&command, 2, "check -c plugins.ini data.name=idx"); /* no axis any more */
    expect_part(command.err, "unknown option 'samples'");
    command_free(&command);
}

TEST(test_sweep_with_a_cell_that_fails)
{
    struct command command;
    run(&command, 1, RUN "sweep.run.precision=fp32,bf16,fp64 sweep.repeats=1 --json");
    assert_string_equal(json_text_at(command.json, "status"), "failed");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 3);
    assert_string_equal(json_text_at(command.json, "rows.0.status"), "ok");
    assert_string_equal(json_text_at(command.json, "rows.1.status"), "failed");
    assert_string_equal(json_text_at(command.json, "rows.2.status"), "ok");
    expect_part(json_text_at(command.json, "rows.1.error"), "does not compute in bf16");
    command_free(&command);
}

TEST(test_rerun_of_a_sweep)
{
    struct command first, again;
    run(&first, 0, RUN "sweep.comm.name=shm,replicated sweep.repeats=1 --json --output sweep.json");
    run(&again, 0, "rerun sweep.json run.seed=1 --json");
    assert_string_equal(json_text_at(again.json, "schema"), "dpbench.sweep/1");
    assert_int_equal(json_array_size(json_at(again.json, "rows")), 2);
    for (int i = 0; i < 2; i++) { /* in the same order: it is drawn by the seed */
        char path[32];
        snprintf(path, sizeof path, "runs.%d.loss", i);
        assert_true(json_equal(json_at(first.json, path), json_at(again.json, path)));
    }
    assert_null(strstr(again.err, "in the result, here it is"));
    command_free(&again);
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "runs.%d.machine", i);
        json_object_set_new(json_at(first.json, path), "processor", json_string("Z80"));
    }
    assert_int_equal(json_dump_file(first.json, "sweep.json", 0), 0);
    run(&again, 0, "rerun sweep.json --json");
    assert_string_equal(json_text_at(again.json, "name"), json_text_at(again.json, "runs.0.name"));
    assert_string_equal(json_text_at(again.json, "warnings.0.code"), "machine_differs");
    expect_part(json_text_at(again.json, "warnings.0.text"), "machine.processor was \"Z80\"");
    command_free(&again);
    command_free(&first);
}

/* ---- signals ------------------------------------------------------------------------------- */

/* Sends a signal to a run (or a sweep) that would last, after so long. */
static void interrupt_after(double seconds, const char *arguments, int number, int exit_code,
                            struct command *command)
{
    struct started started;
    char program[4200], line[512];
    const char *words[24] = {program};
    size_t n = 1;
    snprintf(program, sizeof program, "%s/dpbench", build_directory());
    snprintf(line, sizeof line, RUN LAZY "--json run.seconds=60 %s", arguments);
    for (char *word = strtok(line, " "); word && n < 23; word = strtok(NULL, " "))
        words[n++] = word;
    command_start(&started, words, NULL);
    usleep((useconds_t)(seconds * 1e6));
    kill(started.pid, number);
    double sent_s = now_s();
    command_finish(&started, command, deadline_s);
    if (command->exit_code != exit_code || now_s() - sent_s > 10.0)
        fail_msg("%s: exit %d, not %d, after %.1f s\n%s", arguments, command->exit_code, exit_code,
                 now_s() - sent_s, command->err);
    assert_string_equal(json_text_at(command->json, "status"), "interrupted");
}

/* Within its steps: a start takes a tenth of the first time, but on a busy machine. */
static void interrupt(const char *arguments, int number, int exit_code, struct command *command)
{
    double seconds = 0.7;
    for (interrupt_after(seconds, arguments, number, exit_code, command);
         seconds < 20 && !(json_number_at(command->json, "timing.steps") > 0);) {
        command_free(command);
        interrupt_after(seconds *= 3, arguments, number, exit_code, command);
    }
}

TEST(test_interrupted)
{
    static const struct {
        int number, exit_code;
        const char *words;
    } rows[] = {{SIGINT, 130, "interrupted by signal 2"}, {SIGTERM, 143, "by signal 15"}};
    struct traces before;
    traces_take(&before, ".");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        interrupt("", rows[i].number, rows[i].exit_code, &command);
        expect_part(json_text_at(command.json, "error"), rows[i].words);
        double steps = json_number_at(command.json, "timing.steps");
        assert_true(steps > 0 &&
                    json_array_size(json_at(command.json, "timing.step_ns")) == (size_t)steps);
        assert_true(json_number_at(command.json, "timing.samples_per_s.mean") > 0);
        assert_string_equal(json_text_at(command.json, "verification.replicas"), "pass");
        command_free(&command);
    }
    traces_expect_none(&before, "interrupted", 0.5);
    traces_free(&before);
}

/* The runs that lie in a directory. */
static int runs_in(const char *directory)
{
    char path[PATH_MAX];
    int n = 0;
    do
        snprintf(path, sizeof path, "%s/%06d.json", directory, n + 1);
    while (access(path, F_OK) == 0 && ++n > 0);
    return n;
}

/* SIGKILL takes the run under way alone: the others are reported, and the sweep goes on. */
TEST(test_killed_sweep)
{
    struct started started;
    struct command command;
    char program[4200], arguments[128];
    const char *const words[] = {program,           "-c",
                                 "base.ini",        "sweep.comm.name=shm,replicated",
                                 "sweep.repeats=3", "sweep.retry_disturbed=0",
                                 "run.seconds=0.4", "--output",
                                 "killed.json",     NULL};
    snprintf(program, sizeof program, "%s/dpbench", build_directory());
    command_start(&started, words, NULL);
    double begin_s = now_s();
    while (runs_in("killed.json.runs") < 2 && now_s() - begin_s < deadline_s)
        usleep(1000);
    run(&command, 0, "report killed.json.runs"); /* while it runs */
    expect_words("report", command.out, (const char *const[]){"samples/s", "interrupted: ", NULL});
    command_free(&command);
    kill(started.pid, SIGKILL);
    command_finish(&started, &command, deadline_s);
    command_free(&command);
    assert_int_equal(access("killed.json", F_OK), -1);
    int n = runs_in("killed.json.runs");
    assert_true(n >= 2 && n < 6);
    run(&command, 0, "report killed.json.runs");
    expect_words("report", command.out, (const char *const[]){"samples/s", "interrupted: ", NULL});
    command_free(&command);
    run(&command, 0, "rerun killed.json.runs --resume --json --output whole_again.json");
    snprintf(arguments, sizeof arguments, "%d of 6 runs are there, from killed.json.runs", n);
    expect_part(command.err, arguments);
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 6);
    assert_int_equal(runs_in("whole_again.json.runs"), 6);
    command_free(&command);
    run(&command, 0, "compare whole_again.json whole_again.json.runs --json");
    assert_int_equal(json_array_size(json_at(command.json, "differences")), 0);
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 2);
    assert_int_equal(json_number_at(command.json, "rows.0.ratio"), 1);
    command_free(&command);
    assert_int_equal(mkdir("empty", 0777), 0);
    run(&command, 2, "report empty");
    expect_part(command.err, "empty: no sweep.json in it");
    command_free(&command);
}

TEST(test_interrupted_sweep)
{
    struct command command;
    interrupt_after(0.7, "sweep.comm.name=shm,replicated", SIGINT, 130, &command);
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.sweep/1");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 1);
    assert_string_equal(json_text_at(command.json, "runs.0.status"), "interrupted");
    command_free(&command);
}

TEST_MAIN(set_up, sandbox_teardown)
