/* needs: long plain threads mutants */
/*
 * test_mutants.c - every check of sameness catches what it is there for.
 *
 * A mutant is a strategy with one mistake (tests/plugins/comm_mutant.c), at work from the pattern's
 * exchange on, from that of run.prove on, or from training on. For each the table says which check
 * catches it; where that is the comparison with one worker, it may also say which other training
 * the mistake turns this one into, so that mutants do what their names say and no more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/needs.h"
#include "lib/says.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

enum { WORKERS = 3, EXIT_VERIFICATION = 3 };

static const double meaning_bound = 1e-8;

/* From which exchange on a mutant is at work. */
enum { IN_PATTERN, IN_PROOF, IN_TRAINING };

enum catcher { NOTHING, PATTERN, EXCHANGE, REPLICAS, AFTER, STEPS, MEANING };
static const char *const catcher_names[] = {"nothing", "pattern", "exchange", "replicas",
                                            "after",   "steps",   "meaning"};

/* All weights are updated with the last bucket. */
#define CLIPPED " optimizer.clip_norm=0.01"

/* Behind training's last exchange: the check after training does not meet the mistake. */
#define TRAINING_ALONE " comm.until=7"

struct mutant {
    const char *mutation;
    int from;
    enum catcher caught_by;
    const char *same_as; /* settings of a right training that the mutant's is */
};

static const struct mutant mutants[] = {
    {"none", IN_PATTERN, NOTHING, ""},
    {"wrong_scale", IN_PATTERN, PATTERN, NULL},
    {"wrong_scale", IN_PROOF, EXCHANGE, NULL},
    {"wrong_scale", IN_TRAINING, AFTER, NULL},
    {"wrong_scale" TRAINING_ALONE, IN_TRAINING, STEPS, NULL},
    {"bucket_left_out", IN_PATTERN, PATTERN, NULL},
    {"bucket_left_out", IN_PROOF, EXCHANGE, NULL},
    {"bucket_left_out", IN_TRAINING, AFTER, NULL},
    {"bucket_left_out" TRAINING_ALONE, IN_TRAINING, STEPS, NULL},
    {"slices_swapped", IN_PATTERN, PATTERN, NULL},
    {"slices_swapped", IN_PROOF, EXCHANGE, NULL},
    {"slices_swapped", IN_TRAINING, AFTER, NULL},
    {"slices_swapped" TRAINING_ALONE, IN_TRAINING, STEPS, NULL},
    {"element_wrong comm.until=1", IN_PATTERN, PATTERN, NULL},
    {"element_wrong comm.until=2", IN_PROOF, EXCHANGE, NULL},
    {"element_wrong comm.until=3", IN_TRAINING, STEPS, NULL},
    {"updated_twice", IN_PATTERN, PATTERN, NULL},
    {"updated_twice", IN_PROOF, EXCHANGE, NULL},
    {"updated_twice", IN_TRAINING, AFTER, NULL},
    {"updated_twice" TRAINING_ALONE, IN_TRAINING, STEPS, NULL},
    {"update_skipped comm.until=1", IN_PATTERN, PATTERN, NULL},
    {"update_skipped comm.until=2", IN_PROOF, EXCHANGE, NULL},
    {"update_skipped comm.until=3", IN_TRAINING, STEPS, NULL},
    {"stale_weights", IN_PATTERN, PATTERN, NULL},
    {"stale_weights", IN_PROOF, EXCHANGE, NULL},
    {"stale_weights", IN_TRAINING, REPLICAS, NULL},
    {"replica_diverges", IN_PATTERN, PATTERN, NULL},
    {"replica_diverges", IN_PROOF, EXCHANGE, NULL},
    {"replica_diverges", IN_TRAINING, REPLICAS, NULL},
    {"published", IN_PATTERN, PATTERN, NULL},
    {"published", IN_TRAINING, REPLICAS, NULL},
    {"late_weights", IN_PATTERN, MEANING, NULL},
    {"decay_dropped", IN_PATTERN, STEPS, "optimizer.weight_decay=0"},
    {"none" CLIPPED, IN_PATTERN, MEANING, CLIPPED},
    {"wrong_scale" CLIPPED, IN_PATTERN, PATTERN, NULL},
    {"bucket_left_out" CLIPPED, IN_PROOF, EXCHANGE, NULL},
    {"slices_swapped" CLIPPED, IN_TRAINING, AFTER, NULL},
    {"update_skipped" CLIPPED, IN_PATTERN, PATTERN, NULL},
    {"replica_diverges" CLIPPED, IN_TRAINING, REPLICAS, NULL},
    {0},
};

/* ---- the trainings that mutants are compared with ------------------------------------------ */

#define TERMS "model.name=tiny run.prove=no optimizer.weight_decay=0.1 optimizer.momentum=0.9 "

