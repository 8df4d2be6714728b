/*
 * test_ring.c - the ring all-reduce over a mesh in memory that does its worst: messages overtake
 * those of other kinds, members are ahead of others by buckets and by a step, the network reads
 * the sender's memory late and says late that it has. All members are moved by one thread, in
 * random order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "dpbench/plugin.h"
#include "lib/mesh/mesh_transport.h"
#include "lib/ring/ring.h"
#include "lib/test.h"
#include "plan/experiment.h"

enum { MAX_MEMBERS = 7, MAX_BUCKETS = 24, KINDS = DPB_RING_CREDIT + 2 /* one of them is none */ };

static uint32_t seed;

static uint32_t draw(uint32_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(seed >> 8) * n) >> 24);
}

/* ---- a mesh in memory ---------------------------------------------------------------------- */

/* A message under way. When it was delivered its sender is not told at once. */
struct parcel {
    struct dpb_mesh_label label;
    const void *payload;
    bool delivered;
};

/* A way to another member, and the number that the link has there. */
struct way {
    struct line *to;
    uint32_t back;
    struct parcel parcels[DPB_MESH_QUEUE];
    uint32_t n_parcels;
    uint64_t n_come[KINDS]; /* from there to here */
};

struct line {
    struct dpb_mesh_transport base;
    uint32_t member;
    struct dpb_mesh *mesh;
    struct way ways[2]; /* by link: to the next member, to the one before */
};

static struct line *line_of(const struct dpb_mesh_transport *transport)
{
    return (struct line *)(uintptr_t)transport;
}

static dpb_status line_connect(struct dpb_mesh_transport *transport,
                               const struct dpb_mesh_args *args, struct dpb_mesh *mesh)
{
    (void)args;
    line_of(transport)->mesh = mesh;
    return DPB_OK;
}

static uint32_t line_room(const struct dpb_mesh_transport *transport, uint32_t link)
{
    return DPB_MESH_QUEUE - line_of(transport)->ways[link].n_parcels;
}

static void line_send(struct dpb_mesh_transport *transport, uint32_t link,
                      const struct dpb_mesh_label *label, const void *payload)
{
    struct way *way = &line_of(transport)->ways[link];
    way->parcels[way->n_parcels++] = (struct parcel){.label = *label, .payload = payload};
}

static uint32_t at_work; /* the member whose ring is called */

/* A parcel becomes what it was meant for: its bytes are read now, not when it was sent. */
static dpb_status deliver(struct way *way, struct parcel *parcel)
{
    struct line *to = way->to;
    const uint32_t sender = at_work;
    const struct dpb_mesh_label *label = &parcel->label;
    uint64_t *n_come = &to->ways[way->back].n_come[label->kind];
    void *memory;
    DPB_TRY(dpb_mesh_begins(to->mesh, way->back, (*n_come)++, label, &memory));
    if (label->bytes > 0)
        memcpy(memory, parcel->payload, label->bytes);
    parcel->delivered = true;
    at_work = to->member;
    dpb_mesh_arrives(to->mesh, way->back, label);
    at_work = sender;
    return DPB_OK;
}

/* The first that is not delivered of a kind, any. */
static struct parcel *choose(struct way *way)
{
    uint32_t kind = way->parcels[draw(way->n_parcels)].label.kind;
    for (uint32_t i = 0; i < way->n_parcels; i++)
        if (way->parcels[i].label.kind == kind && !way->parcels[i].delivered)
            return &way->parcels[i];
    return NULL;
}

static dpb_status line_move(struct dpb_mesh_transport *transport, int64_t until_ns, bool *moved)
{
    struct way *way = &line_of(transport)->ways[draw(2)];
    (void)until_ns;
    if (way->n_parcels == 0 || draw(3) == 0)
        return DPB_OK;
    *moved = true;
    if (way->parcels[0].delivered && draw(2) == 0) {
        memmove(way->parcels, way->parcels + 1, --way->n_parcels * sizeof way->parcels[0]);
        return DPB_OK;
    }
    struct parcel *parcel = choose(way);
    return parcel ? deliver(way, parcel) : DPB_OK;
}

static uint32_t line_n_watched(const struct dpb_mesh_transport *transport)
{
    (void)transport;
    return 0;
}

static bool line_watch(struct dpb_mesh_transport *transport, struct pollfd *fds)
{
    (void)transport, (void)fds;
    return true;
}

static void line_close(struct dpb_mesh_transport *transport, bool through)
{
    (void)transport, (void)through;
}

