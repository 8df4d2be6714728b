/* no_optimizer.h - for programs that time a strategy's exchange alone: weights stay as they are. */
#ifndef DPB_BENCH_NO_OPTIMIZER_H
#define DPB_BENCH_NO_OPTIMIZER_H

#include "dpbench/host.h"

static dpb_status no_update(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                            struct dpb_range range, void *weights, const void *gradients,
                            uint64_t bucket, const struct dpb_step *step)
{
    (void)optimizer, (void)queue, (void)range, (void)weights, (void)gradients, (void)bucket;
    (void)step;
    return DPB_OK;
}

static const struct dpb_optimizer_ops no_optimizer = {.update = no_update};

#endif
