/*
 * all_reduce.c - how long a strategy takes on one machine from "the gradients are ready" to "their
 * sum is in every rank's arena", alone: no device, no loop, and an optimizer that does nothing.
 *
 *     all_reduce STRATEGY|direct RANKS BYTES SECONDS [KEY=VALUE ...]
 *
 * KEY=VALUE are options of the strategy. Ranks are processes, pinned to a core each where there are
 * as many (else they run where the system puts them); arenas are made as core makes them. `direct`
 * is the bound that memory sets: each rank sums its share straight out of all arenas and writes it
 * to all, between two barriers. A repetition takes from the last rank's beginning to the last one's
 * end. Prints one JSON object: the median in microseconds, and by it the bus bandwidth,
 * S/t * 2 (n - 1)/n. Under `dpbench hosts` rank r is on host r + 1.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/options.h"
#include "base/stats.h"
#include "launch/hosts.h"
#include "no_optimizer.h"
#include "plan/experiment.h"
#include "plugin/plugins.h"
#include "world/host_device.h"
#include "world/world.h"

enum { MAX_RANKS = 16, MAX_REPETITIONS = 200000, CACHE_LINE = 64 };
enum { MAX_KEYS = 256, KEY_BYTES = 64, VALUE_BYTES = 512 };

static const uint64_t bucket_bytes = 4 << 20; /* comm.bucket's default */

/* In memory that all ranks map. */
struct shared {
    struct {
        uint64_t value;
        char unused[CACHE_LINE - 8];
    } arrived[MAX_RANKS];
    uint64_t n_repetitions;
    uint32_t wrong;
    struct { /* what strategies tell each other when they connect */
        uint32_t there;
        char key[KEY_BYTES], value[VALUE_BYTES];
        size_t bytes;
    } store[MAX_KEYS];
    uint32_t n_keys;
    struct {
        int64_t begin_ns[MAX_REPETITIONS], end_ns[MAX_REPETITIONS];
    } times[MAX_RANKS];
};

struct bench {
    const char *strategy; /* NULL: direct */
    uint32_t n_ranks, rank;
    uint64_t n_elements;
    double seconds;
    struct shared *shared;
    uint64_t barriers;
    bool crowded;               /* more ranks than cores */
    void *arenas[3][MAX_RANKS]; /* weights, gradients, scratch */
    const struct dpb_plugin *plugin;
    const struct dpb_comm_ops *ops;
    void *options, *comm;
    struct dpb_arenas bound;
};

static void fail(const char *what)
{
    fprintf(stderr, "all_reduce: %s\n", what);
    exit(1);
}

static void check(dpb_status status)
{
    if (status != DPB_OK) /* the message is written */
        exit(1);
}

/* ---- ranks --------------------------------------------------------------------------------- */

static void barrier(struct bench *b)
{
    uint64_t round = ++b->barriers;
    __atomic_store_n(&b->shared->arrived[b->rank].value, round, __ATOMIC_RELEASE);
    for (uint32_t rank = 0; rank < b->n_ranks; rank++)
        while (__atomic_load_n(&b->shared->arrived[rank].value, __ATOMIC_ACQUIRE) < round)
            if (b->crowded)
                sched_yield();
}

static void pin(const struct bench *b)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (b->crowded || sched_getaffinity(0, sizeof all, &all) != 0)
        return;
    uint32_t n = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n++ == b->rank)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
}

/* ---- a store in shared memory ---------------------------------------------------------------- */

static struct shared *shared_store;

static dpb_status store_put(const char *key, const void *value, size_t bytes)
{
    uint32_t i = __atomic_fetch_add(&shared_store->n_keys, 1, __ATOMIC_RELAXED);
    if (i >= MAX_KEYS || strlen(key) >= KEY_BYTES || bytes > VALUE_BYTES)
        fail("the store is full");
    strcpy(shared_store->store[i].key, key);
    memcpy(shared_store->store[i].value, value, bytes);
    shared_store->store[i].bytes = bytes;
    __atomic_store_n(&shared_store->store[i].there, 1, __ATOMIC_RELEASE);
    return DPB_OK;
}

