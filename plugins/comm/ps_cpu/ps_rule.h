/* ps_rule.h - the options of ps_async, and the rule that they make for a server. */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_RULE_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_RULE_H

#include "comm/ps_cpu/ps.h"

/* Indices into the choices of comm.rate. */
enum { PS_PLAIN, PS_STALENESS };

/* Indices into the choices of comm.policy. */
enum { PS_ASYNC, PS_K_SYNC, PS_K_BATCH_SYNC, PS_K_BATCH_ASYNC, PS_K_ASYNC };

/* When a server updates its shard, and when workers get new weights. */
struct ps_rule {
    uint32_t count; /* gradients of an update */
    bool batch;     /* a worker gets weights at once, not after the update with its gradients */
    bool sync;      /* an update takes only gradients of the newest weights; others are dropped */
    bool rejoins;   /* gradients of new weights join the next update, even after missed ones */
};

struct ps_async_options {
    struct ps_options ps;
    int64_t bound; /* -1: none */
    int rate;
    int64_t softsync;
    int policy;
    int64_t k; /* 0: not given */
    const char *log;
    int64_t push_every, fetch_every;
};

/* Fails, with a message, if options contradict each other. */
dpb_status ps_make_rule(const struct ps_async_options *options, const struct dpb_comm_args *args,
                        struct ps_rule *rule);

#endif
