/*
 * mesh_links.h - what a mesh (mesh.h), its owner and its transport (mesh_transport.h) tell each
 * other: messages' labels, links and their memory.
 */
#ifndef DPB_PLUGINS_LIB_MESH_LINKS_H
#define DPB_PLUGINS_LIB_MESH_LINKS_H

#include "doorbell.h"

enum {
    DPB_MESH_KINDS = 8,
    DPB_MESH_HEADER_BYTES = 48,
    DPB_MESH_TEXT_BYTES = 200,
    /* Messages of a link that the kernel or the peer does not have yet, at most. */
    DPB_MESH_QUEUE = 16
};

/* Travels with a message. Both ends know the label before: the receiver compares. */
struct dpb_mesh_label {
    uint32_t kind;     /* below DPB_MESH_KINDS */
    uint32_t bucket;   /* of the exchange */
    uint64_t exchange; /* since the mesh was opened, from 0 */
    uint64_t at_bytes; /* offset in the receiver's memory for the kind */
    uint64_t bytes;    /* of payload; may be 0 */
    bool or_less;      /* in an expected label: fewer bytes will do; not sent */
    uint64_t word;     /* the sender's; not compared */
};

struct dpb_mesh_landing {
    void *memory; /* within one of the mesh's memories; @borrowed until close */
    uint64_t bytes;
};

/* Memory of payload: each payload is sent from one of these memories, or lands in one. RDMA devices
 * register them. */
struct dpb_mesh_memory {
    const char *what; /* in messages: "the gradients" */
    void *at;         /* @borrowed until close */
    uint64_t bytes;   /* 0: there is none */
};

/* Another rank. The links have the numbers of dpb_mesh_open's peers. */
struct dpb_mesh_peer {
    uint32_t rank;
    uint32_t number; /* 0 or 1 among the links of the same two ranks; the same at both ends */
    struct dpb_mesh_landing landings[DPB_MESH_KINDS];
};

/* The mesh calls these of its owner, within dpb_mesh_move. Either `expects` or `begins` is set. */
struct dpb_mesh_sink {
    void *owner;
    /* The n-th message of a kind (from 0) arrives over a link: fills in the label that it must
     * have. False: none of this kind may arrive now. May be called several times for one message.
     * TCP calls at the message's first bytes, RDMA when all bytes have arrived. */
    bool (*expects)(void *owner, uint32_t link, uint32_t kind, uint64_t n,
                    struct dpb_mesh_label *label);
    /* The same, for an owner that cannot know the next message: refuses a wrong label by
     * host->fail. The mesh compares the label only with the memory that the message lands in. */
    dpb_status (*begins)(void *owner, uint32_t link, uint64_t n,
                         const struct dpb_mesh_label *label);
    /* Writes a label's text for errors; NULL: dpb_mesh_describe has a text of its own. */
    void (*describe)(const struct dpb_mesh_label *label, char text[DPB_MESH_TEXT_BYTES]);
    /* All bytes of the message have arrived. */
    void (*arrived)(void *owner, uint32_t link, const struct dpb_mesh_label *label);
};

struct dpb_mesh;
struct dpb_mesh_transport;

struct dpb_mesh_args {
    const struct dpb_host *host;
    struct dpb_mesh_transport *transport; /* @owned by the mesh, also when dpb_mesh_open fails */
    const char *name;                     /* prefix of its keys in the store, once a job */
    const char *what;                     /* in messages: "the parameter servers" */
    const char *const
        *kinds;        /* names of the DPB_MESH_KINDS kinds in messages; @borrowed until close;
                                 unused if the sink describes labels */
    const char *shape; /* must be equal at both ends of a link; in messages; NULL: any */
    uint32_t rank;
    uint32_t keeper; /* the rank that makes the secret; it opens the mesh, with peers or without */
    const struct dpb_mesh_peer *peers; /* copied */
    uint32_t n_peers;
    const struct dpb_mesh_memory *memories; /* @borrowed until dpb_mesh_open returns */
    uint32_t n_memories;
    struct dpb_doorbell
        *doorbell; /* ends a dpb_mesh_wait; NULL: there is none. @borrowed until close */
    /* Where the other end's process has died, the link is left (dpb_mesh_left) and keeps the
     * messages that had arrived. TCP alone. Else dpb_mesh_move fails. */
    bool survives;
    struct dpb_mesh_sink sink;
};

#endif
