/* needs: threads cells */
/*
 * test_averaging.c - local_sgd, diloco, gossip, easgd and sma keep their contracts with any number
 * of workers, size of buckets, type and optimizer. A mistake of any of them is found. local_sgd
 * with a period of 1 is synchronous training. An evaluation leaves the weights as they were. That
 * they reach the weights of a serial oracle is test_ranks.c's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/says.h"
#include "lib/test.h"
#include "lib/training.h"

static const struct strategy {
    const char *settings, *label;
} strategies[] = {
    {"comm.name=local_sgd comm.period=1", "periodic(1)"},
    {"comm.name=local_sgd comm.period=5 comm.average_state=yes", "periodic(5)"},
    {"comm.name=gossip", "averaging"},
    {"comm.name=gossip comm.matching=random comm.period=2", "averaging"},
    {"comm.name=easgd", "averaging"},
    {"comm.name=easgd comm.period=1 comm.alpha=0.05", "averaging"},
    {"comm.name=sma", "averaging"},
    {"comm.name=sma comm.period=3 comm.momentum_on_center=no", "averaging"},
    {"comm.name=diloco comm.period=2", "averaging"},
    {"comm.name=diloco comm.period=3 comm.outer_rate=1.5 comm.outer_momentum=0", "averaging"},
};

#define MACHINES "comm.interface=lo comm.hosts="

/* Places with a centre each. */
static const char *const local_worlds[] = {
    "run.workers=2 run.precision=fp32 comm.bucket=106",
    "run.workers=2 run.learners=2 device.threads=2 comm.bucket=424 comm.period=3",
    "run.workers=3 comm.bucket=8 run.learners=2 device.threads=2 comm.momentum_on_center=no",
    "run.workers=2 run.learners=4 device.threads=4 run.precision=fp32 comm.period=7",
    "run.workers=3 run.learners=2 device.threads=2 comm.bucket=424 comm.period=3 " MACHINES "2+4",
};

static const char *const worlds[] = {
    "run.workers=1",
    "run.workers=2 comm.bucket=8",
    "run.workers=2 run.precision=fp32 comm.gradient=bf16 comm.bucket=106",
    "run.workers=3 comm.bucket=424 run.accumulate=2",
    "run.workers=3 run.precision=fp32 comm.bucket=212 run.comm_cores=1",
    "run.workers=4 run.precision=fp32",
    "run.workers=5 run.precision=fp32 comm.bucket=1GiB",
    "run.workers=3 run.precision=fp32 comm.bucket=212 run.comm_cores=1 " MACHINES "2+1",
    "run.workers=4 comm.bucket=106 " MACHINES "0,1,1,0",
    "run.workers=5 comm.bucket=1GiB comm.streams=2 " MACHINES "1+3+1",
};

static void expect_pass(const struct training *training, const char *check)
{
    char path[64];
    snprintf(path, sizeof path, "verification.%s", check);
    if (strcmp(json_text_at(training->command.json, path), "pass") != 0)
        fail_msg("%s: the check %s is no pass", training->settings, check);
}

/* The two of a name take turns; with DPB_ALL_CELLS (check-long) each has all worlds. */
static void test_keeps(void **state)
{
    const struct strategy *strategy = *state;
    const size_t turn = (size_t)(strategy - strategies);
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct training training;
        if ((turn + i) % 2 != 0 && !getenv("DPB_ALL_CELLS"))
            continue;
        train(&training,
              "model.name=tiny run.steps=7 run.prove=yes eval.every=3 data.test_samples=10 %s %s",
              strategy->settings, worlds[i]);
        expect_pass(&training, "pattern");
        expect_pass(&training, "exchange");
        expect_pass(&training, "after");
        assert_string_equal(json_text_at(training.command.json, "strategy.consistency"),
                            strategy->label);
        assert_int_equal(json_array_size(json_at(training.command.json, "eval")), 2);
    }
}

