/*
 * adapter.h - what a rank has of an RDMA device, whatever it sends: a port, one queue into which
 * all of its connections (link.h) complete, and registered memory. A mesh (mesh_verbs.h) has one.
 */
#ifndef DPB_PLUGINS_LIB_VERBS_ADAPTER_H
#define DPB_PLUGINS_LIB_VERBS_ADAPTER_H

#include <poll.h>

#include "lib/doorbell.h"
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

/* The descriptors that wake who waits, in this order. */
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
/* The next of them (there are some). */
const struct ibv_wc *adapter_take(struct adapter *adapter);

/* For who is about to wait. With comm.poll it first looks for completions for some ms, until there
 * are some or the doorbell (may be NULL) is rung. Then, unless *some, asks for an event with the
 * next completion, and fills in what poll(2) has to look at. */
dpb_status adapter_arm(struct adapter *adapter, const struct doorbell *doorbell,
                       struct pollfd fds[ADAPTER_FDS], bool *some);
/* After poll(2), which has filled in `fds`: takes the events; those of a failed device are
 * errors. */
dpb_status adapter_woken(struct adapter *adapter, const struct pollfd fds[ADAPTER_FDS]);

/* All queue pairs and regions are gone. A zeroed one, too. */
void adapter_close(struct adapter *adapter);

#endif
