/*
 * mpi - replicated training whose buckets are all-reduced by MPI.
 *
 * Every worker keeps weights and, unless sharded, optimizer state. An MPI_Iallreduce, on this
 * plugin's communicator, sums each bucket in place. It begins as soon as this rank's gradients of
 * the bucket are final. MPI_Test, called between the device's ops, advances it while backward runs.
 * Then each worker updates its weights from its own, now summed, gradients. MPI chooses the
 * algorithm. mpi.h has MPI's rules: launcher, threads, order of sums, and end.
 *
 * Bytes moved per step, M bytes of gradients: 2 (W - 1) M in all. They are counted as if each
 * element were sent W - 1 times to the sum and W - 1 times from the sum.
 *
 * With comm.shard = optimizer (shard.h) an all-reduce is divided into its two halves.
 * MPI_Ireduce_scatter gives each worker the sum of its slice, the worker updates the slice, and
 * MPI_Iallgatherv gives the new weights to all. Ranks may begin the second half of a bucket before
 * or after the first half of another, so each half has a communicator. Bytes are as many, with
 * weights in place of sums.
 *
 * If updates need norms of whole tensors, workers exchange sums of squares by MPI_Iallgatherv, on a
 * communicator of their own, once they have the sums of all their slices (squares.h). Then each
 * worker updates its slices, and MPI_Iallgatherv gives their weights.
 *
 * With a codec its messages go instead (coded_sums.h), m bytes a worker. MPI_Iallgather brings
 * those of one round to all workers: W (W - 1) m in all. Those of two rounds are summed as
 * gradients are, both rounds on the one communicator: 2 (W - 1) m in all. MPI gives all workers
 * identical sums (mpi.h), so all decode the same bits.
 *
 * Other operations of `dpbench comm` are MPI's own, by blocks: MPI_Ireduce_scatter_block in place,
 * whose sum is then moved to its slice, MPI_Iallgather in place, MPI_Ibcast and MPI_Ialltoall. All
 * move (W - 1) M.
 *
 * Fences: a bucket is posted to MPI when this rank's backward has finished it (READY). It is used
 * and written again when its request is complete here. No device reads a bucket's weights once the
 * bucket is READY, so MPI may write others' slices of them.
 */
#include <string.h>

#include "dpbench/plugin.h"
#include "lib/coded/coded_sums.h"
#include "lib/object/mpi.h"
#include "lib/strategy/shard.h"
#include "lib/strategy/slices.h"
#include "lib/strategy/squares.h"

static const struct dpb_host *host;
static const struct dpb_mpi_library *library;

struct mpi {
    struct dpb_strategy strategy;
    int shard;                /* dpb_shard_wanted */
    struct dpb_sums *sums;    /* of gradients, or of a codec's messages */
    struct dpb_sums *weights; /* with shards: of new weights */
    struct dpb_sums *squares; /* with norms, too: of sums of squares */
};

/* ---- stage: give the bucket to MPI --------------------------------------------------------- */

static void begin_bucket(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct mpi *mpi = strategy;
    mpi->sums->ops->post(mpi->sums, bucket * mpi->strategy.arenas.bucket_elements, turn->length);
    turn->at = turn->length;
}

/* ---- stage: update, when MPI is through with a bucket -------------------------------------- */

static bool update_due(void *strategy, uint64_t bucket)
{
    return dpb_sums_finished(((const struct mpi *)strategy)->sums, bucket);
}

static dpb_status update_wait(void *strategy, uint64_t bucket)
{
    struct dpb_sums *sums = ((const struct mpi *)strategy)->sums;
    (void)bucket; /* it is the oldest */
    return sums->ops->wait(sums);
}

static const struct dpb_stage stages[] = {
    {dpb_strategy_own_ready, begin_bucket, dpb_strategy_own_wait},
    {update_due, dpb_strategy_update_bucket, update_wait}};

