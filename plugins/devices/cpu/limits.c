/*
 * limits.c - the highest rates of the cores and the memory: multiply-adds in registers, by the
 * widest instructions that the processor has, and reading and copying of memory that is larger than
 * the caches. Each is the best of a few short measurements.
 */
#include <omp.h>
#include <stdlib.h>

#include "hooks.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#define X86 1
#endif

enum {
    REPEATS = 5,
    ROUNDS = 1 << 20,        /* of a kernel of multiply-adds in a measurement */
    CHAINS = 12,             /* independent sums: more than latency times units */
    BUFFER_BYTES = 128 << 20 /* of each of two */
};

/* Runs `rounds` rounds and returns the operations done. */
typedef double peak_kernel(size_t rounds, float *result);

static double peak_portable(size_t rounds, float *result)
{
    float sums[CHAINS] = {0}, factor = *result;
    for (size_t i = 0; i < rounds; i++) {
        for (int k = 0; k < CHAINS; k++)
            sums[k] = sums[k] * factor + factor;
    }
    for (int k = 0; k < CHAINS; k++)
        *result += sums[k];
    return 2.0 * CHAINS * (double)rounds;
}

#ifdef X86
__attribute__((target("avx2,fma"))) static double peak_avx2(size_t rounds, float *result)
{
    __m256 sums[CHAINS], factor = _mm256_set1_ps(*result);
    for (int k = 0; k < CHAINS; k++)
        sums[k] = factor;
    for (size_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++)
            sums[k] = _mm256_fmadd_ps(sums[k], factor, factor);
    }
    for (int k = 0; k < CHAINS; k++)
        *result += _mm256_cvtss_f32(sums[k]);
    return 2.0 * 8 * CHAINS * (double)rounds;
}

__attribute__((target("avx512f"))) static double peak_avx512(size_t rounds, float *result)
{
    __m512 sums[CHAINS], factor = _mm512_set1_ps(*result);
    for (int k = 0; k < CHAINS; k++)
        sums[k] = factor;
    for (size_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++)
            sums[k] = _mm512_fmadd_ps(sums[k], factor, factor);
    }
    for (int k = 0; k < CHAINS; k++)
        *result += _mm512_cvtss_f32(sums[k]);
    return 2.0 * 16 * CHAINS * (double)rounds;
}

__attribute__((target("avx512f,avx512vl,avx512bf16"))) static double peak_bf16(size_t rounds,
                                                                               float *result)
{
    __m512 sums[CHAINS];
    __m512bh factor = _mm512_cvtne2ps_pbh(_mm512_set1_ps(*result), _mm512_set1_ps(*result));
    for (int k = 0; k < CHAINS; k++)
        sums[k] = _mm512_set1_ps(*result);
    for (size_t i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < CHAINS; k++)
            sums[k] = _mm512_dpbf16_ps(sums[k], factor, factor);
    }
    for (int k = 0; k < CHAINS; k++)
        *result += _mm512_cvtss_f32(sums[k]);
    return 2.0 * 32 * CHAINS * (double)rounds;
}

bool cpu_has_tiles(void)
{
    enum { LEAF = 7, AMX_BF16 = 1 << 22 /* of edx; clang 14's __builtin_cpu_supports lacks it */ };
    unsigned a, b, c, d;
    return __get_cpuid_count(LEAF, 0, &a, &b, &c, &d) && (d & AMX_BF16) != 0;
}

/* Linux gives a process the tiles on request only. */
static bool may_use_tiles(void)
{
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
    return cpu_has_tiles() && syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

__attribute__((target("amx-tile,amx-bf16"))) static double peak_tiles(size_t rounds, float *result)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {.palette = 1};
    for (int k = 0; k < 8; k++) {
        config.row_bytes[k] = 64;
        config.rows[k] = 16;
    }
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(6);
    _tile_zero(7);
    size_t turns = rounds / 16;
    for (size_t i = 0; i < turns; i++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
    }
    float sums[16 * 16];
    _tile_stored(0, sums, 64);
    _tile_release();
    *result += sums[0];
    return 2.0 * 4 * 16 * 16 * 32 * (double)turns;
}
#else
bool cpu_has_tiles(void)
{
    return false;
}
#endif

