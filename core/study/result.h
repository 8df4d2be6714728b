/*
 * result.h - the result of one run: one JSON document, schema dpbench.result/1, made from the
 * journals of its ranks; and the files it is kept in.
 *
 * Under the local launcher it is the launcher that makes it, from memory that it shares with the
 * ranks: so a run whose ranks died has a result too.
 */
#ifndef DPB_CORE_STUDY_RESULT_H
#define DPB_CORE_STUDY_RESULT_H

#include <jansson.h>
#include <stdio.h>

#include "train/experiment.h"
#include "world/board.h"

/* status: DPB_OK, DPB_INTERRUPTED, or what failed, with `error` (NULL: none). @owned; NULL only for
 * lack of memory. Works on incomplete journals; the experiment need not be built. */
json_t *dpb_result_make(const struct dpb_experiment *experiment, struct dpb_board *board,
                        dpb_status status, const char *error);

/* Writes `document` to `path` (or, NULL, to a new file in directory `results` named after the run,
 * its strategy, its workers and the time): beside it, synced, renamed; never over another run's file
 * in `results`. The name is copied to `written` (capacity PATH_MAX). */
dpb_status dpb_result_write(const json_t *document, const char *path, const char *results,
                            const char *run_name, char *written);
/* At start: the directory can be made and written, or DPB_USAGE. */
dpb_status dpb_result_probe(const char *path, const char *results);

/* For people: a table of the run, closed by `SamplesPerSec: 1234.5 +- 6.7 (jitter 8.9)`. */
void dpb_result_print(const json_t *document, FILE *out);

#endif
