/* needs: threads stand-in */
/*
 * test_late.c - comm.late = 1: the weights of a training are, bit for bit, those of a second
 * implementation that applies each gradient one step late; core finds strategies that lose a
 * gradient, apply it twice or are later than that; and what cannot be late is refused by name. With
 * weights on a GPU, for which the CUDA for tests stands in, the same but for rounding, and the bits
 * of `shm` on the host.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/oracle.h"
#include "lib/says.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/training.h"

enum { STEPS = 11, EXIT_REFUSED = 2, EXIT_VERIFICATION = 3 };

#define RATE 0.1
#define MOMENTUM 0.9
#define DECAY 0.05

/* ---- the oracle ---------------------------------------------------------------------------- */

struct serial {
    struct oracle oracle;
    double *weights, *velocity, *sum;
    double clip_norm, trust; /* 0: none; trust: of lars */
};

/* The sum over workers and micro-batches at oracle.weights, in the order of the ranks. */
static void sum_gradients(struct serial *s, uint64_t step)
{
    const struct dpb_experiment *x = s->oracle.experiment;
    const uint64_t n = s->oracle.graph->n_elements;
    double *own = own_memory(oracle_arena(&s->oracle), free);
    for (uint32_t worker = 0; worker < x->n_workers; worker++) {
        for (uint32_t i = 0; i < x->accumulate; i++) {
            oracle_pass(&s->oracle, worker, step, i);
            for (uint64_t e = 0; e < n; e++)
                own[e] = i == 0 ? s->oracle.gradients[e] : s->oracle.gradients[e] + own[e];
        }
        for (uint64_t e = 0; e < n; e++)
            s->sum[e] = worker == 0 ? own[e] : s->sum[e] + own[e];
    }
}

static double squares_of(const double *values, const struct dpb_tensor *tensor)
{
    double sum = 0.0;
    for (uint64_t e = tensor->offset; e < tensor->offset + tensor->n_elements; e++)
        sum += values[e] * values[e];
    return sum;
}

/* Of the mean gradient, so that its norm is clip_norm at most. */
static double clipped(const struct serial *s, double scale)
{
    double squares = 0.0;
    for (uint32_t t = 0; t < s->oracle.graph->n_tensors; t++)
        squares += squares_of(s->sum, &s->oracle.graph->tensors[t]);
    return scale * fmin(1.0, s->clip_norm / (scale * sqrt(squares) + 1e-6));
}

/* You, Gitman, Ginsburg 2017: what a tensor's rate is multiplied by. */
static double local_rate(const struct serial *s, const struct dpb_tensor *tensor, double scale)
{
    const double weights = sqrt(squares_of(s->weights, tensor));
    const double gradients = scale * sqrt(squares_of(s->sum, tensor));
    return tensor->decays ? s->trust * weights / (gradients + DECAY * weights) : 1.0;
}

static void update(struct serial *s)
{
    const struct dpb_experiment *x = s->oracle.experiment;
    const double mean = 1.0 / ((double)x->n_workers * x->accumulate);
    const double scale = s->clip_norm > 0.0 ? clipped(s, mean) : mean;
    for (uint32_t t = 0; t < s->oracle.graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &s->oracle.graph->tensors[t];
        const double decay = tensor->decays ? DECAY : 0.0;
        const double local = s->trust > 0.0 ? RATE * local_rate(s, tensor, scale) : 1.0;
        const double rate = s->trust > 0.0 ? 1.0 : RATE;
        for (uint64_t e = tensor->offset; e < tensor->offset + tensor->n_elements; e++) {
            s->velocity[e] = MOMENTUM * s->velocity[e] +
                             (local * scale * s->sum[e] + local * decay * s->weights[e]);
            s->weights[e] -= rate * s->velocity[e];
        }
    }
}

static double number_in(const char *settings, const char *option)
{
    const char *at = strstr(settings, option);
    return at ? atof(at + strlen(option)) : 0.0;
}