static const struct dpb_mesh_transport_ops line_ops = {.connect = line_connect,
                                                       .room = line_room,
                                                       .send = line_send,
                                                       .move = line_move,
                                                       .n_watched = line_n_watched,
                                                       .watch = line_watch,
                                                       .close = line_close};

/* A wait is told, and ends at once. */
static dpb_status end_wait(struct pollfd *fds, uint32_t n, const struct dpb_wait *what,
                           int64_t *waited_ns)
{
    (void)fds, (void)n, (void)waited_ns;
    return dpb_fail(DPB_TIMEOUT, "%s: exchange %llu, bucket %llu, rank %u, %llu bytes",
                    what->purpose, (unsigned long long)what->step, (unsigned long long)what->bucket,
                    what->peer, (unsigned long long)what->bytes);
}

/* ---- members ------------------------------------------------------------------------------- */

static uint64_t counted_bytes;

static void count_bytes(uint64_t bytes)
{
    counted_bytes += bytes;
}

static int64_t made_ns[MAX_MEMBERS][MAX_BUCKETS]; /* when weights were last made; 0: not yet */

static uint64_t n_world_buckets;

/* A bucket's transfer leaves out the making of its weights. */
static void check_span(uint64_t bucket, dpb_phase phase, int64_t begin_ns, int64_t end_ns)
{
    assert_true(bucket < n_world_buckets);
    const int64_t made = made_ns[at_work][bucket];
    assert_true(begin_ns <= end_ns);
    if (phase == DPB_PHASE_TRANSFER)
        assert_true(made <= begin_ns || made >= end_ns);
}

/* Makes a member's weights of sums: each twice the sum. */
struct maker {
    const struct world *world;
    uint32_t member;
};

/* What goes round: sums; weights in their place; both, weights when all sums are there. */
enum shape { SUMS, SHARDED, GIVEN, SHAPES };

struct world {
    struct dpb_host host;
    uint32_t n_members;
    enum shape shape;
    struct maker makers[MAX_MEMBERS];
    dpb_dtype type;
    uint64_t n_elements, bucket_elements, n_buckets;
    uint32_t ranks[MAX_MEMBERS];
    struct line lines[MAX_MEMBERS];
    struct dpb_sums *rings[MAX_MEMBERS];
    void *arenas[MAX_MEMBERS], *weights[MAX_MEMBERS], *inboxes[MAX_MEMBERS], *given[MAX_MEMBERS];
    void *old_weights[MAX_MEMBERS];
    uint64_t posted[MAX_MEMBERS], steps[MAX_MEMBERS];
};

/* Buckets are sometimes parts of what a bucket may be at most: hierarchical sends such ranges. */
static uint64_t bucket_length(const struct world *w, uint64_t bucket)
{
    uint64_t rest = w->n_elements - bucket * w->bucket_elements;
    return rest < w->bucket_elements ? rest : w->bucket_elements;
}

static uint64_t n_posts(const struct world *w)
{
    return (w->shape == GIVEN ? 2 : 1) * w->n_buckets;
}

static void join(struct world *w)
{
    for (uint32_t m = 0; m < w->n_members; m++) {
        struct line *line = &w->lines[m], *next = &w->lines[(m + 1) % w->n_members];
        line->ways[0].to = next;
        line->ways[0].back = 1;
        next->ways[1].to = line;
        next->ways[1].back = 0;
    }
}

/* Of the slice that the member owns, and once: the weights before were others. */
static void make_weights(void *owner, uint64_t bucket, uint64_t begin, uint64_t n)
{
    const struct maker *maker = owner;
    const struct world *w = maker->world;
    const uint64_t first = bucket * w->bucket_elements;
    const struct dpb_range own =
        dpb_ring_owned(bucket_length(w, bucket), maker->member, w->n_members);
    double *weights = w->weights[maker->member];
    assert_true(begin >= first + own.begin && begin + n <= first + own.end);
    for (uint64_t i = begin; i < begin + n; i++) {
        double sum;
        dpb_vec.cast(DPB_FP64, &sum, w->type,
                     (char *)w->arenas[maker->member] + i * dpb_dtype_size(w->type), 1);
        weights[i] = 2 * sum;
    }
    const int64_t began_ns = dpb_host.now_ns();
    int64_t *made = &made_ns[maker->member][bucket];
    if (w->shape == GIVEN)
        return;
    do
        *made = dpb_host.now_ns();
    while (*made <= began_ns + 1);
}

