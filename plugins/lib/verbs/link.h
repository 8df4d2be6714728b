/*
 * link.h - a reliable connection (RC queue pair) to a neighbour in the ring, and what the two tell
 * each other by the store to make it.
 *
 * Every member has two: one to the next member, over which chunks go out and credits come in, and
 * one to the member before. Both complete into one queue.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_LINK_H
#define DPB_PLUGINS_LIB_VERBS_LINK_H

#include "lib/verbs/port.h"

/* A range of memory of the peer's that may be written to. */
struct remote {
    uint64_t at;
    uint32_t key, unused;
};

/* What a member puts into the store, once for both of its neighbours. */
struct link_card {
    char device[PORT_NAME_BYTES], address[PORT_ADDRESS_BYTES];
    uint8_t gid[16];
    uint32_t gid_index, lid, mtu, ethernet;
    uint32_t to_next, to_previous;               /* numbers of its queue pairs */
    uint32_t to_next_begins, to_previous_begins; /* first packet numbers (PSN) that they send */
    struct remote arena, inbox, labels;
    /* What must be the same at both ends. */
    uint64_t arena_bytes, slot_bytes;
    uint32_t n_slots, depth;
};

struct link {
    const struct port *port;
    struct ibv_qp *queue;
    uint32_t begins;     /* the first packet number */
    uint32_t max_inline; /* bytes that can be sent out of the request itself */
    enum ibv_mtu mtu;    /* of the path */
    uint32_t peer;       /* rank */
    uint32_t peer_queue, peer_gid_index;
    char peer_port[PORT_NAME_BYTES], peer_address[PORT_ADDRESS_BYTES];
};

struct link_size {
    uint32_t n_sends, n_receives, n_inline_bytes;
};

/* A queue pair that can receive requests but is not connected. @owned: link_close. */
dpb_status link_create(const struct dpb_host *host, const struct port *port, struct ibv_pd *domain,
                       struct ibv_cq *completions, uint32_t peer, const struct link_size *size,
                       struct link *link);
/* Both directions are open when this returns here; the peer's end needs the same call. `theirs` is
 * the queue pair of the peer's and the packet number that it begins with. ack_timeout as in the
 * options of the plugin. */
dpb_status link_connect(const struct dpb_host *host, struct link *link,
                        const struct link_card *card, uint32_t theirs, uint32_t theirs_begins,
                        uint32_t ack_timeout);
/* Requests under way end; memory is touched no more. Accepts a zeroed one. */
void link_close(struct link *link);

#endif
