/*
 * own.h - what the running test owns (test.h): freed as it ends. Each returns what it is given.
 */
#ifndef DPB_TESTS_LIB_OWN_H
#define DPB_TESTS_LIB_OWN_H

#include <jansson.h>

#include "base/config.h"
#include "graph/graph.h"

json_t *own_json(json_t *json);
struct dpb_config *own_config(struct dpb_config *config);
struct dpb_graph *own_graph(struct dpb_graph *graph);

#endif
