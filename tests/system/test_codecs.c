/* needs: threads cells */
/*
 * test_codecs.c - strategies that carry a codec keep their books with every codec, whatever the
 * number of workers and the size of buckets; mistakes of a codec are found; a codec that loses
 * nothing is the training without one; residuals are part of a checkpoint.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/needs.h"

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/weights.h"

static const double deadline_s = 60.0;

#define TRAINING                                                                     \
    FAULTS_BASE "run.steps=8 run.warmup_steps=2 eval.every=4 model.name=tiny_dense " \
                "device.name=reference optimizer.momentum=0.9 optimizer.learning_rate=0.05 "

/* The strategies that carry codecs and are always there; then libraries that can start here. */
enum { LISTED = 6, MOST_CARRIERS = 16 };
static const char *carriers[MOST_CARRIERS] = {
    "shm", "ring_tcp", "replicated", "ps_cpu", "ps_cpu comm.codec_back=yes", "hierarchical"};
static size_t n_carriers = LISTED;

/* Without a codec it is the strategy's name alone. */
static int name_length(const char *carrier)
{
    return (int)strcspn(carrier, " ");
}

static bool is_listed(const char *name)
{
    for (size_t i = 0; i < n_carriers; i++)
        if (strncmp(carriers[i], name, (size_t)name_length(carriers[i])) == 0)
            return true;
    return false;
}

static void find_carriers(void)
{
    for (const struct strategy *s = NULL; (s = strategy_after(s));)
        if (strategy_on_host(s) && (s->capabilities & (DPB_COMM_CODECS | DPB_COMM_ROUNDS)) &&
            s->synchronous && !is_listed(s->name)) /* the others: test_differences.c */
            carriers[n_carriers++] = s->name;
}

static bool has_rounds(const char *codec)
{
    return strncmp(codec, "powersgd", strlen("powersgd")) == 0;
}

static bool carries(const char *carrier, const char *codec)
{
    char name[32];
    if (strstr(carrier, "codec_back") && strstr(codec, "codec_feedback=no"))
        return false;
    snprintf(name, sizeof name, "%.*s", name_length(carrier), carrier);
    return strategy_named(name)->capabilities &
           (has_rounds(codec) ? DPB_COMM_ROUNDS : DPB_COMM_CODECS);
}

/* Whether an all-reduce adds the messages up. */
static bool sums(const char *carrier, const char *codec)
{
    return has_rounds(codec) && strcmp(carrier, "shm") != 0 && strcmp(carrier, "replicated") != 0 &&
           strncmp(carrier, "hierarchical", strlen("hierarchical")) != 0;
}

/* ---- books --------------------------------------------------------------------------------- */

#define ONES "4 model.name=tiny run.steps=3" /* buckets of one element, a thousand a step */
#define FEW "92 model.name=tiny" /* the vectors' end leaves one element for a message of powersgd */

static bool is_library(const char *carrier)
{
    char name[32];
    snprintf(name, sizeof name, "%.*s", name_length(carrier), carrier);
    return strategy_named(name)->library;
}

/* Buckets of one element, of a prime number of them, of nearly a block, larger than the model. */
static const struct world {
    unsigned workers, accumulate;
    const char *bucket;
} worlds[] = {{1, 1, "1MiB"}, {2, 2, FEW}, {3, 1, "388"}, {5, 1, "4000"}},
  of_library = {3, 1, "4000"};
enum { N_WORLDS = sizeof worlds / sizeof *worlds };

static const struct row {
    const char *codec;
    unsigned n_worlds; /* the rest is the same text with other options */
} rows[] = {
    {"topk comm.codec_ratio=0.1", N_WORLDS},
    {"powersgd", N_WORLDS},
    {"topk comm.codec_ratio=0.1 comm.codec_warmup_steps=4 comm.codec_momentum=0.9 "
     "optimizer.momentum=0",
     N_WORLDS},
    {"threshold", N_WORLDS},
    {"onebit", N_WORLDS},
    {"qsgd", N_WORLDS},
    {"int8", 2},
    {"int8 comm.codec_rounding=stochastic", 2},
    {"fp8", 2},
    {"fp8 comm.codec_format=e5m2", 2},
    {"topk comm.codec_feedback=no", 2},
    {"threshold comm.codec_threshold=0", 2},
    {"threshold comm.codec_feedback=no", 2},
    {"qsgd comm.codec_levels=127", 2},
    {"powersgd comm.codec_feedback=no comm.codec_rank=1", 2},
};
/* The first row has ONES with every carrier, each other row with one carrier. */

static void run_well(struct command *command, const char *settings)
{
    dpbench_ends(command, deadline_s, 0, TRAINING "%s", settings);
}

/* The result of a training that several cases compare with: it runs once. */
static const json_t *reference(const char *settings)
{
    static json_t *kept; /* by settings */
    struct command command;
    kept = kept ? kept : json_object();
    if (!json_object_get(kept, settings)) {
        run_well(&command, settings);
        assert_int_equal(json_object_set(kept, settings, command.json), 0);
    }
    return json_object_get(kept, settings);
}

