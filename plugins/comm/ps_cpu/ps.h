/*
 * ps.h - the parts of ps_cpu and ps_async: the strategies themselves (ps_cpu.c, ps_async.c), their
 * stages (ps_stages.c), and the links between workers and servers (links.c). ps_cpu has links only
 * to ranks of other machines, so none on one machine; ps_async has a link from each worker to each
 * server.
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_H

#include "lib/coded/coded.h"
#include "lib/mesh/mesh.h"
#include "lib/mesh/mesh_transport.h"
#include "lib/tcp/tcp_connect.h"
#include "lib/verbs/options.h"

enum { NONE = UINT32_MAX }; /* no rank, shard or link */
/* Indices into the choices of comm.transport. */
enum { PS_OVER_TCP, PS_OVER_VERBS };

struct ps_options {
    int transport;
    struct tcp_options tcp;
    struct verbs_options verbs; /* its interface is tcp.interface */
};

struct ps_cpu_options {
    struct ps_options ps;
    bool codec_back;
};

extern const char *const ps_transports[];

/* Rows of struct ps_options, for a struct that begins with one. */
#define PS_OPTION_ROWS(STRUCT, TRANSPORT)                                                        \
    {"transport", DPB_OPT_CHOICE, NULL, "tcp", 0, 0, ps_transports, offsetof(STRUCT, transport), \
     TRANSPORT},                                                                                 \
        TCP_OPTION_ROWS(STRUCT), VERBS_OPTION_ROWS(STRUCT)

/* ---- the strategy -------------------------------------------------------------------------- */

struct links;

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

enum { PS_STAGES = 5 };

struct ps {
    struct strategy base;
    struct mesh_transport *transport; /* the links own it from links_open on */
    struct links *links;              /* NULL: all ranks are on one machine */
    struct links_memory memory;       /* of the links */
    uint64_t notice_at, inbox_at;     /* offsets in the scratch */
    void *sum;                        /* for a piece; with a codec for a bucket */
    const void **sources;             /* of `sum`: one a worker, and one more; or messages */
    bool asynchronous;                /* this is ps_async */
    bool codes_back;                  /* ps_back.h, as the next four */
    uint64_t back_at;                 /* offset in the scratch */
    float *back_residual;             /* in a worker's scratch */
    struct coded_share back_share;    /* workers */
    dpb_status back_status;
    struct stage row[PS_STAGES]; /* of this rank */
    const struct stage *stages;  /* ps_async: a worker's two, in place of `row` */
    bool served;                 /* ps_async: this server has served the workers to their end */
};

extern const struct dpb_host *ps_host;
extern const struct dpb_plugin ps_async; /* ps_async.c */

/* `open` of both strategies; *comm is a zeroed struct of `bytes` that begins with a struct ps.
 * `local_rank`: among the ranks of the machine. */
dpb_status ps_create(const struct ps_options *options, const struct dpb_comm_args *args,
                     uint32_t local_rank, size_t bytes, void **comm);
/* Hooks. */
dpb_status ps_needs(const void *options, struct dpb_comm_needs *needs);
/* For the hook `contract`: refuses a comm.port that is too high for `last`, the last rank with a
 * link. */
dpb_status ps_check(const struct ps_options *options, uint32_t last);
dpb_status ps_plan(void *comm, const struct dpb_layout *layout, struct dpb_comm_plan *want);
dpb_status ps_bind(void *comm, const struct dpb_arenas *arenas);
dpb_status ps_load(void *comm);
dpb_status ps_begin(void *comm, const struct dpb_step *step);
void ps_close(void *comm);
/* Servers, before close: blocks until the network has taken everything for workers. */
dpb_status ps_serve_last(struct ps *ps);

/* Describes a wait for a rank, for a bucket of this element type. */
struct dpb_wait ps_wait_of(const struct ps *ps, uint32_t peer, uint64_t bucket, dpb_dtype type,
                           const char *purpose);
/* A worker pushes to other machines, or encodes for all, and pulls. A shard serves, and gives
 * updated weights to other machines. A rank may be both. Fills ps->row; returns the number of
 * stages. */
uint32_t ps_choose_stages(struct ps *ps);
/* Parts of a worker's stages. push: gradients may be pushed. pull: everything that the exchange
 * requests is here; ps_pull reports it. `ps` is a struct ps. */
bool ps_push_due(void *ps, uint64_t bucket);
dpb_status ps_push_wait(void *ps, uint64_t bucket);
bool ps_pull_due(void *ps, uint64_t bucket);
void ps_pull(void *ps, uint64_t bucket, struct stage_turn *turn);
dpb_status ps_pull_wait(void *ps, uint64_t bucket);

/* ---- shards -------------------------------------------------------------------------------- */

static inline struct rank_set ps_shards(const struct dpb_comm_args *args)
{
    return args->n_servers > 0 ? (struct rank_set){args->n_workers, args->n_servers}
                               : (struct rank_set){0, args->n_workers};
}

static inline bool ps_is_shard(const struct dpb_comm_args *args)
{
    return args->role == DPB_SERVER || args->n_servers == 0;
}

/* A worker raises this signal when the shards here can read its gradients or its message. */
static inline enum signal_kind ps_pushed(const struct strategy *base)
{
    return base->args.codec ? SIGNAL_PUSHED : SIGNAL_READY;
}

static inline bool ps_is_here(const struct dpb_comm_args *args, uint32_t rank)
{
    return args->machines[rank] == args->machines[args->rank];
}

/* The slice of a bucket of `length` elements that the shard of a rank owns, as elements of the
 * bucket. With a codec one shard owns all of a bucket, since a message has all of it. */
static inline struct dpb_range ps_slice(const struct dpb_comm_args *args, uint32_t rank,
                                        uint64_t bucket, uint64_t length)
{
    struct rank_set all = ps_shards(args);
    uint64_t turn = (rank - all.first + bucket) % all.n;
    if (args->codec)
        return (struct dpb_range){0, turn == 0 ? length : 0};
    return (struct dpb_range){length * turn / all.n, length * (turn + 1) / all.n};
}

/* The most elements that a shard owns, by ps_slice. */
uint64_t ps_most_owned(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements);

/* ---- links: messages to and from ranks of other machines ----------------------------------- */

enum { LINKS_AGES = 64 };

/* Whether args->rank has a link to `rank`. */
bool links_lead_to(const struct dpb_comm_args *args, uint32_t rank);
/* Bytes at the end of this rank's scratch for arriving gradients, and for `memory`. Give links_open
 * the same `memory`. */
uint64_t links_inbox_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                           uint64_t bucket_elements, const struct links_memory *memory);

/* Collective over all ranks of the job. `base` is bound, gets a doorbell, and is @borrowed until
 * close. The links own the transport from this call on, even if it fails. `inbox` has
 * links_inbox_bytes. */
dpb_status links_open(struct strategy *base, struct mesh_transport *transport, void *inbox,
                      const struct links_memory *memory, struct links **links);
/* As mesh_close. */
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
const struct coded_message *links_message(const struct links *links, uint32_t worker,
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

/* A worker's request in a turn. */
struct links_news {
    struct dpb_step step;
    bool pushes, fetches;
};

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
/* links->turn begins with the next links_push or links_ask. links_open sets a turn that pushes the
 * own gradients and fetches. */
struct links_turn {
    const void *gradients; /* the arena to push, the own one or the inbox; NULL: none */
    uint32_t n_gradients;  /* gradients summed in this arena */
    bool fetches;          /* new weights */
};

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
