/* test_summary.c - what the journals of a run come to: rates, steps and breakdown, against numbers
 * by hand and against the clock tick by tick. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dpbench/random.h"
#include "journal.h"
#include "lib/near.h"
#include "lib/test.h"
#include "proof/lead.h"
#include "record/summary.h"

/* Of dpb_breakdown_names. */
enum { FORWARD = 1, EXPOSED = 5, HIDDEN, WAIT_PEER };

static double sum_of_parts(const struct dpb_breakdown *breakdown)
{
    double sum = 0;
    for (size_t i = 0; i < DPB_BREAKDOWN_STEP; i++)
        sum += breakdown->parts[i];
    return sum;
}

/* Workers by turns late: a step of the run goes from the last end to the last end. */
TEST(steps_end_with_the_last_worker)
{
    /* Steps 0 and 1 are warm-up and end together at 100 ms. Ends after that: 110 140 151, 120 132
     * 144, 110 120 160. */
    static const int64_t ms[3][5] = {
        {50, 50, 10, 30, 11}, {50, 50, 20, 12, 12}, {50, 50, 10, 10, 40}};
    const struct dpb_journal *journals[3];
    for (int w = 0; w < 3; w++) {
        struct dpb_journal *journal = make_journal();
        journal->timed_from = 2;
        journal->steady = journal->gated = true;
        for (int k = 0; k < 5; k++) {
            struct dpb_record *record = add_step(journal, 0, ms[w][k]);
            record->loss = 10 * k + w;
            record->comm_bytes = (uint64_t)(1000 * (w + 1));
        }
        journals[w] = journal;
    }
    const struct dpb_summary_args args = {journals, 3, 0, 96, false, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.warmup_steps, 2);
    assert_int_equal(s.n_warmup, 2);
    assert_int_equal(s.warmup_step_ns[0], 50 * MS);
    assert_int_equal(s.warmup_step_ns[1], 50 * MS);
    assert_int_equal(s.n_steps, 3);
    assert_int_equal(s.step_ns[0], 20 * MS);
    assert_int_equal(s.step_ns[1], 20 * MS);
    assert_int_equal(s.step_ns[2], 20 * MS);
    assert_int_equal(s.elapsed_ns, 60 * MS); /* the sum of the longest would be 90 */
    assert_within(s.rate.mean, 96 / 0.020, 1e-6);
    assert_within(s.rate.median, 96 / 0.020, 1e-6);
    assert_within(s.first_to_last, 96 / 0.020, 1e-6);
    assert_within(sum_of_parts(&s.breakdown), 20 * MS, 1e-3);
    assert_within(s.breakdown.parts[EXPOSED], 3.0 * MS, 1e-3);
    assert_within(s.breakdown.parts[HIDDEN], 6.0 * MS, 1e-3);
    assert_within(s.breakdown.parts[WAIT_PEER], 0.4 * MS, 1e-3);
    assert_within(s.bytes_per_step, 6000, 1e-9);
    assert_int_equal(s.n_losses, 5);
    assert_within(s.loss[0], 1.0, 1e-12);
    assert_within(s.loss[4], 41.0, 1e-12);
    assert_true(s.steady);
    dpb_summary_release(&s);
}

/* Of two workers with a batch of 32 each. End it by dpb_summary_release. */
static struct dpb_summary summary_of(const struct dpb_journal *a, const struct dpb_journal *b,
                                     bool local)
{
    const struct dpb_journal *journals[] = {a, b};
    const struct dpb_summary_args args = {journals, 2, 0, 64, local, NULL};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    return s;
}