static void expect_books(const struct row *row, const struct world *world, const char *carrier)
{
    static const char *const checks[] = {"pattern", "exchange", "after"};
    struct command command;
    char settings[256];
    snprintf(settings, sizeof settings,
             "comm.name=%s comm.codec=%s run.prove=yes run.workers=%u run.accumulate=%u "
             "comm.bucket=%s",
             carrier, row->codec, world->workers, world->accumulate, world->bucket);
    run_well(&command, settings);
    for (size_t check = 0; check < 3; check++) {
        char path[64];
        snprintf(path, sizeof path, "verification.%s", checks[check]);
        if (strcmp(json_text_at(command.json, path), "pass") != 0)
            fail_msg("%s: %s is %s", settings, path, json_text_at(command.json, path));
    }
    assert_string_equal(json_text_at(command.json, "strategy.consistency"), "lossy");
    assert_string_equal(json_text_at(command.json, "verification.replicas"), "pass");
}

/* Each pair of codec, carrier and world occurs: a carrier has every second world of a codec, by
 * turns. A library takes milliseconds for a bucket, however small: three workers run it with few
 * buckets, by the codecs without other options. With DPB_ALL_CELLS (check-long) all have all, with
 * ONES in each row. */
static void test_books(void **state)
{
    static const struct world ones = {2, 2, ONES};
    const struct row *row = *state;
    const bool all = getenv("DPB_ALL_CELLS") != NULL;
    for (size_t i = 0; i < n_carriers; i++) {
        const bool is_slow = is_library(carriers[i]) && !all;
        if (!carries(carriers[i], row->codec) || (is_slow && row->n_worlds < N_WORLDS))
            continue;
        const size_t first = N_WORLDS - row->n_worlds;
        const size_t n = SANITIZED ? row->n_worlds / 2 : row->n_worlds;
        for (size_t world = first; !is_slow && world < first + n; world++)
            if (all || SANITIZED || ((size_t)(row - rows) + i + world) % 2 == 0)
                expect_books(row, &worlds[world], carriers[i]);
        if (is_slow)
            expect_books(row, &of_library, carriers[i]);
        if (all || (!is_slow && (row == rows || row == rows + i)))
            expect_books(row, &ones, carriers[i]);
    }
}

/* A mistake is found where it begins: before training, or after it. */
TEST(test_mistakes)
{
    static const char *const mistakes[] = {"forgotten", "lost", "doubled"};
    static const char *const checks[] = {"pattern", "after"};
    for (size_t i = 0; i < 2 * sizeof mistakes / sizeof *mistakes; i++) {
        struct command command;
        char path[64];
        dpbench_ends(&command, deadline_s, 3,
                     TRAINING "comm.codec=mutant comm.codec_mistake=%s comm.codec_from=%d "
                              "run.workers=3 comm.codec_rank=2",
                     mistakes[i / 2], i % 2 == 0 ? 0 : 10);
        snprintf(path, sizeof path, "verification.%s", checks[i % 2]);
        assert_string_equal(json_text_at(command.json, path), "fail");
        EXPECT_WORDS(mistakes[i / 2], command.err, "the books of");
    }
}

/* Mistakes that are over before the check after training, or that a proof's gradients do not show:
 * the residual is cleared in one step of 50; gradients are thrown away; none is ever sent. */
TEST(test_mistakes_in_training)
{
    static const char *const mistakes[][3] = {
        {"forgotten comm.codec_from=30 comm.codec_until=31", "fail", "steps check of comm 'shm'"},
        {"forgotten comm.codec_from=30 comm.codec_until=31 optimizer.nesterov=yes", "fail",
         "steps check of comm 'shm'"},
        {"integers comm.codec_from=10 comm.codec_until=45", "fail", "steps check of comm 'shm'"},
        {"silent", "skipped", ""}};
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, mistakes[i][2][0] ? 3 : 0,
                     TRAINING "run.steps=50 comm.name=shm comm.codec=mutant run.workers=2 "
                              "comm.codec_mistake=%s",
                     mistakes[i][0]);
        assert_string_equal(json_text_at(command.json, "verification.steps"), mistakes[i][1]);
        EXPECT_WORDS(mistakes[i][0], command.err, mistakes[i][2]);
    }
}

/* Peers that share memory could read more than the reported bytes, in a proof or in training alone.
 * Nor may a message be longer than its bound. */
TEST(test_bytes_of_messages)
{
    static const char *const lies[][2] = {
        {"comm.name=shm comm.codec_mistake=unsaid", "decode reads more than the 8 bytes"},
        {"comm.name=shm comm.codec_mistake=unsaid comm.codec_from=10 comm.codec_until=55",
         "decode reads more than the 8 bytes"},
        {"comm.name=ps_cpu comm.codec_mistake=unsaid", "decode reads more than the 8 bytes"},
        {"comm.name=shm comm.codec_mistake=beyond", "has 389 bytes, and at most 388 by"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 3,
                     TRAINING "run.steps=50 comm.codec=mutant comm.codec_rank=1 run.workers=2 "
                              "comm.bucket=388 %s",
                     lies[i][0]);
        EXPECT_WORDS(lies[i][0], command.err, "codec 'mutant': ", "rank 1", lies[i][1]);
    }
}

/* A training that diverges leaves residuals that are large beside the gradients of the proof. A
 * block's other elements are rounded by the scale of its largest residual: no gradient is lost. */
