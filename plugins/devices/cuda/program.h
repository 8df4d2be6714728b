/*
 * program.h - a program of the cuda device. It is planned once, as flat lists of steps over tensors
 * in one arena of device memory. A pass enqueues a list, or launches the graph that was captured
 * from it. A pass allocates nothing.
 *
 * Life of a program: *plan*, *bind*, passes (pass.c), release. In *plan* compile.c calls every op
 * of the graph, through the table of ops_simple.c, and the op appends its steps. Tensors get places
 * in an arena that does not exist yet. *bind* allocates the arena and tunes algorithms.
 */
#ifndef DPB_CUDA_PROGRAM_H
#define DPB_CUDA_PROGRAM_H

#include "device.h"
#include "kernels.h"
#include "lib/device/groups.h"
#include "lib/device/places.h"

enum { ARENA_ALIGN = 256 /* bytes: cudaMalloc's alignment, enough for the widest load */ };

/* An operand of a step: a place in the arena. */
struct tensor {
    struct dpb_place place;
    bool foreign;        /* core's, in device memory: no place in the arena */
    void *data;          /* NULL until the program is bound */
    double bytes;        /* that hold data */
    struct tensor *next; /* of the program's list */
};

/* The passes in which a step runs: a pass's mask has all of its bits, a step needs one of them. */
enum when {
    WHEN_TRAINING = 1,
    WHEN_EVALUATION = 2,
    WHEN_REPACKING = 4, /* the weights have changed */
    WHEN_ALWAYS = WHEN_TRAINING | WHEN_EVALUATION,
    WHENS = 8
};

/* Captured graphs: forward by the bits of enum when, and backward, alone or with the exchange. */
enum { BACKWARD = WHENS, BACKWARD_EXCHANGED, CAPTURES };

struct program;
struct step;
/* Enqueues the step on the device's main stream. The caller checks the kernels' launches. */
typedef dpb_status step_run(const struct program *p, const struct step *step);

/* The tensors of a step, by role; each step_run knows its own. */
enum slot { FROM, TO, AUX, FOURTH, FIFTH, SLOTS };

struct step {
    const struct dpb_node *node;
    const char *what; /* "backward weights": for messages */
    unsigned when;
    uint64_t frontier; /* after this step, gradients below are final; 0: none more */
    step_run *run;
    const struct tensor *t[SLOTS];
    uint32_t which;      /* of a concat: the input's number; of a product: enum conv_call */
    double bytes, flops; /* for struct dpb_profile_row */
};

struct step_list {
    struct step *steps;
    size_t n;
};

/* Elements [begin, end) of the gradient arena that are copied to the host together, after a step of
 * backward. */
struct piece {
    uint64_t begin, end;
    size_t after;
    /* If core takes events: for work behind the pass, and for work captured with it. */
    struct dpb_event *final, *captured;
};

/* A convolution's three calls, and a dense layer's. */
enum conv_call { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS, CONV_CALLS };

/* A node's part of the plan. */
struct node_plan {
    struct tensor *activation;
    struct tensor *gradient;                 /* NULL: not computed */
    struct tensor *packed, *packed_gradient; /* NULL: core's own suffice */
    enum cuda_type gradient_type;            /* of the computed gradient by the weights */
    struct tensor *workspace;
    struct tensor *mask; /* of a batch-norm with a ReLU (cuda_normalise); NULL: nothing reads it */
    struct tensor *padded; /* a convolution's input, where it pads two sides differently; or NULL */
    struct conv_plans *conv[CONV_CALLS]; /* @borrowed; NULL: this call is not made */
    struct gemm *gemm[CONV_CALLS];
    struct gemm **products; /* @owned: attention's */
    uint32_t n_products;
    struct dpb_group *group;
};

/* A range of core's memory, and the device's copy; or the range itself, if in device memory. */
struct mirror {
    void *core, *pinned; /* the same if core's memory could be pinned in place */
    size_t bytes;        /* to be copied: 0 in device memory */
    struct tensor *tensor;
};

/* In pinned memory, which both sides see. Forward and backward have words of their own: the device
 * may still read one pass's words when the next pass is enqueued. */
struct control {
    struct pass_words words[2];
    struct outcome_words outcome;
    uint32_t forward_done;
    uint32_t infinite;     /* serial of the last pass with infinite or NaN gradients */
    uint32_t piece_done[]; /* by piece */
};

struct program {
    const struct device *device;
    const struct dpb_graph *graph;
    struct dpb_compile_args args;
    enum cuda_type type; /* of activations and their gradients */

    struct node_plan *nodes;
    struct step_list forward, backward;
    size_t n_steps; /* of both */
    void *arena;
    size_t arena_bytes;
    void *scratch; /* the arena's tail: content lasts for one step only */
    size_t scratch_bytes;

    /* The cursor of planning: the list to which cuda_step appends, and the node. */
    struct step_list *list;
    const struct dpb_node *node;

    /* @owned: steps refer to these. */
    struct tensor *tensors;
    struct dpb_place *places; /* of tensors */
    struct dpb_group *groups; /* of all nodes */
    struct conv_plans *plans;

