/*
 * sweep_list.h - the values of an axis and the condition of a sweep, as text.
 *
 *     LIST   item, item, ...     or with `;` between the items where they have commas of their own
 *     item   word                as it is, without the blanks around it
 *            "any text"          may hold commas and semicolons
 *            1..16 x2            1, 2, 4, 8, 16; `+4`: 1, 5, 9, 13; neither: +1
 *            1..64 MiB x4        1 MiB, 4 MiB, 16 MiB, 64 MiB
 *
 *     WHEN   test and test or test ...    `and` binds tighter
 *     test   SECTION.KEY OP VALUE         OP: = != < <= > >=; all but = and != compare numbers
 *            SUM OP SUM         numbers (cli/expression.h): run.workers * run.batch <= 256
 *
 * VALUE is a word of the option's own form, as 4 MiB, or "any text". Unquoted, it has none of
 * = ! < > & | , ; ' and ".
 *
 * In an .ini file a `;` after a blank begins a comment: write "a;b", or quote.
 */
#ifndef DPB_STUDY_SWEEP_SWEEP_LIST_H
#define DPB_STUDY_SWEEP_SWEEP_LIST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "cli/expression.h"
#include "dpbench/status.h"

/* `name` begins the messages ("x.ini:3: sweep.run.workers"). Refuses (DPB_USAGE) an empty or
 * repeated value, a quote without its end, a malformed range or one of more than 1000 values.
 * *values and each of them is @owned. */
dpb_status dpb_sweep_list(const char *list, const char *name, char ***values, size_t *n_values);
void dpb_sweep_list_destroy(char **values, size_t n_values);

/* The typed value of `text` for SECTION.KEY, equal for all texts of one value; `text` NULL: of the
 * cell, or *value = NULL where the cell has none. DPB_USAGE with `name`: it does not parse. *value
 * is @owned. */
typedef dpb_status dpb_sweep_read(const void *context, const char *name, const char *section,
                                  const char *key, const char *text, json_t **value);
/* The value of an expression of the cell. */
typedef dpb_status dpb_sweep_number_of(const void *context, const char *name, const char *text,
                                       struct dpb_amount *value);
/* *holds: whether the condition holds. DPB_USAGE with `name`: not a condition, a key without a
 * value, no number where one is compared. */
dpb_status dpb_sweep_when(const char *when, const char *name, dpb_sweep_read *read,
                          dpb_sweep_number_of *quantity, const void *context, bool *holds);

#endif