/* ---- with shards: the own slice updated and given, all slices here -------------------------- */

/* The sum of the slice is where the bucket begins. */
static void update_piece(const struct dpb_strategy *comm, uint64_t bucket, struct dpb_piece piece)
{
    const struct dpb_range slice = dpb_slice_of(dpb_pipeline_bucket_length(&comm->pipeline, bucket),
                                                comm->args.rank, comm->args.n_workers);
    dpb_strategy_update(comm, bucket, piece,
                        dpb_strategy_own_gradients(comm, piece.begin - slice.begin));
}

/* The sum, and the values that MPI leaves behind it, would stay in the gaps between tensors: no
 * backward writes gradients there again. */
static void clear_sum(const struct dpb_strategy *comm, uint64_t bucket, uint64_t length)
{
    memset(dpb_strategy_own_gradients(comm, bucket * comm->arenas.bucket_elements), 0,
           length * dpb_dtype_size(comm->arenas.layout.gradient_type));
}

static void update_slice(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct mpi *mpi = strategy;
    if (!dpb_slices_work_on_own(strategy, bucket, turn, update_piece))
        return;
    mpi->weights->ops->post(mpi->weights, bucket * mpi->strategy.arenas.bucket_elements,
                            turn->length);
    clear_sum(strategy, bucket, turn->length);
}

static bool given_due(void *strategy, uint64_t bucket)
{
    return dpb_sums_finished(((const struct mpi *)strategy)->weights, bucket);
}

static dpb_status given_wait(void *strategy, uint64_t bucket)
{
    struct dpb_sums *weights = ((const struct mpi *)strategy)->weights;
    (void)bucket; /* it is the oldest */
    return weights->ops->wait(weights);
}

static const struct dpb_stage shard_stages[] = {
    {dpb_strategy_own_ready, begin_bucket, dpb_strategy_own_wait},
    {update_due, update_slice, update_wait},
    {.due = given_due, .wait = given_wait}};

/* ---- with shards, and norms of whole tensors or sums over micro-batches ---------------------- */

/* From where the bucket begins to the kept sums. */
static void keep_sum(const struct dpb_strategy *comm, uint64_t bucket, uint64_t length)
{
    const dpb_dtype type = comm->arenas.layout.gradient_type;
    const uint64_t begin = bucket * comm->arenas.bucket_elements;
    const struct dpb_range own = dpb_slices_own(comm, bucket, length);
    const void *sum = dpb_strategy_own_gradients(comm, begin);
    void *kept = dpb_strategy_own_sums(comm, begin + own.begin);
    if (comm->step.adds)
        host->vec->axpby(type, 1.0, sum, 1.0, kept, own.end - own.begin);
    else
        host->vec->copy(type, kept, sum, own.end - own.begin);
    clear_sum(comm, bucket, length);
}

/* From where the bucket begins to its place; the rest is cleared, as in clear_sum. */
static void place_sum(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *comm = strategy;
    const size_t size = dpb_dtype_size(comm->arenas.layout.gradient_type);
    const struct dpb_range own = dpb_slices_own(comm, bucket, turn->length);
    char *sum = dpb_strategy_own_gradients(comm, bucket * comm->arenas.bucket_elements);
    turn->at = turn->length;
    if (comm->arenas.sums) {
        keep_sum(comm, bucket, turn->length);
        return;
    }
    memmove(sum + own.begin * size, sum, (own.end - own.begin) * size);
    memset(sum, 0, own.begin * size);
    memset(sum + own.end * size, 0, (turn->length - own.end) * size);
}

static void give_squares(struct dpb_strategy *comm)
{
    const struct mpi *mpi = (const struct mpi *)comm;
    mpi->squares->ops->post(mpi->squares, 0,
                            comm->args.n_workers *
                                dpb_strategy_squares_bytes(&comm->arenas.layout) / sizeof(double));
}

