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
 *     dpb_party_join      meet.h: in every part, before any refusal
 *     dpb_party_agree     agree.h: whether the job begins: all have the same configuration
 *     dpb_launch          with job.party
 *     dpb_party_leave     meet.h: with the exit code, once the result is written
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
/* Prints again, whatever part this is. */
void dpb_party_speak_up(void);

/* ---- for meet.h and agree.h -------------------------------------------------------------- */

enum { DPB_PARTY_TICK_MS = 50 }; /* between looks for the end of a wait */

/* Finds the process of mpirun or srun that started this one. */
void dpb_party_find_starter(struct dpb_party *party);
/* Whether the process of mpirun or srun that started this part has ended. Reads /proc where there
 * is a script between them. */
bool dpb_party_deserted(const struct dpb_party *party);
/* Time until now was spent otherwise than waiting: it is no stop of this process. */
void dpb_party_begin_looks(struct dpb_party *party);
/* A waiting part calls it often. DPB_PEER: mpirun or srun has ended. */
dpb_status dpb_party_look(struct dpb_party *party);
/* A deadline has passed: DPB_TIMEOUT with this message, unless this part was itself stopped. */
DPB_PRINTF(2, 3) dpb_status dpb_party_missed(struct dpb_party *party, const char *format, ...);
/* The deadline of a wait that begins now. */
struct dpb_deadline dpb_party_deadline(const struct dpb_party *party);
/* A channel's next frame of an operation. *found is 1: it is there; 0: the time is over; -1: the
 * channel has ended, or brought another one. */
dpb_status dpb_party_await(struct dpb_party *party, struct dpb_channel *channel, dpb_channel_op op,
                           struct dpb_deadline deadline, struct dpb_frame *frame,
                           const void **value, int *found);

#endif
