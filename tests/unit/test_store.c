/*
 * test_store.c - the key-value store between ranks and launcher.
 */
#include <pthread.h>
#include <sys/socket.h>

#include "tests/unit/trial.h"
#include "world/store.h"

/* ---- what ranks do ------------------------------------------------------------------------- */

static dpb_status all_to_all(struct trial_scratch *scratch)
{
    char key[32];
    (void)scratch;
    for (uint32_t round = 0; round < 3; round++) {
        uint64_t mine = round * 1000 + dpb_world.rank;
        snprintf(key, sizeof key, "value/%u/%u", round, dpb_world.rank);
        DPB_TRY(dpb_store.put(key, &mine, sizeof mine));
        for (uint32_t rank = dpb_world.n_ranks; rank-- > 0;) {
            uint64_t other = 0;
            size_t bytes = sizeof other;
            snprintf(key, sizeof key, "value/%u/%u", round, rank);
            DPB_TRY(dpb_store.get(key, &other, &bytes, 0));
            RANK_CHECK(bytes == sizeof other && other == round * 1000 + rank);
        }
        snprintf(key, sizeof key, "round %u", round);
        DPB_TRY(dpb_store_barrier(key, 0));
    }
    return DPB_OK;
}

/* No rank leaves a barrier before the last one has come. */
static dpb_status barrier_holds(struct trial_scratch *scratch)
{
    char name[32];
    for (uint32_t round = 0; round < 20; round++) {
        if (round % dpb_world.n_ranks == dpb_world.rank)
            trial_sleep_ms(10);
        __atomic_fetch_add(&scratch->numbers[round], 1, __ATOMIC_SEQ_CST);
        snprintf(name, sizeof name, "barrier %u", round);
        DPB_TRY(dpb_store_barrier(name, 0));
        RANK_CHECK(__atomic_load_n(&scratch->numbers[round], __ATOMIC_SEQ_CST) ==
                   dpb_world.n_ranks);
    }
    return DPB_OK;
}

/* Workers meet as often as they like, and no server with them. */
static dpb_status workers_meet(struct trial_scratch *scratch)
{
    for (uint32_t round = 0; round < 20 && dpb_world.role == DPB_WORKER; round++) {
        if (round % dpb_world.n_workers == dpb_world.rank)
            trial_sleep_ms(10);
        __atomic_fetch_add(&scratch->numbers[round], 1, __ATOMIC_SEQ_CST);
        DPB_TRY(dpb_workers_meet());
        RANK_CHECK(__atomic_load_n(&scratch->numbers[round], __ATOMIC_SEQ_CST) ==
                   dpb_world.n_workers);
    }
    return dpb_store_barrier("all", 0);
}

/* Rank 0 needs nobody at its barrier; rank 1 takes it for one of two ranks, rank 2 for its own. */
static dpb_status barrier_for_others(struct trial_scratch *scratch)
{
    if (dpb_world.rank == 0)
        DPB_TRY(dpb_store_barrier_of(1, "alone", 0));
    DPB_TRY(dpb_store_barrier("was alone", 0));
    if (dpb_world.rank > 0)
        RANK_FAILS(scratch, DPB_FAILED, dpb_store_barrier_of(3 - dpb_world.rank, "alone", 0));
    return DPB_OK;
}

static dpb_status waiting_get(struct trial_scratch *scratch)
{
    (void)scratch;
    char value[8] = "";
    size_t bytes = sizeof value;
    int64_t begin = dpb_now_ns();
    if (dpb_world.rank == 1) {
        DPB_TRY(dpb_store.get("waiting", value, &bytes, 0));
        trial_sleep_ms(300);
        return dpb_store.put("late", "abc", 3);
    }
    DPB_TRY(dpb_store.put("waiting", NULL, 0));
    DPB_TRY(dpb_store.get("late", value, &bytes, 0));
    RANK_CHECK(bytes == 3 && memcmp(value, "abc", 3) == 0);
    RANK_CHECK(dpb_now_ns() - begin > 100000000);
    return DPB_OK;
}

static dpb_status deadline_get(struct trial_scratch *scratch)
{
    char value[8];
    size_t bytes = sizeof value;
    int64_t begin = dpb_now_ns();
    RANK_FAILS(scratch, DPB_TIMEOUT, dpb_store.get("nobody's", value, &bytes, 200000000));
    int64_t took = dpb_now_ns() - begin;
    RANK_CHECK(took > 150000000 && took < 2000000000);
    return dpb_store.put("the store still works", NULL, 0);
}

