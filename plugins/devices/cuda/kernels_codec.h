/*
 * kernels_codec.h - the kernels of codecs on gradients in device memory (kernels_codec.cu,
 * kernels_powersgd.cu). Each function enqueues and returns; a launch that fails shows in
 * cudaGetLastError().
 */
#ifndef DPB_CUDA_KERNELS_CODEC_H
#define DPB_CUDA_KERNELS_CODEC_H

#include <cuda_runtime_api.h>

#include "dpbench/codec.h"

struct powersgd_matrix;

#ifdef __cplusplus
extern "C" {
#endif

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

/* powersgd, for one matrix. multiply: its factor of a round. take: the state, from the sum of the
 * factors. settle: gradients and residual, from the last sum, for elements of the part from `from`
 * to the matrix' end. */
void cuda_powersgd_multiply(cudaStream_t stream, const struct dpb_codec_part *part,
                            const struct powersgd_matrix *m, const float *gradients,
                            const float *residual, float *factor);
void cuda_powersgd_take(cudaStream_t stream, const struct dpb_codec_part *part,
                        const struct powersgd_matrix *m, const float *sum);
void cuda_powersgd_settle(cudaStream_t stream, const struct dpb_codec_part *part,
                          const struct powersgd_matrix *m, uint64_t from, const float *sum,
                          float *gradients, float *residual);

#ifdef __cplusplus
}
#endif

#endif
