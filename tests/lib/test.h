/*
 * test.h - cmocka, with the headers that it needs before it, and tests that list themselves.
 */
#ifndef DPB_TESTS_LIB_TEST_H
#define DPB_TESTS_LIB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A test: TEST(test_name) { ... }. test_main runs all tests of the file, in the file's order. */
#define TEST(name) TEST_WITH(name, NULL, NULL)
/* The same, with fixtures that are declared above. */
#define TEST_WITH(name, setup, teardown)                       \
    static void name(void **state);                            \
    __attribute__((constructor)) static void list_##name(void) \
    {                                                          \
        list_test(__LINE__, #name, name, setup, teardown);     \
    }                                                          \
    CASE(name)
/* A test that runs only if main adds it by add_case. */
#define CASE(name) static void name(__attribute__((unused)) void **state)

/* The address and thread sanitizers are slow. They see as much the first time that code runs as
 * later. Under them a list has its first `n` entries, which differ the most. A PLAIN_TEST does not
 * run: other tests of its file run all of its code. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#define PART_OF(list, n) (n)
#define PLAIN_TEST(name)                                    \
    __attribute__((unused)) static void name(void **state); \
    CASE(name)
#else
#define SANITIZED 0
#define PART_OF(list, n) ((int)(sizeof list / sizeof list[0]))
#define PLAIN_TEST(name) TEST(name)
#endif

/* The main of a program that only runs its tests, between the fixtures of the group. */
#define TEST_MAIN(setup, teardown)         \
    int main(void)                         \
    {                                      \
        return test_main(setup, teardown); \
    }

/* Adds a test; `row` becomes its *state. The name is printf-like. */
void add_case(CMUnitTestFunction function, const void *row, const char *name, ...)
    __attribute__((format(printf, 3, 4)));
/* For TEST: adds the test that stands in that line of the file. */
void list_test(int line, const char *name, CMUnitTestFunction function, CMFixtureFunction setup,
               CMFixtureFunction teardown);
/* Has `release` free the memory, which is returned, as the running test ends, or the program where
 * the group's setup calls it: what came last goes first. NULL is no memory. For one thread only. */
void *own_memory(void *memory, void (*release)(void *memory));
/* Frees it now, where it is owned: for what is large. */
void free_owned(const void *memory);
/* All that is owned by now stays until the program ends: later tests use it. */
void keep_owned(void);
/* Runs the tests that TEST listed, then the cases that add_case added. If $DPB_TEST_CASE is set,
 * test_main runs only the tests of that name (with * and ?). Cases that take the CUDA for tests
 * (stand_in.h) are called `cuda: ...`: with DPB_TEST_CUDA=no test_main leaves them out, and with
 * DPB_TEST_CUDA=only it runs them alone where the program has any. Returns what main returns. */
int test_main(CMFixtureFunction setup, CMFixtureFunction teardown);

#endif
