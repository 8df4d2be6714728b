/*
 * failure.h - an error of verbs in words: the failed operation, its place, and things to check.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_FAILURE_H
#define DPB_PLUGINS_LIB_VERBS_FAILURE_H

#include "lib/verbs/link.h"

/* Fails for a completion with an error on the queue pair of `link`: of a write of `what` ("step 12,
 * bucket 3 (4096 bytes)"; NULL: of a credit, or of a receive). The failure is a cause even if the
 * peer is gone: the launcher notices an ended process long before a card gives up. */
dpb_status failure_of_completion(const struct dpb_host *host, const struct link *link,
                                 const struct ibv_wc *completion, const char *what);

/* Fails for memory that could not be registered; `error` is errno. */
dpb_status failure_of_registration(const struct dpb_host *host, const char *what, uint64_t bytes,
                                   int error);

/* Judges a device's event other than a completion. DPB_OK: the event is harmless and only
 * logged. */
dpb_status failure_of_event(const struct dpb_host *host, const struct port *port,
                            const struct ibv_async_event *event);

#endif
