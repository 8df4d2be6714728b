/*
 * opcheck.h - compares a device's ops with the reference's fp64 ops, one by one.
 *
 * Each node is computed again in fp64 from the device's own numbers (activations of its inputs,
 * gradient by its output), so that errors neither hide nor pile up. The bound is the one of
 * device.h, relative to the sum of the magnitudes of the terms. Further checks take a network as a
 * whole: the loss, repeated passes, evaluation.
 *
 * The oracle is plugins/devices/reference/ops.h, which device `reference` runs, too.
 *
 * All functions fail with DPB_VERIFICATION and name network, node and element.
 */
#ifndef DPB_CONFORM_OPCHECK_H
#define DPB_CONFORM_OPCHECK_H

#include "conform/session.h"

/* Every op of the last pass: activations, statistics and, after a training pass, all gradients. */
dpb_status dpb_opcheck_ops(const struct dpb_session *session);

/* The last pass's loss, and in evaluation the correct samples, against `reference` (the ops of
 * device reference) in fp64. Within device.h's bound, or `share` of the loss if that is more. */
dpb_status dpb_opcheck_loss(const struct dpb_session *session,
                            const struct dpb_device_ops *reference, double share);

/* After a training step: the same step again gives the same bits, although weights are overwritten
 * as soon as backward has released them. A program compiled without inspection gives them, too. */
dpb_status dpb_opcheck_repeat(struct dpb_session *session);

/* An evaluation by running averages, without dropout, with a sample that does not count; then a
 * training step with other weights. */
dpb_status dpb_opcheck_evaluation(struct dpb_session *session,
                                  const struct dpb_device_ops *reference);

#endif
