/*
 * test_ring.c - the ring all-reduce over a network in memory that does its worst: chunks overtake
 * each other, members are ahead of others by buckets and by a step, the network reads the sender's
 * memory late and says late that it has. All members are moved by one thread, in random order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/plugin.h"
#include "lib/ring.h"
#include "train/experiment.h"

enum { MAX_MEMBERS = 7, MAX_BUCKETS = 24, LINE = 256, QUEUE_LIMIT = 5 };

static uint32_t seed;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(seed >> 8) * n) >> 24);
}

/* ---- a network in memory ------------------------------------------------------------------- */

/* A chunk under way. When it was delivered its sender is not told at once. */
struct parcel {
    struct transport_label label;
    bool delivered;
};

struct line {
    struct transport base;
    struct transport_ring ring;
    struct transport_memory memory;
    struct transport_sink sink;
    struct line *next;           /* the member that it leads to */
    struct parcel parcels[LINE]; /* from here to there */
    uint32_t n_parcels, credits;
    uint32_t *free_slots, n_free;
};

static struct line *line_of(const struct transport *transport)
{
    return (struct line *)(uintptr_t)transport;
}

static dpb_status line_connect(struct transport *transport, const struct transport_ring *ring,
                               const struct transport_memory *memory,
                               const struct transport_sink *sink)
{
    struct line *line = line_of(transport);
    line->ring = *ring;
    line->memory = *memory;
    line->sink = *sink;
    line->credits = line->n_free = memory->n_slots;
    line->free_slots = calloc(memory->n_slots, sizeof *line->free_slots);
    for (uint32_t i = 0; i < memory->n_slots; i++)
        line->free_slots[i] = i;
    return DPB_OK;
}

static uint32_t line_room(const struct transport *transport)
{
    return line_of(transport)->credits;
}

static bool line_send(struct transport *transport, const struct transport_label *label)
{
    struct line *line = line_of(transport);
    bool inbox = label->landing == TRANSPORT_INBOX;
    if (line->n_parcels >= 1 + draw(QUEUE_LIMIT) || (inbox && line->credits == 0))
        return false;
    line->credits -= inbox;
    line->parcels[line->n_parcels++] = (struct parcel){.label = *label};
    return true;
}

/* A parcel, any, becomes what it was meant for: its bytes are read now, not when it was sent. */
static dpb_status deliver(struct line *line, struct parcel *parcel)
{
    struct line *to = line->next;
    const struct transport_label *label = &parcel->label;
    uint32_t slot = UINT32_MAX;
    char *target = (char *)to->memory.arena + label->at_bytes;
    DPB_TRY(to->sink.begins(to->sink.ring, label));
    if (label->landing == TRANSPORT_INBOX) {
        uint32_t i = draw(to->n_free);
        assert_true(to->n_free > 0);
        slot = to->free_slots[i];
        to->free_slots[i] = to->free_slots[--to->n_free];
        target = (char *)to->memory.inbox + slot * to->memory.slot_bytes;
    }
    memcpy(target, (char *)line->memory.arena + label->at_bytes, label->bytes);
    parcel->delivered = true;
    return to->sink.arrived(to->sink.ring, label, target, slot);
}

static dpb_status line_move(struct transport *transport, int64_t until_ns, bool *moved)
{
    struct line *line = line_of(transport);
    (void)until_ns;
    if (line->n_parcels == 0 || draw(3) == 0)
        return DPB_OK;
    uint32_t i = draw(line->n_parcels);
    *moved = true;
    if (!line->parcels[i].delivered)
        return deliver(line, &line->parcels[i]);
    struct transport_label label = line->parcels[i].label;
    line->parcels[i] = line->parcels[--line->n_parcels];
    line->sink.sent(line->sink.ring, &label);
    return DPB_OK;
}

static void line_release(struct transport *transport, uint32_t slot)
{
    struct line *line = line_of(transport), *previous = line;
    line->free_slots[line->n_free++] = slot;
    while (previous->next != line)
        previous = previous->next;
    previous->credits++;
}

