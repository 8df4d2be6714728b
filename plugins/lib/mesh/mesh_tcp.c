/* mesh_tcp.c - see mesh_tcp.h. */
#include "lib/mesh/mesh_tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/tcp/tcp_frames.h"

enum { READS = 2 }; /* of a connection in a pass: a payload, and the header that it follows */

_Static_assert((int)DPB_MESH_HEADER_BYTES == (int)DPB_TCP_FRAME_BYTES,
               "a frame's header is a message's");
_Static_assert((int)DPB_MESH_QUEUE == (int)DPB_TCP_QUEUE, "a message is a frame of every stream");

/* One connection. */
struct stream {
    struct dpb_tcp_sender sender;
    struct dpb_tcp_receiver receiver;
    struct dpb_mesh_label label;      /* of the incoming message */
    uint64_t arrived[DPB_MESH_KINDS]; /* parts that are here */
    bool left;                        /* its end has come */
    /* As far as epoll has said: neither call on it would return EAGAIN; nothing comes any more. */
    bool readable, writable, hung_up;
};

struct mesh_tcp {
    struct dpb_mesh_transport base;
    const struct dpb_host *host;
    struct dpb_tcp_options options;
    bool survives;
    const int *fds; /* connections that are there already; NULL: none */
    struct dpb_mesh *mesh;
    uint32_t n_links, n_streams;
    uint32_t *ranks;        /* by link */
    struct stream *streams; /* [link * n_streams + stream] */
    int epoll;              /* reports changes (EPOLLET), each stream by its index */
    struct epoll_event *events;
};

static struct mesh_tcp *tcp_of(struct dpb_mesh_transport *transport)
{
    return (struct mesh_tcp *)(void *)transport;
}

static const struct mesh_tcp *tcp_seen(const struct dpb_mesh_transport *transport)
{
    return (const struct mesh_tcp *)(const void *)transport;
}

static struct stream *stream_of(const struct mesh_tcp *tcp, uint32_t link, uint32_t s)
{
    return &tcp->streams[link * tcp->n_streams + s];
}

/* Whole cache lines, the first streams one more. */
struct dpb_range dpb_mesh_tcp_part(uint64_t bytes, uint32_t s, uint32_t n)
{
    uint64_t lines = bytes / DPB_CACHE_LINE + (bytes % DPB_CACHE_LINE != 0);
    uint64_t each = lines / n, more = lines % n;
    uint64_t begin = (s * each + (s < more ? s : more)) * DPB_CACHE_LINE;
    uint64_t end = begin + (each + (s < more)) * DPB_CACHE_LINE;
    return (struct dpb_range){begin < bytes ? begin : bytes, end < bytes ? end : bytes};
}

/* If the peer's process has ended, this rank is only a victim; the launcher knows the cause. */
static dpb_status broken(const struct mesh_tcp *tcp, uint32_t link, const char *doing, int error)
{
    bool peer = error == 0 || error == ECONNRESET || error == EPIPE;
    if (peer && tcp->survives) {
        for (uint32_t s = 0; s < tcp->n_streams; s++) {
            stream_of(tcp, link, s)->left = true;
            dpb_tcp_sender_drop(&stream_of(tcp, link, s)->sender);
        }
        dpb_mesh_leaves(tcp->mesh, link);
        return DPB_OK;
    }
    return tcp->host->fail(peer ? DPB_PEER : DPB_IO, "%s rank %u: %s", doing, tcp->ranks[link],
                           error == 0 ? "it closed the connection" : strerror(error));
}

/* ---- sending ------------------------------------------------------------------------------- */

static uint32_t room(const struct dpb_mesh_transport *transport, uint32_t link)
{
    const struct mesh_tcp *tcp = tcp_seen(transport);
    uint32_t least = DPB_TCP_QUEUE;
    for (uint32_t s = 0; s < tcp->n_streams; s++) {
        uint32_t left = dpb_tcp_sender_room(&stream_of(tcp, link, s)->sender);
        least = left < least ? left : least;
    }
    return least;
}

