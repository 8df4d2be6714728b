/*
 * networks.h - small networks that together have every op of graph.h, for `dpbench conform` and the
 * tests of dpbench's own devices. None is a model to train.
 */
#ifndef DPB_CONFORM_NETWORKS_H
#define DPB_CONFORM_NETWORKS_H

#include "dpbench/data.h"
#include "dpbench/model.h"
#include "dpbench/plugin.h"

struct dpb_network {
    const char *name;
    const struct dpb_model_ops *model; /* its options are the row itself */
    /* The op between samples and classes; NULL: a mixture with a `build` of its own. */
    uint32_t (*middle)(const struct dpb_graph_ops *g, struct dpb_graph_builder *b, uint32_t x);
    double smoothing; /* of the labels */
    dpb_dtype type;   /* of the samples */
    dpb_sample_order order;
};
/* One op each first, then mixtures. Ends with a name of NULL. */
extern const struct dpb_network dpb_networks[];

/* A model's own network for the smallest square image that the model takes: the reference is slow.
 * With batch-norm, no convolution has fewer pixels than `pixels`. */
struct dpb_graph;
dpb_status dpb_network_small(const struct dpb_plugin *model, const void *options, uint32_t pixels,
                             struct dpb_graph **graph);

/* Images that are not square, padding on one side, channel counts of no vector's width; the input
 * used twice, a node added to itself and used by two concats. All ops but grouped convolutions. */
extern const struct dpb_model_ops dpb_network_odd;
/* Larger images; a window off the image on one side. */
extern const struct dpb_model_ops dpb_network_uneven;
/* Odd numbers of pixels, channels of one vector and less; strides; a batch-norm of the input. */
extern const struct dpb_model_ops dpb_network_pairs;
/* Convolutions in groups: depthwise with one output each and with more, groups of fewer channels
 * than a vector has and of more. Heights and widths must be at least 8. */
extern const struct dpb_model_ops dpb_network_grouped;
/* Two branches: weights of one lie between those of the other and its ReLU. */
extern const struct dpb_model_ops dpb_network_branches;

#endif
