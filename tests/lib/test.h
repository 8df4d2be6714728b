/*
 * test.h - cmocka, with the headers that it needs before it.
 */
#ifndef DPB_TESTS_LIB_TEST_H
#define DPB_TESTS_LIB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
