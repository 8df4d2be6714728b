/*
 * coded_state.h - what a worker keeps of its codec, for the files behind coded.h and
 * device_coded.h.
 */
#ifndef DPB_PLUGINS_LIB_CODED_STATE_H
#define DPB_PLUGINS_LIB_CODED_STATE_H

#include "lib/coded.h"

enum { CODED_SAMPLE = 4096 /* elements of a bucket whose norms are measured */ };

struct coded {
    /* Whose memory has messages, residual and velocity, and a queue of it; NULL: the host's. */
    const struct dpb_device_arenas *place;
    struct dpb_queue *queue;
    uint64_t at; /* of the messages in a scratch, or on a device in an inbox */
    uint64_t slot_bytes[DPB_CODEC_ROUNDS];
    enum coded_way way;
    float *residual; /* of the own gradients; without feedback the sum of what was dropped */
    float *velocity; /* of the codec, then what it has added; behind the residual. NULL: none */
    float *dropped;  /* without feedback: of the bucket at hand; else NULL */
    double steps;    /* since `load` */
    /* Of a codec of two rounds: */
    float *sum; /* NULL with CODED_SUMMED; else with `place` in its memory, as the state */
    float *state;
    uint64_t *state_at; /* by bucket: its first element; then their number */
    dpb_status status;
};

/* Each worker's messages have so many banks, exchange by exchange. */
static inline uint32_t coded_banks(enum coded_way way)
{
    return way == CODED_SUMMED ? 1 : 2;
}

/* Bytes of the messages that a rank has room for. */
uint64_t coded_messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                              uint64_t bucket_elements, enum coded_way way);
/* Of the codec's state. */
uint64_t coded_state_elements(const struct strategy *strategy);
/* A bucket that `rank` has encoded or will. */
struct dpb_codec_part coded_part_of(const struct strategy *strategy, uint32_t rank, uint64_t bucket,
                                    uint32_t round, uint64_t step);
/* Whether `finish` makes gradients and residuals, in place of decode and encode. */
bool coded_finishes(const struct strategy *strategy, const struct dpb_codec_part *part);
/* Where it does not: all elements go in the last round. */
uint64_t coded_elements_of_round(const struct strategy *strategy,
                                 const struct dpb_codec_part *part);
/* Elements of the part whose norms are measured: others in each step. */
struct dpb_range coded_sample(const struct dpb_codec_part *part);
double coded_sum_squares(const float *values, uint64_t n);

#endif
