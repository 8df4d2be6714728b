/* tcp.c - see tcp.h. */
#include "lib/tcp.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/tcp_frames.h"

/* A connection to the next member: frames go out, credits come in. */
struct out_stream {
    struct tcp_sender sender;
    struct transport_label labels[TCP_QUEUE]; /* of the frames in the queue */
    uint8_t credit[TCP_CREDIT_BYTES];
    size_t n_credit;
};

/* A connection from the member before: frames come in. */
struct in_stream {
    struct tcp_receiver receiver;
    struct transport_label label;
    uint32_t slot;
};

struct tcp {
    struct transport base;
    struct tcp_args args;
    struct transport_ring ring;
    struct transport_memory memory;
    struct transport_sink sink;
    uint32_t next, previous;
    struct out_stream out[TCP_MOST_STREAMS];
    struct in_stream in[TCP_MOST_STREAMS];
    bool given; /* tcp_create_connected: the descriptors are there */
    /* The next member's inbox: slots that are ours to fill. The own: which are free, the last one
     * used on top, while it is in the cache; and how many the member before does not know of. */
    uint32_t credits;
    uint32_t *free_slots, n_free, n_to_return;
    uint8_t credit[TCP_CREDIT_BYTES]; /* going out on stream 0 */
    size_t credit_at;
    bool news_of_next; /* the last wait saw something from the next member */
    int wake_fd;
    uint32_t waiting, woken; /* between threads: see tcp_wake */
};

static struct tcp *tcp_of(struct transport *transport)
{
    return (struct tcp *)(void *)transport;
}

/* ---- what may go wrong --------------------------------------------------------------------- */

/* The end of a connection is a victim's news when its process has ended; the launcher knows why. */
static dpb_status broken(const struct tcp *tcp, uint32_t rank, const char *doing, int error)
{
    bool peer = error == 0 || error == ECONNRESET || error == EPIPE;
    return tcp->args.host->fail(peer ? DPB_PEER : DPB_IO, "%s rank %u: %s", doing, rank,
                                error == 0 ? "it closed the connection" : strerror(error));
}

static dpb_status refuse_frame(const struct tcp *tcp, const struct transport_label *label,
                               const char *problem)
{
    return tcp->args.host->fail(
        DPB_FAILED,
        "rank %u sent what is wrong in %s: step %llu, bucket %u, round %u, chunk %u, %llu bytes "
        "for "
        "byte %llu (landing %u); chunks of rank %u have at most %llu bytes, its gradients %llu",
        tcp->previous, problem, (unsigned long long)label->step, label->bucket, label->round,
        label->chunk, (unsigned long long)label->bytes, (unsigned long long)label->at_bytes,
        label->landing, tcp->ring.members[tcp->ring.position],
        (unsigned long long)tcp->memory.slot_bytes, (unsigned long long)tcp->memory.arena_bytes);
}

/* ---- sending ------------------------------------------------------------------------------- */

static uint32_t tcp_room(const struct transport *transport)
{
    return ((const struct tcp *)(const void *)transport)->credits;
}

static bool tcp_send(struct transport *transport, const struct transport_label *label)
{
    struct tcp *tcp = tcp_of(transport);
    struct out_stream *best = NULL;
    if (label->landing == TRANSPORT_INBOX && tcp->credits == 0)
        return false;
    for (uint32_t s = 0; s < tcp->args.n_streams; s++) {
        struct out_stream *out = &tcp->out[s];
        if (tcp_sender_room(&out->sender) > 0 &&
            (!best || out->sender.queued_bytes < best->sender.queued_bytes))
            best = out;
    }
    if (!best)
        return false;
    best->labels[best->sender.tail % TCP_QUEUE] = *label;
    tcp_write_frame(
        tcp_sender_add(&best->sender, (char *)tcp->memory.arena + label->at_bytes, label->bytes),
        label);
    if (label->landing == TRANSPORT_INBOX)
        tcp->credits--;
    return true;
}