TEST(test_local_centers)
{
    for (size_t i = 0; i < sizeof local_worlds / sizeof *local_worlds; i++) {
        struct training training;
        train(&training,
              "model.name=tiny run.steps=9 run.prove=yes comm.name=sma comm.local_centers=yes %s",
              local_worlds[i]);
        expect_pass(&training, "pattern");
        expect_pass(&training, "exchange");
        expect_pass(&training, "after");
    }
}

/* Every period from 1 to 7, 1 to 5 workers, 1 to 4 learners in a place. Rules take turns; with
 * DPB_ALL_CELLS each has all of them. */
TEST(test_periods)
{
    static const char *const rules[] = {"local_sgd", "gossip", "gossip comm.matching=random",
                                        "easgd",     "sma",    "diloco"};
    static const char *const places[] = {"run.learners=4 device.threads=4",
                                         "run.workers=2",
                                         "run.learners=3 device.threads=3",
                                         "run.workers=3",
                                         "run.workers=2 run.learners=2 device.threads=2",
                                         "run.workers=4",
                                         "run.workers=5"};
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            struct training training;
            if ((r + p) % 2 != 0 && !getenv("DPB_ALL_CELLS"))
                continue;
            train(&training,
                  "model.name=tiny run.steps=%zu run.prove=yes comm.bucket=424 comm.name=%s "
                  "comm.period=%zu %s",
                  p + 3, rules[r], p + 1, places[p]);
            expect_pass(&training, "pattern");
            expect_pass(&training, "exchange");
            expect_pass(&training, "after");
        }
}

/* The timed steps of a run hold a whole period, or the run warns. */
TEST(test_part_of_a_period)
{
    static const struct {
        const char *options, *warning;
    } cases[] = {{"run.steps=4 comm.period=4", NULL},
                 {"run.steps=4 comm.period=5", "\"nothing_exchanged\""},
                 {"run.steps=4 run.warmup_steps=1 comm.period=5", "\"part_of_period\""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct training training;
        train(&training, "model.name=tiny_dense run.workers=2 comm.name=local_sgd %s",
              cases[i].options);
        for (size_t k = 1; k < sizeof cases / sizeof *cases; k++)
            assert_true((strstr(training.command.out, cases[k].warning) != NULL) == (k == i));
    }
}

/* A fast worker waits in a meeting for all the steps that another is behind: for longer than
 * run.timeout_s, which is for one step. Pauses and the end wait likewise. */
PLAIN_TEST(test_deadline_of_a_step)
{
    static const char *const machines[] = {"", MACHINES "1+1"};
    for (int i = 0; i < 2; i++) {
        struct training training;
        train(&training,
              "model.name=tiny_dense run.workers=2 run.steps=20 comm.name=local_sgd "
              "comm.period=12 eval.every=11 data.test_samples=10 run.delay=constant(250ms) "
              "run.delay_ranks=1 run.timeout_s=2 %s",
              machines[i]);
        expect_pass(&training, "steps");
        assert_int_equal(json_array_size(json_at(training.command.json, "timing.step_ns")), 20);
    }
}

/* So many roundings that a proof's bound does not tell a meeting from the step behind it. */
TEST(test_long_period)
{
    struct training training;
    train(&training, "model.name=tiny_dense run.workers=2 run.precision=fp32 run.steps=20 "
                     "comm.name=local_sgd comm.period=4096");
    expect_pass(&training, "pattern");
    expect_pass(&training, "after");
}

/* A restart at the centre is no mistake of the strategy's: the rate drops in the middle, where it
 * would drop next, or while the replicas train alone. */
TEST(test_restart)
{
    static const char *const drops[] = {"optimizer.decay_at=1", "optimizer.decay_at=2",
                                        "optimizer.decay_at=1.5 comm.period=5"};
    for (size_t i = 0; i < sizeof drops / sizeof *drops; i++) {
        struct training training;
        train(&training,
              "model.name=tiny run.workers=3 data.samples=30 run.steps=10 run.batch=2 "
              "comm.name=sma comm.bucket=424 optimizer.schedule=step %s",
              drops[i]);
        expect_pass(&training, "pattern");
        expect_pass(&training, "after");
    }
}

/* Workers that have not met, or that no centre draws, train as without an exchange: at an alpha so
 * small that w - c rounds to w, they have the same bits. Rules take turns. */
PLAIN_TEST(test_independent)
{
    static const char *const rules[] = {"local_sgd comm.period=16",
                                        "gossip comm.period=16",
                                        "easgd comm.period=16",
                                        "sma comm.period=16",
                                        "diloco comm.period=16",
                                        "easgd comm.period=1 comm.alpha=1e-300",
                                        "sma comm.period=1 comm.alpha=1e-300"};
    for (int workers = 1; workers <= 5; workers += 2) {
        struct training alone;
        train(&alone, "model.name=tiny run.steps=15 comm.name=independent run.workers=%d", workers);
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
            struct training averaged;
            if ((i + (size_t)workers / 2) % 3 == 0 && !getenv("DPB_ALL_CELLS"))
                continue;
            train(&averaged, "model.name=tiny run.steps=15 comm.name=%s run.workers=%d", rules[i],
                  workers);
            expect_same_losses(&averaged, &alone, 0);
        }
    }
}