static struct training start, right, same; /* `same`: as the mutant under test */

static int setup(void **state)
{
    training_setup_mutants(state);
    train(&start, TERMS "run.steps=1 optimizer.learning_rate=0");
    train(&right, TERMS "run.accumulate=%d", WORKERS);
    return 0;
}

/* ---- one mutant ---------------------------------------------------------------------------- */

static bool failed(const struct training *training, const char *check)
{
    char path[64];
    snprintf(path, sizeof path, "verification.%s", check);
    return strcmp(json_text_at(training->command.json, path), "fail") == 0;
}

/* Which check spoke against this run; fails the test when it ended in any other way. */
static enum catcher caught_by(const struct training *training)
{
    struct weights_difference worst;
    const struct command *command = &training->command;
    if (command->exit_code == 0)
        return weights_agree(&training->weights, &right.weights, &start.weights, meaning_bound,
                             &worst)
                   ? NOTHING
                   : MEANING;
    for (enum catcher check = PATTERN; check <= STEPS; check++)
        if (command->exit_code == EXIT_VERIFICATION && failed(training, catcher_names[check]))
            return check;
    fail_msg("%s\nexit code %d, but no check has failed: %s", training->settings,
             command->exit_code, command->err);
    return NOTHING;
}

/* A message says what is wrong: the check, the strategy, and where. Of a replica that publishes
 * other weights than it trains with, it says that. */
static void expect_message(const struct training *training, enum catcher check)
{
    static const char *const words[][3] = {
        [PATTERN] = {"pattern check of comm 'mutant_", "element ", ") of '"},
        [EXCHANGE] = {"exchange check of comm 'mutant_", "element ", ") of '"},
        [REPLICAS] = {"replicas differ after step ", "rank ", "comm 'mutant_"},
        [AFTER] = {"pattern (after training) check of comm 'mutant_", "element ", ") of '"},
        [STEPS] = {"steps check of comm 'mutant_", "element ", ") of '"},
    };
    static const char *const published[] = {"publishes other weights", "rank ", "comm 'mutant_"};
    const bool publishes = check == REPLICAS && strstr(training->settings, "=published");
    const char *const *said = publishes ? published : words[check];
    for (int i = 0; i < 3; i++)
        if (!strstr(json_text_at(training->command.json, "error"), said[i]) &&
            !strstr(training->command.err, said[i]))
            fail_msg("%s\nnothing says '%s': %s", training->settings, said[i],
                     training->command.err);
}

static void expect_same_as(const struct training *training, const char *settings)
{
    if (!same.settings)
        train(&same, TERMS "run.accumulate=%d %s", WORKERS, settings);
    expect_same_weights(training, &same, &start, meaning_bound);
}

/* Core follows a few elements, the first one of all among them. Those of a bucket may have no
 * gradient. */
static bool is_unfollowed(const struct mutant *mutant, const char *others)
{
    const bool element =
        strstr(mutant->mutation, "element_wrong") && strstr(others, "comm.element=");
    return mutant->caught_by == STEPS && (element || strstr(mutant->mutation, "bucket_left_out") ||
                                          strstr(mutant->mutation, "update_skipped"));
}

/* Workers that copy the weights of the late one may come while it has the old ones. Then replicas
 * differ in a step. */
static bool is_spread(const struct mutant *mutant)
{
    return strcmp(mutant->mutation, "late_weights") == 0;
}

static void expect_caught(const struct mutant *mutant, const struct strategy_form *form,
                          const char *others)
{
    struct training training;
    train_anyway(&training, TERMS "%s run.prove=yes comm.mutation=%s comm.from=%d %s",
                 form_settings(form, "mutant_", WORKERS), mutant->mutation, mutant->from, others);
    enum catcher check = caught_by(&training);
    if (check != mutant->caught_by && !(check == MEANING && is_unfollowed(mutant, others)) &&
        !(check == STEPS && is_spread(mutant)))
        fail_msg("%s\nis to be caught by: %s; was caught by: %s\n%s", training.settings,
                 catcher_names[mutant->caught_by], catcher_names[check], training.command.err);
    if (check == mutant->caught_by && check >= PATTERN && check <= STEPS)
        expect_message(&training, check);
    if (mutant->same_as)
        expect_same_as(&training, mutant->same_as);
}

/* Odd buckets; one of them has an element or two a slice. `make mutants` takes all places for every
 * strategy. `make check` takes the first, and each mutant meets a third of the strategies. A
 * library takes seconds for small buckets: it has the last two, or one. */
enum { PLACES = 5, SMALL = 3 };
static const char *const places[PLACES] = {
    "comm.bucket=296",
    "comm.bucket=296 comm.mutant_bucket=40 comm.element=101",
    "comm.bucket=56 comm.mutant_bucket=21 comm.element=200",
    "comm.bucket=1GiB",
    "comm.bucket=1000 run.comm_cores=1",
};

