/*
 * channel.h - connections between the processes of a job that another launcher started, and
 * the frames on them. No frame is accepted before both sides have proven the job's secret
 * (world/handshake.h).
 */
#ifndef DPB_CORE_LAUNCH_CHANNEL_H
#define DPB_CORE_LAUNCH_CHANNEL_H

#include "world/handshake.h"
#include "world/hello.h"
#include "world/store.h"

enum { DPB_CHANNEL_WHY_BYTES = 512 };

typedef enum dpb_channel_purpose {
    DPB_CHANNEL_PART = 1 /* frames of dpb_channel_op */,
    DPB_CHANNEL_STORE
} dpb_channel_purpose;

/* Operations on a channel of purpose DPB_CHANNEL_PART; their numbers differ from dpb_store_op's.
 * `peer` of the frame is the rank that the frame is about. */
typedef enum dpb_channel_op {
    DPB_CHANNEL_REPORT = 32, /* a part's configuration, or its refusal */
    DPB_CHANNEL_VERDICT,     /* to it: whether the job begins */
    DPB_CHANNEL_PAGE,        /* a status page, both ways */
    DPB_CHANNEL_JOURNAL,     /* a piece of a journal */
    DPB_CHANNEL_CONTROL,     /* the words of loop/control.h that have changed */
    DPB_CHANNEL_CONFIRM,     /* of a proposal among them */
    DPB_CHANNEL_ENDED,       /* a rank's process has ended */
    DPB_CHANNEL_KILL,        /* to its part: end it */
    DPB_CHANNEL_END_JOB,     /* to all parts: see dpb_board_end_job */
    DPB_CHANNEL_INTERRUPT,   /* a signal came, both ways */
    DPB_CHANNEL_PING,
    DPB_CHANNEL_PONG,
    /* To all parts: no rank is left; the head makes the result, and is silent. */
    DPB_CHANNEL_ALL_ENDED,
    DPB_CHANNEL_SAID,  /* to all parts: the head has printed why the job ends */
    DPB_CHANNEL_OVER,  /* ... the exit code */
    DPB_CHANNEL_KEPT,  /* to all parts: a piece of the checkpoint that the next start continues */
    DPB_CHANNEL_AGAIN, /* ... all ranks start again */
    DPB_CHANNEL_HOST,  /* without PMIx: a part's machine, and the machines of all */
    DPB_CHANNEL_OPS_END
} dpb_channel_op;
_Static_assert((int)DPB_CHANNEL_OPS_END <= DPB_FRAME_OPS,
               "frames carry every operation of a channel");

/* One end of a connection, in one thread; never blocks. */
struct dpb_channel {
    int fd;      /* -1: closed */
    int lost_fd; /* the head's, of a lost channel: open until it ends, see keeper.h; or -1 */
    struct dpb_buffer in, out;
    size_t last_bytes; /* of the frame that dpb_channel_next returned last */
};

void dpb_channel_close(struct dpb_channel *channel); /* accepts closed ones */
/* Queues a frame. False: the connection is broken, or the other side reads nothing. */
bool dpb_channel_add(struct dpb_channel *channel, dpb_channel_op op, uint32_t rank,
                     const void *value, size_t bytes);
/* The same, and sends as much as possible without blocking. */
bool dpb_channel_say(struct dpb_channel *channel, dpb_channel_op op, uint32_t rank,
                     const void *value, size_t bytes);
/* Sends queued frames. */
bool dpb_channel_flush(struct dpb_channel *channel);
/* The next received frame; `value` is @borrowed until the next call of dpb_channel_next or
 * dpb_channel_receive. 1: there is one; 0: not yet; -1: malformed, see `why`. */
int dpb_channel_next(struct dpb_channel *channel, struct dpb_frame *frame, const void **value,
                     char why[128]);
/* Receives available bytes. False: the other side has closed, or the connection is broken. */
bool dpb_channel_receive(struct dpb_channel *channel);

/* ---- finding each other -------------------------------------------------------------------- */

/*
 * An address is a text: the secret, a port, and names or numbers of a machine, or @NAME, a unix
 * socket of this machine (unix(7): abstract), whose two ends must be of one user.
 */

/* Listens on a free port of every interface. `address` has the ports and the secret: pass it only
 * to processes of the job. */
dpb_status dpb_channel_listen(int *fd, struct dpb_circle *circle, char address[DPB_ADDRESS_BYTES]);
/* Listens where `address` says. DPB_USAGE: another process does. */
dpb_status dpb_channel_listen_at(const char *address, int *fd, struct dpb_circle *circle);

/* Tries once to connect to `address`, proven by both sides. `same_host`: by the loopback interface.
 * Blocks up to 2 s for each of the addresses, and not beyond the deadline. DPB_PEER: the try
 * failed; writes no message, `why` has the reasons. */
dpb_status dpb_channel_connect(const char *address, bool same_host, uint32_t rank,
                               dpb_channel_purpose purpose, struct dpb_deadline deadline, int *fd,
                               char why[DPB_CHANNEL_WHY_BYTES]);

void dpb_channel_tune(int fd); /* a connection that a door has accepted */
/* Whether the other end is of this user, or on a network. */
bool dpb_channel_is_own(int fd);

#endif
