/* test_quantity.c - accuracy, loss, bytes and the like: pairs by seeds, outcomes, and how often an
 * interval holds the truth. */
#include "quantity_study.h"
#include "sweep_study.h"
#include "study/document/target.h"
#include "study/table/compare.h"

static const double no_margin[DPB_QUANTITIES] = {NAN, NAN, NAN, NAN, NAN, NAN, NAN};

static void expect_text(const json_t *a, const json_t *b, enum dpb_quantity_id id, double margin,
                        const char *text, enum dpb_judged judged)
{
    struct dpb_quantity_comparison c;
    char is[64];
    assert_true(dpb_quantity_compare(a, b, id, margin, false, &c));
    dpb_quantity_text(&c, id, is, sizeof is);
    assert_string_equal(is, text);
    assert_int_equal(dpb_quantity_judge(&c, id, margin), judged);
}

/* 3 points apart by seed, 0.14 points by strategy: the seeds cancel where both sides have them. */
TEST(accuracies_are_paired_by_equal_seeds)
{
    const double seeds[] = {1, 2, 3, 4}, others[] = {4, 1, 2, 3}, apart[] = {5, 6, 7, 8};
    json_t *a = own_json(quantity_row(DPB_ACCURACY, 4, seeds, (double[]){.84, .87, .865, .855}));
    json_t *b =
        own_json(quantity_row(DPB_ACCURACY, 4, others, (double[]){.8565, .8412, .8714, .8665}));
    json_t *c =
        own_json(quantity_row(DPB_ACCURACY, 4, apart, (double[]){.8412, .8714, .8665, .8565}));
    struct dpb_quantity_comparison made;
    char text[64];
    expect_text(a, b, DPB_ACCURACY, 0.5, "equal within 0.5 points", DPB_PASSES);
    assert_true(dpb_quantity_compare(a, b, DPB_ACCURACY, 0.5, false, &made));
    assert_near(made.change, 0.14);
    dpb_quantity_change(&made, DPB_ACCURACY, text, sizeof text);
    assert_string_equal(text, "+0.14 [+0.12..+0.16] points");
    assert_true(dpb_quantity_compare(a, c, DPB_ACCURACY, 0.5, true, &made));
    assert_true(made.gain.outcome == DPB_UNDECIDED && made.gain.take > 4);
    assert_int_equal(dpb_quantity_judge(&made, DPB_ACCURACY, 0.5), DPB_OPEN);
    assert_int_equal(dpb_quantity_judge(&made, DPB_ACCURACY, NAN), DPB_NOT_JUDGED);
}

/* Three repeats of one seed say nothing of another. */
TEST(one_seed_shows_nothing)
{
    const double seeds[] = {1, 1, 1};
    json_t *a = own_json(quantity_row(DPB_ACCURACY, 3, seeds, (double[]){.8, .8, .8}));
    json_t *b = own_json(quantity_row(DPB_ACCURACY, 3, seeds, (double[]){.9, .9, .9}));
    expect_text(a, b, DPB_ACCURACY, 0.5, "no conclusion (one seed)", DPB_OPEN);
}

TEST(each_quantity_knows_the_better)
{
    static const struct {
        enum dpb_quantity_id id;
        double a[3], b[3], margin;
        const char *text;
        enum dpb_judged judged;
    } rows[] = {
        {DPB_ACCURACY, {.80, .81, .82}, {.85, .86, .87}, 0.5, "higher", DPB_PASSES},
        {DPB_ACCURACY, {.80, .81, .82}, {.70, .71, .72}, 0.5, "lower", DPB_REGRESSES},
        {DPB_LOSS, {.5, .51, .52}, {.4, .41, .42}, 1, "lower", DPB_PASSES},
        {DPB_BYTES, {100, 100, 100}, {102, 102, 102}, 1, "more", DPB_REGRESSES},
        {DPB_BYTES, {100, 100, 100}, {100.5, 100.5, 100.5}, 1, "equal within 1 %", DPB_PASSES},
        {DPB_BYTES, {100, NAN, NAN}, {25, NAN, NAN}, 1, "fewer", DPB_PASSES},
        {DPB_MEMORY, {100, NAN, NAN}, {25, NAN, NAN}, 1, "no conclusion (one repeat)", DPB_OPEN},
        {DPB_ENERGY, {1, 1.1, 1.05}, {2, 2.1, 2.05}, 5, "more", DPB_REGRESSES},
    };
    const double seeds[] = {1, 2, 3};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_text(own_json(quantity_row(rows[i].id, 3, seeds, rows[i].a)),
                    own_json(quantity_row(rows[i].id, 3, seeds, rows[i].b)), rows[i].id,
                    rows[i].margin, rows[i].text, rows[i].judged);
}

