/* statistics.c - see statistics.h. */
#include "optim/statistics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/vec.h"
#include "world/store.h"
#include "world/world.h"

static size_t bytes_of(const struct dpb_statistics *s)
{
    return s->graph->n_state_elements * dpb_dtype_size(s->type);
}

dpb_status dpb_statistics_open(const struct dpb_graph *graph, dpb_dtype type,
                               struct dpb_statistics *s)
{
    *s = (struct dpb_statistics){.graph = graph, .type = type};
    s->running = dpb_alloc(bytes_of(s));
    s->micro_batch = dpb_alloc(bytes_of(s));
    s->step = dpb_alloc(bytes_of(s));
    return s->running && s->micro_batch && s->step ? DPB_OK : DPB_NO_MEMORY;
}

void dpb_statistics_close(struct dpb_statistics *s)
{
    if (!s->graph)
        return;
    dpb_release(s->running, bytes_of(s));
    dpb_release(s->micro_batch, bytes_of(s));
    dpb_release(s->step, bytes_of(s));
    *s = (struct dpb_statistics){.graph = NULL};
}

void dpb_statistics_add(struct dpb_statistics *s, uint32_t i, uint32_t n)
{
    if (i == 0) /* 0 times what a skipped step left may be NaN */
        memset(s->step, 0, bytes_of(s));
    dpb_vec.axpby(s->type, 1.0 / n, s->micro_batch, 1.0, s->step, s->graph->n_state_elements);
}

void dpb_statistics_move(struct dpb_statistics *s)
{
    size_t size = dpb_dtype_size(s->type);
    for (uint32_t i = 0; i < s->graph->n_states; i++) {
        const struct dpb_state *state = &s->graph->states[i];
        size_t at = state->offset * size;
        dpb_vec.axpby(s->type, 1.0 - state->keep_average, (char *)s->step + at, state->keep_average,
                      (char *)s->running + at, state->n_elements);
    }
}

dpb_status dpb_statistics_average(const struct dpb_statistics *s, uint32_t n_workers,
                                  const char *name, void *average)
{
    const size_t size = bytes_of(s);
    memcpy(average, s->running, size);
    if (size == 0 || n_workers == 1)
        return DPB_OK;
    char key[96];
    void *other = calloc(1, size);
    DPB_TRY(dpb_allocated(other));
    snprintf(key, sizeof key, "%s/state", name);
    dpb_status status = dpb_store_put_own(key, s->running, size);
    memset(average, 0, size);
    uint32_t n = 0; /* that gave theirs */
    for (uint32_t rank = 0; rank < n_workers && status == DPB_OK; rank++) {
        bool lost = false;
        status = dpb_store_get_of(rank, key, other, size, &lost);
        if (lost)
            continue;
        n++;
        dpb_vec.axpby(s->type, 1.0 / n_workers, other, 1.0, average, s->graph->n_state_elements);
    }
    if (status == DPB_OK && n < n_workers)
        dpb_vec.axpby(s->type, 0.0, average, (double)n_workers / n, average,
                      s->graph->n_state_elements);
    free(other);
    return status;
}
