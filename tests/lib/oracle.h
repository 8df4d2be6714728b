/*
 * oracle.h - forward and backward of a training's model on the reference device in float64, in the
 * test's own process, at weights that the test chooses: for second implementations of a strategy.
 */
#ifndef DPB_TESTS_LIB_ORACLE_H
#define DPB_TESTS_LIB_ORACLE_H

#include "feed/feed.h"
#include "lib/weights.h"
#include "plan/experiment.h"

enum { ORACLE_WORKERS = 8 };

struct oracle {
    struct dpb_experiment *experiment;
    const struct dpb_graph *graph;
    void *device, *program;
    double *weights, *gradients, *state, *statistics; /* arenas */
    struct dpb_feed *feeds[ORACLE_WORKERS];
};

/* Of `settings` (SECTION.KEY=VALUE, cut at blanks), with the initial weights. A mistake fails the
 * test, here and below. */
void oracle_open(struct oracle *oracle, const char *settings);
void oracle_close(struct oracle *oracle);
/* Zeroed, as long as any of the model's. @owned: free(). */
double *oracle_arena(const struct oracle *oracle);
/* The gradients of the worker's next micro-batch, the `micro_batch`-th of its step `step`, at
 * oracle->weights. Each worker's are asked for in order. */
void oracle_pass(struct oracle *oracle, uint32_t worker, uint64_t step, uint32_t micro_batch);
/* The tensor of a checkpoint that is the graph's `tensor`; `prefix` of its name: "" or
 * "optimizer.momentum_buffer.". */
const struct weight_tensor *oracle_tensor(const struct weights *weights, const char *prefix,
                                          const struct dpb_tensor *tensor);

#endif
