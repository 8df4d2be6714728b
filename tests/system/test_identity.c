/* needs: long plain threads cells */
/*
 * test_identity.c - W workers with a strategy are one worker that goes through W micro-batches.
 *
 * In float64 the two trainings may differ by rounding only, so the bound is tight enough for any
 * mistake in meaning to show: per tensor 1e-8 of how far 5 steps moved it. In fp32, where the order
 * of summation alone moves weights, one step of some models (every one: tests/long/test_models.c)
 * and 5 steps of nets without batch-norm.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/needs.h"
#include "lib/strategies.h"
#include "lib/test.h"
#include "lib/training.h"

enum { FEWEST_WORKERS = SANITIZED ? 3 : 1, MOST_WORKERS = SANITIZED ? 3 : 5 };

static const double meaning_bound = 1e-8, loss_bound = 1e-9;

/* What 5 steps of training are made of, for the float64 part: every term of the update counts. */
#define TERMS "optimizer.weight_decay=0.1 optimizer.momentum=0.9 "

/* ---- float64: the whole matrix on small nets ----------------------------------------------- */

static const char *const small_models[] = {"tiny", "tiny_dense", "tiny_bn"};
enum { N_SMALL = sizeof small_models / sizeof small_models[0] };

/* A prime number of elements; one element; more than any model has. */
static const char *const buckets[] = {"296", "8", "1GiB"};

/* What the matrix is compared with, made when it is first needed. */
static struct training starts[N_SMALL], alone[N_SMALL][MOST_WORKERS + 1];

static const struct training *start_of(int model)
{
    if (!starts[model].settings)
        train(&starts[model], "model.name=%s run.steps=1 optimizer.learning_rate=0",
              small_models[model]);
    keep_owned();
    return &starts[model];
}

static const struct training *alone_with(int model, int micro_batches)
{
    struct training *one = &alone[model][micro_batches];
    if (!one->settings)
        train(one, "model.name=%s run.accumulate=%d " TERMS, small_models[model], micro_batches);
    keep_owned();
    return one;
}

static void expect_same(const struct training *together, const struct training *reference,
                        const struct training *start)
{
    expect_same_weights(together, reference, start, meaning_bound);
    expect_same_losses(together, reference, loss_bound);
}

/* The nets take turns: each odd number of workers has the first size of bucket with one of them,
 * and so has one of the other sizes with 3 workers, by turns of the strategies; the variations have
 * 2 and 4. With DPB_ALL_CELLS each net has all of both (check-long). */
static bool is_taken(int turn, int model, int workers, int bucket)
{
    bool taken = (bucket == 0 ? workers % 2 == 1 : workers == 3 && (turn + bucket) % 2 == 0) &&
                 (model + workers + bucket) % N_SMALL == 0;
    return taken || FEWEST_WORKERS == MOST_WORKERS || getenv("DPB_ALL_CELLS") != NULL;
}

static void test_small_model(void **state)
{
    const struct strategy_form *form = *state;
    static int turn;
    turn++;
    for (int model = 0; model < N_SMALL; model++)
        for (int workers = FEWEST_WORKERS; workers <= MOST_WORKERS; workers++)
            for (int b = 0; b < PART_OF(buckets, 1); b++) {
                struct training together;
                if (!is_taken(turn, model, workers, b) ||
                    !is_cell(form, workers, strcmp(buckets[b], "8") == 0))
                    continue;
                train(&together, "model.name=%s %s comm.bucket=%s " TERMS, small_models[model],
                      form_settings(form, "", workers), buckets[b]);
                expect_same(&together, alone_with(model, workers), start_of(model));
            }
}

/* A bucket is the model at most: a ring has no memory for the chunks of a petabyte. */
TEST(test_bucket_far_beyond_the_model)
{
    static const char *const rings[] = {"comm.name=ring_tcp",
                                        "comm.name=hierarchical comm.hosts=1+1 comm.interface=lo"};
    for (size_t i = 0; i < sizeof rings / sizeof *rings; i++) {
        struct training run;
        train(&run, "model.name=tiny run.workers=2 run.steps=1 comm.bucket=1125899906842624 %s",
              rings[i]);
    }
}

/* ---- float64: other ways to the same training ---------------------------------------------- */

/* Both sides get `both`; the strategy gets `together` on W workers, the other side W times
 * `batches` micro-batches. */
