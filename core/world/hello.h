/*
 * hello.h - the message of a launcher to a rank that it has started, on the socket between them.
 */
#ifndef DPB_CORE_WORLD_HELLO_H
#define DPB_CORE_WORLD_HELLO_H

#include "base/secret.h"
#include "dpbench/host.h"

/* The address of rank 0's launcher, as text (launch/channel.h); the name of a host. */
enum { DPB_ADDRESS_BYTES = 1024, DPB_HOST_BYTES = 64 };

#define DPB_HELLO_MAGIC UINT64_C(0x314f4c4c45485044) /* "DPHELLO1" */
#define DPB_JOIN_MAGIC UINT64_C(0x31304e494f4a5044)  /* "DPJOIN01" */
/* A rank's environment: the number of its descriptor; ",join" after it: a dpb_join comes first. */
#define DPB_JOB_VARIABLE "DPBENCH_JOB"

/* The descriptors with a hello (SCM_RIGHTS), in this order; the last two only if it says so. */
enum { DPB_FD_BOARD, DPB_FD_CONFIG, DPB_FD_ENVIRONMENT, DPB_FD_STORE, DPB_HELLO_FDS };

/* A rank's seat among the ranks that divide its cores: `index` counts workers first. */
struct dpb_seat {
    uint32_t index, n_workers, n_servers;
};

/* The message that begins a job for a rank, on its socket. */
struct dpb_hello {
    uint64_t magic;
    uint32_t rank, n_workers, n_servers;
    int32_t launcher_pid;
    int64_t timeout_ns;
    uint8_t secret[DPB_SECRET_BYTES];
    struct dpb_seat place;
    char launcher[16];
    bool parted; /* the job has a launcher, and a board, for each rank; FD_STORE is rank 0's then,
                    and FD_ENVIRONMENT a block of NAME=VALUE, each ended by NUL */
    bool has_store; /* FD_STORE comes, too: in all parts but rank 0's */
    bool keep_pmix; /* until the end of the process: its strategy needs it */
};

/* Before the hello, where mpirun or srun started the launcher: the rank must join by PMIx first.
 * The rank answers with a byte that carries its connection to PMIx (SCM_RIGHTS), a dpb_join_answer
 * and `n_ranks` names of hosts, of DPB_HOST_BYTES each. */
struct dpb_join {
    uint64_t magic;
    int32_t launcher_pid;
    int64_t timeout_ns;
    char address[DPB_ADDRESS_BYTES]; /* rank 0's */
};
struct dpb_join_answer {
    uint64_t magic;
    int32_t status; /* dpb_status; not DPB_OK: `text` says why */
    uint32_t rank, n_ranks;
    char text[DPB_ADDRESS_BYTES]; /* else the address that rank 0 has published */
};

#endif
