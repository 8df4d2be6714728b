/* failure.c - see failure.h. */
#include "lib/verbs/failure.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

enum { HINT_BYTES = 512 };

/* ---- completions --------------------------------------------------------------------------- */

/* The name of the enumerator, which manuals and search engines know. */
static const char *status_name(enum ibv_wc_status status)
{
    static const char *const names[] = {
        "IBV_WC_SUCCESS",         "IBV_WC_LOC_LEN_ERR",      "IBV_WC_LOC_QP_OP_ERR",
        "IBV_WC_LOC_EEC_OP_ERR",  "IBV_WC_LOC_PROT_ERR",     "IBV_WC_WR_FLUSH_ERR",
        "IBV_WC_MW_BIND_ERR",     "IBV_WC_BAD_RESP_ERR",     "IBV_WC_LOC_ACCESS_ERR",
        "IBV_WC_REM_INV_REQ_ERR", "IBV_WC_REM_ACCESS_ERR",   "IBV_WC_REM_OP_ERR",
        "IBV_WC_RETRY_EXC_ERR",   "IBV_WC_RNR_RETRY_EXC_ERR"};
    return status < sizeof names / sizeof names[0] ? names[status] : "another status";
}

static void hint_at(const struct link *link, enum ibv_wc_status status, char text[HINT_BYTES])
{
    const struct port *port = link->port;
    switch (status) {
    case IBV_WC_RETRY_EXC_ERR:
        snprintf(
            text, HINT_BYTES,
            "the peer did not answer: it or its link is down; or the packets do not get there: "
            "is GID index %u here (%s) in the network of %u there (%s; comm.gid_index, "
            "comm.interface), and do all switches pass an MTU of %d?",
            port->gid.gid_index, port->address, link->peer_gid_index, link->peer_address,
            128 << link->mtu);
        return;
    case IBV_WC_WR_FLUSH_ERR:
        snprintf(text, HINT_BYTES,
                 "the queue pair is in the error state, and no request of it failed: it was put "
                 "there from outside, or the port or its driver was reset (dmesg tells)");
        return;
    case IBV_WC_RNR_RETRY_EXC_ERR:
        snprintf(text, HINT_BYTES, "the peer had no receive posted: its process may hang");
        return;
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_OP_ERR:
        snprintf(
            text, HINT_BYTES,
            "the peer's device does not let this rank write there: its memory is registered no "
            "more (has it ended?), or could not be pinned (memlock: ulimit -l there)");
        return;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
        snprintf(text, HINT_BYTES,
                 "this rank's device cannot use its memory: it could not be pinned (memlock: "
                 "ulimit -l)");
        return;
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
        snprintf(
            text, HINT_BYTES,
            "the two devices do not agree on a length: MTU %d here; set both ports to the same "
            "MTU, or a smaller comm.chunk",
            128 << link->mtu);
        return;
    case IBV_WC_LOC_QP_OP_ERR:
        snprintf(text, HINT_BYTES,
                 "the device could not send: is the port of %s up? dmesg may tell more",
                 port->name);
        return;
    default:
        snprintf(text, HINT_BYTES, "dmesg may tell more of the device's or its driver's failure");
        return;
    }
}

dpb_status failure_of_completion(const struct dpb_host *host, const struct link *link,
                                 const struct ibv_wc *completion, const char *what)
{
    char hint[HINT_BYTES];
    hint_at(link, completion->status, hint);
    return host->fail(DPB_IO,
                      "RDMA %s rank %u failed: %s (%s, vendor's code 0x%x), queue pair %u of %s to "
                      "%u of %s%s%s; %s",
                      what ? "write to" : "with", link->peer, ibv_wc_status_str(completion->status),
                      status_name(completion->status), completion->vendor_err, link->queue->qp_num,
                      link->port->name, link->peer_queue, link->peer_port, what ? ", " : "",
                      what ? what : "", hint);
}

/* ---- memory -------------------------------------------------------------------------------- */

dpb_status failure_of_registration(const struct dpb_host *host, const char *what, uint64_t bytes,
                                   int error)
{
    struct rlimit limit = {0};
    char hint[HINT_BYTES] = "";
    getrlimit(RLIMIT_MEMLOCK, &limit);
    if (limit.rlim_cur != RLIM_INFINITY && (error == ENOMEM || error == EAGAIN))
        snprintf(
            hint, sizeof hint,
            "; this process may lock %llu bytes, all that it registers together: raise memlock "
            "(ulimit -l unlimited; /etc/security/limits.conf; LimitMEMLOCK=infinity for "
            "slurmd; --ulimit memlock=-1 for a container)",
            (unsigned long long)limit.rlim_cur);
    return host->fail(DPB_IO, "cannot register %s (%llu bytes) with the RDMA device: %s%s", what,
                      (unsigned long long)bytes, strerror(error), hint);
}

/* ---- events -------------------------------------------------------------------------------- */

dpb_status failure_of_event(const struct dpb_host *host, const struct port *port,
                            const struct ibv_async_event *event)
{
    const char *text = ibv_event_type_str(event->event_type);
    switch (event->event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_CQ_ERR:
    case IBV_EVENT_DEVICE_FATAL:
        return host->fail(DPB_IO, "the RDMA device of %s reports: %s; dmesg may tell more",
                          port->name, text);
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_GID_CHANGE:
        host->warn("rdma_port", "%s reports: %s; what is written may not arrive", port->name, text);
        return DPB_OK;
    default:
        host->log(DPB_LOG_DEBUG, "%s reports: %s", port->name, text);
        return DPB_OK;
    }
}
