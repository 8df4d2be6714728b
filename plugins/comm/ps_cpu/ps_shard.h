/*
 * ps_shard.h - a rank of ps_async: its options and their rule, its state, the words between workers
 * and servers, and the server, which holds one shard of the model.
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_SHARD_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_SHARD_H

#include <stdio.h>

#include "comm/ps_cpu/ps.h"
#include "dpbench/plugin.h"

extern const struct dpb_plugin ps_async; /* beside ps_cpu in its plugin */

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

/* A worker's state on a server. */
struct ps_client {
    uint64_t clock;  /* turns taken: pushes, or fetches without a push */
    uint64_t pulled; /* version of the weights with which the worker computes */
    uint64_t oldest; /* the same, for the first gradients of its next push */
    uint64_t age;    /* of its last push */
    uint64_t met;    /* meetings for which it was given the model */
    uint64_t turn;   /* rule.sync: the update that its next gradients join */
    uint64_t warned; /* rule.sync: the word of ps_late_word last sent */
    uint64_t step;   /* of its last turn, for the log */
    int64_t taken_ns;
    bool pushes, fetches; /* in its last turn */
    bool pending;         /* its gradients are in the inbox, for the next update */
    bool untold;          /* its age was not sent yet */
    bool held;            /* its weights are held back */
    bool gives, model;    /* weights are being sent; for a meeting */
    uint64_t bucket;      /* the next to send */
    int64_t waited_ns;
};

/* The share of a worker's gradients of `step` that the server of a slice has applied. */
struct ps_applied {
    uint64_t step;
    struct dpb_range slice;
    double share;
};

struct ps_async {
    struct ps ps;
    struct ps_async_options options;
    struct ps_rule rule;
    uint32_t *machines; /* each rank on a machine of its own: links carry all */
    /* Workers: */
    uint64_t meetings;
    uint64_t unpushed, unfetched; /* steps since a push, or a fetch, including this one */
    uint64_t carried[LINKS_AGES]; /* by step: the push that carries its gradients */
    struct ps_applied applied;    /* core's last query; an empty slice: none */
    /* k_async, by server: the last turn in which it knows that this worker waits. */
    uint64_t *wait_turns;
    /* Servers: */
    struct ps_client *clients; /* by worker */
    uint64_t version;          /* updates */
    uint32_t n_taken;          /* gradients for the next update */
    bool banked;               /* some of them are in the own gradients */
    uint64_t ready;            /* the word last sent to worker 0: it may load */
    struct dpb_step step;      /* of the last push */
    FILE *log;
};

/* A worker's word to servers (links_say, links_tell_word): its past turns and meetings, and whether
 * it pauses. No worker waits for a pausing worker until its next turn. */
static inline uint64_t ps_word(uint64_t turns, uint64_t meetings, bool pauses)
{
    return turns << 32 | (meetings & 0x7fffffff) << 1 | pauses;
}

static inline uint64_t ps_word_meetings(uint64_t word)
{
    return word >> 1 & 0x7fffffff;
}

/* All workers that load send this word before worker 0 sends the weights. A server answers worker 0
 * once it has no more gradients that it could apply to these weights. */
static inline uint64_t ps_load_word(uint64_t turns, uint64_t meetings)
{
    return ps_word(turns, meetings + 1, true);
}

static inline uint64_t ps_ready_word(uint64_t meetings)
{
    return ps_word(0, meetings + 1, false);
}

/* A server's word to a worker: its exchange `exchange` will be dropped; 0 is no such word. */
static inline uint64_t ps_late_word(uint64_t exchange, uint64_t meetings)
{
    return ps_word(exchange, meetings, true);
}

/* The hook `serve`. */
dpb_status ps_shard_serve(void *comm);

#endif
