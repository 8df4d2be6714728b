/* needs: threads cells */
/*
 * test_differences.c - local_sgd and diloco with a codec, which encodes the difference of a meeting
 * (plugins/lib/averaging/difference.h): they keep their books; mistakes of the codec are found; a
 * codec that loses nothing is the training without one; local_sgd with a period of 1 is synchronous
 * training with the same codec. With comm.outer_late a meeting takes the exchange
 * before. That they reach a serial oracle is test_ranks.c's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/says.h"
#include "lib/test.h"
#include "lib/training.h"

#define FP32 "run.precision=fp32 "

static void expect_pass(const struct training *training, const char *check)
{
    char path[64];
    snprintf(path, sizeof path, "verification.%s", check);
    if (strcmp(json_text_at(training->command.json, path), "pass") != 0)
        fail_msg("%s: the check %s is no pass", training->settings, check);
}

/* Codecs, worlds, periods and rules by turns; all worlds with DPB_ALL_CELLS. */
TEST(test_keeps)
{
    static const char *const codecs[] = {"topk comm.codec_ratio=0.1",
                                         "powersgd",
                                         "int8",
                                         "onebit",
                                         "topk comm.codec_feedback=no",
                                         "fp8",
                                         "qsgd",
                                         "powersgd comm.codec_feedback=no comm.codec_rank=1",
                                         "threshold"};
    static const char *const worlds[] = {"run.workers=1 comm.period=3",
                                         "run.workers=2 comm.bucket=92 run.accumulate=2",
                                         "run.workers=3 comm.bucket=388 comm.period=5",
                                         "run.workers=3 comm.codec_start_step=9 run.comm_cores=1",
                                         "run.workers=5 optimizer.name=lamb optimizer.clip_norm=1"};
    static const char *const rules[] = {"local_sgd", "diloco", "diloco comm.outer_late=1"};
    enum { CODECS = sizeof codecs / sizeof *codecs, WORLDS = sizeof worlds / sizeof *worlds };
    for (size_t i = 0; i < 3 * CODECS; i++)
        for (size_t w = 0; w < WORLDS; w++) {
            struct training training;
            if ((w != i % WORLDS || (i % 3 < 2 && i / 3 % 2 == i % 3)) && !getenv("DPB_ALL_CELLS"))
                continue;
            train(&training,
                  FP32 "model.name=tiny run.steps=20 run.prove=yes eval.every=7 "
                       "data.test_samples=10 comm.period=2 comm.name=%s comm.codec=%s %s",
                  rules[i % 3], codecs[i / 3], worlds[w]);
            expect_pass(&training, "pattern");
            expect_pass(&training, "exchange");
            expect_pass(&training, "after");
            assert_string_equal(json_text_at(training.command.json, "strategy.consistency"),
                                "averaging");
            training_free(&training);
        }
}

/* From the first exchange on; from training on; for a meeting in training alone, where only the
 * followed steps show it. */
PLAIN_TEST(test_mistakes)
{
    static const char *const mistakes[] = {"forgotten", "lost", "doubled"};
    static const char *const spans[][2] = {
        {"", "pattern check of comm"},
        {"comm.codec_from=27", "pattern (after training)"},
        {"comm.codec_from=14 comm.codec_until=15", "steps check of comm"}};
    for (size_t i = 0; i < 9; i++) {
        if ((i + i / 3) % 3 == 0 && !getenv("DPB_ALL_CELLS"))
            continue;
        train_says(3, WORDS(spans[i % 3][1]),
                   FP32 "model.name=tiny run.steps=26 run.workers=3 optimizer.learning_rate=0.01 "
                        "comm.bucket=424 comm.period=2 comm.name=%s comm.codec=mutant "
                        "comm.codec_rank=2 comm.codec_mistake=%s %s",
                   i % 2 ? "diloco comm.outer_late=1" : "local_sgd", mistakes[i / 3],
                   spans[i % 3][0]);
    }
}

