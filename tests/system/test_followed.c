/*
 * test_followed.c - what the steps check finds that the known gradients before and after training
 * do not: mistakes of some elements, workers and steps, wherever in a training they are. The
 * strategies are real ones with a mistake (tests/plugins/comm_seeded.c); hundreds of them, and
 * right ones in every combination, in tests/long/test_followed_many.c.
 */
#include "lib/drawn.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/training.h"

enum { EXIT_VERIFICATION = 3 };

#define DRAWN "model.name=tiny run.batch=2 run.precision=fp32 optimizer.learning_rate=0.01 "
#define ONE_PERCENT DRAWN "run.workers=2 comm.name=mutant_seeded_shm comm.place=0 comm.drawn=5 "

#define ALONE                                                                                    \
    "-c /dev/null --json run.results= run.steady_limit_s=0 run.warmup_steps=0 device.threads=1 " \
    "device.name=reference data.name=synthetic data.samples=64 "

static char directory[64];

/* Late in a run, when the record has long been full and holds some segments alone. */
TEST(test_late_in_a_run)
{
    train_says(EXIT_VERIFICATION, WORDS("steps check of comm 'mutant_seeded_shm'"),
               ONE_PERCENT "run.steps=6000 comm.from=5000 comm.until=5900");
}

/* Behind a checkpoint, whatever the state that the rule has come with. */
TEST(test_behind_a_checkpoint)
{
    static const char *const rules[] = {"sgd optimizer.momentum=0.9", "rmsprop", "lamb"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct command command;
        dpbench_ends(&command, 60.0, 0,
                     ALONE DRAWN "run.workers=2 comm.name=shm run.steps=5 optimizer.name=%s "
                                 "checkpoint.save=%s/behind.safetensors",
                     rules[i], directory);
        dpbench_ends(&command, 60.0, 0,
                     ALONE DRAWN "run.workers=2 comm.name=shm run.steps=60 optimizer.name=%s "
                                 "checkpoint.load=%s/behind.safetensors",
                     rules[i], directory);
        assert_string_equal(json_text_at(command.json, "verification.steps"), "pass");
        dpbench_ends(&command, 60.0, EXIT_VERIFICATION,
                     ALONE ONE_PERCENT
                     "run.steps=200 comm.from=20 comm.until=200 optimizer.name=%s "
                     "checkpoint.load=%s/behind.safetensors",
                     rules[i], directory);
        EXPECT_WORDS(rules[i], command.err, "steps check of comm 'mutant_seeded_shm'");
    }
}

/* Replicas train alone, and by their books all is well. */
TEST(test_never_met)
{
    static const char *const inners[] = {"local_sgd", "gossip"};
    for (size_t i = 0; i < sizeof inners / sizeof *inners; i++)
        train_says(EXIT_VERIFICATION, WORDS("the replicas never looked", "its contract says"),
                   DRAWN "run.workers=3 run.steps=60 comm.name=spoilt comm.inner=%s "
                         "comm.mistake=unmet comm.from=16 comm.until=60",
                   inners[i]);
}

TEST(test_drawn)
{
    enum { FEW = 8 };
    const struct drawn_count wrong = drawn_wrong(0, FEW), right = drawn_right(0, FEW);
    assert_true(wrong.caught >= FEW - 1 && right.ends <= FEW / 4);
}

static int setup(void **state)
{
    temporary_directory(directory);
    return training_setup_mutants(state);
}

static int teardown(void **state)
{
    remove_directory(directory);
    return training_teardown(state);
}

int main(void)
{
    return test_main(setup, teardown);
}