static dpb_status deadline_barrier(struct trial_scratch *scratch)
{
    if (dpb_world.rank == 2) {
        dpb_world_note("asleep", UINT64_MAX, UINT32_MAX);
        DPB_TRY(dpb_store_barrier("begun", 0));
        trial_sleep_ms(2000);
    } else {
        DPB_TRY(dpb_store_barrier("begun", 0));
        RANK_FAILS(scratch, DPB_TIMEOUT, dpb_store_barrier("here", 200000000));
    }
    return DPB_OK;
}

static dpb_status sizes(struct trial_scratch *scratch)
{
    static uint8_t large[DPB_STORE_VALUE_BYTES + 1], back[DPB_STORE_VALUE_BYTES];
    size_t bytes = sizeof back;
    char key[DPB_STORE_KEY_BYTES + 2];
    large[0] = 1;
    large[DPB_STORE_VALUE_BYTES - 1] = 2;
    DPB_TRY(dpb_store.put("largest", large, DPB_STORE_VALUE_BYTES));
    DPB_TRY(dpb_store.get("largest", back, &bytes, 0));
    RANK_CHECK(bytes == sizeof back && memcmp(large, back, bytes) == 0);
    DPB_TRY(dpb_store.put("empty", NULL, 0));
    DPB_TRY(dpb_store.get("empty", back, &bytes, 0));
    RANK_CHECK(bytes == 0);
    memset(key, 'k', sizeof key);
    key[DPB_STORE_KEY_BYTES] = '\0';
    DPB_TRY(dpb_store.put(key, "x", 1));
    key[DPB_STORE_KEY_BYTES] = 'k';
    key[DPB_STORE_KEY_BYTES + 1] = '\0';
    RANK_FAILS(scratch, DPB_FAILED, dpb_store.put(key, "x", 1));
    RANK_FAILS(scratch, DPB_FAILED, dpb_store.put("", "x", 1));
    bytes = 10;
    RANK_FAILS(scratch, DPB_FAILED, dpb_store.get("largest", back, &bytes, 0));
    RANK_FAILS(scratch, DPB_FAILED, dpb_store.put("too large", large, sizeof large));
    return DPB_OK;
}

static dpb_status duplicates(struct trial_scratch *scratch)
{
    if (dpb_world.rank == 0)
        DPB_TRY(dpb_store.put("mine", "a", 1));
    DPB_TRY(dpb_store_barrier("put", 0));
    RANK_FAILS(scratch, DPB_FAILED, dpb_store.put("mine", "b", 1));
    char value;
    size_t bytes = 1;
    DPB_TRY(dpb_store.get("mine", &value, &bytes, 0));
    RANK_CHECK(value == 'a');
    return DPB_OK;
}

static dpb_status barrier_twice(struct trial_scratch *scratch)
{
    DPB_TRY(dpb_store_barrier("once", 0));
    RANK_FAILS(scratch, DPB_FAILED, dpb_store_barrier("once", 0));
    return DPB_OK;
}

/* More than the store holds goes from rank to rank, in order, whoever comes first. */
static dpb_status gives(struct trial_scratch *scratch)
{
    enum { PIECES = DPB_STORE_TOTAL_BYTES / DPB_STORE_VALUE_BYTES + 20 };
    static uint8_t piece[DPB_STORE_VALUE_BYTES];
    (void)scratch;
    for (uint32_t i = 0; i < PIECES; i++) {
        size_t bytes = sizeof piece - i, expected = bytes;
        if (i % 50 == 10 * dpb_world.rank)
            trial_sleep_ms(20);
        if (dpb_world.rank == 0) {
            memset(piece, (int)i, bytes);
            DPB_TRY(dpb_store_give("pieces", piece, bytes, 0));
        } else {
            bytes = sizeof piece;
            DPB_TRY(dpb_store_take("pieces", piece, &bytes, 0));
            RANK_CHECK(bytes == expected && piece[0] == (uint8_t)i &&
                       piece[bytes - 1] == (uint8_t)i);
        }
    }
    return DPB_OK;
}

