/*
 * inside_nccl.c - `hierarchical` on arenas in the memory of NVIDIA GPUs. Inside a machine NCCL
 * makes sums. Across machines, as with shared memory, each place drives its share of the network.
 *
 * A bucket's way, on a machine of L places:
 *   reduce: ncclReduceScatter over the machine, in place in the gradient arena, sums each place's
 *           slice there; a copy brings that slice into pinned memory of the host;
 *   post:   when the copy is done, the place sends it across (across.h);
 *   fetch:  the sum over all machines is copied back over the slice;
 *   gather: ncclAllGather over the machine, then the optimizer on the whole bucket.
 * The host drives these steps, because the network is the host's. It enqueues work, and polls an
 * event behind the work (device_strategy.h). Sums and copies are in three queues, so several
 * buckets are under way at once, while backward runs. On one machine there is no network, and a
 * bucket is ncclAllReduce and the optimizer.
 *
 * All ranks of a communicator must make NCCL's calls in one order, but shares come back from
 * across in another order on every place. So place 0 decides. It shows in shared memory when it
 * has enqueued a bucket's reduction (REDUCED), and after how many reductions it enqueued each
 * gathering (GATHERED). The others make the same calls. No place waits for itself: a gathering
 * waits only for the reductions of its own bucket and earlier ones.
 *
 * Bytes moved: as in shared memory, 2 (H - 1) M across, 2 (L - 1) M in each machine. In pinned
 * memory a place has M / L bytes.
 *
 * Fences: an event each. A slice goes across when its copy, behind its reduction, is done. It is
 * fetched when it no longer goes across, and gathered behind that. The step of a place ends with
 * its last update: the gathering before it is behind all reads of its gradients by NCCL.
 */
#include "comm/hierarchical/inside_nccl.h"

#include <stdio.h>

#include "lib/object/nccl.h"
#include "lib/strategy/slices.h"

enum stage_name { REDUCE, DOWN, POST, FETCH, GATHER, UP, GATHERED, UPDATED, STAGES };

/* Work on the device, by `here` but the copies: down by `out`, up by `back`. */
enum { REDUCTIONS = DPB_DEVICE_UPDATES + 1, DOWNS, UPS, GATHERINGS };

struct inside_nccl {
    const struct dpb_nccl_library *library;
    struct dpb_communicator
        communicator;        /* without NCCL's, where this place is alone on its machine */
    char name[32];           /* of its group */
    void *staging;           /* pinned: this place's shares, by bucket */
    uint64_t pinned_bytes;   /* of it */
    uint64_t share_elements; /* room for each */
    uint64_t order_at;       /* in the scratch of place 0, of ... */
    uint32_t *order;         /* ... how many reductions came before a bucket's gathering */
};

/* ---- one order of calls for all places ----------------------------------------------------- */

static bool leads(const struct hierarchical *comm)
{
    return comm->base.args.rank == 0;
}

static uint64_t n_begun(const struct hierarchical *comm, enum stage_name stage)
{
    return comm->base.pipeline.next[stage];
}

static bool leader_has(const struct hierarchical *comm, enum dpb_signal_kind kind, uint64_t bucket)
{
    const struct dpb_rank_set leader = {0, 1};
    return bucket < comm->base.pipeline.n_buckets &&
           dpb_signals_reached(&comm->base.signals, kind, leader, bucket);
}

/* A rank that has seen the leader's REDUCED also sees all that the leader did before: so REDUCED is
 * read first. */
static bool is_turn(const struct hierarchical *comm, enum stage_name stage)
{
    if (leads(comm))
        return true;
    bool may_reduce = leader_has(comm, DPB_SIGNAL_REDUCED, n_begun(comm, REDUCE));
    uint64_t gather = n_begun(comm, GATHER);
    bool must_gather = leader_has(comm, DPB_SIGNAL_GATHERED, gather) &&
                       comm->nccl->order[gather] == n_begun(comm, REDUCE);
    return stage == GATHER ? must_gather : may_reduce && !must_gather;
}

/* ---- work ---------------------------------------------------------------------------------- */

static size_t element_size(const struct hierarchical *comm)
{
    return dpb_dtype_size(comm->base.arenas.layout.gradient_type);
}

static void *gradients_of(const struct hierarchical *comm, uint64_t bucket, uint64_t at)
{
    const struct dpb_strategy *base = &comm->base;
    return dpb_strategy_own_gradients(base, bucket * base->arenas.bucket_elements + at);
}