TEST(test_large_residuals)
{
    static const char *const trainings[] = {
        "comm.codec=qsgd optimizer.learning_rate=0.3 run.workers=3",
        "comm.codec=qsgd comm.codec_levels=2 optimizer.learning_rate=3 run.workers=2"};
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++) {
        struct command command;
        dpbench_ends(&command, deadline_s, 0,
                     FAULTS_BASE
                     "run.steps=30 run.warmup_steps=2 run.batch=2 model.name=tiny_dense "
                     "device.name=reference data.samples=64 %s",
                     trainings[i]);
        assert_string_equal(json_text_at(command.json, "verification.after"), "pass");
    }
}

/* Where messages go to servers, to other machines, and by another strategy's pipeline. */
static const char *const servers[] = {
    "replicated run.comm_cores=1",
    "ps_cpu run.servers=1",
    "ps_cpu run.servers=2 comm.hosts=2+2+1 comm.interface=lo",
    "ps_cpu comm.hosts=1+2 comm.interface=lo",
    "ps_cpu run.servers=1 run.comm_cores=1 comm.hosts=1+3 comm.interface=lo comm.streams=2",
    "hierarchical comm.hosts=1+1+1 comm.interface=lo",
    "hierarchical run.comm_cores=1 comm.hosts=1+1+1 comm.interface=lo comm.streams=2"};
enum { N_SERVERS = sizeof servers / sizeof *servers };

/* Several workers a machine: the books, and what goes by their places. */
static const char *const machines[] = {
    "run.workers=3 comm.hosts=2+1", "run.workers=4 comm.hosts=2x2 comm.bucket=1000",
    "run.workers=5 comm.hosts=0,1,0,1,0 comm.bucket=388 run.comm_cores=1 comm.streams=2"};
enum { N_MACHINES = sizeof machines / sizeof *machines };

/* What a rank cannot decode ends the run, named. */
static void test_refused_message(void **state)
{
    const char *carrier = *state;
    dpbench_says(deadline_s, 1, WORDS("codec mutant: rank 0 sent", "elements"),
                 TRAINING
                 "comm.codec=mutant comm.codec_mistake=length comm.codec_from=5 run.workers=3 "
                 "comm.name=%s",
                 carrier);
}

/* ---- nothing lost -------------------------------------------------------------------------- */

/* All that a training leaves: its losses, and the bits of its weights. */
static void expect_lossless(const char *carrier, const char *codec, const char *more)
{
    struct command with;
    char settings[192];
    snprintf(settings, sizeof settings, "comm.name=%.*s run.workers=2%s", name_length(carrier),
             carrier, more);
    const json_t *without = reference(settings);
    snprintf(settings, sizeof settings, "comm.name=%s run.workers=2 comm.codec=%s%s", carrier,
             codec, more);
    run_well(&with, settings);
    assert_true(json_equal(json_at(with.json, "loss"), json_at(without, "loss")));
    assert_string_equal(json_text_at(with.json, "ranks.0.checksum"),
                        json_text_at(without, "ranks.0.checksum"));
}

static void test_lossless(void **state)
{
    static const char *const lossless[] = {
        "topk comm.codec_ratio=1", "powersgd comm.codec_rank=1024",
        "threshold comm.codec_threshold=0", "onebit comm.codec_start_step=10",
        "powersgd comm.codec_start_step=10"};
    const char *carrier = *state;
    for (int i = 0; i < PART_OF(lossless, 2); i++)
        if (carries(carrier, lossless[i]))
            expect_lossless(carrier, lossless[i], "");
    for (int i = 0; i < 2; i++) /* by norms of the decoded gradients: of one round, of two */
        if (carries(carrier, lossless[i]) && !strstr(carrier, "ps_cpu"))
            expect_lossless(carrier, lossless[i],
                            i == 0 ? " optimizer.name=lars optimizer.clip_norm=0.05"
                                   : " optimizer.clip_norm=0.05");
}

/* Wherever messages are decoded, all that a training leaves has the same bits. */
static void test_servers(void **state)
{
    static const char *const codecs[] = {"topk comm.codec_ratio=0.1 comm.codec_start_step=5",
                                         ("topk comm.codec_ratio=0.1 comm.codec_momentum=0.9 "
                                          "comm.codec_warmup_steps=6 optimizer.momentum=0"),
                                         "int8 comm.codec_rounding=stochastic comm.bucket=1000",
                                         "onebit optimizer.clip_norm=0.05",
                                         "powersgd comm.bucket=4000"};
    for (int i = 0; i < PART_OF(codecs, 2); i++) {
        struct command with;
        char settings[256];
        if (sums(*state, codecs[i]) || !carries(*state, codecs[i]))
            continue;
        snprintf(settings, sizeof settings, "run.workers=3 comm.codec=%s comm.name=shm", codecs[i]);
        const json_t *without = reference(settings);
        snprintf(settings, sizeof settings,
                 "run.workers=3 comm.codec=%s run.prove=yes comm.name=%s", codecs[i],
                 (const char *)*state);
        run_well(&with, settings);
        assert_true(json_equal(json_at(with.json, "loss"), json_at(without, "loss")));
        assert_string_equal(json_text_at(with.json, "ranks.0.checksum"),
                            json_text_at(without, "ranks.0.checksum"));
        assert_string_equal(json_text_at(with.json, "verification.exchange"), "pass");
        assert_string_equal(json_text_at(with.json, "verification.replicas"), "pass");
        assert_int_equal(json_is_null(json_at(with.json, "comm.codec.decode_ns")),
                         json_number_at(with.json, "world.servers") > 0);
    }
}

