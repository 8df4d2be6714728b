/* threads.c - see threads.h. */
#include "base/threads.h"

#include <pthread.h>
#include <stdbool.h>

#include "base/log.h"

/* Two feeds of 256 helpers each, and a few more. A thread without a place counts as another's. */
enum { PLACES = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static struct {
    bool taken;
    clockid_t clock;
} places[PLACES];
static int64_t left_ns; /* of threads that have ended */

static _Thread_local int own_place = -1;

void dpb_thread_enter(void)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < PLACES && own_place < 0; i++)
        if (!places[i].taken && pthread_getcpuclockid(pthread_self(), &places[i].clock) == 0) {
            places[i].taken = true;
            own_place = i;
        }
    pthread_mutex_unlock(&lock);
}

void dpb_thread_leave(void)
{
    pthread_mutex_lock(&lock);
    if (own_place >= 0) {
        left_ns += dpb_clock_ns(places[own_place].clock);
        places[own_place].taken = false;
        own_place = -1;
    }
    pthread_mutex_unlock(&lock);
}

int64_t dpb_threads_others_ns(void)
{
    pthread_mutex_lock(&lock);
    int64_t known_ns = left_ns;
    for (int i = 0; i < PLACES; i++)
        known_ns += places[i].taken ? dpb_clock_ns(places[i].clock) : 0;
    pthread_mutex_unlock(&lock);
    return dpb_clock_ns(CLOCK_PROCESS_CPUTIME_ID) - known_ns;
}
