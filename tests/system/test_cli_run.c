/*
 * test_cli_run.c - what a run and a sweep print, and the document that scripts read.
 */
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cli.h"
#include "lib/datasets.h"
#include "lib/near.h"

static const char *last_line(const char *text)
{
    const char *line = text;
    for (const char *at = text; *at; at++)
        if (*at == '\n' && at[1])
            line = at + 1;
    return line;
}

TEST(test_table_for_people)
{
    struct command command;
    run(&command, 0, RUN "eval.final=yes");
    EXPECT_WORDS("dpbench", command.out, "model         1690 parameters, ", "strategy",
                 "consistency: synchronous", "2 workers", "data_wait", "comm_exposed",
                 "verification  pattern pass", "after pass, steps pass", "accuracy");
    if (!has_line(last_line(command.out), "^SamplesPerSec: [0-9]+\\.[0-9]+ \\+- [0-9]+\\.[0-9]+ "
                                          "\\(jitter [0-9]+\\.[0-9]+\\)$"))
        fail_msg("the last line is '%s'", last_line(command.out));
}

/* Its processes are no ranks of one job. */
TEST(test_launcher_without_pmix)
{
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    EXPECT_ERROR(2, RUN "run.step=1", "srun has started 4 processes without PMIx");
    setenv("SLURM_STEP_NUM_TASKS", "1", 1);
    struct command command;
    run(&command, 2, RUN "run.step=1");
    assert_null(strstr(command.err, "PMIx"));
    unsetenv("SLURM_STEP_NUM_TASKS");
}

/* clang-format off */
/* Names that scripts count on, and the type of each: n(umber), s(tring), b(ool), a(rray), o(bject),
 * 0 (null). */
static const struct {
    const char *path;
    char type;
} result_names[] = {
    {"schema", 's'}, {"status", 's'}, {"error", '0'}, {"started", 's'},
    {"warnings", 'a'}, {"load", 'o'},
    {"config.run.workers.value", 'n'}, {"config.run.workers.origin", 's'},
    {"config.comm.bucket.value", 'n'}, {"config.run.prove.value", 'b'},
    {"world.workers", 'n'}, {"world.servers", 'n'}, {"world.learners", 'n'},
    {"world.launcher", 's'}, {"world.oversubscribed", 'b'},
    {"model.name", 's'}, {"model.parameters", 'n'}, {"model.macs_per_sample", 'n'},
    {"strategy.name", 's'}, {"strategy.consistency", 's'},
    {"batch.per_worker", 'n'}, {"batch.global", 'n'},
    {"timing.warmup_steps", 'n'}, {"timing.steps", 'n'}, {"timing.steady", 'b'},
    {"timing.warmup_step_ns", 'a'}, {"timing.ready", 'o'},
    {"timing.step_ns", 'a'}, {"timing.step_ns.5", 'n'},
    {"timing.samples_per_s.mean", 'n'}, {"timing.samples_per_s.median", 'n'},
    {"timing.samples_per_s.p10", 'n'}, {"timing.samples_per_s.p90", 'n'},
    {"timing.samples_per_s.ci95.0", 'n'}, {"timing.samples_per_s.ci95.1", 'n'},
    {"timing.samples_per_s.jitter", 'n'}, {"timing.samples_per_s.uncertainty", 'n'},
    {"timing.breakdown_ns.data_wait", 'n'}, {"timing.breakdown_ns.forward", 'n'},
    {"timing.breakdown_ns.delay", 'n'},
    {"timing.breakdown_ns.backward", 'n'}, {"timing.breakdown_ns.optimizer", 'n'},
    {"timing.breakdown_ns.comm_exposed", 'n'}, {"timing.breakdown_ns.comm_hidden", 'n'},
    {"timing.breakdown_ns.comm_wait_peer", 'n'},
    {"comm.bytes_per_step", 'n'}, {"comm.codec", '0'}, {"loss.7", 'n'},
    {"eval.0.step", 'n'}, {"eval.0.accuracy", 'n'}, {"eval.0.loss", 'n'},
    {"verification.pattern", 's'}, {"verification.exchange", 's'}, {"verification.replicas", 's'},
    {"machine", 'o'}, {"machine.usable_cores", 'n'}, {"machine.instructions", 'a'},
    {"versions", 'o'}, {"versions.dpbench", 's'}, {"versions.build.flags", 's'},
    {"versions.build.crc32", 's'}, {"versions.plugins.comm.file.path", 's'},
    {"versions.plugins.comm.file.crc32", 's'}, {"versions.zlib.loaded", 's'},
    {"versions.compiler", 's'}, {"versions.kernel", 's'}, {"versions.hwloc.built", 's'},
    {"versions.jansson.loaded", 's'}, {"versions.plugins.comm.version", 's'},
    {"invocation.command.1", 's'}, {"invocation.directory", 's'}, {"invocation.environment", 'o'},
    {"inputs", 'o'},
    {"ranks.0.pid", 'n'}, {"ranks.1.breakdown_ns", 'o'},
};
/* clang-format on */

