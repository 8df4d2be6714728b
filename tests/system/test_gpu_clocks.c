/*
 * test_gpu_clocks.c - what a result says of the clocks and the power of the GPUs that it was
 * measured on: a device that computes nothing says which GPU it would be on, and a
 * libnvidia-ml.so.1 of the tests' (tests/fakes) answers in the driver's place.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/says.h"
#include "lib/test.h"
#include "lib/timed.h"

enum { MAX_SETTINGS = 4 };
static const char gpu[] = "00000000:1b:00.0";

/* A run of one worker under these settings (NAME=VALUE, ended by NULL), with that library. */
static void run(struct command *command, const char *fake, const char *const *settings,
                const char *address)
{
    char path[4096];
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i++)
        assert_int_equal(putenv((char *)settings[i]), 0);
    snprintf(path, sizeof path, "%s/tests/fakes/%s", build_directory(), fake);
    setenv("LD_LIBRARY_PATH", path, 1);
    timed_run(command, 0, "device.gpu=%s", address);
    unsetenv("LD_LIBRARY_PATH");
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(settings[i], "="), settings[i]);
        unsetenv(name);
    }
}

static const char *warning(const struct command *command, const char *code)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_at(command->json, "warnings"), i, entry)
    {
        if (strcmp(json_text_at(entry, "code"), code) == 0)
            return json_text_at(entry, "text");
    }
    return "";
}

static void expect(const struct command *command, const char *path, double value)
{
    double is = expect_number(command, path);
    if (!(fabs(is - value) <= 1e-9 * fabs(value)))
        fail_msg("%s is %.17g, not %.17g", path, is, value);
}

/* `application`: there are such clocks. */
static void expect_numbers(const char *fake, const char *setting, bool application)
{
    const char *const settings[] = {setting, NULL};
    struct command command;
    run(&command, fake, settings, gpu);
    const char *const texts[][2] = {{"ranks.0.gpu.pci_address", gpu},
                                    {"ranks.0.gpu.name", "NVIDIA Fake 0"},
                                    {"ranks.0.gpu.driver", "580.82.07"},
                                    {"ranks.0.gpu.reasons.begin.0", "idle"},
                                    {"ranks.0.gpu.reasons.end.0", "application_clocks"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(json_text_at(command.json, texts[i][0]), texts[i][1]);
    expect(&command, "ranks.0.gpu.sm_mhz.begin", 1980);
    expect(&command, "ranks.0.gpu.sm_mhz.end", 1740);
    expect(&command, "ranks.0.gpu.sm_mhz.maximal", 1980);
    if (application) {
        expect(&command, "ranks.0.gpu.sm_mhz.application", 1830);
        expect(&command, "ranks.0.gpu.memory_mhz.application", 3200);
    } else {
        assert_true(json_is_null(json_at(command.json, "ranks.0.gpu.sm_mhz.application")));
    }
    expect(&command, "ranks.0.gpu.memory_mhz.end", 3201);
    expect(&command, "ranks.0.gpu.memory_mhz.maximal", 3202);
    expect(&command, "ranks.0.gpu.temperature_c.begin", 40);
    expect(&command, "ranks.0.gpu.temperature_c.end", 61);
    expect(&command, "ranks.0.gpu.power_w.end", 612.5);
    expect(&command, "ranks.0.gpu.power_w.limit", 700);
    expect(&command, "ranks.0.gpu.energy_j", 250.5);
    expect(&command, "ranks.0.gpu.power_w.mean",
           250.5 / expect_number(&command, "ranks.0.gpu.seconds"));
    expect(&command, "ranks.0.gpu.held_s.power", setting ? 0.25 : 0);
    expect(&command, "ranks.0.gpu.held_s.thermal", 0);
    /* The samples lie around the timed steps. */
    double timed_s = expect_number(&command, "timing.elapsed_ns") * 1e-9;
    double seconds = expect_number(&command, "ranks.0.gpu.seconds");
    assert_true(seconds >= timed_s && seconds < timed_s + 2);
    assert_true(json_is_null(json_at(command.json, "ranks.0.gpu.problem")));
    assert_true(json_is_null(json_at(command.json, "ranks.0.gpu.unknown")));
    assert_true(json_is_boolean(json_at(command.json, "throttled")));
    assert_true(json_is_false(json_at(command.json, "throttled")) == !setting);
    assert_true((warning(&command, "gpu_throttled")[0] == '\0') == !setting);
    assert_string_equal(warning(&command, "gpu_unknown"), "");
    command_free(&command);
}

/* By what NVML has, by what it had before, and by a field's older form where it lacks that one. */
TEST(test_numbers)
{
    expect_numbers("nvml", NULL, false);
    expect_numbers("nvml", "FAKE_NVML_HELD_NS=250000000", false);
    expect_numbers("nvml_before", NULL, true);
    expect_numbers("nvml_before", "FAKE_NVML_HELD_NS=250000000", true);
    expect_numbers("nvml_between", "FAKE_NVML_HELD_NS=250000000", true);
    putenv((char *)"FAKE_NVML_FIELD=74");
    expect_numbers("nvml_between", "FAKE_NVML_HELD_NS=250000000", true);
    unsetenv("FAKE_NVML_FIELD");
}

/* Whether the columns of a series are as long as its seconds, which rise; how long. */
static size_t expect_series(const json_t *series)
{
    const json_t *seconds = json_object_get(series, "seconds"), *column;
    const size_t n = json_array_size(seconds);
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)series, name, column)
    {
        if (json_is_array(column))
            assert_int_equal(json_array_size(column), n);
    }
    for (size_t i = 1; i < n; i++)
        assert_true(json_real_value(json_array_get(seconds, i)) >
                    json_real_value(json_array_get(seconds, i - 1)));
    return n;
}

