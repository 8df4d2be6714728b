/* needs: threads */
/*
 * test_contracts.c - core proves what each kind of strategy promises: the toys of
 * tests/plugins/comm_toy.c and, on reduce.h, comm_toy_reduce.c keep their contracts with any
 * number of workers and size of buckets, and each of their mistakes is found, from the first
 * exchange on or when it begins in training. Over TCP reductions have the bits of shared memory.
 */
#include <string.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/weights.h"

static const double deadline_s = 60.0;

#define TRAINING                                                                               \
    "run.steps=8 run.warmup_steps=2 eval.every=4 model.name=tiny_dense device.name=reference " \
    "optimizer.momentum=0.9 optimizer.learning_rate=0.05 "

/* Training begins between the 7th and the 12th exchange, and takes 10; that of a synchronous
 * strategy, whose proofs take fewer exchanges, begins before the 6th. */
#define IN_TRAINING " comm.from=12"
#define SOONER " comm.from=6"

static const struct toy {
    const char *settings, *label; /* with 3 workers */
    const char *mistakes[8];
} toys[] = {
    {"comm.name=toy comm.kind=late",
     "late(1)",
     {"lost", "doubled", "coefficient", "forgotten", "timing"}},
    {"comm.name=toy comm.kind=periodic",
     "periodic(3)",
     {"lost", "doubled", "coefficient", "forgotten", "timing", "often"}},
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
    {"comm.name=toy comm.kind=mean", "synchronous", {"lost", "doubled", "coefficient"}},
    {"comm.name=toy_reduce", "lossy", {"lost", "doubled", "coefficient", "forgotten"}},
    {"comm.name=toy_reduce_exact", "synchronous", {"lost", "doubled", "coefficient"}},
    {"comm.name=toy_reduce_rounded", "synchronous", {"lost", "doubled"}},
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
        dpbench_ends(&command, deadline_s, 0,
                     FAULTS_BASE TRAINING
                     "%s run.prove=yes run.workers=%u run.accumulate=%u comm.bucket=%llu",
                     toy->settings, worlds[i].workers, worlds[i].accumulate,
                     (unsigned long long)worlds[i].bucket);
        expect_verdict(&command, "pattern", "pass");
        expect_verdict(&command, "exchange", "pass");
        expect_verdict(&command, "after", "pass");
        if (worlds[i].workers == 3)
            assert_string_equal(json_text_at(command.json, "strategy.consistency"), toy->label);
        assert_int_equal(json_array_size(json_at(command.json, "eval")), 2);
    }
}

/* The mistake is found by the check whose verdict is the first that is no pass. */
static void expect_found(const struct toy *toy, const char *mistake, const char *from,
                         const char *check)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 3, FAULTS_BASE TRAINING "%s comm.mistake=%s%s",
                 toy->settings, mistake, from);
    expect_verdict(&command, "pattern", strcmp(check, "pattern") == 0 ? "fail" : "pass");
    EXPECT_WORDS(mistake, command.err, "comm 'toy");
}

static void test_mistakes(void **state)
{
    const struct toy *toy = *state;
    for (size_t i = 0; toy->mistakes[i]; i++) {
        expect_found(toy, toy->mistakes[i], "", "pattern");
        expect_found(toy, toy->mistakes[i],
                     strcmp(toy->label, "synchronous") == 0 ? SOONER : IN_TRAINING, "after");
    }
}

/* Plain steps do not show the rule: known gradients find it right, before and after training. */
TEST(test_own_rule)
{
    static const struct toy toy = {"comm.name=toy comm.kind=mean", "synchronous", {NULL}};
    struct command command;
    expect_found(&toy, "own", SOONER, "steps");
    dpbench(&command, deadline_s, FAULTS_BASE TRAINING "%s comm.mistake=own" SOONER, toy.settings);
    expect_verdict(&command, "after", "pass");
    expect_verdict(&command, "steps", "fail");
}

