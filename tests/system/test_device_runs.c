/* needs: long cuda stand-in cells mutants */
/*
 * test_device_runs.c - trainings by the strategies that keep their arenas on GPUs: ps_gpu,
 * replicated, those that average and hierarchical with NCCL inside, which are driven by the host,
 * and nccl: that they exchange what they should, train as others do, bit for bit, move the bytes
 * that their definitions say, directly or by way of the host, and that the checks of sameness catch
 * mistakes in them. On a CUDA for tests (tests/cuda), or with DPB_TEST_DEVICE=cuda on a GPU that
 * two workers share. What nccl alone does is in test_nccl.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/training.h"

#define CUDA "device.name=cuda run.precision=fp32 device.tuning=no "
#define TERMS CUDA "model.name=tiny optimizer.weight_decay=0.1 "

struct form {
    const char *settings, *mutant, *label;
    bool gives_weights; /* workers fetch weights, not sums */
    bool one;           /* worker 0 owns all */
    const char *memory; /* what test_checked is told */
    bool library;       /* of NCCL's sums; reaches other machines */
    bool machines;      /* its workers are told that they are on two, if there are two */
    bool sharded;
};

static const struct form forms[] = {
    {.settings = "comm.name=ps_gpu",
     .mutant = "comm.name=mutant_ps_gpu",
     .label = "ps_gpu, shards on all",
     .gives_weights = true,
     .memory = " and up to 4.0 MiB of scratch on each worker's device"},
    {.settings = "comm.name=ps_gpu comm.shards=one",
     .mutant = "comm.name=mutant_ps_gpu comm.shards=one",
     .label = "ps_gpu, all on one",
     .gives_weights = true,
     .one = true,
     .memory = " and up to 8.0 MiB of scratch on each worker's device"},
    {.settings = "comm.name=replicated",
     .mutant = "comm.name=mutant_replicated",
     .label = "replicated",
     .memory = " and up to 4.0 MiB of scratch on each worker's device"},
    {.settings = "comm.name=replicated comm.shard=optimizer",
     .mutant = "comm.name=mutant_replicated comm.shard=optimizer",
     .label = "replicated, sharded",
     .gives_weights = true,
     .memory = " and up to 4.0 MiB of scratch on each worker's device",
     .sharded = true},
    {.settings = "comm.name=nccl comm.host_ids=rank",
     .mutant = "comm.name=mutant_nccl comm.host_ids=rank",
     .label = "nccl",
     .memory = "MiB of arenas on each worker's device",
     .library = true},
    {.settings = "comm.name=nccl comm.host_ids=rank comm.shard=optimizer",
     .mutant = "comm.name=mutant_nccl comm.host_ids=rank comm.shard=optimizer",
     .label = "nccl, sharded",
     .gives_weights = true,
     .memory = "MiB of arenas on each worker's device",
     .library = true,
     .sharded = true},
    {.settings = "comm.name=hierarchical comm.inside=nccl",
     .mutant = "comm.name=mutant_hierarchical comm.inside=nccl",
     .label = "hierarchical, NCCL inside",
     .memory = "MiB of arenas on each worker's device",
     .library = true,
     .machines = true},
};
enum { N_FORMS = sizeof forms / sizeof *forms };

static bool is_there(const struct form *form)
{
    return !form->library || (on_gpu() ? have_plugin("comm_nccl") : have_stand_in("comm_nccl"));
}

static char checked[64]; /* a directory */

/* The most workers that are tried. */
static int most_workers(void)
{
    return on_gpu() ? 2 : 4;
}

/* Two to a GPU. */
static const char *workers_here(int workers)
{
    static const char *const settings[] = {"", "run.workers=1", "run.workers=2 device.ids=0,0",
                                           "run.workers=3 device.ids=0,1,1",
                                           "run.workers=4 device.ids=0,1,0,1"};
    return settings[workers];
}

static const char *workers_on(const struct form *form, int workers)
{
    static char settings[128];
    snprintf(settings, sizeof settings,
             form->machines && workers > 1 ? "%s comm.interface=lo comm.hosts=%d+%d" : "%s",
             workers_here(workers), workers / 2, workers - workers / 2);
    return settings;
}

/* The GPU drives it, and the processor has no part in it. */
static bool takes_events(const struct form *form)
{
    return form->library && !form->machines;
}

/* ---- the exchange -------------------------------------------------------------------------- */

