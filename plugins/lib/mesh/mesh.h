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
 * Nothing allocates after mesh_open. One thread at a time. Nothing blocks but mesh_open, mesh_wait
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

/* Travels with a message. Both ends know the label before: the receiver compares. */
struct mesh_label {
    uint32_t kind;     /* below MESH_KINDS */
    uint32_t bucket;   /* of the exchange */
    uint64_t exchange; /* since the mesh was opened, from 0 */
    uint64_t at_bytes; /* offset in the receiver's memory for the kind */
    uint64_t bytes;    /* of payload; may be 0 */
    bool or_less;      /* in an expected label: fewer bytes will do; not sent */
    uint64_t word;     /* the sender's; not compared */
};

struct mesh_landing {
    void *memory; /* within one of the mesh's memories; @borrowed until close */
    uint64_t bytes;
};

/* Memory of payload: each payload is sent from one of these memories, or lands in one. RDMA devices
 * register them. */
struct mesh_memory {
    const char *what; /* in messages: "the gradients" */
    void *at;         /* @borrowed until close */
    uint64_t bytes;   /* 0: there is none */
};

/* Another rank. The links have the numbers of mesh_open's peers. */
struct mesh_peer {
    uint32_t rank;
    uint32_t number; /* 0 or 1 among the links of the same two ranks; the same at both ends */
    struct mesh_landing landings[MESH_KINDS];
};

/* The mesh calls these of its owner, within mesh_move. Either `expects` or `begins` is set. */
struct mesh_sink {
    void *owner;
    /* The n-th message of a kind (from 0) arrives over a link: fills in the label that it must
     * have. False: none of this kind may arrive now. May be called several times for one message.
     * TCP calls at the message's first bytes, RDMA when all bytes have arrived. */
    bool (*expects)(void *owner, uint32_t link, uint32_t kind, uint64_t n,
                    struct mesh_label *label);
    /* The same, for an owner that cannot know the next message: refuses a wrong label by
     * host->fail. The mesh compares the label only with the memory that the message lands in. */
    dpb_status (*begins)(void *owner, uint32_t link, uint64_t n, const struct mesh_label *label);
    /* Writes a label's text for errors; NULL: mesh_describe has a text of its own. */
    void (*describe)(const struct mesh_label *label, char text[MESH_TEXT_BYTES]);
    /* All bytes of the message have arrived. */
    void (*arrived)(void *owner, uint32_t link, const struct mesh_label *label);
};

struct mesh_transport;

struct mesh_args {
    const struct dpb_host *host;
    struct mesh_transport *transport; /* @owned by the mesh, also when mesh_open fails */
    const char *name;                 /* prefix of its keys in the store, once a job */
    const char *what;                 /* in messages: "the parameter servers" */
    const char *const *kinds; /* names of the MESH_KINDS kinds in messages; @borrowed until close;
                                 unused if the sink describes labels */
    const char *shape;        /* must be equal at both ends of a link; in messages; NULL: any */
    uint32_t rank;
    uint32_t keeper; /* the rank that makes the secret; it opens the mesh, with peers or without */
    const struct mesh_peer *peers; /* copied */
    uint32_t n_peers;
    const struct mesh_memory *memories; /* @borrowed until mesh_open returns */
    uint32_t n_memories;
    struct doorbell *doorbell; /* ends a mesh_wait; NULL: there is none. @borrowed until close */
    /* Where the other end's process has died, the link is left (mesh_left) and keeps the messages
     * that had arrived. TCP alone. Else mesh_move fails. */
    bool survives;
    struct mesh_sink sink;
};

struct mesh;

/* Collective over all ranks with links. Both ends of a link name it. */
dpb_status mesh_open(const struct mesh_args *args, struct mesh **mesh);
/* Messages that a link accepts now. */
uint32_t mesh_room(const struct mesh *mesh, uint32_t link);
/* Sends a message (there is room). The payload is @borrowed until the link is idle, or until an
 * answer of the peer shows that the message has arrived. */
void mesh_send(struct mesh *mesh, uint32_t link, const struct mesh_label *label,
               const void *payload);
/* Sent messages that the kernel (TCP) or the peer (RDMA) has wholly, in their order. */
uint64_t mesh_sent(const struct mesh *mesh, uint32_t link);
/* Whether the kernel or the peer has all sent messages. */
bool mesh_idle(const struct mesh *mesh, uint32_t link);
/* Messages of a kind that have arrived wholly. */
uint64_t mesh_arrived(const struct mesh *mesh, uint32_t link, uint32_t kind);
/* Whether the other end has closed its mesh with `through`, or died where `survives`. */
bool mesh_left(const struct mesh *mesh, uint32_t link);

/* Does the work that needs no wait, and returns at about until_ns (host->now_ns). *moved: set if
 * bytes arrived, or if more can be sent at once. After an error (message written) only mesh_close
 * may be called. */
dpb_status mesh_move(struct mesh *mesh, int64_t until_ns, bool *moved);
/* Blocks until mesh_move has work, or the doorbell is rung; not at all if the doorbell was rung
 * since the last wait. With comm.poll it polls for some ms before it sleeps. Notes the wait, and
 * fails as host->poll. */
dpb_status mesh_wait(struct mesh *mesh, const struct dpb_wait *what);

/* `through`: sends the peers a good-bye, so that the close is no failure; RDMA waits until they
 * have the good-bye, a second at most. Accepts NULL. */
void mesh_close(struct mesh *mesh, bool through);

/* ---- on the wire, for transports and tests ------------------------------------------------- */

/* Good-bye: this rank sends no more messages. */
#define MESH_BYE ((struct mesh_label){.kind = MESH_KINDS})

void mesh_write_header(uint8_t bytes[MESH_HEADER_BYTES], const struct mesh_label *label);
/* False: the bytes are no header. The label is filled in either way. */
bool mesh_read_header(const uint8_t bytes[MESH_HEADER_BYTES], struct mesh_label *label);

#endif
