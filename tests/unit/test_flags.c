/*
 * test_flags.c - flags between processes, events within one, and waiting for descriptors.
 */
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#include "tests/unit/trial.h"
#include "world/store.h"

enum {
    ROUNDS = 20000,
    LEAST_MS = 1000,
    MOST_MS = 15000,
    LEAST_ROUNDS = 1000,
    LAST_ROUND = 1 << 30
};

/* ---- what ranks do ------------------------------------------------------------------------- */

/* A flag of each rank, shared by all; rank r's is flags[r]. */
static dpb_status share_flags(struct dpb_flag **flags)
{
    static struct dpb_shared shared;
    const struct dpb_offer mine = {.name = "flags", .bytes = sizeof(struct dpb_flag)};
    DPB_TRY(dpb_world_share("flags", &mine, 1, &shared));
    for (uint32_t rank = 0; rank < dpb_world.n_ranks; rank++)
        flags[rank] = shared.of[rank].memory;
    return DPB_OK;
}

static const struct dpb_wait plain = {
    .bucket = UINT64_MAX, .peer = UINT32_MAX, .purpose = "a turn"};

/* Two ranks in turns, each write followed by the flag: what was written before is seen. */
static dpb_status play(struct trial_scratch *scratch, uint32_t from, uint32_t n)
{
    struct dpb_flag *flags[2];
    uint32_t me = dpb_world.rank;
    uint64_t *ball = &scratch->numbers[0];
    DPB_TRY(share_flags(flags));
    if (from != 0) {
        dpb_flags.set(flags[me], from);
        DPB_TRY(dpb_store_barrier("both begin late", 0));
    }
    for (uint32_t i = 1; i <= n; i++) {
        if (me == 1)
            DPB_TRY(dpb_flags.wait(flags[0], from + i, &plain));
        RANK_CHECK(*(volatile uint64_t *)ball == 2 * (i - 1) + me);
        *(volatile uint64_t *)ball = 2 * (i - 1) + me + 1;
        dpb_flags.set(flags[me], from + i);
        if (me == 0)
            DPB_TRY(dpb_flags.wait(flags[1], from + i, &plain));
    }
    return DPB_OK;
}

static dpb_status ping_pong_asleep(struct trial_scratch *scratch)
{
    dpb_world.may_spin = false;
    return play(scratch, 0, ROUNDS);
}

static dpb_status ping_pong_spinning(struct trial_scratch *scratch)
{
    dpb_world.may_spin = true;
    return play(scratch, 0, ROUNDS);
}

static dpb_status wraps_around(struct trial_scratch *scratch)
{
    return play(scratch, UINT32_MAX - 500, 1000);
}

