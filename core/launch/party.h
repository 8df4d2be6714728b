/*
 * party.h - a job that mpirun or srun started, or another launcher that sets variables alone
 * (environment.h). Each process that they start is the launcher of its part: one rank, or with
 * run.launch = environment the ranks of its machine, which the launcher starts as its children. So
 * the cause of a rank's death is known exactly, as with the local launcher.
 *
 * Part 0, which has rank 0, is the head. The head serves the key-value store, to which the ranks of
 * other parts are connected directly. The other parts are connected to the head (channel.h). Each
 * part has a board of its own, for its ranks. Boards are mirrored: control words at once, status
 * pages four times a second, journals twice a second and at the end. Times are converted to the
 * head's clock. The head watches all ranks by the reports of their parts, ends the job, names the
 * first cause and makes the result, just like the local launcher. The other parts print nothing and
 * end with the head's exit code. A part that receives nothing from the head any more ends its
 * ranks. Once all ranks have ended, a part waits as long as the head lives.
 *
 * Under PMIx the launcher of a part keeps its rank's connection open until it ends itself: a rank
 * that is still a client of PMIx, for MPI, may die, and mpirun or srun learn this only after the
 * result is there. If that launcher dies, a keeper still holds the connection.
 *
 * A part ends with the process of mpirun or srun that started it, also if that process was killed
 * without notice.
 *
 *     dpb_party_join      in every part, before any refusal
 *     dpb_party_agree     whether the job begins: all have the same configuration
 *     dpb_launch          with job.party
 *     dpb_party_leave     with the exit code, once the result is written
 */
#ifndef DPB_CORE_LAUNCH_PARTY_H
#define DPB_CORE_LAUNCH_PARTY_H

#include <sys/types.h>

#include "launch/channel.h"
#include "launch/environment.h"
#include "launch/keeper.h"
#include "world/hello.h"

struct dpb_party {
    uint32_t part, n_parts; /* this one's number, and how many there are */
    uint32_t n_ranks, n_machines;
    uint32_t *parts, *machines;    /* of each rank */
    char (*hosts)[DPB_HOST_BYTES]; /* of each rank */
    const char *launcher;          /* "mpirun", "srun", "pmix", "environment" */
    struct dpb_seat *seats;        /* by rank: of this part's, from dpb_party_agree */

    /* Private. The process of mpirun or srun on this machine, and its child: this process, or a
     * script around it. 0 without PMIx: another launcher's process may end before its ranks. */
    pid_t starter, started;
    pid_t parent;                /* of this process */
    int64_t timeout_ns;          /* of joining and of agreeing, each */
    int64_t missed_ns, slept_ns; /* dpb_missed_ns at the last look; how long it was stopped */
    int64_t continued_ns;        /* the look after a SIGCONT; 0: there was none */
    bool cut_off; /* the head's: a part's machine has not answered, down to the kernel */
    /* With PMIx, the process that becomes the rank; 0: dpb_launch has reaped it. */
    pid_t pid;
    int socket;                   /* to it */
    int pmix_fd;                  /* its connection to PMIx: Slurm kills the job when that ends */
    struct dpb_keeper keeper;     /* holds pmix_fd if this process dies */
    struct dpb_channel *channels; /* the head's: by part; the others': one, to the head */
    /* By rank: the connections of other parts' ranks to the store, which the head gives to the
     * store, and a part to its ranks; -1: none, or given. */
    int *store_fds;
    int32_t *launcher_pids;           /* the head's: of the parts */
    uint8_t secret[DPB_SECRET_BYTES]; /* of the job, for its ranks: by dpb_party_agree */
    /* For starting again, where run.restart may do so: "", -1 and NULL else. */
    char address[DPB_ADDRESS_BYTES];
    struct dpb_circle circle;
    int listener;           /* the head's, as what follows */
    struct dpb_card *cards; /* of the parts */
    char *config;           /* as the head's part has it */
    bool rejoins; /* this part comes in the place of another: its ranks wait for the head */
    /* The head's: called in all of its waits, which end with its status if that is not DPB_OK. */
    dpb_status (*meanwhile)(void *context);
    void *context;
};

/* Whether this part makes the job's document; NULL, a job without other parts: yes. */
static inline bool dpb_party_is_head(const struct dpb_party *party)
{
    return !party || party->part == 0;
}

/* Whether this process starts that rank. */
static inline bool dpb_party_owns(const struct dpb_party *party, uint32_t rank)
{
    return !party || party->parts[rank] == party->part;
}

/* The first rank of a part, which stands for the part in messages; before the ranks are known, the
 * part's number. */
uint32_t dpb_party_first(const struct dpb_party *party, uint32_t part);

/* Whether another launcher has started this process, as a rank of a job, and which one. */
bool dpb_party_is_here(uint32_t *rank);
/* Called first: from here on, no output of a part other than the head is visible. */
void dpb_party_hush(void);
/* This part cannot join: prints the first error, which was not visible. */
void dpb_party_complain(void);
/* Lets rank 1's part print again, to report for a head that cannot. Other parts stay silent. */
void dpb_party_speak(const struct dpb_party *party);
/* NULL without a launcher (mpirun, srun, `environment`) around this process. *party is @owned:
 * dpb_party_leave.
 * Joining, and then agreeing, may take `timeout_ns` and DPB_PARTY_START_NS: DPB_TIMEOUT names the
 * missing ranks; the head prints it, or rank 1's part if the head is missing. */
#define DPB_PARTY_START_NS INT64_C(3000000000) /* for mpirun or srun to start all processes */
dpb_status dpb_party_join(int64_t timeout_ns, const struct dpb_environment *environment,
                          struct dpb_party **party);
/* `status` is this part's own: not DPB_OK if its configuration was refused, with dpb_first_error.
 * `config` is JSON of dpb_config_to_json. Collective. Returns DPB_OK in all parts or in none: the
 * head prints the refusal, or where parts differ, and sets *exit_code. */
dpb_status dpb_party_agree(struct dpb_party *party, dpb_status status, const char *config,
                           uint32_t n_workers, int *exit_code);
/* The head has printed why the job does not begin: tells the connected parts to print nothing. */
void dpb_party_refuse(struct dpb_party *party, dpb_status status);
/* Whether all parts are connected; without a party they are. */
bool dpb_party_is_whole(const struct dpb_party *party);
/* The head's: takes a new launcher in the place of each part that is not connected. Each of them is
 * of the machine of those parts that the one before was with, and of the same configuration.
 * DPB_TIMEOUT: none has come; other failures have left a message. */
dpb_status dpb_party_readmit(struct dpb_party *party, int64_t within_ns);
/* All ranks start again: connects those of other parts to the store anew. Collective. */
dpb_status dpb_party_reconnect(struct dpb_party *party);
/* From here on the rank may die, and this process with it, and its connection to PMIx stays
 * open. */
dpb_status dpb_party_keep(struct dpb_party *party);
/* Whether the process of mpirun or srun that started this part has ended. Reads /proc where there
 * is a script between them. */
bool dpb_party_deserted(const struct dpb_party *party);
/* The head makes the others end, with this code. Accepts NULL. */
void dpb_party_leave(struct dpb_party *party, int exit_code);

#endif