/* The breakdown of a step is that of the worker that ends it last, not a mean over the workers. */
TEST(breakdown_follows_the_last)
{
    struct dpb_journal *fast = make_journal(), *slow = make_journal();
    fast->timed_from = slow->timed_from = 0;
    struct dpb_record *waits = add_step(fast, 0, 100), *computes = add_step(slow, 0, 101);
    waits->forward_ns = 0;
    waits->comm_exposed_ns = 35 * MS;
    computes->comm_exposed_ns = 0;
    computes->backward_ns += computes->step_ns / 100 * 15;
    struct dpb_summary s = summary_of(fast, slow, false);
    assert_within(s.breakdown.parts[EXPOSED], 0, 1e-9);
    assert_within(sum_of_parts(&s.breakdown), 101 * MS, 1e-3);
    dpb_summary_release(&s);
}

static void add_step_after(struct dpb_journal *journal, int64_t pause_ms, int64_t ms)
{
    struct dpb_record *record = add_step(journal, 0, ms);
    record->paused_ns = pause_ms * MS;
    record->begin_ns += pause_ms * MS;
}

/* A pause of all workers is no part of a step; time in which one of them trains is. */
TEST(pauses_are_left_out)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    add_step(a, 0, 10);        /* to 10 */
    add_step(b, 3, 12);        /* to 15 */
    add_step_after(a, 90, 10); /* 100 to 110 */
    add_step_after(b, 87, 10); /* 102 to 112 */
    add_step_after(a, 50, 10); /* 160 to 170, while b trains until 122 */
    add_step(b, 0, 10);
    struct dpb_summary s = summary_of(a, b, false);
    assert_int_equal(s.n_steps, 3);
    assert_int_equal(s.step_ns[0], 15 * MS);
    assert_int_equal(s.step_ns[1], 12 * MS);
    assert_int_equal(s.step_ns[2], 58 * MS);
    dpb_summary_release(&s);
}

/* Each worker's timed steps begin at a number of its own: 12 of 10 ms, 4 of 40 ms, together from 80
 * ms to 200 ms. */
TEST(local_steps_are_timed_from_their_own)
{
    struct dpb_journal *fast = make_journal(), *slow = make_journal();
    for (int k = 0; k < 20; k++)
        add_step(fast, 0, 10);
    for (int k = 0; k < 5; k++)
        add_step(slow, 0, 40);
    fast->timed_from = 8;
    slow->timed_from = 1;
    struct dpb_summary s = summary_of(fast, slow, true);
    assert_false(s.no_common_window);
    assert_int_equal(s.warmup_steps, 8);
    assert_int_equal(s.n_warmup, 0); /* no step of all */
    assert_int_equal(s.n_steps, 7);  /* of 7.5, by (1 / 10 + 1 / 40) / 2 a ms */
    assert_int_equal(s.elapsed_ns, 7 * 16 * MS);
    assert_within(s.rate.mean, 64 / 0.016, 1e-6);
    assert_within(s.bytes_per_step, 200, 1e-9); /* two workers' 100 */
    dpb_summary_release(&s);
}

/* A runs from 0 to 100 ms in steps of 10 ms, B from 0 to 40 in steps of 20, when it dies; C dies
 * before its first timed step. A global batch is three workers'. */
TEST(a_lost_worker_counts_while_it_lives)
{
    struct dpb_journal *a = make_journal(), *b = make_journal(), *c = make_journal();
    a->timed_from = b->timed_from = 0;
    a->verdict_after = DPB_VERDICT_PASS;
    for (int k = 0; k < 10; k++)
        add_step(a, 0, 10);
    for (int k = 0; k < 2; k++)
        add_step(b, 0, 20);
    c->timed_from = UINT64_MAX;
    const struct dpb_journal *journals[] = {a, b, c};
    const bool lost[] = {false, true, true};
    const struct dpb_summary_args args = {journals, 3, 0, 96, true, lost};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_int_equal(s.n_losses, 10);
    assert_int_equal(s.n_steps, 4); /* 12 steps of 32 samples */
    assert_int_equal(s.step_ns[0], 20 * MS);
    assert_int_equal(s.step_ns[1], 20 * MS);
    assert_int_equal(s.step_ns[2], 30 * MS); /* of A alone */
    assert_within(s.rate.mean, 12 * 32 / 0.100, 1e-3);
    assert_within(sum_of_parts(&s.breakdown), 25.0 * MS, 1e-3);
    assert_int_equal(s.after, DPB_VERDICT_PASS);
    dpb_summary_release(&s);
}

