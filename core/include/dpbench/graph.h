/*
 * graph.h - the network: how a model plugin describes it, and what a device plugin compiles.
 *
 * A model needs the builder alone; the compiled form is for devices.
 *
 * A graph is a list of nodes in forward order; a node's inputs come before it. Core infers shapes,
 * counts parameters and multiply-accumulates, names the tensors and lays them out in the arena in
 * the order in which backward finishes their gradients: last node first, and within a node weight,
 * then bias. Every tensor starts at a multiple of DPB_TENSOR_ALIGN elements; the gap before the
 * next holds zeros.
 *
 * Shapes are those of one sample, {c, h, w}; the batch is the device's outermost dimension. A
 * sequence is {width, 1, length}: its positions are pixels, and a 1 x 1 convolution is the dense
 * layer of each. Where an op works on positions, an image has h * w of them, row by row.
 */
#ifndef DPBENCH_GRAPH_H
#define DPBENCH_GRAPH_H

#include "types.h"

enum { DPB_TENSOR_ALIGN = 16 /* elements */, DPB_MAX_INPUTS = 128 /* of a node */ };
#define DPB_NONE UINT32_MAX /* no such node, tensor or state */

typedef enum dpb_op {
    DPB_OP_INPUT,
    DPB_OP_CONV,       /* weight OIHW, where I is the input channels of one group; optional bias O;
                          cross-correlation, as the field has it */
    DPB_OP_BATCH_NORM, /* over N, H, W; weight is gamma (may be DPB_NONE: 1), bias is beta */
    DPB_OP_RELU,
    DPB_OP_MAX_POOL,  /* padding never wins; the first maximum in row order gets the gradient */
    DPB_OP_MEAN_POOL, /* padding is not counted in the mean */
    DPB_OP_DENSE,     /* weight OI over the CHW-flattened input, optional bias O */
    DPB_OP_ADD,       /* of two nodes of one shape */
    DPB_OP_CONCAT,    /* of channels, in the order of the inputs */
    DPB_OP_DROPOUT,   /* mask: dpb_dropout_keeps() of random.h; identity in evaluation */
    DPB_OP_LRN, /* across channels: x / (k + alpha * sum over c-radius..c+radius of x^2)^beta */
    DPB_OP_SHORTCUT,   /* every stride-th pixel from the first, then zero channels appended */
    DPB_OP_EMBEDDING,  /* row id of weight {classes, channels} for each position; reads the batch's
                            ids, so the input node has no activation of its own */
    DPB_OP_LAYER_NORM, /* over the channels of each position; weight is gamma, bias is beta */
    DPB_OP_GELU,       /* x times the normal distribution's probability of less than x */
    DPB_OP_ATTENTION,  /* of {3 width, 1, length}: q, k and v of all heads, one after the other */
    DPB_OP_POSITIONS,  /* adds row p of weight {rows, channels} to position p */
    DPB_OP_PREPEND,    /* weight {channels} becomes position 0; output {c, 1, 1 + h * w} */
    DPB_OP_TENSOR,     /* a weight without a computation, for devices that emulate; passes its
                            input on */
    DPB_OP_SOFTMAX_LOSS, /* mean over the labels of the cross-entropy with the target: 1 - smoothing
                            at the label, plus smoothing / classes everywhere; the last node. A
                            label for each position of the logits */
    DPB_OPS
} dpb_op;

struct dpb_window {
    uint32_t kernel_h, kernel_w, stride_h, stride_w;
    uint32_t pad_top, pad_bottom, pad_left, pad_right;
};

