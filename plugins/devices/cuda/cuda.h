/*
 * cuda.h - the cuda device's own types: a program is planned once, as flat lists of steps over
 * tensors in one arena of device memory; a pass enqueues a list, or launches the graph that was
 * captured of it, and allocates nothing.
 *
 * Life of a program: *plan* (program.c asks every op of the graph, by the table of ops.c, for its
 * steps; tensors get places in an arena that does not exist yet), *bind* (the arena is allocated,
 * algorithms are tuned), passes (pass.c), release.
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
#include "lib/device/places.h"
#include "lib/device/refuse.h"

enum { ARENA_ALIGN = 256 /* bytes: what cudaMalloc gives, and the widest load wants */ };
enum { TUNING_KEY_BYTES = 256 };

/* Whether a convolution adds up what the batch-norm behind it needs: where that is faster, never,
 * always. */
enum fusion { FUSION_AUTO, FUSION_OFF, FUSION_ON };

/* Of activations, their gradients, and what cuDNN is given as weights. */
enum layout { LAYOUT_NHWC, LAYOUT_NCHW };

struct options {
    const char *ids;
    const char *tuning;
    int graphs;
    int fusion; /* enum fusion */
    uint64_t workspace;
    int layout;
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

/* A convolution's three calls (ops_conv.c). */
enum conv_call { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS, CONV_CALLS };

struct conv_choice {
    int algorithm;
    cudnnMathType_t math;
    size_t workspace;
};
enum { CONV_CHOICES = 8 };

struct conv {
    cudnnTensorDescriptor_t x, y;
    cudnnFilterDescriptor_t w;
    struct {
        cudnnConvolutionDescriptor_t conv;
        struct conv_choice choices[CONV_CHOICES];
        uint32_t n; /* 0: this call is not made */
        int taken;  /* of choices */
    } call[CONV_CALLS];
    struct frame frame;                      /* where the padding is not the same on both sides */
    struct tensor *padded, *padded_gradient; /* likewise; else NULL */
};

static inline bool cuda_conv_framed(const struct conv *conv)
{
    return conv->frame.outer.h != conv->frame.inner.h || conv->frame.outer.w != conv->frame.inner.w;
}

/* A convolution's call that also gives each channel's sums, for all nodes of equal shapes
 * (conv_graph.c): forward, of the result and its squares; by the input, of the gradient that the
 * ReLU before lets pass and of that times the normalised input of the batch-norm before that. */
enum fused_call { FUSED_FORWARD, FUSED_DATA, FUSED_CALLS };
enum { FUSED_CHOICES = 3, FUSED_TAKERS = 2, SEPARATE = -1 };
struct fused_plan {
    cudnnBackendDescriptor_t plan;
    int rank; /* among all that cuDNN offers, best first by its own estimate */
    size_t workspace;
};
struct fused {
    struct fused *next; /* of the program's list */
    char key[TUNING_KEY_BYTES];
    struct fused_plan plans[FUSED_CHOICES];
    uint32_t n;
    int taken;                      /* of plans; or SEPARATE: a kernel of ours makes the sums */
    bool tuned;                     /* that was measured, or stood in the file */
    cudnnBackendDescriptor_t *made; /* @owned: what the plans refer to */
    size_t n_made;
};

/* A product of matrices by cuBLASLt (gemm.c), column-major: C (m x n) = op(A) (m x k) op(B) (k x
 * n). */
enum { GEMM_CHOICES = 8 };
struct gemm_choice {
    cublasLtMatmulAlgo_t algorithm;
    int rank; /* among all that cuBLASLt offers, best first by its own estimate */
    size_t workspace;
};
struct gemm {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    struct gemm_choice choices[GEMM_CHOICES];
    uint32_t n;
    int taken; /* of choices */
    char key[TUNING_KEY_BYTES];
};

/* What planning knows of a node. */
struct node_plan {
    struct tensor *activation;
    struct tensor *gradient;                 /* NULL: not computed */
    struct tensor *packed, *packed_gradient; /* NULL: core's own do */
    enum cuda_type gradient_type;            /* of the gradient by the weights, as it is computed */
    struct tensor *workspace;
    struct conv *conv;
    /* Of a convolution, by call, and FUSED_DATA of the batch-norm before it, too. NULL: it cannot
     * be fused, or is not to be; @borrowed. The sums, the second ones at cuda_fused_stride. */
    struct fused *fused[FUSED_CALLS];
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
    struct fused *fused;

