/*
 * loss_scale.h - the factor of the loss in fp16, so that small gradients do not vanish. The factor
 * grows until gradients overflow. A step with an infinite gradient on any rank is skipped on all.
 *
 * Micikevicius et al.: Mixed Precision Training. ICLR 2018.
 */
#ifndef DPB_CORE_OPTIM_LOSS_SCALE_H
#define DPB_CORE_OPTIM_LOSS_SCALE_H

#include <stdbool.h>
#include <stdint.h>

enum { DPB_LOSS_SCALE_CLEAN = 1000 /* steps without overflow in a row after which it doubles */ };

struct dpb_loss_scale {
    double scale; /* of the next step; automatic: a power of two from 1 to 2^32 */
    bool fixed;
    uint64_t clean;   /* steps without overflow since it changed */
    uint64_t skipped; /* steps with overflow, of the whole training */
};

/* `fixed` 0: automatic, from 2^16. */
void dpb_loss_scale_init(struct dpb_loss_scale *scale, double fixed);
/* Called after a step. False: the step overflowed at the smallest scale. */
bool dpb_loss_scale_step(struct dpb_loss_scale *scale, bool overflow);

#endif
