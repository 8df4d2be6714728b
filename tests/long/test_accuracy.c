/* test_accuracy.c - the strategies that test_accuracy_shm.c leaves out train LeNet as well. */
#include <string.h>

#include "lib/accuracy.h"
#include "lib/strategies.h"
#include "lib/test.h"

static void test_form(void **state)
{
    expect_lenet_learns(form_settings(*state, "", 2));
}

int main(void)
{
    for (const struct strategy_form *form = NULL; (form = any_form_after(form));)
        if (strcmp(form->name, "shm") != 0 || form->sharded)
            add_case(test_form, form, "LeNet on Fashion-MNIST, %s", form->label);
    return test_main(NULL, NULL);
}
