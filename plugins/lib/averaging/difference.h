/*
 * difference.h - meetings of all workers that exchange differences: by a codec (dpbench/codec.h),
 * or late. For strategies whose workers meet every so many steps (averaging.h).
 *
 * z is what all replicas held after the meeting before (`start`), e_i the codec's residual, `move`
 * the strategy's rule, which makes the new weights of all from their mean:
 *
 *     difference   u_i = w_i - z                  the weights after the own steps
 *     message      m_i = encode(u_i + e_i);       e_i <- u_i + e_i - decode(m_i)
 *     meeting      w_i <- move(z + (decode(m_1) + ... + decode(m_W)) / W), by rank;  z <- w_i
 *
 * All workers make all new weights, with the same bits. Each keeps the whole z, the whole velocity
 * of the rule, and e_i. The sum of all w_i and e_i moves by the replicas' own steps alone, so the
 * books name e_i in units of weights.
 *
 * u_i and then the sum take the place of the gradients, which the own update has used up. So
 * weights and gradients are fp32. All arrays and messages lie in the host's memory, messages in
 * that which all workers share (coded.h).
 *
 * Late: the exchange of a meeting's differences goes on during the next period, and the meeting
 * behind it takes the result. Meeting k, p_i the difference that worker i gave in meeting k - 1 (at
 * first 0), without a codec decode(encode(x)) = x:
 *
 *     u_i = w_i - z - p_i                                          the own steps of this period
 *     z   <- move(z + (decode(m_1) + ... + decode(m_W)) / W)       the messages of meeting k - 1
 *     w_i <- z + u_i;  p_i <- u_i
 *     m_i = encode(u_i + e_i);  e_i as above
 *
 * So each replica keeps the way that it has not given or that is under way, and the outer gradient
 * comes a period late. With the rule of DiLoCo this is Kale, Douillard, Donchev: Eager updates for
 * overlapped communication and computation in DiLoCo. 2025, "delayed outer gradients", but for u_i,
 * which is kept as in Zhou et al.: DaSGD: Squeezing SGD parallelization performance in distributed
 * training using delayed averaging. 2020. The books name e_i as it was before the exchange under
 * way. `publish` ends this exchange, so a checkpoint has the sum of its messages. Rounds of a codec
 * are taken in the first step after their messages came. Messages of two meetings have a bank each:
 * nobody begins meeting k + 2 before all have taken those of meeting k.
 *
 * Fences, unless late: 1. The messages of a round are decoded when all are there (PUSHED,
 * ANSWERED). 2. A worker ends the meeting's step when all have decoded them (REDUCED).
 *
 * Error feedback on differences: Karimireddy et al.: Error feedback fixes SignSGD and other
 * gradient compression schemes. ICML 2019. Basu et al.: Qsparse-local-SGD. NeurIPS 2019, algorithm
 * 1.
 */
#ifndef DPB_PLUGINS_LIB_DIFFERENCE_H
#define DPB_PLUGINS_LIB_DIFFERENCE_H

#include "coded.h"

/* `args`; of late meetings without a codec with one that loses nothing. */
struct dpb_comm_args dpb_difference_args(const struct dpb_comm_args *args, bool late);
/* Refuses codecs that cannot encode differences, and a meeting of optimizer state. */
dpb_status dpb_difference_check(const struct dpb_host *host, const struct dpb_comm_args *args,
                                bool late, bool average_state);
/* The roundings of a meeting beside those without differences. args: of dpb_difference_args. */
uint32_t dpb_difference_roundings(const struct dpb_comm_args *args);
/* Arrays of weights in each inbox from start_at on: `start`, the rule's velocity, and those of late
 * meetings. */
uint32_t dpb_difference_areas(const struct dpb_comm_args *args, bool late, bool has_velocity);

/* ---- hooks; with no args->codec they do nothing, but for `plan` and `bind` ------------------ */

/* In `open`, with the args of dpb_difference_args. */
dpb_status dpb_difference_open(struct dpb_strategy *strategy, bool late);
/* Behind the plan without a codec, whose contract stays. */
dpb_status dpb_difference_plan(struct dpb_strategy *strategy, const struct dpb_layout *layout,
                               struct dpb_comm_plan *want);
/* In place of dpb_strategy_bind. `move` makes the new weights from their mean, which the own
 * weights are, and leaves them in `start`, too. */
dpb_status dpb_difference_bind(struct dpb_strategy *strategy, const struct dpb_arenas *arenas,
                               uint64_t start_at,
                               void (*move)(struct dpb_strategy *strategy, struct dpb_piece piece));
void dpb_difference_load(struct dpb_strategy *strategy); /* behind dpb_strategy_load */
/* Before dpb_strategy_begin; `steps` since `load`, this one included. */
void dpb_difference_begin(struct dpb_strategy *strategy, double steps, bool meets);
/* In `publish`: ends the exchange under way of late meetings. Collective. */
dpb_status dpb_difference_finish(struct dpb_strategy *strategy);
void dpb_difference_books(const struct dpb_strategy *strategy, struct dpb_books *books);
dpb_status dpb_difference_state(struct dpb_strategy *strategy, struct dpb_saved *saved);

#endif
