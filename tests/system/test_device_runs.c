/*
 * test_device_runs.c - trainings by the strategies that keep their arenas on GPUs and are driven by the
 * host, ps_gpu and replicated: that they exchange what they should, train as others do, bit for bit, move
 * the bytes that their definitions say, directly or by way of the host, and that the checks of sameness
 * catch mistakes in them. On a CUDA for tests (tests/cuda), or with DPB_TEST_DEVICE=cuda on a GPU that two
 * workers share.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cases.h"
#include "lib/stand_in.h"
#include "lib/training.h"

#define CUDA "device.name=cuda run.precision=fp32 device.tuning=no "
#define TERMS CUDA "model.name=tiny optimizer.weight_decay=0.1 "

struct form {
    const char *settings, *mutant, *label;
    bool gives_weights; /* workers fetch weights, not sums */
    bool one;           /* worker 0 owns all */
};

static const struct form forms[] = {
    {"comm.name=ps_gpu", "comm.name=mutant_ps_gpu", "ps_gpu, shards on all", true, false},
    {"comm.name=ps_gpu comm.shards=one", "comm.name=mutant_ps_gpu comm.shards=one",
     "ps_gpu, all on one", true, true},
    {"comm.name=replicated", "comm.name=mutant_replicated", "replicated", false, false},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static char checked[64]; /* a directory */

/* The most workers that are tried. */
static int most_workers(void)
{
    return on_gpu() ? 2 : 4;
}

/* Two to a GPU. */
static const char *workers_on(int workers)
{
    static const char *const settings[] = {"", "run.workers=1", "run.workers=2 device.ids=0,0",
                                           "run.workers=3 device.ids=0,1,1",
                                           "run.workers=4 device.ids=0,1,0,1"};
    return settings[workers];
}

/* ---- the exchange -------------------------------------------------------------------------- */

static const char *const types[] = {"comm.gradient=fp32", "comm.gradient=bf16"};
static const char *const buckets[] = {"4", "212", "1GiB"};

static void expect_exchange(const struct form *form, int workers, const char *settings)
{
    struct training training;
    train(&training, CUDA "model.name=tiny_bn run.steps=1 run.prove=yes %s %s %s", form->settings,
          workers_on(workers), settings);
    expect_verified(&training);
    training_free(&training);
}

/* Every pair of workers, types and buckets; all triples in `make check-long`. */
static void test_exchange(void **state)
{
    const struct form *form = *state;
    char settings[80];
    for (int workers = 1; workers <= most_workers(); workers++)
        for (int type = 0; type < 2; type++)
            for (int bucket = 0; bucket < 3; bucket++) {
                if (!getenv("DPB_ALL_CELLS") && (workers + type + bucket) % 3 != 0)
                    continue;
                snprintf(settings, sizeof settings, "%s comm.bucket=%s", types[type],
                         buckets[bucket]);
                expect_exchange(form, workers, settings);
            }
    expect_exchange(form, 2, "run.comm_cores=1 comm.bucket=212");
}

/* ---- the same training --------------------------------------------------------------------- */

/* Of rows that all forms are to meet each gets one; all of them in `make check-long`. */
static bool is_turn(const struct form *form, size_t row)
{
    return getenv("DPB_ALL_CELLS") || row % N_FORMS == (size_t)(form - forms);
}

/* The sums are those of the strategies on the host, in the same order. A GPU's own arithmetic may round
 * an update once less than the processor's. */
static void expect_same(const struct form *form, int workers, const char *settings,
                        const struct training *start, const struct training *one)
{
    struct training host, device;
    train(&device, TERMS "%s %s %s comm.bucket=1000", form->settings, workers_on(workers),
          settings);
    train(&host, TERMS "comm.name=shm %s %s", workers_on(workers), settings);
    expect_same_weights(&device, &host, start, on_gpu() ? 1e-5 : 0.0);
    if (one)
        expect_same_weights(&device, one, start, 1e-4);
    training_free(&device);
    training_free(&host);
}

static void test_same_training(void **state)
{
    static const char *const optimizers[] = {"optimizer.momentum=0.9", "optimizer.nesterov=yes",
                                             "optimizer.name=adagrad"};
    const struct form *form = *state;
    struct training start, one;
    train(&start, TERMS "run.steps=1 optimizer.learning_rate=0");
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        if (!is_turn(form, i))
            continue;
        train(&one, TERMS "run.accumulate=2 %s", optimizers[i]);
        expect_same(form, 2, optimizers[i], &start, &one);
        training_free(&one);
    }
    if (most_workers() >= 3)
        expect_same(form, 3, "comm.gradient=bf16", &start, NULL);
    training_free(&start);
}

/* ---- what it may be combined with ----------------------------------------------------------- */

static void test_combined(void **state)
{
    static const char *const settings[] = {
        "run.accumulate=2 run.comm_cores=1 comm.bucket=1000 eval.final=yes data.test_samples=6",
        "run.precision=bf16 comm.gradient=bf16 optimizer.name=adagrad run.accumulate=3",
        "optimizer.momentum=0 eval.every=2 data.test_samples=6"};
    const struct form *form = *state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct training training;
        if (!is_turn(form, i))
            continue;
        train(&training, CUDA "model.name=tiny_bn run.prove=yes %s %s %s", form->settings,
              workers_on(2), settings[i]);
        expect_verified(&training);
        training_free(&training);
    }
}

