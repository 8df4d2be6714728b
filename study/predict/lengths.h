/*
 * lengths.h - how long single steps of a worker are: a factor of its mean computing and a delay, as
 * values of equal probability.
 */
#ifndef DPB_STUDY_PREDICT_LENGTHS_H
#define DPB_STUDY_PREDICT_LENGTHS_H

#include <stddef.h>

#include "dpbench/status.h"

struct dpb_delay; /* plan/delay.h */

/* Both rise: the i-th step takes factors[i] of the mean computing, and delays_s[i] more. */
struct dpb_lengths {
    double *factors;  /* @owned; [n] */
    double *delays_s; /* @owned; [n]; NULL: no delays */
    size_t n;
};

/* A normal distribution with this standard deviation over its mean; no step is shorter than a tenth
 * of the mean, as on device `emulated`. */
dpb_status dpb_lengths_normal(double spread, struct dpb_lengths *made);
/*
 * Delays each step, too, independently of its computing, whose mean is compute_s. A step longer
 * than that mean becomes one of mean computing, with the rest as its delay: sums keep their
 * distribution.
 */
dpb_status dpb_lengths_delay(struct dpb_lengths *lengths, double compute_s,
                             const struct dpb_delay *delay);
double dpb_lengths_mean_delay(const struct dpb_lengths *lengths, double compute_s);
void dpb_lengths_release(struct dpb_lengths *lengths); /* accepts zeros */

#endif
