/* needs: long threads cells */
/*
 * test_exchange.c - the reduced gradients are right, element by element: the pattern and run.prove,
 * for every strategy, number of workers, size of buckets and type of gradients; once for each of
 * the smaller models (all: tests/long/test_models.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

enum { MOST_WORKERS = 5 };

/* ---- small nets ---------------------------------------------------------------------------- */

/* Types of the gradients, with buckets of one element, a prime number of them, and all. */
struct gradients {
    const char *settings, *buckets[3];
};

static const struct gradients gradients[] = {
    {"run.precision=fp64", {"8", "424", "1GiB"}},
    {"run.precision=fp32", {"4", "212", "1GiB"}},
    {"run.precision=fp32 comm.gradient=bf16", {"2", "106", "1GiB"}},
};

/* Two strategies that follow each other have every pair of type, workers and bucket, one of them
 * with odd numbers of workers; under a sanitizer each has every pair of type and bucket; with
 * DPB_ALL_CELLS all of them (make check-long). */
static bool is_taken(size_t turn, size_t type, int workers, int bucket)
{
    bool turns = SANITIZED || (turn + (size_t)workers) % 2 == 0;
    return (turns && (type + (size_t)workers + (size_t)bucket) % 3 == 0) ||
           getenv("DPB_ALL_CELLS") != NULL;
}

static void test_small_model(void **state)
{
    const struct strategy_form *form = *state;
    static size_t turn;
    turn++;
    for (size_t g = 0; g < sizeof gradients / sizeof gradients[0]; g++)
        for (int workers = 1; workers <= MOST_WORKERS; workers += SANITIZED ? 2 : 1)
            for (int b = 0; b < 3; b++) {
                struct training training;
                if (!is_taken(turn, g, workers, b) || !is_cell(form, workers, b == 0))
                    continue;
                train(&training,
                      "model.name=tiny_bn run.steps=1 run.prove=yes %s %s comm.bucket=%s",
                      gradients[g].settings, form_settings(form, "", workers),
                      gradients[g].buckets[b]);
                expect_verified(&training);
            }
}

/* One worker's core is each third strategy's. */
static void test_communication_core(void **state)
{
    const struct strategy_form *form = *state;
    static size_t turn;
    const bool all = turn++ % 3 == 0 || getenv("DPB_ALL_CELLS") != NULL;
    for (int workers = all ? 1 : 3; workers <= 3; workers += 2) {
        struct training training;
        train(&training,
              "model.name=tiny run.steps=2 run.prove=yes run.comm_cores=1 %s comm.bucket=424",
              form_settings(form, "", workers));
        expect_verified(&training);
    }
}

/* More workers than cores; their sums use most of the bits that bf16 has. */
static void test_many_workers(void **state)
{
    const struct strategy_form *form = *state;
    struct training training;
    train(&training,
          "model.name=tiny_dense run.precision=fp32 comm.gradient=bf16 run.steps=1 "
          "run.prove=yes run.batch=1 comm.bucket=%d %s %s %s",
          form->ring ? 1006 : 106, form_settings(form, "", 16), strategy_named(form->name)->small,
          form->ring ? "comm.streams=2" : "");
    expect_verified(&training);
}

/* ---- real models --------------------------------------------------------------------------- */

/* Each has two buckets. Each strategy has one of them in turn; all of them in `make check-long`. */
static void test_model(void **state)
{
    static const char *const models[] = {"lenet model.image=12", "alexnet_cifar10 model.image=12",
                                         "resnet20"};
    const struct strategy_form *form = *state;
    static size_t turn;
    if (!have_cpu_device())
        skip();
    turn++;
    for (size_t m = 0; m < 3; m++) {
        struct training training;
        if (m != turn % 3 && !getenv("DPB_ALL_CELLS"))
            continue;
        train(&training,
              "device.name=cpu run.precision=fp32 run.steps=1 run.prove=yes comm.bucket=1000003 "
              "model.name=%s %s",
              models[m], form_settings(form, "", 2));
        expect_verified(&training);
    }
}

/* ---- where there is nothing to prove ------------------------------------------------------- */

TEST(test_independent)
{
    struct training training;
    train(&training, "model.name=tiny comm.name=independent run.workers=2");
    assert_string_equal(json_text_at(training.command.json, "verification.pattern"),
                        "not_applicable");
    assert_string_equal(json_text_at(training.command.json, "verification.exchange"), "skipped");
    assert_string_equal(json_text_at(training.command.json, "verification.replicas"),
                        "not_applicable");
    train_says(2, WORDS("run.prove"),
               "model.name=tiny comm.name=independent run.workers=2 run.prove=yes");
}

int main(void)
{
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
        add_case(test_small_model, form, "small net, %s", form->label);
        add_case(test_communication_core, form, "communication core, %s", form->label);
        add_case(test_model, form, "a real model, %s", form->label);
        if (is_cell(form, 16, true))
            add_case(test_many_workers, form, "16 workers, %s", form->label);
    }
    return test_main(training_setup, training_teardown);
}