static dpb_status store_get(const char *key, void *value, size_t *bytes, int64_t timeout_ns)
{
    (void)timeout_ns;
    for (;; usleep(100))
        for (uint32_t i = 0; i < MAX_KEYS; i++) {
            if (!__atomic_load_n(&shared_store->store[i].there, __ATOMIC_ACQUIRE) ||
                strcmp(shared_store->store[i].key, key) != 0)
                continue;
            if (shared_store->store[i].bytes > *bytes)
                fail("a value is longer than expected");
            *bytes = shared_store->store[i].bytes;
            memcpy(value, shared_store->store[i].value, *bytes);
            return DPB_OK;
        }
}

static const struct dpb_store_ops store = {.put = store_put, .get = store_get};

/* ---- the strategy --------------------------------------------------------------------------- */

static void *shared_memory(const char *name, size_t bytes)
{
    struct dpb_mapping mapping;
    check(dpb_mapping_create(name, bytes, &mapping));
    memset(mapping.memory, 0, bytes);
    return mapping.memory;
}

/* Before the ranks part: what the strategy wants is made for all of them. */
static void open_strategy(struct bench *b)
{
    static struct dpb_host host;
    host = dpb_host;
    host.optimizer = &no_optimizer;
    host.store = &store;
    shared_store = b->shared;
    check(dpb_plugin_load(DPB_PLUGIN_COMM, b->strategy, "command line", &host, &b->plugin));
    b->ops = b->plugin->ops;
}

static void parse_options(struct bench *b, char **settings)
{
    struct dpb_config *config = dpb_config_create();
    char text[256];
    if (!config)
        fail("out of memory");
    for (; *settings; settings++) {
        snprintf(text, sizeof text, "comm.%s", *settings);
        check(dpb_config_assign(config, text, "command line"));
    }
    b->options = calloc(1, b->plugin->options_size + 1);
    const struct dpb_option_table table = {
        .section = "comm", .rows = b->plugin->options, .values = b->options};
    if (b->plugin->options)
        check(dpb_options_parse(&table, 1, config));
}

static void bind_strategy(struct bench *b)
{
    static const uint32_t machines[MAX_RANKS];
    const struct dpb_comm_args args = {.rank = b->rank,
                                       .n_workers = b->n_ranks,
                                       .bucket_bytes = bucket_bytes,
                                       .machines = machines,
                                       .n_machines = 1,
                                       .device = &dpb_host_device};
    struct dpb_layout *layout = &b->bound.layout;
    struct dpb_comm_plan plan = {.bucket_elements = bucket_bytes / sizeof(float), .ops = b->ops};
    *layout = (struct dpb_layout){
        .n_elements = b->n_elements, .weight_type = DPB_FP32, .gradient_type = DPB_FP32};
    check(b->ops->open(b->options, &args, &b->comm));
    check(b->ops->plan(b->comm, layout, &plan));
    b->ops = plan.ops;
    b->bound.weights = b->arenas[0][b->rank];
    b->bound.gradients = b->arenas[1][b->rank];
    b->bound.scratch = b->arenas[2][b->rank];
    b->bound.peer_weights = b->arenas[0];
    b->bound.peer_gradients = b->arenas[1];
    b->bound.peer_scratch = b->arenas[2];
    b->bound.bucket_elements = plan.bucket_elements;
    b->bound.n_buckets = (b->n_elements + plan.bucket_elements - 1) / plan.bucket_elements;
    check(b->ops->bind(b->comm, &b->bound));
    check(b->ops->load(b->comm));
}

