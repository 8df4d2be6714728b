/*
 * kernels_codec.cu - codecs on gradients, bit for bit as plugins/codecs has them on the host.
 * Compiled without fused multiply-adds (mk/cuda.mk).
 */
#include "kernels_codec.h"
#include "codecs/int8.h"
#include "codecs/scale.h"
#include "codecs/topk.h"
#include "kernel.h"

/* ----------------------------------------------------------------------------------------- int8 */

__global__ void encode_int8(const float *gradients, float *residual, float *scales,
                            int8_t *integers, index_t n, bool stochastic, uint32_t key)
{
    __shared__ uint32_t room[THREADS];
    const uint32_t t = threadIdx.x;
    for (index_t block = blockIdx.x; block * INT8_BLOCK < n; block += gridDim.x) {
        const index_t begin = block * INT8_BLOCK;
        const index_t end = n - begin < INT8_BLOCK ? n : begin + INT8_BLOCK;
        uint32_t magnitude = 0;
        for (index_t i = begin + t; i < end; i += THREADS) {
            const float value = residual[i] + gradients[i];
            const uint32_t bits = topk_magnitude(value);
            residual[i] = value;
            magnitude = bits > magnitude ? bits : magnitude;
        }
        const uint32_t largest = largest_of_block(magnitude, room);
        float most;
        memcpy(&most, &largest, sizeof most);
        const float scale = scaled_scale(most, INT8_LARGEST), per_scale = 1.0F / scale;
        for (index_t i = begin + t; i < end; i += THREADS) {
            int32_t integer = 0;
            if (scale > 0) {
                const float x = residual[i] * per_scale;
                integer = int8_round(
                    stochastic ? x + scaled_fraction(key + (uint32_t)begin, (uint32_t)(i - begin))
                               : x);
                residual[i] -= (float)integer * scale;
            } else if (scale != scale) {
                residual[i] = scale;
            }
            integers[i] = (int8_t)integer;
        }
        if (t == 0)
            scales[block] = scale;
    }
}

void cuda_encode_int8(cudaStream_t stream, const float *gradients, float *residual, void *message,
                      uint64_t n, bool stochastic, uint32_t key)
{
    float *const scales = static_cast<float *>(message);
    int8_t *const integers = reinterpret_cast<int8_t *>(scales + int8_scales(n));
    LAUNCH_BLOCKS(encode_int8, grid_of(n, INT8_BLOCK), THREADS, stream, gradients, residual, scales,
                  integers, n, stochastic, key);
}

__global__ void decode_int8(const float *scales, const int8_t *integers, float *sum, index_t n)
{
    for (EACH(i, n))
        sum[i] += (float)integers[i] * scales[i / INT8_BLOCK];
}

void cuda_decode_int8(cudaStream_t stream, const void *message, float *sum, uint64_t n)
{
    const float *const scales = static_cast<const float *>(message);
    const int8_t *const integers = reinterpret_cast<const int8_t *>(scales + int8_scales(n));
    LAUNCH(decode_int8, blocks_for(n), THREADS, stream, scales, integers, sum, n);
}

/* ----------------------------------------------------------------------------------------- topk */

/* The k-th largest magnitude is found by its bits, 11 + 10 + 10 of them. Then each chunk of
 * elements learns how many are sent before it, and writes its own in their order. */
enum { BINS = 2048, BINS_EACH = BINS / THREADS, OWN = 4, CHUNK = OWN * THREADS };

struct selection {
    uint32_t counts[BINS];
    uint32_t bits; /* those known of the k-th largest magnitude */
    uint32_t left; /* its place among those that have these bits */
};

/* Counts of a chunk's elements; then sums of these counts over all chunks before. */
struct chunk {
    uint32_t above, equal;
};

uint64_t cuda_topk_bytes(uint64_t n)
{
    return sizeof(selection) + (n + CHUNK - 1) / CHUNK * sizeof(chunk);
}

__global__ void add_gradients(const float *gradients, float *residual, float *velocity,
                              float *added, float momentum, index_t n)
{
    for (EACH(i, n))
        residual[i] =
            velocity ? topk_accelerate(gradients[i], momentum, velocity + i, added + i, residual[i])
                     : residual[i] + gradients[i];
}

