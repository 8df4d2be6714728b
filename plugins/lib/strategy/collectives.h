/*
 * collectives.h - the operations of dpbench/collectives.h through shared gradients, as stages
 * (pipeline.h). A worker announces a bucket by READY, takes what it needs of all workers' arenas,
 * and says so by REDUCED. When all have said so, the arenas may be written again.
 *
 * Bytes read from other workers, of a bucket of M bytes and W workers: (W - 1)/W M a worker, but
 * for broadcast: M by each worker but worker 0.
 */
#ifndef DPB_PLUGINS_LIB_STRATEGY_COLLECTIVES_H
#define DPB_PLUGINS_LIB_STRATEGY_COLLECTIVES_H

#include "strategy.h"

/* In `bind` of a strategy whose gradients are DPB_MEMORY_SHARED, in place of dpb_strategy_bind. */
dpb_status dpb_collectives_bind_shared(struct dpb_strategy *strategy,
                                       const struct dpb_arenas *arenas);

#endif