/* A gradient computed in step n is in the weights of step n + 1 + `late`. */
static void train_serially(struct serial *s, const char *settings, bool late)
{
    oracle_open(&s->oracle, settings);
    s->clip_norm = number_in(settings, "optimizer.clip_norm=");
    s->trust = number_in(settings, "optimizer.trust=");
    const size_t bytes = s->oracle.graph->n_elements * sizeof(double);
    s->weights = oracle_arena(&s->oracle);
    s->velocity = oracle_arena(&s->oracle);
    s->sum = oracle_arena(&s->oracle);
    memcpy(s->weights, s->oracle.weights, bytes);
    for (uint64_t step = 0; step < STEPS; step++) {
        sum_gradients(s, step);
        if (late)
            memcpy(s->oracle.weights, s->weights, bytes);
        update(s);
        if (!late)
            memcpy(s->oracle.weights, s->weights, bytes);
    }
}

static void serial_free(struct serial *s)
{
    free(s->weights);
    free(s->velocity);
    free(s->sum);
    oracle_close(&s->oracle);
}

/* The first tensor with other bits, or, where norms are sums in an order of core's own or a GPU
 * computes in fp32, with other values; NULL: none. */
static const char *first_difference(const struct serial *s, const struct weights *weights)
{
    const bool by_norms = s->clip_norm > 0.0 || s->trust > 0.0;
    const double bound = !weights->tensors[0].fp64 ? 1e-5 : by_norms ? 1e-12 : 0.0;
    for (uint32_t t = 0; t < s->oracle.graph->n_tensors; t++) {
        const struct dpb_tensor *tensor = &s->oracle.graph->tensors[t];
        const struct weight_tensor *is = oracle_tensor(weights, "", tensor);
        for (uint64_t i = 0; i < is->n_elements; i++) {
            const double expected = s->weights[tensor->offset + i], value = weights_value(is, i);
            if (bound > 0.0 ? !(fabs(value - expected) <= bound * fmax(1.0, fabs(expected)))
                            : memcmp(&value, &expected, sizeof value) != 0)
                return tensor->name;
        }
    }
    return NULL;
}

/* Rings add along the ring: of two workers any order gives the same bits. */
static const char *const forms[] = {
    "comm.name=shm run.workers=3 run.accumulate=2 comm.bucket=296",
    "comm.name=shm run.workers=1 run.comm_cores=1",
    "comm.name=shm run.workers=4 run.comm_cores=1 comm.bucket=8 eval.every=3",
    "comm.name=ring_tcp run.workers=2 comm.bucket=104 run.delay=exponential(1ms)",
    "comm.name=ring_tcp run.workers=2 run.comm_cores=1 comm.chunk=64 comm.inbox=256",
    "comm.name=ring_tcp run.workers=2 comm.hosts=1+1 comm.interface=lo run.accumulate=3",
    "comm.name=replicated run.workers=3 comm.bucket=104 run.delay=exponential(1ms)",
    "comm.name=ps_cpu run.workers=3 comm.bucket=1000 eval.every=1",
    "comm.name=ps_cpu run.workers=2 run.servers=2 comm.bucket=296 run.comm_cores=1",
    "comm.name=hierarchical run.workers=3 comm.hosts=2+1 comm.interface=lo",
    "comm.name=shm run.workers=3 run.accumulate=2 comm.bucket=296 optimizer.clip_norm=0.05",
    "comm.name=ring_tcp run.workers=2 run.comm_cores=1 optimizer.clip_norm=0.05",
    "comm.name=shm run.workers=2 comm.bucket=104 optimizer.name=lars optimizer.trust=0.02",
    "comm.name=ring_tcp run.workers=3 comm.bucket=104 optimizer.name=lars optimizer.trust=0.02",
};

static void describe(char settings[1024], const char *form)
{
    snprintf(settings, 1024,
             "%s model.name=tiny run.steps=%d run.batch=2 run.precision=fp64 device.name=reference "
             "data.name=synthetic data.samples=640 data.test_samples=6 optimizer.learning_rate=%g "
             "optimizer.momentum=%g optimizer.weight_decay=%g run.prove=yes comm.late=1",
             form, STEPS, RATE, MOMENTUM, DECAY);
}