static char type_of(const json_t *value)
{
    return !value                   ? '-'
           : json_is_number(value)  ? 'n'
           : json_is_string(value)  ? 's'
           : json_is_boolean(value) ? 'b'
           : json_is_array(value)   ? 'a'
           : json_is_object(value)  ? 'o'
                                    : '0';
}

TEST(test_json_is_one_document)
{
    struct command command;
    run(&command, 0, RUN "eval.final=yes run.prove=yes --json");
    assert_non_null(command.json); /* of the whole of stdout: nothing else is there */
    for (size_t i = 0; i < sizeof result_names / sizeof *result_names; i++) {
        char type = type_of(json_at(command.json, result_names[i].path));
        if (type != result_names[i].type)
            fail_msg("%s is of type '%c', not '%c'", result_names[i].path, type,
                     result_names[i].type);
    }
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.result/1");
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_string_equal(json_text_at(command.json, "verification.exchange"), "pass");
    assert_int_equal(json_array_size(json_at(command.json, "loss")), 8);
    assert_int_equal(json_number_at(command.json, "timing.steps"), 6);
    assert_string_equal(command.err, ""); /* no results directory: nothing to say */
}

/* Each of a run's parts takes time, and together they are no more than the command took. */
TEST(test_wall_clock)
{
    static const char *const parts[] = {"start_s", "connect_s",     "compile_s",
                                        "proof_s", "warmup_s",      "measured_s",
                                        "eval_s",  "checkpoints_s", "end_s"};
    struct command command;
    const double began_s = now_s();
    run(&command, 0, RUN "eval.final=yes run.prove=yes checkpoint.save=w.safetensors --json");
    const double took_s = now_s() - began_s;
    const json_t *wall = json_at(command.json, "wall");
    double sum_s = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_true(json_number_at(wall, parts[i]) > 0);
        sum_s += json_number_at(wall, parts[i]);
    }
    const double seconds = json_number_at(wall, "seconds");
    if (!(fabs(sum_s - seconds) <= 0.01 * seconds && seconds <= took_s))
        fail_msg("parts of %.3f s, wall clock %.3f s, and the command took %.3f s", sum_s, seconds,
                 took_s);
    assert_true(json_number_at(wall, "measured_s") * 1e9 >=
                0.999 * json_number_at(command.json, "ranks.0.step_ns.mean") *
                    json_number_at(command.json, "ranks.0.steps"));
}

/* A made-up machine of two nodes of 3 GB, with a core on each. */
TEST(test_memory_of_a_node)
{
    const char *const environment[] = {
        "HWLOC_SYNTHETIC=Package:2 [NUMANode(memory=3000000000)] core:1 pu:1", "HWLOC_THISSYSTEM=1",
        NULL};
    struct started started;
    struct command command;
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        skip();
    dpbench_start(&started, environment, RUN "--json");
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 0);
    assert_true(json_number_at(command.json, "machine.memory_bytes") == 6e9);
    for (size_t i = 0; i < 2; i++) {
        const json_t *rank = json_array_get(json_at(command.json, "ranks"), i);
        if (json_is_array(json_at(rank, "cores"))) /* the test may have a part of the machine */
            assert_true(json_number_at(rank, "node_memory_bytes") == 3e9);
        else
            assert_true(json_is_null(json_at(rank, "node_memory_bytes")));
    }
}

