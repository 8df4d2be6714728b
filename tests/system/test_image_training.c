/* needs: jpeg */
/*
 * test_image_training.c - training on directories of JPEG files: the same losses whatever the
 * number of threads and the way files are kept, and damage reported in the result.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jpeg_files.h"
#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/test.h"

enum { IMAGES = 24, TESTS = 6, STEPS = 7 };

static const double deadline_s = 120.0;

static int setup(void **state)
{
    static const char *const parts[] = {"set",         "set/train",  "set/train/a", "set/train/b",
                                        "set/train/c", "set/val",    "set/val/a",   "set/val/b",
                                        "set/val/c",   "with-damage"};
    if (sandbox_setup(state) != 0)
        return -1;
    sandbox_write("empty.ini", "%s", "");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        mkdir(parts[i], 0777);
    for (uint32_t i = 0; i < IMAGES + TESTS; i++) {
        char path[64];
        snprintf(path, sizeof path, "set/%s/%c/%u.jpg", i < IMAGES ? "train" : "val",
                 (char)('a' + i % 3), i);
        put_picture(path, picture_gradient(20 + 3 * i, 70 - 2 * i),
                    (struct jpeg_form){.quality = 80, .progressive = i % 2 == 0});
    }
    return 0;
}

/* Two workers, 8 images a step. */
static void run(struct command *command, const char *set, const char *more)
{
    dpbench(command, deadline_s,
            "-c empty.ini --json run.results=results run.workers=2 run.steps=%d run.batch=4 "
            "run.warmup_steps=0 run.steady_limit_s=0 run.precision=fp64 model.name=tiny_bn "
            "device.name=reference device.threads=1 optimizer.learning_rate=0.1 "
            "data.name=image_folder data.path=%s %s",
            STEPS, set, more);
}

static void train(struct command *command, const char *set, const char *more)
{
    run(command, set, more);
    if (command->exit_code != 0 || !command->json)
        fail_msg("%s: exit %d\n%s", more, command->exit_code, command->err);
}

static void expect_same_losses(const struct command *a, const struct command *b, const char *title)
{
    for (int step = 0; step < STEPS; step++) {
        char path[32];
        snprintf(path, sizeof path, "loss.%d", step);
        double x = json_number_at(a->json, path), y = json_number_at(b->json, path);
        if (!(x == y))
            fail_msg("%s: loss of step %d: %.17g and %.17g", title, step, x, y);
    }
    double x = json_number_at(a->json, "eval.0.loss"), y = json_number_at(b->json, "eval.0.loss");
    if (!(x == y))
        fail_msg("%s: loss of evaluation: %.17g and %.17g", title, x, y);
}

TEST(test_threads_and_stores_give_the_same_losses)
{
    static const char *const ways[] = {
        "data.threads=1",
        "data.threads=2 data.preload=memory",
        "data.threads=3 data.preload=file data.shard_file=set.pack",
        "data.threads=0 data.preload=file data.shard_file=set.pack",
        "data.preload=memory comm.name=ps_cpu run.servers=1",
    };
    struct command first, other;
    train(&first, "set", "eval.final=yes comm.name=shm data.threads=0");
    assert_int_equal(json_number_at(first.json, "ranks.0.data.skipped_samples"), 0);
    assert_true(json_number_at(first.json, "ranks.1.data.bytes_read") > 0);
    assert_true(json_number_at(first.json, "ranks.1.data.bytes_decoded") > 0);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char more[256];
        bool comm = strstr(ways[i], "comm.name");
        snprintf(more, sizeof more, "eval.final=yes %s %s", comm ? "" : "comm.name=shm", ways[i]);
        train(&other, "set", more);
        expect_same_losses(&first, &other, ways[i]);
    }
    train(&other, "set", "eval.final=yes comm.name=shm run.seed=5");
    assert_true(json_number_at(first.json, "loss.0") != json_number_at(other.json, "loss.0"));
}

TEST(test_shards_give_the_same_losses)
{
    struct command first, other;
    train(&first, "set", "eval.final=yes comm.name=shm data.shard=yes data.threads=0");
    train(&other, "set", "eval.final=yes comm.name=shm data.shard=yes data.preload=memory");
    expect_same_losses(&first, &other, "shards");
    for (int i = 0; i < 2; i++) { /* the first writes them */
        train(&other, "set",
              "eval.final=yes comm.name=shm data.shard=yes data.preload=shard data.shard_file=own");
        expect_same_losses(&first, &other, "shards of their own");
        assert_true(access("own.0-of-2", F_OK) == 0 && access("own.1-of-2", F_OK) == 0);
    }
}

TEST(test_damage_is_in_the_result)
{
    struct command command;
    assert_int_equal(system("cp -r set/. with-damage; truncate -s 200 with-damage/train/b/10.jpg"),
                     0);
    train(&command, "with-damage", "comm.name=shm");
    assert_int_equal(json_number_at(command.json, "ranks.0.data.skipped_samples") +
                             json_number_at(command.json, "ranks.1.data.skipped_samples") >=
                         1,
                     1);
    const json_t *warnings = json_at(command.json, "warnings"), *warning;
    bool named = false;
    size_t i;
    json_array_foreach(warnings, i, warning)
    {
        named |= strcmp(json_text_at(warning, "code"), "unreadable_image") == 0 &&
                 strstr(json_text_at(warning, "text"), "train/b/10.jpg: truncated");
    }
    assert_true(named);

    run(&command, "with-damage", "comm.name=shm data.max_corrupt=0");
    assert_int_equal(command.exit_code, 2);
    assert_non_null(strstr(command.err, "1 of the 24 images in train cannot be read"));
    assert_non_null(strstr(command.err, "train/b/10.jpg: truncated"));
}

/* A check reads no more than it must, and says what a run would. */
TEST(test_check)
{
    static const char set[] = "model.name=tiny_bn data.name=image_folder data.path=set run.steps=1 "
                              "run.batch=4 device.name=reference";
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 "check -c empty.ini %s data.preload=file data.shard_file=check.pack", set);
    assert_int_equal(access("check.pack", F_OK), -1);
    dpbench(&command, deadline_s, "check -c empty.ini %s model.name=lenet", set);
    assert_int_equal(command.exit_code, 0); /* any image, any channels */
    dpbench_says(deadline_s, 2, WORDS("set/validation: this directory cannot be opened"),
                 "check -c empty.ini %s data.val=validation", set);
}

TEST_MAIN(setup, sandbox_teardown)
