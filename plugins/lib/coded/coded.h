/*
 * coded.h - carries a codec (dpbench/codec.h), for all strategies with DPB_COMM_CODECS or
 * DPB_COMM_ROUNDS.
 *
 *     encode    gradients + residual -> the own message, a new residual
 *     (bring)   the strategy brings all messages of the bucket to all workers
 *     decode    gradients <- the sum of all messages, in the order of the ranks
 *
 * A codec of two rounds encodes and decodes twice. The codec gets the sum of each round, and makes
 * gradients and residuals after the second. Instead, an all-reduce may add up the messages in
 * place (coded_sums.h).
 *
 * The strategy's ranks may be machines (struct dpb_rank_signals, `ranks`): a part then has the rank
 * in the job.
 *
 * Messages lie in two banks, of even and of odd exchanges. Exchange s + 2 may overwrite the
 * messages of exchange s. A worker begins s + 2 when it has all messages of s + 1. Each worker
 * sends these after it has decoded all messages of s. Messages that an all-reduce adds up have one
 * bank: no other worker reads them once a worker has their sum.
 *
 * In the first comm.codec_start_step steps the last round's message is the gradients themselves. A
 * round before it has an empty message.
 *
 * The books of a strategy that carries a codec: weights 1/W; residuals 1/W in units of gradients;
 * the sum of a velocity's additions to residuals -1/W. Without error feedback the array of
 * residuals adds up the dropped gradients.
 */
#ifndef DPB_PLUGINS_LIB_CODED_H
#define DPB_PLUGINS_LIB_CODED_H

#include "dpbench/codec.h"
#include "strategy.h"

/* Where messages lie. */
enum dpb_coded_way {
    DPB_CODED_GATHERED, /* all workers' messages in the scratch of each worker: gather.h's slots */
    DPB_CODED_SHARED,   /* each worker's in its own scratch (on a device: inbox), for all to read */
    DPB_CODED_SUMMED,   /* the own messages in the own scratch, where sums replace messages */
    DPB_CODED_APART     /* in memory of the strategy's own; of two rounds as DPB_CODED_SUMMED */
};

/* The way by all-reduces and all-gathers: all-reduces add up messages of two rounds. */
static inline enum dpb_coded_way dpb_coded_way_of(const struct dpb_codec *codec)
{
    return codec->ops->finish ? DPB_CODED_SUMMED : DPB_CODED_GATHERED;
}

/* A message of one bucket, round and worker, in a slot of the bank. */
struct dpb_coded_message {
    uint64_t bytes, step; /* `step` as in struct dpb_codec_part: a server has no step of its own */
    uint8_t unused[DPB_CACHE_LINE - 16];
    uint8_t content[];
};

