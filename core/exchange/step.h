/*
 * step.h - a step between the device and the communicator, on the loop's thread: gradients become
 * ready, buckets are handed over, the weights are waited for.
 *
 * With arenas on a device and a strategy that takes events the loop waits for none of this. Buckets
 * come with events that have not fired, the device gets the event of the weights, and the loop
 * continues with the next step's input. Where the device captures a step's exchange with its
 * backward, all of this is done once, into the graph; each launch of the graph takes its place.
 */
#ifndef DPB_CORE_EXCHANGE_STEP_H
#define DPB_CORE_EXCHANGE_STEP_H

#include "exchange/exchange.h"

/* The hooks that the device calls during a pass. */
struct dpb_hooks dpb_exchange_hooks(struct dpb_exchange *exchange);
/* Tells the communicator that an exchange with these parameters begins. */
dpb_status dpb_exchange_begin(struct dpb_exchange *exchange, double learning_rate, double scale,
                              bool plain);
/* Before the backward of a micro-batch. Where each is an exchange of its own (needs.h): ends the
 * exchange of the micro-batch before, and begins this one's. Otherwise does nothing. */
dpb_status dpb_exchange_next_micro_batch(struct dpb_exchange *exchange, uint32_t micro_batch);
/* The first `frontier` elements are final, once `event` (NULL: at once) fires: hands over the
 * buckets that end within them, but with comm.late. */
dpb_status dpb_exchange_ready(struct dpb_exchange *exchange, uint64_t frontier,
                              struct dpb_event *event);
/* Between the device's ops, on the loop's thread: does a piece of the strategy's work that is
 * possible now. Takes a struct dpb_exchange. */
dpb_status dpb_exchange_move(void *exchange);
/* After begin: moves the strategy on, and asks whether this step's gradients will be dropped. A
 * dpb_delay_look. */
dpb_status dpb_exchange_look(void *exchange, bool *cancelled);
/* The status of a device's pass; DPB_OK if the device left the pass because the step is given
 * up. */
dpb_status dpb_exchange_passed(const struct dpb_exchange *exchange, dpb_status status);
/* Waits until the arena holds the next forward's weights. Where device and strategy order their
 * work by events, makes the next forward wait instead. */
dpb_status dpb_exchange_finish(struct dpb_exchange *exchange);
/* Waits until device and strategy have done all enqueued work. */
dpb_status dpb_exchange_drain(struct dpb_exchange *exchange);
/* Applies all gradients handed over to all weights, by the strategy's `settle` if there is one. */
dpb_status dpb_exchange_settle(struct dpb_exchange *exchange);
/* Between steps: drains, and closes the account of the last step. */
dpb_status dpb_exchange_pause(struct dpb_exchange *exchange);

#endif
