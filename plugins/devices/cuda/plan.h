/*
 * plan.h - what an op is planned with (plan.c), and the copies of core's memory (mirror.c).
 */
#ifndef DPB_CUDA_PLAN_H
#define DPB_CUDA_PLAN_H

#include "cuda.h"

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
 * node's sums of products. The last two are for run.profile, as cuda_count_bytes is. */
void cuda_use(struct program *p, const struct tensor *tensor);
void cuda_use_core(struct program *p, uint32_t index);
void cuda_count_macs(struct program *p);
/* That the step appended last moves so many bytes, where it takes only a part of its tensors. */
void cuda_count_bytes(struct program *p, double bytes);

/* Of all that read the node's result; NULL: nothing does. Backward comes to this one last. */
const struct dpb_node *cuda_first_reader(const struct program *p, const struct dpb_node *node);

/* Where the node's backward writes its part of the gradient of input `slot`, like the input's
 * activation. NULL: nobody needs it (the input node). */
dpb_status cuda_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor **tensor);
/* For ops whose part is bytes that are there already: they will not be written by others. */
void cuda_share_input_gradient(struct program *p, const struct dpb_node *node, uint32_t slot,
                               struct tensor *part);
/* The two parts of the gradient of a group that ends on an addition and a ReLU: the sums of its
 * batch-norm, which write the gradient that the shortcut shares, add them up. */
static inline bool cuda_joins_in_sums(const struct dpb_group *group)
{
    return group->residual && group->n_parts == 2;
}
/* Adds up what the consumers of a node gave: sets p->nodes[].gradient; NULL where the sums do. */
dpb_status cuda_join_gradient(struct program *p, const struct dpb_node *node);
/* A place for what is made of a node's complete gradient: that itself, or the part of it, that may
 * be written over; the second part, where a convolution may have joined both in it. */
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

#endif
