/*
 * averaging.h - a strategy that is a rule by which replicas meet: local_sgd, diloco, gossip, easgd,
 * sma.
 * Workers train replicas of their own and draw them together every `period` steps. Everything but
 * the rule is here: the hooks, the contract and its books, the checkpoint.
 *
 * In each step every worker updates its weights by its own gradients, each bucket as soon as its
 * gradients are final. In a step that meets, one of these follows, at once for each bucket:
 *
 *   mean     the workers of a group take the mean of their weights: all workers, or two partners
 *   centre   c = alpha (weights before the update - z);  weights -= c;
 *            d = centre_momentum d + sum of all c;  z += d.  z and d are in rank 0's memory
 *   places   the same around a centre y of each place, in the memory of its first worker:
 *            c = alpha (weights before the update - y);  weights -= c;  y += sum of all its c;
 *            e = (y - z) / places;  y -= e;  d = centre_momentum d + sum of all e;  z += d
 *
 *   meet     like mean, of all workers; then the strategy's own `meet` makes the new weights of all
 *            replicas from the mean, from the weights after the meeting before, and from a velocity
 *
 * The p-th member of the group averages (or adds to z) the p-th slice of every bucket (slices.h).
 * The model is z; or, for means, the mean of all weights.
 *
 * All work is enqueued (device_strategy.h), on the host and on devices. On the host a member works
 * on its slice in place, piece by piece. On a device it copies the slice from every other member
 * into its own memory, works there, and copies the result to its destination. No kernel touches
 * another device's memory; only `copy` does.
 *
 * With a codec, or late, the mean of all weights is that of `start` and of exchanged differences
 * (difference.h), and each worker makes all new weights.
 *
 * On several machines the memory above is one machine's, and messages go between them (across.h):
 * means are of the machine's workers first, then of the machines; each machine has a z, all with
 * the same bits, and a worker keeps d of its own slices. `comm` is then the strategy of the
 * machine's workers, which count from 0; `job` has all. Arenas are the host's, so with a GPU core
 * copies gradients to the host and weights back.
 *
 * A worker's optimizer is its own: any rule works, and its state stays with the worker unless the
 * means are of states, too. Rules with norms of whole tensors (DPB_COMM_WHOLE) update all weights
 * at once, so the whole model is then one bucket.
 *
 * Fences: 1. Weights and c are read when their rank has updated the bucket (PUSHED). 2. Weights, c
 * and z are used again when all slices are written (REDUCED). There is no other fence, so a worker
 * waits in meetings alone, and only for those that it meets:
 *
 *   - Between meetings a worker touches its own memory alone. In a meeting others read and write
 *     its weights, c and state, behind its PUSHED of the bucket and before their REDUCED. The
 *     worker waits for these before it ends the step. So all of it is at rest between its own
 *     steps.
 *   - z, d and y are written in a meeting of all, behind the PUSHED of all. A worker reads z and y
 *     before its own PUSHED. Where replicas restart, the first worker of a place copies z to y.
 *     Another worker of the place may come first, so it reads z until the next meeting.
 *   - The contract's `lead` is period - 1 where all meet, late 2 period - 1. Partners alone keep no
 *     bound, so there no worker ends a step before all have updated period x workers - 1 steps
 *     before. In a circle of neighbours all have.
 *   - A run changes its phase, pauses and stops at a common step (core's control word). A worker
 *     that had stopped would miss the meeting in which the others wait.
 */
#ifndef DPB_PLUGINS_LIB_AVERAGING_H
#define DPB_PLUGINS_LIB_AVERAGING_H

#include <stddef.h>

#include "device_strategy.h"
#include "dpbench/plugin.h"

struct dpb_averaging;
struct dpb_across;

/* Options that a strategy may have. Options without a row in the strategy's table stay zero. */
struct dpb_averaging_options {
    int64_t period, seed;
    double alpha, center_momentum, restart, outer_rate, outer_momentum;
    int64_t outer_late;
    int matching; /* of gossip */
    bool average_state, momentum_on_center, local_centers;
};

#define DPB_AVERAGING_AT(member) offsetof(struct dpb_averaging_options, member)
#define DPB_AVERAGING_PERIOD "a worker trains alone for so many steps, then it meets others"
#define DPB_AVERAGING_STATE "average all arrays of the optimizer's state (momentum, moments), too"
#define DPB_AVERAGING_ALPHA "part of the way to the centre by which a meeting draws a replica; 0: "

/* A part of the arrays in a meeting, `n` elements of the weights' type. */
struct dpb_averaging_meeting {
    const struct dpb_averaging_rule *rule;
    void *weights;     /* the mean of all workers' weights; `meet` leaves the new weights here */
    const void *start; /* the weights after the meeting before; those of `load` at first */
    void *velocity;    /* `meet`'s own; 0 after `load` */
    const void *work;  /* for dpb_averaging_axpby */
};