/* Machines of several workers encode their sums: the books hold, and a codec that loses nothing has
 * the bits of the training without one. */
static void test_machines(void **state)
{
    static const char *const codecs[] = {
        "topk comm.codec_ratio=0.1 comm.codec_momentum=0.9 optimizer.momentum=0", "onebit",
        "topk comm.codec_ratio=1", "powersgd comm.codec_rank=1"};
    const char *places = *state;
    struct command with, without;
    char settings[256];
    snprintf(settings, sizeof settings, "comm.name=hierarchical comm.interface=lo %s", places);
    run_well(&without, settings);
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        snprintf(settings, sizeof settings,
                 "comm.name=hierarchical comm.interface=lo run.prove=yes comm.codec=%s %s",
                 codecs[i], places);
        run_well(&with, settings);
        assert_string_equal(json_text_at(with.json, "verification.exchange"), "pass");
        assert_string_equal(json_text_at(with.json, "verification.after"), "pass");
        assert_string_equal(json_text_at(with.json, "verification.replicas"), "pass");
        const bool equal = strcmp(json_text_at(with.json, "ranks.0.checksum"),
                                  json_text_at(without.json, "ranks.0.checksum")) == 0;
        if (equal != (i == 2))
            fail_msg("%s: the bits are%s those without a codec", settings, equal ? "" : " not");
        const double m = json_number_at(with.json, "comm.codec.message_bytes");
        const double M = 2 * m / json_number_at(with.json, "comm.codec.ratio");
        if (strstr(places, "2x2"))
            assert_true(fabs(json_number_at(with.json, "comm.bytes_per_step") -
                             (4 * m + 2 * M * (1 + 0.5 + 1))) < 0.5);
    }
}

/* All ranks begin at once: until then the losses are those without a codec, then they are not. */
static void expect_start(const char *carrier, const char *codec)
{
    enum { START = 4 };
    struct command with;
    char settings[128];
    snprintf(settings, sizeof settings, "comm.name=%.*s run.workers=2 run.warmup_steps=0",
             name_length(carrier), carrier);
    const json_t *without = reference(settings);
    snprintf(settings, sizeof settings,
             "comm.name=%s run.workers=2 run.warmup_steps=0 comm.codec=%s "
             "comm.codec_start_step=%d",
             carrier, codec, START);
    run_well(&with, settings);
    const json_t *losses = json_at(with.json, "loss"), *others = json_at(without, "loss");
    assert_int_equal(json_array_size(losses), 8);
    for (size_t i = 0; i < json_array_size(losses); i++) {
        /* The loss of a step is that of the weights before it. */
        const bool equal = json_equal(json_array_get(losses, i), json_array_get(others, i));
        if (equal != (i <= START))
            fail_msg("%s, %s: the loss of step %zu is%s that without a codec", carrier, codec, i,
                     equal ? "" : " not");
    }
    assert_true(json_number_at(with.json, "comm.codec.start_step") == START);
}

static void test_start(void **state)
{
    static const char *const codecs[] = {"onebit", "powersgd"};
    for (size_t i = 0; i < 2; i++)
        if (carries(*state, codecs[i]))
            expect_start(*state, codecs[i]);
}

/* ---- sums ---------------------------------------------------------------------------------- */

static void expect_losses(const json_t *a, const json_t *b, double bound, const char *settings)
{
    const json_t *losses = json_at(a, "loss"), *others = json_at(b, "loss");
    assert_true(json_array_size(losses) >= 2);
    assert_int_equal(json_array_size(losses), json_array_size(others));
    for (size_t i = 0; i < json_array_size(losses); i++) {
        const double x = json_number_value(json_array_get(losses, i));
        const double y = json_number_value(json_array_get(others, i));
        if (!(fabs(x - y) <= bound * fabs(y)))
            fail_msg("%s: the loss of step %zu is %.9g, not %.9g", settings, i, x, y);
    }
}

/* A sum of two has the same bits in any order: the training is that of shm, which adds messages by
 * rank. Of more workers it differs by roundings, and so does one of full rank from none. */
