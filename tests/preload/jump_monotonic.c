/*
 * jump_monotonic.c - for LD_PRELOAD: the monotonic clock of all processes is wrong by the
 * nanoseconds in the file that the environment's DPB_CLOCK_FILE names. A test that writes there
 * makes all of them jump at once. Sleeps until a time are those of the jumped clock.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int64_t none, *wrong_ns = &none;

__attribute__((constructor)) static void open_file(void)
{
    const char *path = getenv("DPB_CLOCK_FILE");
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd >= 0 ? mmap(NULL, sizeof *wrong_ns, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (at != MAP_FAILED)
        wrong_ns = at;
    if (fd >= 0)
        close(fd);
}

static struct timespec plus(const struct timespec *time, int64_t ns)
{
    const int64_t sum_ns = time->tv_sec * INT64_C(1000000000) + time->tv_nsec + ns;
    return (struct timespec){sum_ns / 1000000000, sum_ns % 1000000000};
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (syscall(SYS_clock_gettime, clock, now) != 0)
        return -1;
    if (clock == CLOCK_MONOTONIC)
        *now = plus(now, __atomic_load_n(wrong_ns, __ATOMIC_RELAXED));
    return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *rest)
{
    struct timespec until = *time;
    if (clock == CLOCK_MONOTONIC && flags == TIMER_ABSTIME)
        until = plus(time, -__atomic_load_n(wrong_ns, __ATOMIC_RELAXED));
    return (int)syscall(SYS_clock_nanosleep, clock, flags, &until, rest);
}
