/*
 * memory.c - places for all tensors of a program at once: those that are never alive together may
 * share bytes. Largest first, each into the smallest gap that fits between the tensors that are
 * alive at any time with it.
 */
#include <stdlib.h>

#include "cpu.h"

static int by_size(const void *a, const void *b)
{
    const struct tensor *first = *(struct tensor *const *)a, *second = *(struct tensor *const *)b;
    if (first->bytes != second->bytes)
        return first->bytes < second->bytes ? 1 : -1;
    return first->first < second->first ? -1 : first->first > second->first;
}

static bool alive_together(const struct tensor *a, const struct tensor *b)
{
    return a->kept || b->kept || (a->first <= b->last && b->first <= a->last);
}

/* Puts a tensor among n others, which are sorted by offset. Returns where it ends. */
static size_t place(struct tensor *tensor, struct tensor **placed, size_t n)
{
    size_t end = 0, best = SIZE_MAX, at = 0;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *other = placed[i];
        if (!alive_together(tensor, other))
            continue;
        if (other->offset > end && other->offset - end >= tensor->bytes &&
            other->offset - end < best) {
            best = other->offset - end;
            at = end;
        }
        if (other->offset + other->bytes > end)
            end = other->offset + other->bytes;
    }
    tensor->offset = best == SIZE_MAX ? end : at;
    size_t i = n;
    for (; i > 0 && placed[i - 1]->offset > tensor->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = tensor;
    return tensor->offset + tensor->bytes;
}

dpb_status cpu_place_tensors(struct program *p)
{
    size_t n = 0, n_placed = 0;
    for (struct tensor *tensor = p->tensors; tensor; tensor = tensor->next)
        n += tensor->bytes > 0;
    struct tensor **tensors = calloc(2 * n + 1, sizeof(struct tensor *)), **placed = tensors + n;
    if (!tensors)
        return cpu_host->fail(DPB_NO_MEMORY, "device cpu: out of memory for %zu tensors", n);
    n = 0;
    for (struct tensor *tensor = p->tensors; tensor; tensor = tensor->next) {
        if (tensor->bytes == 0)
            continue;
        tensor->kept = tensor->kept || p->args.inspect || tensor->first == SIZE_MAX;
        tensors[n++] = tensor;
    }
    qsort(tensors, n, sizeof(struct tensor *), by_size);
    p->arena_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        size_t end = place(tensors[i], placed, n_placed++);
        if (end > p->arena_bytes)
            p->arena_bytes = end;
    }
    free(tensors);
    return DPB_OK;
}