static bool squares_here(const struct dpb_strategy *comm)
{
    return dpb_sums_idle(((const struct mpi *)comm)->squares);
}

static dpb_status squares_wait(void *strategy, uint64_t bucket)
{
    struct dpb_sums *squares = ((const struct mpi *)strategy)->squares;
    (void)bucket;
    return squares->ops->wait(squares);
}

static const struct dpb_squares_carrier by_mpi = {.give = give_squares, .here = squares_here};

/* All buckets', in the last one of a step. */
static bool gives(const struct dpb_strategy *comm, uint64_t bucket)
{
    return dpb_strategy_is_last(comm, bucket) && !comm->step.more;
}

static void update_slices(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct mpi *mpi = strategy;
    const struct dpb_strategy *comm = strategy;
    turn->at = turn->length;
    for (uint64_t b = 0; gives(comm, bucket) && b <= bucket; b++) {
        const uint64_t begin = b * comm->arenas.bucket_elements,
                       n = dpb_pipeline_bucket_length(&comm->pipeline, b);
        const struct dpb_range own = dpb_slices_own(comm, b, n);
        dpb_strategy_make_weights(strategy, b, begin + own.begin, own.end - own.begin);
        mpi->weights->ops->post(mpi->weights, begin, n);
    }
}

static bool all_given_due(void *strategy, uint64_t bucket)
{
    return !gives(strategy, bucket) || given_due(strategy, bucket);
}

static const struct dpb_stage whole_stages[] = {
    {dpb_strategy_own_ready, begin_bucket, dpb_strategy_own_wait},
    {update_due, place_sum, update_wait},
    {dpb_strategy_squares_due, dpb_strategy_squares_work, squares_wait},
    {.work = update_slices},
    {.due = all_given_due, .wait = given_wait}};

static dpb_status move(void *strategy, int64_t until_ns, bool *moved)
{
    const struct mpi *mpi = strategy;
    struct dpb_sums *const others[] = {mpi->weights, mpi->squares};
    DPB_TRY(mpi->sums->ops->move(mpi->sums, until_ns, moved));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        bool given = false;
        if (others[i])
            DPB_TRY(others[i]->ops->move(others[i], until_ns, &given));
        *moved = *moved || given;
    }
    return DPB_OK;
}

/* ---- other operations of `dpbench comm` ------------------------------------------------------ */

/* From where the bucket begins to the own slice; the others are undefined. */
static void move_sum(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn)
{
    const struct dpb_strategy *comm = strategy;
    const size_t size = dpb_dtype_size(comm->arenas.layout.gradient_type);
    const struct dpb_range own = dpb_slices_own(comm, bucket, turn->length);
    char *sum = dpb_strategy_own_gradients(comm, bucket * comm->arenas.bucket_elements);
    if (comm->args.operation == DPB_REDUCE_SCATTER)
        memmove(sum + own.begin * size, sum, (own.end - own.begin) * size);
    turn->at = turn->length;
}

static const struct dpb_stage operation_stages[] = {
    {dpb_strategy_own_ready, begin_bucket, dpb_strategy_own_wait},
    {update_due, move_sum, update_wait}};

static dpb_status bind_operation(struct mpi *mpi, const struct dpb_arenas *arenas)
{
    static const enum dpb_mpi_kind kinds[] = {[DPB_REDUCE_SCATTER] = DPB_MPI_KIND_REDUCE_SCATTER,
                                              [DPB_ALL_GATHER] = DPB_MPI_KIND_ALL_GATHER,
                                              [DPB_BROADCAST] = DPB_MPI_KIND_BROADCAST,
                                              [DPB_ALL_TO_ALL] = DPB_MPI_KIND_ALL_TO_ALL};
    const struct dpb_comm_args *job = &mpi->strategy.args;
    const struct dpb_mpi_sums_args args = {.kind = kinds[job->operation],
                                           .arena = arenas->gradients,
                                           .into = arenas->weights,
                                           .type = arenas->layout.gradient_type,
                                           .n_buckets = arenas->n_buckets,
                                           .position = job->rank,
                                           .n_members = job->n_workers};
    DPB_TRY(dpb_strategy_bind(&mpi->strategy, arenas, DPB_STRATEGY_STAGES(operation_stages)));
    mpi->strategy.pipeline.move = move;
    return library->create(&args, &mpi->sums);
}

