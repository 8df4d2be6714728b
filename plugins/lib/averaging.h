/*
 * averaging.h - a strategy that is a rule by which replicas meet: local_sgd, gossip, easgd, sma.
 * The workers of one machine train replicas of their own and draw them together every `period`
 * steps. Everything but the rule is here: the hooks, the contract and its books, the checkpoint.
 *
 * Every worker updates its weights by its own gradients in each step, bucket by bucket as they
 * become final. A step that meets goes on in one of two ways, at once for each bucket:
 *
 *   mean     the workers of a group take the mean of their weights: all workers, or two partners
 *   centre   c = alpha (weights before the update - z);  weights -= c;
 *            d = centre_momentum d + sum of all c;  z += d.  z and d are in rank 0's memory
 *   places   the same around a centre y of each place, in the memory of its first worker:
 *            c = alpha (weights before the update - y);  weights -= c;  y += sum of all its c;
 *            e = (y - z) / places;  y -= e;  d = centre_momentum d + sum of all e;  z += d
 *
 * Of every bucket the p-th member of the group averages (or adds to z) the p-th slice (slices.h).
 * The model is z; or, for means, the mean of all weights.
 *
 * All work is given to queues (device_strategy.h), on the host and on devices. On the host a member
 * works on its slice where the slice lies, piece by piece. On a device it copies the slice from
 * every other member into its own memory, works there, and copies the result to where it belongs:
 * of another device's memory only `copy` is asked.
 *
 * Fences: 1. weights and c are read when their rank has updated the bucket (PUSHED). 2. Weights, c
 * and z are used again when all slices are written (REDUCED). 3. No worker begins a step before all
 * have updated their last bucket of the step before: the contract's `lead` is 0, so that a run
 * changes its phase, and stops, in the same step everywhere. A worker that had stopped would miss
 * the meeting that the others wait in.
 */
#ifndef DPB_PLUGINS_LIB_AVERAGING_H
#define DPB_PLUGINS_LIB_AVERAGING_H

#include <stddef.h>

#include "device_strategy.h"
#include "dpbench/plugin.h"

struct averaging;

/* Options that a strategy may have: it has rows for some, and the others stay zero. */
struct averaging_options {
    int64_t period, seed;
    double alpha, center_momentum, restart;
    int matching; /* of gossip */
    bool average_state, momentum_on_center, local_centers;
};

#define AVERAGING_AT(member) offsetof(struct averaging_options, member)
#define AVERAGING_PERIOD "a worker trains alone for so many steps, then it meets others"
#define AVERAGING_ALPHA "part of the way to the centre by which a meeting draws a replica; 0: "

struct averaging_rule {
    uint64_t period; /* steps; at least 1 */
    bool centre;
    /* Centre. */
    double alpha, centre_momentum;
    uint32_t learners; /* with a centre in each place: workers of a place; 0: without */
    /* Where the rate falls to this share of the step's before, or less, replicas begin anew at the
     * centre, which is at rest; 0: nowhere. */
    double restart;
    /* Mean: of the optimizer's state, too. */
    bool average_state;
    /* Mean: with one partner, who says the same of this rank; the own rank: with nobody. `round`
     * counts the meetings since `load`, from 0. NULL: with all workers. */
    uint32_t (*partner)(const struct averaging *self, uint64_t round);
    uint64_t seed; /* for `partner` */
};

/* The strategy: its rule, with these options. */
typedef struct averaging_rule (*averaging_rule_of)(const void *options,
                                                   const struct dpb_comm_args *args);

struct averaging {
    struct device_strategy comm; /* first */
    struct averaging_rule rule;
    /* Bytes into an inbox. Each rank's begins with c, or with a copy of the optimizer's state. */
    uint64_t place_at;    /* in that of each place's first worker: y */
    uint64_t model_at;    /* in rank 0's: z or the published mean */
    uint64_t velocity_at; /* in rank 0's: d */
    uint64_t staging_at;  /* in the own one, on a device: copies of slices */
    uint64_t fence_at;    /* bytes into each rank's scratch */
    double steps;         /* since `load`, with the one under way */
    double rate;          /* of the step under way; 0 before the first */
    uint32_t fences;      /* reached, of all workers: two for each published mean */
    char place_name[24];  /* of y in a checkpoint */
    struct rank_set peers;
    bool meets;    /* this step, with `peers`: all workers, or the partner */
    bool restarts; /* in this step */
};

/* ---- the plugin ---------------------------------------------------------------------------- */

extern const struct dpb_comm_ops averaging_ops;
const struct dpb_plugin *averaging_entry(const struct dpb_host *host,
                                         const struct dpb_plugin *plugin, averaging_rule_of rule);

/* All of a plugin whose rule the function RULE gives. Behind it members of struct dpb_plugin:
 * .name, .version, .summary, .options, .options_size. */
#define AVERAGING_PLUGIN(RULE, ...)                                                           \
    static const struct dpb_plugin averaging_plugin = {                                       \
        DPB_PLUGIN_HEAD(COMM, averaging_ops), .capabilities = DPB_COMM_OVERLAP, __VA_ARGS__}; \
    const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)                   \
    {                                                                                         \
        return averaging_entry(given, &averaging_plugin, RULE);                               \
    }                                                                                         \
    extern const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)

#endif
