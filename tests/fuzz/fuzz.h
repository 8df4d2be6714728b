/*
 * fuzz.h - what fuzz targets share. A target is fuzz_NAME.c with LLVMFuzzerTestOneInput: input that
 * nobody has to trust goes through one reader of dpbench. `make fuzz` links it with libFuzzer,
 * `make check` with replay.c, which runs the files of tests/fuzz/corpus/NAME.
 *
 * Inputs that must be refused are no finding; a crash, a sanitizer's report, an abort of FUZZ_CHECK
 * or memory beyond what the input can justify are.
 */
#ifndef DPB_TESTS_FUZZ_H
#define DPB_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "dpbench/plugin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FUZZ_CHECK(condition)                                                           \
    do {                                                                                \
        if (!(condition)) {                                                             \
            fprintf(stderr, "%s:%d: FUZZ_CHECK(%s)\n", __FILE__, __LINE__, #condition); \
            abort();                                                                    \
        }                                                                               \
    } while (0)

/* An input that is taken apart from its front; past its end there are zeros. */
struct fuzz_input {
    const uint8_t *data;
    size_t size;
};

uint8_t fuzz_byte(struct fuzz_input *input);
uint32_t fuzz_word(struct fuzz_input *input); /* 4 bytes, little endian */
/* Two bytes of length, and as many bytes as there are up to that. @borrowed of the input. */
struct fuzz_input fuzz_part(struct fuzz_input *input);

/* The input was good and has been used: replay demands it of the files good-*, so that a target
 * does not end at its first check for ever. */
void fuzz_used(void);
bool fuzz_was_used(void); /* since fuzz_begin */

/* Forgets the last input's errors and warnings; nothing is printed. First in each run. */
void fuzz_begin(void);

/* A file with these bytes, without a name of its own: a path that can be opened until
 * fuzz_close. */
const char *fuzz_file(const uint8_t *data, size_t size);
void fuzz_close(void);

/* A directory of this process, removed when it ends, and a file in it. */
const char *fuzz_directory(void);
void fuzz_write(const char *name, const uint8_t *data, size_t size);

/* The host table of a plugin: core's, but for what it must not allocate. */
const struct dpb_host *fuzz_host(void);

#endif