static void test_sums(void **state)
{
    static const struct {
        const char *codec, *workers, *bucket;
        double bound;
    } trainings[] = {
        {"powersgd comm.codec_start_step=5", "2 run.comm_cores=1", "1000", 0},
        {"powersgd", "2", FEW, 0},
        {"powersgd", "5 run.steps=2", "1MiB", 1e-5},
        {"powersgd comm.codec_rank=1024", "3 run.steps=2", "1000", 1e-5},
    };
    const char *const carrier = *state;
    for (size_t i = 0; i < sizeof trainings / sizeof *trainings; i++) {
        const bool few = strcmp(trainings[i].bucket, FEW) == 0;
        if (few && is_library(carrier) && !getenv("DPB_ALL_CELLS"))
            continue; /* as in test_books */
        struct command summed;
        char settings[256], rest[128];
        const char *const codec = trainings[i].codec;
        snprintf(rest, sizeof rest, "run.workers=%s comm.bucket=%s", trainings[i].workers,
                 trainings[i].bucket);
        snprintf(settings, sizeof settings, "comm.name=shm comm.codec=%s %s", codec, rest);
        const json_t *other = reference(settings);
        snprintf(settings, sizeof settings, "comm.name=%s comm.codec=%s %s", carrier, codec, rest);
        run_well(&summed, settings);
        expect_losses(summed.json, other, trainings[i].bound, settings);
        assert_int_equal(strcmp(json_text_at(summed.json, "ranks.0.checksum"),
                                json_text_at(other, "ranks.0.checksum")) != 0,
                         trainings[i].bound > 0);
        if (strstr(codec, "1024")) {
            snprintf(settings, sizeof settings, "comm.name=%s %s", carrier, rest);
            expect_losses(summed.json, reference(settings), trainings[i].bound, settings);
        }
    }
}

/* ---- feedback ------------------------------------------------------------------------------ */

/* int8 loses too little to be seen here. */
static const char *const fed[] = {"topk comm.codec_ratio=0.02",
                                  "threshold comm.codec_threshold=0.3", "onebit",
                                  "powersgd comm.codec_rank=1"};
enum { N_FED = sizeof fed / sizeof *fed };

static double last_loss(const char *codec, const char *feedback)
{
    struct command command;
    char settings[256];
    snprintf(settings, sizeof settings,
             "run.steps=120 run.batch=4 optimizer.momentum=0 comm.codec=%s comm.codec_feedback=%s",
             codec, feedback);
    run_well(&command, settings);
    const json_t *eval = json_at(command.json, "eval");
    const double loss =
        json_number_value(json_object_get(json_array_get(eval, json_array_size(eval) - 1), "loss"));
    return loss;
}

/* The loss with feedback is at most half of that without. */
static void test_feedback(void **state)
{
    const char *codec = *state;
    const double with = last_loss(codec, "yes"), without = last_loss(codec, "no");
    if (!(with < without / 2))
        fail_msg("%s: loss %g with feedback, %g without", codec, with, without);
}

/* ---- the result ---------------------------------------------------------------------------- */

/* Of the fp32 elements; how large the residual's norm may be, of the gradients'. */
static const struct measured {
    const char *codec;
    double ratio, least_residual, most_residual;
} measured[] = {
    {"topk comm.codec_ratio=1", 2, 0, 0},
    {"topk comm.codec_ratio=0.0499", 336.0 / 3360, 0.5, 20}, /* 167.7 of 3,360 elements */
    {"topk comm.codec_ratio=0.0501", 338.0 / 3360, 0.5, 20}, /* 168.3 */
    {"int8 comm.codec_feedback=no", 844.0 / 3360, 0.001, 0.05},
    /* An element loses at most 1/16 of itself, or 1/8. */
    {"fp8 comm.codec_feedback=no", 844.0 / 3360, 0.01, 1.0 / 16},
    {"fp8 comm.codec_feedback=no comm.codec_format=e5m2", 844.0 / 3360, 1.0 / 32, 1.0 / 8},
    {"threshold comm.codec_threshold=1e9", 1.0 / 16, 2, 40}, /* nothing is sent: steps add up */
    /* Matrices of 5 x 7, 7 x 13 and 13 x 243, 25 elements of vectors, in an arena of 3,360. Buckets
     * of 1,000 elements cut the last one into 4 + 5 + 5 rows, and 335 elements that go raw. */
    {"powersgd", 601.0 / 3360, 0.1, 20},
    {"powersgd comm.bucket=4000", 1910.0 / 3360, 0.1, 20},
};
enum { N_MEASURED = sizeof measured / sizeof *measured };

/* The carriers count by themselves what each of 3 workers has of the 2 others: m bytes of messages,
 * of M encoded. With ps_cpu one has it of each bucket, and the 2 others pull its weights, or an
 * answer. An all-reduce moves a message 2 (W - 1) times in all. In a machine of `hierarchical` one
 * worker encodes a bucket of 3 M for all: of this each has read a third of the 2 others, and given
 * it to the encoder, which gives the others the sum. */
static double bytes_moved(const char *carrier, const char *codec, double m, double M)
{
    if (sums(carrier, codec))
        return 2 * 2 * m;
    if (strcmp(carrier, "hierarchical") == 0)
        return 3 * M * (2 + 2.0 / 3 + 2);
    if (strncmp(carrier, "ps_cpu", strlen("ps_cpu")) != 0)
        return 3 * 2 * m;
    return 2 * (m + (strstr(carrier, "codec_back") ? m : M));
}

/* Ratio and residual are the codec's, bytes the carrier's: a carrier has every second codec by
 * turns, and one of powersgd's two. */
