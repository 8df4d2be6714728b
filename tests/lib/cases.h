/*
 * cases.h - tests made from tables: named at run time, each with its row.
 */
#ifndef DPB_TESTS_LIB_CASES_H
#define DPB_TESTS_LIB_CASES_H

#include "lib/test.h"

/* Adds a test; `row` becomes its *state. The name is printf-like. */
void add_case(CMUnitTestFunction function, const void *row, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
/* Runs all that were added, or those of the name $DPB_TEST_CASE (with * and ?); what main
 * returns. */
int run_cases(const char *group, CMFixtureFunction setup, CMFixtureFunction teardown);

#endif
