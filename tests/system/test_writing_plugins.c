/*
 * test_writing_plugins.c - plugins from outside the tree, those of docs/writing-plugins.md: built
 * from the public headers and the strategies' library alone, by no more than a compiler, they load,
 * train and change what is computed. One that does not fit is refused.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dpbench/plugin.h"
#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

#define BUILD_PLUGIN "cc -std=c11 -Wall -Wextra -Werror -shared -fPIC -Iinclude"

static const double deadline_s = 60.0;
/* The document's plugins: files KIND_NAME.c. */
static const struct own {
    const char *kind, *name;
} own[] = {{"model", "perceptron"}, {"data", "csv"},       {"device", "one_layer"},
           {"comm", "sum_all"},     {"comm", "local_sgd"}, {"codec", "upper_half"},
           {"comm", "peaks"},       {"comm", "one_late"},  {"comm", "diloco"}};
enum { PLUGINS = sizeof own / sizeof *own };

/* ---- files and compiling ------------------------------------------------------------------- */

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t n = 0, capacity = 1 << 20;
    char *text = calloc(1, capacity);
    if (!file || !text)
        fail_msg("%s cannot be read", path);
    n = fread(text, 1, capacity - 1, file);
    fclose(file);
    assert_true(n < capacity - 1);
    return own_memory(text, free);
}

