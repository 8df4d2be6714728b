/*
 * plan.h - functions for planning an op: descriptions, tensors, steps, packed weights, and the
 * parts of a node's gradient.
 */
#ifndef DPB_CPU_PLAN_H
#define DPB_CPU_PLAN_H

#include "columns.h"
#include "program.h"

/* Returns DPB_OK, or fails with the message that p->node cannot do `what`. */
dpb_status cpu_check(const struct program *p, const char *what, dnnl_status_t status);

/* Descriptions live as long as the program. */
dpb_status cpu_desc(struct program *p, int n_dims, const dnnl_dim_t *dims, dnnl_data_type_t type,
                    dnnl_format_tag_t tag, const_dnnl_memory_desc_t *desc);
/* strides: the distance in elements between neighbours in each dimension. */
dpb_status cpu_strided_desc(struct program *p, int n_dims, const dnnl_dim_t *dims,
                            const dnnl_dim_t *strides, dnnl_data_type_t type,
                            const_dnnl_memory_desc_t *desc);
/* Describes an activation: {n, c, h, w} of the batch in nhwc order. */
dpb_status cpu_activation_desc(struct program *p, struct dpb_shape shape, dnnl_data_type_t type,
                               const_dnnl_memory_desc_t *desc);
/* Describes an activation as a matrix {n, columns}. */
dpb_status cpu_matrix_desc(struct program *p, uint64_t columns, dnnl_data_type_t type,
                           const_dnnl_memory_desc_t *desc);

/* A part of `whole` that begins at `offsets`. */
dpb_status cpu_part_desc(struct program *p, const_dnnl_memory_desc_t whole, const dnnl_dim_t *dims,
                         const dnnl_dim_t *offsets, const_dnnl_memory_desc_t *desc);

/* A tensor with a place of its own in the arena. */
dpb_status cpu_tensor(struct program *p, const_dnnl_memory_desc_t desc, struct tensor **tensor);
/* `bytes` of the arena, without further description. */
dpb_status cpu_buffer(struct program *p, size_t bytes, struct tensor **tensor);
/* `bytes` whose content lasts for one step only. */
dpb_status cpu_scratch(struct program *p, size_t bytes, struct tensor **tensor);
/* The bytes of another tensor, with another description. */
dpb_status cpu_view(struct program *p, const struct tensor *base, const_dnnl_memory_desc_t desc,
                    struct tensor **tensor);
/* Elements of one of core's fp32 arenas. */
dpb_status cpu_core_tensor(struct program *p, const void *arena, uint64_t offset,
                           const_dnnl_memory_desc_t desc, struct tensor **tensor);
/* A vector (bias, gamma, ...) of the weight or the gradient arena; NULL for DPB_NONE. */
dpb_status cpu_core_vector(struct program *p, const void *arena, uint32_t index,
                           struct tensor **tensor);

/* Makes the program own the description that a dnnl_..._create() made, or writes its error. */
dpb_status cpu_own(struct program *p, const char *what, dnnl_status_t status,
                   dnnl_primitive_desc_t created, const_dnnl_primitive_desc_t *desc);

/* The workspace that a forward primitive fills for its backward; NULL: it has none. */
dpb_status cpu_workspace(struct program *p, const_dnnl_primitive_desc_t forward,
                         struct tensor **tensor);

/* A node's activation, or a tensor like it, for columns.h; and scratch for its sums. */
/* tensor NULL: a matrix without data. The scratch has two sums a channel, then partial sums. */
struct matrix cpu_matrix(const struct program *p, const struct dpb_node *node,
                         const struct tensor *tensor);
dpb_status cpu_partials(struct program *p, const struct dpb_node *node, struct tensor **tensor);

struct arg {
    int name;                    /* DNNL_ARG_*; 0 ends a list */
    const struct tensor *tensor; /* NULL: left out */
};
#define ARGS(...)        \
    (const struct arg[]) \
    {                    \
        __VA_ARGS__,     \
        {                \
            0, NULL      \
        }                \
    }

/* Appends a step to the current list. */
dpb_status cpu_step(struct program *p, enum when when, const char *what,
                    const_dnnl_primitive_desc_t desc, const struct arg *args);
dpb_status cpu_loop(struct program *p, enum when when, const char *what, step_loop *loop,
                    const struct tensor *from, const struct tensor *to, const struct tensor *aux);
/* The forward pass of an op without tensors beside its one input and its activation. */
dpb_status cpu_forward_loop(struct program *p, const struct dpb_node *node, step_loop *loop);
/* Gives the loop that was appended last a further tensor; NULL: none. */
void cpu_also(struct program *p, enum use use, const struct tensor *tensor);
/* The step that was appended last does as much work as the forward pass of `node`. */
void cpu_set_flops(struct program *p, const struct dpb_node *node);
/* For a tensor that a later pass reads, or code that is no step. */
void cpu_keep(struct tensor *tensor);
dpb_status cpu_reorder(struct program *p, enum when when, const char *what,
                       const struct tensor *from, const struct tensor *to);

/*
 * For ops that oneDNN lacks, or does wrong, in bf16. cpu_read_fp32: an fp32 copy of an activation,
 * or of a gradient like one. cpu_write_fp32: a tensor to write in fp32; cpu_round_fp32 copies it to
 * `tensor`. In an fp32 program both are `tensor` itself, without a copy.
 */
dpb_status cpu_read_fp32(struct program *p, struct tensor *tensor, struct dpb_shape shape,
                         struct tensor **fp32);
dpb_status cpu_write_fp32(struct program *p, struct tensor *tensor, struct dpb_shape shape,
                          struct tensor **fp32);
dpb_status cpu_round_fp32(struct program *p, const struct tensor *fp32, struct tensor *tensor);

/*
 * Weights in the format that a primitive wants. `canonical` describes core's own format. If this is
 * `wanted`, the tensor is in core's arena; else a step repacks the weights when they have changed.
 */
dpb_status cpu_packed_weights(struct program *p, uint32_t index, const_dnnl_memory_desc_t canonical,
                              const_dnnl_memory_desc_t wanted, struct tensor **tensor);
/* The tensor for a weight's gradient that a primitive writes in `format`. The tensor is in core's
 * arena; else cpu_unpack_gradient(), called after the step, appends the step that copies it to the
 * arena. */
dpb_status cpu_weight_gradient(struct program *p, uint32_t index,
                               const_dnnl_memory_desc_t canonical, const_dnnl_memory_desc_t format,
                               struct tensor **tensor);
dpb_status cpu_unpack_gradient(struct program *p, uint32_t index,
                               const_dnnl_memory_desc_t canonical, const struct tensor *tensor);

/* Makes p->nodes[].activation of the node, in the layout and type of all activations. */
dpb_status cpu_activation(struct program *p, const struct dpb_node *node, struct tensor **tensor);
/* The node's backward writes its part of the gradient of input `slot` to this dense tensor, which
 * is like the input's activation. NULL: no such gradient is needed (the input node). */
dpb_status cpu_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                              struct tensor **tensor);
/* For ops whose part of the gradient lies in `part` already: no other step may write `part`. */
void cpu_share_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                              struct tensor *part);
/* Adds up the parts of a node's consumers: sets p->nodes[].gradient. */
dpb_status cpu_join_gradient(struct program *p, const struct dpb_node *node);

#endif
