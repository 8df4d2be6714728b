/* test_predict_command.c - `dpbench predict` after a real run of one worker; what its command line
 * refuses. Its numbers are test_predict.c's and test_predict_report.c's. */
#include <math.h>
#include <string.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60;

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    struct command command;
    dpbench(
        &command, deadline_s,
        "-c /dev/null run.workers=1 run.steps=20 run.steady_limit_s=0 run.results= model.name=tiny "
        "device.name=reference --output one.json");
    result |= command.exit_code;
    dpbench(&command, deadline_s,
            "comm -c /dev/null comm.name=shm run.workers=2 comm_test.iterations=5 model.name=tiny "
            "comm_test.sizes=4KiB,64KiB,1MiB device.name=reference run.results= --output shm.json");
    result |= command.exit_code;
    sandbox_write("other.json", "{\"schema\": \"dpbench.comm/1\"}\n");
    sandbox_write("few.json",
                  "{\"schema\": \"dpbench.comm/1\", \"status\": \"ok\", \"strategy\": "
                  "{\"name\": \"shm\"}, \"world\": {\"workers\": 2, \"servers\": 0}}\n");
    sandbox_write("v100.json",
                  "{\"schema\": \"dpbench.profile/1\", \"accelerator\": \"V100\", \"model\": "
                  "\"two\", \"precision\": \"fp32\", \"kind\": \"published\", \"source\": "
                  "\"a table\", \"batch\": 8, \"forward_ns\": 1000000, \"backward_ns\": 2000000, "
                  "\"spread\": 0.01, \"tensors\": [{\"name\": \"b\", \"elements\": 1000, "
                  "\"ready_ns\": 500000}, {\"name\": \"a\", \"elements\": 2000, \"ready_ns\": "
                  "2000000}]}\n");
    sandbox_write("emulated.json",
                  "{\"schema\": \"dpbench.result/1\", \"status\": \"ok\", \"strategy\": "
                  "{\"name\": \"ring_tcp\"}, \"world\": {\"workers\": 2, \"servers\": 0}, "
                  "\"ranks\": [], \"batch\": {\"accumulate\": 1}, \"timing\": {\"step_ns\": "
                  "[9000000], \"breakdown_ns\": {\"forward\": 1000000, \"backward\": 2000000, "
                  "\"optimizer\": 0}}, \"config\": {\"run\": {\"delay\": {\"value\": \"none\"}}, "
                  "\"comm\": {\"bucket\": {\"value\": 4194304}, \"gradient\": {\"value\": "
                  "\"auto\"}, \"codec\": {\"value\": \"none\"}}, \"device\": {\"name\": "
                  "{\"value\": \"emulated\"}, \"profile\": {\"value\": \"v100.json\"}}}}\n");
    sandbox_write("bad.json", "{\"schema\": \"dpbench.profile/1\"}\n");
    sandbox_write("sweep.json", "{\"schema\": \"dpbench.sweep/1\"}\n");
    sandbox_write("sharded.json",
                  "{\"schema\": \"dpbench.comm/1\", \"status\": \"ok\", \"strategy\": "
                  "{\"name\": \"shm\"}, "
                  "\"config\": {\"comm\": {\"shard\": {\"value\": \"optimizer\"}}}}\n");
    return result;
}

static void run(struct command *command, int exit_code, const char *arguments)
{
    dpbench_ends(command, deadline_s, exit_code, "predict %s", arguments);
}

TEST(test_run)
{
    struct command command;
    run(&command, 0, "one.json --link 1Gbit,50us --workers 2,1024 --strategies ring_tcp --json");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.predict/1");
    assert_string_equal(json_text_at(command.json, "worker.ready"), "measured");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 2);
    assert_true(json_number_at(command.json, "rows.1.step_ns") >
                json_number_at(command.json, "rows.0.step_ns"));
    run(&command, 0, "one.json --link 1Gbit,50us --per-machine 2 --inside 5GB,1us --host 2GB,5us");
    expect_line(command.out, "^ +2 shm +[* ]");
    expect_line(command.out, "^ +1024 hierarchical.* steps$");
    assert_null(strstr(command.out, "e+")); /* of samples/s */
    /* What shm measures is the cost within a machine. */
    run(&command, 0,
        "one.json --comm shm.json --per-machine 2 --workers 2 --strategies shm --json");
    assert_true(json_number_at(command.json, "rows.0.step_ns") > 0);
    /* It stands beside a link between machines, too, and says nothing of that one. */
    run(&command, 0,
        "one.json --link 1Gbit,50us --inside shm.json --per-machine 2 --workers 4 "
        "--strategies hierarchical --json");
    assert_true(json_number_at(command.json, "rows.0.step_ns") > 0);
    assert_string_equal(json_text_at(command.json, "links.0.source"), "data sheet");
    /* The last --inside holds. */
    run(&command, 0,
        "one.json --link 1Gbit,50us --inside shm.json --inside 1kB,1us --per-machine 2 --workers 4 "
        "--strategies hierarchical --json");
    assert_true(json_number_at(command.json, "rows.0.step_ns") > 1e9);
}

