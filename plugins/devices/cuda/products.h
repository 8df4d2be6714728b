/*
 * products.h - convolutions by cuDNN (conv.c), convolutions with sums (conv_fused.c), products of
 * matrices by cuBLASLt (gemm.c), and the choice among their plans and algorithms (tuning.c).
 */
#ifndef DPB_CUDA_PRODUCTS_H
#define DPB_CUDA_PRODUCTS_H

#include "cuda.h"

enum { TUNING_KEY_BYTES = 256 };

/* The most plans of a call; for calls with sums (conv_fused.c), plans that are timed and steps that
 * take the sums. SEPARATE: a kernel of ours makes the sums. */
enum { PLAN_CHOICES = 64, FUSED_CHOICES = 3, FUSED_TAKERS = 2, SEPARATE = -1 };

struct conv_plan {
    cudnnBackendDescriptor_t plan;
    int rank; /* among suitable plans that cuDNN offers, best first by its own estimate */
    size_t workspace;
    bool kept;  /* in a file (plan_file.h) */
    char *text; /* @owned: of a compiled plan, until the plan is remade from the text */
    size_t text_bytes;
};
/* The plans of a call, for all nodes of equal shapes (conv_plans.c). */
struct conv_plans {
    struct conv_plans *next; /* of the program's list */
    const struct dpb_node *node;
    const struct conv_kind *kind;
    char key[TUNING_KEY_BYTES];
    struct conv_plan plans[PLAN_CHOICES];
    uint32_t n;
    bool found;                     /* n is known */
    int only;                       /* the wanted rank; -1: the best */
    int first;                      /* the first choice: 0, or SEPARATE */
    int taken;                      /* index into plans; or SEPARATE */
    bool tuned;                     /* `taken` was measured, or stood in the file */
    char why[160];                  /* the first call that failed; "": none */
    bool failed;                    /* no plan, since a call failed that should not */
    cudnnBackendDescriptor_t *made; /* @owned: the plans refer to these */
    size_t n_made;
};

/* The frame of zeros around a convolution's input, for padding that differs between two sides. */
static inline struct frame cuda_conv_frame(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    const struct dpb_shape inner = cuda_stored_shape(p, cuda_input(p, node, 0));
    struct dpb_shape outer = inner;
    if (w->pad_top != w->pad_bottom || w->pad_left != w->pad_right) {
        outer.h += w->pad_top + w->pad_bottom;
        outer.w += w->pad_left + w->pad_right;
    }
    return (struct frame){cuda_grid(p, inner), cuda_grid(p, outer), w->pad_top, w->pad_left};
}

static inline bool cuda_is_framed(const struct frame *frame)
{
    return frame->outer.h != frame->inner.h || frame->outer.w != frame->inner.w;
}

/* A product of matrices by cuBLASLt (gemm.c), column-major: C (m x n) = op(A) (m x k) op(B) (k x
 * n). */
enum { GEMM_CHOICES = 8 };
struct gemm_choice {
    cublasLtMatmulAlgo_t algorithm;
    int rank; /* among algorithms that cuBLASLt offers, best first by its own estimate */
    size_t workspace;
};
struct gemm {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    struct gemm_choice choices[GEMM_CHOICES];
    uint32_t n;
    int taken; /* index into choices */
    char key[TUNING_KEY_BYTES];
};

/* ---- conv.c, conv_plans.c, gemm.c, tuning.c -------------------------------------------------- */

/* Finds the plans of a node's call, but for CONV_DATA, and their scratch. */
dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, enum conv_call call);
/* The same for CONV_DATA. *adds: whether the plans shall add the result to the content of its
 * place. Set to false if cuDNN has no plan that adds: then the plans do not. */
dpb_status cuda_conv_open_data(struct program *p, const struct dpb_node *node, bool *adds);
/* forward: a is x, b the weights; data: a is dy, b the weights; weights: a is x, b is dy. */
dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to);
/* Plans scratch for the largest workspace of the plans: tuning takes one of them. */
void cuda_plans_scratch(struct program *p, const struct conv_plans *plans);
/* Keeps the plan that is taken, for the next process. */
void cuda_plans_keep(const struct program *p, struct conv_plans *plans);
void cuda_plans_close(struct conv_plans *all); /* a list; accepts NULL */

/* Sizes and which of the operands are transposed; c_type: of C. */
struct gemm_shape {
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    enum cuda_type c_type;
};
/* The most scratch that cuBLASLt may use. cuBLASLt would use more only for large products on the
 * newest GPUs. */
#define CUDA_GEMM_WORKSPACE ((size_t)32 << 20)
/* Opens a product; with one choice if nothing is tuned. */
dpb_status cuda_gemm_open(const struct program *p, const struct dpb_node *node,
                          const struct gemm_shape *shape, struct gemm **gemm);
