/*
 * read.h - reads the documents that runs and sweeps leave: a file, or the directory of a sweep's
 * runs.
 */
#ifndef DPB_STUDY_DOCUMENT_READ_H
#define DPB_STUDY_DOCUMENT_READ_H

#include <jansson.h>
#include <stdbool.h>

#include "dpbench/status.h"

/* Any JSON file, packed (.gz) or not. The runs of a document are spilled (spill.h), one after the
 * other. A mark of UTF-8 is skipped; UTF-16, and a key that an object has twice, are errors. NULL:
 * *error. @owned. */
json_t *dpb_document_load(const char *path, json_error_t *error);
/* Reads a file of dpb_result_write: schema dpbench.result/1 or dpbench.sweep/1, or DPB_USAGE. From
 * a directory of dpb_result_begin it makes the document of the runs that are there, with rows.
 * *document is @owned. */
dpb_status dpb_result_read(const char *path, json_t **document);
/* The same of any document with series (record/series.h): also schema dpbench.comm/1,
 * dpbench.data/1 and dpbench.links/1. DPB_USAGE: an older one without series. */
dpb_status dpb_measured_read(const char *path, json_t **document);
/* Whether the document is a run's or a sweep's, which have more than series. */
bool dpb_result_is(const json_t *document);
/* dpb_measured_read for people: dpb_json_printable. */
dpb_status dpb_measured_read_printable(const char *path, json_t **document);
/* Whether it is the good result of one worker whose step is that of a synchronous one; else
 * DPB_USAGE, with what is missing. `who` needs it, for the message: "predict needs". */
dpb_status dpb_result_of_one_worker(const json_t *result, const char *path, const char *who);
/* A part of a result by its path ("machine"); of a sweep, the part of the first run that has it.
 * NULL: none has it. @borrowed. */
const json_t *dpb_result_part(const json_t *document, const char *path);

/* The versions of a result, or of a sweep's first run, with the plugins of all runs, each once:
 * plugins."KIND 'NAME'"; another build of the same name has a number, too. NULL: there are none.
 * @owned. */
json_t *dpb_result_all_versions(const json_t *document);
/* Such versions without the plugins that `other` lacks. NULL for NULL. @owned. */
json_t *dpb_result_versions_within(const json_t *versions, const json_t *other);

#endif
