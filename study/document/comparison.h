/*
 * comparison.h - the ratio of two rates, its 95 % interval, and the conclusion from it.
 *
 * All estimates are of logarithms of rates, so a ratio and its inverse are treated alike. The unit
 * is the repeat: steps of one process share its luck with memory and cores. Student's t takes the
 * number of repeats into account. Where there is one repeat, a circular block bootstrap over its
 * steps gives an error without other repeats: `of_steps` is true.
 *
 * Where cells ran in turns the unit is the block, and the statistics are those of signed ranks
 * (signed_rank.h). A change of the machine that outlasts a block makes neighbours alike: a
 * correlation r > 0.2 of neighbouring units widens the interval by sqrt((1 + r) / (1 - r)).
 *
 * Welch: The generalization of Student's problem when several different population variances are
 * involved. Biometrika 34, 1947. Politis, Romano: A circular block-resampling procedure for
 * stationary data. 1992.
 */
#ifndef DPB_STUDY_DOCUMENT_COMPARISON_H
#define DPB_STUDY_DOCUMENT_COMPARISON_H

#include <stdbool.h>
#include <stddef.h>

#include "base/stats.h"
#include "record/estimate.h"

/* The logarithm of a run's rate, samples / mean(t), from its step times, which may depend on their
 * predecessors: the error is that of a circular block bootstrap with infinitely many resamples. */
void dpb_estimate_of_steps(const double *step_ns, size_t n, double rate,
                           struct dpb_estimate *estimate);

enum dpb_shown { DPB_NOT_MEASURED, DPB_UNDECIDED, DPB_EQUAL, DPB_FASTER, DPB_SLOWER };

/* B against A. */
struct dpb_comparison {
    double ratio, low, high; /* B / A and its 95 % interval */
    double margin; /* DPB_EQUAL: the whole interval is within 1 / (1 + margin) .. 1 + margin */
    enum dpb_shown outcome; /* DPB_FASTER, DPB_SLOWER: without 1, and reaches beyond the margin */
    size_t take; /* DPB_UNDECIDED: this many repeats of this spread decide on another outcome */
    size_t take_wide;                 /* so many decide with twice the margin */
    bool paired, of_steps, of_blocks; /* of_blocks: `take` is a number of blocks */
};

/* `a` and `b` are independent of each other (Welch). */
void dpb_compare_apart(const struct dpb_estimate *a, const struct dpb_estimate *b, double margin,
                       struct dpb_comparison *comparison);
/* `difference`: of the logarithms B - A of rates taken one beside the other. */
void dpb_compare_paired(const struct dpb_estimate *difference, double margin,
                        struct dpb_comparison *comparison);
/* Differences of pairs, or blocks, that are taken one after the other until they decide. */
struct dpb_looks {
    size_t planned; /* pairs, at most; 0: the pairs are not looked at on the way */
    bool last;      /* no pair follows; otherwise the interval is that of the latest look */
};
/* `differences` of the logarithms B - A, by pairs; NaN: not measured. The interval is Student's, or
 * with `looks` that of the latest look (signed_rank.h): none before the first. NULL: no looks. */
void dpb_compare_turns(const double *differences, size_t n, const struct dpb_looks *looks,
                       double margin, struct dpb_comparison *comparison);

/* Whether B is slower than A by more than a threshold, a share of A. */
enum dpb_judged { DPB_NOT_JUDGED, DPB_PASSES, DPB_REGRESSES, DPB_OPEN };
/* The whole interval is above 1 - threshold (passes), below it (regresses), or neither is shown. */
enum dpb_judged dpb_comparison_judge(const struct dpb_comparison *comparison, double threshold);

/* x: n differences of the logarithms B - A of rates within blocks, in their order. `looks`: as of
 * dpb_compare_turns, of blocks. */
void dpb_compare_blocks(const double *x, size_t n, const struct dpb_looks *looks, double margin,
                        struct dpb_comparison *comparison);
/* "faster", "equal within 5 %", "undecided: take 12 repeats". */
void dpb_comparison_text(const struct dpb_comparison *comparison, char *text, size_t capacity);
/* What DPB_UNDECIDED asks for, where a repeat takes so many seconds:
 * ", about 5 h 40 min, or 12 for 10 %"; otherwise "". NaN: the time is not known. */
void dpb_comparison_effort(const struct dpb_comparison *comparison, double repeat_s, char *text,
                           size_t capacity);

#endif
