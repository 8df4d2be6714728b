/*
 * hierarchical - replicated training on several machines with several workers each: inside a
 * machine through shared memory, across machines by rings over TCP or RDMA, or by MPI. Or inside a
 * machine by NCCL, in the memory of its GPUs: inside_nccl.c. What follows is of the first.
 *
 * Every worker keeps weights and optimizer state. With N places a machine, place l of each machine
 * carries the l-th of N slices of every bucket across, together with place l of the others
 * (across.h). A bucket goes four ways:
 *   reduce: each rank sums its part straight out of the arenas of its machine (lib/slices.h), into
 *           the arena of the place that carries it;
 *   post:   that place sends the slice across, once all of it is summed, where it is summed over
 *           the machines (lib/ring.h, lib/mpi.h): each place drives its own share of the network;
 *   gather: it writes the sum into all arenas of its machine;
 *   update: every rank updates its weights from its own, now summed, gradients.
 * On machines with unequal numbers of workers N is the smallest: the others sum and update. On one
 * machine there is no network to go by, and this is shm.
 *
 * Bytes moved per step, M bytes of gradients, H machines: 2 (H - 1) M over the network in all,
 * where one ring of all W workers sends 2 (W - 1)/W M over each of the links between machines,
 * which are H at best. Inside a machine, as shm does: (L - 1) M read and (L - 1) M written by its L
 * ranks.
 *
 * Fences:
 *   1. a slice is summed when all of the machine have announced its bucket (READY);
 *   2. it goes across when all who sum a part of it have (REDUCED);
 *   3. a bucket is used when all of it has come from across and its places have written it into all
 *      arenas (GATHERED);
 *   4. a gradient arena is written again when all reads of it are over. The arena is read for sums
 *      before REDUCED, and by what goes across and its place before GATHERED, and written by others
 *      before GATHERED: what a rank has seen of all places, for every bucket, before it ends its
 *      step.
 *
 * Jia et al.: Highly scalable deep learning training system with mixed-precision: training ImageNet
 * in four minutes. 2018 (hierarchical all-reduce).
 */
#include <stdio.h>
#include <stdlib.h>

#include "comm/hierarchical/hierarchical.h"
#include "dpbench/plugin.h"
#include "lib/doorbell.h"
#include "lib/mpi.h"
#include "lib/slices.h"

static const struct dpb_host *host;

static const char *const transports[] = {"tcp", "verbs", "mpi", NULL};
static const char *const insides[] = {"shm", "nccl", NULL};

static const struct dpb_option options[] = {
    {"inside", DPB_OPT_CHOICE, NULL, "shm", 0, 0, insides,
     offsetof(struct hierarchical_options, inside),
     "within a machine: shm (the host's memory), or nccl (that of NVIDIA GPUs)"},
    {"transport", DPB_OPT_CHOICE, NULL, "tcp", 0, 0, transports,
     offsetof(struct hierarchical_options, transport),
     "between machines: tcp, verbs (RDMA: InfiniBand or RoCE), or mpi (under mpirun or srun)"},
    RING_OPTION_ROWS(struct hierarchical_options),
    TCP_OPTION_ROWS(struct hierarchical_options),
    VERBS_OPTION_ROWS(struct hierarchical_options),
    NCCL_OPTION_ROWS(struct hierarchical_options),
    {0}};

/* ---- stage: sum the own part over the machine ----------------------------------------------- */

/* The place that carries an element of a bucket across. */
static uint32_t carrier_of(const struct hierarchical *comm, uint64_t length, uint64_t at)
{
    uint32_t place = 0;
    while (slice_of(length, place, comm->n_shares).end <= at)
        place++;
    return place;
}

static void reduce_piece(const struct hierarchical *comm, uint64_t bucket, uint64_t length,
                         uint64_t end, uint64_t *at)
{
    const struct strategy *base = &comm->base;
    dpb_dtype type = base->arenas.layout.gradient_type;
    uint32_t place = carrier_of(comm, length, *at);
    uint64_t carried = slice_of(length, place, comm->n_shares).end;
    struct piece piece = strategy_piece(base, bucket, end < carried ? end : carried, *at, type);
    void *sum = strategy_gradients(base, place, piece.begin);
    if (base->args.n_workers > 1)
        strategy_sum(base, bucket, piece, &sum, 1);
    if (place != base->args.rank)
        host->count_bytes(piece.n * dpb_dtype_size(type));
    *at += piece.n;
}

