/* deadline.c - see deadline.h. */
#include "base/deadline.h"

#include <pthread.h>
#include <time.h>

#include "base/log.h"

#define MISSED_NS INT64_C(1000000000) /* a busy machine wakes a sleeper sooner */
#define NOTE_NS INT64_C(50000000)     /* how often a look is noted: noting is a system call */

static struct {
    pthread_mutex_t lock;
    int64_t looked_ns, computed_ns, missed_ns; /* read without the lock, too */
} ran = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* CPU time of all threads: one may compute while others wait. */
static int64_t computed_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* The process may be frozen between any two lines. The time of the look is stored last, so that a
 * freeze is left out by this look or by the next, and not by both. */
static void note_look(int64_t now_ns)
{
    const int64_t gap_ns = now_ns - ran.looked_ns;
    if (gap_ns < NOTE_NS)
        return; /* another thread has looked since */
    const int64_t sample_ns = computed_ns(), used_ns = sample_ns - ran.computed_ns;
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
        const int64_t missed_ns = load_missed(), now_ns = dpb_now_ns();
        const int64_t gap_ns = now_ns - __atomic_load_n(&ran.looked_ns, __ATOMIC_ACQUIRE);
        if (gap_ns > MISSED_NS)
            pthread_mutex_lock(&ran.lock);
        if (gap_ns > MISSED_NS || (gap_ns >= NOTE_NS && pthread_mutex_trylock(&ran.lock) == 0)) {
            note_look(now_ns);
            pthread_mutex_unlock(&ran.lock);
        }
        if (load_missed() == missed_ns)
            return now_ns - missed_ns;
    }
}

void dpb_ran_blocked(void)
{
    pthread_mutex_lock(&ran.lock);
    ran.computed_ns = computed_ns();
    __atomic_store_n(&ran.looked_ns, dpb_now_ns(), __ATOMIC_RELEASE);
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
