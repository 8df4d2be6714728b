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

/* ---- what a test owns ------------------------------------------------------------------------ */

struct owned {
    void *memory;
    void (*release)(void *memory);
};
static struct owned *owned;
static size_t n_owned, n_kept;

void *own_memory(void *memory, void (*release)(void *memory))
{
    if (!memory)
        return NULL;
    if ((n_owned & (n_owned - 1)) == 0)
        owned = realloc(owned, (2 * n_owned + 1) * sizeof *owned);
    if (!owned)
        abort();
    owned[n_owned++] = (struct owned){memory, release};
    return memory;
}

void free_owned(const void *memory)
{
    for (size_t i = n_owned; memory && i-- > 0;) {
        if (owned[i].memory != memory)
            continue;
        owned[i].release(owned[i].memory);
        memmove(&owned[i], &owned[i + 1], (--n_owned - i) * sizeof *owned);
        n_kept -= i < n_kept;
        return;
    }
}

void keep_owned(void)
{
    n_kept = n_owned;
}

static void release_down_to(size_t n)
{
    while (n_owned > n) {
        n_owned--;
        owned[n_owned].release(owned[n_owned].memory);
    }
}

/* ---- running --------------------------------------------------------------------------------- */

/* cmocka runs each test by these functions; their state is the running one. */
struct running {
    const struct CMUnitTest *test;
    void *state;
};
static CMFixtureFunction group_setup;
static void *group_state;

static int set_group_up(__attribute__((unused)) void **state)
{
    int result = group_setup ? group_setup(&group_state) : 0;
    keep_owned();
    return result;
}

static int set_up(void **state)
{
    struct running *running = *state;
    running->state = group_state ? group_state : running->test->initial_state;
    return running->test->setup_func ? running->test->setup_func(&running->state) : 0;
}

static void run(void **state)
{
    struct running *running = *state;
    running->test->test_func(&running->state);
}

static int tear_down(void **state)
{
    struct running *running = *state;
    CMFixtureFunction teardown = running->test->teardown_func;
    int result = teardown ? teardown(&running->state) : 0;
    release_down_to(n_kept);
    return result;
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
    static struct running running[MOST_TESTS];
    static struct CMUnitTest wrapped[MOST_TESTS];
    for (size_t i = 0; i < n_listed + n_cases; i++) {
        running[i].test = &tests[i];
        wrapped[i] = (struct CMUnitTest){tests[i].name, run, set_up, tear_down, &running[i]};
    }
    group_setup = setup;
    int failed =
        _cmocka_run_group_tests("tests", wrapped, n_listed + n_cases, set_group_up, teardown);
    release_down_to(0);
    free(owned);
    owned = NULL; /* a program may run another group of cmocka's */
    for (size_t i = 0; i < n_cases; i++)
        free((char *)(uintptr_t)tests[n_listed + i].name);
    return failed;
}