static peak_kernel *fp32_kernel(void)
{
#ifdef X86
    if (__builtin_cpu_supports("avx512f"))
        return peak_avx512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return peak_avx2;
#endif
    return peak_portable;
}

/* NULL: the processor has no instruction for it. */
static peak_kernel *bf16_kernel(void)
{
#ifdef X86
    if (may_use_tiles())
        return peak_tiles;
    if (__builtin_cpu_supports("avx512bf16"))
        return peak_bf16;
#endif
    return NULL;
}

static double seconds_since(int64_t began_ns)
{
    return (double)(cpu_host->now_ns() - began_ns) * 1e-9;
}

static double measure_peak(peak_kernel *kernel)
{
    double best = 0.0;
    if (!kernel)
        return 0.0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        double operations = 0.0;
        int64_t began_ns = cpu_host->now_ns();
#pragma omp parallel reduction(+ : operations)
        {
            volatile float factor = 1e-3f;
            float result = factor;
            operations += kernel(ROUNDS, &result);
            factor = result;
        }
        double rate = operations / seconds_since(began_ns);
        best = rate > best ? rate : best;
    }
    return best;
}

/* This thread's part of n. */
static void find_share(size_t n, size_t *begin, size_t *end)
{
    size_t threads = (size_t)omp_get_num_threads(), i = (size_t)omp_get_thread_num();
    *begin = n * i / threads;
    *end = n * (i + 1) / threads;
}

static double measure_read(const uint64_t *from, size_t n)
{
    double best = 0.0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        uint64_t sum = 0;
        int64_t began_ns = cpu_host->now_ns();
#pragma omp parallel reduction(^ : sum)
        {
            size_t begin, end;
            find_share(n, &begin, &end);
#pragma omp simd reduction(^ : sum)
            for (size_t i = begin; i < end; i++)
                sum ^= from[i];
        }
        volatile uint64_t kept = sum;
        (void)kept;
        double rate = (double)(n * sizeof *from) / seconds_since(began_ns);
        best = rate > best ? rate : best;
    }
    return best;
}

static double measure_copy(const char *from, char *to, size_t bytes)
{
    double best = 0.0;
    for (int repeat = 0; repeat < REPEATS; repeat++) {
        int64_t began_ns = cpu_host->now_ns();
#pragma omp parallel
        {
            size_t begin, end;
            find_share(bytes, &begin, &end);
            memcpy(to + begin, from + begin, end - begin);
        }
        double rate = 2.0 * (double)bytes / seconds_since(began_ns);
        best = rate > best ? rate : best;
    }
    return best;
}

dpb_status cpu_measure_limits(uint32_t threads, struct dpb_profile_limits *limits)
{
    char *buffers = cpu_host->alloc(2 * (size_t)BUFFER_BYTES);
    if (!buffers)
        return DPB_NO_MEMORY;
    memset(buffers, 1, 2 * (size_t)BUFFER_BYTES);
    cpu_use_threads(threads);
    *limits = (struct dpb_profile_limits){
        .fp32_flops_per_s = measure_peak(fp32_kernel()),
        .bf16_flops_per_s = measure_peak(bf16_kernel()),
        .read_bytes_per_s = measure_read((const uint64_t *)(const void *)buffers,
                                         2 * (size_t)BUFFER_BYTES / sizeof(uint64_t)),
        .copy_bytes_per_s = measure_copy(buffers, buffers + BUFFER_BYTES, BUFFER_BYTES),
    };
    cpu_host->release(buffers, 2 * (size_t)BUFFER_BYTES);
    return DPB_OK;
}
