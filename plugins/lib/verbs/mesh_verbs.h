/*
 * mesh_verbs.h - the transport of a mesh (mesh_transport.h) over RDMA. A link is one connection
 * (RC queue pair).
 *
 * Payload is written directly to its landing in the peer's memory, in as many writes as the port's
 * largest message requires. The last write brings the message's number as immediate data, and a
 * label, written into the next place of the peer's ring of labels. A peer that sees the number has
 * the whole message: requests of a connection take effect in order. Memory is registered once, by
 * the mesh's list of memories. The store holds each rank's landings for its peers.
 *
 * Credits return places for labels: messages without payload whose immediate data count the labels
 * taken since the last credit. Payload needs no credit: see mesh.h.
 *
 * Writes to a rank that has sent its good-bye may fail: the rank needs nothing more, and its queue
 * pair is gone. Any other failed completion is an error.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_MESH_VERBS_H
#define DPB_PLUGINS_LIB_VERBS_MESH_VERBS_H

#include "lib/mesh/mesh_transport.h"
#include "lib/verbs/options.h"

/* Opens the port; `connect` does the rest. The options are copied; their strings stay until
 * `close`. */
dpb_status mesh_verbs_create(const struct dpb_host *host, const struct verbs_options *options,
                             uint32_t local_rank, struct dpb_mesh_transport **transport);

#endif
