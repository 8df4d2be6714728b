/* needs: native */
/*
 * test_cuda_driver.c - what is said of a machine that lacks something for CUDA, with a libcuda.so.1
 * that answers as it is told (tests/fakes). The loader reads LD_LIBRARY_PATH when a process starts:
 * each case is this program again, as `test_cuda_driver words BUILT`.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cuda/driver.h"
#include "lib/test.h"

/* The words of a process that has `settings` (NAME=VALUE ...; ended by NULL) in its environment. */
static void words(const char *built, char *const *settings, char text[1024])
{
    int pipe_ends[2], status;
    assert_int_equal(pipe(pipe_ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipe_ends[1], STDOUT_FILENO);
        execle("/proc/self/exe", "test_cuda_driver", "words", built, (char *)NULL, settings);
        _exit(127);
    }
    close(pipe_ends[1]);
    assert_true(pid > 0);
    size_t n = 0;
    ssize_t more;
    while ((more = read(pipe_ends[0], text + n, 1023 - n)) > 0)
        n += (size_t)more;
    text[n] = '\0';
    close(pipe_ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST(test_words)
{
    static const struct {
        const char *fake, *built, *settings[3], *wanted;
    } cases[] = {
        {"none", "13000", {NULL}, "there is no NVIDIA driver: libcuda.so.1: cannot open"},
        {"cuda", "13000", {NULL}, "nothing"},
        {"cuda", "12080", {NULL}, "nothing"},
        {"cuda", "13010", {NULL}, "nothing"}, /* of one major number */
        {"cuda",
         "13000",
         {"FAKE_CUDA_VERSION=12040"},
         "the NVIDIA driver is too old: it is for CUDA 12.4, and this was built against 13.0, "
         "which "
         "needs a driver for CUDA 13.0 or later"},
        /* Versions are compared before anything is started. */
        {"cuda",
         "12090",
         {"FAKE_CUDA_VERSION=11080", "FAKE_CUDA_INIT=999"},
         "the NVIDIA driver is too old: it is for CUDA 11.8, and this was built against 12.9, "
         "which "
         "needs a driver for CUDA 12.0 or later"},
        {"cuda", "13000", {"FAKE_CUDA_INIT=100"}, "the NVIDIA driver (CUDA 13.0) finds no GPU"},
        {"cuda",
         "13000",
         {"FAKE_CUDA_COUNT=0", "CUDA_VISIBLE_DEVICES=7"},
         "the NVIDIA driver (CUDA 13.0) finds no GPU: CUDA_VISIBLE_DEVICES is '7'"},
        {"cuda",
         "13000",
         {"FAKE_CUDA_INIT=803"},
         "the NVIDIA driver (CUDA 13.0) does not start: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): "
         "system has unsupported display driver / cuda driver combination"},
        {"cuda",
         "13000",
         {"FAKE_CUDA_INIT=4711"},
         "the NVIDIA driver (CUDA 13.0) does not start: an unknown error (4711): no further words"},
        {"cuda",
         "13000",
         {"FAKE_CUDA_VERSION_ERROR=803"},
         "the NVIDIA driver does not tell its version: cuDriverGetVersion: "
         "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"},
        {"cuda_without_init",
         "13000",
         {NULL},
         "the NVIDIA driver cannot be used: libcuda.so.1 has no cuInit"},
    };
    const char *build = getenv("DPB_BUILD");
    char path[4096], text[1024];
    /* The first is not for a machine that has a driver. */
    size_t first = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) != NULL;
    for (size_t i = first; i < sizeof cases / sizeof cases[0]; i++) {
        char *settings[4] = {path, NULL};
        snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s/tests/fakes/%s",
                 build != NULL ? build : "build", cases[i].fake);
        for (size_t j = 0; cases[i].settings[j] != NULL; j++)
            settings[j + 1] = (char *)cases[i].settings[j];
        words(cases[i].built, settings, text);
        if (strncmp(text, cases[i].wanted, strlen(cases[i].wanted)) != 0)
            fail_msg("case %zu: '%s', not '%s'", i, text, cases[i].wanted);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "words") == 0) {
        const char *missing = cuda_driver_missing(atoi(argv[2]));
        printf("%s", missing != NULL ? missing : "nothing");
        return 0;
    }
    return test_main(NULL, NULL);
}
