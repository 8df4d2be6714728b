/*
 * magnitudes.c - the ops once more, with the absolute value of each term (see ops.h).
 */
#include <math.h>

#define TERM(value) fabs(value)
#define MAGNITUDE 1
#define ref_forward ref_forward_magnitude
#define ref_backward ref_backward_magnitude
#include "ops.c"
