/* needs: threads stand-in */
/*
 * test_continue.c - a training that is saved and continued is the one that never stopped: with the
 * same setup bit for bit, with other workers, strategies, precisions and devices but for rounding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/sandbox.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/training.h"

enum { STEPS = 9, STOP = 4 };

/* The dropout of the tiny net needs the step, its batch-norm statistics; 11 samples of 2 make
 * epochs of a few steps with some left over. */
static const char base[] = "-c empty.ini --json run.results=results run.steady_limit_s=0 "
                           "run.warmup_steps=0 run.batch=2 data.name=synthetic device.threads=1 "
                           "model.name=tiny data.samples=27 data.test_samples=16 "
                           "optimizer.learning_rate=0.1 optimizer.weight_decay=0.01 ";

/* Runs and expects success. */
static void run(struct command *command, const char *settings)
{
    dpbench_ends(command, 120, 0, "%s%s", base, settings);
}

static void expect_losses(const json_t *whole, size_t from, const json_t *part, double bound,
                          const char *what)
{
    const json_t *a = json_at(whole, "loss"), *b = json_at(part, "loss");
    assert_int_equal(json_array_size(a), from + json_array_size(b));
    for (size_t i = 0; i < json_array_size(b); i++) {
        double expected = json_number_value(json_array_get(a, from + i));
        double found = json_number_value(json_array_get(b, i));
        if (!(fabs(found - expected) <= bound * fabs(expected)))
            fail_msg("%s: step %zu has loss %.17g, not %.17g", what, from + i, found, expected);
    }
}

/* ---- the same setup ------------------------------------------------------------------------ */

struct setup {
    const char *name, *settings;
    bool statistics; /* of one worker: equal bits; a mean over workers rounds */
};

