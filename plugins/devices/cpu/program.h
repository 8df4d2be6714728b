/*
 * program.h - a program of the CPU device. It is planned once, as flat lists of steps over tensors
 * in one arena. A pass walks a list and allocates nothing.
 *
 * Life of a program: *plan*, *bind*, passes (pass.c), release. In *plan* compile.c calls every op
 * of the graph, and the op appends its steps. Tensors get places in an arena that does not exist
 * yet. *bind* allocates the arena and makes oneDNN's primitives. memory_needed() only plans.
 *
 * Functions that return dpb_status have written the message unless they return DPB_OK.
 */
#ifndef DPB_CPU_PROGRAM_H
#define DPB_CPU_PROGRAM_H

#include <dnnl.h>
#include <dnnl_debug.h>

#include "dpbench/plugin.h"
#include "lib/device/groups.h"
#include "lib/device/places.h"

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

    /* The loss by label, and results of the last forward that backward needs. */
    struct tensor *sample_loss; /* double */
    struct tensor *log_sum;     /* double: log of the sum of the exponentials */
    struct tensor *labels;      /* int32_t */
    struct tensor *label_rank;  /* uint32_t: how many logits are larger than the label's */
    struct tensor *ids;         /* int32_t; NULL: samples are images */
    struct tensor *tied;        /* the gradient of a tied product's weights, until it is added */

    /* The pass in progress; @borrowed. */
    const struct dpb_pass *pass;
    const struct dpb_batch *batch;
    bool trained; /* the last forward was a training pass: backward may follow */
    bool forward_packed, backward_packed; /* the packed weights of each are up to date */
};

extern const struct dpb_host *cpu_host;

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

/* A tensor of core's weights, or of its gradient, as it lies there; NULL for DPB_NONE. */
static inline const float *cpu_weights(const struct program *p, uint32_t tensor)
{
    return tensor == DPB_NONE ? NULL
                              : (const float *)p->core.weights + p->graph->tensors[tensor].offset;
}

static inline float *cpu_gradients(const struct program *p, uint32_t tensor)
{
    return tensor == DPB_NONE ? NULL
                              : (float *)p->core.gradients + p->graph->tensors[tensor].offset;
}

/* The node whose activation has the node's result: itself, or the ReLU that it was fused with. */
static inline const struct dpb_node *cpu_result(const struct program *p,
                                                const struct dpb_node *node)
{
    const struct dpb_node *into = cpu_plan(p, node)->group->into;
    return into ? into : node;
}

#endif