/* So do those of optimizers with several arrays of state, or with norms of whole tensors: each
 * worker has its own, and the steps check knows the rule of each. */
PLAIN_TEST(test_optimizers)
{
    static const char *const rules[] = {"local_sgd comm.average_state=yes",
                                        "gossip comm.average_state=yes", "easgd", "sma", "diloco"};
    static const char *const optimizers[] = {
        "name=adamw", "name=rmsprop optimizer.momentum=0.5", "name=lamb optimizer.weight_decay=0.1",
        "name=lars optimizer.weight_decay=0.1", "clip_norm=0.5"};
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        struct training alone, averaged, met;
        train(&alone,
              "model.name=tiny run.steps=9 comm.name=independent run.workers=3 optimizer.%s",
              optimizers[o]);
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
            if ((o + i) % 2 != 0 && !getenv("DPB_ALL_CELLS"))
                continue;
            train(&averaged,
                  "model.name=tiny run.steps=9 run.workers=3 optimizer.%s comm.period=10 "
                  "comm.bucket=424 comm.name=%s",
                  optimizers[o], rules[i]);
            expect_same_losses(&averaged, &alone, 0);
            train(&met,
                  "model.name=tiny run.steps=9 run.workers=3 run.prove=yes optimizer.%s "
                  "comm.period=2 comm.bucket=424 comm.name=%s",
                  optimizers[o], rules[i]);
            expect_pass(&met, "exchange");
            expect_pass(&met, "after");
            expect_pass(&met, "steps");
        }
    }
}

/* A rate of 0 changes no weights; of the rules, sma alone restarts there, unless told not to. */
PLAIN_TEST(test_rate_of_zero)
{
    static const char settings[] = "model.name=tiny run.workers=3 run.steps=15 run.batch=2 "
                                   "data.samples=30 optimizer.schedule=step optimizer.decay_at=2 "
                                   "optimizer.decay_factor=0";
    static const char *const rules[] = {"local_sgd", "gossip", "easgd", "sma comm.restart=0",
                                        "diloco"};
    struct training alone;
    train(&alone, "%s comm.name=independent", settings);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct training averaged;
        train(&averaged, "%s comm.period=16 comm.name=%s", settings, rules[i]);
        expect_same_losses(&averaged, &alone, 0);
    }
}

/* An evaluation puts the published weights in place of the worker's own, and these back, also on a
 * device that keeps weights in a form of its own: training continues with the bits of a run without
 * evaluations. */
