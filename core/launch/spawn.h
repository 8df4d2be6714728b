/*
 * spawn.h - starts one rank of a local job as a process of /proc/self/exe.
 */
#ifndef DPB_CORE_LAUNCH_SPAWN_H
#define DPB_CORE_LAUNCH_SPAWN_H

#include <sys/types.h>

#include "world/hello.h"

/* The same for all ranks of a job, but for hello->rank. */
struct dpb_spawn {
    int fds[DPB_HELLO_FDS]; /* descriptors with the hello; -1: none */
    int network;            /* the network namespace of its host (hosts.h); -1: this process's */
    char **environment;     /* dpb_spawn_environment */
    int64_t timeout_ns;     /* for a child to execute its program */
    struct dpb_hello hello;
};

/* This process's environment, with `additions` (NAME=VALUE, ended by NULL; may be NULL) in place of
 * its own, and the mark of a rank, which joins first or not. One block, @owned: free(). NULL: out
 * of memory. */
char **dpb_spawn_environment(const char *const *additions, bool joins);

/* *socket is the launcher's end of the rank's socket, close-on-exec. A program that cannot be
 * executed is an error here, not a rank that dies. Without a message: DPB_TIMEOUT, the child
 * exists, but has not executed the program in time; DPB_INTERRUPTED, SIGINT or SIGTERM, which the
 * caller blocks, is pending and there is no child. */
dpb_status dpb_spawn_rank(const struct dpb_spawn *spawn, pid_t *pid, int *socket);

/* The same in two steps, for a rank that joins first. */
dpb_status dpb_spawn_join(const struct dpb_spawn *spawn, const struct dpb_join *join, pid_t *pid,
                          int *socket);
dpb_status dpb_spawn_greet(const struct dpb_spawn *spawn, int socket);

#endif
