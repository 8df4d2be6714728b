/*
 * test_device_strategies.c - strategies on arenas of a device: what they plan, whom they refuse,
 * and what they say of a device that fails and of a peer that never comes. What they compute is
 * tested with ranks as threads (test_ranks.c) and in runs (tests/system/test_device_runs.c).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/averaging/averaging.h"
#include "lib/lazy_device.h"
#include "lib/plugin.h"
#include "lib/test.h"
#include "world/world.h"

enum { MAX_WORKERS = 5, ELEMENTS = 1003, BUCKET = 100, N_BUCKETS = 11, SHARDS_ALL = 0, SHARDS_ONE };

static struct dpb_host host;
static char said[512], reported[128];

static dpb_status fail_here(dpb_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(said, sizeof said, format, list);
    va_end(list);
    return status;
}

static void report(const char *name, const char *format, ...)
{
    va_list list;
    int n = snprintf(reported, sizeof reported, "%s: ", name);
    va_start(list, format);
    vsnprintf(reported + n, sizeof reported - (size_t)n, format, list);
    va_end(list);
}

static void span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns)
{
    (void)bucket, (void)phase, (void)begin_ns, (void)end_ns;
}

static void count_bytes(uint64_t bytes)
{
    (void)bytes;
}

static void note(const char *phase, uint64_t bucket, uint32_t peer)
{
    (void)phase, (void)bucket, (void)peer;
}

/* Gives up at the fourth look. */
static dpb_status patience(const struct dpb_wait *what, int64_t *begin_ns)
{
    if (++*begin_ns < 4)
        return DPB_OK;
    return fail_here(DPB_TIMEOUT, "bucket %d, %d bytes, rank %u: %s", (int)what->bucket,
                     (int)what->bytes, what->peer, what->purpose);
}

/* ---- one rank of several ------------------------------------------------------------------- */

struct seat {
    const struct dpb_comm_ops *ops;
    void *device, *comm;
    struct dpb_device_arenas on_device;
    struct dpb_comm_args args;
    struct dpb_comm_plan plan;
    uint32_t machines[MAX_WORKERS];
};

static void open_seat_with(struct seat *seat, const char *name, uint32_t rank, uint32_t n_workers,
                           int shards, uint64_t bucket)
{
    static const struct dpb_averaging_options averaging = {.period = 1, .restart = 0.2};
    const void *options = strcmp(name, "sma") == 0 ? (const void *)&averaging : &shards;
    const struct dpb_layout layout = {
        .n_elements = ELEMENTS, .weight_type = DPB_FP32, .gradient_type = DPB_FP32};
    memset(seat, 0, sizeof *seat);
    seat->ops = plugin_load(DPB_PLUGIN_COMM, name, &host)->ops;
    seat->device = lazy_device_create(&host, 1);
    seat->on_device = (struct dpb_device_arenas){.ops = &lazy_device_ops, .device = seat->device};
    seat->args = (struct dpb_comm_args){.rank = rank,
                                        .n_workers = n_workers,
                                        .role = DPB_WORKER,
                                        .machines = seat->machines,
                                        .n_machines = 1,
                                        .device = &seat->on_device};
    seat->plan.bucket_elements = bucket;
    assert_int_equal(seat->ops->open(options, &seat->args, &seat->comm), DPB_OK);
    /* `check` is told what the plan will say. */
    struct dpb_comm_args nowhere = seat->args;
    struct dpb_comm_memory memory = {0};
    nowhere.device = NULL;
    seat->ops->memory(options, &nowhere, &layout, bucket, &memory);
    seat->plan.ops = seat->ops;
    assert_int_equal(seat->ops->plan(seat->comm, &layout, &seat->plan), DPB_OK);
    seat->ops = seat->plan.ops;
    assert_int_equal(memory.device_bytes + memory.beside_bytes, seat->plan.inbox_bytes);
}

static void open_seat(struct seat *seat, const char *name, uint32_t rank, uint32_t n_workers,
                      int shards)
{
    open_seat_with(seat, name, rank, n_workers, shards, BUCKET);
}

static void close_seat(struct seat *seat)
{
    seat->ops->close(seat->comm);
    host.release(seat->plan.owned, seat->plan.n_owned * sizeof *seat->plan.owned);
    lazy_device_destroy(seat->device);
}

/* ---- plans --------------------------------------------------------------------------------- */

static void add_owned(const struct seat *seat, unsigned char owners[ELEMENTS])
{
    uint64_t end = 0;
    for (uint64_t i = 0; i < seat->plan.n_owned; i++) {
        struct dpb_range one = seat->plan.owned[i];
        assert_true(one.begin >= end && one.end >= one.begin && one.end <= ELEMENTS);
        for (end = one.begin; end < one.end; end++)
            owners[end]++;
    }
}

