/*
 * party.h - a job that mpirun or srun started: each process of theirs is the launcher of its part,
 * one rank, which it starts as its child, as the local launcher does all of its ranks. So the cause
 * of a rank's death is known exactly, whoever started the job.
 *
 * Rank 0's part is the head. It serves the key-value store, to which the other ranks are connected
 * directly; the other parts are linked to it (link.h). Each part has a board of its own. What ranks
 * write there and others read is mirrored: control words at once, status pages four times a second,
 * journals once a second and at the end; times are turned into those of the head's clock. The head
 * watches over all ranks by what it is told, ends the job, names the first cause and makes the
 * result, just like the local launcher. The other parts say nothing and end with the head's exit
 * code; one that hears nothing of the head any more ends its rank.
 *
 * A launcher of a part keeps its rank's connection to PMIx open until it ends itself: a rank that
 * MPI keeps a client of PMIx may die, and mpirun or srun do not learn of it before the result is
 * there. Should that launcher die, a keeper has it still.
 *
 * A part ends with the process of mpirun or srun that started it, also where that was killed and
 * could not say so.
 *
 *     dpb_party_join      in every part, before anything is refused
 *     dpb_party_agree     whether the job begins: all have read the same
 *     dpb_launch          with job.party
 *     dpb_party_leave     with the exit code, once the result is where it belongs
 */
#ifndef DPB_CORE_LAUNCH_PARTY_H
#define DPB_CORE_LAUNCH_PARTY_H

#include <sys/types.h>

#include "launch/keeper.h"
#include "launch/link.h"
#include "world/hello.h"

struct dpb_party {
    uint32_t rank, n_ranks, n_machines;
    uint32_t *machines;            /* of each rank */
    char (*hosts)[DPB_HOST_BYTES]; /* of each rank */
    const char *launcher;          /* "mpirun", "srun", "pmix" */
    struct dpb_seat place; /* of the rank among those that share its cores; by dpb_party_agree */

    /* Private. Of mpirun or srun on this machine, and its child: this process, or a script around
     * it. */
    pid_t starter, started;
    pid_t parent;                /* of this process */
    int64_t timeout_ns;          /* of joining and of agreeing, each */
    int64_t looked_ns, slept_ns; /* the last look of a waiting part; it was stopped for so long */
    int64_t continued_ns;        /* the look after a SIGCONT; 0: there was none */
    /* The process that is to be the rank; 0: dpb_launch has reaped it. */
    pid_t pid;
    int socket, store_fd;   /* to it; its connection to the store (-1: it is rank 0) */
    int pmix_fd;            /* its connection to PMIx: Slurm kills the job when that ends */
    struct keeper keeper;   /* of that, should this process die */
    struct link *links;     /* the head's: by rank; the others': one, to the head */
    int *store_fds;         /* the head's: the ranks' connections, until the store has them */
    int32_t *launcher_pids; /* the head's: of the parts */
    uint8_t secret[DPB_SECRET_BYTES]; /* of the job, for its ranks: by dpb_party_agree */
};

static inline bool dpb_party_is_head(const struct dpb_party *party)
{
    return party->rank == 0;
}

/* First: nothing is seen of what a part that is not the head writes from here on. */
void dpb_party_hush(void);
/* Rank 1's part writes again, to say that the head cannot. The others do not. */
void dpb_party_speak(const struct dpb_party *party);
/* NULL without a launcher (mpirun, srun) around this process. *party is @owned: dpb_party_leave.
 * Joining, and then agreeing, may take `timeout_ns` and PARTY_START_NS: DPB_TIMEOUT names who is
 * missing; the head says it, or rank 1's part where the head is missing. */
#define PARTY_START_NS INT64_C(3000000000) /* for mpirun or srun to start all processes */
dpb_status dpb_party_join(int64_t timeout_ns, struct dpb_party **party);
/* What this part has made of its configuration: not DPB_OK when it was refused, with
 * dpb_first_error. `config` is JSON as of dpb_config_to_json. Collective. DPB_OK in all parts or in
 * none: the head says what was refused, where parts differ, and the exit code is in *exit_code. */
dpb_status dpb_party_agree(struct dpb_party *party, dpb_status status, const char *config,
                           uint32_t n_workers, int *exit_code);
/* From here on the rank may die, and this process with it, without an end of its connection to
 * PMIx. */
dpb_status dpb_party_keep(struct dpb_party *party);
/* Whether the process of mpirun or srun that started this part has ended. Reads /proc where there
 * is a script between them. */
bool dpb_party_deserted(const struct dpb_party *party);
/* The head tells the others to end, with this code. Accepts NULL. */
void dpb_party_leave(struct dpb_party *party, int exit_code);

#endif
