/* needs: mpi stand-in cells */
/*
 * test_mpi.c - the strategies that sum by MPI, under mpirun: `mpi` over all workers, `hierarchical`
 * with comm.transport = mpi over those of one place of each machine. Sums are right in every type
 * and layout, the training is that of one worker, buckets go on while backward does, opening again
 * works, and a rank that is killed or stopped ends the job with its name. Without a launcher they
 * are refused.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/launch_faults.h"
#include "lib/launchers.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/stand_in.h"
#include "lib/test.h"
#include "lib/traces.h"
#include "lib/weights.h"

#define BASE LAUNCH_BASE "eval.every=0 "
#define MPI "comm.name=mpi "
#define SHARDS MPI "comm.shard=optimizer "
#define CODED MPI "comm.codec=powersgd "
#define GATHERED MPI "comm.codec=onebit "
#define ACROSS "comm.name=hierarchical comm.transport=mpi "
#define INSIDE                                                                      \
    ACROSS "comm.inside=nccl comm.host_ids=rank device.name=cuda device.tuning=no " \
           "device.ids=0,0,0,0,0 run.precision=fp32 "

static const double deadline_s = 60.0, most_s = 5.0;

/* The result of a run that ended well. On a busy machine a rank that gives its core away at
 * each look may not have it again for longer than run.timeout_s is by itself. */
static json_t *run(int workers, const char *settings)
{
    struct command command;
    launched(&command, deadline_s, MPIRUN, workers, BASE "run.timeout_s=300 run.workers=%d %s",
             workers, settings);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("%d workers, %s: exit code %d: %s", workers, settings, command.exit_code,
                 command.err);
    return result;
}

static void expect_passes(const json_t *result, const char *settings)
{
    static const char *const checks[] = {"pattern", "exchange", "replicas"};
    char path[64];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "verification.%s", checks[i]);
        if (strcmp(json_text_at(result, path), "pass") != 0)
            fail_msg("%s: %s is '%s'", settings, path, json_text_at(result, path));
    }
}

TEST(test_exchange)
{
    static const struct {
        int workers;
        const char *settings;
    } rows[] = {
        {3, SHARDS "run.precision=fp64 comm.bucket=8"}, /* most slices are empty */
        {2, CODED "comm.bucket=12"}, /* nothing but second rounds; some messages of one element */
        {3, CODED "comm.bucket=2000 comm.codec_start_step=2 run.steps=4"},
        {2, MPI "run.precision=fp32 comm.gradient=bf16 comm.bucket=106 run.comm_cores=1"},
        {5, GATHERED "comm.bucket=500 comm.codec_start_step=1 run.steps=4 run.comm_cores=1"},
        {5, ACROSS "comm.hosts=0,1,1,0,1 run.precision=fp32 comm.bucket=2000"},
        {4, ACROSS "comm.hosts=2x2 run.precision=fp32 comm.gradient=bf16 comm.bucket=106 "
                   "run.comm_cores=1"},
        {1, MPI "run.precision=fp64 comm.bucket=424"},
        {3, MPI "run.precision=fp32 comm.gradient=fp16 comm.bucket=2000"},
        {5, MPI "run.precision=fp64 comm.bucket=1GiB run.comm_cores=1"},
        {2, SHARDS "run.precision=fp32 comm.gradient=bf16 comm.bucket=106 run.comm_cores=1"},
        {5, CODED "comm.bucket=1GiB run.comm_cores=1"},
        {2, ACROSS "run.precision=fp32 comm.bucket=212"}, /* one machine: nothing goes across */
        {2, ACROSS "comm.hosts=1+1 run.precision=fp64 comm.bucket=8"},
        /* with DPB_ALL_CELLS (make check-long) */
        {3, MPI "run.precision=fp32 comm.bucket=1GiB"},
        {5, SHARDS "run.precision=fp32 comm.bucket=2000"},
        {2, MPI "run.precision=fp64 comm.bucket=8"},
        {4, MPI "run.precision=fp32 comm.bucket=212"},
        {1, SHARDS "run.precision=fp64 comm.bucket=424"},
        {1, CODED "comm.bucket=424"},
        {1, GATHERED "comm.bucket=424"},
        {5, ACROSS "comm.hosts=3+1+1 run.precision=fp64 comm.bucket=1GiB run.comm_cores=1"},
    };
    const bool all = SANITIZED || getenv("DPB_ALL_CELLS") != NULL;
    for (int i = 0; i < PART_OF(rows, 7) - (all ? 0 : 8); i++) {
        char settings[256];
        snprintf(settings, sizeof settings, "run.prove=yes run.steps=2 model.name=tiny_bn %s",
                 rows[i].settings);
        json_t *result = run(rows[i].workers, settings);
        expect_passes(result, settings);
    }
}

