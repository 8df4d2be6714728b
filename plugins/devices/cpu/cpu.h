/*
 * cpu.h - the CPU device's own types. A program is planned once, as flat lists of steps over
 * tensors in one arena. A pass walks a list and allocates nothing.
 *
 * Life of a program: *plan*, *bind*, passes (pass.c), release. In *plan* program.c calls every op
 * of the graph, through the table of ops.c, and the op appends its steps. Tensors get places in an
 * arena that does not exist yet. *bind* allocates the arena and makes oneDNN's primitives.
 * memory_needed() only plans.
 *
 * Functions that return dpb_status have written the message unless they return DPB_OK.
 */
#ifndef DPB_CPU_H
#define DPB_CPU_H

#include <dnnl.h>
#include <dnnl_debug.h>

#include "columns.h"
#include "dpbench/plugin.h"
#include "lib/device/groups.h"
#include "lib/device/op_name.h"
#include "lib/device/places.h"
#include "lib/device/refuse.h"

enum { ARENA_ALIGN = 64 /* bytes: a cache line, and the widest vector */ };

struct device {
    uint32_t threads;
    uint64_t seed;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
};

/* An operand of a step: a description and a place. */
struct tensor {
    const_dnnl_memory_desc_t desc; /* @borrowed from the program */
    dnnl_memory_t memory;
    void *data;                /* NULL until the program is bound */
    const struct tensor *base; /* this tensor is a view of it; NULL: a place of its own */
    struct dpb_place place;    /* in the arena; 0 bytes: `data` is in core's arena */
    struct tensor *next;       /* of the program's list */
};

/* The passes in which a step runs: a pass's mask has all of its bits, a step needs one of them. */
enum when {
    WHEN_TRAINING = 1,
    WHEN_EVALUATION = 2,
    WHEN_REPACKING = 4, /* the weights have changed */
    WHEN_ALWAYS = WHEN_TRAINING | WHEN_EVALUATION
};

struct program;
struct step;
typedef void step_loop(const struct program *program, const struct step *step);

/* Further tensors of a loop on a gradient: see struct gradient of columns.h. */
enum use { USE_PART, USE_SECOND_PART, USE_OUTPUT, USE_DZ, USES };

/* One prepared execution: a primitive of oneDNN, or a loop of our own. */
struct step {
    const struct dpb_node *node;
    const char *what; /* "backward weights": for messages */
    enum when when;
    uint64_t frontier;                /* after this step, gradients below are final; 0: none more */
    const_dnnl_primitive_desc_t desc; /* @borrowed from the program; NULL: a loop */
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t *args;
    int n_args;
    step_loop *loop;
    const struct tensor *from, *to, *aux;
    const struct tensor *also[USES]; /* of a loop: see enum use */
    double bytes, flops;             /* for struct dpb_profile_row */
};

struct step_list {
    struct step *steps;
    size_t n;
};

/* A node's part of the plan. */
struct node_plan {
    struct tensor *activation;
    struct tensor *gradient; /* NULL: not computed */
    /* Forward sets these for backward, each op as it needs them. */
    const_dnnl_primitive_desc_t forward;
    struct tensor *weights, *workspace, *input_fp32, *flattened;
    struct dpb_group *group;
};

struct program {
    uint32_t threads;
    uint64_t seed;
    dnnl_engine_t engine;
    dnnl_stream_t stream; /* NULL when only planned */
    const struct dpb_graph *graph;
    struct dpb_compile_args args;
    struct dpb_device_memory core; /* core's arenas; all NULL when only planned */
    dnnl_data_type_t type;         /* of activations and their gradients */

    struct node_plan *nodes;
    struct step_list forward, backward;
    size_t n_steps;   /* of both */
    int64_t *step_ns; /* @owned: for each step, with run.profile; else NULL */
    uint64_t *step_calls;
    struct dpb_profile_row *rows;
    void *arena;
    size_t arena_bytes;
    struct tensor scratch; /* the arena's tail: the scratchpad of every step */

    /* The cursor of planning: the list to which cpu_step appends, and the node. */
    struct step_list *list;
    const struct dpb_node *node;

