/* needs: threads stand-in cells */
/*
 * test_combinations.c - every combination of device, precision, strategy, servers, mode and
 * machines is allowed or refused by name as tests/lib/combinations.c says once more, and under a
 * launcher a fifth of them (all: make check-long); and a set of runs covers every pair of values of
 * these and of other axes that meet them. All of them are run in
 * tests/long/test_all_combinations.c.
 */
#include <stdint.h>

#include "lib/combinations.h"
#include "lib/test.h"

enum { MOST_ROWS = 256, TRIES = 4000 };

TEST(test_checked)
{
    unsigned n[3];
    for (unsigned launcher = 0; launcher < n_values(LAUNCHER); launcher++)
        n[launcher] = combinations_check(launcher);
    print_message("%u combinations, %u under mpirun, %u under srun\n", n[0], n[1], n[2]);
    assert_true(n[0] > 100 && (n[2] == 0) == (n[1] == 0));
    assert_true(n[1] == 0 || (n[1] >= n[0] / 6 && n[2] >= n[0] / 6));
}

/* ---- a set that covers all pairs ----------------------------------------------------------- */

static bool covered[N_AXES][MOST_VALUES][N_AXES][MOST_VALUES];
static uint32_t random_state = 1;

static unsigned random_below(unsigned n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static unsigned gain(const struct combination *c)
{
    unsigned n = 0;
    for (enum axis a = 0; a < N_AXES; a++)
        for (enum axis b = a + 1; b < N_AXES; b++)
            n += !covered[a][c->at[a]][b][c->at[b]];
    return n;
}

static void cover(const struct combination *c)
{
    for (enum axis a = 0; a < N_AXES; a++)
        for (enum axis b = a + 1; b < N_AXES; b++)
            covered[a][c->at[a]][b][c->at[b]] = true;
}

/* Of random combinations with these two values that work, the one that covers the most new pairs;
 * where none works, one with the fewest reasons to be refused. A launcher takes long to start, so
 * only what needs one has it. */
static struct combination best_with(enum axis a, unsigned va, enum axis b, unsigned vb)
{
    struct combination best = {{0}}, c;
    unsigned most = 0;
    for (int i = 0; i < TRIES; i++) {
        for (enum axis axis = 0; axis < N_AXES; axis++)
            c.at[axis] = (unsigned char)random_below(n_values(axis));
        c.at[a] = (unsigned char)va;
        c.at[b] = (unsigned char)vb;
        if (a != LAUNCHER && b != LAUNCHER && !combination_by_mpi(&c))
            c.at[LAUNCHER] = 0;
        unsigned worth =
            combination_works(&c) ? N_AXES + gain(&c) : N_AXES - combination_contradictions(&c);
        if (worth > most) {
            most = worth;
            best = c;
        }
    }
    return best;
}

TEST(test_pairs)
{
    unsigned n_rows = 0, n_ran = 0, n_launched = 0;
    for (enum axis a = 0; a < N_AXES; a++)
        for (unsigned va = 0; va < n_values(a); va++)
            for (enum axis b = a + 1; b < N_AXES; b++)
                for (unsigned vb = 0; vb < n_values(b); vb++) {
                    if (covered[a][va][b][vb])
                        continue;
                    struct combination c = best_with(a, va, b, vb);
                    if (!combination_is_there(&c))
                        continue;
                    bool works = combination_works(&c);
                    combination_run(&c);
                    if (works)
                        cover(&c);
                    covered[a][va][b][vb] = true;
                    n_rows++;
                    n_ran += works;
                    n_launched += c.at[LAUNCHER] != 0;
                }
    print_message("%u combinations, %u of them ran; %u with a launcher\n", n_rows, n_ran,
                  n_launched);
    assert_true(n_rows < MOST_ROWS && n_ran > 10);
}

TEST_MAIN(combinations_setup, combinations_teardown)
