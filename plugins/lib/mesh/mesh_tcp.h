/*
 * mesh_tcp.h - the TCP transport of a mesh (mesh_transport.h): a link is comm.streams connections.
 * Each connection carries a part of each message, behind a header (tcp_frames.h). Only the kernel
 * copies payload. Both ends of every connection have proven that they belong to the job
 * (tcp_connect.h).
 */
#ifndef DPB_PLUGINS_LIB_MESH_TCP_H
#define DPB_PLUGINS_LIB_MESH_TCP_H

#include "mesh_transport.h"
#include "tcp_connect.h"

/* @owned: its `close`. The options are copied; their strings stay until then. */
dpb_status dpb_mesh_tcp_create(const struct dpb_host *host, const struct dpb_tcp_options *options,
                               struct dpb_mesh_transport **transport);
/* The same over existing connections, n_streams a link (tests). `fds` is @borrowed until
 * `connect`, which takes ownership of the connections. */
dpb_status dpb_mesh_tcp_create_connected(const struct dpb_host *host, uint32_t n_streams,
                                         const int *fds, struct dpb_mesh_transport **transport);

/* The part of a message of `bytes` that stream s of n carries. All ranks derive it from the
 * label. */
struct dpb_range dpb_mesh_tcp_part(uint64_t bytes, uint32_t s, uint32_t n);

#endif
