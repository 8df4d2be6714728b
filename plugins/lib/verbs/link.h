/*
 * link.h - a reliable connection (RC queue pair) to another rank, the data that both ranks exchange
 * to connect, and requests over the connection.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_LINK_H
#define DPB_PLUGINS_LIB_VERBS_LINK_H

#include "lib/verbs/port.h"

/* A range of the peer's memory that this rank may write to. */
struct remote {
    uint64_t at;
    uint32_t key, unused;
};

/* A port's description for the other end of a connection: part of a rank's entry in the store. */
struct port_card {
    char device[PORT_NAME_BYTES], address[PORT_ADDRESS_BYTES];
    uint8_t gid[16];
    uint32_t gid_index, lid, mtu, ethernet;
};

struct link {
    const struct port *port;
    struct ibv_qp *queue;
    uint32_t begins;     /* the first packet number */
    uint32_t max_inline; /* bytes that fit into the request itself */
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
/* Opens both directions of this end; the peer's end needs the same call. `theirs` is the peer's
 * queue pair, `theirs_begins` its first packet number. ack_timeout as in the plugin's options. */
dpb_status link_connect(const struct dpb_host *host, struct link *link,
                        const struct port_card *card, uint32_t theirs, uint32_t theirs_begins,
                        uint32_t ack_timeout);
/* Ends requests under way; the device no longer touches memory. Accepts a zeroed link. */
void link_close(struct link *link);

/* ---- requests: DPB_IO, with the message, if the queue pair refuses one --------------------- */

/* A range of own registered memory, and its destination in the peer's memory. */
struct link_write {
    uint64_t id; /* of its completion */
    const void *from;
    uint64_t bytes, offset; /* within `to` */
    uint32_t key;           /* of the memory of `from` */
    struct remote to;
};

/* Posts a receive for a number that arrives with or without payload. */
dpb_status link_post_receive(const struct dpb_host *host, const struct link *link, uint64_t id);
/* Sends a number alone. */
dpb_status link_post_number(const struct dpb_host *host, const struct link *link, uint64_t id,
                            uint32_t number);
dpb_status link_post_write(const struct dpb_host *host, const struct link *link,
                           const struct link_write *payload);
/* Sends a label, then payload with a number. A peer that receives the number has label and payload.
 * The label completes by itself only if it fails, or if there is no payload (NULL); without payload
 * the number comes with the label. */
dpb_status link_post_message(const struct dpb_host *host, const struct link *link,
                             const struct link_write *label, const struct link_write *payload,
                             uint32_t number);

#endif
