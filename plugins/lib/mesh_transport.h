/*
 * mesh_transport.h - what a mesh (mesh.h) asks of the network, and what it is told. mesh_tcp.h and
 * verbs/mesh_verbs.h implement it. Links are numbered as the mesh's peers. One thread at a time.
 */
#ifndef DPB_PLUGINS_LIB_MESH_TRANSPORT_H
#define DPB_PLUGINS_LIB_MESH_TRANSPORT_H

#include <poll.h>

#include "mesh.h"

struct mesh_transport_ops {
    /* Collective over all that have links. `args` is @borrowed until it returns, but for what
     * mesh.h says of its members; `mesh` until close. May block and allocate. */
    dpb_status (*connect)(struct mesh_transport *transport, const struct mesh_args *args,
                          struct mesh *mesh);

    /* As the mesh's functions of these names; room is MESH_QUEUE where a link is idle. */
    uint32_t (*room)(const struct mesh_transport *transport, uint32_t link);
    void (*send)(struct mesh_transport *transport, uint32_t link, const struct mesh_label *label,
                 const void *payload);
    dpb_status (*move)(struct mesh_transport *transport, int64_t until_ns, bool *moved);
    /* Descriptors that poll has to look at while there is nothing to do: @borrowed, with what poll
     * said, until the next move. False: there is something to do, and nothing to wait for. */
    uint32_t (*n_watched)(const struct mesh_transport *transport);
    bool (*watch)(struct mesh_transport *transport, struct pollfd *fds);

    void (*close)(struct mesh_transport *transport, bool through); /* frees */
};

/* A transport's own struct begins with it. */
struct mesh_transport {
    const struct mesh_transport_ops *ops;
};

/* ---- what a transport tells the mesh, from within `move` ----------------------------------- */

/* The n-th message of its kind comes over a link: *memory is where its payload belongs. An error,
 * which has its message, where the owner does not expect it. */
dpb_status mesh_begins(const struct mesh *mesh, uint32_t link, uint64_t n,
                       const struct mesh_label *label, void **memory);
/* All of it is there. */
void mesh_arrives(struct mesh *mesh, uint32_t link, const struct mesh_label *label);
/* The good-bye has come. */
void mesh_leaves(struct mesh *mesh, uint32_t link);
/* What came is no message. */
dpb_status mesh_refuse_bytes(const struct mesh *mesh, uint32_t link);

/* "gradients of exchange 3, bucket 1, 4096 bytes for byte 0" */
void mesh_describe(const struct mesh *mesh, const struct mesh_label *label,
                   char text[MESH_TEXT_BYTES]);

#endif
