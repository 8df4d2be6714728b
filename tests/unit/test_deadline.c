/*
 * test_deadline.c - the clock of waits leaves out time in which the process did not run, and every
 * wait goes by it: under clocks that the test sets. One that stands still would wait for ever.
 */
#include <poll.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

static int64_t clock_ns, cpu_ns;
static int64_t each_look_ns; /* the clock advances by this with each look ... */
static int64_t freeze_ns;    /* ... and once by this */
static int n_looks, freezes_at;

static int64_t made_up_now_ns(void)
{
    clock_ns += each_look_ns;
    if (++n_looks == freezes_at)
        clock_ns += freeze_ns;
    return clock_ns;
}

static int64_t made_up_cpu_ns(clockid_t clock)
{
    (void)clock;
    return cpu_ns;
}

#define dpb_now_ns made_up_now_ns
#define dpb_clock_ns made_up_cpu_ns
#include "base/deadline.c"
#undef dpb_clock_ns
#undef dpb_now_ns
#include "exchange/pump.h"
#include "lib/test.h"
#include "world/board.h"
#include "world/futex.h"
#include "world/world.h"

#define MS INT64_C(1000000)
#define S (1000 * MS)

static void begin(void)
{
    clock_ns = 1000000 * S;
    each_look_ns = freeze_ns = 0;
    n_looks = freezes_at = 0;
    ran.looked_ns = ran.missed_ns = ran.back_ns = 0;
    ran.computed_ns = cpu_ns = 0;
    dpb_ran_ns();
}

static int64_t ran_over(int64_t passes_ns, int64_t computes_ns)
{
    const int64_t before_ns = dpb_ran_ns();
    clock_ns += passes_ns;
    cpu_ns += computes_ns;
    return dpb_ran_ns() - before_ns;
}

TEST(test_freezes_are_left_out)
{
    begin();
    assert_int_equal(ran_over(10 * MS, 0), 10 * MS);
    assert_int_equal(ran_over(900 * MS, 0), 900 * MS); /* a busy machine */
    assert_int_equal(dpb_missed_ns(), 0);
    assert_int_equal(ran_over(6 * S, 0), DPB_LOOK_NS);
    assert_int_equal(dpb_missed_ns(), 6 * S - DPB_LOOK_NS);
    assert_int_equal(ran_over(6 * S, 4 * S), 4 * S); /* it computed, most of the time */
    assert_int_equal(ran_over(6 * S, 24 * S), 6 * S);
    assert_int_equal(ran_over(10 * MS, 0), 10 * MS);
    clock_ns += 6 * S;
    dpb_ran_blocked();
    assert_int_equal(ran_over(0, 0), 0);
    assert_int_equal(dpb_missed_ns(), 6 * S - DPB_LOOK_NS + 2 * S);
    const int64_t before_ns = dpb_ran_ns();
    clock_ns += 300 * MS;
    dpb_ran_rested(300 * MS);
    assert_int_equal(dpb_ran_ns() - before_ns, 0);
}

/* Of any length, and beside a freeze. */
TEST(test_parked_time_is_left_out)
{
    int64_t parked_ns = 0;
    begin();
    dpb_ran_without(&parked_ns);
    for (int64_t ms = 100; ms < 3000; ms += 700) {
        clock_ns += ms * MS;
        parked_ns += ms * MS;
        assert_int_equal(ran_over(7 * MS, 0), 7 * MS);
    }
    assert_int_equal(dpb_missed_ns(), 0);
    assert_int_equal(ran_over(60 * MS, 0), 60 * MS); /* it is noted */
    const int64_t before_ns = dpb_ran_ns();
    clock_ns += 8 * S;
    parked_ns += 2 * S;
    assert_int_equal(dpb_ran_ns() - before_ns, DPB_LOOK_NS);
    assert_int_equal(dpb_missed_ns(), 6 * S - DPB_LOOK_NS);
    dpb_ran_without(NULL);
    assert_int_equal(ran_over(5 * MS, 0), 5 * MS);
    char why[256];
    assert_false(dpb_ran_backwards(why, sizeof why));
}

/* With a thread that looks, the others compute as they like. */
TEST(test_ticking)
{
    begin();
    ran.ticks = true;
    ran_over(100 * MS, 0);
    assert_int_equal(ran_over(6 * S, 24 * S), DPB_LOOK_NS);
    ran.ticks = false;
}

