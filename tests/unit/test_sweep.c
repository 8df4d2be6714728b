/* test_sweep.c - the cells of a sweep: the product and its order, conditions, launch lines, what is
 * refused. */

#include <limits.h>

#include "lib/command.h"
#include "study/sweep/budget.h"
#include "study/sweep/launch_line.h"
#include "study/sweep/sweep_list.h"
#include "sweep_study.h"

static const char *value_of(const struct dpb_config *config, const char *section, const char *key)
{
    const struct dpb_setting *setting = dpb_config_get(config, section, key);
    return setting == NULL ? NULL : setting->value;
}

static void expect_setting(const struct dpb_config *config, const char *section, const char *key,
                           const char *value)
{
    const char *is = value_of(config, section, key);
    if (!is != !value || (is && strcmp(is, value) != 0))
        fail_msg("%s.%s is %s, not %s", section, key, is ? is : "not there",
                 value ? value : "nothing");
}

TEST(axes_multiply)
{
    struct dpb_config *config =
        CONFIGURE("run.batch=32", "run.workers=7", "sweep.comm.name= a ,b,\tc",
                  "sweep.run.workers=1,2", "sweep.repeats=4");
    struct dpb_sweep *sweep = sweep_of(config);
    assert_int_equal(sweep->n_axes, 2);
    assert_int_equal(sweep->n_cells, 6);
    assert_int_equal(sweep->options.repeats, 4);
    assert_int_equal(sweep->options.accuracy, 0);
    bool seen[3][2] = {{false}};
    for (size_t cell = 0; cell < 6; cell++) {
        struct dpb_config *made = cell_of(sweep, (struct dpb_sweep_job){.cell = cell});
        const char *name = value_of(made, "comm", "name"), *n = value_of(made, "run", "workers");
        assert_int_equal(strlen(name), 1);
        assert_false(seen[name[0] - 'a'][n[0] - '1']);
        seen[name[0] - 'a'][n[0] - '1'] = true;
        assert_string_equal(value_of(made, "run", "batch"), "32");
        assert_string_equal(dpb_config_get(made, "comm", "name")->origin, FILE_LINE);
        assert_int_equal(dpb_config_get(made, "comm", "name")->from, DPB_FROM_AXIS);
        assert_int_equal(dpb_config_get(made, "run", "batch")->from, DPB_FROM_COMMAND);
        assert_false(dpb_sweep_wanted(made));
    }
    char label[64];
    dpb_sweep_label(sweep, &(struct dpb_sweep_job){.cell = 1}, label, sizeof label);
    assert_string_equal(label, "comm.name=a run.workers=2");
}

/* Settings of one value of an axis, in a section and in a key; the command line replaces them. */
TEST(values_have_settings)
{
    struct dpb_config *config =
        CONFIGURE("sweep.comm.name=a,b", "sweep.run.workers=1,2", "sweep.b.run.servers=1",
                  "sweep.run.workers.2.run.batch=8", "run.batch=4",
                  "optimizer.learning_rate=0.1 * run.workers", "run.steps=20",
                  "sweep.1.run.seconds=3", "run.seed=5", "!run.seed=6", "sweep.b.run.seed=7");
    assert_int_equal(
        dpb_config_set(config, "sweep.b", "optimizer.momentum", "run.workers / 10", "s:1"), DPB_OK);
    struct dpb_sweep *sweep = sweep_of(config);
    assert_int_equal(sweep->n_cells, 4);
    static const struct {
        const char *servers, *batch, *rate, *momentum, *seconds, *steps;
    } cells[4] = {{NULL, "4", "0.1", NULL, "3", NULL},
                  {NULL, "8", "0.2", NULL, NULL, "20"},
                  {"1", "4", "0.1", "0.1", "3", NULL},
                  {"1", "8", "0.2", "0.2", NULL, "20"}};
    for (size_t i = 0; i < 4; i++) {
        struct dpb_config *made = cell_of(sweep, (struct dpb_sweep_job){.cell = i});
        expect_setting(made, "run", "servers", cells[i].servers);
        expect_setting(made, "run", "batch", cells[i].batch);
        expect_setting(made, "optimizer", "learning_rate", cells[i].rate);
        expect_setting(made, "optimizer", "momentum", cells[i].momentum);
        expect_setting(made, "run", "seconds", cells[i].seconds);
        expect_setting(made, "run", "steps", cells[i].steps);
        expect_setting(made, "run", "seed", "6");
        assert_false(dpb_sweep_wanted(made));
        assert_string_equal(dpb_config_origin(made, "optimizer", "learning_rate"),
                            FILE_LINE " (= 0.1 * run.workers)");
        if (cells[i].servers)
            assert_int_equal(dpb_config_get(made, "run", "servers")->from, DPB_FROM_AXIS);
    }
    assert_string_equal(dpb_sweep_setting(sweep, 2, "run", "servers"), "1");
    assert_string_equal(dpb_sweep_setting(sweep, 0, "run", "servers"), "");
}

