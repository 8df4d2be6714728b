/* test_why.c - why a run is not faster, from made-up journals: numbers by hand, what is said and
 * what is not. tests/system/why_slow.py has real runs with planted causes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "dpbench/random.h"
#include "lib/documented.h"
#include "lib/near.h"
#include "lib/own.h"
#include "lib/says.h"
#include "lib/test.h"
#include "record/why.h"
#include "study/document/comparison.h"

enum { STEPS = 100, WORKERS = 3, WARM = 7, SAMPLES = 8, MS = 1000000, STUDIES = 400 };

static struct dpb_journal *journals[WORKERS];

static int make_journals(void **state)
{
    (void)state;
    for (int w = 0; w < WORKERS; w++) {
        journals[w] = calloc(1, sizeof *journals[w] + (WARM + STEPS) * sizeof(struct dpb_record));
        assert_non_null(journals[w]);
        journals[w]->capacity = journals[w]->n_records = WARM + STEPS;
        journals[w]->timed_from = WARM;
    }
    return 0;
}

static int free_journals(void **state)
{
    (void)state;
    for (int w = 0; w < WORKERS; w++)
        free(journals[w]);
    return 0;
}

/* The parts of timed step k of a worker, in ms; it then waits for the slowest worker's 50 ms, and
 * the exchange takes 2 ms more, 6 being hidden. Warm-up steps are hundreds of times longer. */
static void set_step(int w, int k, double data, double backward, double exposed)
{
    for (int i = k == 0 ? 0 : WARM + k; i <= WARM + k; i++) {
        struct dpb_record *record = &journals[w]->records[i];
        const double factor = i < WARM ? 500 * (w + 1) : 1;
        *record = (struct dpb_record){.data_wait_ns = (int64_t)(factor * data * MS),
                                      .forward_ns = (int64_t)(factor * 10 * MS),
                                      .backward_ns = (int64_t)(factor * backward * MS),
                                      .optimizer_ns = (int64_t)(factor * 1 * MS),
                                      .comm_exposed_ns = (int64_t)(factor * exposed * MS),
                                      .comm_hidden_ns = (int64_t)(factor * 6 * MS),
                                      .comm_bytes = 4000000};
        record->step_ns = record->data_wait_ns + record->forward_ns + record->backward_ns +
                          record->optimizer_ns + record->comm_exposed_ns;
    }
}

static json_t *why_of(int n_workers, bool apart)
{
    const struct dpb_why_args args = {(const struct dpb_journal *const *)journals,
                                      (uint32_t)n_workers,
                                      WARM,
                                      STEPS,
                                      SAMPLES,
                                      apart};
    json_t *why = dpb_why_to_json(&args);
    assert_non_null(why);
    return own_json(json_pack("{s:o, s:{s:s, s:{s:f}}, s:{s:{s:{s:i}}}}", "why", why, "timing",
                              "clock", "host", "samples_per_s", "mean", 461.5, "config", "data",
                              "threads", "value", 2));
}

static double at(const json_t *result, const char *path)
{
    return dpb_json_number(result, path);
}

static bool decided(const json_t *result, const char *path)
{
    return json_is_true(dpb_json_at(result, path));
}

/* Worker 2 takes 40 ms backward instead of 28 in three steps of four, worker 0 in the others. */
static json_t *made_straggler(void)
{
    for (int k = 0; k < STEPS; k++)
        for (int w = 0; w < WORKERS; w++) {
            const bool slow = k % 4 == 3 ? w == 0 : w == 2;
            set_step(w, k, 0, slow ? 40 : 28, slow ? 2 : 14);
        }
    return why_of(WORKERS, false);
}

