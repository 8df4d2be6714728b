/*
 * learning.h - whether the runs of a row have learned. A strategy that is fast and does not train
 * is no strategy.
 *
 * A row has learned if its loss has fallen below 98 % of ln(classes), the loss of guessing, and is
 * not above its start. It is judged once it has trained for an epoch, or where another row of its
 * task has learned by the same number of samples: a short run for speed need not learn.
 */
#ifndef DPB_STUDY_DOCUMENT_LEARNING_H
#define DPB_STUDY_DOCUMENT_LEARNING_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* A row's `learning` from the n good runs of its cell: `samples` of the shortest run, the mean loss
 * over its first and last tenth (`start`, `end`), `chance` (ln(classes), or null), `epoch`: whether
 * `samples` are one; `learned`: null until dpb_learning_judge. Null without losses. @owned. */
json_t *dpb_learning_of_runs(const json_t *const *runs, size_t n);
/* Sets `learning.learned` of rows[]: whose loss has fallen, true; of others false where they are
 * judged, else null. */
void dpb_learning_judge(json_t *rows);
/* Whether the row is shown not to learn. */
bool dpb_learning_failed(const json_t *row);

#endif
