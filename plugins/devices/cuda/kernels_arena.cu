/*
 * kernels_arena.cu - arithmetic on arenas: sums, casts and the optimizer's step, as core does them
 * on the host, bit for bit. Compiled without fused multiply-adds (mk/cuda.mk); division and square
 * root are rounded to nearest, which is the compiler's default.
 */
#include <type_traits>

#include "arenas.h"
#include "kernel.h"

namespace
{
/* An element as it lies in memory, and fp32, in which all arithmetic is. */
__host__ __device__ inline float load(const float *x)
{
    return *x;
}

struct bf16 {
    uint16_t bits;
};

__host__ __device__ inline float load(const bf16 *x)
{
    return dpb_bf16_to_fp32(x->bits);
}

struct fp16 {
    uint16_t bits;
};

__host__ __device__ inline float load(const fp16 *x)
{
    return dpb_fp16_to_fp32(x->bits);
}

__host__ __device__ inline void store(float *to, float value)
{
    *to = value;
}

__host__ __device__ inline void store(bf16 *to, float value)
{
    to->bits = dpb_bf16_from_fp32(value);
}

__host__ __device__ inline void store(fp16 *to, float value)
{
    to->bits = dpb_fp16_from_fp32(value);
}
} // namespace

/* Does what follows with T as the element type of `type`. */
#define BY_DTYPE(type, ...)              \
    do {                                 \
        if ((type) == DPB_BF16) {        \
            using T = bf16;              \
            __VA_ARGS__;                 \
        } else if ((type) == DPB_FP16) { \
            using T = fp16;              \
            __VA_ARGS__;                 \
        } else {                         \
            using T = float;             \
            __VA_ARGS__;                 \
        }                                \
    } while (0)

/* ------------------------------------------------------------------------------- sums and casts */

/* Does n elements in packs of N, and the last few one by one. */
template <typename Work, int N>
__global__ void work_on(const __grid_constant__ Work work, index_t n)
{
    for (EACH(k, n / N))
        work.template on_pack<N>(k);
    for (EACH(k, n % N))
        work.template on_pack<1>(n - n % N + k);
}

static bool begins_pack(const void *array)
{
    return (uintptr_t)array % PACK_BYTES == 0;
}

/* packs: each array begins at a multiple of PACK_BYTES. */
template <typename Work>
static void launch(cudaStream_t stream, const Work &work, bool packs, index_t n)
{
    constexpr int most = PACK_BYTES / sizeof(typename Work::shortest);
    if (packs)
        LAUNCH((work_on<Work, most>), blocks_for(n / most), THREADS, stream, work, n);
    else
        LAUNCH((work_on<Work, 1>), blocks_for(n), THREADS, stream, work, n);
}

/* An element is written when it has been read from every source: `to` may be one of them. */
template <typename T> struct arena_sum {
    using shortest = T;
    cuda_sources from;
    T *to;
    template <int N> __host__ __device__ void on_pack(index_t k) const
    {
        pack<T, N> values = load_pack<T, N>(static_cast<const T *>(from.at[0]), k);
        float total[N];
        for (int i = 0; i < N; i++)
            total[i] = load(values.at + i);
        for (uint32_t source = 1; source < from.n; source++) {
            values = load_pack<T, N>(static_cast<const T *>(from.at[source]), k);
            for (int i = 0; i < N; i++)
                total[i] = total[i] + load(values.at + i);
        }
        for (int i = 0; i < N; i++)
            store(values.at + i, total[i]);
        store_pack(to, k, values);
    }
};

void cuda_sum_arenas(cudaStream_t stream, dpb_dtype type, const struct cuda_sources *from, void *to,
                     uint64_t n)
{
    bool packs = begins_pack(to);
    for (uint32_t i = 0; i < from->n; i++)
        packs = packs && begins_pack(from->at[i]);
    BY_DTYPE(type, launch(stream, arena_sum<T>{*from, static_cast<T *>(to)}, packs, n));
}

template <typename T> struct scaled_sum {
    using shortest = T;
    float a, b;
    const T *x;
    T *y;
    template <int N> __host__ __device__ void on_pack(index_t k) const
    {
        const pack<T, N> added = load_pack<T, N>(x, k);
        pack<T, N> values = load_pack<T, N>(y, k);
        for (int i = 0; i < N; i++) {
            const float left = a * load(added.at + i), right = b * load(values.at + i);
            store(values.at + i, left + right);
        }
        store_pack(y, k, values);
    }
};

