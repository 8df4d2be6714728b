/*
 * link.h - connections by TCP between the processes of a job that mpirun or srun started, and the
 * frames on them. No frame is accepted before both sides have proven the job's secret
 * (world/handshake.h).
 */
#ifndef DPB_CORE_LAUNCH_LINK_H
#define DPB_CORE_LAUNCH_LINK_H

#include "world/handshake.h"
#include "world/hello.h"
#include "world/store.h"

enum { LINK_WHY_BYTES = 512 };

typedef enum link_purpose { LINK_PART = 1 /* frames of link_op */, LINK_STORE } link_purpose;

/* Operations on a link of purpose LINK_PART; their numbers differ from dpb_store_op's. `peer` of
 * the frame is the rank that the frame is about. */
typedef enum link_op {
    LINK_REPORT = 32, /* a part's configuration, or its refusal */
    LINK_VERDICT,     /* to it: whether the job begins */
    LINK_PAGE,        /* a status page, both ways */
    LINK_JOURNAL,     /* a piece of a journal */
    LINK_CONTROL,     /* the words of loop/control.h that have changed */
    LINK_CONFIRM,     /* of a proposal among them */
    LINK_ENDED,       /* a rank's process has ended */
    LINK_KILL,        /* to its part: end it */
    LINK_END_JOB,     /* to all parts: see dpb_board_end_job */
    LINK_INTERRUPT,   /* a signal came, both ways */
    LINK_PING,
    LINK_PONG,
    LINK_ALL_ENDED, /* to all parts: no rank is left; the head makes the result, and is silent */
    LINK_SAID,      /* to all parts: the head has printed why the job ends */
    LINK_OVER,      /* ... the exit code */
    LINK_OPS_END
} link_op;
_Static_assert((int)LINK_OPS_END <= DPB_FRAME_OPS, "frames carry every operation of a link");

/* One end of a connection, in one thread; never blocks. */
struct link {
    int fd;      /* -1: closed */
    int lost_fd; /* the head's, of a lost link: open until it ends, see keeper.h; or -1 */
    struct dpb_buffer in, out;
    size_t last_bytes; /* of the frame that link_next returned last */
};

void link_close(struct link *link); /* accepts closed ones */
/* Queues a frame. False: the connection is broken, or the other side reads nothing. */
bool link_add(struct link *link, link_op op, uint32_t rank, const void *value, size_t bytes);
/* The same, and sends as much as possible without blocking. */
bool link_say(struct link *link, link_op op, uint32_t rank, const void *value, size_t bytes);
/* Sends queued frames. */
bool link_flush(struct link *link);
/* The next received frame; `value` is @borrowed until the next call of link_next or link_receive.
 * 1: there is one; 0: not yet; -1: malformed, see `why`. */
int link_next(struct link *link, struct dpb_frame *frame, const void **value, char why[128]);
/* Receives available bytes. False: the other side has closed, or the connection is broken. */
bool link_receive(struct link *link);

/* ---- finding each other -------------------------------------------------------------------- */

/* Listens on a free port of every interface. `address` has the ports and the secret: pass it only
 * to processes of the job. */
dpb_status link_listen(int *fd, struct dpb_circle *circle, char address[DPB_ADDRESS_BYTES]);

/* Tries once to connect to `address`, proven by both sides. `same_host`: by the loopback interface.
 * Blocks up to 2 s for each of the addresses, and not beyond the deadline. DPB_PEER: the try
 * failed; writes no message, `why` has the reasons. */
dpb_status link_connect(const char *address, bool same_host, uint32_t rank, link_purpose purpose,
                        int64_t deadline_ns, int *fd, char why[LINK_WHY_BYTES]);

void link_tune(int fd); /* a connection that a door has accepted */

#endif
