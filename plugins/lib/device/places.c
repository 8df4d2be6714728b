/* places.c - see places.h. */
#include "lib/device/places.h"

#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    const struct dpb_place *first = *(struct dpb_place *const *)a;
    const struct dpb_place *second = *(struct dpb_place *const *)b;
    if (first->bytes != second->bytes)
        return first->bytes < second->bytes ? 1 : -1;
    return first->first < second->first ? -1 : first->first > second->first;
}

/* Puts one among n others, which are sorted by offset. Returns where it ends. */
static size_t put(struct dpb_place *place, struct dpb_place **placed, size_t n)
{
    size_t end = 0, best = SIZE_MAX, at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct dpb_place *other = placed[i];
        if (!dpb_places_meet(place, other))
            continue;
        if (other->offset > end && other->offset - end >= place->bytes &&
            other->offset - end < best) {
            best = other->offset - end;
            at = end;
        }
        if (other->offset + other->bytes > end)
            end = other->offset + other->bytes;
    }
    place->offset = best == SIZE_MAX ? end : at;
    size_t i = n;
    for (; i > 0 && placed[i - 1]->offset > place->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = place;
    return place->offset + place->bytes;
}

/* The `n` places of a list, and room behind them for as many; @owned. NULL: no memory. */
static struct dpb_place **array_of(struct dpb_place *list, size_t *n)
{
    *n = 0;
    for (const struct dpb_place *place = list; place; place = place->next)
        ++*n;
    struct dpb_place **places = calloc(2 * *n + 1, sizeof *places);
    for (size_t i = 0; places && i < *n; i++, list = list->next)
        places[i] = list;
    return places;
}

bool dpb_places_plan(struct dpb_place *list, bool keep_all, size_t *arena_bytes)
{
    size_t n;
    struct dpb_place **places = array_of(list, &n);
    if (!places)
        return false;
    struct dpb_place **placed = places + n;
    for (size_t i = 0; i < n; i++)
        places[i]->kept = places[i]->kept || keep_all || places[i]->first == SIZE_MAX;
    qsort(places, n, sizeof *places, by_size);
    *arena_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t end = put(places[i], placed, i);
        if (end > *arena_bytes)
            *arena_bytes = end;
    }
    free(places);
    return true;
}
