/*
 * sizes.h - arithmetic of sizes, for files that cut work into blocks.
 */
#ifndef DPB_CPU_SIZES_H
#define DPB_CPU_SIZES_H

#include <stddef.h>

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