/* The largest workspace of its choices, in bytes. */
size_t cuda_gemm_workspace(const struct gemm *gemm);
void cuda_gemm_close(struct gemm *gemm); /* accepts NULL */
dpb_status cuda_gemm_run(const struct program *p, const struct dpb_node *node,
                         const struct gemm *gemm, const void *a, const void *b, void *c);

/* Whether the step is a convolution's call alone; whether the step is a fused call, and the kind.
 * The product that the step runs, or NULL. */
bool cuda_is_conv(const struct step *step);
bool cuda_is_fused(const struct step *step, enum fused_call *call);
struct gemm *cuda_gemm_of(const struct program *p, const struct step *step);
/* Call this once the fused calls are known: sets their steps' names and bytes, for run.profile. */
void cuda_fused_settle(const struct program *p);
static inline bool cuda_tunes(const struct options *options)
{
    return strcmp(options->tuning, "no") != 0;
}
/* Takes the fastest choice for every call of a convolution and every product: from the cache file
 * if it is there, else by trials. Call this after the arena is allocated, before it has content. */
dpb_status cuda_tune(struct program *p);
/* The file's key of a node's call with the name `call`; and the key's rank in the file. */
void cuda_tuning_key(const struct program *p, const struct dpb_node *node, const char *call,
                     char key[TUNING_KEY_BYTES]);
bool cuda_tuning_known(const struct device *device, const char *key, int *rank);

/* ---- conv_fused.c: convolutions with a batch-norm's sums --------------- */

/* Compiles the plans of all convolutions that may be fused, before their nodes are planned, so that
 * several threads have work. */
dpb_status cuda_fused_compile(struct program *p);
/* For a node whose convolution and packing of weights are planned. cuda_fused_open sets
 * FUSED_FORWARD's node_plan.fused and .sums if the call may be fused with the batch-norm behind the
 * node. cuda_masked_open sets FUSED_DATA's if it may be fused with the batch-norm before the ReLU
 * that the node reads, and the batch-norm's as well. */
dpb_status cuda_fused_open(struct program *p, const struct dpb_node *node);
dpb_status cuda_masked_open(struct program *p, const struct dpb_node *node);
/* The distance in elements from the first sums of a node's channels to the second. */
static inline size_t cuda_fused_stride(const struct dpb_node *node)
{
    return (node->shape.c + (size_t)3) / 4 * 4;
}
/* The batch-norm before the ReLU that a convolution reads, if the convolution can make the whole
 * gradient by the ReLU: no other node reads the ReLU; or the ReLU ends a block, one layer more
 * reads it, and backward reaches the convolution last. Else NULL. */
const struct dpb_node *cuda_masked_norm(const struct program *p, const struct dpb_node *node);
enum fused_form cuda_fused_form(const struct program *p, const struct dpb_node *node,
                                enum fused_call call);
/* For a convolution with such a batch-norm, in planning backward: the other layer's gradient by the
 * ReLU; NULL: there is no other layer. */
static inline const struct tensor *cuda_shortcut_gradient(const struct program *p,
                                                          const struct dpb_node *node)
{
    const struct dpb_group *group = cuda_plan(p, cuda_input(p, node, 0))->group;
    return group->residual ? group->parts[0].tensor : NULL;
}
/* Whether a fused call makes this batch-norm's gradient, masked by the ReLU, and its sums. */
static inline bool cuda_is_masked(const struct program *p, const struct dpb_node *norm)
{
    const struct conv_plans *fused = cuda_plan(p, norm)->fused[FUSED_DATA];
    return fused && fused->taken != SEPARATE;
}
/* Whether the program is refused unless a node's gradient by its input is made with sums. */
bool cuda_is_masked_always(const struct program *p, const struct dpb_node *node);
/* The steps that take the sums of step `at`, if it makes any, in their order; NULL: no more. */
void cuda_fused_takers(const struct program *p, enum fused_call call, size_t at,
                       struct step *takers[FUSED_TAKERS]);
/* The tensor that inspection shows as the gradient by a node's result; NULL: not computed. */
const struct tensor *cuda_shown_gradient(const struct program *p, const struct dpb_node *node);
/* Call these only if fused->taken is a plan.
 * cuda_fused_run: FROM x, TO y, FOURTH the sums.
 * cuda_masked_run: FROM dy, FOURTH y, the ReLU's result, FIFTH x, the batch-norm's input. TO dz = y
 * <= 0 ? 0 : the gradient by y plus the shortcut's, if there is one. */
step_run cuda_fused_run, cuda_masked_run;

#endif
