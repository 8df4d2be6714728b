/*
 * ops.h - the ops of the CPU device, and their common parts.
 */
#ifndef DPB_CPU_OPS_H
#define DPB_CPU_OPS_H

#include "plan.h"

/* Append the steps of p->node. backward: the node's gradient is complete (p->nodes[].gradient). The
 * steps write its inputs' gradients to the tensors of cpu_input_gradient(). */
dpb_status cpu_conv_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_conv_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_dense_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_dense_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_batch_norm_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_batch_norm_backward(struct program *p, const struct dpb_node *node);
/* For a ReLU into which a batch-norm was fused. */
dpb_status cpu_fused_norm_forward(struct program *p, const struct dpb_node *relu);
dpb_status cpu_fused_norm_backward(struct program *p, const struct dpb_node *relu);
dpb_status cpu_lrn_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_lrn_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_pool_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_pool_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_relu_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_relu_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_add_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_add_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_concat_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_concat_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_dropout_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_dropout_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_gelu_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_gelu_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_embedding_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_embedding_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_layer_norm_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_layer_norm_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_attention_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_attention_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_positions_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_positions_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_prepend_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_prepend_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_shortcut_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_shortcut_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_input_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_loss_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_loss_backward(struct program *p, const struct dpb_node *node);

/* Whether the convolution is the dense layer of a sequence's positions: ops_dense.c has these. */
bool cpu_multiplies_positions(const struct program *p, const struct dpb_node *node);

/* ---- fuse.c: nodes that run as one (lib/device/groups.h) ------------------------------------ */

/* The gradient by a fused ReLU's input, for the convolution or dense layer before the ReLU. Its
 * step sums that layer's bias gradient, too. */
dpb_status cpu_masked_gradient(struct program *p, const struct dpb_node *relu);
/* The bias gradient of a convolution or dense layer that has a bias and no such ReLU. */
dpb_status cpu_bias_gradient(struct program *p, const struct dpb_node *node);
/* One or two parts of a node's gradient, as in columns.h, and a place for dz if written. */
struct gradient_plan {
    const struct tensor *part[2];
    struct tensor *dz; /* NULL: not written */
};
dpb_status cpu_plan_gradient(struct program *p, const struct dpb_node *node, bool write,
                             struct gradient_plan *plan);
void cpu_use_gradient(struct program *p, const struct gradient_plan *plan,
                      const struct tensor *output);
struct gradient cpu_gradient(const struct program *p, const struct step *step, enum mask mask);

/* ---- loops.c ------------------------------------------------------------------------------- */

/* Appends a step of our own that computes a convolution's weights' gradient: from = its input, to =
 * the gradient, also[USE_PART] = its output's gradient, aux = scratch of `bytes`. */
dpb_status cpu_weights_loop(struct program *p, const struct dpb_node *node,
                            const_dnnl_memory_desc_t canonical, size_t bytes, step_loop *loop);

/* ---- image_conv.c: a convolution of the images themselves ---------------------------------- */

/* Whether the node reads images, has one group, and is too large for oneDNN's inexact sums. */
bool cpu_reads_images(const struct program *p, const struct dpb_node *node);
/* Appends the step that computes its weights' gradient. */
dpb_status cpu_image_weights(struct program *p, const struct dpb_node *node,
                             const_dnnl_memory_desc_t canonical);

/* ---- weights_product.c: weights' gradients by own kernels ------------------------------------ */

/* Whether the convolution has one group, and this processor has the kernels' instructions and none
 * that are better. */
bool cpu_multiplies_weights(const struct program *p, const struct dpb_node *node);
/* Appends the step that computes a convolution's weights' gradient. */
dpb_status cpu_weights_product(struct program *p, const struct dpb_node *node,
                               const_dnnl_memory_desc_t canonical);

/* ---- loss.c -------------------------------------------------------------------------------- */

void cpu_loss_outcome(const struct program *p, uint32_t valid, struct dpb_outcome *outcome);
/* inspect() of the loss node: each sample's loss, and the gradient of the mean by it. */
dpb_status cpu_inspect_loss(const struct program *p, double *activation, double *gradient);

#endif