/* `text` with the first `from` replaced. @owned. */
static char *replaced(const char *text, const char *from, const char *to)
{
    char *result;
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("'%s' is not in the file", from);
    assert_true(asprintf(&result, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    return own_memory(result, free);
}

static void shell(struct command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void shell(struct command *command, const char *format, ...)
{
    char line[2048];
    va_list list;
    va_start(list, format);
    assert_true(vsnprintf(line, sizeof line, format, list) < (int)sizeof line);
    va_end(list);
    command_run(command, deadline_s, WORDS("/bin/sh", "-c", line), NULL);
}

/* DIRECTORY/KIND_NAME.so, without a word of the compiler's. */
static void build_plugin(const struct own *plugin, const char *directory, const char *flags)
{
    struct command command;
    shell(&command, BUILD_PLUGIN " %s -o %s/%s_%s.so %s_%s.c '%s/libdpbench-comm.a' -lm", flags,
          directory, plugin->kind, plugin->name, plugin->kind, plugin->name, build_directory());
    if (command.exit_code != 0 || command.out[0] || command.err[0])
        fail_msg("%s_%s.c: exit %d\n%s%s", plugin->kind, plugin->name, command.exit_code,
                 command.out, command.err);
}

/* Rows for data csv: 4 x 4 pixels, of which one row is brighter; the class is the row's number plus
 * `shift`. Three lines of four are training samples. */
static void write_rows(const char *path, unsigned shift)
{
    FILE *file = fopen(path, "w");
    uint32_t random = 1;
    assert_non_null(file);
    for (unsigned line = 0; line < 128; line++) {
        unsigned row = line % 3;
        fprintf(file, "%u", (row + shift) % 3);
        for (unsigned p = 0; p < 16; p++) {
            random = random * 1664525u + 1013904223u;
            fprintf(file, ",%.3f", (random >> 8) / 16777216.0 - 0.5 + (p / 4 == row));
        }
        fputc('\n', file);
    }
    assert_int_equal(fclose(file), 0);
}

/* The headers and the document's files lie here, and nothing else of dpbench. */
static int set_up(void **state)
{
    char *root = own_memory(realpath(".", NULL), free);
    int result = sandbox_setup(state);
    struct command command;
    shell(&command,
          "mkdir -p include/dpbench-comm && cp -R '%s/core/include/dpbench' include/ && "
          "cp '%s'/include/dpbench-comm/*.h include/dpbench-comm && cp '%s'/templates/*/*.c . && "
          "'%s/tests/document/run' '%s/docs/writing-plugins.md' files",
          root, build_directory(), root, root, root);
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s%s", command.exit_code, command.out, command.err);
    for (size_t i = 0; i < PLUGINS; i++)
        build_plugin(&own[i], ".", "");
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
    assert_int_equal(mkdir("misfit", 0777), 0);
    write_rows("rows.csv", 0);
    write_rows("shifted.csv", 1);
    sandbox_write("base.ini", "[run]\nresults =\nsteps = 8\nwarmup_steps = 1\nsteady_limit_s = 0\n"
                              "batch = 8\nprecision = fp64\n"
                              "[model]\nname = perceptron\n[data]\nname = csv\npath = rows.csv\n"
                              "[device]\nname = reference\nthreads = 1\n"
                              "[optimizer]\nlearning_rate = 0.02\n[eval]\nfinal = yes\n");
    return result;
}

/* ---- runs ---------------------------------------------------------------------------------- */

static void train(struct command *command, const char *arguments)
{
    dpbench(command, deadline_s, "-c base.ini --json %s", arguments);
    if (command->exit_code != 0 || !command->json)
        fail_msg("%s: exit %d: %s", arguments, command->exit_code, command->err);
}

static void expect_refused(const char *arguments, const char *const *words)
{
    dpbench_says(deadline_s, 2, words, "-c base.ini %s", arguments);
}

static double loss_at(const struct command *command, size_t step)
{
    return json_number_value(json_array_get(json_at(command->json, "loss"), step));
}

/* Whether the losses of all steps agree, but for the order of sums. */
static bool same_losses(const struct command *a, const struct command *b)
{
    size_t n = json_array_size(json_at(a->json, "loss"));
    assert_int_equal(n, 9);
    for (size_t step = 0; step < n; step++)
        if (!(fabs(loss_at(a, step) - loss_at(b, step)) <= 1e-12 * fabs(loss_at(a, step))))
            return false;
    return true;
}

/* ---- tests --------------------------------------------------------------------------------- */

TEST(test_listed)
{
    struct command command;
    size_t n = 0, i;
    const json_t *row;
    dpbench(&command, deadline_s, "plugins --json");
    json_array_foreach(json_at(command.json, "plugins"), i, row)
    {
        for (size_t k = 0; k < PLUGINS; k++) {
            if (strcmp(json_text_at(row, "name"), own[k].name) != 0)
                continue;
            assert_true(json_is_true(json_at(row, "usable")));
            assert_string_equal(json_text_at(row, "kind"), own[k].kind);
            n++;
        }
    }
    assert_int_equal(n, PLUGINS);
}

/* A run that was saved after 4 of 9 steps goes on with the same bits. */
static void expect_continued(const struct command *whole, int workers, const char *comm)
{
    struct command part;
    char arguments[256];
    snprintf(arguments, sizeof arguments,
             "run.workers=%d run.batch=6 comm.name=%s run.steps=5 run.warmup_steps=0 "
             "checkpoint.load=saved-step4.safetensors",
             workers, comm);
    train(&part, arguments);
    assert_int_equal(json_array_size(json_at(part.json, "loss")), 5);
    for (size_t step = 0; step < 5; step++)
        assert_true(loss_at(&part, step) == loss_at(whole, 4 + step));
}

/* One of each kind at once, with any number of workers, are the training that the real ones do. */
TEST(test_all_train)
{
    for (int workers = 1; workers <= 4; workers++) {
        struct command own_run, real;
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "run.workers=%d run.batch=6 run.prove=yes comm.bucket=64 comm.name=sum_all "
                 "device.name=one_layer checkpoint.save=saved.safetensors checkpoint.at=4",
                 workers);
        train(&own_run, arguments);
        expect_continued(&own_run, workers, "sum_all device.name=one_layer comm.bucket=64");
        snprintf(arguments, sizeof arguments, "run.workers=%d run.batch=6 comm.name=shm", workers);
        train(&real, arguments);
        assert_true(same_losses(&own_run, &real));
        assert_true(loss_at(&own_run, 8) < loss_at(&own_run, 0));
        assert_string_equal(json_text_at(own_run.json, "strategy.consistency"), "synchronous");
        assert_string_equal(json_text_at(own_run.json, "verification.pattern"), "pass");
        assert_string_equal(json_text_at(own_run.json, "verification.exchange"), "pass");
        assert_string_equal(json_text_at(own_run.json, "verification.replicas"), "pass");
        assert_int_equal(json_number_at(own_run.json, "model.parameters"), 16 * 3 + 3);
        assert_int_equal(json_number_at(own_run.json, "model.macs_per_sample"), 16 * 3);
        /* Every worker reads the others' gradients: 48 weights, 3 biases and what aligns them. */
        assert_int_equal(json_number_at(own_run.json, "comm.bytes_per_step"),
                         workers * (workers - 1) * 64 * 8);
    }
}

static void expect_verified(const struct command *run)
{
    static const char *const checks[] = {"pattern", "exchange", "replicas", "after"};
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        char path[64];
        snprintf(path, sizeof path, "verification.%s", checks[i]);
        assert_string_equal(json_text_at(run->json, path), "pass");
    }
}

/* Local SGD keeps its contract; meeting after every step it is the synchronous mean. */
TEST(test_local_sgd)
{
    for (int workers = 1; workers <= 3; workers++) {
        struct command every, third, mean;
        char arguments[256];
        const char *format = "run.workers=%d run.batch=6 run.prove=yes comm.name=%s";
        snprintf(arguments, sizeof arguments, format, workers, "shm");
        train(&mean, arguments);
        snprintf(arguments, sizeof arguments, format, workers, "local_sgd comm.period=1");
        train(&every, arguments);
        snprintf(arguments, sizeof arguments, format, workers,
                 "local_sgd comm.period=3 checkpoint.save=saved.safetensors checkpoint.at=4");
        train(&third, arguments);
        expect_continued(&third, workers, "local_sgd comm.period=3");
        assert_true(same_losses(&every, &mean));
        assert_true(same_losses(&third, &mean) == (workers == 1));
        assert_string_equal(json_text_at(third.json, "strategy.consistency"), "periodic(3)");
        expect_verified(&third);
    }
}

/* Meeting after every step it is core's momentum. Other books, and another `meet`, show. */
TEST(test_diloco)
{
    static const char *const wrong[][2] = {
        {"momentum * momentum", "momentum"},
        {"1, m->weights, momentum, m->velocity", "1, m->weights, 1, m->velocity"}};
    char *text = read_text("comm_diloco.c");
    for (int workers = 1; workers <= 3; workers++) {
        struct command every, third, momentum;
        char arguments[256];
        const char *format = "run.workers=%d run.batch=6 comm.bucket=64 run.prove=yes comm.name=%s";
        snprintf(arguments, sizeof arguments, format, workers,
                 "shm optimizer.momentum=0.8 optimizer.nesterov=yes");
        train(&momentum, arguments);
        snprintf(arguments, sizeof arguments, format, workers,
                 "diloco comm.period=1 comm.outer_rate=1 comm.outer_momentum=0.8 "
                 "optimizer.momentum=0");
        train(&every, arguments);
        snprintf(arguments, sizeof arguments, format, workers,
                 "diloco comm.period=3 checkpoint.save=saved.safetensors checkpoint.at=4");
        train(&third, arguments);
        expect_continued(&third, workers, "diloco comm.period=3 comm.bucket=64");
        assert_true(same_losses(&every, &momentum));
        assert_string_equal(json_text_at(third.json, "strategy.consistency"), "averaging");
        assert_string_equal(json_text_at(third.json, "verification.after"), "pass");
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *bad = replaced(text, wrong[i][0], wrong[i][1]);
        write_file("comm_diloco.c", bad, strlen(bad));
        build_plugin(&(struct own){"comm", "diloco"}, "misfit", "");
        setenv("DPBENCH_PLUGIN_PATH", "misfit:.", 1);
        dpbench_says(deadline_s, 3, WORDS("pattern check of comm 'diloco'"),
                     "-c base.ini run.workers=2 comm.name=diloco comm.period=2");
        setenv("DPBENCH_PLUGIN_PATH", ".", 1);
    }
    write_file("comm_diloco.c", text, strlen(text));
    unlink("misfit/comm_diloco.so");
}

#define PEAKS "peaks run.precision=fp32 comm.bucket=128"

/* The reduction keeps its books. In a bucket of 32 elements one is sent. */
TEST(test_reduction)
{
    for (int workers = 1; workers <= 3; workers++) {
        struct command run;
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "run.workers=%d run.batch=6 run.prove=yes comm.name=" PEAKS
                 " checkpoint.save=saved.safetensors checkpoint.at=4",
                 workers);
        train(&run, arguments);
        expect_continued(&run, workers, PEAKS);
        if (workers == 3)
            expect_continued(&run, workers, PEAKS " comm.hosts=2+1 comm.interface=lo");
        expect_verified(&run);
        assert_true(loss_at(&run, 8) < loss_at(&run, 0));
        assert_string_equal(json_text_at(run.json, "strategy.consistency"), "lossy");
        assert_int_equal(json_number_at(run.json, "comm.bytes_per_step"),
                         workers * (workers - 1) * 64 / 32 * 8);
    }
    expect_refused("comm.name=peaks", WORDS("comm 'peaks'", "another run.precision than fp64"));
}

