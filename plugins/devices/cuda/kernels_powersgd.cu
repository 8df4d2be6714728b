/*
 * kernels_powersgd.cu - codec powersgd, bit for bit as plugins/codecs has it on the host: products
 * of vectors are summed in its order (codecs/powersgd.h). Compiled without fused multiply-adds
 * (mk/cuda.mk).
 */
#include <float.h>

#include "kernels_codec.h"
#include "codecs/powersgd.h"
#include "codecs/topk.h"
#include "dpbench/random.h"
#include "kernel.h"

enum { LANES = POWERSGD_LANES };

/* Threads of a block: whole groups of LANES, and no more than there is work for. */
static unsigned threads_for(index_t n)
{
    const index_t most = THREADS, whole = (n + LANES - 1) / LANES * LANES;
    return (unsigned)(whole < most ? whole : most);
}

/* By LANES threads, which all get it, in the host's order; the first vector is a + more, or a where
 * `more` is NULL. All threads of the block call it. */
static __device__ float dot(const float *a, const float *more, const float *b, index_t n,
                            float *room)
{
    const uint32_t lane = threadIdx.x % LANES;
    const float *const lanes = room + (threadIdx.x - lane);
    const index_t whole = n - n % LANES;
    float sum = 0.0F;
    UNROLLED for (index_t i = lane; i < whole; i += LANES) sum +=
        (more ? a[i] + more[i] : a[i]) * b[i];
    room[threadIdx.x] = sum;
    __syncthreads();
    sum = 0.0F;
    for (index_t i = whole; i < n; i++)
        sum += (more ? a[i] + more[i] : a[i]) * b[i];
    for (uint32_t l = 0; l < LANES; l++)
        sum += lanes[l];
    __syncthreads();
    return sum;
}

/* P = M Q. Threads of a group have a row and a column of Q. */
__global__ void multiply_rows(powersgd_matrix m, const float *gradients, const float *residual,
                              const float *q, float *p)
{
    __shared__ float room[THREADS];
    const index_t n = m.rows * m.rank, most = POWERSGD_CHUNK;
    const index_t groups = blockDim.x / LANES;
    for (index_t first = blockIdx.x * groups; first < n; first += gridDim.x * groups) {
        const index_t i = first + threadIdx.x / LANES;
        const index_t row = i / m.rank, k = i % m.rank, place = row * m.columns;
        const index_t left = i < n ? m.lacks + m.n - place : 0;
        const index_t end = left < m.columns ? left : m.columns;
        index_t begin = row == 0 ? m.lacks : 0;
        float product = 0.0F;
        for (index_t piece = 0; piece < m.columns; piece += most) {
            const index_t at = m.at + place + begin - m.lacks;
            index_t length = begin < end ? end - begin : 0;
            length = length < most ? length : most;
            product += dot(gradients + at, residual + at, q + k * m.columns + begin, length, room);
            begin += length;
        }
        if (i < n && threadIdx.x % LANES == 0)
            p[k * m.rows + row] = product;
    }
}

/* Q = M^T P */
__global__ void multiply_columns(powersgd_matrix m, const float *gradients, const float *residual,
                                 const float *p, float *q)
{
    for (EACH(i, m.columns * m.rank)) {
        const index_t column = i % m.columns;
        const float *const factor = p + i / m.columns * m.rows;
        float product = 0.0F;
        for (index_t row = column < m.lacks; row * m.columns + column < m.lacks + m.n; row++) {
            const index_t at = m.at + row * m.columns + column - m.lacks;
            product += factor[row] * (gradients[at] + residual[at]);
        }
        q[i] = product;
    }
}

static __device__ float largest_of_column(const float *column, index_t n)
{
    __shared__ uint32_t room[THREADS];
    uint32_t bits = 0;
    for (index_t i = threadIdx.x; i < n; i += blockDim.x) {
        const uint32_t magnitude = topk_magnitude(column[i]);
        bits = magnitude > bits ? magnitude : bits;
    }
    bits = largest_of_block(bits, room);
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    return largest;
}

/* A block for each column of Q: random where it is zero or not finite. */
__global__ void begin_columns(float *columns, index_t n, uint64_t seed, uint64_t step,
                              uint64_t first)
{
    float *const column = columns + blockIdx.x * n;
    const float largest = largest_of_column(column, n);
    if (largest > 0.0F && largest <= FLT_MAX)
        return;
    for (index_t i = threadIdx.x; i < n; i += blockDim.x)
        column[i] = (float)(int32_t)dpb_random(seed, DPB_STREAM_CODEC, blockIdx.x, (uint32_t)step,
                                               (uint32_t)(step >> 32), (uint32_t)(first + i))
                        .v[0];
}

