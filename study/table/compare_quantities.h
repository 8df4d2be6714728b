/*
 * compare_quantities.h - the part of a comparison beside rates: accuracy, loss, bytes and all
 * others of study/document/quantity.h, cell by cell.
 */
#ifndef DPB_STUDY_TABLE_COMPARE_QUANTITIES_H
#define DPB_STUDY_TABLE_COMPARE_QUANTITIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "study/document/quantity.h"

struct dpb_quantities_how {
    const double *margins; /* by quantity: points or percent by which B may be worse; NaN: any.
                              NULL: any of all */
    bool paired;           /* the documents were made together */
};

/* Whether two documents train the same model on the same data, by their settings. */
bool dpb_compare_same_task(const json_t *a, const json_t *b);
/* A row's `quantities`: all that both have. `row_a`, `row_b`: rows of two sweeps; NULL: the
 * documents are runs. @owned. */
json_t *dpb_compare_quantities(const json_t *a, const json_t *row_a, const json_t *b,
                               const json_t *row_b, const struct dpb_quantities_how *how);
/* The document's `margins`: those that were given. @owned. */
json_t *dpb_compare_margins(const double *margins);
/* The quantity with a margin that no row of rows[] has; DPB_QUANTITIES: there is none. */
enum dpb_quantity_id dpb_compare_quantity_missing(const json_t *rows, const double *margins);
/* The first row of rows[] with a quantity of this judgement, whose *name is set; NULL: none.
 * @borrowed. */
const json_t *dpb_compare_quantity_judged(const json_t *rows, const char *judgement,
                                          const char **name);
/* For people; `label` writes what tells a row from others. */
typedef void dpb_compare_label(const json_t *row, char *text, size_t capacity);
void dpb_compare_quantities_print(const json_t *document, dpb_compare_label *label, FILE *out);

#endif
