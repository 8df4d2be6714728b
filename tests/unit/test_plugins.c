/*
 * test_plugins.c - where plugins are looked for, and what is said of those that do not fit.
 */
#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "lib/says.h"
#include "lib/test.h"
#include "plan/experiment.h"
#include "plugin/plugins.h"
#include "plugin/trial.h"

static char directory[PATH_MAX]; /* of the test's plugins */
static char scratch[PATH_MAX];   /* a directory of this run's own */

/* In place of core's list, which is as long as this machine lacks libraries. */
const struct dpb_plugin_not_built dpb_plugins_not_built[] = {
    {DPB_PLUGIN_DEVICE, "gpu", "a device of that name"},
    {DPB_PLUGIN_COMM, "gpu", "there was no library for it"},
    {DPB_PLUGIN_KINDS, NULL, NULL}};

/* The message of a load that fails as it should: of a name from "x.ini:7". @borrowed until the
 * next. */
static const char *refusal(const char *name, dpb_status expected)
{
    static char text[4096];
    const struct dpb_plugin *plugin = NULL;
    dpb_first_error_clear();
    assert_int_equal(dpb_plugin_load(DPB_PLUGIN_COMM, name, "x.ini:7", &dpb_host, &plugin),
                     expected);
    assert_null(plugin);
    dpb_status status;
    snprintf(text, sizeof text, "%s", dpb_first_error(&status));
    assert_int_equal(status, expected);
    dpb_first_error_clear();
    return text;
}

/* Before other tests open all files: one by its name, and nothing else. */
TEST(test_list_opens_what_was_asked_for)
{
    struct dpb_plugin_row *rows;
    char other[PATH_MAX];
    size_t n;
    assert_int_equal(dpb_plugin_list(&dpb_host, DPB_PLUGIN_ALL_KINDS, "nonesuch", &rows, &n),
                     DPB_OK);
    assert_int_equal(n, 0);
    free(rows);
    assert_int_equal(dpb_plugin_list(&dpb_host, 1u << DPB_PLUGIN_CODEC, "good", &rows, &n), DPB_OK);
    assert_int_equal(n, 0);
    free(rows);
    assert_int_equal(dpb_plugin_list(&dpb_host, DPB_PLUGIN_ALL_KINDS, "good", &rows, &n), DPB_OK);
    assert_int_equal(n, 2); /* the file has two */
    assert_string_equal(rows[0].plugin->name, "good");
    snprintf(other, sizeof other, "%.*s/comm_mutant.so",
             (int)(strrchr(rows[0].path, '/') - rows[0].path), rows[0].path);
    free(rows);
    assert_int_equal(access(other, F_OK), 0);
    assert_null(dlopen(other, RTLD_NOW | RTLD_NOLOAD));
}

TEST(test_refusals)
{
    static const struct {
        const char *name, *parts[3];
    } expected[] = {
        {"bad_magic", {"magic is 0x1234", "0x3147554c50425044", "no dpbench plugin"}},
        {"bad_name", {"name is 'other_name'", "'bad_name'", "file name"}},
        {"bad_null", {"no adapter number 7: plug one in", "", ""}},
        {"bad_silent", {"returned NULL", "no reason", ""}},
        {"bad_entry", {"exports no dpb_plugin_entry", "", ""}},
    };
    char path[PATH_MAX + 64];
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const char *text = refusal(expected[i].name, DPB_UNSUPPORTED);
        snprintf(path, sizeof path, "%s/comm_%s.so", directory, expected[i].name);
        expect_part(text, path);
        for (size_t j = 0; j < 3; j++)
            expect_part(text, expected[i].parts[j]);
    }
    /* The begin of a name, and one that is none, have a neighbour, too. */
    expect_part(refusal("goo", DPB_USAGE), "did you mean 'good'?");
    expect_part(refusal("go-od", DPB_USAGE), "match [a-z0-9_]+; did you mean 'good'?");
    /* And under the name that it gives itself. */
    expect_part(refusal("other_name", DPB_USAGE), "comm_bad_name.so: name is 'other_name'");
}

static const struct dpb_plugin *load(dpb_plugin_kind kind, const char *name)
{
    const struct dpb_plugin *plugin;
    assert_int_equal(dpb_plugin_load(kind, name, NULL, &dpb_host, &plugin), DPB_OK);
    return plugin;
}

#define TEXT(x) #x
#define NUMBER(macro) TEXT(macro)

