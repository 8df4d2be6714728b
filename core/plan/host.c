/* host.c - see host.h. */
#include "plan/host.h"

#include "base/log.h"
#include "base/vec.h"
#include "measure/account.h"
#include "optim/optimizer.h"
#include "world/world.h"

const struct dpb_host dpb_host = {
    .struct_size = sizeof(struct dpb_host),
    .abi = DPB_ABI,
    .fail = dpb_fail,
    .warn = dpb_warn,
    .log = dpb_log,
    .now_ns = dpb_now_ns,
    .alloc = dpb_alloc,
    .release = dpb_release,
    .span = dpb_account_span,
    .count_bytes = dpb_account_bytes,
    .age = dpb_account_age,
    .coding = dpb_account_coding,
    .note = dpb_world_note,
    .vec = &dpb_vec,
    .optimizer = &dpb_optimizers,
    .flag = &dpb_flags,
    .event = &dpb_events,
    .store = &dpb_store,
    .connect = dpb_world_connect,
    .poll = dpb_world_poll,
    .patience = dpb_world_patience,
    .report = dpb_world_report,
    .n_machines = dpb_world_machines,
};

/* ---- in `dpbench comm` --------------------------------------------------------------------- */

struct dpb_reduced dpb_reduced;

/* The sum is where the worker's gradients were: nothing has to be brought there. */
static bool is_own(const void *gradients, struct dpb_range range)
{
    const struct dpb_arenas *arenas = dpb_reduced.arenas;
    const char *own = arenas->gradients;
    return own && gradients == own + range.begin * dpb_dtype_size(arenas->layout.gradient_type);
}

static dpb_status assign(struct dpb_optimizer *optimizer, struct dpb_queue *queue,
                         struct dpb_range range, void *weights, const void *gradients,
                         uint64_t bucket, const struct dpb_step *step)
{
    const struct dpb_layout *layout = &dpb_reduced.arenas->layout;
    const uint64_t n = range.end - range.begin;
    (void)optimizer, (void)bucket, (void)step;
    if (dpb_reduced.in_place)
        return DPB_OK;
    if (is_own(gradients, range))
        __atomic_fetch_add(&dpb_reduced.n_in_place, n, __ATOMIC_RELAXED);
    return dpb_reduced.ops->cast(queue, layout->weight_type, weights, layout->gradient_type,
                                 gradients, n);
}

const struct dpb_host *dpb_comm_host(void)
{
    static const struct dpb_optimizer_ops assignment = {.update = assign};
    static struct dpb_host host;
    host = dpb_host;
    host.optimizer = &assignment;
    return &host;
}