/* Enqueues y = a x + b y over the part. */
void dpb_averaging_axpby(const struct dpb_averaging_meeting *meeting, double a, const void *x,
                         double b, void *y);

struct dpb_averaging_rule {
    uint64_t period; /* steps; at least 1 */
    bool centre;
    /* Centre. */
    double alpha, centre_momentum;
    uint32_t learners; /* with a centre in each place: workers of a place; 0: without */
    /* If a step's rate is at most this share of the rate of the step before, replicas restart from
     * the centre, and d is 0. 0: never. */
    double restart;
    /* Mean: averages all arrays of the optimizer's state, too. */
    bool average_state;
    /* Mean: returns the one partner of rank self->job.rank, for which it returns this rank; the own
     * rank: no meeting. `round` counts meetings since `load`, from 0. NULL: all workers meet. */
    uint32_t (*partner)(const struct dpb_averaging *self, uint64_t round);
    uint64_t seed; /* for `partner` */
    /* Mean of all workers: enqueues, by dpb_averaging_axpby alone, at most 6 operations that round.
     * The books need what `meet` conserves: the sum of all workers' weights + start_coefficient x
     * start + velocity_coefficient x velocity. NULL: the mean is the new weights. */
    void (*meet)(const struct dpb_averaging_meeting *meeting);
    double start_coefficient, velocity_coefficient;
    double outer_rate, outer_momentum; /* for `meet` */
    bool late; /* a meeting takes the differences of the meeting before (difference.h) */
};

/* Returns the strategy's rule with these options. Before a run is planned, `args` is of one worker
 * and has neither queue nor tensors. */
typedef struct dpb_averaging_rule (*dpb_averaging_rule_of)(const void *options,
                                                           const struct dpb_comm_args *args);

struct dpb_averaging {
    struct dpb_device_strategy comm; /* first; of this machine's workers */
    struct dpb_comm_args job;        /* of all workers, as core gave it */
    struct dpb_across *across;       /* NULL: on one machine */
    struct dpb_averaging_rule rule;
    /* Offsets into an inbox, in bytes. Each inbox begins with c, or copies of optimizer state. */
    uint64_t place_at;    /* in the inbox of each place's first worker: y */
    uint64_t model_at;    /* in rank 0's: z or the published mean; on each machine */
    uint64_t velocity_at; /* in rank 0's: d; on several machines in the own one, of own slices */
    uint64_t start_at;    /* in the own one: `start`, then `velocity`; of own slices, no codec */
    uint64_t staging_at;  /* in the own one, on a device: copies of slices */
    uint64_t fence_at;    /* bytes into each rank's scratch */
    double steps;         /* since `load`, including the step under way */
    double rate;          /* of the step under way; 0 before the first */
    uint32_t fences;      /* that all workers have reached: two for each published mean */
    char place_name[24];  /* of y in a checkpoint */
    struct dpb_rank_set peers;
    bool meets;    /* this step, with `peers`: the machine's workers, the partner, or itself */
    bool restarts; /* in this step */
    /* Of the step under way: the loop's thread raises READY while another may be at a late meeting,
     * whose exchange has a number of its own. */
    struct dpb_rank_signals of_step;
    bool anew; /* replicas have restarted since the last meeting: y is z, or will be */
};

/* ---- the plugin ---------------------------------------------------------------------------- */

extern const struct dpb_comm_ops dpb_averaging_ops;
const struct dpb_plugin *dpb_averaging_entry(const struct dpb_host *host,
                                             const struct dpb_plugin *plugin,
                                             dpb_averaging_rule_of rule);

/* Defines a whole plugin whose rule the function RULE returns. Members of struct dpb_plugin follow
 * RULE: .name, .version, .summary, .options, .options_size. */
#define DPB_AVERAGING_PLUGIN(RULE, ...) DPB_AVERAGING_PLUGIN_WITH(0, RULE, __VA_ARGS__)
/* The same for a rule that takes the mean of all workers: codecs encode its differences. */
#define DPB_AVERAGING_CODED_PLUGIN(RULE, ...) \
    DPB_AVERAGING_PLUGIN_WITH(DPB_COMM_CODECS | DPB_COMM_ROUNDS, RULE, __VA_ARGS__)
#define DPB_AVERAGING_PLUGIN_WITH(CAPABILITIES, RULE, ...)                                        \
    static const struct dpb_plugin averaging_plugin = {                                           \
        DPB_PLUGIN_HEAD(COMM, dpb_averaging_ops),                                                 \
        .capabilities = DPB_COMM_OVERLAP | DPB_COMM_WHOLE | DPB_COMM_MULTI_NODE | (CAPABILITIES), \
        __VA_ARGS__};                                                                             \
    const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)                       \
    {                                                                                             \
        return dpb_averaging_entry(given, &averaging_plugin, RULE);                               \
    }                                                                                             \
    extern const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *host)

#endif
