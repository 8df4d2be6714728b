/* links_timing.c - windows of repeated work, and threads that are bound to cores. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stats.h"
#include "links/links.h"
#include "machine/cores.h"

struct dpb_links_value dpb_links_nothing(void)
{
    return (struct dpb_links_value){.median = NAN, .least = NAN, .most = NAN};
}

struct dpb_links_value dpb_links_share(const struct dpb_links_value *seconds, double n)
{
    double shares[DPB_LINKS_WINDOWS];
    for (uint32_t i = 0; i < seconds->n_windows; i++)
        shares[i] = seconds->windows[i] / n;
    return dpb_links_value_of(shares, seconds->n_windows);
}

struct dpb_links_value dpb_links_rate(const struct dpb_links_value *seconds, double bytes)
{
    double rates[DPB_LINKS_WINDOWS];
    for (uint32_t i = 0; i < seconds->n_windows; i++)
        rates[i] = bytes / seconds->windows[i];
    return dpb_links_value_of(rates, seconds->n_windows);
}

struct dpb_links_value dpb_links_value_of(const double *x, size_t n)
{
    struct dpb_stats stats;
    dpb_stats_of(x, n, &stats);
    struct dpb_links_value value = {
        .median = stats.median, .least = stats.min, .most = stats.max, .n_windows = (uint32_t)n};
    memcpy(value.windows, x, n * sizeof *x);
    return value;
}

static dpb_status time_once(const struct dpb_links_limits *limits, dpb_links_work work,
                            void *context, uint64_t times, int64_t *ns)
{
    DPB_TRY(dpb_links_stopped(limits));
    int64_t begin_ns = dpb_now_ns();
    DPB_TRY(work(context, times));
    *ns = dpb_now_ns() - begin_ns;
    return DPB_OK;
}

dpb_status dpb_links_time(const struct dpb_links_limits *limits, dpb_links_work work, void *context,
                          struct dpb_links_value *seconds)
{
    double each[DPB_LINKS_WINDOWS];
    uint64_t times = 1;
    int64_t ns;
    DPB_TRY(time_once(limits, work, context, times, &ns)); /* first touch, first use */
    for (;;) {
        DPB_TRY(time_once(limits, work, context, times, &ns));
        if (ns >= limits->window_ns || times >= UINT64_C(1) << 40)
            break;
        /* 2 to 10 times as often: a short trial predicts the time badly. */
        double factor = ns > 0 ? 1.1 * (double)limits->window_ns / (double)ns : 10;
        times = (uint64_t)((double)times * fmin(fmax(factor, 2), 10));
    }
    /* Work longer than ten windows needs three. */
    size_t n = ns > 10 * limits->window_ns ? 3 : DPB_LINKS_WINDOWS;
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            DPB_TRY(time_once(limits, work, context, times, &ns));
        each[i] = (double)(ns > 0 ? ns : 1) * 1e-9 / (double)times;
        /* If the machine has become slow, repeat less, so that windows keep their length. */
        if (ns > 10 * limits->window_ns)
            times = times > 10 ? times / 10 : 1;
    }
    *seconds = dpb_links_value_of(each, n);
    return DPB_OK;
}

/* ---- teams --------------------------------------------------------------------------------- */

/* Members wait for each other inside their work, so they begin when all exist, or not at all. */
struct gate {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { CLOSED, OPEN, GO_HOME } state;
};

struct member {
    struct gate *gate;
    pthread_t thread;
    dpb_links_member run;
    void *context;
    uint32_t number;
};

static void *member_main(void *member_)
{
    struct member *member = member_;
    struct gate *gate = member->gate;
    pthread_mutex_lock(&gate->lock);
    while (gate->state == CLOSED)
        pthread_cond_wait(&gate->changed, &gate->lock);
    bool open = gate->state == OPEN;
    pthread_mutex_unlock(&gate->lock);
    if (open)
        member->run(member->context, member->number);
    return NULL;
}

dpb_status dpb_links_team(const uint16_t *cpus, uint32_t n, dpb_links_member member, void *context)
{
    struct gate gate = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, CLOSED};
    struct member *members = calloc(n, sizeof *members);
    DPB_TRY(dpb_allocated(members));
    dpb_status status = DPB_OK;
    uint32_t n_started = 0;
    while (n_started < n && status == DPB_OK) {
        struct member *one = &members[n_started];
        *one =
            (struct member){.gate = &gate, .run = member, .context = context, .number = n_started};
        int error = dpb_cores_start_thread(cpus[n_started], member_main, one, &one->thread);
        if (error != 0)
            status = dpb_fail(DPB_FAILED, "cannot start a thread on hardware thread %u: %s",
                              cpus[n_started], strerror(error));
        else
            n_started++;
    }
    pthread_mutex_lock(&gate.lock);
    gate.state = status == DPB_OK ? OPEN : GO_HOME;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(members[i].thread, NULL);
    free(members);
    return status;
}
