/*
 * kernels.h - the cuda device's own kernels, as C functions that enqueue them.
 *
 * All arrays lie in device memory unless a line says otherwise. Activations are grids of pixels,
 * NHWC or NCHW, of element type `type`. Everything by channel is fp32. Sums are made in fp32 by few
 * and in fp64 above, always in the same order, so equal inputs give equal bits. No function blocks
 * or allocates; a launch that fails shows in cudaGetLastError().
 */
#ifndef DPB_CUDA_KERNELS_H
#define DPB_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#include "divisor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum cuda_type { TYPE_FP32, TYPE_BF16, TYPE_FP16 };

static inline size_t cuda_type_size(enum cuda_type type)
{
    return type == TYPE_FP32 ? 4 : 2;
}

/* Words that change from pass to pass, in device memory, so that captured graphs need no other
 * arguments. */
struct pass_words {
    uint32_t step, first_sample; /* dropout */
    uint32_t valid;
    uint32_t serial;  /* of the pass; flags are raised to it */
    float loss_scale; /* multiplies the loss before its gradients are taken */
};

/* A pixel grid of n samples. */
struct grid {
    uint32_t n, h, w, c;
    bool planes; /* NCHW: all of a channel's pixels in a sample are together; else NHWC */
};

static inline uint64_t cuda_grid_pixels(const struct grid *grid)
{
    return (uint64_t)grid->n * grid->h * grid->w;
}

/* A pool's window. */
struct window {
    struct grid in, out;
    uint32_t kernel_h, kernel_w, stride_h, stride_w;
    uint32_t pad_top, pad_left;
};

/* ---- kernels_simple.cu ------------------------------------------------------------------- */

/* Between a weight in core's format (OIHW, fp32) and in the device's (OHWI; OIHW with hw = 1, where
 * i counts inputs and pixels). The device's inputs from i on are 0. */
struct packing {
    uint64_t from; /* first element in the weight arena */
    void *to;
    uint32_t o, i, hw;
    uint32_t wide; /* inputs in the device's format: i at least */
    struct divisor by_wide;
};

/* Packs all of `table` (n entries in device memory) from `weights`, converted to `type`. */
void cuda_pack_weights(cudaStream_t stream, enum cuda_type type, const struct packing *table,
                       uint32_t n, const float *weights);
/* from: OHWI in `type`, of by->wide inputs; to: OIHW in fp32, of by->i. */
void cuda_unpack_gradient(cudaStream_t stream, enum cuda_type type, const void *from, float *to,
                          const struct packing *by);

/* y = sample * scale[c] + offset[c]; samples are uint8 or fp32, CHW or HWC. Channels of y that the
 * samples do not have are 0. */
struct samples {
    const void *data;
    const uint32_t *numbers; /* the samples' numbers; NULL: one after the other */
    uint32_t channels;
    bool bytes, chw;
    float scale[4], offset[4];
};
void cuda_normalise_samples(cudaStream_t stream, enum cuda_type type, const struct samples *from,
                            void *y, struct grid grid);

/* y = x + bias (NULL: none), then ReLU if `relu`; x may be y. A NaN passes a ReLU. */
void cuda_bias_relu(cudaStream_t stream, enum cuda_type type, const void *x, const float *bias,
                    bool relu, void *y, struct grid grid);
/* dx = y <= 0 ? 0 : dy; dx may be dy. */
void cuda_relu_backward(cudaStream_t stream, enum cuda_type type, const void *dy, const void *y,
                        void *dx, uint64_t n);

enum { SUM_PARTS = 128 };
struct sum_parts {
    const void *part[SUM_PARTS];
    uint32_t n;
};
/* to = the sum of the parts, in fp32, rounded once; `to` may be a part. */
void cuda_sum(cudaStream_t stream, enum cuda_type type, const struct sum_parts *parts, void *to,
              uint64_t n);

/* Copy columns [at, at + c) of the matrix with `wide` columns to, or from, the matrix with c
 * columns. */
void cuda_gather_columns(cudaStream_t stream, enum cuda_type type, const void *wide_matrix,
                         uint32_t wide, uint32_t at, void *to, uint64_t rows, uint32_t c);
void cuda_scatter_columns(cudaStream_t stream, enum cuda_type type, const void *from,
                          void *wide_matrix, uint32_t wide, uint32_t at, uint64_t rows, uint32_t c);

