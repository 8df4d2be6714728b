/*
 * hierarchical - replicated training on several machines with several workers each. Inside a
 * machine it sums through shared memory (inside_shm.c) or by NCCL in GPU memory (inside_nccl.c);
 * across machines by rings over TCP or RDMA, or by MPI (across.h). This file is the plugin:
 * options, needs, and the hooks of both forms. places.c has the places of ranks.
 *
 * Jia et al.: Highly scalable deep learning training system with mixed-precision: training ImageNet
 * in four minutes. 2018 (hierarchical all-reduce).
 */
#include <string.h>

#include "comm/hierarchical/inside_nccl.h"
#include "comm/hierarchical/inside_shm.h"
#include "dpbench/plugin.h"
#include "lib/object/mpi.h"
#include "lib/strategy/shard.h"

static const struct dpb_host *host;

enum { INSIDE_SHM, INSIDE_NCCL };

static const char *const transports[] = {"tcp", "verbs", "mpi", NULL};
static const char *const insides[] = {"shm", "nccl", NULL};

static const struct dpb_option options[] = {
    {"inside", DPB_OPT_CHOICE, NULL, "shm", 0, 0, insides,
     offsetof(struct hierarchical_options, inside),
     "within a machine: shm (the host's memory), or nccl (NVIDIA GPUs' memory)", NULL},
    {"transport", DPB_OPT_CHOICE, NULL, "tcp", 0, 0, transports,
     offsetof(struct hierarchical_options, transport),
     "between machines: tcp, verbs (RDMA: InfiniBand or RoCE), or mpi (under mpirun or srun)",
     NULL},
    DPB_RING_OPTION_ROWS(struct hierarchical_options, "comm.transport = tcp, verbs"),
    DPB_SHARD_SLOTS_OPTION_ROW(struct hierarchical_options, ring.shard),
    DPB_TCP_OPTION_ROWS(struct hierarchical_options, "comm.transport = tcp"),
    VERBS_OPTION_ROWS(struct hierarchical_options, "comm.transport = verbs"),
    DPB_NCCL_OPTION_ROWS(struct hierarchical_options, "comm.inside = nccl"),
    {0}};

/* ---- hooks ---------------------------------------------------------------------------------- */

/* The job as the base sees it: the machine's workers, by place. A codec goes across. */
static struct dpb_comm_args within_machine(const struct dpb_comm_args *args)
{
    struct dpb_comm_args within = *args;
    within.n_workers = hierarchical_count(args, args->machines[args->rank]);
    within.rank = dpb_strategy_local_rank(args);
    within.codec = NULL;
    return within;
}

static struct dpb_plugin hierarchical;
static const struct dpb_comm_ops nccl_ops; /* with comm.inside = nccl */

/* The versions of MPI and NCCL, as far as they are used. */
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
    const struct dpb_mpi_library *library;
    if (given->tcp.interface[0] != '\0')
        return host->fail(DPB_USAGE,
                          "comm.interface belongs to comm.transport = tcp and verbs; configure "
                          "MPI by its own means, as mpirun --mca btl_tcp_if_include");
    DPB_TRY(dpb_mpi_load(host, &library));
    add_versions(library->versions);
    needs->capabilities |= DPB_COMM_LAUNCHER;
    return DPB_OK;
}

static dpb_status need_nccl(const struct hierarchical_options *given, struct dpb_comm_needs *needs)
{
    const struct dpb_nccl_library *library;
    DPB_TRY(dpb_nccl_load(host, &library));
    add_versions(library->versions);
    needs->capabilities |= dpb_nccl_capabilities(&given->nccl);
    needs->on_device = true;
    needs->runtime = "cuda";
    return DPB_OK;
}

