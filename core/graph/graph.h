/*
 * graph.h - core's side of the network: makes a graph from a model plugin, and answers questions
 * about the graph.
 *
 * Knows nothing of devices, ranks or time.
 */
#ifndef DPB_CORE_GRAPH_GRAPH_H
#define DPB_CORE_GRAPH_GRAPH_H

#include "dpbench/graph.h"
#include "dpbench/model.h"

/*
 * Runs a model's `build` for samples of shape `input` and `nclass` classes and finishes the graph:
 * shapes, counts, tensors in arena order, initialisation. *graph is @owned: dpb_graph_destroy.
 * A model that describes an impossible network is refused with the node's name (DPB_USAGE).
 */
dpb_status dpb_graph_build(const char *name, const struct dpb_model_ops *model, const void *options,
                           struct dpb_shape input, uint32_t nclass, struct dpb_graph **graph);
void dpb_graph_destroy(struct dpb_graph *graph); /* accepts NULL */

/* The loss has smoothed labels from now on (Szegedy et al. 2016); its node has the amount. */
void dpb_graph_smooth_labels(struct dpb_graph *graph, double smoothing);

/* Writes the initial weights (tensors and gaps) by the rules of docs/models.md: fp64 numbers of
 * Philox, keyed by seed, tensor and element, rounded to `type` (fp32 or fp64). */
void dpb_graph_initialise(const struct dpb_graph *graph, uint64_t seed, dpb_dtype type,
                          void *weights);
/* Likewise for the state arena: running mean 0, variance 1. */
void dpb_graph_initialise_state(const struct dpb_graph *graph, dpb_dtype type, void *state);

/* A hash of all that two ranks must agree on: nodes, shapes, tensor names, offsets, nclass. */
uint64_t dpb_graph_hash(const struct dpb_graph *graph);

/* The index in tensors[] of the tensor that holds arena element `offset`. An element of a gap
 * belongs to the tensor before the gap. For walking a range tensor by tensor. */
uint32_t dpb_graph_tensor_at(const struct dpb_graph *graph, uint64_t offset);

#endif