TEST(the_last_worker_and_its_part)
{
    json_t *result = made_straggler();
    const json_t *shares = dpb_json_at(result, "why.last.shares");
    assert_within(at(result, "why.last.rank"), 2, 0);
    assert_string_equal(dpb_json_text(result, "why.last.part", ""), "backward");
    assert_within(json_number_value(json_array_get(shares, 0)), 0.25, 1e-12);
    assert_within(json_number_value(json_array_get(shares, 1)), 0, 0);
    assert_within(json_number_value(json_array_get(shares, 2)), 0.75, 1e-12);
    assert_within(at(result, "why.last.part_ns"), 37 * MS, 1);
    assert_within(at(result, "why.last.others_part_ns"), 29.5 * MS, 1);
    /* 12 ms behind in three steps of four, 6 ms ahead in the fourth; blocks of 10 steps. */
    double x[STEPS], freedom;
    for (int k = 0; k < STEPS; k++)
        x[k] = (k % 4 == 3 ? -6.0 : 12.0) * MS;
    const double error = dpb_block_error(x, STEPS, &freedom);
    assert_within(freedom, 9, 0);
    assert_within(at(result, "why.last.behind_ns"), 7.5 * MS, 1);
    assert_within(at(result, "why.last.behind_low_ns"), 7.5 * MS - 2.262157 * error, 10);
    assert_true(decided(result, "why.last.decided"));
    expect_documented(result);
}

/* The last worker's exposed time is 2 ms in each step; the means over the ranks are 5 and more. */
TEST(the_exchange_is_that_of_the_last_worker)
{
    json_t *result = made_straggler();
    assert_within(at(result, "why.exchange.exposed_ns"), 2 * MS, 1);
    assert_within(at(result, "why.exchange.communication_ns"), 8 * MS, 1);
    assert_within(at(result, "why.exchange.bytes"), 4e6, 1e-3);
    assert_within(at(result, "why.exchange.bytes_per_s"), 4e6 / 8e-3, 1);
    assert_false(decided(result, "why.exchange.decided")); /* 2 of 53 ms */
    /* 51 ms hide 8 ms. Without communication: 39 + 38 + 41 ms, and 8 ms of samples each. */
    assert_within(at(result, "why.samples_per_s.hidden"), WORKERS * SAMPLES / 51e-3, 1e-6);
    assert_within(at(result, "why.samples_per_s.without"),
                  SAMPLES / 42e-3 + SAMPLES / 39e-3 + SAMPLES / 48e-3, 1e-6);

    /* One worker: all of 20 ms exposed, and 26 ms do not hide behind 20. */
    for (int k = 0; k < STEPS; k++)
        set_step(0, k, 0, 9, 20);
    result = why_of(1, false);
    assert_true(json_is_null(dpb_json_at(result, "why.last")));
    assert_true(decided(result, "why.exchange.decided"));
    assert_within(at(result, "why.samples_per_s.hidden"), SAMPLES / 26e-3, 1e-6);
    assert_within(at(result, "why.samples_per_s.without"), SAMPLES / 20e-3, 1e-6);
}

TEST(the_worker_that_waits_for_data)
{
    for (int k = 0; k < STEPS; k++)
        for (int w = 0; w < WORKERS; w++)
            set_step(w, k, w == 1 ? 10 : 1, 28, 1);
    json_t *result = why_of(WORKERS, false);
    assert_within(at(result, "why.data.rank"), 1, 0);
    assert_within(at(result, "why.data.wait_ns"), 10 * MS, 1);
    assert_within(at(result, "why.data.wait_low_ns"), 10 * MS, 1);
    assert_within(at(result, "why.data.step_ns"), 50 * MS, 1);
    assert_within(at(result, "why.data.samples_per_s"), SAMPLES / 50e-3, 1e-9);
    assert_true(decided(result, "why.data.decided"));

    /* Workers that do not wait for each other. */
    result = why_of(WORKERS, true);
    assert_true(json_is_null(dpb_json_at(result, "why.last")));
    assert_true(json_is_null(dpb_json_at(result, "why.exchange")));
    assert_true(json_is_null(dpb_json_at(result, "why.samples_per_s")));
    assert_within(at(result, "why.data.wait_ns"), 10 * MS, 1);
}

