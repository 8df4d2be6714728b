/*
 * test_cli_rerun.c - a result runs again: what it names, what it may write, what a sweep resumes.
 */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cli.h"
#include "lib/datasets.h"

static void use_test_plugins(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/tests/plugins", build_directory());
    setenv("DPBENCH_PLUGIN_PATH", path, 1);
}

/* The result alone gives the same run: options, weights, losses, to the last bit. */
TEST(test_rerun)
{
    struct command first, second, third;
    run(&first, 0,
        RUN "run.precision=fp64 comm.name=ps_cpu comm.bucket=512 optimizer.learning_rate=0.1 "
            "run.seed=7 --json --output first.json");
    run(&second, 0, "rerun first.json --json");
    /* A document from before beta1 was refused beside sgd. */
    json_t *old = json_load_file("first.json", 0, NULL);
    json_object_set_new(json_at(old, "config.optimizer"), "beta1",
                        json_pack("{s:f, s:s}", "value", 0.8, "origin", "x.ini:3"));
    assert_int_equal(json_dump_file(old, "old.json", 0), 0);
    json_decref(old);
    run(&third, 0, "rerun old.json run.seed=8 --json");
    expect_part(third.err, "warning: x.ini:3: optimizer.beta1 = 0.8 does nothing: it needs "
                           "optimizer.name = adam, adamw, lamb (default: 'sgd')");
    assert_true(json_equal(json_at(first.json, "loss"), json_at(second.json, "loss")));
    assert_false(json_equal(json_at(first.json, "loss"), json_at(third.json, "loss")));
    assert_string_equal(json_text_at(first.json, "ranks.0.checksum"),
                        json_text_at(second.json, "ranks.0.checksum"));
    const char *section, *key;
    json_t *rows, *entry;
    json_object_foreach(json_at(first.json, "config"), section, rows)
    {
        json_object_foreach(rows, key, entry)
        {
            const json_t *again =
                json_object_get(json_object_get(json_at(second.json, "config"), section), key);
            if (!json_equal(json_at(entry, "value"), json_at(again, "value")))
                fail_msg("%s.%s is another one in the rerun", section, key);
        }
    }
}

/* Runs dpbench in another directory, as `cd DIRECTORY; dpbench ...` does. */
static void run_in(const char *directory, struct command *command, int exit_code,
                   const char *arguments)
{
    char here[PATH_MAX];
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(directory), 0);
    run(command, exit_code, arguments);
    assert_int_equal(chdir(here), 0);
}

/* Files that a relative path names are found from anywhere, and those that changed are named. */
TEST(test_rerun_elsewhere)
{
    struct command first, again, changed;
    sandbox_write("idx.ini", "[run]\nresults =\nbatch = 2\nsteps = 4\nwarmup_steps = 0\n"
                             "steady_limit_s = 0\ndelay = trace(delays)\n[model]\nname = tiny\n"
                             "[data]\nname = idx\npath = small\n"
                             "[device]\nname = reference\nthreads = 1\n");
    dataset_idx("small", 32, 8, 28);
    sandbox_write("delays", "0.1\n");
    assert_int_equal(mkdir("elsewhere", 0777), 0);
    run(&first, 0, "-c idx.ini run.seed=3 --json --output idx.json");
    assert_int_equal(
        json_number_at(json_object_get(json_at(first.json, "inputs"), "data.path"), "files"), 4);
    run_in("elsewhere", &again, 0, "rerun ../idx.json --json");
    assert_true(json_equal(json_at(first.json, "loss"), json_at(again.json, "loss")));
    expect_part(again.err, "data.path = small is taken from ");
    expect_part(again.err, "run.delay = trace(delays) is taken from ");
    assert_null(strstr(again.err, "differs"));
    assert_null(strstr(again.err, "warning"));
    write_file("small/extra", "x", 1);
    sandbox_write("delays", "0.2\n");
    run_in("elsewhere", &changed, 0, "rerun ../idx.json --json --output new.json");
    EXPECT_WORDS("dpbench", changed.err, "inputs.data.path.files was 4 in the result, here it is 5",
                 "inputs.data.path.fingerprint was ", "inputs.run.delay.fingerprint was ");
    assert_int_equal(access("elsewhere/new.json", R_OK), 0);
}

