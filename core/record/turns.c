/* turns.c - see turns.h. */
#include "record/turns.h"

#include <math.h>
#include <stdlib.h>

#include "base/json.h"
#include "record/summary.h"

/* How long the job was parked within [from, to), which does not reach before turn `first`. */
static int64_t parked_within(const struct dpb_turns *turns, size_t first, int64_t from_ns,
                             int64_t to_ns)
{
    int64_t sum_ns = 0;
    for (size_t i = first; i < turns->n && turns->at[i].parked_ns < to_ns; i++) {
        const struct dpb_turn *turn = &turns->at[i];
        const int64_t begin_ns = turn->parked_ns > from_ns ? turn->parked_ns : from_ns;
        const int64_t end_ns = turn->go_ns < to_ns ? turn->go_ns : to_ns;
        sum_ns += end_ns > begin_ns ? end_ns - begin_ns : 0;
    }
    return sum_ns;
}

/* ---- the clock of the ranks ---------------------------------------------------------------- */

static void shorten(struct dpb_record *record, int64_t parked_ns)
{
    int64_t *const parts[] = {&record->data_wait_ns,      &record->forward_ns,
                              &record->delay_ns,          &record->optimizer_ns,
                              &record->comm_exposed_ns,   &record->comm_hidden_ns,
                              &record->comm_wait_peer_ns, &record->comm_exposed_wait_ns};
    const int64_t step_ns = record->step_ns > parked_ns ? record->step_ns - parked_ns : 1;
    const double share = (double)step_ns / (double)record->step_ns;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i] = (int64_t)((double)*parts[i] * share);
    record->step_ns = step_ns;
    record->backward_ns = step_ns - record->data_wait_ns - record->forward_ns - record->delay_ns -
                          record->optimizer_ns - record->comm_exposed_ns;
}

static void unpark(const struct dpb_turns *turns, struct dpb_journal *journal)
{
    const uint64_t n = dpb_journal_records(journal);
    uint64_t eval = 0;
    size_t first = 0;
    int64_t before_ns = 0, of_steps_ns = 0; /* parked before this record; of it, within steps */
    int64_t at_ns = INT64_MIN;              /* where the record before ended */
    for (uint64_t k = 0; k < n; k++) {
        struct dpb_record *record = &journal->records[k];
        const int64_t begin_ns = record->begin_ns, end_ns = begin_ns + record->step_ns;
        const int64_t pause_ns =
            parked_within(turns, first, begin_ns - record->paused_ns, begin_ns);
        const int64_t parked_ns = parked_within(turns, first, begin_ns, end_ns);
        for (; eval < journal->n_evals && journal->evals[eval].step <= journal->first_step + k;
             eval++)
            journal->evals[eval].trained_ns -= of_steps_ns;
        before_ns += parked_within(turns, first, at_ns, begin_ns);
        record->begin_ns -= before_ns;
        record->paused_ns -= pause_ns;
        if (parked_ns > 0)
            shorten(record, parked_ns);
        while (first < turns->n && turns->at[first].go_ns <= begin_ns)
            first++;
        before_ns += parked_ns;
        of_steps_ns += parked_ns;
        at_ns = end_ns;
    }
    for (; eval < journal->n_evals; eval++)
        journal->evals[eval].trained_ns -= of_steps_ns;
    journal->ended_ns -= before_ns;
}

void dpb_turns_unpark(const struct dpb_turns *turns, struct dpb_board *board)
{
    const struct dpb_load_sample none = {.used_ns = turns->spent.used_ns < 0 ? -1 : 0};
    if (!turns->at)
        return;
    for (uint32_t rank = 0; rank < dpb_board_ranks(board); rank++) {
        struct dpb_journal *journal = dpb_board_journal(board, rank, NULL);
        unpark(turns, journal);
        if (journal->others_wall_ns > 0)
            journal->others_wall_ns -= dpb_board_turns(board)->parked_ns;
        if (journal->load.known)
            dpb_load_between(&none, &turns->spent, &journal->load);
    }
}

/* ---- the rates of turns -------------------------------------------------------------------- */

