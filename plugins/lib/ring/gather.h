/*
 * gather.h - all-gather of messages around a ring, over a mesh with links to the two neighbours.
 * The messages are those of a codec (coded.h), each round an exchange, or of a reduction
 * (reduce.h).
 *
 * An exchange of a bucket begins when its members have posted their messages: once or several times
 * a step, on all members equally often. Each member sends its own message to the next member, and
 * forwards each message from the member before, unless the next member has made the message. A
 * member sends W - 1 messages an exchange.
 *
 * A message lands in its own slot of the receiver, so no message waits for memory. The exchanges of
 * a bucket use two banks of slots by turns. A member posts its message of exchange s + 1 after it
 * has used all messages of exchange s. So no member sends a message of exchange s + 2 before all
 * members have used those of exchange s, whose slots the new messages take.
 *
 * One thread at a time. Nothing allocates after dpb_gather_create.
 */
#ifndef DPB_PLUGINS_LIB_GATHER_H
#define DPB_PLUGINS_LIB_GATHER_H

#include "coded.h"
#include "mesh_transport.h"
#include "ring.h"

enum { DPB_GATHER_BANKS = 2 };

/* Memory for the messages of all members, each a struct dpb_coded_message. @borrowed until
 * destroy. */
struct dpb_gather_slots {
    void *at;
    uint64_t slot_bytes;
};

/* The number of the slot of a message; exchanges of a bucket are counted from 0. */
static inline uint64_t dpb_gather_slot(uint64_t n_buckets, uint32_t rank, uint64_t exchange,
                                       uint64_t bucket)
{
    return ((uint64_t)rank * DPB_GATHER_BANKS + exchange % DPB_GATHER_BANKS) * n_buckets + bucket;
}

/* The slots of a codec, DPB_CODED_GATHERED. */
static inline struct dpb_gather_slots dpb_gather_coded_slots(const struct dpb_strategy *strategy)
{
    uint64_t bytes;
    void *at = dpb_coded_memory_of(strategy, &bytes);
    return (struct dpb_gather_slots){at, dpb_coded_content_bytes(strategy, 0) +
                                             sizeof(struct dpb_coded_message)};
}

struct dpb_gather;

struct dpb_gather_args {
    struct dpb_strategy *strategy; /* bound */
    struct dpb_gather_slots slots;
    struct dpb_mesh_transport *transport; /* @owned by the gather, also when it cannot be made */
    struct dpb_ring_members members;      /* the strategy's ranks */
};

/* Connects the members: collective, may block. One member alone connects nothing. */
dpb_status dpb_gather_create(const struct dpb_gather_args *args, struct dpb_gather **gather);
void dpb_gather_destroy(struct dpb_gather *gather); /* accepts NULL */

/* Begins the bucket's next exchange. The exchange before is finished, and its messages are used.
 * The own message is in its slot. */
void dpb_gather_post(struct dpb_gather *gather, uint64_t bucket);
/* Whether this member has received all messages of the exchange, and sent its own and others'. */
bool dpb_gather_finished(const struct dpb_gather *gather, uint64_t bucket);
dpb_status dpb_gather_move(struct dpb_gather *gather, int64_t until_ns, bool *moved);
/* As dpb_mesh_wait, until dpb_gather_move may do something for the bucket. */
dpb_status dpb_gather_wait(struct dpb_gather *gather, uint64_t bucket);

#endif
