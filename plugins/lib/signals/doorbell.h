/*
 * doorbell.h - ends a rank's wait for the network (dpb_mesh_wait) when another rank of its machine,
 * or another thread of its own, has news in shared memory. With run.comm_cores the loop's thread
 * has buckets for the thread that moves the strategy.
 *
 * A signal (signals.h) wakes a rank that sleeps on the signal's flag. A rank that sleeps in poll,
 * because news may also arrive on a socket, is woken by a datagram. A rank that works, or sleeps on
 * a flag, gets no datagram.
 *
 * Each rank has an abstract Unix socket. The kernel chooses its name, and the store carries it. No
 * rank reads a datagram's content: any datagram, a stranger's too, only makes the rank look at
 * shared memory.
 *
 * A waiter sets `waiting`, then reads `rung`. A rank that rings sets `rung`, then reads `waiting`.
 * In the one order of these four accesses, one of the two sees the other. A ring that precedes the
 * waiter's last look at shared memory causes one spurious wake-up.
 */
#ifndef DPB_PLUGINS_LIB_DOORBELL_H
#define DPB_PLUGINS_LIB_DOORBELL_H

#include "dpbench/host.h"

/* In shared memory that started as zeros, one a rank. */
struct dpb_bell_page {
    uint32_t waiting, rung;
    uint8_t unused[DPB_CACHE_LINE - 8];
};

struct dpb_doorbell;

struct dpb_doorbell_rank {
    uint32_t rank; /* in the job */
    struct dpb_bell_page *page;
};

/* Collective over the ranks of a machine. `own` rings the ranks of `rung`, itself too if it is one
 * of them; the pages are @borrowed until close. `name`: prefix of the keys in the store, once a
 * job. *doorbell is @owned: dpb_doorbell_close. The functions below accept NULL. */
dpb_status dpb_doorbell_open(const struct dpb_host *host, const char *name,
                             struct dpb_doorbell_rank own, const struct dpb_doorbell_rank *rung,
                             uint32_t n_rung, struct dpb_doorbell **doorbell);
/* Call after a write that another rank of this machine may wait for. Any thread. Makes a system
 * call for each rank that sleeps. */
void dpb_doorbell_ring(const struct dpb_doorbell *doorbell);
/* A waiter, one thread, calls these in this order: `arm`; poll(2) of `fd` and others; `disarm`.
 * Then it looks at shared memory. If `arm` returns false, the doorbell was rung since the last
 * disarm: skip poll. `readable`: poll has reported `fd`, or the caller does not know. */
bool dpb_doorbell_arm(struct dpb_doorbell *doorbell);
/* Readable after a ring; -1: there is none. */
int dpb_doorbell_fd(const struct dpb_doorbell *doorbell);
void dpb_doorbell_disarm(struct dpb_doorbell *doorbell, bool readable);
bool dpb_doorbell_was_rung(const struct dpb_doorbell *doorbell); /* since the last disarm */
void dpb_doorbell_close(struct dpb_doorbell *doorbell);

#endif