void cuda_axpby(cudaStream_t stream, dpb_dtype type, float a, const void *x, float b, void *y,
                uint64_t n)
{
    BY_DTYPE(type,
             launch(stream, scaled_sum<T>{a, b, static_cast<const T *>(x), static_cast<T *>(y)},
                    begins_pack(x) && begins_pack(y), n));
}

/* A thread reads or writes a pack of fp32 by two accesses. */
template <typename To, typename From> struct conversion {
    using shortest = std::conditional_t<sizeof(To) < sizeof(From), To, From>;
    To *to;
    const From *from;
    template <int N> __host__ __device__ void on_pack(index_t k) const
    {
        const pack<From, N> values = load_pack<From, N>(from, k);
        pack<To, N> converted;
        for (int i = 0; i < N; i++)
            store(converted.at + i, load(values.at + i));
        store_pack(to, k, converted);
    }
};

template <typename To, typename From>
static void convert(cudaStream_t stream, void *to, const void *from, index_t n)
{
    launch(stream, conversion<To, From>{static_cast<To *>(to), static_cast<const From *>(from)},
           begins_pack(to) && begins_pack(from), n);
}

void cuda_cast(cudaStream_t stream, dpb_dtype to_type, void *to, dpb_dtype from_type,
               const void *from, uint64_t n)
{
    if (to_type == DPB_FP32)
        BY_DTYPE(from_type, (convert<float, T>(stream, to, from, n)));
    else
        BY_DTYPE(to_type, (convert<T, float>(stream, to, from, n)));
}

/* -------------------------------------------------------------------------------- the optimizer */

