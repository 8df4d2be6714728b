/* mesh.c - see mesh.h. */
#include "lib/mesh.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/wire.h"

#define HEADER_MAGIC UINT32_C(0x4d425044) /* "DPBM" */

enum {
    BYE = MESH_KINDS, /* the kind of a stream's last frame */
    READS = 4         /* of a connection in a pass: for the others are not to wait */
};

/* One connection. */
struct stream {
    struct tcp_sender sender;
    struct tcp_receiver receiver;
    struct mesh_label label;      /* of what is coming */
    uint64_t arrived[MESH_KINDS]; /* parts that are here */
    bool left;                    /* its end has come */
};

struct mesh {
    const struct dpb_host *host;
    struct mesh_sink sink;
    const char *const *kinds;
    uint32_t rank, n_links, n_streams;
    struct mesh_peer *peers; /* by link */
    struct stream *streams;  /* [link * n_streams + stream] */
};

/* ---- on the wire --------------------------------------------------------------------------- */

void mesh_write_header(uint8_t bytes[TCP_FRAME_BYTES], const struct mesh_label *label)
{
    uint8_t *at = wire_put(bytes, HEADER_MAGIC, 4);
    at = wire_put(at, label->kind, 4);
    at = wire_put(at, label->bucket, 4);
    at = wire_put(at, 0, 4);
    at = wire_put(at, label->exchange, 8);
    at = wire_put(at, label->at_bytes, 8);
    at = wire_put(at, label->bytes, 8);
    wire_put(at, label->word, 8);
}

bool mesh_read_header(const uint8_t bytes[TCP_FRAME_BYTES], struct mesh_label *label)
{
    const uint8_t *at = bytes;
    uint64_t magic = wire_get(&at, 4);
    label->kind = (uint32_t)wire_get(&at, 4);
    label->bucket = (uint32_t)wire_get(&at, 4);
    uint64_t unused = wire_get(&at, 4);
    label->exchange = wire_get(&at, 8);
    label->at_bytes = wire_get(&at, 8);
    label->bytes = wire_get(&at, 8);
    label->word = wire_get(&at, 8);
    return magic == HEADER_MAGIC && unused == 0 && label->kind <= BYE;
}

/* Whole cache lines, the first streams one more. */
struct dpb_range mesh_part(uint64_t bytes, uint32_t s, uint32_t n)
{
    uint64_t lines = bytes / DPB_CACHE_LINE + (bytes % DPB_CACHE_LINE != 0);
    uint64_t each = lines / n, more = lines % n;
    uint64_t begin = (s * each + (s < more ? s : more)) * DPB_CACHE_LINE;
    uint64_t end = begin + (each + (s < more)) * DPB_CACHE_LINE;
    return (struct dpb_range){begin < bytes ? begin : bytes, end < bytes ? end : bytes};
}

/* ---- what may go wrong --------------------------------------------------------------------- */

/* The end of a connection is a victim's news when its process has ended; the launcher knows why. */
static dpb_status broken(const struct mesh *mesh, uint32_t link, const char *doing, int error)
{
    bool peer = error == 0 || error == ECONNRESET || error == EPIPE;
    return mesh->host->fail(peer ? DPB_PEER : DPB_IO, "%s rank %u: %s", doing,
                            mesh->peers[link].rank,
                            error == 0 ? "it closed the connection" : strerror(error));
}

static void describe(const struct mesh *mesh, const struct mesh_label *label, char text[200])
{
    const char *kind = mesh->kinds[label->kind];
    snprintf(text, 200, "%s of exchange %llu, bucket %u, %llu bytes for byte %llu",
             kind ? kind : "no kind of message", (unsigned long long)label->exchange, label->bucket,
             (unsigned long long)label->bytes, (unsigned long long)label->at_bytes);
}

static dpb_status refuse(const struct mesh *mesh, uint32_t link, const struct mesh_label *label,
                         const struct mesh_label *expected)
{
    char came[200], wanted[200] = "no such message now";
    describe(mesh, label, came);
    if (expected)
        describe(mesh, expected, wanted);
    return mesh->host->fail(DPB_FAILED,
                            "rank %u sent %s; rank %u expected %s: the two do not run the same "
                            "training",
                            mesh->peers[link].rank, came, mesh->rank, wanted);
}

/* ---- sending ------------------------------------------------------------------------------- */

static struct stream *stream_of(const struct mesh *mesh, uint32_t link, uint32_t s)
{
    return &mesh->streams[link * mesh->n_streams + s];
}

uint32_t mesh_room(const struct mesh *mesh, uint32_t link)
{
    uint32_t least = TCP_QUEUE;
    for (uint32_t s = 0; s < mesh->n_streams; s++) {
        uint32_t room = tcp_sender_room(&stream_of(mesh, link, s)->sender);
        least = room < least ? room : least;
    }
    return least;
}

