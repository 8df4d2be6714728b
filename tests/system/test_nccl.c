/* needs: nccl stand-in */
/*
 * test_nccl.c - comm nccl: the same training run as one worker's, what its checks catch, its
 * options, what it refuses, and how it ends when something goes wrong. On a CUDA and a NCCL for
 * tests (tests/cuda), which really sum between the workers; or, what of it makes sense there, on a
 * GPU that the workers share (lib/stand_in.h, comm.host_ids = rank).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/faults.h"
#include "lib/launchers.h"
#include "lib/sandbox.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/training.h"

/* Workers share a GPU: what a real one needs is right for the stand-in as well. */
#define CUDA "device.name=cuda run.precision=fp32 device.tuning=no device.ids=0,0,0,0 "
#define NCCL CUDA "comm.name=nccl comm.host_ids=rank "
#define TWO NCCL "run.workers=2 "
#define SHARDS NCCL "comm.shard=optimizer "
#define UNCAPTURED TWO "comm.capture=off "
#define LAUNCHED TWO "comm.capture=on "
#define INSIDE CUDA "comm.name=hierarchical comm.inside=nccl comm.host_ids=rank "
#define ONE_MACHINE INSIDE "run.workers=2 "
#define TWO_MACHINES INSIDE "comm.hosts=2+1 comm.interface=lo run.workers=3 "
#define LENET "model.name=lenet model.image=12 run.batch=1 "
#define TINY "model.name=tiny run.batch=2 "
#define DENSE "model.name=tiny_dense run.batch=2 "
#define LAMB "optimizer.name=lamb optimizer.weight_decay=0.1 optimizer.clip_norm=0.05"

/* A driver takes some to clear up behind a process. */
static double most_s(void)
{
    return on_gpu() ? 10.0 : 5.0;
}

static char cache[64];

/* Fails unless the run ended so, with these words. */
static void expect_end(const struct training *run, int exit_code, const char *const words[])
{
    if (run->command.exit_code != exit_code)
        fail_msg("%s: exit code %d, not %d: %s", run->settings, run->command.exit_code, exit_code,
                 run->command.err);
    for (size_t i = 0; words[i]; i++) {
        if (!strstr(run->command.err, words[i]))
            fail_msg("%s: no '%s' in: %s", run->settings, words[i], run->command.err);
    }
}

/* ---- the same training run ----------------------------------------------------------------- */

/* W workers are one that goes through W micro-batches, and what shm makes of them. */
TEST(test_same_training)
{
    static const struct {
        int workers;
        const char *strategy, *settings;
    } rows[] = {{2, NCCL, "comm.bucket=212 device.graphs=no"},
                {3, NCCL, "comm.bucket=500"},
                {4, NCCL, "comm.bucket=4MiB"},
                {2, NCCL, "run.accumulate=2 comm.bucket=1000"},
                {3, SHARDS, "comm.bucket=500"},
                {4, SHARDS, "run.accumulate=2 comm.bucket=212 device.graphs=no"}};
    struct training one, some, start;
    train(&start, CUDA TINY "run.steps=1 run.workers=1 optimizer.learning_rate=0");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bool twice = strstr(rows[i].settings, "accumulate") != NULL;
        train(&one, CUDA TINY "run.steps=1 run.workers=1 %s run.accumulate=%d", rows[i].settings,
              rows[i].workers * (twice ? 2 : 1));
        train(&some, "%s" TINY "run.steps=1 run.prove=yes run.workers=%d %s", rows[i].strategy,
              rows[i].workers, rows[i].settings);
        expect_verified(&some);
        expect_same_weights(&one, &some, &start, 1e-4);
        training_free(&one);
        training_free(&some);
    }
    training_free(&start);
}

/* The sum of two is the same in any order, and the optimizer's arithmetic is the host's: bit for
 * bit the weights of shm, step after step, in fp32 and with gradients in halves, with
 * shards, and by norms, too. Norms of shards are bits of equal shards. */