/* A runs from 0 to 50 ms, pauses for 100 ms and runs 50 ms more; B dies at 40 ms: no worker runs in
 * the pause. */
TEST(pauses_after_a_death_are_left_out)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    for (int k = 0; k < 10; k++)
        add_step_after(a, k == 5 ? 100 : 0, 10);
    for (int k = 0; k < 2; k++)
        add_step(b, 0, 20);
    const struct dpb_journal *journals[] = {a, b};
    const bool lost[] = {false, true};
    const struct dpb_summary_args args = {journals, 2, 0, 64, true, lost};
    struct dpb_summary s;
    assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
    assert_within(s.rate.mean, 12 * 32 / 0.100, 1e-3);
    assert_within(s.first_to_last, 12 * 32 / 0.100, 1e-3);
    dpb_summary_release(&s);
}

TEST(local_rates_add_up_in_the_common_window)
{
    /* A runs from 0 to 100 ms in steps of 10 ms, but its first takes 20 and its last 40; B from 15
     * to 75 ms in steps of 20 ms. Within 15..75 A does 0.25 + 4 + 0.375 steps and B 3: 3.8125
     * global batches, three of them whole. */
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    static const int64_t ms[] = {20, 10, 10, 10, 10, 40};
    for (size_t k = 0; k < sizeof ms / sizeof ms[0]; k++)
        add_step(a, 0, ms[k]);
    for (int k = 0; k < 3; k++)
        add_step(b, 15, 20);
    struct dpb_summary s = summary_of(a, b, true);
    assert_false(s.no_common_window);
    assert_int_equal(s.n_steps, 3);
    assert_int_equal(s.step_ns[0], 15000000); /* 5 ms at 0.05 steps a ms, 10 at 0.075 */
    assert_int_equal(s.step_ns[1], 13333333);
    assert_int_equal(s.elapsed_ns, 41666667);
    assert_within(s.rate.mean, 3 * 64 / 0.041666667, 1e-3);
    assert_within(s.rate.median, 4800, 1e-3);
    assert_within(sum_of_parts(&s.breakdown), 41666667.0 / 3, 1e-3);
    assert_within(s.first_to_last, 9 * 32 / 0.100, 1e-6); /* of all nine steps, in all the time */
    dpb_summary_release(&s);

    /* Alone, a worker's rate is the plain one. */
    const struct dpb_journal *only = a;
    const struct dpb_summary_args alone = {&only, 1, 0, 32, true, NULL};
    assert_int_equal(dpb_summary_make(&alone, &s), DPB_OK);
    assert_int_equal(s.n_steps, 6);
    assert_within(s.rate.mean, 6 * 32 / 0.100, 1e-6);
    dpb_summary_release(&s);
}

/* ---- an oracle: the clock tick by tick ------------------------------------------------------ */

enum { ORACLE_STEPS = 12, ORACLE_WORKERS = 16, DRAWS = 12, TICKS = 4096, TICK = 1000 /* ns */ };

static uint32_t drawn;

static int64_t draw(int64_t below)
{
    return dpb_random(5, DPB_STREAM_SHUFFLE, drawn++, 7, 0, 0).v[0] % below;
}

/* What every worker does in every tick: its step, counted from 1; 0: none. */
static struct {
    uint8_t at[ORACLE_WORKERS][TICKS];
    int64_t length[ORACLE_WORKERS][ORACLE_STEPS]; /* ticks */
    int64_t end[ORACLE_WORKERS];
} oracle;

