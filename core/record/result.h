/*
 * result.h - the result of one run: one JSON document, schema dpbench.result/1, made from the
 * journals of its ranks, and its file.
 *
 * The launcher makes the result from memory that it shares with the ranks, so a run whose ranks
 * died has a result, too.
 */
#ifndef DPB_CORE_RECORD_RESULT_H
#define DPB_CORE_RECORD_RESULT_H

#include <jansson.h>
#include <limits.h>
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
/* result.versions: dpbench and its build, the experiment's plugins, their files and libraries,
 * core's libraries (built against and loaded), compiler, C library, kernel. @owned. */
json_t *dpb_result_versions(const struct dpb_experiment *experiment);
/* Adds the experiment's plugins that `plugins` lacks, as dpb_result_all_versions (study/document) names them. */
void dpb_result_add_plugins(const struct dpb_experiment *experiment, json_t *plugins);
/* result.invocation: this process's command line and directory, and the environment's variables
 * that change measurements. @owned. */
json_t *dpb_result_invocation(void);
/* result.inputs: the files that the experiment reads (data.path, checkpoint.load, the trace of
 * run.delay): place, number, bytes, fingerprint; null: not given. Call it before the run, which may
 * change them. @owned. */
json_t *dpb_result_inputs(const struct dpb_experiment *experiment);
/* Whether this option names a file or a directory that the run reads. */
bool dpb_result_is_input(const struct dpb_option_table *table, const struct dpb_option *row);
/* Makes relative paths of these settings, in a result's `config`, start from the directory of the
 * result's run, if this is another directory. */
dpb_status dpb_result_locate(const json_t *document, struct dpb_config *config);

/* Writes `document` to `path`; with NULL to a new file in directory `results`, named after the run,
 * its strategy, its workers and the time. A file is written beside its place, synced and renamed.
 * An existing `path` is replaced and stays whole until then; in `results` no file is replaced.
 * `results` = "": nothing is written. Copies the name to `written` (capacity PATH_MAX). */
dpb_status dpb_result_write(const json_t *document, const char *path, const char *results,
                            const char *run_name, char *written);
/* Makes a directory for the runs of a sweep, each written when it ends: "FILE.runs" beside the file
 * that dpb_result_write would write; a number keeps it apart from others. In `results` that file
 * is then "FILE.json". Copies the name to `directory` (PATH_MAX); "": nothing is to be written. */
dpb_status dpb_result_begin(const json_t *document, const char *path, const char *results,
                            const char *run_name, char *directory);
/* Replaces the file "sweep.json" (`number` 0: the sweep without runs) or "NUMBER.json" (a run, from
 * 1) of such a directory. */
dpb_status dpb_result_keep(const json_t *document, const char *directory, size_t number);
/* The name of that file. False: it is too long. */
bool dpb_result_kept(const char *directory, size_t number, char path[PATH_MAX]);
/* Before the run: DPB_USAGE unless the directory can be made and written. Leaves nothing behind. */
dpb_status dpb_result_probe(const char *path, const char *results);
/* DPB_USAGE if `path`, the argument of `option`, is there and no regular file, or names a directory
 * by a slash at its end. */
dpb_status dpb_result_probe_file(const char *option, const char *path);
/* Puts a page of `length` bytes in the place of `path`, as dpb_result_write does with a document.
 * Call dpb_result_probe_file first. */
dpb_status dpb_result_write_page(const char *text, size_t length, const char *path);

/* For people: a table of the run, closed by `SamplesPerSec: 1234.5 +- 6.7 (jitter 8.9)`: the mean
 * rate, its uncertainty, and the jitter of the steps' rates. */
void dpb_result_print(const json_t *document, FILE *out);

#endif