struct dpb_node {
    dpb_op op;
    const char *name; /* unique in the graph; tensors are NAME.weight, NAME.bias, ...; that of op
                         TENSOR is NAME */
    uint32_t n_inputs;
    const uint32_t *inputs;   /* node indices */
    struct dpb_shape shape;   /* of the output */
    uint32_t weight, bias;    /* indices into tensors[] or DPB_NONE */
    uint32_t mean, variance;  /* batch-norm: indices into states[] or DPB_NONE */
    struct dpb_window window; /* conv, pools; shortcut: its strides */
    /* conv, else 0: both input and output channels are split in so many equal groups, in order. A
     * group of output channels reads the input's group of the same number alone. */
    uint32_t groups;
    uint32_t heads; /* attention: of equal width; scores are over the root of that width */
    bool causal;    /* attention: a position sees itself and those before it */
    /* An embedding and the product that has its weight, too: in backward the product's gradient and
     * the embedding's are added. The tensor is the embedding's, and final when that is. */
    bool tied;
    bool tanh;           /* gelu: by the tangent, as GPT-2 has it; else by the error function */
    double epsilon;      /* batch-norm, layer-norm */
    double keep_average; /* batch-norm: running = keep * running + (1 - keep) * batch's */
    double rate;         /* dropout: share of elements set to zero */
    uint32_t lrn_radius;
    double lrn_k, lrn_alpha, lrn_beta;
    double smoothing; /* loss: label smoothing, in training and evaluation */
    uint64_t
        macs; /* multiply-accumulates of the forward pass of one sample (conv, dense, attention,
                 tensor) */
};

/* A trainable tensor: a contiguous part of the weight arena and of the gradient arena. */
struct dpb_tensor {
    const char *name; /* "conv1.weight"; canonical order OIHW, OI or O */
    uint32_t node;
    uint32_t n_dims, dims[4];
    uint64_t n_elements;
    uint64_t offset;    /* of its first element in the arena */
    bool decays;        /* weight decay applies: weights of convolutions and dense layers, and of
                           positions if the model says so */
    double init_stddev; /* standard deviation of the initial values, of mean 0; 0: init_value */
    bool init_uniform;  /* the initial values are uniform, else normal */
    double init_value;
};

/* Batch-norm's running mean or variance (unbiased): state, never gradient. n_elements = channels.
 */
struct dpb_state {
    const char *name; /* "bn1.running_mean" */
    uint32_t node;
    uint64_t n_elements, offset; /* in the state arena */
    double init_value;
    double keep_average;
};

struct dpb_file_layout;

struct dpb_graph {
    const char *name; /* the model's */
    uint32_t nclass;
    uint32_t n_nodes, n_tensors, n_states;
    const struct dpb_node *nodes;     /* [0] is the input, the last is the loss */
    const struct dpb_tensor *tensors; /* in arena order */
    const struct dpb_state *states;   /* in forward order */
    uint64_t n_elements;       /* of the weight arena, gaps included; a multiple of the alignment */
    uint64_t n_state_elements; /* of the state arena, likewise */
    uint64_t n_parameters;     /* trainable ones, without the gaps */
    uint64_t macs;             /* forward multiply-accumulates of one sample */
    const struct dpb_file_layout *layout; /* the model's (model.h); or NULL */
};

/* The labels of a sample. */
static inline uint32_t dpb_graph_labels(const struct dpb_graph *graph)
{
    const struct dpb_shape loss = graph->nodes[graph->n_nodes - 1].shape;
    return loss.h * loss.w;
}

/* Whether the samples are ids of tokens. */
static inline bool dpb_graph_reads_ids(const struct dpb_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].op == DPB_OP_EMBEDDING)
            return true;
    return false;
}

/* ------------------------------------------------------------------------ building a graph */

typedef enum dpb_padding {
    DPB_PAD_SAME,    /* output = ceil(input / stride); the odd one goes after */
    DPB_PAD_VALID,   /* none */
    DPB_PAD_EXPLICIT /* `before` and `after` on both axes */
} dpb_padding;

/* Zero means the default: kernel_w = kernel_h, stride = 1, groups = 1. A depthwise convolution has
 * as many groups as its input has channels. */
struct dpb_conv_args {
    uint32_t channels, kernel_h, kernel_w, stride, groups;
    dpb_padding padding;
    uint32_t before, after;
    bool bias;
};

struct dpb_pool_args {
    uint32_t kernel, stride;
    dpb_padding padding;
    uint32_t before, after;
};

struct dpb_batch_norm_args {
    double epsilon;      /* 0: 1e-5 */
    double keep_average; /* 0: 0.9 */
    bool no_gamma;
};

struct dpb_attention_args {
    uint32_t heads; /* divides the width */
    bool causal;
};

struct dpb_positions_args {
    uint32_t rows;      /* at least the input's positions; 0: as many */
    double init_stddev; /* 0: 0.02 */
    bool decays;        /* weight decay applies */
};

struct dpb_lrn_args {
    uint32_t radius;
    double k, alpha, beta;
};