static void expect_late(const struct training *training)
{
    expect_verified(training);
    assert_string_equal(json_text_at(training->command.json, "strategy.consistency"), "late(1)");
}

static void expect_oracle(const struct training *training, const char *settings)
{
    struct serial serial;
    train_serially(&serial, settings, true);
    const char *differs = first_difference(&serial, &training->weights);
    if (differs)
        fail_msg("%s: %s is not that of one step late", training->settings, differs);
    serial_free(&serial);
    train_serially(&serial, settings, false); /* a step less late is another training */
    assert_non_null(first_difference(&serial, &training->weights));
    serial_free(&serial);
}

static void test_oracle(void **state)
{
    struct training training;
    char settings[1024];
    describe(settings, *state);
    train(&training, "%s", settings);
    expect_late(&training);
    expect_oracle(&training, settings);
}

/* ---- weights on a GPU ---------------------------------------------------------------------- */

struct device_form {
    const char *settings, *strategy;
    bool library; /* of NCCL's sums */
};

/* NCCL's sums of two workers are those of any order. */
static const struct device_form device_forms[] = {
    {"run.workers=3 comm.bucket=104 run.accumulate=2", "comm.name=replicated", false},
    {"run.workers=2 comm.bucket=296 eval.every=3", "comm.name=replicated run.comm_cores=1", false},
    {"run.workers=3 comm.bucket=296 eval.every=1", "comm.name=ps_gpu", false},
    {"run.workers=2 comm.bucket=104", "comm.name=nccl comm.host_ids=rank", true},
    {"run.workers=2 comm.bucket=1000 run.accumulate=3 eval.every=3",
     "comm.name=nccl comm.host_ids=rank device.graphs=no", true},
    {"run.workers=2 run.delay=exponential(1ms)",
     "comm.name=hierarchical comm.inside=nccl comm.host_ids=rank", true},
};

/* In front of the device that is linked to NVIDIA's libraries. */
static void use_device(void)
{
    char path[512];
    const char *build = build_directory();
    snprintf(path, sizeof path, "%s/tests/cuda/plugins:%s/plugins", build, build);
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
}

static void test_device(void **state)
{
    static const char cuda[] = "device.name=cuda run.precision=fp32 device.tuning=no "
                               "device.ids=0,1,0";
    const struct device_form *form = *state;
    struct training device, host;
    char settings[1024], on_host[256];
    snprintf(on_host, sizeof on_host, "%s comm.name=shm", form->settings);
    describe(settings, on_host);
    use_device();
    train(&host, "%s %s", settings, cuda);
    train(&device, "%s %s %s", settings, cuda, form->strategy);
    expect_late(&device);
    expect_oracle(&device, settings);
    expect_same_weights(&device, &host, NULL, 0.0);
    expect_same_losses(&device, &host, 0.0);
}

/* A scale that fp32 rounds is no mistake. */
TEST(test_rounded_scale)
{
    struct training training;
    train(&training, "comm.name=shm run.workers=2 run.accumulate=3 comm.late=1 run.prove=yes "
                     "model.name=tiny run.precision=fp32 comm.bucket=1000");
    expect_verified(&training);
    assert_string_equal(json_text_at(training.command.json, "verification.steps"), "pass");
}

/* ---- mistakes ------------------------------------------------------------------------------ */

/* A proof makes three steps with gradients and one without, that of `load` one and one. A run that
 * saves makes the first proof twice; so training begins with exchange 14. */
#define IN_TRAINING " comm.from=14"

static const char *const mistakes[] = {"updated_twice", "update_skipped", "bucket_left_out",
                                       "wrong_scale"};

static void try_mutant(struct training *training, const char *mutation, const char *from)
{
    train_anyway(training,
                 "comm.name=mutant_shm run.workers=3 comm.late=1 run.prove=yes model.name=tiny "
                 "comm.bucket=296 run.steps=6 comm.mutation=%s%s",
                 mutation, from);
}

