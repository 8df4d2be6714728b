/*
 * memory.c - places for all tensors of a program at once, by lib/device/places.h.
 */
#include <stdlib.h>

#include "cpu.h"

dpb_status cpu_place_tensors(struct program *p)
{
    size_t n = 0;
    for (struct tensor *tensor = p->tensors; tensor; tensor = tensor->next)
        n += tensor->place.bytes > 0;
    struct dpb_place **places = calloc(n + 1, sizeof *places);
    bool placed = false;
    n = 0;
    for (struct tensor *tensor = p->tensors; places && tensor; tensor = tensor->next) {
        tensor->place.kept = tensor->place.kept || p->args.inspect;
        if (tensor->place.bytes > 0)
            places[n++] = &tensor->place;
    }
    if (places)
        placed = dpb_places_plan(places, n, &p->arena_bytes);
    free(places);
    if (!placed)
        return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory for %zu tensors", n);
    return DPB_OK;
}
