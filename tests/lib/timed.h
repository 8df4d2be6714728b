/*
 * timed.h - runs dpbench on the plugins `timed` of tests/plugins (device, model, data, strategy)
 * and compares what it measured with the times that it was given.
 */
#ifndef DPB_TESTS_LIB_TIMED_H
#define DPB_TESTS_LIB_TIMED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/command.h"

enum {
    TIMED_FIELDS = 16,
    TIMED_PASSES = 4096,
    TIMED_LAYERS = 16,
    TIMED_DEADLINE_S = 100,
    TIMED_TRIES = 6, /* runs of a case, at the most */
    /* In a step, at the most: of processes that wait for each other, by 10 buckets; of one worker's
     * threads beside the device, by 4 buckets, an update and a batch. */
    TIMED_WAKES = 20,
    TIMED_OWN_WAKES = 6
};

/* A time in the result: by path, in nanoseconds there, and what it has to be. */
struct timed_field {
    const char *path;
    double ms;
};

struct timed_case {
    const char *name;
    const char *options; /* SECTION.KEY=VALUE, separated by blanks */
    double step_ms;
    struct timed_field fields[TIMED_FIELDS];
};

/* A training pass by the device's own look at the clock; nanoseconds. */
struct timed_stretch {
    int64_t begin, deadline, end;
};
struct timed_pass {
    uint64_t step;
    struct timed_stretch forward, backward;
    int64_t strategy_ns; /* that backward's thread was in the strategy */
    uint32_t n_layers;
    int64_t final[TIMED_LAYERS]; /* when the gradients of a layer were, in backward's order */
};

/* Before the first run and after the last: for cmocka's group. */
int timed_setup(void **state);
int timed_teardown(void **state);

/* One run: printf-like options after those that are the same for all (6 timed steps after 1, no
 * gate, one compute thread, no result file). The test fails unless it ends with `exit_code`. */
void timed_run(struct command *command, int exit_code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Where timed_run finds its configuration, timed.ini, and where ranks write their traces. */
const char *timed_directory(void);
/* The passes of a rank in the last run; their number. */
size_t timed_trace(uint32_t rank, struct timed_pass passes[TIMED_PASSES]);
/* Whether other processes had more than a third of the last run's cores: what was measured says
 * nothing then. */
bool timed_was_busy(void);
/* For a test that has failed in each of its tries: says so and skips it where all were `busy`. */
void timed_skip_where(bool busy);
/* A process that does nothing but sleep beside a run, and sees how much later than it asked it is
 * woken: the mean, in ms, when it is stopped. There is one: `start` and timed_teardown stop the one
 * that a failed test left. */
pid_t timed_napper_start(void);
double timed_napper_stop(void); /* 0: none runs */

/* What a measured time may be off: 1 % or 0.3 ms. */
double timed_bound_ms(double ms);

/* Runs a case once. In every run the parts sum to the step exactly and the rate is the batch by the
 * mean step. Returns by how many ms the worst field is off beyond its bound and beyond what the
 * machine explains; `text` says which. The machine explains how late the device's sleeps ended, and
 * with a napper beside the run as much for each wake-up elsewhere. Time that dpbench itself takes
 * explains nothing. */
double timed_unexplained_ms(const struct timed_case *one, bool with_napper, char text[256]);

/* A busy machine prolongs sleeps: one of TIMED_TRIES runs has nothing unexplained, or others had
 * the cores in all of them, which decides nothing. */
void timed_check(const struct timed_case *one);
/* The same with `slack_ms` besides the bound: what the strategy cannot tell apart. */
void timed_check_within(const struct timed_case *one, double slack_ms);

#endif