/* 5 % of the step is the border: 2.585 of 51.7 ms. Worker 1 is late by a little less, and more. */
TEST(small_things_are_not_said)
{
    for (int more = 0; more < 2; more++) {
        const double late = more ? 2.62 : 2.55;
        char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT];
        for (int k = 0; k < STEPS; k++)
            for (int w = 0; w < WORKERS; w++)
                set_step(w, k, 0, w == 1 ? 37 + late : 37,
                         w == 1 ? 2 - late / 3 : 2 + 2 * late / 3);
        json_t *result = why_of(WORKERS, false);
        assert_within(at(result, "why.last.behind_ns"), late * MS, 2);
        assert_true(decided(result, "why.last.decided") == more);
        assert_int_equal(dpb_why_sentences((const json_t *const *)&result, 1, text), more ? 2 : 0);
    }
}

/* Equal workers whose times have noise of 20 % that stays for a while: who happens to be slower in
 * a run is seldom said to be so. A late one is found in the same noise. */
TEST(noise_is_no_cause)
{
    int n_said = 0, n_found = 0;
    uint32_t drawn = 0;
    for (int study = 0; study < STUDIES; study++)
        for (int late = 0; late < 2; late++) {
            double drift[WORKERS] = {0};
            for (int k = 0; k < STEPS; k++)
                for (int w = 0; w < WORKERS; w++) {
                    double normal[2];
                    const struct dpb_random4 r =
                        dpb_random(11, DPB_STREAM_SYNTHETIC, drawn++, 0, 0, 0);
                    dpb_random_normal(r.v[0], r.v[1], normal);
                    drift[w] = 0.5 * drift[w] + 0.2 * sqrt(0.75) * normal[0];
                    set_step(w, k, 0, fmax(1, 28 * (1 + drift[w]) + (late && w == 1 ? 10 : 0)), 2);
                }
            json_t *result = why_of(WORKERS, false);
            const bool said = decided(result, "why.last.decided");
            n_said += said && !late;
            n_found += said && late && at(result, "why.last.rank") == 1;
        }
    print_message("said of equal workers: %d of %d; a late one found: %d\n", n_said, STUDIES,
                  n_found);
    assert_in_range(n_said, 0, STUDIES * 5 / 100);
    assert_in_range(n_found, STUDIES * 95 / 100, STUDIES);
}

TEST(the_words)
{
    char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT];
    json_t *result = made_straggler();
    assert_int_equal(dpb_why_sentences((const json_t *const *)&result, 1, text), 2);
    assert_string_equal(text[0],
                        "rank 2 was last in 75 % of the steps (backward 37.0 ms, others 29.5)");
    assert_string_equal(text[1],
                        "samples/s: 470.6 if all communication were hidden, 562.3 with none "
                        "and no waiting");
    for (int k = 0; k < STEPS; k++)
        set_step(0, k, 10, 9, 20);
    result = why_of(1, false);
    assert_int_equal(dpb_why_sentences((const json_t *const *)&result, 1, text), 3);
    assert_string_equal(text[0], "data: rank 0 waits 10.0 of 50.0 ms; its loader gives 160.0/s: "
                                 "raise data.threads (2)");
    assert_string_equal(text[1], "exchange: 20.0 of 26.0 ms exposed on a step's last worker; "
                                 "a worker passes 4.00 MB at 0.154 GB/s");
    json_object_set_new(json_object_get(json_object_get(result, "why"), "exchange"), "bytes_per_s",
                        json_real(127e3));
    dpb_why_sentences((const json_t *const *)&result, 1, text);
    assert_non_null(strstr(text[1], "passes 4.00 MB at 0.000127 GB/s"));
    json_object_set_new(json_object_get(result, "timing"), "clock", json_string("device"));
    dpb_why_sentences((const json_t *const *)&result, 1, text);
    assert_string_equal(text[0], "data: the device of rank 0 is idle 10.0 of 50.0 ms: batches "
                                 "or launches come late");
}