static const struct setup setups[] = {
    {"one worker, momentum", "comm.name=independent run.precision=fp64 device.name=reference",
     true},
    {"one worker, adagrad",
     "comm.name=independent run.precision=fp64 device.name=reference optimizer.name=adagrad", true},
    {"one worker, nesterov, accumulate",
     "comm.name=independent run.precision=fp64 device.name=reference optimizer.nesterov=yes "
     "run.accumulate=2",
     true},
    {"no optimizer state",
     "comm.name=shm run.workers=2 run.precision=fp64 device.name=reference optimizer.momentum=0",
     false},
    {"shm", "comm.name=shm run.workers=2 run.precision=fp64 device.name=reference", false},
    {"shm, sharded, adam, one step late",
     "comm.name=shm comm.shard=optimizer comm.late=1 comm.bucket=1kB run.workers=3 "
     "run.precision=fp64 device.name=reference optimizer.name=adam",
     false},
    {"ring_tcp, weights on need, adam",
     "comm.name=ring_tcp comm.shard=parameters comm.bucket=4KiB run.workers=3 "
     "run.precision=fp64 device.name=reference optimizer.name=adam",
     false},
    {"ring_tcp, gradients in slots, kept sums",
     "comm.name=ring_tcp comm.shard=gradients run.accumulate=2 optimizer.clip_norm=0.05 "
     "comm.bucket=4096 run.workers=2 run.precision=fp64 device.name=reference optimizer.name=adam",
     false},
    {"replicated, lamb",
     "comm.name=replicated run.workers=3 run.precision=fp64 device.name=reference "
     "optimizer.name=lamb optimizer.weight_decay=0.1",
     false},
    {"ps_cpu, shards in the workers",
     "comm.name=ps_cpu run.workers=2 comm.bucket=1kB run.precision=fp64 device.name=reference",
     false},
    {"ps_cpu, 2 servers",
     "comm.name=ps_cpu run.workers=2 run.servers=2 comm.bucket=1kB run.precision=fp64 "
     "device.name=reference",
     false},
    {"cosine", /* by steps: its length is the whole training's */
     "comm.name=independent run.precision=fp64 device.name=reference optimizer.schedule=cosine",
     true},
    {"local_sgd, between two meetings", /* after 4 of 9 steps */
     "comm.name=local_sgd comm.period=3 run.workers=3 run.precision=fp64 device.name=reference",
     false},
    {"local_sgd with averaged momentum",
     "comm.name=local_sgd comm.period=2 comm.average_state=yes run.workers=2 run.precision=fp64 "
     "device.name=reference",
     false},
    {"local_sgd with averaged moments",
     "comm.name=local_sgd comm.period=3 comm.average_state=yes run.workers=2 run.precision=fp64 "
     "device.name=reference optimizer.name=adamw",
     false},
    {"easgd with lamb",
     "comm.name=easgd comm.period=3 run.workers=2 run.precision=fp64 device.name=reference "
     "optimizer.name=lamb",
     false},
    {"diloco, between two meetings",
     "comm.name=diloco comm.period=3 run.workers=3 run.precision=fp64 device.name=reference "
     "optimizer.name=adamw",
     false},
    {"local_sgd with powersgd, between two meetings",
     "comm.name=local_sgd comm.codec=powersgd comm.period=3 comm.bucket=1kB run.workers=3 "
     "device.name=reference",
     false},
    {"diloco with int8, between two meetings",
     "comm.name=diloco comm.codec=int8 comm.codec_rounding=stochastic comm.period=3 run.workers=2 "
     "device.name=reference optimizer.name=adamw",
     false},
    {"diloco, a period late, with powersgd",
     "comm.name=diloco comm.outer_late=1 comm.codec=powersgd comm.period=3 comm.bucket=1kB "
     "run.workers=3 device.name=reference",
     false},
    {"gossip",
     "comm.name=gossip comm.matching=random run.workers=3 run.precision=fp64 device.name=reference",
     false},
    {"easgd",
     "comm.name=easgd comm.period=3 run.workers=2 run.precision=fp64 device.name=reference", false},
    {"sma", "comm.name=sma run.workers=3 run.precision=fp64 device.name=reference", false},
    {"sma with a centre in each place",
     "comm.name=sma comm.local_centers=yes run.workers=2 run.learners=2 device.threads=2 "
     "run.precision=fp64 device.name=reference optimizer.name=adam",
     false},
    {"sma that restarts",
     "comm.name=sma run.workers=3 run.precision=fp64 device.name=reference "
     "optimizer.schedule=step optimizer.decay_at=1",
     false},
    {"diloco on two machines, between two meetings",
     "comm.name=diloco comm.period=3 run.workers=3 comm.hosts=2+1 comm.interface=lo "
     "comm.average_state=yes run.precision=fp64 device.name=reference optimizer.name=adamw",
     false},
    {"gossip on three machines",
     "comm.name=gossip comm.matching=random run.workers=4 comm.hosts=2+1+1 comm.interface=lo "
     "run.precision=fp64 device.name=reference",
     false},
    {"sma on two machines",
     "comm.name=sma comm.period=3 run.workers=3 comm.hosts=1+2 comm.interface=lo "
     "run.precision=fp64 device.name=reference",
     false},
    {"shm, one step late",
     "comm.name=shm comm.late=1 run.workers=3 run.accumulate=2 run.precision=fp64 "
     "device.name=reference",
     false},
    {"ring_tcp, one step late, a core for communication",
     "comm.name=ring_tcp comm.late=1 run.comm_cores=1 run.workers=2 run.precision=fp64 "
     "device.name=reference",
     false},
    {"ps_cpu, one step late, 2 servers",
     "comm.name=ps_cpu comm.late=1 run.workers=2 run.servers=2 comm.bucket=1kB run.precision=fp64 "
     "device.name=reference optimizer.name=adam",
     false},
    {"sharded data",
     "comm.name=shm run.workers=2 data.shard=yes run.precision=fp64 "
     "device.name=reference",
     false},
};

static const struct setup cpu_setups[] = {
    {"cpu, fp32", "comm.name=shm run.workers=2 device.name=cpu", false},
    {"cpu, bf16",
     "comm.name=shm run.workers=2 device.name=cpu run.precision=bf16 comm.gradient=bf16", false},
};

/* The last one needs NCCL. */
static const struct setup gpu_setups[] = {
    {"sma on GPUs, between two meetings",
     "comm.name=sma comm.period=3 run.workers=3 comm.bucket=1kB device.name=cuda device.tuning=no "
     "device.ids=0,1,0",
     false},
    {"local_sgd on GPUs with averaged momentum",
     "comm.name=local_sgd comm.period=3 comm.average_state=yes run.workers=2 comm.bucket=1kB "
     "device.name=cuda device.tuning=no device.ids=0,1",
     false},
    {"replicated on GPUs, one step late",
     "comm.name=replicated comm.late=1 run.workers=3 comm.bucket=1kB device.name=cuda "
     "device.tuning=no device.ids=0,1,0",
     false},
    {"topk on GPUs",
     "comm.name=replicated comm.codec=topk comm.codec_momentum=0.9 optimizer.momentum=0 "
     "run.workers=2 device.name=cuda device.tuning=no device.ids=0,0",
     false},
    {"powersgd on GPUs",
     "comm.name=replicated comm.codec=powersgd comm.bucket=1kB run.workers=2 device.name=cuda "
     "device.tuning=no device.ids=0,1",
     false},
    {"topk by NCCL",
     "comm.name=nccl comm.host_ids=rank comm.codec=topk comm.codec_momentum=0.9 "
     "optimizer.momentum=0 run.workers=2 device.name=cuda device.tuning=no device.ids=0,0",
     false},
    {"powersgd by NCCL",
     "comm.name=nccl comm.host_ids=rank comm.codec=powersgd comm.bucket=1kB run.workers=3 "
     "device.name=cuda device.tuning=no device.ids=0,0,0",
     false},
    {"nccl, one step late",
     "comm.name=nccl comm.host_ids=rank comm.late=1 run.workers=2 run.accumulate=2 "
     "device.name=cuda device.tuning=no device.ids=0,0",
     false},
};