/* What a result says of its machine, build and environment is compared before it is run again. */
TEST(test_rerun_names_what_differs)
{
    struct command command;
    run(&command, 0, RUN "--json --output here.json");
    json_t *document = own_json(json_deep_copy(command.json));
    json_object_set_new(json_at(document, "machine"), "processor", json_string("Z80"));
    json_object_set_new(json_at(document, "machine"), "microcode", json_null());
    json_object_set_new(json_at(document, "versions.build"), "crc32", json_string("0x0"));
    json_object_set_new(json_at(document, "versions.plugins.comm"), "version", json_string("0.0"));
    json_object_set_new(json_at(document, "invocation.environment"), "OMP_WAIT_POLICY",
                        json_string("active"));
    assert_int_equal(json_dump_file(document, "other.json", 0), 0);
    setenv("MALLOC_ARENA_MAX", "2", 1);
    run(&command, 0, "rerun other.json --json");
    unsetenv("MALLOC_ARENA_MAX");
    EXPECT_WORDS("dpbench", command.err, "machine.processor was \"Z80\" in the result, here it is ",
                 "versions.build.crc32 was \"0x0\"", "versions.plugins.comm.version was \"0.0\"",
                 "environment.OMP_WAIT_POLICY was \"active\"", "missing",
                 "environment.MALLOC_ARENA_MAX is \"2\" here and was not set");
    assert_true(json_array_size(json_at(command.json, "warnings")) >= 5); /* and they are kept */
}

/* A plugin that only DPBENCH_PLUGIN_PATH led to: without it the rerun says what it was. */
TEST(test_rerun_without_the_plugin_path)
{
    struct command command;
    use_test_plugins();
    run(&command, 0, RUN "comm.name=fault --output fault.json");
    run(&command, 0, "rerun fault.json --json");
    unsetenv("DPBENCH_PLUGIN_PATH");
    EXPECT_ERROR(2, "rerun fault.json", "environment.DPBENCH_PLUGIN_PATH was ",
                 "unknown comm 'fault'");
}

/* The result of a run with this setting in it, as somebody could have written it. */
static void write_result(const char *path, const char *section, const char *key, const char *value)
{
    json_t *document = own_json(json_load_file("first.json", 0, NULL)), *config;
    assert_non_null(document);
    assert_non_null(config = json_object_get(document, "config"));
    json_t *rows = json_object_get(config, section);
    if (rows == NULL)
        json_object_set_new(config, section, rows = json_object());
    json_object_set_new(rows, key,
                        json_pack("{s:s, s:s}", "value", value, "origin", "command line"));
    assert_int_equal(json_dump_file(document, path, 0), 0);
}

/* A result that somebody sent writes nowhere but beside itself and below the working directory. */
TEST(test_rerun_writes_here_only)
{
    static const struct {
        const char *section, *key, *value;
    } outside[] = {{"run", "results", "../../above/new"},
                   {"run", "results", "/nowhere/to/be/made"},
                   {"run", "results", "made/../../../above"},
                   {"run", "results", "away"},
                   {"run", "results", "dangling"},
                   {"checkpoint", "save", "../../above.safetensors"},
                   {"sweep", "run.results", "../../above, results"},
                   {"data", "shelf", "../../read"}, /* an input: see below */
                   {"device", "trace", "../../trace"}};
    struct command command;
    use_test_plugins();
    run(&command, 0, RUN "data.name=timed device.name=timed --json --output first.json");
    mkdir("sent", 0777);
    mkdir("sent/here", 0777);
    assert_int_equal(symlink("/tmp", "sent/here/away"), 0);
    assert_int_equal(symlink("/nowhere/at/all", "sent/here/dangling"), 0);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        write_result("sent/result.json", outside[i].section, outside[i].key, outside[i].value);
        bool reads = strcmp(outside[i].key, "shelf") == 0;
        run_in("sent/here", &command, reads ? 0 : 2, "rerun ../result.json");
        if (!reads)
            expect_part(command.err,
                        "is neither beside the result nor below the working directory");
        assert_int_not_equal(access("above", F_OK), 0);
        assert_int_not_equal(access("above.safetensors", F_OK), 0);
    }
    write_result("sent/result.json", "run", "results", "../../above/new");
    run_in("sent/here", &command, 0, "rerun ../result.json run.results=../mine");
    EXPECT_WORDS("what it says first", command.err,
                 "../result.json runs: tiny on timed, timed, shm; 2 "
                 "workers, 0 servers",
                 "  writes its result into ../mine");
    run_in("sent/here", &command, 0, "rerun ../result.json --trust");
    assert_int_equal(access("above/new", F_OK), 0);
    unsetenv("DPBENCH_PLUGIN_PATH");
}