TEST(test_published_weights)
{
    static const char *const rules[] = {"local_sgd comm.period=4", "sma"};
    static const char settings[] =
        "device.name=%s run.precision=fp32 model.name=lenet model.image=12 run.steps=4 "
        "run.workers=2 data.samples=32 data.test_samples=4 "
        "eval.every=%d comm.name=%s";
    if (!have_cpu_device())
        skip();
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct training plain, watched, reference;
        train(&plain, settings, "cpu", 0, rules[i]);
        train(&watched, settings, "cpu", 1, rules[i]);
        train(&reference, settings, "reference", 1, rules[i]);
        expect_same_losses(&watched, &plain, 0);
        for (int e = 0; e < 4; e++) {
            char path[32];
            snprintf(path, sizeof path, "eval.%d.loss", e);
            const double loss = json_number_at(watched.command.json, path);
            const double wanted = json_number_at(reference.command.json, path);
            if (!(fabs(loss - wanted) <= 1e-3 * wanted))
                fail_msg("%s: evaluation %d has the loss %.9g, not %.9g", rules[i], e, loss,
                         wanted);
        }
    }
}

/* A mean of weights is the mean of gradients where the update is linear in both: for SGD, and with
 * momentum where the momentum is averaged, too. */
PLAIN_TEST(test_is_synchronous)
{
    static const char *const optimizers[][2] = {
        {"optimizer.momentum=0 optimizer.weight_decay=0.01", ""},
        {"optimizer.momentum=0.9 optimizer.weight_decay=0.01", "comm.average_state=yes"},
    };
    for (int i = 0; i < 2; i++)
        for (int workers = 1; workers <= 4; workers++) {
            struct training start, synchronous, averaged;
            if ((i + workers / 2) % 2 == 0 && !getenv("DPB_ALL_CELLS"))
                continue; /* the first of 2 and 3, the second of 1 and 4 workers */
            train(&start, "model.name=tiny run.steps=1 run.workers=%d optimizer.learning_rate=0",
                  workers);
            train(&synchronous, "model.name=tiny run.steps=9 comm.name=shm run.workers=%d %s",
                  workers, optimizers[i][0]);
            train(&averaged,
                  "model.name=tiny run.steps=9 comm.name=local_sgd comm.period=1 comm.bucket=424 "
                  "run.workers=%d %s %s",
                  workers, optimizers[i][0], optimizers[i][1]);
            expect_same_weights(&averaged, &synchronous, &start, 1e-12);
            expect_same_losses(&averaged, &synchronous, 1e-12);
        }
}

/* A rate of 1 without momentum is local_sgd; and where nobody else is, training without an
 * exchange. With momentum a lone worker goes on from meeting to meeting. */
PLAIN_TEST(test_outer_identities)
{
    static const char settings[] = "model.name=tiny_dense run.steps=13 optimizer.name=adamw "
                                   "comm.bucket=424 run.workers=%d comm.name=%s";
    static const char plain[] = "diloco comm.period=4 comm.outer_rate=1 comm.outer_momentum=";
    for (int workers = 1; workers <= 3; workers++) {
        struct training outer, inner, moved;
        char comm[128];
        snprintf(comm, sizeof comm, "%s0", plain);
        train(&outer, settings, workers, comm);
        train(&inner, settings, workers, workers == 1 ? "independent" : "local_sgd comm.period=4");
        expect_same_losses(&outer, &inner, 1e-12);
        snprintf(comm, sizeof comm, "%s0.5", plain);
        train(&moved, settings, workers, comm);
        const json_t *a = json_at(outer.command.json, "loss"),
                     *b = json_at(moved.command.json, "loss");
        for (size_t i = 0; i < 13; i++) {
            const double of_a = json_number_value(json_array_get(a, i));
            const double of_b = json_number_value(json_array_get(b, i));
            assert_true((fabs(of_a - of_b) <= 1e-12 * of_a) == (i < 4)); /* from a meeting on */
        }
    }
}

