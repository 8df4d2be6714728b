/* links_cores.c - a cache line and memory that two cores share. Each thread polls for the other.
 * The threads yield after a while, because in a virtual machine a core may not be theirs alone. */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "dpbench/types.h"
#include "links/links.h"

enum { LOOKS = 1 << 14 /* before the thread yields its core */ };

struct line {
    _Alignas(DPB_CACHE_LINE) atomic_uint_least64_t turn;
};

/* In shared memory; both cores write. */
struct shared {
    struct line line;
    struct line stop;
    char bytes[];
};

struct duel {
    const struct dpb_links_limits *limits;
    struct shared *shared;
    uint64_t bytes;
    char *own[2];      /* the source of a, the destination of b */
    int64_t copied_ns; /* by b */
    dpb_status status;
    struct dpb_links_value value;
};

static void wait_for(const struct line *line, uint64_t value)
{
    for (uint64_t looks = 1; atomic_load_explicit(&line->turn, memory_order_acquire) != value;
         looks++)
        if (looks % LOOKS == 0)
            sched_yield();
}

static void pass_on(struct line *line, uint64_t value)
{
    atomic_store_explicit(&line->turn, value, memory_order_release);
}

/* Odd turns are b's. When `stop` is set, b takes one more turn and ends. */
static dpb_status ping(void *duel_, uint64_t times)
{
    struct shared *shared = ((struct duel *)duel_)->shared;
    uint64_t turn = atomic_load(&shared->line.turn);
    for (uint64_t i = 0; i < times; i++, turn += 2) {
        pass_on(&shared->line, turn + 1);
        wait_for(&shared->line, turn + 2);
    }
    return DPB_OK;
}

static void end(struct shared *shared)
{
    pass_on(&shared->stop, 1);
    pass_on(&shared->line, atomic_load(&shared->line.turn) + 1);
}

static void answer(struct shared *shared, void (*work)(struct duel *duel), struct duel *duel)
{
    for (uint64_t turn = 1;; turn += 2) {
        wait_for(&shared->line, turn);
        if (atomic_load(&shared->stop.turn) != 0)
            return;
        if (work)
            work(duel);
        pass_on(&shared->line, turn + 1);
    }
}

static void latency_member(void *duel_, uint32_t member)
{
    struct duel *duel = duel_;
    if (member == 1) {
        answer(duel->shared, NULL, duel);
        return;
    }
    duel->status = dpb_links_time(duel->limits, ping, duel, &duel->value);
    duel->value = dpb_links_share(&duel->value, 2); /* there and back */
    end(duel->shared);
}

static dpb_status open_duel(const struct dpb_links_limits *limits, uint64_t bytes,
                            struct duel *duel)
{
    *duel = (struct duel){.limits = limits, .bytes = bytes, .value = dpb_links_nothing()};
    duel->shared = mmap(NULL, sizeof *duel->shared + bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (duel->shared == MAP_FAILED)
        return dpb_fail(DPB_NO_MEMORY, "no shared memory of %llu bytes: %s",
                        (unsigned long long)bytes, strerror(errno));
    madvise(duel->shared, sizeof *duel->shared + bytes, MADV_HUGEPAGE);
    return DPB_OK;
}

static void close_duel(struct duel *duel)
{
    munmap(duel->shared, sizeof *duel->shared + duel->bytes);
    free(duel->own[0]);
    free(duel->own[1]);
}

dpb_status dpb_links_cores_latency(const struct dpb_links_limits *limits, uint16_t a, uint16_t b,
                                   struct dpb_links_value *latency)
{
    struct duel duel;
    const uint16_t cpus[2] = {a, b};
    DPB_TRY(open_duel(limits, 0, &duel));
    dpb_status status = dpb_links_team(cpus, 2, latency_member, &duel);
    *latency = duel.value;
    close_duel(&duel);
    return status != DPB_OK ? status : duel.status;
}

/* ---- copying what another core has written -------------------------------------------------- */

static void copy_out(struct duel *duel)
{
    int64_t begin_ns = dpb_now_ns();
    memcpy(duel->own[1], duel->shared->bytes, duel->bytes);
    duel->copied_ns += dpb_now_ns() - begin_ns;
}

static void write_in(struct duel *duel)
{
    memcpy(duel->shared->bytes, duel->own[0], duel->bytes);
}

/* One exchange: a writes, b copies. */
static void exchange(struct duel *duel, uint64_t times)
{
    uint64_t turn = atomic_load(&duel->shared->line.turn);
    for (uint64_t i = 0; i < times; i++, turn += 2) {
        write_in(duel);
        pass_on(&duel->shared->line, turn + 1);
        wait_for(&duel->shared->line, turn + 2);
    }
}

/* A window is filled by b's copying time, not by the whole exchange. */
static void rate_member(void *duel_, uint32_t member)
{
    struct duel *duel = duel_;
    double rates[DPB_LINKS_WINDOWS];
    uint64_t times = 1;
    if (member == 1) {
        answer(duel->shared, copy_out, duel);
        return;
    }
    exchange(duel, 2);
    for (int i = 0; i < DPB_LINKS_WINDOWS && duel->status == DPB_OK; i++) {
        uint64_t done = 0;
        duel->copied_ns = 0;
        for (int64_t begin_ns = dpb_now_ns(), spent_ns = 0; spent_ns < 2 * duel->limits->window_ns;
             spent_ns = dpb_now_ns() - begin_ns) {
            exchange(duel, times);
            done += times;
        }
        rates[i] = (double)(done * duel->bytes) / ((double)duel->copied_ns * 1e-9);
        duel->status = dpb_links_stopped(duel->limits);
    }
    if (duel->status == DPB_OK)
        duel->value = dpb_links_value_of(rates, DPB_LINKS_WINDOWS);
    end(duel->shared);
}

static dpb_status rate_of_size(const struct dpb_links_limits *limits, const uint16_t cpus[2],
                               uint64_t bytes, struct dpb_links_value *rate)
{
    struct duel duel;
    DPB_TRY(open_duel(limits, bytes, &duel));
    dpb_status status = DPB_OK;
    for (int i = 0; i < 2; i++) {
        duel.own[i] = malloc(bytes);
        if (!duel.own[i])
            status = dpb_fail(DPB_NO_MEMORY, "out of memory");
        else
            memset(duel.own[i], i + 1, bytes);
    }
    DPB_THEN(status, dpb_links_team(cpus, 2, rate_member, &duel));
    *rate = duel.value;
    close_duel(&duel);
    return status != DPB_OK ? status : duel.status;
}

dpb_status dpb_links_cores_rate(const struct dpb_links_limits *limits,
                                struct dpb_links_cores *cores)
{
    const uint16_t cpus[2] = {cores->a, cores->b};
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
        cores->rate[i] = dpb_links_nothing();
        if (dpb_links_wanted(limits, dpb_links_size(i)))
            DPB_TRY(rate_of_size(limits, cpus, dpb_links_size(i), &cores->rate[i]));
    }
    return DPB_OK;
}
