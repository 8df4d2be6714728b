/* link.c - see link.h. */
#include "lib/verbs/link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/random.h>

enum {
    PSN_MASK = 0xffffff,
    /* The specification's most is 7, but soft-RoCE takes 7 for "for ever". */
    RETRIES = 6,
    /* 7 stands for no limit. Credits keep receives posted at the peer, and waits have deadlines. */
    RECEIVER_NOT_READY_RETRIES = 7,
    RECEIVER_NOT_READY_TIMER = 12, /* 0.64 ms */
    HOP_LIMIT = 64
};

dpb_status link_create(const struct dpb_host *host, const struct port *port, struct ibv_pd *domain,
                       struct ibv_cq *completions, uint32_t peer, const struct link_size *size,
                       struct link *link)
{
    struct ibv_qp_init_attr wanted = {.send_cq = completions,
                                      .recv_cq = completions,
                                      .qp_type = IBV_QPT_RC,
                                      .cap = {.max_send_wr = size->n_sends,
                                              .max_recv_wr = size->n_receives,
                                              .max_send_sge = 1,
                                              .max_recv_sge = 1,
                                              .max_inline_data = size->n_inline_bytes}};
    struct ibv_qp_attr begun = {.qp_state = IBV_QPS_INIT,
                                .port_num = port->number,
                                .qp_access_flags =
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE};
    *link = (struct link){.port = port, .peer = peer};
    link->queue = ibv_create_qp(domain, &wanted);
    if (!link->queue && errno == EINVAL) { /* not as much inline */
        wanted.cap.max_inline_data = 0;
        link->queue = ibv_create_qp(domain, &wanted);
    }
    if (!link->queue)
        return host->fail(DPB_IO, "cannot make a queue pair of %u sends and %u receives on %s: %s",
                          size->n_sends, size->n_receives, port->name, strerror(errno));
    link->max_inline = wanted.cap.max_inline_data;
    if (getrandom(&link->begins, sizeof link->begins, 0) != (ssize_t)sizeof link->begins)
        return host->fail(DPB_FAILED, "no random number from the system: %s", strerror(errno));
    link->begins &= PSN_MASK;
    int error = ibv_modify_qp(link->queue, &begun,
                              IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    if (error != 0)
        return host->fail(DPB_IO, "cannot set up queue pair %u of %s: %s", link->queue->qp_num,
                          port->name, strerror(error));
    return DPB_OK;
}

struct port_card link_card(const struct port *port)
{
    struct port_card card = {.gid_index = port->gid.gid_index,
                             .lid = port->attributes.lid,
                             .mtu = port->attributes.active_mtu,
                             .ethernet = port_is_ethernet(port)};
    memcpy(card.device, port->name, sizeof card.device);
    memcpy(card.address, port->address, sizeof card.address);
    memcpy(card.gid, port->gid.gid.raw, sizeof card.gid);
    return card;
}

dpb_status link_check_card(const struct dpb_host *host, const struct port *port, uint32_t self,
                           uint32_t peer, const struct port_card *card)
{
    if ((card->ethernet != 0) == port_is_ethernet(port))
        return DPB_OK;
    return host->fail(DPB_USAGE,
                      "rank %u is at %s and rank %u at %s: one is RoCE, one InfiniBand; choose by "
                      "comm.device",
                      self, port->name, peer, card->device);
}

/* RoCE is routed by GIDs, InfiniBand within a subnet by LIDs. */
static void set_path(const struct link *link, const struct port_card *card,
                     struct ibv_ah_attr *path)
{
    *path = (struct ibv_ah_attr){.port_num = link->port->number, .dlid = (uint16_t)card->lid};
    if (!port_is_ethernet(link->port))
        return;
    path->is_global = 1;
    path->grh.sgid_index = (uint8_t)link->port->gid.gid_index;
    path->grh.hop_limit = HOP_LIMIT;
    memcpy(path->grh.dgid.raw, card->gid, sizeof card->gid);
}

static dpb_status cannot_connect(const struct dpb_host *host, const struct link *link, int error)
{
    return host->fail(DPB_IO,
                      "cannot connect queue pair %u of %s (%s, GID index %u) to %u of rank %u's %s "
                      "(%s, GID index %u): %s; the two addresses must be in one network: see "
                      "comm.interface and comm.gid_index",
                      link->queue->qp_num, link->port->name, link->port->address,
                      link->port->gid.gid_index, link->peer_queue, link->peer, link->peer_port,
                      link->peer_address, link->peer_gid_index, strerror(error));
}

dpb_status link_connect(const struct dpb_host *host, struct link *link,
                        const struct port_card *card, uint32_t theirs, uint32_t theirs_begins,
                        uint32_t ack_timeout)
{
    enum ibv_mtu own_mtu = link->port->attributes.active_mtu;
    link->mtu = card->mtu < own_mtu ? (enum ibv_mtu)card->mtu : own_mtu;
    link->peer_queue = theirs;
    link->peer_gid_index = card->gid_index;
    snprintf(link->peer_port, sizeof link->peer_port, "%s", card->device);
    snprintf(link->peer_address, sizeof link->peer_address, "%s", card->address);
    struct ibv_qp_attr receiving = {.qp_state = IBV_QPS_RTR,
                                    .path_mtu = link->mtu,
                                    .dest_qp_num = theirs,
                                    .rq_psn = theirs_begins,
                                    .min_rnr_timer = RECEIVER_NOT_READY_TIMER};
    struct ibv_qp_attr sending = {.qp_state = IBV_QPS_RTS,
                                  .timeout = (uint8_t)ack_timeout,
                                  .retry_cnt = RETRIES,
                                  .rnr_retry = RECEIVER_NOT_READY_RETRIES,
                                  .sq_psn = link->begins};
    set_path(link, card, &receiving.ah_attr);
    int error = ibv_modify_qp(link->queue, &receiving,
                              IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    if (error == 0)
        error = ibv_modify_qp(link->queue, &sending,
                              IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                                  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    return error == 0 ? DPB_OK : cannot_connect(host, link, error);
}

void link_close(struct link *link)
{
    if (link->queue)
        ibv_destroy_qp(link->queue);
    link->queue = NULL;
}

/* ---- requests ------------------------------------------------------------------------------ */

static dpb_status posted(const struct dpb_host *host, const struct link *link, int error)
{
    if (error == 0)
        return DPB_OK;
    return host->fail(DPB_IO, "cannot post to queue pair %u of %s, to rank %u: %s",
                      link->queue->qp_num, link->port->name, link->peer, strerror(error));
}

dpb_status link_post_receive(const struct dpb_host *host, const struct link *link, uint64_t id)
{
    struct ibv_recv_wr request = {.wr_id = id}, *bad;
    return posted(host, link, ibv_post_recv(link->queue, &request, &bad));
}

dpb_status link_post_number(const struct dpb_host *host, const struct link *link, uint64_t id,
                            uint32_t number)
{
    struct ibv_send_wr request = {.wr_id = id,
                                  .opcode = IBV_WR_SEND_WITH_IMM,
                                  .send_flags = IBV_SEND_SIGNALED,
                                  .imm_data = htonl(number)};
    struct ibv_send_wr *bad;
    return posted(host, link, ibv_post_send(link->queue, &request, &bad));
}

static struct ibv_sge range_of(const struct link_write *write)
{
    return (struct ibv_sge){(uintptr_t)write->from, (uint32_t)write->bytes, write->key};
}

/* `range`: of the write, @borrowed by the request; one without bytes has none. */
static struct ibv_send_wr request_of(const struct link *link, const struct link_write *write,
                                     struct ibv_sge *range)
{
    return (struct ibv_send_wr){
        .wr_id = write->id,
        .sg_list = range,
        .num_sge = write->bytes > 0,
        .opcode = IBV_WR_RDMA_WRITE,
        .send_flags = write->bytes > 0 && write->bytes <= link->max_inline ? IBV_SEND_INLINE : 0,
        .wr.rdma = {write->to.at + write->offset, write->to.key}};
}

dpb_status link_post_write(const struct dpb_host *host, const struct link *link,
                           const struct link_write *payload)
{
    struct ibv_sge range = range_of(payload);
    struct ibv_send_wr request = request_of(link, payload, &range), *bad;
    request.send_flags |= IBV_SEND_SIGNALED;
    return posted(host, link, ibv_post_send(link->queue, &request, &bad));
}

dpb_status link_post_message(const struct dpb_host *host, const struct link *link,
                             const struct link_write *label, const struct link_write *payload,
                             uint32_t number)
{
    struct ibv_sge words = range_of(label), bytes = {0};
    struct ibv_send_wr first = request_of(link, label, &words), second, *last = &first, *bad;
    if (payload) {
        bytes = range_of(payload);
        second = request_of(link, payload, &bytes);
        last = first.next = &second;
    }
    last->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    last->send_flags |= IBV_SEND_SIGNALED;
    last->imm_data = htonl(number);
    return posted(host, link, ibv_post_send(link->queue, &first, &bad));
}
