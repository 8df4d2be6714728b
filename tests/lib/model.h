/*
 * model.h - networks from the model plugins that were built, for tests.
 */
#ifndef DPB_TESTS_LIB_MODEL_H
#define DPB_TESTS_LIB_MODEL_H

#include "dpbench/plugin.h"
#include "graph/graph.h"

/* The model `name`, whichever file it is in. Fails the test when there is none. */
const struct dpb_plugin *model_find(const char *name);
/* All models in the order of their files' names: 0, 1, ...; NULL after the last. */
const struct dpb_plugin *model_at(size_t index);

/*
 * The network of a model. `version` is its option of that name, or `form`; NULL where it has none
 * or for the default. Fails the test with core's message. @owned: dpb_graph_destroy.
 */
struct dpb_graph *model_graph(const struct dpb_plugin *model, const char *version,
                              struct dpb_shape input, uint32_t nclass);
/* What a model is published for. */
struct dpb_model_info model_info(const struct dpb_plugin *model);
/* The network of model `name` for the samples it is published for. The running test owns it. */
struct dpb_graph *model_build(const char *name, const char *version, uint32_t nclass);

/* A node and a tensor by name; fail the test when there is none. @borrowed from the graph. */
const struct dpb_node *graph_node(const struct dpb_graph *graph, const char *name);
const struct dpb_tensor *graph_tensor(const struct dpb_graph *graph, const char *name);

#endif
