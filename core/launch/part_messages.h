/*
 * part_messages.h - the messages between the head's launcher and those of the other parts, on
 * their channels, and how often a part sends them.
 */
#ifndef DPB_CORE_LAUNCH_PART_MESSAGES_H
#define DPB_CORE_LAUNCH_PART_MESSAGES_H

#include "launch/channel.h"

#define DPB_PART_PAGE_NS INT64_C(250000000)    /* how often a part sends its rank's page */
#define DPB_PART_PING_NS INT64_C(500000000)    /* ... a ping */
#define DPB_PART_JOURNAL_NS INT64_C(500000000) /* ... its journal */
/* Silence beyond run.timeout_s: less than a stuck rank gets (stall.c), so that the cause comes
 * first. */
#define DPB_PART_SILENCE_NS INT64_C(1000000000)

enum { DPB_PART_PIECE_BYTES = 64 * 1024 };

/* DPB_CHANNEL_PAGE: the rank's page follows, up to its `status` or, when there is an error or a
 * warning, whole. Times are the head's. */
struct dpb_page_news {
    int64_t silent_ns; /* since its last sign of life (stall.h); -1: the part did not look */
    char state;        /* of its process, as in struct dpb_proc; 0: it has none */
};

/* DPB_CHANNEL_JOURNAL, DPB_CHANNEL_KEPT: bytes of the journal, or of the checkpoint, from `offset`
 * on follow. */
struct dpb_journal_piece {
    uint64_t offset;
};

/* DPB_CHANNEL_AGAIN: the configuration follows. */
struct dpb_again_news {
    int32_t checkpoint; /* -1: no checkpoint was sent */
    uint8_t secret[DPB_SECRET_BYTES];
};

struct dpb_ended_news {
    int32_t wait_status;
    int64_t ended_ns; /* the head's clock */
};

/* DPB_CHANNEL_PING, and back as DPB_CHANNEL_PONG with the head's clock. */
struct dpb_ping {
    int64_t sent_ns, head_ns;
};

#endif