struct variation {
    const char *both, *together;
    int workers, batches;
};

/* A row has several: what it fails by shows in the settings of the two runs. */
static const struct variation variations[] = {
    /* those with threads of their own first */
    {"optimizer.name=adam optimizer.learning_rate=0.01 optimizer.weight_decay=0.1",
     "comm.bucket=8 run.comm_cores=1", 3, 1},
    {TERMS "data.shuffle=no run.batch=3 run.seed=7",
     "run.comm_cores=1 run.accumulate=2 comm.bucket=296", 4, 2},
    {TERMS "optimizer.nesterov=yes", "run.comm_cores=1 comm.bucket=424", 2, 1},
    {TERMS "optimizer.schedule=cosine", "run.accumulate=3 comm.bucket=424", 2, 3},
    {"optimizer.momentum=0 optimizer.weight_decay=0.1 data.samples=12", /* several epochs */
     "run.accumulate=2 comm.bucket=424", 3, 2},
    /* ids, a tied tensor, a label for each position */
    {TERMS "model.name=gpt model.layers=1 model.heads=2 model.width=6 model.context=9 "
           "model.nclass=11",
     "comm.bucket=424", 3, 1},
};

enum { N_VARIATIONS = sizeof variations / sizeof variations[0] };

/* A strategy has each second one, its neighbour the others; with DPB_ALL_CELLS it has all. What
 * they are compared with, the same for all strategies, is made when it is first needed. */
static struct training variation_starts[N_VARIATIONS], variations_alone[N_VARIATIONS];

static void test_variations(void **state)
{
    const struct strategy_form *form = *state;
    static int turn;
    turn++;
    for (int v = 0; v < PART_OF(variations, 3); v++) {
        const struct variation *one = &variations[v];
        struct training *start = &variation_starts[v], *reference = &variations_alone[v], together;
        if ((v + turn) % 2 != 0 && !SANITIZED && !getenv("DPB_ALL_CELLS"))
            continue;
        if (!is_cell(form, one->workers, strstr(one->together, "comm.bucket=8 ") != NULL))
            continue;
        if (!start->settings)
            train(start, "model.name=tiny %s run.steps=1 optimizer.learning_rate=0", one->both);
        if (!reference->settings)
            train(reference, "model.name=tiny %s run.accumulate=%d", one->both,
                  one->workers * one->batches);
        keep_owned();
        train(&together, "model.name=tiny %s %s %s", one->both,
              form_settings(form, "", one->workers), one->together);
        expect_same(&together, reference, start);
    }
}

/* ---- float64: real models, two steps, the second of which has momentum -------------------- */

/* Small images: a strategy sees tensors and buckets, not pixels. */
#define LENET "model.name=lenet model.image=12"
#define ALEXNET "model.name=alexnet_cifar10 model.image=12"
#define RESNET "model.name=resnet20 model.image=8"

/* A model with the strategy and the number of workers that its cells have. */
struct real_model {
    const char *settings, *strategy;
    int workers;
    int steps; /* of the fp32 part */
};

static const struct real_model fp64_models[] = {
    {LENET, "comm.name=shm", 3, 0},
    {ALEXNET, "comm.name=replicated", 2, 0},
    {RESNET, "comm.name=ps_cpu run.servers=1", 2, 0},
};

static void test_real_model(void **state)
{
    const struct real_model *real = *state;
    struct training start, reference, together;
    train(&start, "%s run.steps=1 optimizer.learning_rate=0", real->settings);
    train(&reference, "%s run.steps=2 run.accumulate=%d " TERMS, real->settings, real->workers);
    train(&together, "%s run.steps=2 %s run.workers=%d comm.bucket=100kB " TERMS, real->settings,
          real->strategy, real->workers);
    expect_same(&together, &reference, &start);
}

/* ---- fp32 ---------------------------------------------------------------------------------- */

#define CPU "device.name=cpu run.precision=fp32 "

static const struct real_model fp32_models[] = {
    {CPU "model.name=tiny", "comm.name=shm", 5, 1},
    {CPU "model.name=tiny_bn", "comm.name=ps_cpu run.servers=3", 3, 1},
    {CPU "model.name=tiny_dense", "comm.name=replicated", 4, 5},
    {CPU LENET, "comm.name=shm", 3, 5},
    {CPU ALEXNET, "comm.name=ps_cpu", 2, 5},
    {CPU "model.name=cifar_cnn", "comm.name=shm", 3, 1},
    {CPU "model.name=densenet40_k12 model.image=8", "comm.name=replicated", 3, 1},
    {CPU RESNET, "comm.name=ps_cpu run.servers=2", 3, 1},
    {"run.precision=fp32 model.name=tiny", "comm.name=replicated", 5, 1},
    {"run.precision=fp32 model.name=tiny_dense", "comm.name=ps_cpu run.servers=2", 5, 5},
};

