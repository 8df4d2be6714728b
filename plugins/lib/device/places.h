/*
 * places.h - places in one arena for all that a program of a device keeps in memory: what is never
 * alive together may share bytes. Times are numbers of steps, counted over forward and backward.
 *
 * Largest first, each into the smallest gap that fits between those that are alive at any time with
 * it: the greedy by size of Pisarchyk and Lee, Efficient memory management for deep neural net
 * inference, 2020.
 */
#ifndef DPB_LIB_DEVICE_PLACES_H
#define DPB_LIB_DEVICE_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dpb_place {
    size_t bytes;           /* a multiple of what places are aligned to */
    size_t offset;          /* in the arena: what is planned */
    size_t first, last;     /* steps that use it; first = SIZE_MAX: none yet */
    bool kept;              /* its content outlives the steps that use it: the bytes are its own */
    struct dpb_place *next; /* of the program's list */
};

/* Of `bytes`, a multiple of `align`, used by no step yet; puts it first on the list. */
static inline void dpb_place_add(struct dpb_place **list, struct dpb_place *place, size_t bytes,
                                 size_t align)
{
    *place = (struct dpb_place){
        .bytes = (bytes + align - 1) / align * align, .first = SIZE_MAX, .next = *list};
    *list = place;
}

/* A step uses it. Times rise. */
static inline void dpb_place_use(struct dpb_place *place, size_t now)
{
    place->first = place->first < now ? place->first : now;
    place->last = now;
}

static inline bool dpb_places_meet(const struct dpb_place *a, const struct dpb_place *b)
{
    return a->kept || b->kept || (a->first <= b->last && b->first <= a->last);
}

/* Sets every offset, and gives the arena's size. Those that no step uses are kept; keep_all: all
 * are. False: out of memory, no message. */
bool dpb_places_plan(struct dpb_place *list, bool keep_all, size_t *arena_bytes);

#endif