static void send_message(struct dpb_mesh_transport *transport, uint32_t link,
                         const struct dpb_mesh_label *label, const void *payload)
{
    const struct mesh_tcp *tcp = tcp_of(transport);
    for (uint32_t s = 0; s < tcp->n_streams; s++) {
        struct dpb_range part = dpb_mesh_tcp_part(label->bytes, s, tcp->n_streams);
        const char *from = payload;
        dpb_mesh_write_header(dpb_tcp_sender_add(&stream_of(tcp, link, s)->sender,
                                                 from ? from + part.begin : NULL,
                                                 part.end - part.begin),
                              label);
    }
}

static bool sends(const struct stream *stream)
{
    return stream->writable && !dpb_tcp_sender_idle(&stream->sender);
}

/* *error: errno; 0: none. */
static void flush(struct stream *stream, int *error, bool *moved)
{
    uint32_t n_sent;
    *error = dpb_tcp_sender_flush(&stream->sender, &n_sent, &stream->writable);
    *moved = *moved || n_sent > 0 || sends(stream); /* there is room again, or more goes out */
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* A part is all here; the last one of its message is the message. */
static void take(struct mesh_tcp *tcp, uint32_t link, struct stream *stream)
{
    uint32_t kind = stream->label.kind;
    uint64_t n = ++stream->arrived[kind];
    for (uint32_t s = 0; s < tcp->n_streams; s++)
        if (stream_of(tcp, link, s)->arrived[kind] < n)
            return;
    dpb_mesh_arrives(tcp->mesh, link, &stream->label);
}

static void leave(struct mesh_tcp *tcp, uint32_t link, struct stream *stream)
{
    stream->left = true;
    for (uint32_t s = 0; s < tcp->n_streams; s++)
        if (!stream_of(tcp, link, s)->left)
            return;
    dpb_mesh_leaves(tcp->mesh, link);
}

static dpb_status begin(struct mesh_tcp *tcp, uint32_t link, struct stream *stream)
{
    struct dpb_mesh_label *label = &stream->label;
    void *memory;
    if (!dpb_mesh_read_header(stream->receiver.header, label))
        return dpb_mesh_refuse_bytes(tcp->mesh, link);
    if (label->kind == DPB_MESH_BYE.kind) {
        leave(tcp, link, stream);
        return DPB_OK;
    }
    DPB_TRY(dpb_mesh_begins(tcp->mesh, link, stream->arrived[label->kind], label, &memory));
    uint32_t s = (uint32_t)(stream - stream_of(tcp, link, 0));
    struct dpb_range part = dpb_mesh_tcp_part(label->bytes, s, tcp->n_streams);
    dpb_tcp_receiver_begin(&stream->receiver, (char *)memory + part.begin, part.end - part.begin);
    if (part.end == part.begin)
        take(tcp, link, stream);
    return DPB_OK;
}

static bool receives(const struct stream *stream)
{
    return stream->readable && !stream->left;
}

/* The end of the stream may be behind the bytes that were fewer than asked for. */
static dpb_status receive(struct mesh_tcp *tcp, uint32_t link, struct stream *stream, bool *moved)
{
    struct dpb_tcp_news news = dpb_tcp_receiver_read(&stream->receiver);
    stream->readable = !news.dry || stream->hung_up;
    *moved = *moved || news.bytes > 0 || news.closed;
    if (news.closed || news.error != 0)
        return broken(tcp, link, "receiving from", news.error);
    if (news.payload_ends)
        take(tcp, link, stream);
    return news.header_begins ? begin(tcp, link, stream) : DPB_OK;
}

/* ---- moving and waiting -------------------------------------------------------------------- */

/* Sends bytes that one connection takes now, and receives bytes that it holds. A peer that has
 * closed after its good-bye needs nothing more: bytes still sent to it go nowhere. */
static dpb_status move_stream(struct mesh_tcp *tcp, uint32_t link, struct stream *stream,
                              bool *moved)
{
    int error = 0;
    if (sends(stream))
        flush(stream, &error, moved);
    if (error != 0) /* a good-bye may have come with it */
        stream->readable = true;
    for (int reads = 0; reads < READS && receives(stream); reads++)
        DPB_TRY(receive(tcp, link, stream, moved));
    if (error != 0 && !stream->left)
        return broken(tcp, link, "sending to", error);
    if (error != 0)
        dpb_tcp_sender_drop(&stream->sender);
    return DPB_OK;
}

static int count_streams(const struct mesh_tcp *tcp)
{
    return (int)(tcp->n_links * tcp->n_streams);
}

/* Without waiting. */
static void look(struct mesh_tcp *tcp)
{
    const int n = epoll_wait(tcp->epoll, tcp->events, count_streams(tcp) + 1, 0);
    for (int i = 0; i < n; i++) {
        const uint32_t events = tcp->events[i].events;
        const bool ended = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
        struct stream *stream = &tcp->streams[tcp->events[i].data.u32];
        stream->hung_up = stream->hung_up || ended;
        stream->readable = stream->readable || ended || (events & EPOLLIN) != 0;
        stream->writable = stream->writable || ended || (events & EPOLLOUT) != 0;
    }
}

static dpb_status move(struct dpb_mesh_transport *transport, int64_t until_ns, bool *moved)
{
    struct mesh_tcp *tcp = tcp_of(transport);
    (void)until_ns; /* a pass is short: each socket once, for the bytes that it holds */
    look(tcp);
    for (uint32_t link = 0; link < tcp->n_links; link++)
        for (uint32_t s = 0; s < tcp->n_streams; s++)
            DPB_TRY(move_stream(tcp, link, stream_of(tcp, link, s), moved));
    return DPB_OK;
}

static uint32_t n_watched(const struct dpb_mesh_transport *transport)
{
    (void)transport;
    return 1;
}

static bool watch(struct dpb_mesh_transport *transport, struct pollfd *fds)
{
    const struct mesh_tcp *tcp = tcp_of(transport);
    fds[0] = (struct pollfd){.fd = tcp->epoll, .events = POLLIN};
    for (int i = 0; i < count_streams(tcp); i++)
        if (sends(&tcp->streams[i]) || receives(&tcp->streams[i]))
            return false;
    return true;
}

/* ---- making and ending --------------------------------------------------------------------- */

static void take_connections(struct mesh_tcp *tcp, uint32_t link, const int *fds)
{
    for (uint32_t s = 0; s < tcp->n_streams; s++) {
        struct stream *stream = stream_of(tcp, link, s);
        stream->sender.fd = stream->receiver.fd = fds[s];
    }
    tcp->n_links = link + 1;
}

/* The lower of two ranks dials; for a second link the higher one does. */
static dpb_status dial_all(struct mesh_tcp *tcp, const struct dpb_mesh_args *args,
                           struct dpb_connect_peer *peers)
{
    char shape[DPB_SHAPE_BYTES];
    struct dpb_connect_args party = {.name = args->name,
                                     .n_streams = tcp->n_streams,
                                     .what = args->what,
                                     .shape = shape,
                                     .rank = args->rank,
                                     .keeper = args->keeper,
                                     .peers = peers,
                                     .n_peers = args->n_peers};
    snprintf(shape, sizeof shape, "comm.streams = %u%s%s", tcp->n_streams, args->shape ? ", " : "",
             args->shape ? args->shape : "");
    for (uint32_t i = 0; i < args->n_peers; i++)
        peers[i] = (struct dpb_connect_peer){.rank = args->peers[i].rank,
                                             .dialled = (args->rank < args->peers[i].rank) ==
                                                        (args->peers[i].number == 0)};
    DPB_TRY(dpb_tcp_connect(tcp->host, &tcp->options, &party));
    for (uint32_t i = 0; i < args->n_peers; i++)
        take_connections(tcp, i, peers[i].fds);
    return DPB_OK;
}

static dpb_status watch_all(struct mesh_tcp *tcp)
{
    tcp->epoll = epoll_create1(EPOLL_CLOEXEC);
    bool made = tcp->epoll >= 0;
    for (int i = 0; made && i < count_streams(tcp); i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                    .data.u32 = (uint32_t)i};
        made = epoll_ctl(tcp->epoll, EPOLL_CTL_ADD, tcp->streams[i].sender.fd, &event) == 0;
    }
    return made ? DPB_OK
                : tcp->host->fail(DPB_IO, "cannot watch %d connections: %s", count_streams(tcp),
                                  strerror(errno));
}

