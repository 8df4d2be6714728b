/* tcp.c - see tcp.h. */
#include "lib/tcp.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    QUEUE = 16,           /* chunks of a stream that the kernel has not taken yet */
    PASS_BYTES = 64 << 10 /* sent at once: as many frames as begin before that */
};

/* A frame on its way out. */
struct outgoing {
    struct transport_label label;
    uint8_t header[TCP_FRAME_BYTES];
};

/* A connection to the next member: frames go out, credits come in. */
struct out_stream {
    int fd;
    struct outgoing queue[QUEUE];
    uint32_t head, tail;   /* they only rise */
    uint64_t sent_bytes;   /* of the frame at the head */
    uint64_t queued_bytes; /* of all of them, not yet taken by the kernel */
    uint8_t credit[TCP_CREDIT_BYTES];
    size_t n_credit;
};

/* A connection from the member before: frames come in. */
struct in_stream {
    int fd;
    uint8_t header[TCP_FRAME_BYTES];
    size_t n_header;
    bool in_payload;
    struct transport_label label;
    uint8_t *payload;
    uint32_t slot;
    uint64_t n_payload;
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
        if (out->tail - out->head < QUEUE && (!best || out->queued_bytes < best->queued_bytes))
            best = out;
    }
    if (!best)
        return false;
    struct outgoing *outgoing = &best->queue[best->tail++ % QUEUE];
    outgoing->label = *label;
    tcp_write_frame(outgoing->header, label);
    best->queued_bytes += TCP_FRAME_BYTES + label->bytes;
    if (label->landing == TRANSPORT_INBOX)
        tcp->credits--;
    return true;
}

/* What of a buffer is left to send after `sent` bytes of what stands before and in it. */
static void add_part(struct iovec *parts, int *n, const void *bytes, uint64_t size, uint64_t *sent)
{
    uint64_t skipped = *sent < size ? *sent : size;
    *sent -= skipped;
    if (skipped < size)
        parts[(*n)++] = (struct iovec){.iov_base = (char *)(uintptr_t)bytes + skipped,
                                       .iov_len = size - skipped};
}

static void note_sent(struct tcp *tcp, struct out_stream *out, uint64_t bytes)
{
    out->queued_bytes -= bytes;
    out->sent_bytes += bytes;
    while (out->head != out->tail) {
        struct outgoing *first = &out->queue[out->head % QUEUE];
        uint64_t whole = TCP_FRAME_BYTES + first->label.bytes;
        if (out->sent_bytes < whole)
            return;
        out->sent_bytes -= whole;
        struct transport_label label = first->label;
        out->head++;
        tcp->sink.sent(tcp->sink.ring, &label);
    }
}