static void open_world(struct world *w, uint32_t n_slots, uint64_t slot_bytes)
{
    size_t bytes = w->n_elements * dpb_dtype_size(w->type);
    w->host = dpb_host;
    w->host.count_bytes = count_bytes;
    w->host.span = check_span;
    w->host.poll = end_wait;
    w->n_buckets = (w->n_elements + w->bucket_elements - 1) / w->bucket_elements;
    assert_true(w->n_buckets <= MAX_BUCKETS);
    n_world_buckets = w->n_buckets;
    for (uint32_t m = 0; m < w->n_members; m++) {
        w->ranks[m] = 10 + (m * 3) % w->n_members; /* ranks are not positions */
        w->lines[m] = (struct line){.base.ops = &line_ops, .member = m};
        w->arenas[m] = calloc(1, bytes);
        w->given[m] = calloc(1, bytes);
        w->weights[m] = calloc(w->n_elements, sizeof(double));
        w->old_weights[m] = calloc(w->n_elements, sizeof(double));
        w->makers[m] = (struct maker){w, m};
        w->inboxes[m] = calloc(n_slots, slot_bytes);
    }
    join(w);
    for (uint32_t m = 0; m < w->n_members; m++) {
        struct dpb_ring_args args = {.host = &w->host,
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
                                     .n_buckets = n_posts(w),
                                     .bucket_elements = w->bucket_elements};
        if (w->shape != SUMS)
            args.shards = (struct dpb_ring_shards){.arena = w->weights[m],
                                                   .type = DPB_FP64,
                                                   .make = w->shape == GIVEN ? NULL : make_weights,
                                                   .owner = &w->makers[m]};
        assert_int_equal(dpb_ring_create(&args, &w->rings[m]), DPB_OK);
    }
}

static void close_world(struct world *w)
{
    for (uint32_t m = 0; m < w->n_members; m++) {
        dpb_sums_destroy(w->rings[m]);
        free(w->arenas[m]);
        free(w->given[m]);
        free(w->weights[m]);
        free(w->old_weights[m]);
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

static bool has_sum(const struct world *w, uint32_t m, uint64_t element, const void *sum)
{
    const size_t size = dpb_dtype_size(w->type);
    double wide;
    dpb_vec.cast(DPB_FP64, &wide, w->type, sum, 1);
    return (w->shape == SUMS || ((const double *)w->weights[m])[element] == 2 * wide) &&
           (w->shape == SHARDED || memcmp((char *)w->arenas[m] + element * size, sum, size) == 0);
}

/* The sum of slice s begins with member s and goes round the ring in the gradients' type. */
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
                if ((w->shape != GIVEN || (m + 1) % w->n_members == first) &&
                    !has_sum(w, m, at / size, sum))
                    fail_msg("%u members, bucket %llu, element %llu of %llu: member %u has "
                             "another sum",
                             w->n_members, (unsigned long long)bucket, (unsigned long long)i,
                             (unsigned long long)n, m);
        }
}

/* ---- an exchange --------------------------------------------------------------------------- */

static bool is_done(const struct world *w, uint32_t m)
{
    return w->posted[m] == n_posts(w) &&
           (w->n_buckets == 0 || dpb_sums_finished(w->rings[m], n_posts(w) - 1));
}

/* The member has all sums. Others may have given long ago: here all weights are still old. */
static void update(struct world *w, uint32_t m)
{
    assert_memory_equal(w->weights[m], w->old_weights[m], w->n_elements * sizeof(double));
    for (uint64_t bucket = 0; bucket < w->n_buckets; bucket++) {
        const struct dpb_range own = dpb_ring_owned(bucket_length(w, bucket), m, w->n_members);
        make_weights(&w->makers[m], bucket, bucket * w->bucket_elements + own.begin,
                     own.end - own.begin);
    }
}

static void post_or_give(struct world *w, uint32_t m)
{
    const uint64_t bucket = w->posted[m] % w->n_buckets, n = bucket_length(w, bucket);
    const bool gives = w->posted[m] >= w->n_buckets;
    if (gives && !dpb_sums_finished(w->rings[m], w->n_buckets - 1))
        return;
    if (gives && bucket == 0)
        update(w, m);
    w->posted[m]++;
    if (gives)
        dpb_ring_give(w->rings[m], bucket, bucket * w->bucket_elements, n);
    else
        w->rings[m]->ops->post(w->rings[m], bucket * w->bucket_elements, n);
}