TEST(test_bit_for_bit)
{
    static const char *const settings[][2] = {{NCCL, "comm.gradient=fp32 optimizer.name=adagrad"},
                                              {NCCL, "comm.gradient=bf16 optimizer.nesterov=yes"},
                                              {NCCL, "comm.gradient=fp16 optimizer.momentum=0.5"},
                                              {SHARDS, "comm.gradient=bf16 optimizer.name=adam"},
                                              {NCCL, "comm.gradient=fp32 optimizer.clip_norm=0.05 "
                                                     "optimizer.momentum=0.5"},
                                              {NCCL, "comm.gradient=bf16 optimizer.name=lars"},
                                              {NCCL, LAMB},
                                              {SHARDS, LAMB " comm.shard=optimizer"}};
    struct training shm, nccl, start;
    train(&start, CUDA TINY "run.steps=1 run.workers=1 optimizer.learning_rate=0");
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        train(&shm, CUDA TINY "run.steps=4 run.workers=2 comm.name=shm %s comm.bucket=500",
              settings[i][1]);
        train(&nccl, "%s" TINY "run.steps=4 run.prove=yes run.workers=2 %s comm.bucket=500",
              settings[i][0], settings[i][1]);
        expect_verified(&nccl);
        expect_same_weights(&shm, &nccl, &start, 0.0);
        expect_same_losses(&shm, &nccl, 0.0);
        training_free(&shm);
        training_free(&nccl);
    }
    training_free(&start);
}

/* Each rank has its part of the state, within a bucket, and what they save goes on elsewhere, with
 * all of it on each rank: two workers have the bits of shm. */
TEST(test_shards)
{
    enum { STATE_OF_BUCKET = 2 * 500 };
    struct training whole, part;
    struct command shards;
    char path[64];
    train(&whole, CUDA DENSE "run.steps=6 run.workers=2 comm.name=shm optimizer.name=adam");
    dpbench_ends(&shards, 60, 0,
                 "-c /dev/null --json run.results= data.name=synthetic data.samples=640 "
                 "run.warmup_steps=0 run.steady_limit_s=0 device.threads=1 " SHARDS DENSE
                 "run.steps=3 run.workers=2 optimizer.name=adam optimizer.learning_rate=0.1 "
                 "comm.bucket=500 checkpoint.save=%s/shards.safetensors",
                 cache);
    const double all = expect_number(&whole.command, "ranks.0.memory.optimizer_state_bytes");
    double sum = 0;
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof path, "ranks.%d.memory.optimizer_state_bytes", rank);
        const double own = expect_number(&shards, path);
        if (own < all / 2 - STATE_OF_BUCKET || own > all / 2 + STATE_OF_BUCKET)
            fail_msg("rank %d has %g bytes of %g bytes of state", rank, own, all);
        sum += own;
    }
    assert_true(all > 4 * STATE_OF_BUCKET && sum == all);
    train(&part,
          CUDA DENSE "run.steps=3 run.workers=2 comm.name=shm optimizer.name=adam "
                     "checkpoint.load=%s/shards.safetensors",
          cache);
    expect_same_weights(&whole, &part, NULL, 0.0);
    training_free(&whole);
    training_free(&part);
    command_free(&shards);
}

/* The plan makes slices equal, and `check` counts by its bucket. */
TEST(test_state_by_check)
{
    static const char *const buckets[] = {"16", "8"}; /* four elements, two */
    double mib[2];
    for (int i = 0; i < 2; i++) {
        struct command command;
        dpbench_ends(&command, 60, 0,
                     "check -c /dev/null run.steps=1 data.name=synthetic " SHARDS
                     "model.name=lenet "
                     "run.workers=4 optimizer.name=adam comm.bucket=%s",
                     buckets[i]);
        const char *at = strstr(command.out, "optimizer state ");
        assert_non_null(at);
        mib[i] = strtod(at + strlen("optimizer state "), NULL);
        command_free(&command);
    }
    if (mib[0] < 0.5 || mib[1] != mib[0])
        fail_msg("check says %g MiB of state, not %g", mib[1], mib[0]);
}

