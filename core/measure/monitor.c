/* monitor.c - see monitor.h. */
#include "measure/monitor.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/threads.h"
#include "world/job_load.h"
#include "world/world.h"

#define LOOK_NS INT64_C(20000000000)

static struct {
    struct dpb_monitor_series *series; /* NULL: none runs */
    struct dpb_gpu_use *gpu;
    struct dpb_usage_meter meter;
    int32_t *pids;
    struct dpb_usage last; /* of dpb_monitor_turn, as the next */
    struct dpb_monitor_sample in_turns;
    int64_t begin_ns;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
} monitor = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

size_t dpb_monitor_bytes(const struct dpb_settings *settings)
{
    return settings->run.monitor_ns == 0
               ? 0
               : sizeof(struct dpb_monitor_series) +
                     DPB_MONITOR_SAMPLES * sizeof(struct dpb_monitor_sample);
}

void dpb_monitor_add(struct dpb_monitor_series *series, uint64_t capacity,
                     const struct dpb_monitor_sample *sample)
{
    if (series->n == capacity) {
        for (uint64_t i = 1; i < capacity / 2; i++)
            series->samples[i] = series->samples[2 * i];
        series->interval_ns *= 2;
        __atomic_store_n(&series->n, capacity / 2, __ATOMIC_RELEASE);
    }
    series->samples[series->n] = *sample;
    __atomic_store_n(&series->n, series->n + 1, __ATOMIC_RELEASE);
}

/* The lowest rank of each machine that has a launcher of its own; else rank 0. */
static bool is_of_machine(void)
{
    uint32_t first = 0;
    while (dpb_world.parted && !dpb_world_is_local(first))
        first++;
    return dpb_world.rank == first;
}

static void take(void)
{
    struct dpb_monitor_sample sample = {.at_ns = dpb_now_ns() - monitor.begin_ns};
    if (monitor.series->of_machine)
        dpb_usage_sample("", monitor.pids, dpb_job_pids(monitor.pids), &monitor.meter,
                         &sample.machine);
    dpb_gpu_sample(monitor.gpu, &sample.gpu);
    dpb_monitor_add(monitor.series, DPB_MONITOR_SAMPLES, &sample);
}

int64_t dpb_monitor_look_ns(int64_t now_ns, int64_t due_ns)
{
    return due_ns - now_ns > LOOK_NS ? now_ns + LOOK_NS : due_ns;
}

int64_t dpb_monitor_due_ns(int64_t due_ns, int64_t taken_ns, int64_t interval_ns)
{
    do
        due_ns += interval_ns;
    while (due_ns - taken_ns < interval_ns / 2);
    return due_ns;
}

/* False: it is over. */
static bool sleep_until(int64_t at_ns)
{
    const struct timespec at = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};
    int error = 0;
    pthread_mutex_lock(&monitor.lock);
    while (!monitor.stop && error == 0)
        error = pthread_cond_clockwait(&monitor.wake, &monitor.lock, CLOCK_MONOTONIC, &at);
    const bool goes_on = !monitor.stop;
    pthread_mutex_unlock(&monitor.lock);
    return goes_on;
}

/* False: it is over. */
static bool wait_for_sample(int64_t due_ns)
{
    int64_t look_ns;
    while (monitor.meter.n_packages > 0 &&
           (look_ns = dpb_monitor_look_ns(dpb_now_ns(), due_ns)) < due_ns) {
        if (!sleep_until(look_ns))
            return false;
        dpb_usage_follow("", &monitor.meter);
    }
    return sleep_until(due_ns);
}

static int64_t thread_cpu_ns(void)
{
    struct timespec used = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return used.tv_sec * INT64_C(1000000000) + used.tv_nsec;
}

