/*
 * series.h - the part `series` of a document: what was measured, in one form for all commands that
 * measure. Rows have a key, and for each of their fields a value of each repeat, in the order of
 * time:
 *
 *     "series": [{"key": {"size": 65536}, "values": {"bus_gb_per_s": [9.1, 9.3, 9.2]}}]
 *
 * A repeat is a run of its own in a sweep. Within one process it is a window or a batch of
 * consecutive steps or iterations (batch means: Schmeiser, Batch size effects in the analysis of
 * simulation output. Operations Research 30(3), 1982); such repeats share the luck of the process.
 * Values are positive; null: the repeat has none.
 */
#ifndef DPB_CORE_RECORD_SERIES_H
#define DPB_CORE_RECORD_SERIES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "record/estimate.h"

enum { DPB_SERIES_REPEATS = 10 }; /* batches of consecutive steps or iterations */

typedef enum dpb_series_kind {
    DPB_SERIES_COUNTS,
    DPB_SERIES_BYTES,
    DPB_SERIES_TIME
} dpb_series_kind;

/* A field of series. */
struct dpb_series_field {
    const char *name, *commands; /* "run,data": those that measure it */
    dpb_series_kind kind;        /* a rate, a rate of bytes, or a time: the less, the better */
    double unit;                 /* of a value: in 1/s, bytes/s or seconds */
    const char *stem, *base;     /* of the metric: dpbench_STEM_[low_ | high_]BASE */
    const char *help;
};
extern const struct dpb_series_field dpb_series_fields[];               /* ended by name = NULL */
const struct dpb_series_field *dpb_series_field_find(const char *name); /* NULL: none */

/* ---- writing ------------------------------------------------------------------------------- */

/* Adds a row without values to the document's series; takes `key`, an object of numbers and texts.
 * @borrowed from the document. */
json_t *dpb_series_add(json_t *document, json_t *key);
/* Sets the values of a field: those of n repeats. */
void dpb_series_set(json_t *row, const char *field, const double *x, size_t n);
/* The batches of n numbers in the order of time: each one's sum and how many it has. Up to
 * DPB_SERIES_REPEATS numbers are a batch each. Returns the number of batches. */
typedef void dpb_series_batch(void *context, size_t batch, const double *x, size_t n);
size_t dpb_series_batches(const double *x, size_t n, dpb_series_batch *each, void *context);
/* The series of a run's result, from its step times. */
void dpb_series_of_run(json_t *result);

/* ---- reading: of documents that may have come from anywhere ---------------------------------- */

/* The repeats of a row's field: NaN for one without value. *n: their number. @owned: free(). */
double *dpb_series_values(const json_t *row, const char *field, size_t *n);
/* Their mean and its interval, by logarithms. One repeat, or a repeat without a value: no interval
 * (NaN). */
void dpb_series_estimate(const double *x, size_t n, struct dpb_estimate *estimate);
/* "comm" of dpbench.comm/1, "run" of dpbench.result/1; "?": no schema of dpbench. */
void dpb_series_command(const json_t *document, char command[32]);
/* What tells this document from others: command, name, strategy, workers, host. @owned. */
json_t *dpb_series_labels(const json_t *document);
/* "size=65536 model=lenet"; "": no key. */
void dpb_series_key_text(const json_t *key, char *text, size_t capacity);
/* JSON lines: for each row and repeat the labels, `time`, `status`, the key, `repeat` and the
 * values as one object. */
void dpb_series_lines(const json_t *document, FILE *out);

#endif