/* Of one bucket the first worker is the owner: the last one makes no weights, and the mutant takes
 * an owner of all for a strategy that gives none. */
static bool is_void(const struct strategy_form *form, const struct mutant *mutant, int place)
{
    return form->sharded && strcmp(form->name, "replicated") == 0 &&
           strstr(places[place], "1GiB") &&
           (strstr(mutant->mutation, "replica_diverges") ||
            strstr(mutant->mutation, "stale_weights"));
}

/* `turn`: the numbers of mutant and strategy together. */
static bool is_taken(const struct strategy_form *form, const struct mutant *mutant, int place,
                     size_t turn)
{
    bool library = form->network && !form->ring;
    if (is_void(form, mutant, place))
        return false;
    if (strstr(mutant->mutation, CLIPPED) &&
        (!(strategy_named(form->name)->capabilities &
           (form->sharded ? DPB_COMM_WHOLE_SHARDS : DPB_COMM_WHOLE)) ||
         (strcmp(form->name, "ps_cpu") == 0 && form->machines && form->servers != 1)))
        return false;
    if (getenv("DPB_ALL_MUTANTS") == NULL)
        return turn % 3 == 0 && place == (library ? PLACES - 1 : 0);
    return !library || place >= SMALL;
}

/* All that its workers and its server say goes over the network. */
static const struct strategy_form far_server = {.name = "ps_cpu",
                                                .servers = 1,
                                                .label = "ps_cpu, 1 server, on another machine",
                                                .machines = true,
                                                .synchronous = true};

static void test_mutant(void **state)
{
    const struct mutant *mutant = *state;
    same.settings = NULL; /* the mutant before had another */
    for (int place = 0; place < PLACES; place++) {
        size_t turn = (size_t)(mutant - mutants);
        if (is_taken(&far_server, mutant, place, turn++))
            expect_caught(mutant, &far_server, places[place]);
        for (const struct strategy_form *form = NULL; (form = strategy_form_after(form)); turn++)
            if (is_taken(form, mutant, place, turn))
                expect_caught(mutant, form, places[place]);
    }
}