/* The checkpoint that the first run left stays as it is. */
TEST(test_rerun_replaces_no_checkpoint)
{
    static const char *const saves[] = {"net.safetensors", "other.safetensors"};
    struct command command;
    use_test_plugins();
    sandbox_write("net.safetensors", "precious");
    sandbox_write("other-step12.safetensors", "precious");
    run(&command, 0, RUN "data.name=timed device.name=timed --json --output first.json");
    for (size_t i = 0; i < 2; i++) {
        write_result("saves.json", "checkpoint", "save", saves[i]);
        EXPECT_ERROR(2, "rerun saves.json", "a rerun replaces no file");
        run(&command, 2, "rerun saves.json --trust");
    }
    run(&command, 0, "rerun saves.json checkpoint.save=third.safetensors");
    assert_int_equal(access("third.safetensors", R_OK), 0);
    unsetenv("DPBENCH_PLUGIN_PATH");
}

TEST(test_rerun_refuses)
{
    struct command command;
    sandbox_write("future.json", "{\"schema\": \"dpbench.result/9\", \"config\": {}}");
    EXPECT_ERROR(2, "rerun future.json", "schema is dpbench.result/9, wanted dpbench.result/1");
    run(&command, 2, "rerun base.ini");
}

/* What went well is taken as it is, the rest is run: as if nothing had come between. */
TEST(test_resume)
{
    struct command first, again;
    run(&first, 0,
        RUN "eval.final=yes sweep.comm.name=shm,replicated sweep.repeats=2 sweep.accuracy=4 "
            "sweep.retry_disturbed=0 "
            "run.seed=5 --json --output whole.json");
    json_t *part = own_json(json_deep_copy(first.json)), *runs = json_at(part, "runs");
    assert_int_equal(json_array_size(runs), 6); /* two repeats of two cells, two for accuracy */
    json_object_set_new(part, "status", json_string("interrupted"));
    json_object_set_new(json_array_get(runs, 1), "status", json_string("failed"));
    json_array_remove(runs, 5);
    json_array_remove(runs, 3);
    assert_int_equal(json_dump_file(part, "part.json", 0), 0);

    run(&again, 0, "rerun part.json --resume --json --output resumed.json");
    EXPECT_WORDS("rerun --resume", again.err, "3 of 6 runs are there, from part.json", "[1/3] ",
                 "[3/3] ");
    assert_string_equal(json_text_at(again.json, "status"), "ok");
    assert_int_equal(json_array_size(json_at(again.json, "runs")), 6);
    for (int i = 0; i < 3; i++) { /* those with their own times */
        static const int kept[] = {0, 2, 4};
        char of_first[64], of_again[64];
        snprintf(of_first, sizeof of_first, "runs.%d.timing", kept[i]);
        snprintf(of_again, sizeof of_again, "runs.%d.timing", i);
        assert_true(json_equal(json_at(first.json, of_first), json_at(again.json, of_again)));
    }
    bool disturbed = false; /* such a run is left out beside a clean one */
    for (int i = 0; i < 6; i++) {
        char path[32];
        snprintf(path, sizeof path, "runs.%d.load.disturbed", i);
        disturbed |= json_is_true(json_at(again.json, path));
    }
    for (int i = 0; i < 2; i++) {
        char path[32];
        snprintf(path, sizeof path, "rows.%d.runs", i);
        assert_true(json_number_at(again.json, path) == 2 || disturbed);
        snprintf(path, sizeof path, "rows.%d.loss", i);
        assert_true(json_equal(json_at(first.json, path), json_at(again.json, path)));
        snprintf(path, sizeof path, "rows.%d.accuracy", i);
        assert_true(json_equal(json_at(first.json, path), json_at(again.json, path)));
    }
    run(&again, 0, "rerun resumed.json --resume --json");
    expect_part(again.err, "6 of 6 runs are there");
    assert_null(strstr(again.err, "[1/"));
    EXPECT_ERROR(2, "rerun whole.json --resume run.seed=1",
                 "--resume goes on with the settings of whole.json");
    run(&again, 0, RUN "--output single.json");
    EXPECT_ERROR(2, "rerun single.json --resume", "single.json is one run");
}