/* With NCCL inside machines, on a CUDA for tests: shares go down to the host, across by MPI and up
 * again; with as many workers to a machine and not, with none but one, in a thread of its own. */
CASE(test_inside_nccl)
{
    static const struct {
        int workers;
        const char *settings;
    } rows[] = {{2, "comm.hosts=1+1 comm.bucket=212"},
                {3, "comm.hosts=2+1 comm.gradient=bf16 comm.bucket=106 run.comm_cores=1"},
                {4, "comm.hosts=2x2 comm.bucket=2000 run.accumulate=2"},
                {4, "comm.hosts=0,1,1,0 comm.bucket=212 run.comm_cores=1"},
                {2, "comm.bucket=212"}}; /* one machine: nothing goes across */
    char *before = getenv("DPBENCH_PLUGIN_PATH");
    before = before ? strdup(before) : NULL;
    use_stand_in(true);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char settings[512];
        snprintf(settings, sizeof settings,
                 INSIDE "run.prove=yes run.steps=4 model.name=tiny_bn %s", rows[i].settings);
        json_t *result = run(rows[i].workers, settings);
        expect_passes(result, settings);
        bool across = strstr(rows[i].settings, "comm.hosts") != NULL;
        assert_string_equal(json_text_at(result, "ranks.0.comm.copies"),
                            across ? "staged through the host, to other machines"
                                   : "none of its own");
        assert_true(json_text_at(result, "versions.plugins.comm.libraries.MPI.loaded")[0] != 0);
        assert_true(json_text_at(result, "versions.plugins.comm.libraries.NCCL.loaded")[0] != 0);
    }
    setenv("DPBENCH_PLUGIN_PATH", before ? before : "", 1);
    free(before);
}

/* In float64, losses of all steps: they see every weight. */
PLAIN_TEST(test_identity)
{
    static const char terms[] =
        "run.precision=fp64 run.steps=5 run.warmup_steps=0 optimizer.learning_rate=0.1 "
        "optimizer.weight_decay=0.1 optimizer.momentum=0.9 comm.bucket=296";
    static const struct {
        int workers;
        const char *strategy;
    } rows[] = {{3, MPI}, {3, SHARDS}, {4, ACROSS "comm.hosts=2x2 "}};
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct command alone;
        char settings[512];
        snprintf(settings, sizeof settings, "%s%s", rows[row].strategy, terms);
        json_t *together = run(rows[row].workers, settings);
        dpbench(&alone, deadline_s,
                FAULTS_BASE "eval.every=0 comm.name=independent run.workers=1 run.accumulate=%d %s",
                rows[row].workers, terms);
        const json_t *a = json_at(together, "loss"), *b = json_at(alone.json, "loss");
        assert_int_equal(json_array_size(a), 5);
        assert_int_equal(json_array_size(b), 5);
        for (size_t i = 0; i < 5; i++) {
            double x = json_number_value(json_array_get(a, i));
            double y = json_number_value(json_array_get(b, i));
            if (!(fabs(x - y) <= 1e-9 * fabs(y)))
                fail_msg("%s: the loss of step %zu is %.17g, and %.17g of one worker",
                         rows[row].strategy, i, x, y);
        }
    }
}

/* A sum of two has the same bits in any order, so shards have the losses of all-reduces. The state
 * is divided, and weights go back in place of sums, in fp32 in place of bf16. */
