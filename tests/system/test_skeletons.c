/*
 * test_skeletons.c - plugins from outside the tree: built from the public headers alone, by no more
 * than a compiler, they load, train and change what is computed. One that does not fit is refused.
 */
#include <dirent.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "lib/command.h"
#include "lib/sandbox.h"

#define BUILD_PLUGIN "cc -std=c11 -Wall -Wextra -Werror -shared -fPIC -Iinclude"

static const double deadline_s = 60.0;
static const char *const kinds[] = {"model", "data", "device", "comm"};
enum { KINDS = 4 };

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
    return text;
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
    command_run(command, deadline_s, (const char *const[]){"/bin/sh", "-c", line, NULL}, NULL);
}

/* The shell's command ends well and says nothing. */
static void expect_silent(const char *line)
{
    struct command command;
    shell(&command, "%s", line);
    if (command.exit_code != 0 || command.out[0] || command.err[0])
        fail_msg("%s: exit %d\n%s%s", line, command.exit_code, command.out, command.err);
    command_free(&command);
}

/* The headers and the skeletons lie here, and nothing else of dpbench. */
static int set_up(void **state)
{
    char *root = realpath(".", NULL), line[4096];
    int result = sandbox_setup(state);
    assert_true(snprintf(line, sizeof line,
                         "mkdir include && cp -R '%s/core/include/dpbench' include/ && "
                         "cp '%s'/tests/skeletons/*.c .",
                         root, root) < (int)sizeof line);
    free(root);
    expect_silent(line);
    for (size_t kind = 0; kind < KINDS; kind++) {
        snprintf(line, sizeof line, BUILD_PLUGIN " -o %s_skeleton.so %s_skeleton.c", kinds[kind],
                 kinds[kind]);
        expect_silent(line);
    }
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
    sandbox_write("base.ini", "[run]\nresults =\nsteps = 8\nwarmup_steps = 1\nsteady_limit_s = 0\n"
                              "batch = 8\nprecision = fp64\n"
                              "[model]\nname = skeleton\n[data]\nname = skeleton\n"
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
    struct command command;
    dpbench(&command, deadline_s, "-c base.ini %s", arguments);
    if (command.exit_code != 2)
        fail_msg("%s: exit %d: %s", arguments, command.exit_code, command.err);
    for (; *words; words++)
        if (!strstr(command.err, *words))
            fail_msg("%s: '%s' is not in '%s'", arguments, *words, command.err);
    command_free(&command);
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

/* A header includes all that it needs, and C++ can read it. */
static void test_headers_stand_alone(void **state)
{
    char line[512];
    size_t n = 0;
    DIR *headers = opendir("include/dpbench");
    (void)state;
    assert_non_null(headers);
    for (struct dirent *entry; (entry = readdir(headers)); n++) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(line, sizeof line,
                 "cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -Iinclude -x c "
                 "include/dpbench/%s",
                 entry->d_name);
        expect_silent(line);
        snprintf(line, sizeof line,
                 "c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -Iinclude -x c++ - <<'END'\n"
                 "#include \"dpbench/%s\"\nEND",
                 entry->d_name);
        expect_silent(line);
    }
    assert_true(n > 10);
    closedir(headers);
}

static void test_listed(void **state)
{
    struct command command;
    size_t n = 0, i;
    const json_t *row;
    (void)state;
    dpbench(&command, deadline_s, "plugins --json");
    json_array_foreach(json_at(command.json, "plugins"), i, row)
    {
        if (strcmp(json_text_at(row, "name"), "skeleton") != 0)
            continue;
        assert_true(json_is_true(json_at(row, "usable")));
        assert_non_null(strstr(json_text_at(row, "path"), "_skeleton.so"));
        n++;
    }
    assert_int_equal(n, KINDS);
    command_free(&command);
}

/* All four at once, with any number of workers, are the training that the real ones do. */
static void test_all_train(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 4; workers++) {
        struct command own, real;
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "run.workers=%d run.batch=6 run.prove=yes comm.bucket=64 comm.name=skeleton "
                 "device.name=skeleton",
                 workers);
        train(&own, arguments);
        snprintf(arguments, sizeof arguments, "run.workers=%d run.batch=6 comm.name=shm", workers);
        train(&real, arguments);
        assert_true(same_losses(&own, &real));
        assert_true(loss_at(&own, 8) < loss_at(&own, 0));
        assert_string_equal(json_text_at(own.json, "strategy.consistency"), "synchronous");
        assert_string_equal(json_text_at(own.json, "verification.pattern"), "pass");
        assert_string_equal(json_text_at(own.json, "verification.exchange"), "pass");
        assert_string_equal(json_text_at(own.json, "verification.replicas"), "pass");
        assert_int_equal(json_number_at(own.json, "model.parameters"), 16 * 3 + 3);
        assert_int_equal(json_number_at(own.json, "model.macs_per_sample"), 16 * 3);
        /* Every worker reads the others' gradients: 48 weights, 3 biases and what aligns them. */
        assert_int_equal(json_number_at(own.json, "comm.bytes_per_step"),
                         workers * (workers - 1) * 64 * 8);
        command_free(&own);
        command_free(&real);
    }
}

