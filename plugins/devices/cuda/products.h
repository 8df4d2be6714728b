/*
 * products.h - convolutions by cuDNN (conv.c), those with sums (conv_fused.c), products of matrices
 * by cuBLASLt (gemm.c), and which of their plans and algorithms is taken (tuning.c).
 */
#ifndef DPB_CUDA_PRODUCTS_H
#define DPB_CUDA_PRODUCTS_H

#include "cuda.h"

enum { TUNING_KEY_BYTES = 256 };

/* A convolution's three calls. */
enum conv_call { CONV_FORWARD, CONV_DATA, CONV_WEIGHTS, CONV_CALLS };

/* Of a call that adds up sums, too (conv_fused.c), plans that are timed; steps that take the sums;
 * and that a kernel of ours makes the sums. */
enum { PLAN_CHOICES = 64, FUSED_CHOICES = 3, FUSED_TAKERS = 2, SEPARATE = -1 };

struct conv_plan {
    cudnnBackendDescriptor_t plan;
    int rank; /* among all that cuDNN offers and that would do, best first by its own estimate */
    size_t workspace;
    bool kept;  /* in a file (plan_file.h) */
    char *text; /* @owned: of a plan whose kernel was compiled, until it is remade of the text */
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
    int only;                       /* the rank that is wanted; -1: the best */
    int first;                      /* that may be taken: 0, or SEPARATE */
    int taken;                      /* of plans; or SEPARATE */
    bool tuned;                     /* that was measured, or stood in the file */
    char why[160];                  /* of the first call that failed; "" */
    bool failed;                    /* there is none, since a call failed that should not */
    cudnnBackendDescriptor_t *made; /* @owned: what the plans refer to */
    size_t n_made;
};

struct conv {
    struct conv_plans *call[CONV_CALLS];     /* @borrowed; NULL: this call is not made alone */
    struct frame frame;                      /* where the padding is not the same on both sides */
    struct tensor *padded, *padded_gradient; /* likewise; else NULL */
};

static inline struct frame cuda_conv_frame(const struct program *p, const struct dpb_node *node)
{
    const struct dpb_window *w = &node->window;
    const struct grid in = cuda_grid(p, cuda_stored_shape(p, cuda_input(p, node, 0)));
    struct frame frame = {in, in, w->pad_top, w->pad_left};
    if (w->pad_top != w->pad_bottom || w->pad_left != w->pad_right) {
        frame.outer.h += w->pad_top + w->pad_bottom;
        frame.outer.w += w->pad_left + w->pad_right;
    }
    return frame;
}

static inline bool cuda_is_framed(const struct frame *frame)
{
    return frame->outer.h != frame->inner.h || frame->outer.w != frame->inner.w;
}

static inline bool cuda_conv_framed(const struct conv *conv)
{
    return cuda_is_framed(&conv->frame);
}

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

/* ---- conv.c, conv_plans.c, gemm.c, tuning.c -------------------------------------------------- */

/* The plans of a node's convolution, for each call but CONV_DATA. @owned: free(). */
dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, struct conv **conv);
/* Those of CONV_DATA. *adds: whether its result is to be added to what its place holds; set to
 * false where cuDNN has no plan for it: then the plans do not add. */
dpb_status cuda_conv_open_data(struct program *p, const struct dpb_node *node, bool *adds);
cudnnDataType_t cuda_cudnn_type(const struct program *p); /* of activations */
/* forward: a is x, b the weights; data: a is dy, b the weights; weights: a is x, b is dy. */
dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to);
/* Room for the largest workspace of the plans (NULL: none), of which tuning takes one. */
dpb_status cuda_plans_scratch(struct program *p, const struct conv_plans *plans);
/* The plan that is taken, for the next process. */
void cuda_plans_keep(const struct program *p, struct conv_plans *plans);
void cuda_plans_close(struct conv_plans *all); /* a list; accepts NULL */

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
/* When it is known which are fused: their steps' names, and what they move, for run.profile. */
void cuda_fused_settle(const struct program *p);
static inline bool cuda_tunes(const struct options *options)
{
    return strcmp(options->tuning, "no") != 0;
}
/* Takes the fastest choice of every convolution's calls and of every product: by the cache file
 * where it is there, else by trying. After the arena is there, before its content is. */