/* Sends of what is queued, as far as the kernel takes it now. */
static dpb_status flush(struct tcp *tcp, struct out_stream *out, bool *moved)
{
    uint32_t n_sent;
    int error = tcp_sender_flush(&out->sender, &n_sent, moved);
    if (error != 0)
        return broken(tcp, tcp->next, "sending to", error);
    for (uint32_t i = out->sender.head - n_sent; i != out->sender.head; i++)
        tcp->sink.sent(tcp->sink.ring, &out->labels[i % TCP_QUEUE]);
    return DPB_OK;
}

/* ---- credits ------------------------------------------------------------------------------- */

static void tcp_release(struct transport *transport, uint32_t slot)
{
    struct tcp *tcp = tcp_of(transport);
    tcp->free_slots[tcp->n_free++] = slot;
    tcp->n_to_return++;
}

/* Many at once: a quarter of the inbox is as good as all of it to a sender. */
static dpb_status return_credits(struct tcp *tcp)
{
    uint32_t enough = tcp->memory.n_slots / 4;
    if (tcp->credit_at == TCP_CREDIT_BYTES) {
        if (tcp->n_to_return < enough || tcp->n_to_return == 0)
            return DPB_OK;
        tcp_write_credit(tcp->credit, tcp->n_to_return);
        tcp->n_to_return = 0;
        tcp->credit_at = 0;
    }
    ssize_t done = send(tcp->in[0].receiver.fd, tcp->credit + tcp->credit_at,
                        TCP_CREDIT_BYTES - tcp->credit_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno != EAGAIN && errno != EINTR)
        return broken(tcp, tcp->previous, "sending credits to", errno);
    if (done > 0)
        tcp->credit_at += (size_t)done;
    return DPB_OK;
}

/* Credits come on stream 0; on the others nothing does but their end. */
static dpb_status receive_credits(struct tcp *tcp, struct out_stream *out, bool *moved)
{
    for (;;) {
        ssize_t got = recv(out->sender.fd, out->credit + out->n_credit,
                           TCP_CREDIT_BYTES - out->n_credit, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return DPB_OK;
        if (got <= 0)
            return broken(tcp, tcp->next, "sending to", got == 0 ? 0 : errno);
        out->n_credit += (size_t)got;
        if (out->n_credit < TCP_CREDIT_BYTES)
            continue;
        uint32_t n;
        out->n_credit = 0;
        if (!tcp_read_credit(out->credit, tcp->memory.n_slots - tcp->credits, &n))
            return tcp->args.host->fail(
                DPB_FAILED,
                "rank %u returned %u credits, and rank %u has %u of %u: the "
                "two do not run the same training",
                tcp->next, n, tcp->ring.members[tcp->ring.position], tcp->credits,
                tcp->memory.n_slots);
        tcp->credits += n;
        *moved = true;
    }
}

/* ---- receiving ----------------------------------------------------------------------------- */

static dpb_status begin_payload(struct tcp *tcp, struct in_stream *in)
{
    const char *problem = tcp_read_frame(in->receiver.header, &tcp->memory, &in->label);
    if (problem)
        return refuse_frame(tcp, &in->label, problem);
    if (in->label.landing == TRANSPORT_INBOX && tcp->n_free == 0)
        return refuse_frame(tcp, &in->label, "that the inbox is full");
    DPB_TRY(tcp->sink.begins(tcp->sink.ring, &in->label));
    void *payload = (uint8_t *)tcp->memory.arena + in->label.at_bytes;
    in->slot = UINT32_MAX;
    if (in->label.landing == TRANSPORT_INBOX) {
        in->slot = tcp->free_slots[--tcp->n_free];
        payload = (uint8_t *)tcp->memory.inbox + in->slot * tcp->memory.slot_bytes;
    }
    tcp_receiver_begin(&in->receiver, payload, in->label.bytes);
    return DPB_OK;
}

/* One read. *dry: there was nothing, or less than was asked for. */
static dpb_status receive(struct tcp *tcp, struct in_stream *in, bool *dry, bool *moved)
{
    struct tcp_news news = tcp_receiver_read(&in->receiver);
    *dry = news.dry;
    if (news.closed || news.error != 0)
        return broken(tcp, tcp->previous, "receiving from", news.error);
    *moved = *moved || news.bytes > 0;
    if (news.payload_ends)
        DPB_TRY(tcp->sink.arrived(tcp->sink.ring, &in->label, in->receiver.payload, in->slot));
    return news.header_begins ? begin_payload(tcp, in) : DPB_OK;
}

/* ---- moving and waiting -------------------------------------------------------------------- */

static dpb_status tcp_move(struct transport *transport, int64_t until_ns, bool *moved)
{
    struct tcp *tcp = tcp_of(transport);
    uint32_t n = tcp->args.n_streams;
    bool needs_credits = tcp->credits < tcp->memory.n_slots / 2;
    (void)until_ns; /* a pass is a chunk a stream */
    for (uint32_t s = 0; s < n; s++)
        DPB_TRY(flush(tcp, &tcp->out[s], moved));
    for (uint32_t s = 0; s < n; s++) {
        bool dry = false;
        /* A payload, and the header that it follows. */
        for (int reads = 0; reads < 2 && !dry; reads++)
            DPB_TRY(receive(tcp, &tcp->in[s], &dry, moved));
    }
    for (uint32_t s = 0; s < n && (needs_credits || tcp->news_of_next); s++)
        DPB_TRY(receive_credits(tcp, &tcp->out[s], moved));
    tcp->news_of_next = false;
    return return_credits(tcp);
}

/* A waiter says that it waits and then looks whether it was woken; who wakes does it the other way
 * round. In the one order of these four accesses one of the two sees the other. */
static void tcp_wake(struct transport *transport)
{
    struct tcp *tcp = tcp_of(transport);
    uint64_t one = 1;
    __atomic_store_n(&tcp->woken, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&tcp->waiting, __ATOMIC_SEQ_CST) != 0)
        (void)!write(tcp->wake_fd, &one, sizeof one);
}

