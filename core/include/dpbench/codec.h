/*
 * codec.h - a codec: gradients in fewer bytes.
 *
 * A strategy that carries codecs (DPB_COMM_CODECS) encodes each bucket of its worker, brings the
 * message to all workers, and adds what each decodes to the sum in the order of the ranks: all
 * workers hold the same bits. A message loses some of what it encodes. The codec leaves this part
 * in a residual, which the carrier keeps. With error feedback it is part of the next message.
 *
 * A codec has no state of its own. All its hooks may be called by any thread; none blocks or
 * allocates. Elements are fp32; elements that are not finite make others of their bucket so.
 */
#ifndef DPBENCH_CODEC_H
#define DPBENCH_CODEC_H

#include "option.h"
#include "status.h"
#include "types.h"

/* Elements of the gradient arena that are encoded together: a bucket of one worker and step. */
struct dpb_codec_part {
    uint64_t first, n; /* elements [first, first + n); n is not 0 */
    uint64_t seed, step;
    uint32_t rank; /* that has encoded it */
};

struct dpb_codec_ops {
    /* Bytes of the longest message for n elements. */
    uint64_t (*bound)(const void *options, uint64_t n);
    /* Encodes gradients + residual into `message`, which is aligned to a cache line; returns the
     * message's bytes. Afterwards residual = gradients + residual - what the message decodes to,
     * each element within one rounding of the largest of the part. */
    uint64_t (*encode)(const void *options, const struct dpb_codec_part *part,
                       const float *gradients, float *residual, void *message);
    /* Adds the message's elements to `sum`. The message is aligned as above, and of at most
     * bound(n) bytes. It may come from a foreign process: a wrong length or index is refused by
     * host->fail with the codec's name and "rank N", part->rank. `sum` is undefined then. The
     * message may lie in a peer's memory: an index is loaded once, and what was loaded is
     * checked. */
    dpb_status (*decode)(const void *options, const struct dpb_codec_part *part,
                         const void *message, uint64_t bytes, float *sum);
};

/* The options of every codec begin with these, and its table with their rows. They are the
 * carrier's. */
struct dpb_codec_options {
    bool feedback;
    int64_t start_step;
};

#define DPB_CODEC_OPTION_ROWS DPB_CODEC_FEEDBACK_ROW, DPB_CODEC_START_STEP_ROW
#define DPB_CODEC_FEEDBACK_ROW                                                                 \
    {                                                                                          \
        "codec_feedback", DPB_OPT_BOOL, NULL, "yes", 0, 0, NULL,                               \
            offsetof(struct dpb_codec_options, feedback),                                      \
            "error feedback: what a message lacks is added to the next one; no: it is dropped" \
    }
#define DPB_CODEC_START_STEP_ROW                                                                \
    {                                                                                           \
        "codec_start_step", DPB_OPT_INT, NULL, "0", 0, 1e12, NULL,                              \
            offsetof(struct dpb_codec_options, start_step),                                     \
            "steps of a training whose gradients go as they are; the codec begins behind these" \
    }

/* What a strategy carries. @borrowed until close. */
struct dpb_codec {
    const char *name;
    const struct dpb_codec_ops *ops;
    const struct dpb_codec_options *options;
    uint64_t seed;
};

#endif