TEST(test_backwards)
{
    char why[256] = "";
    begin();
    ran_over(100 * MS, 0);
    const struct dpb_deadline soon = dpb_deadline_in(S);
    assert_int_equal(ran_over(-MS / 2, 0), -MS / 2); /* another processor's */
    assert_false(dpb_ran_backwards(why, sizeof why));
    ran_over(MS / 2, 0);
    assert_int_equal(ran_over(-100 * S, 0), 0);
    assert_true(dpb_ran_backwards(why, sizeof why));
    assert_non_null(strstr(why, "backwards by 100.0 s"));
    for (int i = 0; i < 4; i++)
        assert_int_equal(ran_over(250 * MS, 0), 250 * MS);
    assert_true(dpb_deadline_passed(soon)); /* the wait still ends */
}

TEST(test_deadlines)
{
    begin();
    const struct dpb_deadline never = dpb_deadline_in(-1), soon = dpb_deadline_in(100 * MS),
                              later = dpb_deadline_in(4 * S);
    assert_int_equal(dpb_deadline_in(INT64_MAX).at_ns, never.at_ns);
    assert_int_equal(dpb_deadline_first(never, soon).at_ns, soon.at_ns);
    assert_int_equal(dpb_deadline_look_ms(soon), 100);
    assert_int_equal(dpb_deadline_look_ms(later), 250);
    assert_int_equal(dpb_deadline_look_ms(never), 250);
    clock_ns += 100 * S;
    assert_true(dpb_deadline_passed(soon));
    assert_int_equal(dpb_deadline_look_ms(soon), 0);
    assert_false(dpb_deadline_passed(later));
    assert_int_equal(dpb_deadline_left_ns(later), 4 * S - DPB_LOOK_NS);
    for (int i = 0; i < 10; i++)
        ran_over(400 * MS, 0);
    assert_true(dpb_deadline_passed(later));
    assert_false(dpb_deadline_passed(never));
}

/* ---- waits ----------------------------------------------------------------------------------- */

enum { LIMIT_S = 2, FREEZE_S = 60 };

static const struct dpb_wait wait = {
    .timeout_ns = LIMIT_S * S, .bucket = UINT64_MAX, .peer = UINT32_MAX, .purpose = "a test"};

static dpb_status wait_for_flag(void)
{
    struct dpb_flag flag = {0};
    return dpb_futex_wait(&flag, 1, DPB_FUTEX_PRIVATE, &wait);
}

static dpb_status wait_for_descriptor(void)
{
    struct pollfd none = {.fd = -1};
    return dpb_world_poll(&none, 1, &wait, NULL);
}

static dpb_status wait_in_turns(void)
{
    struct pollfd none = {.fd = -1};
    dpb_status status = DPB_OK;
    for (int64_t waited_ns = 0; status == DPB_OK;)
        status = dpb_world_poll(&none, 1, &wait, &waited_ns);
    return status;
}

static dpb_status be_patient(void)
{
    dpb_status status = DPB_OK;
    for (int64_t begin_ns = 0; status == DPB_OK;)
        status = dpb_world_patience(&wait, &begin_ns);
    return status;
}

static dpb_status no_progress(void *comm, int64_t budget_ns)
{
    (void)comm;
    (void)budget_ns;
    return DPB_OK;
}

static dpb_status wait_for_exchange(void)
{
    static struct dpb_experiment experiment = {.settings.comm.name = "toy"};
    static const struct dpb_comm_ops ops = {.progress = no_progress};
    static struct dpb_exchange exchange = {.experiment = &experiment, .ops = &ops};
    struct dpb_event *done = dpb_events.create();
    dpb_world.timeout_ns = 2 * wait.timeout_ns;
    const dpb_status status = dpb_exchange_await(&exchange, done);
    dpb_events.destroy(done);
    return status;
}

/* A freeze twenty times as long as the limit. The deadline passes when the wait has run for the
 * limit, and not before. */
TEST(test_waits_go_on)
{
    static dpb_status (*const waits[])(void) = {wait_for_flag, wait_for_descriptor, wait_in_turns,
                                                be_patient, wait_for_exchange};
    assert_int_equal(dpb_board_create(1, 0, &dpb_world.board), DPB_OK);
    for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
        begin();
        each_look_ns = 400 * MS;
        freeze_ns = FREEZE_S * S;
        freezes_at = n_looks + 4;
        const int64_t began_ns = clock_ns;
        assert_int_equal(waits[i](), DPB_TIMEOUT);
        const int64_t took_ns = clock_ns - began_ns;
        if (took_ns < (FREEZE_S + LIMIT_S) * S - DPB_LOOK_NS - each_look_ns ||
            took_ns > (FREEZE_S + LIMIT_S + 2) * S)
            fail_msg("wait %zu took %.1f s", i, (double)took_ns * 1e-9);
    }
    dpb_board_destroy(dpb_world.board);
    dpb_world.board = NULL;
}

TEST_MAIN(NULL, NULL)
