/* reduce_state.h - the state of a reduction, for the files behind reduce.h. */
#ifndef DPB_PLUGINS_LIB_REDUCE_STATE_H
#define DPB_PLUGINS_LIB_REDUCE_STATE_H

#include "lib/coded/coded.h"
#include "lib/ring/gather.h"
#include "lib/reduce/reduce.h"
#include "lib/strategy/strategy.h"

/* A bucket and its exchange. */
struct exchange {
    struct reduce_bucket bucket;
    struct reduce *owner;
    uint32_t n_sent;      /* messages so far, modulo 2^32 */
    bool again;           /* it is not the bucket's first exchange of this step */
    reduce_function then; /* NULL: no message is under way */
    uint64_t n_summed;    /* of reduce_sum; 0: the messages go to `then` */
};

struct reduce {
    struct strategy base;
    const struct reduce_strategy *strategy;
    const char *name;                 /* the plugin's */
    void *options;                    /* a copy: core frees its own after `open` */
    struct mesh_transport *transport; /* NULL once the gather owns the transport */
    struct gather *gather;            /* on several machines */
    uint32_t *order, position;        /* its members */
    uint64_t flags_at, slots_at, slot_bytes, n_state;
    struct exchange *exchanges;
    struct reduce_message messages[STRATEGY_WORKERS];
    float *residual, *state;
    double steps, scale;      /* steps since `load`; the scale of all steps, 0 before the first */
    struct coded_share share; /* of the state */
    dpb_status status;
};

/* Whether messages go by the network. */
static inline bool reduce_goes_across(const struct dpb_comm_args *args)
{
    return args->n_machines > 1;
}

/* Makes bucket.message room for the next message. */
void reduce_make_room(struct exchange *x);
enum { REDUCE_STAGES = 3 };
extern const struct stage reduce_stages[REDUCE_STAGES];

#endif
