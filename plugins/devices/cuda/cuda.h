/*
 * cuda.h - the cuda device's own types: a program is planned once, as flat lists of steps over
 * tensors in one arena of device memory; a pass enqueues a list, or launches the graph that was
 * captured of it, and allocates nothing.
 *
 * Life of a program: *plan* (program.c asks every op of the graph, by the table of ops_simple.c,
 * for its steps; tensors get places in an arena that does not exist yet), *bind* (the arena is
 * allocated, algorithms are tuned), passes (pass.c), release.
 *
 * Functions that return dpb_status have written the message when it is not DPB_OK.
 */
#ifndef DPB_CUDA_H
#define DPB_CUDA_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <string.h>

#include "dpbench/plugin.h"
#include "kernels.h"
#include "lib/device/groups.h"
#include "lib/device/op_name.h"
#include "lib/device/places.h"
#include "lib/device/refuse.h"

enum { ARENA_ALIGN = 256 /* bytes: what cudaMalloc gives, and the widest load wants */ };

/* Whether a convolution adds up what the batch-norm behind it needs: where that is faster, never,
 * always. */
enum fusion { FUSION_AUTO, FUSION_OFF, FUSION_ON };

/* Of activations, their gradients, and what cuDNN is given as weights. */
enum layout { LAYOUT_NHWC, LAYOUT_NCHW };

/* Whether CUDA's Multi-Process Service may, has to, or must not serve the GPU. */
enum mps { MPS_AUTO, MPS_REQUIRE, MPS_NO };

struct options {
    const char *ids;
    const char *tuning;
    int graphs;
    int fusion; /* enum fusion */
    uint64_t workspace;
    int layout;
    int mps; /* enum mps */
};

/* Memory of another process, and the GPU that has mapped it. */
struct mapping {
    void *memory;
    int id;
    struct mapping *next;
};

struct device {
    int id;
    char name[64], pci[32];
    uint64_t seed;
    uint32_t threads; /* that may compile: the rank's cores */
    struct options options;
    cudaStream_t stream, copies;
    cudaEvent_t behind;       /* each launch of backward that is captured with the exchange */
    struct mapping *mappings; /* queues.c */
    cudnnHandle_t cudnn;
    cublasLtHandle_t blas;
};

/* What a step reads or writes: a place in the arena. */
struct tensor {
    struct dpb_place place;
    const struct tensor *base; /* a part of that tensor's bytes; NULL: a place of its own */
    size_t at;                 /* of that part: bytes from the base's begin */
    bool foreign;              /* core's, in device memory: it has no place in the arena */
    void *data;                /* NULL until the program is bound */
    double bytes;              /* that hold something; 0 of a part */
    struct tensor *next;       /* of the program's list */
};

/* In which passes a step runs: all bits of a pass are in its mask, and a step needs one of them. */
enum when {
    WHEN_TRAINING = 1,
    WHEN_EVALUATION = 2,
    WHEN_REPACKING = 4, /* the weights have changed */
    WHEN_ALWAYS = WHEN_TRAINING | WHEN_EVALUATION,
    WHENS = 8
};

/* What is captured: forward by the bits of enum when, and backward, alone or with the exchange. */
enum { BACKWARD = WHENS, BACKWARD_EXCHANGED, CAPTURES };

struct program;
struct step;
/* Enqueues it on p->stream. Kernels' launches are looked at by the caller. */
typedef dpb_status step_run(const struct program *p, const struct step *step);

/* The tensors of a step, by what they are to it; a run knows its own. */
enum slot { FROM, TO, AUX, FOURTH, FIFTH, SLOTS };

struct step {
    const struct dpb_node *node;
    const char *what; /* "backward weights": for messages */
    unsigned when;
    uint64_t frontier; /* gradients below are final after this step; 0: says nothing */
    step_run *run;
    const struct tensor *t[SLOTS];
    uint32_t input;      /* of a concat: which one */
    double bytes, flops; /* for struct dpb_profile_row */
};

struct step_list {
    struct step *steps;
    size_t n;
};

struct fence {
    struct dpb_event *event;
    cudaEvent_t native; /* of it */
};

/* Elements [begin, end) of the gradient arena that go to the host together, after a step of
 * backward. */
struct piece {
    uint64_t begin, end;
    size_t after;
    /* Where core takes events: for what is behind the pass, and for what is captured with it. */
    struct fence final, captured;
};

