/*
 * places.h - places in one arena for all memory of a device's program. Places that are never alive
 * together may share bytes. Times are numbers of steps, counted over forward and backward.
 *
 * Places are planned largest first. Each goes into the smallest gap that fits between places that
 * are alive at any time with it: greedy by size, from Pisarchyk and Lee, Efficient memory
 * management for deep neural net inference, 2020.
 */
#ifndef DPB_LIB_DEVICE_PLACES_H
#define DPB_LIB_DEVICE_PLACES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dpb_place {
    size_t bytes;           /* a multiple of the alignment of places */
    size_t offset;          /* in the arena: the result of planning */
    size_t first, last;     /* steps that use the place; first = SIZE_MAX: none yet */
    bool kept;              /* its content outlives the steps that use it: it shares no bytes */
    struct dpb_place *next; /* of the program's list */
};

/* Puts a place first on the list: of `bytes`, rounded up to `align`, and used by no step yet. */
static inline void dpb_place_add(struct dpb_place **list, struct dpb_place *place, size_t bytes,
                                 size_t align)
{
    *place = (struct dpb_place){
        .bytes = (bytes + align - 1) / align * align, .first = SIZE_MAX, .next = *list};
    *list = place;
}

/* Notes that step `now` uses the place. Times rise. */
static inline void dpb_place_use(struct dpb_place *place, size_t now)
{
    place->first = place->first < now ? place->first : now;
    place->last = now;
}

static inline bool dpb_places_meet(const struct dpb_place *a, const struct dpb_place *b)
{
    return a->kept || b->kept || (a->first <= b->last && b->first <= a->last);
}

/* Sets every offset, and *arena_bytes. Places that no step uses become kept; keep_all: all places
 * do. False: out of memory, no message. */
bool dpb_places_plan(struct dpb_place *list, bool keep_all, size_t *arena_bytes);

#endif