static dpb_status connect_all(struct dpb_mesh_transport *transport,
                              const struct dpb_mesh_args *args, struct dpb_mesh *mesh)
{
    struct mesh_tcp *tcp = tcp_of(transport);
    tcp->mesh = mesh;
    tcp->survives = args->survives;
    tcp->ranks = calloc(args->n_peers + 1, sizeof *tcp->ranks);
    tcp->streams = calloc((size_t)args->n_peers * tcp->n_streams + 1, sizeof *tcp->streams);
    tcp->events = calloc((size_t)args->n_peers * tcp->n_streams + 1, sizeof *tcp->events);
    struct dpb_connect_peer *peers = calloc(args->n_peers + 1, sizeof *peers);
    dpb_status status = DPB_OK;
    if (!tcp->ranks || !tcp->streams || !tcp->events || !peers)
        status = tcp->host->fail(DPB_NO_MEMORY, "no memory to connect %s", args->what);
    for (uint32_t i = 0; status == DPB_OK && i < args->n_peers; i++)
        tcp->ranks[i] = args->peers[i].rank;
    for (uint32_t i = 0; status == DPB_OK && tcp->fds && i < args->n_peers; i++)
        take_connections(tcp, i, tcp->fds + (size_t)i * tcp->n_streams);
    if (status == DPB_OK && !tcp->fds)
        status = dial_all(tcp, args, peers);
    free(peers);
    return status == DPB_OK ? watch_all(tcp) : status;
}