/* This place's share of a bucket; empty where this place carries none. */
static struct dpb_range share_of(const struct hierarchical *comm, uint64_t bucket)
{
    uint64_t length = dpb_pipeline_bucket_length(&comm->base.pipeline, bucket);
    if (!hierarchical_drives(comm))
        return (struct dpb_range){length, length};
    return dpb_slice_of(length, comm->base.args.rank, comm->n_shares);
}

static struct dpb_wait what_of(const struct hierarchical *comm, uint64_t bucket,
                               const char *purpose)
{
    uint64_t length = dpb_pipeline_bucket_length(&comm->base.pipeline, bucket);
    return (struct dpb_wait){.step = comm->base.step.step,
                             .bucket = bucket,
                             .bytes = length * element_size(comm),
                             .peer = UINT32_MAX,
                             .purpose = purpose};
}

/* A call of NCCL's for the bucket, in the queue of sums; false: this place is alone here. */
static bool call(struct hierarchical *comm, uint64_t bucket, enum stage_name stage)
{
    const struct inside_nccl *nccl = comm->nccl;
    const struct dpb_wait what = what_of(comm, bucket, "NCCL to launch a sum");
    const struct dpb_nccl_range range = {gradients_of(comm, bucket, 0),
                                         comm->base.arenas.layout.gradient_type,
                                         dpb_pipeline_bucket_length(&comm->base.pipeline, bucket)};
    struct dpb_queue *queue = comm->on_device.here.queue;
    if (!nccl->communicator.nccl || comm->on_device.status != DPB_OK)
        return false;
    const struct dpb_nccl_library *library = nccl->library;
    /* Clears nothing: the call makes the queue's GPU this thread's GPU, as NCCL needs. */
    dpb_device_keep(&comm->on_device, comm->on_device.ops->clear(queue, range.memory, 0));
    dpb_device_keep(
        &comm->on_device,
        comm->n_shares == 0 ? library->all_reduce(&nccl->communicator, queue, &range, &what)
        : stage == REDUCE
            ? library->reduce_slices(&nccl->communicator, queue, &range, comm->n_shares, &what)
            : library->gather_slices(&nccl->communicator, queue, &range, comm->n_shares, &what));
    return true;
}

/* Copies the own share between its place in the arena and pinned memory. False: there is nothing to
 * copy. */
static bool copy_share(struct hierarchical *comm, uint64_t bucket, struct dpb_queue *queue,
                       bool down)
{
    const struct inside_nccl *nccl = comm->nccl;
    struct dpb_range share = share_of(comm, bucket);
    uint64_t bytes = (share.end - share.begin) * element_size(comm);
    void *arena = gradients_of(comm, bucket, share.begin);
    void *staged = (char *)nccl->staging + bucket * nccl->share_elements * element_size(comm);
    if (bytes == 0 || comm->on_device.status != DPB_OK)
        return false;
    dpb_device_keep(&comm->on_device, comm->on_device.ops->copy(queue, down ? staged : arena,
                                                                down ? arena : staged, bytes));
    return true;
}

/* Lets the queue wait for a flight's work on the bucket. */
static void await_flight(struct hierarchical *comm, struct dpb_queue *queue, uint32_t flight,
                         uint64_t bucket)
{
    struct dpb_device_strategy *device = &comm->on_device;
    if (!device->flights[flight].empty[bucket % DPB_DEVICE_IN_FLIGHT] && device->status == DPB_OK)
        dpb_device_keep(device,
                        device->ops->await(queue, dpb_device_flight_event(device, flight, bucket)));
}

/* ---- waiting ------------------------------------------------------------------------------- */

static dpb_status look_at_nccl(const struct hierarchical *comm)
{
    const struct inside_nccl *nccl = comm->nccl;
    uint64_t bucket;
    const struct dpb_stage_flight *flight = dpb_pipeline_in_flight(&comm->base.pipeline, &bucket);
    if (!nccl->communicator.nccl || !flight)
        return DPB_OK;
    const struct dpb_wait what = what_of(comm, bucket, flight->purpose);
    return nccl->library->look(&nccl->communicator, &what);
}

/* While the device is at work there is nothing to sleep on. Else it is the network, the leader or
 * this rank's own backward. */