/* An axis that the command line replaces keeps the settings of its value, and the document lists
 * what ran. */
TEST(replaced_axes_are_listed_as_they_ran)
{
    struct study s = STUDY("sweep.comm.name=a,b", "sweep.b.run.servers=1", "sweep.a.run.servers=2",
                           "sweep.b.run.batch=7", "!comm.name=b", "!run.batch=9");
    struct dpb_config *made = cell_of(s.sweep, (struct dpb_sweep_job){.cell = 0});
    expect_setting(made, "run", "servers", "1");
    expect_setting(made, "run", "batch", "9");
    assert_null(dpb_json_at(s.document, "config.sweep.comm.name"));
    assert_null(json_object_get(dpb_json_at(s.document, "config.sweep"), "comm.name"));
    assert_null(json_object_get(dpb_json_at(s.document, "config.sweep"), "b.run.servers"));
    assert_string_equal(dpb_json_text(s.document, "config.run.servers.value", ""), "1");
    /* A rerun is of the same sweep. */
    struct dpb_config *again = own_config(dpb_config_create());
    assert_int_equal(dpb_config_from_json(again, json_object_get(s.document, "config"), "x"),
                     DPB_OK);
    assert_int_equal(sweep_of(again)->n_cells, 1);
    struct dpb_sweep *sweep =
        sweep_of(CONFIGURE("sweep.a.b=1,2", "sweep.1.c.d=3", "!sweep.c.d=4,5"));
    assert_int_equal(sweep->n_own, 0);
    assert_int_equal(sweep->n_cells, 4);
    /* Another list has lost the value: that is no mistake of the file. */
    sweep_of(CONFIGURE("sweep.comm.name=a,b", "sweep.b.run.servers=1", "!sweep.comm.name=a"));
    dpb_warnings_clear();
}

/* Cells have one network where data and model are the same, wherever their axes stand. */
TEST(cells_share_networks)
{
    static const size_t networks[8] = {0, 1, 2, 3, 0, 1, 2, 3};
    struct dpb_config *config =
        CONFIGURE("sweep.run.workers=1,2", "sweep.model.name=mlp,lenet", "sweep.data.threads=1,2");
    struct dpb_sweep *sweep = sweep_of(config);
    for (size_t cell = 0; cell < 8; cell++)
        assert_int_equal(dpb_sweep_network(sweep, cell), networks[cell]);
}

/* 24 runs of a second, all of them disturbed: the seconds that they and their repeats take. */
static double disturbed_for(const struct dpb_sweep *sweep, struct dpb_sweep_budget *budget)
{
    double now_s = 0;
    *budget = dpb_sweep_budget_of(&sweep->options, 24);
    for (int job = 0; job < 24 && dpb_sweep_budget_starts(budget, now_s); job++) {
        int64_t n = 0;
        do {
            now_s++;
            dpb_sweep_budget_spend(budget, 1, n > 0);
        } while (n++ < sweep->options.retry_disturbed &&
                 dpb_sweep_budget_repeats(budget, 1, now_s));
    }
    return now_s;
}