/* run.monitor: the GPU and the machine, from the first step to the end of the training. */
TEST(test_monitor)
{
    struct command command;
    run(&command, "nvml", NULL, "00000000:1b:00.0 run.monitor=20ms");
    const json_t *machine = json_at(command.json, "monitor.machines.0");
    const json_t *seen = json_at(command.json, "monitor.gpus.0");
    const size_t n = expect_series(machine), n_gpu = expect_series(seen);
    assert_true(n > 2 && n_gpu > 2 && n_gpu <= n);
    expect(&command, "monitor.gpus.0.rank", 0);
    expect(&command, "monitor.gpus.0.power_w.1", 612.5);
    expect(&command, "monitor.machines.0.interval_s", 0.02);
    assert_true(json_number_at(machine, "cpus") >= 1);
    /* Kernels since 6.2 count the pages of a process by processor: the first sums may be MB off. */
    assert_true(json_number_at(machine, "own_memory_bytes.2") > 1e5);
    assert_true(json_number_at(machine, "memory_bytes.2") >
                json_number_at(machine, "own_memory_bytes.2"));
    assert_true(json_number_at(machine, "monitor_cpu_s") > 0);
    /* As the driver counted around the timed steps. */
    expect(&command, "monitor.joules_per_sample.gpus",
           expect_number(&command, "ranks.0.gpu.energy_j") /
               (expect_number(&command, "timing.steps") * expect_number(&command, "batch.global")));
    command_free(&command);
    run(&command, "nvml", NULL, gpu);
    assert_true(json_is_null(json_at(command.json, "monitor")));
    command_free(&command);
}

/* Without a GPU nothing is asked, whatever libraries there are. */
TEST(test_host)
{
    struct command command;
    run(&command, "nvml_old", NULL, "");
    assert_true(json_is_null(json_at(command.json, "ranks.0.gpu")));
    assert_true(json_is_null(json_at(command.json, "throttled")));
    assert_string_equal(warning(&command, "gpu_unknown"), "");
    command_free(&command);
}