static void test_same_setup(void **state)
{
    const struct setup *setup = *state;
    struct command whole, part;
    char settings[1024];
    if (strstr(setup->settings, "device.name=cuda"))
        use_stand_in(true);
    snprintf(settings, sizeof settings,
             "%s run.steps=%d checkpoint.save=whole.safetensors checkpoint.at=%d,%d",
             setup->settings, STEPS, STOP, STEPS);
    if (strstr(settings, "run.precision=bf16") && !cpu_has_bf16()) {
        expect_bf16_refused("%s%s", base, settings);
        return;
    }
    run(&whole, settings);
    snprintf(settings, sizeof settings,
             "%s run.steps=%d checkpoint.load=whole-step%d.safetensors "
             "checkpoint.save=part.safetensors",
             setup->settings, STEPS - STOP, STOP);
    run(&part, settings);
    assert_int_equal(json_number_at(part.json, "timing.first_step"), STOP);
    expect_losses(whole.json, STOP, part.json, 0.0, setup->name);
    weights_expect_equal("whole.safetensors", "part.safetensors", setup->statistics);
    weights_expect_equal("whole.safetensors", "whole-step9.safetensors", true);
}

/* ---- other setups -------------------------------------------------------------------------- */

struct change {
    const char *name, *before, *after;
    double bound;
};

#define FP64 "run.precision=fp64 device.name=reference "

static const struct change changes[] = {
    {"2 workers to 1", FP64 "comm.name=shm run.workers=2",
     FP64 "comm.name=independent run.workers=1 run.accumulate=2", 1e-12},
    {"1 worker to 3", FP64 "comm.name=independent run.accumulate=3",
     FP64 "comm.name=replicated run.workers=3", 1e-12},
    {"shm to servers", FP64 "comm.name=shm run.workers=2",
     FP64 "comm.name=ps_cpu run.workers=2 run.servers=2 comm.bucket=1kB", 1e-12},
    {"servers to shards", FP64 "comm.name=ps_cpu run.workers=2 run.servers=1",
     FP64 "comm.name=ps_cpu run.workers=2 comm.bucket=2kB", 1e-12},
    {"replicas to 3 shards in shm, Adam",
     FP64 "optimizer.name=adam comm.name=replicated run.workers=2 run.accumulate=3",
     FP64 "optimizer.name=adam comm.name=shm comm.shard=optimizer run.workers=3 comm.bucket=1kB "
          "run.accumulate=2",
     1e-12},
    {"3 shards in shm to 2 in a ring",
     FP64 "comm.name=shm comm.shard=optimizer run.workers=3 comm.bucket=1kB run.accumulate=2",
     FP64 "comm.name=ring_tcp comm.shard=optimizer run.workers=2 comm.bucket=2kB run.accumulate=3",
     1e-12},
    {"a ring's shards to those of two machines",
     FP64 "comm.name=ring_tcp comm.shard=optimizer run.workers=2 comm.bucket=2kB run.accumulate=2",
     FP64 "comm.name=hierarchical comm.shard=optimizer run.workers=4 comm.bucket=1kB "
          "comm.hosts=2x2 comm.interface=lo",
     1e-12},
    {"shards of two unequal machines to shm's",
     FP64 "optimizer.name=adam comm.name=hierarchical comm.shard=optimizer run.workers=3 "
          "comm.bucket=1kB comm.hosts=1+2 comm.interface=lo",
     FP64 "optimizer.name=adam comm.name=shm comm.shard=optimizer run.workers=3 comm.bucket=2kB",
     1e-12},
    {"a ring's shards to one worker",
     FP64 "comm.name=ring_tcp comm.shard=optimizer run.workers=2 comm.bucket=2kB",
     FP64 "comm.name=independent run.accumulate=2", 1e-12},
    {"3 shards in shm to 2 servers",
     FP64 "comm.name=shm comm.shard=optimizer run.workers=3 comm.bucket=1kB run.accumulate=2",
     FP64 "comm.name=ps_cpu run.workers=2 run.servers=2 run.accumulate=3", 1e-12},
    {"shards to replicas", FP64 "comm.name=ps_cpu run.workers=2 comm.bucket=1kB",
     FP64 "comm.name=replicated run.workers=2", 1e-12},
};

