/*
 * mesh_verbs.h - the transport of a mesh (lib/mesh_transport.h) over RDMA. A link is one connection
 * (RC queue pair).
 *
 * Payload is written straight to where it belongs in the peer's memory, in as many writes as the
 * port's largest message makes necessary. With the last one come a label, written into the next
 * place of a ring of labels there, and the message's number as immediate data: who sees the number
 * has all of it (requests of a connection take effect in order). Memory is registered once, by the
 * mesh's list of memories; where its kinds of messages land is told to each peer by the store.
 *
 * Places for labels are given back by credits: messages without payload whose immediate data say
 * how many labels were taken since the last one. Payload needs none: see mesh.h.
 *
 * What goes to a rank that has said good-bye may fail: it has all it needs, and its queue pair is
 * gone. Any other failed completion is an error.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_MESH_VERBS_H
#define DPB_PLUGINS_LIB_VERBS_MESH_VERBS_H

#include "lib/mesh_transport.h"
#include "lib/verbs/options.h"

/* Opens the port; `connect` does the rest. The options are copied; their strings stay until
 * `close`. */
dpb_status mesh_verbs_create(const struct dpb_host *host, const struct verbs_options *options,
                             uint32_t local_rank, struct mesh_transport **transport);

#endif
