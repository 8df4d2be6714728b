/* tcp_frames.c - see tcp_frames.h. */
#include "lib/tcp/tcp_frames.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PASS_BYTES = 64 << 10 /* sent at once: as many frames as begin before that */ };

/* ---- sending ------------------------------------------------------------------------------- */

uint8_t *dpb_tcp_sender_add(struct dpb_tcp_sender *sender, const void *payload, uint64_t bytes)
{
    struct dpb_tcp_outgoing *outgoing = &sender->queue[sender->tail++ % DPB_TCP_QUEUE];
    outgoing->payload = payload;
    outgoing->bytes = bytes;
    return outgoing->header;
}

/* Adds the rest of a buffer after `sent` bytes, which count the buffers before it, too. */
static void add_part(struct iovec *parts, int *n, const void *bytes, uint64_t size, uint64_t *sent)
{
    uint64_t skipped = *sent < size ? *sent : size;
    *sent -= skipped;
    if (skipped < size)
        parts[(*n)++] = (struct iovec){.iov_base = (char *)(uintptr_t)bytes + skipped,
                                       .iov_len = size - skipped};
}

/* The number of frames that are through. */
static uint32_t note_sent(struct dpb_tcp_sender *sender, uint64_t bytes)
{
    uint32_t n = 0;
    sender->sent_bytes += bytes;
    for (; sender->head != sender->tail; n++) {
        uint64_t whole = DPB_TCP_FRAME_BYTES + sender->queue[sender->head % DPB_TCP_QUEUE].bytes;
        if (sender->sent_bytes < whole)
            break;
        sender->sent_bytes -= whole;
        sender->head++;
    }
    return n;
}

static uint64_t message_bytes(const struct iovec *parts, int n)
{
    uint64_t bytes = 0;
    for (int i = 0; i < n; i++)
        bytes += parts[i].iov_len;
    return bytes;
}

/*
 * Does not send all at once: bytes that the peer does not read soon fall out of the caches. A pass
 * over the connections sends as much as it receives, so while the peer is at work there is about a
 * chunk between the two.
 */
int dpb_tcp_sender_flush(struct dpb_tcp_sender *sender, uint32_t *n_sent, bool *writable)
{
    struct iovec parts[2 * DPB_TCP_QUEUE];
    uint64_t sent = sender->sent_bytes, total = 0;
    int n = 0;
    *n_sent = 0;
    for (uint32_t i = sender->head; i != sender->tail && total < PASS_BYTES; i++) {
        const struct dpb_tcp_outgoing *one = &sender->queue[i % DPB_TCP_QUEUE];
        add_part(parts, &n, one->header, DPB_TCP_FRAME_BYTES, &sent);
        add_part(parts, &n, one->payload, one->bytes, &sent);
        total += one->bytes;
    }
    if (n == 0)
        return 0;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t done = sendmsg(sender->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (done < 0 && errno != EAGAIN && errno != EINTR)
        return errno;
    *writable = done < 0 ? errno == EINTR : (uint64_t)done == message_bytes(parts, n);
    *n_sent = note_sent(sender, done > 0 ? (uint64_t)done : 0);
    return 0;
}

void dpb_tcp_sender_drop(struct dpb_tcp_sender *sender)
{
    sender->head = sender->tail;
    sender->sent_bytes = 0;
}

/* ---- receiving ----------------------------------------------------------------------------- */

/* Sorts the bytes of one read: the rest of a payload, then of the header after it. */
static void take_bytes(struct dpb_tcp_receiver *receiver, uint64_t bytes, struct dpb_tcp_news *news)
{
    news->bytes = bytes;
    if (receiver->in_payload) {
        uint64_t rest = receiver->bytes - receiver->n_payload;
        uint64_t mine = bytes < rest ? bytes : rest;
        receiver->n_payload += mine;
        bytes -= mine;
        if (receiver->n_payload < receiver->bytes)
            return;
        receiver->in_payload = false;
        news->payload_ends = true;
    }
    receiver->n_header += bytes;
    news->header_begins = receiver->n_header == DPB_TCP_FRAME_BYTES;
}

struct dpb_tcp_news dpb_tcp_receiver_read(struct dpb_tcp_receiver *receiver)
{
    struct dpb_tcp_news news = {0};
    struct iovec parts[2];
    int n = 0;
    uint64_t wanted = DPB_TCP_FRAME_BYTES - receiver->n_header;
    if (receiver->in_payload) {
        uint64_t rest = receiver->bytes - receiver->n_payload;
        parts[n++] =
            (struct iovec){.iov_base = receiver->payload + receiver->n_payload, .iov_len = rest};
        wanted += rest;
    }
    parts[n++] = (struct iovec){.iov_base = receiver->header + receiver->n_header,
                                .iov_len = DPB_TCP_FRAME_BYTES - receiver->n_header};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t got = recvmsg(receiver->fd, &message, MSG_DONTWAIT);
    news.dry = got < 0 ? errno != EINTR : (uint64_t)got < wanted;
    news.closed = got == 0;
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        news.error = errno;
    if (got > 0)
        take_bytes(receiver, (uint64_t)got, &news);
    return news;
}

void dpb_tcp_receiver_begin(struct dpb_tcp_receiver *receiver, void *payload, uint64_t bytes)
{
    receiver->n_header = 0;
    receiver->in_payload = bytes > 0;
    receiver->payload = payload;
    receiver->bytes = bytes;
    receiver->n_payload = 0;
}

/* ---- ending -------------------------------------------------------------------------------- */

/* A socket that is closed with unread bytes drops the bytes that it has not sent yet. */
void dpb_tcp_close_stream(int fd)
{
    uint8_t rest[256];
    if (fd < 0)
        return;
    while (recv(fd, rest, sizeof rest, MSG_DONTWAIT) > 0)
        ;
    close(fd);
}