TEST(test_result)
{
    const bool whole = SANITIZED || getenv("DPB_ALL_CELLS") != NULL;
    for (size_t i = 0; i < N_MEASURED * n_carriers; i++) {
        const struct measured *row = &measured[i / n_carriers];
        struct command command;
        char settings[256];
        const bool has_turn = whole || (i / n_carriers + i % n_carriers) % 2 == 0;
        if (!has_turn || !carries(carriers[i % n_carriers], row->codec))
            continue;
        snprintf(settings, sizeof settings,
                 "comm.name=%s comm.codec=%s run.workers=3 run.steps=12 optimizer.momentum=0",
                 carriers[i % n_carriers], row->codec);
        run_well(&command, settings);
        const double bytes = json_number_at(command.json, "comm.codec.message_bytes");
        const double residual = json_number_at(command.json, "comm.codec.residual_share");
        const double ratio = json_number_at(command.json, "comm.codec.ratio");
        if (!(fabs(ratio - row->ratio) < 1e-9))
            fail_msg("%s: ratio %g, not %g", settings, ratio, row->ratio);
        if (!(residual >= row->least_residual && residual <= row->most_residual))
            fail_msg("%s: residual %g, not in %g to %g", settings, residual, row->least_residual,
                     row->most_residual);
        const double all = bytes_moved(carriers[i % n_carriers], row->codec, bytes, bytes / ratio);
        const double counted = json_number_at(command.json, "comm.bytes_per_step");
        if (!(fabs(counted - all) < 0.5))
            fail_msg("%s: %g bytes a step, not %g", settings, counted, all);
        assert_true(json_number_at(command.json, "comm.codec.encode_ns") > 0);
        assert_int_equal(json_number_at(command.json, "comm.codec.decode_ns") == 0,
                         sums(carriers[i % n_carriers], row->codec));
    }
}

static double scratch_bytes(const char *codec)
{
    struct command command;
    char settings[128];
    snprintf(settings, sizeof settings, "comm.name=shm comm.codec=%s", codec);
    run_well(&command, settings);
    const double bytes = json_number_at(command.json, "ranks.0.memory.scratch_bytes");
    return bytes;
}

/* P of the matrices above has 50 elements; Q and the vectors have 551. Each message begins a cache
 * line, behind one of its own; there are two banks. */
TEST(test_room)
{
    const double slots = 2 * ((64 + 256) + (64 + 2240)), signals = scratch_bytes("none");
    const double lines = ceil(signals / DPB_CACHE_LINE) * DPB_CACHE_LINE;
    if (scratch_bytes("powersgd") != lines + slots)
        fail_msg("%g bytes of scratch, not %g", scratch_bytes("powersgd"), lines + slots);
}

TEST(test_table)
{
    struct command command;
    dpbench_ends(
        &command, deadline_s, 0,
        "-c base.ini run.steps=40 model.name=tiny_dense comm.codec=topk comm.codec_ratio=1");
    EXPECT_WORDS("table", command.out, "topk: 0.0",
                 "MB a worker and step, 2.0000 of fp32; a step encodes", "residual",
                 "0 times the norm");
}

/* ---- checkpoints --------------------------------------------------------------------------- */

/* Saved after 5 of 9 steps and continued: all arrays have the bits of the run that never
 * stopped. */
static void test_goes_on(void **state)
{
    const char *codec = *state;
    struct command command;
    char settings[512];
    const char *const base = "comm.codec=%s run.workers=3 eval.every=0 run.warmup_steps=0 %s";
    snprintf(settings, sizeof settings, base, codec,
             "run.steps=9 checkpoint.save=whole.safetensors checkpoint.at=5");
    run_well(&command, settings);
    snprintf(settings, sizeof settings, base, codec,
             "run.steps=4 checkpoint.load=whole-step5.safetensors "
             "checkpoint.save=part.safetensors");
    run_well(&command, settings);
    assert_null(strstr(command.err, "were not read"));
    weights_expect_equal("whole.safetensors", "part.safetensors", true);
}

/* State of other factors or other buckets has another length. */
TEST(test_other_lengths)
{
    static const char *const others[] = {"comm.codec_rank=1", "comm.bucket=4000"};
    const char *const lost = "it has 'comm.shm.codec' and";
    const char *const base = "comm.codec=powersgd eval.every=0 run.warmup_steps=0 run.steps=3 %s";
    struct command command;
    char settings[256];
    snprintf(settings, sizeof settings, base, "checkpoint.save=p.safetensors");
    run_well(&command, settings);
    snprintf(settings, sizeof settings, base, "checkpoint.load=p.safetensors");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        dpbench_says(deadline_s, 2, WORDS(lost, "checkpoint.partial=yes"), TRAINING "%s %s",
                     settings, others[i]);
        dpbench_says(deadline_s, 0, WORDS(lost, "begin anew"),
                     TRAINING "%s %s checkpoint.partial=yes", settings, others[i]);
    }
}

/* Residuals of a bucket are where it goes across. */
TEST(test_other_places)
{
    static const char *const others[] = {"comm.hosts=1+2", "comm.hosts=2+1 comm.bucket=4000"};
    const char *const base = "comm.name=hierarchical comm.interface=lo comm.codec=topk "
                             "run.workers=3 run.steps=3 checkpoint.%s=h.safetensors %s";
    struct command command;
    char settings[256];
    snprintf(settings, sizeof settings, base, "save", "comm.hosts=2+1");
    run_well(&command, settings);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(settings, sizeof settings, base, "load", others[i]);
        dpbench_says(deadline_s, 2, WORDS("residuals are of other buckets"), TRAINING "%s",
                     settings);
    }
}