/* ---- hooks --------------------------------------------------------------------------------- */

static void mpi_memory(const void *options, const struct dpb_comm_args *args,
                       const struct dpb_layout *layout, uint64_t bucket_elements,
                       struct dpb_comm_memory *memory)
{
    const struct dpb_shard_options *given = options;
    dpb_shard_memory(args, given->shard, layout, bucket_elements, memory);
    if (args->codec)
        dpb_coded_memory(args, layout, bucket_elements, dpb_coded_way_of(args->codec), memory);
}

static dpb_status mpi_open(const void *options, const struct dpb_comm_args *args, void **comm)
{
    const struct dpb_shard_options *given = options;
    DPB_TRY(library->open(args));
    DPB_TRY(dpb_coded_open(host, args, sizeof(struct mpi), comm));
    ((struct mpi *)*comm)->shard = dpb_shard_wanted(args, given->shard);
    return DPB_OK;
}

static dpb_status mpi_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want)
{
    struct dpb_strategy *strategy = comm;
    const struct dpb_codec *codec = strategy->args.codec;
    const int shard = ((const struct mpi *)comm)->shard;
    if (shard == DPB_SHARD_GRADIENTS)
        dpb_shard_plan_slots(&strategy->args, layout, DPB_SHARD_GRADIENTS, want);
    DPB_TRY(
        library->check_length(codec ? dpb_coded_sums_longest(codec, layout, want->bucket_elements)
                                    : dpb_strategy_longest_bucket(layout, want->bucket_elements)));
    DPB_TRY(dpb_strategy_plan_replica(comm, layout, DPB_MEMORY_PRIVATE, want));
    if (codec)
        return dpb_coded_plan(strategy, layout, dpb_coded_way_of(codec), want);
    return shard != DPB_SHARD_NONE ? dpb_strategy_plan_parts(comm, layout, dpb_slices_own, want)
                                   : DPB_OK;
}

static dpb_status bind_messages(struct mpi *mpi, const struct dpb_arenas *arenas)
{
    const bool gathers = dpb_coded_way_of(mpi->strategy.args.codec) == DPB_CODED_GATHERED;
    uint64_t bytes;
    DPB_TRY(dpb_coded_sums_bind(&mpi->strategy, arenas, &dpb_coded_sums_in_place));
    mpi->strategy.pipeline.move = move;
    const struct dpb_mpi_sums_args args = {.kind = gathers ? DPB_MPI_KIND_GATHER : DPB_MPI_KIND_SUM,
                                           .arena = dpb_coded_memory_of(&mpi->strategy, &bytes),
                                           .type = DPB_FP32,
                                           .n_buckets = dpb_coded_sums_places(&mpi->strategy),
                                           .stride = dpb_coded_sums_stride(&mpi->strategy),
                                           .names = dpb_coded_sums_buckets(&mpi->strategy),
                                           .position = mpi->strategy.args.rank,
                                           .n_members = mpi->strategy.args.n_workers};
    DPB_TRY(library->create(&args, &mpi->sums));
    dpb_coded_sums_use(&mpi->strategy, mpi->sums);
    return DPB_OK;
}

