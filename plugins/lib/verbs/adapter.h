/*
 * adapter.h - a rank's part of an RDMA device, independent of messages: a port, one completion
 * queue of all the rank's connections (link.h), and registered memory. A mesh (mesh_verbs.h) has
 * one adapter.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_ADAPTER_H
#define DPB_PLUGINS_LIB_VERBS_ADAPTER_H

#include <poll.h>

#include "lib/signals/doorbell.h"
#include "lib/verbs/link.h"
#include "lib/verbs/options.h"

enum { ADAPTER_BATCH = 16 };

struct adapter {
    const struct dpb_host *host;
    struct verbs_options options;
    struct port port;
    struct ibv_pd *domain;
    struct ibv_comp_channel *channel;
    struct ibv_cq *completions;
    struct ibv_wc held[ADAPTER_BATCH]; /* polled, not yet looked at */
    int n_held, next_held;
};

/* The descriptors that wake a waiting rank, in this order. */
enum { ADAPTER_COMPLETION, ADAPTER_EVENT, ADAPTER_FDS };

/* Opens the port; refuses by name. The options are copied, with @borrowed strings. */
dpb_status adapter_open(const struct dpb_host *host, const struct verbs_options *options,
                        uint32_t local_rank, struct adapter *adapter);
/* The protection domain and a queue for so many completions. */
dpb_status adapter_make_queue(struct adapter *adapter, uint32_t n_completions);
/* Memory that peers may write to; `what` is its name in messages. */
dpb_status adapter_register(const struct adapter *adapter, const char *what, void *memory,
                            uint64_t bytes, struct ibv_mr **region);
void adapter_deregister(struct ibv_mr *region); /* accepts NULL */

/* Whether there are completions to look at; a queue that cannot be polled is an error. */
dpb_status adapter_poll(struct adapter *adapter, bool *some);
/* Returns the next completion (there is one). */
const struct ibv_wc *adapter_take(struct adapter *adapter);

/* Call before waiting. Fills in `fds` for poll(2). With comm.poll first polls for completions, for
 * some ms, until there is one or the doorbell (may be NULL) is rung. Then, unless *some, requests
 * an event for the next completion. */
dpb_status adapter_arm(struct adapter *adapter, const struct dpb_doorbell *doorbell,
                       struct pollfd fds[ADAPTER_FDS], bool *some);
/* Call after poll(2) on `fds`. Takes the events; an event of a failed device is an error. */
dpb_status adapter_woken(struct adapter *adapter, const struct pollfd fds[ADAPTER_FDS]);

/* All queue pairs and regions are destroyed before. Accepts a zeroed adapter. */
void adapter_close(struct adapter *adapter);

#endif