TEST(test_origins)
{
    static const struct {
        const char *path, *origin;
    } rows[] = {{"config.run.workers.origin", "base.ini:3"},
                {"config.comm.name.origin", "base.ini:17"},
                {"config.run.batch.origin", "command line"},
                {"config.run.seconds.origin", "command line"},
                {"config.data.samples.origin", "base.ini:11"},
                {"config.data.distinct.origin", "default"},
                {"config.optimizer.momentum.origin", "default"}};
    struct command command;
    /* run.seconds takes the place of the file's run.steps */
    run(&command, 0, RUN "run.batch=4 comm.bucket=1kB run.seconds=50ms --json");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(json_text_at(command.json, rows[i].path), rows[i].origin);
    assert_true(json_is_null(json_at(command.json, "config.run.steps.value")));
    assert_true(json_number_at(command.json, "config.run.seconds.value") == 0.05);
    assert_int_equal(json_number_at(command.json, "config.comm.bucket.value"), 1000);
    assert_int_equal(json_number_at(command.json, "batch.global"), 8);
}

#define GPT                                                                          \
    RUN "model.name=gpt model.layers=1 model.heads=2 model.width=8 model.context=9 " \
        "model.nclass=11 "                                                           \
        "eval.final=yes "

/* Of sequences the labels count: one for each position. */
TEST(test_tokens)
{
    struct command command;
    run(&command, 0, GPT "--json");
    assert_int_equal(json_number_at(command.json, "model.tokens_per_sample"), 9);
    const double labels = json_number_at(command.json, "eval.0.labels");
    assert_true(labels > 0 && labels == 9 * json_number_at(command.json, "eval.0.samples"));
    assert_within(json_number_at(command.json, "eval.0.accuracy"),
                  json_number_at(command.json, "eval.0.correct") / labels, 1e-12);
    run(&command, 0, GPT);
    EXPECT_WORDS("a run of a GPT", command.out, "tokens/s  ", "in the top 5, perplexity ");
    run(&command, 0, RUN "--json");
    assert_true(json_is_null(json_at(command.json, "model.tokens_per_sample")));
}

/* A saved model has the accuracy that its training ended on, whatever trained it. */
TEST(test_eval)
{
    static const struct {
        const char *arguments, *words[3];
    } refused[] = {
        {"eval " RUN, {"which model? give its file as checkpoint.load=FILE"}},
        {"eval " RUN "checkpoint.load=c.safetensors comm.name=shm",
         {"comm.name has no meaning in an evaluation"}},
        {"eval " RUN "checkpoint.load=c.safetensors sweep.data.shuffle=yes,no",
         {"evaluates one model", "sweep.data.shuffle makes several"}},
        {RUN "run.mode=evaluate", {"say `dpbench eval`"}},
    };
    struct command trained, command;
    char accuracy[64];
    run(&trained, 0, RUN "--json eval.final=yes checkpoint.save=c.safetensors run.steps=40");
    run(&command, 0, "eval " RUN "--json checkpoint.load=c.safetensors");
    assert_int_equal(json_array_size(json_at(command.json, "eval")), 1);
    assert_true(json_number_at(command.json, "eval.0.correct") ==
                json_number_at(trained.json, "eval.0.correct"));
    assert_within(json_number_at(command.json, "eval.0.loss"),
                  json_number_at(trained.json, "eval.0.loss"), 1e-6);
    assert_true(json_number_at(command.json, "eval.0.step") == 0);
    assert_int_equal(json_array_size(json_at(command.json, "loss")), 0);
    run(&command, 0, "eval " RUN "checkpoint.load=c.safetensors");
    snprintf(accuracy, sizeof accuracy, "tiny on synthetic, fp32: accuracy %.2f %% (%.0f of 16",
             100 * json_number_at(trained.json, "eval.0.accuracy"),
             json_number_at(trained.json, "eval.0.correct"));
    EXPECT_WORDS("eval", command.out, accuracy);
    assert_string_equal(command.err, "");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        dpbench_says(deadline_s, 2, refused[i].words, "%s", refused[i].arguments);
}

/* More evaluations than a result has room for, in a run by time: it keeps those that it has. */
TEST(test_evaluations_without_room)
{
    struct command command;
    run(&command, 1,
        RUN "run.workers=1 run.seconds=50 eval.every=1 data.test_samples=1 --output many.json");
    expect_part(command.err, "more than 4096 evaluations in a run; make eval.every larger");
    json_t *file = own_json(json_load_file("many.json", 0, NULL));
    assert_string_equal(json_text_at(file, "status"), "failed");
    assert_int_equal(json_array_size(json_at(file, "eval")), 4096);
}

