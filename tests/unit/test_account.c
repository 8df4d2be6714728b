/*
 * test_account.c - interval arithmetic of a step against a bitmap of its nanoseconds, under a clock
 * that the test sets.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "dpbench/random.h"

static int64_t clock_ns;

static int64_t made_up_now_ns(void)
{
    return clock_ns;
}

#define dpb_now_ns made_up_now_ns
#include "lib/test.h"
#include "measure/account.c"

enum { STEPS = 2000, LONGEST = 600 /* ns */, RECORDS = STEPS + 10 };
enum { CAPACITY = 256, ROOM = 2 * CAPACITY /* for two steps */ };

static struct dpb_journal *journal;

static int open_account(void **state)
{
    (void)state;
    journal = calloc(1, sizeof *journal + RECORDS * sizeof journal->records[0]);
    assert_non_null(journal);
    journal->capacity = RECORDS;
    clock_ns = INT64_C(1000000000000000);
    return dpb_account_open(journal, CAPACITY) == DPB_OK ? 0 : -1;
}

static int close_account(void **state)
{
    (void)state;
    dpb_account_close();
    free(journal);
    return 0;
}

static const struct dpb_record *last_record(void)
{
    assert_true(journal->n_records > 0);
    return &journal->records[journal->n_records - 1];
}

/* ---- the oracle ---------------------------------------------------------------------------- */

/* What each nanosecond of a step is; sets of intervals are as simple as that. */
struct bitmap {
    int64_t begin_ns;
    bool exposed[LONGEST], update[LONGEST], comm[LONGEST], wait[LONGEST];
    dpb_part part[LONGEST];
};

static uint32_t drawn;

static int64_t draw(int64_t below)
{
    return dpb_random(1, DPB_STREAM_SHUFFLE, drawn++, 3, 0, 0).v[0] % below;
}

static void mark_bits(const struct bitmap *map, bool bits[LONGEST], int64_t begin, int64_t end)
{
    for (int64_t t = begin - map->begin_ns; t < end - map->begin_ns; t++)
        if (t >= 0 && t < LONGEST)
            bits[t] = true;
}

/* A span of any kind anywhere around the step, as a helper thread might report it. */
static void report_span(struct bitmap *map)
{
    dpb_phase phase = (dpb_phase)draw(DPB_PHASES);
    int64_t begin = map->begin_ns - 50 + draw(LONGEST), end = begin + draw(80);
    dpb_account_span(0, phase, begin, end);
    if (phase == DPB_PHASE_WAIT_PEER)
        mark_bits(map, map->wait, begin, end);
    if (phase == DPB_PHASE_UPDATE)
        mark_bits(map, map->update, begin, end);
    else
        mark_bits(map, map->comm, begin, end);
}

static void expose(struct bitmap *map)
{
    int64_t entered_ns = dpb_account_enter();
    clock_ns += draw(20);
    (void)dpb_account_leave(entered_ns, DPB_OK);
    mark_bits(map, map->exposed, entered_ns, clock_ns);
}

/* The rest of a step that has begun: of random length, parts and spans; what is after the last mark
 * is backward's. */
static void random_step(struct bitmap *map)
{
    int64_t marked_ns;
    memset(map, 0, sizeof *map);
    map->begin_ns = marked_ns = clock_ns;
    for (int part = DPB_PART_DATA; part <= DPB_PARTS; part++) {
        for (int64_t i = draw(6); i > 0; i--) {
            clock_ns += draw(12);
            if (draw(2))
                expose(map);
            if (draw(2))
                report_span(map);
        }
        dpb_part of = part == DPB_PARTS ? DPB_PART_BACKWARD : (dpb_part)part;
        for (; marked_ns < clock_ns; marked_ns++)
            map->part[marked_ns - map->begin_ns] = of;
        if (part < DPB_PARTS)
            dpb_account_mark(of);
    }
}

