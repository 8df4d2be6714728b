/*
 * moments.h - exact mean and standard deviation of many bytes. A source with its training set in
 * memory normalises by them. For data plugins. A zeroed struct is empty.
 */
#ifndef DPB_PLUGINS_DATA_MOMENTS_H
#define DPB_PLUGINS_DATA_MOMENTS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct moments {
    uint64_t n, sum, squares; /* up to 2^48 bytes */
};

static inline void moments_add(struct moments *moments, const uint8_t *bytes, size_t n)
{
    uint64_t sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        sum += bytes[i];
        squares += (uint32_t)bytes[i] * bytes[i];
    }
    moments->n += n;
    moments->sum += sum;
    moments->squares += squares;
}

/* The mean of at least one byte. */
static inline double moments_mean(const struct moments *moments)
{
    return (double)moments->sum / (double)moments->n;
}

/* Scale and offset that give these bytes mean 0 and standard deviation 1. If all bytes are equal,
 * returns false and writes nothing. */
static inline bool moments_normalise(const struct moments *moments, float *scale, float *offset)
{
    double mean = moments_mean(moments);
    double deviation = sqrt((double)moments->squares / (double)moments->n - mean * mean);
    if (!(deviation > 0))
        return false;
    *scale = (float)(1 / deviation);
    *offset = (float)(-mean / deviation);
    return true;
}

#endif