/* Counts, of the magnitudes whose bits from `known` on are the selection's, the next ones. */
__global__ void count_bits(const float *values, index_t n, selection *found, uint32_t known,
                           uint32_t shift)
{
    __shared__ uint32_t counts[BINS];
    for (uint32_t bin = threadIdx.x; bin < BINS; bin += THREADS)
        counts[bin] = 0;
    __syncthreads();
    const uint32_t bits = found->bits, mask = (1u << (known - shift)) - 1;
    for (EACH(i, n)) {
        const uint32_t m = topk_magnitude(values[i]);
        if (m >> known == bits)
            atomicAdd(&counts[m >> shift & mask], 1u);
    }
    __syncthreads();
    for (uint32_t bin = threadIdx.x; bin < BINS; bin += THREADS)
        if (counts[bin] > 0)
            atomicAdd(&found->counts[bin], counts[bin]);
}

/* One block. Chooses the next `width` bits, from the largest on, and clears the counts; `k` is not
 * 0 in the first pass alone. */
__global__ void choose_bits(selection *found, uint32_t width, uint32_t k)
{
    __shared__ uint32_t sums[THREADS];
    const uint32_t t = threadIdx.x, first = t * BINS_EACH;
    uint32_t sum = 0;
    for (uint32_t bin = first; bin < first + BINS_EACH; bin++)
        sum += found->counts[bin];
    sums[t] = sum;
    __syncthreads();
    if (t == 0) {
        uint32_t left = k > 0 ? k : found->left, part = THREADS - 1;
        for (; sums[part] < left; part--)
            left -= sums[part];
        uint32_t bin = part * BINS_EACH + BINS_EACH - 1;
        for (; found->counts[bin] < left; bin--)
            left -= found->counts[bin];
        found->bits = found->bits << width | bin;
        found->left = left;
    }
    __syncthreads();
    for (uint32_t bin = first; bin < first + BINS_EACH; bin++)
        found->counts[bin] = 0;
}

/* Counts a thread's own elements: those above the least magnitude that is sent, plus 2^16 times
 * those equal to it. */
static __device__ uint32_t count_own(const float *values, index_t begin, index_t n, uint32_t least)
{
    uint32_t count = 0;
    for (index_t i = begin; i < n && i < begin + OWN; i++) {
        const uint32_t m = topk_magnitude(values[i]);
        count += m > least ? 1 : m == least ? 1u << 16 : 0;
    }
    return count;
}

/* before[t] = the counts of the threads up to t. */
static __device__ void add_before(uint32_t *before, uint32_t own)
{
    const uint32_t t = threadIdx.x;
    before[t] = own;
    for (uint32_t step = 1; step < THREADS; step *= 2) {
        __syncthreads();
        const uint32_t more = t >= step ? before[t - step] : 0;
        __syncthreads();
        before[t] += more;
    }
}

__global__ void count_chunks(const float *values, index_t n, const selection *found, chunk *chunks)
{
    __shared__ uint32_t before[THREADS];
    for (index_t c = blockIdx.x; c * CHUNK < n; c += gridDim.x) {
        add_before(before, count_own(values, c * CHUNK + threadIdx.x * OWN, n, found->bits));
        if (threadIdx.x == THREADS - 1)
            chunks[c] = {before[THREADS - 1] & 0xffff, before[THREADS - 1] >> 16};
    }
}

/* One block, whose threads have neighbouring chunks each. */
__global__ void place_chunks(chunk *chunks, index_t n_chunks)
{
    __shared__ uint32_t above[THREADS], equal[THREADS];
    const index_t each = (n_chunks + THREADS - 1) / THREADS;
    const index_t begin = threadIdx.x * each;
    chunk sum = {0, 0};
    for (index_t c = begin; c < n_chunks && c < begin + each; c++) {
        sum.above += chunks[c].above;
        sum.equal += chunks[c].equal;
    }
    add_before(above, sum.above);
    add_before(equal, sum.equal);
    sum = {above[threadIdx.x] - sum.above, equal[threadIdx.x] - sum.equal};
    for (index_t c = begin; c < n_chunks && c < begin + each; c++) {
        const chunk own = chunks[c];
        chunks[c] = sum;
        sum.above += own.above;
        sum.equal += own.equal;
    }
}