/* A run that missed is a bound, and no value. */
TEST(a_missed_target_concludes_nothing)
{
    json_t *rows[2];
    for (int i = 0; i < 2; i++) {
        rows[i] = own_json(json_pack(
            "{s:{s:[i, i, i]}, s:{s:n, s:f, s:s, s:s, s:i, s:i, s:[{s:b, s:f}, {s:b, s:f}, {s:b, "
            "s:f}]}}",
            "by_repeat", "seed", 1, 2, 3, "to_target", "accuracy", "loss", 0.5, "criterion", "last",
            "model", "all workers", "reached", 3 - i, "of", 3, "repeats", "met", 1, "samples",
            100.0, "met", 1, "samples", 110.0, "met", 1 - i, "samples", 120.0));
        assert_non_null(rows[i]);
    }
    expect_text(rows[0], rows[0], DPB_SAMPLES, 5, "equal within 5 %", DPB_PASSES);
    expect_text(rows[0], rows[1], DPB_SAMPLES, 5, "no conclusion (a run missed it)", DPB_OPEN);
    /* The target's own comparison has the same pairs, in whatever order the seeds are. */
    json_t *turned = own_json(json_deep_copy(rows[0]));
    json_t *seeds = json_object_get(json_object_get(turned, "by_repeat"), "seed");
    json_array_insert_new(seeds, 0, json_integer(3)); /* 3, 1, 2 */
    json_array_remove(seeds, 3);
    json_t *repeats = json_object_get(json_object_get(turned, "to_target"), "repeats");
    json_t *last = json_incref(json_array_get(repeats, 2));
    json_array_remove(repeats, 2);
    json_array_insert_new(repeats, 0, last);
    struct dpb_comparison c;
    dpb_target_compare(rows[0], turned, "samples", false, &c);
    assert_true(c.paired && c.low == 1 && c.high == 1);
    json_array_set_new(seeds, 1, json_integer(3)); /* twice */
    dpb_target_compare(rows[0], turned, "samples", false, &c);
    assert_true(!c.paired && c.low < 1 && c.high > 1);
}

/* Four seeds each, evaluated: 12 % faster, and the accuracy beside it. */
TEST(notes_say_the_accuracy_beside_the_rate)
{
    struct study s = STUDY("sweep.comm.name=replicated,shm", "sweep.seeds=3");
    for (uint32_t repeat = 0; repeat < 3; repeat++)
        for (size_t cell = 0; cell < 2; cell++) {
            add_run(&s, cell, repeat,
                    (struct made_run){cell == 0 ? "replicated" : "shm", 2, 1,
                                      (cell == 0 ? 1000 : 890) + 3 * (double)repeat, 0, 10, NULL,
                                      0});
            const json_t *runs = json_object_get(s.document, "runs");
            json_t *run = json_array_get(runs, json_array_size(runs) - 1);
            const double off = repeat == 1 ? 0.02 : 0.01 * (double)cell;
            json_object_set_new(run, "eval", json_pack("[{s:f}]", "accuracy", 0.80 + off));
            json_object_set_new(
                run, "config", json_pack("{s:{s:{s:i}}}", "run", "seed", "value", 1 + (int)repeat));
        }
    EXPECT_TABLE(&s, "shm / replicated 0.890 [0.",
                 " slower, accuracy +0.67 [-0.77..+2.10] points "
                 "undecided: ",
                 " seeds would tell.");
    json_object_set_new(json_array_get(json_object_get(s.document, "runs"), 0), "load",
                        json_pack("{s:b}", "disturbed", 1));
    json_array_remove(json_object_get(s.document, "runs"), 4);
    json_array_remove(json_object_get(s.document, "runs"), 2);
    EXPECT_TABLE(&s, "no conclusion (");
}

