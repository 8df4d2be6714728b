/*
 * estimate.h - the mean of repeats and its 95 % interval by Student's t. Rates and times are
 * estimated by their logarithms, so a ratio and its inverse are treated alike.
 */
#ifndef DPB_CORE_RECORD_ESTIMATE_H
#define DPB_CORE_RECORD_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>

/* A mean of logarithms and its standard error; NaN: not known. */
struct dpb_estimate {
    double mean, error, freedom; /* degrees of freedom */
    size_t n;                    /* repeats */
    bool of_steps;               /* the error is that of the steps of one repeat */
};

/* The mean of independent values; those that are not finite are left out. */
void dpb_estimate_of(const double *x, size_t n, struct dpb_estimate *estimate);
/* The 95 % interval of exp(mean). */
void dpb_estimate_interval(const struct dpb_estimate *estimate, double *low, double *high);

#endif
