/* test.c - see test.h. */
#include "lib/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const char cuda_cases[] = "cuda: *";

static bool has_cuda_cases(void)
{
    size_t i = n_listed;
    while (i < n_listed + n_cases && strncmp(tests[i].name, cuda_cases, sizeof "cuda: " - 1) != 0)
        i++;
    return i < n_listed + n_cases;
}

int test_main(CMFixtureFunction setup, CMFixtureFunction teardown)
{
    const char *only = getenv("DPB_TEST_CASE"), *cuda = getenv("DPB_TEST_CUDA");
    if (cuda && strcmp(cuda, "no") == 0)
        cmocka_set_skip_filter(cuda_cases);
    if (only && only[0])
        cmocka_set_test_filter(only);
    else if (cuda && strcmp(cuda, "only") == 0 && has_cuda_cases())
        cmocka_set_test_filter(cuda_cases);
    int failed = _cmocka_run_group_tests("tests", tests, n_listed + n_cases, setup, teardown);
    for (size_t i = 0; i < n_cases; i++)
        free((char *)(uintptr_t)tests[n_listed + i].name);
    return failed;
}
