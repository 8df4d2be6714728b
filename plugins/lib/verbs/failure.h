/*
 * failure.h - an error of verbs in words: what failed, where, and what to look at.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_FAILURE_H
#define DPB_PLUGINS_LIB_VERBS_FAILURE_H

#include "lib/verbs/link.h"

/* A completion that is none, on the queue pair of `link`: of a write of `what` ("step 12, bucket 3
 * (4096 bytes)"; NULL: of a credit, or of something that was to be received). It is a cause also
 * where a peer is gone: one whose process ended was missed by the launcher long before a card gives
 * up. */
dpb_status failure_of_completion(const struct dpb_host *host, const struct link *link,
                                 const struct ibv_wc *completion, const char *what);

/* Memory that could not be registered; `error` is errno's. */
dpb_status failure_of_registration(const struct dpb_host *host, const char *what, uint64_t bytes,
                                   int error);

/* An event of the device beside the completions. DPB_OK: it may pass, and is only logged. */
dpb_status failure_of_event(const struct dpb_host *host, const struct port *port,
                            const struct ibv_async_event *event);

#endif