static const struct change cpu_changes[] = {
    {"reference in fp64 to cpu in fp32", FP64 "comm.name=shm run.workers=2",
     "device.name=cpu comm.name=shm run.workers=2", 1e-4},
    {"cpu in fp32 to reference in fp64", "device.name=cpu comm.name=shm run.workers=2",
     FP64 "comm.name=shm run.workers=2", 1e-4},
};

static void test_other_setup(void **state)
{
    const struct change *change = *state;
    struct command whole, part;
    char settings[1024];
    snprintf(settings, sizeof settings,
             "%s run.steps=%d checkpoint.save=other.safetensors checkpoint.every=%d",
             change->before, STEPS, STOP);
    run(&whole, settings);
    assert_int_equal(access("other-step8.safetensors", F_OK), 0);
    snprintf(settings, sizeof settings, "%s run.steps=%d checkpoint.load=other-step%d.safetensors",
             change->after, STEPS - STOP, STOP);
    run(&part, settings);
    expect_losses(whole.json, STOP, part.json, change->bound, change->name);
}

/* ---- on several machines ------------------------------------------------------------------- */

/* ps_cpu sums in the order of the ranks, so that a number of workers has its bits wherever they and
 * the servers are. */
static const struct spread {
    const char *ranks, *hosts;
} spreads[] = {
    {"run.workers=2 run.servers=1", "2+1"},
    {"run.workers=2", "1+1"},
    {"run.workers=3 run.servers=2", "0,1,1,2,0"},
    {"run.workers=1 run.servers=3 optimizer.name=adam", "0,1,2,1"},
};

enum { SPREADS = sizeof spreads / sizeof spreads[0] };

static void run_spread(struct command *command, const struct spread *spread, bool apart,
                       const char *settings)
{
    char line[1024];
    snprintf(line, sizeof line,
             FP64 "comm.name=ps_cpu comm.bucket=1kB comm.interface=lo %s %s%s %s", spread->ranks,
             apart ? "comm.hosts=" : "", apart ? spread->hosts : "", settings);
    run(command, line);
}

/* What is saved on several machines is what one machine saves; and it is continued by the next
 * setup, on one and on several, by the same bits. */
static void expect_machines_alike(size_t i, const char *also)
{
    const struct spread *spread = &spreads[i], *next = &spreads[(i + 1) % SPREADS];
    struct command together, apart;
    char settings[256];
    const char *optimizer = strstr(spread->ranks, "optimizer.name");
    snprintf(settings, sizeof settings,
             "run.steps=%d checkpoint.save=here.safetensors checkpoint.at=%d %s", STOP + 2, STOP,
             also);
    run_spread(&together, spread, false, settings);
    snprintf(settings, sizeof settings,
             "run.steps=%d checkpoint.save=there.safetensors checkpoint.at=%d %s", STOP + 2, STOP,
             also);
    run_spread(&apart, spread, true, settings);
    expect_losses(together.json, 0, apart.json, 0.0, spread->hosts);
    weights_expect_equal("here-step4.safetensors", "there-step4.safetensors", true);
    weights_expect_equal("here.safetensors", "there.safetensors", true);
    for (int on_several = 0; on_several < 2; on_several++) {
        struct command *command = on_several ? &apart : &together;
        snprintf(settings, sizeof settings,
                 "run.steps=3 checkpoint.load=there-step%d.safetensors checkpoint.save=%s %s %s",
                 STOP, on_several ? "there.safetensors" : "here.safetensors", also,
                 optimizer ? optimizer : "optimizer.name=sgd");
        run_spread(command, next, on_several, settings);
    }
    expect_losses(together.json, 0, apart.json, 0.0, next->hosts);
    weights_expect_equal("here.safetensors", "there.safetensors", true);
}

static void test_machines(void **state)
{
    const struct spread *spread = *state;
    expect_machines_alike((size_t)(spread - spreads), "");
}

TEST(test_pieces)
{
    expect_machines_alike(0, "model.name=tiny_dense model.image=96 comm.bucket=1MiB run.batch=1");
}

/* ---- epochs, evaluations, another batch ---------------------------------------------------- */

