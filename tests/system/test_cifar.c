/* needs: plain */
/*
 * test_cifar.c - training on a set in CIFAR-10's files: a network learns it, and what it learns
 * does not depend on the threads that fetch. The set is made here: ten classes, each a pattern of
 * blocks with noise over it.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/training.h"

enum { SIDE = 32, IMAGE = 3 * SIDE * SIDE, RECORD = 1 + IMAGE, TRAIN = 640, TEST = 200 };

static const double deadline_s = 120.0;

static uint32_t noise(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 16;
}

/* Blocks of 8 x 8 in each channel, of its class; a value over 0 .. 255. */
static void make_file(const char *path, int n, uint32_t seed)
{
    static uint8_t records[TRAIN][RECORD];
    for (int i = 0; i < n; i++) {
        records[i][0] = (uint8_t)(i % 10);
        for (int k = 0; k < IMAGE; k++) {
            int block = k / (SIDE * SIDE) * 16 + k / SIDE % SIDE / 8 * 4 + k % SIDE / 8;
            uint32_t pattern = ((uint32_t)(i % 10) * 48 + (uint32_t)block) * 2654435761u;
            records[i][1 + k] = (uint8_t)((noise(&pattern) >> 15) * 128 + noise(&seed) % 128);
        }
    }
    write_file(path, records, (size_t)n * RECORD);
}

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    mkdir("cifar", 0777);
    make_file("cifar/data_batch_1.bin", TRAIN, 1);
    make_file("cifar/test_batch.bin", TEST, 2);
    sandbox_write("x.ini", "[run]\nresults =\nsteady_limit_s = 0\nwarmup_steps = 0\n"
                           "[data]\nname = cifar10\npath = cifar\naugment = crop_flip\n"
                           "[device]\nthreads = 1\n");
    return result;
}

static void run(struct command *command, const char *settings)
{
    dpbench_ends(command, deadline_s, 0, "-c x.ini --json %s", settings);
}

TEST(test_learns)
{
    struct command command;
    if (!have_cpu_device())
        skip();
    run(&command, "model.name=resnet20 run.workers=2 comm.name=shm run.batch=16 run.steps=50 "
                  "optimizer.learning_rate=0.05 optimizer.schedule=cosine eval.final=yes");
    double accuracy = json_number_at(command.json, "eval.0.accuracy");
    double last = json_number_at(command.json, "loss.49");
    print_message("accuracy %.3f, loss %.3f at the end\n", accuracy, last);
    assert_int_equal(json_number_at(command.json, "eval.0.samples"), TEST);
    assert_true(accuracy > 0.8); /* by chance 0.1 */
}

TEST(test_the_same_for_any_threads)
{
    struct command first;
    run(&first, "model.name=tiny device.name=reference run.batch=4 run.steps=8 data.threads=0");
    assert_int_equal(json_array_size(json_at(first.json, "loss")), 8);
    for (int threads = 1; threads <= 3; threads++) {
        struct command command;
        char settings[160];
        snprintf(settings, sizeof settings,
                 "model.name=tiny device.name=reference run.batch=4 run.steps=8 data.threads=%d",
                 threads);
        run(&command, settings);
        if (!json_equal(json_at(command.json, "loss"), json_at(first.json, "loss")))
            fail_msg("the losses with %d threads are others", threads);
    }
    /* The augmentation is in them. */
    struct command plain;
    run(&plain, "model.name=tiny device.name=reference run.batch=4 run.steps=8 data.augment=none");
    assert_false(json_equal(json_at(plain.json, "loss"), json_at(first.json, "loss")));
}

/* The network has the size of the data, whatever was asked for. */
TEST(test_size_of_the_data)
{
    static const char refused[] =
        "model.image = 64 does nothing: the samples of data 'cifar10' are "
        "32 x 32; leave model.image out";
    struct command command;
    sandbox_write("y.ini", "[run]\nsteps = 1\n[model]\nname = tiny\nimage = 64\n"
                           "[data]\npath = cifar\n");
    dpbench_ends(&command, deadline_s, 0,
                 "check -c x.ini model.name=tiny model.image=32 run.steps=1");
    assert_null(strstr(command.err, "does nothing"));
    dpbench_ends(&command, deadline_s, 2,
                 "check -c x.ini model.name=tiny model.image=64 run.steps=1");
    EXPECT_WORDS("given", command.err, refused);
    dpbench_ends(&command, deadline_s, 2,
                 "check -c x.ini model.name=tiny sweep.model.image=32,64,128 run.steps=1");
    EXPECT_WORDS("an axis", command.err, refused);
    dpbench_ends(&command, deadline_s, 0, "check -c y.ini data.name=cifar10");
    EXPECT_WORDS("other data", command.err, "warning: y.ini:5: model.image = 64 does nothing: ");
}

TEST_MAIN(set_up, sandbox_teardown)