    /* Core's memory, mirrored. */
    struct mirror weights, gradients, state, statistics;
    struct tensor *samples, *labels, *words, *packings;
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

/* ---- ops.c: the ops ------------------------------------------------------------------------ */

/* Append the steps of p->node. backward: the node's gradient is complete (p->nodes[].gradient);
 * contributions to its inputs' gradients go where cuda_input_gradient() says. */
struct op {
    const char *name;
    dpb_status (*forward)(struct program *p, const struct dpb_node *node);
    dpb_status (*backward)(struct program *p, const struct dpb_node *node);
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
/* Of a ReLU that a batch-norm was fused into. */
dpb_status cuda_fused_norm_forward(struct program *p, const struct dpb_node *relu);
dpb_status cuda_fused_norm_backward(struct program *p, const struct dpb_node *relu);

/* What follows a convolution or dense layer: bias and ReLU, in place; backward, the gradient of the
 * bias (ops_simple.c). */
dpb_status cuda_add_bias(struct program *p, const struct dpb_node *node);
dpb_status cuda_sum_bias(struct program *p, const struct dpb_node *node);

/* ---- plan.c: what an op is planned with ---------------------------------------------------- */

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

static inline uint64_t cuda_elements(const struct program *p, struct dpb_shape shape)
{
    return p->args.batch * dpb_shape_elements(shape);
}

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

/* `bytes` with a place of their own; a part of such; bytes that hold nothing between steps. */
dpb_status cuda_tensor(struct program *p, size_t bytes, struct tensor **tensor);
dpb_status cuda_part(struct program *p, const struct tensor *base, size_t at,
                     struct tensor **tensor);
dpb_status cuda_scratch(struct program *p, size_t bytes, struct tensor **tensor);
/* Like an activation of `shape`. */
dpb_status cuda_activation_like(struct program *p, struct dpb_shape shape, struct tensor **tensor);
/* Makes p->nodes[].activation of the node. */
dpb_status cuda_activation(struct program *p, const struct dpb_node *node, struct tensor **tensor);

/* Appends a step to the current list. Tensors by enum slot; NULL: none. */
#define TENSORS(...) ((const struct tensor *const[SLOTS]){__VA_ARGS__})
dpb_status cuda_step(struct program *p, unsigned when, const char *what, step_run *run,
                     const struct tensor *const t[SLOTS]);
/* A further tensor of the step that was appended last; one of core's in the arena, by its number
 * (DPB_NONE: none), which is a weight or the gradient by one; and that the step is one of the
 * node's sums of products. The last two are for run.profile. */
void cuda_use(struct program *p, const struct tensor *tensor);
void cuda_use_core(struct program *p, uint32_t index);
void cuda_count_macs(struct program *p);

/* Where the node's backward writes its part of the gradient of input `slot`, like the input's
 * activation. NULL: nobody needs it (the input node). */
dpb_status cuda_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor **tensor);
/* For ops whose part is bytes that are there already: they will not be written by others. */
void cuda_share_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor *part);
/* Adds up what the consumers of a node gave: sets p->nodes[].gradient. */
dpb_status cuda_join_gradient(struct program *p, const struct dpb_node *node);
/* A place for what is made of a node's complete gradient: that itself where it may be written
 * over. */
dpb_status cuda_over_gradient(struct program *p, const struct dpb_node *node,
                              struct tensor **tensor);

/* Weights of a contraction as the libraries take them, in the layout of the activations (OHWI or
 * core's OIHW) and the program's type: NULL in the node's plan where core's own do. And where the
 * gradient by them goes; cuda_unpack_weights appends the step that brings it to core's layout,
 * where one is needed. */
dpb_status cuda_pack_weights_of(struct program *p, const struct dpb_node *node);
const void *cuda_packed(const struct program *p, const struct dpb_node *node);
dpb_status cuda_weight_gradient(struct program *p, const struct dpb_node *node,
                                enum cuda_type type);
void *cuda_weight_gradient_data(const struct program *p, const struct dpb_node *node);
dpb_status cuda_unpack_weights(struct program *p, const struct dpb_node *node);
/* Of a bound program: all that is packed (p->n_packings entries). */
void cuda_list_packings(const struct program *p, struct packing *table);

/* Cuts the gradient arena into pieces of at least `least` elements, by the frontiers of backward's
 * steps. @owned by the caller: free(). */
dpb_status cuda_cut_pieces(const struct step_list *backward, uint64_t least, struct piece **pieces,
                           size_t *n);

/* ---- mirror.c -------------------------------------------------------------------------------- */

/* Of fp32 at `core`. bind pins the host's side, and zeroes the device's. */
dpb_status cuda_mirror_plan(struct program *p, void *core, uint64_t elements,
                            struct mirror *mirror);
/* Of memory of the device: nothing is ever copied. */
dpb_status cuda_mirror_none(struct program *p, void *core, struct mirror *mirror);
dpb_status cuda_mirror_bind(struct program *p, struct mirror *mirror);
void cuda_mirror_release(struct mirror *mirror);
/* All of it, on the main stream. */
dpb_status cuda_upload(const struct program *p, const struct mirror *mirror);
/* Elements [begin, end); cuda_downloaded, once the copy is done, brings them to core. */
dpb_status cuda_download(const struct program *p, const struct mirror *mirror, uint64_t begin,
                         uint64_t end, cudaStream_t stream);
void cuda_downloaded(const struct mirror *mirror, uint64_t begin, uint64_t end);

/* ---- conv.c, gemm.c, tuning.c ---------------------------------------------------------------- */

/* Descriptions of a node's convolution, and for each call the algorithms that may be taken. */
dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, struct conv **conv);
void cuda_conv_close(struct conv *conv);                  /* accepts NULL */
cudnnDataType_t cuda_cudnn_type(const struct program *p); /* of activations */
dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to);