/* run.epochs counts those of the training, the schedule goes by them, evaluations go on. */
TEST(test_epochs)
{
    static const char settings[] =
        FP64 "comm.name=shm run.workers=2 run.epochs=3 optimizer.schedule=cosine eval.every=4 ";
    struct command whole, part;
    char line[1024];
    snprintf(line, sizeof line, "%s checkpoint.save=e.safetensors checkpoint.at=8", settings);
    run(&whole, line);
    snprintf(line, sizeof line, "%s checkpoint.load=e-step8.safetensors", settings);
    run(&part, line);
    assert_int_equal(json_array_size(json_at(whole.json, "loss")), 18); /* 27 / 4 a epoch */
    expect_losses(whole.json, 8, part.json, 0.0, "epochs");
    const json_t *evals = json_at(part.json, "eval"); /* those before are the file's */
    assert_int_equal(json_array_size(evals), 4);
    assert_int_equal(json_number_at(part.json, "eval.2.step"), 12);
    assert_int_equal(json_number_at(part.json, "eval.2.trained_samples"), 48);
    assert_int_equal(json_number_at(part.json, "eval.2.epoch"), 2);
    assert_true(json_number_at(whole.json, "eval.2.loss") !=
                json_number_at(whole.json, "eval.3.loss"));
    assert_true(
        fabs(json_number_at(whole.json, "eval.2.loss") / json_number_at(part.json, "eval.2.loss") -
             1) < 1e-12);
    assert_true(json_number_at(part.json, "eval.2.trained_s") >
                json_number_at(whole.json, "eval.1.trained_s"));
    snprintf(line, sizeof line, "%s checkpoint.load=e-step8.safetensors run.batch=5", settings);
    run(&part, line); /* 11 samples left of epoch 1, one step; 2 in the last */
    assert_int_equal(json_array_size(json_at(part.json, "loss")), 3);
    dpbench_ends(&part, 60, 2, "%s%s checkpoint.load=e.safetensors", base, settings);
    assert_non_null(strstr(part.err, "has gone through 3 epochs already, and run.epochs = 3"));
}

/* ---- a batch that grows -------------------------------------------------------------------- */

/* The second and third epoch have twice and three times the batch. The second batch grows in one
 * piece or by micro-batches. Of 27 samples epochs have 6, 3 and 2 steps. */
TEST(test_batch_growth)
{
    static const char settings[] = FP64 "comm.name=shm run.workers=2 model.name=tiny_dense "
                                        "optimizer.momentum=0.9 eval.final=yes ";
    static const char *const growth[] = {"run.batch=4", "run.accumulate=2"};
    struct command first, second[2], third[2];
    char line[1024];
    snprintf(line, sizeof line, "%s run.epochs=1 checkpoint.save=g0.safetensors", settings);
    run(&first, line);
    assert_int_equal(json_array_size(json_at(first.json, "loss")), 6);
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "%s run.epochs=2 checkpoint.load=g0.safetensors checkpoint.save=g1.safetensors %s",
                 settings, growth[i]);
        run(&second[i], line);
        snprintf(line, sizeof line, "%s run.epochs=3 checkpoint.load=g1.safetensors run.batch=6",
                 settings);
        run(&third[i], line);
        assert_int_equal(json_array_size(json_at(second[i].json, "loss")), 3);
        assert_int_equal(json_array_size(json_at(third[i].json, "loss")), 2);
        assert_int_equal(json_number_at(third[i].json, "eval.2.trained_samples"), 3 * 24);
        assert_true(json_number_at(third[i].json, "eval.2.trained_s") >
                    json_number_at(third[i].json, "eval.1.trained_s"));
    }
    expect_losses(second[0].json, 0, second[1].json, 1e-12, "micro-batches");
    expect_losses(third[0].json, 0, third[1].json, 1e-12, "micro-batches before");
    for (int i = 0; i < 2; i++) {
    }
}

/* ---- another seed -------------------------------------------------------------------------- */

TEST(test_other_seed)
{
    static const char said[] = "s.safetensors was trained with run.seed = 1, here it is 2";
    struct command command;
    run(&command, FP64 "comm.name=shm run.workers=2 run.steps=3 checkpoint.save=s.safetensors");
    for (int seed = 1; seed <= 2; seed++)
        for (int resume = 0; resume < 2; resume++) {
            char line[256];
            snprintf(line, sizeof line,
                     FP64 "comm.name=shm run.workers=2 run.steps=2 run.seed=%d "
                          "checkpoint.load=s.safetensors checkpoint.resume=%s",
                     seed, resume ? "yes" : "no");
            run(&command, line);
            const char *at = strstr(command.err, said);
            assert_true((at != NULL) == (seed == 2 && resume == 1));
            assert_true(at == NULL || strstr(at + 1, said) == NULL); /* once for all ranks */
        }
}

/* ---- weights alone ------------------------------------------------------------------------- */

