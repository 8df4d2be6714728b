/*
 * store.h - the key-value store of a job: the wire and the ranks' side. The launcher's side is
 * launch/store_server.h.
 *
 * A rank and the launcher share one stream socket. A request is a frame (header, key, value) and is
 * answered by a frame with its serial; `get` and `barrier` are answered when their value or all
 * ranks are there, or when their deadline passes. Every length has a hard limit: a frame beyond it
 * is a fault of the rank.
 */
#ifndef DPB_CORE_WORLD_STORE_H
#define DPB_CORE_WORLD_STORE_H

#include <sys/types.h>

#include "dpbench/host.h"

enum {
    DPB_STORE_KEY_BYTES = 255,
    DPB_STORE_VALUE_BYTES = 1 << 20,
    DPB_STORE_TOTAL_BYTES = 256 << 20, /* of all values of a job */
    DPB_STORE_WAITING = 64             /* unanswered requests of one rank */
};

#define DPB_STORE_MAGIC UINT32_C(0x53425044) /* "DPBS" */

typedef enum dpb_store_op {
    DPB_STORE_PUT = 1,
    DPB_STORE_GET,
    DPB_STORE_BARRIER,
    DPB_STORE_BYE, /* the rank leaves in order; not answered */
    DPB_STORE_ANSWER,
    DPB_STORE_POST, /* words for the launcher: see dpb_store_post; not answered */
    DPB_STORE_GIVE, /* answered when the value was taken; the store then drops it */
    DPB_STORE_TAKE
} dpb_store_op;

/* Frames carry operations below this; launch/channel.h has some of its own. */
enum { DPB_FRAME_OPS = 64 };

struct dpb_frame {
    uint32_t magic;
    uint16_t op, key_bytes;
    uint32_t serial, value_bytes;
    int32_t status; /* dpb_status of an answer; its value is then the message */
    /* The rank that an answer is about; of a get, the rank that is to put; of a barrier, the first
     * rank that does not come. UINT32_MAX: none. */
    uint32_t peer;
    int64_t timeout_ns; /* of a request */
};

/* ---- frames -------------------------------------------------------------------------------- */

struct dpb_buffer {
    uint8_t *data;
    size_t begin, end, capacity; /* its content: [begin, end) */
};

typedef enum dpb_frame_state {
    DPB_FRAME_WHOLE,
    DPB_FRAME_PARTIAL,
    DPB_FRAME_MALFORMED
} dpb_frame_state;

void dpb_buffer_free(struct dpb_buffer *buffer);
/* False: out of memory. */
bool dpb_buffer_add_frame(struct dpb_buffer *buffer, const struct dpb_frame *frame, const void *key,
                          const void *value);
/* The first frame of the buffer. `key` and `value` are @borrowed until it is dropped. A malformed
 * one leaves its reason in `why`. */
dpb_frame_state dpb_buffer_frame(const struct dpb_buffer *buffer, struct dpb_frame *frame,
                                 const char **key, const void **value, char why[128]);
void dpb_buffer_drop_frame(struct dpb_buffer *buffer, const struct dpb_frame *frame);
/* Without blocking. Return the bytes moved; 0: receive: the other side has closed, send: nothing to
 * send; -1: errno, EAGAIN for "later". */
ssize_t dpb_buffer_receive(struct dpb_buffer *buffer, int fd);
ssize_t dpb_buffer_send(struct dpb_buffer *buffer, int fd);

/* ---- the ranks' side ----------------------------------------------------------------------- */

void dpb_store_connect(int fd);  /* takes over */
void dpb_store_disconnect(void); /* sends DPB_STORE_BYE */
/* dpb_store.get of a value that `rank` puts. *lost: that rank is lost (dpb_board_lost) and has not
 * put the value; every caller gets the same *lost. */
dpb_status dpb_store_get_from(uint32_t rank, const char *key, void *value, size_t *bytes,
                              bool *lost);
/* Rank 0 puts its value, the others get it. */
dpb_status dpb_store_from_0(const char *key, void *value, size_t bytes);
/* Each rank puts one value under the same name; any rank gets that of `rank`. `lost`: as for
 * dpb_store_get_from; NULL: as dpb_store.get. */
dpb_status dpb_store_put_own(const char *name, const void *value, size_t bytes);
dpb_status dpb_store_get_of(uint32_t rank, const char *name, void *value, size_t bytes, bool *lost);
/* Each of the first n ranks gives a value of `bytes`, and all of these get the n values, by rank.
 * They go through rank 0: as many requests as ranks, not their square. */
dpb_status dpb_store_gather(const char *name, const void *own, size_t bytes, uint32_t n, void *all);
/* Blocks until all ranks, servers too, have come with the same name, but for lost ones; each name
 * once a job. */
dpb_status dpb_store_barrier(const char *name, int64_t timeout_ns);
/* The same for ranks below n_ranks; all of them pass the same number. */
dpb_status dpb_store_barrier_of(uint32_t n_ranks, const char *name, int64_t timeout_ns);
/*
 * From one rank to another, any number of times. The giver blocks until the value was taken, so the
 * store holds at most one value of each giver. At any time one thread gives under a key, and one
 * takes. Deadlines as for dpb_store.get. `give`: up to DPB_STORE_VALUE_BYTES.
 */
dpb_status dpb_store_give(const char *key, const void *value, size_t bytes, int64_t timeout_ns);
/* *bytes: capacity in, length out; too long is an error. */
dpb_status dpb_store_take(const char *key, void *value, size_t *bytes, int64_t timeout_ns);
/* The same for values of any size, in pieces that the store can hold. `what` names the value of
 * `rank` in the message when a piece has another size. */
dpb_status dpb_store_give_all(const char *key, const void *value, size_t bytes);
dpb_status dpb_store_take_all(uint32_t rank, const char *key, void *value, size_t bytes,
                              const char *what);
/* Words for the launcher of rank 0, in order with the requests of this rank; waits for no
 * answer. */
dpb_status dpb_store_post(const void *value, size_t bytes);

#endif