/* The first range with decay that ends behind arena element `at`; by.n_decays: there is none. */
static __device__ uint64_t decay_behind(const dpb_update &by, index_t at)
{
    uint64_t low = 0, high = by.n_decays;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (by.decays[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* *word = value, unless it is less already; 0 counts as more than all. The first read is volatile
 * since other threads may be writing. */
static __device__ void lower(unsigned long long *word, unsigned long long value)
{
    unsigned long long seen = *static_cast<volatile unsigned long long *>(word);
    while (seen == 0 || seen > value) {
        const unsigned long long found = atomicCAS(word, seen, value);
        if (found == seen)
            return;
        seen = found;
    }
}

struct rule_words {
    float rate, scale, decay, correction, second_correction;
};

/* An update's numbers, by the factors of its tensor if it has any. */
static __device__ rule_words words_of(const dpb_update &by, const dpb_factors *factors)
{
    const dpb_factors of = factors    ? *factors
                           : by.words ? dpb_factors{by.words->rate, by.words->scale, by.decay}
                                      : dpb_factors{by.rate, by.scale, by.decay};
    return {(float)of.rate, (float)of.scale, (float)of.decay,
            (float)(by.words ? by.words->correction : by.correction),
            (float)(by.words ? by.words->second_correction : by.second_correction)};
}

/* The rules of core/base/update.c, with the same steps of arithmetic. */
template <typename G> struct weight_update {
    using shortest = G;
    dpb_update by;

    __device__ bool has_second() const
    {
        return by.kind == DPB_UPDATE_ADAM || by.kind == DPB_UPDATE_RMSPROP;
    }

    /* *first, *second: state of the rules that have it. Returns by how much the weight falls. */
    __device__ float rule(const rule_words &words, float gradient, float decay, float weight,
                          float *first, float *second) const
    {
        const float rate = words.rate;
        const float momentum = (float)by.momentum, epsilon = (float)by.epsilon;
        const bool apart = by.kind == DPB_UPDATE_ADAM && by.decoupled;
        const float whole = words.scale * gradient + (apart ? 0.0f : decay) * weight;
        float change = rate * whole;
        if (by.kind == DPB_UPDATE_MOMENTUM || by.kind == DPB_UPDATE_NESTEROV) {
            const float velocity = momentum * *first + whole;
            *first = velocity;
            change =
                rate * (by.kind == DPB_UPDATE_MOMENTUM ? velocity : whole + momentum * velocity);
        } else if (by.kind == DPB_UPDATE_ADAGRAD) {
            const float sum = *first + whole * whole;
            *first = sum;
            change = rate * whole / (sqrtf(sum) + epsilon);
        } else if (by.kind == DPB_UPDATE_ADAM) {
            const float m = momentum * *first + (float)(1.0 - by.momentum) * whole;
            const float v = (float)by.beta2 * *second + (float)(1.0 - by.beta2) * whole * whole;
            *first = m;
            *second = v;
            change = rate * (m / words.correction / (sqrtf(v / words.second_correction) + epsilon) +
                             (apart ? decay : 0.0f) * weight);
        } else if (by.kind == DPB_UPDATE_RMSPROP) {
            const float square = (float)by.beta2 * *first + (float)(1.0 - by.beta2) * whole * whole;
            const float velocity = momentum * *second + rate * whole / sqrtf(square + epsilon);
            *first = square;
            *second = velocity;
            change = velocity;
        }
        return change;
    }

    template <int N> __device__ void on_pack(index_t k) const
    {
        const rule_words words = words_of(by, by.factors);
        float *const weights_at = static_cast<float *>(by.weights);
        float *const first_at = static_cast<float *>(by.state);
        float *const second_at = static_cast<float *>(by.second);
        const pack<G, N> gradients = load_pack<G, N>(static_cast<const G *>(by.gradients), k);
        pack<float, N> weights = load_pack<float, N>(weights_at, k), first = {}, second = {};
        if (by.kind != DPB_UPDATE_PLAIN)
            first = load_pack<float, N>(first_at, k);
        if (has_second())
            second = load_pack<float, N>(second_at, k);
        const index_t begin = by.first + k * N;
        uint64_t range = decay_behind(by, begin);
        UNROLLED
        for (int i = 0; i < N; i++) {
            const index_t at = begin + i;
            if (range < by.n_decays && by.decays[range].end <= at)
                range++;
            const bool decays = range < by.n_decays && by.decays[range].begin <= at;
            weights.at[i] -= rule(words, load(gradients.at + i), decays ? words.decay : 0.0f,
                                  weights.at[i], first.at + i, second.at + i);
        }
        UNROLLED
        for (int i = 0; i < N; i++)
            if (by.not_finite && !(weights.at[i] - weights.at[i] == 0.0f))
                lower(reinterpret_cast<unsigned long long *>(by.not_finite), begin + i + 1);
        store_pack(weights_at, k, weights);
        if (by.kind != DPB_UPDATE_PLAIN)
            store_pack(first_at, k, first);
        if (has_second())
            store_pack(second_at, k, second);
    }
};

/* Memory that a rule does not have begins at NULL, which is a multiple of everything. */
void cuda_update(cudaStream_t stream, const struct dpb_update *update)
{
    const bool packs = begins_pack(update->weights) && begins_pack(update->state) &&
                       begins_pack(update->second) && begins_pack(update->gradients);
    BY_DTYPE(update->gradient_type, launch(stream, weight_update<T>{*update}, packs, update->n));
}

/* ---------------------------------------------------------------------------------------- norms */

enum { LEAF = 8, LEAVES = DPB_NORM_PIECE / LEAF }; /* a thread adds the elements of a leaf */

/* value(0) + ... + value(n - 1), in the order of norms.h; all threads of the block have the sum. */
template <typename Value> static __device__ double tree_sum(const Value &value, uint32_t n)
{
    __shared__ double leaves[LEAVES];
    __syncthreads();
    for (uint32_t leaf = threadIdx.x; leaf < LEAVES; leaf += blockDim.x) {
        double of[LEAF];
        UNROLLED
        for (uint32_t i = 0; i < LEAF; i++)
            of[i] = leaf * LEAF + i < n ? value(leaf * LEAF + i) : 0.0;
        leaves[leaf] = ((of[0] + of[1]) + (of[2] + of[3])) + ((of[4] + of[5]) + (of[6] + of[7]));
    }
    for (uint32_t apart = 1; apart < LEAVES; apart *= 2) {
        __syncthreads();
        for (uint32_t leaf = threadIdx.x * 2 * apart; leaf < LEAVES; leaf += blockDim.x * 2 * apart)
            leaves[leaf] += leaves[leaf + apart];
    }
    __syncthreads();
    return leaves[0];
}

template <typename G> __global__ void square_pieces(const __grid_constant__ dpb_norms by)
{
    for (uint32_t k = blockIdx.x; k < by.n_pieces; k += gridDim.x) {
        const dpb_norm_piece piece = by.pieces[k];
        const G *const gradients = static_cast<const G *>(by.step.gradients) + piece.begin;
        const float *const weights = static_cast<const float *>(by.step.weights) + piece.begin;
        dpb_squares sum = {0.0, 0.0};
        if (!by.way) {
            sum.gradients = tree_sum(
                [=](uint32_t i) {
                    const double g = load(gradients + i);
                    return g * g;
                },
                piece.n);
        } else if (piece.decays) {
            const weight_update<G> adam = {by.step};
            const float *const first = static_cast<const float *>(by.step.state) + piece.state;
            const float *const second = static_cast<const float *>(by.step.second) + piece.state;
            rule_words words = words_of(by.step, by.factors + piece.tensor);
            words.rate = 1.0f;
            sum.gradients = tree_sum(
                [&](uint32_t i) {
                    float m = first[i], v = second[i];
                    const double way =
                        adam.rule(words, load(gradients + i), words.decay, weights[i], &m, &v);
                    return way * way;
                },
                piece.n);
        }
        if (by.weights && piece.decays)
            sum.weights = tree_sum(
                [=](uint32_t i) {
                    const double w = weights[i];
                    return w * w;
                },
                piece.n);
        if (threadIdx.x == 0)
            by.sums[k] = sum;
    }
}

/* 0 + entry(0) + ... + entry(n - 1), one after the other; the first thread has the sum. */
template <typename Entry> static __device__ dpb_squares row_sum(const Entry &entry, uint32_t n)
{
    __shared__ double gradients[THREADS], weights[THREADS];
    dpb_squares sum = {0.0, 0.0};
    for (uint32_t begin = 0; begin < n; begin += THREADS) {
        __syncthreads();
        if (begin + threadIdx.x < n) {
            const dpb_squares own = entry(begin + threadIdx.x);
            gradients[threadIdx.x] = own.gradients;
            weights[threadIdx.x] = own.weights;
        }
        __syncthreads();
        for (uint32_t i = 0; i < THREADS && begin + i < n && threadIdx.x == 0; i++) {
            sum.gradients += gradients[i];
            sum.weights += weights[i];
        }
    }
    return sum;
}

/* A block has a tensor. */
__global__ void add_pieces(const __grid_constant__ dpb_norms by, dpb_squares *own)
{
    for (uint32_t t = blockIdx.x; t < by.n_tensors; t += gridDim.x) {
        const dpb_squares *const sums = by.sums + by.first_pieces[t];
        const dpb_squares sum = row_sum([=](uint32_t i) { return sums[i]; },
                                        by.first_pieces[t + 1] - by.first_pieces[t]);
        if (threadIdx.x == 0)
            own[t] = sum;
    }
}

/* One block. */
__global__ void find_factors(const __grid_constant__ dpb_norms by, const dpb_squares *all,
                             uint32_t n)
{
    __shared__ dpb_factors every;
    const dpb_update_words *const words = by.step.words;
    const uint32_t n_tensors = by.n_tensors;
    if (!by.way) {
        const dpb_squares sum =
            row_sum([=](uint32_t t) { return dpb_norm_sum(all, n, n_tensors, t); }, n_tensors);
        if (threadIdx.x == 0) {
            const double scale = words ? words->scale : by.step.scale;
            every.rate = words ? words->rate : by.step.rate;
            every.scale = scale * dpb_norm_clipped(by.rule.clip_norm, scale, sum.gradients);
            every.decay = by.step.decay;
        }
        __syncthreads();
    }
    for (uint32_t t = threadIdx.x; t < n_tensors; t += blockDim.x)
        by.factors[t] = dpb_norm_factors(&by.rule, dpb_norm_sum(all, n, n_tensors, t),
                                         by.way ? by.factors[t] : every);
}

void cuda_squares(cudaStream_t stream, const struct dpb_norms *norms, struct dpb_squares *own)
{
    BY_DTYPE(norms->step.gradient_type,
             LAUNCH_BLOCKS(square_pieces<T>, grid_of(norms->n_pieces, 1), THREADS, stream, *norms));
    LAUNCH_BLOCKS(add_pieces, grid_of(norms->n_tensors, 1), THREADS, stream, *norms, own);
}

void cuda_factors(cudaStream_t stream, const struct dpb_norms *norms, const struct dpb_squares *all,
                  uint32_t n)
{
    LAUNCH_BLOCKS(find_factors, 1, THREADS, stream, *norms, all, n);
}
