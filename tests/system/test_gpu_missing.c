/* needs: cuda stand-in */
/*
 * test_gpu_missing.c - what is said for want of a GPU: by `dpbench plugins`, by a run on device
 * cuda and by `dpbench links`, with a libcuda.so.1 that answers as it is told (tests/fakes). Where
 * device cuda was not built, why that was.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/says.h"
#include "lib/test.h"

static const double deadline_s = 60;

/* dpbench ARGUMENTS, with that library in the driver's place. */
static void run(struct command *command, const char *fake, const char *setting,
                const char *arguments)
{
    char path[4096];
    struct started started;
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s/tests/fakes/%s", build_directory(), fake);
    dpbench_start(&started, WORDS(path, setting), "%s", arguments);
    command_finish(&started, command, deadline_s);
}

/* The device cuda in a list of `dpbench plugins --json`. */
static const json_t *cuda_in(const json_t *list)
{
    size_t i;
    const json_t *row;
    json_array_foreach(list, i, row)
    {
        if (strcmp(json_text_at(row, "kind"), "device") == 0 &&
            strcmp(json_text_at(row, "name"), "cuda") == 0)
            return row;
    }
    return NULL;
}

static bool is_built(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/plugins/device_cuda.so", build_directory());
    return access(path, F_OK) == 0;
}

CASE(test_not_built)
{
    struct command command;
    run(&command, "none", NULL, "plugins --json");
    const json_t *row = cuda_in(json_at(command.json, "not_built"));
    assert_non_null(row);
    const char *reason = json_text_at(row, "reason");
    if (strstr(reason, "CUDA=no") == NULL && strstr(reason, "at build time") == NULL &&
        strstr(reason, "is the first that will do") == NULL)
        fail_msg("'%s' does not say what was missing", reason);
    command_free(&command);
}

CASE(test_missing)
{
    static const struct {
        const char *fake, *setting, *words;
    } cases[] = {
        {"none", NULL, "there is no NVIDIA driver: libcuda.so.1: cannot open shared object file"},
        {"cuda", "FAKE_CUDA_VERSION=11040",
         "the NVIDIA driver is too old: it is for CUDA 11.4, and this was built against "},
        {"cuda", "FAKE_CUDA_INIT=100", "finds no GPU"},
        {"cuda", "FAKE_CUDA_INIT=803", "does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"}};
    /* The first is not for a machine that has a driver. */
    size_t first = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL;
    for (size_t i = first; i < sizeof cases / sizeof *cases; i++) {
        struct command command;
        run(&command, cases[i].fake, cases[i].setting, "plugins --json");
        const json_t *row = cuda_in(json_at(command.json, "plugins"));
        assert_non_null(row);
        expect_part(json_text_at(row, "missing"), cases[i].words);
        command_free(&command);
        run(&command, cases[i].fake, cases[i].setting, "-c x.ini");
        assert_int_equal(command.exit_code, 2);
        expect_part(command.err, cases[i].words);
        command_free(&command);
        run(&command, cases[i].fake, cases[i].setting, "-c x.ini sweep.run.batch=2,4");
        assert_int_equal(command.exit_code, 2);
        expect_part(command.err, cases[i].words);
        assert_null(strstr(command.err, "[1/")); /* no cell has begun */
        command_free(&command);
        run(&command, cases[i].fake, cases[i].setting, "links devices");
        assert_int_equal(command.exit_code, 0);
        expect_part(command.out, "devices of cuda: none: ");
        expect_part(command.out, cases[i].words);
        command_free(&command);
    }
}

/* The processes that have started the driver; `launcher`: whether that process is one of them. */
static size_t count_starts(const char *path, pid_t launcher, bool *is_one)
{
    FILE *file = fopen(path, "r");
    size_t n = 0;
    *is_one = false;
    for (int pid; file && fscanf(file, "%d", &pid) == 1; n++)
        *is_one |= pid == launcher;
    if (file)
        fclose(file);
    (void)remove(path);
    return n;
}

/* A driver that was started has threads in its process, which then take the launcher's signals. */
CASE(test_launcher_starts_no_driver)
{
    static const struct {
        const char *arguments;
        bool asks;
    } cases[] = {{"plugins", true},
                 {"check -c x.ini", true},
                 {"-c x.ini", true},
                 {"help device.ids", false},
                 {"list", false}};
    char path[4096], starts[4096], here[2048];
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s/tests/fakes/cuda", build_directory());
    snprintf(starts, sizeof starts, "FAKE_CUDA_STARTS=%s/starts", getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct started started;
        struct command command;
        bool launcher;
        dpbench_start(&started, WORDS(path, starts), "%s", cases[i].arguments);
        const pid_t pid = started.pid;
        command_finish(&started, &command, deadline_s);
        const size_t n = count_starts(strchr(starts, '=') + 1, pid, &launcher);
        if (launcher || cases[i].asks != (n > 0))
            fail_msg("'%s': %zu processes start the driver%s", cases[i].arguments, n,
                     launcher ? ", and the launcher is one" : "");
        command_free(&command);
    }
}

static int set_up(void **state)
{
    int result = sandbox_setup(state);
    sandbox_write("x.ini", "[run]\nbatch = 4\nsteps = 1\nresults =\n[model]\nname = lenet\n"
                           "[data]\nname = synthetic\n[device]\nname = cuda\n");
    unsetenv("DPBENCH_PLUGIN_PATH");
    return result;
}

/* One of the two is so. */
int main(void)
{
    if (is_built()) {
        add_case(test_missing, NULL, "missing");
        add_case(test_launcher_starts_no_driver, NULL, "the launcher starts no driver");
    } else {
        add_case(test_not_built, NULL, "not built");
    }
    return test_main(set_up, sandbox_teardown);
}