/* A turn of one member: it may begin the exchange, have a bucket ready, or move. */
static void turn(struct world *w, uint32_t m, uint64_t step)
{
    bool moved;
    at_work = m;
    if (w->steps[m] != step) {
        w->steps[m] = step;
        w->posted[m] = 0;
        fill(w, m);
        memcpy(w->old_weights[m], w->weights[m], w->n_elements * sizeof(double));
        dpb_sums_begin(w->rings[m], step);
    }
    if (w->posted[m] < n_posts(w) && dpb_sums_has_place(w->rings[m]) && draw(4) == 0)
        post_or_give(w, m);
    assert_int_equal(w->rings[m]->ops->move(w->rings[m], INT64_MAX, &moved), DPB_OK);
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

static void check_world(uint32_t n_members, enum shape shape, dpb_dtype type, uint64_t n_elements,
                        uint64_t bucket_elements, uint32_t n_slots, uint64_t slot_bytes)
{
    const uint64_t size = dpb_dtype_size(type), weight_size = dpb_dtype_size(DPB_FP64);
    const uint64_t sent[SHAPES] = {2 * size, size + weight_size, size + weight_size};
    struct world w = {.n_members = n_members,
                      .shape = shape,
                      .type = type,
                      .n_elements = n_elements,
                      .bucket_elements = bucket_elements};
    memset(w.steps, 0xff, sizeof w.steps);
    open_world(&w, n_slots, slot_bytes);
    memset(made_ns, 0, sizeof made_ns);
    counted_bytes = 0;
    for (uint64_t step = 3; step < 5; step++)
        exchange(&w, step);
    assert_int_equal(counted_bytes, 2 * (n_members - 1) * n_elements * sent[shape]);
    close_world(&w);
}

/* One member makes no weights of sums: it has no shards. */
static void check_case(uint32_t n_members, dpb_dtype type, uint64_t n_elements,
                       uint64_t bucket_elements, uint32_t n_slots, uint64_t slot_bytes)
{
    for (enum shape shape = SUMS; shape < (n_members > 1 ? SHAPES : SHARDED); shape++)
        check_world(n_members, shape, type, n_elements, bucket_elements, n_slots, slot_bytes);
}

/* ---- tests --------------------------------------------------------------------------------- */

/* Chunks of 16 elements (fp32): one more and one less than fit, and fewer than members. */
TEST(test_sums)
{
    static const uint64_t lengths[] = {1, 2, 3, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 331};
    static const dpb_dtype types[] = {DPB_FP64, DPB_FP32, DPB_BF16, DPB_FP16};
    for (uint32_t n = 1; n <= MAX_MEMBERS; n++)
        for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
            for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
                check_case(n, types[t], lengths[i], lengths[i], 4, 64);
}

/* More buckets than may be under way at once, in an inbox that is small or large. */
TEST(test_buckets)
{
    static const uint32_t slots[] = {4, 7, 64};
    for (uint32_t n = 1; n <= MAX_MEMBERS; n++)
        for (size_t s = 0; s < 3; s++) {
            check_case(n, DPB_FP32, 23 * 41 + 5, 41, slots[s], 64);
            check_case(n, DPB_BF16, 20 * 150 + 1, 150, slots[s], 64);
            check_case(n, DPB_FP64, 11, 1, slots[s], 64);
        }
}

/* A member that is through with a step begins the next while others are still at it. */
TEST(test_ahead_by_a_step)
{
    struct world w = {.n_members = 3, .type = DPB_FP32, .n_elements = 300, .bucket_elements = 100};
    bool moved;
    memset(w.steps, 0xff, sizeof w.steps);
    open_world(&w, 16, 64);
    exchange(&w, 7);
    for (int i = 0; i < 2000; i++) /* without member 2, which is at step 7 */
        turn(&w, draw(2), 8);
    for (int i = 0; i < 200; i++)
        assert_int_equal(w.rings[2]->ops->move(w.rings[2], INT64_MAX, &moved), DPB_OK);
    exchange(&w, 8);
    exchange(&w, 9);
    close_world(&w);
}

/* ---- what does not belong to the exchange -------------------------------------------------- */

#define LABEL(STEP, BUCKET, ROUND, CHUNK, KIND, AT_BYTES, BYTES)                                 \
    {                                                                                            \
        .kind = DPB_RING_##KIND, .bucket = (BUCKET), .exchange = (STEP), .at_bytes = (AT_BYTES), \
        .bytes = (BYTES), .word = (uint64_t)(ROUND) << 32 | (CHUNK)                              \
    }

struct wrong {
    struct dpb_mesh_label label;
    const char *words[3];
};

/* Two members, step 5, buckets of 64 elements fp32 in chunks of 16, an inbox of 4 slots; bucket 0
 * is under way at member 0. In round 0 it receives slice 1, in round 1 slice 0. */
static const struct wrong wrongs[] = {
    {LABEL(5, 0, 1, 0, SUM, 128, 64), {"for the arena at byte 128", "at byte 0"}},
    {LABEL(5, 0, 0, 0, PARTIAL, 0, 60), {"60 bytes", "expected 64 bytes"}},
    {LABEL(5, 0, 0, 0, PARTIAL, 32, 64), {"for the inbox at byte 32", "a slot of the inbox"}},
    {LABEL(5, 0, 0, 0, PARTIAL, 256, 64), {"for the inbox at byte 256", "a slot of the inbox"}},
    {LABEL(5, 1, 0, 0, PARTIAL, 64, 65), {"65 bytes for the inbox", "a slot of the inbox"}},
    {LABEL(5, 0, 0, 0, SUM, 128, 64), {"for the arena", "for the inbox"}},
    {LABEL(5, 0, 1, 0, PARTIAL, 0, 64), {"for the inbox", "for the arena"}},
    {LABEL(5, 0, 0, 2, PARTIAL, 0, 64), {"chunk 2", "chunks below 2"}},
    {LABEL(5, 0, 2, 0, PARTIAL, 0, 64), {"round 2", "rounds below 2"}},
    {LABEL(5, 0, UINT32_MAX, 0, PARTIAL, 0, 64), {"rounds below 2"}},
    {LABEL(4, 0, 0, 0, PARTIAL, 0, 64), {"exchange 4", "of exchange 5"}},
    {LABEL(7, 0, 0, 0, PARTIAL, 0, 64), {"exchange 7", "of exchange 5"}},
    {LABEL(5, 3, 0, 0, PARTIAL, 0, 64), {"bucket 3", "buckets 0 to 2"}},
    {LABEL(5, 1, 1, 0, SUM, 256, 64), {"bucket 1", "for the arena"}},
    {LABEL(5, 0, 0, 0, PARTIAL, 0, UINT64_C(1) << 63), {"9223372036854775808 bytes"}},
    {LABEL(5, 0, 0, 0, PARTIAL, 0, 0), {"0 bytes for the inbox"}},
    {LABEL(5, 0, 0, 0, PARTIAL, UINT64_MAX - 10, 64), {"a slot of the inbox"}},
    {LABEL(6, 0, 0, 0, PARTIAL, 0, UINT64_C(1) << 63), {"a slot of the inbox"}},
    {LABEL(6, 0, 0, 0, PARTIAL, 32, 64), {"a slot of the inbox"}},
    {LABEL(6, 0, 1, 0, SUM, 0, 64), {"exchange 6"}},
    {{.kind = DPB_RING_CREDIT + 1, .exchange = 5, .bytes = 64}, {"exchange 5"}},
};

/* Bucket 0 is given, so weights come in round 1 alone, in chunks of 8. */
static const struct wrong given_wrongs[] = {
    {LABEL(5, 0, 0, 0, PARTIAL, 0, 64), {"round 0", "rounds from 1 on"}},
    {LABEL(5, 0, 1, 0, SUM, 0, 64), {"for the arena", "64 bytes for the inbox"}},
    {LABEL(5, 0, 1, 4, PARTIAL, 0, 64), {"chunk 4", "chunks below 4"}},
};

/* What dpb_mesh_begins says of a message from member 1 to member 0, of two. */
static dpb_status begin(const struct world *w, const struct dpb_mesh_label *label)
{
    void *memory;
    return dpb_mesh_begins(w->lines[0].mesh, 1, w->lines[0].ways[1].n_come[label->kind], label,
                           &memory);
}

/* And all of it comes. */
static void come(struct world *w, const struct dpb_mesh_label *label)
{
    assert_int_equal(begin(w, label), DPB_OK);
    w->lines[0].ways[1].n_come[label->kind]++;
    dpb_mesh_arrives(w->lines[0].mesh, 1, label);
}

static void expect_refused(const struct wrong *wrong, enum shape shape)
{
    struct world w = {
        .n_members = 2, .shape = shape, .type = DPB_FP32, .n_elements = 192, .bucket_elements = 64};
    dpb_status first;
    open_world(&w, 4, 64);
    dpb_sums_begin(w.rings[0], 5);
    if (shape == GIVEN)
        dpb_ring_give(w.rings[0], 0, 0, 64);
    else
        w.rings[0]->ops->post(w.rings[0], 0, 64);
    dpb_first_error_clear();
    assert_int_equal(begin(&w, &wrong->label), DPB_FAILED);
    assert_non_null(strstr(dpb_first_error(&first), "rank 11 sent"));
    assert_non_null(strstr(dpb_first_error(&first), "rank 10 expected"));
    for (size_t word = 0; word < 3 && wrong->words[word]; word++)
        if (!strstr(dpb_first_error(&first), wrong->words[word]))
            fail_msg("no '%s' in: %s", wrong->words[word], dpb_first_error(&first));
    close_world(&w);
    dpb_first_error_clear();
}

TEST(test_refusals)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++)
        expect_refused(&wrongs[i], SUMS);
    for (size_t i = 0; i < sizeof given_wrongs / sizeof given_wrongs[0]; i++)
        expect_refused(&given_wrongs[i], GIVEN);
}