static void *watch(void *argument)
{
    int64_t due_ns = monitor.begin_ns, taken_ns;
    dpb_thread_enter();
    do {
        take();
        taken_ns = dpb_now_ns();
        due_ns = dpb_monitor_due_ns(due_ns, taken_ns, monitor.series->interval_ns);
    } while (wait_for_sample(due_ns));
    if (dpb_now_ns() - taken_ns >= monitor.series->interval_ns / 2)
        take();
    monitor.series->cpu_ns = thread_cpu_ns();
    dpb_thread_leave();
    return argument;
}

dpb_status dpb_monitor_begin(struct dpb_monitor_series *series, int64_t interval_ns,
                             struct dpb_gpu_use *gpu)
{
    if (!series)
        return DPB_OK;
    series->interval_ns = interval_ns;
    series->of_machine = is_of_machine();
    if (dpb_board_turns(dpb_world.board)->orders ||
        (!series->of_machine && gpu->pci_address[0] == '\0'))
        return DPB_OK;
    monitor.gpu = gpu;
    monitor.meter = (struct dpb_usage_meter){0};
    monitor.stop = false;
    monitor.begin_ns = dpb_now_ns();
    monitor.pids = calloc(dpb_world.n_ranks, sizeof *monitor.pids);
    if (!monitor.pids)
        return dpb_fail(DPB_NO_MEMORY, "out of memory for run.monitor");
    monitor.series = series;
    const int error = pthread_create(&monitor.thread, NULL, watch, NULL);
    if (error == 0) {
        pthread_setname_np(monitor.thread, "dpb-monitor");
        return DPB_OK;
    }
    monitor.series = NULL;
    free(monitor.pids);
    return dpb_fail(DPB_FAILED, "cannot start the thread of run.monitor: %s", strerror(error));
}

void dpb_monitor_end(void)
{
    if (!monitor.series)
        return;
    pthread_mutex_lock(&monitor.lock);
    monitor.stop = true;
    pthread_cond_signal(&monitor.wake);
    pthread_mutex_unlock(&monitor.lock);
    pthread_join(monitor.thread, NULL);
    free(monitor.pids);
    monitor.series = NULL;
}

/* Adds the rise of the counters between two samples; all else becomes that of `to`. An unknown
 * busy_ns stays below 0: a sum never exceeds the counter. */
static void add(const struct dpb_usage *from, const struct dpb_usage *to, struct dpb_usage *sum)
{
    const struct dpb_usage before = *sum;
    *sum = *to;
    sum->own_ns += before.own_ns - from->own_ns;
    sum->busy_ns += before.busy_ns - from->busy_ns;
    sum->received_bytes += before.received_bytes - from->received_bytes;
    sum->sent_bytes += before.sent_bytes - from->sent_bytes;
    sum->loopback_bytes += before.loopback_bytes - from->loopback_bytes;
    sum->read_bytes += before.read_bytes - from->read_bytes;
    sum->written_bytes += before.written_bytes - from->written_bytes;
    sum->package_j += before.package_j - from->package_j;
}

/* The sums begin at the counters' own values: a counter may fall where an interface disappears. */
int64_t dpb_monitor_turn(const char *root, struct dpb_monitor_series *series, const int32_t *pids,
                         uint32_t n_pids, bool begins, int64_t ranks_ns)
{
    const int64_t cpu_ns = thread_cpu_ns();
    const bool first = series->n == 0;
    struct dpb_usage now;
    dpb_usage_sample(root, pids, n_pids, &monitor.meter, &now);
    series->from_ns = first ? ranks_ns : series->from_ns;
    series->to_ns = ranks_ns;
    if (first)
        monitor.in_turns.machine = now;
    else if (!begins)
        add(&monitor.last, &now, &monitor.in_turns.machine);
    monitor.in_turns.at_ns = ranks_ns - series->from_ns;
    monitor.last = now;
    if (first || !begins)
        dpb_monitor_add(series, DPB_MONITOR_SAMPLES, &monitor.in_turns);
    series->cpu_ns += thread_cpu_ns() - cpu_ns;
    return dpb_monitor_look_ns(0, series->interval_ns);
}
