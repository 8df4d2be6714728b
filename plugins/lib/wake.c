/* wake.c - see wake.h. */
#include "lib/wake.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

dpb_status wake_open(const struct dpb_host *host, struct wake *wake)
{
    wake->host = host;
    wake->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake->fd >= 0 ? DPB_OK
                         : host->fail(DPB_IO, "cannot make an eventfd: %s", strerror(errno));
}

void wake_up(struct wake *wake)
{
    const uint64_t one = 1;
    __atomic_store_n(&wake->woken, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&wake->waiting, __ATOMIC_SEQ_CST) != 0)
        (void)!write(wake->fd, &one, sizeof one);
}

dpb_status wake_wait(struct wake *wake, struct mesh *mesh, int bell, struct pollfd *fds,
                     const struct dpb_wait *what)
{
    uint64_t drained;
    dpb_status status = DPB_OK;
    fds[0] = (struct pollfd){.fd = wake->fd, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = bell, .events = POLLIN};
    __atomic_store_n(&wake->waiting, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&wake->woken, __ATOMIC_SEQ_CST) == 0 && mesh_watch(mesh, fds + WAKE_FDS))
        status = wake->host->poll(fds, WAKE_FDS + mesh_n_watched(mesh), what, NULL);
    if (fds[0].revents != 0)
        (void)!read(wake->fd, &drained, sizeof drained);
    __atomic_store_n(&wake->waiting, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&wake->woken, 0, __ATOMIC_SEQ_CST);
    return status;
}

void wake_close(struct wake *wake)
{
    if (wake->fd >= 0)
        close(wake->fd);
    wake->fd = -1;
}