/* A copy of `good` with CHANGE, which makes it wrong in one thing, is refused with these words. */
#define EXPECT_WRONG(CHANGE, ...)                             \
    do {                                                      \
        struct dpb_plugin wrong = *good;                      \
        CHANGE;                                               \
        char reason[DPB_REASON_BYTES] = "";                   \
        assert_false(dpb_plugin_check(&wrong, kind, reason)); \
        expect_words(#CHANGE, reason, WORDS(__VA_ARGS__));    \
    } while (0)

static int n_asked; /* in this process */

static const char *is_missing(void)
{
    n_asked++;
    return "there is no card";
}

static const char *is_there(void)
{
    return NULL;
}

static const char *dies(void)
{
    (void)raise(SIGKILL);
    return NULL;
}

static void hangs(const void *context, void *answer)
{
    (void)context, (void)answer;
    pause();
}

/* What starts a driver does so in a child, and costs its limit at most. */
TEST(test_missing_is_asked_in_a_child)
{
    const char *(*const hooks[])(void) = {is_missing, is_there, dies, NULL};
    static const char *const words[] = {"there is no card", NULL,
                                        "asking for its driver ends the process: signal 9 (Killed)",
                                        NULL};
    char text[DPB_REASON_BYTES];
    for (size_t i = 0; i < sizeof hooks / sizeof *hooks; i++) {
        const struct dpb_plugin plugin = {.missing = hooks[i]};
        const char *missing = dpb_trial_missing(&plugin, text);
        if (!words[i])
            assert_null(missing);
        else
            assert_string_equal(missing, words[i]);
    }
    assert_int_equal(n_asked, 0);
    const struct dpb_trial trial = {"asking", 20000000, hangs, NULL};
    assert_false(dpb_trial_ask(&trial, NULL, 0, text));
    assert_string_equal(text, "asking takes more than 0.02 s");
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
}

static dpb_status share(const void *options, uint32_t index, struct dpb_sharing *sharing)
{
    n_asked++;
    if (options)
        return dpb_fail(DPB_USAGE, "place %u is taken", index);
    *sharing = (struct dpb_sharing){true, "MPS"};
    return DPB_OK;
}

TEST(test_sharing_is_asked_in_a_child)
{
    const struct dpb_device_ops ops = {.sharing = share}, none = {.sharing = NULL};
    const struct dpb_plugin device = {.ops = &ops}, other = {.ops = &none};
    struct dpb_sharing sharing;
    dpb_first_error_clear();
    assert_int_equal(dpb_trial_sharing(&device, NULL, &sharing), DPB_OK);
    assert_true(sharing.known);
    assert_string_equal(sharing.service, "MPS");
    assert_int_equal(dpb_trial_sharing(&other, &ops, &sharing), DPB_OK);
    assert_false(sharing.known);
    assert_int_equal(dpb_trial_sharing(&device, &ops, &sharing), DPB_USAGE);
    assert_string_equal(dpb_first_error(NULL), "place 0 is taken");
    assert_int_equal(n_asked, 0);
    dpb_first_error_clear();
}

TEST(test_wrong_structs)
{
    static const struct dpb_option behind[] = {{.name = "behind", .type = DPB_OPT_INT, .offset = 8},
                                               {.name = NULL}};
    const dpb_plugin_kind kind = DPB_PLUGIN_COMM;
    const struct dpb_plugin *good = load(kind, "good_second");
    struct dpb_comm_ops ops = *(const struct dpb_comm_ops *)good->ops;
    char sizes[128];
    ops.publish = NULL;
    EXPECT_WRONG(wrong.abi++, "abi is ", "here it is " NUMBER(DPB_ABI) ":", "rebuild");
    EXPECT_WRONG(wrong.kind = DPB_PLUGIN_DATA, "kind is 1 (data)", "should be 3 (comm)",
                 "data_NAME.so");
    EXPECT_WRONG(wrong.name = "Bad-Name", "name is 'Bad-Name'", "[a-z0-9_]+");
    EXPECT_WRONG(wrong.version = NULL, "version of 'good_second' is NULL");
    EXPECT_WRONG(wrong.capabilities = UINT64_C(1) << 40, "capabilities of 'good_second'",
                 "0x10000000000", "a comm does not have");
    EXPECT_WRONG(wrong.capabilities = DPB_COMM_ALONE | DPB_COMM_LAUNCHER,
                 "DPB_COMM_ALONE and DPB_COMM_LAUNCHER", "exclude each other");
    EXPECT_WRONG(wrong.capabilities = DPB_COMM_SERVERS, "hook serve", "DPB_COMM_SERVERS",
                 "missing");
    EXPECT_WRONG(wrong.ops = &ops, "hook publish", "'good_second'", "missing");
    EXPECT_WRONG(wrong.next = &wrong, "circle");
    EXPECT_WRONG((wrong.options = behind, wrong.options_size = 8),
                 "option 'behind' of 'good_second'", "bytes 8 to 16", "options_size = 8");
    snprintf(sizes, sizeof sizes, "struct_size is %zu, here it is %zu", sizeof *good + 8,
             sizeof *good);
    EXPECT_WRONG(wrong.struct_size += 8, sizes);
    snprintf(sizes, sizeof sizes, "ops_size is %zu, here it is %zu", sizeof ops - 8, sizeof ops);
    EXPECT_WRONG(wrong.ops_size -= 8, sizes);
}

/* The struct begins as it should, but not its table. */
TEST(test_codec_without_a_row)
{
    static const struct dpb_option rows[] = {DPB_CODEC_FEEDBACK_ROW, {.name = NULL}};
    const dpb_plugin_kind kind = DPB_PLUGIN_CODEC;
    const struct dpb_plugin *good = load(kind, "mutant");
    EXPECT_WRONG(wrong.options = rows, "options of 'mutant' do not begin");
}

static uint64_t count_of(const void *options, const struct dpb_codec_part *part)
{
    (void)options;
    return part->n;
}

/* A codec of two rounds sets three hooks more; with some of them it is none. */
TEST(test_rounds)
{
    const struct dpb_plugin *mutant = load(DPB_PLUGIN_CODEC, "mutant");
    const struct dpb_codec_ops *one = mutant->ops;
    struct dpb_codec_ops some[2] = {*one, *one};
    some[0].state = count_of;
    some[1].bytes = count_of;
    some[1].state = count_of;
    for (size_t i = 0; i < 2; i++) {
        char reason[DPB_REASON_BYTES] = "";
        assert_true(dpb_plugin_check_hooks(mutant, one, reason));
        assert_false(dpb_plugin_check_hooks(mutant, &some[i], reason));
        expect_part(reason, "hooks state, bytes and finish of 'mutant'");
    }
}

TEST(test_load)
{
    const struct dpb_plugin *good = load(DPB_PLUGIN_COMM, "good");
    void *comm;
    dpb_status status;
    assert_ptr_equal(load(DPB_PLUGIN_COMM, "good"), good);
    assert_string_equal(good->name, "good");
    /* One that lives in another's shared object; those that are refused on the way are no error. */
    dpb_first_error_clear();
    assert_ptr_equal(load(DPB_PLUGIN_COMM, "good_second"), good->next);
    assert_string_equal(dpb_first_error(&status), "");
    /* After the entry, the host's `fail` is the process's. */
    const struct dpb_comm_ops *ops = good->ops;
    assert_int_equal(ops->open(NULL, NULL, &comm), DPB_IO);
    assert_string_equal(dpb_first_error(&status), "failed in open");
    dpb_first_error_clear();
}

/* Where in the text this directory's file is said to be missing. */
static const char *find_missing(const char *text, const char *where)
{
    char part[PATH_MAX + 64];
    snprintf(part, sizeof part, "%s/comm_goood.so: No such file", where);
    expect_part(text, part);
    return strstr(text, part);
}

TEST(test_unknown)
{
    char path[2 * PATH_MAX], exe[PATH_MAX - 32], own[PATH_MAX], installed[PATH_MAX], real[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", exe, sizeof exe - 1);
    assert_true(length > 0);
    exe[length] = '\0';
    *strrchr(exe, '/') = '\0';
    snprintf(own, sizeof own, "%s/plugins", exe);
    snprintf(installed, sizeof installed, "%s/../lib/dpbench", exe);
    snprintf(path, sizeof path, "%s:%s", scratch, directory);
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    const char *text = refusal("goood", DPB_USAGE);
    expect_part(text, "x.ini:7: unknown comm 'goood'; did you mean 'good'?");
    /* Every place in its order, each with its own reason. */
    assert_true(find_missing(text, scratch) < find_missing(text, directory));
    assert_true(find_missing(text, directory) < find_missing(text, installed));
    /* A place that is there already is not looked at again. */
    if (realpath(own, real) == NULL || strcmp(real, directory) != 0) {
        assert_true(find_missing(text, directory) < find_missing(text, own));
        assert_true(find_missing(text, own) < find_missing(text, installed));
    }
    expect_part(text, "comm_bad_magic.so: magic is 0x1234");
    text = refusal("gpu", DPB_USAGE);
    expect_part(text, "x.ini:7: comm 'gpu' was not built: there was no library for it; tried:");
    expect_part(refusal("../evil", DPB_USAGE), "[a-z0-9_]+");
    expect_part(refusal("", DPB_USAGE), "[a-z0-9_]+");
}

static void copy_file(const char *from, const char *to)
{
    char bytes[4096];
    size_t n;
    FILE *source = fopen(from, "rb"), *target = fopen(to, "wb");
    assert_true(source != NULL && target != NULL);
    while ((n = fread(bytes, 1, sizeof bytes, source)) > 0)
        assert_int_equal(fwrite(bytes, 1, n, target), n);
    fclose(source);
    assert_int_equal(fclose(target), 0);
}

/* The first directory of the path wins; a broken file there is refused, not passed over. */
TEST(test_order)
{
    char from[PATH_MAX + 64], to[PATH_MAX + 64], path[3 * PATH_MAX + 64];
    Dl_info info;
    snprintf(from, sizeof from, "%s/comm_good.so", directory);
    snprintf(to, sizeof to, "%s/comm_good.so", scratch);
    copy_file(from, to);
    snprintf(path, sizeof path, "/does/not/exist:%s:%s:%s", scratch, scratch, directory);
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    dpb_plugins_detach();
    const struct dpb_plugin *plugin = load(DPB_PLUGIN_COMM, "good");
    assert_true(dladdr(plugin, &info) != 0);
    assert_string_equal(info.dli_fname, to);
    /* Overwritten in place, it stays what it was, to the end of the process. */
    assert_int_equal(truncate(to, 0), 0);
    assert_string_equal(plugin->name, "good");
    snprintf(to, sizeof to, "%s/comm_bad_file.so", scratch);
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    fputs("this is no shared object", file);
    fclose(file);
    const char *text = refusal("bad_file", DPB_UNSUPPORTED);
    expect_part(text, to);
    expect_part(text, ".so: file too short");
}

/* A path of many directories is searched to its end. */
TEST(test_long_path)
{
    enum { DIRECTORIES = 40 };
    char path[PATH_MAX + DIRECTORIES * 32];
    size_t length = 0;
    for (int i = 0; i < DIRECTORIES; i++)
        length += (size_t)snprintf(path + length, sizeof path - length, "/does/not/exist/%d:", i);
    snprintf(path + length, sizeof path - length, "%s", directory);
    char *before = strdup(getenv("DPBENCH_PLUGIN_PATH"));
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
    load(DPB_PLUGIN_COMM, "good");
    setenv("DPBENCH_PLUGIN_PATH", before, 1);
    free(before);
}

TEST(test_list)
{
    struct dpb_plugin_row *rows;
    size_t n, n_good = 0, n_hidden = 0, n_null = 0;
    dpb_status status;
    dpb_first_error_clear();
    assert_int_equal(dpb_plugin_list(&dpb_host, DPB_PLUGIN_ALL_KINDS, NULL, &rows, &n), DPB_OK);
    for (size_t i = 0; i < n; i++) {
        assert_non_null(rows[i].path);
        assert_true((rows[i].plugin == NULL) == (rows[i].reason != NULL));
        if (rows[i].plugin != NULL && strcmp(rows[i].plugin->name, "good") == 0) {
            expect_part(rows[i].path, scratch);
            n_good++;
        }
        if (strstr(rows[i].path, "comm_bad_null.so") != NULL) {
            assert_string_equal(rows[i].reason, "no adapter number 7: plug one in");
            n_null++;
        }
        if (rows[i].reason != NULL && strstr(rows[i].reason, "is found first in") != NULL)
            n_hidden++;
        if (i > 0)
            assert_true(rows[i - 1].kind <= rows[i].kind);
    }
    assert_int_equal(n_good, 1);
    assert_int_equal(n_null, 1);
    assert_int_equal(n_hidden, 2); /* both plugins of the second comm_good.so */
    assert_string_equal(dpb_first_error(&status), "");
    free(rows);
}

static int set_up(void **state)
{
    const char *build = getenv("DPB_BUILD");
    char relative[PATH_MAX];
    (void)state;
    snprintf(relative, sizeof relative, "%s/tests/plugins", build != NULL ? build : "build");
    snprintf(scratch, sizeof scratch, "/tmp/dpbench-test-plugins-XXXXXX");
    if (realpath(relative, directory) == NULL || mkdtemp(scratch) == NULL)
        return -1;
    return setenv("DPBENCH_PLUGIN_PATH", directory, 1);
}

static int tear_down(void **state)
{
    static const char *const files[] = {"comm_good.so", "comm_bad_file.so"};
    char path[PATH_MAX + 64];
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", scratch, files[i]);
        unlink(path);
    }
    return rmdir(scratch);
}

TEST_MAIN(set_up, tear_down)