static dpb_status wait(void *strategy, uint64_t bucket)
{
    struct hierarchical *comm = strategy;
    const struct dpb_strategy *base = &comm->base;
    const struct dpb_rank_set leader = {0, 1}, self = dpb_strategy_self(base);
    dpb_dtype type = base->arenas.layout.gradient_type;
    const uint64_t reduce = n_begun(comm, REDUCE), gather = n_begun(comm, GATHER);
    const struct dpb_stage_flight *flight = dpb_pipeline_in_flight(&base->pipeline, &bucket);
    if (comm->on_device.status != DPB_OK) /* nothing more is given, so there is nothing to come */
        return comm->on_device.status;
    if (flight)
        return dpb_device_flight_ops.wait(comm, bucket, flight);
    if (hierarchical_drives(comm) && !dpb_sums_idle(comm->across->sums))
        return comm->across->sums->ops->wait(comm->across->sums);
    if (comm->n_shares > 0 && gather < n_begun(comm, FETCH))
        return dpb_device_wait(&comm->on_device, gather, comm->ranks[0], type,
                               "the machine's first worker to gather");
    if (!dpb_signals_reached(&base->signals, DPB_SIGNAL_READY, self, reduce))
        return dpb_strategy_wait_ready(base, self, reduce);
    if (comm->n_shares == 0 || leads(comm)) /* ready since reduce_due has asked: it is due */
        return DPB_OK;
    return dpb_strategy_wait(base, DPB_SIGNAL_REDUCED, leader, reduce, type,
                             "the machine's first worker to sum");
}

/* ---- stages: sum over the machine, and down to the host -------------------------------------- */

static bool reduce_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    const struct dpb_device_strategy *device = &comm->on_device;
    return dpb_device_has_room(device, REDUCTIONS) && dpb_device_has_room(device, DOWNS) &&
           dpb_device_has_room(device, DPB_DEVICE_UPDATES) &&
           dpb_strategy_own_ready(strategy, bucket) &&
           (comm->n_shares == 0 || is_turn(comm, REDUCE));
}

static void reduce(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct hierarchical *comm = strategy;
    struct dpb_device_strategy *device = &comm->on_device;
    dpb_device_begun(device, REDUCTIONS, bucket, !call(comm, bucket, REDUCE));
    dpb_slices_count_all_reduce(&comm->base, bucket, comm->base.arenas.layout.gradient_type);
    if (comm->n_shares == 0) {
        dpb_device_update(device, bucket, (struct dpb_range){0, turn->length}); /* behind the sum */
    } else {
        if (leads(comm))
            dpb_signals_raise(&comm->base.signals, DPB_SIGNAL_REDUCED, bucket);
        await_flight(comm, device->out.queue, REDUCTIONS, bucket);
        dpb_device_begun(device, DOWNS, bucket, !copy_share(comm, bucket, device->out.queue, true));
    }
    turn->at = turn->length;
}

/* ---- stages: across, and up again ------------------------------------------------------------ */

static bool post_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    (void)bucket;
    return !hierarchical_drives(comm) || dpb_sums_has_place(comm->across->sums);
}

static void post(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct hierarchical *comm = strategy;
    struct dpb_range share = share_of(comm, bucket);
    if (hierarchical_drives(comm) && comm->on_device.status == DPB_OK)
        comm->across->sums->ops->post(comm->across->sums, bucket * comm->nccl->share_elements,
                                      share.end - share.begin);
    turn->at = turn->length;
}

static bool fetch_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return dpb_device_has_room(&comm->on_device, UPS) &&
           (!hierarchical_drives(comm) || dpb_sums_finished(comm->across->sums, bucket));
}

static void fetch(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct hierarchical *comm = strategy;
    struct dpb_device_strategy *device = &comm->on_device;
    dpb_device_begun(device, UPS, bucket, !copy_share(comm, bucket, device->back.queue, false));
    turn->at = turn->length;
}

/* ---- stages: to all of the machine, and into the weights ------------------------------------ */

static bool gather_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    (void)bucket;
    return dpb_device_has_room(&comm->on_device, GATHERINGS) &&
           dpb_device_has_room(&comm->on_device, DPB_DEVICE_UPDATES) && is_turn(comm, GATHER);
}

static void gather(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    struct hierarchical *comm = strategy;
    struct dpb_device_strategy *device = &comm->on_device;
    await_flight(comm, device->here.queue, UPS, bucket);
    dpb_device_begun(device, GATHERINGS, bucket, !call(comm, bucket, GATHER));
    if (leads(comm)) {
        comm->nccl->order[bucket] = (uint32_t)n_begun(comm, REDUCE);
        dpb_signals_raise(&comm->base.signals, DPB_SIGNAL_GATHERED, bucket);
    }
    dpb_device_update(device, bucket, (struct dpb_range){0, turn->length}); /* behind the sum */
    turn->at = turn->length;
}

static const struct dpb_stage_flight summed = {REDUCTIONS, DPB_PHASE_TRANSFER,
                                               "NCCL's sum over the machine"};
static const struct dpb_stage_flight down = {DOWNS, DPB_PHASE_TRANSFER,
                                             "its device to copy a sum to the host"};