/* y = keeps ? x / (1 - rate) : 0, by dpb_dropout_keeps; forward and backward are the same. */
struct dropout {
    uint64_t seed;
    uint32_t node;
    double rate;
    const struct pass_words *words;
};
void cuda_dropout(cudaStream_t stream, enum cuda_type type, const struct dropout *dropout,
                  const void *x, void *y, struct grid grid);

/* For shortcuts. cuda_sample: small(y, x, c) = large(y * stride_h, x * stride_w, c), or 0 if
 * `large` has no such channel. cuda_spread: the way back; all other elements of `large` are 0. */
struct sampling {
    struct grid large, small;
    uint32_t stride_h, stride_w;
};
void cuda_sample(cudaStream_t stream, enum cuda_type type, const struct sampling *sampling,
                 const void *large, void *small);
void cuda_spread(cudaStream_t stream, enum cuda_type type, const struct sampling *sampling,
                 const void *small, void *large);

/* `inner` lies in `outer` at (top, left), with zeros around it. */
struct frame {
    struct grid inner, outer;
    uint32_t top, left;
};
void cuda_pad(cudaStream_t stream, enum cuda_type type, const struct frame *frame,
              const void *inner, void *outer);
void cuda_crop(cudaStream_t stream, enum cuda_type type, const struct frame *frame,
               const void *outer, void *inner);

/* n values, uniform in [-1, 1), the same in each run. */
void cuda_fill_random(cudaStream_t stream, enum cuda_type type, void *to, uint64_t n);

/* *flag (in the host's memory, mapped) = words->serial, when all earlier work of the stream is
 * done. */
void cuda_raise(cudaStream_t stream, const struct pass_words *words, uint32_t *flag);

/* *flag (in the host's memory, mapped) = words->serial if one of the n values, which begin at a
 * multiple of 16 bytes, is infinite or NaN. */
void cuda_find_infinite(cudaStream_t stream, const struct pass_words *words, const float *values,
                        uint64_t n, uint32_t *flag);

/* ---- kernels_norm.cu: sums over the pixels of a channel, and batch-norm forward ------------- */

/* Room for making sums. partial: cuda_partial_bytes of any content, 3 doubles a channel for each
 * block's share of its pixels. tickets: a word for each channel, all zero before and after. */
struct sum_room {
    double *partial;
    uint32_t *tickets;
};
size_t cuda_partial_bytes(enum cuda_type type, const struct grid *grid);

/* to[c] = the channel's sum. */
void cuda_column_sums(cudaStream_t stream, enum cuda_type type, const void *x, struct grid grid,
                      struct sum_room room, float *to);

/* The rows of a slab. A pass over `rows` rows has blocks for each of `groups` groups of columns, at
 * most `blocks` in all, each for a slab of at least `least` rows. */
static inline uint64_t cuda_slab_rows(uint64_t rows, uint32_t groups, uint32_t blocks,
                                      uint64_t least)
{
    const uint64_t slabs = groups < blocks ? blocks / groups : 1;
    const uint64_t slab = (rows + slabs - 1) / slabs;
    return slab < least ? least : slab;
}

/* How a channel is normalised: y = (x - mean) * inverse * gamma + beta. */
struct norm_by {
    float *mean, *inverse;     /* inverse = 1 / sqrt(variance + epsilon) */
    const float *gamma, *beta; /* NULL: 1, 0 */
    double epsilon;
};
/* Where the moments of a channel's `rows` pixels go: to by.mean and by.inverse; mean and unbiased
 * variance to the statistics. */
struct moments {
    struct norm_by by;
    double rows;
    float *mean, *variance; /* statistics */
};
void cuda_batch_moments(cudaStream_t stream, enum cuda_type type, const void *x, struct grid grid,
                        struct sum_room room, const struct moments *to);
/* Makes mean and inverse from running averages. */
void cuda_running_moments(cudaStream_t stream, const float *running_mean,
                          const float *running_variance, uint32_t c, const struct norm_by *norm);
/* A mask of the elements that a ReLU with result y lets through: a byte for each pack; bit i is set
 * if the pack's element i is y > 0 or NaN. Backward reads the mask in place of y. */
size_t cuda_mask_bytes(enum cuda_type type, const struct grid *grid);
/* Values to add to a normalised x, unchanged or normalised themselves (norm not NULL). */
struct norm_added {
    const void *values; /* NULL: nothing */
    const struct norm_by *norm;
};
/* y = normalised x, plus `added`, then ReLU if `relu`. mask NULL: not written. */
void cuda_normalise(cudaStream_t stream, enum cuda_type type, const void *x,
                    const struct norm_by *norm, const struct norm_added *added, bool relu, void *y,
                    uint8_t *mask, struct grid grid);