TEST(test_shards)
{
    static const char terms[] = "run.precision=fp32 comm.gradient=bf16 run.steps=8 "
                                "run.warmup_steps=0 optimizer.name=adam comm.bucket=296";
    enum { STATE_OF_BUCKET = 2 * 4 * 296 / 2 };
    char settings[256];
    snprintf(settings, sizeof settings, MPI "%s", terms);
    json_t *whole = run(2, settings);
    snprintf(settings, sizeof settings, SHARDS "%s", terms);
    json_t *shards = run(2, settings);
    assert_int_equal(json_array_size(json_at(whole, "loss")), 8);
    assert_true(json_equal(json_at(whole, "loss"), json_at(shards, "loss")));
    const double all = json_number_at(whole, "ranks.0.memory.optimizer_state_bytes");
    const double first = json_number_at(shards, "ranks.0.memory.optimizer_state_bytes");
    const double second = json_number_at(shards, "ranks.1.memory.optimizer_state_bytes");
    assert_true(all > 4 * STATE_OF_BUCKET && first + second == all);
    if (fabs(first - all / 2) > STATE_OF_BUCKET)
        fail_msg("a rank has %g bytes of %g bytes of state", first, all);
    assert_true(json_number_at(shards, "comm.bytes_per_step") ==
                1.5 * json_number_at(whole, "comm.bytes_per_step"));
}

/* With shards, norms are of whole tensors as without, but for rounding: of the sums of squares, and
 * where MPI adds gradients of three and more in another order. LeNet's last bucket has two
 * elements: one of three workers has no slice of it. */
TEST(test_sharded_norms)
{
    static const struct {
        int workers;
        const char *settings;
    } rows[] = {
        {2, "run.precision=fp64 model.name=tiny_bn optimizer.name=lars optimizer.clip_norm=0.05 "
            "optimizer.trust=0.1 comm.bucket=104"},
        {3, "run.precision=fp64 model.name=lenet model.image=12 run.batch=1 "
            "optimizer.clip_norm=0.05 comm.bucket=1410616"},
        {4, "run.precision=fp64 optimizer.name=lars comm.bucket=1GiB run.comm_cores=1"},
        {3, "run.precision=fp64 optimizer.name=lamb optimizer.clip_norm=0.05 comm.bucket=296"},
        {3, "run.precision=fp32 comm.gradient=bf16 optimizer.name=adam optimizer.clip_norm=0.05 "
            "comm.bucket=296"},
    };
    for (int i = 0; i < PART_OF(rows, 1); i++) {
        char settings[512];
        snprintf(settings, sizeof settings,
                 "%s run.steps=3 run.warmup_steps=0 optimizer.weight_decay=0.1 "
                 "optimizer.learning_rate=0.1 run.prove=yes " MPI,
                 rows[i].settings);
        json_t *whole = run(rows[i].workers, settings);
        strcat(settings, "comm.shard=optimizer");
        json_t *shards = run(rows[i].workers, settings);
        expect_passes(shards, settings);
        assert_int_equal(json_array_size(json_at(whole, "loss")), 3);
        const double bound = strstr(settings, "bf16") ? 1e-2 : 1e-9;
        for (size_t k = 0; k < 3; k++) {
            const double a = json_number_value(json_array_get(json_at(whole, "loss"), k)),
                         b = json_number_value(json_array_get(json_at(shards, "loss"), k));
            if (!(fabs(a - b) <= bound * fabs(a)))
                fail_msg("%s: losses %.17g and, with shards, %.17g", settings, a, b);
        }
    }
}

/* Slots change where gradients lie; owners keep sums, which micro-batches add to. */
TEST(test_slots)
{
    static const struct {
        int workers;
        const char *settings;
    } rows[] = {{2, "comm.bucket=8192"},
                {3, "comm.bucket=65536 run.accumulate=2 optimizer.clip_norm=0.05"}};
    for (int i = 0; i < PART_OF(rows, 2); i++) {
        char settings[512];
        snprintf(settings, sizeof settings,
                 "%s model.name=resnet20 model.image=8 run.precision=fp64 run.steps=3 run.batch=1 "
                 "run.warmup_steps=0 run.prove=yes " MPI "comm.shard=",
                 rows[i].settings);
        const size_t length = strlen(settings);
        strcpy(settings + length, "optimizer");
        json_t *arena = run(rows[i].workers, settings);
        strcpy(settings + length, "gradients");
        json_t *slots = run(rows[i].workers, settings);
        expect_passes(slots, settings);
        assert_true(json_number_at(slots, "ranks.1.memory.gradients_bytes") <
                    0.8 * json_number_at(arena, "ranks.1.memory.gradients_bytes"));
        for (size_t k = 0; k < 3; k++) {
            const double a = json_number_value(json_array_get(json_at(arena, "loss"), k)),
                         b = json_number_value(json_array_get(json_at(slots, "loss"), k));
            if (!(fabs(a - b) <= 1e-10 * fabs(a)))
                fail_msg("%s: losses %.17g and, in slots, %.17g", settings, a, b);
        }
    }
}

