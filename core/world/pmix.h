/*
 * pmix.h - which rank of what a process is that mpirun or srun started, by PMIx. Its library is
 * loaded here and nowhere else, and only when such a launcher is there.
 *
 * A launcher knows one PMIx client a rank: a second one, or the same again after it has finalized,
 * is not served properly (Open MPI 4 and Slurm 22 with PMIx 4.2). MPI_Init is one, too, unless PMIx
 * is open in its process already. So it is the rank's own process that joins, and not the launcher
 * of its part.
 *
 * MPI finds some functions of PMIx here first (mk/pmix.mk exports them): see the end of pmix.c.
 */
#ifndef DPB_CORE_WORLD_PMIX_H
#define DPB_CORE_WORLD_PMIX_H

#include <stdbool.h>

#include "world/hello.h"

/* What a rank is told when it joins. */
struct dpb_joined {
    uint32_t rank, n_ranks;
    char (*hosts)[DPB_HOST_BYTES];   /* of each rank, as the launcher calls it; @owned: free() */
    char address[DPB_ADDRESS_BYTES]; /* what rank 0 has published */
};

/* By the environment: whether a launcher with PMIx started this process, as which rank, and which
 * one it is: "mpirun", "srun" or "pmix" (another). */
#define DPB_PMIX_RANK_VARIABLE "PMIX_RANK"
bool dpb_pmix_is_here(void);
uint32_t dpb_pmix_rank(void);
const char *dpb_pmix_launcher(void);

/* *connection: the socket by which the launcher sees that this process lives, @borrowed; -1: none
 * was found. */
dpb_status dpb_pmix_open(int *connection);
/* Rank 0 publishes `address`; the others block until it has, or DPB_TIMEOUT. It is no fence: ranks
 * whom rank 0 waits for meet by that address, and it can tell who is missing. PMIx stays open. */
dpb_status dpb_pmix_join(const char *address, int64_t timeout_ns, struct dpb_joined *joined);
/* Whether MPI finds by PMIx what it needs: a library of PMIx 5 does not in what a Slurm with PMIx 4
 * tells, and MPI_Init of Open MPI 5 ends the process for it. */
dpb_status dpb_pmix_check_mpi(void);
/* Finalizes PMIx. Twice is harmless. */
void dpb_pmix_leave(void);

#endif