/* Sizes and which of the operands are transposed; c_type: of C. */
struct gemm_shape {
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    enum cuda_type c_type;
};
/* Of a program's scratch: what cuBLASLt may use at most; it takes more for large products on the
 * newest GPUs only. */
#define CUDA_GEMM_WORKSPACE ((size_t)32 << 20)
/* With one choice where nothing is tuned. */
dpb_status cuda_gemm_open(const struct program *p, const struct dpb_node *node,
                          const struct gemm_shape *shape, struct gemm **gemm);
/* What the largest of its choices needs. */
size_t cuda_gemm_workspace(const struct gemm *gemm);
void cuda_gemm_close(struct gemm *gemm); /* accepts NULL */
dpb_status cuda_gemm_run(const struct program *p, const struct dpb_node *node,
                         const struct gemm *gemm, const void *a, const void *b, void *c);

/* Whether the step is one of a convolution's calls, and which; whether it is a fused one; the
 * product that it runs, or NULL. */
bool cuda_is_conv(const struct step *step, enum conv_call *call);
bool cuda_is_fused(const struct step *step, enum fused_call *call);
struct gemm *cuda_gemm_of(const struct program *p, const struct step *step);
static inline bool cuda_tunes(const struct options *options)
{
    return strcmp(options->tuning, "no") != 0;
}
/* Takes the fastest choice of every convolution's calls and of every product: by the cache file
 * where it is there, else by trying. After the arena is there, before its content is. */
dpb_status cuda_tune(struct program *p);
/* By what the file knows a node's call, whose name is `call`; and the two numbers that stand there
 * for it. */
void cuda_tuning_key(const struct program *p, const struct dpb_node *node, const char *call,
                     char key[TUNING_KEY_BYTES]);
bool cuda_tuning_known(const struct options *options, const char *key, int *first, int *second);

/* ---- conv_graph.c: convolutions with a batch-norm's sums, by cuDNN's graph API --------------- */

/* Of a node whose convolution is planned, and its weights' packing: sets node_plan.fused and .sums
 * of the call where it may be fused with the batch-norm behind it; and where its input is a ReLU's
 * whose batch-norm may be, those of the batch-norm as well. */
dpb_status cuda_fused_open(struct program *p, const struct dpb_node *node);
dpb_status cuda_masked_open(struct program *p, const struct dpb_node *node);
void cuda_fused_close(struct fused *all); /* a list; accepts NULL */
/* Elements from the first sums, of a node's channels, to the second. */
static inline size_t cuda_fused_stride(const struct dpb_node *node)
{
    return (node->shape.c + (size_t)3) / 4 * 4;
}
/* The batch-norm whose ReLU a convolution, and nothing else, reads; or NULL. */
const struct dpb_node *cuda_masked_norm(const struct program *p, const struct dpb_node *node);
/* Whether the gradient that comes to this batch-norm is its ReLU's masked one, with its sums. */
static inline bool cuda_is_masked(const struct program *p, const struct dpb_node *norm)
{
    const struct fused *fused = cuda_plan(p, norm)->fused[FUSED_DATA];
    return fused && fused->taken != SEPARATE;
}
/* The steps that take the sums that step `at` may make, in their order; NULL: none further. */
void cuda_fused_takers(const struct program *p, enum fused_call call, size_t at,
                       struct step *takers[FUSED_TAKERS]);