static void test_change_what_is_computed(void **state)
{
    struct command plain, shifted, hidden;
    (void)state;
    train(&plain, "");
    train(&shifted, "data.shift=1");
    train(&hidden, "model.hidden=5");
    assert_false(same_losses(&plain, &shifted));
    assert_false(same_losses(&plain, &hidden));
    assert_int_equal(json_number_at(hidden.json, "model.parameters"), 16 * 5 + 5 + 5 * 3 + 3);
    assert_int_equal(json_number_at(plain.json, "eval.0.samples"), 32);
    assert_string_equal(json_text_at(hidden.json, "config.model.hidden.origin"), "command line");
    assert_string_equal(json_text_at(plain.json, "config.model.hidden.origin"), "default");
    command_free(&plain);
    command_free(&shifted);
    command_free(&hidden);
}

static void test_refuse_what_they_cannot(void **state)
{
    (void)state;
    expect_refused("device.name=skeleton model.hidden=5",
                   (const char *const[]){"device 'skeleton' computes one dense layer",
                                         "model 'skeleton'", "device.name = reference", NULL});
    expect_refused("device.name=skeleton run.precision=fp32",
                   (const char *const[]){"'skeleton' does not compute in fp32", "fp64", NULL});
    expect_refused("model.image=5", (const char *const[]){"takes images of 4 x 4 only",
                                                          "leave model.image out", NULL});
    expect_refused("data.name=synthetic model.image=4 model.hidden=-1",
                   (const char *const[]){"model.hidden", "0 to 4096", NULL});
    expect_refused("model.nclass=4",
                   (const char *const[]){"model.nclass = 4, but data 'skeleton' has 3", NULL});
    expect_refused("comm.name=skeleton run.servers=1 run.workers=2",
                   (const char *const[]){"comm 'skeleton' has no servers", NULL});
}

/* ---- plugins that do not fit --------------------------------------------------------------- */

/* `text` with the first `from` replaced. @owned. */
static char *replaced(const char *text, const char *from, const char *to)
{
    char *result;
    const char *at = strstr(text, from);
    if (!at)
        fail_msg("'%s' is not in the file", from);
    assert_true(asprintf(&result, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) > 0);
    return result;
}

/* A skeleton or a header with one thing changed gives a plugin that is refused by what it is. */
static const struct misfit {
    const char *kind, *file, *from, *to; /* file: what is changed */
    const char *words[3];
} misfits[] = {
    {"model", "model_skeleton.c", ".build = build,", "", {"hook build", "'skeleton'", "missing"}},
    {"data", "data_skeleton.c", ".fetch = fetch,", "", {"hook fetch", "'skeleton'", "missing"}},
    {"device",
     "device_skeleton.c",
     ".forward = forward,",
     "",
     {"hook forward", "'skeleton'", "missing"}},
    {"comm", "comm_skeleton.c", ".end = end,", "", {"hook end", "'skeleton'", "missing"}},
    {"comm", "comm_skeleton.c", "HEAD(COMM", "HEAD(DATA", {"kind is 1 (data)", "3 (comm)"}},
    {"model",
     "include/dpbench/plugin.h",
     "ABI_MAJOR 1",
     "ABI_MAJOR 2",
     {"abi_major is 2, here it is 1", "rebuild"}},
    {"data",
     "include/dpbench/plugin.h",
     "0x3147554c50425044",
     "0x3147554c50425045",
     {"magic is 0x3147554c50425045", "no dpbench plugin"}},
    {"device",
     "include/dpbench/plugin.h",
     "const char *const *thread_variables;",
     "const char *const *thread_variables; int more[4];",
     {"struct_size is ", "here it is ", "rebuild"}},
    {"comm",
     "include/dpbench/comm.h",
     "dpb_status (*serve)(void *comm);",
     "dpb_status (*serve)(void *comm); void (*more)(void);",
     {"ops_size is ", "here it is ", "rebuild"}},
};

static void test_misfits_are_refused(void **state)
{
    (void)state;
    assert_int_equal(mkdir("misfit", 0777), 0);
    setenv("DPBENCH_PLUGIN_PATH", "misfit:.", 1);
    for (size_t i = 0; i < sizeof misfits / sizeof *misfits; i++) {
        const struct misfit *m = &misfits[i];
        char line[512];
        char *good = read_text(m->file), *bad = replaced(good, m->from, m->to);
        write_file(m->file, bad, strlen(bad));
        snprintf(line, sizeof line,
                 BUILD_PLUGIN " -Wno-unused-function -o misfit/%s_skeleton.so %s_skeleton.c",
                 m->kind, m->kind);
        expect_silent(line);
        write_file(m->file, good, strlen(good));
        snprintf(line, sizeof line, "misfit/%s_skeleton.so: ", m->kind);
        expect_refused("comm.name=skeleton device.name=skeleton",
                       (const char *const[]){line, m->words[0], m->words[1], m->words[2], NULL});
        line[strlen(line) - 2] = '\0';
        unlink(line);
        free(good);
        free(bad);
    }
    setenv("DPBENCH_PLUGIN_PATH", ".", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headers_stand_alone),
        cmocka_unit_test(test_listed),
        cmocka_unit_test(test_all_train),
        cmocka_unit_test(test_change_what_is_computed),
        cmocka_unit_test(test_refuse_what_they_cannot),
        cmocka_unit_test(test_misfits_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, sandbox_teardown);
}
