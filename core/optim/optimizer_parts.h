/*
 * optimizer_parts.h - an optimizer and its ranges: private to optimizer.c and optimizer_state.c.
 */
#ifndef DPB_CORE_OPTIM_OPTIMIZER_PARTS_H
#define DPB_CORE_OPTIM_OPTIMIZER_PARTS_H

#include "optim/optimizer.h"

struct dpb_optimizer_words {
    uint64_t found;                /* see args.not_finite */
    struct dpb_update_words words; /* of a captured step */
};

struct dpb_optimizer {
    struct dpb_optimizer_args args; /* `settings` and `owned` are those below */
    struct dpb_optimizer_settings settings;
    struct dpb_range *owned;
    uint64_t *state_at; /* where the state of each owned range begins, in elements */
    uint64_t n_state;
    uint32_t n_arrays;        /* of the state, each of n_state elements */
    uint64_t n_updated;       /* elements that were updated, plain steps aside */
    struct dpb_mapping state; /* zero bytes: none needed */
    uint64_t n_changes;       /* of the state, for the order of memory: see dpb_optimizer_mapping */
    struct dpb_range *decays; /* arena elements with weight decay */
    uint64_t n_decays;
    /* With arenas on a device: the state, a copy of `decays`, and words are there. */
    char *device_state;
    struct dpb_range *device_decays;
    struct dpb_optimizer_words *words;
    struct dpb_optimizer_words *pinned; /* a copy of `found`; each launch copies from it */
    /* Where the rule needs norms: by tensor; NULL: it needs none. */
    struct dpb_factors *factors;
    uint64_t landing, n_landed; /* the step; its elements whose update was called */
};

/* The last range that does not begin behind arena element `at`, or the first. */
static inline uint64_t dpb_range_at(const struct dpb_range *ranges, uint64_t n, uint64_t at)
{
    uint64_t low = 0, high = n;
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;
        *(ranges[middle].begin <= at ? &low : &high) = middle;
    }
    return low;
}

/* Bytes of one array of the state. */
static inline uint64_t dpb_optimizer_array_bytes(const struct dpb_optimizer *optimizer)
{
    return optimizer->n_state * dpb_dtype_size(optimizer->args.weight_type);
}

/* Orders accesses of several threads: each sees all that came before. Other threads read the state
 * after another signal that the step is over. The state changes again after they have read it. */
static inline void dpb_optimizer_changed(struct dpb_optimizer *optimizer)
{
    __atomic_fetch_add(&optimizer->n_changes, 1, __ATOMIC_ACQ_REL);
}

#endif
