/*
 * mpi_turns.c - what `mpi` costs beside the calls that it makes: the strategy, and a bare loop of
 * the same MPI_Iallreduce of the same buckets, in turns in the same processes.
 *
 *     mpirun -n RANKS mpi_turns RANKS BYTES SECONDS
 *
 * A repetition takes from the last rank's beginning to the last one's end, as bench/all_reduce.c
 * has it. Prints one JSON object: of both the median in microseconds, and by it the bus bandwidth.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "base/log.h"
#include "base/stats.h"
#include "base/vec.h"
#include "no_optimizer.h"
#include "plan/experiment.h"
#include "plugin/plugins.h"
#include "world/host_device.h"
#include "world/world.h"

enum { MOST = 100000, WARM = 20, MOST_BUCKETS = 4096 };

static const uint64_t bucket_elements = (4 << 20) / sizeof(float); /* comm.bucket's default */

struct bench {
    uint32_t rank, n_ranks;
    uint64_t n_elements, n_buckets;
    float *data;
    const struct dpb_comm_ops *ops;
    void *comm;
    MPI_Request requests[MOST_BUCKETS];
};

static struct bench bench;
static double begin_s[2][MOST], end_s[2][MOST]; /* bare, through */

static void fail(const char *what)
{
    fprintf(stderr, "mpi_turns: %s\n", what);
    exit(1);
}

static void check(dpb_status status)
{
    if (status != DPB_OK) /* the message is written */
        exit(1);
}

/* ---- the two ways --------------------------------------------------------------------------- */

static void bare(uint64_t number)
{
    (void)number;
    for (uint64_t b = 0; b < bench.n_buckets; b++) {
        uint64_t at = b * bucket_elements, rest = bench.n_elements - at;
        MPI_Iallreduce(MPI_IN_PLACE, bench.data + at,
                       (int)(rest < bucket_elements ? rest : bucket_elements), MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD, &bench.requests[b]);
    }
    for (uint64_t b = 0; b < bench.n_buckets; b++)
        MPI_Wait(&bench.requests[b], MPI_STATUS_IGNORE);
}

static void through(uint64_t number)
{
    const struct dpb_step step = {.step = number, .scale = 1.0 / bench.n_ranks};
    struct dpb_event *done;
    check(bench.ops->begin(bench.comm, &step));
    for (uint64_t b = 0; b < bench.n_buckets; b++)
        check(bench.ops->ready(bench.comm, b, NULL));
    check(bench.ops->end(bench.comm, &done));
    while (!dpb_events.poll(done))
        check(bench.ops->progress(bench.comm, DPB_FOREVER));
}

/* ---- the strategy --------------------------------------------------------------------------- */

static void *memory(uint64_t bytes)
{
    void *made = dpb_alloc(bytes);
    if (!made)
        fail("out of memory");
    return memset(made, 0, bytes);
}

static void open_strategy(void)
{
    static struct dpb_host host;
    static uint32_t machines[1024];
    static void *peers[3][1024];
    const struct dpb_plugin *plugin;
    const struct dpb_comm_args args = {.rank = bench.rank,
                                       .n_workers = bench.n_ranks,
                                       .bucket_bytes = bucket_elements * sizeof(float),
                                       .machines = machines,
                                       .n_machines = 1,
                                       .device = &dpb_host_device};
    struct dpb_comm_plan plan = {.bucket_elements = bucket_elements};
    struct dpb_arenas arenas = {.n_buckets = bench.n_buckets,
                                .bucket_elements = bucket_elements,
                                .layout = {.n_elements = bench.n_elements,
                                           .weight_type = DPB_FP32,
                                           .gradient_type = DPB_FP32}};
    host = dpb_host;
    host.optimizer = &no_optimizer;
    check(dpb_board_create(bench.n_ranks, 4096, &dpb_world.board));
    check(dpb_plugin_load(DPB_PLUGIN_COMM, "mpi", "command line", &host, &plugin));
    bench.ops = plugin->ops;
    check(bench.ops->open(NULL, &args, &bench.comm));
    check(bench.ops->plan(bench.comm, &arenas.layout, &plan));
    bench.data = memory(bench.n_elements * sizeof(float));
    peers[0][bench.rank] = arenas.weights = memory(bench.n_elements * sizeof(float));
    peers[1][bench.rank] = arenas.gradients = bench.data;
    peers[2][bench.rank] = arenas.scratch = memory(plan.scratch_bytes);
    arenas.peer_weights = peers[0];
    arenas.peer_gradients = peers[1];
    arenas.peer_scratch = peers[2];
    check(bench.ops->bind(bench.comm, &arenas));
    check(bench.ops->load(bench.comm));
}

