/*
 * stop_before_exec.c - for LD_PRELOAD into dpbench: rank 1 stops (SIGSTOP) before it executes its
 * program.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int n_forks;

pid_t fork(void)
{
    pid_t (*real)(void);
    *(void **)&real = dlsym(RTLD_NEXT, "fork");
    n_forks++;
    return real();
}

int execve(const char *path, char *const arguments[], char *const environment[])
{
    int (*real)(const char *, char *const[], char *const[]);
    *(void **)&real = dlsym(RTLD_NEXT, "execve");
    if (n_forks == 2 && strcmp(path, "/proc/self/exe") == 0)
        raise(SIGSTOP);
    return real(path, arguments, environment);
}
