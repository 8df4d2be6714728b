/*
 * codecs.h - codecs on gradients in device memory: functions of queues, as in dpbench/queue.h. Each
 * enqueues and returns.
 */
#ifndef DPB_CUDA_CODECS_H
#define DPB_CUDA_CODECS_H

#include "dpbench/codec.h"

struct dpb_queue;

uint64_t cuda_coding_bytes(const struct dpb_codec *codec, uint64_t n);
dpb_status cuda_encode(struct dpb_queue *queue, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const float *gradients, float *residual,
                       void *message, void *room, uint64_t *bytes);
dpb_status cuda_decode(struct dpb_queue *queue, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const void *message, float *sum,
                       uint32_t *refused);
dpb_status cuda_finish(struct dpb_queue *queue, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const float *sum, float *gradients,
                       float *residual);

#endif
