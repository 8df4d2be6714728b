/*
 * ring.h - the ring all-reduce: scatter-reduce, then all-gather, chunked, over a mesh (mesh.h) with
 * links to the two neighbours.
 *
 * A bucket is cut into W slices, one a member. In round k the member at position p sends slice
 * p - k to the next member and receives slice p - 1 - k (modulo W) from the member before. For
 * W - 1 rounds a member adds its own part to the received slice. Then it holds slice p + 1 summed
 * over all, and for W - 1 rounds the members forward sums. A member sends a chunk of round k again
 * in round k + 1, so receiving, reducing and sending overlap within a bucket, and several buckets
 * are under way at once.
 *
 * A member sends 2 (W - 1)/W of the bucket's bytes for any W: the least that an all-reduce can. A
 * slice is summed in the order of the ring, from the slice's own position on: the same bits on all
 * members, whenever chunks arrive.
 *
 * Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations. JPDC 2009.
 * Gibiansky: Bringing HPC techniques to deep learning. Baidu Research, 2017.
 *
 * Sums may land in the arena unasked. A chunk of an all-gather round contains this member's own
 * part of the slice, so the member's gradients of the bucket are final, and the part was sent and
 * is not read here again. Gradients are written again only when all sends and receives of the
 * bucket are finished.
 *
 * With shards (struct dpb_ring_shards) the member that completes the sum of a slice makes new
 * weights of it. The all-gather rounds carry the weights, from and into an arena of their own.
 *
 * If new weights need the sums of all buckets, members post all buckets and then give them
 * (dpb_ring_give): a posted bucket then has the scatter-reduce rounds alone, a given one those of
 * all-gather. A member may give long before the next member, which still reads its own arena. So
 * given chunks land in the inbox, and a member copies them into its arena once it has given the
 * bucket itself. Between the two, members may give numbers of their own (dpb_ring_give_beside).
 *
 * Messages on the links. Payload is sent from the sender's arena.
 *
 *     partial sums  to the next member: a chunk of scatter-reduce, or of a bucket that is given,
 *                   into a slot of its inbox
 *     sums          to the next member: a chunk of all-gather, into the same place of its arena or
 *                   of the shards' arena
 *     credit        to the member before: slots of the inbox that are free again
 *
 * A sender uses only slots for which it has a credit. So partial sums never wait in the network for
 * memory, and no chunk blocks another.
 *
 * One thread at a time. Nothing allocates after dpb_ring_create.
 *
 * One exchange of all buckets, on each member (sums.h):
 *
 *     dpb_sums_begin(ring, self->exchanges++);
 *     for (uint64_t bucket = 0; !dpb_sums_finished(ring, n_buckets - 1);) {
 *         bool moved;
 *         for (; bucket < n_buckets && dpb_sums_has_place(ring); bucket++)
 *             ring->ops->post(ring, begin_of(bucket), length_of(bucket));
 *         DPB_TRY(ring->ops->move(ring, INT64_MAX, &moved));
 *         if (!moved)
 *             DPB_TRY(ring->ops->wait(ring));
 *     }
 *
 * Exchanges have consecutive numbers. A member that is through may begin the next exchange at once,
 * so its chunks arrive early: a ring holds those of the next number and refuses all others. So a
 * strategy that exchanges in some steps counts exchanges: step->step is right only if no step is
 * without one. All members take part in each. The count goes on when `load` is called.
 */
#ifndef DPB_PLUGINS_LIB_RING_H
#define DPB_PLUGINS_LIB_RING_H

#include "mesh.h"
#include "sums.h"

enum { DPB_RING_WINDOW = 16 /* buckets under way at once */ };

/* Shorter gaps between two messages are the network's, not a late peer's. */
#define DPB_RING_GAP_NS INT64_C(20000)

/* The members, and the ring's name. */
struct dpb_ring_members {
    const char *name; /* of this ring, once a job: prefix of its keys in the store */
    /* Ranks in the order of the ring; NULL: 0, 1, ... @borrowed until destroy. */
    const uint32_t *members;
    uint32_t n_members;
    uint32_t position;             /* of this rank */
    struct dpb_doorbell *doorbell; /* ends a wait; NULL: there is none. @borrowed until destroy */
};

