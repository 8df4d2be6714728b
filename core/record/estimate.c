/* estimate.c - see estimate.h. */
#include "record/estimate.h"

#include <math.h>

#include "base/stats.h"

void dpb_estimate_of(const double *x, size_t n, struct dpb_estimate *estimate)
{
    double sum = 0, squares = 0;
    size_t known = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i])) {
            sum += x[i];
            known++;
        }
    double mean = known > 0 ? sum / (double)known : NAN;
    for (size_t i = 0; i < n; i++)
        squares += isfinite(x[i]) ? (x[i] - mean) * (x[i] - mean) : 0;
    double freedom = (double)known - 1;
    *estimate = (struct dpb_estimate){
        mean, known > 1 ? sqrt(squares / freedom / (double)known) : NAN, freedom, known, false};
}

void dpb_estimate_interval(const struct dpb_estimate *estimate, double *low, double *high)
{
    double half =
        isfinite(estimate->error) ? dpb_student(estimate->freedom) * estimate->error : NAN;
    *low = exp(estimate->mean - half);
    *high = exp(estimate->mean + half);
}