/* ---- refusals ------------------------------------------------------------------------------ */

#define SLOTS "comm.shard=gradients "
#define NEEDS "comm.shard=parameters "
#define NEEDS_APART "comm.shard = parameters has weights while they are read"
#define SLOTS_APART "comm.shard = gradients keeps gradients in slots of a few buckets"

TEST(test_refusals)
{
    static const struct {
        const char *settings, *words[6];
    } refusals[] = {
        {"comm.codec=topk comm.name=gossip",
         {"comm 'gossip' carries no codec, and comm.codec = topk",
          "carries codecs:", " diloco gloo hierarchical local_sgd ", NULL}},
        {"comm.codec=powersgd comm.name=ps_cpu",
         {"comm 'ps_cpu' carries no codec of two rounds, and comm.codec = powersgd",
          "carries these:", " hierarchical ", " replicated ring_tcp ", " shm\n", NULL}},
        {"comm.codec=topk comm.name=fault",
         {"comm 'fault' carries no codec whose messages cannot be added, and comm.codec = topk",
          "carries these:", "hierarchical ", " shm\n", NULL}},
        {"comm.codec=topk comm.codec_momentum=0.9 optimizer.momentum=0.9",
         {"comm.codec = topk keeps a velocity on each worker", "optimizer.momentum = 0", NULL}},
        {"comm.codec=tokp", {"unknown codec 'tokp'", "did you mean 'topk'?", NULL}},
        {"comm.codec=topk run.precision=fp64", {"comm.codec = topk encodes gradients in fp32"}},
        {"comm.codec=topk comm.gradient=bf16", {"leave comm.gradient out"}},
        {"comm.codec=int8 comm.codec_ratio=0.1",
         {"unknown option 'codec_ratio' for comm 'shm' and codec 'int8'; it is an option of topk"}},
        {"comm.codec_feedback=no",
         {"unknown option 'codec_feedback' for comm 'shm'; it is an option of ", "topk",
          " (comm.codec)\n", NULL}},
        {"comm.codec=int8 comm.shard=optimizer",
         {"comm.shard = optimizer beside comm.codec = int8", NULL}},
        {SLOTS "run.accumulate=2 comm.gradient=bf16", {SLOTS_APART, "comm.gradient: ", NULL}},
        {SLOTS "comm.late=1", {SLOTS_APART, "comm.late: ", NULL}},
        {SLOTS "comm.codec=int8", {"comm.shard = gradients beside comm.codec = int8", NULL}},
        {NEEDS "run.accumulate=2", {NEEDS_APART, "run.accumulate: ", NULL}},
        {NEEDS "comm.late=1", {NEEDS_APART, "comm.late: ", NULL}},
        {NEEDS "run.comm_cores=1", {NEEDS_APART, "run.comm_cores: ", NULL}},
        {NEEDS "optimizer.clip_norm=1", {NEEDS_APART, "optimizer.clip_norm: ", NULL}},
        {NEEDS "comm.codec=int8", {"comm.shard = parameters beside comm.codec = int8", NULL}},
        {"comm.name=gloo comm.shard=gradients",
         {"comm.shard: 'gradients' is not one of none, optimizer", NULL}},
        {"comm.name=hierarchical comm.transport=mpi comm.shard=optimizer",
         {"comm.shard = optimizer goes round rings", "not with comm.transport = mpi", NULL}},
        {"comm.name=hierarchical comm.inside=nccl comm.shard=optimizer",
         {"comm.shard = optimizer goes round rings", "not with comm.inside = nccl", NULL}},
        {"comm.name=ps_cpu comm.shard=optimizer",
         {"unknown option 'shard' for comm 'ps_cpu'; it is an option of ", "replicated", " shm",
          NULL}},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        dpbench_says(deadline_s, 2, refusals[i].words, TRAINING "%s", refusals[i].settings);
        dpbench_says(deadline_s, 2, refusals[i].words, "check -c base.ini comm.name=shm %s",
                     refusals[i].settings);
    }
    dpbench_says(deadline_s, 0, WORDS(""),
                 "check -c base.ini comm.name=shm comm.codec=topk comm.gradient=fp32");
}

/* Where the servers report the spans of an exchange: no forward pass hides one, since the exchange
 * before is over, and a worker that is alone waits for no peer. */
TEST(test_spans)
{
    static const char *const settings[] = {
        "comm.name=ps_cpu run.workers=1 run.servers=1", "comm.name=ps_cpu run.workers=2",
        "comm.name=ps_cpu run.workers=2 run.servers=2",
        "comm.name=ps_cpu run.workers=1 run.servers=1 comm.hosts=1+1 comm.interface=lo"};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct command command;
        char all[256];
        snprintf(all, sizeof all, "%s comm.codec=onebit run.steps=20 comm.bucket=1000",
                 settings[i]);
        run_well(&command, all);
        const json_t *parts = json_at(command.json, "timing.breakdown_ns");
        if (!(json_number_at(parts, "comm_hidden") <= json_number_at(parts, "backward")))
            fail_msg("%s: more is hidden than backward can hide", all);
        if (i % 3 == 0 && json_number_at(parts, "comm_wait_peer") != 0)
            fail_msg("%s: one worker waits for a peer", all);
    }
}

