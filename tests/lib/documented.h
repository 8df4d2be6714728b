/* documented.h - every field of a document stands in docs/results.md. */
#ifndef DPB_TESTS_LIB_DOCUMENTED_H
#define DPB_TESTS_LIB_DOCUMENTED_H

#include <jansson.h>

/* Fails the test at the first name of a field that docs/results.md does not have in backquotes.
 * Names below `config`, `environment`, `plugins`, `axes`, `cell` and `key` are not looked at. */
void expect_documented(const json_t *document);
/* The same, of another page. */
void expect_documented_in(const json_t *document, const char *path);

#endif
