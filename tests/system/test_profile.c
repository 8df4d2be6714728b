/* test_profile.c - run.profile: the table, the result, and the device that keeps no account. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/test.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    sandbox_write("x.ini", "[run]\nresults =\nsteps = 3\nsteady_limit_s = 0\nwarmup_steps = 1\n"
                           "profile = yes\n[model]\nname = tiny_bn\n[device]\nthreads = 1\n");
    return result;
}

TEST(test_result)
{
    struct command command;
    if (!have_cpu_device())
        skip();
    dpbench_ends(&command, deadline_s, 0,
                 "-c x.ini --json run.workers=2 comm.name=shm eval.final=yes");
    size_t n = json_array_size(json_at(command.json, "profile.rows"));
    double elapsed_ns = json_number_at(command.json, "timing.elapsed_ns"), sum_ns = 0;
    assert_true(n > 10);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(json_at(command.json, "profile.rows"), i);
        const char *pass = json_string_value(json_object_get(row, "pass"));
        assert_true(json_string_length(json_object_get(row, "layer")) > 0);
        /* Warm-up does not count, evaluation comes after it. */
        assert_int_equal(json_integer_value(json_object_get(row, "calls")), 3);
        assert_true(strcmp(pass, "forward") == 0 || strcmp(pass, "backward") == 0);
        sum_ns += json_number_value(json_object_get(row, "ns"));
    }
    assert_true(sum_ns > 0 && sum_ns < elapsed_ns);
    assert_true(json_number_at(command.json, "profile.limits.fp32_flops_per_s") >
                1e7); /* on a loaded machine, too */
    assert_string_equal(json_text_at(command.json, "profile.how"), "the clock around each op");
}

/* Evaluations between the timed steps have no part in it. */
TEST(test_evaluation_does_not_count)
{
    struct command command;
    size_t i;
    const json_t *row;
    if (!have_cpu_device())
        skip();
    dpbench_ends(&command, deadline_s, 0, "-c x.ini --json eval.every=1 eval.final=yes");
    json_array_foreach(json_at(command.json, "profile.rows"), i, row)
    {
        if (json_number_at(row, "calls") != 3)
            fail_msg("%s: %s: %.0f calls in 3 steps", json_text_at(row, "layer"),
                     json_text_at(row, "what"), json_number_at(row, "calls"));
    }
}

struct sums {
    double ns, flops;
};

/* Rows say the pass that their work belongs to: those of forward come first. */
static struct sums add_pass(const json_t *rows, const char *pass, int step_calls)
{
    struct sums sums = {0, 0};
    const json_t *row;
    size_t i;
    bool is_over = false;
    json_array_foreach(rows, i, row)
    {
        const char *what = json_text_at(row, "what");
        if (strcmp(json_text_at(row, "pass"), pass) != 0) {
            assert_true(strncmp(what, pass, strlen(pass)) != 0);
            is_over = is_over || sums.ns > 0;
            continue;
        }
        assert_false(is_over);
        assert_true(json_number_at(row, "calls") == step_calls);
        sums.ns += json_number_at(row, "ns");
        sums.flops += json_number_at(row, "flops");
    }
    return sums;
}

/* Of one worker the account's passes lie within the breakdown's, and all products are in it. */
TEST(test_sums)
{
    enum { STEPS = 3, BATCH = 4 };
    struct command command;
    if (!have_cpu_device())
        skip();
    dpbench_ends(&command, deadline_s, 0, "-c x.ini --json run.batch=%d model.name=lenet", BATCH);
    const json_t *rows = json_at(command.json, "profile.rows");
    struct sums forward = add_pass(rows, "forward", STEPS);
    struct sums backward = add_pass(rows, "backward", STEPS);
    double forward_ns = STEPS * expect_number(&command, "timing.breakdown_ns.forward");
    double backward_ns = STEPS * expect_number(&command, "timing.breakdown_ns.backward");
    if (!(forward.ns > 0 && forward.ns <= forward_ns) ||
        !(backward.ns > 0 && backward.ns <= backward_ns))
        fail_msg("the ops take %.0f ns of %.0f forward, %.0f of %.0f backward", forward.ns,
                 forward_ns, backward.ns, backward_ns);
    double macs = STEPS * BATCH * expect_number(&command, "model.macs_per_sample");
    assert_true(forward.flops == 2 * macs);
    assert_true(backward.flops > 2 * macs && backward.flops < 4 * macs);
}

/* What the lines between two of the table's heads say: shares of the whole, in percent. */
static double add_shares(const char *table, const char *head, const char *end)
{
    enum { SHARE_AT = 4 + 24 + 1 + 12 + 1 + 34 + 1 + 10 };
    double sum = 0;
    const char *line = strstr(table, head);
    assert_non_null(line);
    for (line = strchr(line, '\n') + 1; strncmp(line, end, strlen(end)) != 0;
         line = strchr(line, '\n') + 1) {
        assert_true(strcspn(line, "\n") > SHARE_AT);
        sum += strtod(line + SHARE_AT, NULL);
    }
    return sum;
}

TEST(test_table)
{
    struct command command;
    if (!have_cpu_device())
        skip();
    dpbench_ends(&command, deadline_s, 0, "-c x.ini");
    assert_non_null(strstr(command.out, "backward weights"));
    assert_non_null(strstr(command.out, "limits: "));
    double rows = add_shares(command.out, "    layer  ", "    sums by kind ");
    double kinds = add_shares(command.out, "    sums by kind ", "    all ");
    if (!(rows > 97 && rows < 103 && kinds > 97 && kinds < 103))
        fail_msg("layers are %.1f %%, kinds %.1f %%: %s", rows, kinds, command.out);
}

TEST(test_refused)
{
    dpbench_says(deadline_s, 2, WORDS("x.ini:6: device 'reference' keeps no account"),
                 "check -c x.ini device.name=reference run.precision=fp64");
}

TEST_MAIN(set_up, sandbox_teardown)