static uint64_t n_owned(const struct seat *seat)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < seat->plan.n_owned; i++)
        n += seat->plan.owned[i].end - seat->plan.owned[i].begin;
    return n;
}

/* Slots are aligned to 256 bytes: `slots` of `elements` for each of the other workers. */
static uint64_t inbox_bytes(uint32_t n_workers, uint64_t slots, uint64_t elements)
{
    return (n_workers - 1) * slots * ((elements * sizeof(float) + 255) / 256 * 256);
}

/* Every variable has one owner; shards are even within an element a bucket; only who owns takes
 * memory. */
TEST(test_shards)
{
    for (uint32_t n = 1; n <= MAX_WORKERS; n++)
        for (int shards = SHARDS_ALL; shards <= SHARDS_ONE; shards++) {
            unsigned char owners[ELEMENTS] = {0};
            for (uint32_t rank = 0; rank < n; rank++) {
                struct seat seat;
                open_seat(&seat, "ps_gpu", rank, n, shards);
                bool owns = shards == SHARDS_ALL || rank == 0;
                uint64_t share = shards == SHARDS_ALL ? (BUCKET + n - 1) / n : BUCKET;
                add_owned(&seat, owners);
                assert_int_equal(seat.plan.weights, owns ? DPB_MEMORY_SHARED : DPB_MEMORY_PRIVATE);
                assert_int_equal(seat.plan.gradients, DPB_MEMORY_PRIVATE);
                assert_int_equal(seat.plan.inbox_bytes, owns ? inbox_bytes(n, 4, share) : 0);
                if (shards == SHARDS_ONE)
                    assert_int_equal(n_owned(&seat), owns ? ELEMENTS : 0);
                else
                    assert_true(n_owned(&seat) + N_BUCKETS >= ELEMENTS / n &&
                                n_owned(&seat) <= ELEMENTS / n + N_BUCKETS);
                close_seat(&seat);
            }
            for (int i = 0; i < ELEMENTS; i++)
                assert_int_equal(owners[i], 1);
        }
}

/* Buckets of an element: of the first one most have nothing, of some other one each has. */
TEST(test_smallest_buckets)
{
    enum { WORKERS = 3 };
    for (uint32_t rank = 0; rank < WORKERS; rank++) {
        struct seat seat;
        open_seat_with(&seat, "ps_gpu", rank, WORKERS, SHARDS_ALL, 1);
        assert_int_equal(seat.plan.inbox_bytes, inbox_bytes(WORKERS, 4, 1));
        assert_true(n_owned(&seat) >= ELEMENTS / WORKERS);
        close_seat(&seat);
    }
}

/* One bucket has one owner, and nobody else takes memory for an inbox. */
TEST(test_one_bucket)
{
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct seat seat;
        open_seat_with(&seat, "replicated", rank, 3, 0, 2 * ELEMENTS);
        assert_int_equal(seat.plan.inbox_bytes, rank == 0 ? inbox_bytes(3, 1, ELEMENTS) : 0);
        close_seat(&seat);
    }
}

TEST(test_replicas)
{
    for (uint32_t n = 1; n <= MAX_WORKERS; n++) {
        struct seat seat;
        open_seat(&seat, "replicated", n - 1, n, 0);
        assert_int_equal(n_owned(&seat), ELEMENTS);
        assert_int_equal(seat.plan.weights, DPB_MEMORY_PRIVATE);
        assert_int_equal(seat.plan.gradients, DPB_MEMORY_SHARED);
        assert_int_equal(seat.plan.inbox_bytes, inbox_bytes(n, 2, BUCKET));
        close_seat(&seat);
    }
}

/* ---- refusals ------------------------------------------------------------------------------ */

