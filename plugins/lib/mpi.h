/*
 * mpi.h - MPI for the strategies that sum by it: `mpi` over all workers, `hierarchical` over those
 * of one place of each machine. What they share is here: the initialisation, the versions, and sums
 * of ranges of the gradient arena by MPI_Iallreduce; for shards also the two halves of that.
 *
 * It lies in a shared object of its own, libdpbench-mpi.so beside the plugins, that a strategy
 * loads when it is to use it: none of the plugins is linked to libmpi. So `hierarchical` goes by
 * TCP on a machine without MPI, nobody loads that library who does not ask for it, and there is one
 * copy of what a process may do only once.
 *
 * MPI's world is made by its launcher: each rank that mpirun or srun starts is one of it. Without
 * it there would be as many worlds of one as workers: core refuses that (DPB_COMM_LAUNCHER).
 *
 * Threads: one at a time calls MPI. Without communication cores it is the loop's, which also
 * initialises it: FUNNELED; else core's helper as well: SERIALIZED.
 *
 * A reduction that has begun cannot be cancelled (MPI 4.0, 3.8.4 and 6.12), and writes into the
 * gradients whenever MPI is called. So the process ends where one is left over: in `destroy`, after
 * the message of the fault is written.
 *
 * MPI requires that all ranks of a communicator receive identical results (MPI 4.0, 6.9.6): what is
 * summed is equal bit for bit on all that take part. The order of the sum is the library's.
 */
#ifndef DPB_PLUGINS_LIB_MPI_H
#define DPB_PLUGINS_LIB_MPI_H

#include "dpbench/plugin.h"

struct mpi_sums;

enum { MPI_NO_GROUP = -1 };

/* What is made of a range that is posted. Slices are lib/slices.h's, one a position. */
enum mpi_kind {
    MPI_KIND_SUM,        /* everywhere its sum: MPI_Iallreduce */
    MPI_KIND_SUM_SLICES, /* at its begin the sum of the own slice, and anything behind that:
                            MPI_Ireduce_scatter */
    MPI_KIND_GIVE_SLICES /* everywhere each member's slice: MPI_Iallgatherv */
};

struct mpi_sums_args {
    enum mpi_kind kind;
    void *arena;        /* of gradients, or what is given; @borrowed until destroy */
    dpb_dtype type;     /* of its elements */
    uint64_t n_buckets; /* that are posted in an exchange */
    /* What spans and messages call them; NULL: by their numbers. @borrowed until destroy. */
    const uint64_t *names;
    /* Workers with the same number sum together; MPI_NO_GROUP: this one sums with nobody. Their
     * positions are 0 .. n_members - 1. */
    int32_t group;
    uint32_t position, n_members;
};

/* Sums finish in the order in which they were posted. */
struct mpi_library {
    const struct dpb_library *versions; /* ended by name = NULL */
    /* Initialises MPI, once a process. Refuses by name a thread level that is not offered, and a
     * world other than the job's workers. */
    dpb_status (*open)(const struct dpb_comm_args *job);
    void (*close)(void); /* after `destroy`: the process finalises MPI if it ends well */
    dpb_status (*check_length)(uint64_t n_elements); /* of a sum: MPI counts in 31 bits */

    /* Collective over the job's workers. @owned: destroy, which accepts NULL and never waits. */
    dpb_status (*create)(const struct mpi_sums_args *args, struct mpi_sums **sums);
    void (*destroy)(struct mpi_sums *sums);
    void (*begin)(struct mpi_sums *sums, uint64_t step); /* a new exchange; all sums are finished */
    /* The next sum, of as many elements on all members, is of elements [begin, begin + n) of the
     * arena, which are final here; n may be 0. Slices: of two different n at most. What fails is
     * the result of the next `move`. */
    void (*post)(struct mpi_sums *sums, uint64_t begin, uint64_t n);
    bool (*finished)(const struct mpi_sums *sums, uint64_t bucket);
    bool (*idle)(const struct mpi_sums *sums); /* nothing that was posted is unfinished */
    /* Moves all sums on that have begun, without waiting; *moved: one is finished. Reports its span
     * and counts its bytes. */
    dpb_status (*move)(struct mpi_sums *sums, bool *moved);
    /* A turn of waiting for the oldest that is not finished: MPI has nothing to sleep on, so it
     * looks a few times, lets others run, and returns; with the deadline's message when that is
     * over. */
    dpb_status (*wait)(struct mpi_sums *sums);
};

/* Loads it, once a process. Refused with what is missing where it was not built, or where libmpi is
 * not there. */
dpb_status mpi_load(const struct dpb_host *host, const struct mpi_library **library);

#endif