/* The next step of a worker, [begin, end) in ticks. `noise`: what its clock is off in ns. */
static void tick_step(struct dpb_journal *journal, uint32_t w, int64_t begin, int64_t end,
                      int64_t noise)
{
    uint64_t k = journal->n_records;
    assert_true(begin < end && end < TICKS);
    struct dpb_record *record = add_step(journal, 0, 0);
    int64_t ns = (end - begin) * TICK;
    *record = (struct dpb_record){.begin_ns = begin * TICK + noise,
                                  .step_ns = ns,
                                  .paused_ns = k > 0 ? (begin - oracle.end[w]) * TICK : 0,
                                  .data_wait_ns = ns / 5,
                                  .forward_ns = ns / 2,
                                  .backward_ns = ns - ns / 5 - ns / 2};
    oracle.length[w][k] = end - begin;
    oracle.end[w] = end;
    for (int64_t t = begin; t < end; t++)
        oracle.at[w][t] = (uint8_t)(k + 1);
}

/* Of a clock that is wrong now and then; its mean over a worker's steps is 0. */
static int64_t noise_at(uint32_t w, int k)
{
    static int64_t noise[ORACLE_WORKERS];
    noise[w] = k % 2 == 0 ? draw(5 * TICK) : -noise[w];
    return noise[w];
}

/* Workers meet in each step: the last to arrive lets all go on, at their own time. Now and then all
 * pause. */
static void draw_together(struct dpb_journal *journals[], uint32_t n)
{
    for (int k = 0; k < ORACLE_STEPS; k++) {
        int64_t met = 0, begin[ORACLE_WORKERS];
        int64_t resumed = 0;
        for (uint32_t w = 0; w < n && k > 0 && k % 5 == 0; w++)
            resumed = oracle.end[w] > resumed ? oracle.end[w] : resumed;
        for (uint32_t w = 0; w < n; w++) {
            begin[w] = k == 0 ? 5 + draw(20) : resumed > 0 ? resumed + 30 + draw(8) : oracle.end[w];
            int64_t arrived = begin[w] + 20 + draw(40);
            met = arrived > met ? arrived : met;
        }
        for (uint32_t w = 0; w < n; w++)
            tick_step(journals[w], w, begin[w], met + 1 + draw(25), noise_at(w, k));
    }
}

static void draw_apart(struct dpb_journal *journals[], uint32_t n)
{
    for (uint32_t w = 0; w < n; w++) {
        int64_t at = 5 + draw(60), slow = 1 + draw(3);
        for (int k = 0; k < ORACLE_STEPS; k++) {
            at += w == 0 && k == 6 ? 40 : 0; /* evaluates alone */
            int64_t end = at + 30 * slow + draw(30);
            tick_step(journals[w], w, at, end, noise_at(w, k));
            at = end;
        }
    }
}

/* The ticks in which some worker trains; and of those in which all do how many pass until `steps`
 * global batches are done. */
static void count_ticks(uint32_t n, double steps, int64_t *any, double *all)
{
    double done = 0;
    *any = 0;
    *all = 0;
    for (int64_t t = 0; t < TICKS; t++) {
        uint32_t running = 0;
        double speed = 0;
        for (uint32_t w = 0; w < n; w++) {
            uint8_t k = oracle.at[w][t];
            running += k > 0;
            speed += k > 0 ? 1.0 / (double)oracle.length[w][k - 1] / n : 0;
        }
        *any += running > 0;
        if (running < n || !(done < steps))
            continue;
        *all += done + speed > steps ? (steps - done) / speed : 1;
        done += speed;
    }
    if (done < steps - 1e-6)
        fail_msg("all workers together did %.6f global batches, not %.0f", done, steps);
}

/* Against the ticks: 1 to 16 workers. Noise in the begins changes nothing.
 */
