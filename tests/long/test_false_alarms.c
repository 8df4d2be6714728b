/* needs: cpu alone */
/*
 * test_false_alarms.c - how often `dpbench gate` and `dpbench compare` call one build different: 40
 * runs of LeNet, one after the other, beside a program that loads the machine at random.
 *
 * Neighbours are pairs, as of a gate. Each of 100 comparisons takes 10 of the 20 pairs and says at
 * random which run of a pair is the base's. Disturbed runs allow no conclusion; where most
 * comparisons have none, the test decides nothing and is skipped. Printed, and no part of the test:
 * how often the intervals alone differ, as if no run had been found disturbed. One in 20 does by
 * definition, and 100 comparisons of the same 40 runs are far from independent.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/command.h"
#include "lib/sandbox.h"
#include "lib/test.h"
#include "study/document/rows.h"
#include "study/sweep/sweep.h"
#include "study/sweep/sweep_runs.h"
#include "study/table/compare.h"

enum { PAIRS = 20, TAKEN = 10, COMPARISONS = 100, LOADERS = 2 };

static const double deadline_s = 60;
static json_t *runs[2 * PAIRS];
static pid_t loaders[LOADERS];

/* Works for up to 2 s, with breaks of up to 0.1 s, then is quiet for up to 4 s. */
static void load_machine(uint64_t seed)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    srand48((long)seed);
    for (;;) {
        const double end_s = now_s() + 2 * drand48();
        while (now_s() < end_s) {
            const double until_s = now_s() + 0.2 * drand48();
            while (now_s() < until_s)
                ;
            usleep((useconds_t)(1e5 * drand48()));
        }
        usleep((useconds_t)(4e6 * drand48()));
    }
}

static int setup(void **state)
{
    const uint64_t seed = (uint64_t)time(NULL);
    if (sandbox_setup(state) != 0)
        return -1;
    print_message("seed %llu\n", (unsigned long long)seed);
    srand48((long)seed);
    for (int i = 0; i < LOADERS; i++) {
        loaders[i] = fork();
        if (loaders[i] < 0)
            return -1;
        if (loaders[i] == 0)
            load_machine(seed + 1 + (uint64_t)i);
    }
    int n_disturbed = 0;
    for (int i = 0; i < 2 * PAIRS; i++) {
        struct command command;
        dpbench(&command, deadline_s,
                "-c /dev/null --json run.results= run.seconds=1 run.steady_limit_s=0 "
                "run.warmup_steps=5 run.workers=1 run.batch=4 model.name=lenet device.threads=1");
        if (command.exit_code != 0)
            return -1;
        runs[i] = json_incref(command.json);
        n_disturbed += json_is_true(json_at(runs[i], "load.disturbed"));
    }
    print_message("%d of %d runs were disturbed\n", n_disturbed, 2 * PAIRS);
    return 0;
}

static int teardown(void **state)
{
    for (int i = 0; i < LOADERS; i++) {
        if (loaders[i] > 0) { /* 0 and -1 are many processes */
            kill(loaders[i], SIGKILL);
            waitpid(loaders[i], NULL, 0);
        }
    }
    for (int i = 0; i < 2 * PAIRS; i++)
        json_decref(runs[i]);
    return sandbox_teardown(state);
}

static void add_run(const struct dpb_sweep *sweep, const json_t *run, uint32_t repeat, bool clean,
                    json_t *document)
{
    const struct dpb_sweep_job job = {.repeat = repeat};
    json_t *copy = json_deep_copy(run);
    if (clean)
        json_object_set_new(json_object_get(copy, "load"), "disturbed", json_false());
    dpb_sweep_add(sweep, &job, copy, document);
}

/* TAKEN pairs of all, none twice; each side as a sweep of so many repeats. */
static void draw_sides(const struct dpb_sweep *sweep, const struct dpb_config *config, bool clean,
                       json_t *sides[2])
{
    int order[PAIRS];
    for (int i = 0; i < 2; i++)
        sides[i] = dpb_sweep_document(sweep);
    for (int i = 0; i < PAIRS; i++)
        order[i] = i;
    for (int i = 0; i < TAKEN; i++) {
        const int k = i + (int)(drand48() * (PAIRS - i)), pair = order[k];
        const int first = drand48() < 0.5;
        order[k] = order[i];
        for (int side = 0; side < 2; side++)
            add_run(sweep, runs[2 * pair + (side ^ first)], (uint32_t)i, clean, sides[side]);
    }
    for (int i = 0; i < 2; i++)
        dpb_sweep_finish(DPB_OK, sides[i]);
}

static const char *verdict_of(json_t *const sides[2], bool paired, char verdict[64])
{
    const struct dpb_compared a = {"base", sides[0]}, b = {"this", sides[1]};
    const struct dpb_compare_how how = {.threshold = NAN, .paired = paired};
    json_t *comparison = NULL;
    bool regression;
    assert_int_equal(dpb_compare_make(&a, &b, &how, &comparison, &regression), DPB_OK);
    snprintf(verdict, 64, "%s", json_text_at(comparison, "rows.0.verdict"));
    json_decref(comparison);
    return verdict;
}

/* By pairs, as gate, and without, as compare. `clean`: as if no run had been found disturbed. */
static void count_alarms(bool clean, int n_alarms[2], int n_none[2])
{
    static const char *const names[2] = {"compare", "gate"};
    struct dpb_config *config = dpb_config_create();
    struct dpb_sweep *sweep = NULL;
    assert_int_equal(dpb_sweep_create(config, &sweep), DPB_OK);
    sweep->options.repeats = TAKEN;
    for (int i = 0; i < COMPARISONS; i++) {
        json_t *sides[2];
        draw_sides(sweep, config, clean, sides);
        for (int paired = 0; paired < 2; paired++) {
            char verdict[64];
            verdict_of(sides, paired == 1, verdict);
            n_alarms[paired] += strcmp(verdict, "faster") == 0 || strcmp(verdict, "slower") == 0;
            n_none[paired] += strcmp(verdict, "no conclusion") == 0;
        }
        json_decref(sides[0]);
        json_decref(sides[1]);
    }
    for (int paired = 0; paired < 2; paired++)
        print_message("%s%s: %d of %d different, %d without a conclusion\n", names[paired],
                      clean ? ", as if none was disturbed" : "", n_alarms[paired], COMPARISONS,
                      n_none[paired]);
    dpb_sweep_destroy(sweep);
    dpb_config_destroy(config);
}

TEST(test_false_alarms)
{
    int n_alarms[2] = {0}, n_none[2] = {0};
    count_alarms(true, (int[2]){0}, (int[2]){0});
    count_alarms(false, n_alarms, n_none);
    for (int paired = 0; paired < 2; paired++)
        assert_true(n_alarms[paired] <= 5);
    if (n_none[0] > COMPARISONS / 2 || n_none[1] > COMPARISONS / 2) {
        print_message("too many disturbed runs to decide\n");
        skip();
    }
}

TEST_MAIN(setup, teardown)
