/*
 * mpi_all_reduce.c - MPI_Allreduce in place of fp32, as bench/all_reduce.c measures a strategy: a
 * repetition takes from the last rank's beginning to the last one's end.
 *
 *     mpirun -n RANKS mpi_all_reduce BYTES SECONDS
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

enum { MOST = 200000, WARM = 20 };

static int compare(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
    int rank, ranks, n = 0, going = 1;
    static double times[2][MOST], latest[2][MOST];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    size_t bytes = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
    double seconds = argc == 3 ? atof(argv[2]) : 0;
    float *data = calloc(bytes + 64, 1);
    if (bytes < sizeof *data || seconds <= 0 || !data) {
        fprintf(stderr, "usage: mpi_all_reduce BYTES SECONDS\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    memset(data, 0, bytes);
    for (double end = MPI_Wtime() + seconds; going; n++) {
        going = n < WARM + 3 || (MPI_Wtime() < end && n < MOST - 1);
        MPI_Bcast(&going, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        times[0][n] = MPI_Wtime();
        MPI_Allreduce(MPI_IN_PLACE, data, (int)(bytes / sizeof *data), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
        times[1][n] = MPI_Wtime();
    }
    /* One clock for all: MPI_Wtime of processes of one machine is CLOCK_MONOTONIC. */
    MPI_Reduce(times[0], latest[0], n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(times[1], latest[1], n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        char version[MPI_MAX_LIBRARY_VERSION_STRING];
        int length;
        MPI_Get_library_version(version, &length);
        version[strcspn(version, ",\n")] = '\0';
        for (int i = WARM; i < n; i++)
            times[0][i - WARM] = latest[1][i] - latest[0][i];
        n -= WARM;
        qsort(times[0], (size_t)n, sizeof times[0][0], compare);
        double median = times[0][n / 2];
        printf("{\"ranks\": %d, \"bytes\": %zu, \"repetitions\": %d, \"median_us\": %.3f, "
               "\"rate\": %.6f, \"unit\": \"GB/s\", \"versions\": {\"MPI\": \"%s\"}}\n",
               ranks, bytes, n, median * 1e6,
               (double)bytes * 2 * (ranks - 1) / ranks / median / 1e9, version);
    }
    free(data);
    MPI_Finalize();
    return 0;
}