/* Slots that take a bucket too early, and none that do. */
TEST(test_slots)
{
    static const struct {
        const char *mutation;
        int from;
        enum catcher caught_by;
    } cases[] = {{"none", IN_PATTERN, NOTHING},
                 {"taken_early", IN_PATTERN, PATTERN},
                 {"taken_early", IN_TRAINING, AFTER},
                 {"bucket_left_out", IN_PATTERN, PATTERN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct training training;
        train_anyway(&training,
                     "model.name=resnet20 model.image=8 run.steps=1 comm.bucket=4096 "
                     "comm.shard=gradients comm.name=mutant_%s run.workers=2 comm.mutation=%s "
                     "comm.from=%d",
                     i % 2 == 0 ? "ring_tcp" : "shm", cases[i].mutation, cases[i].from);
        const char *check = catcher_names[cases[i].caught_by];
        if (cases[i].caught_by == NOTHING ? training.command.exit_code != 0
                                          : !failed(&training, check))
            fail_msg("%s\nis to be caught by: %s\n%s", training.settings, check,
                     training.command.err);
    }
}

/* Weights on need that do not come, or come too late, and those that come. */
TEST(test_needs)
{
    static const struct {
        const char *mutation;
        int from;
        enum catcher caught_by;
    } cases[] = {{"none", IN_PATTERN, NOTHING},
                 {"need_left_out", IN_PATTERN, PATTERN},
                 {"need_left_out", IN_TRAINING, REPLICAS},
                 /* one step's passes alone have other weights */
                 {"need_left_out comm.until=4 comm.from=3", IN_TRAINING, STEPS},
                 {"met_early", IN_PATTERN, PATTERN},
                 {"bucket_left_out", IN_PATTERN, PATTERN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct training training;
        train_anyway(&training,
                     "model.name=resnet20 model.image=8 run.steps=4 comm.bucket=256KiB "
                     "comm.shard=parameters comm.name=mutant_shm run.workers=2 comm.from=%d "
                     "comm.mutation=%s",
                     cases[i].from, cases[i].mutation);
        const char *check = catcher_names[cases[i].caught_by];
        if (cases[i].caught_by == NOTHING ? training.command.exit_code != 0
                                          : !failed(&training, check))
            fail_msg("%s\nis to be caught by: %s\n%s", training.settings, check,
                     training.command.err);
    }
}

/* Owners forget the sums of earlier micro-batches, which no check but the last has. */
TEST(test_kept_sums)
{
    static const struct {
        const char *mutation;
        enum catcher caught_by;
    } cases[] = {{"none", NOTHING}, {"sums_forgotten", STEPS}};
    for (size_t i = 0; i < 2 * (sizeof cases / sizeof *cases); i++) {
        struct training training;
        train_anyway(&training,
                     TERMS "comm.bucket=4096 comm.shard=gradients comm.name=mutant_%s "
                           "run.workers=2 run.accumulate=2 comm.mutation=%s comm.from=%d",
                     i % 2 == 0 ? "ring_tcp" : "shm", cases[i / 2].mutation, IN_PATTERN);
        const char *check = catcher_names[cases[i / 2].caught_by];
        if (cases[i / 2].caught_by == NOTHING ? training.command.exit_code != 0
                                              : !failed(&training, check))
            fail_msg("%s\nis to be caught by: %s\n%s", training.settings, check,
                     training.command.err);
    }
}

/* With shards and norms, a rank forgets one owner's sums of squares; and one that does not. */
TEST(test_squares)
{
    static const char *const strategies[] = {"shm", "ring_tcp"};
    static const struct {
        const char *mutation, *caught_by;
    } cases[] = {{"none", NULL}, {"squares_lack comm.from=3", "steps"}};
    for (size_t i = 0; i < 4; i++) {
        struct training training;
        train_anyway(&training,
                     TERMS "comm.name=mutant_%s run.workers=%d comm.shard=optimizer "
                           "comm.bucket=296 comm.mutation=%s" CLIPPED,
                     strategies[i / 2], WORKERS, cases[i % 2].mutation);
        const char *check = cases[i % 2].caught_by;
        if (check ? !failed(&training, check) : training.command.exit_code != 0)
            fail_msg("%s\nis to be caught by: %s\n%s", training.settings, check ? check : "nothing",
                     training.command.err);
        if (check)
            EXPECT_WORDS("squares", training.command.err,
                         "scaled their updates by different norms");
    }
}

/* A rank of ps_cpu keeps old weights in one step, and takes new ones in the next. */
TEST(test_differed)
{
    struct training training;
    train_anyway(&training,
                 TERMS "comm.name=mutant_ps_cpu run.workers=%d comm.bucket=1GiB "
                       "comm.mutation=stale_weights comm.from=2 comm.until=3",
                 WORKERS);
    assert_int_equal(training.command.exit_code, EXIT_VERIFICATION);
    assert_true(failed(&training, catcher_names[STEPS]));
    EXPECT_WORDS("stale weights", training.command.err,
                 "steps check of comm 'mutant_ps_cpu': before step 2 of training the weights of "
                 "rank 0 and of rank 2 differed");
}

/* Another model is published in training, to an evaluation or a checkpoint, and the right one after
 * it. */
TEST(test_published_once)
{
    static const char *const when[] = {"eval.every=2", "checkpoint.every=2"};
    for (size_t i = 0; i < sizeof when / sizeof *when; i++)
        train_says(EXIT_VERIFICATION,
                   WORDS("comm 'mutant_shm' publishes other weights", "before step 2 than rank "),
                   TERMS "comm.name=mutant_shm run.workers=2 %s comm.mutation=published "
                         "comm.from=1 comm.until=5",
                   when[i]);
}

/* A plan of slots beside what needs all gradients, whatever the strategy's option is called. */
/* No strategy knows the gradients of a proof: an equal run has others. */
TEST(test_secret_gradients)
{
    struct training runs[2];
    for (int i = 0; i < 2; i++) {
        train_anyway(&runs[i], TERMS "run.workers=2 comm.name=mutant_shm run.prove=yes "
                                     "comm.mutation=wrong_scale comm.from=1");
        assert_int_equal(caught_by(&runs[i]), EXCHANGE);
    }
    assert_string_not_equal(strstr(json_text_at(runs[0].command.json, "error"), "exchange check"),
                            strstr(json_text_at(runs[1].command.json, "error"), "exchange check"));
}

TEST(test_slots_refused)
{
    static const char *const beside[] = {"comm.late=1", "run.accumulate=2"};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        struct training training;
        train_anyway(&training,
                     "model.name=resnet20 model.image=8 run.steps=1 comm.bucket=4096 run.prove=no "
                     "comm.name=mutant_shm run.workers=2 comm.mutation=slots %s",
                     beside[i]);
        EXPECT_WORDS(beside[i], training.command.err,
                     "gradients in slots lie on the host, without comm.late");
    }
}

int main(void)
{
    static const char *const when[] = {"from the pattern on", "from the proof on", "in training"};
    for (const struct mutant *mutant = mutants; mutant->mutation; mutant++)
        add_case(test_mutant, mutant, "%s, %s: %s", mutant->mutation, when[mutant->from],
                 catcher_names[mutant->caught_by]);
    return test_main(setup, training_teardown);
}
