/*
 * wake.h - the wait for the network of the thread that moves a mesh, which another thread of this
 * rank ends: the loop's, beside that of run.comm_cores. doorbell.h is for other ranks of the
 * machine.
 *
 * A waiter says that it waits and then looks whether it was woken; who wakes does it the other way
 * round. In the one order of these four accesses one of the two sees the other.
 */
#ifndef DPB_PLUGINS_LIB_WAKE_H
#define DPB_PLUGINS_LIB_WAKE_H

#include <poll.h>

#include "mesh.h"

enum { WAKE_FDS = 2 /* that wake_wait polls before the mesh's */ };

struct wake {
    const struct dpb_host *host;
    int fd; /* readable when a sleeper was woken; -1: not open */
    uint32_t waiting;
    uint32_t woken; /* not 0: since the last wait */
};

dpb_status wake_open(const struct dpb_host *host, struct wake *wake);
void wake_up(struct wake *wake); /* any thread */
/* Blocks until mesh_move may do something, `bell` (-1: there is none) is readable, or it is woken;
 * not at all if it was woken since the last wait. Fails as host->poll. `fds` has room for WAKE_FDS
 * and mesh_n_watched(mesh): @borrowed by the mesh until it moves. */
dpb_status wake_wait(struct wake *wake, struct mesh *mesh, int bell, struct pollfd *fds,
                     const struct dpb_wait *what);
void wake_close(struct wake *wake); /* accepts one that is not open */

#endif
