/*
 * device.h - a device plugin: compiles a graph for a batch size and a precision, and runs it.
 *
 * For devices alone. A first plugin does not need this header.
 *
 * The arenas are core's: weights (fp32, or fp64 under fp64), gradients (the same type), batch-norm
 * state and batch statistics. A device keeps what else it needs (activations, packed or rounded
 * copies of the weights) and may fuse, choose layouts and plan memory as it likes.
 *
 * How right is right: each op, fed the reference's activations and incoming gradients rounded to
 * the precision, errs by at most 1e-12 (fp64), 1e-5 (fp32), 2^-7 (bf16) or 2^-9 (tf32, fp16) of the
 * sum of the magnitudes of its terms; the loss of a whole model by 1e-10 (fp64), 1e-4 (fp32) or
 * 5e-2. `dpbench conform` checks both.
 *
 * Terms of attention: a probability p_ij errs, relative to itself, as its score and the logarithm
 * of the sum of all exponentials do. So terms with p_ij count 1 + s_ij + sum_k p_ik s_ik times,
 * where s_ij = scale sum_c |q_ic k_jc|, and in backward's ds_ij = p_ij (dp_ij - d_i) both parts
 * count. Narrow precisions may round P and dS. docs/models.md has the formulas.
 */
#ifndef DPBENCH_DEVICE_H
#define DPBENCH_DEVICE_H

#include "capture.h"
#include "data.h"
#include "graph.h"
#include "links.h"
#include "monitor.h"
#include "profile.h"
#include "queue.h"
#include "status.h"

struct dpb_event; /* host.h */

typedef enum dpb_precision {
    DPB_PRECISION_FP32,
    DPB_PRECISION_BF16,
    DPB_PRECISION_FP64,
    DPB_PRECISION_TF32, /* all is stored in fp32; sums of products may read 10 bits
                           of the mantissas */
    DPB_PRECISION_FP16, /* activations and their gradients; see
                           dpb_pass.loss_scale */
    DPB_PRECISIONS
} dpb_precision;

static inline const char *dpb_precision_name(dpb_precision precision)
{
    static const char *const name[DPB_PRECISIONS] = {"fp32", "bf16", "fp64", "tf32", "fp16"};
    return name[precision];
}

/* Capabilities of a device plugin (dpb_plugin.capabilities): the precisions it computes in. */
#define DPB_DEVICE_FP32 (UINT64_C(1) << DPB_PRECISION_FP32)
#define DPB_DEVICE_BF16 (UINT64_C(1) << DPB_PRECISION_BF16)
#define DPB_DEVICE_FP64 (UINT64_C(1) << DPB_PRECISION_FP64)
#define DPB_DEVICE_TF32 (UINT64_C(1) << DPB_PRECISION_TF32)
#define DPB_DEVICE_FP16 (UINT64_C(1) << DPB_PRECISION_FP16)
/* Backward writes gradients node by node: after `final` with a frontier, and until the next call,
 * only those of the one node whose tensors begin there. Gradients may then lie in slots, of which
 * `final` waits until the next node's are free (dpb_comm_plan.gradient_slots). A training pass
 * calls `enter`, and reads no other weights than those of the node entered last: others may be
 * away (dpb_comm_plan.weights_on_need). */
#define DPB_DEVICE_NODE_BY_NODE (UINT64_C(1) << 33)
/* Keeps a pool of samples in memory of its own (dpb_compile_args.pool). */
#define DPB_DEVICE_POOL (UINT64_C(1) << 32)
/* Computes nothing: sleeps as long as an accelerator would compute (dpb_device_ops.emulation), and
 * writes random gradients. Its losses mean nothing. It alone takes DPB_OP_TENSOR. */
#define DPB_DEVICE_EMULATED (UINT64_C(1) << 34)

struct dpb_device_args {
    uint32_t rank;
    uint32_t threads; /* compute threads, one a core; the process is already bound to its cores */
    uint64_t seed;
    uint32_t index;  /* the place's number among those of its machine, from 0 */
    double dilation; /* run.dilation: how many times as long computing takes; 1 unless the device
                        emulates */
    bool alone;      /* the strategy exchanges nothing (DPB_COMM_ALONE) */
};

struct dpb_compile_args {
    const struct dpb_graph *graph; /* @borrowed as long as the program lives */
    uint32_t batch;
    dpb_precision precision;
    bool training;                          /* false: forward only, no memory for backward */
    const struct dpb_sample_format *format; /* of the samples; @borrowed likewise */
    bool profile;                           /* keep account of every op's time, for `profile` */
    bool inspect;   /* keep the tensors of `inspect`, whose memory others may otherwise take. The
                     kernels are the same */
    bool on_device; /* weights and gradients will lie in the device's memory */
    /* With DPB_DEVICE_POOL: copied to the device by compile. Batches of training
     * passes, and those of a program that is not for training, are then samples of it
     * (dpb_batch.numbers). */
    struct dpb_sample_pool pool;
};

