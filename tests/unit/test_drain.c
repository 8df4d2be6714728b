/*
 * test_drain.c - the end of an exchange whose work is enqueued: the strategy reports the spans of
 * the exchange before core goes on, whether core settles or drains the exchange, or both. Events of
 * an exchange that is late are not those of the step beside it.
 */
#include <stdlib.h>

#include "exchange/late.h"
#include "exchange/staging.h"
#include "exchange/step.h"
#include "lib/test.h"
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
    return (struct dpb_exchange){
        .ops = &comm_ops,
        .comm = strategy,
        .memory.on_device = true,
        .late.on = is_late,
        .passes = {.ops = &device_ops, .takes_events = true, .pending = strategy->done}};
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
    assert_null(exchange.passes.pending);
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

/* ---- events of a queue --------------------------------------------------------------------- */

static dpb_status allocate(void *device, const char *what, uint64_t bytes, bool shared,
                           void **memory)
{
    (void)device;
    (void)what;
    (void)shared;
    *memory = malloc(bytes);
    return *memory ? DPB_OK : DPB_NO_MEMORY;
}

static void release(void *device, void *memory)
{
    (void)device;
    free(memory);
}

static dpb_status new_event(void *device, struct dpb_event **event)
{
    (void)device;
    *event = dpb_events.create();
    return *event ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status record(struct dpb_queue *queue, struct dpb_event *event)
{
    (void)queue;
    (void)event;
    return DPB_OK;
}

static dpb_status copy(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes)
{
    (void)queue;
    (void)dst;
    (void)src;
    (void)bytes;
    return DPB_OK;
}

static dpb_status cast(struct dpb_queue *queue, dpb_dtype to, void *dst, dpb_dtype from,
                       const void *src, uint64_t n)
{
    (void)to;
    (void)from;
    return copy(queue, dst, src, n);
}

static dpb_status begin(void *comm, const struct dpb_step *step)
{
    (void)comm;
    (void)step;
    return DPB_OK;
}

/* The strategy is the event that comes with its one bucket. */
static dpb_status ready(void *comm, uint64_t bucket, struct dpb_event *event)
{
    assert_int_equal(bucket, 0);
    *(struct dpb_event **)comm = event;
    return DPB_OK;
}

/* While the exchange of a step that staged nothing, as a proof's, waits for its gradients, the next
 * step records other events for those that it stages. */
TEST(test_events_of_two_steps)
{
    static const struct dpb_queue_ops queue_ops = {.allocate = allocate,
                                                   .release = release,
                                                   .new_event = new_event,
                                                   .record = record,
                                                   .copy = copy,
                                                   .cast = cast};
    static const struct dpb_device_arenas place = {.ops = &queue_ops};
    static const struct dpb_comm_ops late_ops = {.begin = begin, .ready = ready};
    static struct dpb_experiment experiment = {.settings.comm.late = 1};
    struct dpb_event *of_bucket = NULL, *staged = NULL;
    struct dpb_exchange exchange = {
        .experiment = &experiment,
        .ops = &late_ops,
        .comm = &of_bucket,
        .passes = {.ops = &device_ops, .takes_events = true},
        .memory = {.on_device = true, .place = &place},
        .layout = {.n_elements = 1, .weight_type = DPB_FP32, .gradient_type = DPB_BF16},
        .arenas = {.n_buckets = 1, .bucket_elements = 1}};
    assert_int_equal(dpb_late_open(&exchange), DPB_OK);
    assert_int_equal(dpb_exchange_begin(&exchange, 0.5, 1.0, true), DPB_OK);
    assert_int_equal(dpb_late_turn(&exchange), DPB_OK);
    assert_non_null(of_bucket);
    assert_int_equal(dpb_exchange_begin(&exchange, 0.5, 1.0, false), DPB_OK);
    dpb_staging_begin(&exchange, 0);
    assert_int_equal(dpb_staging_pass(&exchange, 1, true, &staged), DPB_OK);
    assert_non_null(staged);
    assert_ptr_not_equal(staged, of_bucket);
    dpb_late_close(&exchange);
    dpb_events.destroy(staged);
    free(exchange.staging.events);
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
