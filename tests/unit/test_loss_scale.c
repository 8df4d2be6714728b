/*
 * test_loss_scale.c - the scale of the loss in fp16: halved by every overflow, doubled after a
 * thousand steps without one, and never where it is fixed.
 */

#include "lib/test.h"
#include "train/loss_scale.h"

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

TEST_MAIN(NULL, NULL)
