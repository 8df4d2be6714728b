/*
 * test_conclusions.c - 10,000 gates of recorded pairs, as tests/unit/test_signed_rank.c draws a few:
 * the table of docs/measuring.md.
 */
#include "gate_study.h"
#include "lib/test.h"

enum { STUDIES = 10000 };

TEST(gates_of_recorded_pairs)
{
    static const double losses[] = {0, 0.02, 0.04, 0.05, 0.07};
    enum { LOSSES = sizeof losses / sizeof *losses };
    for (size_t i = 0; i < 2 * LOSSES; i++) {
        const double loss = losses[i % LOSSES];
        struct gate_tally tally = {0};
        gate_studies(loss, 0.02, i >= LOSSES, STUDIES, &tally);
        print_message("| %s | %g %% | %.1f %% | %.1f %% | %.1f %% | %.1f |\n",
                      i >= LOSSES ? "normal" : "recorded", 100 * loss,
                      100.0 * tally.regressions / STUDIES, 100.0 * tally.passes / STUDIES,
                      100.0 * tally.undecided / STUDIES, tally.pairs / STUDIES);
        if (loss == 0)
            assert_true(tally.regressions <= STUDIES / 100 && tally.passes >= STUDIES * 9 / 10);
        if (loss == 0.02)
            assert_true(tally.regressions <= STUDIES * 35 / 1000);
        if (loss == 0.05)
            assert_true(tally.regressions >= STUDIES * 95 / 100);
    }
}

TEST_MAIN(NULL, NULL)
