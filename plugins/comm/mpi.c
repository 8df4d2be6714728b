/*
 * mpi - replicated training whose buckets are all-reduced by MPI.
 *
 * Every worker keeps weights and optimizer state. Each bucket is summed in place by an
 * MPI_Iallreduce on a communicator of its own, begun as soon as this rank's gradients of it are
 * final; MPI_Test, called between the device's ops, moves it on while backward goes on. Then each
 * worker updates its weights from its own, now summed, gradients. The algorithm is the library's.
 * MPI requires that all ranks receive identical results: replicas are equal bit for bit.
 *
 * MPI's world is made by its launcher: each rank that mpirun or srun starts is one of it. Without it
 * there would be as many worlds of one as workers: refused by core (DPB_COMM_LAUNCHER).
 *
 * Threads: one at a time calls MPI. Without communication cores it is the loop's, which also
 * initialises it: FUNNELED; else core's helper as well: SERIALIZED.
 *
 * A reduction that has begun cannot be cancelled (MPI 4.0, 3.8.4 and 6.12), and writes into the
 * gradients whenever MPI is called. So the process ends where one is left over: in `close`, after
 * the message of the fault is written.
 *
 * Bytes moved per step, M bytes of gradients: counted as those of an all-reduce that sends each
 * element W - 1 times on its way to the sum and W - 1 times from there, 2 (W - 1) M in all.
 *
 * Fences: a bucket is given to MPI when this rank's backward is through with it (READY), used and
 * written again when its request is complete here.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#include "dpbench/plugin.h"
#include "lib/strategy.h"

static const struct dpb_host *host;

struct mpi {
    struct strategy strategy;
    MPI_Comm comm;
    MPI_Op sum;
    MPI_Datatype type;
    MPI_Request *requests; /* by bucket */
    int64_t *begun_ns;     /* likewise */
    uint64_t begun, ended; /* buckets of this exchange */
    int64_t waiting_ns;    /* since when for the first of them; 0: nobody waits */
    dpb_status status;
};

/* ---- MPI in this process ------------------------------------------------------------------- */

/* It can be initialised once in a process and finalised once, after the last communicator. */
static bool initialised, healthy;

static dpb_status fail_mpi(dpb_status status, int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return host->fail(status, "%s failed: %s", what, text);
}

/* Collective as MPI_Finalize is: where this process has failed nobody waits for it. */
static void finalise(void)
{
    if (healthy)
        MPI_Finalize();
}

static dpb_status initialise(int wanted)
{
    static const char *const levels[] = {"SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE"};
    static int provided;
    if (!initialised) {
        int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided);
        if (code != MPI_SUCCESS)
            return fail_mpi(DPB_FAILED, code, "MPI_Init_thread");
        initialised = true;
        atexit(finalise);
    }
    if (provided < wanted)
        return host->fail(DPB_UNSUPPORTED,
                          "this MPI library offers MPI_THREAD_%s, and run.comm_cores = 1 needs "
                          "MPI_THREAD_SERIALIZED; set run.comm_cores = 0",
                          levels[provided - MPI_THREAD_SINGLE]);
    return DPB_OK;
}

/* Ranks are numbered by the launcher, for MPI as for dpbench. */
static dpb_status check_world(const struct dpb_comm_args *args)
{
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if ((uint32_t)size == args->n_workers && (uint32_t)rank == args->rank)
        return DPB_OK;
    return host->fail(DPB_FAILED,
                      "MPI says that this is rank %d of %d, dpbench that it is rank %u of %u: is "
                      "this the library of the mpirun that started the job?",
                      rank, size, args->rank, args->n_workers);
}

/* bf16 is no type of MPI's: 16 bits each, summed as everywhere. */
/* NOLINTNEXTLINE(readability-non-const-parameter): the type is MPI_User_function */
static void sum_bf16(void *other, void *into, int *n, MPI_Datatype *type)
{
    void *const dst[] = {into};
    const void *const sources[] = {into, other};
    (void)type;
    host->vec->sum(DPB_BF16, dst, 1, sources, 2, (uint64_t)*n);
}

/* ---- stage: give the bucket to MPI --------------------------------------------------------- */

static bool begin_due(void *strategy, uint64_t bucket)
{
    const struct mpi *mpi = strategy;
    const struct strategy *comm = &mpi->strategy;
    return mpi->status == DPB_OK &&
           signals_reached(&comm->signals, SIGNAL_READY, strategy_self(comm), bucket);
}

