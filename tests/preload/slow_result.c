/*
 * slow_result.c - for LD_PRELOAD into dpbench: a file takes SLOW_S seconds to get its name, as on a
 * network's disk that is busy.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_S = 5 };

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "rename");
    if (strstr(to, "result.json"))
        sleep(SLOW_S);
    return real(from, to);
}
