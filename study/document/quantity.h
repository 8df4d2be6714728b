/*
 * quantity.h - what a run has beside its rate, with an interval and an outcome each: accuracy,
 * loss, time and samples to target, bytes a step, memory, energy. Made and read from documents
 * alone.
 *
 * A row of a sweep has the values of its repeats. Accuracy, loss and samples to target differ by
 * seed, so their unit is the seed: repeats of one seed are one value. An interval says how far
 * another seed may differ; it does not say how far another test set may. All others differ by
 * repeat. Accuracies are compared by their difference, in points; the others by their ratio.
 */
#ifndef DPB_STUDY_DOCUMENT_QUANTITY_H
#define DPB_STUDY_DOCUMENT_QUANTITY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "study/document/comparison.h"

enum dpb_quantity_id {
    DPB_ACCURACY,
    DPB_LOSS,
    DPB_BYTES,
    DPB_MEMORY,
    DPB_ENERGY,
    DPB_TIME,
    DPB_SAMPLES,
    DPB_QUANTITIES
};

struct dpb_quantity {
    const char *name;           /* "bytes": of the option and of documents */
    const char *title;          /* "bytes a step" */
    const char *field;          /* of a row's `by_repeat`; NULL: of its `to_target` */
    const char *better, *worse; /* "fewer", "more" */
    double margin;              /* the default: points or percent that count as equal */
    bool points;                /* compared by difference; else by ratio */
    bool more;                  /* more is better */
    bool of_seeds;              /* repeats of one seed are one value */
    bool exact;                 /* one value is enough: nothing of it is by chance */
};
extern const struct dpb_quantity dpb_quantities[DPB_QUANTITIES];

/* Mean of a number of each step of a training run ("loss"), over those that lie within the last
 * tenth of the first `samples`, or of the last one where none does. NaN: it has none. */
double dpb_quantity_at(const json_t *run, const char *what, double samples);
/* A row's `by_repeat` from the n good runs of its cell: of each repeat the last run, an undisturbed
 * one where there is any. @owned. */
json_t *dpb_quantity_by_repeat(const json_t *const *runs, size_t n, int64_t n_repeats,
                               double samples);

/* A side of a comparison: geometric mean (of points the mean) and the number of its units. */
struct dpb_quantity_side {
    double mean;
    size_t n;
};

/* Row `b` by row `a`. */
struct dpb_quantity_comparison {
    struct dpb_quantity_side a, b;
    double change, low, high;   /* B / A, or B - A in points */
    struct dpb_comparison gain; /* as a rate: DPB_FASTER is better */
    const char *doubt;          /* why nothing may be concluded; NULL: no reason */
};

/* margin: points or percent. `together`: the rows ran together, so that repeats are pairs where
 * their seeds are not. False: one of them has no such quantity, or they train for different things.
 */
bool dpb_quantity_compare(const json_t *a, const json_t *b, enum dpb_quantity_id id, double margin,
                          bool together, struct dpb_quantity_comparison *made);
/* Whether B is worse than A by more than `margin`. A doubt leaves it open. */
enum dpb_judged dpb_quantity_judge(const struct dpb_quantity_comparison *made,
                                   enum dpb_quantity_id id, double margin);
/* "higher", "equal within 0.5 points", "undecided: 11 seeds would tell",
 * "no conclusion (one seed)". */
void dpb_quantity_text(const struct dpb_quantity_comparison *made, enum dpb_quantity_id id,
                       char *text, size_t capacity);
/* "+0.40 [-0.10..+0.90] points", "1.012 [1.010..1.014]". */
void dpb_quantity_change(const struct dpb_quantity_comparison *made, enum dpb_quantity_id id,
                         char *text, size_t capacity);

#endif