TEST(test_weights_alone)
{
    struct command first, second;
    run(&first, FP64 "comm.name=independent run.steps=3 checkpoint.save=w.safetensors");
    run(&first, FP64 "comm.name=independent run.steps=2 optimizer.name=adagrad "
                     "checkpoint.load=w.safetensors checkpoint.resume=no");
    assert_int_equal(json_number_at(first.json, "timing.first_step"), 0);
    run(&second, FP64 "comm.name=independent run.steps=2 optimizer.name=adagrad "
                      "run.mode=forward checkpoint.load=w.safetensors");
    /* The same first batch, but for the statistics: both begin at the begin of the data. */
    assert_int_equal(json_number_at(second.json, "timing.first_step"), 0);
}

/* ---- refusals ------------------------------------------------------------------------------ */

struct refusal {
    const char *settings, *message;
    int exit_code;
};

static const struct refusal refusals[] = {
    {"checkpoint.at=3", "command line: checkpoint.at = 3 does nothing: it needs checkpoint.save",
     2},
    {"checkpoint.every=3",
     "command line: checkpoint.every = 3 does nothing: it needs checkpoint.save", 2},
    {"checkpoint.save=x checkpoint.at=3,2", "'3,2' is not a rising list of steps", 2},
    {"checkpoint.save=x checkpoint.at=-3", "is not a rising list of steps", 2},
    {"checkpoint.save=x checkpoint.at=3,", "is not a rising list of steps", 2},
    {"checkpoint.save=x checkpoint.at=99999999999999999999", "is not a rising list of steps", 2},
    {"checkpoint.save=gone/x.safetensors",
     "command line: checkpoint.save = gone/x.safetensors: gone cannot be written to: No such file",
     2},
    {"checkpoint.load=gone.safetensors", "gone.safetensors: the checkpoint cannot be read", 2},
    {"checkpoint.load=w.safetensors optimizer.name=adagrad",
     "it had another optimizer. Take that one, or only the weights: checkpoint.resume=no", 2},
    {"checkpoint.load=w.safetensors optimizer.name=lars",
     "has no 'optimizer.velocity.conv1.weight': it had another optimizer", 2},
    {"checkpoint.load=w.safetensors model.name=mlp",
     "tensor 'fc1.weight' has shape [11,90], the model's has", 2},
    {"checkpoint.load=w.safetensors data.samples=4 run.batch=1",
     "has taken 6 samples of its epoch, but data 'synthetic' has 4 only", 2},
    {"eval.target=0.5", "eval.target is looked at after each evaluation: give eval.every", 2},
    {"eval.target_loss=0.5", "eval.target_loss is looked at after each evaluation: give", 2},
    {"eval.require_target=yes", "eval.require_target = yes does nothing: it needs eval.target", 2},
};

static void test_refused(void **state)
{
    const struct refusal *refusal = *state;
    struct command command;
    dpbench(&command, 60, "%s" FP64 "comm.name=independent run.steps=3 %s", base,
            refusal->settings);
    if (command.exit_code != refusal->exit_code || !strstr(command.err, refusal->message))
        fail_msg("%s: exit code %d, not %d with '%s': %s", refusal->settings, command.exit_code,
                 refusal->exit_code, refusal->message, command.err);
    dpbench(&command, 60,
            "check -c empty.ini run.results=results " FP64
            "data.name=synthetic data.samples=27 run.batch=2 "
            "model.name=tiny run.steps=3 %s",
            refusal->settings);
    assert_int_equal(command.exit_code, refusal->exit_code);
}

/* The centres of two places are not those of four, though four workers train in both. */
TEST(test_other_places)
{
#define CENTRES "comm.name=sma comm.local_centers=yes run.precision=fp64 device.name=reference "
    struct command command;
    run(&command, CENTRES "run.workers=2 run.learners=2 device.threads=2 run.steps=3 "
                          "checkpoint.save=places.safetensors");
    dpbench(&command, 60,
            "%s" CENTRES "run.workers=4 run.steps=3 checkpoint.load=places.safetensors", base);
    if (command.exit_code != 2 || !strstr(command.err, "'comm.sma.place_2.0'") ||
        !strstr(command.err, "cannot keep"))
        fail_msg("exit code %d: %s", command.exit_code, command.err);
}

/* ---- target -------------------------------------------------------------------------------- */

static const char easy[] =
    FP64 "comm.name=shm run.workers=2 data.samples=64 data.test_samples=64 model.nclass=2 "
         "run.batch=8 run.steps=400 eval.every=5 optimizer.learning_rate=0.02 ";

static double accuracy_at(const json_t *result, size_t i)
{
    char path[48];
    snprintf(path, sizeof path, "eval.%zu.accuracy", i);
    return json_number_at(result, path);
}