static dpb_status hierarchical_needs(const void *options_, struct dpb_comm_needs *needs)
{
    const struct hierarchical_options *given = options_;
    bool by_mpi = given->transport == OVER_MPI, by_nccl = given->inside == INSIDE_NCCL;
    if (given->ring.shard != DPB_SHARD_NONE && (by_mpi || by_nccl))
        return host->fail(DPB_UNSUPPORTED,
                          "comm.shard = %s goes round rings of the host's memory, and not with "
                          "comm.%s; leave one of them out",
                          dpb_shard_slots_choices[given->ring.shard],
                          by_nccl ? "inside = nccl" : "transport = mpi");
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
    needs->no_codec = by_nccl                          ? "comm.inside = nccl"
                      : by_mpi                         ? "comm.transport = mpi"
                      : given->transport == OVER_VERBS ? "comm.transport = verbs"
                                                       : NULL;
    return DPB_OK;
}

/* Shares go across several machines; without a codec by rings. */
static dpb_status hierarchical_contract(const void *options_, const struct dpb_comm_args *args,
                                        struct dpb_contract *contract)
{
    const struct hierarchical_options *given = options_;
    dpb_coded_contract(args, contract);
    if (args->n_machines == 1)
        return DPB_OK;
    if (given->transport == OVER_TCP)
        DPB_TRY(dpb_tcp_check_port(host, &given->tcp, hierarchical_last(args)));
    return given->transport != OVER_MPI && !args->codec ? dpb_ring_inbox_check(host, &given->ring)
                                                        : DPB_OK;
}

/* MPI is initialised by all workers of the job, wherever they are. */
static dpb_status open_across(struct hierarchical *comm, const struct hierarchical_options *given)
{
    if (comm->job.codec)
        return across_open_coded(host, &comm->job, given, hierarchical_drives(comm), &comm->across,
                                 &comm->machines);
    if (given->transport == OVER_MPI)
        return across_open_mpi(host, &comm->job, &comm->across);
    return hierarchical_drives(comm)
               ? across_open_ring(host, given, comm->base.args.rank, &comm->across)
               : DPB_OK;
}

static void hierarchical_close(void *comm)
{
    if (comm)
        hierarchical_release(comm);
    dpb_strategy_close(comm);
}

static dpb_status hierarchical_open(const void *options_, const struct dpb_comm_args *args,
                                    void **comm)
{
    const struct hierarchical_options *given = options_;
    const struct dpb_comm_args within = within_machine(args);
    void *made;
    DPB_TRY(dpb_strategy_open(host, &within, sizeof(struct hierarchical), &made));
    struct hierarchical *opened = made;
    opened->transport = given->transport;
    opened->inside = given->inside;
    opened->nccl_options = given->nccl;
    opened->job = *args;
    opened->shard = dpb_shard_wanted(args, given->ring.shard);
    dpb_status status = hierarchical_find_places(opened);
    DPB_THEN(status, open_across(opened, given));
    if (status != DPB_OK) {
        hierarchical_close(made);
        return status;
    }
    *comm = made;
    return DPB_OK;
}

/* Owners are the places that carry a share; on one machine all workers. */
static void hierarchical_shard_memory(const struct dpb_comm_args *args, int shard,
                                      const struct dpb_layout *layout, uint64_t bucket_elements,
                                      struct dpb_comm_memory *memory)
{
    struct dpb_comm_args owners = *args;
    const uint32_t n_shares = hierarchical_shares(args);
    if (n_shares > 0)
        owners.n_workers = n_shares * args->n_machines;
    dpb_shard_memory(&owners, shard, layout, bucket_elements, memory);
    if (dpb_shard_wanted(&owners, shard) && n_shares > 0 &&
        dpb_strategy_local_rank(args) >= n_shares)
        memory->state_elements = 0;
}

static void hierarchical_memory(const void *options_, const struct dpb_comm_args *args,
                                const struct dpb_layout *layout, uint64_t bucket_elements,
                                struct dpb_comm_memory *memory)
{
    const struct hierarchical_options *given = options_;
    if (given->inside == INSIDE_NCCL)
        memory->host_bytes = inside_nccl_pinned_bytes(args, layout, bucket_elements);
    hierarchical_shard_memory(args, given->ring.shard, layout, bucket_elements, memory);
    struct dpb_comm_args machines = *args;
    machines.n_workers = args->n_machines;
    dpb_coded_memory(&machines, layout, bucket_elements, DPB_CODED_GATHERED, memory);
}