TEST(test_throttled)
{
    static const struct {
        const char *settings[2], *how;
    } cases[] = {
        {{"FAKE_NVML_REASONS=0x24"},
         "0000:1b:00.0 were held down while it was timed: power_cap, "
         "thermal; its multiprocessors ran at 1740 of 1980 MHz"},
        /* Idle and set clocks are none; time is what counts, also where no bit is seen. */
        {{"FAKE_NVML_HELD_NS=1000000000"}, "timed: held for 1.0 s of "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct command command;
        run(&command, "nvml", cases[i].settings, gpu);
        assert_true(json_is_true(json_at(command.json, "throttled")));
        assert_true(json_is_true(json_at(command.json, "ranks.0.gpu.throttled")));
        expect_part(warning(&command, "gpu_throttled"), cases[i].how);
        command_free(&command);
    }
}

TEST(test_unknown)
{
    static const struct {
        const char *fake, *settings[2], *address, *path, *text;
    } cases[] = {
        {"none", {NULL}, gpu, "ranks.0.gpu.problem", "there is no NVML: libnvidia-ml.so.1: cannot"},
        {"nvml_old",
         {NULL},
         gpu,
         "ranks.0.gpu.problem",
         "the NVIDIA driver is too old: its libnvidia-ml.so.1 has no nvmlInit_v2"},
        {"nvml",
         {"FAKE_NVML_INIT=9"},
         gpu,
         "ranks.0.gpu.problem",
         "nvmlInit_v2: Driver Not Loaded (9)"},
        {"nvml",
         {NULL},
         "00000000:99:00.0",
         "ranks.0.gpu.problem",
         "nvmlDeviceGetHandleByPciBusId_v2 of 00000000:99:00.0: Not Found (6)"},
        {"nvml_without_energy",
         {NULL},
         gpu,
         "ranks.0.gpu.unknown",
         "libnvidia-ml.so.1 has no nvmlDeviceGetTotalEnergyConsumption"},
        {"nvml",
         {"FAKE_NVML_ERROR=nvmlDeviceGetPowerUsage:3"},
         gpu,
         "ranks.0.gpu.unknown",
         "nvmlDeviceGetPowerUsage: Not Supported (3)"},
    };
    /* The first is not for a machine that has a driver. */
    size_t first = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL;
    for (size_t i = first; i < sizeof cases / sizeof *cases; i++) {
        struct command command;
        run(&command, cases[i].fake, cases[i].settings, cases[i].address);
        expect_part(json_text_at(command.json, cases[i].path), cases[i].text);
        expect_part(warning(&command, "gpu_unknown"), cases[i].text);
        bool some = strcmp(cases[i].path, "ranks.0.gpu.unknown") == 0;
        /* What was told is there all the same; what was not is null. */
        assert_true(json_is_boolean(json_at(command.json, "ranks.0.gpu.throttled")) == some);
        assert_true(json_is_null(json_at(command.json, "throttled")) == !some);
        if (some) {
            bool energy = strstr(cases[i].text, "Energy") != NULL;
            expect(&command, "ranks.0.gpu.power_w.limit", 700);
            assert_true(json_is_null(json_at(command.json, "ranks.0.gpu.energy_j")) == energy);
            assert_true(json_is_null(json_at(command.json, "ranks.0.gpu.power_w.end")) == !energy);
        }
        command_free(&command);
    }
}

/* For people: beside the rate, and in a sweep's table. */
TEST(test_tables)
{
    struct command command;
    struct started started;
    char path[4096];
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s/tests/fakes/nvml", build_directory());
    for (int throttled = 0; throttled < 2; throttled++) {
        const char *environment[] = {path, throttled ? "FAKE_NVML_REASONS=0x80" : NULL, NULL};
        char ini[] = "/tmp/dpbench-test-gpu-clocks-XXXXXX";
        const char text[] = "[run]\nresults =\nwarmup_steps = 1\nsteady_limit_s = 0\nsteps = 3\n"
                            "[model]\nname = timed\n[data]\nname = timed\n"
                            "[device]\nname = timed\nthreads = 1\ngpu = 00000000:3d:00.0\n";
        assert_non_null(mkdtemp(ini));
        char file[128];
        snprintf(file, sizeof file, "%s/x.ini", ini);
        write_file(file, text, strlen(text));
        dpbench_start(&started, environment, "-c %s", file);
        command_finish(&started, &command, TIMED_DEADLINE_S);
        assert_int_equal(command.exit_code, 0);
        const char *rate = strstr(command.out, "samples/s ");
        assert_non_null(rate);
        const char *mark = strstr(rate, "; THROTTLED: a GPU's clocks were held down\n");
        assert_true((mark != NULL && mark < strchr(rate, '\n')) == (throttled == 1));
        assert_true((strstr(command.out, "gpu_throttled") != NULL) == (throttled == 1));
        command_free(&command);
        dpbench_start(&started, environment, "-c %s sweep.comm.name=independent", file);
        command_finish(&started, &command, TIMED_DEADLINE_S);
        assert_int_equal(command.exit_code, 0);
        assert_true((strstr(command.out, "- ^: power, heat") != NULL) == (throttled == 1));
        command_free(&command);
        remove_directory(ini);
    }
}

TEST_MAIN(timed_setup, timed_teardown)
