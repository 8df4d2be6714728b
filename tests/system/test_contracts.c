/* needs: threads */
/*
 * test_contracts.c - core proves what each kind of strategy promises: the toys of
 * tests/plugins/comm_toy.c keep their contracts with any number of workers and size of buckets, and
 * each of their mistakes is found, from the first exchange on or when it begins in training.
 */
#include <string.h>

#include "lib/cases.h"

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"

static const double deadline_s = 60.0;

#define TRAINING                                                                               \
    "run.steps=8 run.warmup_steps=2 eval.every=4 model.name=tiny_dense device.name=reference " \
    "optimizer.momentum=0.9 optimizer.learning_rate=0.05 "

/* Training begins between the 5th and the 17th exchange, and takes 10. */
#define IN_TRAINING " comm.from=10"

static const struct toy {
    const char *settings, *label; /* with 3 workers */
    const char *mistakes[8];
} toys[] = {
    {"comm.name=toy comm.kind=late", "late(1)", {"lost", "doubled", "coefficient", "forgotten"}},
    {"comm.name=toy comm.kind=periodic",
     "periodic(3)",
     {"lost", "doubled", "coefficient", "forgotten"}},
    {"comm.name=toy_partial comm.kind=partial",
     "partial(2 of 3)",
     {"lost", "doubled", "coefficient", "lie"}},
    {"comm.name=toy comm.kind=lossy", "lossy", {"lost", "doubled", "coefficient", "forgotten"}},
    {"comm.name=toy comm.kind=lossy comm.books=yes",
     "lossy",
     {"lost", "doubled", "coefficient", "forgotten"}},
    {"comm.name=toy comm.kind=async", "asynchronous", {"lost", "doubled", "coefficient"}},
    {"comm.name=toy comm.kind=averaging",
     "averaging",
     {"lost", "doubled", "coefficient", "forgotten"}},
};

static void expect_verdict(const struct command *command, const char *check, const char *verdict)
{
    char path[64];
    snprintf(path, sizeof path, "verification.%s", check);
    assert_string_equal(json_text_at(command->json, path), verdict);
}

static void test_keeps(void **state)
{
    static const struct {
        unsigned workers, accumulate;
        uint64_t bucket;
    } worlds[] = {{1, 1, 1 << 20}, {2, 1, 388}, {3, 2, 1 << 20}, {5, 1, 1000}};
    const struct toy *toy = *state;
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct command command;
        dpbench(&command, deadline_s,
                FAULTS_BASE TRAINING
                "%s run.prove=yes run.workers=%u run.accumulate=%u comm.bucket=%llu",
                toy->settings, worlds[i].workers, worlds[i].accumulate,
                (unsigned long long)worlds[i].bucket);
        if (command.exit_code != 0)
            fail_msg("%s, %u workers: exit code %d: %s", toy->settings, worlds[i].workers,
                     command.exit_code, command.err);
        expect_verdict(&command, "pattern", "pass");
        expect_verdict(&command, "exchange", "pass");
        expect_verdict(&command, "after", "pass");
        if (worlds[i].workers == 3)
            assert_string_equal(json_text_at(command.json, "strategy.consistency"), toy->label);
        assert_int_equal(json_array_size(json_at(command.json, "eval")), 2);
        command_free(&command);
    }
}

/* The mistake is found by the check whose verdict is the first that is no pass. */
static void expect_found(const struct toy *toy, const char *mistake, const char *from,
                         const char *check)
{
    struct command command;
    dpbench(&command, deadline_s, FAULTS_BASE TRAINING "%s comm.mistake=%s%s", toy->settings,
            mistake, from);
    if (command.exit_code != 3)
        fail_msg("%s, %s%s: exit code %d: %s", toy->settings, mistake, from, command.exit_code,
                 command.err);
    expect_verdict(&command, "pattern", strcmp(check, "pattern") == 0 ? "fail" : "pass");
    expect_words(mistake, command.err, (const char *const[]){"comm 'toy", NULL});
    command_free(&command);
}

static void test_mistakes(void **state)
{
    const struct toy *toy = *state;
    for (size_t i = 0; toy->mistakes[i]; i++) {
        expect_found(toy, toy->mistakes[i], "", "pattern");
        expect_found(toy, toy->mistakes[i], IN_TRAINING, "after");
    }
}

/* A contract that says something else than the strategy does. */
static void test_wrong_contract(void **state)
{
    const struct toy *toy = *state;
    expect_found(toy, "lie", "", "pattern");
}

/* Claims that exclude each other. */
static void test_refusals(void **state)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"comm.name=toy comm.kind=partial", "says by the hook `applied` which gradients count"},
        {"comm.name=toy_partial comm.kind=late", "`applied` goes with DPB_PROOF_BOOKS"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench(&command, deadline_s, FAULTS_BASE TRAINING "%s", rows[i].settings);
        assert_int_equal(command.exit_code, 1);
        expect_words(rows[i].settings, command.err, (const char *const[]){rows[i].words, NULL});
        command_free(&command);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof toys / sizeof *toys; i++) {
        add_case(test_keeps, &toys[i], "%s keeps its contract", toys[i].settings);
        add_case(test_mistakes, &toys[i], "%s: mistakes", toys[i].settings);
        if (!strstr(toys[i].settings, "partial"))
            add_case(test_wrong_contract, &toys[i], "%s: a wrong contract", toys[i].settings);
    }
    add_case(test_refusals, NULL, "contracts that cannot be");
    return run_cases("contracts", faults_setup, sandbox_teardown);
}