/* ---- measuring ------------------------------------------------------------------------------ */

/* Small integers, whose sum is exact, by both; then zeros, which stay zeros. */
static void check_sum(void (*all_reduce)(uint64_t), uint64_t number)
{
    for (uint64_t i = 0; i < bench.n_elements; i++)
        bench.data[i] = (float)((i * 7 + bench.rank * 3) % 101);
    all_reduce(number);
    for (uint64_t i = 0; i < bench.n_elements; i++) {
        float sum = 0.0f;
        for (uint32_t rank = 0; rank < bench.n_ranks; rank++)
            sum += (float)((i * 7 + rank * 3) % 101);
        if (bench.data[i] != sum)
            fail("the sum is wrong");
    }
    memset(bench.data, 0, bench.n_elements * sizeof *bench.data);
}

/* How many repetitions of each. */
static int measure(double seconds)
{
    void (*const ways[])(uint64_t) = {bare, through};
    uint64_t number = 0;
    int n = 0, going = 1;
    for (int way = 0; way < 2; way++)
        check_sum(ways[way], number++);
    for (double end = MPI_Wtime() + 2 * seconds; going; n++) {
        going = n < WARM + 3 || (MPI_Wtime() < end && n < MOST - 1);
        MPI_Bcast(&going, 1, MPI_INT, 0, MPI_COMM_WORLD);
        for (int way = 0; way < 2; way++) {
            MPI_Barrier(MPI_COMM_WORLD);
            begin_s[way][n] = MPI_Wtime();
            ways[way](number++);
            end_s[way][n] = MPI_Wtime();
        }
    }
    return n;
}

/* One clock for all: MPI_Wtime of processes of one machine is CLOCK_MONOTONIC. */
static double median_us(int way, int n)
{
    static double latest[2][MOST];
    struct dpb_stats stats = {0};
    MPI_Reduce(begin_s[way], latest[0], n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(end_s[way], latest[1], n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    for (int i = WARM; i < n; i++)
        latest[0][i - WARM] = (latest[1][i] - latest[0][i]) * 1e6;
    dpb_stats_of(latest[0], (size_t)(n - WARM), &stats);
    return stats.median;
}

static const char *loaded_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    return text;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("PMIX_RANK");
    double seconds = argc == 4 ? atof(argv[3]) : 0;
    if (argc == 4 && rank) {
        bench.rank = (uint32_t)atoi(rank);
        bench.n_ranks = (uint32_t)atoi(argv[1]);
        bench.n_elements = strtoull(argv[2], NULL, 10) / sizeof(float);
        bench.n_buckets = (bench.n_elements + bucket_elements - 1) / bucket_elements;
    }
    if (bench.n_ranks < 2 || bench.n_ranks > 1024 || bench.n_buckets == 0 ||
        bench.n_buckets > MOST_BUCKETS || seconds <= 0)
        fail("usage: mpirun -n RANKS mpi_turns RANKS BYTES SECONDS");
    dpb_world.rank = bench.rank;
    dpb_world.n_workers = dpb_world.n_ranks = bench.n_ranks;
    open_strategy();
    int n = measure(seconds);
    double us[] = {median_us(0, n), median_us(1, n)};
    double bytes = (double)(bench.n_elements * sizeof(float));
    double on_bus = bytes * 2 * (bench.n_ranks - 1) / bench.n_ranks / 1e3;
    if (bench.rank == 0)
        printf("{\"ranks\": %u, \"bytes\": %.0f, \"repetitions\": %d, \"unit\": \"GB/s\", "
               "\"bare\": {\"median_us\": %.3f, \"rate\": %.6f}, "
               "\"through\": {\"median_us\": %.3f, \"rate\": %.6f}, "
               "\"versions\": {\"MPI\": \"%s\"}}\n",
               bench.n_ranks, bytes, n - WARM, us[0], on_bus / us[0], us[1], on_bus / us[1],
               loaded_version());
    bench.ops->close(bench.comm);
    return 0;
}