static void test_fp32(void **state)
{
    const struct real_model *real = *state;
    struct training reference, together;
    if (strstr(real->settings, CPU) && !have_cpu_device())
        skip();
    train(&reference, "%s run.steps=%d run.accumulate=%d " TERMS, real->settings, real->steps,
          real->workers);
    train(&together, "%s run.steps=%d run.workers=%d %s " TERMS, real->settings, real->steps,
          real->workers, real->strategy);
    expect_same_weights(&together, &reference, NULL, real->steps == 1 ? 1e-6 : 1e-5);
    expect_same_losses(&together, &reference, 1e-5);
}

/* ---- what the strategies owe each other ---------------------------------------------------- */

static void train_several_buckets(struct training *training, const char *kind, const char *strategy,
                                  int bucket)
{
    train(training, "model.name=tiny %s %s comm.bucket=%d " TERMS, kind, strategy, bucket);
}

/* Of three workers a ring has an order of its own, with shards the same. */
static void expect_shards_alike(const char *kind, const struct strategy_form *form)
{
    struct training whole, sharded;
    struct strategy_form whole_form = *form;
    whole_form.sharded = false;
    train_several_buckets(&whole, kind, form_settings(&whole_form, "", 3), 120);
    train_several_buckets(&sharded, kind, form_settings(form, "", 3), 120);
    expect_same_weights(&sharded, &whole, NULL, 0.0);
    expect_same_losses(&sharded, &whole, 0.0);
}

/* Sums run over the workers in the same order everywhere, so strategies agree bit for bit, in types
 * too in which one worker cannot follow them: a half is rounded on each worker. A ring's
 * order is another one for each slice, a library's its own, which shows from three workers on. In
 * fp32, which test_exchange proves of each strategy, too, they take turns; with DPB_ALL_CELLS all
 * agree (check-long). */
TEST(test_strategies_agree)
{
    static const char *const kinds[] = {"run.precision=fp32",
                                        "run.precision=fp32 comm.gradient=bf16",
                                        "run.precision=fp32 comm.gradient=fp16"};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct training first[2]; /* of 2 workers, of 3 */
        train_several_buckets(&first[0], kinds[k], "comm.name=shm run.workers=2", 200);
        train_several_buckets(&first[1], kinds[k], "comm.name=shm run.workers=3", 200);
        size_t turn = 0;
        for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
            const struct training *same = &first[form->network ? 0 : 1];
            struct training other;
            if (k == 0 && turn++ % 2 != 0 && !SANITIZED && !getenv("DPB_ALL_CELLS"))
                continue;
            train_several_buckets(&other, kinds[k], form_settings(form, "", form->network ? 2 : 3),
                                  120);
            expect_same_weights(&other, same, NULL, 0.0);
            expect_same_losses(&other, same, 0.0);
            if (form->ring && form->sharded)
                expect_shards_alike(kinds[k], form);
        }
    }
}

/* Of norms that are sums of the owners' parts. */
#define SHARDED_BOUND 1e-12

/* Whether the strategy works with norms of whole tensors. */
static bool is_whole(const struct strategy_form *form)
{
    return strategy_named(form->name)->capabilities &
           (form->sharded ? DPB_COMM_WHOLE_SHARDS : DPB_COMM_WHOLE);
}

/* Whether several ranks own parts of the weights, and so whether their norms are such sums. */
static bool has_parts(const struct strategy_form *form)
{
    return form->sharded || (strcmp(form->name, "ps_cpu") == 0 && form->servers != 1);
}

/* Shards of ps_cpu across machines exchange no sums of squares. */
static bool exchanges_parts(const struct strategy_form *form)
{
    return form->sharded || !has_parts(form) || !form->machines;
}

/* Norms of equal mean gradients have equal bits, whatever the buckets, and with a core for
 * communication, too. With shards they are sums of the owners' parts, which round in another way.
 * One worker that goes through micro-batches means the same. Rules and numbers of workers meet by
 * turns; with DPB_ALL_CELLS all of them (check-long). */