/* The mistake is at work in one repeat of four. */
TEST(test_wrong_repeat_shows_in_its_row)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 3,
                 FAULTS_BASE TRAINING
                 "comm.name=toy run.workers=2 comm.kind=mean comm.mistake=lost "
                 "sweep.over=comm.from sweep.comm.from=900,901,0,902 sweep.retry_disturbed=0");
    assert_string_equal(json_text_at(command.json, "rows.0.verdict"), "NO (1 of 4)");
    assert_true(json_is_false(json_at(command.json, "rows.0.verified")));
    EXPECT_WORDS("its reason", json_text_at(command.json, "rows.0.verdict_reason"), "comm 'toy'");
}

/* Right updates that float32 does not hold: a square that is infinite, and a weight of few bits. */
TEST(test_limits_of_float)
{
    static const char *const rows[][3] = {
        {"model.name=lenet model.image=12 optimizer.name=adagrad optimizer.learning_rate=1e5",
         "pass", ""},
        {"model.name=tiny optimizer.learning_rate=1e-43", "skipped",
         "most followed steps are near their roundings"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0,
                     FAULTS_BASE "comm.name=shm run.workers=2 run.precision=fp32 run.batch=2 "
                                 "run.steps=12 data.name=synthetic data.samples=64 %s",
                     rows[i][0]);
        expect_verdict(&command, "steps", rows[i][1]);
        const char *why = json_string_value(json_at(command.json, "verification.steps_reason"));
        assert_string_equal(why ? why : "", rows[i][2]);
    }
}

/* An array of the books may have any type. */
TEST(test_books_in_bf16)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 FAULTS_BASE TRAINING "comm.name=toy comm.kind=lossy comm.books=yes comm.half=yes");
    expect_verdict(&command, "after", "pass");
}

/* Only strategies that say so in their name drop gradients. */
TEST(test_dropped)
{
    static const struct toy toy = {"comm.name=toy_partial comm.kind=async", "asynchronous", {NULL}};
    expect_found(&toy, "dropped", "", "pattern");
    expect_found(&toy, "dropped", IN_TRAINING, "after");
}

/* Workers that wait for nobody, by a contract that says they wait in each step. */
TEST(test_ahead)
{
    static const char *const kinds[] = {"async", "averaging"};
    for (size_t i = 0; i < 2; i++)
        for (int lies = 0; lies < 2; lies++) {
            struct command command;
            dpbench_ends(&command, deadline_s, lies ? 3 : 0,
                         FAULTS_BASE TRAINING "comm.name=toy comm.kind=%s comm.mistake=%s "
                                              "run.delay=constant(5ms) run.delay_ranks=1 "
                                              "eval.every=0",
                         kinds[i], lies ? "ahead" : "none");
            if (lies)
                EXPECT_WORDS(kinds[i], command.err, "comm 'toy': rank ", " ms before rank ",
                             "by its contract's lead no worker is so far ahead");
        }
}

/* Workers that wait in meetings alone end on a common step, whatever ends the run and wherever the
 * slower one is; and less lead than they have is a lie. */
