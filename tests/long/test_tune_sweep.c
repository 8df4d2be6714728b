/* needs: cpu alone */
/*
 * test_tune_sweep.c - what `dpbench tune` finds on this machine, for LeNet over learners and batch,
 * is within 5 % of the best cell of the whole product.
 *
 * A search and a sweep that run one after the other see another machine each. So both best cells
 * are run again by turns, and the median of the ratios decides.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/test.h"

enum { TURNS = 7 };

static const double deadline_s = 900.0, least = 0.95;

/* conf/tune_learners.ini, with shorter trials on less data. Its threshold of 10 % would let the
 * search take, along each axis, a setting that is 10 % slower. */
static const char base[] = "[run]\nresults =\nsteady_limit_s = 0\nwarmup_steps = 3\nseconds = 0.5\n"
                           "[model]\nname = lenet\n[data]\nsamples = 1024\ntest_samples = 8\n"
                           "[comm]\nname = sma\n";
static const char axes[] = "run.learners = 1..4\nrun.batch = 8..64 x2\nretry_disturbed = 0\n";

struct cell {
    char learners[8], batch[8];
};

static void read_cell(const json_t *cell, struct cell *read)
{
    const char *learners = json_string_value(json_object_get(cell, "run.learners"));
    const char *batch = json_string_value(json_object_get(cell, "run.batch"));
    assert_true(learners && batch);
    snprintf(read->learners, sizeof read->learners, "%s", learners);
    snprintf(read->batch, sizeof read->batch, "%s", batch);
}

static void tune(struct cell *best)
{
    struct command command;
    sandbox_write("tune.ini", "%s[tune]\n%sthreshold = 2\n", base, axes);
    dpbench_ends(&command, deadline_s, 0, "tune -c tune.ini --json");
    read_cell(json_at(command.json, "tune.best.cell"), best);
    print_message("tune: %zu trials of %d cells\n",
                  json_array_size(json_at(command.json, "tune.trials")),
                  (int)json_number_at(command.json, "tune.cells"));
}

static void sweep(struct cell *best)
{
    struct command command;
    const json_t *row;
    double most = 0.0;
    size_t i;
    sandbox_write("sweep.ini", "%s[sweep]\n%s", base, axes);
    dpbench_ends(&command, deadline_s, 0, "-c sweep.ini --json");
    assert_int_equal(json_array_size(json_at(command.json, "rows")), 16);
    json_array_foreach(json_at(command.json, "rows"), i, row)
    {
        const double rate = json_number_at(row, "samples_per_s.median");
        if (rate <= most)
            continue;
        most = rate;
        read_cell(json_at(row, "cell"), best);
    }
}

static double rate_of(const struct cell *cell)
{
    struct command command;
    sandbox_write("one.ini", "%s", base);
    dpbench_ends(&command, deadline_s, 0,
                 "-c one.ini --json run.seconds=1 run.learners=%s run.batch=%s", cell->learners,
                 cell->batch);
    const double rate = json_number_at(command.json, "timing.samples_per_s.median");
    return rate;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(test_is_near_the_best)
{
    struct cell tuned, swept;
    double ratios[TURNS];
    tune(&tuned);
    sweep(&swept);
    print_message("tune: %s learners, batch %s; sweep: %s learners, batch %s\n", tuned.learners,
                  tuned.batch, swept.learners, swept.batch);
    if (strcmp(tuned.learners, swept.learners) == 0 && strcmp(tuned.batch, swept.batch) == 0)
        return;
    for (int turn = 0; turn < TURNS; turn++) {
        const bool tuned_first = turn % 2 == 0;
        const double first = rate_of(tuned_first ? &tuned : &swept);
        const double second = rate_of(tuned_first ? &swept : &tuned);
        ratios[turn] = tuned_first ? first / second : second / first;
    }
    qsort(ratios, TURNS, sizeof *ratios, compare);
    print_message("ratio %.3f [%.3f..%.3f] in %d turns\n", ratios[TURNS / 2], ratios[0],
                  ratios[TURNS - 1], TURNS);
    assert_true(ratios[TURNS / 2] >= least);
}

TEST_MAIN(sandbox_setup, sandbox_teardown)
