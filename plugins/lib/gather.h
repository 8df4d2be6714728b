/*
 * gather.h - all-gather of the messages of a codec of one round around a ring (coded.h), over a
 * mesh with links to the two neighbours.
 *
 * Each member sends its own message of a bucket to the next member, and passes on what comes from
 * the member before, unless the next member has made it. A member sends W - 1 messages a bucket.
 *
 * A message lands in its own slot of the receiver, so that none waits for memory. coded.h says
 * why a slot is free when its next message comes.
 *
 * One thread at a time. Nothing allocates after gather_create.
 */
#ifndef DPB_PLUGINS_LIB_GATHER_H
#define DPB_PLUGINS_LIB_GATHER_H

#include "coded.h"
#include "mesh_transport.h"

struct gather;

struct gather_args {
    struct strategy *strategy;        /* bound, with a codec whose messages are not shared */
    struct mesh_transport *transport; /* @owned by the gather, also when it cannot be made */
    const char *name; /* of this ring, once a job: prefix of its keys in the store */
    /* The strategy's ranks in the order of the ring; NULL: 0, 1, ... @borrowed until destroy. */
    const uint32_t *members;
    uint32_t position; /* of this rank */
    const int *bell;   /* as struct ring_members has it */
};

/* Connects the members: collective, may block. One member alone connects nothing. */
dpb_status gather_create(const struct gather_args *args, struct gather **gather);
void gather_destroy(struct gather *gather); /* accepts NULL */

/* After the strategy's begin. All buckets of the exchange before are finished. */
void gather_begin(struct gather *gather);
void gather_post(struct gather *gather, uint64_t bucket); /* the own message is encoded */
/* Whether all messages of a bucket are here, and those that this member sends are gone. */
bool gather_finished(const struct gather *gather, uint64_t bucket);
dpb_status gather_move(struct gather *gather, int64_t until_ns, bool *moved);
/* Blocks until gather_move may do something for the bucket. */
dpb_status gather_wait(struct gather *gather, uint64_t bucket);

#endif
