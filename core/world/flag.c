/*
 * flag.c - counters that one side raises and others wait for, and the futex core under them.
 *
 * A setter stores the value and then looks whether anybody sleeps; a waiter says that it sleeps and
 * then looks at the value (Dekker's pattern). All four accesses are sequentially consistent, so
 * there is one order of them in which either the setter sees the waiter and wakes it, or the waiter
 * sees the value and does not sleep. With release and acquire alone both could miss: a store may be
 * delayed past a later load of another word, on x86 as well. Between the waiter's last look and its
 * sleep the kernel compares the value once more, under the lock that a wake-up takes.
 */
#include "world/futex.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "world/world.h"

#define DEFAULT_TIMEOUT_NS INT64_C(60000000000)

_Static_assert(sizeof(struct dpb_flag) == DPB_CACHE_LINE, "a flag is a cache line");

static void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int operation(int number, dpb_futex_scope scope)
{
    return scope == DPB_FUTEX_PRIVATE ? number | FUTEX_PRIVATE_FLAG : number;
}

static bool has_reached(uint32_t value, uint32_t wanted)
{
    return (int32_t)(value - wanted) >= 0;
}

bool dpb_futex_reached(const struct dpb_flag *flag, uint32_t value)
{
    return has_reached(__atomic_load_n(&flag->value, __ATOMIC_ACQUIRE), value);
}

void dpb_futex_set(struct dpb_flag *flag, uint32_t value, dpb_futex_scope scope)
{
    __atomic_store_n(&flag->value, value, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&flag->waiters, __ATOMIC_SEQ_CST) != 0)
        syscall(SYS_futex, &flag->value, operation(FUTEX_WAKE, scope), INT_MAX, NULL, NULL, 0);
}

/* Sleeps until the value is reached, or for `limit_ns` at the most, or for no reason at all. */
static void sleep_on(struct dpb_flag *flag, uint32_t wanted, dpb_futex_scope scope,
                     int64_t limit_ns)
{
    struct timespec limit = {.tv_sec = limit_ns / 1000000000, .tv_nsec = limit_ns % 1000000000};
    __atomic_fetch_add(&flag->waiters, 1, __ATOMIC_SEQ_CST);
    uint32_t seen = __atomic_load_n(&flag->value, __ATOMIC_SEQ_CST);
    if (!has_reached(seen, wanted))
        syscall(SYS_futex, &flag->value, operation(FUTEX_WAIT, scope), seen, &limit, NULL, 0);
    __atomic_fetch_sub(&flag->waiters, 1, __ATOMIC_RELEASE);
}

static bool spin(const struct dpb_flag *flag, uint32_t value)
{
    const int64_t spins_until_ns = dpb_now_ns() + DPB_WAIT_SPIN_NS;
    do {
        for (int i = 0; i < 16; i++) {
            pause_core();
            if (dpb_futex_reached(flag, value))
                return true;
        }
    } while (dpb_now_ns() < spins_until_ns);
    return false;
}

dpb_status dpb_wait_expired(const struct dpb_wait *what, int64_t waited_ns, const char *detail)
{
    char bucket[48] = "", bytes[48] = "", peer[512] = "";
    if (what->bucket != UINT64_MAX)
        snprintf(bucket, sizeof bucket, ", bucket %llu", (unsigned long long)what->bucket);
    if (what->bytes != 0)
        snprintf(bytes, sizeof bytes, ", %llu bytes", (unsigned long long)what->bytes);
    if (what->peer != UINT32_MAX)
        dpb_peer_describe(what->peer, peer, sizeof peer);
    return dpb_fail(
        DPB_TIMEOUT,
        "waited %.1f s for %s (exchange %llu%s%s%s)%s%s; if it is only slow, set a larger "
        "run.timeout_s",
        (double)waited_ns * 1e-9, what->purpose ? what->purpose : "a flag",
        (unsigned long long)what->step, bucket, bytes, detail, peer[0] != '\0' ? ": " : "", peer);
}

static uint64_t signs;

void dpb_wait_sign(void)
{
    __atomic_fetch_add(&signs, 1, __ATOMIC_RELAXED);
}

uint64_t dpb_wait_signs(void)
{
    return __atomic_load_n(&signs, __ATOMIC_RELAXED);
}

/* This thread's. */
static _Thread_local const uint32_t *heeded;

void dpb_world_heed(const uint32_t *stop)
{
    heeded = stop;
}

bool dpb_wait_is_over(void)
{
    return (heeded && __atomic_load_n(heeded, __ATOMIC_ACQUIRE) != 0) ||
           (dpb_world.board && dpb_board_job_ended(dpb_world.board));
}

dpb_status dpb_wait_cancelled(const struct dpb_wait *what)
{
    return dpb_fail(DPB_PEER, "stopped waiting for %s: the job is ending",
                    what->purpose ? what->purpose : "a flag");
}

static dpb_status deadline_passed(const struct dpb_flag *flag, uint32_t value,
                                  const struct dpb_wait *what, int64_t waited_ns)
{
    char detail[48];
    snprintf(detail, sizeof detail, "; at %u, wanted %u",
             __atomic_load_n(&flag->value, __ATOMIC_RELAXED), value);
    return dpb_wait_expired(what, waited_ns, detail);
}

int64_t dpb_timeout_of(int64_t timeout_ns)
{
    if (timeout_ns != 0)
        return timeout_ns;
    return dpb_world.timeout_ns != 0 ? dpb_world.timeout_ns : DEFAULT_TIMEOUT_NS;
}

dpb_status dpb_futex_wait(struct dpb_flag *flag, uint32_t value, dpb_futex_scope scope,
                          const struct dpb_wait *what)
{
    if (dpb_futex_reached(flag, value) || (dpb_world.may_spin && spin(flag, value)))
        return DPB_OK;
    const int64_t begin = dpb_ran_ns(), timeout = dpb_timeout_of(what->timeout_ns);
    dpb_wait_sign();
    for (;;) {
        int64_t waited = dpb_ran_ns() - begin, slice = DPB_WAIT_SLICE_NS;
        if (timeout >= 0 && timeout - waited < slice)
            slice = timeout - waited;
        if (slice > 0)
            sleep_on(flag, value, scope, slice);
        if (dpb_futex_reached(flag, value))
            return DPB_OK;
        if (dpb_wait_is_over())
            return dpb_wait_cancelled(what);
        if (slice <= 0)
            return deadline_passed(flag, value, what, waited);
    }
}

static void flag_set(struct dpb_flag *flag, uint32_t value)
{
    dpb_futex_set(flag, value, DPB_FUTEX_SHARED);
}

static uint32_t flag_get(const struct dpb_flag *flag)
{
    return __atomic_load_n(&flag->value, __ATOMIC_ACQUIRE);
}

static dpb_status flag_wait(struct dpb_flag *flag, uint32_t value, const struct dpb_wait *what)
{
    return dpb_futex_wait(flag, value, DPB_FUTEX_SHARED, what);
}

const struct dpb_flag_ops dpb_flags = {
    .set = flag_set,
    .get = flag_get,
    .reached = dpb_futex_reached,
    .wait = flag_wait,
};