/* The same chunk again, in another slot and in the same one; and one that came early and is seen to
 * be wrong when its bucket is there. */
TEST(test_late_refusals)
{
    static const struct dpb_mesh_label once = LABEL(5, 0, 0, 0, PARTIAL, 0, 64);
    static const struct dpb_mesh_label again = LABEL(5, 0, 0, 0, PARTIAL, 64, 64);
    static const struct dpb_mesh_label early = LABEL(5, 1, 0, 0, PARTIAL, 128, 60);
    dpb_status first;
    bool moved;
    for (int i = 0; i < 3; i++) {
        struct world w = {
            .n_members = 2, .type = DPB_FP32, .n_elements = 192, .bucket_elements = 64};
        open_world(&w, 8, 64);
        dpb_sums_begin(w.rings[0], 5);
        w.rings[0]->ops->post(w.rings[0], 0, 64);
        come(&w, i < 2 ? &once : &early);
        if (i == 0)
            come(&w, &again);
        else if (i == 1)
            assert_int_equal(begin(&w, &once), DPB_FAILED);
        else
            w.rings[0]->ops->post(w.rings[0], 64, 64);
        if (i != 1)
            assert_int_equal(w.rings[0]->ops->move(w.rings[0], INT64_MAX, &moved), DPB_FAILED);
        static const char *const words[] = {"expected it once, and had it",
                                            "a slot of the inbox that is free",
                                            "expected 64 bytes for the inbox"};
        assert_non_null(strstr(dpb_first_error(&first), words[i]));
        dpb_first_error_clear();
        close_world(&w);
    }
}

