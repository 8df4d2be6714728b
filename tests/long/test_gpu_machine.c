/*
 * test_gpu_machine.c - what is told of a GPU itself, on a machine that has one
 * (DPB_TEST_DEVICE=cuda): copies by `dpbench links`, clocks and power in a result. The logic is
 * tested without (test_links, test_links_command, test_gpu_record); this is whether CUDA and NVML
 * answer as it takes them to.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/stand_in.h"
#include "lib/test.h"

static const double deadline_s = 120.0, slow_bytes_per_s = 1e9;

/* The rate of the largest size. */
static double last_rate(const json_t *rates)
{
    size_t n = json_array_size(rates);
    assert_true(n > 0);
    return json_number_at(json_array_get(rates, n - 1), "bytes_per_s.median");
}

static void expect_no_problem(const json_t *told)
{
    if (!json_is_null(json_at(told, "problem")))
        fail_msg("NVML: %s", json_text_at(told, "problem"));
}

/* Pinned memory goes at a link's rate both ways, and a copy within the GPU is the fastest of
 * all. */
TEST(test_links)
{
    struct command command;
    if (!on_gpu())
        skip();
    dpbench_ends(&command, deadline_s, 0, "links devices topology --json --window 1ms --max 64MiB");
    const json_t *cuda = json_at(command.json, "devices.0");
    assert_string_equal(json_text_at(cuda, "name"), "cuda");
    const json_t *driver = json_at(cuda, "devices.0.driver"), *pinned = json_at(cuda, "host.0");
    expect_no_problem(driver);
    assert_true(json_number_at(driver, "sm_mhz.now") > 0);
    assert_true(json_number_at(driver, "memory_mhz.now") > 0);
    assert_string_equal(json_text_at(pinned, "memory"), "pinned");
    double to = last_rate(json_at(pinned, "to_device"));
    double from = last_rate(json_at(pinned, "from_device"));
    double within = last_rate(json_at(cuda, "pairs.0.one_way"));
    assert_string_equal(json_text_at(cuda, "pairs.0.way"), "within");
    if (!(to > slow_bytes_per_s && from > slow_bytes_per_s && within > to && within > from))
        fail_msg("to the GPU %.3g bytes/s, back %.3g, within %.3g", to, from, within);
    double latency_s = json_number_at(pinned, "latency_to_device_s.median");
    if (!(latency_s > 0 && latency_s < 1e-3))
        fail_msg("a copy of 4 bytes takes %.3g s", latency_s);
    command_free(&command);
}

TEST(test_power)
{
    struct command command;
    if (!on_gpu())
        skip();
    dpbench_ends(
        &command, deadline_s, 0,
        "-c x.ini --json run.seconds=2 run.batch=256 model.name=resnet20 data.name=synthetic "
        "device.name=cuda device.tuning=no run.steady_limit_s=0 run.results=");
    const json_t *gpu = json_at(command.json, "ranks.0.gpu");
    expect_no_problem(gpu);
    double seconds = json_number_at(gpu, "seconds"), energy_j = json_number_at(gpu, "energy_j");
    double mean_w = json_number_at(gpu, "power_w.mean"),
           limit_w = json_number_at(gpu, "power_w.limit");
    assert_true(seconds > 1.0 && seconds < 60.0);
    assert_true(json_number_at(gpu, "temperature_c.end") > 0);
    if (!(energy_j > 0 && mean_w > 0 && mean_w < 1.5 * limit_w))
        fail_msg("%.3g J in %.3g s are %.3g W of %.3g W", energy_j, seconds, mean_w, limit_w);
    command_free(&command);
}

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    sandbox_write("x.ini", "[run]\n");
    use_stand_in(false);
    return result;
}

TEST_MAIN(set_up, sandbox_teardown)