static dpb_status hierarchical_plan(void *comm_, const struct dpb_layout *layout,
                                    struct dpb_comm_plan *want)
{
    struct hierarchical *comm = comm_;
    if (comm->inside == INSIDE_NCCL) {
        want->ops = &nccl_ops;
        return inside_nccl_plan(comm, layout, want);
    }
    return inside_shm_plan(comm, layout, want);
}

static struct dpb_coded_share own_share(const struct hierarchical *comm)
{
    return (struct dpb_coded_share){(double)comm->base.arenas.bucket_elements,
                                    hierarchical_drives(comm) ? comm->base.args.rank : -1.0,
                                    comm->n_shares};
}

static dpb_status hierarchical_load(void *comm_)
{
    struct hierarchical *comm = comm_;
    comm->share = own_share(comm);
    return dpb_strategy_load(comm->machines ? comm->machines : &comm->base);
}

static dpb_status shm_begin(void *comm_, const struct dpb_step *step)
{
    struct hierarchical *comm = comm_;
    if (comm->machines)
        DPB_TRY(dpb_coded_check_share(host, own_share(comm), comm->share));
    hierarchical_begin(comm, step->step);
    return dpb_strategy_begin(comm, step);
}

/* 1/W of a machine's residuals reaches the weights, as of a worker's. */
static dpb_status hierarchical_books(void *comm_, struct dpb_books *books)
{
    struct hierarchical *comm = comm_;
    struct dpb_strategy *of = comm->machines ? comm->machines : &comm->base;
    DPB_TRY(dpb_coded_books(of, books));
    for (uint32_t i = 0; i < books->n; i++)
        books->entries[i].coefficient *= (double)of->args.n_workers / comm->job.n_workers;
    return DPB_OK;
}

static dpb_status hierarchical_state(void *comm_, struct dpb_saved *saved)
{
    struct hierarchical *comm = comm_;
    if (!comm->machines)
        return DPB_OK;
    saved->arrays[saved->n++] = dpb_coded_saved_share(&comm->share);
    DPB_TRY(dpb_coded_state(comm->machines, saved));
    for (uint32_t i = 0; i < saved->n; i++)
        if (strcmp(saved->arrays[i].name, "codec") == 0)
            saved->arrays[i].common = false; /* of the buckets that this place carries */
    return DPB_OK;
}

static const struct dpb_comm_ops hierarchical_ops = {.needs = hierarchical_needs,
                                                     .memory = hierarchical_memory,
                                                     .contract = hierarchical_contract,
                                                     .open = hierarchical_open,
                                                     .plan = hierarchical_plan,
                                                     .bind = inside_shm_bind,
                                                     .load = hierarchical_load,
                                                     .close = hierarchical_close,
                                                     .begin = shm_begin,
                                                     .ready = dpb_strategy_ready,
                                                     .progress = dpb_strategy_progress,
                                                     .end = dpb_strategy_end,
                                                     .publish = dpb_strategy_publish,
                                                     .taken = dpb_strategy_taken,
                                                     .books = hierarchical_books,
                                                     .state = hierarchical_state};

static const struct dpb_comm_ops nccl_ops = {.open = hierarchical_open,
                                             .plan = hierarchical_plan,
                                             .bind = inside_nccl_bind,
                                             .load = dpb_strategy_load,
                                             .close = inside_nccl_close,
                                             .begin = inside_nccl_begin,
                                             .ready = dpb_strategy_ready,
                                             .progress = inside_nccl_progress,
                                             .end = dpb_strategy_end,
                                             .publish = dpb_strategy_publish};

static struct dpb_plugin hierarchical = {
    DPB_PLUGIN_HEAD(COMM, hierarchical_ops),
    .capabilities =
        DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_WHOLE | DPB_COMM_CODECS | DPB_COMM_ROUNDS,
    .name = "hierarchical",
    .version = DPB_VERSION,
    .summary =
        "replicated; inside a machine through shared memory or by NCCL, across by a ring for "
        "each local rank, or by MPI",
    .options = options,
    .options_size = sizeof(struct hierarchical_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    return &hierarchical;
}
