/*
 * link.h - a reliable connection (RC queue pair) to another rank, what the two have to tell each
 * other to make it, and the requests that go over it.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_LINK_H
#define DPB_PLUGINS_LIB_VERBS_LINK_H

#include "lib/verbs/port.h"

/* A range of memory of the peer's that may be written to. */
struct remote {
    uint64_t at;
    uint32_t key, unused;
};

/* What the ends of a connection tell each other of their ports: part of what they put into the
 * store. */
struct port_card {
    char device[PORT_NAME_BYTES], address[PORT_ADDRESS_BYTES];
    uint8_t gid[16];
    uint32_t gid_index, lid, mtu, ethernet;
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
struct port_card link_card(const struct port *port);
/* Refuses a peer whose port cannot be reached from this rank's, naming both. */
dpb_status link_check_card(const struct dpb_host *host, const struct port *port, uint32_t self,
                           uint32_t peer, const struct port_card *card);
/* Both directions are open when this returns here; the peer's end needs the same call. `theirs` is
 * the queue pair of the peer's and the packet number that it begins with. ack_timeout as in the
 * options of the plugin. */
dpb_status link_connect(const struct dpb_host *host, struct link *link,
                        const struct port_card *card, uint32_t theirs, uint32_t theirs_begins,
                        uint32_t ack_timeout);
/* Requests under way end; memory is touched no more. Accepts a zeroed one. */
void link_close(struct link *link);

/* ---- requests: DPB_IO, with the message, for what the queue pair does not take ------------- */

/* A range of own registered memory, and where it is to be at the peer's. */
struct link_write {
    uint64_t id; /* of its completion */
    const void *from;
    uint64_t bytes, offset; /* within `to` */
    uint32_t key;           /* of the memory that it lies in */
    struct remote to;
};

/* A place for a number that comes with or without payload. */
dpb_status link_post_receive(const struct dpb_host *host, const struct link *link, uint64_t id);
/* A number alone. */
dpb_status link_post_number(const struct dpb_host *host, const struct link *link, uint64_t id,
                            uint32_t number);
dpb_status link_post_write(const struct dpb_host *host, const struct link *link,
                           const struct link_write *payload);
/* A label, and behind it payload with a number: who receives the number has both. The label
 * completes by itself only when it fails, or where there is no payload (NULL), and the number comes
 * with it. */
dpb_status link_post_message(const struct dpb_host *host, const struct link *link,
                             const struct link_write *label, const struct link_write *payload,
                             uint32_t number);

#endif