/* Number of files in a directory whose name ends in .json. */
static size_t count_results(const char *directory)
{
    size_t n = 0;
    DIR *entries = opendir(directory);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        n += strstr(entry->d_name, ".json") != NULL;
    if (entries)
        closedir(entries);
    return n;
}

/* Each run has a file of its own, also within a second; stderr says which. */
TEST(test_results_are_kept)
{
    enum { N = 3 };
    struct command command;
    for (size_t i = 0; i < N; i++) {
        run(&command, 0, RUN "run.results=kept/deep");
        if (!has_line(command.err, "^result: kept/deep/run-shm-w2-[0-9TZ]+(-[0-9]+)?\\.json$"))
            fail_msg("'%s'", command.err);
        assert_int_equal(count_results("kept/deep"), i + 1);
    }
    run(&command, 0, RUN "--output kept/named.json --json");
    json_t *file = own_json(json_load_file("kept/named.json", 0, NULL));
    assert_true(json_equal(file, command.json));
    assert_int_equal(count_results("kept/deep"), N);
}

/* ---- sweeps -------------------------------------------------------------------------------- */

TEST(test_sweep)
{
    struct command command;
    run(&command, 0,
        RUN "sweep.comm.name=shm,replicated sweep.run.workers=1,2 sweep.repeats=2 "
            "sweep.retry_disturbed=0 --json");
    assert_string_equal(json_text_at(command.json, "schema"), "dpbench.sweep/1");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 8);
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 4);
    assert_string_equal(json_text_at(command.json, "runs.7.schema"), "dpbench.result/1");
    EXPECT_WORDS("dpbench", command.err, "[1/8] ", "[8/8] ", "samples/s");
}

/* A machine on which every run is disturbed: repeats have a budget, and the sweep an end. */
TEST(test_disturbed_sweep)
{
#define DISTURBED RUN "sweep.comm.name=shm,replicated sweep.repeats=2 sweep.launch=./made "
    struct command command;
    run(&command, 0, RUN "--json");
    json_object_set_new(json_at(command.json, "load"), "disturbed", json_true());
    assert_int_equal(json_dump_file(command.json, "made.json", 0), 0);
    sandbox_write("made", "#!/bin/sh\nsleep 0.05\ncat made.json\n");
    assert_int_equal(chmod("made", 0755), 0);
    /* Of no budget that stands in seconds does a slow machine make another one here. */
    static const struct {
        const char *arguments;
        double repeats, left;
    } rows[] = {{DISTURBED "sweep.retry_budget=0.05 --json", 0, 4},
                {DISTURBED "sweep.retry_budget=60min sweep.retry_disturbed=1 --json", 4, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run(&command, 0, rows[i].arguments);
        const json_t *repeats = json_at(command.json, "repeats_of_disturbed");
        assert_near(json_number_at(repeats, "runs"), rows[i].repeats);
        assert_near(json_number_at(repeats, "left_disturbed"), rows[i].left);
        assert_int_equal(json_array_size(json_at(command.json, "runs")), 4 + rows[i].repeats);
        if (rows[i].left > 0)
            expect_part(command.err, "it stays, for lack of time");
    }
    run(&command, 0, DISTURBED "sweep.retry_budget=0 sweep.limit_s=0.07 --output limited.json");
    expect_part(command.err, "to run the rest: dpbench rerun limited.json --resume");
    EXPECT_WORDS("dpbench", command.out, "disturbed_runs_stay: ", "runs_left_out: ", " of 4 runs ");
    json_t *limited = own_json(json_load_file("limited.json", 0, NULL));
    const double missing = json_number_at(limited, "runs_left_out");
    assert_int_equal(json_array_size(json_at(limited, "runs")), 4 - (size_t)missing);
    assert_true(missing >= 2);
}

/* An option that only one of the plugins has does not hinder the cells of the other; one that none
 * has hinders all. */
TEST(test_sweep_over_plugins_with_options)
{
    struct command command;
    sandbox_write("plugins.ini", "[run]\nresults =\nbatch = 2\nsteps = 2\nwarmup_steps = 0\n"
                                 "steady_limit_s = 0\n[model]\nname = tiny\n"
                                 "[device]\nname = reference\nthreads = 1\n"
                                 "[data]\nsamples = 64\npath = idx\n"
                                 "[optimizer]\nschedule = step\ndecay_at = 1\n"
                                 "[sweep]\ndata.name = synthetic, idx\nrepeats = 1\n");
    dataset_idx("idx", 32, 8, 28);
    run(&command, 0, "-c plugins.ini optimizer.schedule=constant --json");
    expect_part(command.err, "warning: plugins.ini:17: optimizer.decay_at = 1 does nothing: ");
    assert_string_equal(json_text_at(command.json, "runs.1.warnings.0.code"), "unused_setting");
    assert_int_equal(json_number_at(command.json, "runs.0.config.data.samples.value") == 64 ||
                         json_number_at(command.json, "runs.1.config.data.samples.value") == 64,
                     true);
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 2);
    run(&command, 2, "check -c plugins.ini data.pth=idx");
    EXPECT_WORDS("dpbench", command.out, "synthetic: refused: command line: unknown option 'pth'",
                 "idx: refused: command line: unknown option 'pth'");
    /* The command line takes another plugin than the one of the file, which has the option. */
    sandbox_write("one.ini", "[run]\nsteps = 2\n[model]\nname = tiny\n[data]\nsamples = 64\n");
    run(&command, 0, "check -c one.ini data.name=idx data.path=idx");
    expect_part(command.err, "warning: one.ini:6: data.samples = 64 does nothing: data 'idx' has "
                             "no such option; it is one of synthetic");
    EXPECT_ERROR(2, "check -c one.ini data.name=idx data.path=idx data.samples=64",
                 "command line: unknown option 'samples' for data 'idx'");
}