/* The late reduction is core's comm.late. */
TEST(test_one_late)
{
    for (int workers = 1; workers <= 3; workers++) {
        struct command late, core;
        char arguments[256];
        const char *format = "run.workers=%d run.batch=6 run.precision=fp32 run.prove=yes "
                             "optimizer.weight_decay=0.01 comm.name=%s";
        snprintf(arguments, sizeof arguments, format, workers, "shm comm.late=1");
        train(&core, arguments);
        snprintf(arguments, sizeof arguments, format, workers,
                 "one_late checkpoint.save=saved.safetensors checkpoint.at=4");
        train(&late, arguments);
        expect_continued(&late, workers, "one_late run.precision=fp32 optimizer.weight_decay=0.01");
        assert_true(same_losses(&late, &core));
        assert_string_equal(json_text_at(late.json, "strategy.consistency"), "late(1)");
        expect_verified(&late);
    }
}

/* What a reduction cannot have: an option that the library adds, a residual of a late one. */
TEST(test_reductions_refused)
{
    static const struct own refused = {"comm", "refused"};
    static const struct {
        const char *file, *from, *to, *words[3];
    } rows[] = {
        {"comm_peaks.c",
         "DPB_REDUCE_PLUGIN(peaks, .name = \"peaks\"",
         "static const struct dpb_option rows[] = {{.name = \"port\"}, {0}};\n"
         "DPB_REDUCE_PLUGIN(peaks, .options = rows, .name = \"refused\"",
         {"option 'port', too", "another name"}},
        {"comm_one_late.c",
         ".late = 1};\nDPB_REDUCE_PLUGIN(one_late, .name = \"one_late\"",
         ".late = 1, .residual = true};\nDPB_REDUCE_PLUGIN(one_late, .name = \"refused\"",
         {"`late` and `residual`", "exclude each other"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *good = read_text(rows[i].file), *text = replaced(good, rows[i].from, rows[i].to);
        write_file("comm_refused.c", text, strlen(text));
        build_plugin(&refused, ".", "");
        expect_refused("comm.name=refused run.precision=fp32",
                       WORDS("comm 'refused'", rows[i].words[0], rows[i].words[1]));
        unlink("comm_refused.so");
    }
}

/* Each claim of a contract that is changed, and each part of a gradient that is lost, is found by
 * the first check. */
TEST(test_contracts_must_be_kept)
{
    static const struct own broken = {"comm", "broken"};
    static const struct {
        const char *name, *settings, *from, *to, *found;
    } lies[] = {
        {"sum_all", "", "want->scratch_bytes = c",
         "want->contract.share /= 2, want->contract.roundings = 1, "
         "want->contract.consistency = DPB_LOSSY; want->scratch_bytes = c",
         "the strategy"},
        {"sum_all", "", "want->scratch_bytes = c",
         "want->contract.divisor = want->contract.roundings = 1; want->scratch_bytes = c",
         "the strategy"},
        {"one_late", "run.precision=fp32", ", .late = 1", "", "does not compute the mean gradient"},
        {"one_late", "run.precision=fp32", ", .late = 1", ", .late = 2",
         "does not keep its contract, late(2)"},
        {"one_late", "run.precision=fp32", "memcpy(b->gradients, b->state",
         "memcpy(b->gradients, b->message", "does not keep its contract, late(1)"},
        {"peaks", "run.precision=fp32", "b->residual[i] += ", "b->residual[i] = ", "the books of"},
        {"peaks", "run.precision=fp32", "b->residual[top] = 0.0F;", "", "the books of"},
        {"peaks", "run.precision=fp32", "rank = 0;", "rank = 1;", "the books of"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        char name[64];
        snprintf(name, sizeof name, "comm_%s.c", lies[i].name);
        char *good = read_text(name);
        snprintf(name, sizeof name, ".name = \"%s\"", lies[i].name);
        char *named = replaced(good, name, ".name = \"broken\"");
        char *text = replaced(named, lies[i].from, lies[i].to);
        write_file("comm_broken.c", text, strlen(text));
        build_plugin(&broken, ".", "");
        dpbench_says(deadline_s, 3, WORDS("pattern check of comm 'broken'", lies[i].found),
                     "-c base.ini run.workers=2 comm.name=broken %s", lies[i].settings);
    }
}

TEST(test_change_what_is_computed)
{
    struct command plain, shifted, hidden;
    train(&plain, "");
    train(&shifted, "data.path=shifted.csv");
    train(&hidden, "model.hidden=5");
    assert_false(same_losses(&plain, &shifted));
    assert_false(same_losses(&plain, &hidden));
    assert_int_equal(json_number_at(hidden.json, "model.parameters"), 16 * 5 + 5 + 5 * 3 + 3);
    assert_int_equal(json_number_at(plain.json, "eval.0.samples"), 32);
    assert_string_equal(json_text_at(hidden.json, "config.model.hidden.origin"), "command line");
    assert_string_equal(json_text_at(plain.json, "config.model.hidden.origin"), "default");
}

/* A model that takes images of one size only. */
TEST(test_fixed_image)
{
    static const struct own fixed = {"model", "fixed"};
    char *any = read_text("model_perceptron.c");
    char *named = replaced(any, ".name = \"perceptron\"", ".name = \"fixed\"");
    char *text = replaced(named, "any_image = true", "any_image = false");
    write_file("model_fixed.c", text, strlen(text));
    build_plugin(&fixed, ".", "");
    expect_refused("model.name=fixed model.image=5",
                   WORDS("takes images of 28 x 28 only", "leave model.image out"));
}

/* A plugin that leaves something out is named, and no process ends by a signal. So is a contract
 * that is another on another rank. */
TEST(test_forgetful)
{
    static const struct {
        size_t plugin; /* of own */
        int exit_code;
        const char *from, *to, *words[3];
    } rows[] = {
        {0, 2, "info->batch = 32;", "", {"model 'forgets' has no batch", "give run.batch"}},
        {2,
         1,
         "p->graph->n_elements, NULL",
         "p->graph->n_elements / 2, NULL",
         {"step 0: device 'forgets' has ended its backward", "in 0 of 1 buckets"}},
        {3,
         1,
         "c->sum_at = dpb_strategy",
         "want->bucket_elements = 0;\n    c->sum_at = dpb_strategy",
         {"comm 'forgets': its plan has buckets of no elements"}},
        {3,
         1,
         "c->sum_at = dpb_strategy",
         "want->weights = DPB_MEMORY_NONE;\n    c->sum_at = dpb_strategy",
         {"comm 'forgets': its plan has no memory for a worker's weights"}},
        {3,
         1,
         "c->sum_at = dpb_strategy",
         "want->gradients = DPB_MEMORY_NONE;\n    c->sum_at = dpb_strategy",
         {"comm 'forgets': its plan has no memory for a worker's gradients"}},
        {3,
         1,
         "c->sum_at = dpb_strategy",
         "want->contract.roundings = c->base.args.rank;\n    c->sum_at = dpb_strategy",
         {"the ranks differ in contract: rank 0 has ", "roundings 1, "}},
    };
    char *base = read_text("base.ini"), *bare = replaced(base, "batch = 8\n", "");
    write_file("bare.ini", bare, strlen(bare));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct own *plugin = &own[rows[i].plugin];
        const struct own forgets = {plugin->kind, "forgets"};
        char file[64], name[64];
        snprintf(file, sizeof file, "%s_%s.c", plugin->kind, plugin->name);
        snprintf(name, sizeof name, ".name = \"%s\"", plugin->name);
        char *good = read_text(file), *named = replaced(good, name, ".name = \"forgets\"");
        char *text = replaced(named, rows[i].from, rows[i].to);
        snprintf(file, sizeof file, "%s_forgets.c", plugin->kind);
        write_file(file, text, strlen(text));
        build_plugin(&forgets, ".", "");
        dpbench_says(deadline_s, rows[i].exit_code, rows[i].words,
                     "-c bare.ini run.workers=2 run.timeout_s=10 run.conform=no %s.name=forgets",
                     plugin->kind);
        snprintf(file, sizeof file, "%s_forgets.so", plugin->kind);
        unlink(file);
    }
}

TEST(test_refuse_what_they_cannot)
{
    sandbox_write("word.csv", "1,2,3,4,5\n0,1,2,x,4\n");
    expect_refused("device.name=one_layer model.hidden=5",
                   WORDS("device 'one_layer' computes one dense layer", "model 'perceptron'",
                         "device.name = reference"));
    expect_refused("device.name=one_layer run.precision=fp32",
                   WORDS("'one_layer' does not compute in fp32", "fp64"));
    expect_refused("model.hidden=-1", WORDS("model.hidden", "0 to 4096"));
    expect_refused("model.nclass=4", WORDS("model.nclass = 4, but data 'csv' has 3"));
    expect_refused("data.side=2 data.path=word.csv", WORDS("word.csv:2:", "number 3", "data.side"));
    expect_refused("data.side=3", WORDS("rows.csv:1:", "more than 9"));
    expect_refused("data.path=none.csv", WORDS("none.csv", "No such file"));
    expect_refused("comm.name=sum_all run.servers=1 run.workers=2",
                   WORDS("comm 'sum_all' has no servers"));
}

/* ---- plugins that do not fit --------------------------------------------------------------- */

#define QUOTED(x) #x
#define TEXT_OF(x) QUOTED(x)

/* A plugin or a header with one thing changed gives a plugin that is refused by what it is. */
static const struct misfit {
    size_t plugin;    /* of own */
    const char *file; /* what is changed; NULL: the plugin's */
    const char *from, *to;
    const char *words[3];
} misfits[] = {
    {0, NULL, ".build = build,", "", {"hook build", "'perceptron'", "missing"}},
    {1, NULL, ".fetch = fetch,", "", {"hook fetch", "'csv'", "missing"}},
    {2, NULL, ".forward = forward,", "", {"hook forward", "'one_layer'", "missing"}},
    {3, NULL, ".load = dpb_strategy_load,", "", {"hook load", "'sum_all'", "missing"}},
    {3, NULL, "HEAD(COMM", "HEAD(DATA", {"kind is 1 (data)", "3 (comm)"}},
    {0,
     "include/dpbench/plugin.h",
     "DPB_ABI " TEXT_OF(DPB_ABI),
     "DPB_ABI 999",
     {"abi is 999, here it is " TEXT_OF(DPB_ABI), "rebuild"}},
    {1,
     "include/dpbench/plugin.h",
     "0x3147554c50425044",
     "0x3147554c50425045",
     {"magic is 0x3147554c50425045", "no dpbench plugin"}},
    {2,
     "include/dpbench/plugin.h",
     "const char *const *thread_variables;",
     "const char *const *thread_variables; int more[4];",
     {"struct_size is ", "here it is ", "rebuild"}},
    {3,
     "include/dpbench/comm.h",
     "dpb_status (*end)(void *comm, struct dpb_event **done);",
     "dpb_status (*end)(void *comm, struct dpb_event **done); void (*more)(void);",
     {"ops_size is ", "here it is ", "rebuild"}},
};

TEST(test_misfits_are_refused)
{
    setenv("DPBENCH_PLUGIN_PATH", "misfit:.", 1);
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        const struct misfit *m = &misfits[i];
        const struct own *plugin = &own[m->plugin];
        char source[64], line[64];
        snprintf(source, sizeof source, "%s_%s.c", plugin->kind, plugin->name);
        const char *file = m->file ? m->file : source;
        char *good = read_text(file), *bad = replaced(good, m->from, m->to);
        write_file(file, bad, strlen(bad));
        build_plugin(plugin, "misfit", "-Wno-unused-function");
        write_file(file, good, strlen(good));
        snprintf(line, sizeof line, "misfit/%s_%s.so: ", plugin->kind, plugin->name);
        expect_refused("comm.name=sum_all device.name=one_layer",
                       WORDS(line, m->words[0], m->words[1], m->words[2]));
        line[strlen(line) - 2] = '\0';
        unlink(line);
    }
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
}

/* A plugin may have the name of one of dpbench's own, and says where it is from. */
TEST(test_shadowing_is_said)
{
    struct command command;
    shell(&command, "mkdir shadow && cp '%s/plugins/comm_shm.so' shadow", build_directory());
    assert_int_equal(command.exit_code, 0);
    for (int shadowed = 0; shadowed < 2; shadowed++) {
        setenv("DPBENCH_PLUGIN_PATH", shadowed ? "shadow:." : ".", 1);
        dpbench_ends(&command, deadline_s, 0,
                     "-c base.ini comm.name=shm run.steps=2 --output shadow.json");
        EXPECT_WORDS("text", command.out, "  plugin        model 'perceptron' from /");
        if (has_line(command.out, "plugin +comm 'shm' from /.*/shadow/comm_shm.so, not dpbench's "
                                  "own") != shadowed)
            fail_msg("%s", command.out);
        json_t *document = own_json(json_load_file("shadow.json", 0, NULL));
        assert_true(json_is_false(json_at(document, "versions.plugins.model.file.own")));
        assert_true(json_is_true(json_at(document, "versions.plugins.device.file.own")));
        assert_int_equal(json_is_false(json_at(document, "versions.plugins.comm.file.own")),
                         shadowed);
    }
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
}

/* ---- dpbench new ---------------------------------------------------------------------------- */

/* A new plugin, under a name of its own, builds and conforms. Nothing is replaced. */
TEST(test_new)
{
    static const struct {
        const char *kind, *name, *settings;
    } rows[] = {{"model", "mine", "model.hidden=4"},
                {"data", "ours", "data.path=rows.txt"},
                {"comm", "yours", "run.workers=2 comm.bucket=1"},
                {"codec", "theirs", "comm.codec_feedback=no"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0, "new %s %s", rows[i].kind, rows[i].name);
        shell(&command,
              "make -s -C %s check CFLAGS=-Werror CPPFLAGS=-I../include DPBENCH='%s/dpbench' "
              "LDLIBS='-L%s -ldpbench-comm -lm' SETTINGS='%s' && ! grep -rE '@(KIND|NAME)@' %s",
              rows[i].name, build_directory(), build_directory(), rows[i].settings, rows[i].name);
        if (command.exit_code != 0)
            fail_msg("%s: exit %d\n%s%s", rows[i].name, command.exit_code, command.out,
                     command.err);
        EXPECT_WORDS(rows[i].name, command.out, rows[i].name);
    }
    sandbox_write("mine/model_mine.c", "changed");
}

TEST(test_new_refuses)
{
    static const char *const rows[][2] = {
        {"model mine", "the directory mine cannot be made: File exists"},
        {"comm shm", "there is a comm 'shm' in "},
        {"device fast", "no template of kind 'device': take model, data, comm or codec"},
        {"comm ../up", "'../up' is no name"},
        {"comm", "a kind and a name are wanted"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i][1]), "new %s", rows[i][0]);
    char *kept = read_text("mine/model_mine.c");
    assert_string_equal(kept, "changed");
}