/* How a strategy brings the messages of a bucket and round, or their sum, to all workers. */
struct dpb_coded_carrier {
    /* `post`: the own message is there. `here`: whether all workers' messages are here. `wait`
     * blocks until they may be here. `take`: all messages are here. */
    void (*post)(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
    bool (*here)(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
    dpb_status (*wait)(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
    void (*take)(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
    /* NULL; or of the carrier's own state (struct dpb_coded, `carried`): an exchange begins;
     * frees. */
    void (*begin)(struct dpb_strategy *strategy);
    void (*close)(struct dpb_strategy *strategy);
};

/* ---- the codec's sizes for the buckets of a layout ------------------------------------------- */

uint32_t dpb_coded_rounds(const struct dpb_codec *codec);
/* Returns a bucket's elements and tensors; the other members are 0. */
struct dpb_codec_part dpb_coded_part(const struct dpb_layout *layout, uint64_t bucket_elements,
                                     uint64_t bucket);
/* A slot for any of the messages of a round. */
uint64_t dpb_coded_slot_bytes(const struct dpb_codec *codec, const struct dpb_layout *layout,
                              uint64_t bucket_elements, uint32_t round);
/* For a message of any round. */
uint64_t dpb_coded_longest_slot_bytes(const struct dpb_codec *codec,
                                      const struct dpb_layout *layout, uint64_t bucket_elements);

/* ---- life ---------------------------------------------------------------------------------- */

/* dpb_strategy_open; with a codec also dpb_coded_attach. */
dpb_status dpb_coded_open(const struct dpb_host *host, const struct dpb_comm_args *args,
                          size_t bytes, void **comm);
/* With args->codec: makes the strategy's client, a zeroed struct of `bytes` that begins with a
 * struct dpb_coded. */
dpb_status dpb_coded_attach(struct dpb_strategy *strategy, size_t bytes);
/* The hook `contract`; as preset without a codec. */
void dpb_coded_contract(const struct dpb_comm_args *args, struct dpb_contract *contract);
/* `plan`, after the plan without a codec: contract and scratch; a worker's gradients become
 * private. DPB_CODED_SHARED: the scratch planned before is as large on all ranks. */
dpb_status dpb_coded_plan(struct dpb_strategy *strategy, const struct dpb_layout *layout,
                          enum dpb_coded_way way, struct dpb_comm_plan *want);
/* The hook `memory`, for the codec's part; nothing without a codec, and on a server. */
void dpb_coded_memory(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                      uint64_t bucket_elements, enum dpb_coded_way way,
                      struct dpb_comm_memory *memory);
dpb_status dpb_coded_bind(struct dpb_strategy *strategy); /* after dpb_strategy_bind */
/* The client's hook, for a client that begins with a struct dpb_coded and has its own. */
void dpb_coded_close(struct dpb_strategy *strategy);

/* ---- for stages ---------------------------------------------------------------------------- */

/* Slots of a bank: with a codec of one round, a bucket's number is its slot's. */
uint64_t dpb_coded_slot(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
/* The message of a worker in the exchange under way. */
struct dpb_coded_message *dpb_coded_message(const struct dpb_strategy *strategy, uint32_t rank,
                                            uint64_t slot);
/* The memory of all messages in the own scratch. */
void *dpb_coded_memory_of(const struct dpb_strategy *strategy, uint64_t *bytes);
/* The largest size of the message in a slot. */
uint64_t dpb_coded_content_bytes(const struct dpb_strategy *strategy, uint64_t slot);
/* The most bytes of any worker's message of the exchange under way: the same on all workers. */
uint64_t dpb_coded_most_bytes(const struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
/* Returns whether the codec has not started by this step. */
bool dpb_coded_is_plain(const struct dpb_strategy *strategy, uint64_t step);
/* Fills a message with the part of the gradients, encoded or plain; returns its bytes. */
uint64_t dpb_coded_fill(const struct dpb_strategy *strategy, const struct dpb_codec_part *part,
                        const float *gradients, float *residual, void *content);
void dpb_coded_encode(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
/* For a codec of one round: sum = the sum of the `messages`, by rank: one of each worker. If a
 * message is refused, dpb_coded_status returns the failure from then on. */
void dpb_coded_sum(struct dpb_strategy *strategy, uint64_t bucket,
                   const struct dpb_coded_message *const *messages, float *sum);
dpb_status dpb_coded_status(const struct dpb_strategy *strategy); /* DPB_OK without a codec, too */
/* Sums the messages of a round. After the last round the own gradients are the sum. Counts the
 * bytes read from others. */
void dpb_coded_decode(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);
/* The same with DPB_CODED_SUMMED: the own message already is the sum. */
void dpb_coded_take_sum(struct dpb_strategy *strategy, uint64_t bucket, uint32_t round);

/* The arena elements whose gradients have no use any more, once these elements of a bucket are
 * updated: the same; with args.whole all behind the last update, none before.
 *
 * They are to be cleared. No device writes the gradients between tensors, and a codec may decode 0
 * to another number, which would be encoded with the next step's gradients. */
struct dpb_range dpb_coded_spent(const struct dpb_strategy *strategy, uint64_t bucket,
                                 struct dpb_range updated);
/* The last stage: dpb_strategy_update_bucket, then clears the gradients that have no use. */
void dpb_coded_update(void *strategy, uint64_t bucket, struct dpb_stage_turn *turn);

/* For strategies whose ranks have residuals of some buckets only: names these buckets. A checkpoint
 * has a share beside the residuals, by rank. `load` sets it; core may then write a checkpoint's. */
struct dpb_coded_share {
    double bucket_elements, first, every;
};

struct dpb_saved_array dpb_coded_saved_share(struct dpb_coded_share *share);
/* In `begin`: refuses residuals of other buckets. */
dpb_status dpb_coded_check_share(const struct dpb_host *host, struct dpb_coded_share own,
                                 struct dpb_coded_share loaded);

/* Hooks for books and state; without a codec they name nothing. */
dpb_status dpb_coded_books(void *comm, struct dpb_books *books);
dpb_status dpb_coded_state(void *comm, struct dpb_saved *saved);
#define DPB_CODED_HOOKS .books = dpb_coded_books, .state = dpb_coded_state

/* Messages lie in memory that all workers share. */
extern const struct dpb_coded_carrier dpb_coded_shared;

/* dpb_strategy_bind, with the stages of a codec's buckets, and dpb_coded_bind. The last stage
 * clears the gradients. */
dpb_status dpb_coded_bind_stages(struct dpb_strategy *strategy, const struct dpb_arenas *arenas,
                                 const struct dpb_coded_carrier *carrier);

/* ---- for what stands on a codec: coded_sums.h, device_coded.h ------------------------------- */

enum { DPB_CODED_SAMPLE = 4096 /* elements of a bucket whose norms are measured */ };

struct dpb_coded {
    struct dpb_strategy_client client;       /* first */
    const struct dpb_coded_carrier *carrier; /* of dpb_coded_bind_stages */
    void *carried;                           /* the carrier's state */
    /* The device whose memory holds messages, residual and velocity, and its queue; NULL: host. */
    const struct dpb_device_arenas *place;
    struct dpb_queue *queue;
    uint64_t at; /* of the messages in a scratch, or on a device in an inbox */
    uint64_t slot_bytes[DPB_CODEC_ROUNDS];
    enum dpb_coded_way way;
    float *residual; /* of the own gradients; without feedback the sum of dropped gradients */
    float *velocity; /* the codec's, then its additions; both behind the residual. NULL: none */
    float *dropped;  /* without feedback: of the bucket at hand; else NULL */
    double steps;    /* since `load` */
    /* For a codec of two rounds: */
    float *sum; /* NULL where sums replace messages; like `state`, in the memory of `place` */
    float *state;
    uint64_t *state_at; /* by bucket: its first element; then their number */
    dpb_status status;
};

/* NULL: without a codec. */
static inline struct dpb_coded *dpb_coded_of(const struct dpb_strategy *strategy)
{
    return (struct dpb_coded *)strategy->client;
}

/* A bucket that `rank` has encoded or will. */
struct dpb_codec_part dpb_coded_part_of(const struct dpb_strategy *strategy, uint32_t rank,
                                        uint64_t bucket, uint32_t round, uint64_t step);
/* Whether `finish` makes gradients and residuals, in place of decode and encode. */
bool dpb_coded_finishes(const struct dpb_strategy *strategy, const struct dpb_codec_part *part);
/* If `finish` does not: all elements go in the last round. */
uint64_t dpb_coded_elements_of_round(const struct dpb_strategy *strategy,
                                     const struct dpb_codec_part *part);
/* Elements of the part whose norms are measured: other elements in each step. */
struct dpb_range dpb_coded_sample(const struct dpb_codec_part *part);
double dpb_coded_sum_squares(const float *values, uint64_t n);

#endif