/* An axis over codecs leaves each cell the options of its own codec. */
TEST(test_sweep)
{
    struct command command;
    sandbox_write(
        "sweep.ini",
        "[run]\nresults =\nworkers = 2\nbatch = 2\nsteps = 2\nwarmup_steps = 0\n"
        "steady_limit_s = 0\n[model]\nname = tiny_dense\n"
        "[data]\nsamples = 64\n[device]\nname = reference\nthreads = 1\n"
        "[comm]\nname = shm\ncodec_ratio = 0.5\ncodec_feedback = no\n"
        "[sweep]\ncomm.codec = none, int8, topk, powersgd\nrepeats = 1\nretry_disturbed = 0\n");
    dpbench_ends(&command, deadline_s, 0, "-c sweep.ini --json");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 4);
    for (size_t i = 0; i < 4; i++) {
        const json_t *run = json_array_get(json_at(command.json, "runs"), i);
        const size_t cell = (size_t)json_number_at(run, "cell_index");
        const json_t *row = json_array_get(json_at(command.json, "rows"), cell);
        assert_true(json_is_null(json_at(row, "codec")) == (cell == 0));
        if (cell > 0) {
            assert_true(json_number_at(row, "codec.ratio") ==
                        json_number_at(run, "comm.codec.ratio"));
            assert_true(json_number_at(row, "codec.encode_ns") ==
                        json_number_at(run, "comm.codec.encode_ns"));
        }
    }
    dpbench(&command, deadline_s, "-c sweep.ini");
    EXPECT_WORDS("table", command.out, "of fp32", "coding", "100.0 %", " ms");
    dpbench(&command, deadline_s, "-c sweep.ini sweep.comm.codec=none");
    assert_null(strstr(command.out, "coding"));
}

int main(void)
{
    find_carriers();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        add_case(test_books, (void *)&rows[i], "%s keeps its books", rows[i].codec);
    for (size_t i = 0; i < n_carriers; i++) {
        add_case(test_lossless, (void *)carriers[i], "%s: all elements are no codec", carriers[i]);
        add_case(test_start, (void *)carriers[i], "%s: the codec begins later", carriers[i]);
        if (carries(carriers[i], "mutant"))
            add_case(test_refused_message, (void *)carriers[i], "%s: a wrong message", carriers[i]);
        if (sums(carriers[i], "powersgd") && carries(carriers[i], "powersgd"))
            add_case(test_sums, (void *)carriers[i], "%s: sums in another order", carriers[i]);
    }
    for (size_t i = LISTED; i < n_carriers; i++) {
        static char of_core[MOST_CARRIERS][64], goes_on[MOST_CARRIERS][128];
        snprintf(of_core[i], sizeof *of_core, "%s run.comm_cores=1", carriers[i]);
        snprintf(goes_on[i], sizeof *goes_on,
                 "topk comm.codec_momentum=0.9 optimizer.momentum=0 comm.bucket=4000 comm.name=%s",
                 carriers[i]);
        add_case(test_servers, (void *)carriers[i], "%s: the bits of shm", carriers[i]);
        add_case(test_servers, of_core[i], "%s: the bits of shm", of_core[i]);
        add_case(test_goes_on, goes_on[i], "%s: saved and continued", carriers[i]);
    }
    for (size_t i = 0; i < N_SERVERS; i++) {
        add_case(test_servers, (void *)servers[i], "%s: the bits of shm", servers[i]);
        add_case(test_refused_message, (void *)servers[i], "%s: a wrong message", servers[i]);
    }
    for (size_t i = 0; i < N_MACHINES; i++)
        add_case(test_machines, (void *)machines[i], "hierarchical %s: the books", machines[i]);
    for (size_t i = 0; i < N_FED; i++)
        add_case(test_feedback, (void *)fed[i], "%s: feedback", fed[i]);
    add_case(test_goes_on, (void *)"topk", "topk: saved and continued");
    add_case(test_goes_on,
             (void *)"topk comm.codec_momentum=0.9 comm.codec_warmup_steps=7 optimizer.momentum=0",
             "topk with momentum: saved and continued");
    add_case(test_goes_on, (void *)"onebit comm.codec_start_step=7",
             "onebit: saved before it begins, and continued");
    add_case(test_goes_on, (void *)"int8 comm.codec_rounding=stochastic",
             "int8 stochastic: saved and continued");
    add_case(test_goes_on, (void *)"qsgd", "qsgd: saved and continued");
    add_case(test_goes_on, (void *)"powersgd", "powersgd: saved and continued");
    add_case(test_goes_on, (void *)"powersgd comm.name=ring_tcp comm.bucket=1000",
             "powersgd round a ring: saved and continued");
    add_case(test_goes_on,
             (void *)"topk comm.codec_momentum=0.9 optimizer.momentum=0 comm.bucket=1000 "
                     "comm.name=hierarchical comm.hosts=2+1 comm.interface=lo",
             "hierarchical: saved and continued");
    add_case(test_goes_on,
             (void *)"powersgd comm.bucket=1000 comm.name=hierarchical comm.hosts=2+1 "
                     "comm.interface=lo",
             "hierarchical, powersgd: saved and continued");
    return test_main(faults_setup, sandbox_teardown);
}