/* When it is known which are fused: their steps' names, and what they move, for run.profile. */
void cuda_fused_settle(const struct program *p);
/* What inspection shows as the gradient by a node's result; NULL: it is not computed. */
const struct tensor *cuda_shown_gradient(const struct program *p, const struct dpb_node *node);
/* These only where fused->taken is a plan. */
dpb_status cuda_fused_run(const struct program *p, const struct dpb_node *node, const void *x,
                          const void *w, void *y, void *sums);
/* dz = y <= 0 ? 0 : the gradient by y; of the batch-norm: its input x, mean, and inverse. */
struct masked_tensors {
    const void *dy, *w, *y, *x;
    const float *mean, *inverse;
    void *dz;
    float *sums;
};
dpb_status cuda_masked_run(const struct program *p, const struct dpb_node *node,
                           const struct masked_tensors *t);

/* ---- queues.c: arenas in device memory ------------------------------------------------------- */

extern const struct dpb_queue_ops cuda_queues;
/* An event of a stream. CUDA documents what a graph's record of an event is to streams that wait,
 * not to a host that asks: the host asks for `behind`, which is recorded behind each launch of the
 * graph that records `native`. */
struct cuda_event {
    cudaEvent_t native;
    cudaEvent_t behind; /* @borrowed; NULL: no graph records `native` */
};
extern const struct dpb_event_source cuda_events; /* of a struct cuda_event */
/* NULL: no memory. `native` is owned by the event. */
struct dpb_event *cuda_event_adopt(cudaEvent_t native);
/* In a capture that this thread begins: what is recorded behind each launch. NULL: it is over. */
void cuda_capturing(cudaEvent_t behind);
/* What the stream is given from now on begins when `event` has fired as it was last recorded. */
dpb_status cuda_await(cudaStream_t stream, struct dpb_event *event);

/* ---- times.c: where a step's time goes, by events of the main stream ------------------------- */

/* What the stream does from there on, until the next mark. MARK_CAPTURED is MARK_EXCHANGE where
 * launches of a graph record it. */
enum mark { MARK_IDLE, MARK_FORWARD, MARK_BACKWARD, MARK_EXCHANGE, MARK_CAPTURED };

dpb_status cuda_times_open(struct times **times);
void cuda_times_close(struct times *times);     /* accepts NULL */
bool cuda_times_run(const struct times *times); /* a step is under way */
/* Milliseconds of the fastest of `tries` runs of `work` on the main stream, behind one that is not
 * timed. It waits for them. `node` (may be NULL) and `what` are for messages. */
dpb_status cuda_time_best(const struct program *p, const struct dpb_node *node, const char *what,
                          dpb_status (*work)(const void *context), const void *context, int tries,
                          float *best_ms);
/* Here on the main stream. `first`: of a step, the one before ends here. MARK_CAPTURED is where the
 * graph that was launched has it. */
dpb_status cuda_mark(const struct program *p, enum mark mark, bool first);
/* Here in the graph that the main stream is captured to. */
dpb_status cuda_capture_mark(const struct program *p);
/* The work before the last mark is done, and it has been or will be passed at once: tells of the
 * step that ended where the current one began. */
dpb_status cuda_times_settle(const struct program *p);

/* ---- profile.c, limits.c: run.profile -------------------------------------------------------- */

dpb_status cuda_account_open(struct program *p);  /* of a planned program */
void cuda_account_close(struct account *account); /* accepts NULL */
/* Here on the main stream a list of steps begins; its packing, its step `step` ends. Without an
 * account they do nothing. */
dpb_status cuda_account_begin(const struct program *p, bool backward);
dpb_status cuda_account_packing(const struct program *p);
dpb_status cuda_account_step(const struct program *p, bool backward, size_t step);
/* All that was enqueued is done: reads the events. */
dpb_status cuda_account_settle(const struct program *p);
dpb_status cuda_profile(void *program, struct dpb_profile *profile);
/* Allocates for a moment, and takes some tenths of a second. */
dpb_status cuda_measure_limits(struct program *p, struct dpb_profile_limits *limits);

/* ---- links.c: what `dpbench links` drives the GPUs by ---------------------------------------- */

extern const struct dpb_device_links cuda_links;

/* ---- program.c, pass.c: the hooks of dpb_device_ops ---------------------------------------- */

uint64_t cuda_memory_needed(const void *options, const struct dpb_compile_args *args);
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