static void reduce(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct hierarchical *comm = strategy;
    const struct strategy *base = &comm->base;
    struct dpb_range slice = slice_of(length, base->args.rank, base->args.n_workers);
    if (*at == 0) {
        signals_span_late_peer(&base->signals, strategy_workers(base), bucket);
        *at = slice.begin;
    }
    while (*at < slice.end && host->now_ns() < until_ns)
        reduce_piece(comm, bucket, length, slice.end, at);
    if (*at < slice.end)
        return;
    signals_raise(&base->signals, SIGNAL_REDUCED, bucket);
    *at = length;
}

/* ---- stage: off to the other machines -------------------------------------------------------- */

/* Who sums parts of the slice that this place carries. */
static struct rank_set contributors(const struct hierarchical *comm, uint64_t bucket)
{
    uint64_t length = pipeline_bucket_length(&comm->base.pipeline, bucket);
    uint32_t n = comm->base.args.n_workers;
    struct dpb_range carried = slice_of(length, comm->base.args.rank, comm->n_shares);
    struct rank_set set = {0, 0};
    while (set.first < n && slice_of(length, set.first, n).end <= carried.begin)
        set.first++;
    while (set.first + set.n < n && slice_of(length, set.first + set.n, n).begin < carried.end)
        set.n++;
    return set;
}

static bool post_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return !hierarchical_drives(comm) || (comm->across->ops->has_place(comm->across) &&
                                          signals_reached(&comm->base.signals, SIGNAL_REDUCED,
                                                          contributors(comm, bucket), bucket));
}

/* While it waits nothing is under way: there is place. */
static dpb_status post_wait(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return strategy_wait(&comm->base, SIGNAL_REDUCED, contributors(comm, bucket), bucket,
                         comm->base.arenas.layout.gradient_type,
                         "the peer's part of the machine's sum");
}

static void post(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct hierarchical *comm = strategy;
    (void)until_ns;
    *at = length;
    if (!hierarchical_drives(comm))
        return;
    struct dpb_range carried = slice_of(length, comm->base.args.rank, comm->n_shares);
    struct rank_set from = contributors(comm, bucket);
    if (from.n > 0)
        strategy_span_others(&comm->base, SIGNAL_REDUCED, SIGNAL_REDUCED, from, bucket);
    comm->across->ops->post(comm->across,
                            bucket * comm->base.arenas.bucket_elements + carried.begin,
                            carried.end - carried.begin);
}

/* ---- stage: back from them, to all of the machine -------------------------------------------- */

static bool gather_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return !hierarchical_drives(comm) || comm->across->ops->finished(comm->across, bucket);
}

dpb_status hierarchical_wait(const struct hierarchical *comm)
{
    dpb_status status = DPB_OK;
    if (!comm->doorbell)
        return comm->across->ops->wait(comm->across);
    if (doorbell_arm(comm->doorbell))
        status = comm->across->ops->wait(comm->across);
    doorbell_disarm(comm->doorbell, true);
    return status;
}

static dpb_status gather_wait(void *strategy, uint64_t bucket)
{
    (void)bucket;
    return hierarchical_wait(strategy);
}

static void copy_to_all(const struct strategy *base, uint64_t bucket, struct piece piece)
{
    dpb_dtype type = base->arenas.layout.gradient_type;
    const void *sum = strategy_gradients(base, base->args.rank, piece.begin);
    int64_t began_ns = host->now_ns();
    for (uint32_t place = 0; place < base->args.n_workers; place++)
        if (place != base->args.rank)
            host->vec->copy(type, strategy_gradients(base, place, piece.begin), sum, piece.n);
    host->count_bytes((base->args.n_workers - 1) * piece.n * dpb_dtype_size(type));
    host->span(bucket, DPB_PHASE_TRANSFER, began_ns, host->now_ns());
}

static void gather(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct hierarchical *comm = strategy;
    const struct strategy *base = &comm->base;
    struct dpb_range carried = {length, length};
    if (hierarchical_drives(comm))
        carried = slice_of(length, base->args.rank, comm->n_shares);
    if (base->args.n_workers == 1)
        carried.begin = carried.end; /* it is where it has to be */
    *at = *at == 0 ? carried.begin : *at;
    while (*at < carried.end && host->now_ns() < until_ns) {
        struct piece piece =
            strategy_piece(base, bucket, carried.end, *at, base->arenas.layout.gradient_type);
        copy_to_all(base, bucket, piece);
        *at += piece.n;
    }
    if (*at < carried.end)
        return;
    if (hierarchical_drives(comm))
        signals_raise(&base->signals, SIGNAL_GATHERED, bucket);
    *at = length;
}

/* ---- stage: update -------------------------------------------------------------------------- */