TEST(repeats_of_disturbed_runs_have_a_budget)
{
    static const struct {
        const char *settings[3];
        double seconds, repeats, left;
    } rows[] = {{{"sweep.comm.name=shm"}, 48, 24, 24},
                {{"sweep.comm.name=shm", "sweep.retry_budget=5"}, 29, 5, 23},
                {{"sweep.comm.name=shm", "sweep.retry_budget=0"}, 24, 0, 24},
                {{"sweep.comm.name=shm", "sweep.retry_budget=60min"}, 96, 72, 0},
                {{"sweep.comm.name=shm", "sweep.limit_s=20"}, 20, 10, 10},
                {{"sweep.comm.name=shm", "sweep.retry_disturbed=0"}, 24, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_sweep_budget budget;
        const char *settings[4] = {rows[i].settings[0], rows[i].settings[1]};
        assert_near(disturbed_for(sweep_of(configure(settings)), &budget), rows[i].seconds);
        json_t *document = own_json(json_pack("{s:[]}", "warnings"));
        dpb_sweep_budget_report(&budget, document);
        const json_t *repeats = json_object_get(document, "repeats_of_disturbed");
        assert_near(dpb_json_number(repeats, "runs"), rows[i].repeats);
        assert_near(dpb_json_number(repeats, "seconds"), rows[i].repeats);
        assert_near(dpb_json_number(repeats, "left_disturbed"), rows[i].left);
        assert_int_equal(json_array_size(json_object_get(document, "warnings")), rows[i].left > 0);
    }
}

/* Of 20 jobs 5 are done by 20 runs: the 15 others will take 60, not 15. */
TEST(what_is_left_counts_the_repeats_of_disturbed_runs)
{
    assert_int_equal(dpb_sweep_budget_left(15, 20, 5), 60);
    assert_int_equal(dpb_sweep_budget_left(15, 5, 5), 15);
    assert_int_equal(dpb_sweep_budget_left(15, 3, 5), 15); /* some failed, and are no runs */
    assert_int_equal(dpb_sweep_budget_left(19, 0, 0), 19);
    assert_int_equal(dpb_sweep_budget_left(0, 20, 5), 0);
}

TEST(turns_have_a_time_or_steps)
{
    static const struct {
        const char *setting;
        int64_t ns, steps, repeats;
        bool on;
    } rows[] = {{"sweep.turns=yes", 0, 0, 1, true},
                {"sweep.turns=no", 0, 0, 3, false},
                {"sweep.turns=0.5 s", 500000000, 0, 1, true},
                {"sweep.turns=30 steps", 0, 30, 1, true}};
    static const char *const wrong[] = {"sweep.turns=5", "sweep.turns=0 steps", "sweep.turns=1 ms",
                                        "sweep.turns=maybe"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct dpb_sweep *sweep =
            sweep_of(configure((const char *[]){"sweep.comm.name=shm", rows[i].setting, NULL}));
        assert_int_equal(sweep->turns.on, rows[i].on);
        assert_int_equal(sweep->turns.ns, rows[i].ns);
        assert_int_equal(sweep->turns.steps, rows[i].steps);
        assert_int_equal(sweep->options.repeats, rows[i].repeats);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct dpb_sweep *sweep;
        assert_int_equal(
            dpb_sweep_create(configure((const char *[]){"sweep.comm.name=shm", wrong[i], NULL}),
                             &sweep),
            DPB_USAGE);
    }
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
        {"run.workers * run.batch <= 64", "a1 a2 b1 b2 "},
        {"run.batch / run.workers > 10 and comm.name = b", "b1 b2 "},
        {"run.batch = 128 / run.workers", "a4 b4 "},
        {"run.workers != run.batch / 16", "a1 a4 b1 b4 "},
        {"comm.bucket >= 1 MiB * run.workers", "a1 a2 b1 b2 "},
        {"run.accumulate = 2 and comm.name = a", "a2 "},
        {"", "a1 a2 a4 b1 b2 b4 "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char setting[128], cells[64] = "";
        snprintf(setting, sizeof setting, "sweep.when=%s", rows[i].when);
        struct dpb_config *config =
            CONFIGURE(setting, "run.batch=32", "sweep.comm.name=a,b", "sweep.run.workers=1..4 x2",
                      "comm.bucket=2 MiB", "run.accumulate=4 / run.workers");
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
    }
}

/* A value has several texts, and conditions are about values. */
TEST(conditions_compare_values)
{
    static const struct {
        const char *settings[3], *when;
        size_t n_cells;
    } rows[] = {
        {{"sweep.comm.bucket=1 MiB, 4MiB"}, "comm.bucket > 2 MiB", 1},
        {{"sweep.comm.bucket=1 MiB, 4MiB"}, "comm.bucket = 4096 KiB", 1},
        {{"sweep.optimizer.learning_rate=0.1, 0.2"}, "optimizer.learning_rate = 0.10", 1},
        {{"sweep.run.prove=yes, no"}, "run.prove = true", 1},
        {{"sweep.run.prove=yes, no"}, "run.prove != off", 1},
        {{"sweep.run.stall_warning_s=1, 2 min"}, "run.stall_warning_s >= 120 s", 1},
        {{"sweep.run.workers=1, 2", "run.timeout_s=5"}, "run.timeout_s < 1 min", 2},
        {{"sweep.comm.name=independent, nccl"}, "comm.name != independent", 1},
        {{"sweep.comm.name=a, b"}, "comm.name != shm and comm.name != \"easgd\"", 2},
        {{"sweep.comm.codec=none, topk"}, "comm.codec != none", 1},
        {{"sweep.comm.codec=topk"}, "comm.codec != none", 1},
        {{"sweep.optimizer.decay_at=\"1,2\", 3"}, "optimizer.decay_at = \"1,2\"", 1},
        {{"sweep.run.name=x, \"a and b = c\""}, "run.name != \"a and b = c\"", 1},
        /* of a plugin's option */
        {{"sweep.comm.codec_ratio=0.10, 0.2", "comm.codec=topk"}, "comm.codec_ratio <= 0.1", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct dpb_config *config = configure(rows[i].settings);
        assert_int_equal(dpb_config_set(config, "sweep", "when", rows[i].when, FILE_LINE), DPB_OK);
        if (sweep_of(config)->n_cells != rows[i].n_cells)
            fail_msg("%s holds for another number of cells", rows[i].when);
    }
}

TEST(one_duration_stands)
{
    struct dpb_config *config = CONFIGURE("run.epochs=3", "sweep.run.steps=10,20");
    struct dpb_sweep *sweep = sweep_of(config);
    struct dpb_config *made = cell_of(sweep, (struct dpb_sweep_job){.cell = 1});
    assert_null(value_of(made, "run", "epochs"));
    assert_string_equal(value_of(made, "run", "steps"), "20");
}

TEST(command_line_takes_an_axis_place)
{
    struct dpb_config *config = CONFIGURE("!comm.name=b", "!run.seconds=2", "sweep.comm.name=a,b",
                                          "sweep.run.steps=10,20", "sweep.run.workers=1,2");
    struct dpb_sweep *sweep = sweep_of(config);
    assert_int_equal(sweep->n_cells, 2);
    struct dpb_config *made = cell_of(sweep, (struct dpb_sweep_job){.cell = 0});
    assert_string_equal(value_of(made, "comm", "name"), "b");
    assert_string_equal(value_of(made, "run", "seconds"), "2");
    assert_null(value_of(made, "run", "steps"));
}

/* A rule's option goes to its cells; one that no rule of the axis has goes to all, which refuse. */
TEST(options_of_a_rule_are_for_its_cells)
{
    static const char *const values[][2] = {{"0.8", NULL}, {NULL, "0.5"}, {"1", "1"}, {"0", "0"}};
    static const char *const keys[] = {"beta1", "momentum", "rms_decay", "clip_norm"};
    struct dpb_config *config =
        CONFIGURE("sweep.optimizer.name=adam,sgd", "optimizer.beta1=0.8", "optimizer.momentum=0.5",
                  "optimizer.rms_decay=1", "optimizer.clip_norm=0");
    struct dpb_sweep *sweep = sweep_of(config);
    for (size_t cell = 0; cell < 2; cell++) {
        struct dpb_config *made = cell_of(sweep, (struct dpb_sweep_job){.cell = cell});
        for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            const char *value = value_of(made, "optimizer", keys[i]);
            if (values[i][cell])
                assert_string_equal(value, values[i][cell]);
            else
                assert_null(value);
        }
    }
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
        assert_int_equal(sweep->options.repeats, n);
        assert_int_equal(sweep->n_cells, 2);
        for (uint32_t repeat = 0; repeat < n; repeat++)
            for (size_t cell = 0; cell < 2; cell++) {
                const struct dpb_sweep_job job = {.cell = cell, .repeat = repeat};
                struct dpb_config *made = cell_of(sweep, job);
                assert_string_equal(value_of(made, "run", "seed"), rows[i].seeds[repeat]);
            }
    }
}

