/*
 * comm_paused.c - any strategy, at odd moments. A copy of this object as comm_NAME.so, in a
 * directory of DPBENCH_PLUGIN_PATH, is the comm_NAME.so of the directories behind it, whose host
 * sleeps now and then where time may pass between two things that threads and ranks do: before and
 * after a signal is raised, after a look that has found nothing, and longest between such a look
 * and the wait that follows it. What is said, looked at and waited for stays as it is, so nothing
 * may come of it but time.
 *
 * DPB_PAUSES is the seed of the pauses; each thread of each rank has its own. With DPB_LATE_MS
 * there are no pauses: every other event of rank 0 fires so many milliseconds later.
 */
#include <dlfcn.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "dpbench/plugin.h"

static const struct dpb_host *host; /* core's */
static struct dpb_host told;        /* what the strategy gets */
static struct dpb_flag_ops flags;
static struct dpb_event_ops events;
static struct dpb_comm_ops late_ops;
static struct dpb_plugin late_plugin;
static const struct dpb_comm_ops *inner;
static uint64_t seed;
static unsigned late_us;
static bool is_late; /* this rank */

/* ---- pauses -------------------------------------------------------------------------------- */

/* Steele, Lea, Flood: Fast splittable pseudorandom number generators. OOPSLA 2014 (SplitMix64). */
static uint64_t draw(void)
{
    static _Thread_local uint64_t state;
    if (state == 0)
        state = seed * UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)syscall(SYS_gettid);
    state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = state;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* One time in `one_in` it sleeps, for `most_us` at the most. */
static void may_sleep(unsigned one_in, unsigned most_us)
{
    if (draw() % one_in == 0)
        usleep((useconds_t)(draw() % most_us + 1));
    else if (draw() % 4 == 0)
        sched_yield();
}

static void after_look(bool found)
{
    if (!found)
        may_sleep(6, 400);
}

static void before_wait(void)
{
    may_sleep(2, 2000);
}

/* ---- the host's functions, as the strategy gets them --------------------------------------- */

static void paused_set(struct dpb_flag *flag, uint32_t value)
{
    may_sleep(3, 500);
    host->flag->set(flag, value);
    may_sleep(3, 500);
}

static bool paused_reached(const struct dpb_flag *flag, uint32_t value)
{
    bool reached = host->flag->reached(flag, value);
    after_look(reached);
    return reached;
}

static dpb_status paused_wait(struct dpb_flag *flag, uint32_t value, const struct dpb_wait *what)
{
    before_wait();
    return host->flag->wait(flag, value, what);
}

static bool paused_event_poll(struct dpb_event *event)
{
    bool fired = host->event->poll(event);
    after_look(fired);
    return fired;
}

static dpb_status paused_poll(struct pollfd *fds, uint32_t n, const struct dpb_wait *what,
                              int64_t *waited_ns)
{
    before_wait();
    return host->poll(fds, n, what, waited_ns);
}

/* What is about to be waited for is said before the last look. */
static void paused_note(const char *phase, uint64_t bucket, uint32_t peer)
{
    before_wait();
    host->note(phase, bucket, peer);
}

static dpb_status paused_patience(const struct dpb_wait *what, int64_t *begin_ns)
{
    may_sleep(16, 300);
    return host->patience(what, begin_ns);
}

static void late_signal(struct dpb_event *event)
{
    static unsigned n;
    if (is_late && n++ % 2 == 0)
        usleep(late_us);
    host->event->signal(event);
}

static void tell(void)
{
    flags = *host->flag;
    flags.set = paused_set;
    flags.reached = paused_reached;
    flags.wait = paused_wait;
    events = *host->event;
    events.poll = paused_event_poll;
    told = *host;
    if (late_us > 0) {
        events = *host->event;
        events.signal = late_signal;
        told.event = &events;
        return;
    }
    told.flag = &flags;
    told.event = &events;
    told.poll = paused_poll;
    told.note = paused_note;
    told.patience = paused_patience;
}

/* ---- the strategy -------------------------------------------------------------------------- */

/* Whether `path` is there and another file than `own`. */
static bool is_other(const char *path, const char *own)
{
    char real[PATH_MAX];
    return realpath(path, real) && strcmp(real, own) != 0;
}

/* Where core looks: the directories that the environment names, then beside the program. */
static bool find_other(const char *own, char path[PATH_MAX])
{
    const char *file = strrchr(own, '/');
    const char *at = getenv("DPBENCH_PLUGIN_PATH");
    while (file && at && *at) {
        int length = (int)strcspn(at, ":");
        snprintf(path, PATH_MAX, "%.*s%s", length, at, file);
        if (is_other(path, own))
            return true;
        at += length + (at[length] == ':');
    }
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - NAME_MAX);
    if (!file || length <= 0)
        return false;
    path[length] = '\0';
    snprintf(strrchr(path, '/'), NAME_MAX, "/plugins%s", file);
    return is_other(path, own);
}

static dpb_status late_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    is_late = args->rank == 0;
    return inner->open(options, args, comm);
}

static const struct dpb_plugin *make_late(const struct dpb_plugin *plugin)
{
    late_plugin = *plugin;
    inner = plugin->ops;
    late_ops = *inner;
    late_ops.open = late_open;
    late_plugin.ops = &late_ops;
    return &late_plugin;
}

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    const struct dpb_plugin *(*entry)(const struct dpb_host *) = NULL;
    const char *text = getenv("DPB_PAUSES");
    char own[PATH_MAX], path[PATH_MAX];
    Dl_info here;
    host = given;
    const char *late_ms = getenv("DPB_LATE_MS");
    seed = text ? strtoull(text, NULL, 10) : 1;
    late_us = late_ms ? 1000 * (unsigned)strtoul(late_ms, NULL, 10) : 0;
    tell();
    if (!dladdr((const void *)(uintptr_t)&dpb_plugin_entry, &here) ||
        !realpath(here.dli_fname, own) || !find_other(own, path))
        return NULL; /* under its own name it is no strategy */
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object)
        *(void **)&entry = dlsym(object, "dpb_plugin_entry");
    if (!entry)
        host->fail(DPB_FAILED, "%s: cannot be paused: %s", path, dlerror());
    const struct dpb_plugin *plugin = entry ? entry(&told) : NULL;
    return plugin && late_us > 0 ? make_late(plugin) : plugin;
}
