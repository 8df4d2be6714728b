/*
 * codecs.h - codecs on gradients in device memory: which there are (codecs.c), and their kernels
 * (kernels_codec.cu). Each function enqueues and returns; a launch that fails shows in
 * cudaGetLastError().
 */
#ifndef DPB_CUDA_CODECS_H
#define DPB_CUDA_CODECS_H

#include <cuda_runtime_api.h>

#include "dpbench/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- codecs.c: as in dpbench/queue.h -------------------------------------------------------- */

uint64_t cuda_coding_bytes(const struct dpb_codec *codec, uint64_t n);
dpb_status cuda_encode(cudaStream_t stream, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const float *gradients, float *residual,
                       void *message, void *room, uint64_t *bytes);
dpb_status cuda_decode(cudaStream_t stream, const struct dpb_codec *codec,
                       const struct dpb_codec_part *part, const void *message, float *sum,
                       uint32_t *refused);

/* ---- kernels -------------------------------------------------------------------------------- */

/* int8: scales, then integers. */
void cuda_encode_int8(cudaStream_t stream, const float *gradients, float *residual, void *message,
                      uint64_t n, bool stochastic, uint32_t key);
void cuda_decode_int8(cudaStream_t stream, const void *message, float *sum, uint64_t n);

/* topk: k indices, then k values. `velocity` and `added` are NULL without momentum. */
uint64_t cuda_topk_bytes(uint64_t n); /* of `room` */
void cuda_encode_topk(cudaStream_t stream, const struct dpb_codec_part *part,
                      const float *gradients, float *residual, void *message, uint32_t k,
                      float momentum, void *room);
void cuda_decode_topk(cudaStream_t stream, const struct dpb_codec_part *part, const void *message,
                      uint32_t k, float *sum, uint32_t *refused);

#ifdef __cplusplus
}
#endif

#endif