TEST(bad_sweeps_are_refused)
{
    static const struct {
        const char *settings[5], *message;
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
        {{"sweep.a.b=1,x", "sweep.when=a.b > 1"}, "'x > 1': > compares numbers"},
        {{"sweep.a.b=1,2", "sweep.when=a.b > 2"}, "sweep.when holds for no cell"},
        {{"sweep.a.b=1,2", "sweep.when=a.b != 1 && a.b > 1"},
         "several with `and` and `or` between"},
        {{"sweep.a.b=1,2", "sweep.when=a.b != 1 AND a.b > 1"}, "is no condition"},
        {{"sweep.run.workers=1,2", "sweep.when=run.workers * 2 > comm.bucket"},
         FILE_LINE ": sweep.when: 'run.workers * 2' and 'comm.bucket' have different units"},
        {{"sweep.run.workers=1,2", "sweep.when=run.workers * x.y > 2"}, "'x.y' is no number here"},
        {{"sweep.a.b=1,2", "sweep.3.c.d=1"},
         "sweep.3.c.d = 1 does nothing: '3' is no value of an axis"},
        {{"sweep.a.b=one,two", "sweep.tow.c.d=1"}, "did you mean 'two'?"},
        {{"sweep.a.b=1,2", "sweep.c.d=1,3", "sweep.1.e.f=1"},
         "'1' is a value of a.b and of c.d: write [sweep.c.d.1]"},
        {{"sweep.a.b=1,2", "sweep.c.d=3,4", "sweep.1.c.d=1"}, "c.d is an axis: choose its cells"},
        {{"sweep.a.b=1,2", "sweep.c.d=3,4", "sweep.1.e.f=1", "sweep.3.e.f=1"},
         "e.f is set for a value of c.d, and for one of a.b (" FILE_LINE "): leave one out"},
        {{"sweep.a.b=1,2", "sweep.1.e.f=1", "sweep.a.b.1.e.f=1"},
         "e.f of 'a.b.1' was given before"},
        {{"sweep.a.b=1,2", "sweep.when=a.b = 1, 2"}, "quote a VALUE with other signs"},
        {{"sweep.a.b=1,2", "sweep.when=a.b = '1'"}, "is no condition"},
        {{"sweep.a.b=1,2", "sweep.when=a.b = \"\""}, "is no condition"},
        {{"sweep.comm.name=shm,sma", "sweep.when=comm.name != independant"},
         FILE_LINE ": sweep.when: unknown comm 'independant'; did you mean 'independent'?"},
        {{"sweep.run.workers=1,2", "sweep.when=run.workers > x"},
         FILE_LINE ": sweep.when: run.workers: 'x' is not a number"},
        {{"sweep.run.prove=yes,no", "sweep.when=run.prove > no"}, "> compares numbers"},
        {{"sweep.comm.bucket=1,2", "sweep.when=comm.bucket > 2 mib"}, "has an unknown unit"},
        {{"sweep.run.workers=1, 01"},
         FILE_LINE ": sweep.run.workers has '1' and '01', which are one value: leave one out"},
        {{"sweep.comm.bucket=1MiB, 1048576"}, "has '1MiB' and '1048576', which are one value"},
        {{"sweep.comm.codec=topk", "sweep.comm.codec_ratio=0.1, 0.10"},
         "'0.1' and '0.10', which are one"},
        {{"sweep.over=run.seed", "sweep.run.seed=1, +1"}, "'1' and '+1', which are one value"},
        {{"sweep.repeats=three"}, "repeats"},
        {{"sweep.seeds=3", "sweep.over=run.seed"}, "sweep.seeds and sweep.over are both given"},
        {{"sweep.seeds=3", "sweep.run.seed=1,2"}, "sweep.seeds and an axis run.seed: leave one"},
        {{"sweep.seeds=3", "run.seed=x"}, "run.seed = 'x' is no whole number"},
        {{"sweep.seeds=2", "sweep.repeats=3"},
         FILE_LINE ": sweep.repeats = 3, but " FILE_LINE ": sweep.seeds gives run.seed 2 values"},
        {{"!sweep.seeds=3", "sweep.repeats=1"},
         FILE_LINE ": sweep.repeats = 1, but command line: sweep.seeds gives run.seed 3 values"},
        {{"sweep.seeds=3", "sweep.repeats=1"}, "leave sweep.repeats out"},
        {{"!sweep.over=run.seed", "sweep.run.seed=1,2", "sweep.repeats=1"},
         "command line: sweep.over gives run.seed 2 values, one for each repeat"},
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
        {{"sweep.run.steps=1,2", "sweep.run.seconds=1"},
         "sweep.run.seconds and sweep.run.steps are both given; leave one out"},
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
         FILE_LINE ": [sweep] has 101 cells and 1000 repeats"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct dpb_config *config = configure(cases[i].settings);
        struct dpb_sweep *sweep = NULL;
        assert_int_equal(dpb_sweep_create(config, &sweep), DPB_USAGE);
        if (strstr(dpb_first_error(NULL), cases[i].message) == NULL)
            fail_msg("'%s' should say '%s'", dpb_first_error(NULL), cases[i].message);
        assert_null(sweep);
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
        struct dpb_config *config = CONFIGURE("sweep.launch=mpirun -np {ranks}");
        dpb_config_set(config, "sweep", "run.workers", cases[i].workers, "x");
        dpb_config_set(config, "sweep", "machines", cases[i].machines, "x");
        dpb_config_set(config, "run", "learners", cases[i].learners, "x");
        if (cases[i].workers[0] == '-')
            dpb_config_set(config, "run", "servers", "1", "x");
        struct dpb_config *cell = cell_of(sweep_of(config), (struct dpb_sweep_job){0});
        assert_string_equal(dpb_config_get(cell, "comm", "hosts")->value, cases[i].hosts);
        assert_string_equal(dpb_config_origin(cell, "comm", "hosts"), "sweep.launch");
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
}

TEST(accuracy_is_a_job_of_each_strategy)
{
    struct dpb_config *config =
        CONFIGURE("run.seconds=1", "eval.final=yes", "eval.batches=1", "run.require_steady=yes",
                  "sweep.accuracy=500", "sweep.comm.name=a,b", "sweep.run.workers=1,4,2",
                  "sweep.run.batch=8,16");
    struct dpb_sweep *sweep = sweep_of(config);
    struct dpb_sweep_job jobs[12];
    assert_int_equal(dpb_sweep_accuracy_jobs(sweep, jobs), 2);
    for (size_t i = 0; i < 2; i++) {
        assert_true(jobs[i].accuracy);
        struct dpb_config *made = cell_of(sweep, jobs[i]);
        assert_string_equal(value_of(made, "comm", "name"), i == 0 ? "a" : "b");
        assert_string_equal(value_of(made, "run", "workers"), "4");
        assert_string_equal(value_of(made, "run", "steps"), "500");
        assert_string_equal(value_of(made, "run", "warmup_steps"), "0"); /* 500 steps train */
        assert_null(value_of(made, "run", "seconds"));
        assert_string_equal(value_of(made, "eval", "final"), "yes");
        assert_string_equal(value_of(made, "run", "require_steady"), "no");
    }
    struct dpb_config *timing = cell_of(sweep, (struct dpb_sweep_job){.cell = 0});
    assert_null(value_of(timing, "eval", "final"));
    assert_null(value_of(timing, "eval", "batches"));
    assert_string_equal(value_of(timing, "run", "seconds"), "1");
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
        struct study s = STUDY("sweep.a.b=1,2", "published.a.b 1=2, x, y",
                               "published.a.b 2=3, x, y", cases[i].late);
        if (json_array_size(s.sweep->published) != cases[i].n)
            fail_msg("%s leaves %zu figures", cases[i].late, json_array_size(s.sweep->published));
        assert_int_equal(json_object_get(s.document, "published") != NULL, cases[i].n > 0);
    }
}