/* Of the first exchange on, or from training on: by turns, or both with DPB_ALL_CELLS. */
PLAIN_TEST(test_mistakes)
{
    static const struct {
        const char *inner, *mistakes[7];
    } rows[] = {
        {"local_sgd", {"lost", "doubled", "coefficient", "left_out", "one_sided"}},
        {"gossip", {"lost", "doubled", "coefficient", "left_out", "one_sided"}},
        {"easgd", {"lost", "doubled", "coefficient", "left_out", "undrawn"}},
        {"sma", {"lost", "doubled", "coefficient", "left_out", "undrawn", "centre"}},
        {"sma comm.local_centers=yes", {"undrawn", "centre", "place"}},
        {"diloco", {"lost", "doubled", "coefficient", "left_out", "one_sided", "outer"}},
    };
    static const char *const froms[] = {"", "comm.from=26"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; rows[i].mistakes[k]; k++)
            for (size_t late = 0; late < 2; late++)
                if ((i + k + late) % 2 == 0 || getenv("DPB_ALL_CELLS"))
                    train_says(
                        3, WORDS(late ? "pattern (after training)" : "pattern", "comm 'spoilt'"),
                        "model.name=tiny run.steps=20 run.workers=3 comm.bucket=424 "
                        "comm.name=spoilt comm.inner=%s comm.mistake=%s %s",
                        rows[i].inner, rows[i].mistakes[k], froms[late]);
}

/* For a while in training only, so that the steps check alone finds it. Rules take turns; with
 * DPB_ALL_CELLS each has all mistakes. */
PLAIN_TEST(test_mistakes_in_training_alone)
{
    static const char *const mistakes[] = {"lost", "doubled", "coefficient", "left_out",
                                           "one_sided"};
    static const char *const inners[] = {
        "local_sgd", "local_sgd comm.average_state=yes optimizer.name=adamw",
        "gossip",    "easgd",
        "sma",       "diloco"};
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++)
        for (size_t k = 0; k < sizeof inners / sizeof *inners; k++)
            if ((i + k) % 2 == 0 || getenv("DPB_ALL_CELLS"))
                train_says(
                    3, WORDS("steps check of comm 'spoilt': ", " step "),
                    "model.name=tiny run.steps=20 run.workers=3 optimizer.learning_rate=0.01 "
                    "comm.bucket=424 comm.name=spoilt comm.mistake=%s comm.from=16 comm.until=20 "
                    "comm.inner=%s",
                    i == 4 && (k == 3 || k == 4) ? "undrawn" : mistakes[i], inners[k]);
}

/* Gradients in bf16 are no excuse: a mean of replicas rounds to the weights' type. */
TEST(test_mistakes_in_bf16)
{
    static const char *const mistakes[] = {"lost", "doubled", "coefficient"};
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct training training;
        train_anyway(&training,
                     "model.name=tiny run.steps=2 run.workers=3 run.precision=fp32 "
                     "comm.gradient=bf16 comm.bucket=424 comm.name=spoilt comm.inner=local_sgd "
                     "comm.period=32 comm.mistake=%s",
                     mistakes[i]);
        assert_int_equal(training.command.exit_code, 3);
    }
}

/* The control: without a mistake it passes. */
PLAIN_TEST(test_unspoilt)
{
    static const char *const inners[] = {"local_sgd", "gossip", "easgd", "sma", "diloco"};
    for (size_t i = 0; i < 5; i++) {
        struct training training;
        train(&training,
              "model.name=tiny run.steps=20 run.workers=3 comm.bucket=424 comm.name=spoilt "
              "comm.inner=%s",
              inners[i]);
        expect_pass(&training, "after");
        expect_pass(&training, "steps");
    }
}

TEST(test_refused)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"comm.name=easgd run.workers=3 comm.alpha=0.6", "it should be at most 0.5"},
        {"comm.name=sma run.workers=2 comm.hosts=1+1 comm.port=65535", "rank 1 would listen at"},
        {"comm.name=sma comm.local_centers=yes run.learners=2 device.threads=2", "with one place"},
        {"comm.name=sma comm.local_centers=yes run.workers=2 run.learners=2 device.threads=2 "
         "comm.alpha=0.6",
         "it should be at most 0.5"},
        {"model.name=lenet run.precision=fp32 run.workers=5 comm.bucket=4 comm.name=gossip "
         "comm.period=4096",
         "take a larger comm.bucket"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        train_says(2, WORDS(rows[i].words), "model.name=tiny %s", rows[i].settings);
}

int main(void)
{
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++)
        add_case(test_keeps, &strategies[i], "%s keeps its contract", strategies[i].settings);
    return test_main(training_setup_mutants, training_teardown);
}
