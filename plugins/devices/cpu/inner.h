/*
 * inner.h - for files with inner loops: how loops are compiled, a choice without a branch, and
 * arithmetic of sizes.
 */
#ifndef DPB_CPU_INNER_H
#define DPB_CPU_INNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Compiled for several instruction sets; one is chosen when the plugin is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define KERNEL __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"))) static
#else
#define KERNEL static
#endif
#define INLINE static inline __attribute__((always_inline))

/* The value or 0. By bits: compilers make a branch of a choice, compute a sum only there, and then
 * do not vectorise the loop for AVX2. */
INLINE float kept_if(bool keep, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0 - (uint32_t)keep;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static inline size_t rounded_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

#endif
