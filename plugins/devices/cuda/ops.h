/*
 * ops.h - the ops of the cuda device: ops_products.c (convolutions and dense layers), ops_norm.c
 * (batch-norm), ops_sequence.c (of sequences), ops_simple.c (all others, and the table).
 */
#ifndef DPB_CUDA_OPS_H
#define DPB_CUDA_OPS_H

#include "program.h"

/* Append the steps of p->node. backward: the node's gradient is complete (p->nodes[].gradient). The
 * steps write its inputs' gradients to the tensors of cuda_input_gradient(). */
struct op {
    dpb_status (*forward)(struct program *p, const struct dpb_node *node);
    dpb_status (*backward)(struct program *p, const struct dpb_node *node);
    step_run *run, *run_backward; /* of an op that is one kernel each way (ops_simple.c); or NULL */
};

extern const struct op cuda_ops[DPB_OPS];

dpb_status cuda_conv_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_conv_backward(struct program *p, const struct dpb_node *node);
dpb_status cuda_dense_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_dense_backward(struct program *p, const struct dpb_node *node);
dpb_status cuda_norm_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_norm_backward_plan(struct program *p, const struct dpb_node *node);
/* The batch-norm on the other side of the addition behind `norm`, if the group's kernels take both;
 * else NULL. The forward of `norm` is planned. */
const struct dpb_node *cuda_other_side(const struct program *p, const struct dpb_node *norm);
/* The batch-norm whose ReLU only the max pool `pool` reads, if the pool's kernel forward and the
 * batch-norm's backward do the work of all three; else NULL. The ReLU's result is then stored
 * nowhere. */
const struct dpb_node *cuda_pooled_norm(const struct program *p, const struct dpb_node *pool);
/* For a ReLU into which a batch-norm was fused. */
dpb_status cuda_fused_norm_forward(struct program *p, const struct dpb_node *relu);
dpb_status cuda_fused_norm_backward(struct program *p, const struct dpb_node *relu);

dpb_status cuda_embedding_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_embedding_backward(struct program *p, const struct dpb_node *node);
dpb_status cuda_layer_norm_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_layer_norm_backward_plan(struct program *p, const struct dpb_node *node);
dpb_status cuda_positions_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_positions_backward(struct program *p, const struct dpb_node *node);
dpb_status cuda_prepend_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_prepend_backward(struct program *p, const struct dpb_node *node);
dpb_status cuda_attention_forward(struct program *p, const struct dpb_node *node);
dpb_status cuda_attention_backward(struct program *p, const struct dpb_node *node);
step_run cuda_run_gelu, cuda_run_gelu_backward;

/* Whether the step is a convolution's call. The product of matrices that the step runs, or NULL. */
bool cuda_is_conv(const struct step *step);
struct gemm *cuda_gemm_of(const struct program *p, const struct step *step);

#endif
