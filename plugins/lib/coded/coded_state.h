/*
 * coded_state.h - a worker's state of its codec, for the files behind coded.h and device_coded.h.
 */
#ifndef DPB_PLUGINS_LIB_CODED_STATE_H
#define DPB_PLUGINS_LIB_CODED_STATE_H

#include "lib/coded/coded.h"

enum { CODED_SAMPLE = 4096 /* elements of a bucket whose norms are measured */ };

struct coded {
    /* The device whose memory holds messages, residual and velocity, and its queue; NULL: host. */
    const struct dpb_device_arenas *place;
    struct dpb_queue *queue;
    uint64_t at; /* of the messages in a scratch, or on a device in an inbox */
    uint64_t slot_bytes[DPB_CODEC_ROUNDS];
    enum coded_way way;
    float *residual; /* of the own gradients; without feedback the sum of dropped gradients */
    float *velocity; /* the codec's, then its additions; both behind the residual. NULL: none */
    float *dropped;  /* without feedback: of the bucket at hand; else NULL */
    double steps;    /* since `load` */
    /* For a codec of two rounds: */
    float *sum; /* NULL with CODED_SUMMED; else, like `state`, in the memory of `place` */
    float *state;
    uint64_t *state_at; /* by bucket: its first element; then their number */
    dpb_status status;
};

/* Banks of each worker's messages; exchanges take the banks in turn. */
static inline uint32_t coded_banks(enum coded_way way)
{
    return way == CODED_SUMMED ? 1 : 2;
}

/* Bytes of the messages that a rank has room for. */
uint64_t coded_messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                              uint64_t bucket_elements, enum coded_way way);
/* A bucket that `rank` has encoded or will. */
struct dpb_codec_part coded_part_of(const struct strategy *strategy, uint32_t rank, uint64_t bucket,
                                    uint32_t round, uint64_t step);
/* Whether `finish` makes gradients and residuals, in place of decode and encode. */
bool coded_finishes(const struct strategy *strategy, const struct dpb_codec_part *part);
/* If `finish` does not: all elements go in the last round. */
uint64_t coded_elements_of_round(const struct strategy *strategy,
                                 const struct dpb_codec_part *part);
/* Elements of the part whose norms are measured: other elements in each step. */
struct dpb_range coded_sample(const struct dpb_codec_part *part);
double coded_sum_squares(const float *values, uint64_t n);

#endif
