/*
 * pmix.h - which rank of what a process is that mpirun or srun started, by PMIx. Its library is loaded
 * here and nowhere else, and only when such a launcher is there.
 *
 * A launcher knows one PMIx client a rank: a second one, or the same again after it has finalized, is not
 * served properly (Open MPI 4 and Slurm 22 with PMIx 4.2). MPI_Init is one, too, unless PMIx is open in
 * its process already. So it is the rank's own process that joins, and not the launcher of its part.
 *
 * Open MPI 5 is the other way round: its MPI_Init fails where PMIx is open already (it asks
 * PMIx_Initialized, and if so never learns which rank it is), PMIx 5 crashes when it is opened again
 * in a process that has finalized it, and its launcher serves a rank's client again after that.
 */
#ifndef DPB_CORE_WORLD_PMIX_H
#define DPB_CORE_WORLD_PMIX_H

#include <stdbool.h>

#include "dpbench/status.h"
#include "world/link.h"

enum { DPB_HOST_BYTES = 64 };

/* What a rank is told when it joins. */
struct dpb_joined {
    uint32_t rank, n_ranks;
    char (*hosts)[DPB_HOST_BYTES];    /* of each rank, as the launcher calls it; @owned: free() */
    char address[LINK_ADDRESS_BYTES]; /* what rank 0 has published */
};

/* By the environment: whether a launcher with PMIx started this process, as which rank, and which one it
 * is: "mpirun", "srun" or "pmix" (another). */
bool dpb_pmix_is_here(void);
uint32_t dpb_pmix_rank(void);
const char *dpb_pmix_launcher(void);
/* Whether MPI has to find a process that never was a client: mpirun is Open MPI 5's (PRRTE). */
bool dpb_pmix_starts_anew(void);

/* Collective over all ranks of the launcher's job: rank 0 publishes `address`, the others get it.
 * Blocks, up to a minute. PMIx stays open. */
dpb_status dpb_pmix_join(const char *address, struct dpb_joined *joined);
/* Finalizes PMIx. Twice is harmless. */
void dpb_pmix_leave(void);

#endif
