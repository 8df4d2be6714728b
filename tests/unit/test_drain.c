/*
 * test_drain.c - the end of an exchange whose work is enqueued: the strategy reports the spans of
 * the exchange before core goes on, whether core settles or drains the exchange, or both.
 */
#include "lib/test.h"
#include "train/exchange.h"
#include "world/board.h"
#include "world/world.h"

/* It learns of the end when core moves it on, as strategies on a device's events do. */
struct strategy {
    struct dpb_event *done;
    int n_reports;
    bool reported;
};

static dpb_status progress(void *comm, int64_t budget_ns)
{
    struct strategy *strategy = comm;
    (void)budget_ns;
    if (!strategy->reported && dpb_events.poll(strategy->done)) {
        strategy->reported = true;
        strategy->n_reports++;
    }
    return DPB_OK;
}

static dpb_status follow(void *program, struct dpb_event *event)
{
    (void)program;
    (void)event;
    return DPB_OK;
}

static const struct dpb_comm_ops comm_ops = {.progress = progress};
static const struct dpb_device_ops device_ops = {.follow = follow};

/* An exchange that is over, as its event says, and of which the strategy has not heard. */
static struct dpb_exchange exchange_under_way(struct strategy *strategy, bool is_late)
{
    *strategy = (struct strategy){.done = dpb_events.create()};
    assert_non_null(strategy->done);
    dpb_events.signal(strategy->done);
    return (struct dpb_exchange){.ops = &comm_ops,
                                 .comm = strategy,
                                 .engine.ops = &device_ops,
                                 .memory.on_device = true,
                                 .takes_events = true,
                                 .is_late = is_late,
                                 .pending = strategy->done};
}

static void test_settle_and_drain(bool is_late, bool settles)
{
    struct strategy strategy;
    struct dpb_exchange exchange = exchange_under_way(&strategy, is_late);
    if (settles) {
        assert_int_equal(dpb_exchange_settle(&exchange), DPB_OK);
        assert_int_equal(strategy.n_reports, is_late);
    }
    assert_int_equal(dpb_exchange_drain(&exchange), DPB_OK);
    assert_int_equal(strategy.n_reports, 1);
    assert_null(exchange.pending);
    dpb_events.destroy(strategy.done);
}

TEST(test_drained)
{
    test_settle_and_drain(false, false);
    test_settle_and_drain(true, false);
}

TEST(test_settled)
{
    test_settle_and_drain(false, true);
    test_settle_and_drain(true, true);
}

static int make_world(void **state)
{
    (void)state;
    dpb_world.n_ranks = dpb_world.n_workers = 1;
    return dpb_board_create(1, 4096, &dpb_world.board) == DPB_OK ? 0 : -1;
}

static int drop_world(void **state)
{
    (void)state;
    dpb_board_destroy(dpb_world.board);
    dpb_world.board = NULL;
    return 0;
}

TEST_MAIN(make_world, drop_world)
