/* cases.c - see cases.h. */
#include "lib/cases.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_CASES = 256 };
static struct CMUnitTest cases[MOST_CASES];
static size_t n_cases;

void add_case(CMUnitTestFunction function, const void *row, const char *name, ...)
{
    char *text;
    va_list list;
    va_start(list, name);
    if (n_cases == MOST_CASES || vasprintf(&text, name, list) < 0)
        abort();
    va_end(list);
    cases[n_cases++] = (struct CMUnitTest){
        .name = text, .test_func = function, .initial_state = (void *)(uintptr_t)row};
}

int run_cases(const char *group, CMFixtureFunction setup, CMFixtureFunction teardown)
{
    const char *only = getenv("DPB_TEST_CASE");
    if (only && only[0])
        cmocka_set_test_filter(only);
    int failed = _cmocka_run_group_tests(group, cases, n_cases, setup, teardown);
    for (size_t i = 0; i < n_cases; i++)
        free((char *)(uintptr_t)cases[i].name);
    return failed;
}