static dpb_status begin_wait(void *strategy, uint64_t bucket)
{
    const struct mpi *mpi = strategy;
    if (mpi->status != DPB_OK)
        return mpi->status;
    return strategy_wait_ready(&mpi->strategy, strategy_self(&mpi->strategy), bucket);
}

static void begin_bucket(void *strategy, uint64_t bucket, uint64_t length, uint64_t *at,
                         int64_t until_ns)
{
    struct mpi *mpi = strategy;
    const struct strategy *comm = &mpi->strategy;
    void *data = strategy_gradients(comm, comm->args.rank, bucket * comm->arenas.bucket_elements);
    (void)until_ns;
    mpi->begun_ns[bucket] = host->now_ns();
    int code = MPI_Iallreduce(MPI_IN_PLACE, data, (int)length, mpi->type, mpi->sum, mpi->comm,
                              &mpi->requests[bucket]);
    if (code != MPI_SUCCESS) {
        mpi->status = fail_mpi(DPB_PEER, code, "MPI_Iallreduce");
        return;
    }
    mpi->begun++;
    *at = length;
}

/* ---- stage: update, when MPI is through with a bucket -------------------------------------- */

/* Each look moves all reductions on that have begun. */
static bool update_due(void *strategy, uint64_t bucket)
{
    struct mpi *mpi = strategy;
    int complete = 0;
    if (mpi->ended > bucket)
        return true;
    if (mpi->status != DPB_OK)
        return false;
    int code = MPI_Test(&mpi->requests[bucket], &complete, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        mpi->status = fail_mpi(DPB_PEER, code, "MPI_Test of an MPI_Iallreduce");
    if (code != MPI_SUCCESS || !complete)
        return false;
    host->span(0, bucket, DPB_PHASE_TRANSFER, mpi->begun_ns[bucket], host->now_ns());
    strategy_count_all_reduce(&mpi->strategy, bucket);
    mpi->ended = bucket + 1;
    mpi->waiting_ns = 0;
    return true;
}

/* MPI has nothing to sleep on. Others may run between two looks. */
static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    struct mpi *mpi = strategy;
    const struct strategy *comm = &mpi->strategy;
    const struct dpb_wait what = {.step = comm->step.step,
                                  .bucket = bucket,
                                  .bytes = pipeline_bucket_length(&comm->pipeline, bucket) *
                                           dpb_dtype_size(comm->arenas.layout.gradient_type),
                                  .peer = UINT32_MAX,
                                  .purpose = "MPI's all-reduce"};
    enum { LOOKS = 64 };
    if (mpi->status != DPB_OK)
        return mpi->status;
    if (mpi->waiting_ns == 0)
        host->note("wait_peer", bucket, UINT32_MAX);
    DPB_TRY(host->patience(&what, &mpi->waiting_ns));
    for (int i = 0; i < LOOKS; i++) {
        if (update_due(strategy, bucket))
            return DPB_OK;
        sched_yield();
    }
    return mpi->status;
}

static const struct stage stages[] = {{begin_due, begin_bucket, begin_wait},
                                      {update_due, strategy_update_bucket, update_wait}};

/* ---- hooks --------------------------------------------------------------------------------- */

static dpb_status mpi_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    (void)options;
    DPB_TRY(initialise(args->comm_cores > 0 ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED));
    DPB_TRY(check_world(args));
    DPB_TRY(strategy_open(host, args, sizeof(struct mpi), comm));
    struct mpi *mpi = *comm;
    mpi->comm = MPI_COMM_NULL;
    mpi->sum = MPI_OP_NULL;
    healthy = false;
    return DPB_OK;
}

static dpb_status mpi_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    if (want->bucket_elements > INT32_MAX && layout->n_elements > INT32_MAX)
        return host->fail(DPB_UNSUPPORTED,
                          "MPI counts elements in 31 bits; take a smaller comm.bucket than %llu "
                          "elements",
                          (unsigned long long)want->bucket_elements);
    return strategy_plan_replica(comm, layout, DPB_MEMORY_PRIVATE, want);
}

