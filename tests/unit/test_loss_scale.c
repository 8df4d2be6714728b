/*
 * test_loss_scale.c - the scale of the loss in fp16: halved by every overflow, doubled after a
 * thousand steps without one, and never where it is fixed. A step that is skipped for an overflow
 * leaves nothing in the running statistics.
 */
#include <math.h>

#include "lib/test.h"
#include "optim/loss_scale.h"
#include "optim/statistics.h"

static void clean_steps(struct dpb_loss_scale *scale, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(dpb_loss_scale_step(scale, false));
}

TEST(test_automatic)
{
    struct dpb_loss_scale scale;
    dpb_loss_scale_init(&scale, 0);
    assert_true(scale.scale == 65536 && scale.skipped == 0);
    clean_steps(&scale, 999);
    assert_true(scale.scale == 65536);
    clean_steps(&scale, 1);
    assert_true(scale.scale == 131072);
    clean_steps(&scale, 999); /* counted anew */
    assert_true(scale.scale == 131072);
    assert_true(dpb_loss_scale_step(&scale, true));
    assert_true(scale.scale == 65536 && scale.skipped == 1);
    clean_steps(&scale, 999); /* and after an overflow */
    assert_true(scale.scale == 65536);
    assert_true(dpb_loss_scale_step(&scale, true));
    assert_true(dpb_loss_scale_step(&scale, true));
    assert_true(scale.scale == 16384 && scale.skipped == 3);
    clean_steps(&scale, 2000);
    assert_true(scale.scale == 65536);
}

/* It ends at 1, where overflow is no matter of the scale any more, and at 2^32. */
TEST(test_ends)
{
    struct dpb_loss_scale scale;
    dpb_loss_scale_init(&scale, 0);
    for (int i = 0; i < 16; i++)
        assert_true(dpb_loss_scale_step(&scale, true));
    assert_true(scale.scale == 1);
    assert_false(dpb_loss_scale_step(&scale, true));
    assert_true(scale.scale == 1);
    clean_steps(&scale, 40 * DPB_LOSS_SCALE_CLEAN);
    assert_true(scale.scale == 0x1p32);
}

TEST(test_fixed)
{
    struct dpb_loss_scale scale;
    dpb_loss_scale_init(&scale, 1000);
    clean_steps(&scale, 5000);
    assert_true(dpb_loss_scale_step(&scale, true));
    assert_true(scale.scale == 1000 && scale.skipped == 1);
}

/* Activations that fp16 does not hold. */
TEST(test_statistics)
{
    static const struct dpb_state mean = {.n_elements = 1, .keep_average = 0.5};
    static const struct dpb_graph graph = {.n_states = 1, .states = &mean, .n_state_elements = 1};
    struct dpb_statistics statistics;
    assert_int_equal(dpb_statistics_open(&graph, DPB_FP32, &statistics), DPB_OK);
    float *of_batch = statistics.micro_batch, *running = statistics.running;
    *of_batch = INFINITY;
    dpb_statistics_add(&statistics, 0, 1); /* skipped: nothing is moved */
    for (int i = 0; i < 2; i++) {
        *of_batch = 4;
        dpb_statistics_add(&statistics, (uint32_t)i, 2);
    }
    dpb_statistics_move(&statistics);
    assert_true(*running == 2);
    dpb_statistics_close(&statistics);
}

TEST_MAIN(NULL, NULL)