/* A run has one length: the command line's takes the file's away, be they axes or plain. */
TEST(another_length_leaves_figures_out)
{
    static const char *const lengths[][2] = {{"sweep.run.steps=10,20", "!run.seconds=2"},
                                             {"run.steps=10", "!sweep.run.seconds=2"},
                                             {"run.steps=10", "!sweep.run.seconds=2,3"},
                                             {"sweep.run.steps=10,20", "!sweep.run.seconds=2"}};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct study s =
            STUDY(lengths[i][0], "sweep.a.b=1,2", "published.run.steps 10=2, x, y", lengths[i][1]);
        assert_null(s.sweep->published);
        assert_int_equal(s.sweep->n_cells, i == 2 ? 4 : 2);
    }
    struct study plain =
        STUDY("run.steps=10", "sweep.a.b=1,2", "published.a.b 1=2, x, y", "!run.seconds=2");
    assert_int_equal(json_array_size(plain.sweep->published), 1);
}

/* The plugins of the build, for conditions and axes of their names and options. */
static int set_up(void **state)
{
    char plugins[PATH_MAX];
    (void)state;
    snprintf(plugins, sizeof plugins, "%s/plugins", build_directory());
    return setenv("DPBENCH_PLUGIN_PATH", plugins, 1);
}

TEST_MAIN(set_up, NULL)
