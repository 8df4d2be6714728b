/* needs: gloo */
/*
 * test_gloo.c - what is Gloo's own: every algorithm sums right in every type, buckets overlap
 * backward with a core for communication and not without, what Gloo cannot is refused, and its
 * waits end as all others do: with the culprit's name, and not for a job that is suspended.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/traces.h"

#define GLOO FAULTS_BASE "eval.every=0 comm.name=gloo "
#define CHECK "check -c base.ini comm.name=gloo "

static const double deadline_s = 60.0, most_s = 5.0;

static void expect_passes(const struct command *command, const char *what)
{
    static const char *const checks[] = {"pattern", "exchange", "replicas"};
    char path[64];
    if (command->exit_code != 0)
        fail_msg("%s: exit code %d: %s", what, command->exit_code, command->err);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "verification.%s", checks[i]);
        if (strcmp(json_text_at(command->json, path), "pass") != 0)
            fail_msg("%s: %s is '%s'", what, path, json_text_at(command->json, path));
    }
}

/* Numbers of workers that are powers of 2 and that are not; odd buckets, shorter than a chunk. */
TEST(test_algorithms)
{
    static const char *const algorithms[] = {"ring", "bcube", "ring_chunked", "halving_doubling"};
    static const char *const types[] = {"run.precision=fp64 comm.bucket=1272",
                                        "run.precision=fp32 comm.bucket=1GiB",
                                        "run.precision=fp32 comm.gradient=bf16 comm.bucket=318",
                                        "run.precision=fp32 comm.gradient=fp16 comm.bucket=2000"};
    for (int a = 0; a < 4; a++)
        for (int type = 0; type < 4; type++) {
            char settings[256];
            struct command command;
            snprintf(
                settings, sizeof settings,
                "run.prove=yes run.steps=1 comm.algorithm=%s run.workers=%d run.comm_cores=%d %s",
                algorithms[a], 2 + (a + type) % 4, type % 2, types[type]);
            dpbench(&command, deadline_s, GLOO "%s", settings);
            expect_passes(&command, settings);
        }
}

/* Reduce-scatters, all-gathers and, with norms, sums of squares; buckets of fewer elements than
 * workers. */
TEST(test_shards)
{
    static const char *const settings[] = {
        "run.workers=2 run.precision=fp32 comm.gradient=bf16 comm.bucket=318",
        "run.workers=3 run.precision=fp64 comm.bucket=1272 run.comm_cores=1",
        "run.workers=4 run.precision=fp32 comm.bucket=1GiB optimizer.name=lamb",
        "run.workers=5 run.precision=fp64 comm.bucket=1544 optimizer.clip_norm=0.05",
        "run.workers=6 run.precision=fp32 comm.gradient=fp16 comm.bucket=702 run.comm_cores=1"};
    for (int i = 0; i < PART_OF(settings, 2); i++) {
        struct command command;
        dpbench(&command, deadline_s, GLOO "run.prove=yes run.steps=1 comm.shard=optimizer %s",
                settings[i]);
        expect_passes(&command, settings[i]);
    }
}

/* What is reported as hidden is what went on behind backward. */
TEST(test_hides_with_a_core_alone)
{
    for (int cores = 0; cores < 2; cores++) {
        struct command command;
        dpbench_ends(
            &command, deadline_s, 0,
            GLOO "run.comm_cores=%d run.steps=15 comm.bucket=64 model.name=tiny_bn run.batch=16",
            cores);
        double hidden_ns = json_number_at(command.json, "timing.breakdown_ns.comm_hidden");
        if ((hidden_ns > 0) != (cores > 0))
            fail_msg("%.0f ns hidden with run.comm_cores = %d", hidden_ns, cores);
    }
}

/* In the document, and for people: what was given, or chosen where nothing was. */
TEST(test_interface_is_reported)
{
    static const char *const given[] = {"", "comm.interface=lo", "comm.interface=127.0.0.0/8"};
    struct command command;
    for (int i = 0; i < 3; i++) {
        dpbench(&command, deadline_s, GLOO "run.steps=1 %s", given[i]);
        assert_string_equal(json_text_at(command.json, "ranks.1.comm.interface"), "lo");
        assert_string_equal(json_text_at(command.json, "ranks.1.comm.address"), "127.0.0.1");
    }
    dpbench(&command, deadline_s, "-c base.ini comm.name=gloo run.steps=1");
    assert_non_null(strstr(command.out, "\n  reported      interface lo, address 127.0.0.1\n"));
    sandbox_write("sizes.ini", "[run]\nresults =\nworkers = 2\n[comm]\nname = gloo\n");
    dpbench(&command, deadline_s, "comm -c sizes.ini comm_test.sizes=8,64 comm_test.iterations=3");
    if (command.exit_code != 0 || !strstr(command.out, "reported      interface lo, address"))
        fail_msg("exit code %d: %s%s", command.exit_code, command.out, command.err);
}