static dpb_status mpi_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct mpi *mpi = comm;
    DPB_TRY(strategy_bind(&mpi->strategy, arenas, stages, 2));
    mpi->requests = host->alloc(arenas->n_buckets * sizeof *mpi->requests);
    mpi->begun_ns = host->alloc(arenas->n_buckets * sizeof *mpi->begun_ns);
    if (!mpi->requests || !mpi->begun_ns)
        return DPB_NO_MEMORY;
    for (uint64_t b = 0; b < arenas->n_buckets; b++)
        mpi->requests[b] = MPI_REQUEST_NULL;
    int code = MPI_Comm_dup(MPI_COMM_WORLD, &mpi->comm);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    mpi->type = arenas->layout.gradient_type == DPB_FP64   ? MPI_DOUBLE
                : arenas->layout.gradient_type == DPB_FP32 ? MPI_FLOAT
                                                           : MPI_UINT16_T;
    mpi->sum = MPI_SUM;
    if (code == MPI_SUCCESS && arenas->layout.gradient_type == DPB_BF16)
        code = MPI_Op_create(sum_bf16, 1, &mpi->sum);
    return code == MPI_SUCCESS ? DPB_OK : fail_mpi(DPB_FAILED, code, "MPI_Comm_dup");
}

static dpb_status mpi_begin(void *comm, uint32_t learner, const struct dpb_step *step)
{
    struct mpi *mpi = comm;
    mpi->begun = mpi->ended = 0;
    mpi->waiting_ns = 0;
    return strategy_begin(comm, learner, step);
}

static void mpi_close(void *comm)
{
    struct mpi *mpi = comm;
    if (!mpi)
        return;
    if (mpi->begun != mpi->ended || mpi->status != DPB_OK)
        _exit(1); /* see above; the message is written */
    if (mpi->sum != MPI_OP_NULL && mpi->sum != MPI_SUM)
        MPI_Op_free(&mpi->sum);
    if (mpi->comm != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->comm);
    uint64_t n_buckets = mpi->strategy.arenas.n_buckets;
    host->release(mpi->requests, n_buckets * sizeof *mpi->requests);
    host->release(mpi->begun_ns, n_buckets * sizeof *mpi->begun_ns);
    healthy = true;
    strategy_close(comm);
}

static const struct dpb_comm_ops mpi_ops = {.open = mpi_open,
                                            .plan = mpi_plan,
                                            .bind = mpi_bind,
                                            .load = strategy_load,
                                            .begin = mpi_begin,
                                            STRATEGY_HOOKS,
                                            .close = mpi_close};

/* ---- versions ------------------------------------------------------------------------------ */

#define TEXT_OF(x) #x
#define VALUE_OF(x) TEXT_OF(x)
#if defined(OPEN_MPI)
#define BUILT                                                                               \
    "Open MPI " VALUE_OF(OMPI_MAJOR_VERSION) "." VALUE_OF(OMPI_MINOR_VERSION) "." VALUE_OF( \
        OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define BUILT "MPICH " MPICH_VERSION
#else
#define BUILT "MPI " VALUE_OF(MPI_VERSION) "." VALUE_OF(MPI_SUBVERSION)
#endif
#if defined(MPIX_CUDA_AWARE_SUPPORT) && MPIX_CUDA_AWARE_SUPPORT
#define BUILT_CUDA "yes"
#else
#define BUILT_CUDA "no"
#endif

static char loaded_version[MPI_MAX_LIBRARY_VERSION_STRING];
static char loaded_cuda[8];

static const struct dpb_library libraries[] = {
    {.name = "MPI", .built = BUILT, .loaded = loaded_version},
    {.name = "CUDA-aware MPI", .built = BUILT_CUDA, .loaded = loaded_cuda},
    {.name = NULL}};

/* Both may be asked before MPI is initialised. */
static void look_at_library(void)
{
    int length;
    MPI_Get_library_version(loaded_version, &length);
    loaded_version[strcspn(loaded_version, ",\n")] = '\0'; /* "Open MPI v4.1.4, package: ..." */
#ifdef MPIX_CUDA_AWARE_SUPPORT
    snprintf(loaded_cuda, sizeof loaded_cuda, "%s", MPIX_Query_cuda_support() ? "yes" : "no");
#else
    snprintf(loaded_cuda, sizeof loaded_cuda, "?");
#endif
}

static const struct dpb_plugin mpi_plugin = {
    DPB_PLUGIN_HEAD(COMM, mpi_ops),
    .capabilities = DPB_COMM_SYNC | DPB_COMM_BITWISE | DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE |
                    DPB_COMM_LAUNCHER,
    .name = "mpi",
    .version = DPB_VERSION,
    .summary = "replicated, all-reduced by MPI_Iallreduce; under mpirun or srun",
    .libraries = libraries,
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    look_at_library();
    return &mpi_plugin;
}
