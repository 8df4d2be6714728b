/* test_sweep.c - sweeps: the product and its order, rows against numbers made by hand, the table.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lib/documented.h"
#include "lib/printed.h"
#include "lib/test.h"
#include "study/json.h"
#include "study/launch_line.h"
#include "study/sweep.h"
#include "study/sweep_list.h"

#define FILE_LINE "x.ini:9"

static void assert_near(double is, double should)
{
    if (!(fabs(is - should) <= 1e-9 * fmax(1, fabs(should)))) /* NaN is never near */
        fail_msg("%.17g should be %.17g", is, should);
}

/* A configuration of "SECTION.KEY=VALUE" texts, ended by NULL; from a file, but those that begin
 * with `!` from the command line. */
static struct dpb_config *configure(const char *const *settings)
{
    struct dpb_config *config = dpb_config_create();
    assert_non_null(config);
    dpb_first_error_clear();
    for (; *settings != NULL; settings++) {
        bool late = (*settings)[0] == '!';
        assert_int_equal(
            dpb_config_assign(config, *settings + late, late ? "command line" : FILE_LINE), DPB_OK);
    }
    return config;
}

#define CONFIGURE(...) configure((const char *const[]){__VA_ARGS__, NULL})

static struct dpb_sweep *sweep_of(struct dpb_config *config)
{
    struct dpb_sweep *sweep = NULL;
    assert_true(dpb_sweep_wanted(config));
    assert_int_equal(dpb_sweep_create(config, &sweep), DPB_OK);
    return sweep;
}

static const char *value_of(const struct dpb_config *config, const char *section, const char *key)
{
    const struct dpb_setting *setting = dpb_config_get(config, section, key);
    return setting == NULL ? NULL : setting->value;
}

/* ---- the product --------------------------------------------------------------------------- */

TEST(axes_multiply)
{
    struct dpb_config *config =
        CONFIGURE("run.batch=32", "run.workers=7", "sweep.comm.name= a ,b,\tc",
                  "sweep.run.workers=1,2", "sweep.repeats=4");
    struct dpb_sweep *sweep = sweep_of(config);
    assert_int_equal(sweep->n_axes, 2);
    assert_int_equal(sweep->n_cells, 6);
    assert_int_equal(sweep->repeats, 4);
    assert_int_equal(sweep->accuracy, 0);
    bool seen[3][2] = {{false}};
    for (size_t cell = 0; cell < 6; cell++) {
        struct dpb_sweep_job job = {.cell = cell};
        struct dpb_config *made = NULL;
        assert_int_equal(dpb_sweep_config(sweep, &job, &made), DPB_OK);
        const char *name = value_of(made, "comm", "name"), *n = value_of(made, "run", "workers");
        assert_int_equal(strlen(name), 1);
        assert_false(seen[name[0] - 'a'][n[0] - '1']);
        seen[name[0] - 'a'][n[0] - '1'] = true;
        assert_string_equal(value_of(made, "run", "batch"), "32");
        assert_string_equal(dpb_config_get(made, "comm", "name")->origin, FILE_LINE);
        assert_false(dpb_sweep_wanted(made));
        dpb_config_destroy(made);
    }
    char label[64];
    dpb_sweep_label(sweep, &(struct dpb_sweep_job){.cell = 1}, label, sizeof label);
    assert_string_equal(label, "comm.name=a run.workers=2");
    dpb_sweep_destroy(sweep);
    dpb_config_destroy(config);
}