static dpb_status mpi_bind(void *comm, const struct dpb_arenas *arenas)
{
    struct mpi *mpi = comm;
    const bool sharded = mpi->shard != DPB_SHARD_NONE, whole = sharded && mpi->strategy.args.whole;
    struct dpb_mpi_sums_args args = {.kind = sharded ? DPB_MPI_KIND_SUM_SLICES : DPB_MPI_KIND_SUM,
                                     .arena = arenas->gradients,
                                     .type = arenas->layout.gradient_type,
                                     .n_buckets = arenas->n_buckets,
                                     .position = mpi->strategy.args.rank,
                                     .n_members = mpi->strategy.args.n_workers};
    if (mpi->strategy.args.operation != DPB_ALL_REDUCE)
        return bind_operation(mpi, arenas);
    if (mpi->strategy.args.codec)
        return bind_messages(mpi, arenas);
    if (whole || arenas->sums)
        DPB_TRY(dpb_strategy_bind(&mpi->strategy, arenas, DPB_STRATEGY_STAGES(whole_stages)));
    else
        DPB_TRY(dpb_strategy_bind(&mpi->strategy, arenas, sharded ? shard_stages : stages,
                                  sharded ? sizeof shard_stages / sizeof *shard_stages
                                          : sizeof stages / sizeof *stages));
    if (whole)
        DPB_TRY(dpb_strategy_open_squares(&mpi->strategy, &by_mpi, args.n_members, args.position));
    dpb_shard_bind_slots(&mpi->strategy, mpi->shard);
    mpi->strategy.pipeline.move = move;
    DPB_TRY(library->create(&args, &mpi->sums));
    if (!sharded)
        return DPB_OK;
    args.kind = DPB_MPI_KIND_GIVE_SLICES;
    args.arena = arenas->weights;
    args.type = arenas->layout.weight_type;
    DPB_TRY(library->create(&args, &mpi->weights));
    if (!whole)
        return DPB_OK;
    args.arena = mpi->strategy.squares.all;
    args.type = DPB_FP64;
    args.n_buckets = DPB_SQUARES_ROUNDS;
    return library->create(&args, &mpi->squares);
}

static dpb_status mpi_begin(void *comm, const struct dpb_step *step)
{
    const struct mpi *mpi = comm;
    dpb_sums_begin(mpi->sums, step->step);
    if (mpi->weights)
        dpb_sums_begin(mpi->weights, step->step);
    if (mpi->squares)
        dpb_sums_begin(mpi->squares, step->step);
    return dpb_strategy_begin(comm, step);
}

static void mpi_close(void *comm)
{
    if (!comm)
        return;
    dpb_sums_destroy(((struct mpi *)comm)->squares);
    dpb_sums_destroy(((struct mpi *)comm)->weights);
    dpb_sums_destroy(((struct mpi *)comm)->sums);
    library->close();
    dpb_strategy_close(comm);
}

static const struct dpb_comm_ops mpi_ops = {.memory = mpi_memory,
                                            .open = mpi_open,
                                            .plan = mpi_plan,
                                            .bind = mpi_bind,
                                            .load = dpb_strategy_load,
                                            .begin = mpi_begin,
                                            DPB_STRATEGY_HOOKS,
                                            DPB_CODED_HOOKS,
                                            .collectives = DPB_COLLECTIVES_ALL,
                                            .close = mpi_close};

static struct dpb_plugin mpi_plugin = {
    DPB_PLUGIN_HEAD(COMM, mpi_ops),
    .capabilities = DPB_COMM_OVERLAP | DPB_COMM_MULTI_NODE | DPB_COMM_LAUNCHER | DPB_COMM_WHOLE |
                    DPB_COMM_WHOLE_SHARDS | DPB_COMM_CODECS | DPB_COMM_ROUNDS,
    .name = "mpi",
    .version = DPB_VERSION,
    .summary = "replicated, all-reduced by MPI_Iallreduce; under mpirun or srun",
    .options = dpb_shard_slots_option_rows,
    .options_size = sizeof(struct dpb_shard_options),
};

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    host = given;
    if (dpb_mpi_load(host, &library) != DPB_OK)
        return NULL;
    mpi_plugin.libraries = library->versions;
    return &mpi_plugin;
}
