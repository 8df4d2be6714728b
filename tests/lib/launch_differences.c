/* launch_differences.c - see launch_differences.h. */
#include "lib/launch_differences.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/launch_faults.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60.0;

/* What the launcher starts four times: dpbench, as the last one with `environment` and `last`,
 * too. */
static void write_program(const char *arguments, const char *environment, const char *last)
{
    sandbox_write("differently",
                  "#!/bin/sh\n"
                  "[ \"$PMIX_RANK\" = 3 ] || exec %s/dpbench " LAUNCH_BASE "%s\n"
                  "exec env %s %s/dpbench " LAUNCH_BASE "%s %s\n",
                  build_directory(), arguments, environment, build_directory(), arguments, last);
    assert_int_equal(chmod("differently", 0755), 0);
}

/* Runs it; it has to end with that code, or any but 0 (-1), and one message with all the words. */
static void expect_refused(launch_differences_start start, const char *title, int exit_code,
                           const char *const *words)
{
    struct started started;
    struct command command;
    char program[1100], directory[1024];
    assert_non_null(getcwd(directory, sizeof directory));
    snprintf(program, sizeof program, "%s/differently", directory);
    start(&started, program);
    command_finish(&started, &command, deadline_s);
    if (command.exit_code == 0 || (exit_code > 0 && command.exit_code != exit_code) ||
        launch_count_errors(command.err) != 1)
        fail_msg("%s: exit %d\n%s", title, command.exit_code, command.err);
    expect_words(title, command.err, words);
    json_decref(launch_take_result());
}

static void run_options(launch_differences_start start, const char *arguments,
                        const char *first_host, const char *last_host)
{
    static const struct {
        const char *all, *last, *option, *first_value, *last_value;
    } rows[] = {
        {"", "run.batch=4", "run.batch", "2", "4"},
        {"", "model.name=tiny_bn", "model.name", "tiny", "tiny_bn"},
        {"run.precision=fp32", "run.precision=fp64", "run.precision", "fp32", "fp64"},
        {"comm.bucket=64KiB", "comm.bucket=1MiB", "comm.bucket", "64KiB", "1MiB"},
        {"", "optimizer.momentum=0.5", "optimizer.momentum", "", "0.5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char all[512], option[64], first[96], last[96];
        snprintf(all, sizeof all, "%s %s", arguments, rows[i].all);
        snprintf(option, sizeof option, "started with different options: %s is '%s", rows[i].option,
                 rows[i].first_value);
        snprintf(first, sizeof first, "' at rank 0 (%s)", first_host);
        snprintf(last, sizeof last, "'%s' at rank 3 (%s)", rows[i].last_value, last_host);
        write_program(all, "", rows[i].last);
        expect_refused(start, rows[i].last, 2, WORDS(option, first, last));
    }
}

static void run_unknown(launch_differences_start start, const char *arguments,
                        const char *last_host)
{
    char rank[96];
    snprintf(rank, sizeof rank, "rank 3 (%s): ", last_host);
    write_program(arguments, "", "run.bogus=1");
    expect_refused(start, "run.bogus=1", 2, WORDS(rank, "unknown option 'bogus'"));
}

/* A copy of a plugin that says it is of another version. */
static void run_plugins(launch_differences_start start, const char *arguments)
{
    static const char version[] = DPB_VERSION;
    static const char *const files[][2] = {{"comm_ring_tcp.so", "comm ring_tcp "},
                                           {"model_tiny.so", "model tiny "}};
    char environment[1100], directory[1024], words[2][64];
    assert_non_null(getcwd(directory, sizeof directory));
    snprintf(environment, sizeof environment, "DPBENCH_PLUGIN_PATH=%s/other", directory);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdir("other", 0755), 0);
        sandbox_copy_plugin("other", files[i][0], version, sizeof version, '9');
        snprintf(words[0], sizeof words[0], "%s" DPB_VERSION, files[i][1]);
        snprintf(words[1], sizeof words[1], "%s9%s", files[i][1], &version[1]);
        write_program(arguments, environment, "");
        expect_refused(
            start, files[i][0], -1,
            WORDS("the ranks differ in plugins: rank 0 has '", "rank 3 has '", words[0], words[1]));
        remove_directory("other");
    }
}

void launch_differences_run(launch_differences_start start, const char *arguments,
                            const char *first_host, const char *last_host)
{
    run_options(start, arguments, first_host, last_host);
    run_unknown(start, arguments, last_host);
    run_plugins(start, arguments);
}
