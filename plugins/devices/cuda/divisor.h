/*
 * divisor.h - division by a number that is known before a kernel is launched, as a multiplication
 * and a shift. A GPU has no instruction that divides integers. A division of 32 bits takes about 20
 * others, of 64 bits a call of about 100.
 *
 * T. Granlund, P. L. Montgomery: Division by invariant integers using multiplication. PLDI 1994,
 * section 4. For dividends below 2^31 the sum there fits into 32 bits.
 */
#ifndef DPB_CUDA_DIVISOR_H
#define DPB_CUDA_DIVISOR_H

#include "dpbench/types.h"

struct divisor {
    uint32_t by, multiplier, shift;
};

/* The limit of dividends of 32 bits and of divisors. */
#define DIVISOR_MOST ((uint32_t)1 << 31)

/* by: 1 to DIVISOR_MOST. */
static inline struct divisor cuda_divisor(uint32_t by)
{
    struct divisor made = {by, 0, 0};
    while (((uint64_t)1 << made.shift) < by)
        made.shift++;
    made.multiplier = (uint32_t)(((((uint64_t)1 << made.shift) - by) << 32) / by + 1);
    return made;
}

/* n / by, for n below DIVISOR_MOST. */
DPB_EVERYWHERE uint32_t cuda_quotient(uint32_t n, struct divisor divisor)
{
    const uint32_t high = (uint32_t)(((uint64_t)divisor.multiplier * n) >> 32);
    return (high + n) >> divisor.shift;
}

#endif
