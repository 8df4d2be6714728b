/*
 * arenas.h - the arenas of a rank: made by the strategy's plan, on the host or in the memory of the
 * worker's device, and shared with the ranks of its machine.
 *
 * Every rank that has mapped memory of a device unmaps it before the owner releases it. Peers unmap
 * when the communicator is closed; owners release after the ranks have met once more. Where a run
 * fails no ranks meet, and shared memory is released by the end of the process.
 */
#ifndef DPB_CORE_EXCHANGE_ARENAS_H
#define DPB_CORE_EXCHANGE_ARENAS_H

#include "world/world.h"

enum {
    DPB_ARENA_WEIGHTS,
    DPB_ARENA_GRADIENTS,
    DPB_ARENA_SCRATCH,
    DPB_ARENA_INBOX,
    DPB_ARENA_KINDS
};

/* The memory behind struct dpb_arenas. Zeroed but for `device`: there is none. */
struct dpb_arena_memory {
    struct dpb_device_arenas device; /* the worker's device; else the host */
    bool on_device; /* all but scratch, and the optimizer's state, lie in memory of `device` */
    const struct dpb_device_arenas *place;   /* where weights and gradients lie */
    struct dpb_queue *queue;                 /* core's own, of `place` */
    struct dpb_mapping own[DPB_ARENA_KINDS]; /* private memory on the host */
    struct dpb_shared shared;                /* on the host, of all ranks of this machine */
    void *own_device[DPB_ARENA_KINDS], **peers_device; /* [rank * DPB_ARENA_KINDS + kind] */
    struct dpb_mapping sums;             /* plan->keeps_sums; pages of own ranges alone are used */
    uint64_t own_bytes[DPB_ARENA_KINDS]; /* on the host and the device; sums are gradients */
    bool own_shared[DPB_ARENA_KINDS], *direct;
    void **views;    /* [kind * ranks + rank]: struct dpb_arenas points into these */
    bool all_let_go; /* no peer has this rank's memory mapped any more */
    void *staging;   /* an arena's content, on the host: access.c */
};

/* Makes the arenas of `plan` and fills the pointers of *arenas. Collective. */
dpb_status dpb_arenas_make(struct dpb_arena_memory *memory, const struct dpb_comm_plan *plan,
                           const struct dpb_layout *layout, bool on_device,
                           struct dpb_arenas *arenas);
/* Unmaps the peers' memory on devices. */
void dpb_arenas_let_go(struct dpb_arena_memory *memory);
/* Closes core's queue, before any memory that its work reads or writes is released. */
void dpb_arenas_stop(struct dpb_arena_memory *memory);
/* Also after a dpb_arenas_make that failed. Keeps shared memory on a device unless all_let_go. */
void dpb_arenas_release(struct dpb_arena_memory *memory);

#endif