TEST(test_profile)
{
    struct command command;
    run(&command, 0, "v100.json --link 1Gbit,50us --workers 2 --strategies ring_tcp");
    expect_part(command.out, "two, published profile of V100: batch 8");
    expect_part(command.out, "source: a table");
    expect_part(command.out, "give --update RATE");
    run(&command, 0, "v100.json --link 1Gbit,50us --workers 2 --strategies ring_tcp --update 3e6");
    assert_null(strstr(command.out, "--update"));
    expect_part(command.out, "4 ms a step of which 1 update");
    run(&command, 0,
        "v100.json --link 1Gbit,50us --workers 8 --strategies nccl,ps_cpu/local "
        "--per-machine 4 --inside 100GB,1us");
    expect_line(command.out, "^ +8 nccl .* model$");
    expect_line(command.out, "^ +8 ps_cpu/local.* model$");
    run(&command, 0, "v100.json --link 1Gbit,50us --workers 8 --codec topk,shm.json --json");
    assert_string_equal(json_text_at(command.json, "codec"), "topk");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 3);
    run(&command, 0,
        "v100.json --link 1Gbit,50us --workers 2 --uplink 4:1 --delay constant(20ms) --json");
    assert_true(fabs(json_number_at(command.json, "worker.delay_ns") - 20e6) < 1);
    assert_true(json_number_at(command.json, "uplink") == 4);
}

/* The profile that the run names, and the run's own workers. */
TEST(test_emulated)
{
    struct command command;
    run(&command, 0, "emulated.json --link 1Gbit,50us");
    expect_line(command.out, "^ +2 ring_tcp");
    expect_line(command.out,
                "^predicted 3\\.[0-9]+ ms, measured 9 ms: the network, not the strategy$");
}

TEST(test_refusals)
{
    static const struct {
        const char *arguments, *word;
    } rows[] = {
        {"", "which result or profile"},
        {"one.json", "--link"},
        {"one.json two.json --link 1Gbit,50us", "'two.json' is a second"},
        {"one.json --link 1Gbit", "RATE,LATENCY"},
        {"one.json --link 1G,50us", "'1G' is no rate"},
        {"one.json --link 1Gbit,50us --workers 2,,4", "--workers"},
        {"one.json --link 1Gbit,50us --workers 0", "--workers"},
        {"one.json --link 1Gbit,50us --buckets 1parsec", "--buckets"},
        {"one.json --link 1Gbit,50us --buckets 1", "larger --buckets"},
        {"one.json --link 1Gbit,50us --workers 2,4,2", "--workers: '2' stands twice"},
        {"one.json --link 1Gbit,50us --buckets 1024KiB,1MiB", "--buckets: '1MiB' stands twice"},
        {"one.json --link 1Gbit,50us --strategies shm,shm", "--strategies: 'shm' stands twice"},
        {"one.json --link 1Gbit,50us --per-machine 4", "--inside"},
        {"one.json --link 1Gbit,50us --strategies easgd", "'easgd'"},
        {"one.json --link 1Gbit,50us --strategies ring_tcp,shm", "shm works within one machine"},
        {"one.json --link 1Gbit,50us --strategies hierarchical", "hierarchical joins machines"},
        {"one.json --comm shm.json --per-machine 2 --strategies ring_tcp --workers 4",
         "ring_tcp goes from machine to machine"},
        {"one.json --link 1Gbit,50us --nonsense 1", "'--nonsense'"},
        {"one.json --link", "--link"},
        {"v100.json --link 1Gbit,50us --strategies replicated", "works within one machine"},
        {"v100.json --link 1Gbit,50us --strategies ps_cpu/local", "joins machines"},
        {"v100.json --link 1Gbit,50us --strategies ps_async", "no step of all workers"},
        {"v100.json --link 1Gbit,50us --codec topk", "NAME,COMM.json"},
        {"v100.json --link 1Gbit,50us --codec none,shm.json", "no speed of codec 'none'"},
        {"v100.json --link 1Gbit,50us --codec topk,shm.json --strategies hierarchical",
         "does not apply here with --codec"},
        {"emulated.json", "over which link did the run go?"},
        {"emulated.json --link 1Gbit,50us --workers 4", "leave --workers"},
        {"v100.json --link 1Gbit,50us --delay long", "'long' is none of: none, constant(20 ms)"},
        {"v100.json --link 1Gbit,50us --uplink 2", "RATIO:1"},
        {"v100.json --link 1Gbit,50us --uplink 0.5:1", "no ratio of 1 or more"},
        {"bad.json --link 1Gbit,50us", "'accelerator' is no text"},
        {"no_such_profile --link 1Gbit,50us", "no_such_profile"},
        {"v100.json --link 1Gbit,50us --update fast", "'fast' is no speed of an optimizer"},
        {"one.json --link 1Gbit,50us --update 1e9", "a result has measured updates"},
        {"one.json --comm one.json", "dpbench.comm/1"},
        {"other.json --link 1Gbit,50us", "schema"},
        {"sweep.json --link 1Gbit,50us", "which ends in .runs"},
        {"one.json --comm other.json", "other.json: predict has no model of strategy '?'"},
        {"one.json --comm few.json", "few.json: no bandwidth fits the measured exchanges"},
        {"one.json --comm shm.json", "--per-machine"},
        {"one.json --comm sharded.json", "measure without comm.shard"},
        {"one.json --link 1Gbit,50us --strategies ps_cpu/shard", "ring_tcp/shard"},
        {"one.json --comm shm.json --per-machine 2 --inside 5GB,1us", "and --inside says it, too"},
        {"one.json --comm shm.json --per-machine 2 --inside shm.json", "and --inside says it, too"},
        {"one.json --link 1Gbit,50us --per-machine 2 --inside one.json", "dpbench.comm/1"},
        {"one.json --link 1Gbit,50us --per-machine 2 --inside none.json", "none.json"},
        {"one.json --link 1Gbit,50us --per-machine 2 --inside sharded.json", "without comm.shard"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct command command;
        run(&command, 2, rows[i].arguments);
        expect_part(command.err, rows[i].word);
    }
}

TEST_MAIN(set_up, sandbox_teardown)
