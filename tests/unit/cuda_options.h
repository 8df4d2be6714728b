/*
 * cuda_options.h - sessions of the cuda device on a CUDA for tests (tests/cuda): its options, and
 * what compiles a session's network once more.
 */
#ifndef DPB_TESTS_UNIT_CUDA_OPTIONS_H
#define DPB_TESTS_UNIT_CUDA_OPTIONS_H

#include <stdlib.h>

#include "lib/command.h"
#include "lib/session.h"
#include "lib/test.h"
#include "plugins/devices/cuda/program.h"

static char cache[64]; /* a directory for the tuning's file */
static struct options untuned;

/* Trying algorithms takes long where a processor does it. */
static inline struct options defaults(void)
{
    return (struct options){.ids = "", .tuning = "no", .graphs = 1, .workspace = UINT64_C(1) << 30};
}

static inline struct dpb_compile_args compile_args_of(const struct dpb_session *s)
{
    return (struct dpb_compile_args){.graph = s->graph,
                                     .batch = s->batch.n,
                                     .precision = s->precision,
                                     .training = true,
                                     .format = &s->format};
}

static inline int setup(void **unused)
{
    (void)unused;
    temporary_directory(cache);
    untuned = defaults();
    session_options(&untuned);
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("DPB_TEST_DEVICE", "cuda_stand_in", 1);
    return 0;
}

static inline int teardown(void **unused)
{
    (void)unused;
    remove_directory(cache);
    return 0;
}

#endif