static const char *const types[] = {"comm.gradient=fp32", "comm.gradient=bf16"};
static const char *const buckets[] = {"4", "212", "1GiB"};

/* A rank sends what it does not own and gets as much back, in the gradients' type or as weights. */
static void expect_bytes(const struct training *training, const struct form *form, int workers,
                         int type)
{
    int gradient = type == 0 ? 4 : 2, back = form->gives_weights ? 4 : gradient;
    double elements = (double)weights_arena_elements(&training->weights);
    double moved = json_number_at(training->command.json, "comm.bytes_per_step");
    if (moved != (workers - 1) * elements * (gradient + back))
        fail_msg("%s: %g bytes a step", training->settings, moved);
}

static void expect_exchange(const struct form *form, int workers, int type, const char *settings)
{
    struct training training;
    train(&training, CUDA "model.name=tiny_bn run.steps=1 run.prove=yes %s %s %s %s",
          form->settings, workers_on(form, workers), types[type], settings);
    expect_verified(&training);
    expect_bytes(&training, form, workers, type);
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
                snprintf(settings, sizeof settings, "comm.bucket=%s", buckets[bucket]);
                expect_exchange(form, workers, type, settings);
            }
    if (!takes_events(form))
        expect_exchange(form, 2, 0, "run.comm_cores=1 comm.bucket=212");
}

/* ---- the same training --------------------------------------------------------------------- */

/* Of three rows that all forms are to meet each gets one; all of them in `make check-long`. */
static bool is_turn(const struct form *form, size_t row)
{
    return getenv("DPB_ALL_CELLS") || row == (size_t)(form - forms) % 3;
}

static bool is_by_norms(const char *settings)
{
    return strstr(settings, "clip_norm") || strstr(settings, "lars") || strstr(settings, "lamb");
}

/* The sums are those of the strategies on the host, in the same order, but for nccl's of more than
 * two. A GPU's own arithmetic may round an update once less than the processor's. */
static void expect_same(const struct form *form, int workers, const char *settings,
                        const struct training *start, const struct training *one)
{
    struct training host, device;
    train(&device, TERMS "%s %s %s comm.bucket=1000", form->settings, workers_on(form, workers),
          settings);
    /* Norms of shards are sums of their parts, but where one owner has the whole model. */
    const bool parts = form->gives_weights && !form->one && !form->sharded && is_by_norms(settings);
    train(&host, TERMS "comm.name=%s %s %s",
          form->machines ? "hierarchical"
          : parts        ? "ps_cpu"
                         : "shm",
          workers_on(form, workers), settings);
    expect_same_weights(&device, &host, start, on_gpu() ? 1e-5 : 0.0);
    if (one)
        expect_same_weights(&device, one, start, 1e-4);
}

static void test_same_training(void **state)
{
    static const char *const optimizers[] = {"optimizer.momentum=0.9", "optimizer.nesterov=yes",
                                             "optimizer.name=adagrad"};
    static const char *const by_norms[] = {"optimizer.name=lamb optimizer.clip_norm=0.05",
                                           "comm.gradient=bf16 optimizer.name=lars",
                                           "optimizer.clip_norm=0.05 optimizer.momentum=0.9"};
    const struct form *form = *state;
    struct training start, one;
    train(&start, TERMS "run.steps=1 optimizer.learning_rate=0");
    for (size_t i = 0; i < sizeof by_norms / sizeof *by_norms && !(form->sharded && form->library);
         i++)
        if (is_turn(form, i))
            expect_same(form, 2, by_norms[i], &start, NULL);
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        if (!is_turn(form, i))
            continue;
        train(&one, TERMS "run.accumulate=2 %s", optimizers[i]);
        expect_same(form, 2, optimizers[i], &start, &one);
    }
    if (most_workers() >= 3 && !takes_events(form))
        expect_same(form, 3, "comm.gradient=bf16", &start, NULL);
    if (most_workers() >= 4 && form->machines)
        expect_same(form, 4, "optimizer.momentum=0.9", &start, NULL);
}

/* ---- codecs -------------------------------------------------------------------------------- */

/* A codec by the GPU's kernels keeps its books, and its training has the bits of the host's; where
 * NCCL sums the messages of more than two workers, the same but for roundings. */
