/*
 * links.h - the links of ps_cpu between ranks of different machines, and of ps_async between all
 * workers and servers. Each worker has a link to each shard elsewhere, which answers on the same
 * link.
 *
 * A worker pushes each shard's part of a bucket. The part lands in memory that the shard keeps for
 * this worker, at a place for each bucket. The place is free again when the worker has the bucket's
 * new weights; the worker pushes no part to it before. New weights land in the worker's arena: its
 * own gradients of the bucket have come, so the worker reads these weights no more. So no message
 * needs credits. Between ranks of one machine (links_memory.machines) the same messages have no
 * payload: the shard reads the gradients in the memory that the worker pushes from, and writes new
 * weights into the worker's arena.
 *
 *     worker -> server   STEP       parameters of a turn, before its first gradients; whether it
 *                                   pushes and fetches. ps_cpu: both, a turn is an exchange
 *     worker -> shard    GRADIENTS  the shard's slice of a bucket; with a codec a message of it,
 *                                   and in `word` the step of this message
 *     shard -> worker    WEIGHTS    the same slice, updated; with how long this worker's gradients
 *                                   waited for others'
 *                                   comm.codec_back: the answer of the bucket (ps_back.h)
 *     worker 0 -> server LOAD       all weights
 *     server -> worker 0 LOADED     they have come
 * and of ps_async alone
 *     worker -> server   SAY        that it meets the others, or that nobody waits for it: `word`
 *     server -> worker   MODEL      the server's slices, once all workers meet
 *     server -> worker   SAY        that the exchange under way will not count, or that worker 0
 *                                   may load: `word`
 *     server -> worker   AGE        of the gradients of an exchange, in `word`
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_LINKS_H
#define DPB_PLUGINS_COMM_PS_CPU_LINKS_H

#include "comm/ps_cpu/shards.h"
#include "lib/coded/coded.h"
#include "lib/mesh/mesh.h"

enum { LINKS_AGES = 64 };

/* A rank's memory for its links, beside arriving gradients. */
struct links_memory {
    /* ps_back.h: answers replace weights, in slots of answer_slot bytes. NULL: weights. */
    char *answers;
    uint64_t answer_slot;
    bool keeps_sent; /* servers: the weights that were last given to each worker */
    bool accrues;    /* workers: a sum of gradients, in the inbox */
    /* The machine of each rank. Ranks of one machine then have links, too: their slices go through
     * shared memory, beside messages without payload. NULL: all slices are payload. @borrowed until
     * close. */
    const uint32_t *machines;
};

/* A worker's request in a turn. */
struct links_news {
    struct dpb_step step;
    bool pushes, fetches;
};

/* links->turn begins with the next links_push or links_ask. links_open sets a turn that pushes the
 * own gradients and fetches. */
struct links_turn {
    const void *gradients; /* the arena to push, the own one or the inbox; NULL: none */
    uint32_t n_gradients;  /* gradients summed in this arena */
    bool fetches;          /* new weights */
};

struct link;

struct links {
    const struct dpb_host *host;
    struct dpb_strategy *base;
    struct dpb_mesh *mesh;
    struct link *links; /* of links.c */
    uint32_t *by_rank;  /* NONE: on this machine */
    uint32_t n;
    uint64_t slice_elements; /* places in the outbox, and without a codec in the inbox */
    uint64_t inbox_slot;     /* bytes of a place in the inbox */
    struct links_memory memory;
    char *inbox; /* of all links; with links_memory.accrues an arena: the sum of gradients */
    uint64_t inbox_bytes;
    uint8_t *steps;   /* parameters: own, then of each rank */
    uint32_t *comers; /* workers whose turns are here whole, in order of arrival */
    uint64_t n_come, n_taken;
    struct links_turn turn;                /* of this worker */
    uint64_t n_turns, n_pushes, n_fetches; /* begun */
};

/* Whether args->rank has a link to `rank`. */
bool links_lead_to(const struct dpb_comm_args *args, uint32_t rank);
/* Bytes at the end of this rank's scratch for arriving gradients, and for `memory`. Give links_open
 * the same `memory`. */
uint64_t links_inbox_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements, const struct links_memory *memory);

/* Collective over all ranks of the job. `base` is bound, gets a doorbell, and is @borrowed until
 * close. The links own the transport from this call on, even if it fails. `inbox` has
 * links_inbox_bytes. */
dpb_status links_open(struct dpb_strategy *base, struct dpb_mesh_transport *transport, void *inbox,
                      const struct links_memory *memory, struct links **links);
/* As dpb_mesh_close. */
void links_close(struct links *links, bool through);

