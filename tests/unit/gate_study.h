/*
 * gate_study.h - gates of one build against itself, from recorded pairs: each study draws its pairs
 * anew, each with a sign by chance, and takes a loss off this build's rates.
 */
#ifndef DPB_TESTS_UNIT_GATE_STUDY_H
#define DPB_TESTS_UNIT_GATE_STUDY_H

#include <math.h>

#include "dpbench/random.h"
#include "gate_pairs.h"
#include "study/document/comparison.h"

enum { GATE_PAIRS = sizeof gate_pairs / sizeof *gate_pairs };

struct gate_tally {
    int regressions, passes, undecided;
    double pairs; /* of all studies */
};

/* The standard deviation of the pairs: their signs are drawn. */
static double gate_deviation(void)
{
    static double deviation;
    double squares = 0;
    for (int i = 0; i < GATE_PAIRS && deviation == 0; i++)
        squares += gate_pairs[i] * gate_pairs[i];
    if (deviation == 0)
        deviation = sqrt(squares / GATE_PAIRS);
    return deviation;
}

/* A pair of this study without effect: a recorded one, or a normal one, both of 2.8 %. */
static double gate_pair(uint32_t study, uint32_t n, bool is_normal)
{
    const struct dpb_random4 r = dpb_random(61, DPB_STREAM_SYNTHETIC, study, n, 0, 0);
    double normal[2];
    dpb_random_normal(r.v[2], r.v[3], normal);
    const double recorded =
        gate_pairs[r.v[0] % GATE_PAIRS] / gate_deviation() * (r.v[1] & 1 ? 1 : -1);
    return 0.028 * (is_normal ? normal[0] : recorded);
}

/* As `dpbench gate --threshold` takes pairs, up to 30: the judgement is that of the first look that
 * decides. */
static enum dpb_judged gate_study(double loss, double threshold, uint32_t study, bool is_normal,
                                  double *pairs)
{
    double x[30];
    enum dpb_judged judged = DPB_OPEN;
    for (uint32_t n = 0; n < 30 && judged == DPB_OPEN; n++) {
        const struct dpb_looks looks = {30, n == 29};
        struct dpb_comparison comparison;
        x[n] = gate_pair(study, n, is_normal) + log1p(-loss);
        *pairs += 1;
        if (n < 9 || (n - 9) % 4 != 0)
            continue;
        dpb_compare_turns(x, n + 1, &looks, threshold, &comparison);
        judged = dpb_comparison_judge(&comparison, threshold);
    }
    return judged;
}

static void gate_studies(double loss, double threshold, bool is_normal, int n,
                         struct gate_tally *tally)
{
    for (int i = 0; i < n; i++) {
        const enum dpb_judged judged =
            gate_study(loss, threshold, (uint32_t)i, is_normal, &tally->pairs);
        tally->regressions += judged == DPB_REGRESSES;
        tally->passes += judged == DPB_PASSES;
        tally->undecided += judged == DPB_OPEN;
    }
}

#endif
