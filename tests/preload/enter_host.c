/*
 * enter_host.c - for LD_PRELOAD into dpbench: the n-th process that the launcher forks, which is
 * rank n, enters the network namespace of the n-th process of DPB_TEST_NAMESPACES (pids, colons)
 * before it becomes the rank. So a job of the local launcher runs on several hosts of
 * tests/lib/network.h.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int n_forks;

static void enter(int rank)
{
    char path[64];
    const char *at = getenv("DPB_TEST_NAMESPACES");
    for (; at && rank > 0; rank--) {
        at = strchr(at, ':');
        at += at ? 1 : 0;
    }
    snprintf(path, sizeof path, "/proc/%d/ns/net", at ? atoi(at) : 0);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0)
        _exit(126);
    close(fd);
}

pid_t fork(void)
{
    pid_t (*real)(void);
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    int rank = n_forks++;
    pid_t pid = real();
    if (pid == 0 && getenv("DPB_TEST_NAMESPACES") && !getenv("DPBENCH_JOB"))
        enter(rank);
    return pid;
}
