/*
 * combinations.h - what may be combined: the axes of an experiment, rules that say which of their
 * combinations work, and the test of one: it runs, verified, or is refused by name with exit code
 * 2; `check` says beforehand which. The rules know of the program what strategies declare.
 */
#ifndef DPB_TESTS_LIB_COMBINATIONS_H
#define DPB_TESTS_LIB_COMBINATIONS_H

#include <stdbool.h>

enum axis {
    DEVICE,
    PRECISION,
    STRATEGY,
    SERVERS,
    MODE,
    HOSTS,
    LAUNCHER,
    N_FIRST, /* those of which all combinations are looked at */
    WORKERS = N_FIRST,
    GRADIENT,
    COMM_CORES,
    PROVE,
    ACCUMULATE,
    OPTIMIZER,
    EVALUATION,
    SAVING,
    N_AXES
};

enum { MOST_VALUES = 32 };

struct combination {
    unsigned char at[N_AXES]; /* index of the value of each axis */
};

/* cmocka's group fixtures: a sandbox and, where combinations with launchers are there, a Slurm. */
int combinations_setup(void **state);
int combinations_teardown(void **state);

unsigned n_values(enum axis axis);
const char *combination_value(const struct combination *c, enum axis axis);
bool combination_has(const struct combination *c, enum axis axis, const char *value);

/* Whether its workers sum by MPI, which a launcher starts. */
bool combination_by_mpi(const struct combination *c);
/* Whether this system has what it takes: a plugin that was not built, a launcher. */
bool combination_is_there(const struct combination *c);
/* Whether it has to work, by the rules. */
bool combination_works(const struct combination *c);
/* How many of its values contradict others. */
unsigned combination_contradictions(const struct combination *c);

/* The next of all combinations of the first axes, with two workers and the others' first values;
 * false after the last. Begins with the one of all zeros. */
bool combination_next(struct combination *c);

/* Runs it; fails the test unless it ends as the rules say, and shows that it did what was asked. */
void combination_run(const struct combination *c);
/* The same of `dpbench check` for the combinations of the first axes by this launcher (an index of
 * that axis' values), one after the other in one go: without a launcher all, with one a fifth, with
 * DPB_ALL_CELLS all. How many there were. */
unsigned combinations_check(unsigned by);

#endif
