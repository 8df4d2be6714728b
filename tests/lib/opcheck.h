/*
 * opcheck.h - conform/opcheck.h for tests of dpbench's own devices: a failure fails the test.
 */
#ifndef DPB_TESTS_LIB_OPCHECK_H
#define DPB_TESTS_LIB_OPCHECK_H

#include "lib/session.h"

/* Every op of the last pass: activations, statistics and, after a training pass, all gradients. */
void check_ops(const struct dpb_session *session);
/* The last pass's loss against the reference device's in fp64. */
void check_loss(const struct dpb_session *session);

enum { OPS = 1, LOSS = 2, REPEAT = 4, EVALUATION = 8, ALL = 15 };

/* A training pass of the subject and what of the above `what` asks for. REPEAT: again, with the
 * same bits, though weights vanish as soon as backward has let them go; and by a program that was
 * not compiled for inspection. EVALUATION: with running
 * averages, no dropout, and samples that do not count; then training with other weights. */
void check_in(dpb_precision precision, const struct subject *subject, int what);
/* In fp32 and in bf16, which some processors refuse; and where the device has them in tf32 and
 * fp16, without REPEAT and EVALUATION. */
void check_subject(const struct subject *subject, int what);

#endif