static const struct dpb_stage_flight up = {UPS, DPB_PHASE_TRANSFER,
                                           "its device to copy a sum from the host"};
static const struct dpb_stage_flight gathered = {GATHERINGS, DPB_PHASE_TRANSFER,
                                                 "NCCL to gather the sum over the machine"};

/* A gathering is given behind the copy up, before that has landed. */
static const struct dpb_stage stages[STAGES] = {[REDUCE] = {reduce_due, reduce, wait},
                                                [POST] = {post_due, post, wait},
                                                [FETCH] = {fetch_due, fetch, wait},
                                                [GATHER] = {gather_due, gather, wait}};

static const struct dpb_stage_flight *const flights[STAGES] = {[REDUCE] = &summed,
                                                               [DOWN] = &down,
                                                               [UP] = &up,
                                                               [GATHERED] = &gathered,
                                                               [UPDATED] = &dpb_device_updated};

static const struct dpb_stage stages_alone[] = {{reduce_due, reduce, wait}, {NULL, NULL, NULL}};

static const struct dpb_stage_flight *const flights_alone[] = {&summed, &dpb_device_updated};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status open_nccl(struct hierarchical *comm)
{
    const struct dpb_host *host = comm->base.host;
    const struct dpb_device_arenas *device = comm->job.device;
    const struct dpb_nccl_library *library;
    DPB_TRY(dpb_nccl_load(host, &library));
    const char *missing = library->missing();
    if (missing)
        return host->fail(DPB_UNSUPPORTED, "comm.inside = nccl cannot run here: %s", missing);
    DPB_TRY(library->settle_options(&comm->nccl_options, &comm->job));
    comm->nccl = host->alloc(sizeof *comm->nccl);
    if (!comm->nccl)
        return DPB_NO_MEMORY;
    comm->nccl->library = library;
    comm->on_device.ops = device->ops;
    comm->on_device.device = device->device;
    return DPB_OK;
}

/* Where all machines have as many workers, slices are of equal length but in the last bucket. */
static uint64_t round_bucket(const struct dpb_comm_args *job, uint64_t elements)
{
    uint32_t n_shares = hierarchical_shares(job);
    for (uint32_t machine = 0; machine < job->n_machines; machine++)
        if (hierarchical_count(job, machine) != n_shares)
            return elements;
    return (elements + n_shares - 1) / n_shares * n_shares;
}

uint64_t inside_nccl_pinned_bytes(const struct dpb_comm_args *job, const struct dpb_layout *layout,
                                  uint64_t bucket_elements)
{
    uint64_t elements = round_bucket(job, bucket_elements);
    if (dpb_strategy_local_rank(job) >= hierarchical_shares(job))
        return 0;
    return dpb_strategy_count_buckets(layout, elements) *
           hierarchical_longest_share(job, layout, elements) *
           dpb_dtype_size(layout->gradient_type);
}

dpb_status inside_nccl_plan(struct hierarchical *comm, const struct dpb_layout *layout,
                            struct dpb_comm_plan *want)
{
    DPB_TRY(open_nccl(comm));
    struct inside_nccl *nccl = comm->nccl;
    nccl->pinned_bytes = inside_nccl_pinned_bytes(&comm->job, layout, want->bucket_elements);
    want->bucket_elements = round_bucket(&comm->job, want->bucket_elements);
    DPB_TRY(dpb_strategy_plan_replica(&comm->base, layout, DPB_MEMORY_SHARED, want));
    want->gradients = DPB_MEMORY_PRIVATE;
    nccl->order_at = dpb_strategy_lines(want->scratch_bytes);
    want->scratch_bytes =
        nccl->order_at +
        dpb_strategy_count_buckets(layout, want->bucket_elements) * sizeof *nccl->order;
    if (!hierarchical_drives(comm))
        return DPB_OK;
    nccl->share_elements = hierarchical_longest_share(&comm->job, layout, want->bucket_elements);
    return comm->across->ops->plan(comm->across, nccl->share_elements, want);
}

static dpb_status open_flights(struct hierarchical *comm)
{
    struct dpb_device_strategy *device = &comm->on_device;
    struct dpb_device_lane *const lanes[] = {[DPB_DEVICE_UPDATES] = &device->here,
                                             [REDUCTIONS] = &device->here,
                                             [DOWNS] = &device->out,
                                             [UPS] = &device->back,
                                             [GATHERINGS] = &device->here};
    DPB_TRY(dpb_device_lanes_open(device));
    for (uint32_t i = 0; i < sizeof lanes / sizeof *lanes; i++)
        DPB_TRY(dpb_device_flight_open(device, i, lanes[i], DPB_N_SIGNALS));
    return DPB_OK;
}

