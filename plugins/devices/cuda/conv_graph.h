/*
 * conv_graph.h - what the plans of conv_graph_plans.c and their execution by conv_graph.c share.
 */
#ifndef DPB_CUDA_CONV_GRAPH_H
#define DPB_CUDA_CONV_GRAPH_H

#include "products.h"

/* Of tensors. */
enum uid {
    UID_X = 1,
    UID_W,
    UID_Y,
    UID_SUM,
    UID_PRODUCTS, /* forward: the squares */
    UID_DY,
    UID_DZ,
    UID_MEAN,
    UID_INVERSE,
    UID_DX, /* from here on: stored nowhere */
    UID_CENTERED,
    UID_NORMAL,
    UID_PRODUCT
};
/* Makes the plans of the call, as device.tuning and its file want them: sets fused->plans, n, taken
 * and tuned. Where cuDNN offers no plan there is none; device.fusion = on is refused then. */
dpb_status cuda_fused_plan(const struct program *p, const struct dpb_node *node,
                           enum fused_call call, struct fused *fused);

#endif
