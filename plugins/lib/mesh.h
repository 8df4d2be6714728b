/*
 * mesh.h - messages between any two ranks: of a ring (ring.h), or of a server and its many workers.
 * By a transport (mesh_transport.h), TCP or RDMA.
 *
 * A link joins two ranks, both ways. A message has a kind, and lands where the receiver has said
 * messages of its kind from this rank do, at a place that its label names: in the arena itself, or
 * in memory kept for this sender. So no message waits for memory, and none needs a credit: who uses
 * the mesh sends only what the receiver's memory is free for, which its own exchange or messages of
 * its own (the credits of ring.h) have to assure. The receiver checks each message that comes.
 *
 * Messages of a kind arrive in the order in which they were sent. Payload is copied by the kernel
 * alone, or by nobody.
 *
 * Nothing allocates after mesh_open. One thread at a time; nothing blocks but mesh_open, mesh_wait
 * and, for a moment, mesh_close.
 */
#ifndef DPB_PLUGINS_LIB_MESH_H
#define DPB_PLUGINS_LIB_MESH_H

#include "doorbell.h"

enum {
    MESH_KINDS = 8,
    MESH_HEADER_BYTES = 48,
    MESH_QUEUE = 16, /* messages of a link that the kernel or the peer does not have yet, at most */
    MESH_TEXT_BYTES = 200
};

/* What a message is; goes with it. Both ends know it before: the receiver compares. */
struct mesh_label {
    uint32_t kind;     /* below MESH_KINDS */
    uint32_t bucket;   /* of the exchange */
    uint64_t exchange; /* since the mesh was opened, from 0 */
    uint64_t at_bytes; /* where it lands in the receiver's memory for its kind */
    uint64_t bytes;    /* of payload; may be 0 */
    bool or_less;      /* of what is expected: fewer bytes will do; does not go with the message */
    uint64_t word;     /* the sender's to say: not compared */
};

struct mesh_landing {
    void *memory; /* within one of the mesh's memories; @borrowed until close */
    uint64_t bytes;
};

/* Memory that payload is sent from or lands in: all of it is in one of these. RDMA devices are
 * told. */
struct mesh_memory {
    const char *what; /* in messages: "the gradients" */
    void *at;         /* @borrowed until close */
    uint64_t bytes;   /* 0: there is none */
};

/* Another rank, as given to mesh_open; links are numbered as they are there. */
struct mesh_peer {
    uint32_t rank;
    uint32_t number; /* of the links between the same two ranks: 0 or 1, the same at both ends */
    struct mesh_landing landings[MESH_KINDS];
};

/* What the mesh asks of its owner, from within mesh_move. Of `expects` and `begins` one is set. */
struct mesh_sink {
    void *owner;
    /* The n-th message of a kind (from 0) begins to come over a link: which one is it to be? False:
     * none of this kind is to come now. May be called several times for one message. By TCP that is
     * when its first bytes are here, by RDMA when all of it is. */
    bool (*expects)(void *owner, uint32_t link, uint32_t kind, uint64_t n,
                    struct mesh_label *label);
    /* The same, for an owner that cannot tell which message is next: refuses a wrong one, with the
     * message. The mesh compares the label with the memory that it lands in alone. */
    dpb_status (*begins)(void *owner, uint32_t link, uint64_t n, const struct mesh_label *label);
    /* How messages call a label; NULL: as mesh_describe does by itself. */
    void (*describe)(const struct mesh_label *label, char text[MESH_TEXT_BYTES]);
    /* All of it is here. */
    void (*arrived)(void *owner, uint32_t link, const struct mesh_label *label);
};

struct mesh_transport;

struct mesh_args {
    const struct dpb_host *host;
    struct mesh_transport *transport; /* the mesh's from mesh_open on, also where that fails */
    const char *name;                 /* prefix of its keys in the store, once a job */
    const char *what;                 /* in messages: "the parameter servers" */
    const char *const *kinds; /* their names there, MESH_KINDS; @borrowed until close; unused where
                                 the sink describes labels */
    const char *shape; /* as said in messages: must be equal at both ends of a link; NULL: any */
    uint32_t rank;
    uint32_t keeper; /* the rank that makes the secret; it opens the mesh, with peers or without */
    const struct mesh_peer *peers; /* copied */
    uint32_t n_peers;
    const struct mesh_memory *memories; /* @borrowed until mesh_open returns */
    uint32_t n_memories;
    struct doorbell *doorbell; /* ends a mesh_wait; NULL: there is none. @borrowed until close */
    /* Whether a link is left (mesh_left), with what had come whole, where the other end's process
     * has died: TCP alone. Else mesh_move fails. */
    bool survives;
    struct mesh_sink sink;
};

struct mesh;

/* Collective over all that have links, each of which stands on both its ends. */
dpb_status mesh_open(const struct mesh_args *args, struct mesh **mesh);
/* Messages that a link takes on now. */
uint32_t mesh_room(const struct mesh *mesh, uint32_t link);
/* Takes a message on (there is room). The payload is read until the kernel or the peer has it:
 * @borrowed until the link is idle, or until an answer says that it has come. */
void mesh_send(struct mesh *mesh, uint32_t link, const struct mesh_label *label,
               const void *payload);
/* Messages sent over a link that the kernel (TCP) or the peer (RDMA) has wholly, in their order. */
uint64_t mesh_sent(const struct mesh *mesh, uint32_t link);
/* Whether it has all of them. */
bool mesh_idle(const struct mesh *mesh, uint32_t link);
/* Messages of a kind that have come whole. */
uint64_t mesh_arrived(const struct mesh *mesh, uint32_t link, uint32_t kind);
/* Whether the other end has closed its mesh, as who is through does. */
bool mesh_left(const struct mesh *mesh, uint32_t link);

/* Does what can be done without waiting, and returns after about until_ns (host->now_ns). *moved:
 * set where something came, or more could be sent right now. An error has its message; after one
 * the mesh is good for mesh_close alone. */
dpb_status mesh_move(struct mesh *mesh, int64_t until_ns, bool *moved);
/* Blocks until mesh_move may do something, or the doorbell is rung; not at all if it was rung since
 * the last wait. Where comm.poll says so it looks for some ms before it sleeps. Notes the wait, and
 * fails as host->poll. */
dpb_status mesh_wait(struct mesh *mesh, const struct dpb_wait *what);

/* `through`: tells the peers that this is no failure: nothing is to come any more; RDMA waits for a
 * second at most until they know. Accepts NULL. */
void mesh_close(struct mesh *mesh, bool through);

/* ---- on the wire, for transports and tests ------------------------------------------------- */

/* Good-bye: nothing more comes from this rank. */
#define MESH_BYE ((struct mesh_label){.kind = MESH_KINDS})

void mesh_write_header(uint8_t bytes[MESH_HEADER_BYTES], const struct mesh_label *label);
/* False: it is none. The label is filled in either way. */
bool mesh_read_header(const uint8_t bytes[MESH_HEADER_BYTES], struct mesh_label *label);

#endif