    /* Core's memory, mirrored. */
    struct mirror weights, gradients, state, statistics;
    struct tensor *samples, *labels, *words, *packings, *tickets;
    uint32_t n_packings;
    void *pinned_samples;     /* the next pass's are copied from here */
    int32_t *pinned_labels;   /* behind the samples */
    void *pool;               /* args.pool's samples; NULL: there is none */
    struct tensor *numbers;   /* of the batch's samples in the pool */
    uint32_t *pinned_numbers; /* behind the labels */
    struct control *control;

    struct tensor *ids;                               /* the batch's, where samples are ids */
    struct tensor *log_sum, *label_loss, *label_rank; /* of the loss, by label */

    struct piece *pieces;
    size_t n_pieces;
    cudaEvent_t piece_ready, joined;
    bool takes_events;
    struct dpb_event *followed; /* of the last cuda_follow: core's */
    struct account *account;    /* profile.c; NULL without run.profile */
    struct times *times;        /* times.c; NULL unless core takes events */
    uint64_t timed_step;        /* the step in which `times` is */

    cudaGraphExec_t graphs[CAPTURES];
    uint32_t runs[CAPTURES]; /* the first is not captured: in it libraries load and allocate */

    uint32_t serial;
    uint64_t step;     /* of the pass in progress: for messages */
    bool trained;      /* the last forward was a training pass: backward may follow */
    bool uploaded;     /* the device's weights are core's */
    double loss_scale; /* of the last backward; 1 but for fp16 */
    bool on_trial;     /* tuning.c: a choice that fails now is dropped, with a warning */
};

/* ---- a program and its nodes ---------------------------------------------------------------- */

/* Whether the program is only counted (cuda_count): no library's handles exist. */
static inline bool cuda_is_counted(const struct program *p)
{
    return !p->device->cudnn;
}

static inline uint32_t cuda_index(const struct program *p, const struct dpb_node *node)
{
    return (uint32_t)(node - p->graph->nodes);
}

static inline struct node_plan *cuda_plan(const struct program *p, const struct dpb_node *node)
{
    return &p->nodes[cuda_index(p, node)];
}

static inline const struct dpb_node *cuda_input(const struct program *p,
                                                const struct dpb_node *node, uint32_t slot)
{
    return &p->graph->nodes[node->inputs[slot]];
}

/* Room for the sums of a step, whose partial sums are in scratch. The program is bound. */
static inline struct sum_room cuda_sum_room(const struct program *p)
{
    return (struct sum_room){p->scratch, p->tickets->data};
}

/* The node whose activation has the node's result: itself, or the ReLU that it was fused with. */
static inline const struct dpb_node *cuda_result(const struct program *p,
                                                 const struct dpb_node *node)
{
    const struct dpb_node *into = cuda_plan(p, node)->group->into;
    return into ? into : node;
}

/* For one pixel both layouts are the same; NHWC gives neighbouring threads neighbouring channels,
 * which is best. */
static inline struct grid cuda_grid(const struct program *p, struct dpb_shape shape)
{
    const bool nchw = p->device->options.layout == LAYOUT_NCHW;
    return (struct grid){p->args.batch, shape.h, shape.w, shape.c, nchw && shape.h * shape.w > 1};
}

/* A pool's window. */
static inline struct window cuda_window(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    return (struct window){.in = cuda_grid(p, cuda_input(p, node, 0)->shape),
                           .out = cuda_grid(p, node->shape),
                           .kernel_h = w->kernel_h,
                           .kernel_w = w->kernel_w,
                           .stride_h = w->stride_h,
                           .stride_w = w->stride_w,
                           .pad_top = w->pad_top,
                           .pad_left = w->pad_left};
}

/* The labels of the batch. */
static inline size_t cuda_labels(const struct program *p)
{
    return (size_t)p->args.batch * dpb_graph_labels(p->graph);
}

static inline uint64_t cuda_elements(const struct program *p, struct dpb_shape shape)
{
    return p->args.batch * dpb_shape_elements(shape);
}

/* The passes, by enum when, whose samples are the pool's. */
static inline unsigned cuda_pool_passes(const struct program *p)
{
    if (!p->args.pool.samples)
        return 0;
    return p->args.training ? WHEN_TRAINING : WHEN_ALWAYS;
}

/* Core's tensor `index` on the device; NULL for DPB_NONE. The program is bound. */
static inline float *cuda_weight(const struct program *p, uint32_t index)
{
    float *arena = p->weights.tensor->data;
    return index == DPB_NONE ? NULL : arena + p->graph->tensors[index].offset;
}

static inline float *cuda_gradient(const struct program *p, uint32_t index)
{
    float *arena = p->gradients.tensor->data;
    return index == DPB_NONE ? NULL : arena + p->graph->tensors[index].offset;
}

/* A batch-norm of a bound program. The node's workspace has mean and inverse from forward to
 * backward, and backward's two sums. */
static inline struct norm_by cuda_norm_by(const struct program *p, const struct dpb_node *norm)
{
    float *words = cuda_plan(p, norm)->workspace->data;
    return (struct norm_by){.mean = words,
                            .inverse = words + norm->shape.c,
                            .gamma = cuda_weight(p, norm->weight),
                            .beta = cuda_weight(p, norm->bias),
                            .epsilon = norm->epsilon};
}

#endif