/* A refused cell is a refused row again, the first one, too. */
TEST(test_rerun_of_a_sweep_with_a_refused_cell)
{
    struct command command;
    run(&command, 0,
        RUN "sweep.comm.name=gossip,shm comm.codec=topk sweep.skip_refused=yes "
            "--output refused.json");
    run(&command, 0, "rerun refused.json run.results= --json");
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_string_equal(json_text_at(command.json, "rows.0.status"), "refused");
    assert_string_equal(json_text_at(command.json, "rows.1.status"), "ok");
    run(&command, 0, "rerun refused.json --resume --output resumed.json");
    expect_part(command.err, "[1/1] comm.name=gossip: refused");
    /* Of these each value may be right with others. */
    run(&command, 0,
        RUN "comm.name=ring_tcp sweep.comm.port=65535,0 sweep.skip_refused=yes --json");
    assert_string_equal(json_text_at(command.json, "rows.0.status"), "refused");
    assert_string_equal(json_text_at(command.json, "rows.1.status"), "ok");
}

TEST(test_rerun_of_a_sweep)
{
    struct command first, again;
    run(&first, 0,
        RUN "sweep.comm.name=shm,replicated sweep.repeats=1 sweep.retry_disturbed=0 --json "
            "--output sweep.json");
    run(&again, 0, "rerun sweep.json run.seed=1 --json");
    assert_string_equal(json_text_at(again.json, "schema"), "dpbench.sweep/1");
    assert_int_equal(json_array_size(json_at(again.json, "rows")), 2);
    for (int i = 0; i < 2; i++) { /* in the same order: it is drawn by the seed */
        char path[32];
        snprintf(path, sizeof path, "runs.%d.loss", i);
        assert_true(json_equal(json_at(first.json, path), json_at(again.json, path)));
    }
    assert_null(strstr(again.err, "in the result, here it is"));
    json_t *other = own_json(json_deep_copy(first.json));
    json_array_set_new(json_at(other, "runs.1.loss"), 0, json_real(9.5));
    assert_int_equal(json_dump_file(other, "other.json", 0), 0);
    run(&again, 3, "rerun other.json --resume --json"); /* its runs contradict each other */
    expect_part(json_text_at(again.json, "error"), "is 9.5, and that of ");
    for (int i = 0; i < 2; i++) {
        char path[64];
        snprintf(path, sizeof path, "runs.%d.machine", i);
        json_object_set_new(json_at(first.json, path), "processor", json_string("Z80"));
    }
    json_t *runs = json_at(first.json, "runs"); /* in another order, as another seed draws it */
    json_array_append(runs, json_array_get(runs, 0));
    json_array_remove(runs, 0);
    json_object_set_new(json_at(first.json, "runs.1.versions.plugins.comm"), "version",
                        json_string("0.0"));
    assert_int_equal(json_dump_file(first.json, "sweep.json", 0), 0);
    run(&again, 0, "rerun sweep.json --json");
    for (int i = 0; i < 2; i++) { /* each plugin is compared with the plugin of its name */
        char path[96];
        snprintf(path, sizeof path, "versions.plugins.comm '%s'.version was",
                 json_text_at(json_array_get(runs, (size_t)i), "strategy.name"));
        assert_int_equal(strstr(again.err, path) != NULL, i);
    }
    assert_null(strstr(again.err, "name was"));
    assert_string_equal(json_text_at(again.json, "name"), json_text_at(again.json, "runs.0.name"));
    assert_string_equal(json_text_at(again.json, "warnings.0.code"), "machine_differs");
    expect_part(json_text_at(again.json, "warnings.0.text"), "machine.processor was \"Z80\"");
}

TEST_MAIN(set_up, sandbox_teardown)