/* Refused cells are found before the first run, and listed; or they are rows. */
TEST(test_sweep_with_a_refused_cell)
{
    struct command command;
    run(&command, 2,
        RUN "sweep.run.precision=fp32,bf16,fp64 sweep.run.workers=1,2 run.batch=4/run.workers");
    EXPECT_WORDS(
        "dpbench", command.err,
        "error: run.precision=bf16 run.workers=1: refused: command line: device 'reference' "
        "does not compute in bf16",
        "error: ... and 1 more, for the same reason\n",
        "error: nothing was run: 2 of 6 cells are refused; choose the others by sweep.when");
    assert_null(strstr(command.err, "[1/"));
    run(&command, 0,
        RUN "sweep.run.precision=fp32,bf16,fp64 sweep.repeats=1 sweep.skip_refused=yes --json");
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 3);
    assert_string_equal(json_text_at(command.json, "rows.0.status"), "ok");
    assert_string_equal(json_text_at(command.json, "rows.1.status"), "refused");
    assert_string_equal(json_text_at(command.json, "rows.2.status"), "ok");
    expect_part(json_text_at(command.json, "rows.1.error"), "does not compute in bf16");
}

/* A warning with stderr closed goes nowhere: not into the job's memory, which would end the job. */
TEST(test_closed_stderr)
{
    struct command command;
    const char *const shell[] = {
        "/bin/sh", "-c",
        "exec $DPB_BUILD/dpbench " RUN "--json run.steps=1 run.warmup_steps=0 "
        "'run.delay=constant(1s)' run.delay_ranks=0 run.stall_warning_s=0.1 2>&-",
        NULL};
    command_run(&command, deadline_s, shell, NULL);
    assert_string_equal(json_text_at(command.json, "error"), "");
    assert_int_equal(command.exit_code, 0);
    assert_string_equal(json_text_at(command.json, "warnings.0.code"), "stall");
}

/* Clusters set them. OpenMP's library would leave one core to the whole job. */
TEST(test_binding_of_openmp)
{
    static const char *const variables[][2] = {{"OMP_PROC_BIND", "true"},
                                               {"GOMP_CPU_AFFINITY", "0"}};
    struct command command;
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        setenv(variables[i][0], variables[i][1], 1);
        run(&command, 0, RUN "device.name=cpu --json");
        unsetenv(variables[i][0]);
        assert_true(json_is_false(json_at(command.json, "world.oversubscribed")));
        assert_string_equal(json_text_at(command.json, "warnings.0.code"), "binding_ignored");
        expect_part(json_text_at(command.json, "warnings.0.text"), variables[i][0]);
    }
}