double dpb_turns_steps(const struct dpb_journal *journal, const struct dpb_turns *turns,
                       int64_t from_ns, int64_t to_ns, uint64_t *k, double *seconds)
{
    const uint64_t n = dpb_journal_records(journal);
    double steps = 0;
    *seconds = 0;
    for (; *k < n && journal->records[*k].begin_ns < to_ns; ++*k) {
        const struct dpb_record *record = &journal->records[*k];
        const int64_t end_ns = record->begin_ns + record->step_ns;
        const int64_t begin_ns = record->begin_ns > from_ns ? record->begin_ns : from_ns;
        const double within_ns = (double)((end_ns < to_ns ? end_ns : to_ns) - begin_ns);
        if (within_ns > 0) {
            const int64_t parked_ns = turns ? parked_within(turns, 0, record->begin_ns, end_ns) : 0;
            steps += within_ns / (double)(record->step_ns - parked_ns);
            *seconds += within_ns * 1e-9;
        }
        if (end_ns > to_ns)
            break; /* the next turn has the rest of it */
    }
    return steps;
}

double dpb_turns_rate(const struct dpb_turns *turns, size_t i, struct dpb_board *board)
{
    const int64_t from_ns = turns->at[i].go_ns + DPB_TURNS_REST_NS, to_ns = turns->at[i].to_ns;
    double sum = 0;
    uint32_t n_workers = 0;
    for (uint32_t rank = 0; rank < dpb_board_ranks(board); rank++) {
        const struct dpb_journal *journal = dpb_board_journal(board, rank, NULL);
        const uint64_t n = dpb_journal_records(journal);
        uint64_t k = n;
        double seconds;
        if (dpb_board_page(board, rank)->role != DPB_WORKER)
            continue;
        while (k > 0 &&
               journal->records[k - 1].begin_ns + journal->records[k - 1].step_ns > from_ns)
            k--;
        const double steps = dpb_turns_steps(journal, turns, from_ns, to_ns, &k, &seconds);
        sum += k < n ? steps / seconds : NAN;
        n_workers++;
    }
    return sum * (double)dpb_board_about(board)->step_samples / n_workers;
}

void dpb_turns_report(const struct dpb_turns *turns, struct dpb_board *board,
                      const struct dpb_experiment *experiment, json_t *result)
{
    const uint32_t n_workers = experiment->n_workers;
    const double samples = (double)experiment->global_batch / n_workers;
    json_t *blocks = json_array(), *times = json_array(), *counts = json_array(),
           *rates = json_array(), *latencies = json_array();
    uint64_t *k = calloc(n_workers, sizeof *k);
    int64_t parked_ns = 0;
    for (size_t i = 0; turns->at && k && i < turns->n; i++) {
        const struct dpb_turn *turn = &turns->at[i];
        parked_ns += turn->go_ns - turn->parked_ns;
        if (turn->block < 0 || turn->to_ns == INT64_MAX)
            continue; /* an end or a signal has cut it */
        double rate = 0, steps = 0, longest_s = 0;
        for (uint32_t w = 0; w < n_workers; w++) {
            double seconds;
            const double done = dpb_turns_steps(dpb_board_journal(board, w, NULL), NULL,
                                                turn->go_ns - parked_ns + DPB_TURNS_REST_NS,
                                                turn->to_ns - parked_ns, &k[w], &seconds);
            if (seconds > 0 || !dpb_board_lost(board, w))
                rate += samples * done / seconds; /* NaN: it made no step there */
            steps += done / n_workers;
            longest_s = fmax(longest_s, seconds);
        }
        json_array_append_new(blocks, json_integer((json_int_t)turn->block));
        json_array_append_new(times, dpb_json_real(longest_s));
        json_array_append_new(counts, dpb_json_real(steps));
        json_array_append_new(rates, dpb_json_real(rate));
        json_array_append_new(latencies, dpb_json_real(turn->core_to_core_ns));
    }
    free(k);
    json_t *made = json_pack("{s:o, s:o, s:o, s:o, s:o, s:f}", "block", blocks, "seconds", times,
                             "steps", counts, "samples_per_s", rates, "core_to_core_ns", latencies,
                             "parked_s", (double)parked_ns * 1e-9);
    if (turns->at)
        json_object_set(result, "turns", made);
    json_decref(made);
}
