/*
 * signed_rank.h - what pairs show while they are still being taken: Wilcoxon's signed-rank test of
 * their differences, with looks on the way that keep the level of the whole.
 *
 * The unit is a pair, or the mean of some: a difference of logarithms of two rates taken one beside
 * the other. Looks are at 10, 14, 18, 22, 26 and 30 units. After n units at most
 * 0.025 (n / 30)^1.5 of all series without effect have crossed on each side (Lan, DeMets: Discrete
 * sequential boundaries for clinical trials. Biometrika 70, 1983). The last look of a series takes
 * all that is left of 0.025; its time is planned, or follows from the clock, never from the values.
 * Below 10 units there is the last look alone, by Student's t.
 *
 * Intervals are the inverse of the test (Jennison, Turnbull: Repeated confidence intervals for
 * group sequential clinical trials. Controlled Clinical Trials 5, 1984). At least 95 of 100 series
 * have the truth in the intervals of all their looks. The test assumes that units are independent,
 * and as likely above their centre as below; it does not assume a normal distribution.
 */
#ifndef DPB_STUDY_DOCUMENT_SIGNED_RANK_H
#define DPB_STUDY_DOCUMENT_SIGNED_RANK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DPB_LOOK_FIRST = 10, DPB_LOOK_EVERY = 4, DPB_LOOK_UNITS = 30 }; /* first, step, most */

/* ---- the test -------------------------------------------------------------------------------- */

/* W: the sum of the ranks of |x - centre| over the units above the centre; n (n + 1) / 2 at most.
 * The probability that W >= w where all signs are equally likely: exact. n up to DPB_LOOK_UNITS. */
double dpb_signed_rank_tail(size_t n, uint32_t w);
/* The least w that W reaches with at most `level` of probability; n (n + 1) / 2 + 1: none. */
uint32_t dpb_signed_rank_critical(size_t n, double level);

/* The centre of some units and its interval; NaN: not known. */
struct dpb_centre {
    size_t n;
    double estimate;  /* Hodges, Lehmann: the median of the means of all two units */
    double low, high; /* all centres that neither W >= critical nor its mirror image refuses */
};
/* x: n finite numbers, up to DPB_LOOK_UNITS. critical: above half of n (n + 1) / 2; no interval
 * where no W can reach it. */
void dpb_signed_rank_centre(const double *x, size_t n, uint32_t critical,
                            struct dpb_centre *centre);

/* ---- looks ----------------------------------------------------------------------------------- */

/* Units from the first n of `planned` differences: each the mean of ceil(planned / DPB_LOOK_UNITS)
 * in a row. Differences that are not finite are left out, an incomplete unit too. Returns the
 * number of units. */
size_t dpb_look_units(const double *x, size_t n, size_t planned, double units[DPB_LOOK_UNITS]);
/* Whether a series is looked at after n units, before its last look. */
bool dpb_look_is_due(size_t n);
/* Looks at n units. An interval is there if a look is due, or `last` says that no unit follows. */
void dpb_look_at(const double *units, size_t n, bool last, struct dpb_centre *centre);

/* A look's verdict on the bound `at`. */
enum dpb_look { DPB_LOOK_OPEN, DPB_LOOK_BELOW, DPB_LOOK_ABOVE };
enum dpb_look dpb_look_decides(const struct dpb_centre *centre, double at);

#endif
