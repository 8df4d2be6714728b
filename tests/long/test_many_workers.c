/*
 * test_many_workers.c - the processor's time for a rank of a job hardly grows with the number of
 * ranks: with 64 times as many workers it is at most 3 times as long, also where all ranks of the
 * machine share memory. Where each pair of ranks met, it was 4.6 times as long.
 */
#include <stdio.h>
#include <sys/resource.h>

#include "lib/faults.h"
#include "lib/sandbox.h"
#include "lib/test.h"

enum { FEW = 8, MANY = 512 };
static const double most = 3.0;

static const double deadline_s = 600.0;

/* Of the processes of a job that have ended, in user and system. */
static double used_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static double per_rank_s(const char *strategy, int n_workers)
{
    struct command command;
    const double before_s = used_s();
    dpbench_ends(&command, deadline_s, 0,
                 FAULTS_BASE
                 "comm.name=%s run.workers=%d run.steps=5 run.warmup_steps=0 run.batch=1 "
                 "data.samples=2000 eval.every=0",
                 strategy, n_workers);
    return (used_s() - before_s) / n_workers;
}

static void expect_cost(const char *strategy)
{
    const double few_s = per_rank_s(strategy, FEW), many_s = per_rank_s(strategy, MANY);
    print_message("%s: a rank of %d: %.1f ms of processor time, of %d: %.1f\n", strategy, FEW,
                  few_s * 1e3, MANY, many_s * 1e3);
    assert_true(many_s <= most * few_s);
}

TEST(test_cost_of_a_rank)
{
    expect_cost("independent");
    expect_cost("shm");
}

TEST_MAIN(faults_setup, sandbox_teardown)