TEST(test_target)
{
    struct command last, median, missed;
    dpbench_ends(&last, 120, 0, "%s%s eval.target=0.93", base, easy);
    size_t n = json_array_size(json_at(last.json, "eval"));
    assert_true(n > 0 && n < 80);
    for (size_t i = 0; i + 1 < n; i++)
        assert_true(accuracy_at(last.json, i) < 0.93);
    assert_true(accuracy_at(last.json, n - 1) >= 0.93);
    assert_true(json_is_true(json_at(last.json, "target.met")));
    assert_true(json_number_at(last.json, "target.at.step") == 5.0 * (double)n);
    assert_true(json_number_at(last.json, "target.at.trained_samples") == 80.0 * (double)n);
    assert_true(json_number_at(last.json, "target.at.trained_s") > 0);
    assert_in_range(json_array_size(json_at(last.json, "loss")), 5 * n + 1, 5 * n + 4);

    dpbench_ends(&median, 120, 0, "%s%s eval.target=0.93 eval.criterion=median5", base, easy);
    size_t m = json_array_size(json_at(median.json, "eval"));
    int above = 0;
    for (size_t i = m - 5; i < m; i++)
        above += accuracy_at(median.json, i) >= 0.93;
    assert_true(m >= 5 && m >= n && above >= 3);
    above = 0;
    for (size_t i = m < 6 ? m : m - 6; i + 1 < m; i++)
        above += accuracy_at(median.json, i) >= 0.93;
    assert_true(above < 3); /* not one evaluation earlier */

    dpbench_ends(&missed, 120, 4, "%s%s run.steps=6 eval.target=1 eval.require_target=yes", base,
                 easy);
    assert_true(json_is_false(json_at(missed.json, "target.met")));
    assert_string_equal(json_text_at(missed.json, "status"), "failed");
    assert_non_null(strstr(json_text_at(missed.json, "error"), "did not reach eval.target = 1"));

    dpbench_ends(&missed, 120, 4,
                 "%s%s run.steps= run.epochs=1 eval.every=500 eval.target=1 "
                 "eval.require_target=yes",
                 base, easy);
    assert_non_null(strstr(json_text_at(missed.json, "error"), "nothing was evaluated"));
    assert_non_null(strstr(missed.out, "\"unused_setting\""));
}

/* The median of five evaluations, of which the file has some and the continued run the others. */
TEST(test_target_continued)
{
    static const char criterion[] = "eval.criterion=median5";
    struct command whole, first, rest, over;
    dpbench_ends(&whole, 120, 0, "%s%s eval.target=0.93 %s", base, easy, criterion);
    const double at = json_number_at(whole.json, "target.at.step");
    assert_true(at >= 25);
    dpbench_ends(&first, 120, 0,
                 "%s%s eval.final=no run.steps=%.0f checkpoint.save=part.safetensors", base, easy,
                 at - 10);
    dpbench_ends(&rest, 120, 0,
                 "%s%s eval.target=0.93 %s checkpoint.load=part.safetensors "
                 "checkpoint.save=met.safetensors",
                 base, easy, criterion);
    assert_true(json_number_at(rest.json, "target.at.step") == at);
    assert_true(json_number_at(rest.json, "target.at.trained_samples") ==
                json_number_at(whole.json, "target.at.trained_samples"));
    assert_int_equal(json_array_size(json_at(rest.json, "eval")),
                     json_array_size(json_at(whole.json, "eval")));
    for (size_t i = 0; i < json_array_size(json_at(whole.json, "eval")); i++)
        assert_true(accuracy_at(rest.json, i) == accuracy_at(whole.json, i));

    dpbench(&over, 60, "%s%s eval.target=0.93 %s checkpoint.load=met.safetensors", base, easy,
            criterion);
    if (over.exit_code != 2 || !strstr(over.err, "its training met eval.target = 0.93 at step "))
        fail_msg("exit code %d: %s", over.exit_code, over.err);
    dpbench_ends(&over, 60, 0, "%s%s run.steps=10 eval.target=1 checkpoint.load=met.safetensors",
                 base, easy);
}

TEST(test_target_loss)
{
    struct command last, missed;
    dpbench_ends(&last, 120, 0, "%s%s eval.target_loss=0.3", base, easy);
    size_t n = json_array_size(json_at(last.json, "eval"));
    assert_true(n > 1 && n < 80);
    for (size_t i = 0; i < n; i++) {
        char path[48];
        snprintf(path, sizeof path, "eval.%zu.loss", i);
        assert_true((json_number_at(last.json, path) <= 0.3) == (i + 1 == n));
    }
    assert_true(json_is_null(json_at(last.json, "target.accuracy")));
    assert_true(json_number_at(last.json, "target.loss") == 0.3);
    assert_true(json_number_at(last.json, "target.at.step") == 5.0 * (double)n);

    dpbench_ends(&missed, 120, 4, "%s%s run.steps=6 eval.target_loss=1e-9 eval.require_target=yes",
                 base, easy);
    assert_non_null(
        strstr(json_text_at(missed.json, "error"), "not reach eval.target_loss = 1e-09"));
}

