/*
 * mesh_transport.h - the calls from a mesh (mesh.h) to the network, and from the network to the
 * mesh. mesh_tcp.h and verbs/mesh_verbs.h implement them. Links have the numbers of the mesh's
 * peers. One thread at a time.
 */
#ifndef DPB_PLUGINS_LIB_MESH_TRANSPORT_H
#define DPB_PLUGINS_LIB_MESH_TRANSPORT_H

#include <poll.h>

#include "mesh_links.h"

struct dpb_mesh_transport_ops {
    /* Collective over all ranks with links. `args` is @borrowed until the return (members for which
     * mesh.h says otherwise, as there), `mesh` until close. May block and allocate. */
    dpb_status (*connect)(struct dpb_mesh_transport *transport, const struct dpb_mesh_args *args,
                          struct dpb_mesh *mesh);

    /* As the mesh's functions of these names; room is DPB_MESH_QUEUE if a link is idle. */
    uint32_t (*room)(const struct dpb_mesh_transport *transport, uint32_t link);
    void (*send)(struct dpb_mesh_transport *transport, uint32_t link,
                 const struct dpb_mesh_label *label, const void *payload);
    dpb_status (*move)(struct dpb_mesh_transport *transport, int64_t until_ns, bool *moved);
    /* Descriptors for poll(2) while there is no work: @borrowed, with poll's revents, until the
     * next move. False: there is work, so do not wait. */
    uint32_t (*n_watched)(const struct dpb_mesh_transport *transport);
    bool (*watch)(struct dpb_mesh_transport *transport, struct pollfd *fds);

    void (*close)(struct dpb_mesh_transport *transport, bool through); /* frees */
};

/* A transport's own struct begins with it. */
struct dpb_mesh_transport {
    const struct dpb_mesh_transport_ops *ops;
};

/* ---- a transport's calls to the mesh, within `move` ---------------------------------------- */

/* The n-th message of its kind arrives over a link: *memory is the place of its payload. Fails
 * (message written) if the owner does not expect the message. */
dpb_status dpb_mesh_begins(const struct dpb_mesh *mesh, uint32_t link, uint64_t n,
                           const struct dpb_mesh_label *label, void **memory);
/* All bytes of the message have arrived. */
void dpb_mesh_arrives(struct dpb_mesh *mesh, uint32_t link, const struct dpb_mesh_label *label);
/* The good-bye has arrived. */
void dpb_mesh_leaves(struct dpb_mesh *mesh, uint32_t link);
/* Refuses bytes that are no message. */
dpb_status dpb_mesh_refuse_bytes(const struct dpb_mesh *mesh, uint32_t link);

/* "gradients of exchange 3, bucket 1, 4096 bytes for byte 0" */
void dpb_mesh_describe(const struct dpb_mesh *mesh, const struct dpb_mesh_label *label,
                       char text[DPB_MESH_TEXT_BYTES]);

/* ---- on the wire, for tests, too ------------------------------------------------- */

/* Good-bye: this rank sends no more messages. */
#define DPB_MESH_BYE ((struct dpb_mesh_label){.kind = DPB_MESH_KINDS})

void dpb_mesh_write_header(uint8_t bytes[DPB_MESH_HEADER_BYTES],
                           const struct dpb_mesh_label *label);
/* False: the bytes are no header. The label is filled in either way. */
bool dpb_mesh_read_header(const uint8_t bytes[DPB_MESH_HEADER_BYTES], struct dpb_mesh_label *label);

#endif
