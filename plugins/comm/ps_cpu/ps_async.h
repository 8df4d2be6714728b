/*
 * ps_async.h - the parts of ps_async: the strategy with its workers (ps_async.c), the server, which
 * holds one shard of the model (ps_shard.c), and the rule of its options (ps_rule.c).
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_ASYNC_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_ASYNC_H

#include <stdio.h>

#include "comm/ps_cpu/ps.h"

/* Indices into the choices of comm.rate. */
enum { PS_PLAIN, PS_STALENESS };

/* Indices into the choices of comm.policy. */
enum { PS_ASYNC, PS_K_SYNC, PS_K_BATCH_SYNC, PS_K_BATCH_ASYNC, PS_K_ASYNC };

/* When a server updates its shard, and which workers go on. */
struct ps_rule {
    uint32_t count; /* gradients of an update */
    bool batch;     /* a worker gets weights at once, not after the update that it is part of */
    bool sync;      /* an update takes gradients of the newest weights alone; others are dropped */
    bool rejoins;   /* gradients of new weights are for the next update, however many were missed */
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

/* What a server knows of a worker. */
struct ps_client {
    uint64_t clock;  /* turns taken: pushes, or fetches alone */
    uint64_t pulled; /* version of the weights that it computes with */
    uint64_t oldest; /* the same, of the first of the gradients that it pushes next */
    uint64_t age;    /* of its last push */
    uint64_t met;    /* meetings that it was given the model for */
    uint64_t turn;   /* rule.sync: the update that its next gradients are for */
    uint64_t warned; /* rule.sync: the word of ps_late_word last sent */
    uint64_t step;   /* of its last turn, for the log */
    int64_t taken_ns;
    bool pushes, fetches; /* in its last turn */
    bool pending;         /* its gradients are in the inbox, for the next update */
    bool untold;          /* the age */
    bool held;            /* the weights */
    bool gives, model;    /* weights are being sent; of a meeting */
    uint64_t bucket;      /* the next to send */
    int64_t waited_ns;
};

/* The part of a worker's gradients of `step` that the server of a slice has applied. */
struct ps_applied {
    uint64_t step;
    struct dpb_range slice;
    double share;
};

struct ps_async {
    struct ps ps;
    struct ps_async_options options;
    struct ps_rule rule;
    uint32_t *machines; /* each rank on one of its own: all goes over links */
    /* Workers: */
    uint64_t meetings;
    uint64_t unpushed, unfetched; /* steps since a push, or a fetch, with the one under way */
    uint64_t carried[LINKS_AGES]; /* by step: the push that brings its gradients */
    struct ps_applied applied;    /* the last that core asked for; an empty slice: none */
    uint64_t *told; /* k_async, by server: the last turn in which it knows that this worker waits */
    /* Servers: */
    struct ps_client *clients; /* by worker */
    uint64_t version;          /* updates */
    uint32_t n_taken;          /* gradients for the next update */
    bool banked;               /* some of them are in the own gradients */
    uint64_t ready;            /* the word last said to worker 0: it may load */
    struct dpb_step step;      /* of the last push */
    FILE *log;
};

/* What a worker says to servers (links_say, links_tell_word): turns and meetings behind it, and
 * whether it pauses: no worker waits for it until its next turn. */
static inline uint64_t ps_word(uint64_t turns, uint64_t meetings, bool pauses)
{
    return turns << 32 | (meetings & 0x7fffffff) << 1 | pauses;
}

static inline uint64_t ps_word_meetings(uint64_t word)
{
    return word >> 1 & 0x7fffffff;
}

/* All workers that load say so, before worker 0 sends the weights. A server answers worker 0 once
 * no gradients are left that it could apply to these weights. */
static inline uint64_t ps_load_word(uint64_t turns, uint64_t meetings)
{
    return ps_word(turns, meetings + 1, true);
}

static inline uint64_t ps_ready_word(uint64_t meetings)
{
    return ps_word(0, meetings + 1, false);
}

/* A server says to a worker that its exchange `exchange` will be dropped; 0 is no such word. */
static inline uint64_t ps_late_word(uint64_t exchange, uint64_t meetings)
{
    return ps_word(exchange, meetings, true);
}

/* An error, which has its message, where options contradict each other. */
dpb_status ps_make_rule(const struct ps_async_options *options, const struct dpb_comm_args *args,
                        struct ps_rule *rule);

/* The hook `serve`. */
dpb_status ps_shard_serve(void *comm);

#endif