static dpb_status line_wait(struct transport *transport, const struct dpb_wait *what)
{
    (void)transport;
    return dpb_fail(DPB_TIMEOUT, "%s: step %llu, bucket %llu, rank %u, %llu bytes", what->purpose,
                    (unsigned long long)what->step, (unsigned long long)what->bucket, what->peer,
                    (unsigned long long)what->bytes);
}

static void line_wake(struct transport *transport)
{
    (void)transport;
}

static void line_close(struct transport *transport)
{
    free(line_of(transport)->free_slots);
    line_of(transport)->free_slots = NULL;
}

static const struct transport_ops line_ops = {.connect = line_connect,
                                              .room = line_room,
                                              .send = line_send,
                                              .move = line_move,
                                              .release = line_release,
                                              .wait = line_wait,
                                              .wake = line_wake,
                                              .close = line_close};

/* ---- members ------------------------------------------------------------------------------- */

static uint64_t counted_bytes;

static void count_bytes(uint64_t bytes)
{
    counted_bytes += bytes;
}

static void check_span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns)
{
    (void)bucket, (void)phase;
    assert_true(begin_ns <= end_ns);
}

struct world {
    struct dpb_host host;
    uint32_t n_members;
    dpb_dtype type;
    uint64_t n_elements, bucket_elements, n_buckets;
    uint32_t ranks[MAX_MEMBERS];
    struct line lines[MAX_MEMBERS];
    struct ring *rings[MAX_MEMBERS];
    void *arenas[MAX_MEMBERS], *inboxes[MAX_MEMBERS], *given[MAX_MEMBERS];
    uint64_t posted[MAX_MEMBERS], steps[MAX_MEMBERS];
};

/* Buckets are sometimes parts of what a bucket may be at most: hierarchical sends such ranges. */
static uint64_t bucket_length(const struct world *w, uint64_t bucket)
{
    uint64_t rest = w->n_elements - bucket * w->bucket_elements;
    return rest < w->bucket_elements ? rest : w->bucket_elements;
}

static void open_world(struct world *w, uint32_t n_slots, uint64_t slot_bytes)
{
    size_t bytes = w->n_elements * dpb_dtype_size(w->type);
    w->host = dpb_host;
    w->host.count_bytes = count_bytes;
    w->host.span = check_span;
    w->n_buckets = (w->n_elements + w->bucket_elements - 1) / w->bucket_elements;
    assert_true(w->n_buckets <= MAX_BUCKETS);
    for (uint32_t m = 0; m < w->n_members; m++) {
        w->ranks[m] = 10 + (m * 3) % w->n_members; /* ranks are not positions */
        w->lines[m] =
            (struct line){.base.ops = &line_ops, .next = &w->lines[(m + 1) % w->n_members]};
        w->arenas[m] = calloc(1, bytes);
        w->given[m] = calloc(1, bytes);
        w->inboxes[m] = calloc(n_slots, slot_bytes);
    }
    for (uint32_t m = 0; m < w->n_members; m++) {
        const struct ring_args args = {.host = &w->host,
                                       .transport = &w->lines[m].base,
                                       .members = {.name = "test",
                                                   .members = w->ranks,
                                                   .n_members = w->n_members,
                                                   .position = m},
                                       .memory = {.arena = w->arenas[m],
                                                  .arena_bytes = bytes,
                                                  .inbox = w->inboxes[m],
                                                  .n_slots = n_slots,
                                                  .slot_bytes = slot_bytes},
                                       .type = w->type,
                                       .n_buckets = w->n_buckets,
                                       .bucket_elements = w->bucket_elements};
        assert_int_equal(ring_create(&args, &w->rings[m]), DPB_OK);
    }
}

static void close_world(struct world *w)
{
    for (uint32_t m = 0; m < w->n_members; m++) {
        ring_destroy(w->rings[m]);
        free(w->arenas[m]);
        free(w->given[m]);
        free(w->inboxes[m]);
    }
}