/* `check` refuses the same, but for an interface, which only the machine of a rank may lack. */
TEST(test_refused)
{
    static const struct {
        const char *settings, *words[4];
    } rows[] = {
        {"comm.transport=ibverbs", {"comm.algorithm = ring", "ring_chunked or halving_doubling"}},
        {"comm.transport=ibverbs comm.algorithm=bcube", {"comm.algorithm = bcube"}},
        {"comm.algorithm=ring comm.shard=optimizer",
         {"comm.algorithm = ring beside comm.shard = optimizer", "leave comm.algorithm out"}},
        {"comm.transport=ibverbs comm.shard=optimizer", {"comm.shard = optimizer with", "tcp"}},
        {"comm.device=rxe0",
         {"comm.device = rxe0 does nothing: it needs comm.transport = ibverbs"}},
        {"comm.gid_index=1",
         {"comm.gid_index = 1 does nothing: it needs comm.transport = ibverbs"}},
        {"comm.interface=no_such", {"comm.interface = no_such", "there are: ", "lo 127.0.0.1"}},
        {"comm.interface=127.0.0.0/33", {"comm.interface = 127.0.0.0/33"}},
        {"comm.algorithm=tree", {"comm.algorithm", "halving_doubling"}},
        {"run.servers=1", {"run.servers", "comm 'gloo' has no servers"}},
    };
    enum { N_ROWS = sizeof rows / sizeof *rows };
    for (size_t i = 0; i < 2 * N_ROWS; i++) {
        const char *settings = rows[i % N_ROWS].settings;
        if (i >= N_ROWS && strstr(settings, "comm.interface"))
            continue;
        dpbench_says(deadline_s, 2, rows[i % N_ROWS].words, "%s%s", i < N_ROWS ? GLOO : CHECK,
                     settings);
    }
    dpbench_says(
        deadline_s, 2, WORDS("comm.algorithm is of the all-reduce", "leave comm.algorithm"),
        "comm -c base.ini comm.name=gloo comm_test.operation=broadcast comm.algorithm=ring");
    dpbench_says(deadline_s, 2, WORDS("comm.transport = ibverbs: ", "take tcp"),
                 "comm -c base.ini comm.name=gloo comm_test.operation=all_gather "
                 "comm.transport=ibverbs comm.algorithm=ring_chunked");
}

/* A job that ends well, as busy as the machine is. */
static double healthy_s(void)
{
    struct command command;
    dpbench_ends(&command, deadline_s, 0,
                 FAULTS_BASE "device.name=reference comm.name=gloo run.workers=4");
    const double seconds = command.seconds;
    return seconds;
}

TEST(test_faults)
{
    static const struct {
        const char *title, *settings;
        size_t n_losses;      /* steps that a rank has made: another may be one behind */
        const char *words[5]; /* ended by NULL */
        double least_s;
    } rows[] = {
        {"killed",
         "comm.fault=kill comm.hook=end",
         7,
         {"rank 1 (", "was killed by signal 9", "in phase 'exchange' of step 7"},
         0},
        {"killed, four workers",
         "run.workers=4 comm.fault=kill comm.hook=end",
         7,
         {"rank 1 (", "was killed by signal 9", "in phase 'exchange' of step 7"},
         0},
        {"killed, a core for communication",
         "run.comm_cores=1 comm.fault=kill comm.hook=end",
         7,
         {"rank 1 (", "was killed by signal 9"},
         0},
        {"killed before Gloo connects",
         "comm.call=1 comm.fault=kill comm.hook=bind",
         0,
         {"rank 1 (", "was killed by signal 9", "in phase 'bind'"},
         0},
        {"stopped",
         "run.timeout_s=1 comm.fault=stop comm.hook=end",
         7,
         {"rank 0 (", "waited 1", "Gloo's all-reduce", "rank 1 is late"},
         1},
        {"stopped before Gloo connects",
         "run.timeout_s=1 comm.call=1 comm.fault=stop comm.hook=bind",
         0,
         {"rank 0 (", "waited 1", "rank 1"},
         1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct command command;
        struct traces before;
        traces_take(&before, ".");
        dpbench_ends(&command, deadline_s, 1,
                     FAULTS_BASE
                     "device.name=reference comm.name=fault comm.inner=gloo comm.rank=1 "
                     "comm.call=9 %s",
                     rows[i].settings);
        expect_words(rows[i].title, faults_only_error(rows[i].title, &command), rows[i].words);
        faults_expect_failed(rows[i].title, &command);
        size_t n_losses = json_array_size(json_at(command.json, "loss"));
        assert_true(n_losses <= rows[i].n_losses && n_losses + 1 >= rows[i].n_losses);
        assert_true(command.seconds >= rows[i].least_s);
        if (command.seconds > rows[i].least_s + most_s &&
            command.seconds > rows[i].least_s + most_s + healthy_s())
            fail_msg("%s: the job took %.1f s", rows[i].title, command.seconds);
        traces_expect_none(&before, rows[i].title, 0.5);
    }
}

/* For longer than the deadline, in the middle of exchanges. */
TEST(test_suspended)
{
    struct started started;
    struct command command;
    pid_t pids[2];
    faults_start_long(&started,
                      "eval.every=0 comm.name=gloo run.seconds=2 run.timeout_s=1 comm.bucket=64");
    faults_await_steps(&started, pids, 2);
    kill(started.pid, SIGTSTP);
    usleep(2000000);
    kill(started.pid, SIGCONT);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code != 0 || !strstr(command.err, "was suspended"))
        fail_msg("exit code %d: %s", command.exit_code, command.err);
}

TEST_MAIN(faults_setup, sandbox_teardown)
