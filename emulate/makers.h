/*
 * makers.h - where the times of a profile are from: a result of dpbench, a rate or an accelerator's
 * figures, a trace. Each maker fills a struct dpb_made that has the command line's values, and
 * refuses what has no times of a step by name (DPB_USAGE).
 */
#ifndef DPB_EMULATE_MAKERS_H
#define DPB_EMULATE_MAKERS_H

#include "base/config.h"
#include "emulate/made.h"
#include "plan/experiment.h"

/*
 * From the result of a run of one worker, which has timing.ready. A frontier is an element up to
 * which the gradient was final at a time. The last tensor before a frontier has that time. Tensors
 * between two frontiers divide the time between them by their nodes' multiply-accumulates; where
 * these are 0, by elements.
 *
 * forward is the step without backward, optimizer and exposed communication, so forward and
 * backward together are all computing of the step. spread is 1.4826 times the median distance of
 * step times from their median, over their mean: a few slow steps do not change it.
 */
dpb_status dpb_made_of_result(const char *path, struct dpb_made *made);

/* The times of an accelerator for a network, by its work. */
struct dpb_work {
    const struct dpb_config *settings; /* model.* and data.*: the network; or NULL: `tensors` */
    const char *tensors;               /* a file, of lines NAME ELEMENTS MACS */
    double rate;                       /* samples/s; 0: `flops` and `bandwidth` say */
    double flops, bandwidth;           /* FLOP/s, bytes/s; with a rate 0: DPB_WORK_RATIO */
    double share;                      /* of both that is reached */
};
/* FLOP a byte that an accelerator of a rate alone has: fp32 of the GPUs of 2014 to 2020, 12 to
 * 30. */
#define DPB_WORK_RATIO 20.0

/*
 * By the roofline (Williams, Waterman, Patterson, CACM 52(4), 2009): the forward pass of a node
 * takes the longer of FLOP / `flops` and bytes / `bandwidth`. FLOP: 2 a multiply-accumulate.
 * Bytes: inputs, output and weights, each once. backward of a node is twice as long, so forward is
 * a third of the step. With a rate, batch / rate is the step, and the roofline divides it.
 */
dpb_status dpb_made_of_work(const struct dpb_work *work, struct dpb_made *made);

/*
 * From a trace of PyTorch's profiler in Chrome's format with the ranges "dpbench.forward",
 * "dpbench.backward", perhaps "dpbench.update", and "dpbench.ready NAME ELEMENTS", whose begin is
 * when a gradient is final (docs/emulating.md has the script). Times are means over the steps of
 * the trace. Where the trace has these ranges on a GPU (gpu_user_annotation), only those count.
 */
dpb_status dpb_made_of_torch(const char *path, struct dpb_made *made);

/*
 * From a Chakra execution trace as JSON: messages Node of et_def.proto, one after the other or in a
 * list. A node ends when all that it depends on has ended and its duration has passed. Each
 * all-reduce is a tensor, ready when the nodes before it have ended. backward begins when the last
 * forward node has ended: a computing node whose name lacks "backward", "bwd", "_ig" and "_wg", as
 * do the names of those that it depends on by ctrl_deps.
 * Nodes that follow an all-reduce do not count.
 */
dpb_status dpb_made_of_chakra(const char *path, struct dpb_made *made);

/* The network of settings model.* and data.*. No data are read; no device is needed. *experiment is
 * @owned. */
dpb_status dpb_made_network(const struct dpb_config *settings, struct dpb_experiment **experiment);

/* Bytes of an element of activations and weights; 0: an unknown precision. */
double dpb_precision_bytes(const char *precision);

#endif