/* What nobody has taken in time is gone. */
static dpb_status deadline_give(struct trial_scratch *scratch)
{
    char value = 'a';
    size_t bytes = 1;
    if (dpb_world.rank == 0)
        RANK_FAILS(scratch, DPB_TIMEOUT, dpb_store_give("left", &value, 1, 200000000));
    DPB_TRY(dpb_store_barrier("over", 0));
    if (dpb_world.rank == 1)
        RANK_FAILS(scratch, DPB_TIMEOUT, dpb_store_take("left", &value, &bytes, 200000000));
    DPB_TRY(dpb_store_barrier("nothing", 0));
    value = 'b';
    if (dpb_world.rank == 0)
        return dpb_store_give("left", &value, 1, 0);
    DPB_TRY(dpb_store_take("left", &value, &bytes, 0));
    RANK_CHECK(value == 'b');
    return DPB_OK;
}

static dpb_status gives_twice(struct trial_scratch *scratch)
{
    char value;
    size_t bytes = 1;
    DPB_TRY(dpb_store_barrier("begun", 0));
    if (dpb_world.rank == 0)
        return dpb_store_give("same", "a", 1, 0);
    if (dpb_world.rank == 1) {
        trial_sleep_ms(300); /* rank 0's is there */
        RANK_FAILS(scratch, DPB_FAILED, dpb_store_give("same", "b", 1, 0));
        return dpb_store.put("refused", "", 0);
    }
    bytes = 0;
    DPB_TRY(dpb_store.get("refused", &value, &bytes, 0));
    bytes = 1;
    DPB_TRY(dpb_store_take("same", &value, &bytes, 0));
    RANK_CHECK(value == 'a');
    return DPB_OK;
}

static void *get_from_thread(void *result)
{
    char value;
    size_t bytes = 1;
    *(dpb_status *)result = dpb_store.get("from a sister thread", &value, &bytes, 0);
    return NULL;
}

/* A thread that waits does not keep the others of its process from the store. */
static dpb_status threads(struct trial_scratch *scratch)
{
    enum { N = 8 };
    pthread_t thread[N];
    dpb_status results[N];
    char key[32];
    (void)scratch;
    for (int i = 0; i < N; i++)
        RANK_CHECK(pthread_create(&thread[i], NULL, get_from_thread, &results[i]) == 0);
    trial_sleep_ms(100);
    for (int i = 0; i < 200; i++) {
        snprintf(key, sizeof key, "key %d", i);
        DPB_TRY(dpb_store.put(key, key, sizeof key));
    }
    DPB_TRY(dpb_store.put("from a sister thread", "x", 1));
    for (int i = 0; i < N; i++) {
        pthread_join(thread[i], NULL);
        RANK_CHECK(results[i] == DPB_OK);
    }
    return DPB_OK;
}

static dpb_status leaves_early(struct trial_scratch *scratch)
{
    if (dpb_world.rank == 1)
        return DPB_OK;
    RANK_FAILS(scratch, DPB_PEER, dpb_store_barrier("all", 0));
    return DPB_OK;
}

/* Rank 2 dies while the others wait for it: what it has put is there, and nothing else is waited
 * for. Rank 3, which a barrier then misses, is alone named. */
static dpb_status loses_one(struct trial_scratch *scratch)
{
    char value = 0;
    size_t bytes = 1;
    bool lost;
    if (dpb_world.rank == 2) {
        dpb_board_page(dpb_world.board, 2)->may_die = 1;
        DPB_TRY(dpb_store.put("mine", "a", 1));
        trial_sleep_ms(200);
        kill(getpid(), SIGKILL);
    }
    if (dpb_world.rank == 0) {
        DPB_TRY(dpb_store_get_from(2, "never", &value, &bytes, &lost));
        RANK_CHECK(lost && dpb_board_lost(dpb_world.board, 2));
        RANK_CHECK(!dpb_board_lost(dpb_world.board, 1));
    }
    DPB_TRY(dpb_store_barrier("without it", 0));
    DPB_TRY(dpb_store_get_from(2, "never", &value, &bytes, &lost));
    RANK_CHECK(lost);
    bytes = 1;
    DPB_TRY(dpb_store_get_from(2, "mine", &value, &bytes, &lost));
    RANK_CHECK(!lost && value == 'a');
    if (dpb_world.role == DPB_WORKER)
        DPB_TRY(dpb_workers_meet());
    if (dpb_world.role == DPB_WORKER)
        RANK_FAILS(scratch, DPB_TIMEOUT, dpb_store_barrier("missed", 200000000));
    return dpb_store_barrier("again", 0);
}

