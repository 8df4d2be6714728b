/* test.c - see test.h. */
#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_TESTS = 256 };
static struct CMUnitTest tests[MOST_TESTS]; /* the listed by line, then the cases */
static int lines[MOST_TESTS];
static size_t n_listed, n_cases;

void add_case(CMUnitTestFunction function, const void *row, const char *name, ...)
{
    char *text;
    va_list list;
    va_start(list, name);
    if (n_cases + n_listed == MOST_TESTS || vasprintf(&text, name, list) < 0)
        abort();
    va_end(list);
    tests[n_listed + n_cases++] = (struct CMUnitTest){
        .name = text, .test_func = function, .initial_state = (void *)(uintptr_t)row};
}

void list_test(int line, const char *name, CMUnitTestFunction function, CMFixtureFunction setup,
               CMFixtureFunction teardown)
{
    size_t at = n_listed++;
    if (at == MOST_TESTS)
        abort();
    for (; at > 0 && lines[at - 1] > line; at--) {
        lines[at] = lines[at - 1];
        tests[at] = tests[at - 1];
    }
    lines[at] = line;
    tests[at] = (struct CMUnitTest){name, function, setup, teardown, NULL};
}

int test_main(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    const char *only = getenv("DPB_TEST_CASE");
    if (only && only[0])
        cmocka_set_test_filter(only);
    int failed = _cmocka_run_group_tests("tests", tests, n_listed + n_cases, setup, teardown);
    for (size_t i = 0; i < n_cases; i++)
        free((char *)(uintptr_t)tests[n_listed + i].name);
    return failed;
}
