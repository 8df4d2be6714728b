/*
 * checkpoint.h - a training in a safetensors file: weights, batch-norm statistics, optimizer state,
 * progress.
 *
 * Tensors have the graph's names ("conv1.weight", "bn1.running_mean"), canonical order, and the
 * type of the arenas (F32 or F64). A tensor's optimizer state is
 * "optimizer.momentum_buffer.conv1.weight", "optimizer.sum..." or "optimizer.exp_avg..." and
 * "optimizer.exp_avg_sq...", PyTorch's words. The header's __metadata__ has the progress as whole
 * numbers: dpbench.step, .samples, .epoch, .position, .trained_ns, .seed. A missing number is zero:
 * a file of weights alone begins a training, and another program's file may continue one.
 *
 * A model may have another layout of names and dims for the same (layout.h).
 */
#ifndef DPB_CORE_CHECKPOINT_CHECKPOINT_H
#define DPB_CORE_CHECKPOINT_CHECKPOINT_H

#include "checkpoint/safetensors.h"
#include "dpbench/graph.h"
#include "dpbench/status.h"

enum { DPB_OPTIMIZER_STATES = 2 };  /* arrays of an optimizer's state, at most */
#define DPB_CHECKPOINT_COMM "comm." /* the strategy's state: save/saved.h */

/* The progress of a training. */
struct dpb_progress {
    uint64_t step;     /* steps done */
    uint64_t samples;  /* trained on, over all workers */
    uint64_t epoch;    /* of the next sample; counted from 0 */
    uint64_t position; /* in that epoch */
    int64_t trained_ns;
    uint64_t seed; /* of its random numbers */
    /* For a training in fp16 (optim/loss_scale.h). */
    uint64_t loss_scale;    /* 0: none, or a fixed one */
    uint64_t clean_steps;   /* since it changed */
    uint64_t skipped_steps; /* all of them */
};

struct dpb_checkpoint {
    const struct dpb_graph *graph;
    dpb_dtype type; /* of all arenas: fp32 or fp64 */
    /* Loading: NULL where not wanted. Saving: the optimizer's may be NULL. */
    void *weights;   /* graph->n_elements */
    void *state;     /* graph->n_state_elements */
    void *optimizer; /* its state: array after array, each laid out as the weights */
    const char *optimizer_names[DPB_OPTIMIZER_STATES]; /* of the arrays, as "sum"; NULL: no more */
    const struct dpb_file_layout *layout;              /* saving: NULL: dpbench's own */
    bool tells;          /* loading: logs the layout and the prefix that the names have */
    bool *has_optimizer; /* loading: set to whether the file has the optimizer's state; or NULL */
    bool over;           /* saving: dpb_safetensors_write */
    /* Saving: further tensors, whose names begin with DPB_CHECKPOINT_COMM. */
    const struct dpb_safetensor *more;
    uint32_t n_more;
};

/* `metadata`: more pairs of strings for the header, ended by NULL; may be NULL. */
dpb_status dpb_checkpoint_save(const char *path, const struct dpb_checkpoint *checkpoint,
                               const struct dpb_progress *progress, const char *const *metadata);

/*
 * Checks that `path` can be loaded for this graph, and reads its progress; touches no arena. The
 * names tell which layout the file has: dpbench's or the graph's other one. The file must have
 * every tensor and state of the graph once with its shape, in F64, F32, F16 or BF16; a second copy
 * of a tied weight must equal the first. A file of a training under way must have the state of this
 * optimizer, too. Otherwise DPB_DATA with the mistake.
 */
dpb_status dpb_checkpoint_check(const char *path, const struct dpb_checkpoint *checkpoint,
                                struct dpb_progress *progress);

/* Checks, then reads. If the optimizer's state is wanted and the file has weights alone, the state
 * becomes zero. Tensors that are not the model's are ignored with a warning; PyTorch's
 * num_batches_tracked and another optimizer's state are ignored silently. */
dpb_status dpb_checkpoint_load(const char *path, const struct dpb_checkpoint *checkpoint);

#endif