/* ---- dpbench conform ----------------------------------------------------------------------- */

/* A plugin with one mistake, and the words by which conform finds the mistake. That the plugins
 * without mistakes conform is in docs/writing-plugins.md. */
static const struct mistake {
    size_t plugin; /* of own */
    const char *from, *to, *settings;
    const char *words[3];
} mistakes[] = {
    {0,
     "graph->relu(builder, \"relu\", node)",
     "graph->relu(builder, \"relu\", graph->initial(builder, node, &(struct dpb_initial){0}, "
     "&(struct dpb_initial){.value = -1}))",
     "model.hidden=8",
     {"FAILED   gradients", "'classes.weight' is 0 in every element"}},
    {0,
     "(uint32_t)o->hidden, true",
     "(uint32_t)(8 + __builtin_ia32_rdtsc() % 1000), true",
     "model.hidden=8",
     {"FAILED   the same network twice", "another network"}},
    {0,
     ".name = \"hidden\"",
     ".name = \"image\"",
     "",
     {"FAILED   options",
      "option 'image' of model 'perceptron': dpbench itself has a model.image, too"}},
    {1,
     "labels[i] = s->labels[line];",
     "labels[i] = s->labels[line] + 1;",
     "data.path=rows.csv",
     {"FAILED   bounds", "label 3, of 3 classes"}},
    {1,
     "s->n_pixels * sizeof(float));\n        labels",
     "s->n_pixels * sizeof(float) + 1);\n        labels",
     "data.path=rows.csv",
     {"FAILED   bounds", "wrote outside of their 64 bytes"}},
    {1,
     "s->n_pixels * sizeof(float));\n        labels",
     "s->n_pixels * sizeof(float) - 1);\n        labels",
     "data.path=rows.csv",
     {"FAILED   determinism", "fetch did not write byte 63 of 64"}},
    {1,
     "labels[i] = s->labels[line];",
     "memset(samples, (int)n, 64);\n        *(unsigned char *)samples = n == 1 ? 0xa5 : 0x5a;\n"
     "        labels[i] = s->labels[line];",
     "data.path=rows.csv",
     {"FAILED   determinism", "another one in another order"}},
    {1,
     "labels[i] = s->labels[line];",
     "labels[i] = s->labels[(line + n / 2) % s->n];",
     "data.path=rows.csv",
     {"FAILED   determinism", "another one in another order"}},
    {1,
     "(uint64_t)o->test_every;",
     "(uint64_t)o->test_every + request->rank;",
     "data.path=rows.csv",
     {"FAILED   another worker", "opened by another worker"}},
    {1,
     "s->n < s->test_every",
     "false",
     "data.path=rows.csv",
     {"FAILED   empty", "a file that is empty gives a label or a value out of bounds"}},
    {1,
     "if (end == text ||",
     "if (end == text)\n        abort();\n    if (",
     "data.path=rows.csv",
     {"FAILED   of random bytes", "ends the process by signal 6"}},
    {2,
     "p->errors[i * p->n_classes + k] / p->n;",
     "p->errors[i * p->n_classes + k];",
     "",
     {"FAILED   dense", "'classes': classes.bias[0] is"}},
    {2,
     "offset[j / plane]",
     "offset[0]",
     "",
     {"FAILED   dense", "node 0 'input': activation[72] is"}},
    {2, "p->losses[i] / p->n;", "p->losses[i];", "", {"FAILED   dense", "loss is"}},
    {2,
     "p->n = pass->valid",
     "p->n = pass->valid ? batch->n : 0",
     "",
     {"FAILED   dense", "loss is"}},
    {2,
     "p->graph->n_elements, NULL",
     "p->graph->n_elements / 2, NULL",
     "",
     {"FAILED   dense", "the last hooks->final of backward had frontier"}},
    {2,
     "bias[k] = 0.0;",
     "bias[k] = k == 0 ? __builtin_nan(\"\") : 0.0;",
     "",
     {"FAILED   dense", "is nan, should be"}},
    {3,
     "piece, &to, 1);",
     "(struct dpb_piece){piece.begin, piece.n - 1}, &to, 1);",
     "run.workers=2 comm.bucket=1",
     {"FAILED   2 workers, buckets of one element", "pattern check of comm 'sum_all': element"}},
    {3,
     "static const struct dpb_comm_ops ops = {",
     "static dpb_status no_event(void *comm, struct dpb_event **done)\n"
     "{\n    (void)comm, (void)done;\n    return DPB_OK;\n}\n\n"
     "#define dpb_strategy_end no_event\n\nstatic const struct dpb_comm_ops ops = {",
     "run.workers=2 comm.bucket=1",
     {"FAILED   2 workers, buckets of one element", "gives no event `done` by its `end`"}},
    {4,
     "static struct dpb_averaging_rule every_period(const void *given, const struct dpb_comm_args "
     "*args)\n"
     "{\n    const struct options *options = given;\n    (void)args;\n"
     "    return (struct dpb_averaging_rule){",
     "static uint32_t next(const struct dpb_averaging *self, uint64_t round)\n"
     "{\n    (void)round;\n    return (self->comm.base.args.rank + 1) % 3;\n}\n\n"
     "static struct dpb_averaging_rule every_period(const void *given, const struct dpb_comm_args "
     "*args)\n"
     "{\n    const struct options *options = given;\n    (void)args;\n"
     "    return (struct dpb_averaging_rule){.partner = next, ",
     "run.workers=3 comm.bucket=1",
     {"FAILED   3 workers, buckets of one element", "in round 0 the partner of rank "}},
    {5, "value - float_of(halves[i]);", "0;", "", {"FAILED   books", "is sent and"}},
    {5, "sum[i] +=", "sum[i] =", "", {"FAILED   sum", "3 and a message's"}},
    {5,
     "half_of(value);",
     "half_of(value) ^ (__builtin_ia32_rdtsc() >> 8 & 1);",
     "",
     {"FAILED   determinism", "another message or residual"}},
    {5,
     "float value = gradients[i] + residual[i];",
     "float value = isfinite(gradients[i]) ? gradients[i] + residual[i] : 0;",
     "",
     {"FAILED   not finite", "neither sent nor kept so"}},
    {5,
     "bytes != part->n * sizeof(uint16_t))",
     "bytes == 0)",
     "",
     {"FAILED   lengths", "decode ends its process"}},
    {5,
     "bytes != part->n * sizeof(uint16_t))",
     "bytes < part->n * sizeof(uint16_t))",
     "",
     {"FAILED   lengths", "decode takes them"}},
    {5,
     "codec upper_half: rank %u",
     "codec upper_half: %u",
     "",
     {"FAILED   lengths", "not with the codec's name"}},
    {5,
     "    for (uint64_t i = 0; i < part->n; i++)\n        sum[i] +=",
     "    for (uint64_t i = 0; i < part->n + (sum[0] > 8); i++)\n        sum[i] +=",
     "",
     {"FAILED   foreign messages", "at random"}},
};

