/*
 * result_file.h - the files that results are kept in, each complete or not there (base/output.h).
 */
#ifndef DPB_CORE_RECORD_RESULT_FILE_H
#define DPB_CORE_RECORD_RESULT_FILE_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>

#include "dpbench/status.h"

/* Writes a document as JSON, piece by piece. False: out of memory, or `write` has returned less
 * than 0. */
typedef bool dpb_dump_document(const json_t *document, json_dump_callback_t write, void *context);

/* Writes `document` by `dump` (NULL: as it is) to `path`; with NULL to a new file in directory
 * `results`, named after the run, its strategy, its workers and the time. A file is written beside
 * its place, synced and renamed. An existing `path` is replaced and stays whole until then; in
 * `results` no file is replaced. `results` = "": nothing is written. Copies the name to `written`
 * (capacity PATH_MAX). */
dpb_status dpb_result_write(const json_t *document, dpb_dump_document *dump, const char *path,
                            const char *results, const char *run_name, char *written);
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

#endif
