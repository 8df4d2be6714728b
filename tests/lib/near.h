/*
 * near.h - numbers that rounding may move. A NaN is near nothing; cmocka's own comparison takes it
 * for equal.
 */
#ifndef DPB_TESTS_LIB_NEAR_H
#define DPB_TESTS_LIB_NEAR_H

#include <math.h>

#include "lib/test.h"

static inline void assert_within(double is, double should, double within)
{
    if (!(fabs(is - should) <= within))
        fail_msg("%.17g should be %.17g", is, should);
}

/* Within 1e-9 of it; below 1 absolutely. */
static inline void assert_near(double is, double should)
{
    assert_within(is, should, 1e-9 * fmax(1, fabs(should)));
}

#endif
