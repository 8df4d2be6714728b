/*
 * across.h - meetings of replicas (averaging.h) over several machines: messages (mesh.h) between
 * them, shared memory within each.
 *
 * A meeting exchanges *channels*: arrays that the rule adds up. The first is the weights, or c; the
 * next are arrays of the optimizer's state; the last is the model that `publish` asks for. A bucket
 * is cut into as many slices as workers meet. The q-th of them owns the q-th slice. A slice that
 * another machine owns has a *delegate* here, one of this machine's workers:
 *
 *   gather   owner and delegates add up the slice over the workers of their machine. Each delegate
 *            sends this part to the owner
 *   join     the owner adds up the parts in the order of the machines, makes the result, and sends
 *            it to the delegates
 *   spread   owner and delegates write the result into the memory of their machine
 *
 * Two partners on two machines are a meeting of two slices, where each gathers for itself alone.
 * Partners on one machine need no message.
 *
 * Bytes: with P machines of equally many workers 2 (P - 1)/P M leave each machine in a meeting, and
 * as many arrive, however many workers it has. Partners: M each way.
 *
 * Memory for messages is free when they come, without credits:
 *
 *   - Parts of a meeting of all land in memory for each other machine. The owner has read the part
 *     of the meeting before when it sends the result, and the delegate sends the next part after
 *     that.
 *   - Two partners share memory with other partners, which may be meetings ahead. So a worker sends
 *     READY when its step with this partner begins, and the partner sends its part after that.
 *   - Results land where they belong, behind PUSHED of the machine's workers: the delegate's part
 *     was sent behind it.
 *
 * Each worker tells those of other machines how far it is (STEP): ten times a second at most, and
 * where a bound needs it. A worker that waits for one that is steps behind sees that this one goes
 * on, so run.timeout_s is for one step, as within a machine.
 */
#ifndef DPB_PLUGINS_LIB_AVERAGING_ACROSS_H
#define DPB_PLUGINS_LIB_AVERAGING_ACROSS_H

#include "lib/strategy/strategy.h"
#include "lib/tcp/tcp_connect.h"

enum {
    DPB_ACROSS_VALUES,
    DPB_ACROSS_STATES,
    DPB_ACROSS_MODEL = 3, /* behind two arrays of state */
    DPB_ACROSS_CHANNELS
};

/* The rule's work on one piece of a slice; `parts` are of the other machines, by machine, or of the
 * partner. */
struct dpb_across_rule {
    void (*gather)(void *strategy, uint32_t channel, struct dpb_piece piece);
    void (*join)(void *strategy, uint32_t channel, struct dpb_piece piece, const void *const *parts,
                 uint32_t n_parts);
    void (*spread)(void *strategy, uint32_t channel, struct dpb_piece piece);
};

struct dpb_across_args {
    struct dpb_comm_args job; /* all workers */
    const struct dpb_across_rule *rule;
    uint32_t n_channels; /* of a step's meeting, at most */
    bool pairs;          /* partners meet in steps; else all workers */
    bool model;          /* there is the channel of the model */
    uint64_t lead;       /* of the contract; it is kept for pairs */
};

/* Memory like the arena of weights: where `gather` leaves parts, and where results belong. This
 * rank has mapped it; @borrowed until close. */
struct dpb_across_channel {
    void *from, *to;
};

struct dpb_across;

/* The job as one machine's workers see it, numbered from 0. */
struct dpb_comm_args dpb_across_within(const struct dpb_comm_args *job);
uint32_t dpb_across_local(const struct dpb_comm_args *job, uint32_t rank); /* on its machine */
/* Bytes of the host's memory for arriving parts. */
uint64_t dpb_across_bytes(const struct dpb_across_args *args, const struct dpb_layout *layout,
                          uint64_t bucket_elements);

/* `open` on several machines. `base` is the strategy of this machine's workers: its args are
 * dpb_across_within's, and its pointer is the stages' strategy. */
dpb_status dpb_across_open(struct dpb_strategy *base, const struct dpb_across_args *args,
                           const struct dpb_tcp_options *tcp, struct dpb_across **across);
/* Parts of `bind`. The machine's arenas by local rank; before the stages. */
struct dpb_arenas dpb_across_view(const struct dpb_across *across, const struct dpb_arenas *arenas);
/* Collective over the job; behind the stages. */
dpb_status dpb_across_connect(struct dpb_across *across,
                              const struct dpb_across_channel channels[DPB_ACROSS_CHANNELS]);
void dpb_across_close(struct dpb_across *across); /* accepts NULL */

/* A step begins, in which `group` meets, of this machine. far: and others, `partner` or UINT32_MAX
 * for all. */
void dpb_across_begin(struct dpb_across *across, struct dpb_rank_set group, bool far,
                      uint32_t partner, uint32_t n_channels);
/* All workers, between steps: the model into the memory of each machine. Blocks. */
dpb_status dpb_across_publish(struct dpb_across *across);

/* ---- stages -------------------------------------------------------------------------------- */

bool dpb_across_is_far(const struct dpb_across *across); /* this step; NULL: no */
dpb_status dpb_across_move(struct dpb_across *across, int64_t until_ns, bool *moved);
dpb_status dpb_across_update_wait(struct dpb_across *across, uint64_t bucket);
/* They do nothing in steps that do not meet other machines, but for `tell`. `join` is for steps
 * that do. */
bool dpb_across_tell_due(const struct dpb_across *across, uint64_t bucket);
void dpb_across_tell(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn);
bool dpb_across_gather_due(const struct dpb_across *across, uint64_t bucket);
void dpb_across_gather(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn);
bool dpb_across_join_due(const struct dpb_across *across, uint64_t bucket);
void dpb_across_join(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn);
bool dpb_across_spread_due(const struct dpb_across *across, uint64_t bucket);
void dpb_across_spread(struct dpb_across *across, uint64_t bucket, struct dpb_stage_turn *turn);
/* Behind spread: nothing is under way that the next step may write, and no worker of another
 * machine is too far behind. */
bool dpb_across_take_due(const struct dpb_across *across, uint64_t bucket);
/* Waits for any of the above, or for workers of this machine, and names the first that is
 * missing. */
dpb_status dpb_across_wait(struct dpb_across *across, uint64_t bucket);

#endif