static void test_codecs(void **state)
{
    const char *strategy = *state;
    const bool by_nccl = strstr(strategy, "nccl") != NULL;
    static const char *const rows[] = {
        "int8 comm.codec_rounding=stochastic run.workers=3 device.ids=0,1,1 "
        "optimizer.clip_norm=0.05",
        "topk comm.codec_ratio=0.1 comm.codec_start_step=2 run.workers=2 device.ids=0,0",
        "topk comm.codec_feedback=no comm.codec_momentum=0.9 optimizer.momentum=0 run.workers=1",
        "powersgd comm.codec_rank=1 run.workers=4 device.ids=0,1,1,0",
        "powersgd comm.codec_feedback=no comm.codec_start_step=2 run.workers=1"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool is_summed = by_nccl && strstr(rows[i], "powersgd"),
                   is_four = strstr(rows[i], "=4");
        const bool rounds = on_gpu() || (is_summed && is_four);
        struct training device, host;
        train(&device, TERMS "run.prove=yes comm.name=%s comm.bucket=1000 comm.codec=%s", strategy,
              rows[i]);
        train(&host, TERMS "comm.name=shm comm.bucket=1000 comm.codec=%s", rows[i]);
        expect_verified(&device);
        expect_same_weights(&device, &host, NULL, rounds ? 1e-5 : 0.0);
        const double bytes = json_number_at(device.command.json, "comm.bytes_per_step");
        if (bytes * (is_summed && is_four ? 2 : 1) !=
            json_number_at(host.command.json, "comm.bytes_per_step"))
            fail_msg("%s: %g bytes a step", device.settings, bytes);
        const double share = json_number_at(device.command.json, "comm.codec.residual_share") /
                             json_number_at(host.command.json, "comm.codec.residual_share");
        /* NCCL's residuals are those of other steps, by one. */
        if (!on_gpu() && !(fabs(share - 1) <= (by_nccl ? 0.3 : 0)))
            fail_msg("%s: %g of the host's residual", device.settings, share);
        assert_true(json_number_at(device.command.json, "comm.codec.message_bytes") ==
                    json_number_at(host.command.json, "comm.codec.message_bytes"));
        assert_true(json_number_at(device.command.json, "comm.codec.encode_ns") > 0);
        assert_int_equal(json_number_at(device.command.json, "comm.codec.decode_ns") > 0,
                         !is_summed);
    }
}

/* ---- what it may be combined with ----------------------------------------------------------- */

static void test_combined(void **state)
{
    static const char *const settings[] = {
        "run.accumulate=2 comm.bucket=1000 eval.final=yes data.test_samples=6",
        "run.precision=bf16 comm.gradient=bf16 optimizer.name=adagrad run.accumulate=3",
        "optimizer.momentum=0 eval.every=2 data.test_samples=6"};
    const struct form *form = *state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        struct training training;
        const char *core = i == 0 && !takes_events(form) ? "run.comm_cores=1" : "";
        if (!is_turn(form, i))
            continue;
        train(&training, CUDA "model.name=tiny_bn run.prove=yes %s %s %s %s", form->settings,
              workers_on(form, 2), settings[i], core);
        expect_verified(&training);
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
        {"comm.codec=onebit", "comm.codec = onebit"},
    };
    const struct form *form = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!getenv("DPB_ALL_CELLS") && i % 2 != (size_t)(form - forms) % 2)
            continue;
        if (form->library && strstr(rows[i].settings, "comm.hosts"))
            continue;
        train_says(2, WORDS(rows[i].word), CUDA "model.name=tiny %s %s %s", form->settings,
                   workers_here(2), rows[i].settings);
    }
}

/* `check` knows where the arenas will be, and what the inboxes of a worker take that has one other:
 * 4 slots of halves or wholes of a bucket, or 2 of wholes where owners take turns. */
static void test_checked(void **state)
{
    const struct form *form = *state;
    struct command check;
    char ini[128];
    snprintf(ini, sizeof ini, "%s/check.ini", checked);
    write_file(ini, "", 0);
    dpbench(&check, 60.0,
            "check -c %s " CUDA "model.name=alexnet data.name=synthetic data.samples=4 run.batch=1 "
            "run.workers=2 run.steps=1 comm.bucket=2MiB %s",
            ini, form->settings);
    if (check.exit_code != 0 || !strstr(check.out, form->memory))
        fail_msg("%s: exit code %d: %s%s", form->settings, check.exit_code, check.out, check.err);
}

/* With a codec: the residual, two banks of messages and one more, what `encode` works in, and a sum
 * and the state of two rounds. */
