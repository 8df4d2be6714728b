/*
 * plan.h - functions for planning an op (plan.c), and the copies of core's memory (mirror.c).
 */
#ifndef DPB_CUDA_PLAN_H
#define DPB_CUDA_PLAN_H

#include "program.h"

/* `bytes` with a place of their own; core's memory on the device. */
dpb_status cuda_tensor(struct program *p, size_t bytes, struct tensor **tensor);
dpb_status cuda_foreign_tensor(struct program *p, void *data, struct tensor **tensor);
/* A step needs so many bytes of scratch; or room for the sums of a grid like the node's result. */
void cuda_need_scratch(struct program *p, size_t bytes);
void cuda_need_sum_room(struct program *p, const struct dpb_node *node);
/* Makes p->nodes[].activation of the node. */
dpb_status cuda_activation(struct program *p, const struct dpb_node *node, struct tensor **tensor);

/* Appends a step to the current list. Tensors by enum slot; NULL: none. */
#define TENSORS(...) ((const struct tensor *const[SLOTS]){__VA_ARGS__})
dpb_status cuda_step(struct program *p, unsigned when, const char *what, step_run *run,
                     const struct tensor *const t[SLOTS]);
/* The step that was appended last. cuda_use: it has a further tensor. cuda_use_core: it has core's
 * tensor `index` (DPB_NONE: none), a weight or the gradient by one, which is for run.profile. */
static inline struct step *cuda_last_step(const struct program *p)
{
    return &p->list->steps[p->list->n - 1];
}
void cuda_use(struct program *p, const struct tensor *tensor);
void cuda_use_core(struct program *p, uint32_t index);

/* Whether a convolution is the dense layer of a sequence's positions: a product of matrices. */
bool cuda_multiplies_positions(const struct program *p, const struct dpb_node *node);

/* The shape of a node's activation in memory. Two have channels for packs of 16 bytes. Samples in
 * 16 bits and NHWC that only convolutions read: cuDNN would pad them in every call. The added
 * channels are 0. The logits of a sequence's positions, whose product is slow where a row is not
 * aligned. The added channels have any content. */
struct dpb_shape cuda_stored_shape(const struct program *p, const struct dpb_node *node);

/* The first node that reads the node's result; NULL: none. Backward reaches this reader last. */
const struct dpb_node *cuda_first_reader(const struct program *p, const struct dpb_node *node);

/* The node's backward writes its part of the gradient of input `slot` to this tensor, which is like
 * the input's activation. NULL: no such gradient is needed (the input node). */
dpb_status cuda_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor **tensor);
/* For ops whose part of the gradient lies in `part` already: no other step may write `part`. */
void cuda_share_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor *part);
/* Whether the sums of the group's batch-norm add up the two parts of the group's gradient. The
 * group ends on an addition and a ReLU; the sums write the gradient that the shortcut shares. */
static inline bool cuda_joins_in_sums(const struct dpb_group *group)
{
    return group->residual && group->n_parts == 2;
}
/* Adds up the parts of a node's consumers: sets p->nodes[].gradient. NULL: the sums add them up. */
dpb_status cuda_join_gradient(struct program *p, const struct dpb_node *node);
/* A place for a result made from a node's complete gradient: the gradient or its part, if it may be
 * overwritten; else a new tensor. */
dpb_status cuda_over_gradient(struct program *p, const struct dpb_node *node,
                              struct tensor **tensor);

/* Weights of a contraction for the libraries, in the activations' layout (OHWI or core's OIHW) and
 * the program's type. NULL in the node's plan: core's own suffice. Likewise their gradient, for
 * which cuda_unpack_weights appends the step to core's layout, if one is needed. */
dpb_status cuda_pack_weights_of(struct program *p, const struct dpb_node *node);
const void *cuda_packed(const struct program *p, const struct dpb_node *node);
dpb_status cuda_weight_gradient(struct program *p, const struct dpb_node *node,
                                enum cuda_type type);
void *cuda_weight_gradient_data(const struct program *p, const struct dpb_node *node);
dpb_status cuda_unpack_weights(struct program *p, const struct dpb_node *node);
/* Lists all packings of a bound program (p->n_packings entries). */
void cuda_list_packings(const struct program *p, struct packing *table);

/* Cuts the gradient arena into pieces of at least `least` elements, by the frontiers of backward's
 * steps. @owned by the caller: free(). */
dpb_status cuda_cut_pieces(const struct step_list *backward, uint64_t least, struct piece **pieces,
                           size_t *n);

/* ---- mirror.c -------------------------------------------------------------------------------- */

/* Mirrors fp32 at `core`. bind pins the host's side, and zeroes the device's. */
dpb_status cuda_mirror_plan(struct program *p, void *core, uint64_t elements,
                            struct mirror *mirror);
/* For memory of the device: nothing is ever copied. */
dpb_status cuda_mirror_none(struct program *p, void *core, struct mirror *mirror);
dpb_status cuda_mirror_bind(struct program *p, struct mirror *mirror);
void cuda_mirror_release(struct mirror *mirror);
/* Copies all of the mirror to the device, on the main stream. */
dpb_status cuda_upload(const struct program *p, const struct mirror *mirror);
/* Copies elements [begin, end) to the host. Call cuda_downloaded after the copy: it brings them to
 * core. */
dpb_status cuda_download(const struct mirror *mirror, uint64_t begin, uint64_t end,
                         cudaStream_t stream);
void cuda_downloaded(const struct mirror *mirror, uint64_t begin, uint64_t end);

#endif
