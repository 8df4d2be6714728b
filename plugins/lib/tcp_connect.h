/*
 * tcp_connect.h - the TCP connections of a ring: to the next member, from the one before, each
 * proven to belong to the job before anything else that comes over it is looked at.
 *
 * Each member listens at the address of comm.interface and tells it by the store. Whoever else
 * finds the port has a few seconds to prove that he knows the secret, beside which nothing waits:
 * he is dropped, and it is logged.
 */
#ifndef DPB_PLUGINS_LIB_TCP_CONNECT_H
#define DPB_PLUGINS_LIB_TCP_CONNECT_H

#include "lib/tcp_wire.h"

enum { TCP_MOST_STREAMS = 16 };

struct tcp_args {
    const struct dpb_host *host;
    const char *interface; /* comm.interface: as interface.h says */
    int64_t port;          /* comm.port: 0: any free one; else rank r listens at port + r */
    uint32_t n_streams;
    bool one_machine;
};

/* Collective over the ring's members; blocks up to run.timeout_s. The sockets are non-blocking and
 * @owned by the caller; all of them are closed when this fails. `memory` only for what must be
 * equal at both ends of a link. */
dpb_status tcp_connect(const struct tcp_args *args, const struct transport_ring *ring,
                       const struct transport_memory *memory, int to_next[TCP_MOST_STREAMS],
                       int from_previous[TCP_MOST_STREAMS]);

#endif