TEST(test_refusals)
{
    static const uint32_t one_machine[DPB_SUM_SOURCES + 1];
    struct seat seat;
    int shards = SHARDS_ALL;
    void *comm = NULL;
    open_seat(&seat, "ps_gpu", 0, 2, SHARDS_ALL);
    struct dpb_comm_args args = seat.args;
    args.machines = one_machine;
    args.n_workers = DPB_SUM_SOURCES + 1;
    assert_int_equal(seat.ops->open(&shards, &args, &comm), DPB_UNSUPPORTED);
    assert_non_null(strstr(said, "65 workers"));
    assert_null(comm);
    close_seat(&seat);
    /* A centre is one array more. */
    const struct dpb_averaging_options averaging = {.period = 1, .alpha = 0.01};
    open_seat(&seat, "sma", 0, 2, 0);
    args = seat.args;
    args.machines = one_machine;
    args.n_workers = DPB_SUM_SOURCES;
    assert_int_equal(seat.ops->open(&averaging, &args, &comm), DPB_UNSUPPORTED);
    assert_non_null(strstr(said, "64 workers"));
    assert_null(comm);
    close_seat(&seat);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Memory of two workers, of which the second is not there. */
struct pair {
    struct seat seat;
    void *memory[4][2];
    bool direct[2];
    struct dpb_arenas arenas;
};

static void open_pair(struct pair *pair, const char *name, bool direct)
{
    struct seat *seat = &pair->seat;
    open_seat(seat, name, 0, 2, SHARDS_ALL);
    const size_t bytes[4] = {ELEMENTS * sizeof(float), ELEMENTS * sizeof(float),
                             seat->plan.scratch_bytes, seat->plan.inbox_bytes};
    for (int kind = 0; kind < 4; kind++)
        for (int rank = 0; rank < 2; rank++) {
            pair->memory[kind][rank] = calloc(1, bytes[kind] + DPB_CACHE_LINE);
            assert_non_null(pair->memory[kind][rank]);
        }
    pair->direct[0] = true;
    pair->direct[1] = direct;
    pair->arenas = (struct dpb_arenas){
        .weights = pair->memory[0][0],
        .gradients = pair->memory[1][0],
        .scratch = pair->memory[2][0],
        .inbox = pair->memory[3][0],
        .peer_weights = pair->memory[0],
        .peer_gradients = pair->memory[1],
        .peer_scratch = pair->memory[2],
        .peer_inbox = pair->memory[3],
        .direct = pair->direct,
        .bucket_elements = BUCKET,
        .n_buckets = N_BUCKETS,
        .layout = {.n_elements = ELEMENTS, .weight_type = DPB_FP32, .gradient_type = DPB_FP32}};
    assert_int_equal(seat->ops->bind(seat->comm, &pair->arenas), DPB_OK);
}

static void close_pair(struct pair *pair)
{
    close_seat(&pair->seat);
    for (int kind = 0; kind < 4; kind++)
        for (int rank = 0; rank < 2; rank++)
            free(pair->memory[kind][rank]);
}

/* A step of the first worker, until it is done or fails. */
static dpb_status step(struct pair *pair)
{
    const struct dpb_step parameters = {.learning_rate = 1.0, .scale = 0.5};
    const struct dpb_comm_ops *ops = pair->seat.ops;
    struct dpb_event *done;
    DPB_TRY(ops->begin(pair->seat.comm, &parameters));
    for (uint64_t bucket = 0; bucket < N_BUCKETS; bucket++)
        DPB_TRY(ops->ready(pair->seat.comm, bucket, NULL));
    DPB_TRY(ops->end(pair->seat.comm, &done));
    while (!host.event->poll(done))
        DPB_TRY(ops->progress(pair->seat.comm, DPB_FOREVER));
    return DPB_OK;
}

static const char *const names[] = {"ps_gpu", "replicated", "sma"};
enum { N_NAMES = sizeof names / sizeof *names };

/* Without a peer the first bucket stays where its gradients, or its update, are needed. */
TEST(test_peer_never_comes)
{
    for (int i = 0; i < N_NAMES; i++) {
        struct pair pair;
        open_pair(&pair, names[i], true);
        assert_int_equal(step(&pair), DPB_TIMEOUT);
        assert_string_equal(said, strcmp(names[i], "sma") == 0
                                      ? "bucket 0, 400 bytes, rank 1: the peer's update"
                                      : "bucket 0, 400 bytes, rank 1: gradients of the peer");
        close_pair(&pair);
    }
}

/* Whatever piece of work it is that fails: the step does, by the device's words, and it does not
 * hang. */
TEST(test_device_fails)
{
    for (int i = 0; i < N_NAMES; i++)
        for (unsigned n = 1; n <= 4; n++) {
            struct pair pair;
            open_pair(&pair, names[i], true);
            lazy_device_break(pair.seat.device, n);
            assert_int_equal(step(&pair), DPB_FAILED);
            assert_string_equal(said, "the lazy device is broken");
            close_pair(&pair);
        }
}

TEST(test_ways_are_reported)
{
    struct pair pair;
    open_pair(&pair, "ps_gpu", true);
    assert_string_equal(reported, "copies: direct");
    close_pair(&pair);
    open_pair(&pair, "replicated", false);
    assert_string_equal(reported, "copies: staged through the host");
    close_pair(&pair);
}

static int setup(void **state)
{
    static const struct dpb_optimizer_ops optimizer = {.update = lazy_device_update};
    (void)state;
    host = plugin_host;
    host.fail = fail_here;
    host.report = report;
    host.span = span;
    host.count_bytes = count_bytes;
    host.note = note;
    host.patience = patience;
    host.flag = &dpb_flags;
    host.event = &dpb_events;
    host.optimizer = &optimizer;
    return 0;
}

TEST_MAIN(setup, NULL)
