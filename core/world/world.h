/*
 * world.h - the job as one of its ranks sees it: its own rank, the other ranks, the ways to reach
 * them. The local launcher makes the job, or another one with its parts (party.h).
 *
 * One world a process: dpb_world is set by dpb_world_open and read everywhere.
 */
#ifndef DPB_CORE_WORLD_WORLD_H
#define DPB_CORE_WORLD_WORLD_H

#include "dpbench/comm.h"
#include "dpbench/host.h"
#include "world/board.h"
#include "world/hello.h"

struct dpb_world {
    uint32_t rank, n_workers, n_servers, n_ranks;
    uint32_t n_machines, n_local; /* machines of the job; ranks of this one */
    uint32_t *machines;           /* of each rank; ranks of one machine share memory */
    dpb_role role;
    char host[64];
    char launcher[16];     /* "local", "mpirun", "srun", "environment", "pmix" */
    struct dpb_seat place; /* among the ranks that divide this one's cores */
    bool parted;           /* each rank has a launcher and a board of its own: launch/party.h */
    char *config;          /* the job's configuration from the launcher: JSON text */
    struct dpb_board *board;
    int64_t timeout_ns; /* run.timeout_s: the default deadline of every wait; set by dpb_rank_run */
    bool may_spin;      /* no more processes than cores: short waits may spin */
};

extern struct dpb_world dpb_world;

/* True when this process was started by dpb_launch as a rank. */
bool dpb_world_is_rank(void);
/* Whether `rank` shares memory with this one. */
bool dpb_world_is_local(uint32_t rank);
uint32_t dpb_world_machines(void); /* the host's `n_machines` */
/* Takes over the launcher's environment and descriptors: fills dpb_world, connects the store, sets
 * the log's prefix and hooks. The process ends when the launcher dies. */
dpb_status dpb_world_open(void);
void dpb_world_close(void);

extern const struct dpb_store_ops dpb_store; /* host.h */
/* From now on keys and barriers belong to the scope `name` ("": none, as at first), up to 30
 * characters. So an object that is opened again may use its names again. All ranks change the scope
 * between the same calls of the store, and none has a call under way then. */
void dpb_store_scope(const char *name);
extern const struct dpb_flag_ops dpb_flags;
extern const struct dpb_event_ops dpb_events;

/* The host's `poll`. */
struct pollfd;
dpb_status dpb_world_poll(struct pollfd *fds, uint32_t n, const struct dpb_wait *what,
                          int64_t *waited_ns);
/* The host's `patience`. */
dpb_status dpb_world_patience(const struct dpb_wait *what, int64_t *begin_ns);
/* connect.c: the host's `connect`. */
dpb_status dpb_world_connect(const struct dpb_connect_args *args);
/* From now on, when *stop is not 0, all waits of this thread end as, and as soon as, waits in a job
 * that is ending; NULL: no more. @borrowed until then. */
void dpb_world_heed(const uint32_t *stop);

/* Writes phase, bucket and peer into the own status page; the host's `note`. Step by the loop. */
void dpb_world_note(const char *phase, uint64_t bucket, uint32_t peer);
/* From now on notes of the calling thread, which exchanges for the rank's own thread, are kept
 * aside. While the own thread waits for this one, from show_aside(true) to show_aside(false), the
 * page shows the last such note, unless its phase is "". One such thread a rank. */
void dpb_world_note_aside(void);
void dpb_world_show_aside(bool shows);
/* The step on the status page, which the loop of training or exchanges writes. Any thread. */
void dpb_world_begin_step(uint64_t step);
uint64_t dpb_world_step(void);
/* Writes a fact into the own page; the host's `report`. */
void dpb_world_report(const char *name, const char *format, ...) DPB_PRINTF(2, 3);
/* Begins the own status page; from now on errors and warnings of the log go there. */
void dpb_world_open_page(void);
/* Describes a rank's state by its status page and the system: "rank 1 (pid 812) is in phase
 * 'forward' of step 6 for 3.2 s". For messages. */
void dpb_peer_describe(uint32_t rank, char *text, size_t size);

/* ---- memory shared by the ranks of a machine ----------------------------------------------- */

/* A mapping of `bytes` (may be 0): a memfd called `name`, zeroed, advised for huge pages when
 * large. */
struct dpb_mapping {
    void *memory;
    size_t bytes;
    int fd; /* -1: anonymous, or closed after sharing */
    /* 0; or the addresses from `memory` on, which show the `bytes` again and again. */
    size_t window;
};

/* /proc/PID/maps shows "/memfd:dpbench-NAME": tests read it. */
dpb_status dpb_mapping_create(const char *name, size_t bytes, struct dpb_mapping *mapping);
/* The same with a window. `bytes` are whole pages, and fewer than the window. */
dpb_status dpb_mapping_create_window(const char *name, size_t bytes, size_t window,
                                     struct dpb_mapping *mapping);
void dpb_mapping_destroy(struct dpb_mapping *mapping); /* accepts zeroed ones; zeroes it */

/* What a rank shares: `bytes` (0: nothing), and 0 or a window, as in struct dpb_mapping; `name` as
 * for dpb_mapping_create. */
struct dpb_offer {
    const char *name;
    size_t bytes, window;
};

/* Memory that the ranks of a machine have in common: of[rank * n + i] is that rank's i-th offer,
 * zeroes for ranks of other machines. */
struct dpb_shared {
    struct dpb_mapping *of, *whole; /* views of the n memories, and these */
    uint32_t n;
};

/*
 * Collective over all ranks of the job: each rank offers n parts (the same n everywhere) and gets
 * those of all ranks on its machine, its own too. Their pages are there once they are used.
 * Descriptors travel over abstract Unix sockets whose peers prove the same user and the job's
 * secret. `name` is used once a job. *shared is @owned: dpb_shared_destroy.
 */
dpb_status dpb_world_share(const char *name, const struct dpb_offer *mine, uint32_t n,
                           struct dpb_shared *shared);
void dpb_shared_destroy(struct dpb_shared *shared); /* accepts zeroed ones; zeroes it */
/* Likewise collective, between rank 0 and each other rank of its machine alone: of memory that each
 * has already. peers[rank * n + i] is filled; own entries are a copy of `mine`, do not destroy
 * them. */
dpb_status dpb_world_share_with_0(const char *name, const struct dpb_mapping *mine, uint32_t n,
                                  struct dpb_mapping *peers);
/* Sets the secret that peers must prove; called by dpb_world_open. */
void dpb_share_set_secret(const uint8_t secret[DPB_SECRET_BYTES]);

/*
 * Collective: every rank passes `value` for `what`; all must be equal, else every rank fails with a
 * message that names the first two ranks that differ and both values.
 */
dpb_status dpb_world_agree(const char *what, const char *value);
/* Blocks until all workers (not the servers) but lost ones have come here. For setup, not for
 * steps. */
dpb_status dpb_workers_meet(void);

#endif