static struct rank_set drivers(const struct hierarchical *comm)
{
    return (struct rank_set){0, comm->n_shares};
}

static bool update_due(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    return signals_reached(&comm->base.signals, SIGNAL_GATHERED, drivers(comm), bucket);
}

/* While later buckets are under way from here, they are not to wait for this one. */
static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    const struct hierarchical *comm = strategy;
    if (hierarchical_drives(comm) && !comm->across->ops->idle(comm->across))
        return hierarchical_wait(comm);
    return strategy_wait(&comm->base, SIGNAL_GATHERED, drivers(comm), bucket,
                         comm->base.arenas.layout.gradient_type,
                         "the peer's slice of the sum over all machines");
}

static void update(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at, int64_t until_ns)
{
    const struct hierarchical *comm = strategy;
    if (*at == 0)
        strategy_span_others(&comm->base,
                             hierarchical_drives(comm) ? SIGNAL_GATHERED : SIGNAL_REDUCED,
                             SIGNAL_GATHERED, drivers(comm), bucket);
    strategy_update_bucket(strategy, bucket, length, at, until_ns);
}

static const struct stage stages[] = {{slices_due, reduce, slices_wait},
                                      {post_due, post, post_wait},
                                      {gather_due, gather, gather_wait},
                                      {update_due, update, update_wait}};

static dpb_status move(void *strategy, int64_t until_ns, bool *moved)
{
    struct across *across = ((const struct hierarchical *)strategy)->across;
    return across->ops->move(across, until_ns, moved);
}

/* ---- who is where --------------------------------------------------------------------------- */

uint32_t hierarchical_count(const struct dpb_comm_args *job, uint32_t machine)
{
    uint32_t n = 0;
    for (uint32_t rank = 0; rank < job->n_workers; rank++)
        n += job->machines[rank] == machine;
    return n;
}

/* The rank at a place of a machine that has so many. */
static uint32_t rank_at(const struct dpb_comm_args *args, uint32_t machine, uint32_t place)
{
    uint32_t rank = 0;
    while (args->machines[rank] != machine || place-- > 0)
        rank++;
    return rank;
}

uint32_t hierarchical_shares(const struct dpb_comm_args *job)
{
    uint32_t least = job->n_workers;
    for (uint32_t machine = 0; machine < job->n_machines; machine++) {
        uint32_t n = hierarchical_count(job, machine);
        least = n < least ? n : least;
    }
    return job->n_machines == 1 ? 0 : least;
}

/* What the base sees of the job: the machine's workers, by place. */
static struct dpb_comm_args within_machine(const struct dpb_comm_args *args)
{
    struct dpb_comm_args within = *args;
    within.n_workers = hierarchical_count(args, args->machines[args->rank]);
    within.rank = strategy_local_rank(args);
    return within;
}

static dpb_status find_places(struct hierarchical *comm)
{
    const struct dpb_comm_args *job = &comm->job;
    uint32_t n_local = comm->base.args.n_workers;
    comm->machine = job->machines[job->rank];
    comm->ranks = calloc(n_local, sizeof *comm->ranks);
    comm->members = calloc(job->n_machines, sizeof *comm->members);
    comm->views = calloc((size_t)n_local * 3, sizeof(void *));
    comm->bells = calloc(job->n_workers, sizeof(struct bell_page *));
    if (!comm->ranks || !comm->members || !comm->views || !comm->bells)
        return host->fail(DPB_NO_MEMORY, "no memory for the places of %u ranks", job->n_workers);
    for (uint32_t place = 0; place < n_local; place++)
        comm->ranks[place] = rank_at(job, comm->machine, place);
    comm->n_shares = hierarchical_shares(job);
    for (uint32_t machine = 0; hierarchical_drives(comm) && machine < job->n_machines; machine++)
        comm->members[machine] = rank_at(job, machine, comm->base.args.rank);
    return DPB_OK;
}

/* ---- hooks ---------------------------------------------------------------------------------- */

static struct dpb_plugin hierarchical;
static const struct dpb_comm_ops nccl_ops; /* with comm.inside = nccl */

/* Of both libraries, as far as they are used. */
static struct dpb_library versions[8];

static void add_versions(const struct dpb_library *of)
{
    size_t n = 0;
    while (versions[n].name)
        n++;
    while (of->name && n + 1 < sizeof versions / sizeof *versions)
        versions[n++] = *of++;
    hierarchical.libraries = versions;
}