TEST(test_conform_finds_mistakes)
{
    assert_int_equal(mkdir("mistake", 0777), 0);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const struct mistake *m = &mistakes[i];
        const struct own *plugin = &own[m->plugin];
        struct command command;
        char source[64];
        snprintf(source, sizeof source, "%s_%s.c", plugin->kind, plugin->name);
        char *good = read_text(source), *bad = replaced(good, m->from, m->to);
        write_file(source, bad, strlen(bad));
        build_plugin(plugin, "mistake", "");
        write_file(source, good, strlen(good));
        dpbench_ends(&command, deadline_s, 3, "conform mistake/%s_%s.so %s", plugin->kind,
                     plugin->name, m->settings);
        expect_words(m->to, command.out, m->words);
        EXPECT_WORDS(m->to, command.err, "does not conform");
    }
}

/* A mistake that the suite's own networks do not have (tests/plugins/device_wrong.c). */
TEST(test_conform_finds_wrong_devices)
{
    static const char *const rows[][2] = {
        {"constant", "FAILED   lenet: lenet, fp32: loss is 2.3, should be "},
        {"layer", "FAILED   lenet: lenet, fp32: loss is "},
        {"sample", "FAILED   lenet: lenet, fp32: loss is "},
        {"gradient", "FAILED   lenet: lenet: along a direction of '"},
        {"stops", "FAILED   lenet: lenet: along a direction of 'conv"},
        {"none", "  shown    lenet"},
    };
    struct command command;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dpbench_ends(&command, deadline_s, strcmp(rows[i][0], "none") == 0 ? 0 : 3,
                     "conform %s/tests/plugins/device_wrong.so model.name=lenet device.mistake=%s",
                     build_directory(), rows[i][0]);
        EXPECT_WORDS(rows[i][0], command.out, rows[i][1]);
    }
    dpbench_says(deadline_s, 2, WORDS("device 'wrong' refused every trial"),
                 "conform %s/tests/plugins/device_wrong.so model.name=lenet model.hide=1",
                 build_directory());
}

