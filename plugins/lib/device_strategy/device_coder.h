/*
 * device_coder.h - a codec's work on a bucket (coded.h), enqueued by a device's queue. The strategy
 * brings the messages: device_coded.h by copies from device to device, comm nccl by NCCL.
 *
 *     encode    gradients + residual -> a message, of one round also a new residual
 *     add       sum += a message
 *     finish    of two rounds: the sum of a round -> after the last one gradients and residual
 *
 * All calls for one bucket are enqueued in an order. Rounds, and of one round encodings, share
 * memory: the strategy enqueues them in one queue, or waits between them.
 */
#ifndef DPB_PLUGINS_LIB_DEVICE_CODER_H
#define DPB_PLUGINS_LIB_DEVICE_CODER_H

#include "lib/coded/coded.h"

/* The strategy's client. On the host, struct dpb_coded is all. */
struct dpb_device_coder {
    struct dpb_coded coded; /* first */
    const struct dpb_queue_ops *ops;
    void *device;
    void *room; /* of the device's encode */
};

/* Pinned memory that the device writes about a bucket: samples (dpb_coded_sample), and as in
 * struct dpb_queue_ops, `decode`. @borrowed until the work is done. */
struct dpb_device_told {
    float *gradients, *residual; /* DPB_CODED_SAMPLE, or the longest bucket if that is shorter */
    uint32_t *refused;
};

/* In `bind`: ops and memory, before dpb_coded_bind. When nothing is under way, the client's hook
 * `close` calls dpb_device_coder_close, which ends with dpb_coded_close. */
dpb_status dpb_device_coder_open(struct dpb_strategy *strategy, const struct dpb_arenas *arenas);
void dpb_device_coder_close(struct dpb_strategy *strategy);

/* The part of the exchange under way. */
struct dpb_codec_part dpb_device_coder_part(const struct dpb_strategy *strategy, uint32_t rank,
                                            uint64_t bucket, uint32_t round);
/* *bytes are known at the return, and equal on all workers. */
dpb_status dpb_device_coder_encode(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                   const struct dpb_codec_part *part,
                                   const struct dpb_device_told *told, void *message,
                                   uint64_t *bytes);
dpb_status dpb_device_coder_add(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                const struct dpb_codec_part *part,
                                const struct dpb_device_told *told, const void *message,
                                uint64_t bytes, float *sum);
/* Nothing for a codec of one round. `sum` is ignored where the codec has not started. */
dpb_status dpb_device_coder_finish(const struct dpb_strategy *strategy, struct dpb_queue *queue,
                                   const struct dpb_codec_part *part,
                                   const struct dpb_device_told *told, const float *sum);
/* Adds the norms of the samples that the device has written. */
void dpb_device_coder_read(const struct dpb_codec_part *part, const struct dpb_device_told *told,
                           bool gradients, bool residual, struct dpb_coding *coding);
/* DPB_OK, or names the rank whose message the device has refused. */
dpb_status dpb_device_coder_check(const struct dpb_strategy *strategy, uint64_t bucket,
                                  const struct dpb_device_told *told);

#endif
