/* needs: long */
/* test_accuracy_shm.c - shm trains LeNet on real data; test_accuracy.c has the others. */
#include "lib/accuracy.h"
#include "lib/cases.h"

TEST(test_shm)
{
    expect_lenet_learns("comm.name=shm run.workers=2");
}

int main(void)
{
    add_case(test_shm, NULL, "LeNet on Fashion-MNIST, shm");
    return run_cases("accuracy_shm", NULL, NULL);
}
