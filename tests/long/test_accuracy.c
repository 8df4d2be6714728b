/* test_accuracy.c - the strategies that test_accuracy_shm.c leaves out train LeNet as well. */
#include "lib/accuracy.h"
#include "lib/cases.h"

static const char *const strategies[] = {"comm.name=replicated",
                                         "comm.name=ps_cpu",
                                         "comm.name=ps_cpu run.servers=1",
                                         "comm.name=ps_cpu run.servers=2",
                                         "comm.name=local_sgd",
                                         "comm.name=gossip",
                                         "comm.name=easgd",
                                         "comm.name=sma"};

static void test_strategy(void **state)
{
    expect_lenet_learns(*state);
}

int main(void)
{
    for (size_t i = 0; i < sizeof strategies / sizeof strategies[0]; i++)
        add_case(test_strategy, strategies[i], "LeNet on Fashion-MNIST, %s", strategies[i]);
    return run_cases("accuracy", NULL, NULL);
}
