/*
 * tcp_frames.h - frames over one existing TCP connection: a queue of outgoing frames, and the one
 * incoming frame. A frame is a header of DPB_TCP_FRAME_BYTES and a payload. Payload is sent from
 * its source and received into its destination, without a copy between. The caller writes and reads
 * headers. Several frames, or a payload and the header behind it, take one system call.
 * Non-blocking; no memory of its own; one thread at a time.
 */
#ifndef DPB_PLUGINS_LIB_TCP_FRAMES_H
#define DPB_PLUGINS_LIB_TCP_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DPB_TCP_FRAME_BYTES = 48, /* of a header */
    DPB_TCP_QUEUE = 16        /* frames of a connection that the kernel has not taken yet */
};

struct dpb_tcp_outgoing {
    uint8_t header[DPB_TCP_FRAME_BYTES];
    const void *payload;
    uint64_t bytes; /* of payload */
};

/* Starts zeroed but for the descriptor. */
struct dpb_tcp_sender {
    int fd;
    struct dpb_tcp_outgoing queue[DPB_TCP_QUEUE];
    uint32_t head, tail; /* they only rise */
    uint64_t sent_bytes; /* of the frame at the head */
};

/* Frames that may be added now. */
static inline uint32_t dpb_tcp_sender_room(const struct dpb_tcp_sender *sender)
{
    return DPB_TCP_QUEUE - (sender->tail - sender->head);
}

static inline bool dpb_tcp_sender_idle(const struct dpb_tcp_sender *sender)
{
    return sender->head == sender->tail;
}

/* Adds a frame (there is room) and returns its header, for the caller to write. The payload is
 * @borrowed until the frame has been handed to the kernel. */
uint8_t *dpb_tcp_sender_add(struct dpb_tcp_sender *sender, const void *payload, uint64_t bytes);

/* Sends as many bytes of the frames at the head as the kernel takes now. Returns errno; 0: none.
 * *n_sent: frames that this call completed: head - *n_sent to head. Clears *writable if the kernel
 * takes no more now. */
int dpb_tcp_sender_flush(struct dpb_tcp_sender *sender, uint32_t *n_sent, bool *writable);
/* Drops all frames, because the peer is gone. */
void dpb_tcp_sender_drop(struct dpb_tcp_sender *sender);

/* Starts zeroed but for the descriptor. */
struct dpb_tcp_receiver {
    int fd;
    uint8_t header[DPB_TCP_FRAME_BYTES];
    size_t n_header;
    bool in_payload;
    uint8_t *payload;
    uint64_t bytes, n_payload; /* of the payload; received so far */
};

/* The results of one read, in this order. */
struct dpb_tcp_news {
    bool closed; /* by the peer */
    int error;   /* errno, 0: none */
    bool dry;    /* the read got nothing, or fewer bytes than asked: the kernel has no more now */
    uint64_t bytes;
    bool payload_ends;  /* the incoming frame is complete */
    bool header_begins; /* `header` is the next frame's: the caller calls dpb_tcp_receiver_begin */
};

struct dpb_tcp_news dpb_tcp_receiver_read(struct dpb_tcp_receiver *receiver);
/* Receives the payload of the frame whose header has arrived into `payload`. `bytes` may be 0: then
 * this call ends the frame. */
void dpb_tcp_receiver_begin(struct dpb_tcp_receiver *receiver, void *payload, uint64_t bytes);

/* Closes a connection such that the kernel still sends all bytes it has taken. */
void dpb_tcp_close_stream(int fd);

#endif
