/*
 * series_forms.h - the series of documents of any command (record/series.h) as one table, as CSV,
 * and as metrics in Prometheus' text format.
 */
#ifndef DPB_STUDY_TABLE_SERIES_FORMS_H
#define DPB_STUDY_TABLE_SERIES_FORMS_H

#include <jansson.h>
#include <stdio.h>

#include "dpbench/status.h"
#include "study/table/compare.h"

/* A line for each field of each row: the mean of the repeats and its 95 % interval, by logarithms;
 * with several documents each has its title. */
void dpb_series_print(const struct dpb_compared *documents, size_t n, FILE *out);
/* The same for a program: file, command, key, field, value, low, high, repeats. */
void dpb_series_csv(const struct dpb_compared *documents, size_t n, FILE *out);
/*
 * For node_exporter's textfile collector: gauges in base units, without time stamps (the collector
 * takes none); each metric's samples stand together. Labels are the document's (dpb_series_labels)
 * and the row's key; characters that no label has become `_`. A field has its mean and the ends of
 * its interval; a number that is not known has no sample. dpbench_up is 1 for a document whose
 * status is ok. DPB_USAGE, with nothing written: two rows would have the same labels.
 */
dpb_status dpb_series_prometheus(const struct dpb_compared *documents, size_t n, FILE *out);

#endif