/* The hook `move` of the pipeline; also answers loads. */
dpb_status links_move(struct links *links, int64_t until_ns, bool *moved);
/* Blocks until any rank, here or elsewhere, has news; `what` names the missing one. */
dpb_status links_wait(struct links *links, const struct dpb_wait *what);
/* Moves messages; if none can be moved, waits. */
dpb_status links_advance(struct links *links, const struct dpb_wait *what);

/* The next functions send, or find room for, one message on each link concerned: */
/* The first rank that gets slices of gradients (`weights`: of weights) and takes none now; NONE:
 * all do. */
uint32_t links_crowded(const struct links *links, bool weights);
/* Sends own gradients of a bucket, or their message, to the shards elsewhere; before a turn's first
 * ones, the turn's parameters. */
void links_push(struct links *links, uint64_t bucket, uint64_t length);
/* Sends the own shard's new weights of a bucket to the workers elsewhere. `pushed_ns`: when the
 * last gradients had arrived. */
void links_give(struct links *links, uint64_t bucket, uint64_t length, int64_t pushed_ns);
/* The first rank with messages that the network has not taken; NONE: it has everything. */
uint32_t links_busy(const struct links *links);

/* Whether a worker's gradients of a bucket of this exchange are here; when they arrived. */
bool links_pushed(const struct links *links, uint32_t worker, uint64_t bucket);
int64_t links_push_came_ns(const struct links *links, uint32_t worker, uint64_t bucket);
/* When they began to arrive: the time before is the worker's, the time after is the network's. */
int64_t links_push_began_ns(const struct links *links, uint32_t worker, uint64_t bucket);
/* A worker's gradients from element `at` of this shard's slice on. */
void *links_gradients(const struct links *links, uint32_t worker, uint64_t bucket, uint64_t at);
/* With a codec, in place of gradients: a worker's message. */
const struct dpb_coded_message *links_message(const struct links *links, uint32_t worker,
                                              uint64_t bucket);
/* Whether a shard's new weights of a bucket are in the own arena, if the turn asks for weights. */
bool links_updated(const struct links *links, uint32_t shard, uint64_t bucket);
/* Reports a bucket's wait at a shard, and its transfer. */
void links_report(const struct links *links, uint32_t shard, uint64_t bucket);

/* Whether a worker has begun an exchange (from 0); whether it has left; worker 0's parameters. */
bool links_announced(const struct links *links, uint32_t worker, uint64_t exchange);
bool links_left(const struct links *links, uint32_t worker);
struct dpb_step links_step(const struct links *links);

/* Worker 0, between exchanges: sends its weights to the servers elsewhere. Blocks until all have
 * them. */
dpb_status links_load(struct links *links);

/* ---- one worker at a time: ps_async; servers ----------------------------------------------- */

/* Takes the earliest whole turn that is not taken yet; returns its worker. The gradients are here
 * (links_gradients), if the turn pushes. NONE: there is none. */
uint32_t links_next_turn(struct links *links, struct links_news *news);
/* Call this when the worker's whole request is sent and its gradients are used. */
void links_end_turn(struct links *links, uint32_t worker, bool pushes);
/* Copies the own shard's weights for this worker: links_give_one sends the copy. */
void links_keep_sent(struct links *links, uint32_t worker);
/* Sends the copy of a bucket: the weights of the worker's exchange, or (model) the model for a
 * worker that meets the others. `waited_ns`: how long the worker was held back. False: no room. */
bool links_give_one(struct links *links, uint32_t worker, uint64_t bucket, bool model,
                    int64_t waited_ns);
bool links_tell_age(struct links *links, uint32_t worker, uint64_t age);   /* false: no room */
bool links_tell_word(struct links *links, uint32_t worker, uint64_t word); /* likewise */
/* The last word from a worker or, on a worker, from a server; 0: none yet. For any thread. */
uint64_t links_said(const struct links *links, uint32_t rank);
/* Workers: blocks until `word` is the last word of each server. */
dpb_status links_await_word(struct links *links, uint64_t word);

/* ---- the same: workers --------------------------------------------------------------------- */

/* Sends `word` to all servers, between exchanges. `meets`: blocks until the weight arena has the
 * model of each. */
dpb_status links_say(struct links *links, uint64_t word, bool meets);
/* Replaces links_push in a turn that only fetches. From then on the weight arena may be written. */
void links_ask(struct links *links);
/* A turn between exchanges that pushes and does not fetch. Blocks until all servers have sent the
 * age. */
dpb_status links_push_alone(struct links *links);
/* Whether a server has sent the age of this turn's gradients (true if the turn pushes none); the
 * age of one of the last LINKS_AGES pushes. */
bool links_aged(const struct links *links, uint32_t shard);
uint64_t links_age(const struct links *links, uint32_t shard, uint64_t push);

#endif