/* Spans come from the GPU's events: there are some of transfers and of updates, in the step that
 * they belong to; bytes are those of the definition. Of a graph's launches as well: in the timed
 * steps there is nothing else. */
static void check_account(const char *settings)
{
    /* The stand-in draws what runs beside what: in few steps it may by chance hide nothing. */
    const int steps = 16;
    struct training run;
    train(&run, NCCL LENET "run.steps=%d run.workers=2 comm.bucket=400000 %s", steps, settings);
    double exposed_ns = expect_number(&run.command, "timing.breakdown_ns.comm_exposed");
    double hidden_ns = expect_number(&run.command, "timing.breakdown_ns.comm_hidden");
    double update_ns = expect_number(&run.command, "timing.breakdown_ns.optimizer");
    double bytes = expect_number(&run.command, "comm.bytes_per_step");
    double least = 2.0 * 4.0 * expect_number(&run.command, "model.parameters");
    const bool late = strstr(settings, "comm.late") != NULL; /* it may hide all */
    if (hidden_ns <= 0.0 || (!late && (exposed_ns <= 0.0 || update_ns <= 0.0)))
        fail_msg("%s: %.0f ns hidden, %.0f exposed, %.0f updating", settings, hidden_ns, exposed_ns,
                 update_ns);
    if (bytes < least || bytes > 1.01 * least)
        fail_msg("%.0f bytes a step, not %.0f", bytes, least);
    training_free(&run);
}

TEST(test_account)
{
    check_account("device.graphs=no");
    check_account("comm.capture=on run.warmup_steps=2");
    check_account("comm.late=1 run.warmup_steps=2");
}

/* ---- captured with backward ------------------------------------------------------------------ */

static void expect_capture(const struct training *run, int workers, const char *words)
{
    char path[32];
    for (int rank = 0; rank < workers; rank++) {
        snprintf(path, sizeof path, "ranks.%d.comm.capture", rank);
        if (!strstr(json_text_at(run->command.json, path), words))
            fail_msg("%s: %s of rank %d is '%s', not '%s'", run->settings, path, rank,
                     json_text_at(run->command.json, path), words);
    }
}

/* Launches of one graph are the same training, bit for bit, also where the rate is another in every
 * step, and around evaluations and checkpoints; and the same bytes. */
