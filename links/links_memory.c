/* links_memory.c - reads and copies the host's memory, by one thread or many. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "links/links.h"

enum { LEAST_BYTES = 4096, TURN_BYTES = 1 << 18 /* between two looks at the clock */ };

enum { READ, COPY, KINDS };

/* One size, gone over by all threads. */
struct round {
    const struct dpb_links_limits *limits;
    char *from, *to;
    uint64_t bytes; /* of all */
    uint32_t n_threads;
    pthread_barrier_t begin;
    double (*rates)[KINDS][DPB_LINKS_WINDOWS]; /* of each thread */
    uint64_t *sums;
};

/* Eight independent sums; the compiler makes vectors of them. */
static uint64_t read_all(const uint64_t *words, uint64_t n)
{
    uint64_t sums[8] = {0}, sum = 0;
    for (uint64_t i = 0; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] += words[i + (uint64_t)k];
    for (int k = 0; k < 8; k++)
        sum += sums[k];
    return sum;
}

/* Keeps the compiler from removing the unused sum. */
static void used(const void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

static double rate_of_window(struct round *round, uint32_t member, int kind)
{
    uint64_t each = round->bytes / round->n_threads & ~UINT64_C(63), turns = 0;
    uint64_t passes = each < TURN_BYTES ? TURN_BYTES / each : 1;
    char *from = round->from + each * member, *to = round->to + each * member;
    int64_t begin_ns = dpb_now_ns(), now_ns;
    do {
        for (uint64_t i = 0; i < passes; i++) {
            if (kind == READ)
                round->sums[member] += read_all((const uint64_t *)(const void *)from, each / 8);
            else
                memcpy(to, from, each);
            used(kind == READ ? from : to);
        }
        turns += passes;
        now_ns = dpb_now_ns();
    } while (now_ns - begin_ns < round->limits->window_ns);
    return (double)(turns * each) / ((double)(now_ns - begin_ns) * 1e-9);
}

static void measure_member(void *round_, uint32_t member)
{
    struct round *round = round_;
    for (int kind = 0; kind < KINDS; kind++) {
        pthread_barrier_wait(&round->begin);
        rate_of_window(round, member, kind); /* warms the caches; takes the page faults */
        for (int i = 0; i < DPB_LINKS_WINDOWS; i++) {
            pthread_barrier_wait(&round->begin);
            round->rates[member][kind][i] = rate_of_window(round, member, kind);
        }
    }
}

/* Adds up the rates of all threads, which run at once. */
static struct dpb_links_value total(const struct round *round, int kind)
{
    double sums[DPB_LINKS_WINDOWS] = {0};
    for (uint32_t t = 0; t < round->n_threads; t++)
        for (int i = 0; i < DPB_LINKS_WINDOWS; i++)
            sums[i] += round->rates[t][kind][i];
    return dpb_links_value_of(sums, DPB_LINKS_WINDOWS);
}

/* Each member's own part; a single toucher writes all. */
static void touch_member(void *round_, uint32_t member)
{
    struct round *round = round_;
    uint64_t each = round->n_threads > 0 ? round->bytes / round->n_threads & ~UINT64_C(63) : 0;
    uint64_t bytes = each > 0 ? each : round->bytes;
    memset(round->from + each * member, 1, bytes);
    memset(round->to + each * member, 2, bytes);
}

static dpb_status touch(struct round *round, const uint16_t *cpus, uint16_t toucher)
{
    uint32_t n_threads = round->n_threads;
    if (toucher == UINT16_MAX)
        return dpb_links_team(cpus, n_threads, touch_member, round);
    round->n_threads = 0;
    dpb_status status = dpb_links_team(&toucher, 1, touch_member, round);
    round->n_threads = n_threads;
    return status;
}

/* Huge pages, if the system has them: memory is measured, not its page table. */
static char *map(uint64_t bytes)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static void unmap(char *memory, uint64_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

static dpb_status measure_size(struct round *round, const uint16_t *cpus, uint16_t toucher)
{
    dpb_status status = DPB_NO_MEMORY;
    round->from = map(round->bytes);
    round->to = map(round->bytes);
    if (!round->from || !round->to) {
        dpb_fail(DPB_NO_MEMORY, "no memory for two buffers of %llu bytes: %s",
                 (unsigned long long)round->bytes, strerror(errno));
    } else {
        status = touch(round, cpus, toucher);
        DPB_THEN(status, dpb_links_team(cpus, round->n_threads, measure_member, round));
    }
    unmap(round->from, round->bytes);
    unmap(round->to, round->bytes);
    return status;
}

dpb_status dpb_links_memory_measure(const struct dpb_links_limits *limits, const uint16_t *cpus,
                                    uint32_t n_threads, uint16_t toucher,
                                    struct dpb_links_memory *memory)
{
    struct round round = {.limits = limits,
                          .n_threads = n_threads,
                          .rates = calloc(n_threads, sizeof *round.rates),
                          .sums = calloc(n_threads, sizeof *round.sums)};
    bool ready =
        round.rates && round.sums && pthread_barrier_init(&round.begin, NULL, n_threads) == 0;
    dpb_status status = dpb_allocated(ready);
    memory->n_threads = n_threads;
    for (uint32_t i = 0; i < DPB_LINKS_SIZES; i++) {
        memory->read[i] = memory->copy[i] = dpb_links_nothing();
        round.bytes = dpb_links_size(i);
        /* A single thread may use less than a page. */
        bool wanted = n_threads == 1 || round.bytes / n_threads >= LEAST_BYTES;
        if (status != DPB_OK || !wanted || !dpb_links_wanted(limits, round.bytes))
            continue;
        status = dpb_links_stopped(limits);
        DPB_THEN(status, measure_size(&round, cpus, toucher));
        if (status == DPB_OK) {
            memory->read[i] = total(&round, READ);
            memory->copy[i] = total(&round, COPY);
        }
    }
    if (ready)
        pthread_barrier_destroy(&round.begin);
    free(round.rates);
    free(round.sums);
    return status;
}