/* The state of 3 shards goes on in 2 of a ring as if they had always been. */
TEST(test_shards_move)
{
    static const char terms[] = "run.precision=fp64 run.warmup_steps=0 optimizer.name=adam "
                                "optimizer.learning_rate=0.1 comm.bucket=296 ";
    char settings[512];
    struct command part;
    snprintf(settings, sizeof settings,
             SHARDS "%s run.steps=7 run.accumulate=2 checkpoint.save=shards.safetensors "
                    "checkpoint.at=3",
             terms);
    json_t *whole = run(3, settings);
    dpbench_ends(&part, deadline_s, 0,
                 FAULTS_BASE
                 "eval.every=0 comm.name=ring_tcp comm.shard=optimizer run.workers=2 "
                 "run.accumulate=3 run.steps=4 checkpoint.load=shards-step3.safetensors %s",
                 terms);
    const json_t *a = json_at(whole, "loss"), *b = json_at(part.json, "loss");
    assert_int_equal(json_array_size(a), 7);
    assert_int_equal(json_array_size(b), 4);
    for (size_t i = 0; i < 4; i++) {
        const double x = json_number_value(json_array_get(a, 3 + i));
        const double y = json_number_value(json_array_get(b, i));
        if (!(fabs(x - y) <= 1e-12 * fabs(x)))
            fail_msg("the loss of step %zu is %.17g, and %.17g by MPI", 3 + i, y, x);
    }
}

/* A codec's messages by MPI: gathered, or summed for two workers, the bits of shm, which adds them
 * by rank; summed for more the same but for roundings. Saved and continued, the training is the one
 * that never stopped. */
static void test_codec(void **state)
{
    const char *codec = *state;
    const bool is_summed = strncmp(codec, "powersgd", strlen("powersgd")) == 0;
    char terms[256], settings[512];
    snprintf(terms, sizeof terms,
             "model.name=tiny_dense comm.codec=%s run.steps=7 run.warmup_steps=0 comm.bucket=1000",
             codec);
    for (int workers = 2; workers <= 4; workers += 2) {
        struct command by_rank;
        snprintf(settings, sizeof settings,
                 MPI "%s checkpoint.save=whole.safetensors checkpoint.at=3", terms);
        json_t *result = run(workers, settings);
        dpbench(&by_rank, deadline_s, FAULTS_BASE "eval.every=0 comm.name=shm run.workers=%d %s",
                workers, terms);
        const json_t *a = json_at(result, "loss"), *b = json_at(by_rank.json, "loss");
        assert_int_equal(json_array_size(a), 7);
        for (size_t i = 0; i < 7; i++) {
            const double x = json_number_value(json_array_get(a, i));
            const double y = json_number_value(json_array_get(b, i));
            if (!(fabs(x - y) <= (workers > 2 && is_summed ? 1e-5 * y : 0)))
                fail_msg("%d workers: the loss of step %zu is %.9g, not %.9g", workers, i, x, y);
        }
        if (!is_summed)
            assert_string_equal(json_text_at(result, "ranks.0.checksum"),
                                json_text_at(by_rank.json, "ranks.0.checksum"));
        assert_string_equal(json_text_at(result, "strategy.consistency"), "lossy");
        const double m = json_number_at(result, "comm.codec.message_bytes");
        const double counted = json_number_at(result, "comm.bytes_per_step");
        if (!(m > 0 && fabs(counted - (is_summed ? 2 : workers) * (workers - 1) * m) < 0.5))
            fail_msg("%d workers: %g bytes a step, of messages of %g", workers, counted, m);
    }
    snprintf(settings, sizeof settings,
             MPI "%s run.steps=4 checkpoint.load=whole-step3.safetensors "
                 "checkpoint.save=part.safetensors",
             terms);
    run(4, settings);
    weights_expect_equal("whole.safetensors", "part.safetensors", true);
}

/* comm.late: the losses of `shm`, which test_late.c proves: of two workers any order of a sum has
 * the same bits. */
