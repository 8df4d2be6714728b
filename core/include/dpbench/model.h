/*
 * model.h - a model plugin: a network as a description, independent of any device.
 *
 * Start here for a network of your own: this header and graph.h are all that it needs.
 */
#ifndef DPBENCH_MODEL_H
#define DPBENCH_MODEL_H

#include "graph.h"
#include "status.h"

struct dpb_model_info {
    struct dpb_shape input; /* the samples it is published for */
    uint32_t nclass;        /* default, if neither the data nor the user sets it */
    uint32_t batch;         /* per worker, the field's default */
    bool any_image;         /* height and width may be others (dense sizes follow) */
    bool any_channels;      /* channels of the samples may be another number */
    bool ids;               /* samples are ids of tokens: input is {1, 1, length} */
};

/* A layer in files that others publish of the network: `name` stands there for the node's. '#' is
 * the number of a block, which nodes count from 1 and files from 0. */
struct dpb_file_layer {
    const char *node; /* "block#.qkv"; NULL: `name` is a whole tensor, and not read */
    const char *name; /* "h.#.attn.c_attn" */
    bool transposed;  /* the weight is [in, out], not [out, in] */
};

/* How others name and lay out the network's weights in safetensors files. Windows of 1 x 1 have no
 * dimensions there. A tied product may have its weight a second time. */
struct dpb_file_layout {
    const char *name;   /* of checkpoint.layout */
    const char *prefix; /* names begin with it or not, as "transformer."; or NULL */
    /* Of all nodes with tensors; ended by name = NULL. */
    const struct dpb_file_layer *layers;
};

/* All hooks are called on one thread, before any device exists. */
struct dpb_model_ops {
    /* `options` is the parsed options struct. Fills *info. */
    void (*describe)(const void *options, struct dpb_model_info *info);
    /* Adds the nodes, from graph->input() to graph->softmax_loss(). */
    dpb_status (*build)(const void *options, const struct dpb_graph_ops *graph,
                        struct dpb_graph_builder *builder, uint32_t nclass);
    const struct dpb_file_layout *layout; /* beside dpbench's own; or NULL */
};

#endif
