/*
 * doorbell.h - how a rank that waits for the network (mesh_wait) hears of a rank of its own
 * machine, or of another thread of its own: with run.comm_cores the loop's thread has buckets for
 * the one that moves the strategy. A signal (signals.h) wakes who sleeps on its flag; who sleeps in
 * poll, because news may come by a socket as well, is woken by a datagram. Only then: a rank that
 * works, or sleeps on a flag, is not disturbed.
 *
 * Each rank has an abstract Unix socket whose name the kernel chooses and the store tells. What is
 * sent to it is never looked at: it says that there is something to look for in shared memory, and
 * a stranger's datagram that there may be.
 *
 * A waiter says that it waits and then looks whether it was rung for; who rings does it the other
 * way round; in the one order of these four accesses one of the two sees the other. What was rung
 * for before the waiter looked through its shared memory the last time costs a wait that is none.
 */
#ifndef DPB_PLUGINS_LIB_DOORBELL_H
#define DPB_PLUGINS_LIB_DOORBELL_H

#include "dpbench/host.h"

/* In shared memory that started as zeros, one a rank. */
struct bell_page {
    uint32_t waiting, rung;
    uint8_t unused[DPB_CACHE_LINE - 8];
};

struct doorbell;
struct signals;

/* Collective over the ranks of a machine that see each other's signals (@borrowed until close).
 * `name`: prefix of the keys in the store, once a job. *doorbell is @owned: doorbell_close; NULL:
 * nobody rings. The functions below accept that. */
dpb_status doorbell_open(const struct signals *signals, const struct dpb_comm_args *args,
                         const char *name, struct doorbell **doorbell);
/* Something was written that another rank of this machine may wait for. Any thread. A system call
 * for each rank that sleeps. */
void doorbell_ring(const struct doorbell *doorbell);
/* For who waits, one thread, in this order. `arm`: false: it was rung since the last disarm, so
 * there is something to look at, and not to be waited. Then poll of `fd` and of others; then
 * `disarm`, in either case, and after it a look at shared memory. `readable`: poll has reported
 * `fd`, or the caller does not know. */
bool doorbell_arm(struct doorbell *doorbell);
int doorbell_fd(const struct doorbell *doorbell); /* readable when it was rung; -1: there is none */
void doorbell_disarm(struct doorbell *doorbell, bool readable);
bool doorbell_was_rung(const struct doorbell *doorbell); /* since the last disarm */
void doorbell_close(struct doorbell *doorbell);

#endif
