/*
 * optimizer.h - the update rules, on any owned range: the service behind dpb_optimizer_ops.
 *
 * SGD in PyTorch's form: g = scale * gradient + decay * w; v = momentum * v + g; w -= rate * v
 * (Nesterov: w -= rate * (g + momentum * v)). Adagrad (Duchi et al. 2011): s += g^2;
 * w -= rate * g / (sqrt(s) + epsilon). Adam (Kingma, Ba 2015, Algorithm 1), in the t-th update of
 * the owned ranges: m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
 * w -= rate * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon). With decoupled_decay
 * (adamw; Loshchilov, Hutter 2019) g has no decay, and w -= rate * decay * w of the old w, too.
 * RMSProp in TensorFlow's form (Tieleman, Hinton 2012): s = rms_decay * s + (1 - rms_decay) * g^2,
 * from s = 1; v = momentum * v + rate * g / sqrt(s + epsilon); w -= v. The arithmetic is done in
 * the weights' type.
 *
 * LARS, LAMB and clipped gradients need norms of whole tensors (optimizer.c). Where a rank owns all
 * elements, the update of the step's last range updates all ranges. Before that, weights and
 * gradients stay unchanged. Where ranks own parts, `squares` precedes the updates.
 */
#ifndef DPB_CORE_OPTIM_OPTIMIZER_H
#define DPB_CORE_OPTIM_OPTIMIZER_H

#include "base/settings.h"
#include "checkpoint/checkpoint.h"
#include "dpbench/host.h"
#include "world/world.h"

struct dpb_optimizer_args {
    const struct dpb_graph *graph; /* which ranges decay; @borrowed as long as it lives */
    const struct dpb_optimizer_settings *settings;
    dpb_dtype weight_type, gradient_type;
    const struct dpb_range *owned; /* rising, disjoint; copied */
    uint64_t n_owned;
    /* The arenas, where the rule needs norms. @borrowed */
    void *weights;
    const void *gradients;
    bool sharded; /* whether a rule with norms may own less than all elements */
    /* The device whose memory holds weights, gradients and state; NULL: the host. @borrowed, as is
     * the queue, which works for reset, load, fetch and watch. */
    const struct dpb_device_arenas *device;
    struct dpb_queue *queue;
    bool saved; /* `fetch` may be called */
    /* 0 until an update makes a weight infinite or NaN: then the arena element of the first one
     * found, + 1. NULL: no check. @borrowed */
    uint64_t *not_finite;
    /* Not 0: on the host, an update lasts so long an element, or as long as it takes. */
    double element_ns;
};

static inline bool dpb_optimizer_needs_norms(const struct dpb_optimizer_settings *settings)
{
    return dpb_optimizer_by_tensor(settings) || settings->clip_norm > 0.0;
}

/* Allocates state for the owned ranges only, as a mapping named "optimizer" or on the device.
 * Nothing is allocated when nothing is owned: *optimizer is then NULL. */
dpb_status dpb_optimizer_create(const struct dpb_optimizer_args *args,
                                struct dpb_optimizer **optimizer);
void dpb_optimizer_destroy(struct dpb_optimizer *optimizer); /* accepts NULL */

/* The arrays of the state of these settings, in PyTorch's words: "momentum_buffer"; "sum";
 * "exp_avg", "exp_avg_sq"; "square_avg". LARS's and RMSProp's velocity includes the rate, and is
 * "velocity". Returns their number. */
uint32_t dpb_optimizer_state_names(const struct dpb_optimizer_settings *settings,
                                   const char *names[DPB_OPTIMIZER_STATES]);
/* The number alone. */
uint32_t dpb_optimizer_states(const struct dpb_optimizer_settings *settings);
/* Of the state. Accepts NULL. */
uint64_t dpb_optimizer_bytes(const struct dpb_optimizer *optimizer);
/* The memory of the state: array after array, each with one owned range after the other, in the
 * weights' type. Zeroed if there is no state or `optimizer` is NULL. @borrowed until destroy. The
 * memory has all updates of other threads until now. For a state on a device, the memory has the
 * content that `fetch` has copied, and is zeroed unless args.saved. */
struct dpb_mapping dpb_optimizer_mapping(const struct dpb_optimizer *optimizer);
/* Called by a thread without updates that has read the state, before the next step can begin. */
void dpb_optimizer_was_read(struct dpb_optimizer *optimizer);
dpb_status dpb_optimizer_fetch(struct dpb_optimizer *optimizer); /* accepts NULL */
/* Copies the state of the owned ranges after `updates` updates from arenas on the host: one for
 * each array, one behind the other, each laid out like the weights. */
dpb_status dpb_optimizer_load(struct dpb_optimizer *optimizer, const void *arenas,
                              uint64_t updates);
/* On a device: enqueues a copy of the elements that updates have found until `done` fires. The next
 * call or one after it writes them to args.not_finite. Does not wait. Accepts NULL. */
dpb_status dpb_optimizer_watch(struct dpb_optimizer *optimizer, struct dpb_event *done);
/* Waits for all enqueued work, and writes the element found to args.not_finite. */
dpb_status dpb_optimizer_find(struct dpb_optimizer *optimizer);

/* Sees each update of training on the host, on the thread that makes the update, just before the
 * elements move. `number`: with Adam's moments, of the update of the owned ranges, from 1; else
 * 0. */
struct dpb_optimizer_witness {
    void (*see)(void *owner, const struct dpb_step *step, const struct dpb_update *update,
                uint64_t number);
    void *owner; /* @borrowed */
};
/* Between steps; replaces the witness before. A zeroed one: none. Accepts NULL. */
void dpb_optimizer_show(struct dpb_optimizer *optimizer, struct dpb_optimizer_witness witness);

/* With args.element_ns: by how much updates took longer, added up since the last call. Accepts
 * NULL. */
int64_t dpb_optimizer_late_ns(struct dpb_optimizer *optimizer);

/* The seal of the n-th step that core makes. `plain`: w -= learning_rate * scale * gradient,
 * without momentum or decay, the state untouched; a proof's steps are plain, and the seal does not
 * say so to a strategy. All ranks of a job have the same key. */
uint64_t dpb_step_seal(uint64_t n, bool plain);
void dpb_step_key(uint64_t key);

/* DPB_FAILED, after its message, once a strategy has called for an update of elements that are not
 * owned. The optimizer does not make such an update. */
dpb_status dpb_optimizer_refused(void);

extern const struct dpb_optimizer_ops dpb_optimizers;

#endif