CASE(test_codec_checked)
{
    static const char *const rows[][2] = {{"topk", "up to 250.5 MiB of scratch"},
                                          {"powersgd", "up to 237.4 MiB of scratch"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command check;
        char ini[128];
        snprintf(ini, sizeof ini, "%s/check.ini", checked);
        write_file(ini, "", 0);
        dpbench(&check, 60.0,
                "check -c %s " CUDA "model.name=alexnet data.name=synthetic data.samples=4 "
                "run.batch=1 run.workers=2 run.steps=1 comm.bucket=1GB comm.name=replicated "
                "comm.codec=%s",
                ini, rows[i][0]);
        if (check.exit_code != 0 || !strstr(check.out, rows[i][1]))
            fail_msg("%s: exit code %d: %s%s", rows[i][0], check.exit_code, check.out, check.err);
    }
}

/* Between machines a place's share of the gradients is pinned in the host's memory, and `check`
 * says so: half of them for two workers to a machine, all for one, none on one machine. */
CASE(test_pinned)
{
    static const struct {
        const char *settings;
        double part;
    } rows[] = {{"run.workers=2", 0.0},
                {"run.workers=2 comm.hosts=1+1", 1.0},
                {"run.workers=4 comm.hosts=2+2", 0.5},
                {"run.workers=4 comm.hosts=2+2 comm.gradient=bf16", 0.25},
                {"run.workers=3 comm.hosts=2+1", 1.0}};
    const double mib = 1048576;
    double first = 0.0;
    char ini[128];
    snprintf(ini, sizeof ini, "%s/check.ini", checked);
    write_file(ini, "", 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command check;
        dpbench(&check, 60.0,
                "check -c %s " CUDA "model.name=alexnet data.name=synthetic data.samples=8 "
                "run.batch=1 run.steps=1 comm.bucket=2MiB comm.name=hierarchical comm.inside=nccl "
                "%s",
                ini, rows[i].settings);
        const char *line = strstr(check.out, "memory: "), *count = strstr(check.out, "\n  ");
        double worker = line ? strtod(line + strlen("memory: "), NULL) : 0.0;
        double wanted = rows[i].part * (count ? strtod(count, NULL) : 0.0) * 4 / mib;
        first = i == 0 ? worker : first;
        if (check.exit_code != 0 || !(worker - first >= wanted && worker - first <= wanted + 4.0))
            fail_msg("%s: %.1f MiB more than on one machine, not %.1f, exit code %d: %s%s",
                     rows[i].settings, worker - first, wanted, check.exit_code, check.out,
                     check.err);
    }
}

/* ---- who copies what ------------------------------------------------------------------------- */

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

/* Looked at copy by copy: all is summed once, every worker pushes what it does not own and fetches
 * as much. */
static void test_audit(void **state)
{
    enum { WORKERS = 3, STEPS = 5 };
    const struct form *form = *state;
    struct training training;
    unsigned long long summed = 0, audit[4];
    train(&training,
          CUDA "model.name=tiny %s %s run.steps=%d comm.bucket=148 "
               "comm.mutation=audited comm.from=1 comm.until=%d",
          form->mutant, workers_on(form, WORKERS), STEPS, STEPS + 1);
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
}

/* ---- ways ---------------------------------------------------------------------------------- */

/* Copies go by the host where GPUs cannot reach each other; that is said, and nothing else
 * changes. */
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
    }
}

/* ---- NCCL inside a machine ------------------------------------------------------------------ */

/* On one machine, on unequal ones and where slices are not of equal length; whose network is the
 * host's stands in the result. */
