/*
 * expression.h - arithmetic over numbers with units and over names, as in 4 MiB / run.workers. It
 * has no comparisons: sweep.when compares the values of expressions (study/sweep/sweep_list.h).
 *
 *     sum      product + product - ...
 *     product  factor * factor / ...
 *     factor   NUMBER | NUMBER UNIT | NAME | FUNCTION(sum, ...) | (sum) | -factor
 *
 * Units are those of options, as KiB, ms and Gbit/s. Functions are min, max, floor, ceil, round and
 * sqrt. Floor, ceil and round take a number next to a whole one for that one: floor(0.3 / 0.1) is
 * 3. Products and quotients have the units of their parts; sums need equal ones.
 */
#ifndef DPB_CORE_CLI_EXPRESSION_H
#define DPB_CORE_CLI_EXPRESSION_H

#include <stdbool.h>

#include "dpbench/status.h"

/* value * B^bytes * s^seconds: of a rate bytes is 1 and seconds -1. */
struct dpb_amount {
    double value;
    int bytes, seconds;
};

/* The value of a name. Writes the message of a failure. */
typedef dpb_status dpb_expression_name(void *context, const char *name, struct dpb_amount *value);

/* Whether the text is arithmetic or a name with a dot, not one number or word. */
bool dpb_expression_is(const char *text);
/* DPB_USAGE, with `place` ("x.ini:3: run.batch") before the message: it is no expression, units
 * differ, or the value is not finite. */
dpb_status dpb_expression(const char *text, const char *place, dpb_expression_name *name,
                          void *context, struct dpb_amount *value);

#endif