TEST(lists_have_quotes_and_ranges)
{
    static const struct {
        const char *list, *values[6];
    } rows[] = {
        {"1, 2,4", {"1", "2", "4"}},
        {"1..16 x2", {"1", "2", "4", "8", "16"}},
        {"1..17x2", {"1", "2", "4", "8", "16"}},
        {"1..3", {"1", "2", "3"}},
        {"0..10 +5, 12", {"0", "5", "10", "12"}},
        {"1..64 MiB x8", {"1 MiB", "8 MiB", "64 MiB"}},
        {"0.1..0.3 +0.1", {"0.1", "0.2", "0.3"}},
        {"0,1;2,3", {"0,1", "2,3"}},
        {"\"0,1\", \"2;3\" , 4", {"0,1", "2;3", "4"}},
        {"\"1..4\"", {"1..4"}},
        {"../data, a..b", {"../data", "a..b"}},
        {"4.5", {"4.5"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char setting[128];
        snprintf(setting, sizeof setting, "sweep.a.b=%s", rows[i].list);
        struct dpb_config *config = CONFIGURE(setting);
        struct dpb_sweep *sweep = sweep_of(config);
        size_t n = 0;
        while (rows[i].values[n] != NULL)
            n++;
        assert_int_equal(sweep->n_cells, n);
        for (size_t k = 0; k < n; k++)
            assert_string_equal(dpb_sweep_value(sweep, k, 0), rows[i].values[k]);
        dpb_sweep_destroy(sweep);
        dpb_config_destroy(config);
    }
}

TEST(conditions_choose_cells)
{
    static const struct {
        const char *when, *cells; /* comm.name and run.workers of each */
    } rows[] = {
        {"comm.name != a or run.workers > 2", "a4 b1 b2 b4 "},
        {"comm.name=a and run.workers <= 2", "a1 a2 "},
        {"run.workers = 4 or comm.name = b and run.workers < 2", "a4 b1 b4 "},
        {"run.workers >= 2 and run.batch = 32 and comm.name = b", "b2 b4 "},
        {"run.workers > 3", "a4 b4 "},
        {"", "a1 a2 a4 b1 b2 b4 "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char setting[128], cells[64] = "";
        snprintf(setting, sizeof setting, "sweep.when=%s", rows[i].when);
        struct dpb_config *config =
            CONFIGURE(setting, "run.batch=32", "sweep.comm.name=a,b", "sweep.run.workers=1..4 x2");
        struct dpb_sweep *sweep = sweep_of(config);
        for (size_t cell = 0; cell < sweep->n_cells; cell++) {
            strcat(cells, dpb_sweep_value(sweep, cell, 0));
            strcat(cells, dpb_sweep_value(sweep, cell, 1));
            strcat(cells, " ");
        }
        assert_string_equal(cells, rows[i].cells);
        struct dpb_sweep_job jobs[18];
        dpb_sweep_order(sweep, 1, jobs);
        for (size_t k = 0; k < 3 * sweep->n_cells; k++)
            assert_true(jobs[k].cell < sweep->n_cells);
        dpb_sweep_destroy(sweep);
        dpb_config_destroy(config);
    }
}

TEST(one_duration_stands)
{
    struct dpb_config *config = CONFIGURE("run.epochs=3", "sweep.run.steps=10,20");
    struct dpb_sweep *sweep = sweep_of(config);
    struct dpb_config *made = NULL;
    assert_int_equal(dpb_sweep_config(sweep, &(struct dpb_sweep_job){.cell = 1}, &made), DPB_OK);
    assert_null(value_of(made, "run", "epochs"));
    assert_string_equal(value_of(made, "run", "steps"), "20");
    dpb_config_destroy(made);
    dpb_sweep_destroy(sweep);
    dpb_config_destroy(config);
}

TEST(command_line_takes_an_axis_place)
{
    struct dpb_config *config = CONFIGURE("!comm.name=b", "!run.seconds=2", "sweep.comm.name=a,b",
                                          "sweep.run.steps=10,20", "sweep.run.workers=1,2");
    struct dpb_sweep *sweep = sweep_of(config);
    assert_int_equal(sweep->n_cells, 2);
    struct dpb_config *made = NULL;
    assert_int_equal(dpb_sweep_config(sweep, &(struct dpb_sweep_job){.cell = 0}, &made), DPB_OK);
    assert_string_equal(value_of(made, "comm", "name"), "b");
    assert_string_equal(value_of(made, "run", "seconds"), "2");
    assert_null(value_of(made, "run", "steps"));
    dpb_config_destroy(made);
    dpb_sweep_destroy(sweep);
    dpb_config_destroy(config);
}

/* The settings of a sweep whose repeats differ in run.seed, and the seeds. */
TEST(repeats_take_replicates)
{
    static const struct {
        const char *settings[4], *seeds[4];
    } rows[] = {
        {{"sweep.seeds=3"}, {"1", "2", "3"}},
        {{"sweep.seeds=2", "run.seed=7"}, {"7", "8"}},
        {{"sweep.seeds=3", "!sweep.repeats=2"}, {"1", "2"}},
        {{"sweep.over=run.seed", "sweep.run.seed=4,9,2"}, {"4", "9", "2"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dpb_config *config = configure(rows[i].settings);
        assert_int_equal(dpb_config_assign(config, "sweep.comm.name=a,b", FILE_LINE), DPB_OK);
        struct dpb_sweep *sweep = sweep_of(config);
        size_t n = 0;
        while (rows[i].seeds[n] != NULL)
            n++;
        assert_int_equal(sweep->repeats, n);
        assert_int_equal(sweep->n_cells, 2);
        for (uint32_t repeat = 0; repeat < n; repeat++)
            for (size_t cell = 0; cell < 2; cell++) {
                const struct dpb_sweep_job job = {.cell = cell, .repeat = repeat};
                struct dpb_config *made = NULL;
                assert_int_equal(dpb_sweep_config(sweep, &job, &made), DPB_OK);
                assert_string_equal(value_of(made, "run", "seed"), rows[i].seeds[repeat]);
                dpb_config_destroy(made);
            }
        dpb_sweep_destroy(sweep);
        dpb_config_destroy(config);
    }
}

TEST(bad_sweeps_are_refused)
{
    static const struct {
        const char *settings[4], *message;
    } cases[] = {
        {{"sweep.comm.name=a,,b"}, FILE_LINE ": sweep.comm.name has an empty value"},
        {{"sweep.comm.name="}, FILE_LINE ": sweep.comm.name has an empty value"},
        {{"sweep.comm.name=a,b, a"}, "has 'a' twice; to repeat measurements set repeats"},
        {{"sweep.repeat=3"},
         "'repeat' is no key of [sweep]: write SECTION.KEY = LIST, or one of repeats,"},
        {{"sweep.run.=3"}, "is no key of [sweep]"},
        {{"sweep.sweep.repeats=1,2"}, "'sweep.repeats' cannot be an axis of [sweep]"},
        {{"sweep.repeats=0"}, "repeats"},
        {{"sweep.a.b=\"1,2"}, FILE_LINE ": sweep.a.b has a quote without its end"},
        {{"sweep.a.b=4..1"}, FILE_LINE ": sweep.a.b: '4..1' is no range"},
        {{"sweep.a.b=1..4 x1"}, "'1..4 x1' is no range"},
        {{"sweep.a.b=0..4 x2"}, "'0..4 x2' is no range"},
        {{"sweep.a.b=1..4 +0"}, "'1..4 +0' is no range"},
        {{"sweep.a.b=1..2000"}, "has more than 1000 values"},
        {{"sweep.a.b=1,2", "sweep.when=a.b"}, FILE_LINE ": sweep.when: 'a.b' is no condition"},
        {{"sweep.a.b=1,2", "sweep.when=a.b == 1"}, "'a.b == 1' is no condition"},
        {{"sweep.a.b=1,2", "sweep.when=a.b = 1 and"}, "holds for no cell"},
        {{"sweep.a.b=1,2", "sweep.when=a.b = 1 or  and a.b = 2"}, "is no condition"},
        {{"sweep.a.b=1,2", "sweep.when=a.c = 1"}, "a.c has no value here"},
        {{"sweep.a.b=1,x", "sweep.when=a.b > 1"}, "'x > 1' compares what is no number"},
        {{"sweep.a.b=1,2", "sweep.when=a.b > 2"}, "sweep.when holds for no cell"},
        {{"sweep.repeats=three"}, "repeats"},
        {{"sweep.seeds=3", "sweep.over=run.seed"}, "sweep.seeds and sweep.over are both given"},
        {{"sweep.seeds=3", "sweep.run.seed=1,2"}, "sweep.seeds and an axis run.seed: leave one"},
        {{"sweep.seeds=3", "run.seed=x"}, "run.seed = 'x' is no whole number"},
        {{"sweep.seeds=2", "sweep.repeats=3"}, "3 repeats and 2 values of run.seed"},
        {{"sweep.over=run.seed", "run.seed=1"}, "give its values, as sweep.run.seed = LIST"},
        {{"sweep.launch=mpirun -np {rank}"},
         "sweep.launch: '{rank}' is no placeholder: use {ranks}"},
        {{"sweep.launch=a {"}, "sweep.launch: '{' without its '}'"},
        {{"sweep.launch=a 'b"}, "sweep.launch has a quote without its end"},
        {{"sweep.launch=''"}, "sweep.launch names no program"},
        {{"sweep.launch=a {per_machine}"}, "{per_machine} needs `machines`"},
        {{"sweep.machines=2"}, "sweep.machines without sweep.launch"},
        {{"sweep.accuracy=9", "eval.target=0.5"}, "leave sweep.accuracy out"},
        {{"!sweep.comm.name=a,b", "!comm.name=a"}, "are both given; leave one out"},
        {{"published.a.b 1=2, x, y"}, FILE_LINE ": [published] has figures for the cells of a ["},
        {{"tune.a.b=1,2", "published.a.b 1=2, x, y"}, "for the cells of a [sweep]"},
        {{"sweep.a.b=1,2", "published.a.b 3=2, x, y"},
         FILE_LINE ": [published]: no cell of [sweep] has a.b = 3"},
        {{"sweep.a.b=1,2", "published.a.c 1=2, x, y"}, "no cell of [sweep] has a.c = 1"},
        {{"sweep.a.b=1,2", "sweep.a.c=1,2", "published.a.c 1=2, x, y"},
         "[published]: 'a.c 1' is 2 cells of [sweep]: name a.b, too"},
        {{"sweep.a.b=1,2", "published.a.b 1 a.b 2=2, x, y"}, "no cell of [sweep] has all of 'a.b "},
        {{"sweep.a.b=1,2", "published.a.b=2, x, y"}, "'a.b' names no cell: write SECTION.KEY"},
        {{"sweep.a.b=1,2", "published.b 1=2, x, y"}, "'b 1' names no cell"},
        {{"sweep.a.b=1,2", "published.a.b 1=2, x"}, "'2, x' is not FIGURE, SOURCE, HARDWARE"},
        {{"sweep.a.b=1,2", "published.a.b 1=2, , y"}, "is not FIGURE, SOURCE, HARDWARE"},
        {{"sweep.a.b=1,2", "published.a.b 1=fast, x, y"}, "the figure 'fast' is no number above 0"},
        {{"sweep.a.b=1,2", "published.a.b 1=0, x, y"}, "the figure '0' is no number above 0"},
        {{"sweep.a.b=1,2", "published.a.b 1=2, x, y", "published.a.b  1=3, x, y"},
         FILE_LINE ": [published]: the cell 'a.b  1' has a figure already, 2"},
        {{"sweep.repeats=1000", "sweep.run.seed=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,"
                                "21,22,23,24,25,26,27,28,29,30,31,32,33,34,35,36,37,38,39,40,41,42,"
                                "43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,"
                                "65,66,67,68,69,70,71,72,73,74,75,76,77,78,79,80,81,82,83,84,85,86,"
                                "87,88,89,90,91,92,93,94,95,96,97,98,99,100,101"},
         "101 cells and 1000 repeats"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpb_config *config = configure(cases[i].settings);
        struct dpb_sweep *sweep = NULL;
        assert_int_equal(dpb_sweep_create(config, &sweep), DPB_USAGE);
        if (strstr(dpb_first_error(NULL), cases[i].message) == NULL)
            fail_msg("'%s' should say '%s'", dpb_first_error(NULL), cases[i].message);
        assert_null(sweep);
        dpb_config_destroy(config);
    }
}

TEST(launch_has_words_and_numbers)
{
    static const char *const expected[] = {"a b", "5", "ppr:3:node", "x 4 y=1", "{ranks}",
                                           "",    "2", "'",          NULL};
    const struct dpb_launch_size size = {.workers = 4, .servers = 1, .learners = 1, .machines = 2};
    char **words;
    size_t n;
    assert_int_equal(
        dpb_launch_line("  'a b' {ranks}\tppr:{per_machine}:node \"x {workers}\"' y={servers}' "
                        "{{ranks} \"\" {machines} \"'\"  ",
                        "name", &size, &words, &n),
        DPB_OK);
    assert_int_equal(n, sizeof expected / sizeof expected[0] - 1);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(words[i], expected[i]);
    assert_null(words[n]);
    dpb_sweep_list_destroy(words, n);
}

/* Ranks fill machines in blocks, so that check refuses what works within one machine. */
TEST(launched_cells_have_their_machines)
{
    static const struct {
        const char *workers, *machines, *hosts, *learners;
    } cases[] = {{"4", "2", "2x2", "1"},   {"5", "2", "1x3+2", "1"},
                 {"2", "4", "2x1", "1"},   {"4", "1", "1x4", "1"},
                 {"4", "0", "", "1"},      {"-1", "2", "", "1"},
                 {"3", "2", "1x4+2", "2"}, {"2", "4", "2x3", "3"},
                 {"2", "2", "", "0"}}; /* and a server: all ones and one are none */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct dpb_sweep_job job = {0};
        struct dpb_config *cell, *config = CONFIGURE("sweep.launch=mpirun -np {ranks}");
        dpb_config_set(config, "sweep", "run.workers", cases[i].workers, "x");
        dpb_config_set(config, "sweep", "machines", cases[i].machines, "x");
        dpb_config_set(config, "run", "learners", cases[i].learners, "x");
        if (cases[i].workers[0] == '-')
            dpb_config_set(config, "run", "servers", "1", "x");
        struct dpb_sweep *sweep = sweep_of(config);
        assert_int_equal(dpb_sweep_config(sweep, &job, &cell), DPB_OK);
        assert_string_equal(dpb_config_get(cell, "comm", "hosts")->value, cases[i].hosts);
        assert_string_equal(dpb_config_origin(cell, "comm", "hosts"), "sweep.launch");
        dpb_config_destroy(cell);
        dpb_sweep_destroy(sweep);
        dpb_config_destroy(config);
    }
}

TEST(order_is_interleaved_and_seeded)
{
    enum { CELLS = 12, REPEATS = 5 };
    struct dpb_config *config =
        CONFIGURE("sweep.comm.name=a,b,c,d,e,f", "sweep.run.workers=1,2", "sweep.repeats=5");
    struct dpb_sweep *sweep = sweep_of(config);
    struct dpb_sweep_job jobs[CELLS * REPEATS], again[CELLS * REPEATS], other[CELLS * REPEATS];
    dpb_sweep_order(sweep, 1, jobs);
    dpb_sweep_order(sweep, 1, again);
    dpb_sweep_order(sweep, 2, other);
    size_t n_moved = 0, n_as_before = 0, n_as_other = 0;
    for (uint32_t repeat = 0; repeat < REPEATS; repeat++) {
        unsigned seen = 0;
        for (size_t i = 0; i < CELLS; i++) {
            const struct dpb_sweep_job *job = &jobs[repeat * CELLS + i];
            assert_int_equal(job->repeat, repeat);
            assert_false(job->accuracy);
            assert_true(job->cell < CELLS);
            seen |= 1u << job->cell;
            n_moved += job->cell != i;
            n_as_before += repeat > 0 && job->cell == job[-CELLS].cell;
            n_as_other += job->cell == other[repeat * CELLS + i].cell;
            assert_int_equal(job->cell, again[repeat * CELLS + i].cell);
        }
        assert_int_equal(seen, (1u << CELLS) - 1); /* every cell once in each repeat */
    }
    assert_true(n_moved > CELLS * REPEATS / 2);
    assert_true(n_as_before < CELLS * (REPEATS - 1) / 2);
    assert_true(n_as_other < CELLS * REPEATS / 2);
    dpb_sweep_destroy(sweep);
    dpb_config_destroy(config);
}

TEST(accuracy_is_a_job_of_each_strategy)
{
    struct dpb_config *config =
        CONFIGURE("run.seconds=1", "eval.final=yes", "run.require_steady=yes", "sweep.accuracy=500",
                  "sweep.comm.name=a,b", "sweep.run.workers=1,4,2", "sweep.run.batch=8,16");
    struct dpb_sweep *sweep = sweep_of(config);
    struct dpb_sweep_job jobs[12];
    assert_int_equal(dpb_sweep_accuracy_jobs(sweep, jobs), 2);
    for (size_t i = 0; i < 2; i++) {
        struct dpb_config *made = NULL;
        assert_true(jobs[i].accuracy);
        assert_int_equal(dpb_sweep_config(sweep, &jobs[i], &made), DPB_OK);
        assert_string_equal(value_of(made, "comm", "name"), i == 0 ? "a" : "b");
        assert_string_equal(value_of(made, "run", "workers"), "4");
        assert_string_equal(value_of(made, "run", "steps"), "500");
        assert_null(value_of(made, "run", "seconds"));
        assert_string_equal(value_of(made, "eval", "final"), "yes");
        assert_string_equal(value_of(made, "run", "require_steady"), "no");
        dpb_config_destroy(made);
    }
    struct dpb_config *timing = NULL;
    assert_int_equal(dpb_sweep_config(sweep, &(struct dpb_sweep_job){.cell = 0}, &timing), DPB_OK);
    assert_null(value_of(timing, "eval", "final"));
    assert_string_equal(value_of(timing, "run", "seconds"), "1");
    dpb_config_destroy(timing);
    dpb_sweep_destroy(sweep);
    dpb_config_destroy(config);
}

/* ---- rows ---------------------------------------------------------------------------------- */

struct made_run {
    const char *strategy;
    int workers, threads;
    double rate, exposed_share;
    size_t n_steps;
    const char *pattern;
    int batch; /* of a worker; 0: 10 */
};

/* A result as a job would give it: loss falling by 1 a 100 samples.
 */
static json_t *make_result(const struct made_run *run)
{
    int batch = run->batch > 0 ? run->batch : 10, global_batch = batch * run->workers;
    json_t *loss = json_array();
    for (size_t k = 0; k < run->n_steps; k++)
        json_array_append_new(loss, json_real(9 - (double)(k + 1) * global_batch / 100.0));
    bool timed = isfinite(run->rate);
    double step_ns = timed ? 1e9 * global_batch / run->rate : 1;
    json_t *result = json_pack("{s:s, s:s, s:n, s:{s:s, s:s}, s:{s:i, s:i, s:b}, s:{s:i, s:i}}", //
                               "schema", "dpbench.result/1", "status", "ok", "error",            //
                               "strategy", "name", run->strategy, "consistency",                 //
                               strcmp(run->strategy, "independent") == 0 ? "none" : "synchronous",
                               "world", "workers", run->workers, "servers", 0, "oversubscribed", 0,
                               "batch", "per_worker", batch, "global", global_batch);
    json_t *timing =
        json_pack("{s:I, s:f, s:b, s:b, s:{s:f, s:f}, s:{s:f, s:f}}",                   //
                  "steps", (json_int_t)run->n_steps,                                    //
                  "elapsed_ns", step_ns * (double)run->n_steps,                         //
                  "steady", 1, "gated", 1,                                              //
                  "samples_per_s", "mean", timed ? run->rate : 0.0, "uncertainty", 5.0, //
                  "breakdown_ns", "comm_exposed", run->exposed_share * step_ns, "comm_hidden", 0.0);
    assert_non_null(result);
    assert_non_null(timing);
    json_t *steps = json_array();
    for (size_t k = 0; k < run->n_steps; k++)
        json_array_append_new(steps, json_real(step_ns * (0.9 + 0.2 * (double)(k * 7 % 11) / 10)));
    json_object_set_new(timing, "step_ns", steps);
    if (!timed)
        json_object_del(timing, "samples_per_s");
    json_object_set_new(result, "timing", timing);
    json_object_set_new(result, "comm", json_pack("{s:f}", "bytes_per_step", 1e6));
    json_object_set_new(result, "loss", loss);
    json_object_set_new(result, "eval", json_array());
    json_object_set_new(result, "verification",
                        json_pack("{s:s, s:s, s:s}", "pattern", run->pattern, "exchange", "skipped",
                                  "replicas", run->pattern));
    json_object_set_new(result, "ranks", json_pack("[{s:i}]", "threads", run->threads));
    return result;
}

static void add_run(const struct dpb_sweep *sweep, size_t cell, uint32_t repeat, json_t *document,
                    struct made_run run)
{
    const struct dpb_sweep_job job = {.cell = cell, .repeat = repeat};
    run.threads = run.threads ? run.threads : 1;
    run.pattern = run.pattern ? run.pattern : "pass";
    dpb_sweep_add(sweep, &job, make_result(&run), document);
}

static void add_accuracy_run(const struct dpb_sweep *sweep, size_t cell, double accuracy,
                             json_t *document, struct made_run run)
{
    const struct dpb_sweep_job job = {.cell = cell, .accuracy = true};
    run.threads = 1;
    run.pattern = "pass";
    json_t *result = make_result(&run);
    json_object_set_new(result, "eval",
                        json_pack("[{s:i, s:f}]", "step", 500, "accuracy", accuracy));
    dpb_sweep_add(sweep, &job, result, document);
}

/* independent and shm with 1 and 2 workers; 2 repeats. */
struct study {
    struct dpb_config *config;
    struct dpb_sweep *sweep;
    json_t *document;
};

static struct study study_of(struct dpb_config *config)
{
    struct study study = {.config = config, .sweep = sweep_of(config)};
    study.document = dpb_sweep_document(study.sweep, config);
    assert_non_null(study.document);
    return study;
}

static void study_end(struct study *study)
{
    json_decref(study->document);
    dpb_sweep_destroy(study->sweep);
    dpb_config_destroy(study->config);
}

static struct study make_study(void)
{
    struct study s = study_of(CONFIGURE("sweep.comm.name=independent,shm", "sweep.run.workers=1,2",
                                        "sweep.repeats=2", "sweep.accuracy=500"));
    static const struct made_run runs[4] = {
        {"independent", 1, 1, 1000, 0.0, 40, "not_applicable", 0},
        {"independent", 2, 1, 1900, 0.0, 40, "not_applicable", 0},
        {"shm", 1, 1, 980, 0.01, 40, "pass", 0},
        {"shm", 2, 1, 1600, 0.15, 40, "pass", 0}};
    for (uint32_t repeat = 0; repeat < 2; repeat++)
        for (size_t cell = 0; cell < 4; cell++) {
            struct made_run run = runs[cell];
            run.rate += repeat == 0 ? -20 : 20;
            add_run(s.sweep, cell, repeat, s.document, run);
        }
    add_accuracy_run(s.sweep, 1, 0.8125, s.document, runs[1]);
    add_accuracy_run(s.sweep, 3, 0.875, s.document, runs[3]);
    return s;
}

static const json_t *row_at(const struct study *s, size_t i)
{
    const json_t *row = json_array_get(json_object_get(s->document, "rows"), i);
    assert_non_null(row);
    return row;
}

/* Two strategies with 2 workers each: rates[0] by repeat, then rates[1]. Ends with study_end. */
static struct study race(const char *names, size_t repeats, const double *rates)
{
    char axis[64], count[32], *name = axis + strlen("sweep.comm.name=");
    snprintf(axis, sizeof axis, "sweep.comm.name=%s", names);
    snprintf(count, sizeof count, "sweep.repeats=%zu", repeats);
    struct study s = study_of(CONFIGURE(axis, count));
    name[strcspn(name, ",")] = '\0';
    for (uint32_t repeat = 0; repeat < repeats; repeat++)
        for (size_t cell = 0; cell < 2; cell++)
            add_run(s.sweep, cell, repeat, s.document,
                    (struct made_run){cell == 0 ? name : strchr(names, ',') + 1, 2, 1,
                                      rates[cell * repeats + repeat], 0, 10, NULL, 0});
    return s;
}

static void assert_lines_fit(const char *text)
{
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        if (length > 100)
            fail_msg("%zu columns: %.*s", length, (int)length, line);
        line += length + (line[length] == '\n');
    }
}

/* The finished sweep's table, whose lines fit. @owned */
static char *table_of(const struct study *s)
{
    dpb_sweep_finish(DPB_OK, s->document);
    char *text = printed_as(s->document, dpb_sweep_print);
    assert_lines_fit(text);
    return text;
}

/* The table says all of this, ended by NULL, wherever its lines end. */
static void expect_said(const struct study *s, const char *const *said)
{
    char *text = table_of(s);
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    for (; *said; said++)
        if (!strstr(text, *said))
            fail_msg("no '%s':\n%s", *said, text);
    free(text);
}

#define EXPECT_SAID(s, ...) expect_said(s, (const char *const[]){__VA_ARGS__, NULL})

TEST(rows_compare_with_independent)
{
    struct study s = make_study();
    dpb_sweep_finish(DPB_OK, s.document);
    assert_string_equal(dpb_json_text(s.document, "status", ""), "ok");
    assert_int_equal(json_array_size(json_object_get(s.document, "runs")), 10);
    expect_documented(s.document);
    assert_int_equal(json_array_size(json_object_get(s.document, "rows")), 4);
    const json_t *row = row_at(&s, 3); /* shm, 2 workers */
    assert_string_equal(dpb_json_text(row, "strategy", ""), "shm");
    assert_near(dpb_json_number(row, "samples_per_s.median"), 1600);
    /* 12.706 standard errors of the mean logarithm, one degree of freedom. */
    double middle = sqrt(1580.0 * 1620), half = 12.706204736174676 * log(1620.0 / 1580) / 2;
    assert_true(fabs(dpb_json_number(row, "samples_per_s.low") - middle * exp(-half)) < 1e-3);
    assert_true(fabs(dpb_json_number(row, "samples_per_s.high") - middle * exp(half)) < 1e-3);
    assert_string_equal(dpb_json_text(row, "samples_per_s.interval", ""),
                        "95 % of the mean of the repeats");
    assert_near(json_number_value(json_array_get(json_object_get(row, "rates"), 1)), 1620);
    assert_near(dpb_json_number(row, "speedup"), 1.6);
    assert_near(dpb_json_number(row, "efficiency"), 0.8);
    assert_string_equal(dpb_json_text(row, "speedup_over", ""), "independent, 1 worker");
    assert_near(dpb_json_number(row, "speedup_over_same_strategy"), 1600.0 / 980);
    assert_near(dpb_json_number(row, "comm_exposed_share"), 0.15);
    assert_near(dpb_json_number(row, "breakdown_ns.comm_exposed"), /* of both repeats: the mean */
                0.15 * (20e9 / 1580 + 20e9 / 1620) / 2);
    assert_near(dpb_json_number(row, "accuracy"), 0.875);
    assert_true(json_is_true(json_object_get(row, "verified")));
    assert_true(json_is_false(json_object_get(row, "proved")));
    /* All reached 400 samples: its last tenth ends with steps at 370, 380, 390, 400 of one worker
     * and at 380, 400 of two. */
    assert_near(dpb_json_number(s.document, "loss_samples"), 400);
    assert_near(dpb_json_number(row_at(&s, 2), "loss"), 9 - 3.85);
    assert_near(dpb_json_number(row, "loss"), 9 - 3.90);
    assert_true(json_is_null(json_object_get(row_at(&s, 1), "verified")));
    assert_near(dpb_json_number(row_at(&s, 0), "accuracy"), 0.8125);
    assert_int_equal(json_array_size(json_object_get(s.document, "warnings")), 0);
    study_end(&s);
}

TEST(rows_fall_back_to_the_same_strategy)
{
    struct study s =
        study_of(CONFIGURE("sweep.comm.name=shm", "sweep.run.workers=1,4", "sweep.repeats=1"));
    add_run(s.sweep, 0, 0, s.document, (struct made_run){"shm", 1, 0, 500, 0, 10, NULL, 0});
    add_run(s.sweep, 1, 0, s.document, (struct made_run){"shm", 4, 0, 1000, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *row = row_at(&s, 1);
    assert_near(dpb_json_number(row, "speedup"), 2);
    assert_near(dpb_json_number(row, "efficiency"), 0.5);
    assert_string_equal(dpb_json_text(row, "speedup_over", ""), "same strategy, 1 worker");
    double low = dpb_json_number(row, "samples_per_s.low"); /* of one run, by its steps */
    double high = dpb_json_number(row, "samples_per_s.high");
    assert_true(low < 990 && low > 500 && fabs(low * high - 1e6) < 1e-3);
    assert_string_equal(dpb_json_text(row, "samples_per_s.interval", ""),
                        "95 % of the run's mean, by its steps");
    study_end(&s);
}

/* Without a row of one worker; the note says so. One number of workers alone compares nothing. */
TEST(rows_fall_back_to_the_smallest_cell)
{
    struct study s =
        study_of(CONFIGURE("sweep.comm.name=shm", "sweep.run.workers=2,8", "sweep.repeats=1"));
    add_run(s.sweep, 1, 0, s.document, (struct made_run){"shm", 8, 0, 1500, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(json_object_get(row_at(&s, 0), "speedup")));
    add_run(s.sweep, 0, 0, s.document, (struct made_run){"shm", 2, 0, 500, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *row = row_at(&s, 1);
    assert_near(dpb_json_number(row, "speedup"), 3);
    assert_near(dpb_json_number(row, "efficiency"), 0.75);
    assert_string_equal(dpb_json_text(row, "speedup_over", ""), "same strategy, 2 workers");
    assert_near(dpb_json_number(row_at(&s, 0), "speedup"), 1);
    assert_near(dpb_json_number(row_at(&s, 0), "efficiency"), 1);
    EXPECT_SAID(&s, "over the same strategy with 2 workers, the smallest cell",
                "effic. = speedup / (workers / 2)");
    study_end(&s);
}

/* Another batch or other cores are no baseline, and other cores are warned of. */
TEST(unlike_cells_do_not_compare)
{
    struct study s = study_of(
        CONFIGURE("sweep.comm.name=independent,shm", "sweep.run.workers=1,2", "sweep.repeats=1"));
    add_run(s.sweep, 0, 0, s.document, (struct made_run){"independent", 1, 2, 500, 0, 10, NULL, 0});
    add_run(s.sweep, 3, 0, s.document, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    const json_t *row = row_at(&s, 1);
    assert_true(json_is_null(json_object_get(row, "speedup")));
    assert_true(json_is_null(json_object_get(row, "speedup_over")));
    const json_t *warnings = json_object_get(s.document, "warnings");
    assert_int_equal(json_array_size(warnings), 1);
    assert_string_equal(dpb_json_text(json_array_get(warnings, 0), "code", ""), "cores_differ");
    study_end(&s);

    s = study_of(
        CONFIGURE("sweep.comm.name=independent,shm", "sweep.run.batch=10,20", "sweep.repeats=1"));
    add_run(s.sweep, 0, 0, s.document, (struct made_run){"independent", 1, 1, 500, 0, 10, NULL, 0});
    add_run(s.sweep, 3, 0, s.document, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(json_object_get(row_at(&s, 1), "speedup")));
    study_end(&s);
}

/* The batch may differ without an axis that says so: each model has its own default. */
TEST(other_batches_do_not_compare)
{
    struct study s = study_of(CONFIGURE("sweep.comm.name=independent,shm", "sweep.repeats=1"));
    add_run(s.sweep, 0, 0, s.document,
            (struct made_run){"independent", 1, 1, 500, 0, 10, NULL, 16});
    add_run(s.sweep, 1, 0, s.document, (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 12});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_null(json_object_get(row_at(&s, 1), "speedup")));
    study_end(&s);

    /* Strong scaling: the same global batch compares. */
    s = study_of(CONFIGURE("sweep.comm.name=independent,shm", "sweep.repeats=1"));
    add_run(s.sweep, 0, 0, s.document,
            (struct made_run){"independent", 1, 1, 500, 0, 10, NULL, 24});
    add_run(s.sweep, 1, 0, s.document, (struct made_run){"shm", 2, 1, 900, 0, 10, NULL, 12});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(row_at(&s, 1), "speedup"), 1.8);
    study_end(&s);
}

/* Without accuracy runs a row has the accuracy of its own runs, if they evaluate. */
TEST(timing_runs_may_evaluate)
{
    struct study s = study_of(CONFIGURE("sweep.run.workers=1,2", "sweep.repeats=1"));
    for (size_t cell = 0; cell < 2; cell++) {
        struct made_run run = {"shm", (int)cell + 1, 1, 500, 0, 10, "pass", 0};
        json_t *result = make_result(&run);
        json_object_set_new(
            result, "eval",
            json_pack("[{s:i, s:f}]", "step", 10, "accuracy", 0.5 + 0.25 * (double)cell));
        dpb_sweep_add(s.sweep, &(struct dpb_sweep_job){.cell = cell}, result, s.document);
    }
    dpb_sweep_finish(DPB_OK, s.document);
    assert_near(dpb_json_number(row_at(&s, 0), "accuracy"), 0.5);
    assert_near(dpb_json_number(row_at(&s, 1), "accuracy"), 0.75);
    study_end(&s);
}

static json_t *refused(const char *error)
{
    return json_pack("{s:s, s:s, s:s, s:{s:{s:{s:s}}}}", "schema", "dpbench.result/1", "status",
                     "failed", "error", error, "config", "comm", "name", "value", "shm");
}

static char *printed(const json_t *document)
{
    return printed_as(document, dpb_sweep_print);
}

TEST(failed_cells_are_rows)
{
    struct study s = study_of(CONFIGURE("sweep.comm.name=independent,shm", "sweep.repeats=1"));
    add_run(s.sweep, 0, 0, s.document,
            (struct made_run){"independent", 1, 1, 500, 0, 10, "not_applicable", 0});
    const struct dpb_sweep_job job = {.cell = 1};
    dpb_sweep_add(s.sweep, &job, refused("comm 'shm' cannot do that"), s.document);
    dpb_sweep_finish(DPB_FAILED, s.document);
    assert_string_equal(dpb_json_text(s.document, "status", ""), "failed");
    assert_string_equal(dpb_json_text(s.document, "error", ""),
                        "1 of 2 runs are not ok; the first: comm 'shm' cannot do that");
    const json_t *row = row_at(&s, 1);
    assert_string_equal(dpb_json_text(row, "status", ""), "failed");
    assert_string_equal(dpb_json_text(row, "strategy", ""), "shm");
    assert_string_equal(dpb_json_text(row, "error", ""), "comm 'shm' cannot do that");
    assert_near(dpb_json_number(row, "workers"), 1); /* by default */
    char *text = printed(s.document);
    assert_non_null(strstr(text, "failed: comm 'shm' cannot do that"));
    free(text);
    study_end(&s);
}

TEST(untimed_cells_say_why)
{
    struct study s = study_of(CONFIGURE("sweep.comm.name=independent", "sweep.repeats=1"));
    add_run(s.sweep, 0, 0, s.document, (struct made_run){"independent", 2, 1, NAN, 0, 10, NULL, 0});
    EXPECT_SAID(&s, "independent  2  not timed: no timed steps that all workers ran");
    assert_string_equal(dpb_json_text(row_at(&s, 0), "status", ""), "not timed");
    study_end(&s);
}

TEST(interrupted_sweep_keeps_what_there_is)
{
    struct study s = study_of(CONFIGURE("sweep.comm.name=independent,shm", "sweep.repeats=3"));
    add_run(s.sweep, 1, 0, s.document, (struct made_run){"shm", 1, 1, 500, 0, 10, NULL, 0});
    dpb_sweep_finish(DPB_INTERRUPTED, s.document);
    assert_string_equal(dpb_json_text(s.document, "status", ""), "interrupted");
    assert_int_equal(json_array_size(json_object_get(s.document, "rows")), 1);
    char *text = printed(s.document);
    assert_non_null(strstr(text, "\ninterrupted: "));
    free(text);
    study_end(&s);
}

TEST(worst_verification_of_the_repeats_stands)
{
    struct study s = study_of(CONFIGURE("sweep.comm.name=shm", "sweep.repeats=2"));
    add_run(s.sweep, 0, 0, s.document, (struct made_run){"shm", 2, 1, 500, 0, 10, "pass", 0});
    add_run(s.sweep, 0, 1, s.document, (struct made_run){"shm", 2, 1, 500, 0, 10, "skipped", 0});
    dpb_sweep_finish(DPB_OK, s.document);
    assert_true(json_is_false(json_object_get(row_at(&s, 0), "verified")));
    study_end(&s);
}

/* ---- the table ----------------------------------------------------------------------------- */

TEST(table_says_who_was_fastest)
{
    struct study s = make_study();
    char *text = table_of(&s);
    assert_non_null(strstr(
        text, "strategy    label       workers samples/s   interval speedup effic. exposed   loss "
              "accuracy verified\n"
              "independent none              1      1000  775..1289    1.00  100 %   0.0 % 5.1500  "
              "81.25 %      n/a\n"));
    assert_non_null(strstr(
        text,
        "\nshm         synchronous       2      1600 1365..1875    1.60   80 %  15.0 % 5.1000  "
        "87.50 %      yes\n"));
    assert_null(strstr(text, "warning"));
    free(text);
    EXPECT_SAID(&s, "- 2 workers: shm / independent 0.842 [0.8",
                "- run.workers 2 / 1: independent 1.900 [", "median of 2 repeats",
                "speedup: over independent");
    study_end(&s);
}

/* Three repeats each; what is said of shm and replicated. */
TEST(winners_are_shown_by_intervals)
{
    static const struct {
        double rates[6];
        const char *said;
    } rows[] = {
        {{1000, 1010, 1020, 2000, 2010, 2030},
         "- 2 workers: shm is fastest; replicated / shm 0.502 [0.49"},
        {{1000, 1010, 1020, 1005, 1014, 1026}, "] equal within 5 %."},
        {{1000, 1010, 1020, 1005, 1314, 1026},
         "- 2 workers: shm is first, but not shown to be the fastest; replicated / shm 0.9"},
        {{1000, 1010, 1020, 1005, 1314, 1026}, "undecided: take"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct study s = race("replicated,shm", 3, rows[i].rates);
        EXPECT_SAID(&s, rows[i].said);
        study_end(&s);
    }
}

/* A repeat of its own run that nobody disturbed makes a row; without one there is no conclusion. */
TEST(disturbed_runs_are_left_out)
{
    for (int clean = 0; clean < 2; clean++) {
        struct study s = study_of(CONFIGURE("sweep.comm.name=replicated,shm", "sweep.repeats=2",
                                            "sweep.retry_disturbed=1"));
        for (uint32_t repeat = 0; repeat < 2; repeat++)
            for (size_t cell = 0; cell < 2; cell++)
                for (int attempt = 0; attempt < 2; attempt++) {
                    const struct dpb_sweep_job job = {.cell = cell, .repeat = repeat};
                    assert_false(dpb_sweep_done(s.sweep, s.document, &job));
                    bool disturbed = attempt == 0 || (cell == 1 && !clean);
                    add_run(s.sweep, cell, repeat, s.document,
                            (struct made_run){cell == 0 ? "replicated" : "shm", 2, 1,
                                              disturbed ? 500 : 1000 + 10 * repeat, 0, 10, NULL,
                                              0});
                    json_t *runs = json_object_get(s.document, "runs");
                    json_object_set_new(json_array_get(runs, json_array_size(runs) - 1), "load",
                                        json_pack("{s:b}", "disturbed", disturbed));
                    assert_int_equal(dpb_sweep_done(s.sweep, s.document, &job), attempt);
                }
        dpb_sweep_finish(DPB_OK, s.document);
        assert_near(dpb_json_number(row_at(&s, 0), "samples_per_s.median"), 1005);
        assert_near(dpb_json_number(row_at(&s, 0), "disturbed_runs"), 2);
        assert_near(dpb_json_number(row_at(&s, 0), "runs"), 2);
        assert_near(dpb_json_number(row_at(&s, 1), "samples_per_s.median"), clean ? 1005 : 500);
        char *text = printed(s.document);
        assert_int_equal(strstr(text, "no conclusion (shm disturbed)") != NULL, !clean);
        assert_int_equal(strchr(text, '?') != NULL, !clean);
        free(text);
        study_end(&s);
    }
}

/* Each axis has a line with all its pairs, however many groups there are. */
TEST(every_axis_has_its_effect)
{
    struct study s = study_of(CONFIGURE("sweep.run.precision=fp32,bf16", "sweep.comm.name=shm,ps",
                                        "sweep.run.batch=1,2,3", "sweep.repeats=3"));
    for (uint32_t repeat = 0; repeat < 3; repeat++)
        for (size_t cell = 0; cell < 12; cell++)
            add_run(s.sweep, cell, repeat, s.document,
                    (struct made_run){cell / 3 % 2 == 0 ? "shm" : "ps", 2, 1,
                                      (cell < 6 ? 1000 : 990) + 3 * ((repeat + cell) % 3), 0, 10,
                                      NULL, 0});
    json_object_set_new(json_array_get(json_object_get(s.document, "runs"), 11), "throttled",
                        json_true());
    EXPECT_SAID(&s, "- run.precision bf16 / fp32: shm, run.batch = 1 0.990 [",
                "; ps, run.batch = 2 0.99", "; ps, run.batch = 3 0.990 no conclusion (throttled).",
                "- run.batch 2 / 1: run.precision = fp32, shm ",
                "- run.batch 3 / 1: run.precision = fp32, shm ",
                "- run.precision = fp32, run.batch = 1: 2 workers: ",
                "- run.precision = bf16, run.batch = 2: 2 workers: ",
                "- run.precision = bf16, run.batch = 3: 2 workers: no conclusion (ps throttled).");
    study_end(&s);
}

/* Labels stand where they differ, and nothing is fastest across them without a word. */
/* Beside ours: by the baseline of the row in the column, by the other cell behind a ratio. */
TEST(published_figures_are_speedups)
{
    struct study s = study_of(CONFIGURE(
        "sweep.comm.name=independent,shm", "sweep.run.workers=1,2", "sweep.repeats=1",
        "published.comm.name independent run.workers 1=50, A paper (2017), 2 Tesla M60, by PCIe",
        "published.comm.name  shm  run.workers 2=77.5, A paper (2017), 2 Tesla M60, by PCIe",
        "published.run.workers 2 comm.name independent=100, Others, a P100"));
    static const double rates[] = {1000, 1900, 980, 1600};
    for (size_t cell = 0; cell < 4; cell++)
        add_run(s.sweep, cell, 0, s.document,
                (struct made_run){cell < 2 ? "independent" : "shm", 1 + (int)cell % 2, 1,
                                  rates[cell], 0, 40, NULL, 0});
    json_object_set_new(
        json_object_get(s.document, "config"), "model",
        json_pack("{s:{s:s, s:s}}", "name", "value", "lenet", "origin", "command line"));
    dpb_sweep_finish(DPB_OK, s.document);
    static const double published[] = {1, NAN, NAN, 1.55};
    for (size_t cell = 0; cell < 4; cell++)
        if (isfinite(published[cell]))
            assert_near(dpb_json_number(row_at(&s, cell), "published_speedup"), published[cell]);
        else /* no figure, or one of another machine than the baseline's */
            assert_true(json_is_null(json_object_get(row_at(&s, cell), "published_speedup")));
    expect_documented(s.document);
    char *text = printed(s.document);
    assert_lines_fit(text);
    assert_non_null(strstr(text, " speedup publ. effic. "));
    assert_non_null(strstr(text, "    1.60  1.55   80 % "));
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    if (!strstr(text, "no pass or fail; A paper (2017), on 2 Tesla M60, by PCIe; Others, "
                      "on a P100. Here the command line set model.name = lenet. - exposed: "))
        fail_msg("%s", text);
    free(text);
    study_end(&s);
}

TEST(published_figures_stand_behind_ratios)
{
    struct study s = study_of(CONFIGURE("sweep.device.layout=nchw,nhwc", "sweep.repeats=2",
                                        "published.device.layout nchw=40, A paper, an M60",
                                        "published.device.layout nhwc=30, A paper, an M60"));
    for (uint32_t repeat = 0; repeat < 2; repeat++)
        for (size_t cell = 0; cell < 2; cell++)
            add_run(s.sweep, cell, repeat, s.document,
                    (struct made_run){"independent", 1, 1, 1000 + 500 * (double)cell + 10 * repeat,
                                      0, 40, NULL, 0});
    dpb_sweep_finish(DPB_OK, s.document);
    char *text = printed(s.document);
    assert_non_null(strstr(text, "- device.layout nhwc / nchw: 1.4"));
    assert_non_null(strstr(text, "faster (published 0.750).\n"));
    free(text);
    study_end(&s);
}

/* Figures of cells that the command line takes away or divides are left out, not refused. */
TEST(command_line_leaves_figures_out)
{
    static const struct {
        const char *late;
        size_t n;
    } cases[] = {{"!run.seed=4", 2}, {"!sweep.a.b=1,3", 1},      {"!a.b=2", 1},
                 {"!a.b=7", 0},      {"!sweep.when=a.b = 2", 1}, {"!sweep.a.c=1,2", 0},
                 {"!sweep.a.c=1", 2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct study s = study_of(CONFIGURE("sweep.a.b=1,2", "published.a.b 1=2, x, y",
                                            "published.a.b 2=3, x, y", cases[i].late));
        if (json_array_size(s.sweep->published) != cases[i].n)
            fail_msg("%s leaves %zu figures", cases[i].late, json_array_size(s.sweep->published));
        assert_int_equal(json_object_get(s.document, "published") != NULL, cases[i].n > 0);
        study_end(&s);
    }
}

TEST(labels_stand_where_they_differ)
{
    for (int differ = 0; differ < 2; differ++) {
        struct study s = race("replicated,shm", 2, (const double[]){1000, 1010, 2000, 2020});
        for (size_t i = 0; i < 4; i++)
            if (differ && i % 2 == 1)
                json_object_set_new(
                    json_object_get(json_array_get(json_object_get(s.document, "runs"), i),
                                    "strategy"),
                    "consistency", json_string("stale(4)"));
        char *text = table_of(&s);
        assert_int_equal(strstr(text, "stale(4)") != NULL, differ);
        assert_int_equal(strstr(text, "shm is fastest across labels") != NULL, differ);
        assert_int_equal(strstr(text, "shm is fastest;") != NULL, !differ);
        free(text);
        study_end(&s);
    }
}

/* Whatever speaks against one rate of a group takes its conclusion, is said by name and marks the
 * rate in the table. */
TEST(doubtful_rates_conclude_nothing)
{
    static const struct {
        const char *section, *key, *reason, *marked;
        bool value;
    } doubts[] = {
        {"timing", "too_short", "shm timed too shortly", "1761..2271<", true},
        {"world", "oversubscribed", "shm oversubscribed", "2!", true},
        {"load", "disturbed", "shm timed only once", "1534..2556 ",
         true}, /* the other one remains */
        {NULL, "throttled", "shm throttled", "1761..2271^", true},
        {"timing", "steady", "shm not steady", "1761..2271~", false},
        {"timing", "gated", "", "1761..2271 ", false},
    };
    for (size_t i = 0; i < sizeof doubts / sizeof doubts[0]; i++) {
        struct study s = race("replicated,shm", 2, (const double[]){980, 1020, 1980, 2020});
        json_t *run = json_array_get(json_object_get(s.document, "runs"), 3); /* shm's second */
        json_t *section = doubts[i].section ? json_object_get(run, doubts[i].section) : run;
        if (section == NULL) {
            section = json_object();
            json_object_set_new(run, doubts[i].section, section);
        }
        json_object_set_new(section, doubts[i].key, json_boolean(doubts[i].value));
        char *text = table_of(&s), said[128];
        bool concludes = doubts[i].reason[0] == '\0';
        snprintf(said, sizeof said, "- 2 workers: no conclusion (%s).\n", doubts[i].reason);
        if ((strstr(text, said) != NULL) == concludes ||
            (strstr(text, "shm is fastest; replicated / shm 0.50") != NULL) != concludes ||
            strstr(text, doubts[i].marked) == NULL)
            fail_msg("%s:\n%s", doubts[i].key, text);
        free(text);
        study_end(&s);
    }
}

/* A row is steady where all its runs say so, gate or none; without a gate there is no mark. */
TEST(steadiness_is_that_of_the_runs)
{
    for (int steady = 0; steady < 2; steady++) {
        struct study s = study_of(CONFIGURE("sweep.comm.name=shm", "sweep.repeats=2"));
        for (uint32_t repeat = 0; repeat < 2; repeat++) {
            add_run(s.sweep, 0, repeat, s.document,
                    (struct made_run){"shm", 2, 1, 1000, 0, 10, NULL, 0});
            json_t *timing = json_object_get(
                json_array_get(json_object_get(s.document, "runs"), repeat), "timing");
            json_object_set_new(timing, "gated", json_false());
            json_object_set_new(timing, "steady", json_boolean(steady));
        }
        dpb_sweep_finish(DPB_OK, s.document);
        assert_int_equal(json_is_true(json_object_get(row_at(&s, 0), "steady")), steady);
        assert_true(json_is_false(json_object_get(row_at(&s, 0), "gated")));
        char *text = printed(s.document);
        assert_null(strchr(text, '~'));
        free(text);
        study_end(&s);
    }
}

TEST(one_repeat_concludes_nothing)
{
    struct study s = race("replicated,shm", 1, (const double[]){1000, 2000});
    char *text = table_of(&s);
    assert_non_null(
        strstr(text, "- 2 workers: no conclusion (replicated, shm timed only once).\n"));
    assert_null(strstr(text, "is fastest"));
    free(text);
    study_end(&s);
}

/* More than without any exchange is not a success. */
TEST(more_than_the_bound_is_said)
{
    static const char *const said[] = {
        "- 2 workers: shm / independent 1.010 [1.007..1.012] equal within 5 %.",
        "faster (more than can be: the machine was not the same)."};
    for (int apart = 0; apart < 2; apart++) {
        const double more = apart ? 90 : 10;
        struct study s =
            race("independent,shm", 2, (const double[]){1000, 1040, 1000 + more, 1040 + more});
        EXPECT_SAID(&s, said[apart]);
        study_end(&s);
    }
}

TEST(other_axes_head_their_rows)
{
    struct study s = study_of(CONFIGURE("sweep.comm.name=independent,shm",
                                        "sweep.run.precision=fp32,bf16", "sweep.repeats=1"));
    for (size_t cell = 0; cell < 4; cell++)
        add_run(s.sweep, cell, 0, s.document,
                (struct made_run){cell < 2 ? "independent" : "shm", 1, 1, 1000 + 100 * (double)cell,
                                  0, 10, NULL, 0});
    char *text = table_of(&s), *bf16 = strstr(text, "\nrun.precision = bf16:\nindependent ");
    assert_non_null(strstr(text, "\nrun.precision = fp32:\nindependent "));
    assert_non_null(bf16);
    assert_non_null(strstr(bf16, "\nshm "));
    assert_near(dpb_json_number(row_at(&s, 3), "speedup"),
                1300.0 / 1100); /* of its own precision */
    free(text);
    study_end(&s);
}

TEST_MAIN(NULL, NULL)
