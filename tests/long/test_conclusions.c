/*
 * test_conclusions.c - 10,000 gates of recorded pairs, and as many comparisons of quantities. Of
 * both tests/unit/test_signed_rank.c and test_quantity.c draw a few. It prints the tables of
 * docs/measuring.md.
 */
#include "gate_study.h"
#include "lib/test.h"
#include "quantity_study.h"

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

TEST(intervals_of_quantities)
{
    static const uint32_t sizes[] = {3, 5, 10};
    for (int kind = 0; kind < COVER_KINDS; kind++) {
        double share[3];
        for (size_t i = 0; i < 3; i++)
            share[i] = (double)quantity_covered(kind, sizes[i], STUDIES) / STUDIES;
        print_message("| %s | %.1f %% | %.1f %% | %.1f %% |\n", cover_names[kind], 100 * share[0],
                      100 * share[1], 100 * share[2]);
        for (size_t i = 0; i < 3; i++) {
            const bool skewed_apart = kind == COVER_SKEWED_APART;
            assert_true(share[i] >= (skewed_apart ? 0.80 : 0.93));
            assert_true(skewed_apart || share[i] <= (kind >= COVER_PAIRED ? 0.98 : 0.97));
        }
    }
}

TEST_MAIN(NULL, NULL)