static uint64_t message_bytes(const struct iovec *parts, int n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

/*
 * Sends of what is queued, as far as the kernel takes it now. Not all at once: what the peer does
 * not read soon falls out of the caches that it is in now. A pass over the connections sends as
 * much as it receives, so as long as the peer is at work there is about a chunk between them.
 */
static dpb_status flush(struct tcp *tcp, struct out_stream *out, bool *moved)
{
    struct iovec parts[2 * QUEUE];
    uint64_t sent = out->sent_bytes, total = 0;
    int n = 0;
    for (uint32_t i = out->head; i != out->tail && total < PASS_BYTES; i++) {
        const struct outgoing *one = &out->queue[i % QUEUE];
        add_part(parts, &n, one->header, TCP_FRAME_BYTES, &sent);
        add_part(parts, &n, (char *)tcp->memory.arena + one->label.at_bytes, one->label.bytes,
                 &sent);
        total += one->label.bytes;
    }
    if (n == 0)
        return DPB_OK;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t done = sendmsg(out->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno != EAGAIN && errno != EINTR)
        return broken(tcp, tcp->next, "sending to", errno);
    if (done <= 0)
        return DPB_OK;
    bool all = (uint64_t)done == message_bytes(parts, n);
    note_sent(tcp, out, (uint64_t)done);
    *moved = *moved || (all && out->head != out->tail); /* else there is nothing to be sent now */
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
    ssize_t done = send(tcp->in[0].fd, tcp->credit + tcp->credit_at,
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
        ssize_t got = recv(out->fd, out->credit + out->n_credit, TCP_CREDIT_BYTES - out->n_credit,
                           MSG_DONTWAIT);
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
    const char *problem = tcp_read_frame(in->header, &tcp->memory, &in->label);
    if (problem)
        return refuse_frame(tcp, &in->label, problem);
    if (in->label.landing == TRANSPORT_INBOX && tcp->n_free == 0)
        return refuse_frame(tcp, &in->label, "that the inbox is full");
    DPB_TRY(tcp->sink.begins(tcp->sink.ring, &in->label));
    in->in_payload = true;
    in->n_header = 0;
    in->n_payload = 0;
    in->slot = UINT32_MAX;
    in->payload = (uint8_t *)tcp->memory.arena + in->label.at_bytes;
    if (in->label.landing == TRANSPORT_INBOX) {
        in->slot = tcp->free_slots[--tcp->n_free];
        in->payload = (uint8_t *)tcp->memory.inbox + in->slot * tcp->memory.slot_bytes;
    }
    return DPB_OK;
}

/* Sorts out what one read has brought: the rest of a payload, then of the header after it. */
static dpb_status take_bytes(struct tcp *tcp, struct in_stream *in, uint64_t bytes)
{
    if (in->in_payload) {
        uint64_t rest = in->label.bytes - in->n_payload;
        uint64_t mine = bytes < rest ? bytes : rest;
        in->n_payload += mine;
        bytes -= mine;
        if (in->n_payload < in->label.bytes)
            return DPB_OK;
        in->in_payload = false;
        DPB_TRY(tcp->sink.arrived(tcp->sink.ring, &in->label, in->payload, in->slot));
    }
    in->n_header += bytes;
    return in->n_header == TCP_FRAME_BYTES ? begin_payload(tcp, in) : DPB_OK;
}

/* One read. *dry: there was nothing, or less than was asked for. */
static dpb_status receive(struct tcp *tcp, struct in_stream *in, bool *dry, bool *moved)
{
    struct iovec parts[2];
    int n = 0;
    uint64_t wanted = TCP_FRAME_BYTES - in->n_header;
    if (in->in_payload) {
        uint64_t rest = in->label.bytes - in->n_payload;
        parts[n++] = (struct iovec){.iov_base = in->payload + in->n_payload, .iov_len = rest};
        wanted += rest;
    }
    parts[n++] = (struct iovec){.iov_base = in->header + in->n_header,
                                .iov_len = TCP_FRAME_BYTES - in->n_header};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t got = recvmsg(in->fd, &message, MSG_DONTWAIT);
    *dry = got < (ssize_t)wanted;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return DPB_OK;
    if (got <= 0)
        return broken(tcp, tcp->previous, "receiving from", got == 0 ? 0 : errno);
    *moved = true;
    return take_bytes(tcp, in, (uint64_t)got);
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
    struct pollfd fds[1 + 2 * TCP_MOST_STREAMS];
    uint32_t n = tcp->args.n_streams, n_fds = 0;
    uint64_t drained;
    fds[n_fds++] = (struct pollfd){.fd = tcp->wake_fd, .events = POLLIN};
    for (uint32_t s = 0; s < n; s++) {
        const struct out_stream *out = &tcp->out[s];
        short events = POLLIN | (out->head != out->tail ? POLLOUT : 0);
        fds[n_fds++] = (struct pollfd){.fd = out->fd, .events = events};
    }
    for (uint32_t s = 0; s < n; s++)
        fds[n_fds++] = (struct pollfd){.fd = tcp->in[s].fd, .events = POLLIN};
    if (tcp->credit_at < TCP_CREDIT_BYTES)
        fds[1 + n].events |= POLLOUT;
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

static dpb_status open_connections(struct tcp *tcp)
{
    int to_next[TCP_MOST_STREAMS], from_previous[TCP_MOST_STREAMS];
    if (tcp->given)
        return DPB_OK;
    DPB_TRY(tcp_connect(&tcp->args, &tcp->ring, &tcp->memory, to_next, from_previous));
    for (uint32_t s = 0; s < tcp->args.n_streams; s++) {
        tcp->out[s].fd = to_next[s];
        tcp->in[s].fd = from_previous[s];
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

/* What was taken on by the kernel goes on its way: but a socket that is closed with something
 * unread takes back what was not sent yet, so it is read first. */
static void close_stream(int fd)
{
    uint8_t rest[256];
    if (fd < 0)
        return;
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
        ;
    close(fd);
}

static void tcp_close(struct transport *transport)
{
    struct tcp *tcp = tcp_of(transport);
    if (!tcp)
        return;
    for (uint32_t s = 0; s < tcp->args.n_streams; s++) {
        close_stream(tcp->out[s].fd);
        close_stream(tcp->in[s].fd);
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
        tcp->out[s].fd = tcp->in[s].fd = -1;
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
        tcp->out[s].fd = to_next[s];
        tcp->in[s].fd = from_previous[s];
    }
    *transport = &tcp->base;
    return DPB_OK;
}