static void check_record(const struct bitmap *map, const struct dpb_record *record)
{
    struct dpb_record expected = {.begin_ns = map->begin_ns, .step_ns = clock_ns - map->begin_ns};
    int64_t *const parts[DPB_PARTS] = {&expected.data_wait_ns, &expected.forward_ns,
                                       &expected.delay_ns, &expected.backward_ns};
    for (int64_t t = 0; t < expected.step_ns; t++) {
        expected.optimizer_ns += map->exposed[t] && map->update[t];
        expected.comm_exposed_ns += map->exposed[t] && !map->update[t];
        expected.comm_hidden_ns += map->comm[t] && !map->exposed[t];
        expected.comm_wait_peer_ns += map->wait[t];
        expected.comm_exposed_wait_ns += map->exposed[t] && map->wait[t];
        *parts[map->part[t]] += !map->exposed[t];
    }
    assert_int_equal(record->begin_ns, expected.begin_ns);
    assert_int_equal(record->step_ns, expected.step_ns);
    assert_int_equal(record->data_wait_ns, expected.data_wait_ns);
    assert_int_equal(record->forward_ns, expected.forward_ns);
    assert_int_equal(record->delay_ns, expected.delay_ns);
    assert_int_equal(record->backward_ns, expected.backward_ns);
    assert_int_equal(record->optimizer_ns, expected.optimizer_ns);
    assert_int_equal(record->comm_exposed_ns, expected.comm_exposed_ns);
    assert_int_equal(record->comm_hidden_ns, expected.comm_hidden_ns);
    assert_int_equal(record->comm_wait_peer_ns, expected.comm_wait_peer_ns);
    assert_int_equal(record->comm_exposed_wait_ns, expected.comm_exposed_wait_ns);
    assert_int_equal(record->data_wait_ns + record->forward_ns + record->delay_ns +
                         record->backward_ns + record->optimizer_ns + record->comm_exposed_ns,
                     record->step_ns);
}

/* ---- tests --------------------------------------------------------------------------------- */

TEST_WITH(test_random_steps, open_account, close_account)
{
    struct bitmap map;
    int64_t first_ns = clock_ns, sum = 0, paused_ns = 0;
    dpb_account_begin(0.5);
    for (int i = 0; i < STEPS; i++) {
        random_step(&map);
        int64_t ended_ns = clock_ns;
        if (i % 3 == 0) { /* else the next begin ends it */
            dpb_account_end();
            clock_ns += draw(100);
        }
        dpb_account_begin(0.5);
        int64_t resumed_ns = clock_ns;
        clock_ns = ended_ns;
        check_record(&map, last_record());
        assert_int_equal(last_record()->paused_ns, paused_ns);
        clock_ns = resumed_ns;
        paused_ns = resumed_ns - ended_ns; /* before the step that has begun */
        sum += last_record()->paused_ns + last_record()->step_ns;
    }
    sum += paused_ns;
    assert_int_equal(journal->n_records, STEPS);
    assert_int_equal(journal->dropped_spans, 0);
    assert_int_equal(sum, clock_ns - first_ns); /* steps and pauses add up to the clock */
}

/* More spans than there is room for: the first count, the rest is said; the next step has room. */
TEST_WITH(test_too_many_spans, open_account, close_account)
{
    for (int step = 0; step < 2; step++) {
        int64_t n = step == 0 ? ROOM + 100 : ROOM;
        dpb_account_begin(0.5);
        for (int64_t i = 0; i < n; i++)
            dpb_account_span(0, DPB_PHASE_TRANSFER, clock_ns + 2 * i, clock_ns + 2 * i + 1);
        clock_ns += 10000;
        dpb_account_end();
        assert_int_equal(last_record()->comm_hidden_ns, ROOM);
        assert_int_equal(journal->dropped_spans, 100);
    }
}

