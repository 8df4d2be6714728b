/* doorbell.c - see doorbell.h. */
#include "lib/signals/doorbell.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_RINGS = 16 };

_Static_assert(sizeof(struct dpb_bell_page) == DPB_CACHE_LINE, "a page is a cache line");

/* Another rank of the machine, or this one. */
struct neighbour {
    struct dpb_bell_page *page;
    struct sockaddr_un address;
    socklen_t bytes;
};

struct dpb_doorbell {
    struct dpb_bell_page *own;
    int fd;
    uint32_t n_neighbours;
    struct neighbour neighbours[];
};

static void make_key(const char *name, uint32_t rank, char key[96])
{
    snprintf(key, 96, "%s.doorbell.%u", name, rank);
}

static dpb_status open_socket(struct dpb_doorbell *doorbell, const struct dpb_host *host,
                              const char *name, uint32_t rank)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t bytes = sizeof address;
    char key[96];
    doorbell->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    /* Without a name given the kernel chooses an abstract one that is free. */
    if (doorbell->fd < 0 ||
        bind(doorbell->fd, (const struct sockaddr *)&address, sizeof address.sun_family) != 0 ||
        getsockname(doorbell->fd, (struct sockaddr *)&address, &bytes) != 0)
        return host->fail(DPB_IO, "cannot make a socket for the ranks of this machine: %s",
                          strerror(errno));
    make_key(name, rank, key);
    return host->store->put(key, &address, bytes);
}

static dpb_status meet(struct dpb_doorbell *doorbell, const struct dpb_host *host, const char *name,
                       const struct dpb_doorbell_rank *rung)
{
    struct neighbour *neighbour = &doorbell->neighbours[doorbell->n_neighbours];
    size_t bytes = sizeof neighbour->address;
    char key[96];
    make_key(name, rung->rank, key);
    DPB_TRY(host->store->get(key, &neighbour->address, &bytes, 0));
    neighbour->bytes = (socklen_t)bytes;
    neighbour->page = rung->page;
    doorbell->n_neighbours++;
    return DPB_OK;
}

dpb_status dpb_doorbell_open(const struct dpb_host *host, const char *name,
                             struct dpb_doorbell_rank own, const struct dpb_doorbell_rank *rung,
                             uint32_t n_rung, struct dpb_doorbell **made)
{
    struct dpb_doorbell *doorbell =
        calloc(1, sizeof *doorbell + n_rung * sizeof doorbell->neighbours[0]);
    if (!doorbell)
        return host->fail(DPB_NO_MEMORY, "no memory for the ranks of this machine");
    doorbell->own = own.page;
    dpb_status status = open_socket(doorbell, host, name, own.rank);
    for (uint32_t i = 0; i < n_rung && status == DPB_OK; i++)
        status = meet(doorbell, host, name, &rung[i]);
    if (status == DPB_OK)
        *made = doorbell;
    else
        dpb_doorbell_close(doorbell);
    return status;
}

/* A socket that takes no more has enough in it to wake its rank. */
void dpb_doorbell_ring(const struct dpb_doorbell *doorbell)
{
    for (uint32_t i = 0; doorbell && i < doorbell->n_neighbours; i++) {
        const struct neighbour *neighbour = &doorbell->neighbours[i];
        __atomic_store_n(&neighbour->page->rung, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&neighbour->page->waiting, __ATOMIC_SEQ_CST) != 0)
            (void)!sendto(doorbell->fd, "r", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                          (const struct sockaddr *)&neighbour->address, neighbour->bytes);
    }
}

bool dpb_doorbell_arm(struct dpb_doorbell *doorbell)
{
    if (doorbell)
        __atomic_store_n(&doorbell->own->waiting, 1, __ATOMIC_SEQ_CST);
    return !dpb_doorbell_was_rung(doorbell);
}

bool dpb_doorbell_was_rung(const struct dpb_doorbell *doorbell)
{
    return doorbell && __atomic_load_n(&doorbell->own->rung, __ATOMIC_SEQ_CST) != 0;
}

int dpb_doorbell_fd(const struct dpb_doorbell *doorbell)
{
    return doorbell ? doorbell->fd : -1;
}

/* A datagram may come after its ring was seen: then the next poll reports the datagram. Takes at
 * most as many as fit into a socket at first, so that a sender of more does not keep this rank. */
void dpb_doorbell_disarm(struct dpb_doorbell *doorbell, bool readable)
{
    char ring[16];
    if (!doorbell)
        return;
    __atomic_store_n(&doorbell->own->waiting, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&doorbell->own->rung, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; readable && i < MOST_RINGS; i++)
        if (recv(doorbell->fd, ring, sizeof ring, MSG_DONTWAIT) < 0)
            break;
}

void dpb_doorbell_close(struct dpb_doorbell *doorbell)
{
    if (!doorbell)
        return;
    if (doorbell->fd >= 0)
        close(doorbell->fd);
    free(doorbell);
}
