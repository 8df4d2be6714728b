/*
 * transport.h - what a ring (ring.h) asks of the network: chunks to the next member, chunks from
 * the one before. TCP and verbs implement it, and a queue in memory for the ring's tests.
 *
 * A link leads from a member to the next one. Over it travel chunks: a label, which says what the
 * bytes are, and a range of the sender's gradient arena. Nothing is copied on the way but by the
 * kernel or the NIC: a transport reads the payload where it lies, and it lands in one of two places
 *
 *   - the inbox: `n_slots` slots of `slot_bytes` in the receiver's scratch. A sender takes a slot
 *     by a credit and gets it back when the receiver has released it, so an inbox chunk never waits
 *     in the network for memory, and none blocks another;
 *   - the arena: the same offset in the receiver's gradient arena. The ring sends there only what
 *     the receiver is ready for (its own part of the sum lies behind it), so no credit is needed.
 *
 * One thread at a time calls everything but `wake`. Callbacks come from within `move`, in any order
 * of chunks: a transport may have several connections. Nothing allocates after `connect`.
 */
#ifndef DPB_PLUGINS_LIB_TRANSPORT_H
#define DPB_PLUGINS_LIB_TRANSPORT_H

#include "dpbench/host.h"

enum transport_landing { TRANSPORT_INBOX, TRANSPORT_ARENA };

/* What the bytes are. Goes with every chunk; both ends compute it, and the receiver compares. */
struct transport_label {
    uint64_t step;     /* struct dpb_step.step: of the exchange */
    uint32_t bucket;   /* of the exchange */
    uint32_t round;    /* of the ring, from 0 */
    uint32_t chunk;    /* of the slice that travels in this round */
    uint32_t landing;  /* enum transport_landing */
    uint64_t at_bytes; /* where the chunk begins in either arena */
    uint64_t bytes;    /* of payload, 1 .. slot_bytes */
};

/* Who takes part, and what the link's ends are called in messages. */
struct transport_ring {
    const char *name;        /* of this ring, once a job: prefix of its keys in the store */
    const uint32_t *members; /* ranks in the order of the ring; @borrowed until close */
    uint32_t n_members;      /* 2 or more */
    uint32_t position;       /* of this rank */
    /* NULL; or a descriptor that ends a `wait` when it is readable, whatever it says: its owner
     * reads it (doorbell.h). @borrowed until close. */
    const int *bell;
};

/* Where chunks come from and land. @borrowed until close. The arena has the same size everywhere.
 * */
struct transport_memory {
    void *arena;
    uint64_t arena_bytes;
    void *inbox; /* n_slots * slot_bytes, aligned to a cache line */
    uint32_t n_slots;
    uint64_t slot_bytes; /* of payload; a multiple of DPB_CACHE_LINE */
};

/* What a transport tells the ring. Errors of the callbacks have their message: `move` returns them.
 * */
struct transport_sink {
    void *ring;
    /* A chunk begins to arrive. Refuses (host->fail, naming what came and what was expected) what
     * does not belong to this ring. A transport whose receiver chooses the address calls it before
     * a byte of payload is written, one whose sender does just before `arrived`. */
    dpb_status (*begins)(void *ring, const struct transport_label *label);
    /* All of it is there: at `payload`, in slot `slot` (of the inbox; UINT32_MAX: in the arena).
     * The ring keeps a slot until it calls `release`, which may be from within. */
    dpb_status (*arrived)(void *ring, const struct transport_label *label, const void *payload,
                          uint32_t slot);
    /* The payload of a chunk that was sent is read no more: its memory may be written again. */
    void (*sent)(void *ring, const struct transport_label *label);
};

struct transport;

struct transport_ops {
    /* Collective over the members: link to the next, link from the one before, memory registered,
     * addresses and keys exchanged, the secret proven. May block and allocate. */
    dpb_status (*connect)(struct transport *transport, const struct transport_ring *ring,
                          const struct transport_memory *memory, const struct transport_sink *sink);

    /* Inbox chunks that could be sent now: credits. */
    uint32_t (*room)(const struct transport *transport);
    /* Takes a chunk on for sending, in parts as the network takes it; the payload is arena +
     * label->at_bytes and stays as it is until `sent`. False: not now (no credit, queues full), to
     * be tried again after a `move`. */
    bool (*send)(struct transport *transport, const struct transport_label *label);
    /* Does what can be done without waiting: sends, receives, calls the sink; returns after about
     * until_ns (host->now_ns), at the earliest after one chunk. *moved: set where something came,
     * or more could be sent right now. */
    dpb_status (*move)(struct transport *transport, int64_t until_ns, bool *moved);
    /* A received slot is free again; slots may be released in any order. */
    void (*release)(struct transport *transport, uint32_t slot);

    /* Blocks until `move` could do something, or `wake` was called; the deadline and the end of the
     * job as for host->poll, whose message `what` makes. May return early. */
    dpb_status (*wait)(struct transport *transport, const struct dpb_wait *what);
    /* Any thread: ends a `wait`, or the next one if none is under way. Never blocks; costs a system
     * call only when somebody waits. */
    void (*wake)(struct transport *transport);

    /* Never waits for a peer. Memory is read and written no more when it returns. */
    void (*close)(struct transport *transport); /* accepts NULL; frees */
};

/* A transport's own struct begins with it. Made by the plugin's `open`, closed by the ring. */
struct transport {
    const struct transport_ops *ops;
};

static inline uint32_t transport_next(const struct transport_ring *ring)
{
    return ring->members[(ring->position + 1) % ring->n_members];
}

static inline uint32_t transport_previous(const struct transport_ring *ring)
{
    return ring->members[(ring->position + ring->n_members - 1) % ring->n_members];
}

#endif
