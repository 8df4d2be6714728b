/*
 * slope.h - holds a device's gradients to the device's own loss, tensor by tensor.
 *
 * Each tensor's weights move by h d, where d is a seeded random sign for each element. The slope
 * (loss(w + h d) - loss(w - h d)) / 2 h must be sum(g d). No oracle is needed, so the network may
 * be any model. A device that leaves out the same work in forward and in backward passes. The loss
 * of the reference shows such a device (opcheck.h).
 */
#ifndef DPB_CONFORM_SLOPE_H
#define DPB_CONFORM_SLOPE_H

#include "conform/session.h"

/* A training step of an fp32 session, then two passes forward a tensor, 20 at most. Tensors are
 * taken in scattered order until the time `until_ns` (dpb_now_ns); *n: how many were. Fails with
 * DPB_VERIFICATION and names network and tensor. */
dpb_status dpb_slope_check(struct dpb_session *session, int64_t until_ns, uint32_t *n);

#endif