/* ---- kernels_norm_backward.cu --------------------------------------------------------------- */

/* The gradient that enters a batch-norm: dz = masked ? dy : 0; mask NULL: dz = dy. */
struct norm_gradient {
    const void *dy;
    const uint8_t *mask;
    const void *more; /* cuda_norm_sums adds it to dy, as cuda_sum does; NULL: nothing */
    void *dz; /* cuda_norm_sums writes it; may be dy or more; NULL (one side): not written */
    /* For one side in NHWC, if cuda_max_pool normalised: dy is by the pool's result, and dz is the
     * gradient by the pool's input; mask, more and dz are NULL. where NULL: there is no pool. */
    struct window pool;
    const uint8_t *where;
};
/* A batch-norm that the gradient enters. An addition has one on each of its two sides. */
struct norm_side {
    const void *x;
    struct norm_by by;
    float *sums;           /* {sum of dz, sum of dz * x^}: 2 c floats */
    float *dgamma, *dbeta; /* NULL: none */
    void *dx;              /* cuda_norm_backward writes it */
};
/* The sums of n sides (1 or 2), and their gradients by gamma and beta. */
void cuda_norm_sums(cudaStream_t stream, enum cuda_type type, const struct norm_gradient *gradient,
                    const struct norm_side *sides, uint32_t n, struct grid grid,
                    struct sum_room room);
void cuda_norm_backward(cudaStream_t stream, enum cuda_type type,
                        const struct norm_gradient *gradient, const struct norm_side *sides,
                        uint32_t n, struct grid grid);

/* ---- kernels_window.cu: pools and LRN ------------------------------------------------------- */

enum { WINDOW_MAX = 256 /* elements of a max pool's window */, POOLED_NOTHING = WINDOW_MAX - 1 };

/* where[output element] = the maximum's place in its window: the first in row order, or the last
 * NaN. where NULL: not wanted. norm not NULL: pools x normalised, behind a ReLU and rounded. The
 * windows then have fewer than WINDOW_MAX elements, and `where` is POOLED_NOTHING if the maximum is
 * 0, so that no gradient passes. */
void cuda_max_pool(cudaStream_t stream, enum cuda_type type, const struct window *window,
                   const void *x, const struct norm_by *norm, void *y, uint8_t *where);
void cuda_max_pool_backward(cudaStream_t stream, enum cuda_type type, const struct window *window,
                            const void *dy, const uint8_t *where, void *dx);
void cuda_mean_pool(cudaStream_t stream, enum cuda_type type, const struct window *window,
                    const void *x, void *y);
void cuda_mean_pool_backward(cudaStream_t stream, enum cuda_type type, const struct window *window,
                             const void *dy, void *dx);

struct lrn {
    uint32_t radius;
    float k, alpha, beta;
};
void cuda_lrn(cudaStream_t stream, enum cuda_type type, const struct lrn *lrn, const void *x,
              void *y, struct grid grid);
void cuda_lrn_backward(cudaStream_t stream, enum cuda_type type, const struct lrn *lrn,
                       const void *x, const void *dy, void *dx, struct grid grid);

/* ---- kernels_sequence.cu: NHWC alone; a row is a position of a sample ----------------------- */

/* to: n ids, of samples of `length`. numbers: of these samples in `from`; NULL: one after the
 * other. */
void cuda_copy_ids(cudaStream_t stream, const int32_t *from, const uint32_t *numbers,
                   uint32_t length, int32_t *to, uint64_t n);
/* order: the places of the n ids by rising id, equal ids by rising place. */
void cuda_sort_ids(cudaStream_t stream, const int32_t *ids, uint32_t n, uint32_t *order);
/* Row i of y is row ids[i] of the weights. */
void cuda_embed(cudaStream_t stream, enum cuda_type type, const int32_t *ids, const float *weights,
                void *y, uint64_t rows, uint32_t channels);
/* Row `id` of `to` = the sum of dy's rows with this id, plus its content if `adds`. Rows of other
 * ids are left alone. */
void cuda_embed_backward(cudaStream_t stream, enum cuda_type type, const int32_t *ids,
                         const uint32_t *order, uint32_t n, const void *dy, float *to,
                         uint32_t channels, bool adds);

