/* deadline.c - see deadline.h. */
#include "base/deadline.h"

#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "base/threads.h"

#define MISSED_NS INT64_C(1000000000) /* a busy machine wakes a sleeper sooner */
#define BACK_NS INT64_C(1000000)      /* processors' clocks differ by less */
#define NOTE_NS INT64_C(50000000)     /* how often a look is noted: noting is a system call */

static struct {
    pthread_mutex_t lock;
    int64_t looked_ns, computed_ns, missed_ns; /* read without the lock, too */
    int64_t back_ns;                           /* likewise; < 0: the longest jump back */
    bool ticks;
    const int64_t *parked_ns; /* NULL: none */
} ran = {.lock = PTHREAD_MUTEX_INITIALIZER};

int64_t dpb_parked_ns(void)
{
    const int64_t *parked_ns = __atomic_load_n(&ran.parked_ns, __ATOMIC_ACQUIRE);
    return parked_ns ? __atomic_load_n(parked_ns, __ATOMIC_ACQUIRE) : 0;
}

/* The process may be stopped between the two reads of the clock's parts. */
static int64_t read_clock(void)
{
    int64_t parked_ns, now_ns;
    do {
        parked_ns = dpb_parked_ns();
        now_ns = dpb_now_ns();
    } while (dpb_parked_ns() != parked_ns);
    return now_ns - parked_ns;
}

/* CPU time of all threads: one may compute while others wait. */
static int64_t computed_ns(void)
{
    return dpb_clock_ns(CLOCK_PROCESS_CPUTIME_ID);
}

/* The process may be frozen between any two lines. The time of the look is stored last, so that a
 * freeze is left out by this look or by the next, and not by both. */
static void note_look(int64_t now_ns)
{
    if (now_ns < ran.looked_ns) /* it was read before the last look */
        now_ns = read_clock();
    const int64_t gap_ns = now_ns - ran.looked_ns;
    if (gap_ns > -BACK_NS && gap_ns < NOTE_NS)
        return; /* another thread has looked since */
    if (gap_ns < 0) {
        __atomic_fetch_add(&ran.missed_ns, gap_ns, __ATOMIC_RELAXED);
        __atomic_store_n(&ran.back_ns, gap_ns < ran.back_ns ? gap_ns : ran.back_ns,
                         __ATOMIC_RELAXED);
    }
    const int64_t sample_ns = ran.ticks ? 0 : computed_ns();
    const int64_t used_ns = sample_ns - ran.computed_ns;
    const int64_t ran_ns = used_ns > DPB_LOOK_NS ? used_ns : DPB_LOOK_NS;
    if (gap_ns > MISSED_NS && ran.looked_ns != 0 && ran_ns < gap_ns)
        __atomic_fetch_add(&ran.missed_ns, gap_ns - ran_ns, __ATOMIC_RELAXED);
    ran.computed_ns = sample_ns;
    __atomic_store_n(&ran.looked_ns, now_ns, __ATOMIC_RELEASE);
}

static int64_t load_missed(void)
{
    return __atomic_load_n(&ran.missed_ns, __ATOMIC_RELAXED);
}

/* Whoever sees a fresh look sees also what it left out. */
int64_t dpb_ran_ns(void)
{
    for (;;) {
        const int64_t missed_ns = load_missed(), now_ns = read_clock();
        const int64_t gap_ns = now_ns - __atomic_load_n(&ran.looked_ns, __ATOMIC_ACQUIRE);
        const bool odd = gap_ns > MISSED_NS || gap_ns < 0;
        if (odd)
            pthread_mutex_lock(&ran.lock);
        if (odd || (gap_ns >= NOTE_NS && pthread_mutex_trylock(&ran.lock) == 0)) {
            note_look(now_ns);
            pthread_mutex_unlock(&ran.lock);
        }
        if (load_missed() == missed_ns)
            return now_ns - missed_ns;
    }
}

static void *tick(void *unused)
{
    const struct timespec nap = {.tv_nsec = DPB_LOOK_NS};
    dpb_thread_enter();
    for (;;) {
        dpb_ran_ns();
        nanosleep(&nap, NULL);
    }
    return unused;
}

int dpb_ran_tick(void)
{
    pthread_t thread;
    dpb_ran_blocked();
    pthread_mutex_lock(&ran.lock);
    const int error = ran.ticks ? 0 : pthread_create(&thread, NULL, tick, NULL);
    if (error == 0 && !ran.ticks)
        pthread_detach(thread);
    ran.ticks |= error == 0;
    pthread_mutex_unlock(&ran.lock);
    return error;
}

bool dpb_ran_backwards(char *why, size_t size)
{
    dpb_ran_ns();
    const int64_t back_ns = __atomic_load_n(&ran.back_ns, __ATOMIC_RELAXED);
    if (back_ns < 0)
        snprintf(why, size,
                 "the machine's monotonic clock ran backwards by %.1f s, so nothing can be timed "
                 "by it; another clock source may run right "
                 "(/sys/devices/system/clocksource/clocksource0)",
                 (double)-back_ns * 1e-9);
    return back_ns < 0;
}

void dpb_ran_blocked(void)
{
    pthread_mutex_lock(&ran.lock);
    ran.computed_ns = computed_ns();
    __atomic_store_n(&ran.looked_ns, read_clock(), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&ran.lock);
}

void dpb_ran_rested(int64_t ns)
{
    __atomic_fetch_add(&ran.missed_ns, ns, __ATOMIC_RELAXED);
}

/* The last look was by the clock before. */
void dpb_ran_without(const int64_t *parked_ns)
{
    pthread_mutex_lock(&ran.lock);
    __atomic_store_n(&ran.parked_ns, parked_ns, __ATOMIC_RELEASE);
    __atomic_store_n(&ran.looked_ns, read_clock(), __ATOMIC_RELEASE);
    pthread_mutex_unlock(&ran.lock);
}

int64_t dpb_missed_ns(void)
{
    dpb_ran_ns();
    return load_missed();
}

struct dpb_deadline dpb_deadline_in(int64_t ns)
{
    const int64_t now_ns = dpb_ran_ns();
    return (struct dpb_deadline){ns < 0 || ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + ns};
}

struct dpb_deadline dpb_deadline_first(struct dpb_deadline a, struct dpb_deadline b)
{
    return a.at_ns < b.at_ns ? a : b;
}

int64_t dpb_deadline_left_ns(struct dpb_deadline deadline)
{
    return deadline.at_ns == INT64_MAX ? INT64_MAX : deadline.at_ns - dpb_ran_ns();
}

bool dpb_deadline_passed(struct dpb_deadline deadline)
{
    return dpb_deadline_left_ns(deadline) <= 0;
}

int dpb_deadline_look_ms(struct dpb_deadline deadline)
{
    const int64_t left_ns = dpb_deadline_left_ns(deadline);
    return left_ns <= 0
               ? 0
               : (int)(((left_ns < DPB_LOOK_NS ? left_ns : DPB_LOOK_NS) + 999999) / 1000000);
}