dpb_status cuda_tune(struct program *p);
/* By what the file knows a node's call, whose name is `call`; and the rank that stands there for
 * it. */
void cuda_tuning_key(const struct program *p, const struct dpb_node *node, const char *call,
                     char key[TUNING_KEY_BYTES]);
bool cuda_tuning_known(const struct device *device, const char *key, int *rank);

/* ---- conv_fused.c: convolutions with a batch-norm's sums --------------- */

/* Compiles the plans of all convolutions that may be fused, before their nodes are planned: several
 * threads have work then. */
dpb_status cuda_fused_compile(struct program *p);
/* Of a node whose convolution is planned, and its weights' packing: sets node_plan.fused and .sums
 * of the call where it may be fused with the batch-norm behind it; and where its input is a ReLU's
 * whose batch-norm may be, those of the batch-norm as well. */
dpb_status cuda_fused_open(struct program *p, const struct dpb_node *node);
dpb_status cuda_masked_open(struct program *p, const struct dpb_node *node);
/* Elements from the first sums, of a node's channels, to the second. */
static inline size_t cuda_fused_stride(const struct dpb_node *node)
{
    return (node->shape.c + (size_t)3) / 4 * 4;
}
/* The batch-norm before the ReLU that a convolution reads, where the convolution can make the whole
 * gradient by the ReLU: nothing else reads the ReLU; or the ReLU ends a block, one layer more reads
 * it, and backward comes to the convolution last. Else NULL. */
const struct dpb_node *cuda_masked_norm(const struct program *p, const struct dpb_node *node);
enum fused_form cuda_fused_form(const struct program *p, const struct dpb_node *node,
                                enum fused_call call);
/* Of a convolution with such a batch-norm, when its backward is planned: the gradient by the ReLU
 * that the other layer left; NULL: there is no other. */
static inline const struct tensor *cuda_shortcut_gradient(const struct program *p,
                                                          const struct dpb_node *node)
{
    const struct dpb_group *group = cuda_plan(p, cuda_input(p, node, 0))->group;
    return group->residual ? group->parts[0].tensor : NULL;
}
/* Whether the gradient that comes to this batch-norm is its ReLU's masked one, with its sums. */
static inline bool cuda_is_masked(const struct program *p, const struct dpb_node *norm)
{
    const struct conv_plans *fused = cuda_plan(p, norm)->fused[FUSED_DATA];
    return fused && fused->taken != SEPARATE;
}
/* Whether a node's gradient by its input is made with sums or its program refused. */
bool cuda_is_masked_always(const struct program *p, const struct dpb_node *node);
/* The steps that take the sums that step `at` may make, in their order; NULL: none further. */
void cuda_fused_takers(const struct program *p, enum fused_call call, size_t at,
                       struct step *takers[FUSED_TAKERS]);
/* What inspection shows as the gradient by a node's result; NULL: it is not computed. */
const struct tensor *cuda_shown_gradient(const struct program *p, const struct dpb_node *node);
/* These only where fused->taken is a plan. */
dpb_status cuda_fused_run(const struct program *p, const struct dpb_node *node, const void *x,
                          const void *w, void *y, void *sums);
/* dz = y <= 0 ? 0 : the gradient by y, to which `shortcut` is added (NULL: nothing); of the
 * batch-norm: its input x, mean, and inverse. */
struct masked_tensors {
    const void *dy, *w, *y, *x, *shortcut;
    const float *mean, *inverse;
    void *dz;
    float *sums;
};
dpb_status cuda_masked_run(const struct program *p, const struct dpb_node *node,
                           const struct masked_tensors *t);

#endif