TEST(test_norms_agree)
{
    static const char *const rules[] = {
        "model.name=tiny optimizer.clip_norm=0.05", "model.name=tiny_bn optimizer.name=lars",
        "model.name=tiny_bn optimizer.name=lars optimizer.clip_norm=0.05 optimizer.trust=0.1",
        "model.name=tiny optimizer.name=lamb optimizer.clip_norm=0.05"};
    static const int workers[] = {1, 2, 4};
    for (int r = 0; r < PART_OF(rules, 1); r++)
        for (int i = 0; i < PART_OF(workers, 2); i++) {
            struct training reference, first;
            if ((r + i) % 2 == 0 && !getenv("DPB_ALL_CELLS"))
                continue;
            train(&reference, "%s run.accumulate=%d optimizer.weight_decay=0.1", rules[r],
                  workers[i]);
            train(&first,
                  "%s comm.name=shm run.workers=%d optimizer.weight_decay=0.1 "
                  "run.comm_cores=1 comm.bucket=296",
                  rules[r], workers[i]);
            for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
                struct training other;
                if (!is_whole(form) || !is_cell(form, workers[i], false) || !exchanges_parts(form))
                    continue;
                train(&other, "%s %s optimizer.weight_decay=0.1 comm.bucket=1000", rules[r],
                      form_settings(form, "", workers[i]));
                expect_same_weights(&other, &reference, start_of(r == 1 || r == 2 ? 2 : 0),
                                    meaning_bound);
                if (has_parts(form))
                    expect_same_weights(&other, &first, NULL, SHARDED_BOUND);
                else if (!form->network || workers[i] < 3)
                    expect_same_weights(&other, &first, NULL, 0.0);
            }
        }
}

/* A ring with shards differs from the same ring without by the rounding of norms alone, which
 * gradients in half precision may see as one bit more. Weights go round behind all sums: more
 * buckets than may be under way, through a small inbox, in chunks of fewer elements than those of
 * gradients. LeNet's last bucket has two elements: one of three workers has no slice of it, and
 * waits for its sum all the same. */
TEST(test_sharded_norms_agree_within_rounding)
{
    static const struct {
        int workers;
        const char *settings;
    } cells[] = {
        {2, "model.name=tiny_bn optimizer.name=lars optimizer.clip_norm=0.05 optimizer.trust=0.1 "
            "comm.bucket=104 comm.chunk=64 comm.inbox=256"},
        {3, LENET " optimizer.clip_norm=0.05 comm.bucket=1410616"},
        {4, "model.name=tiny optimizer.name=lars comm.bucket=1GiB run.comm_cores=1"},
        {3, "model.name=tiny run.precision=fp32 comm.gradient=bf16 optimizer.name=adam "
            "optimizer.clip_norm=0.05 comm.bucket=296 comm.chunk=64 comm.inbox=256"},
        {5, "model.name=tiny optimizer.name=lamb optimizer.clip_norm=0.05 comm.bucket=296 "
            "comm.chunk=64 comm.inbox=256"},
    };
    for (int i = 0; i < PART_OF(cells, 2); i++) {
        struct training all, sharded;
        const char *settings = cells[i].settings;
        train(&all, "%s comm.name=ring_tcp run.workers=%d optimizer.weight_decay=0.1", settings,
              cells[i].workers);
        train(&sharded,
              "%s comm.name=ring_tcp run.workers=%d optimizer.weight_decay=0.1 "
              "comm.shard=optimizer",
              settings, cells[i].workers);
        const double bound = strstr(settings, "fp32") ? 1e-5 : SHARDED_BOUND;
        expect_same_weights(&sharded, &all, NULL, bound);
        expect_same_losses(&sharded, &all, bound);
    }
}

/* What lies where is the same with any batch; a second step shows what the first one left. */
#define ONE_SAMPLE "run.steps=2 run.batch=1"

/* Gradients in slots have the bits of those in an arena: the first layer of ResNet-20's last stage
 * alone fills several buckets, and others share one. */
