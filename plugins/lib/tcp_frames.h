/*
 * tcp_frames.h - frames over one TCP connection that is there already: a queue of those that go
 * out, and the one that is coming in. A frame is a header of TCP_FRAME_BYTES and its payload, which
 * is sent from where it lies and received to where it belongs; whoever uses this writes and reads
 * the headers. Several frames, or a payload and the header behind it, are one system call.
 * Non-blocking; no memory of its own; one thread at a time.
 */
#ifndef DPB_PLUGINS_LIB_TCP_FRAMES_H
#define DPB_PLUGINS_LIB_TCP_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TCP_FRAME_BYTES = 48, /* of a header */
    TCP_QUEUE = 16        /* frames of a connection that the kernel has not taken yet */
};

struct tcp_outgoing {
    uint8_t header[TCP_FRAME_BYTES];
    const void *payload;
    uint64_t bytes; /* of payload */
};

/* Starts zeroed but for the descriptor. */
struct tcp_sender {
    int fd;
    struct tcp_outgoing queue[TCP_QUEUE];
    uint32_t head, tail; /* they only rise */
    uint64_t sent_bytes; /* of the frame at the head */
};

/* Frames that may be added now. */
static inline uint32_t tcp_sender_room(const struct tcp_sender *sender)
{
    return TCP_QUEUE - (sender->tail - sender->head);
}

static inline bool tcp_sender_idle(const struct tcp_sender *sender)
{
    return sender->head == sender->tail;
}

/* Adds a frame (there is room) and returns its header, for the caller to write. The payload is
 * @borrowed until the frame has been handed to the kernel. */
uint8_t *tcp_sender_add(struct tcp_sender *sender, const void *payload, uint64_t bytes);

/* Hands the kernel what it takes now of the frames at the head. Returns errno, 0 for none. *n_sent:
 * frames that are wholly with the kernel now and were not before: head - *n_sent to head. *writable
 * is cleared where the kernel takes no more now. */
int tcp_sender_flush(struct tcp_sender *sender, uint32_t *n_sent, bool *writable);
/* Forgets all frames: nobody is there to take them. */
void tcp_sender_drop(struct tcp_sender *sender);

/* Starts zeroed but for the descriptor. */
struct tcp_receiver {
    int fd;
    uint8_t header[TCP_FRAME_BYTES];
    size_t n_header;
    bool in_payload;
    uint8_t *payload;
    uint64_t bytes, n_payload; /* of the payload; of it that have come */
};

/* What one read has brought, in this order. */
struct tcp_news {
    bool closed; /* by the peer */
    int error;   /* errno, 0: none */
    bool dry;    /* there was nothing, or less than was asked for: the kernel has no more now */
    uint64_t bytes;
    bool payload_ends;  /* the frame that was coming is all here */
    bool header_begins; /* `header` is the next frame's: the caller calls tcp_receiver_begin */
};

struct tcp_news tcp_receiver_read(struct tcp_receiver *receiver);
/* The payload of the frame whose header has come, to be written to `payload`; `bytes` may be 0:
 * then the frame has ended with this call. */
void tcp_receiver_begin(struct tcp_receiver *receiver, void *payload, uint64_t bytes);

/* Closes a connection such that what the kernel has taken goes on its way. */
void tcp_close_stream(int fd);

#endif
