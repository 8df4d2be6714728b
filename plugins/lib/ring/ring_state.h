/*
 * ring_state.h - shared by the ring's files (ring.h) alone: the ring's state, which bytes travel
 * when (ring_check.c), the way of a chunk (ring_chunks.c).
 */
#ifndef DPB_PLUGINS_LIB_RING_STATE_H
#define DPB_PLUGINS_LIB_RING_STATE_H

#include "lib/ring/ring.h"

/* Links: to the next member, and to the member before. Two members have both links: a connection is
 * faster one way than both ways at once. */
enum { NEXT, PREVIOUS, LINKS };

/* A chunk that may be sent as soon as the link has room. */
struct pending {
    uint32_t round, chunk;
};

/* A bucket on its way round the ring. */
struct flight {
    uint64_t bucket, begin, n;                     /* elements of the arena */
    uint32_t first_round;                          /* 0; a given bucket: of all-gather */
    uint32_t n_to_receive, n_to_reduce, n_to_send; /* chunks */
    uint32_t n_received, n_handed_over, n_sent;
    /* Rounds of which bytes have arrived, and the chunks of these rounds. If all these chunks have
     * arrived and scatter-reduce is not over, the bucket waits for a peer. */
    uint32_t rounds_begun, n_begun;
    int64_t waits_from_ns;
    int64_t began_ns;  /* start of the next span; 0: no chunk arrived or left since the last */
    uint32_t n_queued; /* since the bucket was posted: the queue's end; n_handed_over is its head */
    struct pending *queue;
    uint64_t *seen; /* a bit for each chunk of each round */
};

/* A slot of the own inbox, and the slot of the same number in the next member's inbox. */
struct slot {
    bool lent;  /* the next member's: a chunk is under way to it, or lies in it */
    bool taken; /* the own: a chunk is in it, or the member before has no credit for it yet */
    bool held;  /* the own: its chunk came before this member was ready for it */
    struct mesh_label label; /* of the chunk that is held */
};

/* A chunk that the mesh has not sent yet. */
struct sending {
    uint64_t bucket, bytes;
};

struct ring {
    struct sums sums;
    struct ring_args args;
    struct ring_shards gathered; /* carried by the all-gather rounds; without `make` the sums */
    struct mesh *mesh;           /* NULL: there is one member */
    dpb_status status;           /* a failure in a function that returns no status */
    uint64_t chunk_elements;
    uint32_t max_chunks; /* of a slice */
    uint32_t queue_size, n_seen_words;
    uint32_t reserve;              /* credits that are left to the oldest bucket */
    uint64_t n_begun[RING_CREDIT]; /* chunks of each kind that arrived at least in part */
    uint32_t n_arriving;           /* chunks that arrived only in part */
    int64_t last_ns;               /* when the last chunk had arrived */
    struct flight flights[RING_WINDOW];
    struct slot *slots;
    uint32_t *free_slots, n_free; /* of the next member's inbox: the last one returned on top */
    uint64_t *released;           /* a bit for each slot of the own inbox: there is no credit yet */
    uint32_t n_released;
    struct sending sending[MESH_QUEUE];
    uint64_t ahead_bytes;             /* of the chunks there */
    uint64_t n_messages, n_completed; /* chunks handed over, and sent */
    struct pending *queues;
    uint64_t *seens;
};

/* ---- which bytes travel when --------------------------------------------------------------- */

static inline uint32_t n_members(const struct ring *ring)
{
    return ring->args.members.n_members;
}

static inline uint32_t n_rounds(const struct ring *ring)
{
    return 2 * (n_members(ring) - 1);
}

static inline bool reduces(const struct ring *ring, uint32_t round)
{
    return round + 1 < n_members(ring);
}

static inline bool gives(const struct ring *ring)
{
    return ring->args.shards.arena && !ring->args.shards.make;
}

static inline bool is_given(const struct flight *flight)
{
    return flight->first_round > 0;
}