static void all_reduce(struct bench *b, uint64_t number)
{
    const struct dpb_step step = {.step = number, .scale = 1.0 / b->n_ranks};
    struct dpb_event *done;
    check(b->ops->begin(b->comm, &step));
    for (uint64_t bucket = 0; bucket < b->bound.n_buckets; bucket++)
        check(b->ops->ready(b->comm, bucket, NULL));
    check(b->ops->end(b->comm, &done));
    while (!dpb_events.poll(done))
        check(b->ops->progress(b->comm, DPB_FOREVER));
}

/* ---- the bound ------------------------------------------------------------------------------ */

__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) static void
sum_share(float *const *arenas, uint32_t n, uint64_t begin, uint64_t end)
{
    if (n == 2) {
        float *restrict a = arenas[0], *restrict c = arenas[1];
        for (uint64_t i = begin; i < end; i++)
            a[i] = c[i] = a[i] + c[i];
        return;
    }
    for (uint64_t i = begin; i < end; i++) {
        float sum = 0.0f;
        for (uint32_t r = 0; r < n; r++)
            sum += arenas[r][i];
        for (uint32_t r = 0; r < n; r++)
            arenas[r][i] = sum;
    }
}

static void direct(struct bench *b)
{
    barrier(b);
    sum_share((float *const *)b->arenas[1], b->n_ranks, b->n_elements * b->rank / b->n_ranks,
              b->n_elements * (b->rank + 1) / b->n_ranks);
    barrier(b);
}

/* ---- measuring ------------------------------------------------------------------------------ */

static void once(struct bench *b, uint64_t number)
{
    b->strategy ? all_reduce(b, number) : direct(b);
}

/* Integers whose sum is exact; then zeros, which stay zeros. */
static void check_sum(struct bench *b)
{
    float *mine = b->arenas[1][b->rank];
    for (uint64_t i = 0; i < b->n_elements; i++)
        mine[i] = (float)((i * 7 + b->rank * 3) % 101);
    barrier(b);
    once(b, 0);
    for (uint64_t i = 0; i < b->n_elements; i++) {
        float sum = 0.0f;
        for (uint32_t rank = 0; rank < b->n_ranks; rank++)
            sum += (float)((i * 7 + rank * 3) % 101);
        if (mine[i] != sum)
            b->shared->wrong = 1;
    }
    barrier(b);
    memset(mine, 0, b->n_elements * sizeof *mine);
    barrier(b);
}

static void run_rank(struct bench *b)
{
    uint64_t n = 0, warm = 20;
    pin(b);
    dpb_world.rank = b->rank;
    if (b->strategy)
        bind_strategy(b);
    check_sum(b);
    int64_t end_ns = dpb_now_ns() + (int64_t)(b->seconds * 1e9);
    for (;; n++) {
        if (b->rank == 0)
            b->shared->n_repetitions =
                n < warm + 3 || (dpb_now_ns() < end_ns && n < MAX_REPETITIONS) ? UINT64_MAX : n;
        barrier(b);
        if (b->shared->n_repetitions == n)
            break;
        barrier(b);
        int64_t began_ns = dpb_now_ns();
        once(b, n + 1);
        b->shared->times[b->rank].end_ns[n] = dpb_now_ns();
        b->shared->times[b->rank].begin_ns[n] = began_ns;
    }
    barrier(b);
    if (b->strategy)
        b->ops->close(b->comm);
    exit(0);
}

