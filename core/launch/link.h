/*
 * link.h - connections by TCP between the processes of a job that mpirun or srun started, and the
 * frames on them. Nothing that comes in is believed before both sides have proven the job's secret
 * (world/handshake.h).
 */
#ifndef DPB_CORE_LAUNCH_LINK_H
#define DPB_CORE_LAUNCH_LINK_H

#include "world/handshake.h"
#include "world/hello.h"
#include "world/store.h"

enum { LINK_WHY_BYTES = 512 };

typedef enum link_purpose { LINK_PART = 1 /* frames of link_op */, LINK_STORE } link_purpose;

/* What is said on a link of purpose LINK_PART; numbers of their own beside dpb_store_op. `peer` of
 * the frame is the rank that it is about. */
typedef enum link_op {
    LINK_REPORT = 32, /* what a part has made of its configuration */
    LINK_VERDICT,     /* to it: whether the job begins */
    LINK_PAGE,        /* a status page, both ways */
    LINK_JOURNAL,     /* a piece of a journal */
    LINK_CONTROL,     /* the words of train/control.h that have changed */
    LINK_CONFIRM,     /* of a proposal among them */
    LINK_ENDED,       /* a rank's process has ended */
    LINK_KILL,        /* to its part: end it */
    LINK_END_JOB,     /* to all parts: see dpb_board_end_job */
    LINK_INTERRUPT,   /* a signal came, both ways */
    LINK_PING,
    LINK_PONG,
    LINK_SAID, /* to all parts: the head has said why the job ends */
    LINK_OVER, /* ... the exit code */
    LINK_OPS_END
} link_op;
_Static_assert((int)LINK_OPS_END <= DPB_FRAME_OPS, "frames carry every operation of a link");

/* One end of a connection, in one thread; never blocks. */
struct link {
    int fd;      /* -1: closed */
    int lost_fd; /* the head's, of a link that is lost: open until it ends, see keeper.h; or -1 */
    struct dpb_buffer in, out;
    size_t last_bytes; /* of the frame that link_next gave out last */
};

void link_close(struct link *link); /* accepts closed ones */
/* Puts a frame into the queue and sends what can be sent. False: the connection is broken, or the
 * other side reads nothing. */
bool link_say(struct link *link, link_op op, uint32_t rank, const void *value, size_t bytes);
/* Sends what waits. */
bool link_flush(struct link *link);
/* The next frame of what has come in; `value` is @borrowed until the next call of link_next or
 * link_receive. 1: there is one; 0: not yet; -1: what came is malformed, see `why`. */
int link_next(struct link *link, struct dpb_frame *frame, const void **value, char why[128]);
/* Takes in what there is. False: the other side has closed, or the connection is broken. */
bool link_receive(struct link *link);

/* ---- finding each other -------------------------------------------------------------------- */

/* Listens on a free port of every interface; `address` says where, and the secret: for those alone
 * who may know it. */
dpb_status link_listen(int *fd, struct dpb_circle *circle, char address[DPB_ADDRESS_BYTES]);

/* One try of a connection to where `address` says, proven by both sides. `same_host`: by the
 * loopback interface. Blocks up to 2 s for each of the addresses, and not beyond the deadline.
 * DPB_PEER: not this time; no message is written, `why` has the reasons. */
dpb_status link_connect(const char *address, bool same_host, uint32_t rank, link_purpose purpose,
                        int64_t deadline_ns, int *fd, char why[LINK_WHY_BYTES]);

void link_tune(int fd); /* a connection that a door has let in */

#endif
