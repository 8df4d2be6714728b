/*
 * test_turns.c - the measurements of a job that ran in turns: parked time is no step's, and a step
 * that a border cuts counts by its share.
 */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "journal.h"
#include "lib/near.h"
#include "record/summary.h"
#include "record/turns.h"

enum { RECORDS = 256, WORKERS = 2 };

/* Steps of 10 ms of running time, beside the pauses of `turns`; a worker begins `late_ms` later. */
static void train(const struct dpb_turns *turns, int64_t late_ms, struct dpb_journal *journal)
{
    int64_t at_ns = late_ms * MS;
    journal->capacity = RECORDS;
    journal->timed_from = 0;
    for (size_t k = 0, t = 0; k < RECORDS; k++) {
        struct dpb_record *record = &journal->records[journal->n_records++];
        int64_t left_ns = 10 * MS;
        *record = (struct dpb_record){.begin_ns = at_ns};
        while (t < turns->n && at_ns + left_ns > turns->at[t].parked_ns) {
            left_ns -= turns->at[t].parked_ns - at_ns;
            at_ns = turns->at[t++].go_ns;
        }
        at_ns += left_ns;
        record->step_ns = at_ns - record->begin_ns;
        record->forward_ns = record->step_ns / 2;
        record->comm_exposed_ns = record->step_ns / 10;
        record->backward_ns = record->step_ns - record->forward_ns - record->comm_exposed_ns;
    }
    journal->evals[0] = (struct dpb_eval){.step = 30, .trained_ns = 500 * MS};
    journal->n_evals = 1;
    journal->ended_ns = at_ns;
}

static struct dpb_board *make_board(const struct dpb_turns *turns, int64_t late_ms)
{
    struct dpb_board *board;
    const size_t bytes = sizeof(struct dpb_journal) + RECORDS * sizeof(struct dpb_record);
    assert_int_equal(dpb_board_create(WORKERS, bytes, &board), DPB_OK);
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        train(turns, rank * late_ms, dpb_board_journal(board, rank, NULL));
    return board;
}

/* Two turns of 205 ms, another cell's of 305 ms before each, and the end. */
static struct dpb_turn turns_at[] = {{7, 103 * MS, 408 * MS, 613 * MS, 30.0},
                                     {9, 613 * MS, 918 * MS, 1123 * MS, NAN},
                                     {-1, 1123 * MS, 1428 * MS, INT64_MAX, NAN}};

TEST(test_parked_time_is_no_steps)
{
    const struct dpb_turns turns = {.at = turns_at, .n = 3};
    struct dpb_board *board = make_board(&turns, 0);
    dpb_turns_unpark(&turns, board);
    const struct dpb_journal *journal = dpb_board_journal(board, 1, NULL);
    for (size_t k = 0; k < RECORDS; k++) {
        const struct dpb_record *record = &journal->records[k];
        int64_t sum_ns = 0;
        assert_int_equal(record->begin_ns, (int64_t)k * 10 * MS);
        assert_int_equal(record->step_ns, 10 * MS);
        for (size_t i = 0; i < DPB_BREAKDOWN_STEP; i++)
            sum_ns += dpb_record_part(record, i);
        assert_int_equal(sum_ns, 10 * MS);
        assert_within(record->forward_ns, 5.0 * MS, 2);
    }
    assert_int_equal(journal->ended_ns, RECORDS * 10 * (int64_t)MS);
    assert_int_equal(journal->evals[0].trained_ns,
                     (500 - 305) * MS); /* the second pause is later */
    dpb_board_destroy(board);
}

TEST(test_cut_steps_count_by_their_share)
{
    const struct dpb_turns turns = {.at = turns_at, .n = 3};
    struct dpb_board *board = make_board(&turns, 4);
    const struct dpb_experiment experiment = {.n_workers = WORKERS, .global_batch = 32};
    json_t *result = json_object();
    dpb_turns_unpark(&turns, board);
    dpb_turns_report(&turns, board, &experiment, result);
    size_t n;
    double *steps = dpb_json_numbers(dpb_json_at(result, "turns.steps"), "", &n);
    assert_int_equal(n, 2);
    double *rates = dpb_json_numbers(dpb_json_at(result, "turns.samples_per_s"), "", &n);
    for (size_t i = 0; i < 2; i++) {
        assert_within(steps[i], 18.5, 1e-9); /* of 205 ms the first 20 do not count */
        assert_within(rates[i], 3200, 1e-6);
    }
    json_t *blocks = json_pack("[i, i]", 7, 9);
    assert_true(json_equal(dpb_json_at(result, "turns.block"), blocks));
    json_decref(blocks);
    json_t *latencies = json_pack("[f, n]", 30.0);
    assert_true(json_equal(dpb_json_at(result, "turns.core_to_core_ns"), latencies));
    json_decref(latencies);
    assert_within(dpb_json_number(result, "turns.parked_s"), 0.915, 1e-9);
    free(steps);
    free(rates);
    json_decref(result);
    dpb_board_destroy(board);
}

TEST_MAIN(NULL, NULL)