CASE(test_late)
{
    const char *strategy = *state;
    static const char terms[] =
        "run.precision=fp64 run.steps=8 run.warmup_steps=0 "
        "optimizer.learning_rate=0.1 optimizer.momentum=0.9 comm.bucket=296";
    struct command late, synchronous;
    char settings[512];
    snprintf(settings, sizeof settings, "%s run.prove=yes comm.late=1 %s", strategy, terms);
    json_t *together = run(2, settings);
    assert_string_equal(json_text_at(together, "strategy.consistency"), "late(1)");
    assert_string_equal(json_text_at(together, "verification.after"), "pass");
    dpbench(&late, deadline_s,
            FAULTS_BASE "eval.every=0 comm.name=shm run.workers=2 comm.late=1 %s", terms);
    dpbench(&synchronous, deadline_s, FAULTS_BASE "eval.every=0 comm.name=shm run.workers=2 %s",
            terms);
    const json_t *losses = json_at(together, "loss");
    assert_int_equal(json_array_size(losses), 8);
    assert_true(json_equal(losses, json_at(late.json, "loss")));
    assert_false(json_equal(losses, json_at(synchronous.json, "loss")));
}

/* The bytes of a step: of `mpi` those of an all-reduce over all workers; as many go across or are
 * read and written within machines where those are equal. */
static double expect_reported(int workers, const char *strategy)
{
    char settings[256];
    snprintf(settings, sizeof settings,
             "%s run.precision=fp32 run.steps=20 comm.bucket=64 run.batch=16", strategy);
    json_t *result = run(workers, settings);
    double bytes = json_number_at(result, "comm.bytes_per_step");
    assert_true(bytes >= 2.0 * (workers - 1) * 4 * json_number_at(result, "model.parameters"));
    if (!(json_number_at(result, "timing.breakdown_ns.comm_hidden") > 0))
        fail_msg("%s: nothing is hidden behind backward", strategy);
    const json_t *libraries = json_at(result, "versions.plugins.comm.libraries");
    assert_true(json_text_at(libraries, "MPI.built")[0] != '\0');
    assert_true(json_text_at(libraries, "MPI.loaded")[0] != '\0');
    assert_non_null(json_at(libraries, "CUDA-aware MPI.loaded"));
    return bytes;
}

TEST(test_what_is_reported)
{
    double mpi = expect_reported(4, MPI), across = expect_reported(4, ACROSS "comm.hosts=2x2");
    assert_true(fmod(mpi, 2 * 3 * 4) == 0);
    if (across != mpi)
        fail_msg("%g bytes a step across two machines of two, %g by one all-reduce", across, mpi);
}

/* MPI is initialised once, the strategy opened for every size. */
static void expect_opened_again(int workers, const char *strategy)
{
    struct command command;
    sandbox_write("comm.ini", "[run]\nresults =\n");
    launched(&command, deadline_s, MPIRUN, workers,
             "comm -c comm.ini --output " LAUNCH_RESULT
             " comm_test.min_bytes=4 comm_test.max_bytes=64KiB comm_test.iterations=3 %s",
             strategy);
    json_t *result = own_json(launch_take_result());
    if (command.exit_code != 0 || !result)
        fail_msg("exit code %d: %s", command.exit_code, command.err);
    assert_true(json_array_size(json_at(result, "comm_test.points")) > 5 ||
                json_array_size(json_at(result, "points")) > 5);
}

TEST(test_opened_again)
{
    expect_opened_again(2, MPI);
    expect_opened_again(3, ACROSS "comm.hosts=2+1");
}

