/*
 * int8.h - the rule of codec int8, for its plugin and for devices that encode by kernels.
 */
#ifndef DPB_PLUGINS_CODECS_INT8_H
#define DPB_PLUGINS_CODECS_INT8_H

#include <string.h>

#include "dpbench/codec.h"

enum { INT8_BLOCK = 1024, INT8_LARGEST = 127 };
enum { INT8_NEAREST, INT8_STOCHASTIC };

struct int8_options {
    struct dpb_codec_options base;
    int rounding;
};

/* A message has its scales, then its integers. */
static inline uint64_t int8_scales(uint64_t n)
{
    return (n + INT8_BLOCK - 1) / INT8_BLOCK;
}

static inline uint64_t int8_bytes(uint64_t n)
{
    return n + int8_scales(n) * sizeof(float);
}

/* Rounds x to the nearest integer: x + 1.5 x 2^23 has the integer of a small x in its low bits. */
DPB_EVERYWHERE int32_t int8_round(float x)
{
    const float rounded = x + 12582912.0F;
    int32_t integer;
    memcpy(&integer, &rounded, sizeof integer);
    integer -= 0x4b400000;
    integer = integer < INT8_LARGEST ? integer : INT8_LARGEST;
    return integer > -INT8_LARGEST ? integer : -INT8_LARGEST;
}

#endif