/* `ulimit -s` of some batch systems. */
TEST(test_small_stack)
{
    struct command command;
    const struct rlimit small = {64 << 10, RLIM_INFINITY}, none = {64 << 10, 64 << 10};
    struct rlimit kept;
    pid_t child;
    int status;
    assert_int_equal(getrlimit(RLIMIT_STACK, &kept), 0);
    assert_int_equal(setrlimit(RLIMIT_STACK, &small), 0);
    run(&command, 0, RUN);
    run(&command, 0, "help all");
    setrlimit(RLIMIT_STACK, &kept);
    child = fork(); /* a hard limit does not rise again */
    if (child == 0) {
        setrlimit(RLIMIT_STACK, &none);
        dpbench(&command, deadline_s, "help");
        _exit(command.exit_code == 2 && strstr(command.err, "limited to 64 KiB") ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

TEST(test_setting_taken_back)
{
    struct command command;
    sandbox_write("back.ini", "[run]\nresults =\nworkers = 2\nsteps = 3\nwarmup_steps = 1\n"
                              "batch = 2\nsteady_limit_s = 0\n"
                              "[data]\nname = idx\npath = nowhere\n[model]\nname = tiny\n"
                              "[device]\nname = reference\n[comm]\nname = shm\nbucket = 4kB\n");
    run(&command, 0,
        "-c back.ini data.name=synthetic data.path= run.workers= comm.name=independent "
        "comm.bucket= --json");
    assert_string_equal(json_text_at(command.json, "config.run.workers.origin"), "default");
    assert_string_equal(json_text_at(command.json, "config.comm.bucket.origin"), "default");
    assert_string_equal(json_text_at(command.json, "config.run.results.origin"), "back.ini:2");
    EXPECT_ERROR(2, "-c back.ini run.wrokers=", "did you mean 'workers'?");
}

TEST(test_warmup_to_the_end)
{
    struct command command;
    run(&command, 0,
        RUN "--json optimizer.schedule=cosine optimizer.warmup_epochs=50 run.epochs=1 run.steps=");
    assert_string_equal(json_text_at(command.json, "warnings.0.code"), "warmup_only");
    run(&command, 0,
        RUN "--json optimizer.schedule=cosine optimizer.warmup_epochs=0.5 run.epochs=1 run.steps=");
    assert_null(strstr(command.out, "warmup_only"));
}

/* `| head` is no failure to tell of. */
TEST(test_reader_that_goes_away)
{
    char line[PATH_MAX + 128];
    struct stat info;
    snprintf(line, sizeof line,
             "bash -c '%s/dpbench help all 2>err | head -c 1 >out; exit ${PIPESTATUS[0]}'",
             build_directory());
    assert_int_equal(WEXITSTATUS(system(line)), 141);
    assert_int_equal(stat("err", &info), 0);
    assert_int_equal(info.st_size, 0);
}

/* What a plugin or a library prints is no part of the document, in any process. */
TEST(test_loud_plugin)
{
    static const char *const commands[] = {
        RUN "model.name=loud --json",
        RUN "model.name=loud --json sweep.comm.name=shm,replicated sweep.repeats=1 "
            "sweep.retry_disturbed=0",
        "comm " RUN "model.name=loud comm_test.sizes=4KiB --json"};
    struct command command;
    char plugins[PATH_MAX];
    snprintf(plugins, sizeof plugins, "%s/tests/plugins", build_directory());
    setenv("DPBENCH_PLUGIN_PATH", plugins, 1);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        run(&command, 0, commands[i]);
        assert_int_equal(command.out[0], '{');
        assert_null(strstr(command.out, "loud: "));
    }
    run(&command, 0, RUN "model.name=loud");
    assert_null(strstr(command.out, "loud: "));
    EXPECT_WORDS("dpbench", command.err, "loud: loaded", "loud: entry", "loud: build");
    EXPECT_WORDS("dpbench", command.out, "SamplesPerSec: ");
    unsetenv("DPBENCH_PLUGIN_PATH");
}

TEST_MAIN(set_up, sandbox_teardown)