/* The bucket's number in messages: a given bucket has the number of its sums. */
static inline uint64_t bucket_of(const struct ring *ring, const struct flight *flight)
{
    if (ring->args.names)
        return ring->args.names[flight->bucket];
    return gives(ring) ? flight->bucket % (ring->args.n_buckets / 2) : flight->bucket;
}

/* The slice that the member at `position` sends in a round. */
static inline uint32_t slice_sent(const struct ring *ring, uint32_t position, uint32_t round)
{
    return (position + 2 * n_members(ring) - round) % n_members(ring);
}

static inline uint32_t own_slice(const struct ring *ring, uint32_t round)
{
    return slice_sent(ring, ring->args.members.position, round);
}

static inline uint32_t incoming_slice(const struct ring *ring, uint32_t round)
{
    return slice_sent(ring, ring->args.members.position + n_members(ring) - 1, round);
}

static inline uint32_t round_of(const struct mesh_label *label)
{
    return (uint32_t)(label->word >> 32);
}

static inline uint32_t chunk_of(const struct mesh_label *label)
{
    return (uint32_t)label->word;
}

static inline struct flight *flight_of(struct ring *ring, uint64_t bucket)
{
    return &ring->flights[bucket % RING_WINDOW];
}

/* Groups of 64 slots; one credit returns slots of one group. */
static inline uint32_t n_groups(const struct ring *ring)
{
    return (ring->args.memory.n_slots + 63) / 64;
}

static inline uint32_t slot_of(const struct ring *ring, const struct mesh_label *label)
{
    return (uint32_t)(label->at_bytes / ring->args.memory.slot_bytes);
}

/* Takes the lowest slot out of a credit. */
static inline uint32_t take_slot(uint32_t group, uint64_t *slots)
{
    uint32_t slot = group * 64 + (uint32_t)__builtin_ctzll(*slots);
    *slots &= *slots - 1;
    return slot;
}

uint32_t ring_count_chunks(const struct ring *ring, const struct flight *flight, uint32_t slice);
/* Its at_bytes is the chunk's place in either arena; of partial sums a slot's place is sent. */
struct mesh_label ring_label(const struct ring *ring, const struct flight *flight, uint32_t slice,
                             uint32_t round, uint32_t chunk);

/* ---- labels that are refused (ring_check.c) ------------------------------------------------- */

dpb_status ring_refuse(const struct ring *ring, const struct mesh_label *label,
                       const char *expected);
/* Whether a label is one that its bucket's flight expects. */
dpb_status ring_check_label(const struct ring *ring, const struct flight *flight,
                            const struct mesh_label *label);
/* A label that is not under way here may belong to a bucket that backward has not reached, or to
 * the next step of a member that has finished this step before. */
dpb_status ring_check_early(const struct ring *ring, const struct mesh_label *label);
/* A chunk of partial sums lands at the beginning of a slot, which a credit was sent for. */
dpb_status ring_check_slot(const struct ring *ring, const struct mesh_label *label);
dpb_status ring_check_credit(const struct ring *ring, uint32_t link,
                             const struct mesh_label *label);
/* Each chunk comes once. */
dpb_status ring_see(const struct ring *ring, struct flight *flight, const struct mesh_label *label);

/* ---- a chunk's way (ring_chunks.c) ---------------------------------------------------------- */

struct mesh_sink ring_sink(struct ring *ring);
void ring_queue_chunk(struct ring *ring, struct flight *flight, uint32_t round, uint32_t chunk);
/* A chunk that is all here, of a bucket that is under way. */
dpb_status ring_take(struct ring *ring, struct flight *flight, const struct mesh_label *label);
/* A bucket is finished when nothing of it will be read or written here any more. */
void ring_finish_if_complete(struct ring *ring, struct flight *flight);
void ring_hand_over(struct ring *ring, bool *moved); /* what may be sent of all buckets */
void ring_give_back(struct ring *ring);              /* credits; many at once */
void ring_note_sent(struct ring *ring);              /* payload of what is sent may be written */

#endif
