/*
 * device.c - replicated on arenas in the memory of the workers' devices: bucket i is summed on the
 * device of worker i mod W, and every worker updates its copy of the variables on its own.
 *
 * The others' gradients come into inboxes in the owner's device memory and the sum goes back by
 * copies from device to device (lib/device_strategy.h). Bytes moved are those of the form on the
 * host: (W - 1) M to the owners, (W - 1) M back.
 *
 * Device memory beside the arenas: inboxes for up to SLOTS buckets from each of the other workers.
 *
 * Fences: a bucket is pushed when this worker's gradients are final (READY) and the owner has
 * summed what was in the slot before (REDUCED; in the first buckets of a step, of the step before);
 * summed when all have pushed (PUSHED); copied back over the gradients when its owner has summed it
 * (REDUCED), which is after every push of it; and the owner's step ends when all have copied it
 * (TAKEN): then nobody reads its arena.
 */
#include "comm/replicated/replicated.h"

enum { SLOTS = 2 };

static struct dpb_range share_of(const struct dpb_comm_args *args, uint32_t owner, uint64_t bucket,
                                 uint64_t length)
{
    return (struct dpb_range){0, replicated_owner(args, bucket) == owner ? length : 0};
}

static bool owns(const struct device_strategy *comm, uint64_t bucket)
{
    return replicated_owner(&comm->base.args, bucket) == comm->base.args.rank;
}

/* ---- stage: sum, on the owner -------------------------------------------------------------- */

static void sum(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = strategy;
    (void)until_ns;
    if (owns(comm, bucket))
        signals_span_late_peer(&comm->base.signals, strategy_workers(&comm->base), bucket);
    bool summed = device_sum(comm, bucket);
    device_begun(comm, &comm->sums, bucket, !summed);
    *at = length;
}

static void summed(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = strategy;
    (void)until_ns;
    if (device_landed(comm, &comm->sums, bucket, DPB_PHASE_REDUCE) && owns(comm, bucket))
        signals_raise(&comm->base.signals, SIGNAL_REDUCED, bucket);
    *at = length;
}

/* ---- stage: take the sum from the owner, and update behind it ------------------------------ */

static void take(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = strategy;
    (void)until_ns;
    bool copied = device_pull(comm, bucket);
    device_begun(comm, &comm->pulls, bucket, !copied);
    bool updated = device_update(comm, &comm->updates, bucket, (struct dpb_range){0, length});
    device_begun(comm, &comm->updates, bucket, !updated);
    *at = length;
}

static void taken(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    struct device_strategy *comm = strategy;
    (void)until_ns;
    if (device_landed(comm, &comm->pulls, bucket, DPB_PHASE_TRANSFER))
        signals_raise(&comm->base.signals, SIGNAL_TAKEN, bucket);
    *at = length;
}

/* ---- stage: let go of the bucket when it is updated and all have taken it ------------------ */

static uint32_t missing_taker(const struct device_strategy *comm, uint64_t bucket)
{
    return owns(comm, bucket) ? device_missing(comm, SIGNAL_TAKEN, false, bucket) : UINT32_MAX;
}

static bool updated_due(void *strategy, uint64_t bucket)
{
    return device_updated_due(strategy, bucket) && missing_taker(strategy, bucket) == UINT32_MAX;
}

static dpb_status updated_wait(void *strategy, uint64_t bucket)
{
    struct device_strategy *comm = strategy;
    uint32_t taker = missing_taker(comm, bucket);
    if (taker == UINT32_MAX || !device_updated_due(strategy, bucket))
        return device_updated_wait(strategy, bucket);
    return device_wait(comm, bucket, taker, comm->base.arenas.layout.gradient_type,
                       "the peer to take the sum");
}

static void updated(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at,
                    int64_t until_ns)
{
    struct device_strategy *comm = strategy;
    (void)until_ns;
    device_landed(comm, &comm->updates, bucket, DPB_PHASE_UPDATE);
    *at = length;
}

static const struct stage stages[] = {{device_push_due, device_push, device_push_wait},
                                      {device_pushed_due, device_pushed, device_pushed_wait},
                                      {device_sum_due, sum, device_sum_wait},
                                      {device_summed_due, summed, device_summed_wait},
                                      {device_pull_due, take, device_pull_wait},
                                      {device_pulled_due, taken, device_pulled_wait},
                                      {updated_due, updated, updated_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static struct device_scheme scheme_of(const struct dpb_comm_args *args)
{
    return (struct device_scheme){.share = share_of, .every = args->n_workers, .n_slots = SLOTS};
}

dpb_status on_device_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                          void **comm)
{
    DPB_TRY(device_strategy_open(host, args, sizeof(struct device_strategy), comm));
    ((struct device_strategy *)*comm)->scheme = scheme_of(args);
    return DPB_OK;
}

void on_device_memory(const void *options, const struct dpb_comm_args *args,
                      const struct dpb_layout *layout, uint64_t bucket_elements,
                      struct dpb_comm_memory *memory)
{
    const struct device_scheme scheme = scheme_of(args);
    (void)options;
    memory->device_bytes = device_strategy_inbox(&scheme, args, layout, bucket_elements);
}

dpb_status on_device_bind(void *comm, const struct dpb_arenas *arenas)
{
    return device_strategy_bind(comm, arenas, stages, sizeof stages / sizeof *stages);
}
