/* needs: stand-in */
/*
 * test_all_combinations.c - every combination of device, precision, strategy, servers, mode and
 * machines is started: it runs, verified, or is refused by name. Under each launcher, too, but for
 * those that are refused: `check` has said that under it (test_combinations.c), and starting
 * hundreds of them takes long.
 */
#include <stdint.h>

#include "lib/combinations.h"
#include "lib/test.h"

static void test_strategy(void **state)
{
    struct combination c = {{0}}, row = {{0}};
    unsigned at = (unsigned)(uintptr_t)*state, n = 0, n_ran = 0;
    row.at[STRATEGY] = (unsigned char)(at % n_values(STRATEGY));
    row.at[LAUNCHER] = (unsigned char)(at / n_values(STRATEGY));
    if (!combination_is_there(&row))
        skip();
    do {
        if (c.at[STRATEGY] != row.at[STRATEGY] || c.at[LAUNCHER] != row.at[LAUNCHER] ||
            !combination_is_there(&c))
            continue;
        n++;
        if (c.at[LAUNCHER] == 0 || combination_works(&c))
            combination_run(&c);
        n_ran += combination_works(&c);
    } while (combination_next(&c));
    print_message("%u combinations, %u of them ran\n", n, n_ran);
}

int main(void)
{
    struct combination c = {{0}};
    for (uintptr_t i = 0; i < n_values(STRATEGY) * n_values(LAUNCHER); i++) {
        c.at[STRATEGY] = (unsigned char)(i % n_values(STRATEGY));
        c.at[LAUNCHER] = (unsigned char)(i / n_values(STRATEGY));
        add_case(test_strategy, (const void *)i, "%s %s", combination_value(&c, STRATEGY),
                 combination_value(&c, LAUNCHER));
    }
    return test_main(combinations_setup, combinations_teardown);
}