/* By the device, as many spans of the next step as of the step that it has not told of. */
TEST_WITH(test_spans_of_two_steps, open_account, close_account)
{
    struct dpb_device_times times = {.begin_ns = clock_ns, .backward_ns = 2 * CAPACITY};
    dpb_account_by_device(false);
    dpb_account_begin(0.5);
    dpb_account_begin(0.5); /* the first has ended */
    for (int64_t i = 0; i < 2 * CAPACITY; i++)
        dpb_account_span(0, DPB_PHASE_TRANSFER, clock_ns + 2 * i, clock_ns + 2 * i + 1);
    dpb_account_device(&times);
    assert_int_equal(last_record()->comm_hidden_ns, CAPACITY);
    dpb_account_end();
    times.begin_ns += times.backward_ns;
    dpb_account_device(&times);
    assert_int_equal(last_record()->comm_hidden_ns, CAPACITY);
    assert_int_equal(journal->dropped_spans, 0);
}

/* A full account whose spans all cross the end of the step: their other parts need no room. */
TEST_WITH(test_spans_across_the_end, open_account, close_account)
{
    struct dpb_device_times times = {.begin_ns = clock_ns, .backward_ns = 1000};
    dpb_account_by_device(false);
    dpb_account_begin(0.5);
    dpb_account_begin(0.5);
    for (int64_t i = 0; i < ROOM; i++)
        dpb_account_span(0, DPB_PHASE_TRANSFER, clock_ns + i, clock_ns + 1000 + i);
    dpb_account_device(&times);
    assert_int_equal(last_record()->comm_hidden_ns, 1000);
    dpb_account_end();
    times.begin_ns += times.backward_ns;
    dpb_account_device(&times);
    assert_int_equal(last_record()->comm_hidden_ns, ROOM - 1);
    assert_int_equal(journal->dropped_spans, 0);
}

/* Of this process. */
static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Spans in the opposite order: a sort whose time is their number squared takes many seconds. */
TEST(test_order)
{
    enum { MANY = 1 << 18 };
    struct interval *spans = calloc(MANY, sizeof *spans);
    assert_non_null(spans);
    for (int64_t i = 0; i < MANY; i++)
        spans[i] = (struct interval){MANY - i, MANY - i + 1};
    const double began_s = cpu_s();
    sort(spans, MANY);
    assert_true(cpu_s() - began_s < 2.0);
    for (int64_t i = 0; i < MANY; i++)
        assert_int_equal(spans[i].begin, i + 1);
    free(spans);
}

/* Looks within a wait are part of it, however many. */
TEST_WITH(test_nested, open_account, close_account)
{
    dpb_account_begin(0.5);
    clock_ns += 3;
    dpb_account_mark(DPB_PART_FORWARD);
    const int64_t entered_ns = dpb_account_enter();
    for (int i = 0; i < CAPACITY + 100; i++) {
        clock_ns += 2;
        const int64_t looked_ns = dpb_account_enter();
        clock_ns++;
        (void)dpb_account_leave(looked_ns, DPB_OK);
    }
    (void)dpb_account_leave(entered_ns, DPB_OK);
    clock_ns += 5;
    dpb_account_mark(DPB_PART_BACKWARD);
    dpb_account_end();
    assert_int_equal(last_record()->comm_exposed_ns, 3 * (CAPACITY + 100));
    assert_int_equal(last_record()->forward_ns, 3);
    assert_int_equal(last_record()->backward_ns, 5);
    assert_int_equal(journal->dropped_spans, 0);
}

/* Records beyond the journal's capacity are not written; an end without a step is none. */
TEST_WITH(test_full_journal, open_account, close_account)
{
    journal->capacity = 2;
    for (int i = 0; i < 4; i++) {
        dpb_account_begin(0.25 * i);
        dpb_account_loss(i, 0);
        dpb_account_bytes(100 + (uint64_t)i);
        clock_ns += 7 + i;
        dpb_account_end();
        dpb_account_end();
    }
    assert_int_equal(journal->n_records, 2);
    assert_int_equal(journal->records[1].step_ns, 8);
    assert_int_equal(journal->records[1].comm_bytes, 101);
    assert_true(journal->records[1].loss == 1.0 && journal->records[1].learning_rate == 0.25);
    assert_int_equal(journal->records[2].begin_ns, 0);
    assert_int_equal(journal->unrecorded, 2);
    assert_int_equal(journal->ended_ns, clock_ns);
}