/* Bytes on rank 1's socket, past the client; rank 0 waits for what never comes. */
static dpb_status raw(const void *bytes, size_t n)
{
    if (dpb_world.rank == 1 && write(3, bytes, n) != (ssize_t)n)
        return dpb_fail(DPB_FAILED, "descriptor 3 is not the store's");
    return dpb_store_barrier("never", 0);
}

static struct dpb_frame frame_of(dpb_store_op op)
{
    return (struct dpb_frame){.magic = DPB_STORE_MAGIC, .op = (uint16_t)op, .serial = 9};
}

static dpb_status raw_garbage(struct trial_scratch *scratch)
{
    char bytes[64];
    (void)scratch;
    memset(bytes, 'x', sizeof bytes);
    return raw(bytes, sizeof bytes);
}

static dpb_status raw_long_key(struct trial_scratch *scratch)
{
    struct dpb_frame frame = frame_of(DPB_STORE_PUT);
    (void)scratch;
    frame.key_bytes = 60000;
    return raw(&frame, sizeof frame);
}

static dpb_status raw_long_value(struct trial_scratch *scratch)
{
    struct dpb_frame frame = frame_of(DPB_STORE_PUT);
    (void)scratch;
    frame.key_bytes = 1;
    frame.value_bytes = UINT32_MAX;
    return raw(&frame, sizeof frame);
}

static dpb_status raw_empty_key(struct trial_scratch *scratch)
{
    struct dpb_frame frame = frame_of(DPB_STORE_GET);
    (void)scratch;
    return raw(&frame, sizeof frame);
}

static dpb_status raw_answer(struct trial_scratch *scratch)
{
    struct dpb_frame frame = frame_of(DPB_STORE_ANSWER);
    (void)scratch;
    return raw(&frame, sizeof frame);
}

static dpb_status raw_operation(struct trial_scratch *scratch)
{
    struct dpb_frame frame = frame_of((dpb_store_op)77);
    (void)scratch;
    return raw(&frame, sizeof frame);
}

static dpb_status raw_flood(struct trial_scratch *scratch)
{
    struct {
        struct dpb_frame frame;
        char key;
    } request = {frame_of(DPB_STORE_GET), 'k'};
    char bytes[100 * (sizeof(struct dpb_frame) + 1)];
    (void)scratch;
    request.frame.key_bytes = 1;
    request.frame.timeout_ns = DPB_FOREVER;
    for (size_t i = 0; i < 100; i++)
        memcpy(bytes + i * (sizeof(struct dpb_frame) + 1), &request, sizeof(struct dpb_frame) + 1);
    return raw(bytes, sizeof bytes);
}

/* A library of rank 1 closes a descriptor that is not its own, or shuts it down. */
static dpb_status closes_socket(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1)
        close(3);
    return dpb_store_barrier("never", 0);
}

static dpb_status shuts_socket(struct trial_scratch *scratch)
{
    (void)scratch;
    if (dpb_world.rank == 1)
        shutdown(3, SHUT_RDWR);
    return dpb_store_barrier("never", 0);
}

static const struct trial_case cases[] = {
    {"all_to_all", all_to_all},
    {"barrier_holds", barrier_holds},
    {"waiting_get", waiting_get},
    {"deadline_get", deadline_get},
    {"deadline_barrier", deadline_barrier},
    {"sizes", sizes},
    {"duplicates", duplicates},
    {"barrier_twice", barrier_twice},
    {"workers_meet", workers_meet},
    {"barrier_for_others", barrier_for_others},
    {"gives", gives},
    {"deadline_give", deadline_give},
    {"gives_twice", gives_twice},
    {"threads", threads},
    {"leaves_early", leaves_early},
    {"loses_one", loses_one},
    {"raw_garbage", raw_garbage},
    {"raw_long_key", raw_long_key},
    {"raw_long_value", raw_long_value},
    {"raw_empty_key", raw_empty_key},
    {"raw_answer", raw_answer},
    {"raw_operation", raw_operation},
    {"raw_flood", raw_flood},
    {"closes_socket", closes_socket},
    {"shuts_socket", shuts_socket},
    {NULL, NULL},
};

/* ---- tests --------------------------------------------------------------------------------- */

TEST(test_exchange)
{
    for (uint32_t n = 1; n <= 16; n *= 2)
        trial_passes("all_to_all", n, 0);
    trial_passes("all_to_all", 3, 2);
    trial_passes("barrier_holds", 1, 0);
    trial_passes("barrier_holds", 5, 0);
    trial_passes("workers_meet", 1, 0);
    trial_passes("workers_meet", 3, 2);
    trial_passes("gives", 2, 0);
    trial_passes("waiting_get", 2, 0);
    trial_passes("threads", 1, 0);
}