/* Where the program finds and leaves things; @borrowed as long as the program lives. Element types:
 * fp64 under DPB_PRECISION_FP64, else fp32. Within a tensor the order is canonical. */
struct dpb_device_memory {
    const void *weights; /* graph->n_elements; changed by others between passes */
    void *gradients; /* graph->n_elements; NULL unless training. Backward assigns, it never adds */
    const void *state; /* graph->n_state_elements: running mean and variance, read in evaluation */
    void *statistics;  /* graph->n_state_elements: forward in training writes this batch's mean and
                          unbiased variance (biased where the batch has one value a channel) */
    /* Weights and gradients lie in the device's memory (dpb_device_ops.queues);
     * state and statistics are the host's. */
    bool on_device;
    /* With on_device. `final` takes events that have not fired. The device calls `final` for all
     * of a backward as soon as the work is enqueued, and backward returns without waiting.
     * Otherwise gradients are final when `final` is called. */
    bool takes_events;
};

/* One pass over one micro-batch. */
struct dpb_pass {
    bool training;        /* batch-norm by the batch's statistics, dropout on */
    bool weights_changed; /* since the last forward: packed copies are out of date */
    uint64_t step;
    uint32_t first_sample; /* number of this batch's first sample in the global batch (dropout) */
    uint32_t valid; /* samples that count, from the first: the last batch of a test set has fewer.
                       In training it is the batch */
    /* DPB_PRECISION_FP16: backward's gradients, those in the arena too, are of the loss times this,
     * so that small ones do not vanish. Large ones may then be infinite: `finite`. */
    double loss_scale;
    /* The strategy exchanges this backward's gradients next, and the exchange may be captured with
     * backward (struct dpb_hooks). Only with takes_events, and where no_capture gives NULL. */
    bool captures;
};

struct dpb_outcome {
    double loss; /* mean over the labels of the valid samples */
    /* Labels of valid samples that have the largest logit, and one of the five largest. The first
     * of equal logits counts as larger. NaN counts as larger than the label's logit. A label whose
     * own logit is NaN counts as neither. */
    uint32_t correct, in_top5;
};

/* The device calls these back, on the thread that called forward or backward. */
struct dpb_hooks {
    void *context;
    /* The gradient elements [0, frontier) are final once `event` (NULL: at once) fires, and neither
     * they nor the weights in that range are read or written again by this pass. Frontiers rise;
     * the last call of a backward has frontier = graph->n_elements. A status other than DPB_OK ends
     * the pass, which returns it. */
    dpb_status (*final)(void *context, uint64_t frontier, struct dpb_event *event);
    /* With DPB_DEVICE_NODE_BY_NODE, unless NULL: before the work of the graph's node `node` in a
     * forward or backward. Its weights are there when this returns. */
    dpb_status (*enter)(void *context, uint32_t node);
    /* To be called between ops, every millisecond or so: lets strategies without a thread of their
     * own move on. */
    dpb_status (*progress)(void *context);
    /* For a backward with dpb_pass.captures. The device may run such a backward as any other, and
     * runs the first one so: a capture holds only work that has run before. Or it captures the
     * backward with the exchange: call `capture` just before backward begins, then `final` for all
     * of it, within the capture and with events of the capture, then `join`. The device's own work
     * waits for join's event before the capture ends. In this and every later pass, call `replay`,
     * then launch the graph. Do not call `final`. */
    dpb_status (*capture)(void *context, const struct dpb_capture *capture);
    dpb_status (*join)(void *context, struct dpb_event **event);
    dpb_status (*replay)(void *context);
    /* May be NULL. A program that was compiled with `profile` and reads the clock around each op
     * calls this after the op: for a timeline. */
    void (*op)(void *context, uint32_t node, int64_t begin_ns, int64_t end_ns);
};

/* How the device spent a step, by its own clock: the four parts add up to the step. */
struct dpb_device_times {
    int64_t begin_ns, exchange_begin_ns; /* on the host's clock, as near as the device can tell */
    int64_t forward_ns, backward_ns;
    /* From the end of backward until the weights of the next pass were there. */
    int64_t exchange_ns;
    int64_t idle_ns; /* of the step, in which it had nothing to do: waiting for the host */
};

/* How the work of several processes on one device is run. */
struct dpb_sharing {
    bool known;       /* the driver tells */
    char service[16]; /* that runs the work at once, by its usual name; "": processes take turns */
};

/* What a device that emulates sleeps for. Texts are cut off where they are longer. */
struct dpb_emulation {
    char accelerator[64], model[64], precision[8], kind[16]; /* of its profile */
    char source[512];
    uint32_t batch;               /* samples of a step of one worker */
    double update_elements_per_s; /* the accelerator updates the weights; 0: the host does */
};

