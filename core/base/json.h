/*
 * json.h - small functions that read and make the documents of results.
 */
#ifndef DPB_CORE_BASE_JSON_H
#define DPB_CORE_BASE_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "base/each.h"

/* The value at a path like "timing.samples_per_s.mean"; NULL: none. @borrowed. */
const json_t *dpb_json_at(const json_t *document, const char *path);
/* The number there; NaN for null or no value. */
double dpb_json_number(const json_t *document, const char *path);
/* The number of an item; NaN for null or no number. */
double dpb_json_item(const json_t *array, size_t i);
/* The number there as an index of an array; SIZE_MAX: it can be none. */
size_t dpb_json_index(const json_t *document, const char *path);
/* The numbers at `path` of each item; NaN for null or no value. *n: their number. @owned: free().
 * NULL, and 0: out of memory. */
double *dpb_json_numbers(const json_t *list, const char *path, size_t *n);
/* The string there, or `otherwise`. @borrowed. */
const char *dpb_json_text(const json_t *document, const char *path, const char *otherwise);
/* Whether the string there is `text`. */
bool dpb_json_is(const json_t *document, const char *path, const char *text);
/* Whether `true` stands there. */
bool dpb_json_true(const json_t *document, const char *path);
/* The first item of a list with this value at `path` ("": the item itself). NULL: none.
 * @borrowed. */
json_t *dpb_json_find(const json_t *list, const char *path, const json_t *value);
/* Equal values, or none on both sides (NULL). */
static inline bool dpb_json_same(const json_t *a, const json_t *b)
{
    return a == b || json_equal(a, b);
}

/* Calls `visit` for every value in which `a` and `b` differ. Objects of both are compared by their
 * members; a value that only one has comes with NULL for the other. `name` begins every path. */
typedef void dpb_json_visit(void *context, const char *path, const json_t *a, const json_t *b);
void dpb_json_differences(const json_t *a, const json_t *b, const char *name, dpb_json_visit *visit,
                          void *context);

/* A real; null where it is not finite. @owned. */
json_t *dpb_json_real(double value);
/* A moment as "2026-01-31T12:00:00Z". @owned. */
json_t *dpb_json_time(time_t when);
/* A string; bytes that are no UTF-8 (a message cut off, a file's name) become `?`. @owned. */
json_t *dpb_json_string(const char *text);

/* A message of several lines as one: "; " between the lines, a blank behind a colon. NULL: out of
 * memory. @owned. */
json_t *dpb_json_line(const char *text);

/* A file's name, or its first `length` bytes, for people: no control characters. @owned. */
json_t *dpb_json_file(const char *name, size_t length);

/* Writes a value in one line; "missing" for NULL. */
void dpb_json_print(const json_t *value, FILE *out);
/* Writes the number there, divided by `unit`, in a column that begins with a blank; "-" for null or
 * no value. */
void dpb_json_print_cell(const json_t *document, const char *path, double unit, int width,
                         int digits, FILE *out);

/* The text that `print` writes. NULL: out of memory. @owned. */
char *dpb_json_printed(const json_t *document, void (*print)(const json_t *document, FILE *out));
/* A copy whose strings have no control characters (dpb_escape), for printing a document that may
 * have come from anywhere. An `error` is one line (dpb_json_line). Parts with nothing to escape
 * are shared with the document. NULL: out of memory. @owned. */
json_t *dpb_json_printable(const json_t *document);

#endif
