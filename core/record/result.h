/*
 * result.h - the result of one run: one JSON document, schema dpbench.result/1, made from the
 * journals of its ranks.
 *
 * The launcher makes the result from memory that it shares with the ranks, so a run whose ranks
 * died has a result, too.
 */
#ifndef DPB_CORE_RECORD_RESULT_H
#define DPB_CORE_RECORD_RESULT_H

#include <jansson.h>
#include <stdio.h>

#include "plan/experiment.h"
#include "world/board.h"

/* status: DPB_OK, DPB_INTERRUPTED, or a failure, with `error` (NULL: none). @owned; NULL for lack
 * of memory. Journals may be incomplete; the experiment need not be built. */
json_t *dpb_result_make(const struct dpb_experiment *experiment, struct dpb_board *board,
                        dpb_status status, const char *error);

/* The result of a job that was refused before it had ranks: the configuration as written, and the
 * reason. @owned; NULL for lack of memory. */
json_t *dpb_result_refused(const struct dpb_config *config, dpb_status status, const char *error);

/* result.world. @owned. */
json_t *dpb_result_world(const struct dpb_experiment *experiment, uint32_t n_left,
                         bool oversubscribed);
/* result.strategy: {name, consistency}, the label of its contract. @owned. */
json_t *dpb_result_strategy(const struct dpb_experiment *experiment, const char *consistency);
/* result.status of the end of a job. */
const char *dpb_result_status(dpb_status status);
/* "88.00 %" or "loss 2.3", of a run's `target` or a row's `to_target`. */
void dpb_result_goal(const json_t *target, char *text, size_t capacity);
/* For people: a table of the run. Unless the run failed, it closes with the mean rate, its
 * uncertainty, and the jitter of the steps' rates: `SamplesPerSec: 1234.5 +- 6.7 (jitter 8.9)`. */
void dpb_result_print(const json_t *document, FILE *out);

#endif