void mesh_send(struct mesh *mesh, uint32_t link, const struct mesh_label *label,
               const void *payload)
{
    assert(mesh_room(mesh, link) > 0 && label->kind < MESH_KINDS);
    for (uint32_t s = 0; s < mesh->n_streams; s++) {
        struct dpb_range part = mesh_part(label->bytes, s, mesh->n_streams);
        const char *from = payload;
        mesh_write_header(tcp_sender_add(&stream_of(mesh, link, s)->sender,
                                         from ? from + part.begin : NULL, part.end - part.begin),
                          label);
    }
}

bool mesh_idle(const struct mesh *mesh, uint32_t link)
{
    return mesh_room(mesh, link) == TCP_QUEUE;
}

static dpb_status flush(struct mesh *mesh, uint32_t link, struct stream *stream, bool *moved)
{
    uint32_t n_sent;
    int error = tcp_sender_flush(&stream->sender, &n_sent, moved);
    *moved = *moved || n_sent > 0; /* there is room again */
    return error == 0 ? DPB_OK : broken(mesh, link, "sending to", error);
}

/* ---- receiving ----------------------------------------------------------------------------- */

uint64_t mesh_arrived(const struct mesh *mesh, uint32_t link, uint32_t kind)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t s = 0; s < mesh->n_streams; s++) {
        uint64_t n = stream_of(mesh, link, s)->arrived[kind];
        least = n < least ? n : least;
    }
    return least;
}

bool mesh_left(const struct mesh *mesh, uint32_t link)
{
    for (uint32_t s = 0; s < mesh->n_streams; s++)
        if (!stream_of(mesh, link, s)->left)
            return false;
    return true;
}

/* A part is all here; the last one of its message is the message. */
static void take(struct mesh *mesh, uint32_t link, struct stream *stream)
{
    uint32_t kind = stream->label.kind;
    uint64_t n = ++stream->arrived[kind];
    if (mesh_arrived(mesh, link, kind) == n)
        mesh->sink.arrived(mesh->sink.owner, link, &stream->label);
}

static bool same_label(const struct mesh_label *a, const struct mesh_label *b)
{
    return a->kind == b->kind && a->bucket == b->bucket && a->exchange == b->exchange &&
           a->at_bytes == b->at_bytes && a->bytes == b->bytes;
}

/* Nothing of it is believed but that it is the message which is to come. */
static dpb_status begin(struct mesh *mesh, uint32_t link, struct stream *stream)
{
    struct mesh_label *label = &stream->label, expected = {0};
    if (!mesh_read_header(stream->receiver.header, label))
        return mesh->host->fail(DPB_FAILED, "rank %u sent what is no message of this version",
                                mesh->peers[link].rank);
    if (label->kind == BYE) {
        stream->left = true;
        return DPB_OK;
    }
    uint32_t kind = expected.kind = label->kind;
    if (!mesh->sink.expects(mesh->sink.owner, link, kind, stream->arrived[kind], &expected))
        return refuse(mesh, link, label, NULL);
    const struct mesh_landing *landing = &mesh->peers[link].landings[kind];
    if (!same_label(label, &expected) || label->at_bytes > landing->bytes ||
        label->bytes > landing->bytes - label->at_bytes)
        return refuse(mesh, link, label, &expected);
    uint32_t s = (uint32_t)(stream - stream_of(mesh, link, 0));
    struct dpb_range part = mesh_part(label->bytes, s, mesh->n_streams);
    tcp_receiver_begin(&stream->receiver, (char *)landing->memory + label->at_bytes + part.begin,
                       part.end - part.begin);
    if (part.end == part.begin)
        take(mesh, link, stream);
    return DPB_OK;
}

/* *dry: nothing more is there. */
static dpb_status receive(struct mesh *mesh, uint32_t link, struct stream *stream, bool *dry,
                          bool *moved)
{
    struct tcp_news news = tcp_receiver_read(&stream->receiver);
    *dry = news.dry;
    if (news.closed || news.error != 0)
        return broken(mesh, link, "receiving from", news.error);
    *moved = *moved || news.bytes > 0;
    if (news.payload_ends)
        take(mesh, link, stream);
    return news.header_begins ? begin(mesh, link, stream) : DPB_OK;
}

/* ---- moving and waiting -------------------------------------------------------------------- */

dpb_status mesh_move(struct mesh *mesh, int64_t until_ns, bool *moved)
{
    (void)until_ns; /* a pass is short: what sockets hold, once for each */
    for (uint32_t link = 0; link < mesh->n_links; link++)
        for (uint32_t s = 0; s < mesh->n_streams; s++) {
            struct stream *stream = stream_of(mesh, link, s);
            bool dry = false;
            if (!tcp_sender_idle(&stream->sender))
                DPB_TRY(flush(mesh, link, stream, moved));
            for (int reads = 0; reads < READS && !dry && !stream->left; reads++)
                DPB_TRY(receive(mesh, link, stream, &dry, moved));
        }
    return DPB_OK;
}

