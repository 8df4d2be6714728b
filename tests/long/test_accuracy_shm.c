/* needs: long */
/* test_accuracy_shm.c - shm trains LeNet on real data; test_accuracy.c has the others. */
#include "lib/accuracy.h"
#include "lib/test.h"

TEST(test_shm)
{
    expect_lenet_learns("comm.name=shm run.workers=2");
}

TEST_MAIN(NULL, NULL)
