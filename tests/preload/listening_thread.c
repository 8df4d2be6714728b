/*
 * listening_thread.c - for LD_PRELOAD: a thread as a driver's library starts one, with no signal
 * blocked, beside all that the program does.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

static void *listen_on(void *unused)
{
    for (;;)
        pause();
    return unused;
}

__attribute__((constructor)) static void start(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, listen_on, NULL) != 0)
        abort();
}
