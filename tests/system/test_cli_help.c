/*
 * test_cli_help.c - what dpbench says of itself: help and lists, check, and mistaken words.
 */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cli.h"
#include "lib/traces.h"

/* Each option in the usage of a command has a line in the command's help. */
TEST(test_options)
{
    struct command all;
    char name[32], option[32], words[64];
    unsigned n = 0;
    run(&all, 0, "help");
    for (const char *line = all.out; (line = strstr(line, "\n  dpbench ")); line++) {
        struct command help;
        const char *end = strchr(line + 1, '\n');
        line += strcspn(line, "d"); /* [run] is one that may be left out */
        assert_int_equal(sscanf(line, "dpbench %*[[]%31[a-z]", name) == 1 ||
                             sscanf(line, "dpbench %31[a-z-]", name) == 1,
                         1);
        if (strcmp(name, "--version") == 0)
            continue;
        snprintf(words, sizeof words, "help %s", name);
        run(&help, 0, words);
        for (const char *at = strstr(line, "--"); at && at < end; at = strstr(at + 2, "--")) {
            sscanf(at, "%31[a-z-]", option);
            snprintf(words, sizeof words, "      %s ", option);
            expect_part(help.out, words);
            n++;
        }
    }
    assert_true(n > 40);
}

/* A library that does not tell its version has that of its headers alone. */
TEST(test_libraries)
{
    struct command command;
    run(&command, 0, "plugins");
    expect_part(command.out, " (when built: ");
    assert_null(strstr(command.out, "against no)")); /* a fact may be no version */
    assert_null(strstr(command.out, " ? "));
}

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
        {"help ps_cpu",
         {"comm ps_cpu: ", "a worker waits in every step for the gradients of all workers of that "
                           "step (synchronous; "}},
        {"help local_sgd", {"waits in one step of 8 for all workers, in the others for none "}},
        {"help independent", {"a worker waits for no other worker: nothing is exchanged (none; "}},
        {"help comm.bucket", {"comm.bucket = size (bytes)"}},
        {"help data.path", {"data.path", "Directory with"}},
        {"help rerun", {"command rerun: ", "RESULT.json ", "--json ", "--output FILE "}},
        {"help exposed", {"term exposed: the part of communication for which computing waits\n"}},
        {"help samples/s", {"term samples/s: samples a second over all workers\n"}},
        {"help interval", {"term interval: of a rate: the 95 % interval"}},
        {"help loss", {"term loss: in tables: "}},
        {"help accuracy", {"term accuracy: in tables: "}},
        {"help gate", {"command gate: ", "term gate: the steady-state gate"}},
        {"help pull", {"term pull: a worker's gradients"}},
        {"help cell", {"term cell: sweep: a product of settings"}},
        {"help matrix shm",
         {"shm\n\n", " combinations work. ", "mach gpu  mom ", "late  comm.late=1\n",
          "L1    its workers read each other's memory\n"}},
        {"help matrix ps_cpu/servers --csv",
         {"strategy,features,verdict,note,settings\n", "ps_cpu/servers,late,yes,,model.name=tiny ",
          "ps_cpu/servers,psgd,not built,it carries no codec of two rounds,"}},
        {"help outcome", {"undecided; measuring.md\n"}},
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
    EXPECT_WORDS("list CUDA nccl", some.out, "  resnet50_nccl\n");
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
    run(&command, 0, "list lars");
    expect_line(command.out, "^1 experiment in /");
    run(&command, 0, "check lenet_shm data.name=synthetic device.name=reference");
    EXPECT_WORDS("check lenet_shm", command.out, "lenet_shm: ");
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
    {"gpt", "1x1x1024", "124439808", "136.170", "4"},
    {"gpt2", "1x1x1024", "124439808", "136.170", "4"},
    {"gpt2_large", "1x1x1024", "774030080", "839.014", "4"},
    {"gpt2_medium", "1x1x1024", "354823168", "387.731", "4"},
    {"gpt2_xl", "1x1x1024", "1557611200", "1672.900", "4"},
    {"gpt_tiny", "1x1x64", "834304", "0.055", "32"},
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
    {"vit", "3x224x224", "5717416", "1.254", "64"},
    {"vit_b16", "3x224x224", "86567656", "17.564", "64"},
    {"vit_b32", "3x224x224", "88224232", "4.409", "64"},
    {"vit_s16", "3x224x224", "22050664", "4.599", "64"},
    {"vit_ti16", "3x224x224", "5717416", "1.254", "64"},
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
    }
}