TEST(test_slots_agree)
{
    static const char *const cells[][2] = {
        {"comm.name=shm run.workers=3 comm.bucket=20000", "run.comm_cores=1"},
        {"comm.name=ring_tcp run.workers=2 comm.bucket=8192", ""},
        {"comm.name=replicated run.workers=3 comm.bucket=8192", ""},
        {"comm.name=ring_tcp run.workers=3 comm.bucket=12288", "run.comm_cores=1"},
        {"comm.name=hierarchical run.workers=5 comm.hosts=2+3 comm.interface=lo comm.bucket=8192",
         ""},
        {"comm.name=shm run.workers=2 comm.bucket=4096", ""},
        {"comm.name=shm run.workers=3 comm.bucket=8192 comm.gradient=bf16 run.precision=fp32", ""},
        {"comm.name=ring_tcp run.workers=2 comm.bucket=4096 comm.gradient=fp16 run.precision=fp32",
         "run.comm_cores=1"},
    };
    for (int i = 0; i < PART_OF(cells, 2); i++) {
        struct training arena, slots;
        train(&arena, RESNET " " ONE_SAMPLE " %s comm.shard=optimizer " TERMS, cells[i][0]);
        train(&slots, RESNET " " ONE_SAMPLE " %s %s comm.shard=gradients " TERMS, cells[i][0],
              cells[i][1]);
        assert_true(json_number_at(slots.command.json, "ranks.1.memory.gradients_bytes") <
                    0.4 * json_number_at(arena.command.json, "ranks.1.memory.gradients_bytes"));
        expect_same_weights(&slots, &arena, NULL, 0.0);
        expect_same_losses(&slots, &arena, 0.0);
    }
}

#define GPT                                                                       \
    "model.name=gpt model.layers=2 model.heads=2 model.width=32 model.context=9 " \
    "model.nclass=67"

/* Weights that are here while they are read: the bits of all weights everywhere, in training, in
 * evaluations and in the saved model. The memory that the system counts behind the arena is at most
 * the worker's slices, two pages more a bucket, the largest node and a bucket; a node's last bucket
 * may be another's, too. */
TEST(test_parameters_agree)
{
    enum { PAGE = 4096, LARGEST_OF_RESNET = 64 * 64 * 9, LARGEST_OF_GPT = 32 * 4 * 32 };
    static const struct {
        const char *settings;
        int workers, bucket, largest;
    } cells[] = {
        {RESNET " comm.name=shm optimizer.name=adam", 3, 24576, LARGEST_OF_RESNET},
        {RESNET " comm.name=ring_tcp " TERMS, 2, 16384, LARGEST_OF_RESNET},
        {GPT " comm.name=ring_tcp optimizer.name=adamw", 5, 20480, LARGEST_OF_GPT},
        {GPT " comm.name=shm " TERMS, 4, 16384, LARGEST_OF_GPT},
        {RESNET " comm.name=ring_tcp comm.gradient=bf16 run.precision=fp32", 4, 16384,
         LARGEST_OF_RESNET},
        {RESNET " comm.name=shm " TERMS, 1, 16384, LARGEST_OF_RESNET},
        {GPT " comm.name=ring_tcp " TERMS, 3, 12288, LARGEST_OF_GPT},
        {RESNET " comm.name=shm optimizer.name=adagrad", 5, 40960, LARGEST_OF_RESNET},
    };
    for (int i = 0; i < PART_OF(cells, 4); i++) {
        struct training all, parts;
        const char *common = "run.steps=3 eval.every=2 run.batch=1 data.test_samples=8";
        train(&all, "%s %s run.workers=%d comm.bucket=%d", cells[i].settings, common,
              cells[i].workers, cells[i].bucket);
        train(&parts, "%s %s run.workers=%d comm.bucket=%d comm.shard=parameters",
              cells[i].settings, common, cells[i].workers, cells[i].bucket);
        expect_same_weights(&parts, &all, NULL, 0.0);
        expect_same_losses(&parts, &all, 0.0);
        assert_true(json_number_at(parts.command.json, "eval.0.loss") ==
                    json_number_at(all.command.json, "eval.0.loss"));
        const double bytes = json_number_at(all.command.json, "ranks.0.memory.weights_bytes"),
                     is = json_number_at(parts.command.json, "ranks.0.memory.weights_bytes"),
                     size = strstr(cells[i].settings, "fp32") ? 4 : 8,
                     most = bytes / cells[i].workers + 2 * PAGE * (bytes / cells[i].bucket + 1) +
                            cells[i].largest * size + 3.0 * cells[i].bucket;
        if (cells[i].workers > 1 && (is > most || is > 0.95 * bytes))
            fail_msg("%s\n%g bytes of weights were here, at most %g are right, of %g",
                     parts.settings, is, most, bytes);
    }
}

