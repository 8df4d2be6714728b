/* own.c - see own.h. */
#include "lib/own.h"

#include "lib/test.h"

static void release_json(void *json)
{
    json_decref(json);
}

static void release_config(void *config)
{
    dpb_config_destroy(config);
}

static void release_graph(void *graph)
{
    dpb_graph_destroy(graph);
}

json_t *own_json(json_t *json)
{
    return own_memory(json, release_json);
}

struct dpb_config *own_config(struct dpb_config *config)
{
    return own_memory(config, release_config);
}

struct dpb_graph *own_graph(struct dpb_graph *graph)
{
    return own_memory(graph, release_graph);
}