TEST(test_common_end)
{
    static const char *const rows[][2] = {
        {"run.seconds=0.3 eval.every=0", "none"},
        {"run.seconds=0.3 eval.every=7 run.steady_limit_s=0.2", "none"},
        {"run.steps=20 eval.every=0", "ahead"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        const bool lies = strcmp(rows[i][1], "ahead") == 0;
        dpbench_ends(&command, 20.0, lies ? 3 : 0,
                     "-c base.ini --json comm.name=toy comm.kind=periodic comm.leads=yes "
                     "comm.period=10 model.name=tiny_dense device.name=reference "
                     "run.delay=constant(2ms) run.delay_ranks=1 comm.mistake=%s %s",
                     rows[i][1], rows[i][0]);
        if (lies)
            EXPECT_WORDS(rows[i][0], command.err, "by its contract's lead");
        else
            assert_true(json_number_at(command.json, "ranks.0.steps") ==
                        json_number_at(command.json, "ranks.1.steps"));
    }
}

/* A contract that says something else than the strategy does. */
static void test_wrong_contract(void **state)
{
    const struct toy *toy = *state;
    expect_found(toy, "lie", "", "pattern");
}

/* From the first step on what is kept goes on into other weights. */
static void test_kept(void **state)
{
    const struct toy *toy = *state;
    struct command command;
    dpbench_ends(&command, deadline_s, 3, FAULTS_BASE TRAINING "%s comm.mistake=kept comm.from=1",
                 toy->settings);
    expect_verdict(&command, "pattern", "fail");
    EXPECT_WORDS(toy->settings, command.err, "element ",
                 "after `load` and a step of zero gradients",
                 "still applies gradients from before `load`");
}

static void test_published(void **state)
{
    const struct toy *toy = *state;
    struct command command;
    for (int trains = 0; trains < 2; trains++) {
        dpbench_ends(&command, deadline_s, 3, FAULTS_BASE TRAINING "%s comm.mistake=published%s",
                     toy->settings, trains ? IN_TRAINING : "");
        expect_verdict(&command, "pattern", trains ? "pass" : "fail");
        EXPECT_WORDS(toy->settings, command.err, "element ", "in the published model");
    }
}

/* ---- checkpoints --------------------------------------------------------------------------- */

#define SAVED TRAINING "eval.every=0 run.warmup_steps=0 data.samples=60 "

static void run_well(struct command *command, const char *settings, const char *more)
{
    dpbench_ends(command, deadline_s, 0, FAULTS_BASE SAVED "%s %s", settings, more);
}

/* Saved after 5 of 9 steps, with something pending, and continued: all arrays have the bits of the
 * run that never stopped. The order in which workers come to the model of `async` and `averaging`
 * is theirs alone with one worker. */
static void test_goes_on(void **state)
{
    const struct toy *toy = *state;
    const bool ordered = !strstr(toy->settings, "async") && !strstr(toy->settings, "averaging");
    struct command command;
    char settings[256];
    snprintf(settings, sizeof settings, "%s run.workers=%d", toy->settings, ordered ? 3 : 1);
    run_well(&command, settings, "run.steps=9 checkpoint.save=whole.safetensors checkpoint.at=5");
    run_well(
        &command, settings,
        "run.steps=4 checkpoint.load=whole-step5.safetensors checkpoint.save=part.safetensors");
    assert_null(strstr(command.err, "were not read"));
    weights_expect_equal("whole.safetensors", "part.safetensors", true);
}

/* TCP gives the bits and the bytes of shared memory: weights, residuals, state. It continues what
 * shared memory has begun. */
static void test_by_tcp(void **state)
{
    static const struct {
        const char *both, *tcp;
    } worlds[] = {{"run.workers=2 comm.bucket=388", "comm.hosts=1+1"},
                  {"run.workers=3 run.accumulate=2", "comm.hosts=2+1 comm.streams=3"},
                  {"run.workers=4 comm.bucket=256", "comm.hosts=2x2"},
                  {"run.workers=5 comm.bucket=1000 run.comm_cores=1", "comm.hosts=0,1,0,2,0"}};
    const struct toy *toy = *state;
    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct command shared, tcp;
        char settings[256];
        snprintf(settings, sizeof settings, "%s %s", toy->settings, worlds[i].both);
        run_well(&shared, settings,
                 "run.steps=9 checkpoint.save=shared.safetensors checkpoint.at=5");
        snprintf(settings, sizeof settings, "%s comm.interface=lo %s %s", toy->settings,
                 worlds[i].both, worlds[i].tcp);
        run_well(&tcp, settings,
                 "run.steps=9 run.prove=yes checkpoint.save=tcp.safetensors checkpoint.at=5");
        weights_expect_equal("shared.safetensors", "tcp.safetensors", true);
        expect_verdict(&tcp, "pattern", "pass");
        expect_verdict(&tcp, "exchange", "pass");
        expect_verdict(&tcp, "after", "pass");
        assert_true(json_number_at(tcp.json, "comm.bytes_per_step") ==
                    json_number_at(shared.json, "comm.bytes_per_step"));
        run_well(&tcp, settings,
                 "run.steps=4 checkpoint.load=shared-step5.safetensors "
                 "checkpoint.save=part.safetensors");
        weights_expect_equal("shared.safetensors", "part.safetensors", true);
    }
}

