/*
 * sandbox.h - a directory of its own for a test program that runs dpbench: it is the working
 * directory, so that messages name short paths, and it goes when the program ends.
 */
#ifndef DPB_TESTS_LIB_SANDBOX_H
#define DPB_TESTS_LIB_SANDBOX_H

#include <stddef.h>

/* cmocka's group fixtures. The build directory becomes absolute, DPBENCH_PLUGIN_PATH that of the
 * tests' plugins, and orphans of what is started the program's own (traces.h). */
int sandbox_setup(void **state);
int sandbox_teardown(void **state);

/* Preloads tests/preload/NAME.so into what is started from here on, under a sanitizer, too. Call
 * the second when that is enough; it is a teardown of cmocka's as well, for tests that fail. */
void sandbox_preload(const char *name);
int sandbox_forget_preload(void **unused);

/* A text file in it: printf-like. */
void sandbox_write(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A copy of the file of a plugin as DIRECTORY/FILE, where `text` begins with another letter: `n`
 * bytes, which are in it at least once; NULL: as it is. */
void sandbox_copy_plugin(const char *into, const char *file, const char *text, size_t n,
                         char letter);

#endif