enum { THREADS = 4, SPANS = CAPACITY / THREADS };

static void *report_many(void *argument)
{
    int64_t thread = (int64_t)(intptr_t)argument;
    for (int64_t i = 0; i < SPANS; i++) {
        int64_t begin = clock_ns + 10 * (THREADS * i + thread);
        dpb_account_span(0, DPB_PHASE_REDUCE, begin, begin + 3);
        dpb_account_bytes(5);
    }
    return NULL;
}

TEST_WITH(test_threads, open_account, close_account)
{
    pthread_t threads[THREADS];
    for (int round = 0; round < 50; round++) {
        dpb_account_begin(0.5);
        for (intptr_t t = 0; t < THREADS; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, report_many, (void *)t), 0);
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
        clock_ns += 10 * CAPACITY;
        dpb_account_end();
        assert_int_equal(last_record()->comm_hidden_ns, 3 * CAPACITY);
        assert_int_equal(last_record()->comm_bytes, 5 * CAPACITY);
    }
    assert_int_equal(journal->dropped_spans, 0);
}

/* By the device: a step's times and spans come when the next one has begun, whose bytes are its
 * own, and so are spans behind the step. */
TEST_WITH(test_by_device, open_account, close_account)
{
    const int64_t t = clock_ns;
    struct dpb_device_times times = {.begin_ns = t + 50,
                                     .exchange_begin_ns = t + 150,
                                     .forward_ns = 40,
                                     .backward_ns = 55,
                                     .exchange_ns = 30,
                                     .idle_ns = 5};
    dpb_account_by_device(false);
    dpb_account_begin(0.5);
    assert_false(dpb_account_awaits_device());
    dpb_account_mark(DPB_PART_FORWARD);
    clock_ns += 3; /* of which the device sees more as idle: it waits for the batch, too */
    dpb_account_mark(DPB_PART_DELAY);
    dpb_account_bytes(7);
    dpb_account_loss(1.5, 3);
    clock_ns += 57;
    dpb_account_begin(0.25);
    assert_true(dpb_account_awaits_device());
    assert_int_equal(journal->n_records, 0);
    dpb_account_bytes(9);
    int64_t entered_ns = dpb_account_enter();
    clock_ns += 100; /* the host's: no part of the device's step */
    (void)dpb_account_leave(entered_ns, DPB_OK);
    dpb_account_span(0, DPB_PHASE_TRANSFER, t + 120, t + 160); /* 10 of it exposed */
    dpb_account_span(0, DPB_PHASE_UPDATE, t + 160, t + 172);
    dpb_account_span(0, DPB_PHASE_WAIT_PEER, t + 100, t + 105);
    dpb_account_span(1, DPB_PHASE_TRANSFER, t + 170, t + 190); /* also of the next step */
    dpb_account_span(1, DPB_PHASE_TRANSFER, t + 200, t + 204); /* of the next step alone */
    dpb_account_span(1, DPB_PHASE_UPDATE, t + 285, t + 290);
    dpb_account_device(&times);
    assert_false(dpb_account_awaits_device());
    const struct dpb_record *record = last_record();
    assert_int_equal(journal->n_records, 1);
    assert_true(record->begin_ns == t + 50);
    assert_int_equal(record->step_ns, 130);
    assert_int_equal(record->data_wait_ns, 2);
    assert_int_equal(record->delay_ns, 3);
    assert_int_equal(record->forward_ns, 40);
    assert_int_equal(record->backward_ns, 55);
    assert_int_equal(record->optimizer_ns, 12);
    assert_int_equal(record->comm_exposed_ns, 18);
    assert_int_equal(record->comm_hidden_ns, 35);
    assert_int_equal(record->comm_wait_peer_ns, 5);
    assert_int_equal(record->comm_bytes, 7);
    assert_true(record->loss == 1.5 && record->learning_rate == 0.5);
    dpb_account_end();
    assert_true(dpb_account_awaits_device());
    times.begin_ns += 130;
    times.exchange_begin_ns += 130;
    dpb_account_device(&times);
    assert_int_equal(last_record()->comm_bytes, 9);
    assert_int_equal(last_record()->comm_hidden_ns, 10 + 4);
    assert_int_equal(last_record()->optimizer_ns, 5);
}

