/*
 * ring.h - the ring all-reduce: scatter-reduce, then all-gather, chunked, over any transport.
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
 * One thread at a time, but for ring_wake.
 */
#ifndef DPB_PLUGINS_LIB_RING_H
#define DPB_PLUGINS_LIB_RING_H

#include "lib/transport.h"

enum { RING_WINDOW = 16 /* buckets under way at once */ };

struct ring;

struct ring_args {
    const struct dpb_host *host;
    struct transport *transport; /* @owned by the ring, also when it cannot be made */
    struct transport_ring members;
    struct transport_memory memory; /* its arena: elements of `type` */
    dpb_dtype type;
    uint64_t n_buckets;       /* of an exchange */
    uint64_t bucket_elements; /* at most */
};

/* Connects the members: collective, may block. With one member there is no transport to use. */
dpb_status ring_create(const struct ring_args *args, struct ring **ring);
void ring_destroy(struct ring *ring); /* accepts NULL; never waits for a peer */

/* A new exchange; all buckets of the one before are finished. */
void ring_begin(struct ring *ring, uint64_t step);
/* Whether one more bucket may be posted: RING_WINDOW are under way otherwise. */
bool ring_has_place(const struct ring *ring);
/* The next bucket, in order, is elements [begin, begin + n) of the arena, which are final here. The
 * range must be the same on all members. */
void ring_post(struct ring *ring, uint64_t begin, uint64_t n);
/* Whether a posted bucket is summed here and its memory is the caller's again. */
bool ring_finished(const struct ring *ring, uint64_t bucket);

/* Whether nothing is under way: all buckets that were posted are finished. */
bool ring_idle(const struct ring *ring);

/* Does what can be done now, a pass over all connections; *moved: anything was. */
dpb_status ring_move(struct ring *ring, int64_t until_ns, bool *moved);
/* Blocks until ring_move may do something, for the oldest bucket that is not finished. */
dpb_status ring_wait(struct ring *ring);
void ring_wake(struct ring *ring); /* any thread: ends a ring_wait */

#endif
