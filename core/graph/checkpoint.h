/*
 * checkpoint.h - weights and batch-norm statistics in a safetensors file.
 *
 * Names are those of the graph ("conv1.weight", "bn1.running_mean"), order is canonical, the type
 * is that of the arenas (F32 or F64). The file is written beside its place, synced and renamed.
 *
 * Format: github.com/huggingface/safetensors, "Format".
 */
#ifndef DPB_CORE_GRAPH_CHECKPOINT_H
#define DPB_CORE_GRAPH_CHECKPOINT_H

#include "dpbench/graph.h"
#include "dpbench/status.h"

/* `metadata`: pairs of strings for the header's __metadata__, ended by NULL; may be NULL. */
dpb_status dpb_checkpoint_save(const char *path, const struct dpb_graph *graph, dpb_dtype type,
                               const void *weights, const void *state, const char *const *metadata);
/* Every tensor and state of the graph must be there with its shape; F32 and F64 are converted. What
 * is not the model's is left out with a warning (PyTorch's num_batches_tracked without). A file
 * that is damaged or of another model is refused (DPB_DATA) before the arenas are touched. */
dpb_status dpb_checkpoint_load(const char *path, const struct dpb_graph *graph, dpb_dtype type,
                               void *weights, void *state);

#endif