/* 64 samples in batches of 16 are 4 steps an epoch. */
TEST(test_evaluations_by_epochs)
{
    static const struct {
        const char *every;
        double steps[4];
    } rows[] = {{"0.5", {2, 4, 6, 8}}, {"0.375", {2, 3, 5, 6}}, {"0.01", {1, 2, 3, 4}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        dpbench_ends(&command, 120, 0,
                     "%s" FP64
                     "data.samples=64 data.test_samples=16 run.workers=2 comm.name=shm run.batch=8 "
                     "eval.every_epochs=%s run.steps=9",
                     base, rows[i].every);
        for (size_t k = 0; k < 4; k++) {
            char path[48];
            snprintf(path, sizeof path, "eval.%zu.step", k);
            assert_true(json_number_at(command.json, path) == rows[i].steps[k]);
        }
    }
}

/* They are those of a test set that has no others. */
TEST(test_first_batches)
{
    struct command first, small;
    dpbench_ends(&first, 120, 0, "%s%s run.steps=5 eval.batches=2", base, easy);
    dpbench_ends(&small, 120, 0, "%s%s run.steps=5 data.test_samples=16", base, easy);
    assert_true(json_number_at(first.json, "eval.0.samples") == 16);
    assert_true(json_equal(json_at(first.json, "eval.0.loss"), json_at(small.json, "eval.0.loss")));
}

/* Where nothing is learnt, an epoch of training finds what an evaluation of the same text finds. */
TEST(test_training_accuracy)
{
    static const char gpt[] =
        "-c empty.ini --json run.results=results " FP64
        "model.name=gpt model.layers=1 model.heads=1 model.width=8 model.context=8 "
        "data.name=tokens data.path=text data.test_path=text run.batch=2 run.workers=2 "
        "comm.name=shm run.warmup_steps=0 run.steady_limit_s=0";
    struct command command;
    char text[16 * 8 + 2] = "";
    for (size_t i = 0; i + 1 < sizeof text; i++)
        text[i] = "aab"[i % 3];
    sandbox_write("text", "%s", text);
    dpbench_ends(&command, 120, 0, "%s run.steps=8 optimizer.learning_rate=0.5 checkpoint.save=gpt",
                 gpt);
    dpbench_ends(&command, 120, 0,
                 "%s run.epochs=1 optimizer.learning_rate=0 checkpoint.load=gpt "
                 "checkpoint.resume=no eval.final=yes",
                 gpt);
    const json_t *steps = json_at(command.json, "training_accuracy");
    double sum = 0;
    assert_int_equal(json_array_size(steps), 4);
    for (size_t i = 0; i < 4; i++)
        sum += json_number_value(json_array_get(steps, i));
    assert_true(sum > 0);
    assert_true(fabs(sum / 4 - json_number_at(command.json, "eval.0.accuracy")) < 1e-12);
}

static int setup(void **state)
{
    int code = sandbox_setup(state);
    sandbox_write("empty.ini", "%s", "");
    return code;
}

int main(void)
{
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        add_case(test_same_setup, &setups[i], "same setup: %s", setups[i].name);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++)
        add_case(test_other_setup, &changes[i], "other setup: %s", changes[i].name);
    for (size_t i = 0; i < SPREADS; i++)
        add_case(test_machines, &spreads[i], "machines %s, %s", spreads[i].hosts, spreads[i].ranks);
    if (have_cpu_device()) {
        for (size_t i = 0; i < sizeof cpu_setups / sizeof *cpu_setups; i++)
            add_case(test_same_setup, &cpu_setups[i], "same setup: %s", cpu_setups[i].name);
        for (size_t i = 0; i < sizeof cpu_changes / sizeof *cpu_changes; i++)
            add_case(test_other_setup, &cpu_changes[i], "other setup: %s", cpu_changes[i].name);
    }
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        add_case(test_refused, &refusals[i], "refused: %s", refusals[i].settings);
    for (size_t i = 0; i < sizeof gpu_setups / sizeof *gpu_setups; i++)
        if (have_stand_in(i == 0 ? "device_cuda" : "comm_nccl"))
            add_case(test_same_setup, &gpu_setups[i], "cuda: same setup: %s", gpu_setups[i].name);
    return test_main(setup, sandbox_teardown);
}
