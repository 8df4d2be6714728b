/*
 * forms.h - the tables of a sweep as Markdown, for a page, and its rows, runs, steps and
 * evaluations as CSV, for a program.
 */
#ifndef DPB_STUDY_TABLE_FORMS_H
#define DPB_STUDY_TABLE_FORMS_H

#include <jansson.h>
#include <stdio.h>

/* Both tables of dpb_sweep_print, and the notes below them as a list. */
void dpb_sweep_markdown(const json_t *document, FILE *out);
/* A line for each of the objects, behind a line of the paths to their scalars. */
void dpb_objects_csv(const json_t *objects, FILE *out);
/* rows[], a line each, by RFC 4180 but for the line's end, a line feed. The columns are the fields
 * of rows[] by their paths, as in `to_target.seconds.mean`; lists are left out, null is empty. */
void dpb_sweep_csv(const json_t *document, FILE *out);
/* runs[], likewise, by the fields of a result that are measured, with host, processor and build;
 * settings are those of the cell. */
void dpb_runs_csv(const json_t *document, FILE *out);
/* A line for each step of each run whose time is known: run (its number in runs[]), axes, repeat,
 * step, timed, step_ns, loss. */
void dpb_steps_csv(const json_t *document, FILE *out);
/* A line for each evaluation of each run: run, axes, repeat, and the fields of eval[]. */
void dpb_evals_csv(const json_t *document, FILE *out);

#endif