__global__ void send_chunks(float *residual, float *velocity, index_t n, const selection *found,
                            const chunk *chunks, uint32_t *indices, float *values)
{
    __shared__ uint32_t before[THREADS];
    const uint32_t least = found->bits, n_equal = found->left;
    for (index_t c = blockIdx.x; c * CHUNK < n; c += gridDim.x) {
        const index_t begin = c * CHUNK + threadIdx.x * OWN;
        const uint32_t own = count_own(residual, begin, n, least);
        add_before(before, own);
        const uint32_t others = before[threadIdx.x] - own;
        uint32_t above = chunks[c].above + (others & 0xffff);
        uint32_t equal = chunks[c].equal + (others >> 16);
        for (index_t i = begin; i < n && i < begin + OWN; i++) {
            const uint32_t m = topk_magnitude(residual[i]);
            if (m > least || (m == least && equal < n_equal)) {
                const uint32_t at = above + (equal < n_equal ? equal : n_equal);
                indices[at] = (uint32_t)i;
                values[at] = residual[i];
                residual[i] = 0.0F;
                if (velocity)
                    velocity[i] = 0.0F;
            }
            above += m > least;
            equal += m == least;
        }
    }
}

void cuda_encode_topk(cudaStream_t stream, const struct dpb_codec_part *part,
                      const float *gradients, float *residual, void *message, uint32_t k,
                      float momentum, void *room)
{
    static const uint32_t shifts[] = {31, 20, 10, 0};
    selection *const found = static_cast<selection *>(room);
    chunk *const chunks = reinterpret_cast<chunk *>(found + 1);
    uint32_t *const indices = static_cast<uint32_t *>(message);
    const index_t n = part->n;
    LAUNCH(add_gradients, blocks_for(n), THREADS, stream, gradients, residual, part->velocity,
           part->added, momentum, n);
    cudaMemsetAsync(found, 0, sizeof *found, stream);
    for (int pass = 0; pass < 3; pass++) {
        LAUNCH_BLOCKS(count_bits, blocks_for_packs(n), THREADS, stream, residual, n, found,
                      shifts[pass], shifts[pass + 1]);
        LAUNCH_BLOCKS(choose_bits, 1, THREADS, stream, found, shifts[pass] - shifts[pass + 1],
                      pass == 0 ? k : 0);
    }
    LAUNCH_BLOCKS(count_chunks, grid_of(n, CHUNK), THREADS, stream, residual, n, found, chunks);
    LAUNCH_BLOCKS(place_chunks, 1, THREADS, stream, chunks, (n + CHUNK - 1) / CHUNK);
    LAUNCH_BLOCKS(send_chunks, grid_of(n, CHUNK), THREADS, stream, residual, part->velocity, n,
                  found, chunks, indices, reinterpret_cast<float *>(indices + k));
}

/* Indices rise, so no two threads add to one element. Several may write `refused`, which is
 * therefore volatile. */
__global__ void decode_topk(const uint32_t *indices, const float *values, index_t k, float *sum,
                            index_t n, uint32_t rank, volatile uint32_t *refused)
{
    for (EACH(i, k)) {
        const uint32_t at = indices[i];
        if (at >= n || (i > 0 && at <= indices[i - 1]))
            *refused = rank + 1;
        else
            sum[at] += values[i];
    }
}

void cuda_decode_topk(cudaStream_t stream, const struct dpb_codec_part *part, const void *message,
                      uint32_t k, float *sum, uint32_t *refused)
{
    const uint32_t *const indices = static_cast<const uint32_t *>(message);
    LAUNCH(decode_topk, blocks_for(k), THREADS, stream, indices,
           reinterpret_cast<const float *>(indices + k), k, sum, part->n, part->rank, refused);
}