static void expect_found(const char *mutation, const char *from, const char *check)
{
    struct training training;
    char path[64];
    try_mutant(&training, mutation, from);
    if (training.command.exit_code != EXIT_VERIFICATION)
        fail_msg("%s%s: exit code %d: %s", mutation, from, training.command.exit_code,
                 training.command.err);
    snprintf(path, sizeof path, "verification.%s", check);
    assert_string_equal(json_text_at(training.command.json, path), "fail");
    EXPECT_WORDS(mutation, training.command.err, "comm 'mutant_shm'", "late(1)");
}

TEST(test_mistakes)
{
    struct training training;
    try_mutant(&training, "none", "");
    assert_int_equal(training.command.exit_code, 0);
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        expect_found(mistakes[i], "", "pattern");
        expect_found(mistakes[i], IN_TRAINING, "after");
    }
    for (size_t i = 0; i < 2; i++) { /* they are over before the check after training */
        char path[] = "verification.steps";
        try_mutant(&training, i == 0 ? "updated_twice" : "wrong_scale",
                   " comm.from=14 comm.until=18");
        assert_int_equal(training.command.exit_code, EXIT_VERIFICATION);
        assert_string_equal(json_text_at(training.command.json, path), "fail");
    }
}

/* A strategy that is one step late by itself and says that it is not. */
TEST(test_two_late)
{
    struct training training;
    train_anyway(&training, "comm.name=toy comm.kind=late comm.mistake=lie run.workers=3 "
                            "model.name=tiny run.precision=fp32 comm.late=1");
    assert_int_equal(training.command.exit_code, EXIT_VERIFICATION);
    assert_string_equal(json_text_at(training.command.json, "verification.pattern"), "fail");
    EXPECT_WORDS("two steps late", training.command.err, "comm 'toy'",
                 "keep its contract, late(1)");
}

/* ---- refusals ------------------------------------------------------------------------------ */

TEST(test_refusals)
{
    static const struct {
        const char *settings, *words[4];
    } rows[] = {
        {"comm.name=local_sgd run.workers=2",
         {"comm.late = 1 makes a synchronous strategy one step late, and comm 'local_sgd' is "
          "periodic(8)",
          "leave comm.late out"}},
        {"comm.name=gossip run.workers=2", {"comm 'gossip' is averaging"}},
        {"comm.name=ps_async run.workers=2 run.servers=1", {"comm 'ps_async' is asynchronous"}},
        {"comm.name=independent", {"comm 'independent' is none"}},
        {"comm.name=shm comm.codec=topk run.precision=fp32", {"comm.late = 1 beside comm.codec"}},
        {"comm.name=shm run.precision=fp16", {"comm.late = 1 with run.precision = fp16"}},
        {"comm.name=shm comm.late=2", {"comm.late", "1"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        train_says(EXIT_REFUSED, rows[i].words, "model.name=tiny comm.late=1 run.prove=no %s",
                   rows[i].settings);
}

TEST(test_without_training)
{
    static const char *const rows[][2] = {
        {"check -c /dev/null run.steps=2 run.mode=forward", "run.prove, comm.late, [eval]"},
        {"comm -c /dev/null comm.name=shm run.workers=2 comm_test.sizes=8",
         "`dpbench comm` waits for the end of each exchange"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, 60, 0, "%s", rows[i][0]);
        dpbench_says(60, EXIT_REFUSED, WORDS(rows[i][1]), "%s comm.late=1", rows[i][0]);
    }
}

int main(void)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        add_case(test_oracle, forms[i], "%s", forms[i]);
    /* The last ones: they take the stand-in for the mutants. */
    for (size_t i = 0; i < sizeof device_forms / sizeof *device_forms; i++)
        if (have_stand_in(device_forms[i].library ? "comm_nccl" : "device_cuda"))
            add_case(test_device, &device_forms[i], "cuda: %s %s", device_forms[i].strategy,
                     device_forms[i].settings);
    return test_main(training_setup_mutants, training_teardown);
}