/* Of two sweeps: an accuracy that fell is found, and named, beside rates that are equal. */
TEST(compare_judges_quantities)
{
    const double seeds[] = {1, 2, 3};
    double margins[DPB_QUANTITIES];
    json_t *documents[2], *comparison = NULL;
    bool regression;
    for (int i = 0; i < 2; i++) {
        json_t *row = quantity_row(DPB_ACCURACY, 3, seeds,
                                   i == 0 ? (double[]){.80, .81, .82} : (double[]){.70, .71, .72});
        json_object_update_new(row, json_pack("{s:{s:s}, s:{s:f}, s:[f, f, f]}", "cell", "a", "b",
                                              "samples_per_s", "median", 100.0, "rates", 99.0,
                                              100.0, 101.0));
        documents[i] =
            own_json(json_pack("{s:s, s:[o]}", "schema", "dpbench.sweep/1", "rows", row));
    }
    memcpy(margins, no_margin, sizeof margins);
    const struct dpb_compared a = {"a.json", documents[0]}, b = {"b.json", documents[1]};
    const struct dpb_compare_how how = {.threshold = NAN, .margins = margins};
    assert_int_equal(dpb_compare_make(&a, &b, &how, &comparison, &regression), DPB_OK);
    assert_false(regression);
    assert_int_equal(dpb_compare_status(comparison, NULL), DPB_OK);
    json_decref(comparison);
    margins[DPB_ACCURACY] = 0.5;
    assert_int_equal(dpb_compare_make(&a, &b, &how, &comparison, &regression), DPB_OK);
    assert_true(regression);
    assert_int_equal(dpb_compare_status(comparison, NULL), DPB_REGRESSION);
    assert_non_null(strstr(dpb_first_error(NULL),
                           "b.json has a worse accuracy than a.json, by more "
                           "than --accuracy 0.5"));
    dpb_first_error_clear();
    char *text = printed_as(own_json(comparison), dpb_compare_print);
    assert_non_null(strstr(text, "a=b   accuracy               81.00 %      71.00 %  -10.00 ["));
    assert_non_null(strstr(text, "lower REGRESSION\n"));
    margins[DPB_ENERGY] = 1;
    assert_int_equal(dpb_compare_make(&a, &b, &how, &comparison, &regression), DPB_USAGE);
    assert_non_null(
        strstr(dpb_first_error(NULL), "--energy: a.json and b.json have no cell where"));
    dpb_first_error_clear();
}

/* make check-long LONG=conclusions draws 10,000 of each. */
TEST(intervals_hold_the_truth)
{
    enum { DRAWS = 600 };
    static const uint32_t sizes[] = {3, 5, 10};
    for (size_t i = 0; i < 3; i++) {
        const double error = 3.5 * sqrt(DRAWS * 0.05 * 0.95);
        for (int kind = 0; kind < COVER_KINDS; kind++) {
            const double held = quantity_covered(kind, sizes[i], DRAWS);
            const double least = kind == COVER_SKEWED_APART ? 0.80 : 0.93;
            if (held < least * DRAWS - error ||
                (kind < COVER_PAIRED && held > 0.97 * DRAWS + error))
                fail_msg("%s, %u seeds: %g of %d", cover_names[kind], sizes[i], held, DRAWS);
        }
    }
}

TEST_MAIN(NULL, NULL)