static void test_refused(void **state)
{
    static const struct {
        const char *settings, *word;
    } rows[] = {
        {"run.servers=1", "run.servers"},
        {"comm.hosts=1+1", "comm.hosts"},
        {"run.mode=forward", "run.mode"},
        {"run.precision=fp64", "run.precision"},
    };
    const struct form *form = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training training;
        train_anyway(&training, CUDA "model.name=tiny %s %s %s", form->settings, workers_on(2),
                     rows[i].settings);
        if (training.command.exit_code != 2 || !strstr(training.command.err, rows[i].word))
            fail_msg("%s: exit code %d: %s", training.settings, training.command.exit_code,
                     training.command.err);
        training_free(&training);
    }
}

/* `check` knows where the arenas will be. */
static void test_checked(void **state)
{
    const struct form *form = *state;
    struct command check;
    char ini[128];
    snprintf(ini, sizeof ini, "%s/check.ini", checked);
    write_file(ini, "", 0);
    dpbench(&check, 60.0, "check -c %s " CUDA "model.name=lenet data.name=synthetic run.steps=1 %s",
            ini, form->settings);
    if (check.exit_code != 0 || !strstr(check.out, "MiB of arenas on each worker's device"))
        fail_msg("%s: exit code %d: %s%s", form->settings, check.exit_code, check.out, check.err);
    command_free(&check);
}

/* ---- bytes --------------------------------------------------------------------------------- */

static void test_bytes(void **state)
{
    const struct form *form = *state;
    for (int workers = 1; workers <= most_workers(); workers++)
        for (int type = 0; type < 2; type++) {
            struct training training;
            if (!getenv("DPB_ALL_CELLS") && workers % 2 != type)
                continue;
            int gradient = type == 0 ? 4 : 2, back = form->gives_weights ? 4 : gradient;
            train(&training, CUDA "model.name=tiny %s %s %s comm.bucket=148", form->settings,
                  workers_on(workers), types[type]);
            double elements = (double)weights_arena_elements(&training.weights);
            double moved = json_number_at(training.command.json, "comm.bytes_per_step");
            if (moved != (workers - 1) * elements * (gradient + back))
                fail_msg("%s: %g bytes a step", training.settings, moved);
            training_free(&training);
        }
}

/* What a rank's audit says (tests/plugins/comm_mutant.c). */
static void read_audit(const struct training *training, int rank, unsigned long long audit[4])
{
    char head[64];
    snprintf(head, sizeof head, "audit of rank %d: ", rank);
    const char *line = strstr(training->command.err, head);
    if (!line || sscanf(line + strlen(head), "summed %llu, read %llu, wrote %llu, reported %llu",
                        &audit[0], &audit[1], &audit[2], &audit[3]) != 4)
        fail_msg("%s\nno audit of rank %d: %s", training->settings, rank, training->command.err);
}

/* Looked at copy by copy: all is summed once, every worker pushes what it does not own and fetches as
 * much. */
static void test_audit(void **state)
{
    enum { WORKERS = 3, STEPS = 5 };
    const struct form *form = *state;
    struct training training;
    unsigned long long summed = 0, audit[4];
    train(&training,
          CUDA "model.name=tiny %s %s run.steps=%d comm.bucket=148 "
               "comm.mutation=audited comm.from=1",
          form->mutant, workers_on(WORKERS), STEPS);
    unsigned long long all = STEPS * weights_arena_elements(&training.weights);
    for (int rank = 0; rank < WORKERS; rank++) {
        read_audit(&training, rank, audit);
        unsigned long long not_own = 4 * (all - audit[0]);
        if (audit[1] != not_own || audit[2] != not_own || audit[3] != 2 * not_own)
            fail_msg("%s: rank %d summed %llu of %llu elements, read %llu, wrote %llu and reported "
                     "%llu bytes",
                     training.settings, rank, audit[0], all, audit[1], audit[2], audit[3]);
        summed += audit[0];
    }
    assert_true(summed == all);
    training_free(&training);
}

/* ---- ways ---------------------------------------------------------------------------------- */

