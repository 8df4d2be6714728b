/*
 * fuzz_mesh.c - a rank of a mesh (mesh.h) whose peer says anything over two connections:
 * messages that are right but for what the input makes wrong, raw bytes, good-byes, closed
 * connections, while the rank sends, too. Also the readers of headers and of what comes before a
 * connection is proven.
 */
#include "lib/mesh/mesh.h"
#include "lib/mesh/mesh_tcp.h"
#include "lib/tcp/tcp_frames.h"
#include "tests/fuzz/fuzz.h"

#include <sys/socket.h>
#include <unistd.h>

enum { KINDS = 2, PLACES = 3, PLACE = 200, STREAMS = 2, MOST_COMMANDS = 128 };

struct rank {
    struct dpb_mesh *mesh;
    int peers[STREAMS];   /* the other ends; -1: closed */
    char *landing[KINDS]; /* by malloc: a sanitizer sees what is written beyond */
    uint64_t n_sent;
};

static struct dpb_mesh_label label_of(uint32_t kind, uint64_t n)
{
    return (struct dpb_mesh_label){.kind = kind,
                                   .bucket = (uint32_t)(n % PLACES),
                                   .exchange = n / PLACES,
                                   .at_bytes = n % PLACES * PLACE,
                                   .bytes = (n * 67 + kind * 33) % (PLACE + 1)};
}

static bool expects(void *rank, uint32_t link, uint32_t kind, uint64_t n,
                    struct dpb_mesh_label *label)
{
    (void)rank, (void)link;
    *label = label_of(kind, n);
    return kind < KINDS;
}

static void arrived(void *rank_, uint32_t link, const struct dpb_mesh_label *label)
{
    const struct rank *rank = rank_;
    FUZZ_CHECK(link == 0 && label->kind < KINDS);
    FUZZ_CHECK(dpb_mesh_arrived(rank->mesh, link, label->kind) > 0);
    if (dpb_mesh_arrived(rank->mesh, 0, 0) > 2)
        fuzz_used();
}

static void rank_create(struct rank *rank)
{
    static const char *const kinds[DPB_MESH_KINDS] = {"questions", "answers"};
    struct dpb_mesh_peer peer = {.rank = 1};
    int fds[STREAMS];
    *rank = (struct rank){0};
    for (int s = 0; s < STREAMS; s++) {
        int ends[2];
        FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        fds[s] = ends[0];
        rank->peers[s] = ends[1];
    }
    for (int kind = 0; kind < KINDS; kind++) {
        rank->landing[kind] = calloc(PLACES, PLACE);
        FUZZ_CHECK(rank->landing[kind]);
        peer.landings[kind] = (struct dpb_mesh_landing){rank->landing[kind], PLACES * PLACE};
    }
    struct dpb_mesh_transport *transport;
    FUZZ_CHECK(dpb_mesh_tcp_create_connected(fuzz_host(), STREAMS, fds, &transport) == DPB_OK);
    const struct dpb_mesh_args args = {
        .host = fuzz_host(),
        .transport = transport,
        .kinds = kinds,
        .peers = &peer,
        .n_peers = 1,
        .sink = {.owner = rank, .expects = expects, .arrived = arrived}};
    FUZZ_CHECK(dpb_mesh_open(&args, &rank->mesh) == DPB_OK);
}

static void rank_destroy(struct rank *rank)
{
    dpb_mesh_close(rank->mesh, true);
    for (int s = 0; s < STREAMS; s++)
        if (rank->peers[s] >= 0)
            close(rank->peers[s]);
    for (int kind = 0; kind < KINDS; kind++)
        free(rank->landing[kind]);
}

static void say(int fd, const void *bytes, size_t n)
{
    if (fd >= 0 && n > 0)
        (void)!send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A message that the peer would send, or what the input changes of it. */
static void say_message(const struct rank *rank, uint32_t stream, struct fuzz_input *input)
{
    uint8_t form = fuzz_byte(input), bytes[DPB_TCP_FRAME_BYTES + PLACE] = {0};
    struct dpb_mesh_label label = label_of(form & 15, fuzz_byte(input));
    if (form & 16)
        label.bucket += fuzz_byte(input);
    if (form & 32)
        label.bytes = (uint64_t)fuzz_word(input) << fuzz_byte(input) % 33;
    if (form & 64)
        label.at_bytes = (uint64_t)fuzz_word(input) << fuzz_byte(input) % 33;
    if (form & 128)
        label.exchange = fuzz_word(input);
    struct dpb_range part = dpb_mesh_tcp_part(label.bytes, stream, STREAMS);
    uint64_t n = part.end - part.begin;
    dpb_mesh_write_header(bytes, &label);
    say(rank->peers[stream], bytes, DPB_TCP_FRAME_BYTES + (n < PLACE ? n : PLACE));
}

static void command(struct rank *rank, struct fuzz_input *input)
{
    static const char payload[PLACE];
    uint8_t what = fuzz_byte(input), header[DPB_TCP_FRAME_BYTES];
    uint32_t stream = what >> 3 & 1;
    struct dpb_mesh_label label = DPB_MESH_BYE;
    struct fuzz_input raw;
    switch (what % 8) {
    case 0:
        raw = fuzz_part(input);
        say(rank->peers[stream], raw.data, raw.size);
        break;
    case 1:
        dpb_mesh_write_header(header, &label);
        say(rank->peers[stream], header, sizeof header);
        break;
    case 2:
        if (rank->peers[stream] >= 0)
            close(rank->peers[stream]);
        rank->peers[stream] = -1;
        break;
    case 3:
        label = label_of(fuzz_byte(input) % KINDS, rank->n_sent++);
        if (dpb_mesh_room(rank->mesh, 0) > 0)
            dpb_mesh_send(rank->mesh, 0, &label, payload);
        break;
    default:
        say_message(rank, stream, input);
    }
}

/* What is read is what was written, where it is accepted at all. */
static void read_messages(struct fuzz_input input)
{
    uint8_t bytes[DPB_MESH_HEADER_BYTES] = {0}, again[DPB_MESH_HEADER_BYTES];
    struct dpb_mesh_label label;
    memcpy(bytes, input.data, input.size < sizeof bytes ? input.size : sizeof bytes);
    if (dpb_mesh_read_header(bytes, &label)) {
        dpb_mesh_write_header(again, &label);
        FUZZ_CHECK(memcmp(bytes, again, DPB_MESH_HEADER_BYTES) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct rank rank;
    dpb_status status = DPB_OK;
    fuzz_begin();
    read_messages(input);
    rank_create(&rank);
    for (int i = 0; i < MOST_COMMANDS && input.size > 0 && status == DPB_OK; i++) {
        command(&rank, &input);
        for (bool moved = true; moved && status == DPB_OK;) {
            moved = false;
            status = dpb_mesh_move(rank.mesh, INT64_MAX, &moved);
        }
    }
    rank_destroy(&rank);
    return 0;
}