CASE(test_inside)
{
    static const struct {
        const char *settings, *copies;
    } rows[] = {
        {"run.workers=2 device.ids=0,1 comm.bucket=1000", "none of its own"},
        {"run.workers=1", "none of its own"},
        {"run.workers=4 device.ids=0,1,0 comm.host_ids=rank comm.hosts=1+3 comm.bucket=500",
         "none of its own: others carry all shares"},
        {"run.workers=6 device.ids=0,1,0 comm.host_ids=rank comm.hosts=3+3 comm.bucket=1000",
         "staged through the host, to other machines"},
        {"run.workers=4 device.ids=0,1 comm.hosts=2+2 comm.bucket=4 run.comm_cores=1",
         "staged through the host, to other machines"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training training;
        char path[32];
        train(&training,
              CUDA "model.name=tiny_bn run.prove=yes comm.name=hierarchical comm.inside=nccl "
                   "comm.interface=lo run.steps=3 %s",
              rows[i].settings);
        expect_verified(&training);
        size_t last = json_array_size(json_at(training.command.json, "ranks")) - 1;
        snprintf(path, sizeof path, "ranks.%zu.comm.copies", last);
        assert_string_equal(json_text_at(training.command.json, path), rows[i].copies);
    }
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
    {"updated_twice comm.from=2", "after"},
    {"updated_twice comm.from=2 comm.until=5", NULL},
    {"update_skipped comm.until=1", "pattern"},
    {"stale_weights comm.from=1", "exchange"},
    {"stale_weights comm.from=2", "replicas"},
    {"replica_diverges comm.from=2", "replicas"},
    {"late_weights", NULL},
};
enum { N_MUTANTS = sizeof mutants / sizeof *mutants };

#define MUTANT TERMS "%s comm.bucket=296 run.prove=yes "

/* With shards the others get the last worker's wrong update: replicas are equal, and wrong. Or they
 * got the right one before it was spoilt, in a queue beside: then replicas differ. */
static bool is_given(const struct form *form, const struct mutant *mutant)
{
    return form->sharded && strstr(mutant->mutation, "replica_diverges");
}

static bool failed(const struct training *training, const char *check)
{
    char path[64];
    snprintf(path, sizeof path, "verification.%s", check);
    return strcmp(json_text_at(training->command.json, path), "fail") == 0;
}

static void expect_caught(const struct form *form, const struct mutant *mutant,
                          const struct training *right)
{
    struct training training;
    struct weights_difference worst;
    const char *caught_by = mutant->caught_by;
    train_anyway(&training, MUTANT "%s comm.mutation=%s", workers_on(form, 3), form->mutant,
                 mutant->mutation);
    bool ran = training.command.exit_code == 0;
    bool same = ran && weights_agree(&training.weights, &right->weights, NULL, 0.0, &worst);
    bool caught = ran ? !caught_by || !caught_by[0] : caught_by != NULL;
    if (caught && !ran) {
        caught = training.command.exit_code == EXIT_VERIFICATION &&
                 (failed(&training, caught_by) ||
                  (is_given(form, mutant) && failed(&training, "after")));
    } else if (caught) {
        caught = same == (caught_by != NULL);
    }
    if (!caught)
        fail_msg("%s\nis to be caught by %s; exit code %d, weights %s: %s", training.settings,
                 !caught_by ? "its weights" : caught_by, training.command.exit_code,
                 same ? "are right" : "differ", training.command.err);
}

/* Each by one of the forms in turn; by all of them in `make mutants`. */
CASE(test_mutants)
{
    for (size_t f = 0; f < N_FORMS; f++) {
        struct training right;
        if (!is_there(&forms[f]))
            continue;
        train(&right, MUTANT "%s", workers_on(&forms[f], 3), forms[f].settings);
        for (size_t i = 0; i < N_MUTANTS; i++)
            if (getenv("DPB_ALL_MUTANTS") || i % N_FORMS == f)
                expect_caught(&forms[f], &mutants[i], &right);
    }
}

#define BY_NCCL "nccl comm.host_ids=rank comm.mutation="

/* Mistakes of a device that encodes, before, in and, unannounced, after training. A sum of powersgd
 * that lacks a message loses nothing: residuals keep it. */
CASE(test_codec_mutants)
{
    static const struct mutant rows[] = {
        {"forgotten comm.codec=topk", "pattern"},
        {"forgotten comm.codec=powersgd", "pattern"},
        {"bucket_left_out comm.codec=int8 comm.from=10", "exchange"},
        {"forgotten comm.codec=powersgd comm.codec_rank=1 comm.from=18", "after"},
        {"none comm.codec=powersgd", NULL},
        {BY_NCCL "forgotten comm.codec=topk", "pattern"},
        {BY_NCCL "forgotten comm.codec=powersgd comm.codec_rank=1 comm.from=18", "after"},
        {BY_NCCL "none comm.codec=int8", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct training training;
        char path[64];
        if (strstr(rows[i].mutation, BY_NCCL) && !have_stand_in("comm_nccl"))
            continue;
        train_anyway(
            &training,
            TERMS "comm.bucket=1000 run.prove=yes run.workers=2 device.ids=0,0 "
                  "comm.name=mutant_%s%s",
            strstr(rows[i].mutation, BY_NCCL) ? "" : "replicated comm.mutation=", rows[i].mutation);
        snprintf(path, sizeof path, "verification.%s", rows[i].caught_by ? rows[i].caught_by : "");
        if (training.command.exit_code != (rows[i].caught_by ? EXIT_VERIFICATION : 0) ||
            (rows[i].caught_by && (!strstr(training.command.err, "the books of") ||
                                   strcmp(json_text_at(training.command.json, path), "fail") != 0)))
            fail_msg("%s: exit code %d: %s", training.settings, training.command.exit_code,
                     training.command.err);
    }
}

/* ---- numbers that are none ------------------------------------------------------------------ */

/* From the pattern (exchange 0) on, training's steps 0 and 1 are right. A ReLU follows fc1. */
#define NAN_IN_STEP_2                                                                    \
    CUDA "model.name=tiny_dense run.steps=8 comm.mutation=element_nan comm.element=700 " \
         "comm.bucket=1000 comm.from=3 "

/* The step that the message names. */
static unsigned long failed_step(const struct training *training)
{
    const char *at = strstr(training->command.err, ": step ");
    const char *not_finite = at ? strstr(at, " is not finite") : NULL;
    if (training->command.exit_code != 1 || !not_finite || !strstr(not_finite, "run.nan"))
        fail_msg("%s: exit code %d: %s", training->settings, training->command.exit_code,
                 training->command.err);
    return strtoul(at + strlen(": step "), NULL, 10);
}

/* What one rank gives or sums to no number ends the run, by a GPU's update that finds it or by the
 * loss; nobody waits for the former, so it is said in the next step, or the one after that. Or the
 * run goes on, with a warning. */
static void test_not_finite(void **state)
{
    const struct form *form = *state;
    struct training training;
    size_t i, n_warnings = 0;
    const json_t *warning;
    train_anyway(&training, NAN_IN_STEP_2 "%s %s", form->mutant, workers_on(form, 2));
    unsigned long step = failed_step(&training);
    if (step < 3 || step > 4)
        fail_msg("%s: step %lu is named: %s", training.settings, step, training.command.err);
    train(&training, NAN_IN_STEP_2 "run.nan=continue %s %s", form->mutant, workers_on(form, 2));
    assert_int_equal(json_array_size(json_at(training.command.json, "loss")), 8);
    json_array_foreach(json_at(training.command.json, "warnings"), i, warning) n_warnings +=
        strcmp(json_text_at(warning, "code"), "nan") == 0;
    assert_true(n_warnings > 0);
}

/* ---- strategies that average ---------------------------------------------------------------- */

static const struct averaging {
    const char *rule, *label;
} averaging[] = {
    {"local_sgd", "local_sgd"}, {"local_sgd comm.average_state=yes", "local_sgd with momentum"},
    {"diloco", "diloco"},       {"gossip", "gossip"},
    {"easgd", "easgd"},         {"sma", "sma"},
};

static void expect_proven(const struct training *training)
{
    static const char *const checks[] = {"pattern", "exchange", "after"};
    char path[32];
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        snprintf(path, sizeof path, "verification.%s", checks[i]);
        if (strcmp(json_text_at(training->command.json, path), "pass") != 0)
            fail_msg("%s: %s is no pass", training->settings, path);
    }
}

#define AVERAGING                                                                               \
    TERMS "optimizer.momentum=0.9 run.steps=15 run.prove=yes eval.every=4 data.test_samples=6 " \
          "comm.bucket=1000 comm.period=%d %s comm.name="

/* Workers and periods that meet each other; all of them in `make check-long`. On GPUs the
 * strategies do what they do beside a GPU with arenas on the host, bit for bit, also where copies
 * go by way of the host. */
static void test_meetings(void **state)
{
    static const int periods[] = {1, 2, 7};
    const struct averaging *row = *state;
    for (int workers = 1; workers <= 3; workers++)
        for (int p = 0; p < 3; p++) {
            struct training device, host;
            if (!getenv("DPB_ALL_CELLS") && (workers + p + (int)(row - averaging)) % 3 != 0)
                continue;
            setenv("DPB_STAND_IN_PEERS", p == 1 ? "0" : "1", 1);
            train(&device, AVERAGING "%s", periods[p], workers_here(workers), row->rule);
            unsetenv("DPB_STAND_IN_PEERS");
            train(&host, AVERAGING "spoilt comm.on_host=yes comm.inner=%s", periods[p],
                  workers_here(workers), row->rule);
            expect_proven(&device);
            expect_same_losses(&device, &host, 0.0);
            expect_same_weights(&device, &host, NULL, 0.0);
            if (json_number_at(device.command.json, "comm.bytes_per_step") !=
                json_number_at(host.command.json, "comm.bytes_per_step"))
                fail_msg("%s: other bytes than on the host", device.settings);
        }
}

/* The same with a centre on each of two GPUs, for two learners each. */
CASE(test_places)
{
    static const char world[] = "run.workers=2 run.learners=2 device.threads=2 device.ids=0,1 "
                                "comm.local_centers=yes";
    struct training device, host;
    train(&device, AVERAGING "sma", 2, world);
    train(&host, AVERAGING "spoilt comm.on_host=yes comm.inner=sma", 2, world);
    expect_proven(&device);
    expect_same_losses(&device, &host, 0.0);
    expect_same_weights(&device, &host, NULL, 0.0);
}

/* Workers that have not met, or that no centre draws, have the bits of those that exchange
 * nothing. */
CASE(test_apart)
{
    static const char *const rules[] = {
        "local_sgd comm.period=16", "gossip comm.period=16", "sma comm.period=16",
        "easgd comm.period=1 comm.alpha=1e-40", "sma comm.period=1 comm.alpha=1e-40"};
    struct training alone, averaged;
    train(&alone, TERMS "run.steps=15 comm.name=independent %s", workers_here(3));
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        train(&averaged, TERMS "run.steps=15 comm.name=%s %s", rules[i], workers_here(3));
        expect_same_losses(&averaged, &alone, 0.0);
    }
}