static dpb_status need_mpi(const struct hierarchical_options *given, struct dpb_comm_needs *needs)
{
    const struct mpi_library *library;
    if (given->tcp.interface[0] != '\0')
        return host->fail(DPB_USAGE, "comm.interface is of comm.transport = tcp and verbs; MPI is "
                                     "told by its own means, as mpirun --mca btl_tcp_if_include");
    DPB_TRY(mpi_load(host, &library));
    add_versions(library->versions);
    needs->capabilities |= DPB_COMM_LAUNCHER;
    return DPB_OK;
}

static dpb_status need_nccl(const struct hierarchical_options *given, struct dpb_comm_needs *needs)
{
    const struct dpb_library *library;
    DPB_TRY(inside_nccl_check(host, &library));
    add_versions(library);
    needs->capabilities |= nccl_capabilities(&given->nccl);
    needs->on_device = true;
    needs->runtime = "cuda";
    return DPB_OK;
}

static dpb_status hierarchical_needs(const void *options_, struct dpb_comm_needs *needs)
{
    const struct hierarchical_options *given = options_;
    bool by_mpi = given->transport == OVER_MPI, by_nccl = given->inside == INSIDE_NCCL;
    versions[0].name = NULL;
    if (given->transport == OVER_VERBS)
        DPB_TRY(verbs_check_built(host));
    if (by_nccl)
        DPB_TRY(need_nccl(given, needs));
    if (by_mpi)
        DPB_TRY(need_mpi(given, needs));
    needs->because = by_mpi && by_nccl ? "comm.inside = nccl and comm.transport = mpi"
                     : by_mpi          ? "comm.transport = mpi"
                     : by_nccl         ? "comm.inside = nccl"
                                       : NULL;
    return DPB_OK;
}

/* MPI is initialised by all workers of the job, wherever they are. */
static dpb_status open_across(struct hierarchical *comm, const struct hierarchical_options *given)
{
    if (given->transport == OVER_MPI)
        return across_open_mpi(host, &comm->job, &comm->across);
    return hierarchical_drives(comm)
               ? across_open_ring(host, given, comm->base.args.rank, &comm->across)
               : DPB_OK;
}

void hierarchical_release(struct hierarchical *comm)
{
    if (comm->across)
        comm->across->ops->close(comm->across);
    free(comm->ranks);
    free(comm->members);
    doorbell_close(comm->doorbell);
    free(comm->bells);
    free(comm->views);
}

static void hierarchical_close(void *comm)
{
    if (comm)
        hierarchical_release(comm);
    strategy_close(comm);
}

static dpb_status hierarchical_open(const void *options_, const struct dpb_comm_args *args,
                                    void **comm)
{
    const struct hierarchical_options *given = options_;
    const struct dpb_comm_args within = within_machine(args);
    void *made;
    DPB_TRY(strategy_open(host, &within, sizeof(struct hierarchical), &made));
    struct hierarchical *opened = made;
    opened->transport = given->transport;
    opened->inside = given->inside;
    opened->nccl_options = given->nccl;
    opened->job = *args;
    dpb_status status = find_places(opened);
    if (status == DPB_OK)
        status = open_across(opened, given);
    if (status != DPB_OK) {
        hierarchical_close(made);
        return status;
    }
    *comm = made;
    return DPB_OK;
}

static void hierarchical_memory(const void *options_, const struct dpb_comm_args *args,
                                const struct dpb_layout *layout, uint64_t bucket_elements,
                                struct dpb_comm_memory *memory)
{
    const struct hierarchical_options *given = options_;
    if (given->inside == INSIDE_NCCL)
        memory->host_bytes = inside_nccl_pinned_bytes(args, layout, bucket_elements);
}

static dpb_status hierarchical_plan(void *comm_, const struct dpb_layout *layout,
                                    struct dpb_comm_plan *want)
{
    struct hierarchical *comm = comm_;
    if (comm->inside == INSIDE_NCCL) {
        want->ops = &nccl_ops;
        return inside_nccl_plan(comm, layout, want);
    }
    uint64_t longest = strategy_longest_bucket(layout, want->bucket_elements);
    DPB_TRY(strategy_plan_replica(&comm->base, layout, DPB_MEMORY_SHARED, want));
    return hierarchical_drives(comm)
               ? comm->across->ops->plan(comm->across, longest / comm->n_shares + 1, want)
               : DPB_OK;
}

struct dpb_arenas hierarchical_view(struct hierarchical *comm, const struct dpb_arenas *arenas)
{
    struct dpb_arenas view = *arenas;
    uint32_t n = comm->base.args.n_workers;
    void **weights = comm->views, **gradients = weights + n, **scratch = gradients + n;
    for (uint32_t place = 0; place < n; place++) {
        weights[place] = arenas->peer_weights[comm->ranks[place]];
        gradients[place] = arenas->peer_gradients[comm->ranks[place]];
        scratch[place] = arenas->peer_scratch[comm->ranks[place]];
    }
    view.peer_weights = weights;
    view.peer_gradients = gradients;
    view.peer_scratch = scratch;
    return view;
}

