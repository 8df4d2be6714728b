/*
 * test_followed_many.c - hundreds of trainings that are drawn (tests/lib/drawn.h). The steps check
 * catches at least 95 of 100 wrong ones, and accuses no right one.
 *
 * DPB_FOLLOWED=N: N right ones in place of 150; DPB_SEED=S: others.
 */
#include <stdlib.h>

#include "lib/drawn.h"
#include "lib/faults.h"
#include "lib/test.h"
#include "lib/training.h"

enum { WRONG = 200, RIGHT = 150 };

TEST(test_wrong)
{
    const struct drawn_count count = drawn_wrong(1000 + faults_number_of("DPB_SEED", 0), WRONG);
    print_message("%u of %u wrong ones caught\n", count.caught, count.n);
    assert_true(100 * count.caught >= 95 * count.n);
}

TEST(test_right)
{
    const struct drawn_count count = drawn_right(1000 + faults_number_of("DPB_SEED", 0),
                                                 faults_number_of("DPB_FOLLOWED", RIGHT));
    print_message("no right one of %u accused; of %u the steps were not shown\n", count.n,
                  count.ends);
    assert_true(10 * count.ends <= count.n);
}

int main(void)
{
    return test_main(training_setup_mutants, training_teardown);
}
