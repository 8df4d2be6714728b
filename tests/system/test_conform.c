/*
 * test_conform.c - dpbench conform on data and models of ids of tokens: dpbench's own pass, and
 * copies of them with one mistake each do not.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60.0;
static char *root;

static const char data_settings[] = "data.path=text.txt";
static const char model_settings[] =
    "model.layers=2 model.width=12 model.heads=3 model.context=10 model.tied=no";

static int set_up(void **state)
{
    root = realpath(".", NULL);
    int result = sandbox_setup(state);
    assert_non_null(root);
    sandbox_write("text.txt", "%0*d", 3000, 7);
    return result;
}

static int tear_down(void **state)
{
    free(root);
    return sandbox_teardown(state);
}

/* ---- what conforms ------------------------------------------------------------------------- */

TEST(test_own_plugins)
{
    static const struct {
        const char *plugin, *settings, *words[6];
    } rows[] = {
        {"data_tokens",
         data_settings,
         {"training, epoch 0: 56 samples", "test, epoch 0: 6 samples",
          "shown    bounds; determinism; threads; another worker",
          "shown    empty; cut in half; of random bytes", "16 shown, 0 refused, 0 failed"}},
        {"model_gpt",
         model_settings,
         {"counts   1 x 1 x 10, 50257 classes", "gradients on 1 x 1 x 10, batch 2",
          "other classes and lengths, as described", "model gpt: 4 shown, 0 refused, 0 failed",
          "model gpt2: left out: it has no options"}},
        {"data_synthetic", "", {"13 shown, 0 refused, 0 failed"}}, /* takes the request of images */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0, "conform %s/plugins/%s.so %s", build_directory(),
                     rows[i].plugin, rows[i].settings);
        expect_words(rows[i].plugin, command.out, rows[i].words);
    }
}

/* The reason of the request that the source could serve, not of the one for images. */
TEST(test_refused)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 2, "conform %s/plugins/data_tokens.so", build_directory());
    EXPECT_WORDS("no path", command.out, "refused  info: data.path is empty");
    assert_null(strstr(command.out, "reads images"));
    dpbench_ends(&command, deadline_s, 2, "conform %s/plugins/model_lenet.so model.layers=2",
                 build_directory());
    EXPECT_WORDS("no options", command.err, "'lenet' has no options; leave model.layers out");
}

/* ---- what does not ------------------------------------------------------------------------- */

static const struct mistake {
    const char *plugin, *from, *to, *words[4];
} mistakes[] = {
    {"data/tokens",
     "shape = {1, 1, source->length}",
     "shape = {1, 2, source->length / 2}",
     {"FAILED   info", "samples of ids are 1 x 2 x 24; 1 x 1 x length are wanted"}},
    {"data/tokens",
     ".type = DPB_INT32",
     ".type = DPB_FP32",
     {"FAILED   info", "type is fp32; the request is of ids (int32)"}},
    {"data/tokens",
     "DPB_THEN(status, read_ids(source, file, fd, first + 1",
     "((int32_t *)samples)[at + 47] = 256;\n        DPB_THEN(status, read_ids(source, file, fd, "
     "first + 1",
     {"FAILED   bounds", "training sample 0: id 256, of 256 classes"}},
    {"data/tokens",
     "close(fd);\n        DPB_TRY(status);",
     "close(fd);\n        labels[at + 47] = -1;\n        DPB_TRY(status);",
     {"FAILED   bounds", "training sample 0: label -1, of 256 classes"}},
    {"data/tokens",
     "first + 1, labels + at)",
     "first + 1, labels + at + 1)",
     {"FAILED   bounds", "wrote outside of their 192 bytes or 48 labels"}},
    {"data/tokens",
     "close(fd);\n        DPB_TRY(status);",
     "close(fd);\n        labels[at + 47] = n > 1;\n        DPB_TRY(status);",
     {"shown    bounds", "FAILED   determinism", "is another one in another order, in one call"}},
    {"models/gpt",
     ".input = {1, 1, (uint32_t)of->context}",
     ".input = {1, 2, (uint32_t)of->context}",
     {"FAILED   description", "ids of tokens in an input of 1 x 2 x 10; 1 x 1 x length"}},
    {"models/gpt",
     ".rows = (uint32_t)of->context",
     ".rows = g->shape(b, g->input(b)).w < 10 ? 1 : 10",
     {"FAILED   other classes and lengths", "has 1 rows for 6 positions"}},
    {"models/gpt",
     "{DPB_INITIAL_NORMAL, stddev}",
     "{DPB_INITIAL_NORMAL, 0 * stddev}",
     {"FAILED   gradients", "is 0 in every element: the loss does not depend on it"}},
};

/* A plugin's file of the tree with one mistake, in mistake/. */
static void build_wrong(const struct mistake *m, const char *kind, const char *name)
{
    struct command command;
    char *source, *at, *line, *bad;
    assert_true(asprintf(&line, "cat %s/plugins/%s.c", root, m->plugin) > 0);
    own_memory(line, free);
    command_run(&command, deadline_s, WORDS("/bin/sh", "-c", line), NULL);
    source = command.out;
    at = strstr(source, m->from);
    if (!at)
        fail_msg("'%s' is not in %s.c", m->from, m->plugin);
    assert_true(
        asprintf(&bad, "%.*s%s%s", (int)(at - source), source, m->to, at + strlen(m->from)) > 0);
    own_memory(bad, free);
    write_file("wrong.c", bad, strlen(bad));
    assert_true(
        asprintf(&line,
                 "cc -std=c11 -shared -fPIC -D_GNU_SOURCE -DDPB_VERSION='\"1\"' "
                 "-I%s/core/include -I%s/plugins -I%s/plugins/models -o mistake/%s_%s.so wrong.c "
                 "-lm",
                 root, root, root, kind, name) > 0);
    own_memory(line, free);
    command_run(&command, deadline_s, WORDS("/bin/sh", "-c", line), NULL);
    if (command.exit_code != 0)
        fail_msg("%s: %s", m->to, command.err);
}

TEST(test_mistakes)
{
    assert_int_equal(mkdir("mistake", 0777), 0);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        const struct mistake *m = &mistakes[i];
        const bool data = strncmp(m->plugin, "data/", 5) == 0;
        const char *kind = data ? "data" : "model", *name = strchr(m->plugin, '/') + 1;
        struct command command;
        build_wrong(m, kind, name);
        dpbench_ends(&command, deadline_s, 3, "conform mistake/%s_%s.so %s", kind, name,
                     data ? data_settings : model_settings);
        expect_words(m->to, command.out, m->words);
        EXPECT_WORDS(m->to, command.err, "does not conform");
    }
}

TEST_MAIN(set_up, tear_down)