/* The launcher has a descriptor for each rank, and no more to spare than a shell may give it. */
TEST(test_few_descriptors)
{
    struct trial trial = {
        .name = "barrier_holds", .n_workers = 24, .timeout_s = 5, .most_descriptors = 44};
    trial_run(&trial);
    if (trial.at->status != DPB_OK || trial.at->exit_code != 0)
        fail_msg("%s", trial.errors);
}

TEST(test_loses_one)
{
    struct trial trial = {
        .name = "loses_one", .n_workers = 3, .n_servers = 1, .timeout_s = 20, .survive = true};
    trial_run(&trial);
    if (trial.at->status != DPB_OK || trial.at->exit_code != 0)
        fail_msg("%s", trial.errors);
    assert_non_null(strstr(trial.errors, "2 of 3 workers train on"));
    expect_part(trial.at->text[0], "barrier 'missed': not there yet: rank 3; rank 3 (pid");
    trial.survive = false;
    trial_run(&trial);
    assert_int_equal(trial.at->culprit, 2);
}

TEST(test_messages)
{
    static const struct {
        const char *name;
        uint32_t n_ranks, rank;
        const char *parts[3];
    } expected[] = {
        {"deadline_get", 1, 0, {"waited 0.", "'nobody's'", "run.timeout_s"}},
        {"deadline_barrier", 3, 0, {"barrier 'here'", "not there yet: rank 2", "phase 'asleep'"}},
        {"sizes", 1, 0, {"'too large'", "1048577", "1048576"}},
        {"duplicates", 2, 1, {"'mine'", "put before", "rank 0"}},
        {"barrier_twice", 2, 0, {"'once'", "came", "before"}},
        {"barrier_for_others", 3, 1, {"rank 1", "as one of the first 2", "for the first 1"}},
        {"barrier_for_others", 3, 2, {"rank 2", "as one of the first 1", "for the first 1"}},
        {"deadline_give", 2, 0, {"waited 0.2", "no rank has taken key 'left'", "run.timeout_s"}},
        {"deadline_give", 2, 1, {"waited 0.2", "no rank has given key 'left'", "run.timeout_s"}},
        {"gives_twice", 3, 1, {"'same'", "given already", "not taken"}},
        {"leaves_early", 3, 2, {"'all'", "rank 1", "left"}},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct trial trial = {
            .name = expected[i].name, .n_workers = expected[i].n_ranks, .timeout_s = 20};
        trial_run(&trial);
        if (trial.at->status != DPB_OK)
            fail_msg("%s: %s", trial.name, trial.at->cause);
        for (size_t j = 0; j < 3; j++)
            expect_part(trial.at->text[expected[i].rank], expected[i].parts[j]);
    }
}

TEST(test_malformed)
{
    static const struct {
        const char *name, *part;
    } expected[] = {
        {"raw_garbage", "begins with 0x78787878"},
        {"raw_long_key", "a key of 60000 bytes, at most 255"},
        {"raw_long_value", "a value of 4294967295 bytes, at most 1048576"},
        {"raw_empty_key", "a key that is empty"},
        {"raw_answer", "an answer where requests are expected"},
        {"raw_operation", "unknown operation 77"},
        {"raw_flood", "more than 64 unanswered"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct trial trial = {.name = expected[i].name, .n_workers = 3, .timeout_s = 20};
        trial_run_within(&trial, 5);
        assert_int_equal(trial.at->launch_status, DPB_OK);
        assert_int_equal(trial.at->status, DPB_FAILED);
        assert_int_equal(trial.at->culprit, 1);
        expect_part(trial.at->cause, "malformed request");
        expect_part(trial.at->cause, expected[i].part);
    }
}

TEST(test_lost_socket)
{
    static const char *const expected[][2] = {
        {"closes_socket", "descriptor 3, this process's socket to the job's store, was closed"},
        {"shuts_socket", "the launcher still runs"}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        struct trial trial = {.name = expected[i][0], .n_workers = 3, .timeout_s = 20};
        trial_run_within(&trial, 5);
        assert_int_equal(trial.at->culprit, 1);
        expect_part(trial.at->cause, expected[i][1]);
    }
}

TRIAL_MAIN(cases)
