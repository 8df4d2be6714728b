/*
 * fault.h - for plugins that stand between core and a real plugin and misbehave when they are told:
 * in one rank, at the n-th call of one hook.
 */
#ifndef DPB_TESTS_PLUGINS_FAULT_H
#define DPB_TESTS_PLUGINS_FAULT_H

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "dpbench/plugin.h"

enum fault {
    FAULT_NONE,
    FAULT_KILL,   /* SIGKILL: nothing is cleaned up */
    FAULT_EXIT_0, /* the process ends, as if all were done */
    FAULT_EXIT_7,
    FAULT_ERROR,  /* the hook returns an error */
    FAULT_STOP,   /* SIGSTOP: there, but does nothing */
    FAULT_HANG,   /* the hook does not return */
    FAULT_SPIN,   /* nor does it sleep */
    FAULT_EXIT_3, /* by exit(), with all that it calls */
    FAULT_ABORT,
    FAULT_MEMORY, /* from now on there is no more than there is */
    FAULT_BUSY,   /* computes for two seconds, and goes on */
    FAULT_FORGET, /* comm, end: its event never fires */
    FAULT_PEER    /* the hook says that another rank is to blame, and none is */
};
static const char *const fault_names[] = {"none",   "kill", "exit_0", "exit_7", "error",
                                          "stop",   "hang", "spin",   "exit_3", "abort",
                                          "memory", "busy", "forget", "peer",   NULL};

struct fault_options {
    int fault, hook;
    int64_t rank, call;
};

/* The rows of a table of options; `hooks`: names of the hooks, ended by NULL. */
#define FAULT_ROWS(STRUCT, MEMBER, hooks)                                                          \
    DPB_OPTION_ROW("fault", CHOICE, NULL, "none", 0, 0, fault_names, STRUCT, MEMBER.fault,         \
                   "what happens", NULL),                                                          \
        DPB_OPTION_ROW("hook", CHOICE, NULL, hooks[0], 0, 0, hooks, STRUCT, MEMBER.hook, "where",  \
                       NULL),                                                                      \
        DPB_OPTION_ROW("rank", INT, NULL, "0", -1, 1e6, NULL, STRUCT, MEMBER.rank, "or -1", NULL), \
        DPB_OPTION_ROW("call", INT, NULL, "1", 1, 1e9, NULL, STRUCT, MEMBER.call, "when", NULL)

/* No address space beyond what the process has, and nothing free in it. */
static inline void fault_take_memory(void)
{
    unsigned long pages = 0;
    struct rlimit limit;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file && fscanf(file, "%lu", &pages) == 1 && getrlimit(RLIMIT_AS, &limit) == 0) {
        limit.rlim_cur = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
        setrlimit(RLIMIT_AS, &limit);
    }
    if (file)
        fclose(file);
    for (size_t bytes = 1 << 20; bytes >= 16; bytes /= 2)
        while (malloc(bytes))
            ;
}

static inline void fault_compute(double seconds)
{
    clock_t until = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    while (seconds < 0 || clock() < until)
        ;
}

/* At the beginning of each hook. */
static inline dpb_status fault_here(const struct dpb_host *host,
                                    const struct fault_options *options, uint32_t rank, int hook)
{
    static int64_t calls;
    if (hook != options->hook || (options->rank >= 0 && rank != (uint32_t)options->rank) ||
        __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) != options->call)
        return DPB_OK;
    switch ((enum fault)options->fault) {
    case FAULT_KILL:
        kill(getpid(), SIGKILL);
        break;
    case FAULT_EXIT_0:
        _exit(0);
    case FAULT_EXIT_7:
        _exit(7);
    case FAULT_ERROR:
        return host->fail(DPB_FAILED, "the fault that was asked for");
    case FAULT_PEER:
        return host->fail(DPB_PEER, "the blame that was asked for");
    case FAULT_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case FAULT_HANG:
        prctl(PR_SET_NAME, "hangs"); /* for tests that wait for it */
        for (;;)
            pause();
    case FAULT_SPIN:
        fault_compute(-1);
        break;
    case FAULT_EXIT_3:
        exit(3);
    case FAULT_ABORT:
        abort();
    case FAULT_MEMORY:
        fault_take_memory();
        break;
    case FAULT_BUSY:
        fault_compute(2);
        break;
    case FAULT_FORGET:
    case FAULT_NONE:
        break;
    }
    return DPB_OK;
}

/* The real plugin, from beside dpbench: "comm_shm". NULL: message written. */
static inline const struct dpb_plugin *fault_inner(const struct dpb_host *host, const char *file)
{
    char path[PATH_MAX];
    const struct dpb_plugin *(*entry)(const struct dpb_host *) = NULL;
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        snprintf(slash, 64, "/plugins/%s.so", file);
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object)
        *(void **)&entry = dlsym(object, "dpb_plugin_entry");
    const struct dpb_plugin *plugin = entry ? entry(host) : NULL;
    if (!plugin)
        host->fail(DPB_FAILED, "%s: cannot be loaded: %s", path, dlerror());
    return plugin;
}

#endif