/* Numbers whose sum depends on the order in which they are added. */
static void fill(struct world *w, uint32_t m)
{
    for (uint64_t i = 0; i < w->n_elements; i++) {
        double value = ((double)draw(1 << 20) / (1 << 19) - 1.0) * (1 << draw(12));
        dpb_vec.cast(w->type, (char *)w->arenas[m] + i * dpb_dtype_size(w->type), DPB_FP64, &value,
                     1);
    }
    memcpy(w->given[m], w->arenas[m], w->n_elements * dpb_dtype_size(w->type));
}

/* The sum of slice s begins with member s and follows the ring, each step in the gradients' type.
 * */
static void expect_sums(const struct world *w)
{
    size_t size = dpb_dtype_size(w->type);
    for (uint64_t bucket = 0; bucket < w->n_buckets; bucket++)
        for (uint64_t n = bucket_length(w, bucket), i = 0; i < n; i++) {
            uint64_t first = 0, at = (bucket * w->bucket_elements + i) * size;
            char sum[8];
            while (n * (first + 1) / w->n_members <= i)
                first++;
            memcpy(sum, (char *)w->given[first] + at, size);
            for (uint32_t k = 1; k < w->n_members; k++) {
                const void *sources[] = {sum, (char *)w->given[(first + k) % w->n_members] + at};
                void *target = sum;
                dpb_vec.sum(w->type, &target, 1, sources, 2, 1);
            }
            for (uint32_t m = 0; m < w->n_members; m++)
                if (memcmp((char *)w->arenas[m] + at, sum, size) != 0)
                    fail_msg("%u members, bucket %llu, element %llu of %llu: member %u has "
                             "another sum",
                             w->n_members, (unsigned long long)bucket, (unsigned long long)i,
                             (unsigned long long)n, m);
        }
}

/* ---- an exchange --------------------------------------------------------------------------- */

static bool is_done(const struct world *w, uint32_t m)
{
    return w->posted[m] == w->n_buckets &&
           (w->n_buckets == 0 || ring_finished(w->rings[m], w->n_buckets - 1));
}

/* A turn of one member: it may begin the exchange, have a bucket ready, or move. */
static void turn(struct world *w, uint32_t m, uint64_t step)
{
    bool moved;
    if (w->steps[m] != step) {
        w->steps[m] = step;
        w->posted[m] = 0;
        fill(w, m);
        ring_begin(w->rings[m], step);
    }
    if (w->posted[m] < w->n_buckets && ring_has_place(w->rings[m]) && draw(4) == 0) {
        uint64_t bucket = w->posted[m]++;
        ring_post(w->rings[m], bucket * w->bucket_elements, bucket_length(w, bucket));
    }
    assert_int_equal(ring_move(w->rings[m], INT64_MAX, &moved), DPB_OK);
}

static void exchange(struct world *w, uint64_t step)
{
    uint64_t turns = 0;
    uint32_t slow = draw(2 * w->n_members); /* often one of them is late with everything */
    for (uint32_t n_done = 0; n_done < w->n_members;) {
        uint32_t m = draw(w->n_members);
        if (m == slow && draw(20) != 0)
            continue;
        turn(w, m, step);
        n_done = 0;
        for (uint32_t i = 0; i < w->n_members; i++)
            n_done += w->steps[i] == step && is_done(w, i);
        if (++turns > 20000000)
            fail_msg("%u members, %llu elements: stuck", w->n_members,
                     (unsigned long long)w->n_elements);
    }
    expect_sums(w);
}

static void check_case(uint32_t n_members, dpb_dtype type, uint64_t n_elements,
                       uint64_t bucket_elements, uint32_t n_slots, uint64_t slot_bytes)
{
    struct world w = {.n_members = n_members,
                      .type = type,
                      .n_elements = n_elements,
                      .bucket_elements = bucket_elements};
    memset(w.steps, 0xff, sizeof w.steps);
    open_world(&w, n_slots, slot_bytes);
    counted_bytes = 0;
    for (uint64_t step = 3; step < 5; step++)
        exchange(&w, step);
    assert_int_equal(counted_bytes, 2 * 2 * (n_members - 1) * n_elements * dpb_dtype_size(type));
    close_world(&w);
}

