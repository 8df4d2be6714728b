/*
 * store_server.h - the launcher's side of the key-value store (world/store.h): one thread, which
 * never blocks.
 */
#ifndef DPB_CORE_LAUNCH_STORE_SERVER_H
#define DPB_CORE_LAUNCH_STORE_SERVER_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/deadline.h"
#include "dpbench/status.h"

struct dpb_store_server;

dpb_status dpb_store_server_create(uint32_t n_ranks, struct dpb_store_server **server);
void dpb_store_server_destroy(struct dpb_store_server *server); /* accepts NULL; closes all */
void dpb_store_server_attach(struct dpb_store_server *server, uint32_t rank,
                             int fd); /* takes over */
/* Fills one entry a rank, for poll. */
void dpb_store_server_watch(const struct dpb_store_server *server, struct pollfd *fds);
void dpb_store_server_serve(struct dpb_store_server *server, uint32_t rank, short events);
/* Answers requests whose deadline has passed by `ran_ns`, of dpb_ran_ns. Returns the nearest one
 * left. */
struct dpb_deadline dpb_store_server_expire(struct dpb_store_server *server, int64_t ran_ns);
/* The process of `rank` has ended: handles its last frames, and answers ranks that wait for it. */
void dpb_store_server_detach(struct dpb_store_server *server, uint32_t rank);
/* The same, and the others continue without it: at barriers, and in dpb_store_get_from. */
void dpb_store_server_lose(struct dpb_store_server *server, uint32_t rank);
bool dpb_store_server_said_bye(const struct dpb_store_server *server, uint32_t rank);
/* Whether `rank` waits for an answer: for a key or at a barrier. A take without a deadline does not
 * count. */
bool dpb_store_server_waits(const struct dpb_store_server *server, uint32_t rank);
/* Called for each DPB_STORE_POST. */
typedef void (*dpb_store_on_post)(void *context, uint32_t rank, const void *value, uint32_t bytes);
void dpb_store_server_on_post(struct dpb_store_server *server, dpb_store_on_post call,
                              void *context);
/* Whether the rank's connection has ended: no further request of it will be served. */
bool dpb_store_server_closed(const struct dpb_store_server *server, uint32_t rank);
/* The fault of a request of `rank`; NULL: none. */
const char *dpb_store_server_fault(const struct dpb_store_server *server, uint32_t rank);

#endif