static dpb_status poll_all(struct tcp *tcp, const struct dpb_wait *what)
{
    struct pollfd fds[2 + 2 * TCP_MOST_STREAMS];
    uint32_t n = tcp->args.n_streams, n_fds = 0;
    uint64_t drained;
    fds[n_fds++] = (struct pollfd){.fd = tcp->wake_fd, .events = POLLIN};
    for (uint32_t s = 0; s < n; s++) {
        const struct tcp_sender *out = &tcp->out[s].sender;
        short events = POLLIN | (tcp_sender_idle(out) ? 0 : POLLOUT);
        fds[n_fds++] = (struct pollfd){.fd = out->fd, .events = events};
    }
    for (uint32_t s = 0; s < n; s++)
        fds[n_fds++] = (struct pollfd){.fd = tcp->in[s].receiver.fd, .events = POLLIN};
    if (tcp->credit_at < TCP_CREDIT_BYTES)
        fds[1 + n].events |= POLLOUT;
    if (tcp->ring.bell)
        fds[n_fds++] = (struct pollfd){.fd = *tcp->ring.bell, .events = POLLIN};
    DPB_TRY(tcp->args.host->poll(fds, n_fds, what, NULL));
    for (uint32_t s = 0; s < n; s++)
        tcp->news_of_next = tcp->news_of_next || (fds[1 + s].revents & ~POLLOUT) != 0;
    if (fds[0].revents != 0)
        (void)!read(tcp->wake_fd, &drained, sizeof drained);
    return DPB_OK;
}

static dpb_status tcp_wait(struct transport *transport, const struct dpb_wait *what)
{
    struct tcp *tcp = tcp_of(transport);
    dpb_status status = DPB_OK;
    __atomic_store_n(&tcp->waiting, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&tcp->woken, __ATOMIC_SEQ_CST) == 0)
        status = poll_all(tcp, what);
    __atomic_store_n(&tcp->waiting, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&tcp->woken, 0, __ATOMIC_SEQ_CST);
    return status;
}

/* ---- making and ending --------------------------------------------------------------------- */

