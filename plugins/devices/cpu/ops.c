/*
 * ops.c - the one table of the ops: the next op gets its line here.
 */
#include "cpu.h"

const struct op cpu_ops[DPB_OPS] = {
    [DPB_OP_INPUT] = {.forward = cpu_input_forward},
    [DPB_OP_CONV] = {cpu_conv_forward, cpu_conv_backward},
    [DPB_OP_BATCH_NORM] = {cpu_batch_norm_forward, cpu_batch_norm_backward},
    [DPB_OP_RELU] = {cpu_relu_forward, cpu_relu_backward},
    [DPB_OP_MAX_POOL] = {cpu_pool_forward, cpu_pool_backward},
    [DPB_OP_MEAN_POOL] = {cpu_pool_forward, cpu_pool_backward},
    [DPB_OP_DENSE] = {cpu_dense_forward, cpu_dense_backward},
    [DPB_OP_ADD] = {cpu_add_forward, cpu_add_backward},
    [DPB_OP_CONCAT] = {cpu_concat_forward, cpu_concat_backward},
    [DPB_OP_DROPOUT] = {cpu_dropout_forward, cpu_dropout_backward},
    [DPB_OP_LRN] = {cpu_lrn_forward, cpu_lrn_backward},
    [DPB_OP_SHORTCUT] = {cpu_shortcut_forward, cpu_shortcut_backward},
    [DPB_OP_SOFTMAX_LOSS] = {cpu_loss_forward, cpu_loss_backward},
};