TEST(test_captured)
{
    static const struct {
        int workers;
        const char *settings;
    } rows[] = {
        {2, TINY "comm.bucket=1000 optimizer.schedule=cosine optimizer.momentum=0.9"},
        {3, TINY "run.accumulate=2 comm.gradient=bf16 optimizer.nesterov=yes comm.bucket=1000 "
                 "optimizer.weight_decay=0.01 run.precision=bf16"},
        {4, TINY "optimizer.name=adagrad data.place=device eval.every=2 eval.final=yes "
                 "data.test_samples=16 optimizer.schedule=cosine run.precision=tf32"},
        {2, TINY "checkpoint.every=2 run.accumulate=3 "
                 "optimizer.momentum=0.9 optimizer.schedule=cosine"},
        {3, TINY "comm.shard=optimizer comm.gradient=bf16 comm.bucket=1000 checkpoint.every=2 "
                 "optimizer.schedule=cosine " LAMB},
        {2, TINY "optimizer.name=lars optimizer.clip_norm=0.05 optimizer.schedule=cosine"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct training off, on;
        train(&off, NCCL "%s run.steps=6 run.workers=%d comm.capture=off", rows[i].settings,
              rows[i].workers);
        train(&on, NCCL "%s run.steps=6 run.workers=%d comm.capture=on run.prove=yes",
              rows[i].settings, rows[i].workers);
        expect_verified(&on);
        expect_same_weights(&off, &on, NULL, 0.0);
        expect_same_losses(&off, &on, 0.0);
        expect_capture(&off, rows[i].workers, "no: comm.capture = off");
        expect_capture(&on, rows[i].workers, "yes");
        assert_true(expect_number(&off.command, "comm.bytes_per_step") ==
                    expect_number(&on.command, "comm.bytes_per_step"));
        training_free(&off);
        training_free(&on);
    }
}

/* From the third step on a step is two launches, and NCCL is not called. */
CASE(test_one_launch)
{
    int calls[2];
    char trace[128];
    snprintf(trace, sizeof trace, "%s/trace", cache);
    setenv("DPB_STAND_IN_TRACE", trace, 1);
    for (int i = 0; i < 2; i++) {
        const int steps = i == 0 ? 2 : 7;
        struct training run;
        train(&run, NCCL TINY "run.workers=1 comm.bucket=1000 comm.capture=on run.steps=%d", steps);
        calls[i] = stand_in_count(trace, "NCCL");
        assert_int_equal(stand_in_count(trace, "cudaGraphLaunch"), 2 * (steps - 1));
        training_free(&run);
    }
    unsetenv("DPB_STAND_IN_TRACE");
    assert_true(calls[0] > 0);
    assert_int_equal(calls[0], calls[1]);
}

/* What is in the way is named: `on` is refused, `auto` goes on without and says so. */
TEST(test_not_captured)
{
    static const char *const rows[][2] = {
        {"device.graphs=no", "device.graphs = no"},
        {"run.precision=fp16", "run.precision = fp16"},
        {"run.profile=yes", "run.profile = yes"},
        {"comm.late=1", "comm.late = 1"},
    };
    struct training run;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        train_says(2, WORDS("comm.capture = on", rows[i][1]),
                   TWO TINY "run.steps=3 comm.capture=on %s", rows[i][0]);
        train(&run, TWO TINY "run.steps=3 %s", rows[i][0]);
        expect_capture(&run, 2, rows[i][1]);
        expect_capture(&run, 2, "no: ");
        training_free(&run);
    }
    train(&run, TWO TINY "run.steps=3");
    expect_capture(&run, 2, "yes");
    training_free(&run);
    train(&run, TWO TINY "run.steps=1 comm.capture=on");
    expect_capture(&run, 2, "not before the second step");
    training_free(&run);
}

/* ---- what the checks catch ------------------------------------------------------------------- */

/* A NCCL that sums wrongly: from the first exchange on it is the pattern that shows it; from later
 * ones proof, replicas. All in one bucket: the pattern is exchange 1. */
