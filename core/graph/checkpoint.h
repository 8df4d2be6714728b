/*
 * checkpoint.h - a training run in a safetensors file: weights, batch-norm statistics, optimizer
 * state, and how far it has come.
 *
 * Names are those of the graph ("conv1.weight", "bn1.running_mean"), the optimizer's state of a
 * tensor is "optimizer.momentum_buffer.conv1.weight" (or "optimizer.sum...", PyTorch's words),
 * order is canonical, the type is that of the arenas (F32 or F64). How far it has come stands in
 * the header's __metadata__: dpbench.step, .samples, .epoch, .position, .trained_ns, whole numbers.
 * What is not there is zero: a file of weights alone begins a training, a file that others made may
 * continue one.
 */
#ifndef DPB_CORE_GRAPH_CHECKPOINT_H
#define DPB_CORE_GRAPH_CHECKPOINT_H

#include "dpbench/graph.h"
#include "dpbench/status.h"

/* How far a training has come. */
struct dpb_progress {
    uint64_t step;     /* steps done */
    uint64_t samples;  /* trained on, over all workers */
    uint64_t epoch;    /* of the next sample, from 0 */
    uint64_t position; /* in that epoch */
    int64_t trained_ns;
    /* Of a training in fp16 (train/loss_scale.h). */
    uint64_t loss_scale;    /* 0: none, or a fixed one */
    uint64_t clean_steps;   /* since it changed */
    uint64_t skipped_steps; /* all of them */
};

struct dpb_checkpoint {
    const struct dpb_graph *graph;
    dpb_dtype type; /* of all arenas: fp32 or fp64 */
    /* Loading: NULL where not wanted. Saving: the optimizer's may be NULL. */
    void *weights;              /* graph->n_elements */
    void *state;                /* graph->n_state_elements */
    void *optimizer;            /* its state, as the weights lie */
    const char *optimizer_name; /* "momentum_buffer", "sum"; NULL: the optimizer has none */
};

/* `metadata`: more pairs of strings for the header, ended by NULL; may be NULL. */
dpb_status dpb_checkpoint_save(const char *path, const struct dpb_checkpoint *checkpoint,
                               const struct dpb_progress *progress, const char *const *metadata);

/*
 * Whether `path` can be loaded for this graph, and how far it has come; no arena is touched. Every
 * tensor and state of the graph must be there with its shape, in F32 or F64. Where the file is of a
 * training under way, the state of this optimizer must be, too. DPB_DATA with what is wrong.
 */
dpb_status dpb_checkpoint_check(const char *path, const struct dpb_checkpoint *checkpoint,
                                struct dpb_progress *progress);

/* Checks, then reads. Where the optimizer's state is wanted and the file (of weights alone) has
 * none, it becomes zero. What is not the model's is left out with a warning; PyTorch's
 * num_batches_tracked and another optimizer's state without. */
dpb_status dpb_checkpoint_load(const char *path, const struct dpb_checkpoint *checkpoint);

#endif