static __device__ void normalise(float *column, index_t n, float *room)
{
    const float largest = largest_of_column(column, n);
    if (largest == 0.0F)
        return;
    for (index_t i = threadIdx.x; i < n; i += blockDim.x)
        column[i] /= largest;
    __syncthreads();
    const float length = sqrtf(dot(column, NULL, column, n, room));
    for (index_t i = threadIdx.x; i < n; i += blockDim.x)
        column[i] /= length;
    __syncthreads();
}

/* One block. */
__global__ void orthogonalise(float *columns, index_t n, index_t rank)
{
    __shared__ float room[THREADS];
    for (index_t k = 0; k < rank; k++) {
        float *const column = columns + k * n;
        normalise(column, n, room);
        for (int pass = 0; pass < 2; pass++) {
            for (index_t j = 0; j < k; j++) {
                const float *const other = columns + j * n;
                const float product = dot(other, NULL, column, n, room);
                for (index_t i = threadIdx.x; i < n; i += blockDim.x)
                    column[i] += -product * other[i];
                __syncthreads();
            }
            normalise(column, n, room);
        }
    }
}

/* From element `from` on, which may lie before the matrix: between tensors. */
__global__ void settle(powersgd_matrix m, index_t from, const float *p, const float *sum,
                       float share, float *gradients, float *residual)
{
    for (EACH(j, m.at + m.n - from)) {
        const index_t i = from + j;
        if (i < m.at) {
            residual[i] += gradients[i];
            gradients[i] = 0.0F;
        } else if (m.rank == 0) {
            residual[i] = 0.0F;
            gradients[i] = sum[i - m.at];
        } else {
            const index_t place = m.lacks + i - m.at;
            const index_t row = place / m.columns, column = place % m.columns;
            float decoded = 0.0F;
            for (index_t k = 0; k < m.rank; k++)
                decoded += p[k * m.rows + row] * sum[k * m.columns + column];
            residual[i] += gradients[i] - share * decoded;
            gradients[i] = decoded;
        }
    }
}

static float *q_of(const struct dpb_codec_part *part, const powersgd_matrix *m)
{
    return part->state + m->in_state;
}

static float *p_of(const struct dpb_codec_part *part, const powersgd_matrix *m)
{
    return q_of(part, m) + m->columns * m->rank;
}

void cuda_powersgd_multiply(cudaStream_t stream, const struct dpb_codec_part *part,
                            const struct powersgd_matrix *m, const float *gradients,
                            const float *residual, float *factor)
{
    float *const q = q_of(part, m);
    if (part->round == 0) {
        LAUNCH_BLOCKS(begin_columns, dim3((unsigned)m->rank), threads_for(m->columns), stream, q,
                      m->columns, part->seed, part->step, part->first + m->at);
        LAUNCH_BLOCKS(orthogonalise, 1, threads_for(m->columns), stream, q, m->columns, m->rank);
        const unsigned threads = threads_for(m->rows * m->rank * LANES);
        LAUNCH_BLOCKS(multiply_rows, grid_of(m->rows * m->rank, threads / LANES), threads, stream,
                      *m, gradients, residual, q, factor);
    } else {
        LAUNCH(multiply_columns, blocks_for(m->columns * m->rank), THREADS, stream, *m, gradients,
               residual, p_of(part, m), factor);
    }
}

void cuda_powersgd_take(cudaStream_t stream, const struct dpb_codec_part *part,
                        const struct powersgd_matrix *m, const float *sum)
{
    float *const p = p_of(part, m);
    cudaMemcpyAsync(part->round == 0 ? p : q_of(part, m), sum,
                    powersgd_elements(m, part->round) * sizeof *sum, cudaMemcpyDeviceToDevice,
                    stream);
    if (part->round == 0)
        LAUNCH_BLOCKS(orthogonalise, 1, threads_for(m->rows), stream, p, m->rows, m->rank);
}

void cuda_powersgd_settle(cudaStream_t stream, const struct dpb_codec_part *part,
                          const struct powersgd_matrix *m, uint64_t from, const float *sum,
                          float *gradients, float *residual)
{
    LAUNCH(settle, blocks_for(m->at + m->n - from), THREADS, stream, *m, from, p_of(part, m), sum,
           1.0F / (float)part->n_workers, gradients, residual);
}
