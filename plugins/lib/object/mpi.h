/*
 * mpi.h - MPI for strategies that sum by MPI: `mpi` over all workers, `hierarchical` over the
 * workers of one local rank of each machine. Here are the initialisation, the versions, and sums of
 * ranges of the gradient arena by MPI_Iallreduce; for shards also the two halves of an all-reduce,
 * and for `dpbench comm` other collectives.
 *
 * This code lies in a shared object of its own, libdpbench-mpi.so beside the plugins. A strategy
 * loads the object before use, so no plugin is linked to libmpi. `hierarchical` can use TCP on a
 * machine without MPI. A run loads libmpi only if its options ask for MPI. A process has one copy
 * of the code that MPI allows once.
 *
 * MPI's launcher makes MPI's world: each rank that mpirun or srun starts is a member. Without a
 * launcher each worker would be a world of one: core refuses such a run (DPB_COMM_LAUNCHER).
 *
 * Threads: one at a time calls MPI. Without communication cores only the loop's thread does, which
 * also initialises MPI: FUNNELED. With them core's helper does, too: SERIALIZED.
 *
 * A reduction that has begun cannot be cancelled (MPI 4.0, 3.8.4 and 6.12), and any call of MPI may
 * write into the gradients. So if a reduction is unfinished, `destroy` ends the process, after the
 * message of the fault is written.
 *
 * MPI requires that all ranks of a communicator receive identical results (MPI 4.0, 6.9.6): sums
 * are equal bit for bit on all members. The library chooses the order of the sum.
 */
#ifndef DPB_PLUGINS_LIB_MPI_H
#define DPB_PLUGINS_LIB_MPI_H

#include "dpbench/plugin.h"
#include "lib/strategy/sums.h"

enum { DPB_MPI_NO_GROUP = -1 };

/* The contents of a posted range afterwards. Slices are slices.h's, one a position. */
enum dpb_mpi_kind {
    DPB_MPI_KIND_SUM,         /* the sum, on all members: MPI_Iallreduce */
    DPB_MPI_KIND_SUM_SLICES,  /* at its begin the sum of the own slice, undefined behind that sum:
                            MPI_Ireduce_scatter */
    DPB_MPI_KIND_GIVE_SLICES, /* each member's slice, on all members: MPI_Iallgatherv */
    DPB_MPI_KIND_GATHER,      /* each member's n elements, on all members: MPI_Iallgather */
    /* The operations of dpbench/collectives.h; n divides by the members. */
    DPB_MPI_KIND_REDUCE_SCATTER, /* as SUM_SLICES, by blocks: MPI_Ireduce_scatter_block */
    DPB_MPI_KIND_ALL_GATHER,     /* as GIVE_SLICES, by blocks: MPI_Iallgather */
    DPB_MPI_KIND_BROADCAST,      /* those of position 0: MPI_Ibcast */
    DPB_MPI_KIND_ALL_TO_ALL      /* unchanged; `into` has the slices of all: MPI_Ialltoall */
};

struct dpb_mpi_sums_args {
    enum dpb_mpi_kind kind;
    void *arena;        /* of gradients, or of the slices to give; @borrowed until destroy */
    dpb_dtype type;     /* of its elements */
    void *into;         /* DPB_MPI_KIND_ALL_TO_ALL: an arena of the same type and length */
    uint64_t n_buckets; /* posted in an exchange */
    /* DPB_MPI_KIND_GATHER: a member's elements begin so many behind those of the member before.
     * `post` names those of the first member. Bytes are not counted. */
    uint64_t stride;
    /* The buckets' names in spans and messages; NULL: their numbers. @borrowed until destroy. */
    const uint64_t *names;
    /* Workers with the same number sum together; DPB_MPI_NO_GROUP: this worker takes part in no
     * sum. Positions in a group are 0 .. n_members - 1. */
    int32_t group;
    uint32_t position, n_members;
};

struct dpb_mpi_library {
    const struct dpb_library *versions; /* ended by name = NULL */
    /* Initialises MPI, once a process. Refuses by name a thread level that is not offered, and a
     * world other than the job's workers. */
    dpb_status (*open)(const struct dpb_comm_args *job);
    void (*close)(void); /* after `destroy`: the process finalises MPI if it ends well */
    dpb_status (*check_length)(uint64_t n_elements); /* of a sum: MPI counts in 31 bits */

    /* Collective over the job's workers. @owned: `destroy` never waits. All buckets of an exchange
     * have place; slices have at most two different lengths. `move` reports a finished sum's span
     * and counts its bytes. MPI offers nothing to sleep on, so `wait` polls a few times, yields the
     * core, and returns. */
    dpb_status (*create)(const struct dpb_mpi_sums_args *args, struct dpb_sums **sums);
};

/* Loads the object, once a process. Refuses, and names the missing part, if the object was not
 * built or libmpi is missing. */
dpb_status dpb_mpi_load(const struct dpb_host *host, const struct dpb_mpi_library **library);

#endif