static void check_against_ticks(bool local)
{
    for (uint32_t n = 1; n <= ORACLE_WORKERS; n++)
        for (int i = 0; i < DRAWS; i++) {
            struct dpb_journal *journals[ORACLE_WORKERS];
            struct dpb_summary s;
            double all;
            int64_t any;
            memset(&oracle, 0, sizeof oracle);
            for (uint32_t w = 0; w < n; w++) {
                journals[w] = make_journal();
                journals[w]->timed_from = 0;
            }
            (local ? draw_apart : draw_together)(journals, n);
            const struct dpb_summary_args args = {
                (const struct dpb_journal *const *)journals, n, 0, 32 * (uint64_t)n, local, NULL};
            assert_int_equal(dpb_summary_make(&args, &s), DPB_OK);
            count_ticks(n, local ? (double)s.n_steps : 0, &any, &all);
            double passed_ns = (local ? all : (double)any) * TICK, sum_ns = 0,
                   first_to_last = 32.0 * n * ORACLE_STEPS / ((double)any * TICK / 1e9);
            for (uint64_t k = 0; k < s.n_steps; k++)
                sum_ns += (double)s.step_ns[k];
            assert_true(s.n_steps > 0 && (local || s.n_steps == ORACLE_STEPS));
            assert_within((double)s.elapsed_ns, passed_ns, 2);
            assert_within(sum_ns, (double)s.elapsed_ns, 0);
            assert_within(sum_of_parts(&s.breakdown), passed_ns / (double)s.n_steps, 1);
            assert_within(s.rate.mean / (32.0 * n * (double)s.n_steps / (passed_ns / 1e9)), 1,
                          1e-5);
            assert_within(s.first_to_last / first_to_last, 1, 1e-9);
            dpb_summary_release(&s);
        }
}

TEST(synchronous_rate_is_of_the_time_that_passed)
{
    check_against_ticks(false);
}

TEST(local_rate_is_of_the_common_time)
{
    check_against_ticks(true);
}

/* A step that took no time has no speed: the others count. */
TEST(local_steps_without_time_are_left_out)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    for (int k = 0; k < 6; k++) {
        add_step(a, 0, k == 2 ? 0 : 10);
        add_step(b, 0, 10);
    }
    struct dpb_summary s = summary_of(a, b, true);
    assert_int_equal(s.n_steps, 5);
    assert_int_equal(s.elapsed_ns, 50 * MS);
    dpb_summary_release(&s);
}

TEST(local_without_common_window_says_so)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->timed_from = b->timed_from = 0;
    add_step(a, 0, 10);
    add_step(b, 500, 10);
    struct dpb_summary s = summary_of(a, b, true);
    assert_true(s.no_common_window);
    assert_true(isnan(s.rate.mean));
    dpb_summary_release(&s);
}

TEST(incomplete_journals_give_what_there_is)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    for (int k = 0; k < 5; k++)
        add_step(a, 0, 10);
    for (int k = 0; k < 4; k++) /* died in its fifth step */
        add_step(b, 0, 10);
    a->timed_from = b->timed_from = 2;
    struct dpb_summary s = summary_of(a, b, false);
    assert_int_equal(s.n_steps, 2);
    assert_int_equal(s.n_losses, 4);
    dpb_summary_release(&s);

    a->timed_from = UINT64_MAX; /* still in warm-up */
    s = summary_of(a, b, false);
    assert_int_equal(s.n_steps, 0);
    assert_int_equal(s.n_losses, 4);
    assert_true(isnan(s.rate.mean));
    assert_true(isnan(s.breakdown.parts[FORWARD]));
    dpb_summary_release(&s);

    s = summary_of(a, NULL, false); /* never came up */
    assert_int_equal(s.n_losses, 0);
    dpb_summary_release(&s);
}

/* Workers that wait in meetings alone: a step ends with its last worker, and the first timed step
 * begins where the last worker ends warm-up. */
