/*
 * compare.h - two results, or two sweeps, side by side: first all other differences, then the
 * rates. One JSON document, schema dpbench.compare/1, and its table, made from the two documents
 * alone.
 *
 * Two documents were measured at different times, so their repeats are no pairs, unless `dpbench
 * gate` made them (study/document/comparison.h). A rate that is in doubt allows no conclusion.
 */
#ifndef DPB_STUDY_TABLE_COMPARE_H
#define DPB_STUDY_TABLE_COMPARE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "cli/cli.h"
#include "dpbench/status.h"
#include "study/document/comparison.h"
#include "study/document/quantity.h"

struct dpb_compared {
    const char *file;       /* as the user named it */
    const json_t *document; /* @borrowed: any that dpb_measured_read reads */
};

struct dpb_compare_how {
    double threshold;       /* the share of A's rate (0.05) by which B may be slower; NaN: any */
    const char *same;       /* parts that must be the same: "machine,config"; NULL: none */
    bool paired;            /* two sweeps that ran together, repeat by repeat */
    bool side_by_side;      /* each repeat's two in turns (sweep/pair.h) */
    struct dpb_looks looks; /* at the repeats of these; planned = 0: none */
    const double *margins;  /* of other quantities (compare_quantities.h) */
};

/* The numbers of a row's to_target that are compared: time = samples / rate. */
enum { DPB_COMPARE_TARGETS = 3 };
extern const char *const dpb_compare_targets[DPB_COMPARE_TARGETS];

/* The argument of --threshold, "5" or "5%", as a share. */
dpb_status dpb_compare_threshold(const struct dpb_command *self, const char *text, double *share);
/* The argument of --accuracy and the like, "0.5". *margin: points or percent. */
dpb_status dpb_compare_margin(const struct dpb_command *self, enum dpb_quantity_id id,
                              const char *text, double *margin);
/* The argument of --undecided: "pass" or "fail". */
dpb_status dpb_compare_undecided(const struct dpb_command *self, const char *text,
                                 const char **undecided);

/* *regression: a cell of B is shown to be slower by more than the threshold, or one of the two has
 * no rate. `judgement` of the document has more: "pass", "regression" or "undecided"; null without
 * a threshold or margin. Documents of comm, data and links are compared by the rows and fields of
 * their series; of times the ratio is that of 1 / time. DPB_USAGE: the documents are of two kinds,
 * they have no common cell, or they differ in a part that must be the same. *document is @owned. */
dpb_status dpb_compare_make(const struct dpb_compared *a, const struct dpb_compared *b,
                            const struct dpb_compare_how *how, json_t **document, bool *regression);
/* DPB_REGRESSION or DPB_NOT_DECIDED with its message, as the judgement of a document says.
 * undecided: "pass" or "fail" in place of DPB_NOT_DECIDED, or NULL. */
dpb_status dpb_compare_status(const json_t *document, const char *undecided);
/* compare_print.c: for people. */
void dpb_compare_print(const json_t *document, FILE *out);

#endif
