/*
 * environment.h - the rank and the job of a process by variables alone, as torchrun, a Job of
 * Kubernetes or a shell's loop sets them. Where PMIx is there, it counts.
 *
 * They number the ranks of a job, or with run.launch = environment its machines: there each process
 * is the launcher of as many ranks as any other.
 *
 *     RANK, WORLD_SIZE           this process's number, and how many there are, at least 2
 *     JOB_COMPLETION_INDEX       the number where there is no RANK; the configuration says how many
 *                                ranks there are, WORLD_SIZE how many machines
 *     MASTER_ADDR, MASTER_PORT   rank 0's machine, and torchrun's own store there. Rank 0 listens
 *                                on run.port, or else on the port after MASTER_PORT
 *     LOCAL_WORLD_SIZE           as large as WORLD_SIZE: all ranks are on this machine, and need no
 *                                secret, since the kernel says whose process a peer is
 *     DPBENCH_SECRET_FILE, DPBENCH_SECRET   a text that the ranks of several machines share
 */
#ifndef DPB_CORE_LAUNCH_ENVIRONMENT_H
#define DPB_CORE_LAUNCH_ENVIRONMENT_H

#include "base/config.h"
#include "world/hello.h"

#define DPB_ENVIRONMENT_LAUNCHER "environment"
#define DPB_SECRET_FILE_VARIABLE "DPBENCH_SECRET_FILE"
#define DPB_SECRET_VARIABLE "DPBENCH_SECRET"

enum { DPB_MASTER_BYTES = 256 }; /* a name of DNS, with its NUL */

struct dpb_environment {
    uint32_t part, n_parts;      /* n_parts < 2: the variables name no job of several processes */
    uint32_t n_workers, n_ranks; /* of the job; n_parts divides the workers */
    bool restarts;               /* run.restart: rank 0 goes on listening */
    char master[DPB_MASTER_BYTES];
    /* Of rank 0's launcher, for channel.h, with what proves that a process is of the job. */
    char address[DPB_ADDRESS_BYTES];
};

/* Whether variables, and not PMIx, give this process a rank in a job of several. */
bool dpb_environment_is_here(uint32_t *rank);
/* Takes the secret out of the environment, also where there is no such job. `config` may be NULL.
 * DPB_USAGE: something is missing or wrong, by name. */
dpb_status dpb_environment_read(const struct dpb_config *config,
                                struct dpb_environment *environment);

#endif
