/*
 * spill.h - the runs of a document in little memory. A spilled run has its largest parts in a
 * temporary file: the numbers of its steps, its ranks, its monitor, its explanation (`why`). It
 * shares all other parts that equal those of another run. Read the spilled parts by the functions
 * below; all others are in their places. The owner of a document spills its runs, and changes
 * nothing within a spilled run but its own members and those of `cell`.
 */
#ifndef DPB_STUDY_DOCUMENT_SPILL_H
#define DPB_STUDY_DOCUMENT_SPILL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Spills a run. `like`: a spilled run that may be similar; NULL: none. The file has no name; it is
 * made in $TMPDIR, or /tmp. If the file cannot be made or written, one warning says so, and the
 * parts stay in memory. Equal runs stay equal (json_equal). One thread at a time. */
void dpb_run_spill(json_t *run, const json_t *like);
/* A copy of the run as it was. @owned; NULL: the file cannot be read, or out of memory. */
json_t *dpb_run_whole(const json_t *run);
/* A part of a run, spilled or not, as it was ("loss", "timing.step_ns"). @owned; NULL: none. */
json_t *dpb_run_part(const json_t *run, const char *path);
/* The number of items of a list of a run; one of its items as a number, NaN: none. The first items
 * are in memory. */
size_t dpb_run_size(const json_t *run, const char *path);
double dpb_run_item(const json_t *run, const char *path, size_t i);

/* Writes a document, or a run, as JSON, its runs as they were, one after the other (a
 * dpb_dump_document). False: also if the file cannot be read. */
bool dpb_document_dump(const json_t *document, json_dump_callback_t write, void *context);

#endif