static void say_bye(struct mesh_tcp *tcp, uint32_t link)
{
    const struct dpb_mesh_label label = DPB_MESH_BYE;
    for (uint32_t s = 0; s < tcp->n_streams && room(&tcp->base, link) == DPB_TCP_QUEUE; s++) {
        uint8_t header[DPB_TCP_FRAME_BYTES];
        dpb_mesh_write_header(header, &label);
        (void)!send(stream_of(tcp, link, s)->sender.fd, header, sizeof header,
                    MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void close_all(struct dpb_mesh_transport *transport, bool through)
{
    struct mesh_tcp *tcp = tcp_of(transport);
    for (uint32_t link = 0; link < tcp->n_links; link++) {
        if (through)
            say_bye(tcp, link);
        for (uint32_t s = 0; s < tcp->n_streams; s++)
            dpb_tcp_close_stream(stream_of(tcp, link, s)->sender.fd);
    }
    if (tcp->epoll >= 0)
        close(tcp->epoll);
    free(tcp->ranks);
    free(tcp->streams);
    free(tcp->events);
    free(tcp);
}

static const struct dpb_mesh_transport_ops tcp_ops = {.connect = connect_all,
                                                      .room = room,
                                                      .send = send_message,
                                                      .move = move,
                                                      .n_watched = n_watched,
                                                      .watch = watch,
                                                      .close = close_all};

static dpb_status create(const struct dpb_host *host, const struct mesh_tcp *values,
                         struct dpb_mesh_transport **transport)
{
    struct mesh_tcp *tcp = malloc(sizeof *tcp);
    if (!tcp)
        return host->fail(DPB_NO_MEMORY, "no memory for a transport over TCP");
    *tcp = *values;
    tcp->base.ops = &tcp_ops;
    tcp->host = host;
    tcp->epoll = -1;
    *transport = &tcp->base;
    return DPB_OK;
}

dpb_status dpb_mesh_tcp_create(const struct dpb_host *host, const struct dpb_tcp_options *options,
                               struct dpb_mesh_transport **transport)
{
    const struct mesh_tcp values = {.options = *options, .n_streams = (uint32_t)options->streams};
    return create(host, &values, transport);
}

dpb_status dpb_mesh_tcp_create_connected(const struct dpb_host *host, uint32_t n_streams,
                                         const int *fds, struct dpb_mesh_transport **transport)
{
    const struct mesh_tcp values = {.fds = fds, .n_streams = n_streams};
    return create(host, &values, transport);
}
