/* needs: cuda stand-in */
/*
 * test_cuda_memory.c - the memory of the cuda device on a CUDA for tests: the plan of places, what
 * is too large, samples that come from pinned memory or from a pool on the device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cuda_options.h"
#include "lib/stand_in.h"

/* Places of a few hundred things with lives drawn at random: those that meet lie apart, and sharing
 * saves something. */
TEST(test_places)
{
    enum { N = 300, STEPS = 100 };
    static struct dpb_place places[N];
    struct dpb_place *list = NULL;
    size_t arena = 0, all = 0;
    srand(1);
    for (size_t i = 0; i < N; i++) {
        size_t first = (size_t)rand() % STEPS;
        dpb_place_add(&list, &places[i], 256 * (1 + (size_t)rand() % 50) - (size_t)rand() % 256,
                      256);
        assert_int_equal(places[i].bytes % 256, 0);
        places[i].kept = i % 50 == 0;
        if (i != 7) { /* which nobody uses */
            dpb_place_use(&places[i], first);
            dpb_place_use(&places[i], first + (size_t)rand() % 20);
        }
        all += places[i].bytes;
    }
    assert_true(dpb_places_plan(list, false, &arena));
    assert_true(arena < all / 2);
    for (size_t i = 0; i < N; i++) {
        assert_true(places[i].offset + places[i].bytes <= arena);
        for (size_t k = 0; k < i; k++) {
            const struct dpb_place *a = &places[i], *b = &places[k];
            bool apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            assert_true(apart || !dpb_places_meet(a, b));
        }
    }
    assert_true(places[7].kept);
}

/* Out of memory ends cleanly, with the numbers and the batch that would fit; which fits. */
TEST(test_too_large)
{
    const struct subject subject = {"resnet20", NULL, 0, 2, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    struct dpb_compile_args args = compile_args_of(&s);
    args.batch = 256;
    void *program = NULL;
    unsigned fits = 0;
    setenv("DPB_STAND_IN_MB", "200", 1);
    dpb_first_error_clear();
    assert_int_equal(s.ops->compile(s.device, &args, &memory, &program), DPB_NO_MEMORY);
    const char *says = strstr(dpb_first_error(NULL), "run.batch = 256 takes");
    assert_non_null(says);
    says = strstr(says + 1, "run.batch = ");
    assert_non_null(says);
    assert_int_equal(sscanf(says, "run.batch = %u would fit", &fits), 1);
    assert_in_range(fits, 8, 255);
    args.batch = fits;
    expect_ok(s.ops->compile(s.device, &args, &memory, &program));
    unsetenv("DPB_STAND_IN_MB");
    s.ops->release(program);
    session_close(&s);
}

/* ---- a pool of samples on the device --------------------------------------------------------- */

enum { POOLED = 6 };

/* Bytes that have gone up. */
static uint64_t uploaded(void)
{
    return stand_in_counted("stand_in_uploaded");
}

/* Passes copy nothing from or to pageable memory, which the host would have to wait for; more than
 * one piece of samples arrives. */
TEST(test_pinned)
{
    const struct subject subjects[] = {{"lenet", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL},
                                       {"tiny_dense", NULL, 0, 4400, DPB_FP32, DPB_CHW, NULL}};
    for (int i = 0; i < 2; i++) {
        struct dpb_session s;
        session_open(&subjects[i], DPB_PRECISION_FP32, true, &s);
        const size_t bytes = s.batch.n * dpb_sample_bytes(&s.format);
        assert_true((bytes > 4 << 20) == (i == 1));
        const uint64_t before = stand_in_counted("stand_in_pageable");
        for (int pass = 0; pass < 3; pass++) {
            session_forward(&s);
            session_backward(&s);
        }
        assert_true(stand_in_counted("stand_in_pageable") == before);
        const struct program *p = s.program;
        assert_memory_equal(p->samples->data, s.batch.samples, bytes);
        session_close(&s);
    }
}

/* The batch that the session has, of samples with these numbers. */
static void gather(struct dpb_session *s, const struct dpb_sample_pool *pool,
                   const uint32_t *numbers)
{
    const size_t bytes = dpb_sample_bytes(&s->format);
    for (uint32_t i = 0; i < s->batch.n; i++) {
        memcpy((char *)(uintptr_t)s->batch.samples + i * bytes,
               (const char *)pool->samples + numbers[i] * bytes, bytes);
        ((int32_t *)(uintptr_t)s->batch.labels)[i] = pool->labels[numbers[i]];
    }
}

/* A training step on the pool's samples gives the bits of one on the same samples from the host,
 * but no sample goes up for it; evaluations still bring their own. */
static void check_pool(dpb_sample_order order)
{
    static const uint32_t numbers[3][4] = {{5, 0, 3, 3}, {1, 2, 4, 0}, {2, 2, 2, 5}};
    const struct subject all = {"lenet", NULL, 0, POOLED, DPB_UINT8, order, NULL};
    const struct subject some = {"lenet", NULL, 0, 4, DPB_UINT8, order, NULL};
    struct dpb_session source, s;
    session_open(&all, DPB_PRECISION_FP32, true, &source);
    session_open(&some, DPB_PRECISION_FP32, true, &s);
    const struct dpb_sample_pool pool = {source.batch.samples, source.batch.labels, POOLED};
    struct dpb_compile_args args = compile_args_of(&s);
    args.pool = pool;
    const struct dpb_device_memory memory = dpb_session_memory(&s);
    const size_t gradient_bytes = s.graph->n_elements * sizeof(float);
    float *gradients = allocate(s.graph->n_elements, sizeof(float));
    void *hosted = s.program, *pooled;
    expect_ok(s.ops->compile(s.device, &args, &memory, &pooled));
    for (int pass = 0; pass < 3; pass++) {
        gather(&s, &pool, numbers[pass]);
        session_forward(&s);
        session_backward(&s);
        memcpy(gradients, s.gradients, gradient_bytes);
        const struct dpb_outcome outcome = s.outcome;
        const struct dpb_batch batch = s.batch;
        const uint64_t before = uploaded();
        s.program = pooled;
        s.batch.samples = NULL;
        s.batch.numbers = numbers[pass];
        session_forward(&s);
        session_backward(&s);
        if (!s.pass.weights_changed)
            assert_true(uploaded() - before < dpb_sample_bytes(&s.format));
        assert_memory_equal(&outcome, &s.outcome, sizeof outcome);
        assert_memory_equal(gradients, s.gradients, gradient_bytes);
        s.program = hosted;
        s.batch = batch;
        s.pass.weights_changed = false;
    }
    s.program = pooled;
    dpb_first_error_clear();
    assert_int_equal(s.ops->forward(pooled, &s.pass, &s.batch, &s.hooks, &s.outcome), DPB_USAGE);
    dpb_first_error_clear();
    s.pass.training = false;
    const uint64_t before = uploaded();
    session_forward(&s);
    assert_true(uploaded() - before >= 4 * dpb_sample_bytes(&s.format));
    s.ops->release(pooled);
    s.program = hosted;
    free(gradients);
    session_close(&s);
    session_close(&source);
}

TEST(test_pool)
{
    check_pool(DPB_CHW);
    check_pool(DPB_HWC);
}

TEST_MAIN(setup, teardown)