/* How long this process has been ready to run, and did not; 0 where the system does not say. */
static int64_t kept_waiting_ns(int schedstat)
{
    char text[96];
    long long waited = 0;
    ssize_t n = pread(schedstat, text, sizeof text - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return sscanf(text, "%*d %lld", &waited) == 1 ? waited : 0;
}

/*
 * A wake-up that is lost costs a slice of 50 ms, no more: so count the waits that took so long
 * after the answer was there, but for what a busy machine took. Even ranks sleep until their
 * partner answers; odd ones are awake all the time and answer after a short random while, to hit
 * the moment between the sleeper's last look and its sleep. Nothing but the answer would wake the
 * sleeper.
 */
static dpb_status stress(struct trial_scratch *scratch)
{
    struct dpb_flag *flags[TRIAL_RANKS];
    uint32_t me = dpb_world.rank, round = 0, seed = 12345 + me, slow = 0;
    int schedstat = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    uint64_t *answered_ns = &scratch->numbers[TRIAL_RANKS / 2 + me / 2];
    DPB_TRY(share_flags(flags));
    DPB_TRY(dpb_store_barrier("start", 0));
    dpb_world.may_spin = false;
    const int64_t start_ns = dpb_now_ns();
    while (me % 2 == 0 && dpb_now_ns() - start_ns <
                              (round < LEAST_ROUNDS ? MOST_MS : LEAST_MS) * INT64_C(1000000)) {
        int64_t kept_ns = kept_waiting_ns(schedstat), begin_ns = dpb_now_ns();
        dpb_flags.set(flags[me], ++round);
        DPB_TRY(dpb_flags.wait(flags[me + 1], round, &plain));
        int64_t end_ns = dpb_now_ns(),
                there_ns = (int64_t)__atomic_load_n(answered_ns, __ATOMIC_RELAXED);
        if (end_ns - begin_ns >= 49000000)
            slow += end_ns - there_ns - (kept_waiting_ns(schedstat) - kept_ns) >= 40000000;
    }
    if (me % 2 == 0)
        dpb_flags.set(flags[me], LAST_ROUND);
    while (me % 2 == 1) {
        for (uint32_t looks = 0; !dpb_flags.reached(flags[me - 1], round + 1); looks++)
            if (looks > 10000)
                sched_yield();
        if (dpb_flags.get(flags[me - 1]) == LAST_ROUND)
            break;
        seed = seed * 1664525 + 1013904223;
        for (volatile uint32_t i = 0; i < seed >> 20; i++)
            ;
        __atomic_store_n(answered_ns, (uint64_t)dpb_now_ns(), __ATOMIC_RELAXED);
        dpb_flags.set(flags[me], ++round);
    }
    close(schedstat);
    scratch->numbers[2 * me] = round;
    scratch->numbers[2 * me + 1] = slow;
    return DPB_OK;
}

static dpb_status deadline(struct trial_scratch *scratch)
{
    struct dpb_flag *flags[2];
    struct dpb_wait what = {.timeout_ns = 300000000,
                            .step = 7,
                            .bucket = 3,
                            .bytes = 4194304,
                            .peer = 1,
                            .purpose = "gradients of the peer"};
    DPB_TRY(share_flags(flags));
    if (dpb_world.rank == 1) {
        dpb_board_page(dpb_world.board, 1)->step = 6;
        dpb_world_note("forward", UINT64_MAX, UINT32_MAX);
        return dpb_store_barrier("passed", 0);
    }
    dpb_flags.set(flags[0], 11);
    int64_t begin = dpb_now_ns();
    RANK_FAILS(scratch, DPB_TIMEOUT, dpb_flags.wait(flags[1], 12, &what));
    scratch->numbers[0] = (uint64_t)(dpb_now_ns() - begin);
    return dpb_store_barrier("passed", 0);
}

/* Rank 0 dies; how long until the others' waits return? */
static dpb_status ended(struct trial_scratch *scratch)
{
    struct dpb_flag *flags[TRIAL_RANKS];
    struct dpb_wait what = plain;
    DPB_TRY(share_flags(flags));
    DPB_TRY(dpb_store_barrier("shared", 0));
    if (dpb_world.rank == 0) {
        trial_sleep_ms(200);
        __atomic_store_n(&scratch->numbers[0], (uint64_t)dpb_now_ns(), __ATOMIC_SEQ_CST);
        kill(getpid(), SIGKILL);
    }
    what.timeout_ns = dpb_world.rank == 1 ? DPB_FOREVER : 0;
    dpb_status status = dpb_world.rank == 3 ? dpb_world_poll(NULL, 0, &what, NULL)
                                            : dpb_flags.wait(flags[0], 1, &what);
    scratch->numbers[dpb_world.rank] = (uint64_t)dpb_now_ns();
    RANK_CHECK(status == DPB_PEER);
    return status;
}

static const struct trial_case cases[] = {
    {"ping_pong_asleep", ping_pong_asleep},
    {"ping_pong_spinning", ping_pong_spinning},
    {"wraps_around", wraps_around},
    {"stress", stress},
    {"deadline", deadline},
    {"ended", ended},
    {NULL, NULL},
};

/* ---- tests --------------------------------------------------------------------------------- */

TEST(test_turns)
{
    trial_passes("ping_pong_asleep", 2, 0);
    trial_passes("ping_pong_spinning", 2, 0);
    trial_passes("wraps_around", 2, 0);
}

TEST(test_no_wake_up_is_lost)
{
    for (uint32_t n = 2; n <= 4; n += 2) {
        struct trial trial = {.name = "stress", .n_workers = n, .timeout_s = 20};
        trial_run(&trial);
        if (trial.at->status != DPB_OK)
            fail_msg("%s", trial.at->cause);
        for (uint32_t rank = 0; rank < n; rank++) {
            uint64_t rounds = trial.at->numbers[2 * rank];
            uint64_t slow = trial.at->numbers[2 * rank + 1];
            /* A machine below this one may hold a process up for so long now and then. */
            if (rounds < LEAST_ROUNDS || slow > 3)
                fail_msg("rank %u of %u: %llu of %llu rounds took a whole slice", rank, n,
                         (unsigned long long)slow, (unsigned long long)rounds);
        }
    }
}

TEST(test_deadline)
{
    static const char *const parts[] = {
        "waited 0.",   "gradients of the peer",     "exchange 7", "bucket 3",     "4194304 bytes",
        "rank 1 (pid", "phase 'forward' of step 6", "wanted 12",  "run.timeout_s"};
    struct trial trial = {.name = "deadline", .n_workers = 2, .timeout_s = 20};
    trial_run(&trial);
    if (trial.at->status != DPB_OK)
        fail_msg("%s", trial.at->cause);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        expect_part(trial.at->text[0], parts[i]);
    assert_true(trial.at->numbers[0] >= 300000000 && trial.at->numbers[0] < 5000000000);
}

TEST(test_job_end)
{
    struct trial trial = {.name = "ended", .n_workers = 4, .timeout_s = 20};
    trial_run(&trial);
    assert_int_equal(trial.at->status, DPB_FAILED);
    assert_int_equal(trial.at->culprit, 0);
    for (uint32_t rank = 1; rank < 4; rank++) {
        int64_t took = (int64_t)(trial.at->numbers[rank] - trial.at->numbers[0]);
        if (took < 0 || took > 2000000000) /* the deadline is far, or there is none */
            fail_msg("rank %u: woken after %.0f ms", rank, (double)took * 1e-6);
    }
}

static void *signal_later(void *event)
{
    trial_sleep_ms(50);
    dpb_events.signal(event);
    return NULL;
}

TEST(test_events)
{
    struct dpb_wait what = plain;
    struct dpb_event *event = dpb_events.create();
    dpb_status first;
    assert_non_null(event);
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        assert_false(dpb_events.poll(event));
        assert_int_equal(pthread_create(&thread, NULL, signal_later, event), 0);
        assert_int_equal(dpb_events.wait(event, &what), DPB_OK);
        assert_true(dpb_events.poll(event));
        assert_int_equal(dpb_events.wait(event, &what), DPB_OK); /* it stays fired */
        pthread_join(thread, NULL);
        dpb_events.reset(event);
    }
    what.timeout_ns = 10000000;
    assert_int_equal(dpb_events.wait(event, &what), DPB_TIMEOUT);
    expect_part(dpb_first_error(&first), "a turn");
    dpb_first_error_clear();
    dpb_events.destroy(event);
    dpb_events.destroy(NULL);
}