/* A step's mean parts, and a rank's connections, are in the result beside `why`. */
TEST(the_words_of_waits_and_of_the_network)
{
    char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT];
    json_t *result = made_straggler();
    json_t *timing = json_object_get(result, "timing");
    json_object_update_new(timing,
                           json_pack("{s:i, s:i, s:{s:i, s:i, s:i}}", "elapsed_ns", 1000 * MS,
                                     "steps", 20, "breakdown_ns", "comm_exposed", 20 * MS,
                                     "comm_exposed_wait", 15 * MS, "comm_wait_peer", 16 * MS));
    json_object_set_new(result, "ranks",
                        json_pack("[{s:i}, {s:i, s:[{s:s, s:i, s:i, s:i, s:i, s:i}]}]", "rank", 0,
                                  "rank", 1, "tcp", "peer", "10.0.0.2", "connections", 4,
                                  "congested", 2, "segments", 5000, "retransmitted", 40, "rtt_us",
                                  40100));
    assert_int_equal(dpb_why_sentences((const json_t *const *)&result, 1, text), 4);
    assert_string_equal(text[1],
                        "waits: a step of 50.0 ms waits 20.0 ms for communication (exposed): "
                        "15.0 ms for a late peer (wait), 5.0 ms for bytes and sums");
    assert_string_equal(text[2], "network: rank 1 sent 40 of 5000 segments to 10.0.0.2 again "
                                 "(0.8 %), 2 of 4 connections are congested, round trip 40.1 ms: "
                                 "the way loses bytes, or is full");
    /* A library that does not tell; 4 of 5000 segments; 2 of 50 ms. */
    json_t *parts = json_object_get(timing, "breakdown_ns");
    json_object_set_new(parts, "comm_wait_peer", json_integer(0));
    json_integer_set(
        json_object_get(
            json_array_get(
                json_object_get(json_array_get(json_object_get(result, "ranks"), 1), "tcp"), 0),
            "retransmitted"),
        4);
    assert_int_equal(dpb_why_sentences((const json_t *const *)&result, 1, text), 3);
    expect_part(text[1], "for bytes and sums, as no wait for a late peer was reported");
    json_object_set_new(parts, "comm_exposed", json_integer(2 * MS));
    assert_int_equal(dpb_why_sentences((const json_t *const *)&result, 1, text), 2);
}

/* Several runs: what all of them show, with the numbers of the one in the middle. */
TEST(runs_have_to_agree)
{
    char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT];
    json_t *runs[3];
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < STEPS; k++)
            set_step(0, k, 8 + i, 9, i == 1 ? 0.5 : 20);
        runs[i] = why_of(1, false);
        json_object_set_new(json_object_get(json_object_get(runs[i], "timing"), "samples_per_s"),
                            "mean",
                            json_real(i == 0   ? 100
                                      : i == 1 ? 300
                                               : 200));
    }
    assert_int_equal(dpb_why_sentences((const json_t *const *)runs, 3, text), 1);
    assert_non_null(strstr(text[0], "waits 10.0 of ")); /* run 2 has the median rate */
    json_object_set_new(json_object_get(json_object_get(runs[1], "why"), "data"), "decided",
                        json_false());
    assert_int_equal(dpb_why_sentences((const json_t *const *)runs, 3, text), 0);

    runs[0] = made_straggler();
    runs[1] = own_json(json_deep_copy(runs[0]));
    assert_int_equal(dpb_why_sentences((const json_t *const *)runs, 2, text), 2);
    json_object_set_new(json_object_get(json_object_get(runs[1], "why"), "last"), "rank",
                        json_integer(1));
    assert_int_equal(dpb_why_sentences((const json_t *const *)runs, 2, text), 0);
}

/* A document from elsewhere, or from before. */
TEST(nothing_is_made_up)
{
    char text[DPB_WHY_SENTENCES][DPB_WHY_TEXT];
    json_t *runs[] = {own_json(json_object()), own_json(json_pack("{s:n}", "why")),
                      own_json(json_pack("{s:{s:{s:b}}}", "why", "last", "decided", 1))};
    assert_int_equal(dpb_why_sentences((const json_t *const *)runs, 1, text), 0);
    assert_int_equal(dpb_why_sentences((const json_t *const *)runs + 1, 1, text), 0);
    dpb_why_sentences((const json_t *const *)runs + 2, 1, text);
}

TEST_MAIN(make_journals, free_journals)