TEST(test_refused)
{
    static const char *const rows[][2] = {
        {MPI, "comm 'mpi' works under mpirun or srun only"},
        {ACROSS, "comm 'hierarchical' with comm.transport = mpi works under mpirun or srun only"},
        {ACROSS "comm.codec=topk",
         "comm 'hierarchical' with comm.transport = mpi carries no codec, and comm.codec = topk"},
        {ACROSS "run.servers=1", "run.servers"},
        {ACROSS "comm.interface=lo", "comm.interface belongs to comm.transport = tcp and verbs"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        dpbench_says(deadline_s, 2, WORDS(rows[i][1]), FAULTS_BASE "%s", rows[i][0]);
}

static void expect_without(const char *arguments, int exit_code, const char *words)
{
    static const char *const environment[] = {"DPBENCH_PLUGIN_PATH=without", NULL};
    struct started started;
    struct command command;
    dpbench_start(&started, environment, FAULTS_BASE "%s", arguments);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != exit_code || !strstr(command.err, words))
        fail_msg("%s: exit code %d: %s", arguments, command.exit_code, command.err);
}

/* Where MPI was not built, and where its library is missing: who does not ask for it does
 * without. */
TEST(test_without_mpi)
{
    assert_int_equal(mkdir("without", 0755), 0);
    sandbox_copy_plugin("without", "comm_hierarchical.so", NULL, 0, 0);
    sandbox_copy_plugin("without", "comm_mpi.so", NULL, 0, 0);
    expect_without(ACROSS, 2, "this build is without MPI");
    expect_without(MPI, 2, "this build is without MPI");
    sandbox_copy_plugin("without", "libdpbench-mpi.so", "libmpi", strlen("libmpi"), 'x');
    expect_without(ACROSS, 2, "MPI cannot be loaded: xibmpi");
    expect_without(MPI, 2, "MPI cannot be loaded: xibmpi");
    expect_without("comm.name=hierarchical comm.hosts=1+1 comm.interface=lo", 0, "");
    remove_directory("without");
}

/* Under a sanitizer the start of three ranks may take longer than a second between two signs of
 * life. "waited 1" begins both messages. */
#define STOPPED_S (SANITIZED ? 10.0 : 1.0)

TEST(test_faults)
{
    static const struct {
        const char *strategy;
        int signal_number;
        double timeout_s;
        const char *words[5]; /* ended by NULL */
    } rows[] = {
        {ACROSS "comm.hosts=1+2 ",
         SIGKILL,
         0,
         {"error: rank 1 (", "was killed by signal 9 (Killed) in phase '"}},
        {SHARDS, SIGSTOP, STOPPED_S, {"waited 1", "MPI's ", "is stopped (SIGSTOP)"}},
        {MPI, SIGKILL, 0, {"error: rank 1 (", "was killed by signal 9 (Killed) in phase '"}},
        {MPI, SIGSTOP, STOPPED_S, {"waited 1", "MPI's all-reduce", "is stopped (SIGSTOP)"}},
        {CODED, SIGKILL, 0, {"error: rank 1 (", "was killed by signal 9 (Killed) in phase '"}},
        {CODED, SIGSTOP, STOPPED_S, {"waited 1", "MPI's all-reduce", "is stopped (SIGSTOP)"}},
    };
    for (int i = 0; i < PART_OF(rows, 2); i++) {
        struct started started;
        struct command command;
        launched_start(&started, MPIRUN, 3, BASE "run.workers=3 run.seconds=60 %s run.timeout_s=%g",
                       rows[i].strategy, rows[i].timeout_s > 0 ? rows[i].timeout_s : 20.0);
        launched_await_steps(3);
        kill(launched_process(1, false), rows[i].signal_number);
        double began_s = now_s();
        command_finish(&started, &command, began_s - started.began_s + deadline_s);
        double took_s = now_s() - began_s;
        if (command.exit_code == 0 || took_s > rows[i].timeout_s + most_s)
            fail_msg("%s: exit code %d after %.1f s: %s", rows[i].strategy, command.exit_code,
                     took_s, command.err);
        expect_words(rows[i].strategy, command.err, rows[i].words);
        assert_int_equal(launch_count_errors(command.err), 1);
        json_t *result = own_json(launch_take_result());
        assert_string_equal(json_text_at(result, "status"), "failed");
        assert_true(json_array_size(json_at(result, "loss")) > 0);
        launched_expect_none(rows[i].strategy, 2.0);
    }
}

int main(void)
{
    if (have_stand_in("comm_nccl") && !on_gpu())
        add_case(test_inside_nccl, NULL, "cuda: between machines with NCCL inside");
    add_case(test_codec, "powersgd optimizer.momentum=0.9", "a codec whose messages are summed");
    add_case(test_codec,
             "topk comm.codec_ratio=0.1 comm.codec_momentum=0.9 comm.codec_warmup_steps=6 "
             "optimizer.momentum=0",
             "a codec whose messages are gathered");
    add_case(test_late, MPI, "one step late");
    add_case(test_late, SHARDS, "one step late, with shards");
    launchers_allow_root();
    /* Ranks that share cores are to give them to each other. */
    setenv("OMPI_MCA_mpi_yield_when_idle", "1", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    return test_main(faults_setup, sandbox_teardown);
}
