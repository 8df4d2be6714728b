/* poll.c - waiting for descriptors as flags are waited for: deadline, message, end of the job. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "world/futex.h"
#include "world/world.h"

#define LONG_WAIT_NS INT64_C(200000000)
enum { YIELDS = 2 };

/* 1: some are ready, 0: none within the time, -1: the call failed; a signal is none. */
static int poll_for(struct pollfd *fds, uint32_t n, int64_t limit_ns)
{
    struct timespec limit = {.tv_sec = limit_ns / 1000000000, .tv_nsec = limit_ns % 1000000000};
    int ready = ppoll(fds, n, &limit, NULL);
    if (ready < 0)
        return errno == EINTR ? 0 : -1;
    return ready > 0;
}

/* Looks for a moment before it sleeps. With more processes than cores, the awaited process may be
 * waiting for this core: to yield the core costs less than to be woken up again. */
static int look(struct pollfd *fds, uint32_t n)
{
    const int64_t spins_until_ns = dpb_now_ns() + (dpb_world.may_spin ? DPB_WAIT_SPIN_NS : 0);
    int ready = 0;
    for (int turn = 0; ready == 0 && !dpb_world.may_spin && turn < YIELDS; turn++) {
        sched_yield();
        ready = poll_for(fds, n, 0);
    }
    while (ready == 0 && dpb_now_ns() < spins_until_ns)
        ready = poll_for(fds, n, 0);
    return ready;
}

/* A nap after LONG_WAIT_NS prolongs the wait by less than a thousandth, and leaves the core to
 * others. */
dpb_status dpb_world_patience(const struct dpb_wait *what, int64_t *begin_ns)
{
    const int64_t now_ns = dpb_ran_ns(), timeout_ns = dpb_timeout_of(what->timeout_ns);
    if (*begin_ns == 0)
        *begin_ns = now_ns;
    dpb_wait_sign();
    if (dpb_wait_is_over())
        return dpb_wait_cancelled(what);
    if (timeout_ns >= 0 && now_ns - *begin_ns >= timeout_ns)
        return dpb_wait_expired(what, now_ns - *begin_ns, "");
    if (now_ns - *begin_ns >= LONG_WAIT_NS)
        usleep(DPB_WAIT_NAP_US);
    return DPB_OK;
}

dpb_status dpb_world_poll(struct pollfd *fds, uint32_t n, const struct dpb_wait *what,
                          int64_t *waited_ns)
{
    int ready = look(fds, n);
    int64_t timeout_ns = dpb_timeout_of(what->timeout_ns);
    const int64_t begin_ns = dpb_ran_ns() - (waited_ns ? *waited_ns : 0);
    for (bool again = true; ready == 0 && again; again = !waited_ns) {
        int64_t passed_ns = dpb_ran_ns() - begin_ns, slice_ns = DPB_WAIT_SLICE_NS;
        if (timeout_ns >= 0 && timeout_ns - passed_ns < slice_ns)
            slice_ns = timeout_ns - passed_ns;
        dpb_wait_sign();
        ready = poll_for(fds, n, slice_ns > 0 ? slice_ns : 0);
        if (ready != 0)
            break;
        if (dpb_wait_is_over())
            return dpb_wait_cancelled(what);
        if (slice_ns <= 0)
            return dpb_wait_expired(what, passed_ns, "");
    }
    if (ready < 0) /* EINVAL: poll takes no more entries than the process may have open files */
        return dpb_fail(DPB_IO, "cannot wait for %u descriptors: %s", n,
                        strerror(errno == EINVAL ? EMFILE : errno));
    if (waited_ns)
        *waited_ns = dpb_ran_ns() - begin_ns;
    return DPB_OK;
}