/* The initial values of a tensor. Fan-in is the number of inputs of one output, fan-out the number
 * of outputs that read one input; for a convolution, a group's channels times the window. */
typedef enum dpb_initial_rule {
    DPB_INITIAL_CONSTANT,  /* `value` */
    DPB_INITIAL_NORMAL,    /* of mean 0 and standard deviation `value` */
    DPB_INITIAL_HE_NORMAL, /* normal, of standard deviation sqrt(2 / fan-in) [He et al. 2015] */
    DPB_INITIAL_GLOROT_UNIFORM, /* within +-sqrt(6 / (fan-in + fan-out)) [Glorot, Bengio 2010] */
} dpb_initial_rule;

struct dpb_initial {
    dpb_initial_rule rule;
    double value; /* of CONSTANT and NORMAL */
};

struct dpb_graph_builder; /* core's; lives for one call of a model's `build` */

/*
 * The calls of a model. Each adds a node called `name` (copied; unique) and returns its index.
 * After a mistake (an impossible shape, a name used twice) the call returns DPB_NONE, and core
 * keeps the first message, with the node's name. Calls with DPB_NONE as input return DPB_NONE.
 * `build` may ignore them: core refuses the graph afterwards with the message. Single-threaded.
 */
struct dpb_graph_ops {
    uint32_t (*input)(struct dpb_graph_builder *builder); /* the node of the samples */
    uint32_t (*conv)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                     const struct dpb_conv_args *args);
    uint32_t (*batch_norm)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                           const struct dpb_batch_norm_args *args);
    uint32_t (*relu)(struct dpb_graph_builder *builder, const char *name, uint32_t input);
    uint32_t (*max_pool)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                         const struct dpb_pool_args *args);
    uint32_t (*mean_pool)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                          const struct dpb_pool_args *args);
    /* Mean over height and width: output {c, 1, 1}. */
    uint32_t (*global_mean)(struct dpb_graph_builder *builder, const char *name, uint32_t input);
    /* Output {features, 1, 1}. */
    uint32_t (*dense)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                      uint32_t features, bool bias);
    uint32_t (*add)(struct dpb_graph_builder *builder, const char *name, uint32_t a, uint32_t b);
    uint32_t (*concat)(struct dpb_graph_builder *builder, const char *name, const uint32_t *inputs,
                       uint32_t n_inputs);
    uint32_t (*dropout)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                        double rate);
    uint32_t (*lrn)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                    const struct dpb_lrn_args *args);
    uint32_t (*shortcut)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                         uint32_t channels, uint32_t stride);
    uint32_t (*layer_norm)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                           double epsilon);
    uint32_t (*gelu)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                     bool tanh);
    uint32_t (*attention)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                          const struct dpb_attention_args *args);
    uint32_t (*positions)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                          const struct dpb_positions_args *args);
    /* The model's samples are ids (struct dpb_model_info): `input` is the input node. Weights
     * decay, and begin with standard deviation 0.02. */
    uint32_t (*embedding)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                          uint32_t channels);
    /* A 1 x 1 convolution to the classes, without bias, by the weight of `embedding`. */
    uint32_t (*tied)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                     uint32_t embedding);
    /* A learned token before all others, of initial standard deviation 0.02. */
    uint32_t (*prepend)(struct dpb_graph_builder *builder, const char *name, uint32_t input);
    /* Chooses the initial values of the tensors of `node`, and returns `node`. With NULL or without
     * a call for the node: HE_NORMAL for weights of convolutions and dense layers, sqrt(1 / fan-in)
     * for those of the dense layer that feeds the loss, 1 for gamma, 0 for biases and beta. Rules
     * by fan-in are for weights of convolutions and dense layers alone. */
    uint32_t (*initial)(struct dpb_graph_builder *builder, uint32_t node,
                        const struct dpb_initial *weight, const struct dpb_initial *bias);
    /* For a network of which only the weights are known: model `profile`. */
    uint32_t (*tensor)(struct dpb_graph_builder *builder, const char *name, uint32_t input,
                       uint32_t n_elements, uint64_t macs);
    /* Ends the graph; `input` has one feature a class, at each position that has a label. */
    uint32_t (*softmax_loss)(struct dpb_graph_builder *builder, const char *name, uint32_t input);
    struct dpb_shape (*shape)(const struct dpb_graph_builder *builder, uint32_t node);
};

#endif
