/*
 * op_name.h - the name of an op in messages and profiles of devices.
 */
#ifndef DPB_LIB_DEVICE_OP_NAME_H
#define DPB_LIB_DEVICE_OP_NAME_H

#include "dpbench/graph.h"

static inline const char *dpb_op_name(dpb_op op)
{
    static const char *const names[DPB_OPS] = {
        [DPB_OP_INPUT] = "input",
        [DPB_OP_CONV] = "convolution",
        [DPB_OP_BATCH_NORM] = "batch-norm",
        [DPB_OP_RELU] = "relu",
        [DPB_OP_MAX_POOL] = "max pool",
        [DPB_OP_MEAN_POOL] = "mean pool",
        [DPB_OP_DENSE] = "dense",
        [DPB_OP_ADD] = "add",
        [DPB_OP_CONCAT] = "concat",
        [DPB_OP_DROPOUT] = "dropout",
        [DPB_OP_LRN] = "lrn",
        [DPB_OP_SHORTCUT] = "shortcut",
        [DPB_OP_EMBEDDING] = "embedding",
        [DPB_OP_LAYER_NORM] = "layer-norm",
        [DPB_OP_GELU] = "gelu",
        [DPB_OP_ATTENTION] = "attention",
        [DPB_OP_POSITIONS] = "positions",
        [DPB_OP_PREPEND] = "prepend",
        [DPB_OP_TENSOR] = "tensor",
        [DPB_OP_SOFTMAX_LOSS] = "softmax loss",
    };
    return names[op];
}

#endif