/* A convolution's calls that also give each channel's sums (products.h). */
enum fused_call { FUSED_FORWARD, FUSED_DATA, FUSED_CALLS };
/* Of these FUSED_DATA has two forms; the second adds a shortcut's gradient. */
enum fused_form { FUSED_STATISTICS, FUSED_SUMS, FUSED_JOINED, FUSED_FORMS };

/* What planning knows of a node. */
struct node_plan {
    struct tensor *activation;
    struct tensor *gradient;                 /* NULL: not computed */
    struct tensor *packed, *packed_gradient; /* NULL: core's own do */
    enum cuda_type gradient_type;            /* of the gradient by the weights, as it is computed */
    struct tensor *workspace;
    struct tensor *mask; /* of a batch-norm with a ReLU (cuda_normalise); NULL: nothing reads it */
    struct conv *conv;
    /* Of a convolution, by call, and FUSED_DATA of the batch-norm before it, too. NULL: it cannot
     * be fused, or is not to be; @borrowed. The sums, the second ones at cuda_fused_stride. */
    struct conv_plans *fused[FUSED_CALLS];
    struct tensor *sums[FUSED_CALLS];
    struct gemm *gemm[3]; /* forward, data, weights */
    struct dpb_group *group;
};

/* A range of core's memory, and the device's copy of it; or the range itself, where core has it in
 * device memory. */
struct mirror {
    void *core, *pinned; /* the same where core's memory could be pinned as it lies */
    size_t bytes;        /* to be copied: 0 in device memory */
    struct tensor *tensor;
    bool registered;
};

/* In pinned memory, which both sides see. What is copied for a pass may still be read when the next
 * one is enqueued: forward and backward have words of their own. */
struct control {
    struct pass_words words[2];
    struct outcome_words outcome;
    uint32_t forward_done;
    uint32_t infinite;     /* a pass whose gradients were not all finite */
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
    struct tensor scratch; /* the arena's tail: what holds nothing from one step to the next */

    /* The cursor of planning: where cuda_step appends, and for which node. */
    struct step_list *list;
    const struct dpb_node *node;

    /* @owned: what steps refer to. */
    struct tensor *tensors;
    struct dpb_place *places; /* of tensors */
    struct dpb_group *groups; /* of all nodes */
    struct conv_plans *plans;

    /* Core's memory, mirrored. */
    struct mirror weights, gradients, state, statistics;
    struct tensor *samples, *labels, *words, *packings, *tickets;
    uint32_t n_packings;
    int32_t *pinned_labels;
    void *pinned_samples;     /* what the next pass's are copied from */
    void *pool;               /* args.pool's samples; NULL: there is none */
    struct tensor *numbers;   /* of the batch's samples in it */
    uint32_t *pinned_numbers; /* behind the labels */
    struct control *control;

    struct tensor *log_sum, *sample_loss, *label_rank; /* of the loss, by sample */

    struct piece *pieces;
    size_t n_pieces;
    cudaEvent_t piece_ready, joined;
    bool takes_events;
    struct dpb_event *followed; /* of the last cuda_follow: core's */
    struct account *account;    /* profile.c; NULL without run.profile */
    struct times *times;        /* times.c; NULL unless core takes events */
    uint64_t timed_step;        /* the step that it is in */

    cudaGraphExec_t graphs[CAPTURES];
    uint32_t runs[CAPTURES]; /* the first is not captured: libraries load and allocate in it */

    uint32_t serial;
    uint64_t step;     /* of the pass in progress: for messages */
    bool trained;      /* the last forward was a training pass: backward may follow */
    bool uploaded;     /* the device's weights are core's */
    double loss_scale; /* of the last backward; 1 but for fp16 */
    bool on_trial;     /* tuning.c: what fails now is dropped, with a warning */
};

extern const struct dpb_host *cuda_host;

/* ---- errors.c: what a call has come back with ------------------------------------------------ */

/* DPB_OK; or the message that CALL, for `node` (NULL: none), has failed, with the node's shapes,
 * and with the device memory that is free. p may be NULL. */
dpb_status cuda_check(const struct program *p, const struct dpb_node *node, const char *call,
                      cudaError_t code);
dpb_status cuda_check_cudnn(const struct program *p, const struct dpb_node *node, const char *call,
                            cudnnStatus_t code);
dpb_status cuda_check_blas(const struct program *p, const struct dpb_node *node, const char *call,
                           cublasStatus_t code);