    /* @owned: steps and tensors refer to these. */
    struct tensor *tensors;
    struct dpb_place *places; /* of tensors */
    struct dpb_group *groups; /* of all nodes */
    dnnl_memory_desc_t *descs;
    dnnl_primitive_desc_t *primitive_descs;
    size_t n_descs, n_primitive_descs;
    dnnl_primitive_attr_t attributes; /* user scratchpad, strict fp32 */
    dnnl_primitive_attr_t with_relu;  /* the same, and a ReLU after it */

    /* The loss by sample, and results of the last forward that backward needs. */
    struct tensor *sample_loss; /* double */
    struct tensor *log_sum;     /* double: log of the sum of the exponentials */
    struct tensor *labels;      /* int32_t */
    struct tensor *label_rank;  /* uint32_t: how many logits are larger than the label's */

    /* The pass in progress; @borrowed. */
    const struct dpb_pass *pass;
    const struct dpb_batch *batch;
    bool trained; /* the last forward was a training pass: backward may follow */
    bool forward_packed, backward_packed; /* the packed weights of each are up to date */
};

extern const struct dpb_host *cpu_host;

/* ---- ops.c: the ops ------------------------------------------------------------------------ */

/* Append the steps of p->node. backward: the node's gradient is complete (p->nodes[].gradient). The
 * steps write its inputs' gradients to the tensors of cpu_input_gradient(). */
struct op {
    dpb_status (*forward)(struct program *p, const struct dpb_node *node);
    dpb_status (*backward)(struct program *p, const struct dpb_node *node);
};

extern const struct op cpu_ops[DPB_OPS];

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
dpb_status cpu_shortcut_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_shortcut_backward(struct program *p, const struct dpb_node *node);
dpb_status cpu_input_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_loss_forward(struct program *p, const struct dpb_node *node);
dpb_status cpu_loss_backward(struct program *p, const struct dpb_node *node);

/* ---- plan.c: functions for planning an op -------------------------------------------------- */

static inline uint32_t cpu_index(const struct program *p, const struct dpb_node *node)
{
    return (uint32_t)(node - p->graph->nodes);
}

static inline struct node_plan *cpu_plan(const struct program *p, const struct dpb_node *node)
{
    return &p->nodes[cpu_index(p, node)];
}

static inline const struct dpb_node *cpu_input(const struct program *p, const struct dpb_node *node,
                                               uint32_t slot)
{
    return &p->graph->nodes[node->inputs[slot]];
}

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

/* ---- fuse.c: nodes that run as one (lib/device/groups.h) ------------------------------------ */

/* The node whose activation has the node's result: itself, or the ReLU that it was fused with. */
static inline const struct dpb_node *cpu_result(const struct program *p,
                                                const struct dpb_node *node)
{
    const struct dpb_node *into = cpu_plan(p, node)->group->into;
    return into ? into : node;
}
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

/* ---- profile.c, limits.c ------------------------------------------------------------------- */

dpb_status cpu_profile(void *program, struct dpb_profile *profile);
/* Whether the processor multiplies matrices of bf16 (AMX). */
bool cpu_has_tiles(void);
dpb_status cpu_measure_limits(uint32_t threads, struct dpb_profile_limits *limits);

/* ---- program.c, pass.c: the hooks of dpb_device_ops ---------------------------------------- */

/* Sets the calling thread's number of compute threads: OpenMP keeps one for each thread. */
void cpu_use_threads(uint32_t threads);

uint64_t cpu_memory_needed(const void *options, const struct dpb_compile_args *args);
dpb_status cpu_compile(void *device, const struct dpb_compile_args *args,
                       const struct dpb_device_memory *memory, void **program);
void cpu_release(void *program);
dpb_status cpu_forward(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                       const struct dpb_hooks *hooks, struct dpb_outcome *outcome);
dpb_status cpu_backward(void *program, const struct dpb_pass *pass, const struct dpb_hooks *hooks);
dpb_status cpu_inspect(void *program, uint32_t node, double *activation, double *gradient);

#endif