struct row_moments {
    float mean, inverse; /* inverse = 1 / sqrt(variance + epsilon) */
};
/* How a row is normalised: y = (x - mean) * inverse * gamma + beta. */
struct row_norm {
    struct row_moments *moments; /* by row: forward writes them */
    const float *gamma, *beta;
    float epsilon;
    uint32_t channels;
};
void cuda_layer_norm(cudaStream_t stream, enum cuda_type type, const void *x,
                     const struct row_norm *norm, void *y, uint64_t rows);
void cuda_layer_norm_backward(cudaStream_t stream, enum cuda_type type, const void *dy,
                              const void *x, const struct row_norm *norm, void *dx, uint64_t rows);
/* The gradients by gamma and beta. */
void cuda_layer_norm_weights(cudaStream_t stream, enum cuda_type type, const void *dy,
                             const void *x, const struct row_moments *moments, struct grid grid,
                             struct sum_room room, float *gamma, float *beta);

/* By the tangent, else by the error function. */
void cuda_gelu(cudaStream_t stream, enum cuda_type type, const void *x, bool tanh, void *y,
               uint64_t n);
void cuda_gelu_backward(cudaStream_t stream, enum cuda_type type, const void *dy, const void *x,
                        bool tanh, void *dx, uint64_t n);

/* The first n elements of each sample; stride: from a sample to the next. */
struct sample_rows {
    uint32_t samples, n, stride;
};
/* y = x + weights in these elements; x has no others (NULL: 0). */
void cuda_add_rows(cudaStream_t stream, enum cuda_type type, const void *x, const float *weights,
                   void *y, const struct sample_rows *rows);
/* to: n elements, each the sum over all samples. */
void cuda_sum_samples(cudaStream_t stream, enum cuda_type type, const void *x, float *to,
                      const struct sample_rows *rows);

/* Heads of the same width; width: a multiple of 16. */
struct heads {
    uint32_t samples, length, heads, width;
};
/* From rows of `parts` times all heads, to parts of heads of `length` rows, all samples' in a part;
 * and back. */
void cuda_split_heads(cudaStream_t stream, enum cuda_type type, const struct heads *heads,
                      uint32_t parts, const void *from, void *to);
void cuda_join_heads(cudaStream_t stream, enum cuda_type type, const struct heads *heads,
                     uint32_t parts, const float *from, void *to);

/* Scores of a block of queries, of several heads: q k' without the scale. Arrays like the scores
 * begin at multiples of 32 bytes. */
struct score_block {
    uint32_t heads, queries, keys;
    uint32_t wide;  /* from a query's scores to the next's: a multiple of 16, `keys` at least */
    uint32_t first; /* position of the first query */
    bool causal;    /* a query sees no key behind its own position */
    float scale;
    float *log_sum; /* by head and position: of the exponentials of a query's scores */
    uint32_t length;
};
/* p: the probabilities; 0 where a key is not seen. Writes log_sum. */
void cuda_softmax(cudaStream_t stream, enum cuda_type type, const struct score_block *block,
                  const float *scores, void *p);
/* Makes p again from log_sum. ds: the gradient by the products q k', from dp, that by p. */
void cuda_softmax_backward(cudaStream_t stream, enum cuda_type type,
                           const struct score_block *block, const float *scores, const float *dp,
                           void *p, void *ds);

/* ---- kernels_loss.cu ----------------------------------------------------------------------- */

struct loss {
    const int32_t *labels;
    double *log_sum, *label_loss; /* by label */
    uint32_t *label_rank;         /* by label: how many logits are larger than the label's */
    uint32_t n, in_sample;        /* labels: of all samples, of one */
    uint32_t classes, wide;       /* wide: from a label's logits to the next's */
    float smoothing;
};
/* In the host's memory, mapped. */
struct outcome_words {
    double loss;
    uint32_t correct, in_top5;
};
void cuda_softmax_loss(cudaStream_t stream, enum cuda_type type, const struct loss *loss,
                       const void *logits);
/* The members of struct dpb_outcome, of the labels of the first words->valid samples. */
void cuda_outcome(cudaStream_t stream, const struct loss *loss, const struct pass_words *words,
                  struct outcome_words *outcome);
/* dx lies as the logits do, and may be they. */
void cuda_softmax_loss_backward(cudaStream_t stream, enum cuda_type type, const struct loss *loss,
                                const struct pass_words *words, const void *logits, void *dx);

#ifdef __cplusplus
}
#endif

#endif
