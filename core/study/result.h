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

/* The result of a job that was refused before it had ranks: the configuration as it was written,
 * and why. @owned; NULL for lack of memory. */
json_t *dpb_result_refused(const struct dpb_config *config, dpb_status status, const char *error);

/* result.world: who took part. @owned. */
json_t *dpb_result_world(const struct dpb_experiment *experiment, bool oversubscribed);
/* result.strategy: {name, consistency}, the label of its contract. @owned. */
json_t *dpb_result_strategy(const struct dpb_experiment *experiment, const char *consistency);
/* result.status, of how a job ended. */
const char *dpb_result_status(dpb_status status);
/* result.versions: dpbench and its build, the experiment's plugins, their files and libraries,
 * core's libraries (built against and loaded), compiler, C library, kernel. @owned. */
json_t *dpb_result_versions(const struct dpb_experiment *experiment);
/* result.invocation: this process's command line, directory, and those variables of its environment
 * that change what is measured. @owned. */
json_t *dpb_result_invocation(void);
/* result.inputs: what the files are that the experiment reads (data.path, checkpoint.load): place,
 * number, bytes, fingerprint; null where one is not given. To be called before they may change.
 * @owned. */
json_t *dpb_result_inputs(const struct dpb_experiment *experiment);
/* A relative path of those settings (in `config` of a result) becomes one from the directory that
 * the result was made in, where this is another. */
dpb_status dpb_result_locate(const json_t *document, struct dpb_config *config);

/* Reads a file that dpb_result_write wrote: schema dpbench.result/1 or dpbench.sweep/1, or
 * DPB_USAGE. *document is @owned. */
dpb_status dpb_result_read(const char *path, json_t **document);
/* A part of a result by its path ("machine"). A sweep keeps it in its runs; the first that has it
 * speaks for all. NULL: none has. @borrowed. */
const json_t *dpb_result_part(const json_t *document, const char *path);

/* Samples a second, and between what. */
struct dpb_rate {
    double rate, low, high;
};
/* The mean of a run, with the 95 % interval of that mean; NaN where nothing was timed. */
struct dpb_rate dpb_result_rate(const json_t *result);

/* Writes `document` to `path` (or, NULL, to a new file in directory `results` named after the run,
 * its strategy, its workers and the time): beside it, synced, renamed. In
 * `results` never over another run's file; a file that `path` names is replaced, and stays whole
 * until then. `results` = "": nothing is written. The name is copied to `written` (capacity
 * PATH_MAX). */
dpb_status dpb_result_write(const json_t *document, const char *path, const char *results,
                            const char *run_name, char *written);
/* At start: the directory can be made and written, or DPB_USAGE. Leaves nothing behind. */
dpb_status dpb_result_probe(const char *path, const char *results);

/* For people: a table of the run, closed by `SamplesPerSec: 1234.5 +- 6.7 (jitter 8.9)`. */
void dpb_result_print(const json_t *document, FILE *out);

#endif