CASE(test_mistakes)
{
    static const struct {
        const char *strategy, *mistake, *word;
    } rows[] = {{NCCL, "left_out:1", "pattern"},     {NCCL, "one_element:1", "pattern"},
                {NCCL, "diverged:1", "pattern"},     {NCCL, "twice:2", "exchange"},
                {NCCL, "one_element:2", "exchange"}, {NCCL, "diverged:4", "replica"},
                {SHARDS, "left_out:1", "pattern"},   {SHARDS, "kept:1", "pattern"},
                {SHARDS, "twice:3", "exchange"},     {SHARDS, "kept:3", "exchange"},
                {SHARDS, "kept:5", "replica"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        setenv("DPB_STAND_IN_NCCL_WRONG", rows[i].mistake, 1);
        train_says(3, WORDS(rows[i].word),
                   "%s" TINY "run.steps=3 run.prove=yes run.workers=2 comm.bucket=1GiB",
                   rows[i].strategy);
    }
    unsetenv("DPB_STAND_IN_NCCL_WRONG");
}

/* ---- options --------------------------------------------------------------------------------- */

/* What NCCL was given, by what the stand-in says of it. */
CASE(test_options)
{
    static const struct {
        const char *settings, *words;
    } rows[] = {
        {"", "CTAs 0 to 0, algo any, proto any, host dpbench-rank-1"},
        {"comm.min_ctas=2", "CTAs 2 to 64,"},
        {"comm.max_ctas=3", "CTAs 0 to 3,"},
        {"comm.min_ctas=2 comm.max_ctas=2", "CTAs 2 to 2,"},
        {"comm.algo=collnet_direct", "algo CollnetDirect, proto any,"},
        {"comm.algo=ring comm.proto=ll128", "algo Ring, proto LL128,"},
        {"comm.host_ids=machine device.ids=0,1",
         "rank 1 of 2, CTAs 0 to 0, algo any, proto any, host "
         "this"},
    };
    setenv("DPB_STAND_IN_NCCL_SAY", "1", 1);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct training run;
        bool of_tests = !strstr(rows[i].settings, "host_ids");
        train_anyway(&run, NCCL TINY "run.steps=1 run.workers=2 %s", rows[i].settings);
        expect_end(&run, 0, WORDS(rows[i].words));
        if ((strstr(run.command.out, "nccl_host_ids") != NULL) != of_tests)
            fail_msg("%s: %s warning of comm.host_ids", rows[i].settings, of_tests ? "no" : "a");
        training_free(&run);
    }
    unsetenv("DPB_STAND_IN_NCCL_SAY");
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refused(const char *settings, const char *const words[])
{
    train_says(2, words, NCCL TINY "run.steps=1 run.workers=2 %s", settings);
}

TEST(test_refusals)
{
    train_says(2, WORDS("nccl", "reference"),
               TINY "comm.name=nccl run.workers=2 run.steps=1 run.precision=fp32");
    expect_refused("run.comm_cores=1", WORDS("run.comm_cores", "nccl"));
    expect_refused("run.servers=1", WORDS("run.servers", "nccl"));
    expect_refused("run.mode=forward", WORDS("run.mode", "nccl"));
    expect_refused("comm.min_ctas=3 comm.max_ctas=2",
                   WORDS("comm.min_ctas = 3", "comm.max_ctas = 2"));
    expect_refused("comm.max_ctas=65", WORDS("max_ctas", "64"));
    expect_refused("model.name=lenet comm.bucket=16", WORDS("comm.bucket", "65536"));
    expect_refused("comm.host_ids=machine", WORDS("Duplicate GPU", "device.ids", "comm.host_ids"));
}

/* `check` says it, too. */
TEST(test_learners)
{
    static const char *const ways[] = {NCCL, INSIDE};
    for (size_t i = 0; i < 2; i++) {
        struct command command;
        dpbench_ends(&command, 60, 0, "check -c /dev/null run.steps=1 %s" TINY "run.learners=2",
                     ways[i]);
        command_free(&command);
        dpbench(&command, 60,
                "check -c /dev/null run.steps=1 %s" TINY "run.learners=2 comm.host_ids=machine",
                ways[i]);
        if (command.exit_code != 2 || !strstr(command.err, "run.learners = 2 share one"))
            fail_msg("%s: exit %d: %s", ways[i], command.exit_code, command.err);
        command_free(&command);
    }
}

/* The environment that contradicts an option is refused; what it says where no option does is what
 * NCCL goes by, and stands in the result. */
CASE(test_environment)
{
    struct training run;
    setenv("NCCL_ALGO", "Tree", 1);
    setenv("NCCL_MAX_CTAS", "4", 1);
    expect_refused("comm.algo=ring", WORDS("comm.algo", "NCCL_ALGO = Tree"));
    expect_refused("comm.max_ctas=2", WORDS("comm.max_ctas = 2", "NCCL_MAX_CTAS = 4"));
    train(&run, NCCL TINY "run.steps=1 run.workers=2");
    assert_string_equal(json_text_at(run.command.json, "ranks.1.comm.algo"), "Tree (NCCL_ALGO)");
    assert_string_equal(json_text_at(run.command.json, "ranks.0.comm.max_ctas"),
                        "4 (NCCL_MAX_CTAS)");
    training_free(&run);
    unsetenv("NCCL_MAX_CTAS");
    setenv("NCCL_ALGO", "", 1); /* as good as none */
    train(&run, NCCL TINY "run.steps=1 run.workers=2 comm.algo=ring");
    training_free(&run);
    unsetenv("NCCL_ALGO");
}

/* A rank whose environment sets NCCL otherwise than rank 0's is refused, by both. */
CASE(test_ranks_that_differ)
{
    static const char program[] = "%s/dpbench -c empty.ini " NCCL TINY "run.workers=2 run.steps=1 "
                                  "data.name=synthetic run.results=results";
    char dpbench_words[1024];
    struct started started;
    struct command command;
    if (!have_plugin("comm_mpi"))
        skip();
    launchers_allow_root();
    sandbox_write("empty.ini", "%s", "");
    snprintf(dpbench_words, sizeof dpbench_words, program, build_directory());
    line_start(
        &started, NULL,
        "/usr/bin/env mpirun --oversubscribe --bind-to none -np 1 -x NCCL_PROTO=LL %s : -np 1 %s",
        dpbench_words, dpbench_words);
    command_finish(&started, &command, 60.0);
    if (command.exit_code != 2 || !strstr(command.err, "NCCL_PROTO LL, and rank 1 has") ||
        !strstr(command.err, "NCCL_PROTO auto"))
        fail_msg("exit code %d: %s", command.exit_code, command.err);
    command_free(&command);
}

/* `dpbench comm` with arenas on the GPU: all elements of all exchanges are right, in place, or of
 * shards in the weights; and sums that are wrong, or that do not come back, are found. */
CASE(test_alone)
{
    static const char arguments[] = "comm -c %s/empty.ini --json run.results=%s/results %s"
                                    "run.workers=2 comm.bucket=10kB comm.gradient=bf16 "
                                    "comm_test.sizes=8,30kB comm_test.iterations=4";
    static const struct {
        const char *strategy, *mistake;
        bool in_place;
    } rows[] = {
        {NCCL, "one_element:2", true}, {SHARDS, "one_element:2", false}, {SHARDS, "kept:2", false}};
    char path[128];
    snprintf(path, sizeof path, "%s/empty.ini", cache);
    write_file(path, "", 0);
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct command command;
        dpbench_ends(&command, 60.0, 0, arguments, cache, cache, rows[row].strategy);
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "points.%d.in_place", i);
            assert_true(json_is_true(json_at(command.json, path)) == rows[row].in_place);
            snprintf(path, sizeof path, "points.%d.wrong", i);
            assert_true(json_number_at(command.json, path) == 0);
        }
        command_free(&command);
        setenv("DPB_STAND_IN_NCCL_WRONG", rows[row].mistake, 1);
        dpbench(&command, 60.0, arguments, cache, cache, rows[row].strategy);
        unsetenv("DPB_STAND_IN_NCCL_WRONG");
        if (command.exit_code != 3 || !strstr(command.err, "the strategy does not compute the sum"))
            fail_msg("%s: exit code %d: %s", rows[row].mistake, command.exit_code, command.err);
        command_free(&command);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