/* What a wait is for, by phase; one for a member that has left is none. */
TEST(test_waits)
{
    struct world w = {.n_members = 2, .type = DPB_FP32, .n_elements = 64, .bucket_elements = 64};
    dpb_status first;
    open_world(&w, 4, 64);
    dpb_sums_begin(w.rings[0], 5);
    w.rings[0]->ops->post(w.rings[0], 0, 64);
    assert_int_equal(w.rings[0]->ops->wait(w.rings[0]), DPB_TIMEOUT);
    assert_string_equal(dpb_first_error(&first),
                        "partial sums (scatter-reduce) from the rank before "
                        "in the ring: exchange 5, bucket 0, rank 11, 256 bytes");
    dpb_first_error_clear();
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        const struct dpb_mesh_label label = LABEL(5, 0, 0, chunk, PARTIAL, 64 * chunk, 64);
        come(&w, &label);
    }
    assert_int_equal(w.rings[0]->ops->wait(w.rings[0]), DPB_TIMEOUT);
    assert_non_null(strstr(dpb_first_error(&first), "sums (all-gather) from the rank before"));
    dpb_first_error_clear();
    dpb_mesh_leaves(w.lines[0].mesh, 1);
    assert_int_equal(w.rings[0]->ops->wait(w.rings[0]), DPB_PEER);
    assert_non_null(strstr(dpb_first_error(&first), "rank 11 has left the ring before exchange 5"));
    dpb_first_error_clear();
    close_world(&w);
}

int main(void)
{
    const char *given = getenv("DPB_RING_SEED");
    seed = given ? (uint32_t)strtoul(given, NULL, 10) : 1;
    return test_main(NULL, NULL);
}