/* A run tries such a device before it begins, on its own model. */
TEST(test_run_tries_the_device)
{
    static const char run[] = "-c /dev/null run.results= run.steps=2 run.warmup_steps=0 "
                              "run.steady_limit_s=0 run.batch=2 model.name=lenet "
                              "data.name=synthetic device.name=wrong device.threads=1 --json";
    struct command command;
    shell(&command, "mkdir alien && cp '%s/tests/plugins/device_wrong.so' alien",
          build_directory());
    setenv("DPBENCH_PLUGIN_PATH", "alien:.", 1);
    dpbench_ends(&command, deadline_s, 0, "%s", run);
    assert_string_equal(json_text_at(command.json, "verification.device"), "pass");
    dpbench_ends(&command, deadline_s, 3, "%s device.mistake=stops", run);
    assert_string_equal(json_text_at(command.json, "verification.device"), "fail");
    assert_string_equal(json_text_at(command.json, "failure"), "VERIFICATION");
    assert_int_equal(strlen(json_text_at(command.json, "versions.plugins.device.file.crc32")), 10);
    EXPECT_WORDS("stops", command.err, "device 'wrong' (",
                 "does not conform: lenet: ", "run.conform = no leaves the trial out");
    dpbench_ends(&command, deadline_s, 0, "%s device.mistake=stops run.conform=no", run);
    assert_string_equal(json_text_at(command.json, "verification.device"), "skipped");
    dpbench_ends(&command, deadline_s, 0, "%s device.name=reference", run);
    assert_string_equal(json_text_at(command.json, "verification.device"), "not_applicable");
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
}

TEST(test_conform_refuses)
{
    static const char *const rows[][2] = {
        {"", "which plugin? give its file"},
        {"none.so", "No such file"},
        {"rows.csv", "a plugin's file is KIND_NAME.so"},
        {"comm_sum_all.so comm.bucket", "'comm.bucket' is no setting"},
        {"model_perceptron.so --all", "unknown option '--all'"},
        {"model_perceptron.so model.hiden=3", "did you mean 'hidden'"},
        {"data_csv.so data.path=none.csv", "refused every trial"},
        {"device_one_layer.so device.threads=1", "device 'one_layer' has no options"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i][1]), "conform %s", rows[i][0]);
}

TEST_MAIN(set_up, sandbox_teardown)