static inline uint32_t dpb_ring_rank_at(const struct dpb_ring_members *ring, uint32_t position)
{
    position %= ring->n_members;
    return ring->members ? ring->members[position] : position;
}

static inline uint32_t dpb_ring_own(const struct dpb_ring_members *ring)
{
    return dpb_ring_rank_at(ring, ring->position);
}

static inline uint32_t dpb_ring_next(const struct dpb_ring_members *ring)
{
    return dpb_ring_rank_at(ring, ring->position + 1);
}

static inline uint32_t dpb_ring_previous(const struct dpb_ring_members *ring)
{
    return dpb_ring_rank_at(ring, ring->position + ring->n_members - 1);
}

/* Chunks are sent from, and land in, this memory. @borrowed until destroy. Sizes are the same
 * on all members. */
struct dpb_ring_memory {
    void *arena;
    uint64_t arena_bytes;
    void *inbox; /* n_slots * slot_bytes, aligned to a cache line */
    uint32_t n_slots;
    uint64_t slot_bytes; /* of payload; a multiple of DPB_CACHE_LINE */
};

/* New weights for all members. Zeroed: members get sums alone. */
struct dpb_ring_shards {
    void *arena; /* as many elements as the ring's arena, of `type`; @borrowed as that one */
    dpb_dtype type;
    /* Makes elements [begin, begin + n) of this arena from the sums in the ring's arena. The
     * elements lie in the slice that this member owns. The all-gather rounds then carry weights in
     * place of sums. NULL: dpb_ring_give gives them. */
    void (*make)(void *owner, uint64_t bucket, uint64_t begin, uint64_t n);
    void *owner;
    /* Without `make`: memory for dpb_ring_give_beside; NULL: none. @borrowed as the arena. */
    void *beside;
    uint64_t beside_bytes; /* of each member: a multiple of 8 */
};

/* The slice of a bucket of n elements whose whole sum the member at `position` has first. */
static inline struct dpb_range dpb_ring_owned(uint64_t n, uint32_t position, uint32_t n_members)
{
    const uint64_t slice = (position + 1) % n_members;
    return (struct dpb_range){n * slice / n_members, n * (slice + 1) / n_members};
}

struct dpb_ring_args {
    const struct dpb_host *host;
    struct dpb_mesh_transport *transport; /* @owned by the ring, also when it cannot be made */
    struct dpb_ring_members members;
    struct dpb_ring_memory memory; /* its arena: elements of `type` */
    dpb_dtype type;
    struct dpb_ring_shards shards;
    uint64_t n_buckets;       /* of an exchange at most; what is given counts, too */
    uint64_t bucket_elements; /* at most */
    /* The buckets' numbers in spans and messages, n_buckets; NULL: the ring's own numbers.
     * @borrowed until destroy. */
    const uint64_t *names;
};

/* Connects the members: collective, may block. One member alone connects nothing. `destroy` waits
 * for a peer no longer than dpb_mesh_close does, and `wait` waits as dpb_mesh_wait. */
dpb_status dpb_ring_create(const struct dpb_ring_args *args, struct dpb_sums **ring);

/* As `post`, in spans and messages by the strategy's number of the bucket. */
void dpb_ring_sum(struct dpb_sums *ring, uint64_t bucket, uint64_t begin, uint64_t n);
/* As `post`, of the shards' arena: this member's own slice of the strategy's `bucket` is final, and
 * the other slices may change from now on. Nobody reads the others any more where
 * members have posted the bucket for sums before, or the weights are needed (needs.h). */
void dpb_ring_give(struct dpb_sums *ring, uint64_t bucket, uint64_t begin, uint64_t n);
/* The same of the memory beside: slice by slice the members' bytes. `bucket` as there. */
void dpb_ring_give_beside(struct dpb_sums *ring, uint64_t bucket);
/* This member's slice of the memory beside. */
static inline uint32_t dpb_ring_slice_beside(const struct dpb_ring_members *ring)
{
    return (ring->position + 1) % ring->n_members;
}

/* ---- on the links, for tests --------------------------------------------------------------- */

/* Kinds of messages. A label's `exchange` is the step, its `word` round << 32 | chunk of the slice
 * that travels in this round. A credit has neither: bit i of its `word` is slot 64 * bucket + i. */
enum { DPB_RING_PARTIAL, DPB_RING_SUM, DPB_RING_CREDIT };

#endif