/* Gradients are final after so much of the step as no communicator code takes. */
TEST_WITH(test_ready, open_account, close_account)
{
    journal->timed_from = UINT64_MAX;
    for (int step = 0; step < 3; step++) {
        if (step == 1)
            journal->timed_from = 1;
        dpb_account_begin(0.5);
        for (int layer = 0; layer < 3; layer++) {
            clock_ns += 10 * (step + 1);
            if (layer == 1) /* in another part of the step than what follows */
                dpb_account_mark(DPB_PART_FORWARD);
            dpb_account_ready(100 * (uint64_t)(layer + 1));
            dpb_account_ready(100 * (uint64_t)(layer + 1)); /* again: nothing new */
            int64_t entered_ns = dpb_account_enter();
            clock_ns += 1000;
            (void)dpb_account_leave(entered_ns, DPB_OK);
        }
        dpb_account_end();
        dpb_account_ready(900); /* of no step */
    }
    assert_int_equal(journal->n_ready, 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(journal->ready[i].elements, 100 * (i + 1));
        assert_int_equal(journal->ready[i].steps, 2);
        assert_int_equal(journal->ready[i].sum_ns, 50 * (i + 1));
    }
}

/* What a park cuts may take any time: what follows in its step is no account of the device. */
TEST_WITH(test_parked_steps_are_left_out, open_account, close_account)
{
    const struct dpb_coding coding = {.encode_ns = 5, .elements = 1};
    int64_t parked_ns = 0;
    dpb_ran_without(&parked_ns);
    journal->timed_from = 0;
    for (int step = 0; step < 3; step++) {
        dpb_account_begin(0.1);
        clock_ns += 50;
        dpb_account_ready(100);
        if (step == 1) {
            clock_ns += 1000000;
            parked_ns += 1000000;
        }
        clock_ns += 50;
        dpb_account_ready(200);
        dpb_account_coding(&coding);
        dpb_account_end();
    }
    assert_int_equal(journal->ready[0].steps, 3);
    assert_int_equal(journal->ready[1].steps, 2);
    assert_int_equal(journal->ready[1].sum_ns, 2 * 100);
    assert_int_equal(journal->coded_steps, 2);
    assert_int_equal(journal->coding.encode_ns, 2 * 5);
    dpb_ran_without(NULL);
}

/* Of steps that are timed and have a record: neither those of the warm-up, nor the one that is not
 * over, nor those behind a full journal. */
TEST_WITH(test_coding, open_account, close_account)
{
    enum { BEFORE = 2, TIMED = 3, BEHIND = 2 };
    journal->timed_from = UINT64_MAX;
    journal->capacity = BEFORE + TIMED;
    for (uint64_t step = 0; step < BEFORE + TIMED + BEHIND; step++) {
        if (step == 1) /* says the loop ahead of the first timed step */
            journal->timed_from = BEFORE;
        dpb_account_begin(0.5);
        dpb_account_coding(&(struct dpb_coding){.elements = 10 + step, .encode_ns = 7});
        dpb_account_coding(&(struct dpb_coding){.message_bytes = 100});
        assert_int_equal(journal->coded_steps, step <= BEFORE          ? 0
                                               : step - BEFORE < TIMED ? step - BEFORE
                                                                       : TIMED);
    }
    dpb_account_end();
    dpb_account_coding(&(struct dpb_coding){.elements = 1000}); /* of no step */
    assert_int_equal(journal->coded_steps, TIMED);
    assert_int_equal(journal->coding.elements, 12 + 13 + 14);
    assert_int_equal(journal->coding.encode_ns, 7 * TIMED);
    assert_int_equal(journal->coding.message_bytes, 100 * TIMED);
    assert_int_equal(journal->n_records - journal->timed_from, TIMED);
}

TEST_MAIN(NULL, NULL)
