/* needs: cpu alone */
/*
 * test_costs.c - what looking at a run costs the run: LeNet with run.trace, with run.monitor, and
 * twice with neither, by turns. A run's step is its fastest one, which other processes touch least.
 * The two plain runs of a turn say how far equal runs differ here; where they differ by more than
 * what is to be found, there is no conclusion.
 */
#include <math.h>
#include <stdio.h>

#include "base/comparison.h"
#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/test.h"

enum { TURNS = 10, PLAIN = 0, TRACE, MONITOR, PLAIN_AGAIN, FORMS };

static const double deadline_s = 60;
static const struct {
    const char *settings;
    double most; /* of the step, as a share */
} forms[FORMS] = {{"", 0}, {"run.trace=t.json", 0.02}, {"run.monitor=1s", 0.005}, {"", 0}};

/* The logarithm of the run's step. */
static double measure(int form)
{
    struct command command;
    dpbench(&command, deadline_s,
            "-c /dev/null --json run.results= run.seconds=1.5 run.steady_limit_s=0 "
            "run.warmup_steps=5 run.workers=1 run.batch=8 model.name=lenet device.threads=1 %s",
            forms[form].settings);
    if (command.exit_code != 0)
        fail_msg("%s: %s", forms[form].settings, command.err);
    const json_t *steps = json_at(command.json, "timing.step_ns");
    const size_t n = json_array_size(steps);
    double step = INFINITY;
    assert_true(n > 10);
    for (size_t i = 0; i < n; i++)
        step = fmin(step, json_number_value(json_array_get(steps, i)));
    command_free(&command);
    return log(step);
}

TEST(test_costs)
{
    double steps[FORMS][TURNS], differences[FORMS][TURNS];
    struct dpb_estimate noise, cost;
    bool undecided = false;
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < FORMS; i++) {
            const int form = (turn + i) % FORMS;
            steps[form][turn] = measure(form);
        }
    for (int form = TRACE; form < FORMS; form++)
        for (int turn = 0; turn < TURNS; turn++) {
            const double plain = form == PLAIN_AGAIN
                                     ? steps[PLAIN][turn]
                                     : (steps[PLAIN][turn] + steps[PLAIN_AGAIN][turn]) / 2;
            differences[form][turn] = steps[form][turn] - plain;
        }
    dpb_estimate_of(differences[PLAIN_AGAIN], TURNS, &noise);
    const double equal = fabs(noise.mean) + dpb_student(TURNS - 1) * noise.error;
    print_message("equal runs differ by %.2f %%\n", 100 * equal);
    for (int form = TRACE; form < PLAIN_AGAIN; form++) {
        dpb_estimate_of(differences[form], TURNS, &cost);
        print_message("%s: %+.2f %% of the step, +- %.2f\n", forms[form].settings, 100 * cost.mean,
                      100 * dpb_student(TURNS - 1) * cost.error);
        undecided |= equal > forms[form].most;
        if (cost.mean > forms[form].most + equal)
            fail_msg("%s costs %.2f %% of the step", forms[form].settings, 100 * cost.mean);
    }
    if (undecided) {
        print_message("no conclusion: equal runs differ by more than the costs that are allowed\n");
        skip();
    }
}

TEST_MAIN(sandbox_setup, sandbox_teardown)