#define PERIODIC "comm.kind=periodic run.steps=4 "

/* A strategy that does not say that core may update all weights at once. */
TEST(test_norms_refused)
{
    static const char *const rules[][2] = {{"optimizer.name=lamb", "optimizer 'lamb' needs"},
                                           {"optimizer.clip_norm=1", "optimizer.clip_norm needs"}};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        dpbench_says(deadline_s, 2,
                     WORDS(rules[i][1], "all mean gradients", "comm 'toy'", " diloco easgd"),
                     FAULTS_BASE "comm.name=toy run.workers=2 " PERIODIC "%s", rules[i][0]);
}

/* State that a run cannot keep is named, and left out only if the user says so. */
TEST(test_state_refused)
{
    static const struct {
        const char *settings, *words[4];
    } rows[] = {
        {"comm.name=toy run.workers=2 " PERIODIC,
         {"it has 'comm.toy.weights.0' and", "comm 'toy' with 2 workers cannot keep",
          "checkpoint.partial=yes", NULL}},
        {"comm.name=shm run.workers=3 run.steps=4",
         {"it has 'comm.toy.steps' and", "comm 'shm' with 3 workers cannot keep", NULL}},
        {"comm.name=toy_bare run.workers=3 " PERIODIC,
         {"it has 'comm.toy.steps' and", "comm 'toy_bare' with 3 workers cannot keep", NULL}},
    };
    struct command command;
    run_well(&command, "comm.name=toy run.workers=3 " PERIODIC, "checkpoint.save=p.safetensors");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        dpbench_says(deadline_s, 2, rows[i].words,
                     FAULTS_BASE SAVED "%s checkpoint.load=p.safetensors", rows[i].settings);
        run_well(&command, rows[i].settings,
                 "checkpoint.load=p.safetensors checkpoint.partial=yes");
        EXPECT_WORDS(rows[i].settings, command.err, rows[i].words[0],
                     "they begin anew from the model");
        run_well(&command, rows[i].settings, "checkpoint.load=p.safetensors checkpoint.resume=no");
        assert_null(strstr(command.err, "comm.toy"));
    }
}

/* A strategy that does not name all that it keeps is found before a training that saves. */
TEST(test_state_incomplete)
{
    static const char *const rows[] = {"comm.kind=late comm.mistake=unnamed",
                                       "comm.kind=periodic comm.mistake=unnamed",
                                       "comm.kind=periodic comm.mistake=unclocked",
                                       "comm.kind=lossy comm.mistake=unnamed",
                                       "comm.kind=lossy comm.books=yes comm.mistake=unnamed",
                                       "comm.kind=averaging comm.mistake=unnamed"};
    struct command command;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run_well(&command, "comm.name=toy run.workers=3 run.steps=4", rows[i]);
        dpbench_says(deadline_s, 3, WORDS("pattern (saved and continued) check"),
                     FAULTS_BASE SAVED "comm.name=toy run.workers=3 run.steps=4 %s "
                                       "checkpoint.save=i.safetensors",
                     rows[i]);
    }
}

/* A strategy without the hook is told of where it keeps something apart. */
TEST(test_state_not_saved)
{
    static const char said[] = "has no hook `state`";
    struct command command;
    for (int with = 0; with < 2; with++) {
        run_well(&command, with ? "comm.name=toy" : "comm.name=toy_bare",
                 PERIODIC "checkpoint.save=b.safetensors");
        assert_true((strstr(command.err, said) == NULL) == (with == 1));
    }
    run_well(&command, "comm.name=toy_bare", PERIODIC);
    assert_null(strstr(command.err, said));
}