/* ---- tests --------------------------------------------------------------------------------- */

/* Chunks of 16 elements (fp32): one more and one less than fit in each way, and fewer than members.
 * */
static void test_sums(void **state)
{
    static const uint64_t lengths[] = {1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 331};
    static const dpb_dtype types[] = {DPB_FP64, DPB_FP32, DPB_BF16};
    (void)state;
    for (uint32_t n = 1; n <= MAX_MEMBERS; n++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            for (size_t t = 0; t < 3; t++)
                check_case(n, types[t], lengths[i], lengths[i], 4, 64);
}

/* More buckets than may be under way at once, in an inbox that is small or large. */
static void test_buckets(void **state)
{
    static const uint32_t slots[] = {4, 7, 64};
    (void)state;
    for (uint32_t n = 1; n <= MAX_MEMBERS; n++)
        for (size_t s = 0; s < 3; s++) {
            check_case(n, DPB_FP32, 23 * 41 + 5, 41, slots[s], 64);
            check_case(n, DPB_BF16, 20 * 150 + 1, 150, slots[s], 64);
            check_case(n, DPB_FP64, 11, 1, slots[s], 64);
        }
}

/* A member that is through with a step begins the next while others are still at it. */
static void test_ahead_by_a_step(void **state)
{
    struct world w = {.n_members = 3, .type = DPB_FP32, .n_elements = 300, .bucket_elements = 100};
    bool moved;
    (void)state;
    memset(w.steps, 0xff, sizeof w.steps);
    open_world(&w, 16, 64);
    exchange(&w, 7);
    for (int i = 0; i < 2000; i++) /* without member 2, which is at step 7 */
        turn(&w, draw(2), 8);
    for (int i = 0; i < 200; i++)
        assert_int_equal(ring_move(w.rings[2], INT64_MAX, &moved), DPB_OK);
    exchange(&w, 8);
    exchange(&w, 9);
    close_world(&w);
}

/* ---- what does not belong to the exchange -------------------------------------------------- */

struct wrong {
    struct transport_label label;
    const char *words[3];
};

/* Two members, step 5, buckets of 64 elements fp32 in chunks of 16; bucket 0 is under way at member
 * 0. In round 0 it receives slice 1: elements 32 to 64. */
static const struct wrong wrongs[] = {
    {{5, 0, 0, 0, TRANSPORT_INBOX, 0, 64}, {"for the inbox at byte 0", "at byte 128"}},
    {{5, 0, 0, 0, TRANSPORT_INBOX, 128, 60}, {"60 bytes", "expected 64 bytes"}},
    {{5, 0, 0, 0, TRANSPORT_ARENA, 128, 64}, {"for the arena", "for the inbox"}},
    {{5, 0, 1, 0, TRANSPORT_INBOX, 0, 64}, {"for the inbox", "for the arena"}},
    {{5, 0, 0, 2, TRANSPORT_INBOX, 256, 64}, {"chunk 2", "chunks below 2"}},
    {{5, 0, 2, 0, TRANSPORT_INBOX, 128, 64}, {"round 2", "rounds below 2"}},
    {{5, 0, UINT32_MAX, 0, TRANSPORT_INBOX, 128, 64}, {"rounds below 2"}},
    {{4, 0, 0, 0, TRANSPORT_INBOX, 128, 64}, {"step 4", "of step 5"}},
    {{7, 0, 0, 0, TRANSPORT_INBOX, 128, 64}, {"step 7", "of step 5"}},
    {{5, 3, 0, 0, TRANSPORT_INBOX, 896, 64}, {"bucket 3", "buckets 0 to 2"}},
    {{5, 1, 1, 0, TRANSPORT_ARENA, 256, 64}, {"bucket 1", "for the arena"}},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        struct world w = {
            .n_members = 2, .type = DPB_FP32, .n_elements = 192, .bucket_elements = 64};
        dpb_status first;
        open_world(&w, 4, 64);
        ring_begin(w.rings[0], 5);
        ring_post(w.rings[0], 0, 64);
        const struct transport_sink *sink = &w.lines[0].sink;
        dpb_first_error_clear();
        assert_int_equal(sink->begins(sink->ring, &wrongs[i].label), DPB_FAILED);
        assert_non_null(strstr(dpb_first_error(&first), "rank 11 sent"));
        assert_non_null(strstr(dpb_first_error(&first), "rank 10 expected"));
        for (size_t word = 0; word < 3 && wrongs[i].words[word]; word++)
            if (!strstr(dpb_first_error(&first), wrongs[i].words[word]))
                fail_msg("%zu: no '%s' in: %s", i, wrongs[i].words[word], dpb_first_error(&first));
        close_world(&w);
    }
    dpb_first_error_clear();
}

