/*
 * jump_clock.c - for LD_PRELOAD: a wall clock that jumps by hours, five times a second, for the one
 * process it is loaded into. It is never right. The monotonic clocks are left alone.
 */
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { HOUR_S = 3600 };

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static const int hours[] = {5, -7, 100, -2, 1, -30};
    if (syscall(SYS_clock_gettime, clock, now) != 0)
        return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        int64_t fifths = now->tv_sec * 5 + now->tv_nsec / 200000000;
        now->tv_sec += HOUR_S * hours[fifths % (int64_t)(sizeof hours / sizeof hours[0])];
    }
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec time_of_day;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &time_of_day);
    *now = (struct timeval){time_of_day.tv_sec, time_of_day.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *result)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
