/*
 * collect.h - rank 0 collects the optimizer's state of all ranks for a checkpoint. Rank 0 reads the
 * state of its machine's ranks from mapped memory. Other ranks send theirs on request through the
 * store, which passes on a piece at a time and keeps none. A worker answers the request while it
 * saves with the others; a server has a thread that waits for requests.
 */
#ifndef DPB_CORE_SAVE_COLLECT_H
#define DPB_CORE_SAVE_COLLECT_H

#include "world/answer.h"
#include "world/world.h"

struct dpb_optimizer;

/* All that a rank owns. */
struct dpb_holding {
    uint64_t n_ranges, n_elements;
};

/* Zeroed: nothing is collected. */
struct dpb_collection {
    const struct dpb_comm_plan *plan; /* these four are @borrowed */
    const struct dpb_layout *layout;
    struct dpb_optimizer *optimizer;
    const char *comm;
    uint32_t n_arrays;            /* of the state */
    struct dpb_mapping owned;     /* the ranges that this rank owns */
    struct dpb_mapping *mapped;   /* states and ranges of this machine's ranks */
    struct dpb_holding *holdings; /* rank 0's, by rank */
    bool is_asked;                /* rank 0 needs this rank's state, and cannot map it */
    struct dpb_answerer answerer; /* a server's */
};

/* After all optimizers are created; collective over all ranks. Refuses if the ranks own less than
 * all of the state. */
dpb_status dpb_collect_open(const struct dpb_comm_plan *plan, const struct dpb_layout *layout,
                            struct dpb_optimizer *optimizer, uint32_t n_arrays, const char *comm,
                            struct dpb_collection *collection);
void dpb_collect_close(struct dpb_collection *collection); /* accepts zeroed ones */

/* Rank 0, between steps: fills arenas that are laid out like the weights, array after array. */
dpb_status dpb_collect_state(const struct dpb_collection *collection, void *arenas);
/* The other workers, at the same time: sends rank 0 the requested state. */
dpb_status dpb_collect_answer(struct dpb_collection *collection);

#endif
