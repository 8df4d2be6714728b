/*
 * printed.h - what a form of a document prints, for a test to read.
 */
#ifndef DPB_TESTS_LIB_PRINTED_H
#define DPB_TESTS_LIB_PRINTED_H

#include <jansson.h>
#include <stdio.h>

#include "lib/own.h"

typedef void print_form(const json_t *document, FILE *out);

/* The running test owns it (test.h). */
char *printed_as(const json_t *document, print_form *form);

#endif
