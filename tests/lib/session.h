/*
 * session.h - conform/session.h for tests of dpbench's own devices: a failure fails the test, and
 * the promises of this device beyond device.h are checked. The device is cpu; or, by
 * $DPB_TEST_DEVICE, cuda, on a GPU, or cuda_stand_in: the cuda device with a CUDA for tests in
 * place of NVIDIA's.
 */
#ifndef DPB_TESTS_LIB_SESSION_H
#define DPB_TESTS_LIB_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "conform/session.h"
#include "dpbench/plugin.h"

enum { SEED = DPB_SESSION_SEED, STEP = DPB_SESSION_STEP, FIRST_SAMPLE = DPB_SESSION_FIRST_SAMPLE };

/* What is trained: a model and how its samples come. */
struct subject {
    const char *model, *version; /* a model plugin's name, and its option (NULL: the default) */
    uint32_t image;              /* height and width, or length; 0: the model's */
    uint32_t batch;
    dpb_dtype type;
    dpb_sample_order order;
    const struct dpb_plugin *own; /* a model of the test's own instead of `model`; NULL: none */
};

/* What is not the same of all devices. */
struct tested_device {
    const char *name;
    bool captures;     /* passes as a whole: `progress` need not be called between ops */
    bool own_memory;   /* which memory_needed, of the host's, does not count */
    bool tensor_cores; /* computes in tf32 and fp16, too */
    /* In bf16: gradients by weights of convolutions are rounded once; and so is the sum of a
     * convolution or dense layer before its bias is added. */
    bool rounds_weights, rounds_sums;
};
const struct tested_device *tested_device(void);
/* The device's options; NULL, as at first: the defaults. @borrowed */
void session_options(const void *options);

/* Compiles the subject, of 10 classes, on two threads. Weights are initial, but no bias is 0 and no
 * gamma 1. Fails the test with the device's message. session_close frees all. */
void session_open(const struct subject *subject, dpb_precision precision, bool training,
                  struct dpb_session *session);
void session_close(struct dpb_session *session);
/* The session's network once more on its device and in its memory, with an account of its ops
 * (run.profile). @owned: ops->release. */
void *session_compile_with_account(const struct dpb_session *session);

/* Fails the test unless the device refuses to compile the session's network in this precision, with
 * these words. */
void session_expect_refused(const struct dpb_session *session, dpb_precision precision,
                            const char *words);

/* One pass by session.pass; outcome and gradients stay in the session. Each fails the test when the
 * device does, calls a hook too seldom, or changes a gradient that it has announced as final;
 * backward also when it leaves a gradient unassigned. */
void session_forward(struct dpb_session *session);
void session_backward(struct dpb_session *session);

/* Zeroed and aligned to a cache line, with a line behind it; ends the test where there is none.
 * @owned: free(). */
void *allocate(size_t n, size_t size);
/* Fails the test with core's message unless it is DPB_OK. */
void expect_ok(dpb_status status);

#endif