/* To the next member, which it dials, and from the one before: with two members the same rank. */
static dpb_status open_connections(struct tcp *tcp)
{
    const struct transport_memory *memory = &tcp->memory;
    struct tcp_peer peers[] = {{.rank = tcp->next, .dialled = true}, {.rank = tcp->previous}};
    char shape[160];
    const struct tcp_party party = {.name = tcp->ring.name,
                                    .what = "the ring",
                                    .shape = shape,
                                    .self = tcp->ring.members[tcp->ring.position],
                                    .keeper = tcp->ring.members[0],
                                    .peers = peers,
                                    .n_peers = 2};
    if (tcp->given)
        return DPB_OK;
    snprintf(shape, sizeof shape,
             "comm.streams = %u, chunks of %llu bytes, %u of them in the inbox, "
             "%llu bytes of gradients",
             tcp->args.n_streams, (unsigned long long)memory->slot_bytes, memory->n_slots,
             (unsigned long long)memory->arena_bytes);
    DPB_TRY(tcp_connect(&tcp->args, &party));
    for (uint32_t s = 0; s < tcp->args.n_streams; s++) {
        tcp->out[s].sender.fd = peers[0].fds[s];
        tcp->in[s].receiver.fd = peers[1].fds[s];
    }
    return DPB_OK;
}

static dpb_status tcp_open(struct transport *transport, const struct transport_ring *ring,
                           const struct transport_memory *memory, const struct transport_sink *sink)
{
    struct tcp *tcp = tcp_of(transport);
    tcp->ring = *ring;
    tcp->memory = *memory;
    tcp->sink = *sink;
    tcp->next = transport_next(ring);
    tcp->previous = transport_previous(ring);
    tcp->credits = tcp->n_free = memory->n_slots;
    tcp->credit_at = TCP_CREDIT_BYTES; /* none is going out */
    tcp->free_slots = calloc(memory->n_slots, sizeof *tcp->free_slots);
    if (!tcp->free_slots)
        return tcp->args.host->fail(DPB_NO_MEMORY, "no memory for %u slots", memory->n_slots);
    for (uint32_t i = 0; i < memory->n_slots; i++)
        tcp->free_slots[i] = memory->n_slots - 1 - i;
    tcp->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (tcp->wake_fd < 0)
        return tcp->args.host->fail(DPB_IO, "cannot make an eventfd: %s", strerror(errno));
    return open_connections(tcp);
}

static void tcp_close(struct transport *transport)
{
    struct tcp *tcp = tcp_of(transport);
    if (!tcp)
        return;
    for (uint32_t s = 0; s < tcp->args.n_streams; s++) {
        tcp_close_stream(tcp->out[s].sender.fd);
        tcp_close_stream(tcp->in[s].receiver.fd);
    }
    if (tcp->wake_fd >= 0)
        close(tcp->wake_fd);
    free(tcp->free_slots);
    free(tcp);
}

static const struct transport_ops tcp_ops = {.connect = tcp_open,
                                             .room = tcp_room,
                                             .send = tcp_send,
                                             .move = tcp_move,
                                             .release = tcp_release,
                                             .wait = tcp_wait,
                                             .wake = tcp_wake,
                                             .close = tcp_close};

static dpb_status create(const struct tcp_args *args, struct tcp **made)
{
    struct tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp)
        return args->host->fail(DPB_NO_MEMORY, "no memory for a TCP transport");
    tcp->base.ops = &tcp_ops;
    tcp->args = *args;
    tcp->wake_fd = -1;
    for (uint32_t s = 0; s < TCP_MOST_STREAMS; s++)
        tcp->out[s].sender.fd = tcp->in[s].receiver.fd = -1;
    *made = tcp;
    return DPB_OK;
}

dpb_status tcp_create(const struct dpb_host *host, const struct tcp_options *options,
                      bool one_machine, struct transport **transport)
{
    const struct tcp_args args = {.host = host,
                                  .interface = options->interface,
                                  .port = options->port,
                                  .n_streams = (uint32_t)options->streams,
                                  .one_machine = one_machine};
    struct tcp *tcp;
    DPB_TRY(create(&args, &tcp));
    *transport = &tcp->base;
    return DPB_OK;
}

dpb_status tcp_create_connected(const struct dpb_host *host, uint32_t n_streams, const int *to_next,
                                const int *from_previous, struct transport **transport)
{
    const struct tcp_args args = {.host = host, .n_streams = n_streams};
    struct tcp *tcp;
    DPB_TRY(create(&args, &tcp));
    tcp->given = true;
    for (uint32_t s = 0; s < n_streams; s++) {
        tcp->out[s].sender.fd = to_next[s];
        tcp->in[s].receiver.fd = from_previous[s];
    }
    *transport = &tcp->base;
    return DPB_OK;
}