/* Copies go by the host where GPUs cannot reach each other; that is said, and nothing else changes. */
static void test_ways(void **state)
{
    static const struct {
        const char *peers, *ids, *ways[3], *ways_to_one[3];
    } rows[] = {
        {"1", "0,1,1", {"direct", "direct", "direct"}, {"none of its own", "direct", "direct"}},
        {"0", "0,0,0", {"direct", "direct", "direct"}, {"none of its own", "direct", "direct"}},
        {"0",
         "0,1,1",
         {"staged through the host", "direct, but staged through the host for 1 of 2 workers",
          "direct, but staged through the host for 1 of 2 workers"},
         {"none of its own", "staged through the host", "staged through the host"}},
    };
    const struct form *form = *state;
    struct training first;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training training;
        setenv("DPB_STAND_IN_PEERS", rows[i].peers, 1);
        train(&training, TERMS "%s run.workers=3 device.ids=%s run.prove=yes comm.bucket=1000",
              form->settings, rows[i].ids);
        unsetenv("DPB_STAND_IN_PEERS");
        expect_verified(&training);
        for (int rank = 0; rank < 3; rank++) {
            char path[32];
            snprintf(path, sizeof path, "ranks.%d.comm.copies", rank);
            const char *way = json_text_at(training.command.json, path);
            if (strcmp(way, (form->one ? rows[i].ways_to_one : rows[i].ways)[rank]) != 0)
                fail_msg("%s: %s is '%s'", training.settings, path, way);
        }
        if (i == 0) {
            first = training;
            continue;
        }
        expect_same_weights(&training, &first, NULL, 0.0);
        training_free(&training);
    }
    training_free(&first);
}

/* ---- mutants ------------------------------------------------------------------------------- */

enum { EXIT_VERIFICATION = 3 };

struct mutant {
    const char *mutation, *caught_by; /* a check of the run; "": nothing; NULL: its weights */
};

static const struct mutant mutants[] = {
    {"none", ""},
    {"wrong_scale", "pattern"},
    {"bucket_left_out comm.from=1", "exchange"},
    {"slices_swapped", "pattern"},
    {"element_wrong comm.from=1 comm.until=2", "exchange"},
    {"element_wrong comm.from=2 comm.until=3", NULL},
    {"updated_twice comm.from=1", "exchange"},
    {"updated_twice comm.from=2", NULL},
    {"update_skipped comm.until=1", "pattern"},
    {"stale_weights comm.from=1", "exchange"},
    {"stale_weights comm.from=2", "replicas"},
    {"replica_diverges comm.from=2", "replicas"},
    {"late_weights", NULL},
};
enum { N_MUTANTS = sizeof mutants / sizeof *mutants };

#define MUTANT TERMS "run.workers=3 device.ids=0,1,1 comm.bucket=296 run.prove=yes "

static void expect_caught(const struct form *form, const struct mutant *mutant,
                          const struct training *right)
{
    struct training training;
    struct weights_difference worst;
    char path[64];
    train_anyway(&training, MUTANT "%s comm.mutation=%s", form->mutant, mutant->mutation);
    bool ran = training.command.exit_code == 0;
    bool same = ran && weights_agree(&training.weights, &right->weights, NULL, 0.0, &worst);
    bool caught = ran ? !mutant->caught_by || !mutant->caught_by[0] : mutant->caught_by != NULL;
    if (caught && !ran) {
        snprintf(path, sizeof path, "verification.%s", mutant->caught_by);
        caught = training.command.exit_code == EXIT_VERIFICATION &&
                 strcmp(json_text_at(training.command.json, path), "fail") == 0;
    } else if (caught) {
        caught = same == (mutant->caught_by != NULL);
    }
    if (!caught)
        fail_msg("%s\nis to be caught by %s; exit code %d, weights %s: %s", training.settings,
                 !mutant->caught_by ? "its weights" : mutant->caught_by, training.command.exit_code,
                 same ? "are right" : "differ", training.command.err);
    training_free(&training);
}

/* Each by one of the forms in turn; by all of them in `make mutants`. */
static void test_mutants(void **state)
{
    (void)state;
    for (size_t f = 0; f < N_FORMS; f++) {
        struct training right;
        train(&right, MUTANT "%s", forms[f].settings);
        for (size_t i = 0; i < N_MUTANTS; i++)
            if (getenv("DPB_ALL_MUTANTS") || i % N_FORMS == f)
                expect_caught(&forms[f], &mutants[i], &right);
        training_free(&right);
    }
}

/* ---- the tests ----------------------------------------------------------------------------- */

static int setup(void **state)
{
    char path[1024];
    const char *build = build_directory();
    snprintf(path, sizeof path, "%s/tests/plugins:%s/tests/cuda/plugins", build, build);
    if (!on_gpu())
        setenv("DPBENCH_PLUGIN_PATH", path, 1);
    temporary_directory(checked);
    return training_setup(state);
}

static int teardown(void **state)
{
    remove_directory(checked);
    return training_teardown(state);
}

int main(void)
{
    for (size_t i = 0; i < N_FORMS; i++) {
        add_case(test_exchange, &forms[i], "exchange, %s", forms[i].label);
        add_case(test_same_training, &forms[i], "the same training, %s", forms[i].label);
        add_case(test_combined, &forms[i], "with other options, %s", forms[i].label);
        add_case(test_refused, &forms[i], "refused by name, %s", forms[i].label);
        add_case(test_checked, &forms[i], "memory that check says, %s", forms[i].label);
        add_case(test_bytes, &forms[i], "bytes reported, %s", forms[i].label);
        if (on_gpu())
            continue;
        add_case(test_audit, &forms[i], "who copies what, %s", forms[i].label);
        add_case(test_ways, &forms[i], "direct and staged, %s", forms[i].label);
    }
    if (!on_gpu())
        add_case(test_mutants, NULL, "mutants");
    return run_cases("device runs", setup, teardown);
}
