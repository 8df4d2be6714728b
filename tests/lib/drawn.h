/*
 * drawn.h - trainings that are drawn from a seed: strategies, codecs, optimizers and types as they
 * may be combined; and the same with a mistake (tests/plugins/comm_seeded.c). For core's steps
 * check, which accuses the second and never the first.
 */
#ifndef DPB_TESTS_LIB_DRAWN_H
#define DPB_TESTS_LIB_DRAWN_H

#include <stdbool.h>
#include <stdint.h>

struct drawn_count {
    unsigned n, caught;
    unsigned ends; /* right ones whose steps were not shown, for whatever reason */
};

/* Runs n trainings with the seeds behind `seed`; combinations that dpbench refuses do not count.
 * `right` fails the test if one is accused. `wrong` prints each that is not caught. */
struct drawn_count drawn_right(uint32_t seed, unsigned n);
struct drawn_count drawn_wrong(uint32_t seed, unsigned n);

#endif
