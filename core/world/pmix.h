/*
 * pmix.h - the rank and the job of a process that mpirun or srun started, by PMIx. The library of
 * PMIx is loaded only here, and only if such a launcher is there.
 *
 * A launcher knows one PMIx client a rank: a second one, or the same again after it has finalized,
 * is not served properly (Open MPI 4 and Slurm 22 with PMIx 4.2). MPI_Init is a client, too, unless
 * PMIx is open in its process already. So the rank's own process joins, not its launcher.
 *
 * MPI finds some functions of PMIx here first (mk/pmix.mk exports them): see the end of pmix.c.
 */
#ifndef DPB_CORE_WORLD_PMIX_H
#define DPB_CORE_WORLD_PMIX_H

#include <stdbool.h>

#include "world/hello.h"

/* What a rank learns when it joins. */
struct dpb_joined {
    uint32_t rank, n_ranks;
    char (*hosts)[DPB_HOST_BYTES];   /* of each rank, the launcher's names; @owned: free() */
    char address[DPB_ADDRESS_BYTES]; /* published by rank 0 */
};

/* By the environment: whether a launcher with PMIx started this process, its rank, and the
 * launcher: "mpirun", "srun" or "pmix" (another). */
#define DPB_PMIX_RANK_VARIABLE "PMIX_RANK"
bool dpb_pmix_is_here(void);
uint32_t dpb_pmix_rank(void);
const char *dpb_pmix_launcher(void);

/* *connection: the socket by which the launcher sees that this process lives, @borrowed; -1: none
 * was found. */
dpb_status dpb_pmix_open(int *connection);
/* Rank 0 publishes `address`; the others block until it has, or DPB_TIMEOUT. No fence: the other
 * ranks connect to rank 0 by that address, and it can name missing ranks. PMIx stays open. */
dpb_status dpb_pmix_join(const char *address, int64_t timeout_ns, struct dpb_joined *joined);
/* Checks that MPI finds all it needs by PMIx. A library of PMIx 5 does not find all under a Slurm
 * with PMIx 4, and then MPI_Init of Open MPI 5 ends the process. */
dpb_status dpb_pmix_check_mpi(void);
/* Finalizes PMIx. Twice is harmless. */
void dpb_pmix_leave(void);

#endif
