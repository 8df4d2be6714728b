/*
 * test_tune_command.c - `dpbench tune` on the timed device, whose rates are planted: what it finds,
 * by which trials, what ends a direction, what is left when it is interrupted, what it refuses.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"
#include "lib/timed.h"

static const double deadline_s = 60.0;

/* Nothing but what is planted takes time; a machine that is busy adds some 10 ms a step. */
static const char base[] = "[run]\nresults =\nwarmup_steps = 1\nsteady_limit_s = 0\nsteps = 2\n"
                           "[model]\nname = timed\nlayers = 100\n[data]\nname = timed\n"
                           "[comm]\nname = timed\n[device]\nname = timed\nthreads = 1\n";

/* [tune] is line 16, its first key line 17. What each value gains stays on its side of the
 * threshold, and above 1, where a busy machine adds a sixth to a step. */
#define PLANTED \
    "[tune]\ndevice.forward = 500, 220, 100, 85, 72\nthreshold = 70\nretry_disturbed = 0\n"

static void write_base(const char *tune)
{
    sandbox_write("tune.ini", "%s%s", base, tune);
}

static void run(struct command *command, int exit_code, const char *arguments)
{
    dpbench_ends(command, deadline_s, exit_code, "%s", arguments);
}

/* The trials' values on an axis: "8 16 32". */
static void expect_trials(const json_t *document, const char *axis, const char *values)
{
    char text[256] = "";
    size_t i;
    json_t *trial;
    json_array_foreach(json_at(document, "tune.trials"), i, trial)
    {
        const json_t *value = json_object_get(json_object_get(trial, "cell"), axis);
        size_t at = strlen(text);
        snprintf(text + at, sizeof text - at, "%s%s", at > 0 ? " " : "", json_string_value(value));
    }
    if (strcmp(text, values) != 0)
        fail_msg("%s: trials '%s', not '%s'", axis, text, values);
}

/* The last two values gain 39 % over the third: tried, not taken. */
TEST(test_finds_the_planted_best)
{
    struct command command;
    write_base(PLANTED);
    run(&command, 0, "tune -c tune.ini --output found.json");
    EXPECT_WORDS("tune", command.out, "trial  device.forward     samples/s  taken      gain",
                 "5 trials of 5 cells; the best setting: trial 3, ",
                 "\n\n[device]\nforward = 100\n");
    EXPECT_WORDS("tune", command.out, "\n    1  500  ", "\n    4  85  ");
    assert_null(strstr(strstr(command.out, "trial  ") + 1, "trial  ")); /* the table stands once */
    assert_null(strstr(command.err, "trial  "));
    expect_part(command.err, "result: found.json");
    json_t *document = own_json(json_load_file("found.json", 0, NULL));
    assert_string_equal(json_text_at(document, "schema"), "dpbench.sweep/1");
    assert_string_equal(json_text_at(document, "status"), "ok");
    expect_trials(document, "device.forward", "500 220 100 85 72");
    assert_int_equal(json_array_size(json_at(document, "runs")), 5);
    /* The file and the directory of the runs say the same. */
    run(&command, 0, "report --each found.json found.json.runs");
    const char *second = strstr(command.out, "found.json.runs\n");
    assert_non_null(second);
    assert_non_null(strstr(second, "5 trials of 5 cells; the best setting: trial 3, "));
}

/* comm 'timed' refuses two workers, and core a network of terabytes. */
TEST(test_refusals_end_directions)
{
    struct command command;
    write_base("[tune]\nrun.workers = 1..4\nmodel.parameters = 32, 1000000000\n"
               "device.forward = 200, 50\nretry_disturbed = 0\nthreshold = 40\n");
    run(&command, 0, "tune -c tune.ini --json");
    assert_string_equal(json_text_at(command.json, "status"), "ok");
    expect_trials(command.json, "run.workers", "1 2 1 1 2 1");
    expect_trials(command.json, "model.parameters", "32 32 1000000000 32 32 1000000000");
    expect_trials(command.json, "device.forward", "200 200 200 50 50 50");
    expect_line(command.err, "^ +2  2 +32 +200 +failed: .*comm 'timed' is for one worker$");
    expect_line(command.err, "^ +3  1 +1000000000 +200 +failed: this run needs .* of memory");
    assert_int_equal(json_number_at(command.json, "tune.best.trial"), 4);
    run(&command, 1,
        "tune -c tune.ini tune.run.workers=2,3 tune.model.parameters=32 --json --output none.json");
    assert_string_equal(json_text_at(command.json, "status"), "failed");
    assert_true(json_is_null(json_at(command.json, "tune.best")));
    expect_part(command.err, "[tune]: no trial has a value");
    run(&command, 0, "report none.json.runs");
    expect_part(command.out, "no trial has a value");
}

/* What ran is kept, and the search goes on from there. */
TEST(test_interrupted)
{
    struct started started;
    struct command command;
    write_base(PLANTED);
    dpbench_start(&started, NULL, "tune -c tune.ini --output cut.json");
    double begin_s = now_s();
    while (access("cut.json.runs/000001.json", F_OK) != 0 && now_s() - begin_s < deadline_s)
        usleep(1000);
    kill(started.pid, SIGINT);
    command_finish(&started, &command, deadline_s);
    assert_int_equal(command.exit_code, 130);
    expect_line(command.out, "^[12] trials? of 5 cells; the best so far: trial [12], ");
    expect_line(command.err, "^to run the rest: dpbench rerun cut.json --resume$");
    run(&command, 0, "rerun cut.json --resume --json --output whole.json");
    expect_line(command.err, "^[12] runs are there, from cut.json$");
    expect_trials(command.json, "device.forward", "500 220 100 85 72");
    assert_int_equal(json_array_size(json_at(command.json, "runs")), 5);
}

TEST(test_refused)
{
    static const struct {
        const char *arguments, *tune, *message;
    } rows[] = {
        {"tune -c tune.ini", "", "tune.ini has no [tune]: add the section"},
        {"tune -c tune.ini", "[tune]\nrun.batch = 8, 16\ntreshold = 5\n",
         "tune.ini:18: 'treshold' is no key of [tune]"},
        {"tune -c tune.ini", "[tune]\nrun.bach = 8, 16\n", "tune.ini:17: unknown option 'bach'"},
        {"tune -c tune.ini", "[tune]\nrun.batch = 16..8\n", "tune.ini:17: tune.run.batch: '16..8'"},
        {"check -c tune.ini", "[tune]\nrun.batch = 8, 16\nobjective = time_to_target\n",
         "tune.ini:18: tune.objective = time_to_target needs a target"},
        {"-c tune.ini sweep.run.workers=1,2", "[tune]\nrun.batch = 8, 16\n",
         "tune.ini:17: [tune] stands beside a [sweep] (command line)"},
        {"comm -c tune.ini", "[tune]\nrun.batch = 8, 16\n", "`dpbench comm` measures one"},
        {"gate --base /bin/true -c tune.ini", "[tune]\nrun.batch = 8, 16\n",
         "`dpbench gate` runs the same cells by both builds"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct command command;
        write_base(rows[i].tune);
        run(&command, 2, rows[i].arguments);
        expect_part(command.err, rows[i].message);
    }
}

TEST_MAIN(sandbox_setup, sandbox_teardown)