static void *write_later(void *fd)
{
    trial_sleep_ms(50);
    assert_int_equal(write(*(int *)fd, "x", 1), 1);
    return NULL;
}

TEST(test_descriptors)
{
    struct dpb_wait what = plain;
    pthread_t thread;
    dpb_status first;
    int fds[2];
    char byte;
    assert_int_equal(pipe(fds), 0);
    struct pollfd wanted[] = {{.fd = -1}, {.fd = fds[0], .events = POLLIN}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&thread, NULL, write_later, &fds[1]), 0);
        assert_int_equal(dpb_world_poll(wanted, 2, &what, NULL), DPB_OK);
        assert_true(wanted[1].revents & POLLIN);
        pthread_join(thread, NULL);
        assert_int_equal(dpb_world_poll(wanted, 2, &what, NULL),
                         DPB_OK); /* at once: it is still there */
        assert_int_equal(read(fds[0], &byte, 1), 1);
    }
    /* In turns: each is short, and all of them together have the deadline. */
    int64_t waited_ns = 0;
    int turns = 0;
    dpb_status status;
    what.timeout_ns = 120000000;
    while ((status = dpb_world_poll(wanted, 2, &what, &waited_ns)) == DPB_OK) {
        assert_int_equal(wanted[1].revents, 0);
        turns++;
    }
    assert_int_equal(status, DPB_TIMEOUT);
    assert_true(turns >= 1 && turns <= 4 && waited_ns >= 100000000);
    dpb_first_error_clear();
    what.timeout_ns = 10000000;
    assert_int_equal(dpb_world_poll(wanted, 2, &what, NULL), DPB_TIMEOUT);
    expect_part(dpb_first_error(&first), " s for a turn (exchange 0); if");
    dpb_first_error_clear();
    close(fds[0]);
    close(fds[1]);
}