static dpb_status open_communicator(struct hierarchical *comm)
{
    struct inside_nccl *nccl = comm->nccl;
    const struct dpb_comm_args *args = &comm->base.args;
    snprintf(nccl->name, sizeof nccl->name, "machine %u", comm->machine);
    const struct dpb_nccl_group group = {
        .name = nccl->name, .rank = args->rank, .n_ranks = args->n_workers, .ranks = comm->ranks};
    if (args->n_workers == 1)
        return DPB_OK;
    dpb_status status = nccl->library->open(&comm->nccl_options, &group, &nccl->communicator);
    if (status != DPB_OK)
        nccl->library->abort(&nccl->communicator);
    return status;
}

/* An arena as the network sees it: this place's shares, one behind the other. */
static dpb_status stage_shares(struct hierarchical *comm, const struct dpb_arenas *arenas,
                               struct dpb_arenas *staged)
{
    struct inside_nccl *nccl = comm->nccl;
    struct dpb_device_strategy *device = &comm->on_device;
    *staged = *arenas;
    if (!hierarchical_drives(comm))
        return DPB_OK;
    DPB_TRY(device->ops->pin(device->device, nccl->pinned_bytes, &nccl->staging));
    staged->gradients = nccl->staging;
    staged->layout.n_elements = nccl->pinned_bytes / element_size(comm);
    return DPB_OK;
}

dpb_status inside_nccl_bind(void *comm_, const struct dpb_arenas *arenas)
{
    struct hierarchical *comm = comm_;
    const struct dpb_host *host = comm->base.host;
    bool alone = comm->n_shares == 0;
    struct dpb_arenas view = hierarchical_view(comm, arenas), staged;
    DPB_TRY(dpb_strategy_bind(&comm->base, &view, alone ? stages_alone : stages,
                              alone ? sizeof stages_alone / sizeof *stages_alone : STAGES));
    comm->base.pipeline.flights = alone ? flights_alone : flights;
    comm->base.pipeline.flight_ops = &dpb_device_flight_ops;
    comm->base.signals.ranks = comm->ranks;
    comm->nccl->order = (uint32_t *)(void *)((char *)view.peer_scratch[0] + comm->nccl->order_at);
    DPB_TRY(open_flights(comm));
    DPB_TRY(open_communicator(comm));
    DPB_TRY(stage_shares(comm, arenas, &staged));
    host->report("copies", alone ? "none of its own"
                           : hierarchical_drives(comm)
                               ? "staged through the host, to other machines"
                               : "none of its own: others carry all shares");
    return hierarchical_connect(comm, &staged);
}

dpb_status inside_nccl_begin(void *comm_, const struct dpb_step *step)
{
    hierarchical_begin(comm_, step->step);
    return dpb_device_strategy_begin(comm_, step);
}

/* After a failure NCCL is aborted, so that nothing waits for the GPU for ever. */
dpb_status inside_nccl_progress(void *comm_, int64_t budget_ns)
{
    struct hierarchical *comm = comm_;
    dpb_status status = dpb_device_strategy_progress(comm, budget_ns);
    DPB_THEN(status, look_at_nccl(comm));
    if (status != DPB_OK) {
        dpb_device_keep(&comm->on_device, status);
        comm->nccl->library->abort(&comm->nccl->communicator);
    }
    return status;
}

/* Releases comm->nccl and all that it has on the device. */
static void close_nccl(struct hierarchical *comm)
{
    struct inside_nccl *nccl = comm->nccl;
    struct dpb_device_strategy *device = &comm->on_device;
    if (device->status == DPB_OK && dpb_device_all_landed(device))
        nccl->library->close(&nccl->communicator);
    else
        nccl->library->abort(&nccl->communicator);
    dpb_device_flights_close(device); /* before the memory that their copies write */
    if (nccl->staging)
        device->ops->unpin(device->device, nccl->staging);
    comm->base.host->release(nccl, sizeof *nccl);
    comm->nccl = NULL;
}

void inside_nccl_close(void *comm_)
{
    struct hierarchical *comm = comm_;
    if (!comm)
        return;
    if (comm->across) /* its wires read the staging memory */
        comm->across->ops->close(comm->across);
    comm->across = NULL;
    const bool opened = comm->nccl != NULL;
    if (opened)
        close_nccl(comm);
    hierarchical_release(comm);
    if (opened)
        dpb_device_strategy_close(comm);
    else
        dpb_strategy_close(comm);
}
