/*
 * ring.h - the ring all-reduce: scatter-reduce, then all-gather, chunked, over a mesh (mesh.h) with
 * links to the two neighbours.
 *
 * A bucket is cut into W slices, one a member. In round k the member at position p sends slice
 * p - k to the next one and receives slice p - 1 - k (modulo W) from the one before. For W - 1
 * rounds it adds its own part to what it received; then it holds slice p + 1 summed over all, and
 * for W - 1 rounds sums are passed on. A chunk that came in round k is the one to be sent in round
 * k + 1, so receiving, reducing and sending overlap within a bucket, and several buckets are under
 * way at once.
 *
 * A member sends 2 (W - 1)/W of the bucket's bytes, whatever W is: the least that an all-reduce
 * can. The order in which a slice is summed is that of the ring from the slice's own position on:
 * the same bits on all members, whenever chunks arrive.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. JPDC 2009.
 * Gibiansky: Bringing HPC techniques to deep learning. Baidu Research, 2017.
 *
 * Why sums may land in the arena unasked: what arrives in an all-gather round contains this
 * member's own part of that slice, so its gradients of the bucket are final; and it has sent that
 * part, which nobody will read here again. Gradients are written again only when the bucket is
 * finished, and finished are all sends and receives of it.
 *
 * With shards (struct ring_shards) the sum of a slice is made into something else where it is
 * complete, and that goes round in the all-gather rounds, from and into an arena of its own.
 *
 * If that needs the sums of all buckets, members post all buckets for sums and then give them again
 * (ring_give): a given bucket has the all-gather rounds alone. A member may give long before the
 * next one, which still reads what its own arena has. So given chunks land in the inbox, and a
 * member copies them into its arena once it has given the bucket itself.
 *
 * Messages on the links. Payload is sent from the sender's arena.
 *
 *     partial sums  to the next member: a chunk of scatter-reduce, or of a bucket that is given,
 *                   into a slot of its inbox
 *     sums          to the next member: a chunk of all-gather, into the same place of its arena, or
 *                   of that of the shards
 *     credit        to the member before: slots of the inbox that are free again
 *
 * A sender uses a slot that it has a credit for. So partial sums never wait in the network for
 * memory, and no chunk blocks another.
 *
 * One thread at a time. Nothing allocates after ring_create.
 */
#ifndef DPB_PLUGINS_LIB_RING_H
#define DPB_PLUGINS_LIB_RING_H

#include "mesh.h"

enum { RING_WINDOW = 16 /* buckets under way at once */ };

/* The members, and what messages call them. */
struct ring_members {
    const char *name; /* of this ring, once a job: prefix of its keys in the store */
    /* Ranks in the order of the ring; NULL: 0, 1, ... @borrowed until destroy. */
    const uint32_t *members;
    uint32_t n_members;
    uint32_t position;         /* of this rank */
    struct doorbell *doorbell; /* ends a wait; NULL: there is none. @borrowed until destroy */
};

static inline uint32_t ring_rank_at(const struct ring_members *ring, uint32_t position)
{
    position %= ring->n_members;
    return ring->members ? ring->members[position] : position;
}

static inline uint32_t ring_own(const struct ring_members *ring)
{
    return ring_rank_at(ring, ring->position);
}

static inline uint32_t ring_next(const struct ring_members *ring)
{
    return ring_rank_at(ring, ring->position + 1);
}

static inline uint32_t ring_previous(const struct ring_members *ring)
{
    return ring_rank_at(ring, ring->position + ring->n_members - 1);
}

/* Where chunks come from and land. @borrowed until ring_destroy. Sizes are the same everywhere. */
struct ring_memory {
    void *arena;
    uint64_t arena_bytes;
    void *inbox; /* n_slots * slot_bytes, aligned to a cache line */
    uint32_t n_slots;
    uint64_t slot_bytes; /* of payload; a multiple of DPB_CACHE_LINE */
};

/* New weights, which all members get. Zeroed: they get sums alone. */
struct ring_shards {
    void *arena; /* as many elements as the ring's arena, of `type`; @borrowed as that one */
    dpb_dtype type;
    /* Makes elements [begin, begin + n) of this arena: those of the ring's arena are sums. They are
     * of the slice that this member owns. Weights then go round in place of sums. NULL: sums go
     * round, and weights when they are given (ring_give). */
    void (*make)(void *owner, uint64_t bucket, uint64_t begin, uint64_t n);
    void *owner;
};

/* The slice of a bucket of n elements that the member at `position` gets the whole sum of first. */
static inline struct dpb_range ring_owned(uint64_t n, uint32_t position, uint32_t n_members)
{
    const uint64_t slice = (position + 1) % n_members;
    return (struct dpb_range){n * slice / n_members, n * (slice + 1) / n_members};
}

struct ring;

struct ring_args {
    const struct dpb_host *host;
    struct mesh_transport *transport; /* @owned by the ring, also when it cannot be made */
    struct ring_members members;
    struct ring_memory memory; /* its arena: elements of `type` */
    dpb_dtype type;
    struct ring_shards shards;
    uint64_t n_buckets;       /* of an exchange; with shards that are given each counts twice */
    uint64_t bucket_elements; /* at most */
    /* What spans and messages call the buckets, n_buckets; NULL: by their numbers. @borrowed until
     * ring_destroy. */
    const uint64_t *names;
};

/* Connects the members: collective, may block. One member alone connects nothing. */
dpb_status ring_create(const struct ring_args *args, struct ring **ring);
/* Accepts NULL. Waits for a peer no longer than mesh_close does. */
void ring_destroy(struct ring *ring);

/* A new exchange; all buckets of the one before are finished. */
void ring_begin(struct ring *ring, uint64_t step);
/* Whether one more bucket may be posted: RING_WINDOW are under way otherwise. */
bool ring_has_place(const struct ring *ring);
/* The next bucket, in order, is elements [begin, begin + n) of the arena, which are final here. The
 * range must be the same on all members. */
void ring_post(struct ring *ring, uint64_t begin, uint64_t n);
/* As ring_post, of the shards' arena: this member's own slice is final, and the other slices may
 * change from now on. All members have posted all buckets for sums before. */
void ring_give(struct ring *ring, uint64_t begin, uint64_t n);
/* Whether a posted bucket is summed here and its memory is the caller's again. */
bool ring_finished(const struct ring *ring, uint64_t bucket);

/* Whether nothing is under way: all buckets that were posted are finished. */
bool ring_idle(const struct ring *ring);

/* Does what can be done now, a pass over all connections; *moved: anything was. */
dpb_status ring_move(struct ring *ring, int64_t until_ns, bool *moved);
/* As mesh_wait, until ring_move may do something for the oldest bucket that is not finished. */
dpb_status ring_wait(struct ring *ring);

/* ---- on the links, for tests --------------------------------------------------------------- */

/* Kinds of messages. A label's `exchange` is the step, its `word` round << 32 | chunk of the slice
 * that travels in this round. A credit has neither: bit i of its `word` is slot 64 * bucket + i. */
enum { RING_PARTIAL, RING_SUM, RING_CREDIT };

#endif