/* Within a rounding: the mean is taken of differences, not of weights. */
TEST(test_lossless)
{
    static const char *const lossless[] = {"topk comm.codec_ratio=1",
                                           "powersgd comm.codec_rank=1024",
                                           "powersgd comm.codec_start_step=20"};
    static const char *const rules[] = {"local_sgd comm.period=3", "diloco comm.period=4"};
    for (size_t r = 0; r < 2; r++)
        for (int workers = 1; workers <= 3; workers++) {
            struct training start, without, with;
            train(&start,
                  FP32 "model.name=tiny run.steps=1 run.workers=%d "
                       "optimizer.learning_rate=0",
                  workers);
            train(&without, FP32 "model.name=tiny run.steps=13 run.workers=%d comm.name=%s",
                  workers, rules[r]);
            const char *codec = lossless[((size_t)workers + r) % 3];
            train(&with,
                  FP32 "model.name=tiny run.steps=13 run.workers=%d comm.name=%s comm.codec=%s",
                  workers, rules[r], codec);
            expect_same_weights(&with, &without, &start, 1e-4);
            expect_same_losses(&with, &without, 1e-5);
        }
}

/* A difference is then - rate x gradient, and these codecs decode a multiple to the multiple. */
TEST(test_is_synchronous)
{
    static const char *const codecs[] = {"topk comm.codec_ratio=0.1", "powersgd"};
    static const char settings[] = FP32 "model.name=tiny run.steps=9 comm.bucket=424 "
                                        "optimizer.momentum=0 optimizer.weight_decay=0 "
                                        "run.workers=%d comm.codec=%s comm.name=%s";
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        for (int workers = 1 + (int)i; workers <= 5; workers += 2) {
            struct training start, synchronous, averaged;
            train(&start,
                  FP32 "model.name=tiny run.steps=1 run.workers=%d "
                       "optimizer.learning_rate=0",
                  workers);
            train(&synchronous, settings, workers, codecs[i], "shm");
            train(&averaged, settings, workers, codecs[i], "local_sgd comm.period=1");
            expect_same_weights(&averaged, &synchronous, &start, 1e-3);
            expect_same_losses(&averaged, &synchronous, 1e-5);
        }
}

/* Without a codec, too. A lone worker whose outer step is its own way goes on as alone. */
TEST(test_late)
{
    static const char *const worlds[] = {
        "run.workers=2 comm.period=1 comm.bucket=92",
        "run.workers=3 comm.period=4 comm.bucket=424 optimizer.name=lamb",
        "run.workers=4 comm.period=3 run.comm_cores=1"};
    struct training alone, late;
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        train(&late,
              FP32 "model.name=tiny run.steps=20 run.prove=yes eval.every=7 data.test_samples=10 "
                   "comm.name=diloco comm.outer_late=1 %s",
              worlds[i]);
        expect_pass(&late, "pattern");
        expect_pass(&late, "exchange");
        expect_pass(&late, "after");
        expect_pass(&late, "steps");
    }
    train(&alone, FP32 "model.name=tiny run.steps=13 comm.name=independent");
    train(&late, FP32 "model.name=tiny run.steps=13 comm.name=diloco comm.period=3 "
                      "comm.outer_late=1 comm.outer_rate=1 comm.outer_momentum=0");
    expect_same_losses(&late, &alone, 1e-5);
}

/* Workers that have not met train as without an exchange. */
TEST(test_period_without_end)
{
    struct training alone, averaged;
    train(&alone, FP32 "model.name=tiny run.steps=9 run.workers=2 comm.name=independent");
    train(&averaged, FP32 "model.name=tiny run.steps=9 run.workers=2 comm.name=diloco "
                          "comm.period=4096 comm.codec=topk");
    expect_same_losses(&averaged, &alone, 0);
}

TEST(test_refused)
{
    static const char *const rows[][2] = {
        {"comm.name=local_sgd comm.codec=int8 comm.average_state=yes",
         "the differences of weights are exchanged"},
        {"comm.name=diloco comm.codec=topk comm.codec_momentum=0.9 optimizer.momentum=0",
         "leave comm.codec_momentum out"},
        {"comm.name=diloco comm.outer_late=1 comm.average_state=yes",
         "comm.average_state = yes with comm.outer_late = 1"},
        {"comm.name=diloco comm.outer_late=1 comm.gradient=bf16", "differences in fp32"},
        {"comm.name=gossip comm.codec=topk", "comm 'gossip' carries no codec"},
        {"comm.name=easgd comm.codec=topk", "comm 'easgd' carries no codec"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        train_says(2, WORDS(rows[i][1]), FP32 "model.name=tiny run.workers=2 %s", rows[i][0]);
}

TEST_MAIN(training_setup_mutants, training_teardown)