/* A slice left out, a mean that stays here, a replica not drawn, a centre with another momentum. */
CASE(test_mistakes)
{
    static const char *const mistakes[] = {"gossip comm.mistake=left_out",
                                           "local_sgd comm.mistake=one_sided",
                                           "easgd comm.mistake=undrawn", "sma comm.mistake=centre"};
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct training training;
        train_anyway(&training, TERMS "comm.name=spoilt comm.inner=%s %s", mistakes[i],
                     workers_here(3));
        if (training.command.exit_code != EXIT_VERIFICATION)
            fail_msg("%s: exit code %d: %s", training.settings, training.command.exit_code,
                     training.command.err);
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
        if (!is_there(&forms[i]))
            continue;
        add_case(test_exchange, &forms[i], "exchange, %s", forms[i].label);
        add_case(test_same_training, &forms[i], "the same training, %s", forms[i].label);
        add_case(test_combined, &forms[i], "with other options, %s", forms[i].label);
        add_case(test_refused, &forms[i], "refused by name, %s", forms[i].label);
        add_case(test_checked, &forms[i], "memory that check says, %s", forms[i].label);
        if (on_gpu())
            continue;
        if (!forms[i].one)
            add_case(test_not_finite, &forms[i], "no number on a rank, %s", forms[i].label);
        if (forms[i].library)
            continue;
        add_case(test_audit, &forms[i], "who copies what, %s", forms[i].label);
        add_case(test_ways, &forms[i], "direct and staged, %s", forms[i].label);
    }
    if (!on_gpu() && have_stand_in("comm_nccl")) {
        add_case(test_inside, NULL, "NCCL inside a machine");
        add_case(test_pinned, NULL, "pinned memory that check says");
    }
    add_case(test_codecs, "replicated", "codecs by kernels");
    if (!on_gpu() && have_stand_in("comm_nccl"))
        add_case(test_codecs, "nccl comm.host_ids=rank", "codecs by kernels, and NCCL");
    add_case(test_codec_checked, NULL, "codecs by kernels: check knows their memory");
    for (size_t i = 0; !on_gpu() && i < sizeof averaging / sizeof *averaging; i++)
        add_case(test_meetings, &averaging[i], "as on the host, %s", averaging[i].label);
    if (!on_gpu()) {
        add_case(test_places, NULL, "as on the host, a centre on each GPU");
        add_case(test_apart, NULL, "workers that do not meet");
        add_case(test_mistakes, NULL, "mistakes of strategies that average");
        add_case(test_mutants, NULL, "mutants");
        add_case(test_codec_mutants, NULL, "mutants with a codec");
    }
    return test_main(setup, teardown);
}
