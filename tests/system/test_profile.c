/* test_profile.c - run.profile: the table, the result, and the device that keeps no account. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "lib/cases.h"
#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/training.h"

static const double deadline_s = 60.0;

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    sandbox_write("x.ini", "[run]\nresults =\nsteps = 3\nsteady_limit_s = 0\nwarmup_steps = 1\n"
                           "profile = yes\n[model]\nname = tiny_bn\n[device]\nthreads = 1\n");
    return result;
}

static void test_result(void **state)
{
    struct command command;
    (void)state;
    if (!have_cpu_device())
        skip();
    dpbench(&command, deadline_s, "-c x.ini --json run.workers=2 comm.name=shm eval.final=yes");
    if (command.exit_code != 0)
        fail_msg("exit %d\n%s", command.exit_code, command.err);
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
    assert_true(json_number_at(command.json, "profile.limits.fp32_flops_per_s") > 1e9);
    assert_string_equal(json_text_at(command.json, "profile.how"), "the clock around each op");
    command_free(&command);
}

static void test_table(void **state)
{
    struct command command;
    (void)state;
    if (!have_cpu_device())
        skip();
    dpbench(&command, deadline_s, "-c x.ini");
    assert_int_equal(command.exit_code, 0);
    assert_non_null(strstr(command.out, "backward weights"));
    assert_non_null(strstr(command.out, "sums by kind"));
    assert_non_null(strstr(command.out, "limits: "));
    command_free(&command);
}

static void test_refused(void **state)
{
    struct command command;
    (void)state;
    dpbench(&command, deadline_s, "check -c x.ini device.name=reference run.precision=fp64");
    assert_int_equal(command.exit_code, 2);
    assert_non_null(strstr(command.err, "x.ini:6: device 'reference' keeps no account"));
    command_free(&command);
}

int main(void)
{
    add_case(test_result, NULL, "every op of the timed steps is in the result");
    add_case(test_table, NULL, "and in the table");
    add_case(test_refused, NULL, "a device without an account is refused");
    return run_cases("profile", set_up, sandbox_teardown);
}