/* Owners keep the sums of their slices beside the slots: with norms the bits are those of an arena.
 * Over micro-batches owners add sums of workers, in place of workers' sums. Both are less than an
 * arena. */
TEST(test_kept_sums_agree)
{
    static const struct {
        const char *settings, *form;
        double bound;
    } cells[] = {
        {"comm.name=shm run.workers=3 run.accumulate=3", "", 1e-12},
        {"comm.name=ring_tcp run.workers=2 optimizer.clip_norm=0.05", "run.comm_cores=1", 0.0},
        {"comm.name=ring_tcp run.workers=3 run.accumulate=2 optimizer.name=lamb", "", 1e-12},
        {"comm.name=replicated run.workers=2 optimizer.name=lars", "", 0.0},
        {"comm.name=replicated run.workers=4 run.accumulate=2", "run.comm_cores=1", 1e-12},
        {"comm.name=shm run.workers=5 optimizer.name=lamb optimizer.clip_norm=0.05", "", 0.0},
    };
    for (int i = 0; i < PART_OF(cells, 3); i++) {
        struct training arena, slots;
        train(&arena, RESNET " " ONE_SAMPLE " comm.bucket=65536 %s comm.shard=optimizer",
              cells[i].settings);
        train(&slots, RESNET " " ONE_SAMPLE " comm.bucket=65536 %s %s comm.shard=gradients",
              cells[i].settings, cells[i].form);
        assert_true(json_number_at(slots.command.json, "ranks.1.memory.gradients_bytes") <
                    0.9 * json_number_at(arena.command.json, "ranks.1.memory.gradients_bytes"));
        expect_same_weights(&slots, &arena, NULL, cells[i].bound);
        expect_same_losses(&slots, &arena, cells[i].bound);
    }
}

/* One step with gradients rounded to bf16 is off by what rounding each of them and their sum costs.
 * Others have the bits of shm (test_strategies_agree). */
TEST(test_bf16_gradients)
{
    const char *settings = "model.name=tiny run.precision=fp32 run.steps=1";
    struct training start, reference;
    train(&start, "%s optimizer.learning_rate=0", settings);
    train(&reference, "%s run.accumulate=3", settings);
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
        struct training together;
        const bool is_shm = strcmp(form->name, "shm") == 0 && !form->sharded;
        if (!form->network && !is_shm && !getenv("DPB_ALL_CELLS"))
            continue;
        train(&together, "%s comm.gradient=bf16 %s comm.bucket=74", settings,
              form_settings(form, "", 3));
        expect_same_weights(&together, &reference, &start, 4 * 0x1p-8);
    }
}

/* ---- the comparison itself can fail -------------------------------------------------------- */

TEST(test_differences_show)
{
    static const char *const others[] = {
        "run.accumulate=3",
        "run.batch=3",
        "optimizer.weight_decay=0.1000001",
        "optimizer.momentum=0.8999",
        "run.steps=4",
        "optimizer.learning_rate=0.10000001",
        "run.seed=2",
        "data.shuffle=no",
    };
    struct weights_difference worst;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct training other;
        train(&other, "model.name=tiny run.accumulate=2 " TERMS "%s", others[i]);
        if (weights_agree(&other.weights, &alone_with(0, 2)->weights, &start_of(0)->weights,
                          meaning_bound, &worst))
            fail_msg("%s makes no difference", others[i]);
    }
}

/* ----  -------------------------------------------------------------------------------------- */

int main(void)
{
    for (const struct strategy_form *form = NULL; (form = strategy_form_after(form));) {
        add_case(test_small_model, form, "fp64, small nets, %s", form->label);
        add_case(test_variations, form, "fp64, variations, %s", form->label);
    }
    for (int i = 0; i < PART_OF(fp64_models, 0); i++)
        add_case(test_real_model, &fp64_models[i], "fp64, %s %s", fp64_models[i].settings,
                 fp64_models[i].strategy);
    for (size_t i = 0; i < sizeof fp32_models / sizeof fp32_models[0]; i++)
        add_case(test_fp32, &fp32_models[i], "fp32, %s %s", fp32_models[i].settings,
                 fp32_models[i].strategy);
    return test_main(training_setup, training_teardown);
}
