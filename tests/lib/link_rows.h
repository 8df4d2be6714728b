/*
 * link_rows.h - what the document of `dpbench links` has of devices: for tests of the command and
 * of a device's part of it.
 */
#ifndef DPB_TESTS_LIB_LINK_ROWS_H
#define DPB_TESTS_LIB_LINK_ROWS_H

#include <jansson.h>
#include <stddef.h>

/* The device plugin of that name; fails the test where there is none. @borrowed */
const json_t *links_of(const json_t *document, const char *name);
/* Fails the test unless these are n rates at rising sizes, from 1 KiB on. */
void expect_rates(const json_t *points, size_t n);

#endif