TEST(workers_with_a_lead_are_timed_by_the_last)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    for (int k = 0; k < 6; k++) {
        add_step(a, 0, k < 5 ? 10 : 70); /* it waits in the last step */
        add_step(b, 0, 20);
    }
    a->timed_from = b->timed_from = 2;
    for (uint32_t within = 1; within <= 4; within += 3) {
        a->within = b->within = within;
        struct dpb_summary s = summary_of(a, b, false);
        assert_int_equal(s.n_steps, 4);
        assert_int_equal(s.step_ns[0], (within == 1 ? 40 : 20) * MS);
        for (int k = 1; k < 4; k++)
            assert_int_equal(s.step_ns[k], 20 * MS);
        dpb_summary_release(&s);
    }
}

/* A worker may begin a step when all have begun the one before, or by its lead an earlier one. */
TEST(a_step_too_early_breaks_the_lead)
{
    enum { LATER_MS = 25 };
    struct dpb_journal *a = make_journal(), *b = make_journal();
    const struct dpb_journal *journals[] = {NULL, a, b};
    struct dpb_lead_broken broken;
    for (int k = 0; k < 6; k++) {
        add_step(a, 0, 10);
        add_step(b, LATER_MS, 10);
    }
    a->first_step = b->first_step = 100;
    for (uint32_t within = 0; within < 5; within++) {
        a->within = b->within = within;
        assert_true(dpb_lead_kept(journals, 3, &broken) == (within == 0 || within >= 3));
    }
    a->within = b->within = 1;
    assert_false(dpb_lead_kept(journals, 3, &broken));
    assert_true(broken.ahead == 1 && broken.behind == 2 && broken.step == 101);
    assert_true(broken.early_ns == (LATER_MS - 10) * MS);
    for (uint64_t k = 0; k < 6; k++) /* by less than a clock is exact */
        b->records[k].begin_ns -= (LATER_MS - 10) * MS - 50000;
    assert_true(dpb_lead_kept(journals, 3, &broken));
    journals[2] = NULL;
    assert_true(dpb_lead_kept(journals, 3, &broken));
}

TEST(worst_verdict_stands)
{
    struct dpb_journal *a = make_journal(), *b = make_journal();
    a->verdict_pattern = DPB_VERDICT_SKIPPED;
    b->verdict_pattern = DPB_VERDICT_FAIL;
    a->verdict_exchange = DPB_VERDICT_PASS;
    b->verdict_exchange = DPB_VERDICT_SKIPPED;
    a->verdict_replicas = b->verdict_replicas = DPB_VERDICT_NOT_APPLICABLE;
    struct dpb_summary s = summary_of(a, b, false);
    assert_int_equal(s.pattern, DPB_VERDICT_FAIL);
    assert_int_equal(s.exchange, DPB_VERDICT_SKIPPED);
    assert_int_equal(s.replicas, DPB_VERDICT_NOT_APPLICABLE);
    dpb_summary_release(&s);
}

TEST(reason_says_why_steps_were_not_compared)
{
    static const struct {
        dpb_verdict a, b;
        const char *of_b, *reason;
    } rows[] = {
        {DPB_VERDICT_PASS, DPB_VERDICT_PASS, "", NULL},
        {DPB_VERDICT_FAIL, DPB_VERDICT_SKIPPED, "b did not", NULL},
        {DPB_VERDICT_PASS, DPB_VERDICT_SKIPPED, "b did not", "b did not"},
        {DPB_VERDICT_NOT_APPLICABLE, DPB_VERDICT_NOT_APPLICABLE, "no exchange", "no exchange"},
        {DPB_VERDICT_PASS, DPB_VERDICT_SKIPPED, "", "the run ended before its steps were compared"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct dpb_journal *a = make_journal(), *b = make_journal();
        a->verdict_steps = rows[i].a;
        b->verdict_steps = rows[i].b;
        snprintf(b->steps_reason, sizeof b->steps_reason, "%s", rows[i].of_b);
        struct dpb_summary s = summary_of(a, b, false);
        assert_string_equal(s.steps_reason ? s.steps_reason : "-",
                            rows[i].reason ? rows[i].reason : "-");
        dpb_summary_release(&s);
    }
}

TEST_MAIN(NULL, NULL)
