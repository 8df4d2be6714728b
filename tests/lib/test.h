/*
 * test.h - cmocka, with the headers that it needs before it, and the head of a test.
 */
#ifndef DPB_TESTS_LIB_TEST_H
#define DPB_TESTS_LIB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* A test that has no use for its state: TEST(test_name) { ... } */
#define TEST(name) static void name(__attribute__((unused)) void **unused)

#endif