dpb_status cuda_no_memory(void); /* of the host's */
/* The message that the arena does not fit, with what would. */
dpb_status cuda_too_large(const struct program *p, size_t free_bytes);

/* ---- ops_*.c: the ops ----------------------------------------------------------------------- */

/* Append the steps of p->node. backward: the node's gradient is complete (p->nodes[].gradient);
 * contributions to its inputs' gradients go where cuda_input_gradient() says. */
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
/* mean and inverse are device memory of a bound program. */
struct norm_by cuda_norm_by(const struct program *p, const struct dpb_node *norm);
/* Of a batch-norm whose forward is planned: the one on the other side of an addition, where the
 * group's kernels take both; or NULL. */
const struct dpb_node *cuda_other_side(const struct program *p, const struct dpb_node *norm);
/* Of a max pool: the batch-norm whose ReLU it alone reads, where the pool's kernel forward and the
 * batch-norm's backward take all three, and the ReLU's result is nowhere; else NULL. */
const struct dpb_node *cuda_pooled_norm(const struct program *p, const struct dpb_node *pool);
/* Of a ReLU that a batch-norm was fused into. */
dpb_status cuda_fused_norm_forward(struct program *p, const struct dpb_node *relu);
dpb_status cuda_fused_norm_backward(struct program *p, const struct dpb_node *relu);

/* ---- a program and its nodes ---------------------------------------------------------------- */

/* It was planned to be counted (cuda_count): no library is there to be asked. */
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

/* Of a bound program: for the sums of a step, with its partial ones. */
static inline struct sum_room cuda_sum_room(const struct program *p, const struct tensor *partial)
{
    return (struct sum_room){partial->data, p->tickets->data};
}

/* Where the result of a node goes: its own activation, or that of the ReLU it was fused with. */
static inline const struct dpb_node *cuda_result(const struct program *p,
                                                 const struct dpb_node *node)
{
    const struct dpb_node *into = cuda_plan(p, node)->group->into;
    return into ? into : node;
}

/* Of one pixel both layouts are the same, and neighbouring threads best take neighbouring
 * channels. */
static inline struct grid cuda_grid(const struct program *p, struct dpb_shape shape)
{
    const bool nchw = p->device->options.layout == LAYOUT_NCHW;
    return (struct grid){p->args.batch, shape.h, shape.w, shape.c, nchw && shape.h * shape.w > 1};
}

/* Of a pool. */
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

static inline uint64_t cuda_elements(const struct program *p, struct dpb_shape shape)
{
    return p->args.batch * dpb_shape_elements(shape);
}

/* Of a node's activation as it lies in memory (plan.c). Samples in 16 bits and NHWC that
 * convolutions alone read have channels for a pack of 16 bytes: cuDNN would pad them in every call.
 * The channels that the samples do not have are 0. */
struct dpb_shape cuda_stored_shape(const struct program *p, const struct dpb_node *node);

/* In which passes, by enum when, samples are the pool's. */
static inline unsigned cuda_pool_passes(const struct program *p)
{
    if (!p->args.pool.samples)
        return 0;
    return p->args.training ? WHEN_TRAINING : WHEN_ALWAYS;
}

/* Of core's tensor `index` on the device; NULL for DPB_NONE. Only of a bound program. */
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

/* ---- links.c: what `dpbench links` drives the GPUs by ---------------------------------------- */

extern const struct dpb_device_links cuda_links;

/* ---- program.c, pass.c: the hooks of dpb_device_ops ---------------------------------------- */

uint64_t cuda_memory_needed(const void *options, const struct dpb_compile_args *args);
/* dpb_device_ops.bytes_moved, on a device of which only the options are there. */
dpb_status cuda_count(const struct device *device, const struct dpb_compile_args *args,
                      double *bytes);
dpb_status cuda_compile(void *device, const struct dpb_compile_args *args,
                        const struct dpb_device_memory *memory, void **program);
void cuda_release(void *program);
dpb_status cuda_forward(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                        const struct dpb_hooks *hooks, struct dpb_outcome *outcome);
dpb_status cuda_backward(void *program, const struct dpb_pass *pass, const struct dpb_hooks *hooks);
dpb_status cuda_finite(void *program, bool *finite);
dpb_status cuda_inspect(void *program, uint32_t node, double *activation, double *gradient);
dpb_status cuda_follow(void *program, struct dpb_event *event);
dpb_status cuda_drain(void *program);
bool cuda_times(void *program, struct dpb_device_times *times);

#endif