TEST(test_help_unknown)
{
    static const struct {
        const char *word, *near;
    } rows[] = {{"shmm", "'shm'"},
                {"optimiser", "'optimizer'"},
                {"comm.bukcet", "'comm.bucket'"},
                {"renun", "'rerun'"},
                {"reference2", "'reference'"},
                {"expossed", "'exposed'"},
                {"sweep.repaets", "'sweep.repeats'"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        char arguments[64];
        snprintf(arguments, sizeof arguments, "help %s", rows[i].word);
        run(&command, 2, arguments);
        assert_string_equal(command.out, "");
        EXPECT_WORDS("dpbench", command.err, rows[i].word, "did you mean ", rows[i].near);
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
        {"plugins foo --json", {"unknown argument 'foo'"}},
        {"plugins --json foo", {"unknown argument 'foo'"}},
        {"list nothing-like-it", {"no experiment mentions nothing-like-it"}},
        {"x.json", {"did you mean 'rerun x.json'?"}},
        {RUN "--output=x.json", {"'--output=x.json'", "two words: --output x.json"}},
        {"compare --threshold=5 a.json b.json", {"two words: --threshold 5"}},
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
        dpbench_says(deadline_s, 2, rows[i].words, "%s", rows[i].arguments);
        assert_true(stat("pipe", &info) == 0 && S_ISFIFO(info.st_mode));
    }
    unlink("pipe");
}

/* A file that is read, or written for another option, is not written. By another name, too. */
TEST(test_outputs_are_apart)
{
#define KEEPS "-c own.ini run.steps=2 "
    static const struct {
        const char *arguments, *words[3];
    } rows[] = {
        {KEEPS "--output own.ini", {"--output own.ini", "in the place of -c own.ini"}},
        {KEEPS "--output other.ini", {"--output other.ini", "in the place of -c own.ini"}},
        {KEEPS "checkpoint.save=./own.ini", {"checkpoint.save ./own.ini", "-c own.ini"}},
        {KEEPS "--output z.json run.trace=./z.json", {"--output z.json", "run.trace ./z.json"}},
        {KEEPS "run.trace=z checkpoint.save=z", {"run.trace z", "checkpoint.save z"}},
        {KEEPS "sweep.run.batch=1,2 --output own.ini", {"--output own.ini", "-c own.ini"}},
        {KEEPS "sweep.run.batch=1,2 checkpoint.save=z",
         {"command line: checkpoint.save in a sweep"}},
        {"comm " KEEPS "--output own.ini", {"--output own.ini", "-c own.ini"}},
        {"report --html own.html own.html", {"--html own.html", "the result own.html"}},
    };
    struct stat before, after;
    sandbox_write("own.ini",
                  "[model]\nname = tiny\n[device]\nname = reference\n[comm]\nname = shm\n");
    sandbox_write("own.html", "{}");
    assert_int_equal(symlink("own.ini", "other.ini"), 0);
    assert_int_equal(stat("own.ini", &before), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, rows[i].words, "%s", rows[i].arguments);
    assert_int_equal(stat("own.ini", &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size);
}

/* What would kill, stop or fool the process that loads it. */
TEST(test_plugins_that_bite)
{
#define BITING                                                       \
    "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n" \
    "__attribute__((constructor)) static void bite(void) { "
    static const struct {
        const char *name, *body, *reason;
    } rows[] = {{"exits", "exit(3);", "loading it ends the process: exit status 3"},
                {"aborts", "abort();", "loading it ends the process: signal 6"},
                {"crashes", "__builtin_trap();", "loading it ends the process: signal 4"},
                {"hangs", "pause();", "loading it takes more than 5 s"},
                {"prints", "puts(\"{]\");", "it exports no dpb_plugin_entry"}};
    struct command command;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[256];
        sandbox_write("bite.c", "%s%s }\n", BITING, rows[i].body);
        snprintf(line, sizeof line, "cc -shared -fPIC -o comm_%s.so bite.c", rows[i].name);
        assert_int_equal(system(line), 0);
    }
    assert_int_equal(system("head -c 9000 comm_prints.so >comm_short.so"), 0);
    assert_int_equal(mkfifo("comm_pipe.so", 0600), 0);
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
    run(&command, 0, "plugins --json");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.plugins/1");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        EXPECT_WORDS("plugins", command.out, rows[i].name, rows[i].reason);
    EXPECT_WORDS("plugins", command.out, "comm_pipe.so", "it is no regular file", "comm_short.so",
                 "it is truncated: its segments need ");
    unsetenv("DPBENCH_PLUGIN_PATH");
    assert_int_equal(system("rm comm_*.so"), 0);
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
    EXPECT_WORDS("dpbench", text.out, "there, but not usable:", "comm_broken.so\n", "too short");
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
    unsetenv("DPBENCH_PLUGIN_PATH");
    unlink("comm_broken.so");
}

/* Each strategy has its own reason. */
TEST(test_unmet_needs_are_listed)
{
    struct command command;
    const json_t *row;
    size_t i, n = 0;
    char path[4200];
    snprintf(path, sizeof path, "%s/tests/plugins", build_directory());
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    run(&command, 0, "plugins --json");
    json_array_foreach(json_at(command.json, "plugins"), i, row)
    {
        const char *name = json_text_at(row, "name"), *reason = json_text_at(row, "refuses");
        const bool is_first = strcmp(name, "unmet") == 0;
        if (!is_first && strcmp(name, "unmet_second") != 0)
            continue;
        assert_string_equal(reason, is_first ? "the first needs a moon" : "the second needs a sun");
        n++;
    }
    assert_int_equal(n, 2);
    unsetenv("DPBENCH_PLUGIN_PATH");
}

TEST(test_check_runs_nothing)
{
    struct command command;
    struct traces before;
    traces_take(&before, ".");
    run(&command, 0, "check " RUN "run.results=res");
    EXPECT_WORDS("dpbench", command.out, "tiny on synthetic, reference, shm; 2 workers",
                 "batch 2 a worker, 4 in all", "1690 parameters", "16 steps an epoch",
                 "memory: ", "MiB a worker");
    assert_null(strstr(command.out, "SamplesPerSec"));
    /* Every cell, also behind one that is refused. */
    run(&command, 2, "check " RUN "sweep.run.precision=fp32,bf16,fp64");
    EXPECT_WORDS("dpbench", command.out,
                 "run.precision=bf16: refused: ", "plan: 2 cells, 3 repeats: 6 runs; up to ",
                 " MiB, for run.precision=fp64; 36 steps");
    int n_lines = 0;
    for (const char *c = command.out; *c != '\0'; c++)
        n_lines += *c == '\n';
    assert_int_equal(n_lines, 2); /* what is refused, and the plan */
    /* What all cells have is said once. */
    run(&command, 2, "check " RUN "run.precision=bf16 sweep.run.batch=2,4,8");
    expect_part(command.out, "... and 2 more, for the same reason\n");
    assert_null(strstr(strstr(command.err, "error: ") + 1, "error: "));
    traces_expect_none(&before, "check", 0.5);
}

TEST_MAIN(set_up, sandbox_teardown)