/* Who drives a ring sleeps where a flag of the machine does not wake it. MPI does not sleep. */
static dpb_status open_doorbell(struct hierarchical *comm, const struct dpb_arenas *arenas)
{
    const struct doorbell_args args = {
        .host = host, .comm = &comm->job, .name = "hierarchical", .pages = comm->bells};
    if (comm->base.args.n_workers == 1 || comm->transport == OVER_MPI)
        return DPB_OK;
    for (uint32_t place = 0; place < comm->base.args.n_workers; place++) {
        struct signal_page *page = arenas->peer_scratch[comm->ranks[place]];
        comm->bells[comm->ranks[place]] = &page->bell;
    }
    DPB_TRY(doorbell_open(&args, &comm->doorbell));
    comm->bell = doorbell_fd(comm->doorbell);
    comm->base.signals.doorbell = comm->doorbell;
    return DPB_OK;
}

dpb_status hierarchical_connect(struct hierarchical *comm, const struct dpb_arenas *arenas,
                                const struct dpb_arenas *staged)
{
    if (comm->n_shares == 0)
        return DPB_OK;
    DPB_TRY(open_doorbell(comm, arenas));
    if (!comm->across)
        return DPB_OK;
    const struct across_group group = {.job = &comm->job,
                                       .arenas = staged,
                                       .members = comm->members,
                                       .machine = comm->machine,
                                       .place = comm->base.args.rank,
                                       .n_shares = comm->n_shares,
                                       .bell = comm->doorbell ? &comm->bell : NULL};
    if (hierarchical_drives(comm))
        comm->base.pipeline.move = move;
    return comm->across->ops->connect(comm->across, &group);
}

static dpb_status hierarchical_bind(void *comm_, const struct dpb_arenas *arenas)
{
    struct hierarchical *comm = comm_;
    bool alone = comm->n_shares == 0;
    struct dpb_arenas view = hierarchical_view(comm, arenas);
    DPB_TRY(strategy_bind(&comm->base, &view, alone ? slices_stages : stages,
                          alone ? SLICES_STAGES : sizeof stages / sizeof stages[0]));
    comm->base.signals.ranks = comm->ranks;
    return hierarchical_connect(comm, arenas, arenas);
}

static dpb_status hierarchical_begin(void *comm_, const struct dpb_step *step)
{
    struct hierarchical *comm = comm_;
    if (hierarchical_drives(comm))
        comm->across->ops->begin(comm->across, step->step);
    return strategy_begin(comm_, step);
}

static dpb_status hierarchical_ready(void *comm_, uint64_t bucket, struct dpb_event *event)
{
    struct hierarchical *comm = comm_;
    DPB_TRY(strategy_ready(comm_, bucket, event));
    if (hierarchical_drives(comm) && comm->base.args.comm_cores > 0)
        comm->across->ops->wake(comm->across); /* the helper thread may wait for the network */
    return DPB_OK;
}

static const struct dpb_comm_ops hierarchical_ops = {.needs = hierarchical_needs,
                                                     .memory = hierarchical_memory,
                                                     .open = hierarchical_open,
                                                     .plan = hierarchical_plan,
                                                     .bind = hierarchical_bind,
                                                     .load = strategy_load,
                                                     .close = hierarchical_close,
                                                     .begin = hierarchical_begin,
                                                     .ready = hierarchical_ready,
                                                     .progress = strategy_progress,
                                                     .end = strategy_end,
                                                     .publish = strategy_publish};

static const struct dpb_comm_ops nccl_ops = {.open = hierarchical_open,
                                             .plan = hierarchical_plan,
                                             .bind = inside_nccl_bind,
                                             .load = strategy_load,
                                             .close = inside_nccl_close,
                                             .begin = inside_nccl_begin,
                                             .ready = hierarchical_ready,
                                             .progress = inside_nccl_progress,
                                             .end = strategy_end,
                                             .publish = strategy_publish};

static struct dpb_plugin hierarchical = {
    DPB_PLUGIN_HEAD(COMM, hierarchical_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_WHOLE,
    .name = "hierarchical",
    .version = DPB_VERSION,
    .summary =
        "replicated; inside a machine through shared memory or by NCCL, across by a ring for "
        "each place or MPI",
    .options = options,
    .options_size = sizeof(struct hierarchical_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &hierarchical;
}
