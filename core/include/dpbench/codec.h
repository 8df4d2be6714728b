/*
 * codec.h - a codec: gradients in fewer bytes.
 *
 * For codecs, and for strategies that carry them. A first plugin does not need this header.
 *
 * A strategy that carries codecs (DPB_COMM_CODECS) encodes each bucket of its worker, brings the
 * message to all workers, and adds what each decodes to the sum in the order of the ranks: all
 * workers hold the same bits. A message loses some of what it encodes. The codec leaves this part
 * in a residual, which the carrier keeps. With error feedback it is part of the next message.
 *
 * Most codecs exchange one message a bucket. A codec with the hook `finish` exchanges sums, in two
 * rounds (DPB_COMM_ROUNDS). Its messages are fp32 elements, which are added up over the workers in
 * any order, the same for all:
 *
 *     for each round:  encode on each worker -> sum of all messages -> finish on each worker
 *
 * A codec has no memory of its own: a carrier keeps residuals and, between rounds and steps, the
 * state of a codec with `finish`. All hooks may be called by any thread; none blocks or allocates.
 * Elements are fp32; elements that are not finite make others of their bucket so.
 *
 * A codec may keep a velocity of its worker's gradients (momentum correction). The carrier then has
 * two more arrays for it, and the residual grows by more than the gradients.
 */
#ifndef DPBENCH_CODEC_H
#define DPBENCH_CODEC_H

#include "graph.h"
#include "option.h"
#include "status.h"
#include "types.h"

enum { DPB_CODEC_ROUNDS = 2 }; /* of a codec with `finish` */

/* Elements of the gradient arena that are encoded together: a bucket of one worker and step. */
struct dpb_codec_part {
    uint64_t first, n; /* elements [first, first + n); n is not 0 */
    uint64_t seed, step;
    uint32_t rank; /* the rank that encoded the part */
    /* For a codec with `finish`: */
    uint32_t round, n_workers;
    float *state; /* zeros when weights are loaded; the same bits on all workers. NULL in `state`
                     and `bytes` */
    /* For `encode` of a codec with a velocity, n elements each: the velocity, zeros when weights
     * are loaded; and the sum of all that a residual took beside gradients, for the books. NULL:
     * what is encoded is not a worker's gradients, but a sum of messages on its way back. */
    float *velocity, *added;
    /* The tensors with elements in the part, in arena order. The first may begin before the part,
     * the last may end behind it. Elements between tensors are 0. */
    const struct dpb_tensor *tensors;
    uint32_t n_tensors;
};

struct dpb_codec_ops {
    /* Bytes of the longest message for n elements. */
    uint64_t (*bound)(const void *options, uint64_t n);
    /* Encodes gradients + residual into `message`, which is aligned to a cache line; returns the
     * message's bytes. Afterwards residual = gradients + residual - what the message decodes to,
     * each element within one rounding of its own magnitudes. With a velocity v:
     * residual = gradients + v + residual - ..., and part->added += v. */
    uint64_t (*encode)(const void *options, const struct dpb_codec_part *part,
                       const float *gradients, float *residual, void *message);
    /* Adds the message's elements to `sum`. The message is aligned as above, and of at most
     * bound(n) bytes. It may come from a foreign process: a wrong length or index is refused by
     * host->fail with the codec's name and "rank N", part->rank. `sum` is undefined then. The
     * message may lie in a peer's memory: an index is loaded once, and what was loaded is checked.
     * Core also decodes copies, with other bytes behind those that `encode` reported. */
    dpb_status (*decode)(const void *options, const struct dpb_codec_part *part,
                         const void *message, uint64_t bytes, float *sum);

    /* True: `encode` keeps a velocity, which replaces the optimizer's. NULL: it does not. */
    bool (*velocity)(const void *options);

    /* ---- sums in two rounds: all of these, or none, but for `bytes` ---- */

    /* Elements of the part's state. Encode and finish may write them; a checkpoint has them. */
    uint64_t (*state)(const void *options, const struct dpb_codec_part *part);
    /* Bytes of each worker's message in part->round: of fp32 elements, and at most bound(n).
     * `encode` then only reads the residual, and `decode` adds the message to as many elements.
     * A codec of one round may set this hook alone, if messages are shorter than bound(n) in some
     * steps: the most bytes of any worker's message in part->step. A library's all-gather then
     * sends as many; without the hook it sends bound(n). */
    uint64_t (*bytes)(const void *options, const struct dpb_codec_part *part);
    /* `sum` is that of all messages of part->round, the same bits on all workers. After the last
     * round: D = what it decodes to; residual = gradients + residual - D / n_workers; gradients =
     * D. Each element of the residuals' sum is right within one rounding of its own magnitudes for
     * each worker. part->rank is the own. */
    void (*finish)(const void *options, const struct dpb_codec_part *part, const float *sum,
                   float *gradients, float *residual);
};

/* The options of every codec begin with these, and its table with their rows. The carrier reads
 * them. */
struct dpb_codec_options {
    bool feedback;
    int64_t start_step;
};

#define DPB_CODEC_OPTION_ROWS DPB_CODEC_FEEDBACK_ROW, DPB_CODEC_START_STEP_ROW
#define DPB_CODEC_FEEDBACK_ROW                                                                   \
    {                                                                                            \
        "codec_feedback", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL,                                 \
            offsetof(struct dpb_codec_options, feedback),                                        \
            "error feedback: the loss of a message is added to the next one; no: it is dropped", \
            NULL                                                                                 \
    }
#define DPB_CODEC_START_STEP_ROW                                                                 \
    {                                                                                            \
        "codec_start_step", DPB_OPT_INT, "steps", "0", 0, 1e12, NULL,                            \
            offsetof(struct dpb_codec_options, start_step),                                      \
            "steps of a training whose gradients go as they are; the codec begins behind these", \
            NULL                                                                                 \
    }

/* The codec that a strategy carries. @borrowed until close. */
struct dpb_codec {
    const char *name;
    const struct dpb_codec_ops *ops;
    const struct dpb_codec_options *options;
    uint64_t seed;
};

/* For host->coding: the work of a worker's codec. Times are of this worker alone. */
struct dpb_coding {
    int64_t encode_ns, decode_ns;
    uint64_t elements, message_bytes; /* encoded; of the own messages */
    /* Sums of squares over a sample of the encoded elements: of the gradients, and of the residual
     * (without error feedback: of the dropped part) once the message is made. */
    double gradients, residual;
};

#endif