struct dpb_device_ops {
    /* Sets *device (@owned until close) on success only. */
    dpb_status (*open)(const void *options, const struct dpb_device_args *args, void **device);
    /* Bytes that a program would take beside core's arenas; a good estimate, without allocating. */
    uint64_t (*memory_needed)(const void *options, const struct dpb_compile_args *args);
    /* May be NULL: the device does not count. Bytes that one forward and backward of a training
     * program read and write, as struct dpb_profile_row counts them. Plans the program and refuses
     * one that has no plan; needs neither `open` nor the hardware. Where only a measurement decides
     * between two ways, the way that moves less is counted. */
    dpb_status (*bytes_moved)(const void *options, const struct dpb_compile_args *args,
                              double *bytes);
    /* Compiles; refuses (DPB_UNSUPPORTED) by name what it cannot do. Sets *program on success
     * only. */
    dpb_status (*compile)(void *device, const struct dpb_compile_args *args,
                          const struct dpb_device_memory *memory, void **program);
    /* Forward over `batch` (batch->n = the compiled batch; content beyond `valid` is arbitrary but
     * readable, with labels in range). hooks->progress may be called. */
    dpb_status (*forward)(void *program, const struct dpb_pass *pass, const struct dpb_batch *batch,
                          const struct dpb_hooks *hooks, struct dpb_outcome *outcome);
    /* Backward of the last forward, which was a training pass; gradients are of the mean loss. */
    dpb_status (*backward)(void *program, const struct dpb_pass *pass,
                           const struct dpb_hooks *hooks);
    /* For tests and `dpbench eval --sample`: the activation of a node in the last forward, and the
     * gradient of the loss by that activation in the last backward (NULL: not asked), as fp64 in
     * NCHW order, batch * elements of the node's shape. DPB_UNSUPPORTED for what a device has
     * fused away, and for all of a program that was not compiled with `inspect`. */
    dpb_status (*inspect)(void *program, uint32_t node, double *activation, double *gradient);
    void (*release)(void *program); /* accepts NULL */
    void (*close)(void *device);    /* accepts NULL */
    /* May be NULL: the device keeps no account. Between passes of a program compiled with
     * `profile`: returns the account so far and the limits, which it measures in this call (about a
     * second). A program for training accounts for training passes only. `profile` NULL: clears the
     * account. */
    dpb_status (*profile)(void *program, struct dpb_profile *profile);
    /* May be NULL, and return NULL: it computes on the host. PCI address
     * ("0000:1b:00.0") of the GPU that it computes on, by which core asks `monitor` for clocks and
     * power; @borrowed until close. */
    const char *(*pci_address)(void *device);
    /* May be NULL: there is nothing to copy to. */
    const struct dpb_device_links *links;
    /* NULL: the device computes on the host's memory. Else arenas may be on the
     * device, and the hooks below are there, too. */
    const struct dpb_queue_ops *queues;
    /* The work of the next pass begins when `event` has fired: the weights are new. Does not
     * block. */
    dpb_status (*follow)(void *program, struct dpb_event *event);
    /* Blocks until all that the program has enqueued is done; `deadline` as in host->patience. */
    dpb_status (*drain)(void *program);
    /* Returns the times of the last complete training step that ran without waiting for the host
     * (takes_events). A step is complete when the next one's forward, or `drain`, has returned.
     * False: there is none, or an earlier call returned it. A step begins with its forward's first
     * work. */
    bool (*times)(void *program, struct dpb_device_times *times);
    /* With DPB_DEVICE_FP16: whether all gradients of the last backward, which has returned, are
     * finite. */
    dpb_status (*finite)(void *program, bool *finite);
    /* May be NULL: it captures nothing. Why it does not, for messages
     * ("device.graphs = no"); NULL: it captures dpb_pass.captures. */
    const char *(*no_capture)(void *device);
    /* May be NULL: clocks and power are unknown. */
    const struct dpb_monitor_ops *monitor;
    /* May be NULL: unknown. How processes share the device of place `index`, as this process finds
     * it. Fails if `options` (NULL: their defaults) ask for another way. Needs no `open`, and asks
     * the driver alone: in a rank, or in a child of the launcher. */
    dpb_status (*sharing)(const void *options, uint32_t index, struct dpb_sharing *sharing);
    /* With DPB_DEVICE_EMULATED. Needs no `open`; refuses options that cannot work. */
    dpb_status (*emulation)(const void *options, struct dpb_emulation *emulation);
    /* With DPB_DEVICE_EMULATED. Of the training passes since the last call: how long after their
     * deadlines the machine let their gradients be final, by the latest of each pass, all added
     * up; time in the hooks is not the machine's. */
    int64_t (*late_ns)(void *program);
};

#endif