static int64_t computed_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void *compute(void *context)
{
    (void)context;
    for (int64_t until_ns = computed_ns() + 1200000000; computed_ns() < until_ns;)
        ;
    return NULL;
}

/* As a device's threads compute for the caller, who sleeps. */
static void *compute_aside(void *context)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compute, context), 0);
    pthread_join(thread, NULL);
    return NULL;
}

/* Two looks that are further apart than the deadline: it counts the time that this process computed
 * between them, and not the time for which this process stood still. */
static void expect_patience(void *(*compute_between)(void *))
{
    struct dpb_wait what = plain;
    int64_t begin_ns = 0;
    dpb_status first;
    what.timeout_ns = 1050000000;
    assert_int_equal(dpb_world_patience(&what, &begin_ns), DPB_OK);
    trial_sleep_ms(1200);
    assert_int_equal(dpb_world_patience(&what, &begin_ns), DPB_OK);
    compute_between(NULL);
    assert_int_equal(dpb_world_patience(&what, &begin_ns), DPB_TIMEOUT);
    expect_part(dpb_first_error(&first), "for a turn");
    dpb_first_error_clear();
}

TEST(test_patience)
{
    expect_patience(compute);
}

/* Who has waited for 200 ms leaves the core: a sleep is never shorter than asked for. */
TEST(test_patience_naps)
{
    struct dpb_wait what = plain;
    int64_t begin_ns = 0;
    what.timeout_ns = 60000000000;
    assert_int_equal(dpb_world_patience(&what, &begin_ns), DPB_OK);
    begin_ns -= 300000000;
    const int64_t called_ns = dpb_now_ns();
    for (int i = 0; i < 100; i++)
        assert_int_equal(dpb_world_patience(&what, &begin_ns), DPB_OK);
    assert_true(dpb_now_ns() - called_ns >= 100 * 20000);
}

TEST(test_patience_with_threads)
{
    expect_patience(compute_aside);
}

TEST(test_comparison)
{
    struct dpb_flag flag = {0};
    assert_true(dpb_flags.reached(&flag, 0));
    assert_false(dpb_flags.reached(&flag, 1));
    assert_true(dpb_flags.reached(&flag, UINT32_MAX));
    dpb_flags.set(&flag, UINT32_MAX);
    assert_int_equal(dpb_flags.get(&flag), UINT32_MAX);
    assert_true(dpb_flags.reached(&flag, UINT32_MAX - 5));
    assert_false(dpb_flags.reached(&flag, 3));
    dpb_flags.set(&flag, 3);
    assert_true(dpb_flags.reached(&flag, UINT32_MAX));
}

TRIAL_MAIN(cases)
