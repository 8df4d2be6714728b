/*
 * mesh.h - messages between any two ranks, for a ring (ring.h) or a server and its many workers. A
 * transport (mesh_transport.h) carries them: TCP or RDMA.
 *
 * A link joins two ranks, both ways. A message has a kind and a label. It lands in the memory that
 * the receiver has named for this kind from this rank, at the offset in the label: in the arena
 * itself, or in memory kept for this sender. So no message waits for memory, and none needs a
 * credit. In return the mesh's owner sends a message only if the receiver's memory for it is free,
 * by its own exchange or by messages of its own (the credits of ring.h). The receiver checks each
 * message.
 *
 * Messages of a kind arrive in the order in which they were sent. The kernel alone copies payload,
 * or nothing does.
 *
 * Nothing allocates after dpb_mesh_open. One thread at a time. Nothing blocks but dpb_mesh_open,
 * dpb_mesh_wait and, for a moment, dpb_mesh_close.
 */
#ifndef DPB_PLUGINS_LIB_MESH_H
#define DPB_PLUGINS_LIB_MESH_H

#include "mesh_links.h"

/* Collective over all ranks with links. Both ends of a link name it. */
dpb_status dpb_mesh_open(const struct dpb_mesh_args *args, struct dpb_mesh **mesh);
/* Messages that a link accepts now. */
uint32_t dpb_mesh_room(const struct dpb_mesh *mesh, uint32_t link);
/* Sends a message (there is room). The payload is @borrowed until the link is idle, or until an
 * answer of the peer shows that the message has arrived. */
void dpb_mesh_send(struct dpb_mesh *mesh, uint32_t link, const struct dpb_mesh_label *label,
                   const void *payload);
/* Sent messages that the kernel (TCP) or the peer (RDMA) has wholly, in their order. */
uint64_t dpb_mesh_sent(const struct dpb_mesh *mesh, uint32_t link);
/* Whether the kernel or the peer has all sent messages. */
bool dpb_mesh_idle(const struct dpb_mesh *mesh, uint32_t link);
/* Messages of a kind that have arrived wholly. */
uint64_t dpb_mesh_arrived(const struct dpb_mesh *mesh, uint32_t link, uint32_t kind);
/* Whether the other end has closed its mesh with `through`, or died where `survives`. */
bool dpb_mesh_left(const struct dpb_mesh *mesh, uint32_t link);

/* Does the work that needs no wait, and returns at about until_ns (host->now_ns). *moved: set if
 * bytes arrived, or if more can be sent at once. After an error (message written) only
 * dpb_mesh_close may be called. */
dpb_status dpb_mesh_move(struct dpb_mesh *mesh, int64_t until_ns, bool *moved);
/* Blocks until dpb_mesh_move has work, or the doorbell is rung; not at all if the doorbell was rung
 * since the last wait. With comm.poll it polls for some ms before it sleeps. Notes the wait, and
 * fails as host->poll. */
dpb_status dpb_mesh_wait(struct dpb_mesh *mesh, const struct dpb_wait *what);

/* `through`: sends the peers a good-bye, so that the close is no failure; RDMA waits until they
 * have the good-bye, a second at most. Accepts NULL. */
void dpb_mesh_close(struct dpb_mesh *mesh, bool through);

#endif