uint32_t mesh_n_watched(const struct mesh *mesh)
{
    return mesh->n_links * mesh->n_streams;
}

void mesh_watch(const struct mesh *mesh, struct pollfd *fds)
{
    for (uint32_t i = 0; i < mesh_n_watched(mesh); i++) {
        const struct stream *stream = &mesh->streams[i];
        short out = tcp_sender_idle(&stream->sender) ? 0 : POLLOUT;
        short in = stream->left ? 0 : POLLIN;
        fds[i] =
            (struct pollfd){.fd = in || out ? stream->sender.fd : -1, .events = (short)(in | out)};
    }
}

/* ---- making and ending --------------------------------------------------------------------- */

static dpb_status create(const struct mesh_args *args, uint32_t n_streams, struct mesh **made)
{
    struct mesh *mesh = calloc(1, sizeof *mesh);
    uint32_t n = args->n_peers * n_streams;
    if (mesh) {
        mesh->peers = calloc(args->n_peers + 1, sizeof *mesh->peers);
        mesh->streams = calloc(n + 1, sizeof *mesh->streams);
    }
    if (!mesh || !mesh->peers || !mesh->streams) {
        mesh_close(mesh, false);
        return args->host->fail(DPB_NO_MEMORY, "no memory for %u connections", n);
    }
    mesh->host = args->host;
    mesh->sink = args->sink;
    mesh->kinds = args->kinds;
    mesh->rank = args->rank;
    mesh->n_streams = n_streams;
    for (uint32_t i = 0; i < args->n_peers; i++)
        mesh->peers[i] = args->peers[i];
    *made = mesh;
    return DPB_OK;
}

static void take_connections(struct mesh *mesh, uint32_t link, const int *fds)
{
    for (uint32_t s = 0; s < mesh->n_streams; s++) {
        struct stream *stream = stream_of(mesh, link, s);
        stream->sender.fd = stream->receiver.fd = fds[s];
    }
    mesh->n_links = link + 1;
}

/* Of two ranks the lower one dials. */
static dpb_status connect_all(struct mesh *mesh, const struct mesh_args *args,
                              struct tcp_peer *peers)
{
    char shape[64];
    const struct tcp_args tcp = {.host = args->host,
                                 .interface = args->options->interface,
                                 .port = args->options->port,
                                 .n_streams = mesh->n_streams};
    const struct tcp_party party = {.name = args->name,
                                    .what = args->what,
                                    .shape = shape,
                                    .self = args->rank,
                                    .keeper = args->keeper,
                                    .peers = peers,
                                    .n_peers = args->n_peers};
    snprintf(shape, sizeof shape, "comm.streams = %u", mesh->n_streams);
    for (uint32_t i = 0; i < args->n_peers; i++)
        peers[i] = (struct tcp_peer){.rank = args->peers[i].rank,
                                     .dialled = args->rank < args->peers[i].rank};
    DPB_TRY(tcp_connect(&tcp, &party));
    for (uint32_t i = 0; i < args->n_peers; i++)
        take_connections(mesh, i, peers[i].fds);
    return DPB_OK;
}

dpb_status mesh_open(const struct mesh_args *args, struct mesh **made)
{
    struct mesh *mesh;
    DPB_TRY(create(args, (uint32_t)args->options->streams, &mesh));
    struct tcp_peer *peers = calloc(args->n_peers + 1, sizeof *peers);
    dpb_status status =
        peers ? connect_all(mesh, args, peers)
              : args->host->fail(DPB_NO_MEMORY, "no memory to connect %s", args->what);
    free(peers);
    if (status != DPB_OK) {
        mesh_close(mesh, false);
        return status;
    }
    *made = mesh;
    return DPB_OK;
}

dpb_status mesh_open_connected(const struct mesh_args *args, uint32_t n_streams, const int *fds,
                               struct mesh **made)
{
    DPB_TRY(create(args, n_streams, made));
    for (uint32_t i = 0; i < args->n_peers; i++)
        take_connections(*made, i, fds + i * n_streams);
    return DPB_OK;
}

static void say_bye(struct mesh *mesh, uint32_t link)
{
    const struct mesh_label label = {.kind = BYE};
    for (uint32_t s = 0; s < mesh->n_streams && mesh_idle(mesh, link); s++) {
        struct stream *stream = stream_of(mesh, link, s);
        uint8_t header[TCP_FRAME_BYTES];
        mesh_write_header(header, &label);
        (void)!send(stream->sender.fd, header, sizeof header, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

void mesh_close(struct mesh *mesh, bool through)
{
    if (!mesh)
        return;
    for (uint32_t link = 0; link < mesh->n_links; link++) {
        if (through)
            say_bye(mesh, link);
        for (uint32_t s = 0; s < mesh->n_streams; s++)
            tcp_close_stream(stream_of(mesh, link, s)->sender.fd);
    }
    free(mesh->peers);
    free(mesh->streams);
    free(mesh);
}
