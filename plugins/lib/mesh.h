/*
 * mesh.h - messages between any two ranks over TCP, for strategies whose ranks are no ring: a
 * server and its many workers. Beside transport.h, which is a ring's: there a rank hears from one
 * other rank, and what comes early needs slots and credits.
 *
 * A link is `n_streams` connections between two ranks, both ways. A message has a kind, and lands
 * where the receiver has said messages of its kind from this rank do, at a place that its label
 * names: in the arena itself, or in memory kept for this sender. So no message waits for memory, and
 * none needs a credit: who uses the mesh sends only what the receiver's memory is free for, which
 * its own exchange has to assure, and the receiver says of each that comes which one it has to be.
 *
 * Messages of a kind arrive in the order in which they were sent. Each goes over all streams of its
 * link, a part over each. Payload is copied by the kernel alone. Every connection has proven that
 * it belongs to the job (tcp_connect.h).
 *
 * Nothing allocates after mesh_open. One thread at a time; nothing blocks but mesh_open, and whoever
 * waits for mesh_watch's descriptors.
 */
#ifndef DPB_PLUGINS_LIB_MESH_H
#define DPB_PLUGINS_LIB_MESH_H

#include <poll.h>

#include "lib/tcp.h"

enum { MESH_KINDS = 8 };

/* What a message is; goes with it. Both ends know it before: the receiver compares. */
struct mesh_label {
    uint32_t kind;     /* below MESH_KINDS */
    uint32_t bucket;   /* of the exchange */
    uint64_t exchange; /* since the mesh was opened, from 0 */
    uint64_t at_bytes; /* where it lands in the receiver's memory for its kind */
    uint64_t bytes;    /* of payload; may be 0 */
    uint64_t word;     /* the sender's to say: not compared */
};

struct mesh_landing {
    void *memory; /* @borrowed until close */
    uint64_t bytes;
};

/* Another rank, as given to mesh_open; links are numbered as they are there. */
struct mesh_peer {
    uint32_t rank;
    struct mesh_landing landings[MESH_KINDS];
};

/* What the mesh asks of the strategy, from within mesh_move. */
struct mesh_sink {
    void *owner;
    /* The n-th message of a kind (from 0) begins to come over a link: which one is it to be? False:
     * none of this kind is to come now. Called once for each stream. */
    bool (*expects)(void *owner, uint32_t link, uint32_t kind, uint64_t n,
                    struct mesh_label *label);
    /* All of it is here. */
    void (*arrived)(void *owner, uint32_t link, const struct mesh_label *label);
};

struct mesh_args {
    const struct dpb_host *host;
    const struct tcp_options *options; /* @borrowed until mesh_open returns */
    const char *name;                  /* prefix of its keys in the store, once a job */
    const char *what;                  /* in messages: "the parameter servers" */
    const char *const *kinds;          /* their names there, MESH_KINDS; @borrowed until close */
    uint32_t rank;
    uint32_t keeper; /* the rank that makes the secret; it opens the mesh, with peers or without */
    const struct mesh_peer *peers; /* copied */
    uint32_t n_peers;
    struct mesh_sink sink;
};

struct mesh;

/* Collective over all that have links, each of which stands on both its ends. */
dpb_status mesh_open(const struct mesh_args *args, struct mesh **mesh);
/* The same over connections that are there already, n_streams of them a link (tests). */
dpb_status mesh_open_connected(const struct mesh_args *args, uint32_t n_streams, const int *fds,
                               struct mesh **mesh);

/* Messages that a link takes on now. */
uint32_t mesh_room(const struct mesh *mesh, uint32_t link);
/* Takes a message on (there is room). The payload is read until the kernel has it: @borrowed until
 * the link is idle, or until an answer says that it has come. */
void mesh_send(struct mesh *mesh, uint32_t link, const struct mesh_label *label,
               const void *payload);
/* Whether the kernel has all that was sent over a link. */
bool mesh_idle(const struct mesh *mesh, uint32_t link);
/* Messages of a kind that have come whole. */
uint64_t mesh_arrived(const struct mesh *mesh, uint32_t link, uint32_t kind);
/* Whether the other end has closed its mesh, as who is through does. */
bool mesh_left(const struct mesh *mesh, uint32_t link);

/* Does what can be done without waiting, and returns after about until_ns (host->now_ns). *moved:
 * set where something came, or more could be sent right now. An error has its message; after one the
 * mesh is good for mesh_close alone. */
dpb_status mesh_move(struct mesh *mesh, int64_t until_ns, bool *moved);
/* Descriptors that poll has to look at while there is nothing to do. */
uint32_t mesh_n_watched(const struct mesh *mesh);
void mesh_watch(const struct mesh *mesh, struct pollfd *fds);

/* `through`: tells the peers that this is no failure: nothing is to come any more. Never waits; accepts
 * NULL. */
void mesh_close(struct mesh *mesh, bool through);

/* ---- on the wire, for tests ---------------------------------------------------------------- */

void mesh_write_header(uint8_t bytes[TCP_FRAME_BYTES], const struct mesh_label *label);
/* False: it is none. The label is filled in either way. */
bool mesh_read_header(const uint8_t bytes[TCP_FRAME_BYTES], struct mesh_label *label);
/* The part of a message of `bytes` that stream s of n carries: all know it by the label. */
struct dpb_range mesh_part(uint64_t bytes, uint32_t s, uint32_t n);

#endif