/* The same chunk again; and one that came early and is seen to be wrong when its bucket is there.
 * */
static void test_late_refusals(void **state)
{
    struct world w = {.n_members = 2, .type = DPB_FP32, .n_elements = 192, .bucket_elements = 64};
    const struct transport_label once = {5, 0, 0, 0, TRANSPORT_INBOX, 128, 64};
    const struct transport_label early = {5, 1, 0, 0, TRANSPORT_INBOX, 256, 64};
    dpb_status first;
    bool moved;
    (void)state;
    open_world(&w, 4, 64);
    struct line *line = &w.lines[0];
    const struct transport_sink *sink = &line->sink;
    ring_begin(w.rings[0], 5);
    ring_post(w.rings[0], 0, 64);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sink->begins(sink->ring, &once), DPB_OK);
        assert_int_equal(
            sink->arrived(sink->ring, &once, w.inboxes[0], line->free_slots[--line->n_free]),
            i == 0 ? DPB_OK : DPB_FAILED);
    }
    assert_non_null(strstr(dpb_first_error(&first), "expected it once, and had it"));
    dpb_first_error_clear();
    assert_int_equal(sink->begins(sink->ring, &early), DPB_OK);
    assert_int_equal(
        sink->arrived(sink->ring, &early, w.inboxes[0], line->free_slots[--line->n_free]), DPB_OK);
    ring_post(w.rings[0], 64, 64);
    assert_int_equal(ring_move(w.rings[0], INT64_MAX, &moved), DPB_FAILED);
    assert_non_null(strstr(dpb_first_error(&first), "expected 64 bytes for the inbox at byte 384"));
    dpb_first_error_clear();
    close_world(&w);
}

/* What a wait is for, by phase. */
static void test_waits(void **state)
{
    struct world w = {.n_members = 2, .type = DPB_FP32, .n_elements = 64, .bucket_elements = 64};
    dpb_status first;
    (void)state;
    open_world(&w, 4, 64);
    struct line *line = &w.lines[0];
    const struct transport_sink *sink = &line->sink;
    ring_begin(w.rings[0], 5);
    ring_post(w.rings[0], 0, 64);
    assert_int_equal(ring_wait(w.rings[0]), DPB_TIMEOUT);
    assert_string_equal(dpb_first_error(&first),
                        "partial sums (scatter-reduce) from the rank before "
                        "in the ring: step 5, bucket 0, rank 11, 256 bytes");
    dpb_first_error_clear();
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        struct transport_label label = {5, 0, 0, chunk, TRANSPORT_INBOX, 128 + 64 * chunk, 64};
        assert_int_equal(sink->begins(sink->ring, &label), DPB_OK);
        assert_int_equal(
            sink->arrived(sink->ring, &label, w.inboxes[0], line->free_slots[--line->n_free]),
            DPB_OK);
    }
    assert_int_equal(ring_wait(w.rings[0]), DPB_TIMEOUT);
    assert_non_null(strstr(dpb_first_error(&first), "sums (all-gather) from the rank before"));
    dpb_first_error_clear();
    close_world(&w);
}

int main(void)
{
    const char *given = getenv("DPB_RING_SEED");
    seed = given ? (uint32_t)strtoul(given, NULL, 10) : 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_ahead_by_a_step),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_late_refusals),
        cmocka_unit_test(test_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
