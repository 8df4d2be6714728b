/*
 * averaging_parts.h - the parts that averaging.c and averaging_stages.c share: addresses of arrays,
 * and a piece of work on memory of any worker.
 */
#ifndef DPB_PLUGINS_LIB_AVERAGING_PARTS_H
#define DPB_PLUGINS_LIB_AVERAGING_PARTS_H

#include "lib/averaging/averaging.h"

/* Kinds of work, each by a lane of its own. */
enum { MEETS = DEVICE_UPDATES + 1, TAKES };

extern const struct stage averaging_stages[];
extern const struct stage_flight *const averaging_flights[];
enum { AVERAGING_STAGES = 3 };

/* An array of arena elements from `at` on: c or a copy of the optimizer's state, the model, d. */
void *averaging_own(const struct averaging *self, uint32_t rank, uint64_t at);
void *averaging_model(const struct averaging *self, uint64_t at);
void *averaging_place(const struct averaging *self, uint32_t rank, uint64_t at); /* rank's y */
void *averaging_velocity(const struct averaging *self, uint64_t at);
/* The optimizer's state, in the memory of the weights; NULL: it has none. */
char *averaging_optimizer(const struct averaging *self);
uint64_t averaging_bytes(const struct averaging *self, uint64_t elements);

/* Work for the lane of `flight`. A failure is kept in comm.status. */
struct work {
    struct averaging *self;
    uint32_t flight;
    uint64_t n; /* elements */
};

/* `from` lies in the memory of worker `owner`. */
void averaging_copy(const struct work *work, void *to, const void *from, uint32_t owner);
void averaging_clear(const struct work *work, void *to);
void averaging_axpby(const struct work *work, double a, const void *x, double b, void *y);
void averaging_sum(const struct work *work, void *to, const void *const *sources, uint32_t k);
/* Returns memory to work on `far`, in worker `owner`'s memory: `far` itself; or, on another
 * worker's device, a copy in the slot, which averaging_put copies back. */
void *averaging_get(const struct work *work, void *far, uint32_t owner, uint32_t slot);
void averaging_put(const struct work *work, void *far, uint32_t owner, const void *near);
/* Returns memory for a result whose destination is `far`: `far` itself, or the slot. */
void *averaging_room(const struct work *work, void *far, uint32_t owner, uint32_t slot);
static inline bool averaging_has_velocity(const struct averaging_rule *rule)
{
    return rule->centre_momentum > 0 || rule->learners > 0;
}

/* Returns the first worker of the worker's place. */
static inline uint32_t averaging_first(const struct averaging_rule *rule, uint32_t rank)
{
    return rank - rank % rule->learners;
}

/* Slots that a meeting of n workers takes. */
uint32_t averaging_slots(const struct averaging_rule *rule, uint32_t n_workers);

#endif
