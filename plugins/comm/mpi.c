/*
 * mpi - replicated training whose buckets are all-reduced by MPI.
 *
 * Every worker keeps weights and optimizer state. Each bucket is summed in place by an
 * MPI_Iallreduce on a communicator of its own, begun as soon as this rank's gradients of it are
 * final; MPI_Test, called between the device's ops, moves it on while backward goes on. Then each
 * worker updates its weights from its own, now summed, gradients. The algorithm is the library's;
 * lib/mpi.h says what holds of MPI: its launcher, threads, order, and how it ends.
 *
 * Bytes moved per step, M bytes of gradients: counted as those of an all-reduce that sends each
 * element W - 1 times on its way to the sum and W - 1 times from there, 2 (W - 1) M in all.
 *
 * Fences: a bucket is given to MPI when this rank's backward is through with it (READY), used and
 * written again when its request is complete here.
 */
#include "dpbench/plugin.h"
#include "lib/mpi.h"
#include "lib/strategy.h"

static const struct dpb_host *host;
static const struct mpi_library *library;

struct mpi {
    struct strategy strategy;
    struct mpi_sums *sums;
};

/* ---- stage: give the bucket to MPI --------------------------------------------------------- */

static bool begin_due(void *strategy, uint64_t bucket)
{
    const struct strategy *comm = strategy;
    return signals_reached(&comm->signals, SIGNAL_READY, strategy_self(comm), bucket);
}

static dpb_status begin_wait(void *strategy, uint64_t bucket)
{
    return strategy_wait_ready(strategy, strategy_self(strategy), bucket);
}

static void begin_bucket(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at,
                         int64_t until_ns)
{
    const struct mpi *mpi = strategy;
    (void)until_ns;
    library->post(mpi->sums, bucket * mpi->strategy.arenas.bucket_elements, length);
    *at = length;
}

/* ---- stage: update, when MPI is through with a bucket -------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    return library->finished(((const struct mpi *)strategy)->sums, bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    (void)bucket; /* it is the oldest */
    return library->wait(((const struct mpi *)strategy)->sums);
}

static const struct stage stages[] = {{begin_due, begin_bucket, begin_wait},
                                      {update_due, strategy_update_bucket, update_wait}};

static dpb_status move(void *strategy, int64_t until_ns, bool *moved)
{
    (void)until_ns;
    return library->move(((const struct mpi *)strategy)->sums, moved);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status mpi_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    DPB_TRY(library->open(args));
    return strategy_open(host, args, sizeof(struct mpi), comm);
}

static dpb_status mpi_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    DPB_TRY(library->check_length(strategy_longest_bucket(layout, want->bucket_elements)));
    return strategy_plan_replica(comm, layout, DPB_MEMORY_PRIVATE, want);
}

static dpb_status mpi_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct mpi *mpi = comm;
    const struct mpi_sums_args args = {.arena = arenas->gradients,
                                       .type = arenas->layout.gradient_type,
                                       .n_buckets = arenas->n_buckets,
                                       .position = mpi->strategy.args.rank,
                                       .n_members = mpi->strategy.args.n_workers};
    DPB_TRY(strategy_bind(&mpi->strategy, arenas, stages, 2));
    mpi->strategy.pipeline.move = move;
    return library->create(&args, &mpi->sums);
}

static dpb_status mpi_begin(void *comm, const struct dpb_step *step)
{
    library->begin(((struct mpi *)comm)->sums, step->step);
    return strategy_begin(comm, step);
}

static void mpi_close(void *comm)
{
    if (!comm)
        return;
    library->destroy(((struct mpi *)comm)->sums);
    library->close();
    strategy_close(comm);
}

static const struct dpb_comm_ops mpi_ops = {.open = mpi_open,
                                            .plan = mpi_plan,
                                            .bind = mpi_bind,
                                            .load = strategy_load,
                                            .begin = mpi_begin,
                                            STRATEGY_HOOKS,
                                            .close = mpi_close};

static struct dpb_plugin mpi_plugin = {
    DPB_PLUGIN_HEAD(COMM, mpi_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_LAUNCHER | DPB_COMM_WHOLE,
    .name = "mpi",
    .version = DPB_VERSION,
    .summary = "replicated, all-reduced by MPI_Iallreduce; under mpirun or srun",
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    if (mpi_load(host, &library) != DPB_OK)
        return NULL;
    mpi_plugin.libraries = library->versions;
    return &mpi_plugin;
}
