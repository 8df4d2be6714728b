/*
 * sums.h - sums of ranges of an arena over its members, made in place: by a ring (ring.h), by MPI
 * (mpi.h), or of a codec's messages (comm/hierarchical/over_coded.c). An exchange's ranges are
 * called buckets. They are posted, and finish, in an order that is the same on all members.
 *
 * One thread at a time.
 */
#ifndef DPB_PLUGINS_LIB_SUMS_H
#define DPB_PLUGINS_LIB_SUMS_H

#include <assert.h>

#include "dpbench/host.h"

struct dpb_sums;

struct dpb_sums_ops {
    /* The next bucket is elements [begin, begin + n) of the arena, which are final here. The number
     * n is the same on all members; it may be 0. There is place. If `post` fails, the next `move`
     * returns the failure. */
    void (*post)(struct dpb_sums *sums, uint64_t begin, uint64_t n);
    /* Does the work that is possible now, without waiting; *moved: there was some. */
    dpb_status (*move)(struct dpb_sums *sums, int64_t until_ns, bool *moved);
    /* A turn of waiting until `move` may have work for the oldest bucket that is not finished. It
     * also returns when the doorbell rings. After the deadline it fails by a message. */
    dpb_status (*wait)(struct dpb_sums *sums);
    void (*destroy)(struct dpb_sums *sums);
};

/* The struct of each kind begins with this one. */
struct dpb_sums {
    const struct dpb_sums_ops *ops;
    uint64_t window; /* buckets under way at once */
    bool begun;      /* there was an exchange */
    /* Of this exchange: how many buckets were posted, and how many of them are finished. */
    uint64_t step, posted, finished;
};

/* A new exchange; all buckets of the one before are finished. */
static inline void dpb_sums_begin(struct dpb_sums *sums, uint64_t step)
{
    assert(sums->posted == sums->finished);
    sums->begun = true;
    sums->step = step;
    sums->posted = sums->finished = 0;
}

/* Whether one more bucket may be posted. */
static inline bool dpb_sums_has_place(const struct dpb_sums *sums)
{
    return sums->posted - sums->finished < sums->window;
}

/* Whether a posted bucket is summed here and its memory is the caller's again. */
static inline bool dpb_sums_finished(const struct dpb_sums *sums, uint64_t bucket)
{
    return bucket < sums->finished;
}

/* Whether nothing is under way. */
static inline bool dpb_sums_idle(const struct dpb_sums *sums)
{
    return sums->posted == sums->finished;
}

/* Accepts NULL. */
static inline void dpb_sums_destroy(struct dpb_sums *sums)
{
    if (sums)
        sums->ops->destroy(sums);
}

#endif