static void print_result(const struct bench *b)
{
    const struct shared *shared = b->shared;
    uint64_t n = shared->n_repetitions, warm = 20;
    double *microseconds = malloc(n * sizeof *microseconds);
    if (!microseconds)
        fail("out of memory");
    for (uint64_t i = 0; i < n; i++) {
        int64_t begin_ns = 0, end_ns = 0;
        for (uint32_t r = 0; r < b->n_ranks; r++) {
            int64_t from = shared->times[r].begin_ns[i], to = shared->times[r].end_ns[i];
            begin_ns = from > begin_ns ? from : begin_ns;
            end_ns = to > end_ns ? to : end_ns;
        }
        microseconds[i] = (double)(end_ns - begin_ns) / 1e3;
    }
    struct dpb_stats stats;
    dpb_stats_of(microseconds + warm, n - warm, &stats);
    double bytes = (double)(b->n_elements * sizeof(float));
    double bus = bytes * 2 * (b->n_ranks - 1) / b->n_ranks / (stats.median * 1e3);
    printf(
        "{\"what\": \"%s\", \"ranks\": %u, \"bytes\": %.0f, \"repetitions\": %llu, \"median_us\": "
        "%.3f, \"p10_us\": %.3f, \"p90_us\": %.3f, \"rate\": %.4f, \"unit\": \"GB/s\"}\n",
        b->strategy ? b->strategy : "direct", b->n_ranks, bytes, (unsigned long long)(n - warm),
        stats.median, stats.p10, stats.p90, bus);
    free(microseconds);
}

/* Those that this process may use: taskset or a container may leave it a few of the machine. */
static uint32_t n_cores(void)
{
    cpu_set_t all;
    return sched_getaffinity(0, sizeof all, &all) == 0 ? (uint32_t)CPU_COUNT(&all) : 1;
}

static void run_all(struct bench *b)
{
    pid_t pids[MAX_RANKS];
    bool failed = false;
    struct dpb_hosts hosts;
    if (dpb_hosts_open(&hosts) != DPB_OK || (hosts.n > 0 && hosts.n < b->n_ranks))
        fail("fewer hosts than ranks");
    for (b->rank = 0; b->rank < b->n_ranks; b->rank++) {
        pids[b->rank] = fork();
        if (pids[b->rank] == 0 && hosts.n > 0 && setns(hosts.fds[b->rank], CLONE_NEWNET) != 0)
            fail("setns");
        if (pids[b->rank] == 0)
            run_rank(b);
        if (pids[b->rank] < 0)
            fail("fork");
    }
    for (uint32_t i = 0; i < b->n_ranks; i++) {
        int status;
        if (waitpid(-1, &status, 0) < 0 || status != 0)
            failed = true;
        if (failed) /* the others would wait for ever */
            for (uint32_t r = 0; r < b->n_ranks; r++)
                kill(pids[r], SIGKILL);
    }
    if (failed || b->shared->wrong)
        fail(failed ? "a rank failed" : "the sum is wrong");
}

int main(int argc, char **argv)
{
    struct bench b = {.seconds = argc >= 5 ? atof(argv[4]) : 0};
    if (argc >= 5) {
        b.strategy = strcmp(argv[1], "direct") == 0 ? NULL : argv[1];
        b.n_ranks = (uint32_t)atoi(argv[2]);
        b.n_elements = strtoull(argv[3], NULL, 10) / sizeof(float);
    }
    if (b.n_ranks < 2 || b.n_ranks > MAX_RANKS || b.n_elements == 0 || b.seconds <= 0)
        fail("usage: all_reduce STRATEGY|direct RANKS(2..16) BYTES SECONDS [KEY=VALUE ...]");
    b.crowded = b.n_ranks > n_cores();
    b.shared = shared_memory("bench", sizeof *b.shared);
    dpb_world.n_workers = dpb_world.n_ranks = b.n_ranks;
    dpb_world.may_spin = !b.crowded;
    check(dpb_board_create(b.n_ranks, 4096, &dpb_world.board));
    if (b.strategy) {
        open_strategy(&b);
        parse_options(&b, argv + 5);
    }
    for (uint32_t kind = 0; kind < 3; kind++)
        for (uint32_t rank = 0; rank < b.n_ranks; rank++)
            b.arenas[kind][rank] = shared_memory("arena", b.n_elements * sizeof(float) + (8 << 20));
    run_all(&b);
    print_result(&b);
    return 0;
}
