/*
 * fuzz_ring.c - a member of a ring over TCP whose neighbours say anything: messages that are right
 * but for what the input makes wrong, raw bytes, credits, closed connections, while buckets come
 * and go, for sums and then given.
 */
#include "lib/mesh/mesh_tcp.h"
#include "lib/ring/ring.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

enum { ELEMENTS = 96, BUCKET = 32, BUCKETS = 3, SLOTS = 4, SLOT_BYTES = 64, MOST_COMMANDS = 128 };

struct member {
    struct dpb_sums *ring;
    int previous, next; /* the neighbours' ends; -1: closed */
    uint64_t step, posted, n_partial;
    float *arena, *weights; /* by malloc: a sanitizer sees what is written beyond */
    char *inbox;
};

static void member_create(struct member *member)
{
    static const uint32_t ranks[] = {0, 1, 2};
    struct dpb_mesh_transport *transport;
    int in[2], out[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out) == 0);
    const int fds[] = {out[0], in[0]}; /* links to the next member and to the one before */
    FUZZ_CHECK(dpb_mesh_tcp_create_connected(fuzz_host(), 1, fds, &transport) == DPB_OK);
    *member = (struct member){.previous = in[1], .next = out[1]};
    member->arena = calloc(ELEMENTS, sizeof *member->arena);
    member->weights = calloc(ELEMENTS, sizeof *member->weights);
    member->inbox = calloc(SLOTS, SLOT_BYTES);
    FUZZ_CHECK(member->arena && member->weights && member->inbox);
    const struct dpb_ring_args args = {
        .host = fuzz_host(),
        .transport = transport,
        .members = {.name = "fuzz", .members = ranks, .n_members = 3, .position = 1},
        .memory = {.arena = member->arena,
                   .arena_bytes = ELEMENTS * sizeof(float),
                   .inbox = member->inbox,
                   .n_slots = SLOTS,
                   .slot_bytes = SLOT_BYTES},
        .type = DPB_FP32,
        .shards = {.arena = member->weights, .type = DPB_FP32},
        .n_buckets = 2 * BUCKETS,
        .bucket_elements = BUCKET};
    FUZZ_CHECK(dpb_ring_create(&args, &member->ring) == DPB_OK);
}

static void member_destroy(struct member *member)
{
    dpb_sums_destroy(member->ring);
    if (member->previous >= 0)
        close(member->previous);
    if (member->next >= 0)
        close(member->next);
    free(member->arena);
    free(member->weights);
    free(member->inbox);
}

static void say(int fd, const void *bytes, size_t n)
{
    if (fd >= 0 && n > 0)
        (void)!send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What the member before would send for its place in the ring, and what the input changes of it. */
static void say_chunk(struct member *member, struct fuzz_input *input)
{
    uint8_t form = fuzz_byte(input), bytes[DPB_MESH_HEADER_BYTES + SLOT_BYTES] = {0};
    const bool gives = member->posted > BUCKETS;
    uint32_t bucket = form & 3, round = (form >> 2) % 4, chunk = 0;
    round = gives ? 2 + round % 2 : round;
    const uint32_t slice = (3 - round) % 3;
    uint64_t begin = BUCKET * slice / 3, end = BUCKET * (slice + 1) / 3;
    struct dpb_mesh_label label = {.kind = round < 2 || gives ? DPB_RING_PARTIAL : DPB_RING_SUM,
                                   .bucket = bucket + (gives ? BUCKETS : 0),
                                   .exchange = member->step,
                                   .at_bytes = (bucket * BUCKET + begin) * sizeof(float),
                                   .bytes = (end - begin) * sizeof(float)};
    if (label.kind == DPB_RING_PARTIAL)
        label.at_bytes = member->n_partial++ % SLOTS * SLOT_BYTES;
    if (form & 16)
        label.exchange += fuzz_byte(input);
    if (form & 32)
        label.bytes = (uint64_t)fuzz_word(input) << fuzz_byte(input) % 33;
    if (form & 64)
        label.at_bytes = (uint64_t)fuzz_word(input) << fuzz_byte(input) % 33;
    if (form & 128) {
        chunk = fuzz_byte(input);
        round = fuzz_byte(input);
        label.kind = fuzz_byte(input) % 4;
    }
    label.word = (uint64_t)round << 32 | chunk;
    dpb_mesh_write_header(bytes, &label);
    say(member->previous, bytes,
        DPB_MESH_HEADER_BYTES + (label.bytes < SLOT_BYTES ? label.bytes : SLOT_BYTES));
}

static void post(struct member *member)
{
    if (member->posted == 2 * BUCKETS && dpb_sums_finished(member->ring, 2 * BUCKETS - 1)) {
        dpb_sums_begin(member->ring, ++member->step);
        member->posted = 0;
    }
    if (member->posted < BUCKETS && dpb_sums_has_place(member->ring))
        member->ring->ops->post(member->ring, BUCKET * member->posted++, BUCKET);
    else if (member->posted < 2 * BUCKETS && dpb_sums_finished(member->ring, BUCKETS - 1)) {
        const uint64_t bucket = member->posted++ - BUCKETS;
        dpb_ring_give(member->ring, bucket, BUCKET * bucket, BUCKET);
    }
}

static void command(struct member *member, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input), credit[DPB_MESH_HEADER_BYTES];
    struct dpb_mesh_label label = {.kind = DPB_RING_CREDIT};
    int *end = what & 8 ? &member->previous : &member->next;
    struct fuzz_input raw;
    switch (what % 8) {
    case 0:
        raw = fuzz_part(input);
        say(*end, raw.data, raw.size);
        break;
    case 1:
        label.word = fuzz_byte(input);
        dpb_mesh_write_header(credit, &label);
        say(member->next, credit, sizeof credit);
        break;
    case 2:
        if (what & 64 && *end >= 0) {
            close(*end);
            *end = -1;
        }
        break;
    case 3:
        post(member);
        break;
    default:
        say_chunk(member, input);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct member member;
    dpb_status status = DPB_OK;
    fuzz_begin();
    member_create(&member);
    dpb_sums_begin(member.ring, 0);
    for (int i = 0; i < MOST_COMMANDS && input.size > 0 && status == DPB_OK; i++) {
        command(&member, &input);
        for (bool moved = true; moved && status == DPB_OK;)
            status = member.ring->ops->move(member.ring, INT64_MAX, &moved);
        if (member.step == 0 && dpb_sums_finished(member.ring, 0))
            fuzz_used();
    }
    member_destroy(&member);
    return 0;
}
