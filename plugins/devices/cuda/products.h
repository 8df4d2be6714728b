/*
 * products.h - convolutions by cuDNN (conv.c), products of matrices by cuBLASLt (gemm.c), and the
 * choice among their plans and algorithms (tuning.c).
 */
#ifndef DPB_CUDA_PRODUCTS_H
#define DPB_CUDA_PRODUCTS_H

#include "plan.h"
#include "tuning_file.h"

enum { PLAN_CHOICES = 12 /* the most plans of a call */ };

struct conv_plan {
    cudnnBackendDescriptor_t plan;
    int rank; /* among suitable plans that cuDNN offers, best first by its own estimate */
    size_t workspace;
};
/* The plans of a call, for all nodes of equal shapes (conv.c). */
struct conv_plans {
    struct conv_plans *next; /* of the program's list */
    char key[TUNING_KEY_BYTES];
    struct conv_plan plans[PLAN_CHOICES];
    uint32_t n;
    int taken;                      /* index into plans */
    bool tuned;                     /* `taken` was measured, or stood in the file */
    char why[160];                  /* the first call that failed; "": none */
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

/* Products of matrices by cuBLASLt (gemm.c), column-major: C (m x n) = op(A) (m x k) op(B) (k x
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
    bool adds; /* to the content of C */
    char key[TUNING_KEY_BYTES];
};

/* ---- conv.c, gemm.c, tuning.c -------------------------------------------------------------- */

/* Finds the plans of a node's call, but for CONV_DATA, and their scratch. */
dpb_status cuda_conv_open(struct program *p, const struct dpb_node *node, enum conv_call call);
/* The same for CONV_DATA. *adds: whether the plans shall add the result to the content of its
 * place. Set to false if cuDNN has no plan that adds: then the plans do not. */
dpb_status cuda_conv_open_data(struct program *p, const struct dpb_node *node, bool *adds);
/* forward: a is x, b the weights; data: a is dy, b the weights; weights: a is x, b is dy. */
dpb_status cuda_conv_run(const struct program *p, const struct dpb_node *node, enum conv_call call,
                         const void *a, const void *b, void *to);
void cuda_plans_close(struct conv_plans *all); /* a list; accepts NULL */

/* How an operand lies in memory, in elements. */
struct gemm_operand {
    uint64_t column; /* from a column to the next; 0: no gaps */
    uint64_t stride; /* from a product's operand to the next product's */
};
/* Sizes and which of the operands are transposed; c_type: of C. */
struct gemm_shape {
    uint64_t m, n, k;
    bool transpose_a, transpose_b;
    enum cuda_type c_type;
    struct gemm_operand a, b, c;
    uint32_t products; /* of this shape, in one call; 0: one */
    bool adds;         /* to the content of C */
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

/* Takes the fastest choice for every call of a convolution and every product: from the cache file
 * if it is there, else by trials. Call this after the arena is allocated, before it has content. */
dpb_status cuda_tune(struct program *p);

#endif