/* ---- contracts that cannot be -------------------------------------------------------------- */

/* Claims that exclude each other, and exchanges that reduce.h refuses. */
TEST(test_refusals)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"comm.name=toy comm.kind=partial", "says by the hook `applied` which gradients count"},
        {"comm.name=toy comm.kind=late comm.mistake=unsaid", "late(0) and periodic(0) are none"},
        {"comm.name=toy comm.kind=periodic comm.mistake=unsaid", "late(0) and periodic(0)"},
        {"comm.name=toy_partial comm.kind=partial comm.mistake=unsaid", "or none"},
        {"comm.name=toy_partial comm.kind=late", "`applied` goes with DPB_PROOF_BOOKS"},
        {"comm.name=toy comm.kind=late comm.mistake=summed run.workers=2", "share is 1 / workers"},
        {"comm.name=toy comm.kind=late comm.books=yes", "books do not show when"},
        {"comm.name=toy comm.kind=periodic comm.books=yes", "books do not show when"},
        {"comm.name=toy comm.kind=lossy comm.books=yes comm.mistake=bookless", "the hook `books`"},
        {"comm.name=toy comm.kind=lossy comm.mistake=vague", "with 2^24 roundings or more"},
        {"comm.name=toy_untrue", "its hook `contract` and its plan set different contracts"},
        {"comm.name=toy_reduce comm.mistake=silent", "nothing was exchanged for bucket 0"},
        {"comm.name=toy_reduce comm.mistake=long", "there is room for"},
        {"comm.name=toy_reduce comm.mistake=twice", "bucket 0 has a message under way"},
        {"comm.name=toy_reduce comm.mistake=other run.workers=2", "expects another length"},
        {"comm.name=toy_reduce comm.mistake=other run.workers=2 comm.hosts=1+1 comm.interface=lo",
         "expects another length"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 1, WORDS(rows[i].words), FAULTS_BASE TRAINING "%s",
                     rows[i].settings);
}

/* `check` refuses a reduction, too, by its contract and its ports. */
TEST(test_reduction_is_checked)
{
    static const char *const rows[][2] = {
        {"comm.late=1", "comm 'toy_reduce' is lossy; leave comm.late out"},
        {"comm.hosts=1+1 comm.port=65535", "comm.port = 65535: rank 1 would listen at 65536"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i][1]),
                     "check -c base.ini run.workers=2 comm.name=toy_reduce %s", rows[i][0]);
}

int main(void)
{
    for (size_t i = 0; i < sizeof toys / sizeof *toys; i++) {
        add_case(test_keeps, &toys[i], "%s keeps its contract", toys[i].settings);
        add_case(test_mistakes, &toys[i], "%s: mistakes", toys[i].settings);
        if (!strstr(toys[i].settings, "partial"))
            add_case(test_goes_on, &toys[i], "%s: saved and continued", toys[i].settings);
        if (strstr(toys[i].settings, "toy_reduce")) {
            add_case(test_by_tcp, &toys[i], "%s by TCP", toys[i].settings);
            continue; /* but for its reduction it is the library's */
        }
        if (strcmp(toys[i].label, "synchronous") == 0)
            continue; /* keeps nothing between steps */
        add_case(test_published, &toys[i], "%s: another model published", toys[i].settings);
        if (!strstr(toys[i].settings, "partial"))
            add_case(test_wrong_contract, &toys[i], "%s: a wrong contract", toys[i].settings);
        if (!strstr(toys[i].settings, "partial") && !strstr(toys[i].settings, "periodic"))
            add_case(test_kept, &toys[i], "%s: kept by load", toys[i].settings);
    }
    return test_main(faults_setup, sandbox_teardown);
}