#define FAIL "DPB_STAND_IN_NCCL_FAIL"
#define HANG "DPB_STAND_IN_NCCL_HANG"

/* Errors behind NCCL's calls and all-reduces that never come end the job, with step and bucket and
 * the rank that it began with. */
CASE(test_errors)
{
    static const struct {
        const char *strategy, *variable, *value, *words[5];
    } rows[] = {
        {TWO, FAIL, "1:0", {"rank 1", "ncclCommInitRankConfig failed", NULL}},
        {TWO, FAIL, "1:1", {"rank 1", "NCCL", "bucket 0", NULL}},
        {TWO, FAIL, "1:12", {"rank 1", "NCCL", "step ", "unhandled system error", NULL}},
        {TWO, HANG, "1:3", {"NCCL's all-reduce", "step 0, bucket 2", "waited 2", NULL}},
        {SHARDS "run.workers=2 ", HANG, "1:1", {"NCCL's reduce-scatter", "bucket 0", NULL}},
        {SHARDS "run.workers=2 ", HANG, "1:4", {"NCCL's all-gather", "bucket 1", NULL}},
        {TWO, HANG, "1:14", {"NCCL's all-reduce", "step ", "bucket ", "waited 2", NULL}},
        /* One of the pattern, then one a step: launches of a graph from the second on. */
        {LAUNCHED, FAIL, "1:4", {"rank 1", "NCCL", "unhandled system error", NULL}},
        {LAUNCHED, HANG, "1:4", {"NCCL's all-reduce", "step 3", "bucket 0", "waited 2", NULL}},
        {TWO "comm.late=1 ", HANG, "1:14", {"NCCL's all-reduce", "bucket 0", "waited 2", NULL}},
        {UNCAPTURED, HANG, "1:14", {"NCCL's all-reduce", "step ", "waited 2", NULL}},
        {TWO_MACHINES, FAIL, "1:11", {"rank 1", "NCCL", "step ", "unhandled system error", NULL}},
        {ONE_MACHINE, HANG, "1:14", {"NCCL's sum over the machine", "bucket ", "waited 2", NULL}},
        /* Whose time is over first says so: a rank of that machine, or the other machine's, which
         * names the one that is late and where it is. */
        {TWO_MACHINES, HANG, "1:16", {"waited 2", "phase 'exchange' of step ", "bucket ", NULL}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct training run;
        double began_s = now_s();
        setenv(rows[i].variable, rows[i].value, 1);
        const char *bucket = strcmp(rows[i].strategy, LAUNCHED) == 0 ? "1GiB" : "1000";
        train_anyway(&run, "%s" TINY "run.steps=60 comm.bucket=%s run.timeout_s=2",
                     rows[i].strategy, bucket);
        expect_end(&run, 1, rows[i].words);
        if (strstr(run.command.err, "stand-in NCCL")) /* NCCL was given up while a graph held it */
            fail_msg("%s=%s: %s", rows[i].variable, rows[i].value, run.command.err);
        if (now_s() - began_s > 2.0 + 2 * most_s())
            fail_msg("%s=%s: over after %.1f s only", rows[i].variable, rows[i].value,
                     now_s() - began_s);
        training_free(&run);
        unsetenv(rows[i].variable);
    }
}

CASE(test_killed)
{
    for (int in_training = 0; in_training < 2; in_training++)
        faults_check_killed(NCCL, 2, in_training, most_s());
    /* The others abort NCCL while the graph that holds its work is alive. */
    faults_check_killed(NCCL "comm.capture=on ", 2, true, most_s());
}

/* ---- the program ----------------------------------------------------------------------------- */

static int setup(void **state)
{
    use_stand_in(true);
    temporary_directory(cache);
    setenv("XDG_CACHE_HOME", cache, 1);
    return training_setup(state);
}

static int teardown(void **state)
{
    remove_directory(cache);
    return training_teardown(state);
}

static int setup_faults(void **state)
{
    int result = faults_setup(state);
    unsetenv("DPB_STAND_IN_NCCL_FAIL"); /* of a test that has failed */
    unsetenv("DPB_STAND_IN_NCCL_HANG");
    use_stand_in(true);
    return result;
}

int main(void)
{
    static const struct CMUnitTest others[] = {cmocka_unit_test(test_killed),
                                               cmocka_unit_test(test_ranks_that_differ)};
    if (!on_gpu()) {
        add_case(test_one_launch, NULL, "one launch a step");
        add_case(test_mistakes, NULL, "a NCCL that sums wrongly");
        add_case(test_alone, NULL, "the communicator alone");
        add_case(test_options, NULL, "options");
        add_case(test_environment, NULL, "options and the environment");
        add_case(test_errors, NULL, "errors behind NCCL's calls");
    }
    int failed = test_main(setup, teardown);
    return cmocka_run_group_tests_name("nccl, faults", others, setup_faults, sandbox_teardown) +
           failed;
}
