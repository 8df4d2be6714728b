/*
 * fuzz_ring.c - a member of a ring over TCP whose neighbours say anything: frames that are right
 * but for what the input makes wrong, raw bytes, credits, closed connections, while buckets come
 * and go. Also the readers of what comes before a connection is proven.
 */
#include "lib/ring.h"
#include "lib/tcp.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

enum { ELEMENTS = 96, BUCKET = 32, BUCKETS = 3, SLOTS = 4, SLOT_BYTES = 64, MOST_COMMANDS = 128 };

struct member {
    struct ring *ring;
    int previous, next; /* the neighbours' ends; -1: closed */
    uint64_t step, posted;
    float *arena; /* by malloc: a sanitizer sees what is written beyond */
    char *inbox;
};

static void member_create(struct member *member)
{
    static const uint32_t ranks[] = {0, 1, 2};
    struct transport *transport;
    int in[2], out[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, out) == 0);
    FUZZ_CHECK(tcp_create_connected(fuzz_host(), 1, &out[0], &in[0], &transport) == DPB_OK);
    *member = (struct member){.previous = in[1], .next = out[1]};
    member->arena = calloc(ELEMENTS, sizeof *member->arena);
    member->inbox = calloc(SLOTS, SLOT_BYTES);
    FUZZ_CHECK(member->arena && member->inbox);
    const struct ring_args args = {
        .host = fuzz_host(),
        .transport = transport,
        .members = {.name = "fuzz", .members = ranks, .n_members = 3, .position = 1},
        .memory = {.arena = member->arena,
                   .arena_bytes = ELEMENTS * sizeof(float),
                   .inbox = member->inbox,
                   .n_slots = SLOTS,
                   .slot_bytes = SLOT_BYTES},
        .type = DPB_FP32,
        .n_buckets = BUCKETS,
        .bucket_elements = BUCKET};
    FUZZ_CHECK(ring_create(&args, &member->ring) == DPB_OK);
}

static void member_destroy(struct member *member)
{
    ring_destroy(member->ring);
    if (member->previous >= 0)
        close(member->previous);
    if (member->next >= 0)
        close(member->next);
    free(member->arena);
    free(member->inbox);
}

static void say(int fd, const void *bytes, size_t n)
{
    if (fd >= 0 && n > 0)
        (void)!send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* What the member before would send for its place in the ring, and what the input changes of it. */
static void say_frame(struct member *member, struct fuzz_input *input)
{
    uint8_t form = fuzz_byte(input), bytes[TCP_FRAME_BYTES + SLOT_BYTES] = {0};
    uint32_t bucket = form & 3, round = (form >> 2) % 4, slice = (3 - round) % 3;
    uint64_t begin = BUCKET * slice / 3, end = BUCKET * (slice + 1) / 3;
    struct transport_label label = {.step = member->step,
                                    .bucket = bucket,
                                    .round = round,
                                    .landing = round < 2 ? TRANSPORT_INBOX : TRANSPORT_ARENA,
                                    .at_bytes = (bucket * BUCKET + begin) * sizeof(float),
                                    .bytes = (end - begin) * sizeof(float)};
    if (form & 16)
        label.step += fuzz_byte(input);
    if (form & 32)
        label.bytes = (uint64_t)fuzz_word(input) << fuzz_byte(input) % 33;
    if (form & 64)
        label.at_bytes = (uint64_t)fuzz_word(input) << fuzz_byte(input) % 33;
    if (form & 128) {
        label.chunk = fuzz_byte(input);
        label.round = fuzz_byte(input);
        label.landing = fuzz_byte(input) % 4;
    }
    tcp_write_frame(bytes, &label);
    say(member->previous, bytes,
        TCP_FRAME_BYTES + (label.bytes < SLOT_BYTES ? label.bytes : SLOT_BYTES));
}

static void post(struct member *member)
{
    if (member->posted == BUCKETS && ring_finished(member->ring, BUCKETS - 1)) {
        ring_begin(member->ring, ++member->step);
        member->posted = 0;
    }
    if (member->posted < BUCKETS && ring_has_place(member->ring))
        ring_post(member->ring, BUCKET * member->posted++, BUCKET);
}

static void command(struct member *member, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input), credit[TCP_CREDIT_BYTES];
    int *end = what & 8 ? &member->previous : &member->next;
    struct fuzz_input raw;
    switch (what % 8) {
    case 0:
        raw = fuzz_part(input);
        say(*end, raw.data, raw.size);
        break;
    case 1:
        tcp_write_credit(credit, fuzz_byte(input));
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
        say_frame(member, input);
    }
}

/* What is read is what was written, where it is accepted at all. */
static void read_messages(struct fuzz_input input)
{
    uint8_t bytes[TCP_HELLO_BYTES] = {0}, again[TCP_HELLO_BYTES];
    const struct transport_memory memory = {.arena_bytes = 4096, .slot_bytes = 64};
    struct tcp_identity identity = {0};
    struct transport_label label;
    uint32_t n;
    memcpy(bytes, input.data, input.size < sizeof bytes ? input.size : sizeof bytes);
    if (tcp_read_hello(bytes, &identity)) {
        tcp_write_hello(again, &identity);
        FUZZ_CHECK(memcmp(bytes, again, TCP_HELLO_BYTES) == 0);
    }
    if (!tcp_read_frame(bytes, &memory, &label)) {
        FUZZ_CHECK(label.bytes <= 64 && label.at_bytes + label.bytes <= 4096);
        tcp_write_frame(again, &label);
        FUZZ_CHECK(memcmp(bytes, again, TCP_FRAME_BYTES) == 0);
    }
    if (tcp_read_credit(bytes, 7, &n)) {
        FUZZ_CHECK(n >= 1 && n <= 7);
        tcp_write_credit(again, n);
        FUZZ_CHECK(memcmp(bytes, again, TCP_CREDIT_BYTES) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct member member;
    dpb_status status = DPB_OK;
    fuzz_begin();
    read_messages(input);
    member_create(&member);
    ring_begin(member.ring, 0);
    for (int i = 0; i < MOST_COMMANDS && input.size > 0 && status == DPB_OK; i++) {
        command(&member, &input);
        for (bool moved = true; moved && status == DPB_OK;)
            status = ring_move(member.ring, INT64_MAX, &moved);
    }
    member_destroy(&member);
    return 0;
}
