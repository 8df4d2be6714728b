/*
 * ps_back.h - comm.codec_back: ps_cpu with a codec on the way back, too.
 *
 *     shard     sum of the workers' messages + its own residual -> an answer, a new residual
 *     worker    gradients <- the decoded answer; each worker updates all weights
 *
 * Answers are messages of the same codec. All workers decode the same answers, so all hold the same
 * bits. In the steps before the codec begins an answer is the sum itself.
 *
 * An answer lies in the shard's scratch, at a place for each bucket, where workers of its machine
 * read it. The shard sends the answer to workers of other machines, into the same place of their
 * scratch. One place is enough: the next answer of a bucket needs a message of each worker, and a
 * worker sends this message after its exchange is over.
 *
 * The residual of a worker's shard is in that worker's scratch. The residual of a server process is
 * in the scratch of its keeper, the first worker of the machine. So workers alone can prove and
 * save all residuals. Core refuses a server on a machine without workers.
 *
 * Books: residuals of shards and of workers are worth 1/W.
 *
 * Tang et al.: DoubleSqueeze: parallel stochastic gradient descent with double-pass
 * error-compensated compression. ICML 2019.
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_BACK_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_BACK_H

#include "comm/ps_cpu/shards.h"
#include "lib/coded/coded.h"

/* Of an answer: it encodes a sum and a residual, and is taken off the residual. */
enum { PS_BACK_ROUNDINGS = 3 };

/* A rank's part; zeroed before `bind`, but for `at`. */
struct ps_back {
    uint64_t at;   /* offset in the scratch */
    char *answers; /* in the own scratch, in slots of answer_slot bytes */
    uint64_t answer_slot;
    float *residual;              /* in a worker's scratch */
    struct dpb_coded_share share; /* workers */
    dpb_status status;            /* an answer was refused */
};

/* Bytes in a scratch for answers, and for a residual with all elements of the model. */
uint64_t ps_back_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements);
/* After dpb_strategy_bind. */
void ps_back_bind(struct ps_back *back, const struct dpb_strategy *base);
void ps_back_load(struct ps_back *back, const struct dpb_strategy *base);
/* Refuses a checkpoint's residuals of other buckets or shards. */
dpb_status ps_back_begin(const struct ps_back *back, const struct dpb_strategy *base);

/* A shard: the sum of a bucket's messages, of which this is one, becomes the bucket's answer. */
void ps_back_encode(struct ps_back *back, const struct dpb_strategy *base, uint64_t bucket,
                    const struct dpb_coded_message *message, const float *sum);
/* A worker: the answer is here; decodes it to the gradients. */
void ps_back_decode(struct ps_back *back, const struct dpb_strategy *base, uint64_t bucket);

/* For the strategy's hooks: adds the residual, behind what coded.h adds. */
void ps_back_books(const struct ps_back *back, const struct dpb_strategy *base,
                   struct dpb_books *books);
void ps_back_state(struct ps_back *back, const struct dpb_strategy *base, struct dpb_saved *saved);

#endif
